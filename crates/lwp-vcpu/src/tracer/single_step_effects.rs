//! Side effects by which the program could notice that an instruction is single-stepped with lwp's
//! trap flag, and how lwp avoids them.
//!
//! | instruction | would show | instead |
//! | --- | --- | --- |
//! | PUSHF | the flag in the image | the image is corrected |
//! | POPF, IRET that fault | the flag in the signal frame, as if the program's | it is removed |
//! | SYSCALL | the flag in r11, and calls that lwp takes part in | a routine makes the call |
//! | MOV SS | the next instruction is executed too | the host does it, if it changes nothing |
//! | XBEGIN | another reason to abort; a late trap | the host aborts it, if the processor has it |
//! | repeated string instructions | a trap for each iteration | counted after the last iteration |
//! | XSAVE, XRSTOR … of LWP state | no LWP state | the host adds it: `lwp/component.rs` |
//!
//! All other instructions trap after themselves; if they fault, the kernel hides the flag.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use lwp_arch::PageFault;
use lwp_code::space::VSYSCALL;
use lwp_dbt::block::saves_state;
use lwp_dbt::{RequestKind, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::regs::{Raw, Regs, general, general_value};
use lwp_process::sys::Errno;
use lwp_process::{Tid, memory};

use super::trap_flag::TRAP_FLAG;
use crate::emulate::read_code;
use crate::machine::{Machine, Mode};
use crate::server::arrange_call;
use crate::setup::keep_base;

/// The instruction at `pc`.
pub fn instruction_at(tid: Tid, pc: u64) -> Instruction {
    let bytes = read_code(tid, pc);
    Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode()
}

/// Returns whether a trap may come before the instruction is done, at itself.
pub fn repeats(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Returns whether the instruction at `pc` makes a system call in another way than SYSCALL does, or
/// lies where the kernel carries out calls instead.
pub fn calls_otherwise(tid: Tid, pc: u64) -> bool {
    let code = instruction_at(tid, pc).code();
    pc >= VSYSCALL || matches!(code, Code::Int_imm8 | Code::Sysenter)
}

/// Returns whether the instruction at `pc` is INT 0x80, which makes calls of the 32-bit table.
pub fn calls_32_bits(tid: Tid, pc: u64) -> bool {
    let instruction = instruction_at(tid, pc);
    instruction.code() == Code::Int_imm8 && instruction.immediate8() == 0x80
}

/// Makes registers and memory as the instruction would have left them without our trap flag: a POPF
/// would set it for the program.
pub fn hide_trap_flag(tid: Tid, instruction: &Instruction, regs: &mut Regs) {
    if regs.0.rip == instruction.ip() {
        // Not executed, or not to its end.
        regs.0.eflags &= !TRAP_FLAG;
        return;
    }
    let pushes = matches!(instruction.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq);
    if pushes && let Ok(flags) = memory::read_array::<2>(tid, regs.0.rsp) {
        let flags = u16::from_le_bytes(flags) & !(TRAP_FLAG as u16);
        let _ = memory::write_exact(tid, regs.0.rsp, &flags.to_le_bytes());
    }
}

/// The registers behind an instruction that the trap flag would change.
pub fn answer(
    tid: Tid,
    gs_base: u64,
    app: &Regs,
    emulated: lwp_dbt::block::Emulated,
) -> Option<Regs> {
    let instruction = instruction_at(tid, app.0.rip);
    let mut next = *app;
    match instruction.code() {
        // Transactions always abort.
        Code::Xbegin_rel16 | Code::Xbegin_rel32 if !emulated.no_transactions => {
            next.0.rax = 0;
            next.0.rip = instruction.near_branch_target();
        }
        Code::Mov_Sreg_rm16 | Code::Mov_Sreg_r32m16 | Code::Mov_Sreg_r64m16
            if instruction.op0_register() == Register::SS =>
        {
            // Another segment is the processor's to load, with what follows.
            if u64::from(selector(tid, gs_base, &instruction, &app.0)?) != app.0.ss {
                return None;
            }
            next.0.rip = instruction.next_ip();
        }
        _ => return None,
    }
    Some(next)
}

/// The value that rax must hold for XSAVE or a relative at the application's pc to see no more
/// state components than the virtual processor shows, where the real one has more.
pub fn reduced_mask(machine: &Machine, tid: Tid, app: &Regs) -> Option<u64> {
    let saves =
        machine.processor.emulated.fewer_states && saves_state(&instruction_at(tid, app.0.rip));
    saves.then(|| app.0.rax & machine.processor.cpu.real_xcr0())
}

/// The second operand of MOV to a segment register.
fn selector(tid: Tid, gs_base: u64, instruction: &Instruction, regs: &Raw) -> Option<u16> {
    let value = |register: Register| match register {
        Register::FS => Some(regs.fs_base),
        Register::GS => Some(gs_base),
        Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
        _ => {
            let value = general_value(regs, register.full_register().number() as u8);
            Some(if register.size() == 4 { value & 0xffff_ffff } else { value })
        }
    };
    match instruction.op1_kind() {
        OpKind::Register => Some(value(instruction.op1_register())? as u16),
        _ => {
            let address = instruction.virtual_address(1, 0, |register, _, _| value(register))?;
            memory::read_array::<2>(tid, address).ok().map(u16::from_le_bytes)
        }
    }
}

/// Puts the application's registers where a mailbox shows them.
fn show(context: Context<'_>, app: &Regs) {
    let mut raw = app.0;
    for (field, register) in SHOWN {
        context.set(field, *general(&mut raw, register));
    }
    context.set(Slot::Pc, app.0.rip);
}

/// Leads a stopped thread to a routine that makes the system call at the application's pc as the
/// virtual CPU makes those it takes part in, and reports back; a signal that comes before the call
/// takes back that it was counted. False where the call must be stepped over, and nothing has
/// happened.
pub fn lead_to_call(machine: &mut Machine, tid: Tid, app: &Regs) -> Result<bool, Errno> {
    let slot = machine.tasks.threads.get(&tid).ok_or(Errno::ESRCH)?.slot;
    let context = machine.contexts.context(slot);
    context.cancel();
    show(context, app);
    context.set(Slot::Kind, RequestKind::Syscall as u64);
    context.set(Slot::ApplyCount, 0);
    let Some(routine) = arrange_call(machine, tid, slot) else {
        machine.contexts.context(slot).cancel();
        return Ok(false);
    };
    machine.guarding().unprotect_now(tid)?;
    let mut cache = *app;
    cache.0.rip = routine;
    cache.0.gs_base = machine.contexts.context(slot).address();
    keep_base(&mut cache);
    cache.forget_syscall();
    machine.tracees.set_regs(tid, &cache)?;
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.mode = Mode::Running;
    }
    Ok(true)
}

/// Leads a stopped thread to a routine that touches what the instruction at the application's pc
/// could not reach, and asks for that instruction again should the touch succeed.
pub fn lead_to_fault(
    machine: &mut Machine,
    tid: Tid,
    app: &Regs,
    fault: PageFault,
) -> Result<bool, Errno> {
    /// The number of times that a fault is handed to a program whose own access then succeeds.
    const MOST: u32 = 3;
    let thread = machine.tasks.threads.get_mut(&tid).ok_or(Errno::ESRCH)?;
    thread.lwp_state.component_faults += 1;
    if thread.lwp_state.component_faults > MOST {
        return Ok(false);
    }
    lead_to_touch(machine, tid, app, (fault.address.0, fault.write))
}

/// Leads a stopped thread to a routine that reads or writes a byte, and asks for the instruction at
/// the application's pc behind that. False where there is no such routine.
pub fn lead_to_touch(
    machine: &mut Machine,
    tid: Tid,
    app: &Regs,
    (address, write): (u64, bool),
) -> Result<bool, Errno> {
    let Some((_, family)) = machine.space_of(tid) else { return Ok(false) };
    let routines = family.translator.routines();
    let routine = family.routine(match write {
        true => routines.lwp.touch_write,
        false => routines.lwp.touch_read,
    });
    let thread = machine.tasks.threads.get_mut(&tid).ok_or(Errno::ESRCH)?;
    let context = machine.contexts.context(thread.slot);
    thread.mode = Mode::Running;
    context.cancel();
    show(context, app);
    context.set(Slot::Kind, RequestKind::Step as u64);
    context.set(Slot::LwpTouch, address);
    let mut cache = *app;
    cache.0.rip = routine;
    cache.0.gs_base = context.address();
    keep_base(&mut cache);
    cache.forget_syscall();
    machine.tracees.set_regs(tid, &cache)?;
    Ok(true)
}

/// The registers that the mailbox borrows, by their slots and numbers.
const SHOWN: [(Slot, u8); 10] = [
    (Slot::Rax, 0),
    (Slot::Rcx, 1),
    (Slot::Rdx, 2),
    (Slot::Rbx, 3),
    (Slot::Rsi, 6),
    (Slot::Rdi, 7),
    (Slot::R8, 8),
    (Slot::R9, 9),
    (Slot::R10, 10),
    (Slot::R11, 11),
];
