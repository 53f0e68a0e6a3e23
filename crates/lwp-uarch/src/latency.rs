//! The hierarchy of caches: which level has the data, how long it takes, what a record says of it.

use lwp_arch::LinearAddr;
use lwp_arch::record::DataSource;
use lwp_arch::retired::{Access, AccessKind, CacheMiss};

use crate::cache::{Cache, CacheShape};

/// A level of the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Size and shape.
    pub shape: CacheShape,
    /// Time from load to use if the data is here, in core cycles.
    pub latency_cycles: u32,
    /// This level's name in a DCache record. The first level's is never shown.
    pub source: DataSource,
}

/// The memory behind the last cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Time from load to use, in core cycles.
    pub latency_cycles: u32,
    /// Its name in a DCache record.
    pub source: DataSource,
}

/// A first-level data cache with what lies behind it.
///
/// An access looks into the levels in order and is answered by the first that has the line. All
/// levels before that one receive it. No level forces lines out of another, stores allocate as
/// loads do, and software prefetches fill all levels: DEV-34.
///
/// Spec: P07 §4.3; LWP §4.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    levels: Vec<(Cache, u32, DataSource)>,
    memory: Memory,
    line_bytes: u32,
}

/// The answer for one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    /// The first level had it.
    hit: bool,
    latency_cycles: u32,
    source: DataSource,
}

impl Hierarchy {
    /// Empty caches. All levels use the line length of the first.
    pub fn new(levels: &[Level], memory: Memory) -> Self {
        let line_bytes = levels.first().map_or(64, |first| first.shape.line_bytes);
        let levels = levels.iter().map(|level| {
            let cache = Cache::new(CacheShape { line_bytes, ..level.shape });
            (cache, level.latency_cycles, level.source)
        });
        Self { levels: levels.collect(), memory, line_bytes }
    }

    /// The first-level cache, for code that keeps its own copy of its most recent lines.
    pub fn first(&self) -> Option<&Cache> {
        self.levels.first().map(|level| &level.0)
    }

    /// Forgets all lines, as after a long absence from the processor.
    pub fn flush(&mut self) {
        self.levels.iter_mut().for_each(|level| level.0.flush());
    }

    /// Makes an access of `bytes` bytes at `address`.
    ///
    /// An access that spans lines uses each; if several miss it is still one miss, described by the
    /// lowest address that missed.
    ///
    /// Spec: P07 §4.3; LWP §4.2.
    pub fn access(&mut self, kind: AccessKind, address: LinearAddr, bytes: u32) -> Access {
        let line_bytes = u64::from(self.line_bytes);
        let last = address.plus(u64::from(bytes.max(1)) - 1);
        let lines = (last.0 / line_bytes).wrapping_sub(address.0 / line_bytes);
        let mut miss = None;
        for step in 0..=lines.min(u64::from(bytes)) {
            let line = address.plus(step * line_bytes).0 / line_bytes;
            let answer = self.line(line);
            if !answer.hit && miss.is_none() {
                miss = Some(CacheMiss {
                    address: if step == 0 { address } else { LinearAddr(line * line_bytes) },
                    source: answer.source,
                    latency_cycles: answer.latency_cycles,
                });
            }
        }
        Access { kind, address, miss }
    }

    /// The first level, which somebody else keeps, has not the line that holds `address`: what the
    /// others do then.
    #[inline]
    pub fn fetch(&mut self, address: LinearAddr) -> CacheMiss {
        let line = match self.line_bytes.is_power_of_two() {
            true => address.0 >> self.line_bytes.trailing_zeros(),
            false => address.0 / u64::from(self.line_bytes),
        };
        let Answer { latency_cycles, source, .. } = self.answer_from(1, line);
        CacheMiss { address, source, latency_cycles }
    }

    fn line(&mut self, line: u64) -> Answer {
        self.answer_from(0, line)
    }

    #[inline]
    fn answer_from(&mut self, nearest: usize, line: u64) -> Answer {
        let levels = self.levels.iter_mut().enumerate().skip(nearest);
        for (index, (cache, latency_cycles, source)) in levels {
            if cache.access(line) {
                let (latency_cycles, source) = (*latency_cycles, *source);
                return Answer { hit: index == 0, latency_cycles, source };
            }
        }
        let Memory { latency_cycles, source } = self.memory;
        Answer { hit: false, latency_cycles, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn level(lines: u64, latency_cycles: u32, source: DataSource) -> Level {
        let shape = CacheShape { bytes: lines * 64, ways: lines as u32, line_bytes: 64 };
        Level { shape, latency_cycles, source }
    }

    /// One line in the first level, two in the second, four in the third.
    fn tiny() -> Hierarchy {
        let levels = [
            level(1, 4, DataSource::NoStatus),
            level(2, 14, DataSource::NoStatus),
            level(4, 50, DataSource::LocalL3),
        ];
        Hierarchy::new(&levels, Memory { latency_cycles: 300, source: DataSource::Dram })
    }

    fn load(hierarchy: &mut Hierarchy, address: u64, bytes: u32) -> Option<CacheMiss> {
        hierarchy.access(AccessKind::Load, LinearAddr(address), bytes).miss
    }

    fn miss(address: u64, latency_cycles: u32, source: DataSource) -> Option<CacheMiss> {
        Some(CacheMiss { address: LinearAddr(address), source, latency_cycles })
    }

    /// Spec: LWP §4.2. DEV-9
    #[test]
    fn lwp_spec_4_2_each_level_answers_with_its_latency_and_source() {
        let mut h = tiny();
        assert_eq!(load(&mut h, 0x08, 8), miss(0x08, 300, DataSource::Dram));
        assert_eq!(load(&mut h, 0x10, 8), None, "same line");
        assert_eq!(load(&mut h, 0x40, 8), miss(0x40, 300, DataSource::Dram));
        assert_eq!(load(&mut h, 0x00, 8), miss(0x00, 14, DataSource::NoStatus), "second level");
        load(&mut h, 0x80, 8);
        load(&mut h, 0xC0, 8);
        assert_eq!(load(&mut h, 0x00, 8), miss(0x00, 50, DataSource::LocalL3), "third level");
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_a_split_access_reports_its_lowest_missing_address() {
        let mut h = Hierarchy::new(
            &[level(4, 4, DataSource::NoStatus)],
            Memory { latency_cycles: 300, source: DataSource::Dram },
        );
        assert_eq!(load(&mut h, 0x3C, 8), miss(0x3C, 300, DataSource::Dram), "both lines miss");
        assert_eq!(load(&mut h, 0x3C, 8), None);
        load(&mut h, 0x80, 1);
        assert_eq!(
            load(&mut h, 0xBC, 8),
            miss(0xC0, 300, DataSource::Dram),
            "the upper line misses"
        );
        assert_eq!(
            load(&mut h, 0x100, 0),
            miss(0x100, 300, DataSource::Dram),
            "no length is one byte"
        );
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_an_access_may_wrap_around_the_address_space() {
        let mut h = tiny();
        assert_eq!(load(&mut h, u64::MAX, 2), miss(u64::MAX, 300, DataSource::Dram));
    }

    /// Spec: LWP §4.2. DEV-34
    #[test]
    fn lwp_spec_4_2_dev_34_stores_and_prefetches_fill_the_caches() {
        for kind in [AccessKind::Store, AccessKind::Prefetch] {
            let mut h = tiny();
            let access = h.access(kind, LinearAddr(0x40), 8);
            assert_eq!((access.kind, access.miss.is_some()), (kind, true));
            assert_eq!(load(&mut h, 0x40, 8), None);
        }
        let mut h = tiny();
        load(&mut h, 0x40, 8);
        h.flush();
        assert_eq!(load(&mut h, 0x40, 8), miss(0x40, 300, DataSource::Dram));
    }

    /// A line that left the large cache may stay in the small one.
    ///
    /// Spec: LWP §4.2. DEV-34
    #[test]
    fn lwp_spec_4_2_dev_34_levels_do_not_evict_from_each_other() {
        let levels = [level(2, 4, DataSource::NoStatus), level(1, 14, DataSource::NoStatus)];
        let mut h = Hierarchy::new(&levels, Memory { latency_cycles: 9, source: DataSource::Dram });
        load(&mut h, 0x00, 1);
        load(&mut h, 0x40, 1);
        assert_eq!(load(&mut h, 0x00, 1), None);
    }
}
