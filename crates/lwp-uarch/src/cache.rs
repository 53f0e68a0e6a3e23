//! One set-associative cache with least-recently-used replacement.

/// Size and shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Lines per set.
    pub ways: u32,
    /// Length of a line in bytes.
    pub line_bytes: u32,
}

impl CacheShape {
    /// Number of sets; 0 if the sizes make no sense together.
    pub const fn sets(&self) -> u64 {
        match self.bytes.checked_div(self.ways as u64 * self.line_bytes as u64) {
            Some(sets) => sets,
            None => 0,
        }
    }

    /// Returns whether lines and sets are powers of two and fill the capacity.
    pub const fn is_regular(&self) -> bool {
        self.line_bytes.is_power_of_two()
            && self.sets().is_power_of_two()
            && self.sets() * self.ways as u64 * self.line_bytes as u64 == self.bytes
    }

    /// Number of the line that holds the byte at `address`.
    pub const fn line_of(&self, address: u64) -> u64 {
        address >> self.line_bytes.trailing_zeros()
    }

    /// The set a line belongs to.
    pub const fn set_of(&self, line: u64) -> usize {
        (line & (self.sets() - 1)) as usize
    }
}

/// A cache. It knows which lines it holds and not what is in them.
///
/// Each set is a list with the line used last in front. That makes one thing cheap that emitted
/// code needs: if the front of the set is the line wanted, the access is a hit *and* leaves the
/// cache as it is, so a compare with [`Self::most_recent`] decides it exactly, without running the
/// model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    shape: CacheShape,
    /// The bits of a line's number that choose its set.
    set_mask: u64,
    /// The lines of one set after the other, each number plus one, so that fresh memory is an empty
    /// cache.
    lines: Vec<u64>,
}

impl Cache {
    /// An empty cache. An irregular shape (see [`CacheShape::is_regular`]) is made regular by
    /// rounding the number of sets down to a power of two, at least one.
    pub fn new(shape: CacheShape) -> Self {
        let line_bytes = shape.line_bytes.max(1).next_power_of_two();
        let ways = shape.ways.max(1);
        let sets = CacheShape { bytes: shape.bytes, ways, line_bytes }.sets().max(1);
        let sets = 1 << sets.ilog2();
        let bytes = sets * u64::from(ways) * u64::from(line_bytes);
        let shape = CacheShape { bytes, ways, line_bytes };
        Self { shape, set_mask: sets - 1, lines: vec![0; sets as usize * ways as usize] }
    }

    /// The shape in use.
    pub const fn shape(&self) -> &CacheShape {
        &self.shape
    }

    /// Returns the places of a set's lines.
    fn places(&self, set: usize) -> std::ops::Range<usize> {
        let ways = self.shape.ways as usize;
        set * ways..(set + 1) * ways
    }

    /// Uses line number `line` (see [`CacheShape::line_of`]). Returns whether it was there.
    /// Afterwards it is, as the most recent of its set; the least recent one left if the set was
    /// full.
    #[inline]
    pub fn access(&mut self, line: u64) -> bool {
        let places = self.places((line & self.set_mask) as usize);
        let mut moved = line + 1;
        for held in &mut self.lines[places] {
            std::mem::swap(held, &mut moved);
            if moved == line + 1 {
                return true;
            }
        }
        false
    }

    /// Returns whether the line is there; changes nothing.
    pub fn contains(&self, line: u64) -> bool {
        self.lines[self.places(self.shape.set_of(line))].contains(&(line + 1))
    }

    /// The line of `set` used last.
    pub fn most_recent(&self, set: usize) -> Option<u64> {
        self.lines.get(self.places(set))?.first()?.checked_sub(1)
    }

    /// Forgets every line.
    pub fn flush(&mut self) {
        self.lines.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TINY: CacheShape = CacheShape { bytes: 512, ways: 2, line_bytes: 64 };

    /// Spec: LWP §11
    #[test]
    fn lwp_spec_11_shape_counts_sets_and_finds_lines() {
        assert_eq!((TINY.sets(), TINY.is_regular()), (4, true));
        assert_eq!(TINY.line_of(0x13F), 4);
        assert_eq!(TINY.set_of(4), 0);
        let odd = CacheShape { bytes: 600, ..TINY };
        assert!(!odd.is_regular());
        assert_eq!(Cache::new(odd).shape(), &TINY);
        let none = CacheShape { bytes: 0, ways: 0, line_bytes: 0 };
        assert_eq!(none.sets(), 0);
        assert_eq!(Cache::new(none).shape().sets(), 1, "one way of one byte");
    }

    /// Spec: LWP §11
    #[test]
    fn lwp_spec_11_the_least_recently_used_line_leaves() {
        let mut cache = Cache::new(TINY);
        // Lines 0, 4 and 8 share set 0, which holds two.
        assert_eq!([0, 4, 0, 8].map(|line| cache.access(line)), [false, false, true, false]);
        assert!(cache.contains(0) && !cache.contains(4), "4 was used before 0 was");
        assert!(!cache.access(1), "another set");
        assert!(cache.contains(8));
        cache.flush();
        assert!(!cache.contains(8));
    }

    /// The textbook: a time of last use per line, the oldest of the set leaves.
    #[derive(Default)]
    struct ByTime {
        used: Vec<(u64, usize)>,
    }

    impl ByTime {
        fn access(&mut self, shape: &CacheShape, line: u64, now: usize) -> bool {
            if let Some(entry) = self.used.iter_mut().find(|entry| entry.0 == line) {
                entry.1 = now;
                return true;
            }
            let set = |entry: &(u64, usize)| shape.set_of(entry.0) == shape.set_of(line);
            let mut peers: Vec<_> = self.used.iter().copied().filter(set).collect();
            peers.sort_by_key(|entry| entry.1);
            if peers.len() == shape.ways as usize {
                self.used.retain(|entry| *entry != peers[0]);
            }
            self.used.push((line, now));
            false
        }
    }

    proptest! {
        /// Spec: LWP §11
        #[test]
        fn lwp_spec_11_equals_replacement_by_time_of_last_use(
            lines in prop::collection::vec(0..40u64, 0..300), ways in 1..5u32, sets_log2 in 0..4u32,
        ) {
            let shape = CacheShape { bytes: (64 * ways as u64) << sets_log2, ways, line_bytes: 64 };
            let (mut cache, mut model) = (Cache::new(shape), ByTime::default());
            for (now, line) in lines.into_iter().enumerate() {
                prop_assert_eq!(cache.access(line), model.access(&shape, line, now));
            }
        }

        /// What emitted code relies on: a match with the most recent line is a hit that changes
        /// nothing.
        ///
        /// Spec: LWP §11
        #[test]
        fn lwp_spec_11_the_most_recent_line_hits_without_effect(lines in prop::collection::vec(0..40u64, 1..200)) {
            let mut cache = Cache::new(TINY);
            for line in lines {
                let front = cache.most_recent(TINY.set_of(line)) == Some(line);
                let before = cache.clone();
                let hit = cache.access(line);
                if front {
                    prop_assert!(hit);
                    prop_assert_eq!(&cache, &before);
                }
                prop_assert_eq!(cache.most_recent(TINY.set_of(line)), Some(line));
            }
        }
    }
}
