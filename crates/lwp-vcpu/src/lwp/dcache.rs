//! The data cache of a thread that counts its misses.
//!
//! The first level is in the thread's context, and translated code models it: it compares the line
//! of each access with the one used last in its set, searches the set if they differ, and logs
//! misses. The host models the outer levels from the log, when the log is full or when anything
//! else needs the unit. The log only has room for as many misses as may pass before an event
//! expires, so an access on which an event may expire is handled by itself.

use lwp_arch::LinearAddr;
use lwp_arch::retired::{Access, AccessKind, CacheMiss};
use lwp_dbt::Slot;
use lwp_dbt::context::{NO_LINE, set_bytes};
use lwp_dbt::operands::Use;
use lwp_mailbox::contexts::Context;
use lwp_uarch::{CacheShape, Caches, Hierarchy};

/// The caches of a thread.
#[derive(Clone, Debug)]
pub(super) struct DataCache {
    /// The hierarchy behind the first level.
    outer: Hierarchy,
    /// The first level's, which is in the context.
    shape: CacheShape,
    /// The context still holds what it held before.
    cold: bool,
    /// Accesses of an instruction that has not retired yet: iterations of a repeated one.
    pub(super) begun: Option<(u64, Vec<Touched>)>,
}

/// An access as it is made, before the caches have seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) how: Use,
    pub(super) address: u64,
    pub(super) bytes: u32,
}

/// The masks of the address bits that choose a set, and that name a line; the bytes that the lines
/// of a set take; and the mask of the bits of a set's place.
pub fn masks(shape: &CacheShape) -> [u64; 4] {
    let (line, last) = (u64::from(shape.line_bytes), shape.sets() - 1);
    let places = last * u64::from(set_bytes(shape.ways));
    [last * line, !(line - 1), u64::from(shape.ways) * 8, places]
}

impl DataCache {
    /// Cold caches.
    pub(super) fn new(caches: &Caches) -> Self {
        let outer = Hierarchy::new(&caches.levels, caches.memory);
        Self { outer, shape: caches.levels[0].shape, cold: true, begun: None }
    }

    /// Fetches a line that is not in the first level.
    pub(super) fn fetch(&mut self, address: LinearAddr) -> CacheMiss {
        self.outer.fetch(address)
    }

    /// The number of the line that `address` is in.
    pub(super) fn line_of(&self, address: u64) -> u64 {
        self.shape.line_of(address)
    }

    /// Empties the first level, once.
    pub(super) fn write_cold(&mut self, context: Context<'_>) {
        if !std::mem::take(&mut self.cold) {
            return;
        }
        // Places that these sets do not use are looked at too.
        let bytes = self.shape.sets() * u64::from(set_bytes(self.shape.ways));
        (0..bytes).step_by(8).for_each(|place| context.lwp().set_line(place, NO_LINE));
        context.set(Slot::LwpNotes, 0);
        context.set(Slot::LwpUndos, 0);
    }

    /// Makes an access that translated code could not make. A miss goes to `out`.
    pub(super) fn access(&mut self, context: Context<'_>, touched: Touched, out: &mut Vec<Access>) {
        let last = touched.address.wrapping_add(u64::from(touched.bytes.max(1)) - 1);
        let (mut line, last) = (self.shape.line_of(touched.address), self.shape.line_of(last));
        let mut miss = None;
        let mut address = touched.address;
        loop {
            if !self.put_first(context, line) {
                let fetched = self.outer.fetch(LinearAddr(address));
                miss = miss.or(Some(fetched));
            }
            if line >= last {
                break;
            }
            line += 1;
            address = line * u64::from(self.shape.line_bytes);
        }
        if miss.is_some() {
            out.push(Access {
                kind: kind(touched.how),
                address: LinearAddr(touched.address),
                miss,
            });
        }
    }

    /// Makes a line the most recent of its set; whether it was there.
    fn put_first(&self, context: Context<'_>, line: u64) -> bool {
        let (set, wanted) = (self.set_at(line), self.entry(line));
        let mut moved = wanted;
        for way in 0..u64::from(self.shape.ways) {
            let held = context.lwp().line(set + way * 8);
            context.lwp().set_line(set + way * 8, moved);
            if held == wanted {
                return true;
            }
            moved = held;
        }
        false
    }

    /// The beginning of a line's set in the context.
    fn set_at(&self, line: u64) -> u64 {
        self.shape.set_of(line) as u64 * u64::from(set_bytes(self.shape.ways))
    }

    /// The entry that stands for a line in the context.
    fn entry(&self, line: u64) -> u64 {
        (line * u64::from(self.shape.line_bytes)).wrapping_neg()
    }

    /// The line that an entry stands for.
    pub(super) fn line(&self, entry: u64) -> u64 {
        self.shape.line_of(entry.wrapping_neg())
    }

    /// Takes a change back, as far as translated code has come with it.
    pub(super) fn take_back(&self, context: Context<'_>, change: [u64; 4]) {
        let set = self.set_at(self.line(change[1]));
        let places = || (0..u64::from(self.shape.ways)).map(|way| set + way * 8);
        let mut lines: Vec<u64> = places().map(|place| context.lwp().line(place)).collect();
        restore(&mut lines, change);
        places().zip(lines).for_each(|(place, line)| context.lwp().set_line(place, line));
    }

    /// The value that a change added to the notes: 0 unless it made room for a line that was
    /// nowhere.
    pub(super) fn noted(&self, place: u64) -> u64 {
        let missed = place as u32 / 8 >= self.shape.ways;
        if missed { (place >> 32 << 32) + 1 } else { 0 }
    }
}

/// Puts a set back as it was before its line of `entry` was moved to the front: from `place`, or
/// else `gone` had to go for it. The lines before have moved on by one, the last first, as far as
/// translated code has come.
fn restore(lines: &mut [u64], [_, entry, place, gone]: [u64; 4]) {
    let found = place as u32 as usize / 8;
    let last = found.min(lines.len() - 1);
    let from = match lines[0] == entry {
        true => Some(0),
        // What is moving on stands in two places.
        false => lines[..=last].windows(2).position(|pair| pair[0] == pair[1]).map(|way| way + 1),
    };
    let Some(from) = from else { return };
    lines[from..=last].rotate_left(1);
    lines[last] = if found < lines.len() { entry } else { gone };
}

/// The kind of an access that misses: the store that follows a load finds its line.
pub(super) fn kind(how: Use) -> AccessKind {
    match how {
        Use::Load | Use::LoadStore => AccessKind::Load,
        Use::Store => AccessKind::Store,
        Use::Prefetch => AccessKind::Prefetch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states of a set of `ways` lines, of which `held` are lines, while translated code moves
    /// the one at `place` to the front, or a new one where that is none of them; and the change
    /// that it writes down.
    fn moves(ways: usize, held: usize, place: usize) -> (Vec<Vec<u64>>, [u64; 4]) {
        let line = |number: usize| (number as u64 * 64).wrapping_neg();
        let mut lines: Vec<u64> = (1..=ways).map(line).collect();
        lines[held..].fill(NO_LINE);
        let missed = place >= held;
        let entry = if missed { line(99) } else { lines[place] };
        let last = if missed { ways - 1 } else { place };
        let written = if missed { ways as u64 * 8 } else { place as u64 * 8 };
        let change = [0x1234, entry, written, lines[last]];
        let mut states = vec![lines.clone()];
        for way in (1..=last).rev() {
            lines[way] = lines[way - 1];
            states.push(lines.clone());
        }
        lines[0] = entry;
        states.push(lines);
        (states, change)
    }

    #[test]
    fn a_change_is_taken_back_however_far_it_has_come() {
        for ways in 1..=16 {
            for held in 0..=ways {
                for place in (1..held).chain([16]) {
                    let (states, change) = moves(ways, held, place);
                    for state in &states {
                        let mut lines = state.clone();
                        restore(&mut lines, change);
                        assert_eq!(
                            lines, states[0],
                            "{ways} ways, {held} held, {place}: {state:?}"
                        );
                    }
                }
            }
        }
    }
}
