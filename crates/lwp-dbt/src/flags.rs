//! Liveness of the arithmetic flags: counting may change them where nothing reads them.

use iced_x86::{Instruction, Mnemonic, OpKind, Register, RflagsBits};

/// The six flags that `inc` and `cmp` write.
pub const ARITHMETIC: u8 = 0x3f;

/// The use that a block makes of the arithmetic flags it is entered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlagUse {
    /// Flags read before the block has written them.
    pub read: u8,
    /// Flags certainly written before the block ends.
    pub written: u8,
}

impl FlagUse {
    /// Returns the flag use of one instruction.
    pub fn of(instruction: &Instruction) -> Self {
        let read = mask(instruction.rflags_read());
        let written = match certainly_writes(instruction) {
            true => certain_flags(instruction),
            false => 0,
        };
        Self { read, written }
    }

    /// This followed by `next`.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self { read: self.read | next.read & !self.written, written: self.written | next.written }
    }

    /// Returns whether all flags are overwritten before any is read.
    pub fn all_dead(self) -> bool {
        self.read == 0 && self.written == ARITHMETIC
    }
}

/// The arithmetic flags among `bits`, which are numbered as here.
fn mask(bits: u32) -> u8 {
    const {
        let all = RflagsBits::OF
            | RflagsBits::SF
            | RflagsBits::ZF
            | RflagsBits::AF
            | RflagsBits::CF
            | RflagsBits::PF;
        assert!(all == ARITHMETIC as u32 && RflagsBits::AF == 8);
    }
    bits as u8 & ARITHMETIC
}

/// The flags that an instruction certainly overwrites. What the manuals leave undefined may be the
/// flag's old value; only AF after a logical operation is zero on every processor there is.
fn certain_flags(instruction: &Instruction) -> u8 {
    const AF: u8 = 8;
    let defined =
        instruction.rflags_written() | instruction.rflags_cleared() | instruction.rflags_set();
    let logical = matches!(
        instruction.mnemonic(),
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test
    );
    mask(defined) | if logical { AF } else { 0 }
}

/// A shift by zero, or a REP compare of length zero, leaves the flags as they were.
fn certainly_writes(instruction: &Instruction) -> bool {
    use Mnemonic::{Rcl, Rcr, Rol, Ror, Sal, Sar, Shl, Shld, Shr, Shrd};
    if instruction.has_rep_prefix() || instruction.has_repne_prefix() {
        return false;
    }
    match instruction.mnemonic() {
        Rcl | Rcr | Rol | Ror | Sal | Sar | Shl | Shld | Shr | Shrd => {
            let last = instruction.op_count() - 1;
            match instruction.op_kind(last) {
                OpKind::Register => instruction.op_register(last) != Register::CL,
                // Without an explicit count the count is one.
                OpKind::Immediate8 => instruction.immediate8() & 0x1f != 0,
                _ => true,
            }
        }
        _ => true,
    }
}
