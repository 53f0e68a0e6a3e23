//! Samples that a thread keeps for the host.

use super::{NOTES_AT, Slot, gather};

/// Displacement of the kept samples, where no misses are noted: each is an [`ip`](IP), the
/// [registers](REGISTERS), a part of the stack, and [pieces](gather) of other memory.
pub const KEPT_AT: u32 = NOTES_AT + gather::BYTES;
/// Bytes that there is room for: samples of some milliseconds.
pub const KEPT_BYTES: u32 = 0x4_0000 - gather::BYTES;

/// Offset of the sampled instruction's address.
pub const IP: u32 = 0;
/// Offset of the general registers at the beginning of its block, in the order of
/// [`REGISTER_SLOTS`].
pub const REGISTERS: u32 = 8;
/// Offset of the address of the stack's part.
pub const STACK: u32 = 136;
/// Offset of its length in bytes.
pub const LENGTH: u32 = 144;
/// Offset of the address of the sampled instruction's block.
pub const BLOCK: u32 = 152;
/// Offset of the bytes that its pieces take, which follow those of the stack.
pub const GATHERED: u32 = 160;
/// Offset of the bytes of the stack, and the least that a sample takes.
pub const HEADER: u32 = 168;
/// Most bytes of a stack: more of it is read by the host.
pub const MOST_STACK: u32 = 0x4000;
/// Bytes below the stack pointer that belong to the stack: tables have registers there that have
/// just been taken from it.
pub const RED_ZONE: u32 = 128;
/// The stack's part begins and ends at multiples of this.
pub const STACK_UNIT: u32 = 32;

/// In [`Slot::StackEnd`]: samples are kept without a stack.
pub const NO_STACK: u64 = 1;
/// Position in [`Slot::Kept`] of the number of all samples that have been kept; below, the bytes
/// that those take that are there.
pub const COUNT_SHIFT: u32 = 32;

/// The registers by DWARF's numbers.
pub const REGISTER_SLOTS: [Slot; 16] = [
    Slot::Rax,
    Slot::Rdx,
    Slot::Rcx,
    Slot::Rbx,
    Slot::Rsi,
    Slot::Rdi,
    Slot::Rbp,
    Slot::Rsp,
    Slot::R8,
    Slot::R9,
    Slot::R10,
    Slot::R11,
    Slot::R12,
    Slot::R13,
    Slot::R14,
    Slot::R15,
];
