//! Work that the server can't do from outside, and leaves to the tracer while the thread stands
//! still.

use std::time::Instant;

use iced_x86::{Code, Instruction, Register};
use lwp_dbt::block::{Block, CodeSource, Decoding, saves_state, stored_pointer};
use lwp_dbt::{AppPc, Commit, EventDeltas, Slot};
use lwp_mailbox::memory_map::SLOTS;
use lwp_process::Tid;
use lwp_process::regs::{Raw, Regs, general_value};
use lwp_process::sys::{self, Errno};

use super::compatibility_mode;
use super::signals::deliver;
use super::trap_flag::{self, TRAP_FLAG, is_syscall};
use super::user_dispatch;
use super::{Handled, SI_USER, SIGTRAP, TRAP_BRKPT, TRAP_TRACE};
use super::{
    emulated_ptrace, mlockall, partial_unmap, retranslate, run_requests, sigaction_order,
    single_step_effects,
};
use crate::lwp::{self, BeforeState};
use crate::machine::{Machine, Mode, Need};
use crate::markers::marker_alone;
use crate::proc_files::hide_us;
use crate::resource_limits::within_limit;
use crate::server::put_back_held;
use crate::server::{about_to_call_of_32_bits, called_natively};
use crate::setup;
use crate::setup::Reach;
use crate::unfilled_code::absent_code;
use crate::x87::Pointers;

/// Does what the server wanted done.
pub fn satisfy(machine: &mut Machine, tid: Tid, need: Need) -> Handled {
    let regs = machine.tracees.regs(tid)?;
    let Some(mut view) = machine.view(tid, &regs) else { return machine.tracees.cont(tid, 0) };
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.errand.need = None;
    }
    if need == Need::Guard && view.state.commit != Commit::Mailbox {
        // It has asked for nothing: another process waits for its pages.
        machine.guarding().unprotect_now(tid)?;
        return machine.tracees.cont(tid, 0);
    }
    machine.leave(tid, &regs, &mut view);
    match need {
        Need::Arena => make_arena(machine, tid, &view.app),
        Need::Side => make_side(machine, tid, &view.app),
        Need::Flush => retranslate::begin(machine, tid, &view.app),
        Need::Notices => find_notices(machine, tid, &view.app),
        Need::Guard => guard(machine, tid, &view.app),
        Need::Step => step(machine, tid, &view.app),
        Need::Hide(fd) => {
            machine.tracees.set_regs(tid, &view.app)?;
            // What cannot be hidden is seen.
            let _ = hide_us(machine, tid, fd);
            go_on(machine, tid, &view.app)
        }
        Need::Obey(commands) => run_requests::hold(machine, tid, &view.app, commands),
        Need::Lock => mlockall::lock_all(machine, tid, &view.app),
        Need::Around => partial_unmap::call(machine, tid, &view.app),
        Need::Settle => sigaction_order::call(machine, tid, &view.app),
        Need::Room => make_room(machine, tid, &view.app),
        Need::Trace => emulated_ptrace::call(machine, tid, &view.app),
        Need::Dispatch => user_dispatch::make_signal(machine, tid, &view.app),
    }
}

/// Lets a thread, which stands still, go on at `app` on the side of its address space that its
/// profile wants. It need not be there: a signal cancels what the server wanted done.
pub fn go_on(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    if compatibility_mode::is_in(app) {
        return compatibility_mode::step(machine, tid, app);
    }
    if lwp::is_elsewhere(&machine.tasks, &machine.caches, tid) {
        return make_side(machine, tid, app);
    }
    if app.0.eflags & TRAP_FLAG != 0 {
        return step(machine, tid, app);
    }
    setup::enter(machine, tid, app)?;
    machine.tracees.cont(tid, 0)
}

/// Lets a thread go on behind the system call at `app`, which has been made for it.
pub fn go_on_behind(machine: &mut Machine, tid: Tid, app: &Regs, result: i64) -> Handled {
    let mut next = *app;
    next.0.rax = result as u64;
    next.0.rip = app.0.rip + 2;
    next.0.rcx = next.0.rip;
    next.0.r11 = app.0.eflags;
    next.forget_syscall();
    count_instruction(machine, tid, app.0.rip, next.0.rip);
    go_on(machine, tid, &next)
}

/// Makes the side of the address space that the thread's profile wants, and moves the thread there.
fn make_side(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    let thread = machine.tasks.threads.get(&tid).ok_or(Errno::ESRCH)?;
    let selection = thread.lwp.as_ref().map(|lwp| lwp.selection());
    if selection.is_none() {
        machine.change_side(tid, None);
    }
    if let Some(selection) = selection {
        let base = machine.tasks.base_space(tid).ok_or(Errno::ESRCH)?;
        let made = match machine.caches.side_for(base, selection) {
            Some(_) => Ok(()),
            None => within_limit(machine, tid, |machine| setup::add_side(machine, tid, selection)),
        };
        if let Err(reason) = made {
            lwp_terminal::say!("lwp: thread {tid}: its profile ends: {reason}");
            if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
                thread.lwp_end();
            }
        }
        let side = machine.caches.side_for(base, selection);
        machine.change_side(tid, side);
        machine.tasks.lwp_publish(&machine.contexts, tid);
    }
    setup::enter(machine, tid, app)?;
    machine.tracees.cont(tid, 0)
}

fn make_arena(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    let pc = app.0.rip;
    machine.tracees.set_regs(tid, app)?;
    let unit = machine
        .space_of(tid)
        .and_then(|(space, family)| Some(space.code_at(family, tid, pc)?.1.unit));
    let Some(unit) = unit else { return go_on(machine, tid, app) };
    if within_limit(machine, tid, |machine| setup::add_arena(machine, tid, unit, Reach::Near))
        .is_ok()
    {
        return go_on(machine, tid, app);
    }
    if machine.space_of(tid).is_some_and(|(space, _)| space.needs_other_family()) {
        return retranslate::begin(machine, tid, app);
    }
    let far = machine.config.trials.far;
    match far && within_limit(machine, tid, |machine| setup::settle_far(machine, tid, unit)).is_ok()
    {
        true => go_on(machine, tid, app),
        // Without any room such code runs one instruction at a time: slow, but right.
        false => step(machine, tid, app),
    }
}

/// Maps contexts for all threads that there can ever be in a process.
fn make_room(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    let grown = within_limit(machine, tid, |machine| setup::grow_contexts_to(machine, tid, SLOTS));
    if let Err(reason) = grown {
        lwp_terminal::say!("lwp: thread {tid} has no room for the contexts of others: {reason}");
    }
    let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
    if let Some(process) = machine.tasks.processes.get_mut(&pid) {
        process.has_room = true;
    }
    go_on(machine, tid, app)
}

/// Finds out whether notice of writes to code of the thread's address space can be had.
fn find_notices(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    machine.guarding().find_notices(tid);
    go_on(machine, tid, app)
}

/// Guards the pages of the code that the thread is about to execute.
fn guard(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    machine.guarding().guard_code(tid, app.0.rip)?;
    go_on(machine, tid, app)
}

/// Executes one instruction natively, in place, as soon as the program has filled its page.
pub fn step(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    match absent_code(machine, tid, app.0.rip) {
        Some(at) if single_step_effects::lead_to_touch(machine, tid, app, (at, false))? => {
            machine.tracees.cont(tid, 0)
        }
        _ => execute_alone(machine, tid, app),
    }
}

fn execute_alone(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.marking().enter_function(tid, app);
    machine.counting().end_code(tid, app.0.rip, app.0.rdi);
    machine.counting().sample_before(tid, app);
    if let Some(next) = machine.profiling().lwp_step(tid, app) {
        return make_side(machine, tid, &next);
    }
    let trapped = app.0.eflags & TRAP_FLAG != 0;
    let calls = is_syscall(tid, app.0.rip);
    match calls {
        true if trapped => return trap_flag::call(machine, tid, app),
        true if partial_unmap::concerns(machine, tid, app) => {
            return partial_unmap::call(machine, tid, app);
        }
        _ => {}
    }
    let gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
    let answer = crate::emulate::instruction(machine, tid, app)
        .or_else(|| marker_alone(machine, tid, app).filter(|_| !trapped));
    let emulated = machine.processor.emulated;
    let instead = || single_step_effects::answer(tid, gs_base, app, emulated).filter(|_| !trapped);
    if let (Some(next), false) = (answer.or_else(instead), trapped) {
        count_instruction(machine, tid, app.0.rip, next.0.rip);
        return go_on(machine, tid, &next);
    }
    match machine.profiling().lwp_before_state(tid, app) {
        BeforeState::Native => {}
        BeforeState::Done(next) => {
            about_to_step(machine, tid, &app.0);
            count_instruction(machine, tid, app.0.rip, next.0.rip);
            return go_on(machine, tid, &next);
        }
        BeforeState::Faults(fault)
            if single_step_effects::lead_to_fault(machine, tid, app, fault)? =>
        {
            return machine.tracees.cont(tid, 0);
        }
        BeforeState::Faults(_) => {}
    }
    let mut native = *app;
    native.0.gs_base = gs_base;
    native.forget_syscall();
    let mut answer = answer;
    if let Some(rax) = single_step_effects::reduced_mask(machine, tid, app) {
        native.0.rax = rax;
        let next = single_step_effects::instruction_at(tid, app.0.rip).next_ip();
        answer = Some(Regs(Raw { rip: next, ..app.0 }));
    }
    machine.tracees.set_regs(tid, &native)?;
    if calls && single_step_effects::lead_to_call(machine, tid, app)? {
        count_instruction(machine, tid, app.0.rip, app.0.rip + 2);
        return machine.tracees.cont(tid, 0);
    }
    if let Some(next) = call_otherwise(machine, tid, app) {
        count_instruction(machine, tid, app.0.rip, next.0.rip);
        return go_on(machine, tid, &next);
    }
    // The kernel may take a uprobe's away when it is hit.
    let breakpoint = single_step_effects::instruction_at(tid, app.0.rip).code() == Code::Int3;
    begin_step(machine, tid, app, Stepped { answer, breakpoint, compatible: false })
}

/// An instruction that is about to be executed natively.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stepped {
    /// What it leaves on the virtual processor, where that is not what it leaves on the real one.
    answer: Option<Regs>,
    /// It is an INT3.
    breakpoint: bool,
    /// It is 32-bit code.
    compatible: bool,
}

impl Stepped {
    /// An instruction of 32-bit code.
    pub(super) fn of_32_bits() -> Self {
        Self { compatible: true, ..Self::default() }
    }
}

/// Lets a thread, which has its native registers, execute the instruction at `app`, and stop again.
pub(super) fn begin_step(machine: &mut Machine, tid: Tid, app: &Regs, stepped: Stepped) -> Handled {
    about_to_step(machine, tid, &app.0);
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        let trapped = app.0.eflags & TRAP_FLAG != 0;
        thread.mode = Mode::Stepping { pc: app.0.rip, trapped, answer: stepped.answer };
        thread.errand.since = thread.errand.asked.take().unwrap_or_else(Instant::now);
        thread.errand.breakpoint = stepped.breakpoint;
        thread.errand.compatible = stepped.compatible;
    }
    machine.tracees.single_step(tid)
}

/// Gives a stopped thread the application's registers as they are natively.
pub(super) fn set_native(machine: &Machine, tid: Tid, app: &Regs) -> Result<(), Errno> {
    let mut native = *app;
    native.0.gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
    native.forget_syscall();
    machine.tracees.set_regs(tid, &native)
}

/// An instruction is about to be executed natively.
fn about_to_step(machine: &mut Machine, tid: Tid, regs: &Raw) {
    if let Some(mut profiled) = machine.tasks.profiled(&machine.contexts, tid) {
        profiled.about_to_step(&*machine.tracees, tid, regs);
    }
}

/// Prepares a system call that is made natively, should the instruction at the application's pc
/// make one. The registers behind it where it cannot be made.
fn call_otherwise(machine: &mut Machine, tid: Tid, app: &Regs) -> Option<Regs> {
    if !single_step_effects::calls_otherwise(tid, app.0.rip) {
        return None;
    }
    if !single_step_effects::calls_32_bits(tid, app.0.rip) {
        machine.guarding().about_to_call_natively(tid);
        let _ = machine.guarding().unprotect_now(tid);
        return None;
    }
    let rax = call_of_32_bits(machine, tid, app)?;
    Some(Regs(Raw { rax, rip: app.0.rip + 2, ..app.0 }))
}

/// Prepares the call of the 32-bit table that INT 0x80 makes natively; its result where it cannot be
/// made.
pub(super) fn call_of_32_bits(machine: &mut Machine, tid: Tid, app: &Regs) -> Option<u64> {
    machine.guarding().about_to_call_natively(tid);
    let _ = machine.guarding().unprotect_now(tid);
    let locked = mlockall::lock_all_of_32_bits(machine, tid, app);
    locked.or_else(|| about_to_call_of_32_bits(machine, tid, app))
}

/// The host has executed the instruction at `pc`, and `next` is the one to follow.
pub fn count_instruction(machine: &mut Machine, tid: Tid, pc: u64, next: u64) {
    let deltas = weights_at(tid, pc, next);
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.account.correction.add(deltas, 1);
    }
    machine.observers.note_place(&mut machine.tasks, tid, |places| {
        places.stepped(pc, 1);
        places.jumped(pc, next, deltas);
    });
    machine.profiling().lwp_executed(tid, pc, next);
}

/// The events that the instruction at `pc` counts, given the one that followed it.
fn weights_at(tid: Tid, pc: u64, next: u64) -> EventDeltas {
    let one = Decoding { most: 1, ..Decoding::default() };
    let Some(block) = Block::decode(&mut Memory(tid), AppPc(pc), one) else {
        return EventDeltas { instructions: 1, ..EventDeltas::default() };
    };
    let mut deltas = lwp_dbt::deltas_of(&block);
    deltas.instructions = 1;
    if deltas.conditional == 1 && next == block.next().0 {
        deltas.conditional_taken = 0;
    }
    deltas
}

/// The program's memory as code.
struct Memory(Tid);

impl CodeSource for Memory {
    fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize {
        let page_left = 4096 - (pc.0 & 4095) as usize;
        let read = sys::read_memory(self.0, pc.0, buffer);
        let len = page_left.min(buffer.len());
        read.or_else(|_| sys::read_memory(self.0, pc.0, &mut buffer[..len])).unwrap_or(0)
    }
}

/// Puts the x87 unit's instruction pointer right where an instruction has stored it.
fn put_stored_pointer_right(machine: &Machine, tid: Tid, instruction: &Instruction, regs: &Regs) {
    let Some((place, wide)) = stored_pointer(instruction) else { return };
    let value = |register: Register| match register {
        Register::FS => Some(regs.0.fs_base),
        Register::GS => Some(regs.0.gs_base),
        _ if register.is_segment_register() => Some(0),
        _ => {
            let value = general_value(&regs.0, register.full_register().number() as u8);
            Some(if register.size() == 4 { value & 0xffff_ffff } else { value })
        }
    };
    if let Some(at) = instruction.virtual_address(0, 0, |register, _, _| value(register))
        && let Some(pointers) = Pointers::of(&machine.tasks, &machine.caches, tid)
    {
        pointers.put_right_at(at.wrapping_add(place.into()), wide);
    }
}

/// Returns whether a SIGTRAP with this code is the trap behind an instruction that was stepped
/// over.
///
/// The kernel reports the step over a system call as a breakpoint, and any step whose bit in DR6 a
/// hypervisor has lost: now and then, or often. INT1 has a trap of its own, which looks the same.
/// An INT3 that is a uprobe's is none to the program: the kernel executes what was there elsewhere,
/// and sends the signal that the step would have raised.
fn is_step(code: i32, instruction: &Instruction, breakpoint: bool) -> bool {
    code == TRAP_TRACE
        || code == TRAP_BRKPT && instruction.code() != Code::Int1
        || code == SI_USER && breakpoint
}

/// A stop while the instruction at `pc` is executed natively; `trapped`: with the program's own
/// trap flag set; `answer`: what it leaves on the virtual processor.
pub fn stepped(
    machine: &mut Machine,
    tid: Tid,
    signal: i32,
    (pc, trapped, answer): (u64, bool, Option<Regs>),
) -> Handled {
    let mut regs = machine.tracees.regs(tid)?;
    let breakpoint = machine.tasks.threads.get(&tid).is_some_and(|it| it.errand.breakpoint);
    if let Some(thread) = machine.tasks.threads.get(&tid).filter(|_| !trapped) {
        machine.observers.alone.instructions += 1;
        machine.observers.alone.time += thread.errand.since.elapsed();
    }
    if let Some(context) = machine.context(tid) {
        context.set(Slot::AppGs, regs.0.gs_base);
    }
    let code = machine.tracees.siginfo(tid)?.code();
    let errand = machine.tasks.threads.get_mut(&tid).map(|thread| &mut thread.errand);
    let compatible = errand.is_some_and(|errand| std::mem::take(&mut errand.compatible));
    let instruction = match compatible {
        true => compatibility_mode::instruction_at(tid, pc),
        false => single_step_effects::instruction_at(tid, pc),
    };
    let trap = signal == SIGTRAP && is_step(code, &instruction, breakpoint && regs.0.rip != pc);
    if !trapped {
        single_step_effects::hide_trap_flag(tid, &instruction, &mut regs);
    }
    put_back_held(machine, tid, &mut regs);
    if regs.0.rip != pc {
        if !compatible {
            put_stored_pointer_right(machine, tid, &instruction, &regs);
        }
        if let Some(fd) = called_natively(machine, tid, &mut regs).filter(|_| trap) {
            machine.tracees.set_regs(tid, &regs)?;
            // What cannot be hidden is seen.
            let _ = hide_us(machine, tid, fd);
        }
        if !compatible {
            machine.profiling().lwp_after_state(tid, pc, &regs);
        }
    }
    // A branch to itself is executed too.
    if regs.0.rip != pc || trap && !single_step_effects::repeats(&instruction) {
        match compatible {
            true => compatibility_mode::count(machine, tid, pc, regs.0.rip),
            false => count_instruction(machine, tid, pc, regs.0.rip),
        }
    }
    // The kernel emulates some instructions at uprobes: the next one has been executed as well.
    if trap
        && breakpoint
        && code != SI_USER
        && let Some(thread) = machine.tasks.threads.get_mut(&tid)
    {
        thread.account.correction.add(EventDeltas { instructions: 1, ..EventDeltas::default() }, 1);
    }
    if let (Some(answer), true) = (answer, saves_state(&instruction)) {
        regs.0.rax = answer.0.rax;
    }
    if let (Some(answer), true) = (answer, regs.0.rip != pc) {
        let gs_base = regs.0.gs_base;
        regs = answer;
        regs.0.gs_base = gs_base;
    }
    if trap && trapped {
        // The processor would have stopped here without us.
        return deliver(machine, tid, signal, None, regs);
    }
    if trap {
        if lwp_process::regs::restart::is(regs.0.rax) && regs.in_syscall() {
            regs.0.rip -= 2;
            regs.0.rax = regs.0.orig_rax;
        }
        return go_on(machine, tid, &regs);
    }
    deliver(machine, tid, signal, None, regs)
}
