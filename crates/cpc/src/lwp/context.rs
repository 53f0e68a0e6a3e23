//! A loaded control block: counts and records from its ring.

use std::sync::Arc;

use lwp_arch::lwpcb::{Lwpcb, sign_extend_26};
use lwp_arch::ring::Ring;
use lwp_arch::{EventFlags, EventId, Record, RingOffset};
use rustix::time::{ClockId, clock_gettime};
use zerocopy::FromZeros;

use super::memory::Memory;
use super::plan::{Interrupt, Program, Programmed};
use super::unit::Unit;
use crate::backend::{Cause, Context, Moment};
use crate::clock::Cycles;
use crate::error::{Error, Result};
use crate::thread;

/// A threshold that no ring reaches.
const NEVER: u32 = u32::MAX;

/// A request that is being counted or recorded.
#[derive(Debug)]
struct Running {
    programmed: Programmed,
    /// Records of it that were made since the start.
    expired: u64,
    /// Records that wait to be handed out, oldest first.
    queue: Vec<Record>,
    /// Records for which `queue` had no room.
    dropped: u64,
    /// The value at which the counter started.
    preset: u64,
    /// Occurrences in earlier samples, which took longer or shorter.
    own: u64,
}

impl Running {
    /// `None` if there is no memory for the records.
    fn new(programmed: Programmed) -> Option<Self> {
        let mut queue = Vec::new();
        queue.try_reserve_exact(programmed.records.unwrap_or(0)).ok()?;
        Some(Self { programmed, expired: 0, queue, dropped: 0, preset: 0, own: 0 })
    }

    /// A record of this request came out of the ring.
    fn take(&mut self, record: Record) {
        self.expired += 1;
        match self.programmed.records {
            Some(room) if self.queue.len() < room => self.queue.push(record),
            Some(_) => self.dropped += 1,
            None => {}
        }
    }

    /// Occurrences since the start. Each record stands for a whole interval, the first for what the
    /// counter started with, and what it has come down by for the rest.
    fn count(&self, memory: &Memory) -> u64 {
        let Some(slot) = self.programmed.slot else {
            return self.expired;
        };
        let interval = i64::from(self.programmed.interval);
        let counter = i64::from(sign_extend_26(memory.slot(slot).counter.get()));
        let first = i64::from(self.programmed.first(self.preset));
        let rest = (first - counter).cast_unsigned();
        self.expired.wrapping_mul((interval + 1).cast_unsigned()).wrapping_add(rest)
    }
}

impl Running {
    /// Returns whether the request signals, and the counter has passed 2^64 since it was started,
    /// or three quarters of the room for records are used up.
    fn overflowed(&self, memory: &Memory) -> bool {
        if let Some(room) = self.programmed.records {
            return self.programmed.notifies && self.queue.len() >= room - room / 4;
        }
        let distance = self.preset.wrapping_neg();
        self.programmed.notifies && distance != 0 && self.count(memory) >= distance
    }
}

/// A control block that is loaded in the thread that made it.
#[derive(Debug)]
pub(super) struct LwpContext {
    unit: Arc<dyn Unit>,
    memory: Arc<Memory>,
    program: Program,
    ring: Ring,
    tail: RingOffset,
    running: Vec<Running>,
    /// Threshold, in bytes.
    threshold: u32,
    /// Time while counting.
    cycles: Cycles,
    loaded: bool,
    /// MissedEvents when last looked at.
    missed: u64,
    /// Records missed since the last drain.
    lost: u64,
    /// Counters have lost records: the counts are not known any more.
    invalid: bool,
}

impl LwpContext {
    /// Loads a block made from `program`.
    ///
    /// # Errors
    ///
    /// EAGAIN if the thread uses LWP already, or the processor cannot profile it; ENOMEM.
    pub(super) fn start(unit: Arc<dyn Unit>, program: Program, presets: &[u64]) -> Result<Self> {
        if unit.flush() != 0 {
            return Err(Error::new(
                libc::EAGAIN,
                "the thread has a control block of its own loaded",
            ));
        }
        let no_memory = Error::new(libc::ENOMEM, "no memory for the ring");
        let ring_bytes = program.ring_records * Record::SIZE;
        let memory = Memory::new(program.block_bytes, ring_bytes).ok_or(no_memory.clone())?;
        let ring = Ring::new(ring_bytes as u32, Record::SIZE as u32).ok_or(no_memory.clone())?;
        let running = program.requests.iter().copied().map(Running::new);
        let running = running.collect::<Option<Vec<_>>>().ok_or(no_memory)?;
        let mut context = Self {
            unit,
            memory: Arc::new(memory),
            program,
            ring,
            tail: RingOffset(0),
            running,
            threshold: NEVER,
            cycles: Cycles::stopped(),
            loaded: false,
            missed: 0,
            lost: 0,
            invalid: false,
        };
        context.choose_threshold(presets)?;
        context.reset(presets);
        context.load();
        // A processor that cannot profile the thread leaves LWP off.
        if context.unit.flush() != context.memory.address() {
            return Err(Error::new(
                libc::EAGAIN,
                "the processor does not profile this thread now; under `lwp run` it says why on standard error",
            ));
        }
        Ok(context)
    }

    /// Decides when the ring interrupts.
    ///
    /// # Errors
    ///
    /// ENOTSUP if overflows are to be signalled and interrupts do not arrive.
    fn choose_threshold(&mut self, presets: &[u64]) -> Result<()> {
        match self.program.interrupt {
            Interrupt::Unused => {}
            Interrupt::Notify(records) => {
                // Each record interrupts while it is found out whether one arrives.
                self.threshold = Record::SIZE as u32;
                self.reset(presets);
                self.load();
                let heard = self.check_interrupt();
                self.unload();
                self.cycles = Cycles::stopped();
                heard?;
                self.threshold = (records * Record::SIZE) as u32;
            }
            Interrupt::Drain if self.unit.interrupts() && self.unit.hear() => {
                self.program.flags |= EventFlags::INT;
                let bytes = self.memory.ring_bytes() as u32;
                self.threshold = bytes - bytes / 4;
            }
            Interrupt::Drain => {}
        }
        Ok(())
    }

    /// Returns whether a record that is inserted is signalled. Otherwise the thread would wait for
    /// ever.
    fn check_interrupt(&self) -> Result<()> {
        let unheard = "the threshold interrupt does not reach this thread as SIGPWR: the signal has a \
                       handler or is blocked, or lwp was told --interrupt something else";
        if !self.unit.hear() {
            return Err(Error::new(libc::ENOTSUP, unheard));
        }
        self.unit.insert();
        for _ in 0..100_000 {
            if thread::threshold_noted() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        Err(Error::new(libc::ENOTSUP, unheard))
    }

    /// Writes the block as it is at the start.
    fn reset(&mut self, presets: &[u64]) {
        let mut block = Lwpcb::new_zeroed();
        block.flags = self.program.flags.bits().into();
        block.set_buffer_size_random(self.memory.ring_bytes() as u32, self.program.random);
        block.buffer_base = self.memory.ring_address().into();
        block.threshold = self.threshold.into();
        block.filters = self.program.filters.bits().into();
        block.base_ip = self.program.base_ip.into();
        block.limit_ip = self.program.limit_ip.into();
        self.memory.set_block(&block);
        for (running, preset) in self.running.iter_mut().zip(presets) {
            running.preset = *preset;
        }
        for running in &mut self.running {
            if let Some(slot) = running.programmed.slot {
                self.memory.set_slot(slot, &running.programmed.initial(running.preset));
            }
            running.expired = 0;
            running.queue.clear();
            running.dropped = 0;
            running.own = 0;
        }
        self.tail = RingOffset(0);
        self.missed = 0;
        self.lost = 0;
        self.invalid = false;
    }

    fn load(&mut self) {
        self.cycles.start();
        self.loaded = true;
        self.unit.load(&self.memory);
    }

    fn unload(&mut self) {
        self.unit.unload(&self.memory);
        self.loaded = false;
        self.cycles.stop();
    }

    /// Brings block and ring up to date, and takes the records out of the ring.
    fn gather(&mut self) -> Result<()> {
        if self.loaded && self.unit.flush() != self.memory.address() {
            self.invalid = true;
            return Err(Error::new(libc::EAGAIN, "another control block has been loaded"));
        }
        let head = self.ring.reduce(self.memory.head().0);
        while self.tail != head {
            let record = self.memory.record(self.tail);
            let id = EventId(record.event_id);
            let mut all = self.running.iter_mut();
            if let Some(running) = all.find(|running| running.programmed.id == id) {
                running.take(record);
            }
            self.tail = self.ring.next(self.tail);
        }
        self.memory.set_tail(self.tail);
        let missed = self.memory.missed();
        let lost = missed.wrapping_sub(self.missed);
        self.missed = missed;
        self.lost += lost;
        // Which of the requests the lost records belong to is not known.
        let counts = self.running.iter().any(|running| running.programmed.records.is_none());
        self.invalid |= lost > 0 && counts;
        Ok(())
    }
}

impl LwpContext {
    /// Leaves out of all later readings what has been counted since `counts` were read: how long
    /// that took depends on the ring and on the kernel's clocks.
    fn leave_out_since(&mut self, counts: &[u64]) -> Result<()> {
        self.gather()?;
        for (count, running) in counts.iter().zip(&mut self.running) {
            if running.programmed.records.is_none() {
                running.own = running.count(&self.memory).wrapping_sub(*count);
            }
        }
        Ok(())
    }
}

impl Context for LwpContext {
    fn read(&mut self, counts: &mut [u64]) -> Result<Moment> {
        self.gather()?;
        if self.invalid {
            return Err(Error::new(
                libc::EAGAIN,
                "the ring was full and counts were lost: sample more often, or count and record in \
                 different sets",
            ));
        }
        for (count, running) in counts.iter_mut().zip(&self.running) {
            *count = running.count(&self.memory).wrapping_sub(running.own);
        }
        let now = clock_gettime(ClockId::Monotonic);
        let moment = Moment {
            hrtime_ns: now.tv_sec * 1_000_000_000 + now.tv_nsec,
            tick: self.cycles.elapsed(),
        };
        self.leave_out_since(counts)?;
        Ok(moment)
    }

    fn restart(&mut self, presets: &[u64]) -> Result<()> {
        self.unload();
        self.reset(presets);
        self.load();
        Ok(())
    }

    fn set_running(&mut self, running: bool) -> Result<()> {
        match (self.loaded, running) {
            (true, false) => self.unload(),
            (false, true) => self.load(),
            _ => {}
        }
        Ok(())
    }

    fn overflowed(&mut self, cause: Cause) -> Option<usize> {
        if cause != Cause::Threshold {
            return None;
        }
        // What is wrong with the ring the next sample says.
        let _ = self.gather();
        self.running.iter().position(|running| running.overflowed(&self.memory))
    }

    fn drain(&mut self, index: usize, sink: &mut dyn FnMut(&Record) -> bool) -> Result<u64> {
        let Some(running) = self.running.get_mut(index) else {
            return Ok(0);
        };
        let refused = running.queue.iter().filter(|record| !sink(record)).count();
        running.queue.clear();
        let dropped = std::mem::take(&mut running.dropped);
        Ok(refused as u64 + dropped + std::mem::take(&mut self.lost))
    }

    fn release(&mut self) {
        if self.loaded {
            self.unload();
        }
    }
}

impl Drop for LwpContext {
    fn drop(&mut self) {
        self.release();
    }
}
