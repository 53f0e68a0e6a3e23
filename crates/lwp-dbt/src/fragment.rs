//! Results of translation: fragments, indirect entries, and the module they belong to.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::addr::{AppPc, CachePc};
use crate::code_cache::CodeCache;
use crate::image::Placed;
use crate::marks::Marks;
use crate::overlays::Overlays;
use crate::plan::{Checks, EventDeltas, IpFilter};
use crate::rebuild::Knowledge;
use crate::region::Candidate;
use crate::relocation::{PlacedSites, Relocation};
use crate::state_map::FlagWriter;

/// A fragment's number in its [`crate::Translator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FragmentId(pub u32);

/// An indirect entry's number in its [`crate::Translator`]; also its chain slot's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

/// A translated basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its first instruction in the application.
    pub pc: AppPc,
    /// Bytes of the application it covers.
    pub app_len: u16,
    /// Instructions it covers.
    pub instructions: u16,
    /// First byte of its code, the entry stub included.
    pub start: CachePc,
    /// Bytes of its code.
    pub len: u32,
    /// The address at which a direct branch enters; charges the fragment. Made on demand where the
    /// fragment was laid behind a not-taken edge.
    pub head: Option<CachePc>,
    /// The address at which it is entered already charged.
    pub join: CachePc,
    /// True if it was laid behind a not-taken edge and charges itself, in the shorter or the longer
    /// way that its flags allow, before anything else: then who charges it instead can enter behind
    /// that.
    pub charged_first: bool,
    /// The target of its direct terminator.
    pub target: AppPc,
    /// The counts of one execution, a conditional terminator as taken.
    pub deltas: EventDeltas,
    /// The amounts that one execution takes from the high and the low part of the LWP countdown.
    pub countdown: (u8, u8),
    /// True if the flags it is entered with are overwritten before they are read.
    pub flags_dead: bool,
}

/// The record of a fragment that is a part of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// The counts of the fragments behind it, which were charged with it.
    pub behind: EventDeltas,
    /// The amounts that were taken for them from the high and the low part of the LWP countdown.
    pub countdown: (u8, u8),
    /// The instruction whose flags its guard overwrites.
    pub flags: Option<FlagWriter>,
    /// The fragment behind it, to which its branch is expected to lead.
    pub next: Option<FragmentId>,
}

/// A place where indirect branches enter, published in the indirect table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The application pc it verifies.
    pub pc: AppPc,
    /// Its code.
    pub stub: CachePc,
}

/// A not-taken edge that is charged together with the fragment behind it, in code that may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergedEdge {
    /// The patchable place in front of the fragment.
    pub at: CachePc,
    /// The counter of the edge alone, for when the fragment has been cut off.
    pub counter: u32,
    /// The stub that counts it then, once there is one, and the displacement there that leads on.
    pub stub: Option<[CachePc; 2]>,
}

/// The record of a fragment whose application bytes may change.
#[derive(Debug)]
pub(crate) struct Changeable {
    /// The application bytes that it was made from.
    pub bytes: Box<[u8]>,
    /// True where the fragment compares them itself before it runs.
    pub compares: bool,
    /// The edge that it charges too, if it does.
    pub edge: Option<MergedEdge>,
    /// The code behind it that it takes for given.
    pub trusted: Option<Neighbour>,
}

/// Code as it was when something was made that depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub pc: AppPc,
    /// Its bytes.
    pub bytes: Box<[u8]>,
}

/// A cut fragment and the application bytes it was made from.
pub(crate) type CutFragment = (FragmentId, Box<[u8]>);

/// The translations of code that may change.
#[derive(Debug, Default)]
pub struct Changing {
    /// The fragments, dormant ones among them.
    pub(crate) fragments: FxHashMap<FragmentId, Changeable>,
    /// Fragments that have been cut off and are good again where their bytes turn out to be the
    /// same, by pc.
    pub(crate) dormant: BTreeMap<AppPc, FragmentId>,
    /// Superblocks over fragments.
    pub overlays: Overlays,
}

impl Changing {
    /// Gives up the dormant fragment at `pc`.
    pub(crate) fn forget(&mut self, pc: AppPc, fragment: FragmentId) {
        self.dormant.remove(&pc);
        self.fragments.remove(&fragment);
    }

    /// Gives up all dormant fragments: nothing leads to them again.
    pub fn forget_dormant(&mut self) {
        for id in std::mem::take(&mut self.dormant).into_values() {
            self.fragments.remove(&id);
        }
    }
}

/// The ways out of a unit's new code.
#[derive(Debug, Default)]
pub(crate) struct Exits {
    /// Unlinked exits: the places of their displacements, by target.
    pub pending: FxHashMap<AppPc, Vec<CachePc>>,
    /// Exit stubs by target.
    pub stubs: FxHashMap<AppPc, CachePc>,
    /// Stubs of fragments that have been cut off, by pc: each asks the host. An exit stub may look
    /// in the indirect table instead, where it would find the fragment again.
    pub cut_off: FxHashMap<AppPc, CachePc>,
}

/// Everything that has been translated of one module: all executable segments of a file at one load
/// address, or the anonymous code of an address space.
///
/// Direct branches link only within a unit; everything else goes through the indirect table.
#[derive(Debug)]
pub struct Unit {
    /// The way its bytes may change.
    pub checks: Checks,
    /// The instructions in it that count, where that is not the same everywhere: see
    /// [`Translator::lwp_of`].
    ///
    /// [`Translator::lwp_of`]: crate::Translator::lwp_of
    pub filter: Option<IpFilter>,
    /// The instructions in it that the host wants to see come.
    pub marks: Marks,
    /// Fragments by their first application pc.
    pub fragments: FxHashMap<AppPc, FragmentId>,
    /// Indirect entries by application pc.
    pub entries: FxHashMap<AppPc, EntryId>,
    /// The ways out of its new code.
    pub(crate) exits: Exits,
    /// Cut fragments by pc and number of instructions, with the bytes they were made from.
    pub(crate) cuts: FxHashMap<(AppPc, u8), CutFragment>,
    /// The translations of code that may change.
    pub changing: Changing,
    /// The fragments that are only reached through the superblocks that they are in.
    pub(crate) inner: Vec<FragmentId>,
    /// Everything that was translated in an earlier run; the maps above hold only what is new.
    pub(crate) placed: Option<Arc<Placed>>,
    /// Places in its new code that depend on where it lies.
    pub(crate) relocations: PlacedSites,
}

impl Unit {
    /// A unit with nothing translated.
    pub fn new(checks: Checks) -> Self {
        Self {
            checks,
            filter: None,
            marks: Marks::default(),
            fragments: FxHashMap::default(),
            entries: FxHashMap::default(),
            exits: Exits::default(),
            cuts: FxHashMap::default(),
            changing: Changing::default(),
            inner: Vec::new(),
            placed: None,
            relocations: PlacedSites::default(),
        }
    }

    /// The fragment at `pc`.
    pub fn fragment_at(&self, pc: AppPc) -> Option<FragmentId> {
        let new = self.fragments.get(&pc).copied();
        new.or_else(|| self.placed.as_ref()?.fragment_at(pc))
    }

    /// Returns whether there is a fragment at `pc`.
    pub fn has_fragment(&self, pc: AppPc) -> bool {
        self.fragment_at(pc).is_some()
    }

    /// Returns whether what may be executed next is there already.
    pub fn has(&self, ahead: Candidate) -> bool {
        match ahead.entry {
            true => self.entry_at(ahead.pc).is_some(),
            false => self.has_fragment(ahead.pc),
        }
    }

    /// The indirect entry of `pc`.
    pub fn entry_at(&self, pc: AppPc) -> Option<EntryId> {
        let new = self.entries.get(&pc).copied();
        new.or_else(|| self.placed.as_ref()?.entry_at(pc))
    }

    /// Returns the number of fragments translated since the unit was made or restored.
    pub fn new_fragments(&self) -> usize {
        self.fragments.len()
    }

    /// Returns the number of entries made since then, with a fragment or for one.
    pub fn new_entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns the knowledge of its executions when it was kept.
    pub fn knowledge(&self) -> Knowledge {
        self.placed.as_ref().map_or(Knowledge::Little, |placed| placed.knowledge())
    }

    /// Returns the number of fragments that were restored.
    pub fn restored_fragments(&self) -> usize {
        self.placed.as_ref().map_or(0, |placed| placed.fragments())
    }

    /// Returns whether this fragment was restored with it.
    pub fn has_restored(&self, id: FragmentId) -> bool {
        self.placed.as_ref().is_some_and(|placed| placed.index(id) < placed.fragments())
    }

    /// The numbers of those that were restored.
    pub fn restored_ids(&self) -> impl Iterator<Item = FragmentId> + use<> {
        let first = self.placed.as_ref().map_or(0, |placed| placed.id(0).0);
        (first..first + self.restored_fragments() as u32).map(FragmentId)
    }

    /// The places of its fragments that have a pc of their own, in the order of their code, and
    /// those of its entries.
    pub(crate) fn known(&self, cache: &CodeCache) -> (Vec<AppPc>, FxHashSet<AppPc>) {
        let mut ids: Vec<FragmentId> = self.fragments.values().copied().collect();
        let mut entries: FxHashSet<AppPc> = self.entries.keys().copied().collect();
        if let Some(placed) = &self.placed {
            ids.extend((0..placed.reachable() as u32).map(|index| placed.id(index)));
            let first = placed.first_entry();
            let restored = (first..first + placed.image().entries() as u32).map(EntryId);
            entries.extend(restored.map(|id| cache.entry(id).pc));
        }
        let mut placed: Vec<(CachePc, AppPc)> = ids
            .into_iter()
            .map(|id| cache.fragment(id))
            .map(|fragment| (fragment.start, fragment.pc))
            .collect();
        placed.sort_unstable();
        (placed.into_iter().map(|(_, pc)| pc).collect(), entries)
    }

    /// The stub of exits to `target`.
    pub(crate) fn stub_of(&self, target: AppPc) -> Option<CachePc> {
        let new = self.exits.stubs.get(&target).copied();
        new.or_else(|| self.placed.as_ref()?.stub_of(target))
    }

    /// The exits that wait for `target`, which has just been translated.
    pub(crate) fn take_pending(&mut self, target: AppPc) -> Vec<CachePc> {
        let mut sites = self.exits.pending.remove(&target).unwrap_or_default();
        if let Some(placed) = &self.placed {
            sites.extend(placed.pending(target));
        }
        sites
    }

    /// Notes the places in code appended at `base` that depend on where it lies. Only the units of
    /// files are ever moved.
    pub(crate) fn relocated(&mut self, base: u64, sites: &[(usize, Relocation)]) {
        if self.checks == Checks::None {
            self.relocations.extend(CachePc(base), sites);
        }
    }

    /// The application bytes that `fragment` was translated from, where they may change.
    pub fn bytes_of(&self, fragment: FragmentId) -> Option<&[u8]> {
        self.changing.fragments.get(&fragment).map(|known| &*known.bytes)
    }

    /// The code behind `fragment` that it takes for given, where that may change.
    pub fn trusted_by(&self, fragment: FragmentId) -> Option<&Neighbour> {
        self.changing.fragments.get(&fragment)?.trusted.as_ref()
    }

    /// Number of fragments that can be executed now or again later, those restored left out.
    pub fn kept_fragments(&self) -> usize {
        self.fragments.len() + self.changing.dormant.len()
    }

    /// Returns whether `fragment`, made of the code at `pc`, can be executed now or again later.
    pub fn keeps(&self, pc: AppPc, fragment: FragmentId) -> bool {
        [self.fragments.get(&pc), self.changing.dormant.get(&pc)].contains(&Some(&fragment))
    }
}
