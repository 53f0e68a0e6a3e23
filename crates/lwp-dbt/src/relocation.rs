//! Relocations: the words of translated code that depend on an address (of the code, the arena's
//! routines, its counters, its chain slots or the application's module) or on the numbers of
//! fragments. Everything else in a unit's code is relative to the unit itself.

use crate::addr::CachePc;

/// The thing that a word depends on; the word has four bytes, where nothing else is said.
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
    /// The negated address of a place in the application's module, eight bytes.
    Negated = 7,
    /// An address in the application's module below 2 GiB.
    Low = 8,
    /// An address in the application's module whose two halves are the immediates of two
    /// comparisons, fourteen bytes apart.
    Halves = 9,
    /// An address in the application's module, as the words of a guard that rotates.
    Rotated = 10,
    /// An address in the application's module, as the words of the way back from a guard that
    /// rotates.
    RotatedBack = 11,
}

/// Bytes from the first half of an address to the second one.
pub(crate) const HALVES_APART: usize = 14;

/// Bytes from the first word of a rotated comparison to the second one.
pub(crate) const ROTATED_APART: usize = 13;

/// An address that is compared with without touching the flags: `low` is added, which leaves zero
/// in the low half alone if the addresses are equal, the halves are swapped, and `high` is
/// subtracted. Each of these steps can be undone, so the result is zero for equal addresses only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotated {
    low: i32,
    high: i32,
}

impl Rotated {
    /// `None` for an address of 63 bits and more.
    pub fn of(address: u64) -> Option<Self> {
        let low = (address as i32).wrapping_neg();
        let rest = address.cast_signed().checked_add(i64::from(low))?;
        Some(Self { low, high: i32::try_from(rest >> 32).ok().filter(|high| *high >= 0)? })
    }

    /// The words that lead to zero: what is added before the rotation, and behind it.
    pub fn words(self) -> [i32; 2] {
        [self.low, -self.high]
    }

    /// The words that lead back, to one less than there was.
    pub fn words_back(self) -> [i32; 2] {
        [self.high, !self.low]
    }

    /// The address.
    fn address(self) -> u64 {
        ((i64::from(self.high) << 32).wrapping_sub(i64::from(self.low))).cast_unsigned()
    }

    /// The address that `words` stand for, plus `delta`, as such words; `back` says of which kind
    /// they are.
    pub fn moved(words: [i32; 2], delta: i64, back: bool) -> Option<[i32; 2]> {
        let old = match back {
            false => Self { low: words[0], high: words[1].checked_neg()? },
            true => Self { low: !words[1], high: words[0] },
        };
        let new = Self::of(old.address().wrapping_add_signed(delta))?;
        Some(if back { new.words_back() } else { new.words() })
    }
}

impl Relocation {
    const ALL: [Self; 12] = [
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
        Self::Rotated,
        Self::RotatedBack,
    ];
    /// The number of kinds.
    pub(crate) const KINDS: usize = Self::ALL.len();

    /// Most bytes of a word.
    pub(crate) const MOST_BYTES: usize = HALVES_APART + 4;

    /// Bytes of the word.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Address | Self::Negated => 8,
            Self::Halves => HALVES_APART + 4,
            Self::Rotated | Self::RotatedBack => ROTATED_APART + 4,
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
    /// The address that they are relative to: the start of the first code that had any.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Does the same as the emitted instructions.
    fn rotate_between(value: u64, [first, second]: [i32; 2]) -> u64 {
        let value = value.wrapping_add_signed(first.into()).rotate_right(32);
        value.wrapping_add_signed(second.into())
    }

    #[test]
    fn rotated_comparisons_are_exact_and_can_be_moved() {
        let addresses = [
            0x1000,
            0x7fff_ffff,
            0x8000_0000,
            0x8000_0001,
            0xffff_ffff,
            0x1_0000_0000,
            0x5555_8000_0000,
            0x7f12_8000_0001,
            0x7fff_ffff_f000,
        ];
        for address in addresses {
            let rotated = Rotated::of(address).unwrap();
            for other in addresses.into_iter().chain([0, u64::MAX, 1 << 63, address ^ 1]) {
                let left = rotate_between(other, rotated.words());
                assert_eq!(left == 0, other == address, "{other:#x} at {address:#x}");
                let back = rotate_between(left, rotated.words_back()).wrapping_add(1);
                assert_eq!(back, other, "{other:#x} at {address:#x}");
            }
            for to in addresses {
                let (delta, moved) = (to.wrapping_sub(address) as i64, Rotated::of(to).unwrap());
                assert_eq!(Rotated::moved(rotated.words(), delta, false), Some(moved.words()));
                let back = Rotated::moved(rotated.words_back(), delta, true);
                assert_eq!(back, Some(moved.words_back()));
            }
        }
        assert_eq!(Rotated::of(1 << 63), None);
    }
}
