//! The code cache: all translated code of a family of address spaces, as tables.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::addr::{AppPc, CachePc};
use crate::block::{Block, CodeSource, Decoding};
use crate::counters::Counters;
use crate::emit::{Emitter, Output};
use crate::fragment::{Entry, EntryId, Fragment, FragmentId, Within};
use crate::image::Placed;
use crate::packed::Fragments;
use crate::pieces::{Piece, Pieces};
use crate::plan::Plan;
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
    /// Fragments of this run within superblocks.
    pub(crate) within: FxHashMap<FragmentId, Within>,
    /// The instructions whose flags guards overwrite, in fragments whose code may change.
    pub(crate) flag_writers: FxHashMap<FragmentId, Box<[u8]>>,
    /// Heads made for fragments of images.
    pub(crate) late_heads: FxHashMap<FragmentId, CachePc>,
    /// True if profiling is on in the threads that run this code.
    pub(crate) profiles: bool,
    /// True if fragments add their instructions to the thread's [sum](crate::context::trace).
    pub(crate) sums: bool,
    /// True if indirect calls are counted by where they lead.
    pub(crate) calls: bool,
    pub(crate) scratch: Scratch,
}

/// Memory of one translation that the next one uses again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Blocks decoded for a region: also looked at for the liveness of flags.
    decoded: FxHashMap<AppPc, Option<Arc<Block>>>,
    /// Blocks whose memory can be used again.
    spare: Vec<Arc<Block>>,
    /// The collection of an emitter, likewise.
    pub used: Output,
}

impl Scratch {
    /// Returns the block at `pc`, decoded now or earlier for the same region.
    pub fn decode(
        &mut self,
        source: &mut dyn CodeSource,
        pc: AppPc,
        how: Decoding,
    ) -> Option<Arc<Block>> {
        if let Some(known) = self.decoded.get(&pc) {
            return known.clone();
        }
        let mut block = self.spare.pop().unwrap_or_default();
        let fresh = Arc::make_mut(&mut block);
        let found = fresh.read(source, pc, how).then_some(block);
        self.decoded.insert(pc, found.clone());
        found
    }

    /// Forgets the blocks decoded for a region, but keeps their memory.
    pub fn forget_decoded(&mut self) {
        for mut block in self.decoded.drain().filter_map(|(_, block)| block) {
            if Arc::get_mut(&mut block).is_some() {
                self.spare.push(block);
            }
        }
    }
}

impl CodeCache {
    /// Returns empty tables; `profiles` says whether profiling is on in the threads that run the
    /// code, and `plan` what it counts.
    pub(crate) fn new(profiles: bool, plan: Plan) -> Self {
        let (calls, sums) = (plan.counts_calls(), plan.traces());
        Self { profiles, calls, sums, ..Self::default() }
    }

    /// Keeps the role of each counter. Comes before anything is translated or restored.
    pub fn keep_roles(&mut self) {
        self.counters.keep_roles();
    }

    /// Ends the piece of code that started at `start`.
    pub(crate) fn close_piece(
        &mut self,
        emitter: &Emitter<'_>,
        start: CachePc,
        pc: AppPc,
        fragment: Option<FragmentId>,
    ) {
        let len = (emitter.here().0 - start.0) as u32;
        let points = self.points.add(&emitter.out.points);
        self.pieces.insert(start, Piece { len, pc, fragment, points });
    }

    /// Returns the fragment with this number.
    pub fn fragment(&self, id: FragmentId) -> Fragment {
        match self.placed_of(id) {
            Some(placed) => placed.fragment(id, self.late_heads.get(&id).copied()),
            None => self.fragments.get(id),
        }
    }

    /// Returns what a fragment is within a superblock, if it is in one.
    pub fn within(&self, id: FragmentId) -> Option<Within> {
        match self.placed_of(id) {
            Some(placed) => placed.within(id),
            None => self.within.get(&id).copied(),
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

    /// Returns the counters with the delta of one increment of each.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
