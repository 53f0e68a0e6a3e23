//! Corrects the countdown when a thread with profiling on leaves translated code, wherever it is.

use lwp_dbt::context::RESULT_NARROW;
use lwp_dbt::{AppState, CodeCache, Commit, FragmentId, RequestKind, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::Tid;
use lwp_process::regs::{Raw, general};

use super::Profiled;
use super::Profiling;
use super::thread_cache::changes_of;
use crate::state::View;

impl Profiling<'_> {
    /// Puts the countdown right for a thread that leaves translated code at `view`, and settles
    /// what a cut fragment has executed. Returns whether there was one.
    pub fn lwp_leave(&mut self, tid: Tid, view: &View) -> bool {
        let space = self.tasks.space_index(tid);
        let Some(Profiled { lwp, context, .. }) = self.tasks.profiled(self.contexts, tid) else {
            return false;
        };
        let its = match space.and_then(|space| self.caches.side(space)) {
            Some((_, family)) if lwp.selection().dcache => {
                changes_of(context, family, view.app.0.rip)
            }
            _ => 0,
        };
        match view.state.commit {
            Commit::LwpMoving => lwp.cache.take_move_back(context, false),
            Commit::LwpMoved => lwp.cache.take_move_back(context, true),
            _ => {}
        }
        lwp.leave_repeat(tid, context, &view.app.0);
        lwp.cache.drop_notes(tid, context, &view.app.0, its);
        let watches = lwp.selection().dcache;
        let in_cut = self.lwp_settle(tid, view);
        if watches {
            self.tasks.lwp_collect(self.contexts, tid);
        }
        in_cut
    }

    fn lwp_settle(&mut self, tid: Tid, view: &View) -> bool {
        let rip = view.app.0.rip;
        let Some(profiled) = self.tasks.profiled(self.contexts, tid) else { return false };
        let context = profiled.context;
        let kind = match view.state.commit {
            Commit::Mailbox | Commit::LwpBegun => Some(context.kind()),
            _ => None,
        };
        match view.state.commit {
            Commit::LwpStored => lwp_stored(context),
            Commit::Dealing => void_deal(context),
            _ => {}
        }
        if let Some(note) = profiled.note() {
            self.lwp_leave_noted(tid, view, note);
            return false;
        }
        if let Some((instructions, within)) = profiled.lwp.cut_of(view.fragment) {
            let executed = executed_of_cut(&view.state, kind, instructions, within);
            self.lwp_repeated(tid, Some(&view.app.0));
            self.lwp_abandon_cut(tid, executed, (rip, view.app.0.rsp));
            return true;
        }
        let selection = profiled.lwp.selection();
        if let (Some(executed), Some(fragment)) = (view.state.countdown, view.fragment) {
            let in_vain = context.lwp().has_taken_in_vain();
            let side = self.tasks.space_index(tid).and_then(|space| self.caches.side(space));
            if let Some((_, family)) = side {
                let code = &family.code_cache;
                let rest = rest_of(code, fragment, executed, selection.instructions);
                give_back(context, rest);
            }
            if in_vain {
                // The thread would not look at what its words say.
                self.tasks.lwp_collect(self.contexts, tid);
                self.tasks.lwp_publish(self.contexts, tid);
            }
        }
        if kind.is_some_and(counts_and_waits) {
            let counts = selection.instructions && selection.admits(rip);
            give_back(context, (u32::from(counts), 0));
        }
        false
    }
}

/// The instructions of a thread's cut fragment that have been executed when the thread leaves it at
/// `state`, of `instructions` that it has; `within`: the state is of this fragment. `kind`: the
/// request that the thread makes.
fn executed_of_cut(
    state: &AppState,
    kind: Option<RequestKind>,
    instructions: u32,
    within: bool,
) -> u32 {
    let reported = matches!(kind, Some(RequestKind::LwpStepped | RequestKind::LwpTaken))
        || state.commit == Commit::LwpBranched;
    match state.partial {
        _ if reported => instructions,
        _ if kind.is_some_and(is_lwp_instruction) => instructions - 1,
        Some((index, _)) if within => index,
        _ => 0,
    }
}

/// The countdown was being dealt out when the thread was stopped: the deal is void.
fn void_deal(context: Context<'_>) {
    context.set(Slot::LwpHigh, context.get(Slot::LwpNewHigh));
    context.set(Slot::LwpLow, context.get(Slot::LwpNewLow));
    context.lwp().deal_nothing();
}

/// Gives back to the countdown the amounts, high and low, that a thread was charged for and has not
/// executed.
pub fn give_back(context: Context<'_>, (high, low): (u32, u32)) {
    context.set(Slot::LwpHigh, context.get(Slot::LwpHigh).wrapping_add(u64::from(high)));
    context.set(Slot::LwpLow, context.get(Slot::LwpLow).wrapping_add(u64::from(low)));
}

/// The amounts that the rest of `fragment` counts, after `executed` of its instructions, and the
/// rest of the superblock that it is in. `by_instruction`: the high amount is of instructions.
pub fn rest_of(
    code: &CodeCache,
    fragment: FragmentId,
    executed: u32,
    by_instruction: bool,
) -> (u32, u32) {
    let behind = code.within(fragment).map_or((0, 0), |it| it.countdown);
    let behind = (u32::from(behind.0), u32::from(behind.1));
    let fragment = code.fragment(fragment);
    let (high, low) = (u32::from(fragment.countdown.0), u32::from(fragment.countdown.1));
    if executed >= u32::from(fragment.instructions) {
        return behind;
    }
    let done = if by_instruction { executed.min(high) } else { 0 };
    (high - done + behind.0, low + behind.1)
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

#[cfg(test)]
mod tests {
    use lwp_dbt::PcSource;
    use lwp_process::regs::Regs;

    use super::*;
    use lwp_mailbox::contexts::Contexts;

    fn state(commit: Commit, partial: Option<(u32, bool)>) -> AppState {
        AppState { commit, partial, ..AppState::at(PcSource::ContextPc) }
    }

    #[test]
    fn a_cut_fragment_has_executed_what_its_state_says() {
        let stepped = Some(RequestKind::LwpStepped);
        let inserts = Some(RequestKind::Lwpins);
        for (state, kind, within, executed) in [
            (state(Commit::None, Some((2, false))), None, true, 2),
            (state(Commit::None, Some((2, false))), None, false, 0),
            (state(Commit::None, None), None, true, 0),
            (state(Commit::Mailbox, None), stepped, true, 5),
            (state(Commit::Mailbox, Some((4, true))), inserts, true, 4),
            (state(Commit::LwpBranched, None), None, false, 5),
        ] {
            assert_eq!(executed_of_cut(&state, kind, 5, within), executed, "{state:?}");
        }
    }

    #[test]
    fn what_has_not_been_executed_is_given_back() {
        let mut contexts = Contexts::new(0);
        let file = contexts.files.add().expect("a file in memory");
        let slot = contexts.allocate(file, 0).expect("a context");
        let context = contexts.context(slot);
        context.set(Slot::LwpHigh, 10);
        // It has gone below zero.
        context.set(Slot::LwpLow, u64::MAX);
        give_back(context, (5, 3));
        assert_eq!((context.get(Slot::LwpHigh), context.get(Slot::LwpLow)), (15, 2));
        context.set(Slot::LwpNewHigh, 40);
        context.set(Slot::LwpNewLow, 50);
        void_deal(context);
        assert_eq!((context.get(Slot::LwpHigh), context.get(Slot::LwpLow)), (40, 50));
        assert_eq!(context.lwp().words(), context.get(Slot::LwpGiven));
    }

    #[test]
    fn an_instruction_s_result_goes_to_its_register_or_the_carry_flag() {
        let mut contexts = Contexts::new(0);
        let file = contexts.files.add().expect("a file in memory");
        let slot = contexts.allocate(file, 0).expect("a context");
        let context = contexts.context(slot);
        let result = |pending: u64, register: u64| {
            context.set(Slot::LwpPending, pending);
            context.set(Slot::LwpRegister, register);
            context.set(Slot::LwpData, 0xf_0000_0001);
            let mut regs = Raw { eflags: 2, rbx: 9, ..Regs::default().0 };
            set_result(context, &mut regs);
            (regs.eflags, regs.rbx)
        };
        assert_eq!(result(0, 3), (2, 9));
        assert_eq!(result(1, 3), (3, 9));
        assert_eq!(result(2, 3), (2, 0xf_0000_0001));
        assert_eq!(result(2, 3 | u64::from(RESULT_NARROW)), (2, 1));
    }
}
