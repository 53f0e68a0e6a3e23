//! Encodes an instruction as bytes.

use super::decode::FORMS_16;
use super::operand::{AddressSize, Base, Gpr, Memory, Rm};
use super::{CodeSize, Instruction, OPCODE, Operands, Width};

/// The reason why an instruction has no encoding in a code segment of the given size.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Registers 8 to 15 and 64-bit operands only exist in 64-bit mode.
    #[error("operand exists in 64-bit mode only")]
    NeedsLongMode,
    /// The memory operand cannot be expressed with its address size.
    #[error("memory operand has no encoding")]
    Address,
    /// The mnemonic doesn't have such operands.
    #[error("operands of another instruction")]
    Operands,
}

/// An encoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    bytes: [u8; 15],
    length: u8,
}

impl Encoded {
    /// The bytes of the instruction.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn push(&mut self, byte: u8) {
        // Two prefixes, five bytes up to ModRM, SIB, displacement and immediate make 16 at most;
        // but a 16th would need both prefixes and a SIB with full displacement, which is 7 + 1 + 4
        // + 4.
        if let Some(place) = self.bytes.get_mut(usize::from(self.length)) {
            *place = byte;
        }
        self.length = self.length.saturating_add(1);
    }

    fn extend(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.push(byte);
        }
    }
}

/// An operand as ModRM has it: mod and rm, the extension bits, SIB and displacement.
#[derive(Default)]
struct ModRm {
    mode: u8,
    rm: u8,
    x: bool,
    b: bool,
    sib: Option<u8>,
    displacement: [u8; 4],
    displacement_length: usize,
}

impl ModRm {
    fn register(register: Gpr) -> Self {
        let number = register.number();
        Self { mode: 3, rm: number & 7, b: number >= 8, ..Self::default() }
    }

    /// Sets mod and the displacement bytes. Zero needs none unless the base field would then mean
    /// something else; a small one needs a byte.
    fn set_displacement(&mut self, displacement: i32, base_needs_one: bool, full: usize) {
        self.displacement = displacement.to_le_bytes();
        (self.mode, self.displacement_length) = match i8::try_from(displacement) {
            Ok(0) if !base_needs_one => (0, 0),
            Ok(_) => (1, 1),
            Err(_) => (2, full),
        };
    }

    fn memory_32_64(memory: &Memory, code: CodeSize) -> Result<Self, EncodeError> {
        let mut modrm = Self::default();
        let index = match memory.index {
            Some(index) if index.register == Gpr::RSP || index.scale_log2 > 3 => {
                return Err(EncodeError::Address);
            }
            index => index,
        };
        match memory.base {
            Some(Base::NextIp) => {
                if index.is_some() || code != CodeSize::Bits64 {
                    return Err(EncodeError::Address);
                }
                modrm.rm = 5;
            }
            Some(Base::Register(base)) => {
                let low = base.number() & 7;
                modrm.b = base.number() >= 8;
                modrm.rm = if index.is_some() || low == 4 { 4 } else { low };
                modrm.set_displacement(memory.displacement, low == 5, 4);
            }
            // Without a SIB byte this encoding means RIP-relative in 64-bit mode.
            None => modrm.rm = if index.is_some() || code == CodeSize::Bits64 { 4 } else { 5 },
        }
        if !matches!(memory.base, Some(Base::Register(_))) {
            modrm.displacement = memory.displacement.to_le_bytes();
            modrm.displacement_length = 4;
        }
        if modrm.rm == 4 {
            let base = match memory.base {
                Some(Base::Register(base)) => base.number() & 7,
                _ => 5,
            };
            let (number, scale) = index.map_or((4, 0), |i| (i.register.number(), i.scale_log2));
            modrm.x = number >= 8;
            modrm.sib = Some(scale << 6 | (number & 7) << 3 | base);
        }
        Ok(modrm)
    }

    fn memory_16(memory: &Memory) -> Result<Self, EncodeError> {
        let mut modrm = Self::default();
        if i16::try_from(memory.displacement).is_err() {
            return Err(EncodeError::Address);
        }
        match (memory.base, memory.index) {
            (None, None) => {
                modrm.rm = 6;
                modrm.displacement = memory.displacement.to_le_bytes();
                modrm.displacement_length = 2;
            }
            (Some(Base::Register(base)), index) if index.is_none_or(|i| i.scale_log2 == 0) => {
                let wanted = (base, index.map(|i| i.register));
                let rm = FORMS_16.iter().position(|&form| form == wanted);
                modrm.rm = rm.ok_or(EncodeError::Address)? as u8;
                modrm.set_displacement(memory.displacement, modrm.rm == 6, 2);
            }
            _ => return Err(EncodeError::Address),
        }
        Ok(modrm)
    }

    fn new(rm: &Rm, code: CodeSize) -> Result<Self, EncodeError> {
        match rm {
            Rm::Register(register) => Ok(Self::register(*register)),
            Rm::Memory(memory) => match memory.address_size {
                AddressSize::Bits16 => Self::memory_16(memory),
                AddressSize::Bits32 | AddressSize::Bits64 => Self::memory_32_64(memory, code),
            },
        }
    }
}

/// Returns whether this address size needs the `67` prefix, or an error if the mode does not offer
/// it.
fn address_prefix(memory: &Memory, code: CodeSize) -> Result<bool, EncodeError> {
    match (code, memory.address_size) {
        (CodeSize::Bits64, AddressSize::Bits64)
        | (CodeSize::Bits32, AddressSize::Bits32)
        | (CodeSize::Bits16, AddressSize::Bits16) => Ok(false),
        (CodeSize::Bits64 | CodeSize::Bits16, AddressSize::Bits32)
        | (CodeSize::Bits32, AddressSize::Bits16) => Ok(true),
        _ => Err(EncodeError::Address),
    }
}

impl Instruction {
    /// Returns the shortest encoding of this instruction in a code segment of size `code`. Ignores
    /// the `length` field.
    ///
    /// # Errors
    ///
    /// See [`EncodeError`]. 64-bit mode only has FS and GS overrides.
    ///
    /// Spec: LWP §5.1.
    pub fn encode(&self, code: CodeSize) -> Result<Encoded, EncodeError> {
        let row = self.mnemonic.encoding();
        let (rm, vvvv, immediate) = match self.operands {
            Operands::Block(register) => (Rm::Register(register), 0, None),
            Operands::Insert { data2, data1, flags } => (data1, data2.number(), Some(flags)),
        };
        if row.inserts != immediate.is_some() {
            return Err(EncodeError::Operands);
        }
        let modrm = ModRm::new(&rm, code)?;
        let wide = self.width == Width::W64;
        if code != CodeSize::Bits64 && (wide || vvvv >= 8 || modrm.x || modrm.b) {
            return Err(EncodeError::NeedsLongMode);
        }
        let mut out = Encoded { bytes: [0; 15], length: 0 };
        if let Rm::Memory(memory) = &rm {
            if let Some(segment) = memory.segment {
                out.push(segment.prefix());
            }
            if address_prefix(memory, code)? {
                out.push(0x67);
            }
        }
        let inverted = |set: bool, bit: u8| u8::from(!set) << bit;
        out.push(0x8F);
        out.push(0x80 | inverted(modrm.x, 6) | inverted(modrm.b, 5) | row.map as u8);
        out.push(u8::from(wide) << 7 | (!vvvv & 0xF) << 3);
        out.push(OPCODE);
        out.push(modrm.mode << 6 | row.digit << 3 | modrm.rm);
        out.extend(modrm.sib.as_slice());
        out.extend(&modrm.displacement[..modrm.displacement_length]);
        if let Some(immediate) = immediate {
            out.extend(&immediate.to_le_bytes());
        }
        if out.length > 15 { Err(EncodeError::Address) } else { Ok(out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::{Index, Mnemonic, Segment};

    fn insert(mnemonic: Mnemonic, width: Width, data1: Rm) -> Instruction {
        let operands = Operands::Insert { data2: Gpr::RCX, data1, flags: 1 };
        Instruction { mnemonic, width, operands, length: 0 }
    }

    const MEMORY: Memory = Memory {
        segment: None,
        base: Some(Base::Register(Gpr::RBX)),
        index: None,
        displacement: 0,
        address_size: AddressSize::Bits32,
    };

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_reference_bytes_encode() {
        let r = |number| Gpr::new(number).unwrap();
        let block = |mnemonic, width, register| Instruction {
            mnemonic,
            width,
            operands: Operands::Block(register),
            length: 0,
        };
        let bytes = |i: Instruction| i.encode(CodeSize::Bits64).unwrap();
        let llwpcb = bytes(block(Mnemonic::Llwpcb, Width::W64, r(15)));
        assert_eq!(llwpcb.as_bytes(), [0x8F, 0xC9, 0xF8, 0x12, 0xC7]);
        let slwpcb = bytes(block(Mnemonic::Slwpcb, Width::W32, r(8)));
        assert_eq!(slwpcb.as_bytes(), [0x8F, 0xC9, 0x78, 0x12, 0xC8]);
        let relative = Memory {
            base: Some(Base::NextIp),
            displacement: 16,
            address_size: AddressSize::Bits64,
            ..MEMORY
        };
        let lwpval = bytes(insert(Mnemonic::Lwpval, Width::W64, Rm::Memory(relative)));
        assert_eq!(lwpval.as_bytes(), [0x8F, 0xEA, 0xF0, 0x12, 0x0D, 16, 0, 0, 0, 1, 0, 0, 0]);
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_what_a_mode_lacks_is_refused() {
        let encode = |i: Instruction, code| i.encode(code).map(|_| ());
        let wide = insert(Mnemonic::Lwpins, Width::W64, Rm::Register(Gpr::RAX));
        assert_eq!(encode(wide, CodeSize::Bits32), Err(EncodeError::NeedsLongMode));
        let high = Rm::Register(Gpr::new(8).unwrap());
        let high = insert(Mnemonic::Lwpins, Width::W32, high);
        assert_eq!(encode(high, CodeSize::Bits16), Err(EncodeError::NeedsLongMode));
        assert_eq!(encode(high, CodeSize::Bits64), Ok(()));
        let mut third = insert(Mnemonic::Lwpins, Width::W32, Rm::Register(Gpr::RAX));
        let (r8, data1) = (Gpr::from_field(8), Rm::Register(Gpr::RAX));
        third.operands = Operands::Insert { data2: r8, data1, flags: 1 };
        assert_eq!(encode(third, CodeSize::Bits32), Err(EncodeError::NeedsLongMode));
        let index = Some(Index { register: r8, scale_log2: 0 });
        let indexed = insert(Mnemonic::Lwpins, Width::W32, Rm::Memory(Memory { index, ..MEMORY }));
        assert_eq!(encode(indexed, CodeSize::Bits32), Err(EncodeError::NeedsLongMode));

        let memory = |memory| insert(Mnemonic::Lwpins, Width::W32, Rm::Memory(memory));
        let by_ip = memory(Memory { base: Some(Base::NextIp), ..MEMORY });
        assert_eq!(encode(by_ip, CodeSize::Bits32), Err(EncodeError::Address));
        let short = memory(Memory { address_size: AddressSize::Bits16, ..MEMORY });
        assert_eq!(encode(short, CodeSize::Bits64), Err(EncodeError::Address));
        let far = Memory { address_size: AddressSize::Bits16, displacement: 40_000, ..MEMORY };
        assert_eq!(encode(memory(far), CodeSize::Bits16), Err(EncodeError::Address));
        let stack = Index { register: Gpr::RSP, scale_log2: 0 };
        let by_stack = memory(Memory { index: Some(stack), ..MEMORY });
        assert_eq!(encode(by_stack, CodeSize::Bits32), Err(EncodeError::Address));
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_operands_of_another_instruction_are_refused() {
        let mut mixed = insert(Mnemonic::Llwpcb, Width::W32, Rm::Register(Gpr::RAX));
        assert_eq!(mixed.encode(CodeSize::Bits64), Err(EncodeError::Operands));
        mixed.operands = Operands::Block(Gpr::RAX);
        assert!(mixed.encode(CodeSize::Bits64).is_ok());
        mixed.mnemonic = Mnemonic::Lwpval;
        assert_eq!(mixed.encode(CodeSize::Bits64), Err(EncodeError::Operands));
    }

    /// Both prefixes, SIB, full displacement and immediate make 16 bytes, which no instruction may
    /// have.
    ///
    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_sixteen_bytes_are_refused() {
        let longest = Memory {
            segment: Some(Segment::Fs),
            index: Some(Index { register: Gpr::RCX, scale_log2: 1 }),
            displacement: 0x1234_5678,
            ..MEMORY
        };
        let encode = |memory| insert(Mnemonic::Lwpins, Width::W32, Rm::Memory(memory));
        assert_eq!(encode(longest).encode(CodeSize::Bits64), Err(EncodeError::Address));
        let shorter = encode(Memory { segment: None, ..longest }).encode(CodeSize::Bits64).unwrap();
        assert_eq!(shorter.as_bytes().len(), 15);
    }
}
