//! The subcommands.

pub mod annotate;
pub mod archive;
pub mod cache;
mod completions;
pub mod diff;
mod doctor;
pub mod export;
pub mod flamegraph;
mod fleet;
pub mod gate;
mod list;
pub mod merge;
pub mod optimize;
mod perf;
pub mod record;
pub mod report;
mod run;
pub mod script;
#[cfg(feature = "page")]
pub mod serve;
mod stat;
pub mod top;
mod valgrind;

use std::io::{self, BufWriter, Write};

use lwp_terminal::{Plain, escape};

use crate::args::{Command, CommandLine};
use crate::ending::Ending;
use crate::failure::Failure;
use crate::illegal::explained;

/// Executes what the command line asks for.
pub fn dispatch(line: CommandLine) -> Result<Ending, Failure> {
    match line.command {
        Command::Stat(args) => {
            let counting = &args.counting;
            explained(stat::execute(&args), counting.offers_lwp(), &counting.command)
        }
        Command::Run(args) => {
            let has_lwp = args.machine.lwp.config(args.machine.cpu, false).is_some();
            explained(run::execute(&args), has_lwp, &args.command)
        }
        Command::Record(args) => {
            explained(record::execute(&args), args.offers_lwp(), &args.counting.command)
        }
        Command::Top(args) => top::execute(&args),
        Command::Report(args) => report::execute(&args),
        Command::Export(args) => export::execute(&args),
        Command::Flamegraph(args) => flamegraph::execute(&args),
        Command::Annotate(args) => annotate::execute(&args),
        Command::Diff(args) => diff::execute(&args),
        Command::Gate(args) => gate::execute(&args),
        #[cfg(feature = "page")]
        Command::Serve(args) => serve::execute(&args),
        Command::Script(args) => script::execute(&args),
        Command::Archive(args) => archive::execute(&args),
        Command::Merge(args) => merge::execute(&args),
        Command::Optimize(args) => optimize::execute(&args),
        Command::List => list::execute(),
        Command::Perf { words } => perf::execute(&words),
        Command::Fleet { words } => fleet::execute(&words),
        Command::Valgrind { words } => valgrind::execute(&words),
        Command::Cache(command) => cache::execute(&command),
        Command::Doctor => doctor::execute(),
        Command::Completions { shell } => completions::script(shell),
        Command::Man { dir } => completions::manual(&dir),
    }
}

/// Writes `text` to standard output. A reader that has seen enough is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(escape::lines(text).as_bytes())
}

/// Writes `bytes`, which are no text or may hold control characters, to standard output.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    printed(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Text for standard output, piece by piece, to the end of `write`.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Ending, Failure> {
    let mut out = Plain::new(BufWriter::new(io::stdout().lock()));
    printed(write(&mut out).and_then(|()| out.flush()))?;
    Ok(Ending::SUCCESS)
}

/// Returns whether standard output took everything that somebody wanted to read.
fn printed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(()),
    }
}

/// `text` as a word of a shell's command line.
pub fn shell_word(text: &str) -> String {
    let text = lwp_report::escape::printable(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_line_are_quoted() {
        assert_eq!(shell_word("a/b-c.data"), "a/b-c.data");
        assert_eq!(shell_word("f(int)"), "'f(int)'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
