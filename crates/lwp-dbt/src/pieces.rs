//! The pieces of translated code by address, for finding the one in which a thread has stopped.

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
    /// The place of its points in the translator's [`crate::points::Points`].
    pub points: u32,
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

/// Pieces that lie close together, ascending.
#[derive(Debug)]
struct Run {
    /// The start of the first of them.
    base: u64,
    pieces: Vec<Stored>,
}

/// A piece in a run.
#[derive(Clone, Copy, Debug)]
struct Stored {
    pc: u64,
    /// From the run's base.
    start: u32,
    len: u32,
    fragment: u32,
    points: u32,
}

/// The number that stands for no fragment.
const NONE: u32 = u32::MAX;
/// A piece farther than this behind the last one starts a run of its own.
const GAP: u64 = 4096;

impl Run {
    fn new(start: u64, piece: Piece) -> Self {
        Self { base: start, pieces: vec![Stored::new(0, piece)] }
    }

    /// Returns whether a piece at `start` follows the last one closely.
    fn is_followed_by(&self, start: u64) -> bool {
        self.pieces.last().is_some_and(|last| {
            let at = self.base + u64::from(last.start);
            at < start && start - at <= u64::from(last.len) + GAP
        })
    }
}

impl Stored {
    fn new(start: u32, piece: Piece) -> Self {
        let fragment = piece.fragment.map_or(NONE, |id| id.0);
        Self { pc: piece.pc.0, start, len: piece.len, fragment, points: piece.points }
    }

    fn piece(&self) -> Piece {
        Piece {
            len: self.len,
            pc: AppPc(self.pc),
            fragment: (self.fragment != NONE).then_some(FragmentId(self.fragment)),
            points: self.points,
        }
    }
}

impl Pieces {
    /// Adds a piece that starts at `start`.
    pub fn insert(&mut self, start: CachePc, piece: Piece) {
        let start = start.0;
        if self.runs.get(self.last).is_some_and(|run| run.is_followed_by(start))
            && self.runs.get(self.last + 1).is_none_or(|next| start < next.base)
        {
            let run = &mut self.runs[self.last];
            run.pieces.push(Stored::new((start - run.base) as u32, piece));
            return;
        }
        let after = self.runs.partition_point(|run| run.base <= start);
        let Some(index) = after.checked_sub(1) else {
            self.runs.insert(0, Run::new(start, piece));
            self.last = 0;
            return;
        };
        self.last = index;
        let run = &mut self.runs[index];
        // A run lies within an arena, which is far smaller than 4 GiB; what is not found in this
        // one may be far behind it.
        let within = start - run.base;
        let place = run.pieces.binary_search_by_key(&within, |stored| u64::from(stored.start));
        match place {
            Ok(at) => run.pieces[at] = Stored::new(within as u32, piece),
            Err(at) if at < run.pieces.len() || run.is_followed_by(start) => {
                run.pieces.insert(at, Stored::new(within as u32, piece));
            }
            Err(_) => {
                self.runs.insert(after, Run::new(start, piece));
                self.last = after;
            }
        }
    }

    /// The last piece at or before `pc`, and where it starts.
    pub fn at_or_before(&self, pc: CachePc) -> Option<(CachePc, Piece)> {
        let run = &self.runs[self.runs.partition_point(|run| run.base <= pc.0).checked_sub(1)?];
        let within = pc.0 - run.base;
        let after = run.pieces.partition_point(|stored| u64::from(stored.start) <= within);
        let stored = run.pieces.get(after.checked_sub(1)?)?;
        Some((CachePc(run.base + u64::from(stored.start)), stored.piece()))
    }

    /// The pieces that start in `range`, ascending.
    pub fn range(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = (u64, Piece)> {
        let first = self.runs.partition_point(|run| run.base <= range.start).saturating_sub(1);
        let (from, to) = (range.start, range.end);
        let all = self.runs[first..].iter().flat_map(|run| {
            run.pieces.iter().map(|stored| (run.base + u64::from(stored.start), stored.piece()))
        });
        all.skip_while(move |(start, _)| *start < from).take_while(move |(start, _)| *start < to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(pc: u64) -> Piece {
        Piece { len: 8, pc: AppPc(pc), fragment: None, points: 0 }
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
