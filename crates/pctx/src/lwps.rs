//! The threads of a process and their numbers.

use std::fmt;

use crate::Pid;

/// The number of a thread in its process: 1, 2, 3 and so on in the order in which threads started.
/// Numbers are not reused until an exec, which starts again at 1.
///
/// ```
/// use pctx::LwpId;
///
/// assert_eq!(LwpId::new(1), LwpId::FIRST);
/// assert_eq!((LwpId::new(7).get(), LwpId::new(7).to_string()), (7, "7".to_owned()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LwpId(i32);

impl LwpId {
    /// The first thread of a process, and its only one after an exec.
    pub const FIRST: Self = Self(1);

    /// The number `id` as a thread's. A process may have no such thread.
    #[must_use]
    pub const fn new(id: i32) -> Self {
        Self(id)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl fmt::Display for LwpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of a thread, as far as ptrace is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Announced, but it has not stopped for the first time.
    New,
    /// Running.
    Running,
    /// Stopped, to be continued with this signal.
    Stopped(i32),
    /// In a stop of job control, listening for SIGCONT.
    Listening,
    /// Past its exit event; only its status is still to come.
    Exiting,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lwp {
    pub(crate) id: LwpId,
    pub(crate) tid: Pid,
    pub(crate) state: State,
}

/// The threads under control.
#[derive(Debug)]
pub(crate) struct Lwps {
    all: Vec<Lwp>,
    last: i32,
}

impl Lwps {
    /// Threads that are stopped already.
    pub(crate) fn stopped(tids: &[Pid]) -> Self {
        let mut lwps = Self { all: Vec::new(), last: 0 };
        for tid in tids {
            lwps.add(*tid, State::Stopped(0));
        }
        lwps
    }

    pub(crate) fn add(&mut self, tid: Pid, state: State) -> LwpId {
        self.last += 1;
        let id = LwpId(self.last);
        self.all.push(Lwp { id, tid, state });
        id
    }

    pub(crate) fn remove(&mut self, tid: Pid) {
        self.all.retain(|lwp| lwp.tid != tid);
    }

    pub(crate) fn get(&self, tid: Pid) -> Option<Lwp> {
        self.all.iter().find(|lwp| lwp.tid == tid).copied()
    }

    pub(crate) fn set(&mut self, tid: Pid, state: State) {
        if let Some(lwp) = self.all.iter_mut().find(|lwp| lwp.tid == tid) {
            lwp.state = state;
        }
    }

    /// Every thread ptrace still knows.
    pub(crate) fn all(&self) -> Vec<Lwp> {
        self.all.clone()
    }

    fn living(&self) -> impl Iterator<Item = &Lwp> {
        self.all.iter().filter(|lwp| !matches!(lwp.state, State::Exiting | State::New))
    }

    pub(crate) fn tid(&self, id: LwpId) -> Option<Pid> {
        self.living().find(|lwp| lwp.id == id).map(|lwp| lwp.tid)
    }

    pub(crate) fn ids(&self) -> Vec<LwpId> {
        self.living().map(|lwp| lwp.id).collect()
    }

    /// Returns whether any thread is alive or about to start.
    pub(crate) fn any_alive(&self) -> bool {
        self.all.iter().any(|lwp| lwp.state != State::Exiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_small_and_not_reused() {
        let mut lwps = Lwps::stopped(&[900, 950]);
        assert_eq!(lwps.ids(), [LwpId(1), LwpId(2)]);
        lwps.remove(950);
        assert_eq!(lwps.add(951, State::Running), LwpId(3));
        assert_eq!(lwps.tid(LwpId(3)), Some(951));
        assert_eq!(lwps.tid(LwpId(2)), None);
        lwps.set(900, State::Exiting);
        assert_eq!(lwps.ids(), [LwpId(3)]);
        assert!(lwps.any_alive());
        lwps.set(951, State::Exiting);
        assert!(!lwps.any_alive());
    }
}
