//! Threads whose system calls become signals (syscall user dispatch): see
//! [`lwp_calls::user_dispatch`].

use lwp_calls::syscalls::Pending;
use lwp_calls::user_dispatch::{UserDispatch, is_had};
use lwp_dbt::Slot;

use super::Answer;
use crate::machine::Need;

/// What there is to do about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dispatched {
    /// Nothing.
    No,
    /// The call asks for this, and has this result.
    Result(i64),
    /// The tracer is first to do this.
    Waits(Need),
}

const EINVAL: i64 = -22;

impl Answer<'_> {
    /// Looks whether the call that the thread is about to make becomes a signal, or says which do.
    pub(super) fn user_dispatch(&mut self, call: &Pending) -> Dispatched {
        let tid = self.cx.tid;
        let context = self.context();
        let selector = context.get(Slot::R8);
        let next = context.get(Slot::Pc).wrapping_add(2);
        let Some(thread) = self.machine.tasks.threads.get_mut(&tid) else { return Dispatched::No };
        if thread.dispatch.by.is_some_and(|by| by.stops(tid, next).is_some()) {
            return Dispatched::Waits(Need::Dispatch);
        }
        let asked = std::mem::take(&mut thread.dispatch.asked);
        match UserDispatch::asked_by(call, selector) {
            None => Dispatched::No,
            Some(Err(error)) => Dispatched::Result(error),
            Some(Ok(None)) => {
                thread.dispatch.by = None;
                Dispatched::Result(0)
            }
            Some(Ok(Some(by))) => self.begin_to_dispatch(by, asked),
        }
    }

    /// The thread has some calls become signals from now on, if its translations tell of every call;
    /// `asked`: they should.
    fn begin_to_dispatch(&mut self, by: UserDispatch, asked: bool) -> Dispatched {
        let tid = self.cx.tid;
        let Some((space, family)) = self.machine.space_of(tid) else {
            return Dispatched::Result(EINVAL);
        };
        let (tells, may_change) = (family.kind.basis.dispatches, space.users == 1 && is_had());
        if !tells && (asked || !may_change) {
            return Dispatched::Result(EINVAL);
        }
        space.dispatches |= !tells;
        let Some(thread) = self.machine.tasks.threads.get_mut(&tid) else { return Dispatched::No };
        if !tells {
            thread.dispatch.asked = true;
            return Dispatched::Waits(Need::Flush);
        }
        thread.dispatch.by = Some(by);
        Dispatched::Result(0)
    }
}
