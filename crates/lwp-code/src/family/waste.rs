//! Translations of code that is gone: a JIT compiler frees and replaces code all day, and what was
//! translated of it takes memory until everything is flushed.

/// The number of fragments from which on it is worth looking.
pub const LEAST: usize = 100_000;
/// Waste is too much where so many times as many fragments were made as are left.
const TIMES: usize = 4;
/// So many fragments that are gone are too many, however many are left: some 200 MB of the host's
/// and the program's memory. A JIT compiler leaves code where it was when nothing calls it any
/// more, so what is left is mostly of no use either.
const MOST: usize = 300_000;

/// The fragments made of code that may change.
#[derive(Debug)]
pub struct Waste {
    made: usize,
    /// The number of fragments between one look and the next.
    step: usize,
    /// The number from which on they are weighed.
    weighed_at: usize,
    too_much: bool,
}

impl Waste {
    /// No waste yet; it is looked at after `step` fragments, and again after as many.
    pub fn new(step: usize) -> Self {
        Self { made: 0, step, weighed_at: step, too_much: false }
    }

    /// Notes that fragments have been made.
    pub fn note(&mut self, fragments: usize) {
        self.made += fragments;
    }

    /// Returns whether there are enough to find out how many are left of them.
    pub fn is_to_be_weighed(&self) -> bool {
        self.made >= self.weighed_at
    }

    /// Decides whether there is too much waste; `left` fragments can still be executed.
    pub fn weigh(&mut self, left: usize) {
        let bearable = (TIMES * left).min(left + MOST);
        self.too_much = self.made > bearable;
        self.weighed_at = bearable.max(self.made) + self.step;
    }

    /// Returns whether everything is to be flushed for it.
    pub fn is_too_much(&self) -> bool {
        self.too_much
    }

    /// Goes on with as much as there is.
    pub fn put_up(&mut self) {
        self.too_much = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_that_was_made_and_little_that_is_left_is_too_much() {
        let mut waste = Waste::new(LEAST);
        waste.note(LEAST - 1);
        assert!(!waste.is_to_be_weighed());
        waste.note(1);
        assert!(waste.is_to_be_weighed());
        waste.weigh(LEAST / 2);
        assert!(!waste.is_too_much() && !waste.is_to_be_weighed());
        waste.note(2 * LEAST);
        waste.weigh(LEAST / 2);
        assert!(waste.is_too_much());
        waste.put_up();
        assert!(!waste.is_too_much() && !waste.is_to_be_weighed());
    }

    #[test]
    fn so_much_that_is_gone_is_too_much_beside_any_amount_that_is_left() {
        let mut waste = Waste::new(LEAST);
        let left = 10 * MOST;
        waste.note(left + MOST);
        waste.weigh(left);
        assert!(!waste.is_too_much() && !waste.is_to_be_weighed());
        waste.note(LEAST);
        assert!(waste.is_to_be_weighed());
        waste.weigh(left);
        assert!(waste.is_too_much());
    }
}
