//! The data caches whose misses translated code can count, and the machines that it can do so on.

use std::sync::OnceLock;

use lwp_dbt::context::{MOST_SETS, MOST_WAYS, TargetFeatures};
use lwp_process::kernel_files;
use lwp_uarch::CacheShape;

/// Least bytes in a way of a cache. An access that begins in a set must not end in the same set
/// with another line: only one of the two would be looked at.
pub const LEAST_WAY_BYTES: u64 = 1024;

/// Returns whether translated code can keep a first level of this shape.
pub fn can_be_kept(shape: &CacheShape) -> bool {
    let (sets, line) = (shape.sets(), u64::from(shape.line_bytes));
    let few = sets <= u64::from(MOST_SETS) && shape.ways <= MOST_WAYS;
    shape.is_regular() && few && sets > 1 && sets * line >= LEAST_WAY_BYTES
}

/// Returns whether translated code can watch a data cache on this machine.
pub fn can_be_watched() -> bool {
    TargetFeatures::of_this_processor().bit_extract && has_fs_base()
}

/// Returns whether programs may read the base of FS. Every run wants to know, some more than once.
fn has_fs_base() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(find_fs_base)
}

fn find_fs_base() -> bool {
    const AT_HWCAP2: u64 = 26;
    const FSGSBASE: u64 = 2;
    let auxv = kernel_files::bytes(kernel_files::Own, "auxv").unwrap_or_default();
    let words: Vec<u64> = auxv
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok())
        .map(u64::from_le_bytes)
        .collect();
    words.chunks_exact(2).any(|entry| entry[0] == AT_HWCAP2 && entry[1] & FSGSBASE != 0)
}
