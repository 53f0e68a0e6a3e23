//! The slowest tests, each with its reason.

use std::time::Duration;

use super::binaries::Test;
use super::process::Ended;

/// As many are named.
const NAMED: usize = 30;

/// The beginning of a full name, and the reason why tests of that name take long. The first that
/// fits counts.
#[rustfmt::skip] // A table: one kind of test a line.
const REASONS: &[(&str, &str)] = &[
];

fn reason(name: &str) -> &'static str {
    let row = REASONS.iter().find(|(begin, _)| name.starts_with(begin));
    row.map_or("no reason is known", |(_, reason)| reason)
}

/// Prints the slowest tests: time by the clock, processor time, name, reason.
pub fn print(ended: &[(&Test<'_>, Ended)]) {
    let mut slowest: Vec<_> = ended.iter().collect();
    slowest.sort_by_key(|(_, result)| std::cmp::Reverse(result.elapsed));
    let all: Duration = ended.iter().map(|(_, result)| result.elapsed).sum();
    let processor: Duration = ended.iter().map(|(_, result)| result.processor).sum();
    println!(
        "{} tests: {:.0} s one by one, {:.0} s of processor time; the slowest:",
        ended.len(),
        all.as_secs_f64(),
        processor.as_secs_f64()
    );
    for (test, result) in slowest.into_iter().take(NAMED) {
        let name = test.full_name();
        let (elapsed, used) = (result.elapsed.as_secs_f64(), result.processor.as_secs_f64());
        println!("{elapsed:7.1} s {used:7.1} s  {name}  ({})", reason(&name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_slow_test_has_a_reason() {
        assert!(REASONS.iter().all(|(begin, reason)| begin.contains("::") && !reason.is_empty()));
        assert_eq!(reason("no-such-package::test"), "no reason is known");
    }
}
