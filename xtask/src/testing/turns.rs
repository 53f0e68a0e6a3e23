//! Slow tests take turns: each commit runs a third of them, and every night all.

use std::process::Command;
use std::time::Duration;

use super::times::Times;
use crate::workspace;

/// A test is slow if it took more processor time than this the last time.
const SLOW: Duration = Duration::from_secs(1);

/// The number of commits that run all slow tests between them.
const TURNS: u64 = 3;

/// Modules most of whose tests are slow. They count where no times are known, as in a new target
/// directory.
const SLOW_MODULES: &[&str] = &[
    "lwp-cli::it::benches::",
    "lwp-cli::it::boundaries::",
    "lwp-cli::it::kept_samples::",
    "lwp-cli::it::languages::",
    "lwp-cli::it::outputs::",
    "lwp-cli::it::packaging::",
    "lwp-tests::it::asm_random::",
    "lwp-tests::it::cachegrind::",
    "lwp-tests::it::counts::",
    "lwp-tests::it::self_profiling::",
];

/// Returns whether a test takes turns. One that is new among others is not known to be slow.
pub fn is_slow(name: &str, times: &Times) -> bool {
    match times.processor_of(name) {
        Some(time) => time > SLOW,
        None if times.has_processor_times() => false,
        None => SLOW_MODULES.iter().any(|module| name.starts_with(module)),
    }
}

/// The number of a turn: each commit has the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(u64);

impl Turn {
    /// The turn of the commit that is checked out: the number of its ancestors.
    pub fn of_commit() -> Self {
        let mut count = Command::new("git");
        count.args(["rev-list", "--count", "HEAD"]).current_dir(workspace::root());
        let text = workspace::output(count).ok().and_then(|it| String::from_utf8(it).ok());
        Self(text.and_then(|it| it.trim().parse().ok()).unwrap_or(0))
    }

    /// Returns whether the slow test `name` is run in this turn.
    pub fn has(self, name: &str) -> bool {
        hash(name).wrapping_add(self.0).is_multiple_of(TURNS)
    }

    /// The turn that decides in which modes a test runs its programs. A slow test's is the number
    /// of times that it has been run: otherwise it would always run them in the same modes.
    pub fn of_modes(self, slow: bool) -> u64 {
        if slow { self.0 / TURNS } else { self.0 }
    }
}

/// FNV-1a. It stays as it is when other tests come and go, so three turns reach every test.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    // Less than half of the range, so that adding a turn wraps nothing.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_turns_reach_every_slow_test_once() {
        let names = (0..300).map(|number| format!("lwp-tests::it::counts::test_{number}"));
        let mut each = [0; 3];
        for name in names {
            for first in [0, 1, 2048] {
                let turns = (first..first + 3).filter(|turn| Turn(*turn).has(&name));
                assert_eq!(turns.count(), 1, "{name}");
            }
            each[(0..3).position(|turn| Turn(turn).has(&name)).expect("one of three")] += 1;
        }
        assert!(each.iter().all(|tests| (70..=130).contains(tests)), "{each:?}");
    }

    #[test]
    fn a_slow_test_runs_its_programs_in_other_modes_each_time() {
        let name = "lwp-tests::it::programs::signals::queued";
        let runs = (0..30).map(Turn).filter(|turn| turn.has(name));
        let modes: Vec<u64> = runs.map(|turn| turn.of_modes(true)).collect();
        assert_eq!(modes, (0..10).collect::<Vec<_>>());
        assert_eq!(Turn(7).of_modes(false), 7);
    }

    #[test]
    fn measured_times_have_precedence_over_the_list() {
        let (listed, other) = ("lwp-cli::it::languages::a", "lwp-cli::it::stat::a");
        let none = Times::default();
        assert!(is_slow(listed, &none));
        assert!(!is_slow(other, &none));
        let times = Times::parse(&format!("{listed} 9000 900\n{other} 9000 1100\n"));
        assert!(!is_slow(listed, &times));
        assert!(is_slow(other, &times));
        assert!(!is_slow("lwp-cli::it::languages::new", &times));
    }
}
