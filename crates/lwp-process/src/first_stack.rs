//! The stack with which a program begins, at a place and of a form that depend on nothing but the
//! program.
//!
//! The kernel puts arguments, environment and auxiliary vector below the strings that they point
//! to: where the stack begins depends on the length of the program's path and of every variable,
//! and so does the alignment of everything on it, which counts depend on. Nor have all kernels the
//! same entries.

use crate::Tid;
use crate::memory;

use crate::maps::Mapping;

/// Stacks begin at a multiple of this below their upper end: enough for what programs are usually
/// given.
const STEP: u64 = 64 << 10;
/// Bytes that must be left below.
const LEAST: u64 = 16 << 10;

/// The entries of the auxiliary vector that every kernel has which lwp runs on, by their numbers in
/// `linux/auxvec.h`: from AT_PHDR to AT_RANDOM, AT_HWCAP2, AT_EXECFN and, where the processor needs
/// it, AT_MINSIGSTKSZ.
#[rustfmt::skip] // In groups.
const KEPT: &[u64] = &[3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 23, 25, 26, 31, 51];

/// Moves what the kernel has put on the stack of `tid`, which is stopped at its first instruction
/// with the stack pointer at `stack`; where to. Not where there is no room.
pub fn settle(tid: Tid, stack: u64, mappings: &[Mapping]) -> Option<u64> {
    let mapping = mappings.iter().find(|m| m.start <= stack && stack < m.end)?;
    let mut bytes = vec![0; (mapping.end - stack) as usize];
    memory::read_exact(tid, stack, &mut bytes).ok()?;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    let settled = without_novelties(&words)?;
    let place = mapping.end - (mapping.end - stack).next_multiple_of(STEP);
    if place < mapping.start + LEAST {
        return None;
    }
    let bytes: Vec<u8> = settled.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory::write_exact(tid, place, &bytes).ok()?;
    Some(place)
}

/// Argument count, arguments, environment and auxiliary vector, without the entries that not all
/// kernels have.
fn without_novelties(words: &[u64]) -> Option<Vec<u64>> {
    let arguments = usize::try_from(*words.first()?).ok()?;
    // Both lists end with a zero.
    let environment = arguments.checked_add(2)?;
    let length = words.get(environment..)?.iter().position(|word| *word == 0)?;
    let (strings, auxiliary) = words.split_at(environment + length + 1);
    let mut settled = strings.to_vec();
    for entry in auxiliary.chunks_exact(2) {
        if entry[0] == 0 {
            settled.extend([0, 0]);
            return Some(settled);
        }
        if KEPT.contains(&entry[0]) {
            settled.extend(entry);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_not_all_kernels_have_are_left_out() {
        let (argv, envp) = ([0x7f01, 0x7f02, 0], [0x7f10, 0]);
        let auxv = [[33, 0x7000], [16, 0xbfeb], [27, 32], [6, 4096], [28, 32], [0, 0]];
        let strings = [0x2f_6269_6e2f_6c73, 0x4100];
        let words = [&[2][..], &argv, &envp, auxv.as_flattened(), &strings].concat();
        let settled = [&[2][..], &argv, &envp, &[16, 0xbfeb, 6, 4096, 0, 0]].concat();
        assert_eq!(without_novelties(&words), Some(settled));
    }

    #[test]
    fn what_does_not_end_is_left_alone() {
        assert_eq!(without_novelties(&[]), None);
        assert_eq!(without_novelties(&[1, 0x7f01, 0, 0]), None);
        assert_eq!(without_novelties(&[1, 0x7f01, 0, 0, 6, 4096]), None);
        assert_eq!(without_novelties(&[u64::MAX, 1, 0]), None);
        assert_eq!(without_novelties(&[0, 0, 0, 0, 0]), Some(vec![0, 0, 0, 0, 0]));
    }
}
