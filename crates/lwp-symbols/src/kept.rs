//! Names that a recording keeps, asked as files are asked.

use std::sync::Arc;

use lwp_profile::{NamedRange, RecordedNames};
use rustc_hash::FxHashMap;

use crate::dwarf::SourceFrame;

/// Lines of one file.
#[derive(Clone, Debug, Default)]
pub struct KeptLines {
    /// By address; they do not overlap.
    ranges: Vec<NamedRange>,
    /// Source places of functions, by their first address.
    declared: FxHashMap<u64, (Arc<str>, u32)>,
    debug: bool,
}

impl KeptLines {
    /// The lines of `names`, which are of one file in one or several recordings.
    pub fn new(names: &[&RecordedNames]) -> Self {
        let mut all: Vec<NamedRange> = names.iter().flat_map(|it| it.lines.clone()).collect();
        all.retain(|range| range.start < range.end);
        all.sort_by_key(|range| (range.start, range.end));
        let mut ranges: Vec<NamedRange> = Vec::with_capacity(all.len());
        for mut range in all {
            if let Some(last) = ranges.last_mut() {
                if last.end >= range.start && last.frames == range.frames {
                    last.end = last.end.max(range.end);
                    continue;
                }
                range.start = range.start.max(last.end);
            }
            if range.start < range.end {
                ranges.push(range);
            }
        }
        let functions = names.iter().flat_map(|it| &it.functions);
        let declared = functions.map(|it| (it.address, (Arc::clone(&it.file), it.line))).collect();
        Self { ranges, declared, debug: names.iter().any(|it| it.debug) }
    }

    /// Returns whether there was debug information.
    pub fn has_debug(&self) -> bool {
        self.debug
    }

    /// The frames at `address`, innermost first; empty where nothing is known.
    pub fn frames_at(&self, address: u64) -> Vec<SourceFrame> {
        let upto = self.ranges.partition_point(|range| range.start <= address);
        let range = upto.checked_sub(1).map(|index| &self.ranges[index]);
        let frames = range.filter(|range| address < range.end).map(|range| range.frames.iter());
        let frame = |frame: &lwp_profile::NamedFrame| SourceFrame {
            name: frame.name.to_string(),
            file: Arc::clone(&frame.file),
            line: frame.line,
        };
        frames.map(|frames| frames.map(frame).collect()).unwrap_or_default()
    }

    /// The source place of the function that starts at `address`.
    pub fn declared_at(&self, address: u64) -> (Arc<str>, u32) {
        self.declared.get(&address).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use lwp_profile::NamedFrame;

    use super::*;

    #[test]
    fn lines_of_several_recordings_complement_each_other() {
        let range = |start, end, line| NamedRange {
            start,
            end,
            frames: [NamedFrame { line, ..NamedFrame::default() }].into(),
        };
        let names = |lines| RecordedNames { lines, ..RecordedNames::default() };
        let one = names(vec![range(10, 20, 1), range(30, 40, 2)]);
        let other = names(vec![range(12, 14, 1), range(20, 25, 3), range(35, 45, 2)]);
        let lines = KeptLines::new(&[&one, &other]);
        let line = |address| lines.frames_at(address).first().map(|frame| frame.line);
        let found: Vec<_> = [9, 10, 19, 20, 24, 25, 30, 44, 45].into_iter().map(line).collect();
        let expected = [None, Some(1), Some(1), Some(3), Some(3), None, Some(2), Some(2), None];
        assert_eq!(found, expected);
        // A damaged file may contradict itself.
        let wrong = names(vec![range(5, 50, 9), range(0, u64::MAX, 8), range(7, 3, 1)]);
        let lines = KeptLines::new(&[&one, &wrong]);
        assert_eq!(lines.frames_at(15).len(), 1);
    }
}
