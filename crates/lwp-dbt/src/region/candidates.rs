//! Places that control may reach next, the likeliest first.
//!
//! A fragment that is never executed costs about an eighth of what a request to the host does. So a
//! region takes in blocks that are likely to be executed, and not just those nearby. A block's
//! *doubt* is a measure of how unlikely that is. It grows at every conditional branch, more on the
//! taken side, because compilers lay out the expected path as straight code.

use std::collections::VecDeque;

use crate::addr::AppPc;

/// A place that control may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address of the place.
    pub pc: AppPc,
    /// True if by an indirect branch, which needs an entry.
    pub entry: bool,
    /// The doubt whether it is executed: 0 where that is certain, at most
    /// [`Candidate::MOST_DOUBT`].
    pub doubt: u8,
}

impl Candidate {
    /// The most that is told apart.
    pub const MOST_DOUBT: u8 = 31;

    /// A direct branch leads there.
    pub fn direct(pc: AppPc, doubt: u8) -> Self {
        Self { pc, entry: false, doubt: doubt.min(Self::MOST_DOUBT) }
    }

    /// An indirect branch may lead there.
    pub fn indirect(pc: AppPc, doubt: u8) -> Self {
        Self { pc, entry: true, doubt: doubt.min(Self::MOST_DOUBT) }
    }
}

/// Places in the order of their doubt; among equals, what was found first comes first.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    levels: [VecDeque<Candidate>; Candidate::MOST_DOUBT as usize + 1],
    len: usize,
}

impl Queue {
    /// Adds a place.
    pub fn push(&mut self, ahead: Candidate) {
        self.levels[usize::from(ahead.doubt)].push_back(ahead);
        self.len += 1;
    }

    /// Adds what has been found later: among equals it comes first.
    pub fn requeue(&mut self, found: &[Candidate]) {
        for ahead in found.iter().rev() {
            self.levels[usize::from(ahead.doubt)].push_front(*ahead);
        }
        self.len += found.len();
    }

    /// Takes the likeliest place, if it is not more doubtful than `most`.
    pub fn pop(&mut self, most: u8) -> Option<Candidate> {
        if self.len == 0 {
            return None;
        }
        let levels = &mut self.levels[..=usize::from(most.min(Candidate::MOST_DOUBT))];
        let found = levels.iter_mut().find_map(VecDeque::pop_front);
        self.len -= usize::from(found.is_some());
        found
    }

    /// Returns the number of places.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the most doubtful places, until there are at most `most`.
    pub fn shorten(&mut self, most: usize) {
        for level in self.levels.iter_mut().rev() {
            let surplus = self.len.saturating_sub(most).min(level.len());
            level.truncate(level.len() - surplus);
            self.len -= surplus;
        }
    }

    /// Takes everything, the likeliest first.
    pub fn drain(&mut self) -> impl Iterator<Item = Candidate> + '_ {
        self.len = 0;
        self.levels.iter_mut().flat_map(|level| level.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_comes_first() {
        let mut queue = Queue::default();
        for (pc, doubt) in [(1, 3), (2, 0), (3, 3), (4, 255)] {
            queue.push(Candidate::direct(AppPc(pc), doubt));
        }
        assert_eq!(queue.pop(2).map(|ahead| ahead.pc.0), Some(2));
        assert_eq!(queue.pop(2), None);
        queue.push(Candidate::indirect(AppPc(5), 2));
        queue.shorten(3);
        let rest: Vec<(u64, bool)> = queue.drain().map(|it| (it.pc.0, it.entry)).collect();
        assert_eq!(rest, [(5, true), (1, false), (3, false)]);
        assert!(queue.is_empty());
    }
}
