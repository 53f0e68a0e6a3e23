//! Predicts the time of the next sample.
//!
//! Samples come at even intervals. If the server slept until the next one, the thread would wait
//! for the wake-up, which takes longer than the sample itself, and several times as long on an idle
//! virtual processor. So the server sleeps for the first half of the usual pause, and spins for the
//! rest.

use std::time::{Duration, Instant};

/// Requests with less between them belong together: a sample takes up to three.
const TOGETHER: Duration = Duration::from_micros(30);
/// Pauses for which waiting awake pays; in longer ones the wake-up is nothing.
const WORTH_IT: Duration = Duration::from_millis(3);
/// Too little to sleep for.
const SHORT: Duration = Duration::from_micros(150);

/// The length of the pauses between requests.
#[derive(Debug)]
pub struct WaitPredictor {
    /// The time at which the last request had been answered.
    answered: Instant,
    /// The usual pause, in nanoseconds.
    usual: u64,
}

/// The action to take about a request that has not come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Look for it again at once.
    Spin,
    /// Sleep for so long at most.
    Sleep(Duration),
    /// Nothing is known of it.
    Unknown,
}

impl WaitPredictor {
    /// Nothing is known yet.
    pub fn new(now: Instant) -> Self {
        Self { answered: now, usual: u64::MAX }
    }

    /// Requests that had come before `now` have been answered, those before them at the last note.
    pub fn note(&mut self, found: Instant, now: Instant) {
        let pause = found.duration_since(self.answered);
        self.answered = now;
        if pause < TOGETHER {
            return;
        }
        // A pause of another kind, while the program waits for something, is to be forgotten soon.
        let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX).min(2 * nanos(WORTH_IT));
        self.usual = match self.usual {
            u64::MAX => pause,
            usual => (usual * 3 + pause) / 4,
        };
    }

    /// The way to wait at `now`.
    pub fn wait(&self, now: Instant) -> Wait {
        if self.usual > nanos(WORTH_IT) {
            return Wait::Unknown;
        }
        let passed = now.duration_since(self.answered);
        let usual = Duration::from_nanos(self.usual);
        if passed > usual * 2 {
            return Wait::Unknown;
        }
        match (usual / 2).checked_sub(passed) {
            Some(rest) if rest >= SHORT => Wait::Sleep(rest),
            _ => Wait::Spin,
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// A predictor for which every answer takes a microsecond and every pause `pause`; and the last
    /// answer.
    fn after(pause: Duration, times: u32) -> (WaitPredictor, Instant) {
        let mut now = Instant::now();
        let mut predictor = WaitPredictor::new(now);
        for _ in 0..times {
            let found = now + pause;
            now = found + micros(1);
            predictor.note(found, now);
        }
        (predictor, now)
    }

    #[test]
    fn the_first_half_is_slept_and_the_rest_is_not() {
        let (predictor, last) = after(micros(500), 20);
        assert_eq!(predictor.wait(last + micros(1)), Wait::Sleep(micros(249)));
        assert_eq!(predictor.wait(last + micros(150)), Wait::Spin);
        assert_eq!(predictor.wait(last + micros(900)), Wait::Spin);
        assert_eq!(predictor.wait(last + micros(1001)), Wait::Unknown);
    }

    #[test]
    fn short_pauses_are_not_slept_in_and_long_ones_are_not_waited_for() {
        let (predictor, last) = after(micros(200), 20);
        assert_eq!(predictor.wait(last), Wait::Spin);
        let (predictor, last) = after(micros(5000), 20);
        assert_eq!(predictor.wait(last), Wait::Unknown);
        assert_eq!(WaitPredictor::new(last).wait(last), Wait::Unknown);
    }

    #[test]
    fn requests_of_one_sample_are_no_rhythm() {
        let (mut predictor, last) = after(micros(400), 20);
        let before = predictor.usual;
        predictor.note(last + micros(2), last + micros(3));
        assert_eq!(predictor.usual, before);
        // One long pause is forgotten.
        let mut now = last + micros(3);
        for pause in [100_000, 400, 400, 400, 400, 400, 400, 400, 400] {
            let found = now + micros(pause);
            now = found + micros(1);
            predictor.note(found, now);
        }
        assert!(matches!(predictor.wait(now + micros(450)), Wait::Spin), "{predictor:?}");
    }
}
