//! The subcommands.

mod cache;
mod completions;
mod doctor;
mod list;
mod run;
mod stat;

use std::io::{self, Write};

use crate::args::{Command, CommandLine};
use crate::ending::Ending;
use crate::failure::Failure;

/// Executes what the command line asks for.
pub fn dispatch(line: CommandLine) -> Result<Ending, Failure> {
    match line.command {
        Command::Stat(args) => stat::execute(&args),
        Command::Run(args) => run::execute(&args),
        Command::List => list::execute(),
        Command::Cache(command) => cache::execute(&command),
        Command::Doctor => doctor::execute(),
        Command::Completions { shell } => completions::script(shell),
        Command::Man { dir } => completions::manual(&dir),
    }
}

/// Writes `text` to standard output. A reader that has seen enough is not an error.
fn print(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(()),
    }
}
