//! The code cache: all translated code of a family of address spaces, as tables.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::addr::CachePc;
use crate::counters::Counters;
use crate::fragment::{Entry, EntryId, Fragment, FragmentId};
use crate::image::Placed;
use crate::packed::Fragments;
use crate::pieces::Pieces;
use crate::points::Points;

/// Fragments, entries and counters of translated code. The code itself lies in arenas.
#[derive(Debug, Default)]
pub struct CodeCache {
    pub(crate) fragments: Fragments,
    pub(crate) entries: Vec<Entry>,
    pub(crate) counters: Counters,
    pub(crate) points: Points,
    /// Every piece of code by its start address.
    pub(crate) pieces: Pieces,
    /// Images in place, ascending by their first fragment.
    pub(crate) placed: Vec<Arc<Placed>>,
    /// Heads made for fragments of images.
    pub(crate) late_heads: FxHashMap<FragmentId, CachePc>,
}

impl CodeCache {
    /// Returns the fragment with this number.
    pub fn fragment(&self, id: FragmentId) -> Fragment {
        match self.placed_of(id) {
            Some(placed) => placed.fragment(id, self.late_heads.get(&id).copied()),
            None => self.fragments.get(id),
        }
    }

    /// Returns whether there is a fragment with this number.
    pub fn has_fragment(&self, id: FragmentId) -> bool {
        self.placed_of(id).is_some() || (id.0 as usize) < self.fragments.len()
    }

    /// Returns the place at which a direct branch enters a fragment, if it has one.
    pub fn head_of(&self, id: FragmentId) -> Option<CachePc> {
        match self.placed_of(id) {
            Some(placed) => self.late_heads.get(&id).copied().or_else(|| placed.head(id)),
            None => self.fragments.head(id),
        }
    }

    /// Returns the entry with this number.
    pub fn entry(&self, id: EntryId) -> &Entry {
        &self.entries[id.0 as usize]
    }

    /// Number of entries, which is the number of chain slots in use.
    pub fn entry_count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Number of fragments.
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    /// Returns the counters with the weight of one increment of each.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
