//! The options of `cputrack`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::rows::Columns;

/// The usage of `cputrack`.
pub const USAGE: &str = "\
Usage:
\tcputrack -c spec [-c spec]... [-efntvD] [-N count] [-o file] [-T secs]
\t         [--lwp] command [args]
\tcputrack -c spec [-c spec]... [-efntvD] [-N count] [-o file] [-T secs]
\t         [--lwp] -p pid
\tcputrack [--lwp] -h
";

/// The meaning of the options.
pub const OPTIONS: &str = "
\t-c spec   count these events; several specs take turns
\t-D        name the failed call in messages
\t-e        go on counting after an exec
\t-f        count the children of fork too
\t-h        list the events of this machine
\t-n        print no title
\t-N count  end after this many samples of a process
\t-o file   write to file instead of standard output
\t-p pid    count a running process
\t-t        count clock cycles (tsc) too
\t-T secs   print a sample every secs seconds [default: 1]; 0 prints totals only
\t-v        print the start and end of threads too
\t--lwp     count on the virtual CPU, which needs no hardware counters
";

/// The parsed command line.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "cputrack", disable_help_flag = true, disable_version_flag = true)]
pub struct Options {
    /// Events.
    #[arg(short = 'c')]
    pub specs: Vec<String>,
    /// Verbose failures.
    #[arg(short = 'D')]
    pub debug: bool,
    /// Follow exec.
    #[arg(short = 'e')]
    pub follow_exec: bool,
    /// Follow fork.
    #[arg(short = 'f')]
    pub follow_fork: bool,
    /// List the events of this machine.
    #[arg(short = 'h')]
    pub help: bool,
    /// No title.
    #[arg(short = 'n')]
    pub no_title: bool,
    /// Number of samples.
    #[arg(short = 'N')]
    pub samples: Option<u32>,
    /// The file that rows are written to.
    #[arg(short = 'o')]
    pub output: Option<PathBuf>,
    /// The live process.
    #[arg(short = 'p')]
    pub pid: Option<i32>,
    /// The tsc column.
    #[arg(short = 't')]
    pub tsc: bool,
    /// Seconds between samples.
    #[arg(short = 'T', default_value_t = 1.0)]
    pub seconds: f64,
    /// Rows for threads.
    #[arg(short = 'v')]
    pub verbose: bool,
    /// On the virtual CPU.
    #[arg(long)]
    pub lwp: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true)]
    pub command: Vec<OsString>,
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
        match (options.pid, options.command.is_empty()) {
            (None, true) => return wrong("no program: give one, or -p"),
            (Some(_), false) => return wrong("give a program or -p, not both"),
            (Some(pid), _) if pid <= 0 => return wrong("-p takes a process id"),
            _ => {}
        }
        if options.seconds != 0.0 && !(0.001..=1e6).contains(&options.seconds) {
            return wrong("-T takes 0, or seconds from 0.001 to 1000000");
        }
        if options.samples == Some(0) {
            return wrong("-N takes a number from 1");
        }
        Ok(options)
    }

    /// Time between two samples; `None`: none are asked for.
    pub fn period(&self) -> Option<Duration> {
        let period = Duration::from_secs_f64(self.seconds);
        (!period.is_zero()).then_some(period)
    }

    /// The columns asked for.
    pub fn columns(&self) -> Columns {
        Columns { pid: self.follow_fork, tsc: self.tsc, group: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, Failure> {
        let words = ["cputrack"].iter().chain(words);
        Options::parse(words.map(OsString::from))
    }

    #[test]
    fn options_are_getopt_s() {
        let options = parse(&["-ef", "-tvn", "-c", "cycles", "-cfoo", "-T.5", "ls", "-l"]).unwrap();
        assert!(options.follow_exec && options.follow_fork && options.tsc && options.verbose);
        assert_eq!(options.specs, ["cycles", "foo"]);
        assert_eq!(options.period(), Some(Duration::from_millis(500)));
        assert_eq!(options.command, ["ls", "-l"]);
        assert_eq!(parse(&["-c", "x", "-T", "0", "ls"]).unwrap().period(), None);
        assert!(parse(&["-h"]).unwrap().help);
    }

    #[test]
    fn wrong_calls_are_refused() {
        let reason = |words: &[&str]| match parse(words) {
            Err(Failure::Usage(reason)) => reason,
            other => panic!("{words:?}: {other:?}"),
        };
        assert_eq!(reason(&["ls"]), "no events: give -c");
        assert_eq!(reason(&["-c", "x"]), "no program: give one, or -p");
        assert_eq!(reason(&["-c", "x", "-p", "1", "ls"]), "give a program or -p, not both");
        assert!(reason(&["-c", "x", "-T", "-1", "ls"]).contains("-1"));
        assert!(reason(&["-c", "x", "-N", "0", "ls"]).starts_with("-N"));
        assert!(reason(&["-r", "x", "-c", "x", "ls"]).contains("-r"));
        assert!(reason(&["-c", "x", "-N", "many", "ls"]).contains("many"));
        assert!(reason(&["-c", "x", "-p", "0"]).starts_with("-p"));
        assert!(reason(&["-c", "x", "-T", "nan", "ls"]).starts_with("-T"));
        assert!(reason(&["-c", "x", "-T", "1e-8", "ls"]).starts_with("-T"));
    }
}
