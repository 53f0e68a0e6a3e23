//! The command line, as clap sees it.

use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lwp_query::{Budget, Filter, Format as TextFormat, Remote, Session};
use lwp_store::{Location, Store};

use crate::commands::add::AddArgs;
use crate::commands::compare::CompareArgs;
use crate::commands::flamegraph::FlamegraphArgs;
use crate::commands::get::GetArgs;
use crate::commands::history::HistoryArgs;
use crate::commands::maintain::{
    CheckArgs, CompactArgs, MaintainArgs, NoteArgs, RetentionArgs, VacuumArgs,
};
use crate::commands::push::PushArgs;
use crate::commands::question::{ListArgs, ReportArgs, SqlArgs, ViewsArgs};
use crate::commands::serve::{AnswerArgs, ServeArgs};
use crate::commands::steps::StepsArgs;
use crate::commands::token::TokenCommand;
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
