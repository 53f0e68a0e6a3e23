//! Decodes bytes to an instruction.

use super::operand::{AddressSize, Base, Gpr, Index, Memory, Rm, Segment};
use super::{CodeSize, ENCODINGS, Encoding, Instruction, OPCODE, Operands, Width};

/// Longest instruction in bytes.
const MAX_LENGTH: usize = 15;

/// The reason why bytes are not an LWP instruction.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Some other instruction, valid or not.
    #[error("not an LWP instruction")]
    Other,
    /// An LWP opcode in a form for which the processor raises `#UD`.
    #[error("undefined form of an LWP instruction")]
    Undefined,
    /// The bytes end before the instruction does.
    #[error("instruction ends beyond the {0} bytes given")]
    Truncated(usize),
    /// More than 15 bytes, for which the processor raises `#GP(0)`.
    #[error("instruction longer than 15 bytes")]
    TooLong,
}

/// Reads bytes one after the other.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        if self.at == MAX_LENGTH {
            return Err(DecodeError::TooLong);
        }
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated(self.bytes.len()))?;
        self.at += 1;
        Ok(byte)
    }

    fn le<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }
}

/// The prefixes before the `8F` byte.
#[derive(Default)]
struct Prefixes {
    segment: Option<Segment>,
    address_size: bool,
    /// 66, F2, F3, LOCK or REX: XOP encodings take none of them.
    forbidden: bool,
}

impl Prefixes {
    /// Reads prefixes, and the first byte that is none.
    fn read(cursor: &mut Cursor<'_>, code: CodeSize) -> Result<(Self, u8), DecodeError> {
        let mut prefixes = Self::default();
        let mut rex = false;
        loop {
            let byte = cursor.byte()?;
            let is_64 = code == CodeSize::Bits64;
            if is_64 && byte & 0xF0 == 0x40 {
                rex = true;
                continue;
            }
            match byte {
                0x66 | 0xF0 | 0xF2 | 0xF3 => prefixes.forbidden = true,
                0x67 => prefixes.address_size = true,
                // In 64-bit mode ES, CS, SS and DS overrides are accepted and ignored.
                0x26 | 0x2E | 0x36 | 0x3E if is_64 => {}
                _ => match Segment::from_prefix(byte) {
                    Some(segment) => prefixes.segment = Some(segment),
                    None => {
                        prefixes.forbidden |= rex;
                        return Ok((prefixes, byte));
                    }
                },
            }
            // A REX that does not come last has no effect.
            rex = false;
        }
    }

    fn address_size(&self, code: CodeSize) -> AddressSize {
        match (code, self.address_size) {
            (CodeSize::Bits64, false) => AddressSize::Bits64,
            (CodeSize::Bits64, true) | (CodeSize::Bits32, false) | (CodeSize::Bits16, true) => {
                AddressSize::Bits32
            }
            (CodeSize::Bits32, true) | (CodeSize::Bits16, false) => AddressSize::Bits16,
        }
    }
}

/// The two payload bytes of the XOP prefix, inversions undone.
struct Xop {
    /// Adds to ModRM.reg; no LWP instruction has a register there, so the bit is ignored.
    _r: u8,
    x: u8,
    b: u8,
    map: u8,
    w: bool,
    vvvv: u8,
    l_pp: u8,
}

impl Xop {
    /// Outside 64-bit mode there are eight registers and W is ignored.
    fn parse(first: u8, second: u8, code: CodeSize) -> Self {
        let is_64 = code == CodeSize::Bits64;
        let extension = |bit: u8| if is_64 { (!first >> bit & 1) << 3 } else { 0 };
        Self {
            _r: extension(7),
            x: extension(6),
            b: extension(5),
            map: first & 0x1F,
            w: is_64 && second & 0x80 != 0,
            vvvv: !second >> 3 & 0xF,
            l_pp: second & 7,
        }
    }
}

/// Decodes the LWP instruction at the start of `bytes` as code of size `code`.
///
/// # Errors
///
/// [`DecodeError::Undefined`] for forms for which the processor raises `#UD`: L or pp not 0;
/// ModRM.reg above 1; for LLWPCB and SLWPCB a memory operand or vvvv not 1111; a 66, F2, F3, LOCK
/// or REX prefix. [`DecodeError::Other`] for any other instruction, including POP, which shares the
/// `8F` byte.
///
/// The caller has to check for modes without LWP (real, virtual-8086), and for everything else that
/// depends on the processor's state.
///
/// Spec: LWP §5.1, §5.2.
pub fn decode(bytes: &[u8], code: CodeSize) -> Result<Instruction, DecodeError> {
    let mut cursor = Cursor { bytes, at: 0 };
    let (prefixes, escape) = Prefixes::read(&mut cursor, code)?;
    if escape != 0x8F {
        return Err(DecodeError::Other);
    }
    let first = cursor.byte()?;
    if !ENCODINGS.iter().any(|row| row.map as u8 == first & 0x1F) {
        return Err(DecodeError::Other);
    }
    let xop = Xop::parse(first, cursor.byte()?, code);
    if cursor.byte()? != OPCODE {
        return Err(DecodeError::Other);
    }
    let modrm = cursor.byte()?;
    if prefixes.forbidden || xop.l_pp != 0 {
        return Err(DecodeError::Undefined);
    }
    let digit = modrm >> 3 & 7;
    let row = ENCODINGS
        .iter()
        .find(|row| row.map as u8 == xop.map && row.digit == digit)
        .ok_or(DecodeError::Undefined)?;
    let operands = operands(&mut cursor, &prefixes, &xop, row, modrm, code)?;
    Ok(Instruction {
        mnemonic: row.mnemonic,
        width: if xop.w { Width::W64 } else { Width::W32 },
        operands,
        length: cursor.at as u8,
    })
}

fn operands(
    cursor: &mut Cursor<'_>,
    prefixes: &Prefixes,
    xop: &Xop,
    row: &Encoding,
    modrm: u8,
    code: CodeSize,
) -> Result<Operands, DecodeError> {
    let is_register = modrm >> 6 == 3;
    let register = Gpr::from_field(modrm & 7 | xop.b);
    if !row.inserts {
        return if is_register && xop.vvvv == 0 {
            Ok(Operands::Block(register))
        } else {
            Err(DecodeError::Undefined)
        };
    }
    let data1 = if is_register {
        Rm::Register(register)
    } else {
        let size = prefixes.address_size(code);
        let mut memory = match size {
            AddressSize::Bits16 => memory_16(cursor, modrm)?,
            _ => memory_32_64(cursor, xop, modrm, size, code)?,
        };
        memory.segment = prefixes.segment;
        Rm::Memory(memory)
    };
    let vvvv = if code == CodeSize::Bits64 { xop.vvvv } else { xop.vvvv & 7 };
    let flags = u32::from_le_bytes(cursor.le()?);
    Ok(Operands::Insert { data2: Gpr::from_field(vvvv), data1, flags })
}

/// The displacement that mod asks for: 1 for a byte, 2 for a word or dword of `N` bytes.
fn displacement<const N: usize>(cursor: &mut Cursor<'_>, mode: u8) -> Result<i32, DecodeError> {
    match mode {
        0 => Ok(0),
        1 => Ok(i32::from(cursor.byte()?.cast_signed())),
        _ => full_displacement::<N>(cursor),
    }
}

fn full_displacement<const N: usize>(cursor: &mut Cursor<'_>) -> Result<i32, DecodeError> {
    let bytes: [u8; N] = cursor.le()?;
    Ok(match bytes[..] {
        [a, b] => i32::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
        _ => 0,
    })
}

fn memory_32_64(
    cursor: &mut Cursor<'_>,
    xop: &Xop,
    modrm: u8,
    address_size: AddressSize,
    code: CodeSize,
) -> Result<Memory, DecodeError> {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let mut memory =
        Memory { segment: None, base: None, index: None, displacement: 0, address_size };
    // mod 0 with rm 5, or with base 5 in a SIB byte: no base but a full displacement.
    let mut bare = mode == 0 && rm == 5;
    if bare && code == CodeSize::Bits64 {
        memory.base = Some(Base::NextIp);
    } else if rm == 4 {
        let sib = cursor.byte()?;
        let index = Gpr::from_field(sib >> 3 & 7 | xop.x);
        if index != Gpr::RSP {
            memory.index = Some(Index { register: index, scale_log2: sib >> 6 });
        }
        bare = mode == 0 && sib & 7 == 5;
        if !bare {
            memory.base = Some(Base::Register(Gpr::from_field(sib & 7 | xop.b)));
        }
    } else if !bare {
        memory.base = Some(Base::Register(Gpr::from_field(rm | xop.b)));
    }
    memory.displacement =
        if bare { full_displacement::<4>(cursor)? } else { displacement::<4>(cursor, mode)? };
    Ok(memory)
}

/// Base and index of the eight 16-bit forms, by the rm field.
pub(super) const FORMS_16: [(Gpr, Option<Gpr>); 8] = [
    (Gpr::RBX, Some(Gpr::RSI)),
    (Gpr::RBX, Some(Gpr::RDI)),
    (Gpr::RBP, Some(Gpr::RSI)),
    (Gpr::RBP, Some(Gpr::RDI)),
    (Gpr::RSI, None),
    (Gpr::RDI, None),
    (Gpr::RBP, None),
    (Gpr::RBX, None),
];

fn memory_16(cursor: &mut Cursor<'_>, modrm: u8) -> Result<Memory, DecodeError> {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let bare = mode == 0 && rm == 6;
    let (base, index) = FORMS_16[usize::from(rm)];
    Ok(Memory {
        segment: None,
        base: (!bare).then_some(Base::Register(base)),
        index: index.filter(|_| !bare).map(|register| Index { register, scale_log2: 0 }),
        displacement: if bare {
            full_displacement::<2>(cursor)?
        } else {
            displacement::<2>(cursor, mode)?
        },
        address_size: AddressSize::Bits16,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::Mnemonic;

    fn decode_64(bytes: &[u8]) -> Result<Instruction, DecodeError> {
        decode(bytes, CodeSize::Bits64)
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_reference_bytes_decode() {
        let r = |number| Gpr::new(number).unwrap();
        let block = |bytes, mnemonic, width, register| {
            let want =
                Instruction { mnemonic, width, operands: Operands::Block(register), length: 5 };
            assert_eq!(decode_64(bytes), Ok(want));
        };
        block(&[0x8F, 0xE9, 0xF8, 0x12, 0xC0], Mnemonic::Llwpcb, Width::W64, Gpr::RAX);
        block(&[0x8F, 0xC9, 0xF8, 0x12, 0xC7], Mnemonic::Llwpcb, Width::W64, r(15));
        block(&[0x8F, 0xE9, 0x78, 0x12, 0xC0], Mnemonic::Llwpcb, Width::W32, Gpr::RAX);
        block(&[0x8F, 0xE9, 0xF8, 0x12, 0xCF], Mnemonic::Slwpcb, Width::W64, Gpr::RDI);
        block(&[0x8F, 0xC9, 0x78, 0x12, 0xC8], Mnemonic::Slwpcb, Width::W32, r(8));
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_memory_operand_with_sib_and_displacement() {
        #[rustfmt::skip]
        let bytes = [
            0x8F, 0x8A, 0x78, 0x12, // XOP: X and B set, W0, vvvv rAX
            0x8C, 0xB5, // mod 2, LWPVAL; scale 4, index R14, base R13
            0x44, 0x33, 0x22, 0x11, // displacement
            0xCA, 0x00, 0xAD, 0x0C, // immediate
        ];
        let instruction = decode_64(&bytes).unwrap();
        assert_eq!(instruction.length, 14);
        assert_eq!(
            instruction.operands,
            Operands::Insert {
                data2: Gpr::RAX,
                data1: Rm::Memory(Memory {
                    segment: None,
                    base: Some(Base::Register(Gpr::new(13).unwrap())),
                    index: Some(Index { register: Gpr::new(14).unwrap(), scale_log2: 2 }),
                    displacement: 0x1122_3344,
                    address_size: AddressSize::Bits64,
                }),
                flags: 0x0CAD_00CA,
            }
        );
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_undefined_forms() {
        let undefined: [&[u8]; 11] = [
            &[0x8F, 0xE9, 0xF8, 0x12, 0x00],             // LLWPCB with memory
            &[0x8F, 0xE9, 0xFC, 0x12, 0xC0],             // L
            &[0x8F, 0xE9, 0xF9, 0x12, 0xC0],             // pp 1
            &[0x8F, 0xE9, 0xFB, 0x12, 0xC0],             // pp 3
            &[0x8F, 0xE9, 0xF0, 0x12, 0xC0],             // vvvv 1110
            &[0x8F, 0xE9, 0xF8, 0x12, 0xD0],             // digit 2
            &[0x8F, 0xEA, 0x78, 0x12, 0xF8, 0, 0, 0, 0], // digit 7 in map A
            &[0x66, 0x8F, 0xE9, 0xF8, 0x12, 0xC0],       // operand size
            &[0xF2, 0x8F, 0xE9, 0xF8, 0x12, 0xC0],       // REPNE
            &[0xF0, 0x8F, 0xE9, 0xF8, 0x12, 0xC0],       // LOCK
            &[0x48, 0x8F, 0xE9, 0xF8, 0x12, 0xC0],       // REX
        ];
        for bytes in undefined {
            assert_eq!(decode_64(bytes), Err(DecodeError::Undefined), "{bytes:02x?}");
        }
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_pop_and_other_opcodes_are_not_ours() {
        let other: [&[u8]; 4] = [
            &[0x8F, 0x00],                   // POP [RAX]
            &[0x8F, 0xE8, 0xF8, 0x12, 0xC0], // map 8
            &[0x8F, 0xE9, 0xF8, 0x01, 0xC8], // another opcode of map 9
            &[0x90],                         // NOP
        ];
        for bytes in other {
            for code in [CodeSize::Bits16, CodeSize::Bits32, CodeSize::Bits64] {
                assert_eq!(decode(bytes, code), Err(DecodeError::Other), "{bytes:02x?}");
            }
        }
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_every_cut_is_reported() {
        let bytes = [0x8F, 0xEA, 0x80, 0x12, 0x04, 0x24, 0x67, 0x45, 0x23, 0x01];
        assert!(decode_64(&bytes).is_ok());
        for cut in 0..bytes.len() {
            assert_eq!(decode_64(&bytes[..cut]), Err(DecodeError::Truncated(cut)));
        }
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_sixteen_bytes_are_too_many() {
        let mut bytes = [0x67; 16];
        bytes[11..].copy_from_slice(&[0x8F, 0xE9, 0xF8, 0x12, 0xC0]);
        assert_eq!(decode_64(&bytes), Err(DecodeError::TooLong));
        assert_eq!(decode_64(&bytes[1..]).map(|i| i.length), Ok(15));
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_outside_64_bit_mode_w_is_ignored() {
        let bytes = [0x8F, 0xE9, 0xF8, 0x12, 0xC3];
        for code in [CodeSize::Bits16, CodeSize::Bits32] {
            let instruction = decode(&bytes, code).unwrap();
            assert_eq!(instruction.width, Width::W32);
        }
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_address_size_prefix_selects_the_other_size() {
        // lwpins eax, dword ptr [bx+si] and its 32-bit reading [eax].
        let bytes = [0x67, 0x8F, 0xEA, 0x78, 0x12, 0x00, 1, 0, 0, 0];
        let base = |code, bytes: &[u8]| match decode(bytes, code).unwrap().operands {
            Operands::Insert { data1: Rm::Memory(memory), .. } => memory.base,
            other => panic!("{other:?}"),
        };
        assert_eq!(base(CodeSize::Bits16, &bytes), Some(Base::Register(Gpr::RAX)));
        assert_eq!(base(CodeSize::Bits16, &bytes[1..]), Some(Base::Register(Gpr::RBX)));
        assert_eq!(base(CodeSize::Bits32, &bytes), Some(Base::Register(Gpr::RBX)));
        assert_eq!(base(CodeSize::Bits32, &bytes[1..]), Some(Base::Register(Gpr::RAX)));
    }
}
