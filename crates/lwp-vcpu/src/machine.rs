//! The machine: every process, thread, address space and translation of a run, under one lock.
//!
//! Two threads of the host work on it: the *tracer* ([`crate::tracer`]), which receives ptrace
//! stops, and the *server* ([`crate::server`]), which answers the mailboxes. Each holds the lock
//! while it works and releases it while it waits.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lwp_calls::proc_files::Seen;
use lwp_code::family::Family;
use lwp_code::space::Space;
use lwp_mailbox::contexts::{Context, Contexts, FileId, Sum};
use lwp_process::{Tid, Tracees, sys};
use lwp_run::config::Config;

use crate::control_line::Line;
use crate::guarding;
use crate::lwp::ThreadLwp;
use crate::markers::Bounds;
use crate::profile::Profiler;
use crate::server::SpinPolicy;

mod code_caches;
mod counts;
mod errands;
mod observers;
mod processor;
mod reports;
mod tasks;

pub use code_caches::{CodeCaches, Where};
pub use counts::Counting;
pub use errands::Errands;
pub use observers::Observers;
pub use processor::{Processor, Stamp, StampClock};
pub use tasks::{
    Account, Dispatch, Errand, LwpState, Mode, Moving, Need, Process, Tasks, Thread, ThreadSignals,
};

/// A run: its parts, which share one lock.
#[derive(Debug)]
pub struct Machine {
    /// The configuration of the run.
    pub config: Config,
    /// The contexts of all threads.
    pub contexts: Contexts,
    /// The processor shown.
    pub processor: Processor,
    /// Processes and threads.
    pub tasks: Tasks,
    /// Address spaces and their translations.
    pub caches: CodeCaches,
    /// Reports, and the profile.
    pub observers: Observers,
    /// The server's errands for the tracer.
    pub errands: Errands,
    /// The present cost of hand-offs.
    pub spin_policy: SpinPolicy,
    /// Files that processes have got in the place of those of `/proc`.
    pub seen: Seen,
    /// The state of the control line.
    pub line: Line,
    /// Everything is over: the server ends.
    pub finished: bool,
    /// Control of the threads.
    pub tracees: Arc<dyn Tracees>,
}

impl Machine {
    /// A machine with nothing in it.
    pub fn new(config: Config, wake_tracer: Arc<OwnedFd>, tracees: Arc<dyn Tracees>) -> Self {
        let way = guarding::way(&config);
        let processor = Processor::new(&config, way.is_some_and(guarding::Way::looks_at_calls));
        let spin = if sys::allowed_cpus() > 1 { pauses_in(THREAD_SPIN) } else { 0 };
        let mut contexts = Contexts::new(processor.cpu.real_xcr0());
        contexts.tells_actions = config.sampling.stacks && config.trials.keeps;
        Self {
            contexts,
            processor,
            tasks: Tasks::default(),
            caches: CodeCaches::new(&config, way),
            observers: Observers::new(&config),
            errands: Errands::new(wake_tracer),
            spin_policy: SpinPolicy::new(spin),
            seen: Seen::default(),
            line: Line::default(),
            finished: false,
            tracees,
            config,
        }
    }

    /// A thread's context.
    pub fn context(&self, tid: Tid) -> Option<Context<'_>> {
        self.tasks.context(&self.contexts, tid)
    }

    /// Returns the address space and family of a thread.
    pub fn space_of(&mut self, tid: Tid) -> Option<(&mut Space, &mut Family)> {
        self.caches.space_of(&self.tasks, tid)
    }

    /// Returns the family in whose translated code or routines `pc` lies, in the address space of a
    /// thread, on any side.
    pub fn family_at(&self, tid: Tid, pc: u64) -> Option<&Family> {
        self.caches.family_at(self.tasks.base_space(tid)?, pc)
    }

    /// Asks the tracer for help with a thread.
    pub fn ask_tracer(&mut self, tid: Tid, need: Need) {
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.errand.need = Some(need);
            thread.errand.asked = (need == Need::Step).then(Instant::now);
            self.errands.needy.push(tid);
            self.errands.wake();
        }
    }

    /// Notes that a thread's context says `what`, which translated code cannot have written. The
    /// tracer ends the process.
    pub fn forged(&mut self, tid: Tid, what: &'static str) {
        if let Some(thread) = self.tasks.threads.get(&tid) {
            self.errands.forgeries.push((thread.pid, what));
            self.errands.wake();
        }
    }

    /// Nothing came of a signal: has the server look again at what the thread has asked for
    /// meanwhile.
    pub fn ask_again(&mut self, tid: Tid) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        if std::mem::take(&mut thread.signals.put_off) {
            self.contexts.context(thread.slot).ring();
        }
    }

    /// Adds a thread of process `pid` with a context of its own, in the address space whose
    /// contexts are in `file`.
    pub fn add_thread(&mut self, tid: Tid, pid: i32, file: FileId) -> Option<usize> {
        let slot = self.contexts.allocate(file, self.spin_policy.first_spin())?;
        self.tasks.set_slot(slot, tid);
        let profile =
            self.observers.profiler.as_mut().map(Profiler::new_thread).unwrap_or_default();
        let wanted = self.config.reports(tid);
        let bounds = Bounds::first(self.config.counted.markers);
        let sampling = || Box::new(ThreadLwp::sampling(&self.config, profile.serial, wanted));
        let lwp = self.config.watches().then(sampling);
        let now = Instant::now();
        let account = Account {
            started: now,
            cpu: (counts::cpu_time(&self.config, tid), None),
            comm: None,
            correction: Sum::default(),
            settled: false,
            counting: self.counting().wants_counts(pid, &bounds),
            bounds,
            mark: Sum::default(),
            kept: Sum::default(),
            profile,
        };
        let thread = Thread {
            pid,
            slot,
            side: None,
            mode: Mode::New,
            pending: None,
            touched: [(0, 0); 2],
            moving: Moving::Done,
            lwp,
            lwp_state: LwpState::default(),
            errand: Errand {
                need: None,
                asked: None,
                since: now,
                breakpoint: false,
                compatible: false,
            },
            signals: ThreadSignals::default(),
            dispatch: Dispatch::default(),
            clock_faults: false,
            account,
        };
        self.tasks.threads.insert(tid, thread);
        self.tasks.lwp_publish(&self.contexts, tid);
        Some(slot)
    }

    /// Moves a thread, which is not running translated code, to another side of its address space.
    /// Its counters are the translator's that it leaves: what they say is kept.
    pub fn change_side(&mut self, tid: Tid, side: Option<usize>) {
        let Some(thread) = self.tasks.threads.get(&tid) else { return };
        if thread.side == side {
            return;
        }
        let slot = thread.slot;
        self.counting().keep_counts(tid, slot);
        self.contexts.context(slot).set_code_ranges(0, None);
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.side = side;
            if let Some(side) = side {
                thread.lwp_state.known_cuts.use_on(self.contexts.context(slot), side);
            }
        }
    }

    /// Keeps an ended process's address space for a while: a child that it made just before it was
    /// killed may still report.
    pub fn remember(&mut self, pid: i32, process: Process) {
        const KEPT: usize = 32;
        // Such a child is known by the name of the contexts, and has no other use for them.
        self.contexts.files.leave(process.contexts);
        self.tasks.limbo.insert(pid, process);
        self.tasks.limbo_order.push_back(pid);
        if self.tasks.limbo_order.len() > KEPT
            && let Some(oldest) = self.tasks.limbo_order.pop_front()
            && let Some(process) = self.tasks.limbo.remove(&oldest)
        {
            let report = process.report;
            self.caches.leave(process.space);
            self.observers.reports.forget(report);
        }
    }

    /// A process is gone from its address space.
    pub fn depart(&mut self, process: Process) {
        self.caches.leave(process.space);
        self.contexts.files.leave(process.contexts);
    }
}

/// The time for which a thread spins before it sleeps: as long as sleeping and waking take where
/// both sides' processors are virtual ones, and longer than most answers do.
const THREAD_SPIN: Duration = Duration::from_micros(200);

/// The number of pauses that fit into `time`; one takes some 40 to 140 cycles, depending on the
/// processor.
fn pauses_in(time: Duration) -> u64 {
    const TRIAL: u64 = 200;
    let start = Instant::now();
    for _ in 0..TRIAL {
        std::hint::spin_loop();
    }
    let took = start.elapsed().as_nanos().max(1) as u64;
    (time.as_nanos() as u64 * TRIAL / took).clamp(50, 20_000)
}
