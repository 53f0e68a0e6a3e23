//! Rule 19: data cache accesses, where LWP counts misses.

use iced_x86::{Code, Instruction, MemoryOperand as Operand, Register};

use super::{Emitter, decode_one};
use crate::addr::{AppPc, CachePc};
use crate::block::Block;
use crate::context::{RECENT_AT, Slot};
use crate::fragment::FragmentId;
use crate::operands::{self, MemoryOperand};
use crate::recipe::bits;

/// An access whose line may not be the most recent of its set, to be dealt with behind the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    /// Offset of the 4-byte displacement that jumps to the stub.
    pub at: usize,
    /// The fragment, and where it begins.
    pub fragment: FragmentId,
    pub block: AppPc,
    /// The instruction: its pc, and how far the fragment is.
    pc: AppPc,
    app: u8,
    index: u8,
    /// The state bits, nothing being spilled.
    state: u8,
    operand: MemoryOperand,
    /// Whether a miss counts here.
    counts: bool,
    /// Where to go on; rcx and r11 are in their slots there.
    ok: CachePc,
}

impl Emitter<'_> {
    /// Rule 19, for each memory operand of the instruction at hand, of `bytes` at `offset` in the block.
    /// Returns false where an address cannot be computed here.
    pub(super) fn touch_operands(&mut self, block: &Block, offset: usize, bytes: &[u8]) -> bool {
        let Some(counts) = self.dcache else { return true };
        let pc = block.pc.offset(offset as u64);
        let operands = operands::of(&decode_one(pc, bytes));
        operands.iter().all(|operand| self.touch(block.pc, pc, operand, counts))
    }

    /// The same for a terminator.
    pub fn touch_terminator(&mut self, block: &Block) -> bool {
        let offset = usize::from(block.terminator_offset);
        self.touch_operands(block, offset, &block.bytes[offset..])
    }

    /// ```text
    /// Target:  an access of n bytes at a
    /// Patch:   slot := rcx; slot := r11; rcx := a
    ///          r11 := set of a; rcx := line of a + n - 1; rcx := rcx + table[r11]
    ///          rcx = 0 --> ok; jmp stub
    ///          ok: r11 := slot; rcx := slot
    /// ```
    ///
    /// The table holds the negated line that was used last in each set. An access that spans two lines
    /// compares the second with what is in the set of the first, and always goes to the stub.
    fn touch(&mut self, block: AppPc, pc: AppPc, operand: &MemoryOperand, counts: bool) -> bool {
        let state = self.before_bits();
        let both = state | bits::SPILL_RCX | bits::SPILL_R11;
        let Some(fragment) = self.fragment else { return false };
        self.point(state);
        self.spill_rcx();
        self.point(state | bits::SPILL_RCX);
        self.spill_r11();
        self.point(both);
        if !self.address(operand) {
            return false;
        }
        // pext r11, rcx, [set mask]
        self.bytes(&[0xc4, 0x62, 0xf2, 0xf5, 0x1c, 0x25]);
        self.imm32(self.layout.set_mask() as u32);
        if operand.bytes > 1 {
            self.add_to_rcx(operand.bytes - 1);
        }
        // pext rcx, rcx, [line mask]
        self.bytes(&[0xc4, 0xe2, 0xf2, 0xf5, 0x0c, 0x25]);
        self.imm32(self.layout.line_mask() as u32);
        // mov r11, gs:[r11*8 + table]
        self.bytes(&[0x65, 0x4e, 0x8b, 0x1c, 0xdd]);
        self.imm32(RECENT_AT);
        self.lea_rcx_rcx_r11();
        self.bytes(&[0xe3, 0x05, 0xe9]);
        let at = self.code.len();
        self.imm32(0);
        let (app, index, ok) = (self.app, self.index, self.here());
        let operand = *operand;
        self.touches.push(Touch {
            at,
            fragment,
            block,
            pc,
            app,
            index,
            state,
            operand,
            counts,
            ok,
        });
        self.point(both);
        self.reload_r11();
        self.point(state | bits::SPILL_RCX);
        self.reload_rcx();
        self.point(state);
        true
    }

    /// rcx := the operand's linear address; rcx and r11 have been spilled and still are themselves.
    fn address(&mut self, operand: &MemoryOperand) -> bool {
        let plain = operand.base == Register::None && operand.index == Register::None;
        if plain {
            self.mov_rcx(operand.displacement);
        } else {
            let displacement = operand.displacement as i64;
            let width = if displacement == 0 { 0 } else { 8 };
            let memory = Operand::new(
                operand.base,
                operand.index,
                operand.scale.max(1),
                displacement,
                width,
                false,
                Register::None,
            );
            let Ok(lea) = Instruction::with2(Code::Lea_r64_m, Register::RCX, memory) else {
                return false;
            };
            if !self.encode(&lea) {
                return false;
            }
        }
        match operand.segment {
            None => return true,
            // rdfsbase r11
            Some(Register::FS) => self.bytes(&[0xf3, 0x49, 0x0f, 0xae, 0xc3]),
            // mov r11, gs:[app gs]
            Some(_) => {
                self.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
                self.imm32(Slot::AppGs as u32);
            }
        }
        self.lea_rcx_rcx_r11();
        true
    }

    /// The stub of an access: hands address and instruction to the routine that notes it.
    pub fn touch_stub(&mut self, touch: &Touch) -> CachePc {
        self.start_piece();
        (self.app, self.index) = (touch.app, touch.index);
        let (state, rcx) = (touch.state, touch.state | bits::SPILL_RCX);
        let stub = self.here();
        self.point(rcx | bits::SPILL_R11);
        self.reload_r11();
        self.point(rcx);
        self.reload_rcx();
        self.point(state | bits::SPILL_RCX | bits::SPILL_R11);
        // It was computed once, so it can be again.
        let computed = self.address(&touch.operand);
        debug_assert!(computed, "an address that was computed before");
        self.store_rcx(Slot::LwpAddress as u32);
        let counts = u32::from(touch.counts);
        let meta = touch.operand.bytes.min(0xfff) | (touch.operand.how as u32) << 12 | counts << 14;
        self.store_imm32(Slot::LwpMeta, meta);
        self.store_imm32(Slot::LwpFragment, touch.fragment.0);
        self.store_imm32(Slot::LwpIndex, u32::from(touch.index));
        self.mov_r11(touch.pc.0);
        // lea rcx, [rip + ok]
        self.bytes(&[0x48, 0x8d, 0x0d]);
        self.displacement_to(touch.ok.0);
        self.jump_to(CachePc(self.routines_at + u64::from(self.routines.lwp.touch)));
        stub
    }
}
