//! Lightweight Profiling of the program's threads.
//!
//! The unit of a thread is the reference model's ([`lwp_model::LwpUnit`]). Translated code counts
//! for it: what may pass before an event expires is *published* to the thread's context as a
//! countdown; when that ends, or an LWP instruction needs the unit, what has passed is *collected*.
//! The instruction on which an event is due is executed alone, at the end of a *cut fragment*, and
//! reported to the unit.
//!
//! A thread with profiling on runs on another *side* of its address space: translations that count
//! down, with a low window and arenas of their own. With profiling off it runs the plain ones.

mod component;
mod dcache;
mod direct;
mod due;
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

use lwp_arch::retired::{Access, AccessKind, Branch, BranchKind};
use lwp_arch::{AppPc as Ip, Fault, Retired};
use lwp_dbt::context::{LWP_LOW_MAX, LWP_SHIFT, MOST_NOTES};
use lwp_dbt::{EventDeltas, FragmentId, IpFilter, Selection, Slot};
use lwp_model::{Cpu, LinearMemory, LwpUnit, Occurrences, Signals, Watched, Xorshift32};
use lwp_ptrace::Tid;
use lwp_uarch::{CoreClock, ReferenceClock};

use crate::config::{Config, LwpConfig};
use crate::contexts::{Context, LwpWords};
use crate::machine::Thread;
pub use component::{BeforeState, restores_lwp};
pub use dcache::{DataCache, LEAST_WAY_BYTES, can_be_kept, can_be_watched, masks};
pub use instruction::is_elsewhere;
use kept::Kept;
pub use kept::{report_early, report_kept};
pub use known::{KnownCuts, finish_record};
pub use leave::{give_back, rest_of, set_result};
use modelled::Tally;
pub use modelled::watched_config;
use predictor::Judge;
pub use profiled::Profiled;
pub use profiling::Profiling;
pub use sampler::selection as sampled_selection;
use sampler::{Sampler, generator};

/// The profile of a thread.
#[derive(Clone, Debug)]
pub struct ThreadLwp {
    unit: LwpUnit,
    clocks: Clocks,
    surroundings: Surroundings,
    /// The events that are counted down.
    pub selection: Selection,
    /// The countdown as it was published: high part, low part, value samples.
    published: [i64; 3],
    /// The cut fragment that the thread has been led to.
    cut: Option<Cut>,
    /// An interrupt has been sent to the thread, which must see it before it goes on.
    interrupted: bool,
    /// The number of times that a fault has been handed to the program in vain.
    touched: u32,
    /// The data cache, where its misses are counted.
    dcache: Option<Box<DataCache>>,
    /// The branch predictor, where one is modelled.
    judge: Option<Box<Judge>>,
    /// Misses of the data cache on their way to the unit.
    misses: UnitMisses,
    /// The sampling of events, where the host does that instead of the unit.
    sampling: Sampling,
}

/// The clocks of a thread.
#[derive(Clone, Debug)]
struct Clocks {
    core: CoreClock,
    reference: ReferenceClock,
    /// The time for which misses have been waited for, in units of 1/256 of a cycle.
    waits_256: u64,
}

/// Misses of the data cache on their way to the unit.
#[derive(Clone, Debug)]
struct UnitMisses {
    /// Misses that have passed since the countdown was published.
    passed: u64,
    /// The number of lines that the next access touches, where it is known to miss: if fewer misses
    /// may pass, it is made alone.
    lines: u64,
    /// Misses of the instruction that retires next.
    waiting: Vec<Access>,
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
    /// The performance time-stamp counter, 100 MHz.
    timestamp: u64,
    /// Interrupts raised since they were last delivered.
    interrupts: u32,
    /// True if records say on which processor the thread ran. All say 0 where runs are to repeat.
    moves: bool,
    /// The processor on which the thread was when it last asked.
    core: u8,
}

impl Signals for Surroundings {
    fn threshold_interrupt(&mut self, _vector: u8) {
        self.interrupts += 1;
    }

    fn random(&mut self) -> u32 {
        self.random.next_u32()
    }

    fn timestamp(&mut self) -> u64 {
        self.timestamp
    }

    fn core(&mut self) -> Option<u8> {
        self.moves.then_some(self.core)
    }
}

/// The processor on which a stopped thread has run last.
///
/// Spec: proc(5), "/proc/pid/stat", field 39.
fn processor_of(tid: Tid) -> Option<u8> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // Behind the name, which may hold anything, stands the third field.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(36)?.parse::<u32>().ok().map(|number| number.to_le_bytes()[0])
}

/// The processor's mode in every program that is translated.
const CPU: Cpu = Cpu::user_64();

impl ThreadLwp {
    fn new(config: &LwpConfig, random: Xorshift32) -> Self {
        let mut unit = LwpUnit::new(config.processor);
        unit.enable_events(config.events);
        Self {
            unit,
            clocks: Clocks {
                core: CoreClock::new(config.machine.clock),
                reference: clock(config),
                waits_256: 0,
            },
            surroundings: Surroundings {
                random,
                timestamp: 0,
                interrupts: 0,
                moves: false,
                core: 0,
            },
            selection: Selection::default(),
            published: [0; 3],
            cut: None,
            interrupted: false,
            touched: 0,
            dcache: None,
            judge: None,
            misses: UnitMisses { passed: 0, lines: 1, waiting: Vec::new() },
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
            selection: Selection { ip, ..selection },
            dcache: selection.dcache.then(|| Box::new(DataCache::new(&config.caches))),
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
        self.clocks.core = CoreClock::new(config.machine.clock);
        self.clocks.reference = clock(config);
        self.clocks.waits_256 = 0;
        self.selection = self.unit.watched().map(selection).unwrap_or_default();
        self.judge = Judge::new(config.predictor, &mut self.selection);
        self.dcache = self.selection.dcache.then(|| Box::new(DataCache::new(&config.caches)));
    }

    /// The amounts that may pass before an event is due: high part, low part, value samples.
    fn room(&self) -> [i64; 3] {
        if let Some(sampler) = &self.sampling.sampler {
            return sampler.room();
        }
        let room = self.unit.headroom();
        let waits = self.cycles_of_waits(&room);
        let room = self.judge.as_ref().map_or(room, |judge| judge.limit(room));
        let (high, low) = if self.selection.instructions {
            let cycles = self.cycles_within(&room) - waits;
            (room.instructions.min(self.clocks.core.instructions_within(cycles)), room.branches)
        } else {
            (room.branches, Occurrences::UNLIMITED)
        };
        [high, low, room.values].map(|part| part.min(Occurrences::UNLIMITED) as i64)
    }

    /// The number of core cycles that may pass before a clock event is due.
    fn cycles_within(&self, room: &Occurrences) -> u64 {
        let reference = self.clocks.reference.units_within(room.reference_clocks);
        room.core_clocks.min(reference).min(Occurrences::UNLIMITED)
    }

    /// The number of misses that may be noted before an event can be due: of misses, or of the
    /// clocks, which wait for them, so that half of what may pass is left to them.
    fn misses_within(&self, room: &Occurrences) -> u64 {
        let waits =
            self.clocks.core.waits_within(self.cycles_within(room), self.longest_wait_256());
        room.dcache.min(waits).min(u64::from(MOST_NOTES))
    }

    /// The cycles that these, or the branches that may be written down, can take.
    fn cycles_of_waits(&self, room: &Occurrences) -> u64 {
        let waits_256 = match self.dcache {
            Some(_) => self.misses_within(room) * self.longest_wait_256(),
            None => self.branches_within(room) * self.clocks.core.misprediction_256(),
        };
        waits_256.div_ceil(256)
    }

    /// The longest time for which a miss can be waited for.
    fn longest_wait_256(&self) -> u64 {
        let slowest = self.dcache.as_ref().map_or(0, |cache| cache.slowest_cycles());
        self.clocks.core.longest_stall_256(slowest)
    }

    /// Lets `high` and `low` of the countdown, and value samples, pass.
    fn pass(&mut self, high: u64, low: u64, values: u64) {
        if let Some(sampler) = &mut self.sampling.sampler {
            sampler.pass(high, low);
            sampler.pass_misses(std::mem::take(&mut self.misses.passed));
            return;
        }
        let dcache = std::mem::take(&mut self.misses.passed);
        let mut passed = Occurrences { values, dcache, ..Occurrences::default() };
        let judged = self.take_judged();
        if self.selection.instructions {
            passed.instructions = high;
            passed.branches = low + judged;
            let waits = self.clocks.core.wait(std::mem::take(&mut self.clocks.waits_256));
            passed.core_clocks = self.clocks.core.retire_many(high) + waits;
            passed.reference_clocks = self.clocks.reference.advance(passed.core_clocks);
        } else {
            passed.branches = high + judged;
        }
        self.unit.pass(&passed);
    }

    /// Takes in what translated code has counted since the countdown was published.
    ///
    /// The data cache accesses of the instruction at `but` are left: it is about to retire.
    fn collect_but(&mut self, context: Context<'_>, known: &KnownCuts, but: Option<u64>) {
        self.take_notes(context, but);
        self.take_branches(context, known);
        if self.sampling.sampler.is_some() {
            let [high, low] = self.since_published(context);
            self.sampling.take_kept(context);
            self.pass(high, low, 0);
            self.publish(context);
            return;
        }
        let [high, low] = countdown(context);
        let left = [high, low, context.get(Slot::LwpValue) as i64];
        self.take_direct(context);
        self.take_events(context);
        let [high, low, values] =
            std::array::from_fn(|part| LwpWords::passed(self.published[part], left[part]));
        self.pass(high, low, values);
        self.published = self.room();
        self.write(context);
    }

    /// The amounts of the high and the low part that have passed since the countdown was published.
    fn since_published(&self, context: Context<'_>) -> [u64; 2] {
        let ([high, low], kept) = self.sampling.countdown_with_kept(context);
        let published = self.published[0].saturating_add_unsigned(kept);
        [LwpWords::passed(published, high), LwpWords::passed(self.published[1], low)]
    }

    /// Publishes the countdown.
    fn publish(&mut self, context: Context<'_>) {
        self.published = self.room();
        self.write(context);
    }

    /// Writes the countdown with nothing dealt out: the next block that counts has it dealt.
    fn write(&mut self, context: Context<'_>) {
        let [high, low, values] = self.published;
        context.set(Slot::LwpHigh, high as u64);
        context.set(Slot::LwpLow, low as u64);
        context.set(Slot::LwpValue, values as u64);
        context.lwp().deal_nothing();
        match self.sampling.sampler {
            None => {
                self.write_direct(context);
                self.write_branches(context);
            }
            Some(_) => self.write_samples(context),
        }
        self.write_cache(context);
    }

    /// Returns whether an instruction at `ip` passes the profile's filter.
    fn admits(&self, ip: u64) -> bool {
        self.selection.admits(ip) && self.judge.as_ref().is_none_or(|judge| judge.admits(ip))
    }

    /// Reports an instruction to the unit. `Err` where its record cannot be stored.
    fn retire<M: LinearMemory>(
        &mut self,
        memory: &mut M,
        executed: &Executed,
    ) -> Result<(), Fault> {
        if let Some(sampler) = &mut self.sampling.sampler {
            let waiting = std::mem::take(&mut self.misses.waiting);
            if !self.selection.admits(executed.ip) {
                return Ok(());
            }
            if let Some(tally) = &mut self.sampling.tally {
                waiting.iter().for_each(|access| tally.add(executed.ip, access));
            }
            let loads = waiting.iter().filter(|access| access.kind == AccessKind::Load);
            sampler.retire(executed, loads.count() as u64, &mut self.sampling.overdue);
            return Ok(());
        }
        let mut branch =
            executed.branch.map(|(kind, taken)| Branch { kind, taken, predicted: None });
        if let (Some(judge), Some(branch)) = (&mut self.judge, &mut branch) {
            judge.judge(branch, executed);
        }
        let mispredicted = branch.is_some_and(|branch| branch.predicted == Some(false));
        let counts = !executed.crosses_privilege && self.admits(executed.ip);
        let accesses = std::mem::take(&mut self.misses.waiting);
        let (core, reference) = match counts {
            true => {
                let cycles = self.clocks.core.retire(&accesses, mispredicted);
                (cycles, self.clocks.reference.advance(u64::from(cycles)) as u32)
            }
            false => (0, 0),
        };
        let retired = Retired {
            branch,
            accesses: &accesses,
            core_cycles: core,
            reference_cycles: reference,
            crosses_privilege: executed.crosses_privilege,
            ..Retired::plain(Ip(executed.ip), Ip(executed.next))
        };
        self.unit.retire(&CPU, &retired, memory, &mut self.surroundings).map(|_| ())
    }
}

fn clock(config: &LwpConfig) -> ReferenceClock {
    ReferenceClock::of_core_cycles(config.machine.reference_hz, config.machine.core_hz)
}

/// The events that have to be counted down for a profile that watches `watched`.
fn selection(watched: Watched) -> Selection {
    let ip = |range: lwp_model::IpRange| IpFilter {
        base: range.base,
        limit: range.limit,
        inverted: range.inverted,
    };
    let selection = Selection {
        values: watched.values,
        instructions: watched.instructions || watched.core_clocks || watched.reference_clocks,
        branches: watched.branches,
        dcache: watched.dcache,
        ip: watched.ip.map(ip),
    };
    // A filter where nothing is filtered would only make translations differ.
    Selection { ip: selection.ip.filter(|_| selection.filters()), ..selection }
}

/// The rest of the countdown: high and low part.
fn countdown(context: Context<'_>) -> [i64; 2] {
    let counted = context.get(Slot::LwpGiven).wrapping_sub(context.lwp().words());
    [
        context.get(Slot::LwpHigh).wrapping_sub(counted >> LWP_SHIFT) as i64,
        context.get(Slot::LwpLow).wrapping_sub(counted & LWP_LOW_MAX) as i64,
    ]
}

impl Thread {
    /// The thread's profile, made if there is none.
    fn lwp_begin(&mut self, config: &LwpConfig, run: &Config) -> &mut ThreadLwp {
        let random = self.lwp_state.random.unwrap_or(Xorshift32::new(run.program.seed as u32));
        let lwp = self.lwp.get_or_insert_with(|| Box::new(ThreadLwp::new(config, random)));
        lwp.surroundings.moves = !run.program.deterministic;
        lwp
    }

    /// Forgets the thread's profile. Its random bits go on when there is another.
    pub fn lwp_end(&mut self) {
        if let Some(lwp) = self.lwp.take() {
            self.lwp_state.random = Some(lwp.surroundings.random);
        }
    }
}

impl ThreadLwp {
    /// Notes the processor on which the stopped thread `tid` is, which has not said it.
    fn look_for_core(&mut self, tid: Tid) {
        if self.surroundings.moves
            && let Some(core) = processor_of(tid)
        {
            self.surroundings.core = core;
        }
    }

    /// Returns whether the thread must be stopped instead of answered: a signal that has been sent
    /// to it would reach it some instructions later.
    pub fn take_interrupted(&mut self) -> bool {
        std::mem::take(&mut self.interrupted)
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
        let (unit, signals) = (&mut lwp.unit, &mut lwp.surroundings);
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
