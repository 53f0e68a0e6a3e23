//! Rules 5 to 14, 20, 22 and 25: the instruction that ends a block.

use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

use super::{Emitter, Link, bodies, register_bits, trace};
use crate::addr::AppPc;
use crate::block::{Block, stored_pointer};
use crate::context::trace::Leave;
use crate::context::{RequestKind, Slot, SyscallClass, counter_displacement};
use crate::relocation::Relocation;
use crate::routines::{SIGFRAME_CS, SIGFRAME_RIP};
use crate::state_map::bits;

const ARCH_SET_FS: u32 = 0x1002;

/// Asks the host before a call where a field of the context is not zero.
///
/// ```text
/// Patch:   slot := rcx
///          rcx := context.field; zero --> go
///          ask the host
///          go:
/// ```
fn ask_unless_zero(emitter: &mut Emitter<'_>, field: Slot, pc: AppPc) {
    emitter.point(0);
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    // mov rcx, gs:[field]; jrcxz +5
    emitter.out.bytes(&[0x65, 0x48, 0x8b, 0x0c, 0x25]);
    emitter.out.imm32(field as u32);
    emitter.out.bytes(&[0xe3, 0x05]);
    emitter.jump_ask(RequestKind::Syscall, pc, true);
}

impl Emitter<'_> {
    /// The terminator at hand has been executed; the pc is then as `state` says.
    pub(super) fn complete(&mut self, state: u8) {
        self.place.index += 1;
        self.point(state);
    }

    /// The not-taken side of a conditional branch starts here, not counted yet.
    pub fn fell_through(&mut self, block: &Block) {
        self.place.index = block.instructions() as u8;
        self.place.app = block.bytes.len() as u8;
    }

    /// Everything of the block has been executed; the pc is the next one.
    pub fn fell_off(&mut self, block: &Block) {
        self.place.app = block.bytes.len() as u8;
        self.place.index = block.instructions() as u8;
        self.point(0);
    }
}

/// Rule 6, the taken side.
pub fn conditional(emitter: &mut Emitter<'_>, condition: u8, target: AppPc) {
    emitter.point(0);
    emitter.pad_for_link(2);
    emitter.out.bytes(&[0x0f, 0x80 | condition]);
    emitter.out.links.push(Link { at: emitter.out.code.len(), target });
    emitter.out.imm32(0);
}

/// Rule 6, where the taken side leads to another function: the branch over that is the opposite one.
///
/// ```text
/// Target:  jcc T
/// Patch:   jncc N; as by rule 26; jmp T; N:
/// ```
pub fn conditional_transfer(
    emitter: &mut Emitter<'_>,
    block: &Block,
    condition: u8,
    target: AppPc,
) {
    emitter.point(0);
    emitter.out.bytes(&[0x0f, 0x80 | condition ^ 1]);
    let over = emitter.out.code.len();
    emitter.out.imm32(0);
    let before = emitter.place;
    transfer(emitter, Leave::Jump);
    emitter.fell_through(block);
    trace::made(emitter, bits::PC_TARGET);
    emitter.jump_link(target);
    emitter.place = before;
    let length = (emitter.out.code.len() - (over + 4)) as u32;
    emitter.out.code[over..over + 4].copy_from_slice(&length.to_le_bytes());
}

/// Rule 7.
///
/// ```text
/// Target:  loop T
/// Patch:   loop L; jmp N; L: jmp T; N:
/// ```
pub fn counted_loop(emitter: &mut Emitter<'_>, block: &Block, target: AppPc) {
    let bytes = &block.bytes[usize::from(block.terminator_offset)..];
    emitter.point(0);
    emitter.out.bytes(&bytes[..bytes.len() - 1]);
    emitter.out.bytes(&[2]);
    emitter.fell_through(block);
    emitter.point(bits::EDGE);
    // jmp over the linked jump, whose padding is not known yet.
    let over = emitter.out.code.len();
    emitter.out.bytes(&[0xeb, 0]);
    emitter.point(bits::PC_TARGET);
    emitter.jump_link(target);
    emitter.out.code[over + 1] = (emitter.out.code.len() - (over + 2)) as u8;
}

/// Makes the transfer that the terminator is, if contexts are measured: the code says where it
/// leads. Returns false if there is none.
fn transfer(emitter: &mut Emitter<'_>, leave: Leave) -> bool {
    let site = emitter.transfer.take();
    if let Some(site) = site {
        trace::direct(emitter, site, leave);
    }
    site.is_some()
}

/// Rule 26 for a jump that says where it leads.
pub fn jump_transfer(emitter: &mut Emitter<'_>) {
    if transfer(emitter, Leave::Jump) {
        emitter.complete(bits::PC_TARGET);
        trace::made(emitter, bits::PC_TARGET);
    }
}

/// Rule 26 where control falls into another function.
pub fn fall_transfer(emitter: &mut Emitter<'_>) {
    if transfer(emitter, Leave::Jump) {
        trace::made(emitter, 0);
    }
}

/// Rule 8.
pub fn call(emitter: &mut Emitter<'_>, target: AppPc, next: AppPc) {
    emitter.point(0);
    let traced = transfer(emitter, Leave::Call);
    push_return(emitter, next);
    emitter.complete(bits::PC_TARGET);
    if traced {
        trace::made(emitter, bits::PC_TARGET);
    }
    emitter.jump_link(target);
}

/// Rule 8, where what is called is laid behind.
pub fn inlined_call(emitter: &mut Emitter<'_>, next: AppPc) {
    emitter.point(0);
    push_return(emitter, next);
    emitter.complete(bits::PC_TARGET);
}

pub(super) fn push_return(emitter: &mut Emitter<'_>, next: AppPc) {
    if next.0 <= 0x7fff_ffff {
        emitter.out.bytes(&[0x68]);
        emitter.out.imm32(next.0 as u32);
        emitter.out.relocated(Relocation::Low);
    } else {
        emitter.out.bytes(&[0xff, 0x35]);
        emitter.out.constants.push((emitter.out.code.len(), next.0));
        emitter.out.imm32(0);
    }
}

/// Puts the target of an indirect branch into rcx, whose own value goes to its slot, and
/// charges where that is still to be done. Returns false where the operand cannot be reached
/// from here.
pub(super) fn borrow_for_target(emitter: &mut Emitter<'_>, block: &Block) -> bool {
    emitter.hold(emitter.charging.before, bits::SPILL_RCX);
    let last = &block.last;
    let operand = [last.op0_register(), last.memory_base(), last.memory_index()];
    bodies::charge_in_terminator(
        emitter,
        operand.iter().any(|r| r.full_register() == Register::RCX),
    );
    load_target(emitter, block)
}

/// Rule 9 for jumps and calls; `noted` is the counter that takes the target. Returns false
/// where the operand cannot be reached from here.
pub fn indirect(
    emitter: &mut Emitter<'_>,
    block: &Block,
    push: Option<AppPc>,
    noted: Option<u32>,
) -> bool {
    if !borrow_for_target(emitter, block) {
        return false;
    }
    if let Some(counter) = noted {
        emitter.out.store_rcx(counter_displacement(counter));
        emitter.out.relocated(Relocation::Counter);
    }
    if let Some(site) = emitter.transfer.take() {
        trace::jump(emitter, site, dispatch_spilled);
        return true;
    }
    if let Some(next) = push {
        push_return(emitter, next);
    }
    emitter.complete(bits::SPILL_RCX | bits::PC_RCX);
    dispatch(emitter);
    true
}

/// `mov rcx, r/m64` from the terminator's own operand.
pub(super) fn load_target(emitter: &mut Emitter<'_>, block: &Block) -> bool {
    let last = &block.last;
    if last.op0_kind() == OpKind::Register {
        let (rex_reg, low) = register_bits(last.op0_register());
        if last.op0_register() != Register::RCX {
            emitter.out.bytes(&[0x48 | rex_reg, 0x8b, 0xc8 | low]);
        }
        return true;
    }
    let mut load = *last;
    load.set_code(Code::Mov_r64_rm64);
    load.set_op1_kind(OpKind::Memory);
    load.set_op0_kind(OpKind::Register);
    load.set_op0_register(Register::RCX);
    if last.is_ip_rel_memory_operand() {
        let segment = if last.segment_prefix() == Register::FS { &[0x64][..] } else { &[] };
        load_rip_relative(emitter, segment, last.ip_rel_memory_address());
        return true;
    }
    emitter.encode(&load)
}

/// `mov rcx, segment:[rip + …]`, or through rcx itself where the operand is out of reach.
fn load_rip_relative(emitter: &mut Emitter<'_>, segment: &[u8], operand: u64) {
    let next = emitter.here().0 + segment.len() as u64 + 7;
    if let Ok(displacement) = i32::try_from(operand.wrapping_sub(next) as i64) {
        emitter.out.bytes(segment);
        emitter.out.bytes(&[0x48, 0x8b, 0x0d]);
        emitter.out.imm32(displacement as u32);
        emitter.out.relocated(Relocation::Application);
    } else {
        emitter.out.mov_address(Register::RCX, operand);
        emitter.out.bytes(segment);
        emitter.out.bytes(&[0x48, 0x8b, 0x09]);
    }
}

/// Rule 9 for returns. The load comes first: it faults before anything has changed.
pub fn ret(emitter: &mut Emitter<'_>, release: u16) {
    emitter.hold(emitter.charging.before, bits::SPILL_RCX);
    bodies::charge_in_terminator(emitter, false);
    if let Some(site) = emitter.transfer.take() {
        // mov rcx, [rsp]
        emitter.out.bytes(&[0x48, 0x8b, 0x0c, 0x24]);
        trace::target_to_r11(emitter);
        trace::returning(emitter, site);
        pop_target(emitter, release);
        complete_and_dispatch(emitter);
        return;
    }
    pop_target(emitter, release);
    emitter.complete(bits::SPILL_RCX | bits::PC_RCX);
    dispatch(emitter);
}

/// A transfer to what is in rcx has been made.
pub(super) fn complete_and_dispatch(emitter: &mut Emitter<'_>) {
    const SPILLED: u8 = bits::SPILL_RCX | bits::SPILL_R11 | bits::PC_RCX;
    emitter.complete(SPILLED | bits::SPILL_RAX);
    trace::reload_rax(emitter);
    emitter.point(SPILLED);
    dispatch_spilled(emitter);
}

/// Pops the return address into rcx, and releases more.
pub(super) fn pop_target(emitter: &mut Emitter<'_>, release: u16) {
    if release == 0 {
        emitter.out.bytes(&[0x59]);
    } else {
        emitter.out.bytes(&[0x48, 0x8b, 0x0c, 0x24]);
        emitter.out.bytes(&[0x48, 0x8d, 0xa4, 0x24]);
        emitter.out.imm32(u32::from(release) + 8);
    }
}

/// Jumps to the application pc in rcx, whose own value is in its slot.
pub(super) fn dispatch(emitter: &mut Emitter<'_>) {
    emitter.hold(bits::SPILL_RCX | bits::PC_RCX, bits::SPILL_R11);
    dispatch_spilled(emitter);
}

/// Jumps to the application pc in rcx, with the own values of rcx and r11 in their slots.
pub(super) fn dispatch_spilled(emitter: &mut Emitter<'_>) {
    if emitter.layout.features.wide_index {
        // pext r11d, ecx, [mask]
        emitter.out.bytes(&[0xc4, 0x62, 0x72, 0xf5, 0x1c, 0x25]);
        emitter.out.imm32(emitter.layout.index_mask() as u32);
    } else {
        // movzx r11d, cx
        emitter.out.bytes(&[0x44, 0x0f, 0xb7, 0xd9]);
    }
    // jmp [r11*8 + table]
    emitter.out.bytes(&[0x42, 0xff, 0x24, 0xdd]);
    emitter.out.imm32(emitter.layout.table() as u32);
}

/// Rule 10 with the number known: no filter where the class is known too. A call whose number
/// is not may be made by a routine where `routinely` says so.
pub fn syscall(
    emitter: &mut Emitter<'_>,
    block: &Block,
    class: Option<SyscallClass>,
    routinely: bool,
) {
    let pc = block.terminator_pc();
    let mut filtered = None;
    match class {
        Some(SyscallClass::Native) => emitter.point(0),
        Some(SyscallClass::Host) => {
            emitter.point(0);
            emitter.jump_ask(RequestKind::Syscall, pc, false);
            return;
        }
        Some(SyscallClass::SetFs) => {
            // mov ecx, edi; lea ecx, [rcx - ARCH_SET_FS]; jrcxz +5; ask
            emitter.point(0);
            emitter.out.spill_rcx();
            emitter.point(bits::SPILL_RCX);
            emitter.out.bytes(&[0x89, 0xf9, 0x8d, 0x89]);
            emitter.out.imm32(ARCH_SET_FS.wrapping_neg());
            emitter.out.bytes(&[0xe3, 0x05]);
            emitter.jump_ask(RequestKind::Syscall, pc, true);
        }
        Some(SyscallClass::Beside) => ask_unless_zero(emitter, Slot::Beside, pc),
        Some(SyscallClass::Watched) => {
            ask_unless_zero(emitter, Slot::Watched, pc);
            filtered = emitter.out.asks.len().checked_sub(1).filter(|_| routinely);
        }
        Some(
            SyscallClass::Map
            | SyscallClass::Unmap
            | SyscallClass::Protect
            | SyscallClass::Open
            | SyscallClass::Fills
            | SyscallClass::FillsFar,
        ) => {
            emitter.point(0);
            emitter.jump_ask(RequestKind::Syscall, pc, false);
            if let Some(ask) = emitter.out.asks.last_mut() {
                ask.resumes = Some(emitter.out.code.len());
            }
            emitter.fell_off(block);
            return;
        }
        Some(SyscallClass::Clone) => {
            emitter.point(0);
            emitter.jump_ask(RequestKind::Syscall, pc, false);
            emitter.point(0);
            filtered = emitter.out.asks.len().checked_sub(1);
            ask_no_more(emitter);
        }
        None => {
            number_filter(emitter, pc);
            filtered = emitter.out.asks.len().checked_sub(1).filter(|_| routinely);
            if routinely {
                ask_no_more(emitter);
            }
        }
    }
    // syscall
    emitter.out.bytes(&[0x0f, 0x05]);
    emitter.place.app = block.bytes.len() as u8;
    emitter.complete(bits::SYSCALL);
    emitter.load_address(Register::RCX, block.next().0);
    emitter.point(0);
    if let Some(ask) = filtered.and_then(|index| emitter.out.asks.get_mut(index)) {
        ask.resumes = Some(emitter.out.code.len());
    }
}

/// The place before a call that the routine comes back to where the call makes a child, which
/// is to begin here. The routine knows its length.
///
/// ```text
/// Patch:   context.kind := Dispatch
/// ```
fn ask_no_more(emitter: &mut Emitter<'_>) {
    emitter.out.bytes(&[0x65, 0xc7, 0x04, 0x25]);
    emitter.out.imm32(Slot::Kind as u32);
    emitter.out.imm32(RequestKind::Dispatch as u32);
}

/// Looks up the class of the call number in eax: the kernel uses its low 32 bits.
///
/// ```text
/// Patch:   slot := rcx
///          ecx := bswap(eax), low half    -- non-zero where eax >= 0x10000
///          non-zero --> ask
///          ecx := classes[ax]; zero --> go
///          ask the host
///          go:
/// ```
pub(super) fn number_filter(emitter: &mut Emitter<'_>, pc: AppPc) {
    emitter.point(0);
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    // mov ecx, eax; bswap ecx; movzx ecx, cx; jrcxz +5
    emitter.out.bytes(&[0x89, 0xc1, 0x0f, 0xc9, 0x0f, 0xb7, 0xc9, 0xe3, 0x05]);
    emitter.jump_ask(RequestKind::Syscall, pc, true);
    // movzx ecx, ax; movzx ecx, byte [rcx + classes]; jrcxz +5
    emitter.out.bytes(&[0x0f, 0xb7, 0xc8, 0x0f, 0xb6, 0x89]);
    emitter.out.imm32(emitter.layout.syscall_classes() as u32);
    emitter.out.bytes(&[0xe3, 0x05]);
    emitter.jump_ask(RequestKind::Syscall, pc, true);
}

/// Rule 11.
///
/// ```text
/// Target:  rt_sigreturn
/// Patch:   frame.cs is not that of 64-bit code --> ask the host
///          context.sig_frame := rsp; context.sig_pc := frame.rip; frame.rip := landing; the call
/// ```
pub fn sigreturn(emitter: &mut Emitter<'_>, pc: AppPc) {
    /// The code segment of 64-bit code.
    const CS_64: u8 = 0x33;
    let landing = emitter.layout.routines() + u64::from(emitter.routines.sigreturn);
    emitter.point(0);
    // cmp word [rsp + cs], 0x33; jne ask: to 32-bit code, of which no translation is. The call sets
    // the flags.
    emitter.out.bytes(&[0x66, 0x83, 0xbc, 0x24]);
    emitter.out.imm32(SIGFRAME_CS as u32);
    emitter.out.bytes(&[CS_64]);
    emitter.pad_for_link(2);
    emitter.out.bytes(&[0x0f, 0x85]);
    emitter.ask_from(RequestKind::Step, pc, false, false);
    emitter.point(0);
    if let Some(site) = emitter.transfer.take() {
        trace::direct(emitter, site, Leave::Resume);
        trace::made(emitter, 0);
    }
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    // mov gs:[sig_frame], rsp
    emitter.out.bytes(&[0x65, 0x48, 0x89, 0x24, 0x25]);
    emitter.out.imm32(Slot::SigFrame as u32);
    // mov rcx, [rsp + rip]
    emitter.out.bytes(&[0x48, 0x8b, 0x8c, 0x24]);
    emitter.out.imm32(SIGFRAME_RIP as u32);
    emitter.out.store_rcx(Slot::SigPc as u32);
    emitter.out.mov_rcx(landing);
    // mov [rsp + rip], rcx
    emitter.out.bytes(&[0x48, 0x89, 0x8c, 0x24]);
    emitter.out.imm32(SIGFRAME_RIP as u32);
    emitter.point(bits::SPILL_RCX | bits::SYSCALL | bits::PC_RCX);
    emitter.out.bytes(&[0x0f, 0x05]);
    // Not reached: a bad frame kills the program.
    emitter.complete(bits::SPILL_RCX);
    emitter.out.bytes(&[0x0f, 0x0b]);
}

/// Rule 12.
pub fn transaction_abort(emitter: &mut Emitter<'_>, target: AppPc) {
    emitter.point(0);
    // mov eax, 0
    emitter.out.bytes(&[0xb8, 0, 0, 0, 0]);
    emitter.complete(bits::PC_TARGET);
    emitter.jump_link(target);
}

/// Rule 20. Every flag that the test changes is about to be overwritten.
///
/// ```text
/// Target:  popf
/// Patch:   test byte [rsp + 1], 1; not zero --> ask the host
///          popf
/// ```
pub fn pop_flags(emitter: &mut Emitter<'_>, block: &Block) {
    emitter.point(0);
    // test byte [rsp + 1], 1; jnz ask
    emitter.out.bytes(&[0xf6, 0x44, 0x24, 0x01, 0x01]);
    emitter.pad_for_link(2);
    emitter.out.bytes(&[0x0f, 0x85]);
    emitter.ask_from(RequestKind::TrapFlag, block.terminator_pc(), false, false);
    emitter.out.bytes(&block.bytes[usize::from(block.terminator_offset)..]);
    emitter.fell_off(block);
}

/// Rule 22. Bit 62 of the mask is bit 30 of edx; bits 56 to 63 lead to the host together, which
/// no program sets but as part of -1. Returns false where the operand cannot be reached from
/// here.
///
/// ```text
/// Target:  xsave [m]                    -- components in edx:eax
/// Patch:   slot := rcx
///          ecx := bswap(edx), low byte; zero --> go
///          ask the host
///          go: rcx := slot; xsave [m]; as by rule 25
/// ```
pub fn state_filter(emitter: &mut Emitter<'_>, block: &Block) -> bool {
    emitter.point(0);
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    // mov ecx, edx; bswap ecx; movzx ecx, cl; jrcxz +5
    emitter.out.bytes(&[0x89, 0xd1, 0x0f, 0xc9, 0x0f, 0xb6, 0xc9, 0xe3, 0x05]);
    emitter.jump_ask(RequestKind::StateSave, block.terminator_pc(), true);
    emitter.out.reload_rcx();
    emitter.point(0);
    copy_last(emitter, block) && look_at_pointer(emitter, block)
}

/// Rule 25. What is stored is 0 as long as the thread has executed no instruction of the x87
/// unit. Returns false where the operand cannot be reached from here.
///
/// ```text
/// Target:  fxsave [m]
/// Patch:   fxsave [m]
///          slot := rcx; context.stored := address of the pointer in m; rcx := that pointer
///          not zero --> ask the host
///          rcx := slot
/// ```
pub fn store_pointer(emitter: &mut Emitter<'_>, block: &Block) -> bool {
    emitter.point(0);
    copy_last(emitter, block) && look_at_pointer(emitter, block)
}

/// Carries over the terminator, which has been executed behind it. Returns false where its
/// operand cannot be reached from here.
fn copy_last(emitter: &mut Emitter<'_>, block: &Block) -> bool {
    let bytes = &block.bytes[usize::from(block.terminator_offset)..];
    let reached = match block.last_displacement {
        Some(at) => bodies::rip_relative(emitter, bytes, at, block.last.ip_rel_memory_address()),
        None => {
            emitter.out.bytes(bytes);
            true
        }
    };
    emitter.fell_off(block);
    reached
}

/// Looks at the pointer that the terminator has stored, if it is one that stores any.
fn look_at_pointer(emitter: &mut Emitter<'_>, block: &Block) -> bool {
    let last = &block.last;
    let Some((at, wide)) = stored_pointer(last) else { return true };
    if matches!(last.segment_prefix(), Register::FS | Register::GS) {
        return true;
    }
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    if block.last_displacement.is_some() {
        emitter.load_address(Register::RCX, last.ip_rel_memory_address());
    } else {
        let operand = MemoryOperand::with_base_index_scale_displ_size(
            last.memory_base(),
            last.memory_index(),
            last.memory_index_scale(),
            last.memory_displacement64() as i64,
            last.memory_displ_size(),
        );
        let lea = Instruction::with2(Code::Lea_r64_m, Register::RCX, operand);
        if !lea.is_ok_and(|lea| emitter.encode(&lea)) {
            return false;
        }
    }
    // lea rcx, [rcx + at]; mov gs:[stored], rcx; mov rcx, [rcx] or mov ecx, [rcx]; jrcxz +5
    emitter.out.bytes(&[0x48, 0x8d, 0x49, at]);
    emitter.out.store_rcx(Slot::Stored as u32);
    emitter.out.bytes(if wide { &[0x48, 0x8b, 0x09] } else { &[0x8b, 0x09] });
    emitter.out.bytes(&[0xe3, 0x05]);
    let kind = if wide { RequestKind::Pointer64 } else { RequestKind::Pointer32 };
    emitter.jump_ask(kind, block.next(), true);
    emitter.out.reload_rcx();
    emitter.point(0);
    true
}

/// Rules 13 and 14.
pub fn ask(emitter: &mut Emitter<'_>, kind: RequestKind, pc: AppPc) {
    emitter.point(0);
    emitter.jump_ask(kind, pc, false);
}
