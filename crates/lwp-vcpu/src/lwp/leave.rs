//! A thread with profiling on leaves translated code, wherever it is: what its countdown says is
//! put right.

use lwp_dbt::context::RESULT_NARROW;
use lwp_dbt::{Commit, FragmentId, RequestKind, Slot};
use lwp_ptrace::Tid;
use lwp_ptrace::regs::{Raw, general};

use crate::contexts::Context;
use crate::machine::{Machine, Thread};
use crate::state::View;

impl Machine {
    /// Puts the countdown right for a thread that leaves translated code at `view`, and settles
    /// what a cut fragment has executed. Returns whether there was one.
    pub fn lwp_leave(&mut self, tid: Tid, view: &View) -> bool {
        let watched = |thread: &Thread| thread.lwp.as_ref().is_some_and(|lwp| lwp.selection.dcache);
        let its = match self.tasks.threads.get(&tid).is_some_and(watched) {
            true => self.lwp_changes_of(tid, view.app.0.rip),
            false => 0,
        };
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return false };
        let Some(lwp) = &mut thread.lwp else { return false };
        let context = self.contexts.context(thread.slot);
        match view.state.commit {
            Commit::LwpMoving => lwp.take_move_back(context, false),
            Commit::LwpMoved => lwp.take_move_back(context, true),
            _ => {}
        }
        lwp.leave_repeat(tid, context, &view.app.0);
        lwp.drop_notes(tid, context, &view.app.0, its);
        let watches = lwp.selection.dcache;
        let in_cut = self.lwp_settle(tid, view);
        if watches {
            self.lwp_collect(tid);
        }
        in_cut
    }

    fn lwp_settle(&mut self, tid: Tid, view: &View) -> bool {
        let kind = match (view.state.commit, self.context(tid)) {
            (Commit::Mailbox | Commit::LwpBegun, Some(context)) => Some(context.kind()),
            (Commit::LwpStored, Some(context)) => {
                lwp_stored(context);
                None
            }
            _ => None,
        };
        if view.state.commit == Commit::Dealing {
            self.lwp_void_deal(tid);
        }
        let rip = view.app.0.rip;
        if self.lwp_has_note(tid) {
            self.lwp_leave_noted(tid, view);
            return false;
        }
        if let Some((instructions, within)) = self.lwp_cut_of(tid, view.fragment) {
            let reported = matches!(kind, Some(RequestKind::LwpStepped | RequestKind::LwpTaken))
                || view.state.commit == Commit::LwpBranched;
            let executed = match view.state.partial {
                _ if reported => instructions,
                _ if kind.is_some_and(is_lwp_instruction) => instructions - 1,
                Some((index, _)) if within => index,
                _ => 0,
            };
            self.lwp_repeated(tid, Some(&view.app.0));
            self.lwp_abandon_cut(tid, executed, rip);
            return true;
        }
        if let (Some(executed), Some(fragment)) = (view.state.countdown, view.fragment) {
            let in_vain = self.context(tid).is_some_and(|context| context.has_taken_in_vain());
            let (high, low) = self.lwp_rest(tid, fragment, executed);
            self.lwp_give_back(tid, high, low);
            if in_vain {
                // The thread would not look at what its words say.
                self.lwp_collect(tid);
                self.lwp_publish(tid);
            }
        }
        if kind.is_some_and(counts_and_waits) {
            let counts = self
                .tasks
                .threads
                .get(&tid)
                .and_then(|thread| thread.lwp.as_ref())
                .is_some_and(|lwp| lwp.selection.instructions && lwp.selection.admits(rip));
            self.lwp_give_back(tid, u32::from(counts), 0);
        }
        false
    }

    /// The countdown was being dealt out when the thread was stopped: the deal is void.
    fn lwp_void_deal(&mut self, tid: Tid) {
        let Some(context) = self.context(tid) else { return };
        context.set(Slot::LwpHigh, context.get(Slot::LwpNewHigh));
        context.set(Slot::LwpLow, context.get(Slot::LwpNewLow));
        context.deal_nothing();
    }

    /// Gives back to the countdown what a thread was charged for and has not executed.
    pub fn lwp_give_back(&self, tid: Tid, high: u32, low: u32) {
        let Some(context) = self.context(tid) else { return };
        context.set(Slot::LwpHigh, context.get(Slot::LwpHigh).wrapping_add(u64::from(high)));
        context.set(Slot::LwpLow, context.get(Slot::LwpLow).wrapping_add(u64::from(low)));
    }

    /// The amounts that the rest of `fragment` counts, after `executed` of its instructions, and
    /// the rest of the superblock that it is in.
    pub fn lwp_rest(&mut self, tid: Tid, fragment: FragmentId, executed: u32) -> (u32, u32) {
        let by_instruction = self
            .tasks
            .threads
            .get(&tid)
            .and_then(|thread| thread.lwp.as_ref())
            .is_some_and(|lwp| lwp.selection.instructions);
        let Some((_, family)) = self.space_of(tid) else { return (0, 0) };
        let behind = family.code_cache.within(fragment).map_or((0, 0), |it| it.countdown);
        let behind = (u32::from(behind.0), u32::from(behind.1));
        let fragment = family.code_cache.fragment(fragment);
        let (high, low) = (u32::from(fragment.countdown.0), u32::from(fragment.countdown.1));
        if executed >= u32::from(fragment.instructions) {
            return behind;
        }
        let done = if by_instruction { executed.min(high) } else { 0 };
        (high - done + behind.0, low + behind.1)
    }
}

/// Sets what an LWP instruction that has been executed leaves to be set.
pub fn set_result(context: Context<'_>, regs: &mut Raw) {
    const CARRY: u64 = 1;
    let data = context.get(Slot::LwpData);
    match context.get(Slot::LwpPending) {
        1 => regs.eflags = regs.eflags & !CARRY | data & CARRY,
        2 => {
            let register = context.get(Slot::LwpRegister) as u32;
            let narrow = register & RESULT_NARROW != 0;
            let data = if narrow { data & u64::from(u32::MAX) } else { data };
            *general(regs, (register & !RESULT_NARROW) as u8) = data;
        }
        _ => {}
    }
}

/// A routine has stored the record of an LWPINS or LWPVAL: what it made ready comes to pass.
fn lwp_stored(context: Context<'_>) {
    context.set(Slot::LwpRingHead, context.get(Slot::LwpNewHead));
    if context.kind() == RequestKind::Lwpval {
        context.set(Slot::LwpValue, context.get(Slot::LwpNewValue));
        context.set(Slot::LwpValueBase, context.get(Slot::LwpNewValue));
        context.set(Slot::LwpRandom, context.get(Slot::LwpNewRandom));
    }
}

fn is_lwp_instruction(kind: RequestKind) -> bool {
    use RequestKind::{Llwpcb, Lwpins, Lwpval, Slwpcb};
    matches!(kind, Llwpcb | Slwpcb | Lwpins | Lwpval)
}

/// Returns whether the instruction that waits for the host has been taken from the countdown
/// already.
fn counts_and_waits(kind: RequestKind) -> bool {
    use RequestKind::{Cpuid, Lwpins, Lwpval, Marker, Random, StateSave, TrapFlag, Tsc, Xgetbv};
    matches!(kind, Cpuid | Xgetbv | Tsc | Random | Lwpins | Lwpval | StateSave | TrapFlag | Marker)
}
