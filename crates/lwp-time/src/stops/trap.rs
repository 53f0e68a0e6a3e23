//! Samples for which an event of the kernel's clock stops the thread.
//!
//! The event sends SIGTRAP before the thread executes another instruction of its own: when a system
//! call has ended, never within one. The thread is traced, so the signal stops it, and lwp takes
//! the signal away. The program never sees it.
//!
//! Promise: R147

use lwp_perf::{Linux, Trap, trap};
use lwp_process::{Stop, Tracee, sys};

use super::thread::Stood;
use super::{Stops, now_ns};
use crate::samples::Samples;

/// The signal came late: the thread blocked it when the event sent it.
///
/// Spec: asm-generic/siginfo.h, `TRAP_PERF_FLAG_ASYNC`.
const LATE: u32 = 1;

/// A SIGTRAP by one of lwp's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByEvent {
    late: bool,
}

/// The signal that a thread stands before, if it is by one of lwp's events.
pub(super) fn by_event(tid: i32, signal: i32) -> Option<ByEvent> {
    if signal != libc::SIGTRAP {
        return None;
    }
    let info = sys::get_siginfo(tid).ok().filter(|info| info.code() == trap::CODE)?;
    let (data, flags) = info.perf();
    (data == trap::DATA).then_some(ByEvent { late: flags & LATE != 0 })
}

/// CPU time of the calling thread in ns.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

impl Stops {
    /// Opens the event that stops a thread, which is traced already.
    pub(super) fn set_trap(&mut self, tid: i32) {
        let Some(modes) = self.plan.traps.filter(|_| self.on) else { return };
        match Trap::open(&Linux, tid, (&crate::clock(), self.plan.period_ns), modes) {
            Ok(trap) => drop(self.traps.insert(tid, trap)),
            Err(_) => self.sums.refused += 1,
        }
    }

    /// A thread stands at a sampled instruction.
    pub(super) fn trapped(&mut self, tid: i32, by_event: ByEvent, samples: &mut Samples<'_>) {
        let start = thread_ns();
        if by_event.late {
            // A call that has the thread wait with other signals blocked may have ended for it.
            Tracee(tid).leave_call_to_kernel(Stop::Interrupted);
        }
        let found = self.thread(tid).map(|thread| thread.stack_bytes).filter(|_| self.on);
        let pid = self.pids.get(&tid).copied();
        if let (Some(stack_bytes), Some(pid)) = (found, pid)
            && let Some(stood) = Stood::at_rest(tid, stack_bytes)
        {
            self.sums.events -= 1;
            self.sums.samples += 1;
            if self.rings.is_some() {
                samples.off.threads.stands(tid, now_ns());
            }
            self.sample((pid, tid), &stood, samples);
        }
        self.go_on(tid);
        self.sums.stood_ns += thread_ns().saturating_sub(start);
    }

    /// Looks at the clocks of all threads that have not ended.
    pub(super) fn look_at_clocks(&mut self) {
        for (pid, process) in &mut self.processes {
            for (tid, thread) in &mut process.threads {
                if let Some(used) = super::used(*pid, *tid) {
                    thread.used = used;
                }
            }
        }
    }
}
