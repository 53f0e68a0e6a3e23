//! Requests that the kernel counts: one group for the counters, one ring for each SMPL request.

use std::sync::Arc;

use lwp_arch::{EventKind, Record};
use lwp_perf::group::{Group, Options, ReadError, Reading, Target};
use lwp_perf::kernel::{Control, Handle, Kernel};
use lwp_perf::sampler::{Sampler, SamplerOptions};
use lwp_perf::{Errno, Event, Modes, SampleFormat, decode};

use super::refusal::Refusal;
use crate::backend::{Cause, Context, Moment};
use crate::clock::{cycles, monotonic_ns};
use crate::error::{Error, Result};
use crate::sys;

/// Bytes that a sample takes in the ring at most, with its header.
const SAMPLE_BYTES: u64 = 96;

/// An SMPL request.
#[derive(Clone, Debug)]
pub(super) struct Sampling {
    /// Its index in the plan.
    pub(super) index: usize,
    pub(super) event: Event,
    pub(super) kind: EventKind,
    pub(super) modes: Modes,
    pub(super) period: u64,
    pub(super) format: SampleFormat,
    /// Records to hold between two samples.
    pub(super) records: u64,
}

/// A ring that is being filled.
#[derive(Debug)]
struct Ring {
    index: usize,
    kind: EventKind,
    sampler: Sampler,
    /// Events between two records.
    period: u64,
    /// Records that came out of the ring since the start, and those of them that were taken.
    received: u64,
    taken: u64,
    /// Intervals already reported as lost.
    lost: u64,
    /// The kernel's own losses may be from before the start: it tells them late.
    restarted: bool,
}

/// The group of the counters.
#[derive(Debug)]
struct Counters {
    group: Group,
    /// Index in the plan of each member.
    plan: Vec<usize>,
    /// The members that signal their overflow.
    notifies: Vec<bool>,
    reading: Reading,
    /// The destination of values that are read without a system call.
    values: Vec<u64>,
    /// The leader stops the group by itself at its next overflow.
    stops: bool,
    /// Not on one kind of core only.
    everywhere: bool,
}

/// A counter that is to be opened.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    /// Its index in the plan.
    pub(super) index: usize,
    /// On which kind of core; always 0 on processors that have one kind.
    pub(super) place: usize,
    pub(super) member: lwp_perf::Request,
}

/// The kernel's counters for one binding.
#[derive(Debug)]
pub(super) struct PerfContext {
    /// One group, or one for each kind of core. A request's count is the sum.
    counters: Vec<Counters>,
    rings: Vec<Ring>,
}

/// The distance to the overflow that the kernel is asked for. It takes 63 bits; what is farther
/// away never comes.
pub(super) fn period(preset: u64) -> u64 {
    const MOST: u64 = i64::MAX as u64;
    match preset.wrapping_neg() {
        0 => MOST,
        distance => distance.min(MOST),
    }
}

impl PerfContext {
    /// Opens everything, then lets it run.
    pub(super) fn start(
        kernel: &Arc<dyn Kernel>,
        target: Target,
        mut counted: Vec<Counted>,
        sampled: &[Sampling],
    ) -> std::result::Result<Self, Refusal> {
        // A member that overflows stops the others fastest if it leads them.
        counted.sort_by_key(|counted| (counted.place, counted.member.period.is_none()));
        let groups = counted.chunk_by(|a, b| a.place == b.place);
        let open = |group: &[Counted]| Counters::open(Arc::clone(kernel), target, group);
        let counters = groups.map(open).collect::<std::result::Result<Vec<_>, Refusal>>()?;
        let open = |sampling: &Sampling| Ring::open(Arc::clone(kernel), target, sampling);
        let rings = sampled.iter().map(open).collect::<std::result::Result<Vec<_>, Refusal>>()?;
        let mut context = Self { counters, rings };
        context.run(true).map_err(errno)?;
        Ok(context)
    }

    fn run(&mut self, running: bool) -> std::result::Result<(), Errno> {
        for counters in &self.counters {
            counters.run(running)?;
        }
        for ring in &self.rings {
            if running {
                ring.sampler.enable()?;
            } else {
                ring.sampler.disable()?;
            }
        }
        Ok(())
    }
}

/// A failure of a call that handlers may make: nothing is put together for it.
fn errno(errno: Errno) -> Error {
    Error::new(errno.raw_os_error(), "the kernel refused to control the counters")
}

impl Counters {
    fn open(
        kernel: Arc<dyn Kernel>,
        target: Target,
        counted: &[Counted],
    ) -> std::result::Result<Self, Refusal> {
        let everywhere = counted.iter().all(|counted| !counted.member.event.is_core());
        let counted = counted.iter().cloned().map(|counted| (counted.index, counted.member));
        let (plan, requests): (Vec<usize>, Vec<_>) = counted.unzip();
        let mut group = Group::open(kernel, Options::new(target), &requests)?;
        // Without the pages, of which there is a limit, the group is read by a system call.
        let _ = group.map();
        let notifies: Vec<bool> = requests.iter().map(|request| request.period.is_some()).collect();
        for (member, _) in notifies.iter().enumerate().filter(|(_, notifies)| **notifies) {
            let notify = Control::Notify { signal: sys::overflow_signal()?, tid: sys::thread_id() };
            group.control(member, notify).map_err(errno)?;
        }
        let mut counters = Self {
            values: vec![0; plan.len()],
            reading: Reading { values: Vec::with_capacity(plan.len()), ..Reading::default() },
            group,
            plan,
            notifies,
            stops: false,
            everywhere,
        };
        counters.arm().map_err(errno)?;
        Ok(counters)
    }

    /// Lets the group run or stand still.
    fn run(&self, running: bool) -> std::result::Result<(), Errno> {
        if running { self.group.enable() } else { self.group.disable() }
    }

    /// Has the leader stop the group at its next overflow, if it signals it.
    fn arm(&mut self) -> std::result::Result<(), Errno> {
        if self.notifies.first() == Some(&true) && !self.stops {
            // Also starts the leader; it is stopped again so that all start together.
            self.group.control(0, Control::Refresh(1))?;
            self.run(false)?;
            self.group.reset()?;
            self.stops = true;
        }
        Ok(())
    }

    fn restart(&mut self, presets: &[u64]) -> std::result::Result<(), Errno> {
        self.run(false)?;
        for (member, index) in self.plan.iter().enumerate() {
            if self.notifies[member] {
                self.group.control(member, Control::Period(period(presets[*index])))?;
            }
        }
        self.arm()?;
        self.group.reset()
    }

    /// Adds every member to `counts`, by plan. Returns for how long they have counted, in ns.
    fn read(&mut self, counts: &mut [u64]) -> Result<u64> {
        if let Some(running_ns) = self.group.read_user_timed(&mut self.values) {
            for (value, index) in self.values.iter().zip(&self.plan) {
                counts[*index] = counts[*index].wrapping_add(*value);
            }
            return Ok(running_ns);
        }
        self.group.read_into(&mut self.reading).map_err(|error| match error {
            ReadError::Lost { watchdog: true } => Error::new(
                libc::EAGAIN,
                "the counters were lost to another user; sysctl kernel.nmi_watchdog=0 frees one",
            ),
            ReadError::Lost { .. } => {
                Error::new(libc::EAGAIN, "the counters were lost to another user")
            }
            ReadError::Failed(failed) => errno(failed),
            _ => Error::new(libc::EIO, "the kernel returned counts in another form than asked for"),
        })?;
        for (value, index) in self.reading.values.iter().zip(&self.plan) {
            counts[*index] = counts[*index].wrapping_add(*value);
        }
        Ok(self.reading.running_ns)
    }
}

impl Ring {
    fn open(
        kernel: Arc<dyn Kernel>,
        target: Target,
        sampling: &Sampling,
    ) -> std::result::Result<Self, Refusal> {
        let bytes = sampling.records.saturating_mul(SAMPLE_BYTES);
        let pages = bytes.div_ceil(4096).clamp(1, 1 << 16).next_power_of_two();
        let mut options = SamplerOptions::new(sampling.event.clone(), sampling.period, target);
        options.modes = sampling.modes;
        options.format = sampling.format;
        options.ring_pages = pages as usize;
        let sampler = Sampler::open(kernel, &options)?;
        let (index, kind, period) = (sampling.index, sampling.kind, sampling.period);
        Ok(Self { index, kind, sampler, period, received: 0, taken: 0, lost: 0, restarted: false })
    }

    /// Starts from nothing: what has been collected is forgotten, and a whole interval lies ahead.
    fn restart(&mut self) -> std::result::Result<(), Errno> {
        self.sampler.disable()?;
        self.sampler.control(Control::Period(self.period))?;
        self.sampler.control(Control::Reset { group: false })?;
        self.sampler.skip();
        (self.received, self.taken, self.lost, self.restarted) = (0, 0, 0, true);
        Ok(())
    }

    /// Hands every record to `sink`. Returns how many intervals have passed without a record that
    /// it took: the kernel tells of lost records only when it writes the next one, so the events
    /// are asked.
    fn drain(&mut self, sink: &mut dyn FnMut(&Record) -> bool) -> std::result::Result<u64, Errno> {
        // Before the ring is read: an interval that ends meanwhile belongs to the next sample.
        let passed = self.sampler.count()?.checked_div(self.period).unwrap_or(0);
        loop {
            match self.sampler.next_record() {
                Ok(None) => break,
                Ok(Some(lwp_perf::Record::Sample(sample))) => {
                    self.received += 1;
                    // Samples that lack what a record needs are no records.
                    let record = decode::lwp_record(&sample, self.kind);
                    self.taken += u64::from(record.is_some_and(|record| sink(&record)));
                }
                // Counted as lost or damaged by the sampler.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        // Where the processor rounds the period there are more records than the events say.
        let losses = self.sampler.losses();
        let told = if self.restarted { 0 } else { losses.lost + losses.damaged };
        let lost = passed.max(self.received + told).saturating_sub(self.taken);
        let more = lost.saturating_sub(self.lost);
        self.lost += more;
        Ok(more)
    }
}

impl Context for PerfContext {
    fn read(&mut self, counts: &mut [u64]) -> Result<Moment> {
        counts.fill(0);
        // Each kind of core has its share of the time; what is counted everywhere has all of it.
        let (mut on_cores_ns, mut running_ns) = (0, 0);
        for counters in &mut self.counters {
            let ns = counters.read(counts)?;
            on_cores_ns += if counters.everywhere { 0 } else { ns };
            running_ns = running_ns.max(ns).max(on_cores_ns);
        }
        Ok(Moment { hrtime_ns: monotonic_ns().cast_signed(), tick: cycles(running_ns) })
    }

    fn restart(&mut self, presets: &[u64]) -> Result<()> {
        let counters = self.counters.iter_mut().try_for_each(|counters| counters.restart(presets));
        counters.and_then(|()| self.rings.iter_mut().try_for_each(Ring::restart)).map_err(errno)
    }

    fn set_running(&mut self, running: bool) -> Result<()> {
        self.run(running).map_err(errno)
    }

    fn overflowed(&mut self, cause: Cause) -> Option<usize> {
        use std::os::fd::AsRawFd;
        let Cause::Descriptor(descriptor) = cause else {
            return None;
        };
        let is = |event: &Handle| event.fd().is_some_and(|fd| fd.as_raw_fd() == descriptor);
        self.counters.iter_mut().find_map(|counters| {
            let member = counters.group.events().iter().position(is)?;
            if member == 0 {
                counters.stops = false;
            }
            counters.plan.get(member).copied()
        })
    }

    fn drain(&mut self, index: usize, sink: &mut dyn FnMut(&Record) -> bool) -> Result<u64> {
        let rings = self.rings.iter_mut().filter(|ring| ring.index == index);
        rings.map(|ring| ring.drain(sink).map_err(errno)).sum()
    }

    fn release(&mut self) {
        self.counters.iter_mut().for_each(|counters| counters.group.close());
        self.rings.iter_mut().for_each(|ring| ring.sampler.close());
    }
}
