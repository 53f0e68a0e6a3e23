//! Rules 21, 23 and 24: indirect calls that are counted by target, and values that are counted in
//! the same way.

use iced_x86::{InstructionInfoFactory, Register};

use super::{Emitter, heads, terminators, trace};
use crate::addr::{AppPc, CachePc};
use crate::block::Block;
use crate::context::calls::call_site;
use crate::context::{RequestKind, Slot, counter_displacement};
use crate::fragment::FragmentId;
use crate::marks::{Value, ValueBase};
use crate::relocation::Relocation;
use crate::state_map::bits;

/// A call that may lead elsewhere than it did first, to be dealt with behind the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedCall {
    /// Offset of the 4-byte displacement that jumps to the stub.
    pub at: usize,
    /// The fragment that ends in the call, and where it begins.
    pub fragment: FragmentId,
    pub block: AppPc,
    /// The call: how far the fragment is.
    app: u8,
    index: u8,
    /// The counter that holds its first target.
    first: u32,
    /// The address at which it is counted as leading there.
    same: CachePc,
    /// The address at which it has been counted.
    counted: CachePc,
}

const SPILLED: u8 = bits::SPILL_RCX | bits::SPILL_R11;

/// Returns whether a block's first instruction leaves the registers alone that hold a value
/// while it is counted.
pub fn leaves_borrowed(block: &Block) -> bool {
    let instruction = super::decode_one(block.pc, &block.bytes);
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    let borrowed = |it: Register| matches!(it.full_register(), Register::RCX | Register::R11);
    let registers = info.used_registers().iter().map(|used| used.register());
    let memory = info.used_memory().iter().flat_map(|used| [used.base(), used.index()]);
    !registers.chain(memory).any(borrowed)
}

/// Rule 21. Returns false where the operand cannot be reached from here.
///
/// ```text
/// Target:  call r/m64
/// Patch:   slot := rcx; rcx := target; slot := r11; r11 := rcx
///          rcx := ~first target; rcx := rcx + r11 + 1; rcx = 0 --> same; jmp stub
///          same: count := count + 1
///          counted: rcx := r11; push of the return address; jump through the table
/// ```
///
/// The call is counted before it is made: the push may fault, and what is counted and not made
/// is given back.
pub fn counted_call(
    emitter: &mut Emitter<'_>,
    block: &Block,
    fragment: FragmentId,
    first: u32,
) -> bool {
    if !terminators::borrow_for_target(emitter, block) {
        return false;
    }
    emitter.hold(bits::SPILL_RCX, bits::SPILL_R11);
    // mov r11, rcx
    emitter.out.bytes(&[0x49, 0x89, 0xcb]);
    count_target(emitter, block, fragment, first);
    if let Some(site) = emitter.transfer.take() {
        trace::indirect(emitter, site, bits::EDGE);
        terminators::push_return(emitter, block.next());
        terminators::complete_and_dispatch(emitter);
        return true;
    }
    // mov rcx, r11
    emitter.out.bytes(&[0x4c, 0x89, 0xd9]);
    terminators::push_return(emitter, block.next());
    emitter.complete(SPILLED | bits::PC_RCX);
    terminators::dispatch_spilled(emitter);
    true
}

/// Counts the target in r11, up to where it has been counted.
fn count_target(emitter: &mut Emitter<'_>, block: &Block, fragment: FragmentId, first: u32) {
    load_counter(emitter, first);
    // lea rcx, [rcx + r11 + 1]; jrcxz +5; jmp stub
    emitter.out.bytes(&[0x4a, 0x8d, 0x4c, 0x19, 0x01, 0xe3, 0x05, 0xe9]);
    let at = emitter.out.code.len();
    emitter.out.imm32(0);
    let same = emitter.here();
    heads::count_in_rcx(emitter, first + 1);
    emitter.point(SPILLED | bits::EDGE);
    let counted = emitter.here();
    let (app, index) = (emitter.place.app, emitter.place.index);
    emitter.out.calls.push(CountedCall {
        at,
        fragment,
        block: block.pc,
        app,
        index,
        first,
        same,
        counted,
    });
}

/// Rule 23.
///
/// ```text
/// Target:  op
/// Patch:   slot := rcx; slot := r11
///          where a word is to be set:
///             r11 := [rdi + x]; rcx := [r11 + y]; rcx = 0 --> set; jmp over
///          set: [r11 + y] := address of op
///          over: r11 := value, or r11 := what leads there; r11 := value
///          rcx := ~first value; rcx := rcx + r11 + 1; rcx = 0 --> same; jmp stub
///          same: count := count + 1
///          counted: op; r11 := slot; rcx := slot
/// ```
///
/// The value is counted before the instruction is executed, and given back if that faults.
pub(super) fn counted_value(
    emitter: &mut Emitter<'_>,
    block: &Block,
    fragment: FragmentId,
    first: u32,
    value: &Value,
) {
    emitter.hold(0, SPILLED);
    if let Some(sets) = value.sets {
        set_word(emitter, block.pc, sets);
    }
    // mov r11, [rdi + x], or rsi, or r14
    emitter.out.bytes(match value.base {
        ValueBase::Rdi => &[0x4c, 0x8b, 0x9f],
        ValueBase::Rsi => &[0x4c, 0x8b, 0x9e],
        ValueBase::R14 => &[0x4d, 0x8b, 0x9e],
    });
    emitter.out.imm32(value.through.unwrap_or(value.offset) as u32);
    if value.through.is_some() {
        // mov r11, [r11 + offset]
        emitter.out.bytes(&[0x4d, 0x8b, 0x9b]);
        emitter.out.imm32(value.offset as u32);
    }
    count_target(emitter, block, fragment, first);
}

/// Sets a word to `pc` where it is zero.
fn set_word(emitter: &mut Emitter<'_>, pc: AppPc, [through, at]: [i32; 2]) {
    // mov r11, [rdi + through]; mov rcx, [r11 + at]
    emitter.out.bytes(&[0x4c, 0x8b, 0x9f]);
    emitter.out.imm32(through as u32);
    emitter.out.bytes(&[0x49, 0x8b, 0x8b]);
    emitter.out.imm32(at as u32);
    // jrcxz +2; jmp over
    emitter.out.bytes(&[0xe3, 0x02, 0xeb, 0]);
    let from = emitter.out.code.len();
    emitter.load_address(Register::RCX, pc.0);
    // mov [r11 + at], rcx
    emitter.out.bytes(&[0x49, 0x89, 0x8b]);
    emitter.out.imm32(at as u32);
    emitter.out.code[from - 1] = (emitter.out.code.len() - from) as u8;
}

/// Rule 24. The host answers by having the same executed again, once the counter holds what
/// rdi does.
///
/// ```text
/// Patch:   slot := rcx; slot := r11
///          r11 := rdi; rcx := ~told; rcx := rcx + r11 + 1; rcx = 0 --> told; ask
///          told: ~told := 0; rcx := slot; r11 := slot
/// ```
///
/// A signal in between has it told once more, which is nothing new.
pub fn ask_once(emitter: &mut Emitter<'_>, pc: AppPc, counter: u32) {
    emitter.point(bits::UNCOUNTED);
    emitter.out.spill_rcx();
    emitter.point(bits::UNCOUNTED | bits::SPILL_RCX);
    emitter.out.spill_r11();
    emitter.point(bits::UNCOUNTED | SPILLED);
    // mov r11, rdi
    emitter.out.bytes(&[0x49, 0x89, 0xfb]);
    load_counter(emitter, counter);
    // lea rcx, [rcx + r11 + 1]; jrcxz +5; jmp ask
    emitter.out.bytes(&[0x4a, 0x8d, 0x4c, 0x19, 0x01, 0xe3, 0x05, 0xe9]);
    emitter.ask_from(RequestKind::Ends, pc, true, true);
    // mov qword gs:[counter], 0
    emitter.out.bytes(&[0x65, 0x48, 0xc7, 0x04, 0x25]);
    emitter.out.imm32(counter_displacement(counter));
    emitter.out.relocated(Relocation::Counter);
    emitter.out.imm32(0);
    emitter.out.reload_rcx();
    emitter.point(bits::UNCOUNTED | bits::SPILL_R11);
    emitter.out.reload_r11();
    emitter.point(bits::UNCOUNTED);
}

/// The stub of a call: where it has not led anywhere yet, this is its first target; else the
/// routine looks for it among those that led elsewhere.
pub fn call_stub(emitter: &mut Emitter<'_>, call: &CountedCall) -> CachePc {
    emitter.start_piece();
    (emitter.place.app, emitter.place.index) = (call.app, call.index);
    let stub = emitter.here();
    emitter.point(SPILLED);
    load_counter(emitter, call.first);
    // jrcxz first
    emitter.out.bytes(&[0xe3, 0]);
    let from = emitter.out.code.len();
    // mov gs:[target], r11
    emitter.out.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
    emitter.out.imm32(Slot::CallTarget as u32);
    emitter.out.store_imm32(Slot::CallSite, call_site(call.first));
    emitter.out.relocated(Relocation::CallSite);
    // lea rcx, [rip + counted]
    emitter.out.bytes(&[0x48, 0x8d, 0x0d]);
    emitter.displacement_to(call.counted.0);
    emitter.out.store_rcx(Slot::CallAfter as u32);
    emitter.jump_to_routine(emitter.routines.called);
    emitter.out.code[from - 1] = (emitter.out.code.len() - from) as u8;
    // mov rcx, r11; not rcx
    emitter.out.bytes(&[0x4c, 0x89, 0xd9, 0x48, 0xf7, 0xd1]);
    emitter.out.store_rcx(counter_displacement(call.first));
    emitter.out.relocated(Relocation::Counter);
    emitter.jump_to(call.same);
    stub
}

/// `mov rcx, gs:[counter]`
fn load_counter(emitter: &mut Emitter<'_>, counter: u32) {
    emitter.out.load_rcx(counter_displacement(counter));
    emitter.out.relocated(Relocation::Counter);
}
