//! The meaning of the counters, by number: those of this run, and those of restored units, whose
//! meanings stay in their images until somebody asks for them.

use std::sync::Arc;

use crate::image::Placed;
use crate::packed::PackedDeltas;
use crate::plan::{EventDeltas, Role};
use crate::rebuild::Knowledge;

/// The deltas of all counters, and what they count.
#[derive(Debug, Default)]
pub struct Counters {
    new: Vec<PackedDeltas>,
    /// As `new`.
    roles: Vec<Role>,
    /// True if somebody wants to know how often each place was executed, and not only all of them.
    keeps_roles: bool,
    /// Numbers in ascending order: the first of each range, and whose it is.
    ranges: Vec<(u32, Range)>,
    len: u32,
}

/// The owner of the counters of a range of numbers.
#[derive(Debug)]
enum Range {
    /// This run's; its first one's place.
    New(usize),
    /// An image's, all of them.
    Restored(Arc<Placed>),
}

impl Counters {
    /// Returns the number of counters.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the events that one increment of a counter stands for; nothing where there is no
    /// such counter.
    pub fn deltas(&self, number: usize) -> EventDeltas {
        match self.find(number) {
            Some((Range::New(place), within)) => self.new.get(place + within).map(|it| it.unpack()),
            Some((Range::Restored(placed), within)) => Some(placed.image().deltas(within)),
            None => None,
        }
        .unwrap_or_default()
    }

    /// A way to look deltas up whose numbers ascend, mostly.
    pub fn ascending(&self) -> Ascending<'_> {
        Ascending { counters: self, first: 0, known: Known::New(&[]) }
    }

    /// The deltas of all, in order.
    pub fn iter(&self) -> impl Iterator<Item = EventDeltas> + '_ {
        (0..self.len()).map(|number| self.deltas(number))
    }

    /// Says that it matters which counter counts: before there are any.
    pub(crate) fn keep_roles(&mut self) {
        self.keeps_roles = true;
    }

    /// Returns whether it matters which counter counts.
    pub fn has_roles(&self) -> bool {
        self.keeps_roles
    }

    /// Returns the role of a counter, where that is kept.
    pub fn role(&self, number: usize) -> Option<Role> {
        match self.find(number)? {
            (Range::New(place), within) => self.roles.get(place + within).copied(),
            (Range::Restored(placed), within) => placed.role(within),
        }
    }

    /// The counters from `number` on that hold where an indirect branch led, or with all bits
    /// inverted where a call led first: of this run's, and of units that are watched.
    pub fn targets_from(&self, number: usize) -> Vec<usize> {
        let mut found = Vec::new();
        for (at, (first, range)) in self.ranges.iter().enumerate() {
            let end = self.ranges.get(at + 1).map_or(self.len, |(next, _)| *next) as usize;
            let watched = match range {
                Range::New(_) => true,
                Range::Restored(placed) => placed.knowledge() == Knowledge::Watched,
            };
            let numbers = number.max(*first as usize)..end;
            let holds =
                |it: &usize| matches!(self.role(*it), Some(Role::Target(_) | Role::CallTarget(_)));
            found.extend(numbers.filter(|_| watched).filter(holds));
        }
        found
    }

    /// Returns the roles of all of them, in order.
    pub fn roles(&self) -> impl Iterator<Item = Option<Role>> + '_ {
        (0..self.len()).map(|number| self.role(number))
    }

    fn find(&self, number: usize) -> Option<(&Range, usize)> {
        let after = self.ranges.partition_point(|(first, _)| *first as usize <= number);
        let (first, range) = self.ranges[..after].last()?;
        (number < self.len()).then_some((range, number - *first as usize))
    }

    /// The deltas of counter `number` and of some that follow.
    fn known_from(&self, number: usize) -> Option<Known<'_>> {
        let (range, within) = self.find(number)?;
        match range {
            Range::New(place) => {
                let after = self.ranges.partition_point(|(first, _)| *first as usize <= number);
                let end = self.ranges.get(after).map_or(self.len, |(first, _)| *first) as usize;
                let from = place + within;
                self.new.get(from..from + (end - number)).map(Known::New)
            }
            Range::Restored(placed) => placed.image().deltas_from(within).map(Known::Restored),
        }
    }

    pub(crate) fn push(&mut self, deltas: EventDeltas, role: Role) -> u32 {
        if !matches!(self.ranges.last(), Some((_, Range::New(_)))) {
            self.ranges.push((self.len, Range::New(self.new.len())));
        }
        self.new.push(PackedDeltas::of_block(deltas));
        self.roles.push(role);
        self.len += 1;
        self.len - 1
    }

    /// Changes what a counter of this run stands for.
    pub(crate) fn set(&mut self, number: u32, deltas: EventDeltas) {
        let Some((&Range::New(place), within)) = self.find(number as usize) else { return };
        self.new[place + within] = PackedDeltas::of_block(deltas);
    }

    /// Forgets the counters from `number` on, which are this run's and made last.
    pub(crate) fn forget_from(&mut self, number: usize) {
        let surplus = self.len() - number;
        self.new.truncate(self.new.len() - surplus);
        self.roles.truncate(self.roles.len() - surplus);
        self.len = number as u32;
        if matches!(self.ranges.last(), Some((first, Range::New(_))) if *first == self.len) {
            self.ranges.pop();
        }
    }

    pub(crate) fn restore(&mut self, placed: &Arc<Placed>) {
        self.ranges.push((self.len, Range::Restored(placed.clone())));
        self.len += placed.image().counters() as u32;
    }
}

/// Looks deltas up, quickly where one number comes a little after the one before.
#[derive(Debug)]
pub struct Ascending<'a> {
    counters: &'a Counters,
    /// The number of the first that is at hand.
    first: usize,
    known: Known<'a>,
}

/// EventDeltas of counters one after the other.
#[derive(Clone, Copy, Debug)]
enum Known<'a> {
    New(&'a [PackedDeltas]),
    /// As tables of images hold them.
    Restored(&'a [[u8; 8]]),
}

impl Known<'_> {
    fn get(&self, place: usize) -> Option<EventDeltas> {
        match self {
            Self::New(all) => all.get(place).map(|it| it.unpack()),
            Self::Restored(all) => all.get(place).map(|raw| PackedDeltas(*raw).unpack()),
        }
    }
}

impl Ascending<'_> {
    /// As [`Counters::deltas`].
    pub fn deltas(&mut self, number: usize) -> EventDeltas {
        let at_hand = number.checked_sub(self.first).and_then(|place| self.known.get(place));
        at_hand.unwrap_or_else(|| {
            self.first = number;
            self.known = self.counters.known_from(number).unwrap_or(Known::New(&[]));
            self.known.get(0).unwrap_or_default()
        })
    }
}
