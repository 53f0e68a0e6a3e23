//! A new program's indirect table in a huge page of its own.
//!
//! Mapped from the template, the table is made of small pages, of which each is copied when its
//! first entry goes in: most of them are in the end. They are copied again, as entries of page
//! tables, by every fork, and translated code that looks up one pc after the other wants more of
//! them at hand than the processor has room for. A huge page has nothing of all that, but takes
//! longer to fill than a small program's few pages to copy.

use std::sync::OnceLock;

use lwp_dbt::context::TABLE_SLOTS;
use lwp_process::Tid;
use lwp_process::elf;
use lwp_process::inject::{Call, Map};
use lwp_process::kernel_files;
use lwp_process::maps::Mapping;

use crate::memory_map::EMPTY_TABLE;

/// Bytes of the table, which are those of a huge page.
pub const TABLE: u64 = TABLE_SLOTS * 8;

const SYS_PREAD64: u64 = 17;
const SYS_MADVISE: u64 = 28;
const PROT_READ_WRITE: u64 = 3;
const MAP_PRIVATE: u64 = 2;
const MAP_ANONYMOUS: u64 = 0x20;
const MADV_HUGEPAGE: u64 = 14;

/// A program that begins with so much code needs many pages of the table soon.
const MUCH_CODE: u64 = 512 << 10;

/// Returns whether the program in `mappings` is to have one: it has much code, or needs libraries
/// beside the C library. Others mostly end before they have filled so many pages.
pub fn is_wanted(tid: Tid, mappings: &[Mapping]) -> bool {
    let code = || mappings.iter().filter(|mapping| mapping.execute && mapping.inode != 0);
    let bytes: u64 = code().map(|mapping| mapping.end - mapping.start).sum();
    // The program is the first file with code.
    let same = |mapping: &&Mapping| code().next().is_some_and(|code| code.inode == mapping.inode);
    let program =
        || mappings.iter().find(same).map_or(0, |mapping| elf::libraries(tid, mapping.start));
    (bytes >= MUCH_CODE || program() > 1) && may_be_had()
}

/// Returns whether the kernel makes huge pages for who asks for them.
fn may_be_had() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| {
        let modes = kernel_files::of_machine("/sys/kernel/mm/transparent_hugepage/enabled");
        modes.is_ok_and(|modes| is_enabled(&modes))
    })
}

/// The mode in force is the one in brackets.
fn is_enabled(modes: &str) -> bool {
    modes.contains("[always]") || modes.contains("[madvise]")
}

/// The calls that make an empty table at `low`; `place` are more flags of mmap(2), and an empty
/// part of it is at the start of the file open at `fd`.
pub fn calls(low: u64, place: u64, fd: u64) -> Vec<Call> {
    let map = Map {
        address: low,
        bytes: TABLE,
        prot: PROT_READ_WRITE,
        flags: MAP_PRIVATE | MAP_ANONYMOUS | place,
        offset: 0,
    };
    let mut calls = vec![map.call(u64::MAX), [SYS_MADVISE, low, TABLE, MADV_HUGEPAGE, 0, 0, 0]];
    let parts = (0..TABLE).step_by(EMPTY_TABLE as usize);
    calls.extend(parts.map(|at| [SYS_PREAD64, fd, low + at, EMPTY_TABLE, 0, 0, 0]));
    calls
}

/// Returns whether the calls have made the table, by their results. Without a huge page it is one
/// all the same.
pub fn is_made(low: u64, results: &[i64]) -> bool {
    let [mapped, _, filled @ ..] = results else { return false };
    u64::try_from(*mapped) == Ok(low)
        && filled.len() as u64 == TABLE / EMPTY_TABLE
        && filled.iter().all(|bytes| *bytes == EMPTY_TABLE as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_in_force_is_the_one_in_brackets() {
        assert!(is_enabled("always [madvise] never\n"));
        assert!(is_enabled("[always] madvise never\n"));
        assert!(!is_enabled("always madvise [never]\n"));
        assert!(!is_enabled(""));
    }

    #[test]
    fn a_table_is_made_when_all_of_it_is_filled() {
        let low = 0x7000_0000;
        let calls = calls(low, 0, 5);
        let all: Vec<i64> = calls
            .iter()
            .map(|call| match call[0] {
                SYS_PREAD64 => call[3] as i64,
                SYS_MADVISE => -22,
                _ => call[1] as i64,
            })
            .collect();
        assert!(is_made(low, &all));
        assert!(!is_made(low, &all[..all.len() - 1]));
        assert!(!is_made(low + 4096, &all));
        let mut short = all.clone();
        short[5] -= 8;
        assert!(!is_made(low, &short));
        let read: u64 =
            calls.iter().filter(|call| call[0] == SYS_PREAD64).map(|call| call[3]).sum();
        assert_eq!(read, TABLE);
    }
}
