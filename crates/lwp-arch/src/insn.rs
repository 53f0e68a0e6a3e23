//! The four LWP instructions: encoding and decoding.
//!
//! ```text
//!   8F   R̄ X̄ B̄ mmmmm   W v̄v̄v̄v̄ L pp   12   ModRM [SIB] [disp] [imm32]
//! ```
//!
//! The bits with a bar are stored inverted. `8F` is also POP r/m; a map number of 8 or more in
//! `mmmmm` makes it an XOP prefix, in every mode.
//!
//! [`decode()`] and [`Instruction::encode`] are inverses of each other. The tests in `tests/`
//! compare both with an independent decoder and assembler.
//!
//! Spec: LWP §5.1.

mod decode;
mod encode;
mod operand;

pub use decode::{DecodeError, decode};
pub use encode::{EncodeError, Encoded};
pub use operand::{AddressSize, Base, Gpr, Index, Memory, Rm, Segment};

/// Bytes of the longest instruction that the architecture has, of any kind.
pub const LONGEST: usize = 15;

/// One of the four instructions.
///
/// Spec: LWP §5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mnemonic {
    /// Load the LWPCB address: start or stop profiling.
    Llwpcb,
    /// Store the LWPCB address: flush, and return the address of the active block.
    Slwpcb,
    /// Insert a programmed event record.
    Lwpins,
    /// Count, and perhaps record, a programmed value sample.
    Lwpval,
}

/// XOP opcode map, the value of `mmmmm`.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum XopMap {
    /// Map 9: no immediate.
    X9 = 9,
    /// Map A: 32-bit immediate.
    XA = 10,
}

/// The row of an instruction in the opcode map.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The instruction.
    pub mnemonic: Mnemonic,
    /// Its name in assembly.
    pub name: &'static str,
    /// Opcode map.
    pub map: XopMap,
    /// The reg field of ModRM, which distinguishes the two instructions of a map.
    pub digit: u8,
    /// A 32-bit immediate follows, `vvvv` names a register, and r/m may be memory. Without it, r/m
    /// must be a register and `vvvv` must be 1111.
    pub inserts: bool,
}

/// The opcode byte of all four.
///
/// Spec: LWP §5.1.
pub const OPCODE: u8 = 0x12;

const fn row(
    mnemonic: Mnemonic,
    name: &'static str,
    map: XopMap,
    digit: u8,
    inserts: bool,
) -> Encoding {
    Encoding { mnemonic, name, map, digit, inserts }
}

/// The four instructions.
///
/// Spec: LWP §5.1.
#[rustfmt::skip] // One instruction per line.
pub const ENCODINGS: [Encoding; 4] = [
    //  mnemonic          name      map         /digit  imm32, vvvv, memory
    row(Mnemonic::Llwpcb, "llwpcb", XopMap::X9, 0,      false),
    row(Mnemonic::Slwpcb, "slwpcb", XopMap::X9, 1,      false),
    row(Mnemonic::Lwpins, "lwpins", XopMap::XA, 0,      true),
    row(Mnemonic::Lwpval, "lwpval", XopMap::XA, 1,      true),
];

impl Mnemonic {
    /// The row of this instruction.
    pub const fn encoding(self) -> &'static Encoding {
        &ENCODINGS[self as usize]
    }
}

/// Default operand size of the code segment.
///
/// Spec: LWP §5.1, §5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeSize {
    /// 16-bit protected mode.
    Bits16,
    /// 32-bit protected and compatibility mode.
    Bits32,
    /// 64-bit mode.
    Bits64,
}

/// Size of the register operand. The r/m operand of LWPINS and LWPVAL is 32 bits in both.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 32 bits.
    W32,
    /// 64 bits, only in 64-bit mode; other modes ignore W.
    W64,
}

impl Width {
    /// `value` cut to this width and zero-extended.
    pub const fn truncate(self, value: u64) -> u64 {
        match self {
            Self::W32 => value & 0xFFFF_FFFF,
            Self::W64 => value,
        }
    }
}

/// Operands of an instruction.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operands {
    /// LLWPCB reads the register, SLWPCB writes it.
    Block(Gpr),
    /// LWPINS and LWPVAL.
    Insert {
        /// Register that becomes Data2.
        data2: Gpr,
        /// Register or memory that becomes Data1.
        data1: Rm,
        /// Immediate whose low 16 bits become Flags.
        flags: u32,
    },
}

/// An LWP instruction.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// One of the four.
    pub mnemonic: Mnemonic,
    /// Size of the register operand.
    pub width: Width,
    /// Its operands.
    pub operands: Operands,
    /// Length in bytes, prefixes included.
    pub length: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_rows_are_in_the_order_of_the_mnemonics() {
        for row in &ENCODINGS {
            assert_eq!(row.mnemonic.encoding(), row);
            assert_eq!(row.inserts, row.map == XopMap::XA, "{}", row.name);
        }
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_no_two_rows_share_map_and_digit() {
        for (i, a) in ENCODINGS.iter().enumerate() {
            for b in &ENCODINGS[..i] {
                assert!(a.map != b.map || a.digit != b.digit);
            }
        }
    }
}
