//! Failures: one line for the cause, one for the remedy, and an exit code.

use std::process::ExitCode;

use lwp_terminal::escape::printable;

/// The exit code when lwp-fleet itself failed.
pub const OWN_FAILURE: u8 = 125;
/// The exit code when a limit is exceeded.
pub const EXCEEDED: u8 = 3;
/// The exit code when no limit is exceeded and a benchmark vanished.
pub const VANISHED: u8 = 4;
/// The exit code when another attempt later may succeed: `EX_TEMPFAIL`.
const TEMPORARY: u8 = 75;

/// The help where the storage does not answer.
const AGAIN: &str = "see that the storage can be reached, then try again";

/// The reason why lwp-fleet could not do what it was asked to.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    cause: String,
    help: String,
}

impl Failure {
    /// A failure.
    pub fn new(cause: impl Into<String>) -> Self {
        Self { code: OWN_FAILURE, cause: printable(&plain(&cause.into())), help: String::new() }
    }

    /// A refusal by the argument parser.
    pub fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let text = lines.join("\n");
        let cause = text.strip_prefix("error: ").unwrap_or(&text).to_owned();
        let failure = Self { code: OWN_FAILURE, cause, help: String::new() };
        match lines.contains(&"  --store <URL>") {
            true => failure.with_help("LWP_FLEET_STORE names the store once for all"),
            false => failure,
        }
    }

    /// Adds what the user can do about it.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// Says that another attempt later may succeed.
    pub fn temporary(mut self) -> Self {
        self.code = TEMPORARY;
        self
    }

    /// Prints the failure and returns the exit code to end with.
    pub fn report(&self) -> ExitCode {
        let mut text = format!("lwp-fleet: {}\n", self.cause);
        if !self.help.is_empty() {
            text += &format!("help: {}\n", self.help);
        }
        // Where it cannot be said, the exit code is what is left.
        let _ = lwp_terminal::say_text(&text);
        ExitCode::from(self.code)
    }
}

/// A cause without the numbers that Rust puts behind the system's text, and in one line.
fn plain(cause: &str) -> String {
    let mut text = cause.trim_end().replace('\n', " ");
    while let Some(at) = text.find(" (os error ") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "");
    }
    text
}

impl From<lwp_store::Error> for Failure {
    fn from(error: lwp_store::Error) -> Self {
        use lwp_store::Error;
        let cause = error.to_string();
        let code = if error.is_temporary() { TEMPORARY } else { OWN_FAILURE };
        let failure = Self { code, ..Self::new(cause) };
        match error {
            Error::Contention(_) => failure.with_help("try again"),
            error if error.is_temporary() => failure.with_help(AGAIN),
            Error::Missing(_) => failure.with_help("make one first: lwp fleet init"),
            Error::Log { .. } => failure.with_help(
                "lwp fleet check names the last version that can be read, and --version N reads it",
            ),
            Error::Damaged { .. } | Error::File { .. } => failure.with_help(
                "lwp fleet check --deep tells what is damaged, lwp fleet repair removes it",
            ),
            Error::Unconditional(_) => failure
                .with_help("keep the store on a directory, or on storage that can put if absent"),
            _ => failure,
        }
    }
}

impl From<lwp_query::Error> for Failure {
    fn from(error: lwp_query::Error) -> Self {
        match error {
            lwp_query::Error::Store(error) => error.into(),
            error @ lwp_query::Error::Memory => Self::new(error.to_string())
                .with_help("allow more with --memory, in MiB: that of an executor in a cluster"),
            error @ lwp_query::Error::Disk => Self::new(error.to_string())
                .with_help("ask for fewer rows, or allow more memory with --memory, in MiB"),
            error @ lwp_query::Error::Unanswered(_) => {
                Self::new(error.to_string()).temporary().with_help(AGAIN)
            }
            error @ lwp_query::Error::Lost(_) => Self::new(error.to_string())
                .temporary()
                .with_help("see that the scheduler and an executor run, then ask again"),
            error @ lwp_query::Error::Refused(_) => Self::new(error.to_string()).with_help(
                "set LWP_FLEET_TOKEN to a token of lwp fleet token add NAME --scope read",
            ),
            error => {
                let cause = error.to_string();
                let damaged = cause.contains("damaged: ");
                let failure = Self::new(cause);
                match damaged {
                    true => failure.with_help(
                        "lwp fleet check --deep tells what is damaged, lwp fleet repair removes it",
                    ),
                    false => failure,
                }
            }
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_one_line_without_the_system_s_numbers() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(plain(&format!("a: {error}: b")), "a: No such file or directory: b");
        assert_eq!(plain("one\ntwo (os error 1), three"), "one two, three");
    }
}
