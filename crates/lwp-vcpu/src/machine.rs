//! The machine: every process, thread, address space and translation of a run, under one lock.
//!
//! Two threads of the host work on it: the *tracer* ([`crate::events`]), which receives ptrace stops,
//! and the *server* ([`crate::server`]), which answers the mailboxes. Each holds the lock while it
//! works and releases it while it waits.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lwp_dbt::block::Emulated;
use lwp_model::Xorshift32;
use lwp_ptrace::regs::Regs;
use lwp_ptrace::{SharedMemory, Tid, sys};

use crate::call_stack::CallStacks;
use crate::config::{Config, LwpConfig, Plan};
use crate::contexts::{Context, Contexts, FileId, Sum};
use crate::control_line::Line;
use crate::cpu_clock::CpuClocks;
use crate::cpuid::VirtualCpu;
use crate::events::calm::{Calm, Ignored};
use crate::events::wards::Wards;
use crate::family::{Family, Kind};
use crate::lwp::{KnownCuts, ThreadLwp};
use crate::markers::Bounds;
use crate::notices::Board;
use crate::outcome::{Alone, ProcessReport};
use crate::proc_files::Seen;
use crate::profile::{Profiler, ThreadProfile};
use crate::saving::Saving;
use crate::server::Pace;
use crate::space::Space;
use crate::store::Store;
use crate::syscalls::Pending;
use reports::Reports;

mod counts;
mod reports;

/// What the tracer must do for a thread that the server cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Execute the instruction at the request's pc natively.
    Step,
    /// Make an arena near the request's pc.
    Arena,
    /// Make the side of the address space for what the thread's profile counts.
    Side,
    /// Start over with the translations of its address space: they have filled their arena.
    Renewal,
    /// Find out whether notice of writes to its code can be had.
    Notices,
    /// Put another text in the place of a file of `/proc` that the thread has just opened at this descriptor.
    Hide(i32),
    /// Wait until a number of commands, which the thread has written to the control line, have
    /// taken effect.
    Obey(usize),
    /// Make the request's system call, mlockall(2), for the program's own mappings.
    Lock,
}

/// What a thread is doing, from the tracer's point of view.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "one per thread, and Copy is worth more than its size"
)]
pub enum Mode {
    /// In translated code.
    Running,
    /// Made, but not yet seen stopped.
    New,
    /// In its application state, about to take `signal`: the next stop tells whether a handler was
    /// entered.
    Delivering {
        /// Registers in translated code before; `None` where there is nothing to go back to.
        cache: Option<Regs>,
        /// Registers as the application has them.
        app: Regs,
    },
    /// Executing one instruction natively.
    Stepping {
        /// Its application pc.
        pc: u64,
        /// The program had set its own trap flag before.
        trapped: bool,
        /// The registers that it leaves on the virtual processor, where those are not the real one's.
        answer: Option<Regs>,
    },
    /// Standing still in its application state, while the translations of its address space are
    /// renewed.
    Parked {
        /// Its registers as the application has them.
        app: Regs,
        /// Job control had stopped it.
        group: bool,
    },
    /// In translated code up to the end of one system call, with the program's own trap flag hidden.
    Calling {
        /// The next stop at a system call is that at its end.
        entered: bool,
    },
}

/// A thread of the program.
#[derive(Debug)]
pub struct Thread {
    /// Its process.
    pub pid: i32,
    /// Its context slot.
    pub slot: usize,
    /// When it came into its process image.
    pub started: Instant,
    /// Its profile, while LWP is on.
    pub lwp: Option<Box<ThreadLwp>>,
    /// Where the random bits of its counters come from, while LWP is off.
    pub lwp_random: Option<Xorshift32>,
    /// When it asked for an instruction to be executed alone, and since when that is done.
    pub step_asked: Option<Instant>,
    /// See `step_asked`.
    pub stepping_since: Instant,
    /// How often a fault of the LWP component has been handed to it in vain.
    pub component_faults: u32,
    /// Cut fragments that the thread leads itself to.
    pub known_cuts: KnownCuts,
    /// The side of its address space on which it runs, where that is not the process's own.
    pub side: Option<usize>,
    /// What it is doing.
    pub mode: Mode,
    /// What the server wants done, until the tracer has done it.
    pub need: Option<Need>,
    /// It has asked for something while a signal was delivered to it, and has not been answered.
    pub put_off: bool,
    /// The system call that it is making with our help.
    pub pending: Option<Pending>,
    /// What keeps ignored signals from it for a while.
    pub calm: Option<Calm>,
    /// What is remembered of ignored signals.
    pub ignored: Ignored,
    /// CPU time that it had taken when it came into its image, and when it was about to end.
    pub cpu: (Option<Duration>, Option<Duration>),
    /// What the counters say too much or too little.
    pub correction: Sum,
    /// It may still be replacing the contexts that it has been made with: those, and how many are mapped.
    pub moving: Option<(FileId, usize)>,
    /// Whether its final state has been accounted for.
    pub settled: bool,
    /// Whether what it does is counted at the moment.
    pub counting: bool,
    /// Its own part in that.
    pub bounds: Bounds,
    /// Counts when counting was last switched on or off.
    pub mark: Sum,
    /// Counts gathered while counting was on, up to `mark`.
    pub kept: Sum,
    /// The same by place, if a profile is wanted.
    pub profile: ThreadProfile,
}

/// A process of the program.
#[derive(Debug)]
pub struct Process {
    /// Its address space.
    pub space: usize,
    /// The contexts in it.
    pub contexts: FileId,
    /// Index of its report.
    pub report: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Machine {
    /// What was asked for.
    pub config: Config,
    /// Contexts.
    pub contexts: Contexts,
    /// The processor shown.
    pub cpu: VirtualCpu,
    /// What is answered instead of executed.
    pub emulated: Emulated,
    /// The first family, made while the program is being started.
    pub prepared: Option<Family>,
    /// Families; empty places are free.
    pub families: Vec<Option<Family>>,
    /// Which family is of this kind.
    pub layouts: HashMap<Kind, usize>,
    /// Address spaces; empty places are free.
    pub spaces: Vec<Option<Space>>,
    /// Processes by id.
    pub processes: HashMap<i32, Process>,
    /// Threads by id.
    pub threads: HashMap<Tid, Thread>,
    /// Threads by context slot.
    pub slots: Vec<Tid>,
    /// New tracees that stand still until their makers report them.
    pub newborn: Vec<Tid>,
    /// New threads that have no place in their processes and have not stopped yet.
    pub unwanted: Vec<Tid>,
    /// Processes that have ended, with their address spaces, for children that they made last.
    pub limbo: HashMap<i32, Process>,
    limbo_order: VecDeque<i32>,
    /// Reports so far.
    pub reports: Reports,
    /// Threads that need the tracer.
    pub needy: Vec<Tid>,
    /// Processes that have written what translated code cannot have written: what it was.
    pub forgeries: Vec<(i32, &'static str)>,
    /// Address spaces whose translations are being renewed.
    pub renewals: Vec<usize>,
    /// Most bytes of an arena, where that is less than usual.
    pub arena_bytes: Option<u64>,
    /// `LWP_FORESEE=1`: functions that a module's data point to are translated in spare time.
    pub foresees: bool,
    /// Wakes the tracer.
    pub wake_tracer: Arc<OwnedFd>,
    /// State of the seeded random stream.
    pub random: u64,
    /// The virtual time stamp counter.
    pub tsc: u64,
    /// Under determinism, what the random devices are replaced by, and its path.
    pub random_file: Option<(SharedMemory, String)>,
    /// Whether counting is on.
    pub enabled: bool,
    /// Processes that have started or stopped counting by a marker.
    pub started_counting: HashMap<i32, bool>,
    /// Where translations outlive the run.
    pub store: Option<Arc<Store>>,
    /// What has been written there already.
    pub saving: Saving,
    /// Who wants to know where the counts arose.
    pub profiler: Option<Profiler>,
    /// What is known for walking sampled stacks.
    pub call_stacks: CallStacks,
    /// Whether hand-offs are cheap at the moment.
    pub pace: Pace,
    /// Some thread may not make the system call that wakes the server.
    pub filtered: bool,
    /// What has been executed one instruction at a time.
    pub alone: Alone,
    /// Notices of writes to code.
    pub notices: Board,
    /// Files that processes have got in the place of those of `/proc`.
    pub seen: Seen,
    /// Processes that others control.
    pub wards: Wards,
    /// What the program has written to the control line.
    /// The state of the control line.
    pub line: Line,
    /// Everything is over: the server ends.
    pub finished: bool,
    /// When the run began.
    pub started: Instant,
    /// The clocks of a process that was attached to.
    pub clocks: Option<CpuClocks>,
}

impl Machine {
    /// A machine with nothing in it.
    pub fn new(config: Config, wake_tracer: Arc<OwnedFd>) -> Self {
        let cpu = VirtualCpu::new(config.cpu, config.lwp.as_ref());
        let emulated = Emulated {
            xgetbv: cpu.xcr0() != sys::xcr0(),
            tsc: config.deterministic,
            random: config.deterministic,
            lwp: config.lwp.is_some(),
            no_inserts: config.lwp.as_ref().is_some_and(LwpConfig::is_proposal),
            fewer_states: cpu.real_xcr0() != sys::xcr0(),
            lwp_state: !cpu.components().is_empty(),
            markers: config.plan == Plan::Exact || config.markers.is_some(),
            writes: config.control_line.is_some(),
        };
        let spin = if sys::allowed_cpus() > 1 { pauses_in(THREAD_SPIN) } else { 0 };
        let random_file = if config.deterministic { seeded_file(config.seed) } else { None };
        Self {
            random_file,
            contexts: Contexts::new(cpu.real_xcr0()),
            cpu,
            emulated,
            prepared: None,
            families: Vec::new(),
            layouts: HashMap::new(),
            spaces: Vec::new(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            slots: Vec::new(),
            newborn: Vec::new(),
            unwanted: Vec::new(),
            limbo: HashMap::new(),
            limbo_order: VecDeque::new(),
            reports: Reports::new(config.fold),
            needy: Vec::new(),
            forgeries: Vec::new(),
            renewals: Vec::new(),
            arena_bytes: arena_bytes(),
            foresees: std::env::var_os("LWP_FORESEE").is_some_and(|value| value == "1"),
            wake_tracer,
            random: config.seed,
            tsc: 1 << 32,
            enabled: config.start_enabled,
            started_counting: HashMap::new(),
            store: None,
            saving: Saving::default(),
            profiler: None,
            call_stacks: CallStacks::new(&config.languages),
            pace: Pace::new(spin),
            filtered: false,
            alone: Alone::default(),
            notices: Board::default(),
            seen: Seen::default(),
            wards: Wards::default(),
            line: Line::default(),
            finished: false,
            started: Instant::now(),
            clocks: None,
            config,
        }
    }

    /// The plan of translated code.
    pub fn plan(&self) -> lwp_dbt::Plan {
        match self.config.plan {
            Plan::Plain => lwp_dbt::Plan::Plain,
            Plan::Exact if self.profiler.as_ref().is_some_and(Profiler::wants_calls) => {
                lwp_dbt::Plan::Calls
            }
            Plan::Exact => lwp_dbt::Plan::Exact,
        }
    }

    /// A thread's context.
    pub fn context(&self, tid: Tid) -> Option<Context<'_>> {
        Some(self.contexts.context(self.threads.get(&tid)?.slot))
    }

    /// The index of the address space of a thread, on the side on which it runs.
    pub fn space_index(&self, tid: Tid) -> Option<usize> {
        let thread = self.threads.get(&tid)?;
        match thread.side {
            Some(side) => Some(side),
            None => Some(self.processes.get(&thread.pid)?.space),
        }
    }

    /// The family in whose translated code or routines `pc` lies, in the address space of a thread,
    /// whatever the side.
    pub fn family_at(&self, tid: Tid, pc: u64) -> Option<&Family> {
        let pid = self.threads.get(&tid)?.pid;
        let base = self.processes.get(&pid)?.space;
        let space = self.spaces.get(base)?.as_ref()?;
        std::iter::once(base)
            .chain(space.sides.iter().map(|(_, side)| *side))
            .filter_map(|index| self.spaces.get(index)?.as_ref())
            .filter_map(|space| self.families.get(space.family)?.as_ref())
            .find(|family| family.owns(pc))
    }

    /// Every side of the address space that a thread runs in.
    pub fn all_sides(&self, tid: Tid) -> Vec<usize> {
        let Some(process) = self.threads.get(&tid).and_then(|t| self.processes.get(&t.pid)) else {
            return Vec::new();
        };
        let Some(Some(space)) = self.spaces.get(process.space) else { return Vec::new() };
        let mut out = vec![process.space];
        out.extend(space.sides.iter().map(|(_, side)| *side));
        out
    }

    /// Starts the report of a process image named `comm` that was run by `command`; its number.
    pub fn add_report(&mut self, pid: i32, parent: i32, comm: String, command: String) -> usize {
        let (threads, started) = (Vec::new(), Instant::now());
        let (maker, uncounted) = (0, None);
        self.reports.add(ProcessReport {
            pid,
            parent,
            maker,
            started,
            command,
            comm,
            threads,
            uncounted,
        })
    }

    /// The side of its address space in whose code or routines a thread stands, at `pc`;
    /// `None` for the one where nothing is profiled.
    pub fn side_at(&self, tid: Tid, pc: u64) -> Option<usize> {
        let base = self.processes.get(&self.threads.get(&tid)?.pid)?.space;
        let space = self.spaces.get(base)?.as_ref()?;
        space.sides.iter().map(|(_, side)| *side).find(|side| {
            let space = self.spaces.get(*side).and_then(Option::as_ref);
            let family = space.and_then(|space| self.families.get(space.family)?.as_ref());
            family.is_some_and(|family| family.owns(pc))
        })
    }

    /// A side of an address space, with its family.
    pub fn side(&mut self, index: usize) -> Option<(&mut Space, &mut Family)> {
        let space = self.spaces.get_mut(index)?.as_mut()?;
        let family = self.families.get_mut(space.family)?.as_mut()?;
        Some((space, family))
    }

    /// The address space and family of a thread.
    pub fn space_of(&mut self, tid: Tid) -> Option<(&mut Space, &mut Family)> {
        let space = self.space_index(tid)?;
        let space = self.spaces.get_mut(space)?.as_mut()?;
        let family = self.families.get_mut(space.family)?.as_mut()?;
        Some((space, family))
    }

    /// The next number of the seeded stream (splitmix64).
    pub fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Reads and advances the virtual time stamp counter.
    pub fn virtual_tsc(&mut self, step: u64) -> u64 {
        self.tsc += step;
        self.tsc
    }

    /// Asks the tracer for help with a thread.
    pub fn ask_tracer(&mut self, tid: Tid, need: Need) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.need = Some(need);
            thread.step_asked = (need == Need::Step).then(Instant::now);
            self.needy.push(tid);
            sys::event_signal(&self.wake_tracer);
        }
    }

    /// A thread's context says `what`, which translated code cannot have written: its process is not to go on.
    pub fn forged(&mut self, tid: Tid, what: &'static str) {
        if let Some(thread) = self.threads.get(&tid) {
            self.forgeries.push((thread.pid, what));
            sys::event_signal(&self.wake_tracer);
        }
    }

    /// Nothing came of a signal: has the server look again at what the thread has asked for meanwhile.
    pub fn ask_again(&mut self, tid: Tid) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        if std::mem::take(&mut thread.put_off) {
            self.contexts.context(thread.slot).ring();
        }
    }

    /// Adds a thread of process `pid` with a context of its own, in the address space whose contexts are in `file`.
    pub fn add_thread(&mut self, tid: Tid, pid: i32, file: FileId) -> Option<usize> {
        let slot = self.contexts.allocate(file, self.pace.first_spin())?;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] = tid;
        let profile = self.profiler.as_mut().map(Profiler::new_thread).unwrap_or_default();
        let wanted = self.is_reported(tid);
        let bounds = self.first_bounds();
        let sampling = || Box::new(ThreadLwp::sampling(&self.config, profile.serial, wanted));
        let lwp = self.watches().then(sampling);
        let thread = Thread {
            pid,
            slot,
            started: Instant::now(),
            lwp,
            lwp_random: None,
            step_asked: None,
            stepping_since: Instant::now(),
            component_faults: 0,
            known_cuts: KnownCuts::default(),
            side: None,
            mode: Mode::New,
            need: None,
            put_off: false,
            pending: None,
            calm: None,
            ignored: Ignored::default(),
            cpu: (self.cpu_time(tid), None),
            correction: Sum::default(),
            moving: None,
            settled: false,
            counting: self.wants_counts(pid, &bounds),
            bounds,
            mark: Sum::default(),
            kept: Sum::default(),
            profile,
        };
        self.threads.insert(tid, thread);
        self.lwp_publish(tid);
        Some(slot)
    }

    /// Gives `tid`, the only thread of its process, a context in another file, and what was in the old one. `None`
    /// where there is none to be had.
    pub fn stay_with(&mut self, tid: Tid, file: FileId) -> Option<()> {
        let slot = self.contexts.allocate(file, self.pace.first_spin())?;
        let old = std::mem::replace(&mut self.threads.get_mut(&tid)?.slot, slot);
        self.contexts.context(slot).copy(self.contexts.context(old));
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] = std::mem::take(&mut self.slots[old]);
        self.contexts.release(old);
        self.contexts.files.enter(file);
        let pid = self.threads.get(&tid)?.pid;
        let own = std::mem::replace(&mut self.processes.get_mut(&pid)?.contexts, file);
        self.contexts.files.leave(own);
        Some(())
    }

    /// Lets the threads of an address space know where there is code, if there is more of it than they know.
    ///
    /// Nobody executes what they do not know of: whoever comes there first asks, and is answered after this.
    pub fn tell_code(&mut self, index: usize) {
        let Some(Some(space)) = self.spaces.get_mut(index) else { return };
        let Some((state, mut code)) = space.code_for_threads() else { return };
        // What is known on one side is not known on another.
        let alone = space.sides.is_empty();
        code.extend(self.ours_in(index));
        let code = alone.then_some(&code[..]);
        for (&tid, thread) in &self.threads {
            if self.space_index(tid) == Some(index) {
                self.contexts.context(thread.slot).set_code_ranges(state, code);
            }
        }
    }

    /// Moves a thread, which is not running translated code, to another side of its address space. Its
    /// counters are the translator's that it leaves: what they say is kept.
    pub fn change_side(&mut self, tid: Tid, side: Option<usize>) {
        let Some(thread) = self.threads.get(&tid) else { return };
        if thread.side == side {
            return;
        }
        let slot = thread.slot;
        self.keep_counts(tid, slot);
        self.contexts.context(slot).set_code_ranges(0, None);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.side = side;
            if let Some(side) = side {
                thread.known_cuts.use_on(self.contexts.context(slot), side);
            }
        }
    }

    /// Keeps an ended process's address space for a while: a child that it made just before it was
    /// killed may still report.
    pub fn remember(&mut self, pid: i32, mut process: Process) {
        const KEPT: usize = 32;
        // Such a child still has the contexts mapped.
        if self.contexts.files.is_unreached(process.contexts) {
            self.contexts.files.leave(std::mem::replace(&mut process.contexts, FileId::NONE));
        }
        self.limbo.insert(pid, process);
        self.limbo_order.push_back(pid);
        if self.limbo_order.len() > KEPT
            && let Some(oldest) = self.limbo_order.pop_front()
            && let Some(process) = self.limbo.remove(&oldest)
        {
            let report = process.report;
            self.depart(process);
            self.reports.forget(report);
        }
    }

    /// A process is gone from its address space.
    pub fn depart(&mut self, process: Process) {
        self.leave_space(process.space);
        self.contexts.files.leave(process.contexts);
    }

    /// The only process that lives in an address space is about to leave it.
    pub fn space_ended(&mut self, index: usize) {
        if let Some((space, family)) = self.side(index)
            && space.users == 1
        {
            space.ended(family);
        }
    }

    /// One process less in an address space; the last one frees it.
    fn leave_space(&mut self, index: usize) {
        let Some(place) = self.spaces.get_mut(index) else { return };
        let Some(space) = place else { return };
        space.users -= 1;
        if space.users > 0 {
            return;
        }
        let sides: Vec<usize> = space.sides.iter().map(|(_, side)| *side).collect();
        *place = None;
        for side in sides {
            self.spaces[side] = None;
        }
    }

    /// Puts an address space into a free place.
    pub fn add_space(&mut self, space: Space) -> usize {
        match self.spaces.iter().position(Option::is_none) {
            Some(index) => {
                self.spaces[index] = Some(space);
                index
            }
            None => {
                self.spaces.push(Some(space));
                self.spaces.len() - 1
            }
        }
    }
}

/// `LWP_ARENA_BYTES`: makes arenas smaller than usual, to see what happens when they are full.
fn arena_bytes() -> Option<u64> {
    const LEAST: u64 = 1 << 20;
    let bytes: u64 = std::env::var("LWP_ARENA_BYTES").ok()?.parse().ok()?;
    Some(bytes.next_multiple_of(LEAST).max(LEAST))
}

/// A file of seeded random bytes, long enough for any seed, and the path to open it by.
fn seeded_file(seed: u64) -> Option<(SharedMemory, String)> {
    const BYTES: u64 = 1 << 20;
    let file = SharedMemory::new(c"lwp-random", BYTES).ok()?;
    let mut state = seed ^ 0x5851_f42d_4c95_7f2d;
    for at in (0..BYTES).step_by(8) {
        // splitmix64's increment with a multiplicative mix: any even distribution will do.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        file.store(at, mixed ^ (mixed >> 29));
    }
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.fd());
    Some((file, path))
}

/// How long a thread spins before it sleeps: what sleeping and waking take where both sides' processors are virtual
/// ones, and longer than most answers do.
const THREAD_SPIN: Duration = Duration::from_micros(200);

/// How many pauses fit into `time`; one takes some 40 to 140 cycles, depending on the processor.
fn pauses_in(time: Duration) -> u64 {
    const TRIAL: u64 = 200;
    let start = Instant::now();
    for _ in 0..TRIAL {
        std::hint::spin_loop();
    }
    let took = start.elapsed().as_nanos().max(1) as u64;
    (time.as_nanos() as u64 * TRIAL / took).clamp(50, 20_000)
}
