//! How long tests took the last time: the longest begin first, so that none is waited for alone.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::binaries::Test;
use super::process::Ended;

/// The times of a target directory's tests, by full name.
#[derive(Debug, Default)]
pub struct Times(HashMap<String, Duration>);

impl Times {
    const FILE: &str = "test-times";

    /// Reads those of the last time. Without any, all tests seem equal.
    pub fn read(target: &Path) -> Self {
        Self::parse(&fs::read_to_string(target.join(Self::FILE)).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let (name, milliseconds) = line.rsplit_once(' ')?;
            Some((name.to_owned(), Duration::from_millis(milliseconds.parse().ok()?)))
        };
        Self(text.lines().filter_map(row).collect())
    }

    /// The time that a test took. One that is new may take long.
    pub fn of(&self, name: &str) -> Duration {
        self.0.get(name).copied().unwrap_or(Duration::from_secs(1))
    }

    /// Keeps the times of these tests, and those of others as they were.
    pub fn write(&mut self, target: &Path, ended: &[(&Test<'_>, Ended)]) {
        self.0.extend(ended.iter().map(|(test, result)| (test.full_name(), result.elapsed)));
        let mut lines: Vec<String> =
            self.0.iter().map(|(name, time)| format!("{name} {}\n", time.as_millis())).collect();
        lines.sort();
        // Without them the next run is longer, and nothing else.
        let _ = fs::write(target.join(Self::FILE), lines.concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_cut_off_are_passed_over() {
        let times = Times::parse("a::b 1500\nc::d\ne 12");
        assert_eq!(times.of("a::b"), Duration::from_millis(1500));
        assert_eq!(times.of("c::d"), Duration::from_secs(1));
        assert_eq!(times.of("e"), Duration::from_millis(12));
    }
}
