//! The layout of everything, in the files of shared memory and in every tracee.
//!
//! An address space maps two files of ours. Of its *family*'s it can write nothing; its *contexts*
//! are of no concern to any other address space:
//!
//! ```text
//! family     + 0      template of the low window, mapped privately
//!            + 1 GiB  arena near the libraries
//!            + 2 GiB  arena near the program
//!            + 3 GiB  arenas elsewhere
//!
//! contexts   slot n: context, counters, calls, insertion list and records of the address space's
//!            thread n; most of them are the first one's
//! ```

use lwp_dbt::Layout;
use lwp_dbt::context::TargetFeatures;
use lwp_dbt::routines::NAME_TAG_BYTES;
use lwp_process::limits::Room;
use lwp_process::maps::Mapping;

/// Bytes of one thread's context and counters.
const SLOT_BYTES: u64 = 24 << 20;
/// Those of the first one. Most programs that need very many records have one thread.
const FIRST_SLOT_BYTES: u64 = 72 << 20;
/// Most threads of an address space at a time.
pub const SLOTS: usize = 20_990;
/// The numbers of slots that an address space has mapped: the first number at first, and the next
/// one whenever there are more threads.
pub const STEPS: [usize; 6] = [1, 8, 64, 512, 4096, SLOTS];
/// Bytes of a file of contexts.
pub const CONTEXTS_BYTES: u64 = FIRST_SLOT_BYTES + SLOT_BYTES * (SLOTS as u64 - 1);
/// Offset in a slot of a long insertion list, behind the counters.
pub const APPLY_LIST: u64 =
    lwp_dbt::trace::RECORDS as u64 - lwp_dbt::context::APPLY_MAX as u64 * 24;
/// Offset in a slot of the vector of buffers of a system call that goes on, before that list.
pub const VECTOR_AT: u64 = APPLY_LIST - VECTOR_BYTES;
/// Room for the most buffers of a call, a message's header and what comes with it.
pub const VECTOR_BYTES: u64 = 0x8000;
/// Most counters.
pub const MAX_COUNTERS: u64 =
    (lwp_dbt::context::calls::CALLS_AT as u64 - lwp_dbt::context::CONTEXT_BYTES) / 8;
const _: () = {
    use lwp_dbt::context::calls::{CALLS_AT, CALLS_BYTES};
    assert!((CALLS_AT + CALLS_BYTES) as u64 <= VECTOR_AT);
    use lwp_dbt::trace::{NAME_SHIFT, PLACES, RECORDS, SPREAD};
    let last_name = (FIRST_SLOT_BYTES - RECORDS as u64) << u32::BITS;
    assert!((last_name >> NAME_SHIFT) + SPREAD as u64 <= PLACES as u64);
};
/// Bytes of an empty indirect table that the template of a low window holds: address spaces map
/// them as often as their table takes. Few pages to write, and few mappings for fork to copy.
pub const EMPTY_TABLE: u64 = 256 << 10;
/// Bytes of one family's file.
pub const FAMILY_BYTES: u64 = 4 << 30;
/// Bytes of address space that a family leaves to the host, where that is limited: for its heap,
/// its threads and contexts. Without memory the host ends, and the program with it.
pub const HOST_BYTES: u64 = 1 << 30;
/// Most families at a time.
pub const FAMILIES: usize = 256;

/// The address of the contexts in a tracee: near the libraries of a 47-bit address space, outside
/// the shadow memory of every sanitizer, and below everything that the kernel places by itself.
pub const CONTEXTS_AT: u64 = 0x7e80_0000_0000;
/// The kernel's lowest choice for the first mapping, 1 TiB of chance, 16 GiB for the stack's chance
/// and the stack below the end, less room for libraries.
const _: () = assert!(CONTEXTS_AT + CONTEXTS_BYTES <= 0x7efb_0000_0000);
/// The address of the mapping that tells whose contexts they are: see
/// [`lwp_dbt::routines::NAME_TAG_BYTES`]. Its offset in the file is [`CONTEXTS_BYTES`], the file's
/// end.
pub const NAME_TAG_AT: u64 = CONTEXTS_AT - NAME_TAG_BYTES;
/// The low window: below 2 GiB, above any ordinary program linked at a fixed address.
pub const LOW: u64 = 0x7000_0000;
/// Most low windows of an address space: its first, and one for each way of profiling.
pub const LOW_WINDOWS: usize = 8;

/// Places of low windows: from the first one up to 2 GiB, then below it as far down as a program at
/// a fixed address leaves room.
pub fn low_places() -> impl Iterator<Item = u64> {
    const STEP: usize = 0x200_0000;
    const LOWEST: u64 = 0x1000_0000;
    (LOW..0x8000_0000)
        .step_by(STEP)
        .chain((LOWEST..LOW).rev().step_by(STEP).map(|end| end + 1 - STEP as u64))
}

/// The low window at one of those places; the first is [`LOW`].
pub fn low_window(low: u64) -> Layout {
    Layout { low, features: TargetFeatures::of_this_processor() }
}
const _: () = assert!(Layout::BYTES <= 0x200_0000);

/// The number of slots that have their door flags, a byte each, in the context of the first of
/// them.
pub const DOORS: usize = 256;
/// Offset of the door flags in a context: behind its fields, in the same page.
pub const DOORS_AT: u64 = 0xf00;
/// Offset in the context of slot 0 of the address space's sleep word.
pub const SLEEP_AT: u64 = DOORS_AT - 8;

/// Largest distance between an instruction and what it addresses rip-relatively, with a margin for
/// the operand's own size.
pub const REACH: u64 = (1 << 31) - (1 << 16);

/// Returns whether a mapping of a tracee is the virtual CPU's own: of a file of ours, or the
/// indirect table in a huge page, which is of no file and lies where the usual one does.
pub fn is_ours(mapping: &Mapping) -> bool {
    match mapping.inode {
        0 => LOW <= mapping.start && mapping.end <= LOW + crate::huge_table::TABLE,
        inode => lwp_process::shm::is_own(mapping.device, inode),
    }
}

/// Bytes that an address space's limit must allow beyond what the program asks for: the first
/// context, low window and the two arenas that most have.
pub const OVERHEAD_BYTES: u64 = FIRST_SLOT_BYTES + Layout::BYTES + 2 * (1 << 30);

/// Bytes that a limit on data must allow beyond what the program asks for: the low window counts as
/// data.
pub const DATA_BYTES: u64 = Layout::BYTES;

/// Bytes by which a hard limit on address space is higher than the program's: it can never be
/// raised again, so it allows for all contexts and for arenas near much code.
pub const HARD_BYTES: u64 = CONTEXTS_BYTES + (64 << 30);

/// The room that a program's limits must allow beyond what it asks for.
pub const ROOM: Room =
    Room { address_space: OVERHEAD_BYTES, hard_address_space: HARD_BYTES, data: DATA_BYTES };

/// The number of slots that are mapped where slot `local` is in use.
pub fn mapped_slots(local: usize) -> usize {
    STEPS.into_iter().find(|step| local < *step).unwrap_or(SLOTS)
}

/// Offset of a slot in its file.
pub fn slot_offset(local: usize) -> u64 {
    match local {
        0 => 0,
        _ => FIRST_SLOT_BYTES + (local as u64 - 1) * SLOT_BYTES,
    }
}

/// Bytes of a slot.
pub fn slot_bytes(local: usize) -> u64 {
    slot_offset(local + 1) - slot_offset(local)
}

/// Address in a tracee of the slot that is its address space's `local`th.
pub fn slot_address(local: usize) -> u64 {
    CONTEXTS_AT + slot_offset(local)
}

/// The number of the slot that has an address in a tracee.
pub fn slot_at(address: u64) -> Option<usize> {
    let offset = address.checked_sub(CONTEXTS_AT).filter(|offset| *offset < CONTEXTS_BYTES)?;
    let behind_first = offset.checked_sub(FIRST_SLOT_BYTES);
    Some(behind_first.map_or(0, |offset| 1 + (offset / SLOT_BYTES) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_next_to_each_other_and_are_found_by_their_addresses() {
        for local in [0, 1, 2, SLOTS - 1] {
            let (start, end) = (slot_address(local), slot_address(local) + slot_bytes(local));
            assert_eq!(end, slot_address(local + 1));
            assert_eq!((slot_at(start), slot_at(end - 1)), (Some(local), Some(local)));
        }
        assert_eq!(slot_at(CONTEXTS_AT - 1), None);
        assert_eq!(slot_at(CONTEXTS_AT + CONTEXTS_BYTES), None);
    }
}
