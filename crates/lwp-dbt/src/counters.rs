//! What the counters stand for, by number: those of this run, and those of restored units, of which
//! everything stays in their images until somebody asks.

use std::sync::Arc;

use crate::image::Placed;
use crate::packed::PackedWeights;
use crate::plan::{Role, Weights};

/// The weights of all counters, and, if anybody wants to know, what they count.
#[derive(Debug, Default)]
pub struct Counters {
    new: Vec<PackedWeights>,
    /// As `new`.
    roles: Option<Vec<Role>>,
    /// Numbers in ascending order: the first of each range, and whose it is.
    ranges: Vec<(u32, Range)>,
    len: u32,
}

/// Whose counters a range of numbers are.
#[derive(Debug)]
enum Range {
    /// This run's; its first one's place.
    New(usize),
    /// An image's, all of them.
    Restored(Arc<Placed>),
}

impl Counters {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What one increment of a counter stands for; nothing where there is no such counter.
    pub fn weights(&self, number: usize) -> Weights {
        match self.find(number) {
            Some((Range::New(place), within)) => self.new.get(place + within).map(|it| it.unpack()),
            Some((Range::Restored(placed), within)) => Some(placed.image().weights(within)),
            None => None,
        }
        .unwrap_or_default()
    }

    /// The weights of all, in order.
    pub fn iter(&self) -> impl Iterator<Item = Weights> + '_ {
        (0..self.len()).map(|number| self.weights(number))
    }

    /// Keeps what each counter counts: before there are any.
    pub(crate) fn keep_roles(&mut self) {
        self.roles.get_or_insert_default();
    }

    /// Whether it is known what each counter counts.
    pub fn has_roles(&self) -> bool {
        self.roles.is_some()
    }

    /// What a counter counts, where that is kept.
    pub fn role(&self, number: usize) -> Option<Role> {
        match self.find(number)? {
            (Range::New(place), within) => self.roles.as_ref()?.get(place + within).copied(),
            (Range::Restored(placed), within) => placed.role(within),
        }
    }

    /// What all of them count, in order.
    pub fn roles(&self) -> impl Iterator<Item = Option<Role>> + '_ {
        (0..self.len()).map(|number| self.role(number))
    }

    fn find(&self, number: usize) -> Option<(&Range, usize)> {
        let after = self.ranges.partition_point(|(first, _)| *first as usize <= number);
        let (first, range) = self.ranges[..after].last()?;
        (number < self.len()).then_some((range, number - *first as usize))
    }

    pub(crate) fn push(&mut self, weights: Weights, role: Role) -> u32 {
        if !matches!(self.ranges.last(), Some((_, Range::New(_)))) {
            self.ranges.push((self.len, Range::New(self.new.len())));
        }
        self.new.push(PackedWeights::of_block(weights));
        if let Some(roles) = &mut self.roles {
            roles.push(role);
        }
        self.len += 1;
        self.len - 1
    }

    /// Changes what a counter of this run stands for.
    pub(crate) fn set(&mut self, number: u32, weights: Weights) {
        let Some((&Range::New(place), within)) = self.find(number as usize) else { return };
        self.new[place + within] = PackedWeights::of_block(weights);
    }

    pub(crate) fn restore(&mut self, placed: &Arc<Placed>) {
        self.ranges.push((self.len, Range::Restored(placed.clone())));
        self.len += placed.image().counters() as u32;
    }
}
