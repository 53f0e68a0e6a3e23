//! The subcommands.

pub(crate) mod add;
mod cluster;
pub(crate) mod compare;
mod filing;
pub(crate) mod flamegraph;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod maintain;
pub(crate) mod push;
pub(crate) mod question;
pub(crate) mod serve;
pub(crate) mod steps;
pub(crate) mod token;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use lwp_query::Remote;
use lwp_terminal::escape;

use crate::args::{Command, CommandLine, Question};
use crate::failure::Failure;

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
