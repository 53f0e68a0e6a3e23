//! Calls about ranges of memory that hold something of the virtual CPU's, where natively nothing is
//! mapped.
//!
//! Promise: F28

use super::{ENOMEM, Pending, nr, page};

/// First address behind those of 47 bits.
const END_OF_47_BITS: u64 = 0x7fff_ffff_f000;
/// An address of whole pages at which nothing can be mapped in any address space. The kernel
/// judges a call's other arguments there as well, and then finds nothing.
pub const NOWHERE: u64 = (1 << 56) - 4096;
/// MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_HWPOISON and MADV_SOFT_OFFLINE: page by page.
const BY_PAGES: [u32; 4] = [22, 23, 100, 101];

/// The behaviour of a call at a part of its range where nothing is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtHole {
    /// It ends there, with this result.
    Ends(i64),
    /// It goes on behind it and returns this in the end.
    GoesOn(i64),
    /// It fails, and does nothing.
    Fails,
    /// It does to mappings of ours no harm, and returns this in the end.
    Notes(i64),
}

/// Returns what a call does natively where nothing is mapped; `None` for a call that maps
/// something, or is about no range.
pub fn at_hole(pending: &Pending) -> Option<AtHole> {
    let advice = pending.args[2] as u32;
    Some(match pending.number {
        nr::MUNMAP => AtHole::GoesOn(0),
        nr::MADVISE if BY_PAGES.contains(&advice) => AtHole::Ends(ENOMEM),
        nr::MADVISE => AtHole::GoesOn(ENOMEM),
        nr::MPROTECT | nr::PKEY_MPROTECT | nr::MINCORE | nr::MLOCK | nr::MUNLOCK | nr::MLOCK2 => {
            AtHole::Ends(ENOMEM)
        }
        nr::MSYNC => AtHole::Notes(ENOMEM),
        nr::MSEAL | nr::MREMAP | nr::REMAP_FILE_PAGES => AtHole::Fails,
        _ => return None,
    })
}

/// The pages that such a call is about. None where the kernel refuses it as it is.
pub fn pages_of(pending: &Pending) -> (u64, u64) {
    let [address, bytes, _, _] = pending.args;
    let locks = matches!(pending.number, nr::MLOCK | nr::MUNLOCK | nr::MLOCK2);
    let start = if locks { address & !4095 } else { address };
    let end = start.saturating_add(page(bytes.saturating_add(address - start)));
    let bounded = matches!(pending.number, nr::MUNMAP | nr::MINCORE);
    match start & 4095 != 0 || bounded && end > END_OF_47_BITS {
        true => (0, 0),
        false => (start, end),
    }
}

/// The parts of a range that lie in none of `ours`.
pub fn around(range: (u64, u64), ours: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut ours = ours.to_vec();
    ours.sort_unstable();
    let mut parts = Vec::new();
    let mut at = range.0;
    for (start, end) in ours.into_iter().chain([(range.1, range.1)]) {
        let end_of_part = start.min(range.1);
        if at < end_of_part {
            parts.push((at, end_of_part));
        }
        at = at.max(end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, address: u64, bytes: u64) -> Pending {
        Pending::new(number, [address, bytes, 0, 0])
    }

    #[test]
    fn what_is_ours_is_left_out() {
        let ours = [(0x5000, 0x7000), (0x2000, 0x3000), (0x6000, 0x8000)];
        assert_eq!(
            around((0x1000, 0x9000), &ours),
            [(0x1000, 0x2000), (0x3000, 0x5000), (0x8000, 0x9000)]
        );
        assert_eq!(around((0x2000, 0x3000), &ours), []);
        assert_eq!(around((0x2800, 0x6000), &ours), [(0x3000, 0x5000)]);
        assert_eq!(around((0x9000, 0xa000), &ours), [(0x9000, 0xa000)]);
    }

    #[test]
    fn locks_need_not_begin_with_a_page() {
        assert_eq!(pages_of(&call(nr::MLOCK, 0x1800, 0x1000)), (0x1000, 0x3000));
        assert_eq!(pages_of(&call(nr::MUNMAP, 0x1800, 0x1000)), (0, 0));
        assert_eq!(pages_of(&call(nr::MUNMAP, 0x1000, 0x1001)), (0x1000, 0x3000));
        assert_eq!(pages_of(&call(nr::MUNMAP, 0x1000, u64::MAX)), (0, 0));
        assert_eq!(pages_of(&call(nr::MPROTECT, 0x1000, 0)), (0x1000, 0x1000));
    }
}
