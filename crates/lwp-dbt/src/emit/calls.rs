//! Rule 21: indirect calls, where they are counted by where they lead.

use super::Emitter;
use crate::addr::{AppPc, CachePc};
use crate::block::Block;
use crate::context::calls::call_site;
use crate::context::{Slot, counter_displacement};
use crate::fragment::FragmentId;
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
        // mov rcx, r11
        self.bytes(&[0x4c, 0x89, 0xd9]);
        self.push_return(block.next());
        self.complete(SPILLED | bits::PC_RCX);
        self.dispatch_spilled();
        true
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
