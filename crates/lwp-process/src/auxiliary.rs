//! The auxiliary vector, by which the kernel tells a new program of itself.

use crate::{Tid, memory};

use crate::maps::read_whole;

/// Type of an entry without meaning.
pub const AT_IGNORE: u64 = 1;
/// Type of the dynamic linker's address.
pub const AT_BASE: u64 = 7;
/// Type of the address of the program's first instruction.
pub const AT_ENTRY: u64 = 9;
/// Type of a word of processor features.
pub const AT_HWCAP: u64 = 16;
/// Type of the address of sixteen random bytes.
pub const AT_RANDOM: u64 = 25;
/// Type of a second word of processor features.
pub const AT_HWCAP2: u64 = 26;
/// Type of the vdso's address.
pub const AT_SYSINFO_EHDR: u64 = 33;

/// An auxiliary vector: types and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auxiliary {
    /// Its address on the stack of a new program.
    at: u64,
    entries: Vec<[u64; 2]>,
}

impl Auxiliary {
    /// Reads the vector of a thread's program from `/proc`. Empty if that is not possible.
    pub fn of(tid: Tid) -> Self {
        let bytes = read_whole(tid, "auxv").unwrap_or_default();
        Self { at: 0, entries: entries(&words(&bytes)).unwrap_or_default() }
    }

    /// Reads the vector of a program that stands at its first instruction from its stack, behind
    /// arguments and environment.
    pub fn at_start(tid: Tid, stack: u64) -> Option<Self> {
        // All of it, as a rule; and the most that a kernel takes by default, with its pointers.
        const LENGTHS: [usize; 2] = [8 << 10, 2 << 20];
        LENGTHS.into_iter().find_map(|len| {
            let mut bytes = vec![0; len];
            let got = memory::read_some(tid, stack, &mut bytes).ok()?;
            let words = words(&bytes[..got]);
            let (index, entries) = on_stack(&words)?;
            Some(Self { at: stack + index as u64 * 8, entries })
        })
    }

    /// Returns the value of the first entry of a type.
    pub fn value(&self, kind: u64) -> Option<u64> {
        self.entries.iter().find(|[it, _]| *it == kind).map(|[_, value]| *value)
    }

    /// Address, type and value of each entry on the stack of a new program.
    pub fn entries(&self) -> impl Iterator<Item = (u64, [u64; 2])> {
        self.entries.iter().enumerate().map(|(index, entry)| (self.at + index as u64 * 16, *entry))
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Returns the entries before the null entry, or nothing if there is no null entry.
fn entries(words: &[u64]) -> Option<Vec<[u64; 2]>> {
    let pairs = words.as_chunks().0;
    let end = pairs.iter().position(|[kind, _]| *kind == 0)?;
    Some(pairs[..end].to_vec())
}

/// Finds the vector on a stack that begins with the number of arguments: its index and its entries.
fn on_stack(stack: &[u64]) -> Option<(usize, Vec<[u64; 2]>)> {
    let arguments = usize::try_from(*stack.first()?).ok()?;
    let environment = arguments.checked_add(2)?;
    let variables = stack.get(environment..)?.iter().position(|word| *word == 0)?;
    let at = environment + variables + 1;
    Some((at, entries(&stack[at..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_is_behind_arguments_and_environment() {
        let stack = [2, 0x10, 0x20, 0, 0x30, 0, AT_ENTRY, 0x4000, AT_RANDOM, 1, 0, 0, 0x77];
        let expected = (6, vec![[AT_ENTRY, 0x4000], [AT_RANDOM, 1]]);
        assert_eq!(on_stack(&stack), Some(expected));
    }

    #[test]
    fn a_stack_that_was_not_read_to_the_end_has_none() {
        let stack = [1, 0x10, 0, 0x30, 0, AT_ENTRY, 0x4000, 0, 0];
        for len in 0..7 {
            assert_eq!(on_stack(&stack[..len]), None, "{len} words");
        }
        assert_eq!(on_stack(&[u64::MAX, 0, 0]), None);
    }
}
