//! Rule 19: data cache accesses, where LWP counts misses.

use iced_x86::{
    Code, Instruction, InstructionInfo, InstructionInfoFactory, MemoryOperand as Operand, OpKind,
    Register,
};

use super::{Emitter, decode_one};
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
    /// Brings registers that are held in their slots back, as `bits` says.
    pub(super) fn release(&mut self, state: u8, bits: u8) {
        let held = self.watch.held;
        if held & bits != 0 {
            // The instruction before has been executed.
            self.point(state);
        }
        if held & bits & bits::SPILL_R11 != 0 {
            self.out.reload_r11();
            self.watch.held &= !bits::SPILL_R11;
            self.point(state);
        }
        if held & bits & bits::SPILL_RCX != 0 {
            self.out.reload_rcx();
            self.watch.held &= !bits::SPILL_RCX;
            self.point(state);
        }
    }

    /// Puts registers into their slots, as `bits` says, and holds them there.
    pub(super) fn hold(&mut self, state: u8, bits: u8) {
        let missing = bits & !self.watch.held;
        self.point(state);
        if missing & bits::SPILL_RCX != 0 {
            self.out.spill_rcx();
            self.watch.held |= bits::SPILL_RCX;
            self.point(state);
        }
        if missing & bits::SPILL_R11 != 0 {
            self.out.spill_r11();
            self.watch.held |= bits::SPILL_R11;
            self.point(state);
        }
    }
}

/// Rule 19 for an instruction of the body: what it mentions is brought back from the slots,
/// then its operands are touched. Returns false where an address cannot be computed here.
pub(super) fn watch_insn(
    emitter: &mut Emitter<'_>,
    block: &Block,
    insn: &Insn,
    bytes: &[u8],
) -> bool {
    if emitter.dcache.is_none() {
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
    emitter.release(emitter.charging.before, mentioned);
    let touched = touch_operands(emitter, block, &instruction);
    if !matches!(insn.carry, Carry::Copy | Carry::RipRelative { .. }) {
        emitter.release(emitter.charging.before, BOTH);
    } else {
        emitter.release(emitter.charging.before, mentioned);
    }
    emitter.watch.executed(&instruction, info);
    touched
}

/// Rule 19, for each memory operand of the instruction at hand.
fn touch_operands(emitter: &mut Emitter<'_>, block: &Block, instruction: &Instruction) -> bool {
    let Some(counts) = emitter.dcache else { return true };
    let pc = AppPc(instruction.ip());
    let operands = operands::of(instruction);
    operands.iter().all(|operand| touch(emitter, block.pc, pc, operand, counts))
}

/// Rule 19, for each memory operand of a terminator. Registers that it does not mention stay in
/// their slots where it is going to borrow them anyway.
pub fn touch_terminator(emitter: &mut Emitter<'_>, block: &Block, borrows: bool) -> bool {
    if emitter.dcache.is_none() {
        return true;
    }
    let offset = usize::from(block.terminator_offset);
    let instruction = decode_one(block.terminator_pc(), &block.bytes[offset..]);
    let mut factory = InstructionInfoFactory::new();
    let mentioned = mentioned(factory.info(&instruction));
    emitter.release(emitter.before_bits(), mentioned);
    let touched = touch_operands(emitter, block, &instruction);
    emitter.release(emitter.before_bits(), if borrows { mentioned } else { BOTH });
    touched
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
fn touch(
    emitter: &mut Emitter<'_>,
    block: AppPc,
    pc: AppPc,
    operand: &MemoryOperand,
    counts: bool,
) -> bool {
    if emitter.watch.knows(operand) {
        return true;
    }
    let state = emitter.before_bits();
    let Some(fragment) = emitter.fragment else { return false };
    let fits = operand.bytes <= emitter.watch.shape.line_bytes;
    let dead = fits && emitter.watch.dead >> emitter.place.index & 1 != 0;
    let in_rcx = dead && !is_simple(operand);
    let at = match dead {
        true if !in_rcx => compare_in_r11(emitter, operand, state),
        true => compare_in_both(emitter, operand, state),
        false => compare_without_flags(emitter, operand, state),
    };
    let Some(at) = at else { return false };
    let (app, index, ok) = (emitter.place.app, emitter.place.index, emitter.here());
    emitter.out.touches.push(Touch {
        at,
        fragment,
        block,
        pc,
        app,
        index,
        state: state | emitter.watch.held,
        operand: *operand,
        counts,
        dead,
        in_rcx,
        ok,
    });
    emitter.point(state);
    emitter.watch.learn(operand);
    true
}

/// The check with r11 alone. Returns where the displacement to the stub is.
fn compare_in_r11(emitter: &mut Emitter<'_>, operand: &MemoryOperand, state: u8) -> Option<usize> {
    emitter.hold(state, bits::SPILL_R11);
    let MemoryOperand { base, index, scale, displacement, .. } = *operand;
    let part = |base, index, scale, displacement| MemoryOperand {
        base,
        index,
        scale,
        displacement,
        ..*operand
    };
    if index == Register::None && displacement == 0 {
        r11_from_set(emitter, base);
    } else if lea(emitter, Register::R11, operand) {
        r11_from_set(emitter, Register::R11);
    } else {
        return None;
    }
    let rest = match (base, index) {
        (base, Register::None) => part(base, Register::R11, 1, displacement),
        (_, index) => part(Register::R11, index, scale, displacement),
    };
    if !lea(emitter, Register::R11, &rest) {
        return None;
    }
    if base != Register::None && index != Register::None {
        emitter.out.add_to_r11(base);
    }
    Some(leave_if_outside(emitter, operand))
}

/// The check with rcx and r11.
fn compare_in_both(emitter: &mut Emitter<'_>, operand: &MemoryOperand, state: u8) -> Option<usize> {
    emitter.hold(state, BOTH);
    if !address(emitter, operand) {
        return None;
    }
    r11_from_set(emitter, Register::RCX);
    emitter.out.add_to_r11(Register::RCX);
    Some(leave_if_outside(emitter, operand))
}

/// The check where flags are alive.
fn compare_without_flags(
    emitter: &mut Emitter<'_>,
    operand: &MemoryOperand,
    state: u8,
) -> Option<usize> {
    emitter.hold(state, BOTH);
    if !address(emitter, operand) {
        return None;
    }
    r11_from_set_without_flags(emitter, Register::RCX);
    let last = MemoryOperand {
        base: Register::RCX,
        index: Register::R11,
        scale: 1,
        displacement: u64::from(operand.bytes - 1),
        ..*operand
    };
    if !lea(emitter, Register::RCX, &last) {
        return None;
    }
    // pext rcx, rcx, [line mask]
    emitter.out.bytes(&[0xc4, 0xe2, 0xf2, 0xf5, 0x0c, 0x25]);
    emitter.out.imm32(emitter.layout.line_mask() as u32);
    emitter.out.bytes(&[0xe3, 0x05, 0xe9]);
    let at = emitter.out.code.len();
    emitter.out.imm32(0);
    Some(at)
}

/// r11 := the line used last in the set of the address in `register`, where flags are dead
fn r11_from_set(emitter: &mut Emitter<'_>, register: Register) {
    if !emitter.watch.shape.is_direct() {
        return r11_from_set_without_flags(emitter, register);
    }
    if register != Register::R11 {
        emitter.out.mov_r11d(register);
    }
    emitter.out.and_r11d(emitter.watch.shape.set_mask);
    // mov r11, gs:[r11 + sets]
    emitter.out.bytes(&[0x65, 0x4d, 0x8b, 0x9b]);
    emitter.out.imm32(SETS_AT);
}

/// r11 := the line used last in the set of the address in `register`, where flags are alive
fn r11_from_set_without_flags(emitter: &mut Emitter<'_>, register: Register) {
    // pext r11, register, [set mask]
    let vvvv = !(register.number() as u8) & 0xf;
    emitter.out.bytes(&[0xc4, 0x62, 0x82 | vvvv << 3, 0xf5, 0x1c, 0x25]);
    emitter.out.imm32(emitter.layout.set_mask() as u32);
    // lea r11, [r11*8], and where sets are twice as long lea r11, [r11 + r11]
    match emitter.watch.shape.places & 0x40 != 0 {
        true => emitter.out.bytes(&[0x4e, 0x8d, 0x1c, 0xdd, 0, 0, 0, 0]),
        false => emitter.out.bytes(&[0x4e, 0x8d, 0x1c, 0xdd, 0, 0, 0, 0, 0x4f, 0x8d, 0x1c, 0x1b]),
    }
    // mov r11, gs:[r11*8 + sets]
    emitter.out.bytes(&[0x65, 0x4e, 0x8b, 0x1c, 0xdd]);
    emitter.out.imm32(SETS_AT);
}

/// `cmp r11, line - n; ja stub`
fn leave_if_outside(emitter: &mut Emitter<'_>, operand: &MemoryOperand) -> usize {
    emitter.out.cmp_r11(emitter.watch.shape.line_bytes - operand.bytes);
    emitter.out.bytes(&[0x0f, 0x87]);
    let at = emitter.out.code.len();
    emitter.out.imm32(0);
    at
}

/// `lea register, [operand]`, without its segment
fn lea(emitter: &mut Emitter<'_>, register: Register, operand: &MemoryOperand) -> bool {
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
    Instruction::with2(Code::Lea_r64_m, register, memory).is_ok_and(|lea| emitter.encode(&lea))
}

/// rcx := the operand's linear address; where it mentions rcx or r11, they still are
/// themselves.
fn address(emitter: &mut Emitter<'_>, operand: &MemoryOperand) -> bool {
    let plain = operand.base == Register::None && operand.index == Register::None;
    if operand.relative {
        emitter.load_address(Register::RCX, operand.displacement);
    } else if plain {
        emitter.out.mov_rcx(operand.displacement);
    } else if !lea(emitter, Register::RCX, operand) {
        return false;
    }
    match operand.segment {
        None => return true,
        // rdfsbase r11
        Some(Register::FS) => emitter.out.bytes(&[0xf3, 0x49, 0x0f, 0xae, 0xc3]),
        // mov r11, gs:[app gs]
        Some(_) => {
            emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
            emitter.out.imm32(Slot::AppGs as u32);
        }
    }
    emitter.out.lea_rcx_rcx_r11();
    true
}

/// The stub of an access: hands its address and its site to the routine that looks for the
/// line.
///
/// ```text
/// Patch:   slot := rcx; rcx := a; r11 := site; jmp touch
///          site: jmp ok; pc, fragment, meta, index
/// ```
pub fn touch_stub(emitter: &mut Emitter<'_>, touch: &Touch) -> CachePc {
    emitter.start_piece();
    (emitter.place.app, emitter.place.index) = (touch.app, touch.index);
    let stub = emitter.here();
    emitter.point(touch.state);
    if touch.state & bits::SPILL_RCX == 0 {
        emitter.out.spill_rcx();
        emitter.point(touch.state | BOTH);
    }
    touched_address(emitter, touch);
    // lea r11, [rip + 5]
    emitter.out.bytes(&[0x4c, 0x8d, 0x1d, 5, 0, 0, 0]);
    let touches = &emitter.routines.lwp.touches;
    let starts = if touch.dead { &touches.quick_dead } else { &touches.quick };
    let bytes = touch.operand.bytes;
    let start = starts.get(bytes.trailing_zeros() as usize);
    let routine = match start {
        Some(start) if bytes.is_power_of_two() && emitter.watch.shape.is_direct() => *start,
        _ => touches.any,
    };
    emitter.jump_to_routine(routine);
    emitter.point(touch.state);
    let counts = u32::from(touch.counts);
    let meta = touch.operand.bytes.min(0xfff) | (touch.operand.how as u32) << 12 | counts << 14;
    site(emitter, touch.ok, touch.pc, touch.fragment, meta);
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
pub fn walked_repeat(emitter: &mut Emitter<'_>, block: &Block) -> Result<(), ()> {
    let (Some(counts), Some(fragment)) = (emitter.dcache, emitter.fragment) else { return Err(()) };
    let instruction = &block.last;
    let bytes = instruction.memory_size().size() as u32;
    let source = match instruction.op1_kind() {
        OpKind::MemorySegRSI => META_SOURCE,
        _ => 0,
    };
    let meta = bytes | u32::from(counts) << 14 | source | META_REPEATS;
    emitter.point(0);
    leave_for(
        emitter,
        block.terminator_pc(),
        fragment,
        meta,
        emitter.routines.lwp.touches.repeat_ready,
    );
    emitter.out.bytes(&block.bytes[usize::from(block.terminator_offset)..]);
    emitter.executed(block, 0);
    leave_for(emitter, block.next(), fragment, meta, emitter.routines.lwp.touches.repeat_walk);
    Ok(())
}

/// Has a routine work, which comes back here.
fn leave_for(emitter: &mut Emitter<'_>, pc: AppPc, fragment: FragmentId, meta: u32, routine: u32) {
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    emitter.out.spill_r11();
    emitter.point(BOTH);
    // lea r11, [rip + 5]
    emitter.out.bytes(&[0x4c, 0x8d, 0x1d, 5, 0, 0, 0]);
    emitter.jump_to_routine(routine);
    emitter.point(bits::SPILL_R11);
    let ok = CachePc(emitter.here().0 + site::BYTES as u64);
    site(emitter, ok, pc, fragment, meta);
    emitter.out.reload_r11();
    emitter.point(0);
}

/// Emits a site: the jump by which a routine goes on at `ok`, and the data that it wants.
fn site(emitter: &mut Emitter<'_>, ok: CachePc, pc: AppPc, fragment: FragmentId, meta: u32) {
    let site = emitter.out.code.len();
    emitter.jump_to(ok);
    debug_assert_eq!(emitter.out.code.len() - site, site::PC as usize);
    emitter.out.imm64(pc.0);
    emitter.out.relocated(Relocation::Address);
    emitter.out.imm32(fragment.0);
    emitter.out.relocated(Relocation::Fragment);
    emitter.out.imm32(meta);
    emitter.out.bytes(&[emitter.place.index]);
}

/// rcx := the access's address; rcx and r11 are in their slots, and need not be themselves.
fn touched_address(emitter: &mut Emitter<'_>, touch: &Touch) {
    if touch.in_rcx {
        return;
    }
    let MemoryOperand { base, index, .. } = touch.operand;
    let mentions = |register| [base, index].iter().any(|part| part.full_register() == register);
    if touch.state & bits::SPILL_RCX != 0 && mentions(Register::RCX) {
        emitter.out.reload_rcx();
    }
    if mentions(Register::R11) {
        emitter.out.reload_r11();
    }
    // It was computed once, so it can be again.
    let computed = address(emitter, &touch.operand);
    debug_assert!(computed, "an address that was computed before");
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
