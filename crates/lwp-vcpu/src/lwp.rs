//! Lightweight Profiling (LWP) of the program's threads.
//!
//! Each thread has a unit of the reference model ([`lwp_model::LwpUnit`]), and translated code
//! counts for it. The host *publishes* the number of events that may pass before one expires to the
//! thread's context, as a countdown. When that ends, or an LWP instruction needs the unit, the host
//! *collects* the number that has passed. The instruction on which an event is due is executed at
//! the end of a *cut fragment*, and reported to the unit.
//!
//! While profiling is on, a thread runs on another *side* of its address space: translations that
//! count down, with a separate low window and arenas. While it is off, the thread runs the plain
//! translations.

mod clocks;
mod component;
mod countdown;
mod dcache;
mod direct;
mod due;
mod gather;
mod instruction;
pub mod interrupt;
mod kept;
mod known;
mod leave;
mod memory;
mod modelled;
mod noted;
mod predictor;
mod profiled;
mod profiling;
mod sampler;
mod thread_cache;
mod unit;

use lwp_arch::Fault;
use lwp_arch::retired::{Access, AccessKind, BranchKind};
use lwp_dbt::{EventDeltas, FragmentId, IpFilter, Selection, Slot};
use lwp_mailbox::contexts::Context;
use lwp_model::{Cpu, LinearMemory, Signals, Xorshift32};
use lwp_process::Tid;
use lwp_process::kernel_files;
use lwp_process::regs::Raw;
use lwp_run::config::{Config, LwpConfig};

use crate::machine::{Stamp, Thread};
pub use component::{BeforeState, restores_lwp};
use countdown::{Countdown, countdown};
pub use dcache::masks;
pub use gather::Gather;
pub use instruction::is_elsewhere;
use kept::Kept;
pub use kept::{report_all_early, report_kept};
pub use known::{KnownCuts, finish_record};
pub use leave::{give_back, rest_of, set_result};
use modelled::Tally;
pub use modelled::watched_config;
pub use profiled::Profiled;
pub use profiling::Profiling;
pub use sampler::selection as sampled_selection;
use sampler::{Sampler, generator};
use thread_cache::{ThreadCache, allow_notes};
use unit::ThreadUnit;

/// The profile of a thread.
#[derive(Clone, Debug)]
pub struct ThreadLwp {
    unit: ThreadUnit,
    countdown: Countdown,
    /// The cut fragment that the thread has been led to.
    cut: Option<Cut>,
    /// An interrupt has been sent to the thread, which must see it before it goes on.
    interrupted: bool,
    /// The number of times that a fault has been handed to the program in vain.
    touched: u32,
    /// The data cache, where its misses are counted.
    cache: ThreadCache,
    /// The sampling of events, where the host does that instead of the unit.
    sampling: Sampling,
}

/// The sampling of a thread's events by the host.
#[derive(Clone, Debug, Default)]
struct Sampling {
    /// The sampler whose events are counted instead of the unit's: the unit is off and takes no
    /// part.
    sampler: Option<Sampler>,
    /// Sampled events, a bit each, of which so many samples could not be foreseen and are still to
    /// be taken.
    overdue: Vec<(u32, u64)>,
    /// Samples that the thread takes by itself.
    kept: Kept,
    /// Misses by instruction, where they are wanted: there is a sampler then, which samples
    /// nothing.
    tally: Option<Box<Tally>>,
}

impl Sampling {
    /// Returns whether the host samples, and the unit is off.
    fn is_on(&self) -> bool {
        self.sampler.is_some()
    }

    /// Lets an instruction pass which has missed with `accesses`, where `selection` is counted
    /// down.
    fn retire(&mut self, executed: &Executed, accesses: &[Access], selection: &Selection) {
        if !selection.admits(executed.ip) {
            return;
        }
        if let Some(tally) = &mut self.tally {
            accesses.iter().for_each(|access| tally.add(executed.ip, access));
        }
        if let Some(sampler) = &mut self.sampler {
            let loads = accesses.iter().filter(|access| access.kind == AccessKind::Load);
            sampler.retire(executed, loads.count() as u64, &mut self.overdue);
        }
    }
}

/// A cut fragment on its way.
#[derive(Clone, Debug)]
struct Cut {
    fragment: FragmentId,
    /// Addresses of its instructions.
    pcs: Vec<u64>,
    /// The address after it.
    next: u64,
    /// The kind of its last instruction.
    branch: Option<BranchKind>,
    /// The bytes of arguments that this takes off the stack.
    released: u64,
    /// The events that it counts in all, a conditional branch as taken.
    deltas: EventDeltas,
}

/// An instruction that has been executed.
#[derive(Clone, Copy, Debug)]
struct Executed {
    ip: u64,
    next: u64,
    /// The address of the instruction behind it.
    fall_through: u64,
    branch: Option<(BranchKind, bool)>,
    crosses_privilege: bool,
}

impl Executed {
    fn plain(ip: u64, next: u64) -> Self {
        Self { ip, next, fall_through: next, branch: None, crosses_privilege: false }
    }
}

/// The things that the unit needs from the world.
#[derive(Clone, Debug)]
struct Surroundings {
    random: Xorshift32,
    /// The performance time-stamp counter.
    stamp: Stamp,
    /// Interrupts raised since they were last delivered.
    interrupts: u32,
    /// True if records say on which processor the thread ran. All say 0 where runs are to repeat.
    moves: bool,
    /// The processor on which the thread was when it last asked.
    core: u8,
}

impl Surroundings {
    fn new(random: Xorshift32) -> Self {
        Self { random, stamp: Stamp::default(), interrupts: 0, moves: false, core: 0 }
    }

    /// Notes the processor on which the stopped thread `tid` is, which has not said it.
    fn look_for_core(&mut self, tid: Tid) {
        if self.moves
            && let Some(core) = processor_of(tid)
        {
            self.core = core;
        }
    }
}

impl Signals for Surroundings {
    fn threshold_interrupt(&mut self, _vector: u8) {
        self.interrupts += 1;
    }

    fn random(&mut self) -> u32 {
        self.random.next_u32()
    }

    fn timestamp(&mut self) -> u64 {
        self.stamp.now()
    }

    fn core(&mut self) -> Option<u8> {
        self.moves.then_some(self.core)
    }
}

/// The processor on which a stopped thread has run last.
///
/// Spec: proc(5), "/proc/pid/stat", field 39.
fn processor_of(tid: Tid) -> Option<u8> {
    let text = kernel_files::text(tid, "stat").ok()?;
    // Behind the name, which may hold anything, stands the third field.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(36)?.parse::<u32>().ok().map(|number| number.to_le_bytes()[0])
}

/// The processor's mode in every program that is translated.
const CPU: Cpu = Cpu::user_64();

impl ThreadLwp {
    fn new(config: &LwpConfig, random: Xorshift32) -> Self {
        Self {
            unit: ThreadUnit::new(config, random),
            countdown: Countdown::default(),
            cut: None,
            interrupted: false,
            touched: 0,
            cache: ThreadCache::new(None),
            sampling: Sampling::default(),
        }
    }

    /// Samples as `run` says from the thread's first instruction on; `serial` is the thread's
    /// number, and nothing is sampled of it unless it is `wanted`. Or counts misses, if `run` says
    /// that.
    pub fn sampling(run: &Config, serial: u32, wanted: bool) -> Self {
        let (config, selection) = (watched_config(run), sampled_selection(run));
        // Everything outside until the place of an instruction is known.
        let ip = run.counted.code.map(|code| code.elsewhere());
        let sampler = match wanted {
            true => Sampler::new(
                &run.sampling.events,
                run.sampling.random_bits,
                generator(run.program.seed, serial),
            ),
            false => Sampler::idle(&run.sampling.events),
        };
        Self {
            countdown: Countdown::new(Selection { ip, ..selection }),
            cache: ThreadCache::new(selection.dcache.then_some(&config.caches)),
            sampling: Sampling {
                sampler: Some(sampler),
                overdue: Vec::new(),
                kept: Kept::default(),
                tally: run.model.as_ref().map(|caches| Box::new(Tally::new(caches))),
            },
            ..Self::new(&config, Xorshift32::new(0))
        }
    }

    /// A profile has been loaded: its clocks start, and what it counts is selected.
    fn start(&mut self, config: &LwpConfig) {
        let selection = self.unit.start(config);
        self.countdown.select(selection, self.unit.only_clock());
        self.cache.start(selection.dcache.then_some(&config.caches));
    }

    /// Returns whether the thread has switched its profile off, and has not gone elsewhere yet.
    fn is_off(&self) -> bool {
        !self.sampling.is_on() && !self.unit.model.is_on()
    }

    /// Returns the events that are counted down.
    pub fn selection(&self) -> Selection {
        self.countdown.selection
    }

    /// Lets only instructions that `ip` admits count.
    pub fn filter_by(&mut self, ip: Option<IpFilter>) {
        self.countdown.selection.ip = ip;
    }

    /// The amounts that may pass before an event is due: high part, low part, value samples.
    fn room(&self) -> [i64; 3] {
        match &self.sampling.sampler {
            Some(sampler) => sampler.room(),
            None => self.unit.room(self.selection().instructions),
        }
    }

    /// Lets `high` and `low` of the countdown, and value samples, pass.
    fn pass(&mut self, high: u64, low: u64, values: u64) {
        let misses = self.cache.take_passed();
        match &mut self.sampling.sampler {
            Some(sampler) => {
                sampler.pass(high, low);
                sampler.pass_misses(misses);
            }
            None => self.unit.pass(self.selection().instructions, [high, low, values], misses),
        }
    }

    /// Takes in what translated code has counted since the countdown was published.
    ///
    /// The data cache accesses of the instruction at `but` are left: it is about to retire.
    fn collect_but(&mut self, context: Context<'_>, known: &KnownCuts, but: Option<u64>) {
        if self.unit.take_off(context) {
            return self.publish(context);
        }
        self.take_notes(context, but);
        self.unit.take_branches(context, known);
        let [high, low, values] = if self.sampling.is_on() {
            let [high, low] = self.since_published(context);
            self.sampling.take_kept(context);
            [high, low, 0]
        } else {
            let [high, low] = countdown(context);
            let left = [high, low, context.get(Slot::LwpValue) as i64];
            self.unit.take_direct(context, &mut self.countdown);
            self.countdown.passed(left)
        };
        self.pass(high, low, values);
        self.publish(context);
    }

    /// The amounts of the high and the low part that have passed since the countdown of samples was
    /// published.
    fn since_published(&self, context: Context<'_>) -> [u64; 2] {
        let (left, kept) = self.sampling.countdown_with_kept(context);
        self.countdown.passed_with_kept(left, kept)
    }

    /// Publishes the countdown.
    fn publish(&mut self, context: Context<'_>) {
        let room = self.room();
        self.countdown.publish(context, room);
        let room_for_misses = match &self.sampling.sampler {
            Some(sampler) => {
                let room = sampler.room_for_misses();
                self.sampling.write(context, &self.countdown.selection);
                room
            }
            None => {
                self.unit.write_direct(context, &self.countdown);
                self.unit.write_branches(context, self.selection().instructions);
                self.unit.room_for_misses()
            }
        };
        // A sample needs no more than their number, unless not all count.
        let keeps = self.sampling.needs_levels() || self.selection().ip.is_some();
        self.cache.write(context, room_for_misses, keeps);
    }

    /// Goes through the notes of misses. Those of the instruction at `but` are left to be reported
    /// with it.
    fn take_notes(&mut self, context: Context<'_>, but: Option<u64>) {
        let outer = self.sampling.needs_levels();
        let misses = self.cache.take_notes(context, outer, but);
        misses.iter().for_each(|(ip, access)| self.miss_passes(*ip, access));
    }

    /// A miss of the instruction at `ip`, which translated code counts, has passed.
    fn miss_passes(&mut self, ip: u64, access: &Access) {
        let counts = match self.sampling.is_on() {
            true => self.sampling.miss_passes(ip, access),
            false => self.unit.miss_passes(ip, access),
        };
        self.cache.pass(u64::from(counts));
    }

    /// A cut fragment of one instruction may note whatever it accesses.
    fn allow_notes(&mut self, context: Context<'_>) {
        if self.cache.is_kept() {
            self.take_notes(context, None);
            allow_notes(context);
        }
    }

    /// The thread leaves translated code, perhaps at a repeated string instruction that has begun,
    /// or behind it while what it has accessed is being worked out.
    fn leave_repeat(&mut self, tid: Tid, context: Context<'_>, regs: &Raw) {
        let Some(pc) = self.cache.leave_repeat(tid, context, regs) else { return };
        self.take_notes(context, None);
        let misses = self.cache.finish_repeat(tid, context, pc, regs);
        // There was room for all of them, so no event expires on one.
        if self.selection().admits(pc) {
            misses.iter().for_each(|access| self.miss_passes(pc, access));
        }
    }

    /// Reports an instruction to the unit. `Err` where its record cannot be stored.
    fn retire<M: LinearMemory>(
        &mut self,
        memory: &mut M,
        executed: &Executed,
    ) -> Result<(), Fault> {
        let (waiting, selection) = (self.cache.take_waiting(), self.selection());
        if self.sampling.is_on() {
            self.sampling.retire(executed, &waiting, &selection);
            return Ok(());
        }
        self.unit.retire(memory, executed, &waiting, &selection)
    }

    /// Returns whether every branch of the thread is reported, because a predictor judges it and it
    /// may not be written down.
    pub fn reports_each_branch(&self) -> bool {
        self.unit.reports_each_branch()
    }

    /// Returns whether the thread must be stopped instead of answered: a signal that has been sent
    /// to it would reach it some instructions later.
    pub fn take_interrupted(&mut self) -> bool {
        std::mem::take(&mut self.interrupted)
    }
}

impl Thread {
    /// The thread's profile, made if there is none.
    fn lwp_begin(&mut self, config: &LwpConfig, run: &Config) -> &mut ThreadLwp {
        let random = self.lwp_state.random.unwrap_or(Xorshift32::new(run.program.seed as u32));
        let lwp = self.lwp.get_or_insert_with(|| Box::new(ThreadLwp::new(config, random)));
        lwp.unit.surroundings.moves = !run.program.deterministic;
        lwp
    }

    /// Forgets the thread's profile. Its random bits go on when there is another.
    pub fn lwp_end(&mut self) {
        if let Some(lwp) = self.lwp.take() {
            self.lwp_state.random = Some(lwp.unit.surroundings.random);
        }
    }
}

#[cfg(test)]
mod tests {
    use lwp_arch::lwpcb::{EventSlot, Lwpcb};
    use lwp_arch::{EventFlags, LinearAddr};
    use lwp_model::PagedMemory;

    use super::*;

    const BLOCK: u64 = 0x1_0000;
    const RING: u64 = 0x2_0000;
    const RING_BYTES: u32 = 16 << 10;
    const RECORD_BYTES: usize = 32;

    /// A thread that records each fourth instruction, and its memory.
    fn recording() -> (ThreadLwp, PagedMemory) {
        let config = LwpConfig::default();
        let mut block = Lwpcb::default();
        block.flags = EventFlags::IRE.bits().into();
        block.set_buffer_size_random(RING_BYTES, 0);
        block.buffer_base = RING.into();
        let mut memory = PagedMemory::new();
        memory.poke(LinearAddr(BLOCK), &block.to_bytes());
        memory.poke(LinearAddr(BLOCK + 128 + 8), &EventSlot::new(3, 3).to_bytes());
        memory.map(LinearAddr(RING), RING_BYTES.into());
        let mut lwp = ThreadLwp::new(&config, Xorshift32::new(1));
        let (unit, signals) = (&mut lwp.unit.model, &mut lwp.unit.surroundings);
        unit.llwpcb(&CPU, BLOCK, &mut memory, signals).expect("a block");
        unit.settle(&mut memory).expect("a block");
        lwp.start(&config);
        (lwp, memory)
    }

    #[test]
    fn what_passes_brings_the_record_nearer() {
        let (mut lwp, mut memory) = recording();
        assert_eq!(lwp.room()[0], 3);
        lwp.pass(2, 0, 0);
        assert_eq!(lwp.room()[0], 1);
        lwp.retire(&mut memory, &Executed::plain(0x40_0000, 0x40_0003)).expect("no record");
        assert_eq!(lwp.room()[0], 0);
        assert_eq!(memory.peek(LinearAddr(RING), RECORD_BYTES), [0; RECORD_BYTES]);
        lwp.retire(&mut memory, &Executed::plain(0x40_0003, 0x40_0004)).expect("a ring");
        let record = memory.peek(LinearAddr(RING), RECORD_BYTES);
        assert_eq!(record[8..16], 0x40_0003u64.to_le_bytes());
        assert_eq!(lwp.room()[0], 3);
    }

    #[test]
    fn a_record_that_cannot_be_stored_is_the_instruction_s_fault() {
        let (mut lwp, mut memory) = recording();
        lwp.pass(3, 0, 0);
        memory.unmap(LinearAddr(RING), RING_BYTES.into());
        let executed = Executed::plain(0x40_0000, 0x40_0003);
        assert!(lwp.clone().retire(&mut memory, &executed).is_err());
        memory.map(LinearAddr(RING), RING_BYTES.into());
        lwp.retire(&mut memory, &executed).expect("the ring is there again");
    }

    #[test]
    fn instructions_that_cross_privilege_do_not_count() {
        let (mut lwp, mut memory) = recording();
        let call = Executed { crosses_privilege: true, ..Executed::plain(0x40_0000, 0x40_0002) };
        lwp.retire(&mut memory, &call).expect("no record");
        assert_eq!(lwp.room()[0], 3);
    }
}
