//! Superblocks of code that may change. The fragments of a superblock's blocks remain, so it can be
//! switched off at any moment, and on again.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::addr::{AppPc, CachePc};
use crate::fragment::{FragmentId, Neighbour};

pub(crate) const PAGE: u64 = 4096;

/// A superblock over fragments whose code may change.
#[derive(Debug)]
pub(crate) struct Overlay {
    /// The fragment of its first block, and its head, which leads to the superblock while that is
    /// open.
    pub base: (FragmentId, CachePc),
    /// Its own patchable head.
    pub head: CachePc,
    /// The patchable places at which it is left while it is closed, and the stubs that they lead
    /// to.
    pub places: Vec<[CachePc; 2]>,
    /// The code of its blocks.
    pub code: Box<[Neighbour]>,
    /// True while the fragment leads to it.
    pub open: bool,
    /// The number of times that it has been laid anew because its code had changed.
    pub again: u32,
}

/// The superblocks of a unit, by the pc of their first block.
#[derive(Debug, Default)]
pub struct Overlays {
    all: FxHashMap<AppPc, Overlay>,
    by_page: BTreeMap<u64, Vec<AppPc>>,
}

impl Overlays {
    /// Returns the superblock that begins at `pc`.
    pub(crate) fn get(&self, pc: AppPc) -> Option<&Overlay> {
        self.all.get(&pc)
    }

    /// Returns the superblock that begins at `pc`, to be opened or closed.
    pub(crate) fn get_mut(&mut self, pc: AppPc) -> Option<&mut Overlay> {
        self.all.get_mut(&pc)
    }

    /// Takes in a superblock that begins at `pc`.
    pub(crate) fn insert(&mut self, pc: AppPc, overlay: Overlay) {
        for page in pages(&overlay.code) {
            self.by_page.entry(page).or_default().push(pc);
        }
        self.all.insert(pc, overlay);
    }

    /// Gives up the superblock that begins at `pc`, and returns it.
    pub(crate) fn remove(&mut self, pc: AppPc) -> Option<Overlay> {
        let overlay = self.all.remove(&pc)?;
        for page in pages(&overlay.code) {
            let Some(known) = self.by_page.get_mut(&page) else { continue };
            known.retain(|other| *other != pc);
            if known.is_empty() {
                self.by_page.remove(&page);
            }
        }
        Some(overlay)
    }

    /// The first pcs of all superblocks that have code in `page`.
    pub(crate) fn in_page(&self, page: u64) -> &[AppPc] {
        self.by_page.get(&page).map_or(&[], |known| known)
    }

    /// Returns whether a superblock begins at `pc`.
    pub fn has(&self, pc: AppPc) -> bool {
        self.all.contains_key(&pc)
    }

    /// Returns whether one does that the program is led to.
    pub fn is_open(&self, pc: AppPc) -> bool {
        self.all.get(&pc).is_some_and(|overlay| overlay.open)
    }

    /// The pages, of those that overlap the addresses in `range`, in which superblocks have code.
    pub fn pages_in(&self, range: (u64, u64)) -> Vec<u64> {
        let (first, end) = (range.0 & !(PAGE - 1), range.1);
        if first >= end {
            return Vec::new();
        }
        self.by_page.range(first..end).map(|(page, _)| *page).collect()
    }
}

/// The pages of the blocks, each once.
fn pages(code: &[Neighbour]) -> Vec<u64> {
    let page = |address: u64| address & !(PAGE - 1);
    let ends = code.iter().flat_map(|it| [it.pc.0, it.pc.0 + it.bytes.len().max(1) as u64 - 1]);
    let mut pages: Vec<u64> = ends.map(page).collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(code: &[(u64, usize)]) -> Overlay {
        let code =
            code.iter().map(|(pc, len)| Neighbour { pc: AppPc(*pc), bytes: vec![0; *len].into() });
        let base = (FragmentId(0), CachePc(0));
        Overlay {
            base,
            head: CachePc(0),
            places: Vec::new(),
            code: code.collect(),
            open: false,
            again: 0,
        }
    }

    #[test]
    fn superblocks_are_found_by_each_page_of_their_code() {
        let mut overlays = Overlays::default();
        overlays.insert(AppPc(0x1ffe), overlay(&[(0x1ffe, 4), (0x1000, 8), (0x5000, 1)]));
        overlays.insert(AppPc(0x5010), overlay(&[(0x5010, 3)]));
        assert_eq!(overlays.pages_in((0, u64::MAX)), [0x1000, 0x2000, 0x5000]);
        assert_eq!(overlays.pages_in((0x1fff, 0x2001)), [0x1000, 0x2000]);
        assert_eq!(overlays.in_page(0x1000), [AppPc(0x1ffe)]);
        assert_eq!(overlays.in_page(0x5000), [AppPc(0x1ffe), AppPc(0x5010)]);
        overlays.remove(AppPc(0x1ffe));
        assert_eq!(overlays.pages_in((0, u64::MAX)), [0x5000]);
        assert_eq!(overlays.in_page(0x5000), [AppPc(0x5010)]);
        assert!(overlays.has(AppPc(0x5010)) && !overlays.has(AppPc(0x1ffe)));
    }
}
