//! The options of `cpustat`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use super::groups::{Grouping, Keys, Shape};
use crate::failure::Failure;

/// The usage of `cpustat`.
pub const USAGE: &str = "\
Usage:
\tcpustat -c spec [-c spec]... [-p period] [-T u|d] [-sntDm] [-A cor|soc|bins]
\t        [-k keys] [-o limit] [-O file] [interval [count]]
\tcpustat -I file [-T u|d] [-ntDm] [-A cor|soc|bins] [-k keys] [-o limit]
\tcpustat -h
";

/// The meaning of the options.
pub const OPTIONS: &str = "
\t-A group  add up by core (cor), by socket (soc), or in this many bins
\t-c spec   count these events; several specs take turns
\t-D        name the failed call in messages
\t-h        list the events of this machine
\t-I file   print a recording of -O
\t-k keys   order rows by these columns, separated by commas; - before a column: largest first
\t-m        print means instead of sums
\t-n        print no title
\t-o limit  print at most limit rows a sample
\t-O file   record the samples in file too
\t-p period begin a round of all specs every period seconds
\t-s        keep processors busy if their events are counted in the kernel only
\t-t        count clock cycles (tsc) too
\t-T u|d    print the time before the rows: seconds since 1970, or date
\tinterval  seconds between two samples [default: 5]
\tcount     number of samples, or with -p of rounds [default: unlimited]
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
    /// Groups of processors.
    #[arg(short = 'A', value_parser = Grouping::parse)]
    pub grouping: Option<Grouping>,
    /// Events.
    #[arg(short = 'c')]
    pub specs: Vec<String>,
    /// Verbose failures.
    #[arg(short = 'D')]
    pub debug: bool,
    /// List the events of this machine.
    #[arg(short = 'h')]
    pub help: bool,
    /// The recording to print.
    #[arg(short = 'I')]
    pub replay: Option<PathBuf>,
    /// The order of rows.
    #[arg(short = 'k', value_parser = Keys::parse, allow_hyphen_values = true)]
    pub keys: Option<Keys>,
    /// Means.
    #[arg(short = 'm')]
    pub mean: bool,
    /// No title.
    #[arg(short = 'n')]
    pub no_title: bool,
    /// Rows a sample.
    #[arg(short = 'o')]
    pub limit: Option<usize>,
    /// The file that samples are recorded in.
    #[arg(short = 'O')]
    pub record: Option<PathBuf>,
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
    pub interval: Option<f64>,
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
        if options.limit == Some(0) {
            return wrong("-o takes a number from 1");
        }
        if options.replay.is_some() {
            if options.counts() {
                return wrong(
                    "-I prints what was recorded: it takes no -c, -p, -s, -O or interval",
                );
            }
            return Ok(options);
        }
        if options.specs.is_empty() {
            return wrong("no events: give -c");
        }
        let sensible = |seconds: f64| (0.001..=1e6).contains(&seconds);
        if !options.interval.is_none_or(sensible) {
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

    /// Returns whether something asks for counting.
    fn counts(&self) -> bool {
        let timed = self.round.is_some() || self.interval.is_some() || self.soak;
        timed || !self.specs.is_empty() || self.record.is_some()
    }

    /// Time of one sample.
    pub fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval.unwrap_or(5.0))
    }

    /// Returns the way from samples to rows that the options request.
    pub fn shape(&self) -> Shape {
        let keys = self.keys.clone().unwrap_or_default();
        Shape { grouping: self.grouping, mean: self.mean, keys, limit: self.limit }
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
        let options = parse(&["-m", "-A", "4", "-k", "-pic0,cpu", "-o3", "-I", "f"]).unwrap();
        let keys = Keys::parse("-pic0,cpu").unwrap();
        let grouping = Some(Grouping::Bins(4));
        assert_eq!(options.shape(), Shape { grouping, mean: true, keys, limit: Some(3) });
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
            &["-c", "x", "-o", "0"],
            &["-c", "x", "-A", "0"],
            &["-c", "x", "-A", "cpu"],
            &["-c", "x", "-k", "time"],
            &["-I", "f", "-c", "x"],
            &["-I", "f", "-O", "g"],
            &["-I", "f", "1"],
            &["-I", "f", "-s"],
        ] {
            assert!(matches!(parse(words), Err(Failure::Usage(_))), "{words:?}");
        }
    }
}
