//! The random numbers that replace the low bits of reloaded counters.

/// Marsaglia's xorshift generator with 32 bits of state and the shifts 13, 17, 5.
///
/// The documents ask for random bits and say nothing of their origin. A generator with little state
/// that every implementation can repeat makes runs repeatable and comparable: DEV-14.
///
/// Spec: P07 §5.4; LWP §3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xorshift32(u32);

impl Xorshift32 {
    /// A generator. Seed 0 would stay 0 for ever and is replaced by 1.
    pub const fn new(seed: u32) -> Self {
        Self(if seed == 0 { 1 } else { seed })
    }

    /// The generator's state.
    pub const fn state(self) -> u32 {
        self.0
    }

    /// The next number; never 0.
    pub const fn next_u32(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// `interval` with its low `bits` bits replaced by those of `random`.
///
/// Spec: P07 §5.4; LWP §3.1.
pub(crate) const fn randomised(interval: i32, bits: u32, random: u32) -> i32 {
    let mask = (1i32 << bits) - 1;
    interval & !mask | random as i32 & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First numbers of the published generator for seed 1.
    ///
    /// Spec: LWP §3.1. DEV-14
    #[test]
    fn lwp_spec_3_1_dev_14_the_generator_is_the_published_one() {
        let mut random = Xorshift32::new(1);
        assert_eq!([(); 3].map(|()| random.next_u32()), [270_369, 67_634_689, 2_647_435_461]);
        assert_eq!(Xorshift32::new(0), Xorshift32::new(1));
    }

    /// Spec: LWP §3.1
    #[test]
    fn lwp_spec_3_1_random_replaces_low_bits_only() {
        assert_eq!(randomised(0b1010_1010, 4, 0b0101_0101), 0b1010_0101);
        assert_eq!(randomised(9, 0, u32::MAX), 9);
        assert_eq!(randomised(0, 6, u32::MAX), 63, "one record every 1 to 64 occurrences");
    }
}
