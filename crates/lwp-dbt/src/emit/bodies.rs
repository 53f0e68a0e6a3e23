//! Rules 1 to 4 and 15: all instructions of a block except its last.

use iced_x86::{Code, Encoder, Instruction, MemorySize, Register};

use super::{Charge, Emitter, calls, dcache, decode_one, heads, register_bits, trace};
use crate::addr::AppPc;
use crate::block::{Block, Carry, Insn};
use crate::context::Slot;
use crate::relocation::Relocation;
use crate::state_map::bits;

impl Emitter<'_> {
    pub(super) fn encode(&mut self, instruction: &Instruction) -> bool {
        let mut encoder = Encoder::new(64);
        if encoder.encode(instruction, self.here().0).is_err() {
            return false;
        }
        let bytes = encoder.take_buffer();
        self.out.bytes(&bytes);
        true
    }
}

/// Carries over the instructions before the terminator. Returns false where one cannot be
/// reached from here, which makes the block untranslatable at this address.
pub fn body(emitter: &mut Emitter<'_>, block: &Block, charge: Option<Charge>) -> bool {
    let uncharged = if emitter.charging.by_host { bits::UNCOUNTED } else { 0 };
    emitter.charging.before = charge.map_or(uncharged, |charge| charge.before);
    emitter.charging.first = false;
    if emitter.dcache.is_some() {
        emitter.watch.dead = block.dead_points(emitter.watch.dead_after);
    }
    for (index, insn) in block.insns.iter().enumerate() {
        emitter.place.app = insn.offset as u8;
        emitter.place.index = index as u8;
        charge_at(emitter, charge, index);
        emitter.point(emitter.charging.before);
        let start = usize::from(insn.offset);
        let bytes = &block.bytes[start..start + usize::from(insn.len)];
        if let (Some((value, first)), Some(id)) = (emitter.value.take(), emitter.fragment) {
            calls::counted_value(emitter, block, id, first, &value);
        }
        if !dcache::watch_insn(emitter, block, insn, bytes) {
            return false;
        }
        let ok = match insn.carry {
            Carry::Copy => {
                emitter.out.bytes(bytes);
                true
            }
            Carry::RipRelative { displacement_at, operand } => {
                rip_relative(emitter, bytes, displacement_at, operand)
                    || far_operand(emitter, block, insn, bytes, operand)
            }
            Carry::AppGs => app_gs(emitter, block, insn, bytes),
            Carry::GsBase => gs_base(emitter, insn, bytes),
            Carry::StateSave(relative) => state_save(emitter, insn, bytes, relative),
        };
        if !ok {
            return false;
        }
    }
    emitter.place.app = block.terminator_offset as u8;
    emitter.place.index = block.insns.len() as u8;
    if !block.touches_before_its_end() {
        emitter.release(emitter.charging.before, bits::SPILL_RCX | bits::SPILL_R11);
    }
    match charge {
        Some(charge) if charge.in_terminator => emitter.charging.deferred = Some(charge),
        _ => {
            charge_at(emitter, charge, block.insns.len());
            emitter.charging.before = 0;
        }
    }
    true
}

/// Charges the fragment if this is the place.
pub(super) fn charge_at(emitter: &mut Emitter<'_>, charge: Option<Charge>, index: usize) {
    if let Some(charge) = charge
        && charge.at == index
        && !charge.in_terminator
    {
        let Charge { counter, flags_dead, before, .. } = charge;
        match charge.run {
            Some(run) => {
                heads::count_between(emitter, counter, flags_dead, before, bits::UNSUMMED);
                trace::add_run(emitter, counter, run, flags_dead);
            }
            None => heads::count(emitter, counter, flags_dead, before),
        }
        emitter.charging.before = 0;
        emitter.charging.first = index == 0;
    }
}

/// Charges the fragment in rcx, which the terminator has borrowed for its target and not loaded
/// yet; where the target's operand needs it, it has its own value again afterwards.
pub(super) fn charge_in_terminator(emitter: &mut Emitter<'_>, needed: bool) {
    let Some(charge) = emitter.charging.deferred.take() else { return };
    heads::count_in_rcx(emitter, charge.counter);
    if let Some(run) = charge.run {
        emitter.point(bits::UNSUMMED | bits::SPILL_RCX);
        trace::add_run_in_rcx(emitter, charge.counter, run);
    }
    emitter.charging.before = 0;
    emitter.point(bits::SPILL_RCX);
    if needed {
        emitter.out.reload_rcx();
    }
}

/// Rule 2. Returns false, and emits nothing, where the operand is out of reach.
pub(super) fn rip_relative(
    emitter: &mut Emitter<'_>,
    bytes: &[u8],
    displacement_at: u8,
    operand: u64,
) -> bool {
    let next = emitter.base + (emitter.out.code.len() + bytes.len()) as u64;
    let Ok(displacement) = i32::try_from(operand.wrapping_sub(next) as i64) else {
        return false;
    };
    let at = emitter.out.code.len() + usize::from(displacement_at);
    emitter.out.bytes(bytes);
    emitter.out.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
    emitter.out.relocations.push((at, Relocation::Application));
    true
}

/// Rule 2 where the operand is out of reach.
///
/// ```text
/// Target:  op  [rip + disp]
/// Patch:   slot := T; T := address of the operand; op [T]; T := slot
/// ```
fn far_operand(
    emitter: &mut Emitter<'_>,
    block: &Block,
    insn: &Insn,
    bytes: &[u8],
    operand: u64,
) -> bool {
    let pc = block.pc.offset(u64::from(insn.offset));
    let mut instruction = decode_one(pc, bytes);
    let Some(borrowed) = unused_register(&instruction) else { return false };
    borrow(emitter, borrowed);
    emitter.out.mov_address(borrowed.register, operand);
    instruction.set_memory_base(borrowed.register);
    instruction.set_memory_displ_size(0);
    instruction.set_memory_displacement64(0);
    emitter.encode(&instruction) && give_back(emitter, borrowed, insn)
}

/// Rule 3.
///
/// ```text
/// Target:  op  gs:[base + index*scale + disp]
/// Patch:   slot := T; T := context.app_gs; T := T + base; op [T + index*scale + disp]; T := slot
/// ```
pub(super) fn app_gs(emitter: &mut Emitter<'_>, block: &Block, insn: &Insn, bytes: &[u8]) -> bool {
    let pc = block.pc.offset(u64::from(insn.offset));
    let mut instruction = decode_one(pc, bytes);
    let Some(borrowed) = unused_register(&instruction) else { return false };
    let temp = borrowed.register;
    borrow(emitter, borrowed);
    let (rex_reg, low) = register_bits(temp);
    // mov T, gs:[app_gs]
    emitter.out.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x8b, 0x04 | (low << 3), 0x25]);
    emitter.out.imm32(Slot::AppGs as u32);
    if instruction.memory_base() != Register::None {
        // rsp cannot be an index: the roles are swapped.
        let (base, index) = match instruction.memory_base() {
            Register::RSP => (Register::RSP, temp),
            base => (temp, base),
        };
        let operand = iced_x86::MemoryOperand::with_base_index(base, index);
        let Ok(lea) = Instruction::with2(Code::Lea_r64_m, temp, operand) else { return false };
        if !emitter.encode(&lea) {
            return false;
        }
    }
    instruction.set_segment_prefix(Register::None);
    instruction.set_memory_base(temp);
    if instruction.memory_displ_size() == 0 || instruction.memory_displ_size() == 8 {
        instruction.set_memory_displ_size(1);
    }
    if instruction.memory_size() == MemorySize::Unknown && instruction.code() == Code::INVALID {
        return false;
    }
    emitter.encode(&instruction) && give_back(emitter, borrowed, insn)
}

/// `mov gs:[slot], T`
fn borrow(emitter: &mut Emitter<'_>, Borrowed { register, slot, spill }: Borrowed) {
    let (rex_reg, low) = register_bits(register);
    emitter.out.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x89, 0x04 | (low << 3), 0x25]);
    emitter.out.imm32(slot as u32);
    emitter.point(emitter.charging.before | spill);
}

/// `mov T, gs:[slot]`. The instruction has been executed: the state is that of the next one.
fn give_back(
    emitter: &mut Emitter<'_>,
    Borrowed { register, slot, spill }: Borrowed,
    insn: &Insn,
) -> bool {
    let (rex_reg, low) = register_bits(register);
    emitter.place.app += insn.len;
    emitter.place.index += 1;
    emitter.point(emitter.charging.before | spill);
    emitter.out.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x8b, 0x04 | (low << 3), 0x25]);
    emitter.out.imm32(slot as u32);
    true
}

/// Rule 15.
///
/// ```text
/// Target:  xsave [m]                    -- components in edx:eax, of those in the real XCR0
/// Patch:   slot := rax
///          eax := pdep(pext(eax, mask), mask)    -- eax & mask, flags untouched
///          xsave [m]; rax := slot
/// ```
pub(super) fn state_save(
    emitter: &mut Emitter<'_>,
    insn: &Insn,
    bytes: &[u8],
    relative: Option<(u8, u64)>,
) -> bool {
    emitter.out.bytes(&[0x65, 0x48, 0x89, 0x04, 0x25]);
    emitter.out.imm32(Slot::Rax as u32);
    emitter.point(emitter.charging.before | bits::SPILL_RAX);
    // pext eax, eax, gs:[mask]; pdep eax, eax, gs:[mask]
    emitter.out.bytes(&[0x65, 0xc4, 0xe2, 0x7a, 0xf5, 0x04, 0x25]);
    emitter.out.imm32(Slot::StateMask as u32);
    emitter.out.bytes(&[0x65, 0xc4, 0xe2, 0x7b, 0xf5, 0x04, 0x25]);
    emitter.out.imm32(Slot::StateMask as u32);
    let ok = match relative {
        Some((at, operand)) => rip_relative(emitter, bytes, at, operand),
        None => {
            emitter.out.bytes(bytes);
            true
        }
    };
    emitter.place.app += insn.len;
    emitter.place.index += 1;
    emitter.point(emitter.charging.before | bits::SPILL_RAX);
    emitter.out.bytes(&[0x65, 0x48, 0x8b, 0x04, 0x25]);
    emitter.out.imm32(Slot::Rax as u32);
    ok
}

/// Rule 4. A base that is no address must fault, so the processor gets it for a moment.
///
/// ```text
/// Target:  rdgsbase r            wrgsbase r
/// Patch:   r := slot             spill s; s := gs base; gs base := r; gs base := s
///                                slot := r; reload s
/// ```
pub(super) fn gs_base(emitter: &mut Emitter<'_>, insn: &Insn, bytes: &[u8]) -> bool {
    let instruction = decode_one(AppPc(0), bytes);
    let register = instruction.op0_register();
    let (rex_reg, low) = register_bits(register.full_register());
    if matches!(instruction.code(), Code::Rdgsbase_r32 | Code::Rdgsbase_r64) {
        let rex = 0x40 | (u8::from(register.is_gpr64()) << 3) | (rex_reg << 2);
        emitter.out.bytes(&[0x65, rex, 0x8b, 0x04 | (low << 3), 0x25]);
        emitter.out.imm32(Slot::AppGs as u32);
        return true;
    }
    let (spill, rex) = match register.full_register() {
        Register::RCX => (bits::SPILL_R11, 1),
        _ => (bits::SPILL_RCX, 0),
    };
    let other = if rex == 1 { 3 } else { 1 };
    match rex {
        1 => emitter.out.spill_r11(),
        _ => emitter.out.spill_rcx(),
    }
    emitter.point(emitter.charging.before | spill);
    // rdgsbase s; wrgsbase r; wrgsbase s
    emitter.out.bytes(&[0xf3, 0x48 | rex, 0x0f, 0xae, 0xc8 | other]);
    emitter.out.bytes(bytes);
    emitter.out.bytes(&[0xf3, 0x48 | rex, 0x0f, 0xae, 0xd8 | other]);
    // mov gs:[app_gs], r
    emitter.out.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x89, 0x04 | (low << 3), 0x25]);
    emitter.out.imm32(Slot::AppGs as u32);
    if !register.is_gpr64() {
        // mov dword gs:[app_gs + 4], 0
        emitter.out.bytes(&[0x65, 0xc7, 0x04, 0x25]);
        emitter.out.imm32(Slot::AppGs as u32 + 4);
        emitter.out.imm32(0);
    }
    emitter.place.app += insn.len;
    emitter.place.index += 1;
    emitter.point(emitter.charging.before | spill);
    match rex {
        1 => emitter.out.reload_r11(),
        _ => emitter.out.reload_rcx(),
    }
    true
}

/// A register that an instruction does not mention, with its spill slot and state bit.
#[derive(Clone, Copy)]
struct Borrowed {
    register: Register,
    slot: Slot,
    spill: u8,
}

/// Returns a register to borrow around `instruction`.
fn unused_register(instruction: &Instruction) -> Option<Borrowed> {
    let mut factory = iced_x86::InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let used = |register: Register| {
        info.used_registers().iter().any(|used| used.register().full_register() == register)
            || info.used_memory().iter().any(|memory| {
                memory.base().full_register() == register
                    || memory.index().full_register() == register
            })
    };
    // ah, ch, dh and bh cannot be encoded together with r11.
    let high = (0..instruction.op_count()).any(|op| {
        matches!(
            instruction.op_register(op),
            Register::AH | Register::CH | Register::DH | Register::BH
        )
    });
    [
        (Register::RCX, Slot::Rcx, bits::SPILL_RCX),
        (Register::R11, Slot::R11, bits::SPILL_R11),
        (Register::RAX, Slot::Rax, bits::SPILL_RAX),
    ]
    .into_iter()
    .find(|(register, ..)| !(used(*register) || high && *register == Register::R11))
    .map(|(register, slot, spill)| Borrowed { register, slot, spill })
}
