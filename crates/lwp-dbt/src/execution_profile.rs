//! Execution profiles: how often blocks were executed, and where their branches led.
//!
//! A profile shows which code is worth a superblock, and along which paths. It is only a hint: the
//! translator checks each step of a path, so a wrong profile, or one of another program, costs
//! nothing but speed.

use rustc_hash::FxHashMap;

use crate::addr::AppPc;
use crate::code_cache::CodeCache;
use crate::fragment::FragmentId;
use crate::plan::Role;

/// Targets of a branch that are remembered.
const TARGETS: usize = 4;
/// Counts are halved when one of them gets larger than this: what a program does now is to count
/// for more than what it did a hundred runs ago.
const LARGE: u64 = 1 << 40;
/// Bytes of a block in a profile's text of bytes.
const RECORD: usize = 4 + 8 + 8 + TARGETS * 8;
/// The sightings that a call stands for whose targets are counted.
const COUNTED: u32 = 64;
/// The target of a branch that leads to another module, or to a place unknown.
const ELSEWHERE: AppPc = AppPc(0);
/// A target elsewhere, in a profile's bytes, where other targets are relative to the module.
const FAR: i32 = i32::MIN;
/// Most blocks of a profile.
const MOST_BLOCKS: usize = 1 << 20;

/// The targets that an indirect branch was seen to lead to, and how often each was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Targets([(AppPc, u32); TARGETS]);

impl Targets {
    /// Takes in that the branch led to `target`, as seen `times`.
    pub fn note(&mut self, target: AppPc, times: u32) {
        let known = self.0.iter_mut().find(|(known, count)| *known == target && *count != 0);
        if let Some((_, count)) = known {
            *count = count.saturating_add(times);
            return;
        }
        // The rarest gives way, a little at a time, so that what is frequent stays.
        let Some(rarest) = self.0.iter_mut().min_by_key(|(_, count)| *count) else { return };
        match rarest.1.checked_sub(times) {
            Some(left) if left > 0 => rarest.1 = left,
            _ => *rarest = (target, times),
        }
    }

    /// Takes in that `times` of all `runs` of the branch led to `target`, and the others somewhere.
    fn note_part(&mut self, target: AppPc, times: u64, runs: u64) {
        let part = u128::from(times.min(runs)) * u128::from(COUNTED) / u128::from(runs.max(1));
        let part = part as u32;
        for (target, part) in [(target, part), (ELSEWHERE, COUNTED - part)] {
            if part > 0 {
                self.note(target, part);
            }
        }
    }

    /// All that are remembered, but for those in other modules.
    pub fn iter(&self) -> impl Iterator<Item = AppPc> {
        let seen = |(target, count): &&(AppPc, u32)| *count > 0 && *target != ELSEWHERE;
        self.0.iter().filter(seen).map(|(target, _)| *target)
    }

    /// The most frequent target, and its part of all that are remembered.
    pub fn likeliest(&self) -> Option<(AppPc, f64)> {
        let all: u64 = self.0.iter().map(|(_, count)| u64::from(*count)).sum();
        let (target, count) = *self.0.iter().max_by_key(|(_, count)| *count)?;
        (count > 0).then(|| (target, f64::from(count) / all as f64))
    }
}

/// The executions of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockProfile {
    /// The number of its executions.
    pub runs: u64,
    /// The number of times that the conditional branch at its end was not taken.
    pub not_taken: u64,
    /// The targets of the indirect branch at its end.
    pub targets: Targets,
}

/// The executions of the blocks of one module, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionProfile {
    blocks: FxHashMap<AppPc, BlockProfile>,
}

impl ExecutionProfile {
    /// Returns the profile that counters tell: by number the sum, and for those that hold a target
    /// those seen there.
    pub fn of_counters(
        cache: &CodeCache,
        counts: impl Iterator<Item = (usize, u64)>,
        targets: impl Iterator<Item = (usize, Targets)>,
    ) -> Self {
        let mut sums: FxHashMap<FragmentId, [i64; 2]> = FxHashMap::default();
        let mut heads: Vec<(FragmentId, i64)> = Vec::new();
        let mut before: FxHashMap<FragmentId, FragmentId> = FxHashMap::default();
        let mut add = |id: FragmentId, what: usize, count: i64| {
            let sum = &mut sums.entry(id).or_default()[what];
            *sum = sum.saturating_add(count);
        };
        // By the number of the counter that holds the first target: calls that led there.
        let mut called: FxHashMap<usize, u64> = FxHashMap::default();
        for (number, count) in counts {
            // A program can write to its counters.
            let count = i64::try_from(count).unwrap_or(0);
            match cache.counters().role(number) {
                Some(Role::Called(_)) => {
                    called.insert(number.wrapping_sub(1), count.unsigned_abs());
                }
                Some(Role::Runs(id)) => add(id, 0, count),
                Some(Role::RunsBehind { into, from }) => {
                    add(into, 0, count);
                    add(from, 1, count);
                    before.insert(into, from);
                }
                // Executions of a superblock are no block's alone, and its last branch is not
                // either.
                Some(Role::NotTaken(id)) if cache.within(id).is_none() => add(id, 1, count),
                Some(Role::Head(id)) => heads.push((id, count)),
                _ => {}
            }
        }
        for (into, count) in heads {
            if let Some(&from) = before.get(&into) {
                add(from, 1, -count);
            }
        }
        let mut profile = Self::default();
        for (id, [runs, not_taken]) in sums {
            let block = profile.blocks.entry(cache.fragment(id).pc).or_default();
            let positive = |count: i64| u64::try_from(count).unwrap_or(0);
            block.runs = block.runs.saturating_add(positive(runs));
            block.not_taken = block.not_taken.saturating_add(positive(not_taken));
        }
        for (number, seen) in targets {
            let role = cache.counters().role(number);
            let Some(Role::Target(id) | Role::CallTarget(id)) = role else { continue };
            let block = profile.blocks.entry(cache.fragment(id).pc).or_default();
            match (called.get(&number), seen.likeliest()) {
                (Some(times), Some((first, _))) => {
                    block.targets.note_part(first, *times, block.runs);
                }
                _ => block.targets.add(&seen),
            }
        }
        profile
    }

    /// Returns the executions of the block at `pc`.
    pub fn block(&self, pc: AppPc) -> Option<&BlockProfile> {
        self.blocks.get(&pc)
    }

    /// Says what is known of the block at `pc`.
    pub fn set(&mut self, pc: AppPc, block: BlockProfile) {
        self.blocks.insert(pc, block);
    }

    /// All blocks.
    pub fn iter(&self) -> impl Iterator<Item = (AppPc, &BlockProfile)> {
        self.blocks.iter().map(|(pc, block)| (*pc, block))
    }

    /// Executions of all blocks.
    pub fn executions(&self) -> u64 {
        self.blocks.values().fold(0, |sum, block| sum.saturating_add(block.runs))
    }

    /// Executions of the blocks in `range`.
    pub fn executions_in(&self, range: (u64, u64)) -> u64 {
        let inside = self.iter().filter(|(pc, _)| (range.0..range.1).contains(&pc.0));
        inside.fold(0, |sum, (_, block)| sum.saturating_add(block.runs))
    }

    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds what `other` says of the blocks in `range`. Returns whether it says anything.
    pub fn add(&mut self, other: &Self, range: (u64, u64)) -> bool {
        let mut added = false;
        for (pc, block) in other.iter().filter(|(pc, _)| (range.0..range.1).contains(&pc.0)) {
            added = true;
            let sum = self.blocks.entry(pc).or_default();
            sum.runs = sum.runs.saturating_add(block.runs);
            sum.not_taken = sum.not_taken.saturating_add(block.not_taken);
            sum.targets.add(&block.targets);
        }
        while self.blocks.values().any(|block| block.runs > LARGE) {
            self.halve();
        }
        added
    }

    fn halve(&mut self) {
        for block in self.blocks.values_mut() {
            block.runs /= 2;
            block.not_taken /= 2;
            for (_, count) in &mut block.targets.0 {
                *count /= 2;
            }
        }
        self.blocks.retain(|_, block| block.runs > 0);
    }

    /// The blocks by address, relative to `module`, to be kept; the least executed are left out of
    /// a large profile.
    pub fn to_bytes(&self, module: AppPc) -> Vec<u8> {
        let distance = |pc: AppPc| match pc {
            ELSEWHERE => None,
            pc => i32::try_from(pc.0.wrapping_sub(module.0) as i64).ok(),
        };
        let mut all: Vec<(i32, &BlockProfile)> =
            self.iter().filter_map(|(pc, block)| Some((distance(pc)?, block))).collect();
        all.sort_unstable_by_key(|(_, block)| std::cmp::Reverse(block.runs));
        all.truncate(MOST_BLOCKS);
        all.sort_unstable_by_key(|(pc, _)| *pc);
        let mut out = Vec::with_capacity(all.len() * RECORD);
        for (pc, block) in all {
            out.extend(pc.to_le_bytes());
            out.extend(block.runs.to_le_bytes());
            out.extend(block.not_taken.to_le_bytes());
            for (target, count) in block.targets.0 {
                out.extend(distance(target).unwrap_or(FAR).to_le_bytes());
                out.extend(count.to_le_bytes());
            }
        }
        lz4_flex::block::compress_prepend_size(&out)
    }

    /// Reads what [`Self::to_bytes`] has written; bytes that are no profile of a module at `module`
    /// give an empty one.
    pub fn from_bytes(bytes: &[u8], module: AppPc) -> Self {
        let mut profile = Self::default();
        let size = bytes.first_chunk().map_or(0, |size| u32::from_le_bytes(*size)) as usize;
        if size > MOST_BLOCKS * RECORD {
            return profile;
        }
        let records = lz4_flex::block::decompress_size_prepended(bytes).unwrap_or_default();
        for record in records.chunks_exact(RECORD) {
            let word = |at: usize| [record[at], record[at + 1], record[at + 2], record[at + 3]];
            let count = |at: usize| {
                u64::from(u32::from_le_bytes(word(at)))
                    | u64::from(u32::from_le_bytes(word(at + 4))) << 32
            };
            let pc = |at: usize| match i32::from_le_bytes(word(at)) {
                FAR => ELSEWHERE,
                distance => AppPc(module.0.wrapping_add_signed(i64::from(distance))),
            };
            let mut targets = Targets::default();
            for (place, target) in targets.0.iter_mut().enumerate() {
                let at = 20 + place * 8;
                *target = (pc(at), u32::from_le_bytes(word(at + 4)));
            }
            let block = BlockProfile { runs: count(4), not_taken: count(12), targets };
            profile.set(pc(0), block);
        }
        profile
    }
}

impl Targets {
    /// Takes in what another one has seen.
    pub fn add(&mut self, other: &Self) {
        for &(target, count) in other.0.iter().filter(|(_, count)| *count > 0) {
            self.note(target, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_target_is_remembered() {
        let mut targets = Targets::default();
        for round in 0..1000u64 {
            targets.note(AppPc(0x1000 + round % 97), 1);
            targets.note(AppPc(7), 1);
        }
        let (target, part) = targets.likeliest().unwrap();
        assert_eq!(target, AppPc(7));
        assert!(part > 0.9);
        assert_eq!(Targets::default().likeliest(), None);
    }

    #[test]
    fn a_profile_comes_back_at_another_address() {
        let mut profile = ExecutionProfile::default();
        let mut targets = Targets::default();
        targets.note(AppPc(0x5010), 3);
        targets.note(AppPc(0x7fff_0000_0000), 1);
        profile.set(AppPc(0x5004), BlockProfile { runs: 1 << 35, not_taken: 9, targets });
        let bytes = profile.to_bytes(AppPc(0x5000));
        let back = ExecutionProfile::from_bytes(&bytes, AppPc(0x9000));
        let block = back.block(AppPc(0x9004)).unwrap();
        assert_eq!((block.runs, block.not_taken), (1 << 35, 9));
        // The target in another module is nothing that a layout could use, but is not forgotten.
        assert_eq!(block.targets.likeliest(), Some((AppPc(0x9010), 0.75)));
        for damaged in [&bytes[1..], &bytes[..bytes.len() / 2], &[0xff; 64], &[]] {
            assert!(ExecutionProfile::from_bytes(damaged, AppPc(0)).block(AppPc(4)).is_none());
        }
    }

    #[test]
    fn a_counted_call_leads_to_its_first_target_in_part() {
        let mut targets = Targets::default();
        targets.note_part(AppPc(0x1000), 3, 4);
        assert_eq!(targets.likeliest(), Some((AppPc(0x1000), 0.75)));
        let mut seldom = Targets::default();
        seldom.note_part(AppPc(0x1000), 1, 1 << 40);
        assert_eq!(seldom.likeliest(), Some((ELSEWHERE, 1.0)));
    }

    #[test]
    fn large_counts_are_halved() {
        let mut old = ExecutionProfile::default();
        old.set(AppPc(1), BlockProfile { runs: 1, ..BlockProfile::default() });
        old.set(AppPc(2), BlockProfile { runs: LARGE, ..BlockProfile::default() });
        let new = old.clone();
        old.add(&new, (2, 3));
        assert_eq!(old.block(AppPc(2)).map(|block| block.runs), Some(LARGE));
        assert_eq!(old.block(AppPc(1)), None);
    }
}
