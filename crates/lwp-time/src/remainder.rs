//! CPU time that no sample stands for.
//!
//! Promise: R130

/// The difference between the kernel's clocks and the samples, by its reasons, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    /// Samples for which a ring had no room.
    pub lost: u64,
    /// All of the rest, if the kernel may not be seen: its time, and that of `unsampled`.
    pub kernel: u64,
    /// All of the rest, if it may be seen: threads that ended before their next sample was due, and
    /// samples that came late.
    pub unsampled: u64,
}

impl Remainder {
    /// Of `total` ns, if each of these `samples` stands for `period` ns.
    pub fn of(total: u64, period: u64, samples: u64, lost: u64, sees_kernel: bool) -> Self {
        let rest = total.saturating_sub(samples.saturating_mul(period));
        let lost = lost.saturating_mul(period).min(rest);
        let (kernel, unsampled) = match sees_kernel {
            true => (0, rest - lost),
            false => (rest - lost, 0),
        };
        Self { lost, kernel, unsampled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_sample_stands_for_has_a_reason() {
        let of = |lost, sees| Remainder::of(1_000, 10, 80, lost, sees);
        assert_eq!(of(0, true), Remainder { unsampled: 200, ..Remainder::default() });
        assert_eq!(of(3, false), Remainder { lost: 30, kernel: 170, unsampled: 0 });
        assert_eq!(of(99, true), Remainder { lost: 200, ..Remainder::default() });
        // Samples may stand for a little more than the clocks say.
        assert_eq!(Remainder::of(1_000, 10, 101, 0, true), Remainder::default());
    }
}
