//! The encoded points of all pieces of code. Many pieces have the same points; these are stored
//! only once if the table of recent ones still has them.

use crate::state_map::{self, StateEntry};

/// Lists that are remembered.
const REMEMBERED: usize = 1 << 13;
/// Bytes of a list's length, which precedes it.
const LENGTH: usize = 2;

/// Lists of encoded points.
#[derive(Debug)]
pub(crate) struct Points {
    lists: Vec<u8>,
    /// The last list with each low half of a hash: the other half, and where the list is, and one.
    remembered: Box<[(u32, u32)]>,
}

impl Default for Points {
    fn default() -> Self {
        Self { lists: Vec::new(), remembered: vec![(0, 0); REMEMBERED].into_boxed_slice() }
    }
}

impl Points {
    /// Adds a list, or finds the same one; returns where it is.
    pub fn add(&mut self, points: &[StateEntry]) -> u32 {
        let at = self.lists.len();
        self.lists.extend_from_slice(&[0; LENGTH]);
        state_map::encode(points, &mut self.lists);
        let len = (self.lists.len() - at - LENGTH) as u16;
        self.lists[at..at + LENGTH].copy_from_slice(&len.to_le_bytes());
        let hash = hash(points);
        let (place, other) = (hash as usize % REMEMBERED, (hash >> 32) as u32);
        // Most lists that are remembered have long left the processor's caches: only one with the
        // whole hash is compared.
        if let (known_hash, known) = self.remembered[place]
            && known_hash == other
            && let Some(known) = known.checked_sub(1)
            && self.get(known) == self.get(at as u32)
        {
            self.lists.truncate(at);
            return known;
        }
        self.remembered[place] = (other, at as u32 + 1);
        at as u32
    }

    /// The encoded list at `at`.
    pub fn get(&self, at: u32) -> &[u8] {
        let at = at as usize;
        let len = usize::from(u16::from_le_bytes([self.lists[at], self.lists[at + 1]]));
        &self.lists[at + LENGTH..at + LENGTH + len]
    }
}

/// A hash of the points themselves: their encoded bytes have just been written one by one, and
/// reading them in words would wait for that.
fn hash(points: &[StateEntry]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = points.len() as u64;
    for point in points {
        let StateEntry { at, app, index, state } = *point;
        let word =
            u64::from(at) << 24 | u64::from(app) << 16 | u64::from(index) << 8 | u64::from(state);
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_points_are_kept_once() {
        let list = |index: u8| [0, 300].map(|at| StateEntry { at, app: index, index, state: 1 });
        let mut points = Points::default();
        let first: Vec<u32> = (0..100).map(|index| points.add(&list(index))).collect();
        let bytes = points.lists.len();
        for (index, &at) in first.iter().enumerate() {
            assert_eq!(points.add(&list(index as u8)), at);
            let found = state_map::lookup(points.get(at), 299).map(|found| found.point.index);
            assert_eq!(found, Some(index as u8));
        }
        assert_eq!(points.lists.len(), bytes);
        let none = points.add(&[]);
        assert_eq!(points.get(none), [0u8; 0]);
    }
}
