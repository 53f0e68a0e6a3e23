//! The processes and threads of a run.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use lwp_calls::limits::RaisedByProcess;
use lwp_calls::syscalls::Pending;
use lwp_calls::user_dispatch::UserDispatch;
use lwp_mailbox::contexts::{Context, Contexts, FileId, Sum};
use lwp_model::Xorshift32;
use lwp_process::Tid;
use lwp_process::regs::Regs;

use super::Stamp;
use crate::guarding::FaultAction;
use crate::lwp::{KnownCuts, ThreadLwp};
use crate::markers::Bounds;
use crate::profile::ThreadProfile;
use crate::tracer::controlled_processes::Wards;
use crate::tracer::core_dump::Dying;
use crate::tracer::emulated_ptrace::Tracing;
use crate::tracer::ignored_signals::{Calm, Ignored};
use crate::tracer::retranslate::ParkedCall;
use crate::tracer::sigaction_order::{Taken, Wait};
use crate::tracer::signal_pacing::Pace;

/// An errand for a thread that only the tracer can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Execute the instruction at the request's pc natively.
    Step,
    /// Make an arena near the request's pc.
    Arena,
    /// Make the side of the address space for what the thread's profile counts.
    Side,
    /// Start over with the translations of its address space: they have filled their arena.
    Flush,
    /// Find out whether notice of writes to its code can be had.
    Notices,
    /// Guard the pages of the code at the request's pc, and no longer those that are released.
    Guard,
    /// Put another text in the place of a file of `/proc` that the thread has just opened at this
    /// descriptor.
    Hide(i32),
    /// Wait until a number of commands, which the thread has written to the control line, have
    /// taken effect.
    Obey(usize),
    /// Make the request's system call, mlockall(2), for the program's own mappings.
    Lock,
    /// Make the request's system call for the parts of its range that lie around what is ours.
    Around,
    /// Make the request's system call, by which a signal is ignored no longer, once none is on its
    /// way that was sent before.
    Settle,
    /// Map contexts for all threads that there can ever be: a filter is about to be in force that
    /// may kill for the call which maps more.
    Room,
    /// Make the request's system call, which is about a thread that the program traces.
    Trace,
    /// Have the kernel turn the request's system call into a signal.
    Dispatch,
}

/// The state of a thread, from the tracer's point of view.
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
        /// The registers that it leaves on the virtual processor, where those are not the real
        /// one's.
        answer: Option<Regs>,
    },
    /// Standing still in its application state, while the translations of its address space are
    /// flushed.
    Parked {
        /// Its registers as the application has them.
        app: Regs,
        /// Job control had stopped it.
        group: bool,
    },
    /// In translated code up to the end of one system call, with the program's own trap flag
    /// hidden.
    Calling {
        /// The next stop at a system call is that at its end.
        entered: bool,
    },
}

/// The way in which a copy that fork has made comes to contexts of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moving {
    /// It has them, or shares memory with its maker.
    #[default]
    Done,
    /// It maps them itself, or the host does.
    Itself,
    /// The host maps them.
    FromOutside,
    /// It gets none and goes on natively, for this reason.
    Never(&'static str),
}

/// A thread of the program.
#[derive(Debug)]
pub struct Thread {
    /// Its process.
    pub pid: i32,
    /// Its context slot.
    pub slot: usize,
    /// The side of its address space on which it runs, where that is not the process's own.
    pub side: Option<usize>,
    /// Its state, as the tracer sees it.
    pub mode: Mode,
    /// The system call that it is making with our help.
    pub pending: Option<Pending>,
    /// Ranges that the last call that the host has looked at maps, unmaps or changes.
    pub touched: [(u64, u64); 2],
    /// The way in which its process comes to contexts of its own.
    pub moving: Moving,
    /// Its profile, while LWP is on.
    pub lwp: Option<Box<ThreadLwp>>,
    /// The rest of its LWP state.
    pub lwp_state: LwpState,
    /// The errand that it waits for.
    pub errand: Errand,
    /// Signals on their way to it.
    pub signals: ThreadSignals,
    /// The system calls that it has become signals.
    pub dispatch: Dispatch,
    /// Reading the time stamp counter raises SIGSEGV: it has asked for that by prctl(PR_SET_TSC).
    pub clock_faults: bool,
    /// Its counts and times.
    pub account: Account,
}

impl Thread {
    /// The performance time-stamp counter, with its clock if the thread may read that.
    pub fn readable(&self, stamp: Stamp) -> Stamp {
        if self.clock_faults { stamp.without_clock() } else { stamp }
    }
}

/// The system calls that a thread has become signals.
#[derive(Debug, Default)]
pub struct Dispatch {
    /// Which they are.
    pub by: Option<UserDispatch>,
    /// It has asked for that, and its translations are to be made anew first.
    pub asked: bool,
    /// The kernel knows of it, for the call that the thread is about to make.
    pub told: bool,
}

/// LWP state of a thread that outlives its profile.
#[derive(Debug, Default)]
pub struct LwpState {
    /// Source of the random bits of its counters, while LWP is off.
    pub random: Option<Xorshift32>,
    /// Number of times that a fault of the LWP component has been handed to it in vain.
    pub component_faults: u32,
    /// Cut fragments that the thread leads itself to.
    pub known_cuts: KnownCuts,
}

/// The errand that a thread waits for, with the times of instructions that are executed alone.
#[derive(Debug)]
pub struct Errand {
    /// The kind of errand, while it waits for one.
    pub need: Option<Need>,
    /// Time at which it asked for such an instruction.
    pub asked: Option<Instant>,
    /// Time at which that began.
    pub since: Instant,
    /// It is an INT3: the program's own, or a uprobe's in the place of an instruction.
    pub breakpoint: bool,
    /// It is 32-bit code.
    pub compatible: bool,
}

/// Signals on their way to a thread.
#[derive(Debug, Default)]
pub struct ThreadSignals {
    /// It has asked for something while a signal was delivered to it, and has not been answered.
    pub put_off: bool,
    /// Job control has stopped it.
    pub stopped: bool,
    /// It has been made by a call with the program's trap flag set, and has not begun.
    pub trapped: bool,
    /// The means that keeps ignored signals from it for a while.
    pub calm: Option<Calm>,
    /// Ignored signals of late.
    pub ignored: Ignored,
    /// The signal that is delivered to it.
    pub delivering: i32,
    /// The signals that have been delivered to it.
    pub taken: Taken,
    /// The call that it was parked in and has perhaps not made again.
    pub parked_in: Option<ParkedCall>,
    /// The times at which they came of late.
    pub pace: Pace,
    /// The wait of its call for signals on their way.
    pub wait: Wait,
}

/// Counts and times of a thread.
#[derive(Debug)]
pub struct Account {
    /// Time at which it came into its process image.
    pub started: Instant,
    /// CPU time that it had taken when it came into its image, and when it was about to end.
    pub cpu: (Option<Duration>, Option<Duration>),
    /// Its own name, as it was when it was last asked for: while it lives in its image.
    pub comm: Option<String>,
    /// Difference between the counters and the truth.
    pub correction: Sum,
    /// Its final state has been accounted for.
    pub settled: bool,
    /// Its work is counted at the moment.
    pub counting: bool,
    /// Its own part in that.
    pub bounds: Bounds,
    /// Counts when counting was last switched on or off.
    pub mark: Sum,
    /// Counts gathered while counting was on, up to `mark`.
    pub kept: Sum,
    /// These counts by place, if a profile is wanted.
    pub profile: ThreadProfile,
}

/// A process of the program.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its address space.
    pub space: usize,
    /// The contexts in it.
    pub contexts: FileId,
    /// Index of its report.
    pub report: usize,
    /// The action that it has set for SIGSEGV, where that is looked at and known.
    pub fault_action: Option<FaultAction>,
    /// Its threads are registered for rseq(2), as they were when lwp attached to it, or to the
    /// process that it is a copy of.
    pub rseq: bool,
    /// It is hidden without the kernel's knowledge.
    pub hidden: bool,
    /// As many contexts are mapped as there can be, or cannot be.
    pub has_room: bool,
    /// The times that changes of actions have asked whether signals are on their way.
    pub asked: u64,
}

impl Process {
    /// A process without an address space yet.
    pub fn new(report: usize, contexts: FileId) -> Self {
        Self {
            space: usize::MAX,
            contexts,
            report,
            fault_action: None,
            rseq: false,
            hidden: false,
            has_room: false,
            asked: 0,
        }
    }
}

/// All processes and threads.
#[derive(Debug, Default)]
pub struct Tasks {
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
    /// Their ids, longest ended first.
    pub limbo_order: VecDeque<i32>,
    /// Bytes by which the kernel's limits on their address spaces are higher than the programs'.
    pub raised: RaisedByProcess,
    /// Some thread may not make the system call that wakes the server.
    pub filtered: bool,
    /// Processes that have started or stopped counting by a marker.
    pub started_counting: HashMap<i32, bool>,
    /// Processes that are about to die, and dump core.
    pub dying: HashMap<i32, Dying>,
    /// Processes that others control.
    pub wards: Wards,
    /// Threads that programs trace.
    pub tracing: Tracing,
}

impl Tasks {
    /// A new thread or process reads the time stamp counter as its maker does.
    pub fn inherit_clock(&mut self, maker: Tid, child: Tid) {
        let faults = self.threads.get(&maker).is_some_and(|thread| thread.clock_faults);
        if let Some(thread) = self.threads.get_mut(&child) {
            thread.clock_faults = faults;
        }
    }

    /// The context of a thread of the run.
    pub fn context<'c>(&self, contexts: &'c Contexts, tid: Tid) -> Option<Context<'c>> {
        Some(contexts.context(self.threads.get(&tid)?.slot))
    }

    /// Notes which thread has a context slot.
    pub fn set_slot(&mut self, slot: usize, tid: Tid) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] = tid;
    }

    /// The threads of a process.
    pub fn threads_of(&self, pid: i32) -> impl Iterator<Item = (Tid, &Thread)> {
        self.threads.iter().filter(move |(_, it)| it.pid == pid).map(|(tid, it)| (*tid, it))
    }

    /// The ids of the threads of a process, in order.
    pub fn tids_of(&self, pid: i32) -> Vec<Tid> {
        let mut tids: Vec<Tid> = self.threads_of(pid).map(|(tid, _)| tid).collect();
        tids.sort_unstable();
        tids
    }

    /// Returns the index of the address space of a thread's process, on the side where nothing is
    /// profiled.
    pub fn base_space(&self, tid: Tid) -> Option<usize> {
        Some(self.processes.get(&self.threads.get(&tid)?.pid)?.space)
    }

    /// Returns the index of the address space of a thread, on the side on which it runs.
    pub fn space_index(&self, tid: Tid) -> Option<usize> {
        self.threads.get(&tid)?.side.or_else(|| self.base_space(tid))
    }

    /// The threads that run on this side of an address space.
    pub fn threads_in(&self, index: usize) -> Vec<Tid> {
        let all = self.threads.keys().copied();
        all.filter(|tid| self.space_index(*tid) == Some(index)).collect()
    }
}
