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
/// An arena grows at its end, so that its pieces come in the order of their addresses: a list takes a
/// push where a tree would take a search.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    arenas: Vec<Arena>,
    /// The arena that was added to last.
    last: usize,
}

#[derive(Debug)]
struct Arena {
    /// Where its routines lie, which is where it starts.
    start: u64,
    /// Start and piece, ascending.
    pieces: Vec<(u64, Piece)>,
}

impl Pieces {
    /// Adds a piece that starts at `start`, in the arena whose routines lie at `arena`.
    pub fn insert(&mut self, arena: u64, start: CachePc, piece: Piece) {
        if self.arenas.get(self.last).is_none_or(|last| last.start != arena) {
            self.last =
                self.arenas.iter().position(|known| known.start == arena).unwrap_or_else(|| {
                    self.arenas.push(Arena { start: arena, pieces: Vec::new() });
                    self.arenas.len() - 1
                });
        }
        let pieces = &mut self.arenas[self.last].pieces;
        if pieces.last().is_none_or(|(last, _)| *last < start.0) {
            pieces.push((start.0, piece));
            return;
        }
        match pieces.binary_search_by_key(&start.0, |(at, _)| *at) {
            Ok(at) => pieces[at].1 = piece,
            Err(at) => pieces.insert(at, (start.0, piece)),
        }
    }

    /// The last piece at or before `pc`, and where it starts.
    pub fn at_or_before(&self, pc: CachePc) -> Option<(CachePc, &Piece)> {
        let arena =
            self.arenas.iter().filter(|arena| arena.start <= pc.0).max_by_key(|a| a.start)?;
        let after = arena.pieces.partition_point(|(start, _)| *start <= pc.0);
        let (start, piece) = arena.pieces.get(after.checked_sub(1)?)?;
        Some((CachePc(*start), piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(pc: u64) -> Piece {
        Piece { len: 8, pc: AppPc(pc), fragment: None, points: (0, 0) }
    }

    #[test]
    fn pieces_are_found_in_their_own_arena() {
        let mut pieces = Pieces::default();
        for at in [0x1010, 0x1020, 0x9010, 0x1030, 0x9020] {
            let arena = if at < 0x9000 { 0x1000 } else { 0x9000 };
            pieces.insert(arena, CachePc(at), piece(at));
        }
        let found =
            |pc| pieces.at_or_before(CachePc(pc)).map(|(start, piece)| (start.0, piece.pc.0));
        assert_eq!(found(0x1027), Some((0x1020, 0x1020)));
        assert_eq!(found(0x8fff), Some((0x1030, 0x1030)));
        assert_eq!(found(0x9013), Some((0x9010, 0x9010)));
        assert_eq!(found(0x9001), None, "before the first piece of its arena");
        assert_eq!(found(0xfff), None);
    }

    #[test]
    fn pieces_out_of_order_are_found_too() {
        let mut pieces = Pieces::default();
        for at in [0x1030, 0x1010, 0x1020, 0x1010] {
            pieces.insert(0x1000, CachePc(at), piece(at));
        }
        for at in [0x1010, 0x1020, 0x1030] {
            let found = pieces.at_or_before(CachePc(at + 7)).map(|(start, _)| start.0);
            assert_eq!(found, Some(at));
        }
    }
}
