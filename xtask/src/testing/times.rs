//! How long tests took the last time: the longest begin first, so that none is waited for alone.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::binaries::Test;
use super::process::Ended;

/// What a test took.
#[derive(Clone, Copy, Debug)]
struct Time {
    elapsed: Duration,
    /// Processor time; none in files of before it was kept.
    processor: Option<Duration>,
}

/// The times of a target directory's tests, by full name.
#[derive(Debug, Default)]
pub struct Times(HashMap<String, Time>);

impl Times {
    const FILE: &str = "test-times";

    /// Reads those of the last time. Without any, all tests seem equal.
    pub fn read(target: &Path) -> Self {
        Self::parse(&fs::read_to_string(target.join(Self::FILE)).unwrap_or_default())
    }

    /// A line has a test's full name and milliseconds: by the clock, and of processor time.
    pub fn parse(text: &str) -> Self {
        let milliseconds = |word: &str| word.parse().ok().map(Duration::from_millis);
        let row = |line: &str| {
            let mut words = line.split(' ');
            let (name, elapsed) = (words.next()?, milliseconds(words.next()?)?);
            let processor = words.next().and_then(milliseconds);
            Some((name.to_owned(), Time { elapsed, processor }))
        };
        Self(text.lines().filter_map(row).collect())
    }

    /// The time that a test took by the clock. One that is new may take long.
    pub fn of(&self, name: &str) -> Duration {
        self.0.get(name).map_or(Duration::from_secs(1), |time| time.elapsed)
    }

    /// The processor time that a test took, if it is known.
    pub fn processor_of(&self, name: &str) -> Option<Duration> {
        self.0.get(name)?.processor
    }

    /// Returns whether the processor time of any test is known.
    pub fn has_processor_times(&self) -> bool {
        self.0.values().any(|time| time.processor.is_some())
    }

    /// Keeps the times of these tests, and those of others as they were.
    pub fn write(&mut self, target: &Path, ended: &[(&Test<'_>, Ended)]) {
        let time = |it: &Ended| Time { elapsed: it.elapsed, processor: Some(it.processor) };
        self.0.extend(ended.iter().map(|(test, result)| (test.full_name(), time(result))));
        let line = |(name, time): (&String, &Time)| {
            let processor = time.processor.map(|it| format!(" {}", it.as_millis()));
            format!("{name} {}{}\n", time.elapsed.as_millis(), processor.unwrap_or_default())
        };
        let mut lines: Vec<String> = self.0.iter().map(line).collect();
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
        let times = Times::parse("a::b 1500 700\nc::d\ne 12");
        assert_eq!(times.of("a::b"), Duration::from_millis(1500));
        assert_eq!(times.of("c::d"), Duration::from_secs(1));
        assert_eq!(times.of("e"), Duration::from_millis(12));
        assert_eq!(times.processor_of("a::b"), Some(Duration::from_millis(700)));
        assert_eq!(times.processor_of("e"), None);
    }
}
