//! The kernel's functions, from `/proc/kallsyms`.

use std::collections::BTreeSet;

/// Functions of the kernel by address, as far as the kernel shows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelNames {
    /// Start, size and name.
    functions: Vec<(u64, u64, String)>,
}

/// The lowest address of the kernel: that half of all addresses is its own.
pub(crate) const KERNEL_START: u64 = 1 << 63;

/// A function at the end of a list is taken for no longer.
const LONGEST: u64 = 1 << 16;

impl KernelNames {
    /// The names of the functions that have one of the sampled `addresses`.
    pub fn of(addresses: &BTreeSet<u64>) -> Self {
        if addresses.is_empty() {
            return Self::default();
        }
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        Self::in_text(&text, addresses)
    }

    fn in_text(text: &str, addresses: &BTreeSet<u64>) -> Self {
        let mut all: Vec<(u64, String)> = text.lines().filter_map(function).collect();
        all.sort();
        all.dedup_by_key(|(start, _)| *start);
        let mut functions: Vec<(u64, u64, String)> = Vec::new();
        for address in addresses {
            let after = all.partition_point(|(start, _)| start <= address);
            let Some((start, name)) = after.checked_sub(1).map(|at| &all[at]) else { continue };
            if functions.last().is_some_and(|(known, ..)| known == start) {
                continue;
            }
            let next = all.get(after).map_or(start.saturating_add(LONGEST), |(next, _)| *next);
            functions.push((*start, next - start, name.clone()));
        }
        Self { functions }
    }

    /// Start, size and name of each, in order; without any, one name for the whole kernel.
    pub fn functions(&self) -> Vec<(u64, u64, String)> {
        match self.functions.is_empty() {
            true => vec![(KERNEL_START, u64::MAX - KERNEL_START, "[names hidden]".to_owned())],
            false => self.functions.clone(),
        }
    }

    /// Returns whether the kernel hides its addresses.
    pub fn are_hidden(&self) -> bool {
        self.functions.is_empty()
    }
}

/// `ADDRESS KIND NAME [MODULE]`; addresses that are hidden are 0.
fn function(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|it| *it >= KERNEL_START)?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    let name = words.next().filter(|_| is_code)?;
    Some((address, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff81000100 t do_work\n\
                        ffffffff81000200 D data\nffffffff81000300 T last\t[module]\n";

    #[test]
    fn sampled_addresses_are_named() {
        let at = |low: u64| 0xffff_ffff_8100_0000 | low;
        let addresses = BTreeSet::from([at(0x180), at(0x1ff), at(0x308)]);
        let names = KernelNames::in_text(TEXT, &addresses);
        let expected = [(at(0x100), 0x200, "do_work"), (at(0x300), LONGEST, "last")];
        let expected = expected.map(|(start, size, name)| (start, size, name.to_owned()));
        assert_eq!(names.functions(), expected);
        assert!(!names.are_hidden());
    }

    #[test]
    fn hidden_addresses_name_the_kernel_as_a_whole() {
        let text = "0000000000000000 T _stext\n0000000000000000 t do_work\n";
        let names = KernelNames::in_text(text, &BTreeSet::from([u64::MAX - 5]));
        assert!(names.are_hidden());
        assert_eq!(names.functions().len(), 1);
    }
}
