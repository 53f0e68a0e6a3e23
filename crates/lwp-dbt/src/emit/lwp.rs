//! Rule 17: the instructions of Lightweight Profiling.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use super::{Countdown, Emitter, dcache, register_bits};
use crate::block::Block;
use crate::context::{RESULT_NARROW, RequestKind, Slot};
use crate::plan::{Lwp, Selection};
use crate::state_map::bits;

/// EventId of LWPVAL's records.
const VALUE_SAMPLE: u32 = 1;

/// EventId of LWPINS' records.
const PROGRAMMED: u32 = 255;

impl Emitter<'_> {
    /// The state bits of a terminator that has not been executed.
    pub(super) fn before_bits(&self) -> u8 {
        if self.charging.by_host { bits::UNCOUNTED } else { 0 }
    }

    pub(super) fn executed(&mut self, block: &Block, state: u8) {
        self.place.app = block.bytes.len() as u8;
        self.place.index = block.instructions() as u8;
        self.point(state);
    }
}

/// Rule 17. `charged` are the state bits while the instruction has not been executed, `done`
/// those when it has. Returns false where its operand cannot be reached from here.
///
/// ```text
/// Target:  LLWPCB r          Patch:  operand := r; ask; the host goes on elsewhere
///          SLWPCB r                  off: r := 0;   on: ask the host; r := data
///          LWPINS r, r/m, i          off: CF := 0;  on: stage the operands; ask; CF := data
///          LWPVAL r, r/m, i          off: nothing;  on: value := value - 1, or, where it is 0
///                                                   already, stage the operands and ask
/// ```
///
/// Requests to the host go to a routine first, which does them without the host where it can.
pub fn lwp_instruction(
    emitter: &mut Emitter<'_>,
    block: &Block,
    kind: RequestKind,
    lwp: Lwp,
) -> bool {
    let state = emitter.before_bits();
    emitter.point(state);
    let selection = match lwp {
        Lwp::On(selection) => Some(selection),
        Lwp::Off | Lwp::Absent => None,
    };
    match (kind, selection) {
        (RequestKind::Llwpcb, Some(selection)) if goes_on_behind(emitter, block, kind, lwp) => {
            loaded_block(emitter, block, &selection, state);
            true
        }
        (RequestKind::Llwpcb, _) => {
            store_register(emitter, block.last.op0_register(), Slot::LwpOperand);
            emitter.jump_ask(kind, block.terminator_pc(), false);
            true
        }
        (RequestKind::Slwpcb, None) => {
            let (high, low) = register_bits(block.last.op0_register());
            if high != 0 {
                emitter.out.bytes(&[0x41]);
            }
            emitter.out.bytes(&[0xb8 | low]);
            emitter.out.imm32(0);
            emitter.executed(block, state);
            true
        }
        (RequestKind::Slwpcb, Some(selection)) => {
            stored_block(emitter, block, &selection, state);
            true
        }
        (RequestKind::Lwpins, None) => {
            emitter.out.bytes(&[0xf8]);
            emitter.executed(block, state);
            true
        }
        (RequestKind::Lwpins, Some(_)) => insert(emitter, block, state),
        (_, Some(selection)) if selection.values => value_sample(emitter, block, state),
        _ => {
            emitter.executed(block, state);
            if emitter.charging.by_host {
                emitter.jump_ask(RequestKind::LwpStepped, block.next(), false);
            }
            true
        }
    }
}

/// Returns whether control may come to what stands behind the LWP instruction that ends `block`:
/// not where it is an LLWPCB that only the host executes.
pub fn goes_on_behind(emitter: &Emitter<'_>, block: &Block, kind: RequestKind, lwp: Lwp) -> bool {
    kind != RequestKind::Llwpcb
        || matches!(lwp, Lwp::On(_))
            && !emitter.charging.by_host
            && block.last.op0_register().is_gpr64()
}

/// `mov gs:[slot], register`, all 64 bits of it
pub(super) fn store_register(emitter: &mut Emitter<'_>, register: Register, slot: Slot) {
    let (high, low) = register_bits(register.full_register());
    emitter.out.bytes(&[0x65, 0x48 | high << 2, 0x89, 0x04 | low << 3, 0x25]);
    emitter.out.imm32(slot as u32);
}

/// What an LLWPCB or SLWPCB counts for itself.
fn weigh_itself(emitter: &mut Emitter<'_>, block: &Block, selection: &Selection) {
    let counts = selection.instructions && selection.admits(block.terminator_pc().0);
    let itself = Countdown::alone(u8::from(counts));
    emitter.out.store_imm32(Slot::LwpWeight, itself.packed());
}

/// LLWPCB with profiling on, or switched off by the thread itself.
fn loaded_block(emitter: &mut Emitter<'_>, block: &Block, selection: &Selection, state: u8) {
    store_register(emitter, block.last.op0_register(), Slot::LwpOperand);
    weigh_itself(emitter, block, selection);
    request_with_result(emitter, block, RequestKind::Llwpcb, state);
    result_set(emitter, block, state);
}

/// SLWPCB with profiling on.
fn stored_block(emitter: &mut Emitter<'_>, block: &Block, selection: &Selection, state: u8) {
    let register = block.last.op0_register();
    let narrow = register.is_gpr32();
    let (high, low) = register_bits(register.full_register());
    weigh_itself(emitter, block, selection);
    let number = u32::from(high << 3 | low);
    emitter
        .out
        .store_imm32(Slot::LwpRegister, if narrow { number | RESULT_NARROW } else { number });
    request_with_result(emitter, block, RequestKind::Slwpcb, state);
    // mov r, gs:[data]
    let wide = if narrow { 0x40 } else { 0x48 };
    emitter.out.bytes(&[0x65, wide | high << 2, 0x8b, 0x04 | low << 3, 0x25]);
    emitter.out.imm32(Slot::LwpData as u32);
    result_set(emitter, block, state);
}

/// Names the place to go on at, and asks; emits up to that place, where the result is still to
/// be set.
fn request_with_result(emitter: &mut Emitter<'_>, block: &Block, kind: RequestKind, state: u8) {
    emitter.out.spill_rcx();
    emitter.point(state | bits::SPILL_RCX);
    let fix = name_after(emitter);
    emitter.jump_ask(kind, block.terminator_pc(), true);
    set_after(emitter, fix);
    emitter.place.app = block.bytes.len() as u8;
    emitter.place.index = block.instructions() as u8;
    emitter.point(state | bits::SYSCALL | bits::EDGE);
}

/// `LwpAfter := rip + …`, through rcx; the displacement is set later.
fn name_after(emitter: &mut Emitter<'_>) -> usize {
    emitter.out.bytes(&[0x48, 0x8d, 0x0d]);
    let at = emitter.out.code.len();
    emitter.out.imm32(0);
    emitter.out.store_rcx(Slot::LwpAfter as u32);
    at
}

fn set_after(emitter: &mut Emitter<'_>, at: usize) {
    let displacement = (emitter.out.code.len() - (at + 4)) as u32;
    emitter.out.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
}

/// The result has been set.
fn result_set(emitter: &mut Emitter<'_>, block: &Block, state: u8) {
    emitter.executed(block, state);
    emitter.out.store_imm32(Slot::LwpPending, 0);
}

/// LWPINS with profiling on.
fn insert(emitter: &mut Emitter<'_>, block: &Block, state: u8) -> bool {
    if !stage(emitter, block, state) {
        return false;
    }
    request_with_result(emitter, block, RequestKind::Lwpins, state);
    let pending = state | bits::SYSCALL | bits::EDGE;
    emitter.out.spill_rcx();
    emitter.point(pending | bits::SPILL_RCX);
    emitter.out.load_rcx(Slot::LwpData as u32);
    // jrcxz clear; stc; jmp set; clear: clc; set:
    emitter.out.bytes(&[0xe3, 0x03, 0xf9, 0xeb, 0x01, 0xf8]);
    emitter.executed(block, state | bits::SPILL_RCX);
    emitter.out.reload_rcx();
    result_set(emitter, block, state);
    true
}

/// LWPVAL with profiling on and value samples selected.
fn value_sample(emitter: &mut Emitter<'_>, block: &Block, state: u8) -> bool {
    let (app, index) = (emitter.place.app, emitter.place.index);
    emitter.out.spill_rcx();
    emitter.point(state | bits::SPILL_RCX);
    emitter.out.load_rcx(Slot::LwpValue as u32);
    emitter.out.bytes(&[0xe3, 0]);
    let expired = emitter.out.code.len();
    emitter.out.add_to_rcx(u32::MAX);
    emitter.out.store_rcx(Slot::LwpValue as u32);
    emitter.executed(block, state | bits::SPILL_RCX);
    emitter.out.reload_rcx();
    emitter.point(state);
    let over = match emitter.charging.by_host {
        true => {
            emitter.jump_ask(RequestKind::LwpStepped, block.next(), false);
            None
        }
        false => {
            emitter.out.bytes(&[0xe9]);
            emitter.out.imm32(0);
            Some(emitter.out.code.len())
        }
    };
    emitter.out.code[expired - 1] = (emitter.out.code.len() - expired) as u8;
    (emitter.place.app, emitter.place.index) = (app, index);
    emitter.point(state | bits::SPILL_RCX);
    emitter.out.reload_rcx();
    emitter.point(state);
    if !stage(emitter, block, state) {
        return false;
    }
    emitter.out.spill_rcx();
    emitter.point(state | bits::SPILL_RCX);
    let fix = name_after(emitter);
    emitter.jump_ask(RequestKind::Lwpval, block.terminator_pc(), true);
    set_after(emitter, fix);
    if let Some(over) = over {
        let displacement = (emitter.out.code.len() - over) as u32;
        emitter.out.code[over - 4..over].copy_from_slice(&displacement.to_le_bytes());
    }
    emitter.executed(block, state);
    true
}

/// Puts the operands of LWPINS or LWPVAL where the host finds them. Reading the memory operand
/// faults as the instruction does.
fn stage(emitter: &mut Emitter<'_>, block: &Block, state: u8) -> bool {
    let last = &block.last;
    let id = match last.mnemonic() {
        Mnemonic::Lwpins => PROGRAMMED,
        _ => VALUE_SAMPLE,
    };
    emitter.out.store_imm32(Slot::LwpRecord, id | (last.immediate32() & 0xffff) << 16);
    store_operand(emitter, last.op0_register());
    if last.op1_kind() == OpKind::Register {
        store_register(emitter, last.op1_register(), Slot::LwpData);
        return true;
    }
    if !dcache::touch_terminator(emitter, block, false) {
        return false;
    }
    emitter.out.spill_rcx();
    emitter.point(state | bits::SPILL_RCX);
    if !load_data(emitter, last, state) {
        return false;
    }
    emitter.out.store_rcx(Slot::LwpData as u32);
    emitter.out.reload_rcx();
    emitter.point(state);
    true
}

/// Stores the second data of a record, zero-extended.
fn store_operand(emitter: &mut Emitter<'_>, register: Register) {
    if !register.is_gpr32() {
        store_register(emitter, register, Slot::LwpOperand);
        return;
    }
    let (high, low) = register_bits(register.full_register());
    // mov gs:[operand], r32; mov dword gs:[operand + 4], 0
    emitter.out.bytes(&[0x65, 0x40 | high << 2, 0x89, 0x04 | low << 3, 0x25]);
    emitter.out.imm32(Slot::LwpOperand as u32);
    emitter.out.bytes(&[0x65, 0xc7, 0x04, 0x25]);
    emitter.out.imm32(Slot::LwpOperand as u32 + 4);
    emitter.out.imm32(0);
}

/// `mov ecx, [operand]`
fn load_data(emitter: &mut Emitter<'_>, last: &Instruction, state: u8) -> bool {
    let mut load = Instruction::default();
    load.set_op0_kind(OpKind::Register);
    load.set_op0_register(Register::RCX);
    load.set_op1_kind(OpKind::Memory);
    load.set_memory_base(last.memory_base());
    load.set_memory_index(last.memory_index());
    load.set_memory_index_scale(last.memory_index_scale());
    load.set_memory_displacement64(last.memory_displacement64());
    load.set_memory_displ_size(last.memory_displ_size());
    if last.segment_prefix() == Register::GS {
        load.set_code(Code::Lea_r64_m);
        if !emitter.encode(&load) {
            return false;
        }
        emitter.out.spill_r11();
        emitter.point(state | bits::SPILL_RCX | bits::SPILL_R11);
        // mov r11, gs:[app gs]; mov ecx, [rcx + r11]
        emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
        emitter.out.imm32(Slot::AppGs as u32);
        emitter.out.bytes(&[0x42, 0x8b, 0x0c, 0x19]);
        emitter.out.reload_r11();
        emitter.point(state | bits::SPILL_RCX);
        return true;
    }
    load.set_code(Code::Mov_r32_rm32);
    load.set_op0_register(Register::ECX);
    load.set_segment_prefix(last.segment_prefix());
    emitter.encode(&load)
}
