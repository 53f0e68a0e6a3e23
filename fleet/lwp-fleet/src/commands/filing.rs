//! The names that recordings are filed under.

use clap::{Args, ValueEnum};
use lwp_facts::Limits;
use lwp_import::Format;

/// The names that recordings are filed under.
#[derive(Args, Clone, Debug, Default)]
pub struct FilingArgs {
    /// The project [default: the recording's tag project, its CI repository, or "default"]
    #[arg(long)]
    pub project: Option<String>,

    /// The benchmark [default: the recording's tag benchmark, or its program's name]
    #[arg(long)]
    pub benchmark: Option<String>,

    /// The commit [default: as the recording says]
    #[arg(long)]
    pub commit: Option<String>,

    /// The branch [default: as the recording says]
    #[arg(long)]
    pub branch: Option<String>,

    /// The time of the run: 2026-11-23, or 2026-11-23T12:00:00Z [default: as the recording says]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub date: Option<i64>,

    /// Add a label; the option may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub labels: Vec<(String, String)>,

    /// The format of another tool's file, if lwp can't tell it from the file
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub from: Option<FromArg>,
}

/// A format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FromArg {
    /// pprof's protocol buffer
    Pprof,
    /// OpenTelemetry's profiles
    Otlp,
    /// The text that perf script prints
    PerfScript,
    /// Folded stacks
    Folded,
    /// Callgrind's output, also as CodSpeed writes it
    Callgrind,
    /// Criterion's estimates.json, or the messages of cargo criterion
    Criterion,
    /// Bencher's metric format
    Bencher,
    /// CodSpeed's wall-time results
    Codspeed,
    /// Hyperfine's results (--export-json)
    Hyperfine,
    /// Pytest-benchmark's results (--benchmark-json)
    PytestBenchmark,
    /// Google Benchmark's results (--benchmark_format=json)
    GoogleBenchmark,
    /// The text that go test -bench prints
    Go,
    /// JMH's results (-rf json)
    Jmh,
    /// Results in github-action-benchmark's input format
    ActionBenchmark,
    /// The data.js in which github-action-benchmark stores its history
    ActionBenchmarkHistory,
}

impl From<FromArg> for Format {
    fn from(arg: FromArg) -> Self {
        match arg {
            FromArg::Pprof => Self::Pprof,
            FromArg::Otlp => Self::Otlp,
            FromArg::PerfScript => Self::PerfScript,
            FromArg::Folded => Self::Folded,
            FromArg::Callgrind => Self::Callgrind,
            FromArg::Criterion => Self::Criterion,
            FromArg::Bencher => Self::Bencher,
            FromArg::Codspeed => Self::Codspeed,
            FromArg::Hyperfine => Self::Hyperfine,
            FromArg::PytestBenchmark => Self::Pytest,
            FromArg::GoogleBenchmark => Self::Google,
            FromArg::Go => Self::Go,
            FromArg::Jmh => Self::Jmh,
            FromArg::ActionBenchmark => Self::Action,
            FromArg::ActionBenchmarkHistory => Self::ActionHistory,
        }
    }
}

/// Seconds since 1970 of a day or a time.
fn moment(text: &str) -> Result<i64, String> {
    let at = lwp_query::moment(text).map_err(|error| error.to_string())?;
    let wrong = || format!("'{text}' is before the year 2000, or more than two days ahead");
    Limits::default().is_time(at).then_some(at).ok_or_else(wrong)
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "a key and a value are wanted, as in --label runner=arm".to_owned())
}
