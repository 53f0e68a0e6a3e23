//! Rule 19: data cache accesses, where LWP counts misses.

use iced_x86::{
    Code, Instruction, InstructionInfo, InstructionInfoFactory, MemoryOperand as Operand, OpKind,
    Register,
};

use super::{Emitter, decode_one, register_bits};
use crate::addr::{AppPc, CachePc};
use crate::block::{Block, Carry, Insn};
use crate::context::{META_REPEATS, META_SOURCE, SETS_AT, Slot};
use crate::fragment::FragmentId;
use crate::operands::{self, MemoryOperand};
use crate::relocation::Relocation;
use crate::routines::site;
use crate::state_map::bits;

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
    /// The state bits, with the registers that are in their slots.
    state: u8,
    operand: MemoryOperand,
    /// True if a miss counts here.
    counts: bool,
    /// True if all flags are dead here.
    dead: bool,
    /// True if the check leaves the address in rcx.
    in_rcx: bool,
    /// The address to go on at; r11 is in its slot there.
    ok: CachePc,
}

/// Most bytes of an access's check and its stub.
pub(crate) const TOUCH_BYTES: usize = 256;

const BOTH: u8 = bits::SPILL_RCX | bits::SPILL_R11;

impl Emitter<'_> {
    /// Rule 19 for an instruction of the body: what it mentions is brought back from the slots,
    /// then its operands are touched. Returns false where an address cannot be computed here.
    pub(super) fn watch_insn(&mut self, block: &Block, insn: &Insn, bytes: &[u8]) -> bool {
        if self.dcache.is_none() {
            return true;
        }
        let instruction = decode_one(block.pc.offset(u64::from(insn.offset)), bytes);
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&instruction);
        let mentioned = match insn.carry {
            Carry::Copy | Carry::RipRelative { .. } => mentioned(info),
            // These borrow registers themselves.
            Carry::AppGs | Carry::GsBase | Carry::StateSave(_) => BOTH,
        };
        self.release(self.before, mentioned);
        let touched = self.touch_operands(block, &instruction);
        if !matches!(insn.carry, Carry::Copy | Carry::RipRelative { .. }) {
            self.release(self.before, BOTH);
        } else {
            self.release(self.before, mentioned);
        }
        self.watch.executed(&instruction, info);
        touched
    }

    /// Rule 19, for each memory operand of the instruction at hand.
    fn touch_operands(&mut self, block: &Block, instruction: &Instruction) -> bool {
        let Some(counts) = self.dcache else { return true };
        let pc = AppPc(instruction.ip());
        let operands = operands::of(instruction);
        operands.iter().all(|operand| self.touch(block.pc, pc, operand, counts))
    }

    /// The same for a terminator. Registers that it does not mention stay in their slots where it
    /// is going to borrow them anyway.
    pub fn touch_terminator(&mut self, block: &Block, borrows: bool) -> bool {
        if self.dcache.is_none() {
            return true;
        }
        let offset = usize::from(block.terminator_offset);
        let instruction = decode_one(block.terminator_pc(), &block.bytes[offset..]);
        let mut factory = InstructionInfoFactory::new();
        let mentioned = mentioned(factory.info(&instruction));
        self.release(self.before_bits(), mentioned);
        let touched = self.touch_operands(block, &instruction);
        self.release(self.before_bits(), if borrows { mentioned } else { BOTH });
        touched
    }

    /// Brings registers that are held in their slots back, as `bits` says.
    pub(super) fn release(&mut self, state: u8, bits: u8) {
        let held = self.watch.held;
        if held & bits != 0 {
            // The instruction before has been executed.
            self.point(state);
        }
        if held & bits & bits::SPILL_R11 != 0 {
            self.reload_r11();
            self.watch.held &= !bits::SPILL_R11;
            self.point(state);
        }
        if held & bits & bits::SPILL_RCX != 0 {
            self.reload_rcx();
            self.watch.held &= !bits::SPILL_RCX;
            self.point(state);
        }
    }

    /// Puts registers into their slots, as `bits` says, and holds them there.
    pub(super) fn hold(&mut self, state: u8, bits: u8) {
        let missing = bits & !self.watch.held;
        self.point(state);
        if missing & bits::SPILL_RCX != 0 {
            self.spill_rcx();
            self.watch.held |= bits::SPILL_RCX;
            self.point(state);
        }
        if missing & bits::SPILL_R11 != 0 {
            self.spill_r11();
            self.watch.held |= bits::SPILL_R11;
            self.point(state);
        }
    }

    /// ```text
    /// Target:  an access of n bytes at a
    /// Patch:   slot := r11; r11 := sets[set of a] + a; r11 > line - n --> stub
    /// ```
    ///
    /// First in a set is the negated address of the line that was used last in it. Where rcx or
    /// flags are needed:
    ///
    /// ```text
    ///          slot := rcx; slot := r11; rcx := a; r11 := sets[set of a]
    ///          flags are dead:  r11 := r11 + rcx; r11 > line - n --> stub
    ///          else:            rcx := line of (rcx + r11 + n - 1); rcx = 0 --> ok; jmp stub; ok:
    /// ```
    ///
    /// An access that spans two lines is compared with what is in the set of the first, and always
    /// goes to the stub. Registers stay in their slots until an instruction mentions them.
    fn touch(&mut self, block: AppPc, pc: AppPc, operand: &MemoryOperand, counts: bool) -> bool {
        if self.watch.knows(operand) {
            return true;
        }
        let state = self.before_bits();
        let Some(fragment) = self.fragment else { return false };
        let fits = operand.bytes <= self.watch.shape.line_bytes;
        let dead = fits && self.watch.dead >> self.index & 1 != 0;
        let in_rcx = dead && !is_simple(operand);
        let at = match dead {
            true if !in_rcx => self.compare_in_r11(operand, state),
            true => self.compare_in_both(operand, state),
            false => self.compare_without_flags(operand, state),
        };
        let Some(at) = at else { return false };
        let (app, index, ok) = (self.app, self.index, self.here());
        self.out.touches.push(Touch {
            at,
            fragment,
            block,
            pc,
            app,
            index,
            state: state | self.watch.held,
            operand: *operand,
            counts,
            dead,
            in_rcx,
            ok,
        });
        self.point(state);
        self.watch.learn(operand);
        true
    }

    /// The check with r11 alone. Returns where the displacement to the stub is.
    fn compare_in_r11(&mut self, operand: &MemoryOperand, state: u8) -> Option<usize> {
        self.hold(state, bits::SPILL_R11);
        let MemoryOperand { base, index, scale, displacement, .. } = *operand;
        let part = |base, index, scale, displacement| MemoryOperand {
            base,
            index,
            scale,
            displacement,
            ..*operand
        };
        if index == Register::None && displacement == 0 {
            self.r11_from_set(base);
        } else if self.lea(Register::R11, operand) {
            self.r11_from_set(Register::R11);
        } else {
            return None;
        }
        let rest = match (base, index) {
            (base, Register::None) => part(base, Register::R11, 1, displacement),
            (_, index) => part(Register::R11, index, scale, displacement),
        };
        if !self.lea(Register::R11, &rest) {
            return None;
        }
        if base != Register::None && index != Register::None {
            self.add_to_r11(base);
        }
        Some(self.leave_if_outside(operand))
    }

    /// The check with rcx and r11.
    fn compare_in_both(&mut self, operand: &MemoryOperand, state: u8) -> Option<usize> {
        self.hold(state, BOTH);
        if !self.address(operand) {
            return None;
        }
        self.r11_from_set(Register::RCX);
        self.add_to_r11(Register::RCX);
        Some(self.leave_if_outside(operand))
    }

    /// The check where flags are alive.
    fn compare_without_flags(&mut self, operand: &MemoryOperand, state: u8) -> Option<usize> {
        self.hold(state, BOTH);
        if !self.address(operand) {
            return None;
        }
        self.r11_from_set_without_flags(Register::RCX);
        let last = MemoryOperand {
            base: Register::RCX,
            index: Register::R11,
            scale: 1,
            displacement: u64::from(operand.bytes - 1),
            ..*operand
        };
        if !self.lea(Register::RCX, &last) {
            return None;
        }
        // pext rcx, rcx, [line mask]
        self.bytes(&[0xc4, 0xe2, 0xf2, 0xf5, 0x0c, 0x25]);
        self.imm32(self.layout.line_mask() as u32);
        self.bytes(&[0xe3, 0x05, 0xe9]);
        let at = self.out.code.len();
        self.imm32(0);
        Some(at)
    }

    /// r11 := the line used last in the set of the address in `register`, where flags are dead
    fn r11_from_set(&mut self, register: Register) {
        if !self.watch.shape.is_direct() {
            return self.r11_from_set_without_flags(register);
        }
        if register != Register::R11 {
            self.mov_r11d(register);
        }
        self.and_r11d(self.watch.shape.set_mask);
        // mov r11, gs:[r11 + sets]
        self.bytes(&[0x65, 0x4d, 0x8b, 0x9b]);
        self.imm32(SETS_AT);
    }

    /// The same where flags are alive.
    fn r11_from_set_without_flags(&mut self, register: Register) {
        // pext r11, register, [set mask]
        let vvvv = !(register.number() as u8) & 0xf;
        self.bytes(&[0xc4, 0x62, 0x82 | vvvv << 3, 0xf5, 0x1c, 0x25]);
        self.imm32(self.layout.set_mask() as u32);
        // lea r11, [r11*8], and where sets are twice as long lea r11, [r11 + r11]
        match self.watch.shape.places & 0x40 != 0 {
            true => self.bytes(&[0x4e, 0x8d, 0x1c, 0xdd, 0, 0, 0, 0]),
            false => self.bytes(&[0x4e, 0x8d, 0x1c, 0xdd, 0, 0, 0, 0, 0x4f, 0x8d, 0x1c, 0x1b]),
        }
        // mov r11, gs:[r11*8 + sets]
        self.bytes(&[0x65, 0x4e, 0x8b, 0x1c, 0xdd]);
        self.imm32(SETS_AT);
    }

    /// `mov r11d, register`, its low half
    fn mov_r11d(&mut self, register: Register) {
        let (high, low) = register_bits(register.full_register());
        self.bytes(&[0x41 | high << 2, 0x89, 0xc3 | low << 3]);
    }

    /// `and r11d, mask`
    fn and_r11d(&mut self, mask: u32) {
        self.bytes(&[0x41, 0x81, 0xe3]);
        self.imm32(mask);
    }

    /// `add r11, register`
    fn add_to_r11(&mut self, register: Register) {
        let (high, low) = register_bits(register.full_register());
        self.bytes(&[0x49 | high << 2, 0x01, 0xc3 | low << 3]);
    }

    /// `cmp r11, line - n; ja stub`
    fn leave_if_outside(&mut self, operand: &MemoryOperand) -> usize {
        self.cmp_r11(self.watch.shape.line_bytes - operand.bytes);
        self.bytes(&[0x0f, 0x87]);
        let at = self.out.code.len();
        self.imm32(0);
        at
    }

    /// `cmp r11, most`
    fn cmp_r11(&mut self, most: u32) {
        match u8::try_from(most).ok().filter(|most| *most < 0x80) {
            Some(most) => self.bytes(&[0x49, 0x83, 0xfb, most]),
            None => {
                self.bytes(&[0x49, 0x81, 0xfb]);
                self.imm32(most);
            }
        }
    }

    /// `lea register, [operand]`, without its segment
    fn lea(&mut self, register: Register, operand: &MemoryOperand) -> bool {
        let displacement = operand.displacement as i64;
        let width = match displacement {
            0 => 0,
            -0x80..=0x7f => 1,
            _ => 8,
        };
        let memory = Operand::new(
            operand.base,
            operand.index,
            operand.scale.max(1),
            displacement,
            width,
            false,
            Register::None,
        );
        Instruction::with2(Code::Lea_r64_m, register, memory).is_ok_and(|lea| self.encode(&lea))
    }

    /// rcx := the operand's linear address; where it mentions rcx or r11, they still are
    /// themselves.
    fn address(&mut self, operand: &MemoryOperand) -> bool {
        let plain = operand.base == Register::None && operand.index == Register::None;
        if operand.relative {
            self.load_address(Register::RCX, operand.displacement);
        } else if plain {
            self.mov_rcx(operand.displacement);
        } else if !self.lea(Register::RCX, operand) {
            return false;
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

    /// The stub of an access: hands its address and its site to the routine that looks for the
    /// line.
    ///
    /// ```text
    /// Patch:   slot := rcx; rcx := a; r11 := site; jmp touch
    ///          site: jmp ok; pc, fragment, meta, index
    /// ```
    pub fn touch_stub(&mut self, touch: &Touch) -> CachePc {
        self.start_piece();
        (self.app, self.index) = (touch.app, touch.index);
        let stub = self.here();
        self.point(touch.state);
        if touch.state & bits::SPILL_RCX == 0 {
            self.spill_rcx();
            self.point(touch.state | BOTH);
        }
        self.touched_address(touch);
        // lea r11, [rip + 5]
        self.bytes(&[0x4c, 0x8d, 0x1d, 5, 0, 0, 0]);
        let lwp = &self.routines.lwp;
        let starts = if touch.dead { &lwp.touch_dead } else { &lwp.touch };
        let bytes = touch.operand.bytes;
        let start = starts.get(bytes.trailing_zeros() as usize);
        let routine = match start {
            Some(start) if bytes.is_power_of_two() && self.watch.shape.is_direct() => *start,
            _ => lwp.touch_any,
        };
        self.jump_to_routine(routine);
        self.point(touch.state);
        let counts = u32::from(touch.counts);
        let meta = touch.operand.bytes.min(0xfff) | (touch.operand.how as u32) << 12 | counts << 14;
        self.site(touch.ok, touch.pc, touch.fragment, meta);
        stub
    }

    /// A repeated string instruction. A routine makes sure that what it is going to access can be
    /// worked out afterwards by another, and asks the host otherwise.
    ///
    /// ```text
    /// Target:  rep movs
    /// Patch:   slot := rcx; slot := r11; r11 := site; jmp ready;  site: …; r11 := slot
    ///          rep movs
    ///          slot := rcx; slot := r11; r11 := site; jmp walk;   site: …; r11 := slot
    /// ```
    pub fn walked_repeat(&mut self, block: &Block) -> Result<(), ()> {
        let (Some(counts), Some(fragment)) = (self.dcache, self.fragment) else { return Err(()) };
        let instruction = &block.last;
        let bytes = instruction.memory_size().size() as u32;
        let source = match instruction.op1_kind() {
            OpKind::MemorySegRSI => META_SOURCE,
            _ => 0,
        };
        let meta = bytes | u32::from(counts) << 14 | source | META_REPEATS;
        self.point(0);
        self.leave_for(block.terminator_pc(), fragment, meta, self.routines.lwp.repeat_ready);
        self.bytes(&block.bytes[usize::from(block.terminator_offset)..]);
        self.executed(block, 0);
        self.leave_for(block.next(), fragment, meta, self.routines.lwp.repeat_walk);
        Ok(())
    }

    /// Has a routine work, which comes back here.
    fn leave_for(&mut self, pc: AppPc, fragment: FragmentId, meta: u32, routine: u32) {
        self.spill_rcx();
        self.point(bits::SPILL_RCX);
        self.spill_r11();
        self.point(BOTH);
        // lea r11, [rip + 5]
        self.bytes(&[0x4c, 0x8d, 0x1d, 5, 0, 0, 0]);
        self.jump_to_routine(routine);
        self.point(bits::SPILL_R11);
        let ok = CachePc(self.here().0 + site::BYTES as u64);
        self.site(ok, pc, fragment, meta);
        self.reload_r11();
        self.point(0);
    }

    /// Emits a site: the jump by which a routine goes on at `ok`, and the data that it wants.
    fn site(&mut self, ok: CachePc, pc: AppPc, fragment: FragmentId, meta: u32) {
        let site = self.out.code.len();
        self.jump_to(ok);
        debug_assert_eq!(self.out.code.len() - site, site::PC as usize);
        self.imm64(pc.0);
        self.relocated(Relocation::Address);
        self.imm32(fragment.0);
        self.relocated(Relocation::Fragment);
        self.imm32(meta);
        self.bytes(&[self.index]);
    }

    /// rcx := the access's address; rcx and r11 are in their slots, and need not be themselves.
    fn touched_address(&mut self, touch: &Touch) {
        if touch.in_rcx {
            return;
        }
        let MemoryOperand { base, index, .. } = touch.operand;
        let mentions = |register| [base, index].iter().any(|part| part.full_register() == register);
        if touch.state & bits::SPILL_RCX != 0 && mentions(Register::RCX) {
            self.reload_rcx();
        }
        if mentions(Register::R11) {
            self.reload_r11();
        }
        // It was computed once, so it can be again.
        let computed = self.address(&touch.operand);
        debug_assert!(computed, "an address that was computed before");
    }
}

/// Returns whether an operand's address is a sum of registers that the check with r11 alone can
/// use.
fn is_simple(operand: &MemoryOperand) -> bool {
    let parts = [operand.base, operand.index];
    operand.segment.is_none()
        && !operand.narrow
        && parts.iter().all(|part| part.full_register() != Register::R11)
        && parts.iter().any(|part| *part != Register::None)
}

/// State bits of the registers that an instruction reads or writes.
fn mentioned(info: &InstructionInfo) -> u8 {
    let bit = |register: Register| match register.full_register() {
        Register::RCX => bits::SPILL_RCX,
        Register::R11 => bits::SPILL_R11,
        _ => 0,
    };
    let used = info.used_registers().iter().map(|used| bit(used.register()));
    let parts = info.used_memory().iter().map(|used| bit(used.base()) | bit(used.index()));
    used.chain(parts).fold(0, |all, bit| all | bit)
}
