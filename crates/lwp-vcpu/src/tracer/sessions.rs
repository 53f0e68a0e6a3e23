//! Processes that the program leaves behind: daemons in separate sessions.
//!
//! Natively, a command ends with its program, whatever that has left behind. lwp waits for
//! processes that still run in the program's session. When only daemons are left, lwp releases
//! them, and they continue natively, unless the program has looked for Lightweight Profiling, which
//! they would lose.

use std::time::Duration;

use lwp_process::sys;

use crate::machine::Machine;

/// The interval between looks at sessions once the program is over: nothing tells of a new one.
pub const LOOK: Duration = Duration::from_millis(20);

/// The number of looks after which threads that stand still, and wait for others to do so, go on
/// until the next.
pub const PATIENCE: u32 = 16;

/// The sessions that a program has been in, in one of which its processes are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Sessions {
    first: Option<i32>,
    last: Option<i32>,
}

impl Sessions {
    /// Those of a program that begins as `pid`.
    pub fn at_first(pid: i32) -> Self {
        let first = sys::session_of(pid).ok();
        Self { first, last: first }
    }

    /// The program is about to end as `pid`.
    pub fn at_last(&mut self, pid: i32) {
        self.last = sys::session_of(pid).ok();
    }

    fn have(&self, pid: i32) -> bool {
        // One that is gone is reported by itself.
        sys::session_of(pid).is_ok_and(|session| [self.first, self.last].contains(&Some(session)))
    }
}

/// Returns whether the processes that are left are all daemons, which can be let go.
pub fn are_left_alone(machine: &Machine, sessions: &Sessions) -> bool {
    !machine.processor.lwp_was_found.get()
        && !machine.tasks.threads.is_empty()
        && !machine.tasks.threads.values().any(|thread| sessions.have(thread.pid))
}
