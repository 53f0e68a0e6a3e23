//! The command line, as clap sees it.

mod care;
mod server;

pub use care::{CheckArgs, CompactArgs, MaintainArgs, RetentionArgs, VacuumArgs};
pub use server::{
    AnswerArgs, PushArgs, ScopeArg, SentArg, ServeArgs, TokenAddArgs, TokenCommand, TokenRemoveArgs,
};

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lwp_facts::Limits;
use lwp_import::Format;
use lwp_query::compare::Counted;
use lwp_query::views::table_name;
use lwp_query::{Budget, Filter, Format as TextFormat, Remote, Session};
use lwp_store::{Kind, Location, Store};

use crate::failure::Failure;

/// Keeps recordings of many machines and commits, answers questions about them, compares them.
#[derive(Debug, Parser)]
#[command(
    name = "lwp-fleet",
    bin_name = "lwp fleet",
    version,
    propagate_version = true,
    after_help = "The exit status is 0, or 125 if lwp-fleet failed, 75 if trying again may help, 3 if a limit is exceeded, 4 if a benchmark vanished."
)]
pub struct CommandLine {
    /// The task.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a store: in a directory, or in a bucket
    Init(StoreArgs),
    /// Add recordings; those that the store has already stay unchanged
    Add(AddArgs),
    /// Return the file of a recording that was added with --raw
    Get(GetArgs),
    /// Send recordings to a server of a fleet, or their profiles to one of OpenTelemetry's
    Push(PushArgs),
    /// Say that a step at a commit is expected
    Note(NoteArgs),
    /// A question
    #[command(flatten)]
    Ask(Question),
    /// Take recordings in and show pages, for a store that others reach over the network
    Serve(ServeArgs),
    /// Answer the questions of a server, which starts this itself
    #[command(hide = true)]
    Answer(AnswerArgs),
    /// Make, list and remove the tokens that open a server
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print statements that show the store to another engine
    Views(ViewsArgs),
    /// Make few large files of many small ones
    Compact(CompactArgs),
    /// Set the rules of retention: a file in TOML; - is standard input
    Retention(RetentionArgs),
    /// Remove recordings by the rules of retention
    Expire(MaintainArgs),
    /// Delete files that nobody needs any more
    Vacuum(VacuumArgs),
    /// Check that every file is there and whole
    Check(CheckArgs),
    /// Remove damaged recordings, so that they can be added again
    Repair(MaintainArgs),
}

/// The questions that a store answers, alone or with a cluster.
#[derive(Debug, Subcommand)]
pub enum Question {
    /// List recordings, the latest first
    #[command(disable_version_flag = true)]
    List(ListArgs),
    /// Show the most executed functions, over all recordings or some
    #[command(disable_version_flag = true)]
    Report(ReportArgs),
    /// Show a count by commit
    #[command(disable_version_flag = true)]
    History(HistoryArgs),
    /// Compare two commits, branches or recordings, benchmark by benchmark
    #[command(disable_version_flag = true)]
    Compare(CompareArgs),
    /// Find the commits where counts changed, and the functions that changed them
    #[command(disable_version_flag = true)]
    Steps(StepsArgs),
    /// Draw recordings together as one flame graph
    #[command(disable_version_flag = true)]
    Flamegraph(FlamegraphArgs),
    /// Answer a question in SQL
    #[command(disable_version_flag = true)]
    Sql(SqlArgs),
}

impl Question {
    /// The cluster that is to answer, if one is named.
    pub fn cluster(&self) -> Option<&ClusterArgs> {
        let source = match self {
            Self::List(args) => &args.asked.source,
            Self::Report(args) => &args.asked.source,
            Self::History(args) => &args.asked.source,
            Self::Compare(args) => &args.asked.source,
            Self::Steps(args) => &args.asked.source,
            Self::Flamegraph(args) => &args.asked.source,
            Self::Sql(args) => &args.source,
        };
        source.cluster.cluster.is_some().then_some(&source.cluster)
    }
}

/// The store.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// The store: a directory, file:///DIR or s3://BUCKET/PATH
    #[arg(long, env = "LWP_FLEET_STORE", value_name = "URL")]
    pub store: String,
}

impl StoreArgs {
    /// Its place.
    pub fn location(&self) -> Result<Location, Failure> {
        Ok(Location::parse(&self.store)?)
    }

    /// Opens the store.
    pub async fn open(&self) -> Result<Store, Failure> {
        Ok(Store::open(self.location()?).await?)
    }
}

/// The limits of a question.
#[derive(Args, Clone, Copy, Debug)]
pub struct BudgetArgs {
    /// Sort and join in at most MIB mebibytes of memory; more goes to temporary files
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: usize,

    /// Give a question up after SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
}

impl BudgetArgs {
    /// As the engine wants it.
    pub fn budget(&self) -> Budget {
        Budget { memory_mib: self.memory, seconds: self.timeout, ..Budget::default() }
    }
}

/// The machines that answer in place of this one.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Let a cluster answer, whose scheduler is at HOST:PORT; its token is in the variable
    /// LWP_FLEET_TOKEN
    #[arg(long, value_name = "df://HOST:PORT")]
    pub cluster: Option<String>,

    /// Let the cluster answer questions that read at least ROWS rows; this machine answers others
    #[arg(long, value_name = "ROWS", default_value_t = 100_000_000, requires = "cluster")]
    pub cluster_from: u64,

    /// Ask a cluster once more after SECONDS without a finished task, and give it up after as many
    #[arg(long, value_name = "SECONDS", default_value_t = 45, requires = "cluster")]
    pub stall: u64,
}

/// The store, and the machines that read it.
#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub budget: BudgetArgs,

    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// Read version N of the store, as long as its files are kept [default: the latest]
    #[arg(long = "version", value_name = "N", conflicts_with = "cluster")]
    pub at: Option<u64>,
}

impl SourceArgs {
    /// Opens the store for questions.
    pub async fn session(&self, remote: Option<Arc<dyn Remote>>) -> Result<Session, Failure> {
        let budget = self.budget.budget();
        let (store, snapshot) = Store::open_at(self.store.location()?, self.at).await?;
        Ok(match remote {
            Some(remote) => Session::on(remote, &store, budget).await?,
            None => Session::of(&store, snapshot, budget).await?,
        })
    }
}

/// The store, and the recordings of it that a question is about.
#[derive(Args, Clone, Debug)]
pub struct AskedArgs {
    #[command(flatten)]
    pub source: SourceArgs,

    /// Only recordings that meet all of these: project=P benchmark=parse* commit=abc1234
    /// branch=main host=H since=7d label.KEY=VALUE mode=sampled
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

impl AskedArgs {
    /// Opens the store for questions.
    pub async fn session(
        &self,
        remote: Option<Arc<dyn Remote>>,
    ) -> Result<(Session, Filter), Failure> {
        let filter = Filter::parse(&self.filter)?;
        Ok((self.source.session(remote).await?, filter))
    }
}

/// A format of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Columns for people
    #[default]
    Table,
    /// Comma-separated values
    Csv,
    /// JSON
    Json,
}

impl From<FormatArg> for TextFormat {
    fn from(arg: FormatArg) -> Self {
        match arg {
            FormatArg::Table => Self::Table,
            FormatArg::Csv => Self::Csv,
            FormatArg::Json => Self::Json,
        }
    }
}

/// `lwp fleet add`.
#[derive(Args, Clone, Debug)]
pub struct AddArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub filing: FilingArgs,

    /// Recordings: lwp.data, facts as `lwp export -f facts` writes them, profiles of perf, pprof,
    /// OpenTelemetry and callgrind, folded stacks, results of criterion, Bencher, CodSpeed,
    /// hyperfine, pytest-benchmark, Google Benchmark, go test, JMH and github-action-benchmark; - is
    /// standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Refuse recordings that were cut off
    #[arg(long)]
    pub strict: bool,

    /// Store the files of lwp record themselves too: lwp fleet get returns them
    #[arg(long)]
    pub raw: bool,
}

/// `lwp fleet get`.
#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The recording's id, by its first letters
    pub id: String,

    /// Write to FILE; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

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

    /// The format of another tool's file, if the file does not tell
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
    /// Callgrind's output, as CodSpeed makes it too
    Callgrind,
    /// Criterion's estimates.json, or the messages of cargo criterion
    Criterion,
    /// Bencher's metric format
    Bencher,
    /// CodSpeed's results of wall time
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
    /// Results as github-action-benchmark takes them
    ActionBenchmark,
    /// The data.js in which github-action-benchmark keeps a history
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

/// `lwp fleet note`.
#[derive(Args, Clone, Debug)]
pub struct NoteArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// Only this project
    #[arg(long, default_value = "")]
    pub project: String,

    /// Only this benchmark
    #[arg(long, default_value = "")]
    pub benchmark: String,

    /// The commit: its first letters, or a name that git has for it (HEAD^, v1.2)
    pub commit: String,

    /// The remark
    pub text: String,
}

/// `lwp fleet list`.
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    pub asked: AskedArgs,

    /// List at most N recordings
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,

    /// Print the answer in this format
    #[arg(long, value_enum, default_value_t)]
    pub format: FormatArg,
}

/// The subject of a report's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ByArg {
    /// Functions
    #[default]
    Function,
    /// Programs and libraries
    Module,
    /// Source lines
    Line,
    /// Benchmarks
    Benchmark,
    /// Machines
    Host,
    /// Commits
    Commit,
}

/// `lwp fleet report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Group counts by this subject
    #[arg(short, long, value_enum, default_value_t)]
    pub sort: ByArg,

    /// Print at most N rows
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,

    /// Print the answer in this format
    #[arg(long, value_enum, default_value_t)]
    pub format: FormatArg,
}

/// `lwp fleet history`.
#[derive(Args, Clone, Debug)]
pub struct HistoryArgs {
    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Count only in this function; * stands for any letters
    #[arg(short, long, value_name = "FUNCTION")]
    pub function: Option<String>,

    /// Print the answer in this format
    #[arg(long, value_enum, default_value_t)]
    pub format: FormatArg,
}

/// The form of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// For people
    #[default]
    Text,
    /// For a comment on a pull request
    Markdown,
    /// JSON
    Json,
}

/// `lwp fleet compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The side before: a commit or id by its first letters, a name that git has for it (HEAD^,
    /// v1.2), branch:NAME, label:KEY=VALUE, or base: the nearest ancestor of the other side that
    /// has recordings
    pub before: String,

    /// The side after [default: HEAD]
    pub after: Option<String>,

    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Compare functions together with everything that they called
    #[arg(long)]
    pub children: bool,

    /// End with 3 if the count of a benchmark grew by more than this: +0.1%, +1000; otherwise end
    /// with 4 if a benchmark vanished
    #[arg(short, long, value_name = "LIMIT")]
    pub limit: Option<String>,

    /// Let this benchmark vanish; * stands for any letters; the option may be repeated
    #[arg(long, value_name = "BENCHMARK", requires = "limit")]
    pub allow_vanished: Vec<String>,

    /// Look for base on this branch
    #[arg(long, value_name = "BRANCH", default_value = "origin/HEAD")]
    pub onto: String,

    /// Show at most N functions of a benchmark
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    pub functions: usize,

    /// Print the answer in this format
    #[arg(long, value_enum, default_value_t)]
    pub format: CompareFormat,
}

impl CompareArgs {
    /// The counts to compare.
    pub fn counted(&self) -> Counted<'_> {
        Counted { event: self.event.as_deref(), inclusive: self.children }
    }
}

/// `lwp fleet steps`.
#[derive(Args, Clone, Debug)]
pub struct StepsArgs {
    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Show at most N functions of a step
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    pub functions: usize,

    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// `lwp fleet flamegraph`.
#[derive(Args, Clone, Debug)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Colour functions by their change since these recordings: terms of a filter in one word
    #[arg(long, value_name = "FILTER")]
    pub baseline: Option<String>,

    /// Write to FILE, an .svg picture or an .html page; - is standard output, a picture
    #[arg(short, long, value_name = "FILE", default_value = "fleet.svg")]
    pub output: PathBuf,
}

/// The tables and their columns.
fn columns() -> String {
    let table = |(kind, _): (Kind, &str)| {
        let schema = lwp_store::arrow_schema(kind);
        let names = schema.fields().iter().map(|field| match field.name().as_str() {
            // Words of SQL.
            name @ ("commit" | "interval" | "value" | "text") => format!("\"{name}\""),
            name => name.to_owned(),
        });
        format!("  {}: {}\n", table_name(kind), names.collect::<Vec<_>>().join(", "))
    };
    format!(
        "Tables and their columns, \"date\" beside:\n{}\n\
         recording is the key that rows of a recording share, id its name. entered is how often \
         a function was called, or one called another; inclusive has the instructions of \
         it and of everything that it called. Counts of exact recordings have columns, \
         other events have event, \"value\" and \"interval\". rollups keep totals of recordings \
         that have expired: runs, the least and the greatest of a run, and the sum, \"value\"; the \
         view series has them and the totals of recordings. The views recording_values and \
         function_values have a row for each event.",
        Kind::ALL.map(table).concat()
    )
}

/// `lwp fleet sql`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = columns())]
pub struct SqlArgs {
    #[command(flatten)]
    pub source: SourceArgs,

    /// The question. Tables: recordings, functions, lines, calls, stacks, modules, totals, rollups,
    /// notes; views: recording_values, function_values, series; --help lists their columns
    pub question: String,

    /// Print the answer in this format
    #[arg(long, value_enum, default_value_t)]
    pub format: FormatArg,
}

/// An engine that reads the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// DuckDB, for the store as it is now
    Duckdb,
    /// Spark with Delta Lake
    Spark,
    /// Trino, for the table `facts` of a Delta Lake catalog
    Trino,
}

/// `lwp fleet views`.
#[derive(Args, Clone, Debug)]
pub struct ViewsArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The engine
    #[arg(long, value_enum)]
    pub engine: EngineArg,
}
