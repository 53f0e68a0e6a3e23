//! The options of `cpustat`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::failure::Failure;

/// How `cpustat` is called.
pub const USAGE: &str = "\
Usage:
\tcpustat -c spec [-c spec]... [-p period] [-T u|d] [-sntD] [interval [count]]
\tcpustat -h
";

/// What the options mean.
pub const OPTIONS: &str = "
\t-c spec   events to count; several are counted in turn
\t-D        report failures with the name of what failed
\t-h        print what can be counted
\t-n        no title
\t-p period seconds from one round of all specifications to the next
\t-s        keep processors busy whose events are counted in the kernel only
\t-t        count clock cycles (tsc) too
\t-T u|d    print the time before the rows: seconds since 1970, or date
\tinterval  seconds between two samples [5]
\tcount     number of samples, or with -p of rounds [unlimited]
";

/// Form of the time before the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stamp {
    /// Seconds since 1970.
    #[value(name = "u")]
    Unix,
    /// As date(1) prints it.
    #[value(name = "d")]
    Date,
}

/// The parsed command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "cpustat", disable_help_flag = true, disable_version_flag = true)]
pub struct Options {
    /// Events.
    #[arg(short = 'c')]
    pub specs: Vec<String>,
    /// Verbose failures.
    #[arg(short = 'D')]
    pub debug: bool,
    /// Print what can be counted.
    #[arg(short = 'h')]
    pub help: bool,
    /// No title.
    #[arg(short = 'n')]
    pub no_title: bool,
    /// Seconds of a round.
    #[arg(short = 'p')]
    pub round: Option<f64>,
    /// Busy processors.
    #[arg(short = 's')]
    pub soak: bool,
    /// The tsc column.
    #[arg(short = 't')]
    pub tsc: bool,
    /// Time lines.
    #[arg(short = 'T')]
    pub stamp: Option<Stamp>,
    /// Seconds of a sample.
    #[arg(default_value_t = 5.0)]
    pub interval: f64,
    /// Number of samples.
    pub count: Option<u64>,
}

impl Options {
    /// Parses and checks.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Failure> {
        let options = Self::try_parse_from(arguments)?;
        if options.help {
            return Ok(options);
        }
        let wrong = |reason: &str| Err(Failure::Usage(reason.to_owned()));
        if options.specs.is_empty() {
            return wrong("no events: give -c");
        }
        let sensible = |seconds: f64| (0.001..=1e6).contains(&seconds);
        if !sensible(options.interval) {
            return wrong("the interval is in seconds, from 0.001 to 1000000");
        }
        if options.round.is_some_and(|round| !sensible(round)) {
            return wrong("-p takes seconds, from 0.001 to 1000000");
        }
        if options.count == Some(0) {
            return wrong("the count is a number from 1");
        }
        Ok(options)
    }

    /// Time of one sample.
    pub fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, Failure> {
        let words = ["cpustat"].iter().chain(words);
        Options::parse(words.map(OsString::from))
    }

    #[test]
    fn options_are_getopt_s() {
        let options = parse(&["-snt", "-Tu", "-c", "cs,sys", "-p", "2", "0.5", "10"]).unwrap();
        assert!(options.soak && options.no_title && options.tsc);
        assert_eq!(options.stamp, Some(Stamp::Unix));
        assert_eq!((options.interval(), options.count), (Duration::from_millis(500), Some(10)));
        let options = parse(&["-c", "cs,sys"]).unwrap();
        assert_eq!((options.interval(), options.count), (Duration::from_secs(5), None));
    }

    #[test]
    fn wrong_calls_are_refused() {
        for words in [
            &["1", "2"][..],
            &["-c", "x", "0"],
            &["-c", "x", "-1"],
            &["-c", "x", "nan"],
            &["-c", "x", "1", "0"],
            &["-c", "x", "1", "2", "3"],
            &["-c", "x", "-T", "x"],
            &["-c", "x", "-p", "0"],
            &["-z"],
        ] {
            assert!(matches!(parse(words), Err(Failure::Usage(_))), "{words:?}");
        }
    }
}
