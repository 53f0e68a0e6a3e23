//! For tests only: random application code, and a machine that runs code and shows what it did.
//!
//! [`c_library`] looks at libraries for C programs. [`files`] writes programs that tests execute.
//! [`generate`] makes valid instructions from the encoder's own tables, so that no kind of operand
//! is forgotten. [`native`] runs code at fixed addresses in a forked child, with every register
//! given and every register reported.

pub mod c_library;
pub mod files;
pub mod generate;
pub mod native;
pub mod stepped;

/// A small reproducible source of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A source that always gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (splitmix64).
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// True once in `times` on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}
