//! Failures of the commands: exit 1 with a reason, exit 2 with the usage.

use std::process::ExitCode;

/// The reason why a command ends without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was called wrongly.
    Usage(String),
    /// It could not do what it was asked to.
    Runtime(String),
    /// The failures were reported when they happened.
    Reported,
}

impl Failure {
    /// A failure at run time.
    pub fn new(reason: impl std::fmt::Display) -> Self {
        Self::Runtime(reason.to_string())
    }

    /// Prints the reason of `command`'s failure, and how to call it if it was called wrongly.
    pub fn report(&self, command: &str, usage: &str) -> ExitCode {
        match self {
            Self::Usage(reason) => {
                lwp_terminal::say!("{command}: {}\n{}", reason.trim_end(), usage.trim_end());
                ExitCode::from(2)
            }
            Self::Runtime(reason) => {
                lwp_terminal::say!("{command}: {}", reason.trim_end());
                ExitCode::FAILURE
            }
            Self::Reported => ExitCode::FAILURE,
        }
    }
}

impl From<pctx::Error> for Failure {
    fn from(error: pctx::Error) -> Self {
        Self::new(error)
    }
}

impl From<clap::Error> for Failure {
    /// A wrong call, by the first line of what clap says.
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        Self::Usage(first.strip_prefix("error: ").unwrap_or(first).to_owned())
    }
}
