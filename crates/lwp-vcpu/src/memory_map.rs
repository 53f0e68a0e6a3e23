//! Where everything lies: in the machine's shared memory, and in every tracee.
//!
//! The machine's memory is one sparse file:
//!
//! ```text
//! 0          contexts: slot 0 holds the doors; slot n the context, counters, calls and insertion list of thread n
//! 256 GiB    families of address spaces, 4 GiB each:
//!              + 0      template of the low window
//!              + 1 GiB  arena near the libraries
//!              + 2 GiB  arena near the program
//!              + 3 GiB  arenas elsewhere
//! ```

use lwp_dbt::Layout;

/// Bytes of one thread's context and counters.
pub const SLOT_BYTES: u64 = 32 << 20;
/// Most threads at a time, plus one.
pub const SLOTS: u64 = 8192;
/// Bytes of all contexts.
pub const CONTEXTS_BYTES: u64 = SLOT_BYTES * SLOTS;
/// Offset in a slot of a long insertion list, behind the counters.
pub const APPLY_LIST: u64 = SLOT_BYTES - lwp_dbt::context::APPLY_MAX as u64 * 24;
/// Most counters.
pub const MAX_COUNTERS: u64 =
    (lwp_dbt::context::calls::CALLS_AT as u64 - lwp_dbt::context::CONTEXT_BYTES) / 8;
const _: () = {
    use lwp_dbt::context::calls::{CALLS_AT, CALLS_BYTES};
    assert!((CALLS_AT + CALLS_BYTES) as u64 <= APPLY_LIST);
};
/// Bytes of one family.
pub const FAMILY_BYTES: u64 = 4 << 30;
/// Most families at a time.
pub const FAMILIES: u64 = 256;
/// Bytes of the whole file.
pub const MEMORY_BYTES: u64 = CONTEXTS_BYTES + FAMILY_BYTES * FAMILIES;

/// Where the contexts lie in a tracee: near the libraries of a 47-bit address space, and outside the
/// shadow memory of every sanitizer.
pub const CONTEXTS_AT: u64 = 0x7e90_0000_0000;
/// The low window: below 2 GiB, above any ordinary program linked at a fixed address.
pub const LOW: Layout = Layout { low: 0x7000_0000 };
/// Most low windows of an address space: its first, and one for each way of profiling.
pub const LOW_WINDOWS: usize = 8;

/// Low window `index` of an address space; the first is [`LOW`].
pub fn low_window(index: usize) -> Layout {
    Layout { low: LOW.low + index as u64 * 0x200_0000 }
}
const _: () = assert!(Layout::BYTES <= 0x200_0000);

/// Offset in a context slot 0 of the host's sleep word; the door flags, a byte a slot, start at 0.
pub const DOOR_SLEEP: u64 = SLOTS;

/// Largest distance between an instruction and what it addresses rip-relatively, with a margin for
/// the operand's own size.
pub const REACH: u64 = (1 << 31) - (1 << 16);

/// Whether a mapping of a tracee is the virtual CPU's own.
pub fn is_ours(mapping: &crate::maps::Mapping) -> bool {
    mapping.name.contains("memfd:lwp")
}

/// What an address space's limit must allow beyond what the program asks for: contexts, low window
/// and the two arenas that most have.
pub const OVERHEAD_BYTES: u64 = CONTEXTS_BYTES + Layout::BYTES + 2 * (1 << 30);

/// File offset of context `slot`.
pub fn slot_offset(slot: usize) -> u64 {
    slot as u64 * SLOT_BYTES
}

/// Address of context `slot` in a tracee.
pub fn slot_address(slot: usize) -> u64 {
    CONTEXTS_AT + slot_offset(slot)
}

/// File offset of family `index`.
pub fn family_offset(index: usize) -> u64 {
    CONTEXTS_BYTES + index as u64 * FAMILY_BYTES
}
