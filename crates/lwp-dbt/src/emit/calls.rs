//! Rules 21, 23 and 24: indirect calls, where they are counted by where they lead, and values that
//! are counted in the same way.

use iced_x86::{InstructionInfoFactory, Register};

use super::Emitter;
use crate::addr::{AppPc, CachePc};
use crate::block::Block;
use crate::context::calls::call_site;
use crate::context::{RequestKind, Slot, counter_displacement};
use crate::fragment::{FragmentId, Value, ValueBase};
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

impl Emitter<'_> {
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
    pub fn counted_call(&mut self, block: &Block, fragment: FragmentId, first: u32) -> bool {
        if !self.borrow_for_target(block) {
            return false;
        }
        self.hold(bits::SPILL_RCX, bits::SPILL_R11);
        // mov r11, rcx
        self.bytes(&[0x49, 0x89, 0xcb]);
        self.count_target(block, fragment, first);
        // mov rcx, r11
        self.bytes(&[0x4c, 0x89, 0xd9]);
        self.push_return(block.next());
        self.complete(SPILLED | bits::PC_RCX);
        self.dispatch_spilled();
        true
    }

    /// Counts the target in r11, up to where it has been counted.
    fn count_target(&mut self, block: &Block, fragment: FragmentId, first: u32) {
        self.load_counter(first);
        // lea rcx, [rcx + r11 + 1]; jrcxz +5; jmp stub
        self.bytes(&[0x4a, 0x8d, 0x4c, 0x19, 0x01, 0xe3, 0x05, 0xe9]);
        let at = self.out.code.len();
        self.imm32(0);
        let same = self.here();
        self.count_in_rcx(first + 1);
        self.point(SPILLED | bits::EDGE);
        let counted = self.here();
        let (app, index) = (self.app, self.index);
        self.out.calls.push(CountedCall {
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
        &mut self,
        block: &Block,
        fragment: FragmentId,
        first: u32,
        value: &Value,
    ) {
        self.hold(0, SPILLED);
        if let Some(sets) = value.sets {
            self.set_word(block.pc, sets);
        }
        // mov r11, [rdi + x], or rsi, or r14
        self.bytes(match value.base {
            ValueBase::Rdi => &[0x4c, 0x8b, 0x9f],
            ValueBase::Rsi => &[0x4c, 0x8b, 0x9e],
            ValueBase::R14 => &[0x4d, 0x8b, 0x9e],
        });
        self.imm32(value.through.unwrap_or(value.offset) as u32);
        if value.through.is_some() {
            // mov r11, [r11 + offset]
            self.bytes(&[0x4d, 0x8b, 0x9b]);
            self.imm32(value.offset as u32);
        }
        self.count_target(block, fragment, first);
    }

    /// Sets a word to `pc` where it is zero.
    fn set_word(&mut self, pc: AppPc, [through, at]: [i32; 2]) {
        // mov r11, [rdi + through]; mov rcx, [r11 + at]
        self.bytes(&[0x4c, 0x8b, 0x9f]);
        self.imm32(through as u32);
        self.bytes(&[0x49, 0x8b, 0x8b]);
        self.imm32(at as u32);
        // jrcxz +2; jmp over
        self.bytes(&[0xe3, 0x02, 0xeb, 0]);
        let from = self.out.code.len();
        self.load_address(Register::RCX, pc.0);
        // mov [r11 + at], rcx
        self.bytes(&[0x49, 0x89, 0x8b]);
        self.imm32(at as u32);
        self.out.code[from - 1] = (self.out.code.len() - from) as u8;
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
    pub fn ask_once(&mut self, pc: AppPc, counter: u32) {
        self.point(bits::UNCOUNTED);
        self.spill_rcx();
        self.point(bits::UNCOUNTED | bits::SPILL_RCX);
        self.spill_r11();
        self.point(bits::UNCOUNTED | SPILLED);
        // mov r11, rdi
        self.bytes(&[0x49, 0x89, 0xfb]);
        self.load_counter(counter);
        // lea rcx, [rcx + r11 + 1]; jrcxz +5; jmp ask
        self.bytes(&[0x4a, 0x8d, 0x4c, 0x19, 0x01, 0xe3, 0x05, 0xe9]);
        self.ask_from(RequestKind::Ends, pc, true, true);
        // mov qword gs:[counter], 0
        self.bytes(&[0x65, 0x48, 0xc7, 0x04, 0x25]);
        self.imm32(counter_displacement(counter));
        self.relocated(Relocation::Counter);
        self.imm32(0);
        self.reload_rcx();
        self.point(bits::UNCOUNTED | bits::SPILL_R11);
        self.reload_r11();
        self.point(bits::UNCOUNTED);
    }

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

    /// The stub of a call: where it has not led anywhere yet, this is its first target; else the
    /// routine looks for it among those that led elsewhere.
    pub fn call_stub(&mut self, call: &CountedCall) -> CachePc {
        self.start_piece();
        (self.app, self.index) = (call.app, call.index);
        let stub = self.here();
        self.point(SPILLED);
        self.load_counter(call.first);
        // jrcxz first
        self.bytes(&[0xe3, 0]);
        let from = self.out.code.len();
        // mov gs:[target], r11
        self.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
        self.imm32(Slot::CallTarget as u32);
        self.store_imm32(Slot::CallSite, call_site(call.first));
        self.relocated(Relocation::CallSite);
        // lea rcx, [rip + counted]
        self.bytes(&[0x48, 0x8d, 0x0d]);
        self.displacement_to(call.counted.0);
        self.store_rcx(Slot::CallAfter as u32);
        self.jump_to_routine(self.routines.called);
        self.out.code[from - 1] = (self.out.code.len() - from) as u8;
        // mov rcx, r11; not rcx
        self.bytes(&[0x4c, 0x89, 0xd9, 0x48, 0xf7, 0xd1]);
        self.store_rcx(counter_displacement(call.first));
        self.relocated(Relocation::Counter);
        self.jump_to(call.same);
        stub
    }

    /// `mov rcx, gs:[counter]`
    fn load_counter(&mut self, counter: u32) {
        self.load_rcx(counter_displacement(counter));
        self.relocated(Relocation::Counter);
    }
}
