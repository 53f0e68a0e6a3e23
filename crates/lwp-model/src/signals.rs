//! The unit's needs from the world around it, and its messages to it.

use alloc::vec::Vec;

use lwp_arch::{Record, RingOffset};

use crate::Xorshift32;

/// The surroundings of a unit.
///
/// An operation that faults asks for a time stamp at most; it raises, draws and tells nothing.
pub trait Signals {
    /// The ring filled to its threshold. Called after the record that did it is in memory.
    ///
    /// Spec: LWP §5.7.
    fn threshold_interrupt(&mut self, vector: u8);

    /// Random bits for a counter that is reloaded. Asked once per reload, and only if the control
    /// block wants random bits.
    ///
    /// Spec: LWP §3.1.
    fn random(&mut self) -> u32;

    /// The performance time-stamp counter. Asked once per record, and only if stamps were granted.
    ///
    /// Spec: LWP §4.1.
    fn timestamp(&mut self) -> u64;

    /// The number of the core, for byte 1 of a record, where nobody keeps COREID up to date: a
    /// virtual processor whose threads go from core to core unseen. Asked once per record.
    ///
    /// Spec: LWP §2.1, §4.1.
    fn core(&mut self) -> Option<u8> {
        None
    }

    /// A record was written at `at`; `missed` if the head did not move on.
    ///
    /// Spec: LWP §5.7.
    fn stored(&mut self, record: &Record, at: RingOffset, missed: bool) {
        let _ = (record, at, missed);
    }
}

/// Surroundings in which no interrupt is heard, all random bits are zero and time stands still.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Signals for Quiet {
    fn threshold_interrupt(&mut self, _vector: u8) {}

    fn random(&mut self) -> u32 {
        0
    }

    fn timestamp(&mut self) -> u64 {
        0
    }
}

/// Surroundings with repeatable random bits and a clock set from outside, which remember
/// interrupts.
#[derive(Clone, Debug)]
pub struct Seeded {
    /// Source of random bits.
    pub random: Xorshift32,
    /// The time-stamp counter.
    pub timestamp: u64,
    /// Vectors of the interrupts raised so far.
    pub interrupts: Vec<u8>,
}

impl Seeded {
    /// Surroundings with this seed, at time 0.
    pub const fn new(seed: u32) -> Self {
        Self { random: Xorshift32::new(seed), timestamp: 0, interrupts: Vec::new() }
    }
}

impl Signals for Seeded {
    fn threshold_interrupt(&mut self, vector: u8) {
        self.interrupts.push(vector);
    }

    fn random(&mut self) -> u32 {
        self.random.next_u32()
    }

    fn timestamp(&mut self) -> u64 {
        self.timestamp
    }
}
