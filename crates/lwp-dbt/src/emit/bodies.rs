//! Rules 1 to 4 and 15: the instructions of a block before its last.

use iced_x86::{Code, Encoder, Instruction, MemorySize, Register};

use super::{Charge, Emitter, decode_one, register_bits};
use crate::addr::AppPc;
use crate::block::{Block, Carry, Insn};
use crate::context::Slot;
use crate::relocation::Relocation;
use crate::state_map::bits;

impl Emitter<'_> {
    /// Carries over the instructions before the terminator. Returns false where one cannot be
    /// reached from here, which makes the block untranslatable at this address.
    pub fn body(&mut self, block: &Block, charge: Option<Charge>) -> bool {
        let uncharged = if self.uncharged { bits::UNCOUNTED } else { 0 };
        self.before = charge.map_or(uncharged, |charge| charge.before);
        self.charged_first = false;
        if self.dcache.is_some() {
            self.watch.dead = block.dead_points(self.watch.dead_after);
        }
        for (index, insn) in block.insns.iter().enumerate() {
            self.app = insn.offset as u8;
            self.index = index as u8;
            self.charge(charge, index);
            self.point(self.before);
            let start = usize::from(insn.offset);
            let bytes = &block.bytes[start..start + usize::from(insn.len)];
            if let (Some((value, first)), Some(id)) = (self.value.take(), self.fragment) {
                self.counted_value(block, id, first, &value);
            }
            if !self.watch_insn(block, insn, bytes) {
                return false;
            }
            let ok = match insn.carry {
                Carry::Copy => {
                    self.bytes(bytes);
                    true
                }
                Carry::RipRelative { displacement_at, operand } => {
                    self.rip_relative(bytes, displacement_at, operand)
                        || self.far_operand(block, insn, bytes, operand)
                }
                Carry::AppGs => self.app_gs(block, insn, bytes),
                Carry::GsBase => self.gs_base(insn, bytes),
                Carry::StateSave(relative) => self.state_save(insn, bytes, relative),
            };
            if !ok {
                return false;
            }
        }
        self.app = block.terminator_offset as u8;
        self.index = block.insns.len() as u8;
        if !block.touches_before_its_end() {
            self.release(self.before, bits::SPILL_RCX | bits::SPILL_R11);
        }
        match charge {
            Some(charge) if charge.in_terminator => self.deferred = Some(charge),
            _ => {
                self.charge(charge, block.insns.len());
                self.before = 0;
            }
        }
        true
    }

    /// Charges the fragment if this is the place.
    pub(super) fn charge(&mut self, charge: Option<Charge>, index: usize) {
        if let Some(charge) = charge
            && charge.at == index
            && !charge.in_terminator
        {
            self.count(charge.counter, charge.flags_dead, charge.before);
            self.before = 0;
            self.charged_first = index == 0;
        }
    }

    /// Charges the fragment in rcx, which the terminator has borrowed for its target and not loaded
    /// yet; where the target's operand needs it, it has its own value again afterwards.
    pub(super) fn charge_in_terminator(&mut self, needed: bool) {
        let Some(charge) = self.deferred.take() else { return };
        self.count_in_rcx(charge.counter);
        self.before = 0;
        self.point(bits::SPILL_RCX);
        if needed {
            self.reload_rcx();
        }
    }

    /// Rule 2. Returns false, and emits nothing, where the operand is out of reach.
    pub(super) fn rip_relative(&mut self, bytes: &[u8], displacement_at: u8, operand: u64) -> bool {
        let next = self.base + (self.out.code.len() + bytes.len()) as u64;
        let Ok(displacement) = i32::try_from(operand.wrapping_sub(next) as i64) else {
            return false;
        };
        let at = self.out.code.len() + usize::from(displacement_at);
        self.bytes(bytes);
        self.out.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
        self.out.relocations.push((at, Relocation::Application));
        true
    }

    /// Rule 2 where the operand is out of reach.
    ///
    /// ```text
    /// Target:  op  [rip + disp]
    /// Patch:   slot := T; T := address of the operand; op [T]; T := slot
    /// ```
    fn far_operand(&mut self, block: &Block, insn: &Insn, bytes: &[u8], operand: u64) -> bool {
        let pc = block.pc.offset(u64::from(insn.offset));
        let mut instruction = decode_one(pc, bytes);
        let Some(borrowed) = unused_register(&instruction) else { return false };
        self.borrow(borrowed);
        self.mov_address(borrowed.register, operand);
        instruction.set_memory_base(borrowed.register);
        instruction.set_memory_displ_size(0);
        instruction.set_memory_displacement64(0);
        self.encode(&instruction) && self.give_back(borrowed, insn)
    }

    /// Rule 3.
    ///
    /// ```text
    /// Target:  op  gs:[base + index*scale + disp]
    /// Patch:   slot := T; T := context.app_gs; T := T + base; op [T + index*scale + disp]; T := slot
    /// ```
    pub(super) fn app_gs(&mut self, block: &Block, insn: &Insn, bytes: &[u8]) -> bool {
        let pc = block.pc.offset(u64::from(insn.offset));
        let mut instruction = decode_one(pc, bytes);
        let Some(borrowed) = unused_register(&instruction) else { return false };
        let temp = borrowed.register;
        self.borrow(borrowed);
        let (rex_reg, low) = register_bits(temp);
        // mov T, gs:[app_gs]
        self.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x8b, 0x04 | (low << 3), 0x25]);
        self.imm32(Slot::AppGs as u32);
        if instruction.memory_base() != Register::None {
            // rsp cannot be an index: the roles are swapped.
            let (base, index) = match instruction.memory_base() {
                Register::RSP => (Register::RSP, temp),
                base => (temp, base),
            };
            let operand = iced_x86::MemoryOperand::with_base_index(base, index);
            let Ok(lea) = Instruction::with2(Code::Lea_r64_m, temp, operand) else { return false };
            if !self.encode(&lea) {
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
        self.encode(&instruction) && self.give_back(borrowed, insn)
    }

    /// `mov gs:[slot], T`
    fn borrow(&mut self, Borrowed { register, slot, spill }: Borrowed) {
        let (rex_reg, low) = register_bits(register);
        self.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x89, 0x04 | (low << 3), 0x25]);
        self.imm32(slot as u32);
        self.point(self.before | spill);
    }

    /// `mov T, gs:[slot]`. The instruction has been executed: the state is that of the next one.
    fn give_back(&mut self, Borrowed { register, slot, spill }: Borrowed, insn: &Insn) -> bool {
        let (rex_reg, low) = register_bits(register);
        self.app += insn.len;
        self.index += 1;
        self.point(self.before | spill);
        self.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x8b, 0x04 | (low << 3), 0x25]);
        self.imm32(slot as u32);
        true
    }

    pub(super) fn encode(&mut self, instruction: &Instruction) -> bool {
        let mut encoder = Encoder::new(64);
        if encoder.encode(instruction, self.here().0).is_err() {
            return false;
        }
        let bytes = encoder.take_buffer();
        self.bytes(&bytes);
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
        &mut self,
        insn: &Insn,
        bytes: &[u8],
        relative: Option<(u8, u64)>,
    ) -> bool {
        self.bytes(&[0x65, 0x48, 0x89, 0x04, 0x25]);
        self.imm32(Slot::Rax as u32);
        self.point(self.before | bits::SPILL_RAX);
        // pext eax, eax, gs:[mask]; pdep eax, eax, gs:[mask]
        self.bytes(&[0x65, 0xc4, 0xe2, 0x7a, 0xf5, 0x04, 0x25]);
        self.imm32(Slot::StateMask as u32);
        self.bytes(&[0x65, 0xc4, 0xe2, 0x7b, 0xf5, 0x04, 0x25]);
        self.imm32(Slot::StateMask as u32);
        let ok = match relative {
            Some((at, operand)) => self.rip_relative(bytes, at, operand),
            None => {
                self.bytes(bytes);
                true
            }
        };
        self.app += insn.len;
        self.index += 1;
        self.point(self.before | bits::SPILL_RAX);
        self.bytes(&[0x65, 0x48, 0x8b, 0x04, 0x25]);
        self.imm32(Slot::Rax as u32);
        ok
    }

    /// Rule 4. A base that is no address must fault, so the processor gets it for a moment.
    ///
    /// ```text
    /// Target:  rdgsbase r            wrgsbase r
    /// Patch:   r := slot             spill s; s := gs base; gs base := r; gs base := s
    ///                                slot := r; reload s
    /// ```
    pub(super) fn gs_base(&mut self, insn: &Insn, bytes: &[u8]) -> bool {
        let instruction = decode_one(AppPc(0), bytes);
        let register = instruction.op0_register();
        let (rex_reg, low) = register_bits(register.full_register());
        if matches!(instruction.code(), Code::Rdgsbase_r32 | Code::Rdgsbase_r64) {
            let rex = 0x40 | (u8::from(register.is_gpr64()) << 3) | (rex_reg << 2);
            self.bytes(&[0x65, rex, 0x8b, 0x04 | (low << 3), 0x25]);
            self.imm32(Slot::AppGs as u32);
            return true;
        }
        let (spill, rex) = match register.full_register() {
            Register::RCX => (bits::SPILL_R11, 1),
            _ => (bits::SPILL_RCX, 0),
        };
        let other = if rex == 1 { 3 } else { 1 };
        match rex {
            1 => self.spill_r11(),
            _ => self.spill_rcx(),
        }
        self.point(self.before | spill);
        // rdgsbase s; wrgsbase r; wrgsbase s
        self.bytes(&[0xf3, 0x48 | rex, 0x0f, 0xae, 0xc8 | other]);
        self.bytes(bytes);
        self.bytes(&[0xf3, 0x48 | rex, 0x0f, 0xae, 0xd8 | other]);
        // mov gs:[app_gs], r
        self.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x89, 0x04 | (low << 3), 0x25]);
        self.imm32(Slot::AppGs as u32);
        if !register.is_gpr64() {
            // mov dword gs:[app_gs + 4], 0
            self.bytes(&[0x65, 0xc7, 0x04, 0x25]);
            self.imm32(Slot::AppGs as u32 + 4);
            self.imm32(0);
        }
        self.app += insn.len;
        self.index += 1;
        self.point(self.before | spill);
        match rex {
            1 => self.reload_r11(),
            _ => self.reload_rcx(),
        }
        true
    }
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
