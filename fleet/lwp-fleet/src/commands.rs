//! The command line, as clap sees it, and the subcommands.

mod add;
mod cluster;
mod compare;
mod filing;
mod flamegraph;
mod get;
mod history;
mod maintain;
mod push;
mod question;
mod serve;
mod steps;
mod token;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use lwp_query::Remote;
use lwp_terminal::escape;

use self::add::AddArgs;
use self::compare::CompareArgs;
use self::flamegraph::FlamegraphArgs;
use self::get::GetArgs;
use self::history::HistoryArgs;
use self::maintain::{CheckArgs, CompactArgs, MaintainArgs, NoteArgs, RetentionArgs, VacuumArgs};
use self::push::PushArgs;
use self::question::{ListArgs, ReportArgs, SqlArgs, ViewsArgs};
use self::serve::{AnswerArgs, ServeArgs};
use self::steps::StepsArgs;
use self::token::TokenCommand;
use crate::args::{ClusterArgs, StoreArgs};
use crate::failure::Failure;

/// Stores, queries and compares the recordings of many machines and commits.
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
    /// Create a store in a directory or a bucket
    Init(StoreArgs),
    /// Add recordings; those that the store already has stay unchanged
    Add(AddArgs),
    /// Return the file of a recording that was added with --raw
    Get(GetArgs),
    /// Send recordings to a fleet server, or as profiles to an OpenTelemetry server
    Push(PushArgs),
    /// Attach a note to a commit: its steps are expected
    Note(NoteArgs),
    /// A question
    #[command(flatten)]
    Ask(Question),
    /// Serve a store over the network: receive recordings, answer queries, show pages
    Serve(ServeArgs),
    /// Answer a server's queries; the server starts this itself
    #[command(hide = true)]
    Answer(AnswerArgs),
    /// Create, list and remove the tokens that give access to a server
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print statements that create the store's tables in another database engine
    Views(ViewsArgs),
    /// Merge many small files into a few large ones
    Compact(CompactArgs),
    /// Set the retention rules: a TOML file; - is standard input
    Retention(RetentionArgs),
    /// Apply the retention rules: remove old recordings, or parts of them
    Expire(MaintainArgs),
    /// Delete files that nobody needs any more
    Vacuum(VacuumArgs),
    /// Check that every file is there and undamaged
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

/// Executes what the command line asks for.
pub async fn dispatch(line: CommandLine) -> Result<ExitCode, Failure> {
    match line.command {
        Command::Init(args) => maintain::init(&args).await?,
        Command::Add(args) => add::execute(&args).await?,
        Command::Get(args) => get::execute(&args).await?,
        Command::Push(args) => push::execute(&args).await?,
        Command::Note(args) => maintain::note(&args).await?,
        Command::Ask(question) if question.cluster().is_some() => return Err(cluster::execute()),
        Command::Ask(question) => return ask(&question, None).await,
        Command::Serve(args) => serve::execute(&args).await?,
        Command::Answer(args) => serve::answer(&args).await?,
        Command::Token(command) => token::execute(&command).await?,
        Command::Views(args) => question::views(&args).await?,
        Command::Compact(args) => maintain::compact(&args).await?,
        Command::Retention(args) => maintain::retention(&args).await?,
        Command::Expire(args) => maintain::expire(&args).await?,
        Command::Vacuum(args) => maintain::vacuum(&args).await?,
        Command::Check(args) => return maintain::check(&args).await,
        Command::Repair(args) => maintain::repair(&args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The machines that answer; none if it is this one.
type AskedOf = Option<Arc<dyn Remote>>;

/// Answers a question, with the machines that are to answer it.
pub async fn ask(question: &Question, remote: AskedOf) -> Result<ExitCode, Failure> {
    match question {
        Question::List(args) => question::list(args, remote).await?,
        Question::Report(args) => question::report(args, remote).await?,
        Question::History(args) => history::execute(args, remote).await?,
        Question::Compare(args) => return compare::execute(args, remote).await,
        Question::Steps(args) => steps::execute(args, remote).await?,
        Question::Flamegraph(args) => flamegraph::execute(args, remote).await?,
        Question::Sql(args) => question::sql(args, remote).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes text to standard output, without control characters. A reader that has seen enough is no
/// fault.
fn print(text: &str) -> Result<(), Failure> {
    write(Path::new("-"), text)
}

/// Writes text to a file; - is standard output.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let text = escape::lines(text);
    if path.as_os_str() != "-" {
        let named = |error| Failure::new(format!("{}: {error}", path.display()));
        return std::fs::write(path, text.as_bytes()).map_err(named);
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
