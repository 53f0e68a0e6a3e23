//! Ballista's warnings on standard error: each once in ten seconds, because a machine that is lost
//! is tried twenty times a second.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, LevelFilter, Log, Metadata, Record};
use lwp_terminal::escape::printable;

/// The time in which the same warning is not repeated.
const QUIET: Duration = Duration::from_secs(10);
/// Warnings that are remembered.
const REMEMBERED: usize = 32;
/// The most letters of a warning: some have a plan in them.
const LETTERS: usize = 400;
/// Ballista misses the measurements that the scheduler keeps from it.
const MISSED: &str = "The metrics for stage ";

struct Noise(Mutex<VecDeque<(Instant, String)>>);

static NOISE: Noise = Noise(Mutex::new(VecDeque::new()));

/// Shows warnings from now on.
pub fn show() {
    if log::set_logger(&NOISE).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

impl Noise {
    fn is_new(&self, text: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|(at, _)| at.elapsed() < QUIET);
        if said.iter().any(|(_, other)| other == text) {
            return false;
        }
        said.push_back((Instant::now(), text.to_owned()));
        if said.len() > REMEMBERED {
            said.pop_front();
        }
        true
    }
}

impl Log for Noise {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn && metadata.target().starts_with("ballista")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text: String = record.args().to_string().chars().take(LETTERS).collect();
        if !text.starts_with(MISSED) && self.is_new(&text) {
            lwp_terminal::say!("lwp-fleet-node: {}", printable(&text));
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_warning_is_said_once() {
        let noise = Noise(Mutex::default());
        assert!(noise.is_new("a") && noise.is_new("b") && !noise.is_new("a"));
        (0..100).for_each(|n| assert!(noise.is_new(&n.to_string())));
        assert!(noise.is_new("a"), "forgotten");
    }
}
