//! The pieces of translated code by address: what is looked up when a thread stops somewhere.

use crate::addr::{AppPc, CachePc};
use crate::fragment::FragmentId;

/// A contiguous piece of translated code with one point table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub len: u32,
    /// The pc that the points' application offsets count from.
    pub pc: AppPc,
    /// The fragment it belongs to; none for exit stubs.
    pub fragment: Option<FragmentId>,
    /// Offset and length of its points in the translator's table.
    pub points: (u32, u16),
}

/// Every piece by its start address.
///
/// Code grows at the end of what there is of a unit, so that most pieces come in the order of their
/// addresses: a list takes a push where a tree would take a search.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Ascending by their first piece; they do not overlap.
    runs: Vec<Run>,
    /// The run that was added to last.
    last: usize,
}

/// Pieces that lie close together: start and piece, ascending.
type Run = Vec<(u64, Piece)>;

/// A piece farther than this behind the last one starts a run of its own.
const GAP: u64 = 4096;

impl Pieces {
    /// Adds a piece that starts at `start`.
    pub fn insert(&mut self, start: CachePc, piece: Piece) {
        let start = start.0;
        let follows = |run: &Run| {
            run.last()
                .is_some_and(|(at, last)| *at < start && start - *at <= u64::from(last.len) + GAP)
        };
        if self.runs.get(self.last).is_some_and(follows)
            && self.runs.get(self.last + 1).is_none_or(|next| start < next[0].0)
        {
            self.runs[self.last].push((start, piece));
            return;
        }
        let after = self.runs.partition_point(|run| run[0].0 <= start);
        let Some(index) = after.checked_sub(1) else {
            self.runs.insert(0, vec![(start, piece)]);
            self.last = 0;
            return;
        };
        self.last = index;
        let run = &mut self.runs[index];
        match run.binary_search_by_key(&start, |(at, _)| *at) {
            Ok(at) => run[at].1 = piece,
            Err(at) if at < run.len() || follows(run) => run.insert(at, (start, piece)),
            Err(_) => {
                self.runs.insert(after, vec![(start, piece)]);
                self.last = after;
            }
        }
    }

    /// The last piece at or before `pc`, and where it starts.
    pub fn at_or_before(&self, pc: CachePc) -> Option<(CachePc, &Piece)> {
        let run = &self.runs[self.runs.partition_point(|run| run[0].0 <= pc.0).checked_sub(1)?];
        let after = run.partition_point(|(start, _)| *start <= pc.0);
        let (start, piece) = run.get(after.checked_sub(1)?)?;
        Some((CachePc(*start), piece))
    }

    /// The pieces that start in `range`, ascending.
    pub fn range(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
        let first = self.runs.partition_point(|run| run[0].0 <= range.start).saturating_sub(1);
        let (from, to) = (range.start, range.end);
        self.runs[first..]
            .iter()
            .flatten()
            .skip_while(move |(start, _)| *start < from)
            .take_while(move |(start, _)| *start < to)
            .map(|(start, piece)| (*start, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(pc: u64) -> Piece {
        Piece { len: 8, pc: AppPc(pc), fragment: None, points: (0, 0) }
    }

    #[test]
    fn pieces_are_found_in_their_own_run() {
        let mut pieces = Pieces::default();
        for at in [0x1010, 0x1020, 0x9010, 0x1030, 0x9020] {
            pieces.insert(CachePc(at), piece(at));
        }
        let found =
            |pc| pieces.at_or_before(CachePc(pc)).map(|(start, piece)| (start.0, piece.pc.0));
        assert_eq!(found(0x1027), Some((0x1020, 0x1020)));
        assert_eq!(found(0x8fff), Some((0x1030, 0x1030)));
        assert_eq!(found(0x9013), Some((0x9010, 0x9010)));
        let starts: Vec<u64> = pieces.range(0x1011..0x9020).map(|(start, _)| start).collect();
        assert_eq!(starts, [0x1020, 0x1030, 0x9010]);
        assert_eq!(pieces.runs.len(), 2);
        assert_eq!(found(0xfff), None);
    }

    #[test]
    fn pieces_out_of_order_are_found_too() {
        let mut pieces = Pieces::default();
        for at in [0x1030, 0x1010, 0x1020, 0x1010] {
            pieces.insert(CachePc(at), piece(at));
        }
        for at in [0x1010, 0x1020, 0x1030] {
            let found = pieces.at_or_before(CachePc(at + 7)).map(|(start, _)| start.0);
            assert_eq!(found, Some(at));
        }
    }
}
