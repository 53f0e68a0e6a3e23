//! Conversion between positions in translated code and the application's state.

use iced_x86::Register;
use lwp_arch::insn;
use lwp_calls::syscalls::Pending;
use lwp_code::family::Family;
use lwp_dbt::{
    AppState, CachePc, CodeCache, Commit, EventDeltas, FlagWriter, FragmentId, PcSource,
    RequestKind, Role, Slot,
};
use lwp_mailbox::contexts::{Context, Sum};
use lwp_process::Tid;
use lwp_process::memory::{read_u64, write_u64};
use lwp_process::regs::{Raw, Regs, general_value};

use crate::lwp::{finish_record, set_result};
use crate::machine::{Counting, Machine};
use crate::measured_contexts::Unmade;
use crate::server::syscall_done;
use crate::x87::Pointers;

/// A thread's application state, taken from its registers in translated code.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Registers as the application has them.
    pub app: Regs,
    /// The state that the state map gives.
    pub state: AppState,
    /// The fragment it said it of.
    pub fragment: Option<FragmentId>,
    /// The target of an indirect call that has been counted and not been made.
    pub called: Option<u64>,
}

impl View {
    /// Returns whether a signal frame stands redirected, for a return that has not been made.
    pub fn is_armed(&self) -> bool {
        self.state.commit == Commit::SigreturnArmed
    }

    /// Returns whether a signal frame that has been returned from stands redirected.
    pub fn has_landed(&self) -> bool {
        self.state.commit == Commit::SigreturnLanded
    }
}

impl Machine {
    /// The application's registers, given those in translated code. `None` where the thread is not
    /// in translated code.
    pub fn view(&mut self, tid: Tid, cache: &Regs) -> Option<View> {
        let pc = cache.0.rip;
        let (state, fragment) = self.family_at(tid, pc)?.state_at(pc)?;
        match state.commit {
            Commit::LwpRecorded => finish_record(self.context(tid)?),
            _ => {
                if let Some(mut profiled) = self.tasks.profiled(&self.contexts, tid) {
                    profiled.take_over();
                }
            }
        }
        let pending = self.tasks.threads.get(&tid).and_then(|thread| thread.pending);
        let at = Standing { family: self.family_at(tid, pc)?, context: self.context(tid)?, tid };
        at.view(state, fragment, cache, pending)
    }

    /// Leaves translated code at `view` for good: settles what it had half done.
    ///
    /// Must come before the application's registers are used; may change rax, where a system call
    /// had just returned.
    pub fn leave(&mut self, tid: Tid, cache: &Regs, view: &mut View) {
        self.take_transfer_back(tid, cache, view);
        let mut correction = self.counting().unfinished(tid, &view.state, view.fragment);
        self.observers.take_call_back(&mut self.tasks, tid, view);
        let in_cut = self.profiling().lwp_leave(tid, view);
        match view.state.commit {
            // Signal frames have been put right before the kernel built another.
            Commit::None
            | Commit::Dealing
            | Commit::LwpResult
            | Commit::LwpStored
            | Commit::LwpTrying
            | Commit::LwpRecorded
            | Commit::LwpTouching
            | Commit::LwpMoving
            | Commit::LwpMoved
            | Commit::LwpBranched
            | Commit::Calling
            | Commit::Called
            | Commit::Transferring
            | Commit::AfterSyscall
            | Commit::SigreturnArmed
            | Commit::SigreturnLanded => {}
            Commit::RunSyscallDone => {
                if !lwp_process::regs::restart::is(cache.0.rax) {
                    finish_syscall(self, tid, cache.0.rax, &mut view.app);
                }
            }
            Commit::Mailbox | Commit::LwpBegun => {
                let kind = self.context(tid).map(|context| context.kind());
                match kind {
                    Some(kind @ (RequestKind::Pointer32 | RequestKind::Pointer64)) => {
                        let wide = kind == RequestKind::Pointer64;
                        if let Some(pointers) = Pointers::of(&self.tasks, &self.caches, tid)
                            && let Some(context) = self.context(tid)
                        {
                            pointers.put_stored_right(context, wide);
                        }
                    }
                    Some(RequestKind::SyscallDone) => {
                        let rax = view.app.0.rax;
                        finish_syscall(self, tid, rax, &mut view.app);
                    }
                    Some(
                        RequestKind::Syscall
                        | RequestKind::Cpuid
                        | RequestKind::Xgetbv
                        | RequestKind::Tsc
                        | RequestKind::Random
                        | RequestKind::Llwpcb
                        | RequestKind::Slwpcb
                        | RequestKind::Lwpins
                        | RequestKind::Lwpval
                        | RequestKind::TrapFlag
                        | RequestKind::StateSave
                        | RequestKind::Marker,
                    ) if !in_cut => {
                        correction
                            .add(EventDeltas { instructions: -1, ..EventDeltas::default() }, 1);
                        let pc = view.app.0.rip;
                        self.observers
                            .note_place(&mut self.tasks, tid, |places| places.stepped(pc, -1));
                    }
                    _ => {}
                }
                if let Some(context) = self.context(tid) {
                    finish_apply(context, tid, 0, cache);
                }
            }
            Commit::Applying(progress) => {
                if let Some(context) = self.context(tid) {
                    finish_apply(context, tid, progress, cache);
                }
            }
        }
        if let Some(context) = self.context(tid) {
            context.cancel();
            context.set(Slot::LwpPending, 0);
        }
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.account.correction.add_sum(correction);
            thread.pending = None;
            // What the request needed of the tracer is void with it.
            thread.errand.need = None;
            thread.signals.put_off = false;
        }
        self.counting().pass_corrections(tid);
    }

    /// Takes the transfer back that a thread is making at `view`, if there is one, and adds the
    /// instructions to its sum that it was about to add.
    fn take_transfer_back(&mut self, tid: Tid, cache: &Regs, view: &View) {
        if let (Some(past), Some(fragment)) = (view.state.transfer, view.fragment) {
            let (r11, stack) = (cache.0.r11, view.app.0.rsp);
            self.counting().take_transfer_back(tid, Unmade { fragment, past, r11, stack });
        }
        if let (true, Some(fragment)) = (view.state.unsummed, view.fragment) {
            self.counting().add_run(tid, fragment);
        }
    }

    /// Accounts for where the thread is when it ends.
    pub fn settle(&mut self, tid: Tid, cache: &Regs) {
        if self.tasks.threads.get(&tid).is_none_or(|thread| thread.account.settled) {
            return;
        }
        let Some(view) = self.view(tid, cache) else { return };
        self.take_transfer_back(tid, cache, &view);
        let correction = self.counting().unfinished(tid, &view.state, view.fragment);
        self.observers.take_call_back(&mut self.tasks, tid, &view);
        self.profiling().lwp_leave(tid, &view);
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.account.correction.add_sum(correction);
            thread.account.settled = true;
        }
    }
}

fn finish_syscall(machine: &mut Machine, tid: Tid, rax: u64, app: &mut Regs) {
    if let Some(context) = machine.context(tid) {
        context.set(Slot::Rax, rax);
        context.set(Slot::Rdi, app.0.rdi);
    }
    syscall_done(machine, tid);
    if let Some(context) = machine.context(tid) {
        app.0.rax = context.get(Slot::Rax);
        app.0.rdi = context.get(Slot::Rdi);
    }
}

impl Counting<'_> {
    /// The correction to the counters, which say too much or too little when a fragment is left at
    /// `state`.
    pub fn unfinished(&mut self, tid: Tid, state: &AppState, fragment: Option<FragmentId>) -> Sum {
        let mut correction = Sum::default();
        let cut = self.tasks.lwp(tid).and_then(|lwp| lwp.cut_of(fragment));
        if cut.is_some_and(|(_, within)| within) {
            return correction;
        }
        self.note_unfinished(tid, state, fragment);
        if let (Some((index, charged)), Some(id)) = (state.partial, fragment) {
            if charged && let Some((_, family)) = self.caches.space_of(self.tasks, tid) {
                correction.add(family.code_cache.fragment(id).deltas.negated(), 1);
            }
            correction.add(EventDeltas { instructions: index as i32, ..EventDeltas::default() }, 1);
        }
        if state.edge_pending {
            correction.add(EventDeltas { conditional_taken: -1, ..EventDeltas::default() }, 1);
        }
        if let Some(id) = fragment
            && let Some((_, family)) = self.caches.space_of(self.tasks, tid)
        {
            correction.add(family.code_cache.remainder(state, id).negated(), 1);
        }
        correction
    }

    /// Notes the correction to the counters by place, for the profile.
    fn note_unfinished(&mut self, tid: Tid, state: &AppState, fragment: Option<FragmentId>) {
        let Some(id) = fragment else { return };
        if let Some((index, charged)) = state.partial {
            self.observers
                .note_place(self.tasks, tid, |places| places.cut_short(id, index, charged));
        }
        if state.edge_pending {
            // As long as the fragment is not charged, the edge is that of the one before.
            let from = self.caches.space_of(self.tasks, tid).and_then(|(_, family)| {
                let first = PcSource::Known(family.code_cache.fragment(id).pc);
                let uncharged = matches!(state.partial, Some((_, false))) || state.pc == first;
                if uncharged { before_edge(&family.code_cache, id) } else { Some(id) }
            });
            if let Some(from) = from {
                self.observers.note_place(self.tasks, tid, |places| places.fell_through(from));
            }
        }
        if state.remainder.is_some() {
            self.note_remainder(tid, state, id);
        }
    }

    /// The rest of the superblock that a thread leaves at `state`, for the profile.
    fn note_remainder(&mut self, tid: Tid, state: &AppState, fragment: FragmentId) {
        let mut rest = Vec::new();
        if let Some((_, family)) = self.caches.space_of(self.tasks, tid) {
            let mut add = |what, times| rest.push((what, times));
            family.code_cache.not_executed(state, fragment, &mut add);
        }
        self.observers.note_place(self.tasks, tid, |places| {
            rest.iter().for_each(|(what, times)| places.happened(*what, *times));
        });
    }
}

/// A thread that stands somewhere in translated code.
struct Standing<'a> {
    /// The translations that it stands in.
    family: &'a Family,
    context: Context<'a>,
    /// The thread, whose memory is read.
    tid: Tid,
}

impl Standing<'_> {
    /// The application's registers at `state`, which the state map gives for a place in a fragment
    /// or routine, given those in translated code. `pending`: the system call that the thread is
    /// making with our help.
    fn view(
        &self,
        mut state: AppState,
        mut fragment: Option<FragmentId>,
        cache: &Regs,
        pending: Option<Pending>,
    ) -> Option<View> {
        let context = self.context;
        let mut app = *cache;
        let regs = &mut app.0;
        self.put_spilled_back(&state, regs);
        let r11 = cache.0.r11;
        regs.rip = self.pc(&state, &cache.0)?;
        if state.spills.flags {
            regs.eflags = flags_from(context.get(Slot::LwpFlags), regs.eflags);
        }
        if let Some(writer) = state.flags {
            let known = fragment.and_then(|id| writer.kept_code(&self.family.code_cache, id));
            regs.eflags = overwritten_flags(self.tid, (writer, known), regs);
        }
        let at_target = || context.get(Slot::CallTarget);
        let made = state.transfer.map(|_| at_target());
        let mut called = state.called.then(|| made.unwrap_or(r11));
        let elsewhere = match calling(&state, context) {
            // As at the place where it has been counted, but for the count.
            true => Some(CachePc(context.get(Slot::CallAfter))),
            // As at the site, where the instruction has not been executed either.
            false => touching(&state, context).then(|| site_of(&state, context, r11)),
        };
        if let Some(place) = elsewhere {
            let (there, id) = self.family.code_cache.state_at(place)?;
            (state.partial, state.countdown, fragment) = (there.partial, there.countdown, id);
            if calling(&state, context) {
                let counted = match transferring(&state, context) {
                    true => there.called,
                    false => state.commit == Commit::Called,
                };
                called = counted.then(at_target);
            }
        }
        if result_waits(&state) {
            set_result(context, regs);
        }
        if let Some(call) = pending {
            put_back_call(&call, state.commit, context.kind(), regs);
        }
        let after_syscall = matches!(state.commit, Commit::AfterSyscall | Commit::RunSyscallDone);
        if after_syscall {
            regs.rcx = regs.rip;
        } else {
            // The mailbox's own system calls are nothing that the kernel should restart.
            app.forget_syscall();
        }
        Some(View { app, state, fragment, called })
    }

    /// Puts the registers back that translated code has spilled.
    fn put_spilled_back(&self, state: &AppState, regs: &mut Raw) {
        let (spills, context) = (state.spills, self.context);
        if spills.rcx {
            regs.rcx = context.get(Slot::Rcx);
        }
        if spills.r11 {
            regs.r11 = context.get(Slot::R11);
        }
        if spills.rax {
            regs.rax = context.get(Slot::Rax);
        }
        if spills.mailbox || spills.lookup {
            regs.rdi = context.get(Slot::Rdi);
            regs.rsi = context.get(Slot::Rsi);
            regs.rdx = context.get(Slot::Rdx);
        }
        if spills.mailbox {
            regs.r10 = context.get(Slot::R10);
            regs.rbx = context.get(Slot::Rbx);
            regs.r8 = context.get(Slot::R8);
            regs.r9 = context.get(Slot::R9);
        }
    }

    /// The application's pc at `state`, given the registers in translated code.
    fn pc(&self, state: &AppState, cache: &Raw) -> Option<u64> {
        let (family, context) = (self.family, self.context);
        Some(match state.pc {
            _ if calling(state, context) => {
                known_pc(family, CachePc(context.get(Slot::CallAfter)))?
            }
            _ if touching(state, context) => known_pc(family, site_of(state, context, cache.r11))?,
            PcSource::Known(pc) => pc.0,
            PcSource::Rcx => cache.rcx,
            PcSource::RcxPlus(pc) => cache.rcx.wrapping_add(pc.0),
            PcSource::R11 => cache.r11,
            PcSource::ContextPc => context.get(Slot::Pc),
            PcSource::ContextNext => context.get(Slot::Next),
            PcSource::ContextSigPc => context.get(Slot::SigPc),
            PcSource::LwpAfter => known_pc(family, CachePc(context.get(Slot::LwpAfter)))?,
            PcSource::CallAfter => return None,
        })
    }
}

/// Returns whether an LWP instruction has been executed whose result is still to be set.
fn result_waits(state: &AppState) -> bool {
    match state.commit {
        Commit::LwpResult | Commit::LwpStored => true,
        Commit::Mailbox | Commit::Applying(_) => state.pc == PcSource::ContextPc,
        _ => false,
    }
}

/// Puts a redirected signal frame of a thread back as it was.
pub fn disarm(context: Context<'_>, tid: Tid) {
    let frame = context.get(Slot::SigFrame);
    let at = frame.wrapping_add(lwp_dbt::routines::SIGFRAME_RIP as u64);
    let _ = write_u64(tid, at, context.get(Slot::SigPc));
}

/// Finishes applying an insertion list that a thread will not finish itself.
fn finish_apply(context: Context<'_>, tid: Tid, progress: u8, cache: &Regs) {
    let mut count = context.get(Slot::ApplyCount) as usize;
    let answered = context.get(Slot::Resp) != 0 || progress > 0;
    if count == 0 || count > lwp_dbt::context::APPLY_MAX || !answered {
        return;
    }
    if progress > 0 {
        count -= 1;
        if progress == 1 {
            let [_, chain, _] = context.apply_triple(count);
            let _ = write_u64(tid, chain, cache.0.rax);
        }
    }
    for index in (0..count).rev() {
        let [place, chain, entry] = context.apply_triple(index);
        if let Ok(old) = read_u64(tid, place) {
            let _ = write_u64(tid, chain, old);
            let _ = write_u64(tid, place, entry);
        }
    }
    context.set(Slot::ApplyCount, 0);
}

/// The flags register with the arithmetic flags that the instruction at `writer` has left, which a
/// guard has overwritten; `known` is its code, where that may have changed.
fn overwritten_flags(tid: Tid, (writer, known): (FlagWriter, Option<&[u8]>), regs: &Raw) -> u64 {
    let mut now = [0; insn::LONGEST];
    let code = match known {
        Some(known) => known,
        None => {
            let read = lwp_process::sys::read_memory(tid, writer.pc.0, &mut now).unwrap_or(0);
            &now[..read]
        }
    };
    let value = |register: Register| general_value(regs, register.number() as u8);
    let found = lwp_dbt::flags_again(writer, code, value);
    found.map_or(regs.eflags, |flags| regs.eflags & !lwp_dbt::FLAGS | flags)
}

/// Returns whether the thread notes a data cache access, or asks because it cannot.
fn touching(state: &AppState, context: Context<'_>) -> bool {
    match state.commit {
        Commit::LwpTouching | Commit::LwpMoving | Commit::LwpMoved => true,
        Commit::Mailbox => context.kind() == RequestKind::LwpNotes,
        _ => false,
    }
}

/// The site of the access that the thread notes.
fn site_of(state: &AppState, context: Context<'_>, r11: u64) -> CachePc {
    CachePc(if state.pc == PcSource::R11 { r11 } else { context.get(Slot::Go) })
}

/// Puts registers in which a call that the host has arranged has other arguments, or is another
/// call, back as the program has set them.
fn put_back_call(call: &Pending, commit: Commit, kind: RequestKind, regs: &mut Raw) {
    let asked = commit == Commit::Mailbox && kind == RequestKind::Syscall;
    let reported = commit == Commit::Mailbox && kind == RequestKind::SyscallDone;
    if asked {
        regs.rax = call.number;
    }
    if asked || reported || commit == Commit::RunSyscallDone {
        [regs.rdi, regs.rsi, regs.rdx, _] = call.args;
    }
}

/// Returns whether a routine counts an indirect call, or the thread asks because there is no room
/// to.
fn calling(state: &AppState, context: Context<'_>) -> bool {
    match state.commit {
        Commit::Calling | Commit::Called | Commit::Transferring => true,
        Commit::Mailbox | Commit::Applying(_) => {
            matches!(context.kind(), RequestKind::Calls | RequestKind::Transfers)
        }
        _ => false,
    }
}

/// Returns whether a routine looks for a transfer, or the thread asks because there is none.
fn transferring(state: &AppState, context: Context<'_>) -> bool {
    match state.commit {
        Commit::Transferring => true,
        Commit::Mailbox | Commit::Applying(_) => context.kind() == RequestKind::Transfers,
        _ => false,
    }
}

/// The application pc at a place of a fragment where it is known.
pub fn known_pc(family: &Family, place: CachePc) -> Option<u64> {
    match family.code_cache.state_at(place)?.0.pc {
        PcSource::Known(pc) => Some(pc.0),
        _ => None,
    }
}

/// The flags register with its arithmetic flags from what LAHF and SETO have left.
fn flags_from(saved: u64, flags: u64) -> u64 {
    const LOW: u64 = 0xd5;
    const OVERFLOW: u64 = 1 << 11;
    flags & !(LOW | OVERFLOW) | saved >> 8 & LOW | (saved & 1) << 11
}

/// The fragment whose not-taken edge leads to `id`.
fn before_edge(code_cache: &CodeCache, id: FragmentId) -> Option<FragmentId> {
    code_cache.counters().roles().find_map(|role| match role? {
        Role::RunsBehind { into, from } if into == id => Some(from),
        _ => None,
    })
}
