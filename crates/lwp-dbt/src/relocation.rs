//! Relocations: the words of translated code that depend on where the code, the arena's routines,
//! its counters, its chain slots and the application's module lie, or on how its fragments are
//! numbered. Everything else in a unit's code is relative to the unit itself.

use crate::addr::CachePc;

/// What a word depends on: four bytes, where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Relocation {
    /// gs-relative displacement of a counter.
    Counter = 0,
    /// Absolute address of a chain slot.
    Chain = 1,
    /// rip-relative displacement of an address in the application's module.
    Application = 2,
    /// rip-relative displacement of a routine of the arena.
    Routines = 3,
    /// The number of a fragment.
    Fragment = 4,
    /// The [name](crate::context::calls::call_site) of the site of an indirect call, made from its
    /// counter.
    CallSite = 5,
    /// An address in the application's module, eight bytes.
    Address = 6,
    /// The same, negated.
    Negated = 7,
    /// An address in the application's module below 2 GiB.
    Low = 8,
    /// An address in the application's module whose two halves are the immediates of two
    /// comparisons, fourteen bytes apart.
    Halves = 9,
}

/// Bytes from the first half of an address to the second one.
pub(crate) const HALVES_APART: usize = 14;

impl Relocation {
    const ALL: [Self; 10] = [
        Self::Counter,
        Self::Chain,
        Self::Application,
        Self::Routines,
        Self::Fragment,
        Self::CallSite,
        Self::Address,
        Self::Negated,
        Self::Low,
        Self::Halves,
    ];
    /// How many kinds there are.
    pub(crate) const KINDS: usize = Self::ALL.len();

    /// Most bytes of a word.
    pub(crate) const MOST_BYTES: usize = HALVES_APART + 4;

    /// Bytes of the word.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Address | Self::Negated => 8,
            Self::Halves => HALVES_APART + 4,
            _ => 4,
        }
    }
}

/// A relocation and its place, relative to the start of a unit's code, in one word: the place in
/// the low 28 bits, the kind above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site(pub u32);

/// Most bytes of code that sites can point into.
pub(crate) const SITE_LIMIT: usize = 1 << KIND_SHIFT;
const KIND_SHIFT: u32 = 28;

impl Site {
    pub(crate) fn new(at: usize, kind: Relocation) -> Option<Self> {
        (at < SITE_LIMIT).then_some(Self(at as u32 | (kind as u32) << KIND_SHIFT))
    }

    pub(crate) fn at(self) -> usize {
        (self.0 & (SITE_LIMIT as u32 - 1)) as usize
    }

    /// The first byte after the word.
    pub(crate) fn end(self) -> usize {
        self.at() + self.kind().map_or(4, Relocation::bytes)
    }

    /// `None` where this is damaged.
    pub(crate) fn kind(self) -> Option<Relocation> {
        Relocation::ALL.get((self.0 >> KIND_SHIFT) as usize).copied()
    }
}

/// Relocations at addresses of the tracee.
#[derive(Debug, Default)]
pub(crate) struct PlacedSites {
    /// What they are relative to: where the first code that had any begins.
    base: Option<CachePc>,
    sites: Vec<Site>,
    /// True if one was too far from the others.
    lost: bool,
}

impl PlacedSites {
    /// Adds those of code appended at `base`, whose places are relative to that.
    pub fn extend(&mut self, base: CachePc, sites: &[(usize, Relocation)]) {
        if sites.is_empty() {
            return;
        }
        let distance = base.0.checked_sub(self.base.get_or_insert(base).0);
        for &(at, kind) in sites {
            let site = distance.and_then(|distance| Site::new(distance as usize + at, kind));
            self.lost |= site.is_none();
            self.sites.extend(site);
        }
    }

    /// All of them, or none where one was lost.
    pub fn all(&self) -> Option<impl Iterator<Item = (CachePc, Relocation)> + '_> {
        let base = self.base.unwrap_or(CachePc(0));
        (!self.lost).then(|| {
            self.sites
                .iter()
                .filter_map(move |site| Some((base.offset(site.at() as u64), site.kind()?)))
        })
    }
}
