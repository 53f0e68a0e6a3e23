//! `lwp fleet list`, `report`, `sql`, `views`.

use clap::{Args, ValueEnum};
use lwp_query::events::event;
use lwp_query::render;
use lwp_query::report::{self, By};
use lwp_query::views::table_name;
use lwp_query::views::{self, Engine};
use lwp_store::Kind;

use super::{AskedOf, print};
use crate::args::{AskedArgs, FormatArg, SourceArgs, StoreArgs};
use crate::failure::Failure;

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

    /// The query. Tables: recordings, functions, lines, calls, stacks, modules, totals, rollups,
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

/// Lists recordings.
pub async fn list(args: &ListArgs, remote: AskedOf) -> Result<(), Failure> {
    let (session, filter) = args.asked.session(remote).await?;
    let sql = format!(
        "select substr(id, 1, 12) as id, started, project, benchmark, substr(\"commit\", 1, 10) as \"commit\", \
         branch, host, mode, instructions from recordings where {} order by started desc, id limit {}",
        filter.sql(),
        args.limit
    );
    print(&render(&session.ask(&sql).await?, args.format.into())?)
}

/// Shows what was executed most.
pub async fn report(args: &ReportArgs, remote: AskedOf) -> Result<(), Failure> {
    let (session, filter) = args.asked.session(remote).await?;
    let by = match args.sort {
        ByArg::Function => By::Function,
        ByArg::Module => By::Module,
        ByArg::Line => By::Line,
        ByArg::Benchmark => By::Benchmark,
        ByArg::Host => By::Host,
        ByArg::Commit => By::Commit,
    };
    let event = event(&session, &filter, args.event.as_deref()).await?;
    let rows = report::report(&session, &filter, &event, by, args.limit).await?;
    print(&render(&rows, args.format.into())?)
}

/// Answers a question.
pub async fn sql(args: &SqlArgs, remote: AskedOf) -> Result<(), Failure> {
    let session = args.source.session(remote).await?;
    print(&render(&session.ask(&args.question).await?, args.format.into())?)
}

/// Prints statements for another engine.
pub async fn views(args: &ViewsArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let snapshot = store.snapshot().await?;
    let url = &store.location().url;
    let engine = match args.engine {
        EngineArg::Duckdb => Engine::Duckdb,
        EngineArg::Spark => Engine::Spark,
        EngineArg::Trino => Engine::Trino,
    };
    let root = match url.to_file_path() {
        Ok(path) if url.scheme() == "file" => path.display().to_string(),
        _ => url.to_string(),
    };
    let files = |kind: Kind| {
        let paths = snapshot.files_of(kind).map(|file| format!("{root}/{}", file.path));
        paths.collect()
    };
    print(&views::statements(engine, url.as_str(), &files))
}
