//! Text for people: with colours on a terminal, and through a pager there if one is chosen.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use lwp_report::Paint;
use lwp_terminal::escape;

use crate::failure::Failure;

/// Options of text output.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Use colours: auto, on a terminal unless NO_COLOR is set; always; or never
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: When,

    /// Print directly, without the pager named by LWP_PAGER or PAGER
    #[arg(long)]
    pub no_pager: bool,
}

/// The choices of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal
    #[default]
    Auto,
    /// Also into files and pipes
    Always,
    /// Not at all
    Never,
}

impl OutputArgs {
    /// The colours to write with.
    pub fn paint(&self) -> Paint {
        let variable = |name: &str| std::env::var_os(name);
        match self.color {
            When::Always => Paint::Ansi,
            When::Auto if std::io::stdout().is_terminal() && wants_color(variable) => Paint::Ansi,
            When::Auto | When::Never => Paint::Plain,
        }
    }

    /// Writes `text` to standard output, through the pager where that is a terminal.
    pub fn show(&self, text: &str) -> Result<(), Failure> {
        // What colours stand around has been escaped by itself; of all the rest, no control
        // character gets out.
        let text = match self.paint() {
            Paint::Ansi => escape::colored(text),
            Paint::Plain => escape::lines(text).into_owned(),
        };
        let paged = !self.no_pager && std::io::stdout().is_terminal();
        match pager(|name| std::env::var_os(name)).filter(|_| paged) {
            Some(pager) if through(&pager, &text) => Ok(()),
            _ => crate::commands::print_bytes(text.as_bytes()),
        }
    }
}

/// Returns whether a terminal may have colours: <https://no-color.org>.
fn wants_color(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    variable("NO_COLOR").is_none_or(|value| value.is_empty())
        && variable("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// The pager that is chosen; none where the variable is empty, or says `cat`.
fn pager(variable: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let chosen = variable("LWP_PAGER").or_else(|| variable("PAGER"))?;
    (!chosen.is_empty() && chosen != "cat").then_some(chosen)
}

/// Shows `text` in the pager; false where that cannot be started.
fn through(pager: &OsString, text: &str) -> bool {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Less text than a screen has is printed, colours are kept, and the screen stays as it is.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // A reader that has seen enough is not an error.
        let _ = input.write_all(text.as_bytes());
    }
    // The shell's codes for a command that is missing or cannot be executed.
    child.wait().is_ok_and(|status| !matches!(status.code(), Some(126 | 127)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment of these variables.
    fn of(variables: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        }
    }

    #[test]
    fn the_environment_can_do_without_colours() {
        assert!(wants_color(of(&[])) && wants_color(of(&[("NO_COLOR", ""), ("TERM", "xterm")])));
        assert!(!wants_color(of(&[("NO_COLOR", "1")])));
        assert!(!wants_color(of(&[("TERM", "dumb")])));
    }

    #[test]
    fn lwp_s_own_pager_comes_first() {
        assert_eq!(pager(of(&[])), None);
        assert_eq!(pager(of(&[("PAGER", "more")])), Some("more".into()));
        assert_eq!(pager(of(&[("PAGER", "more"), ("LWP_PAGER", "less")])), Some("less".into()));
        assert_eq!(pager(of(&[("PAGER", "more"), ("LWP_PAGER", "")])), None);
        assert_eq!(pager(of(&[("PAGER", "cat")])), None);
    }
}
