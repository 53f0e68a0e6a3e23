//! Failures of `lwp` itself: one line for the cause, one for the remedy, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

use clap::error::ErrorKind;
use lwp_terminal::escape::printable;

/// Exit code when lwp itself failed, as `env` and `timeout` have it.
pub const OWN_FAILURE: u8 = 125;
/// Exit code when the program was found but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// Exit code when the program was not found.
pub const NOT_FOUND: u8 = 127;

/// The reason why `lwp` could not do what it was asked to.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    cause: String,
    help: String,
}

impl Failure {
    /// A failure that ends lwp with `code`. The cause is one line, whatever the names in it hold.
    pub fn new(code: u8, cause: impl Into<String>) -> Self {
        Self { code, cause: printable(&cause.into()), help: String::new() }
    }

    /// A failure of an operation on something named.
    pub fn io(what: impl Display, error: &std::io::Error) -> Self {
        Self::new(OWN_FAILURE, format!("{what}: {}", plain(error)))
    }

    /// A failure to write the file of `-o`.
    pub fn output(place: &std::path::Path, error: &std::io::Error) -> Self {
        Self::io(place.display(), error).with_help("name another file with -o FILE")
    }

    /// A refusal by the argument parser: its cause, then its tips and the usage as help. Where the
    /// command itself is missing, the parser's text is the whole help.
    pub fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            let cause = format!("a command is missing\n\n{}", text.trim_end());
            return Self { code: OWN_FAILURE, cause, help: String::new() };
        }
        let (mut cause, mut help) = (Vec::new(), Vec::new());
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match line.trim_start() {
                line if line.starts_with("For more information") => {}
                line if line.starts_with("Usage: ") => help.push(usage_help(line)),
                tip if tip.starts_with("tip: ") => help.push(tip["tip: ".len()..].to_owned()),
                _ => cause.push(line),
            }
        }
        let cause = cause.join("\n");
        let cause = cause.strip_prefix("error: ").unwrap_or(&cause).to_owned();
        if error.kind() == ErrorKind::ValueValidation && help.is_empty() {
            help.push("the command with --help says which values its options take".to_owned());
        }
        let failure = Self { code: OWN_FAILURE, cause, help: String::new() };
        if help.is_empty() { failure } else { failure.with_help(help.join("\nhelp: ")) }
    }

    /// Adds what the user can do about it.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// The text for standard error.
    fn text(&self) -> String {
        if self.help.is_empty() {
            format!("lwp: {}\n", self.cause)
        } else {
            format!("lwp: {}\nhelp: {}\n", self.cause, self.help)
        }
    }

    /// Prints the failure and returns the exit code to end with.
    pub fn report(&self) -> ExitCode {
        // Where it cannot be said, the exit code is what is left.
        let _ = lwp_terminal::say_text(&self.text());
        ExitCode::from(self.code)
    }
}

impl From<lwp_vcpu::Error> for Failure {
    fn from(error: lwp_vcpu::Error) -> Self {
        use lwp_vcpu::Error;
        let cause = error.to_string();
        match error {
            Error::NotFound { program } if program.starts_with("process ") => {
                Self::new(NOT_FOUND, cause).with_help("`ps -e` lists processes")
            }
            Error::NotFound { program } => crate::program::not_started(&program),
            Error::NotExecutable { .. } => Self::new(NOT_EXECUTABLE, cause),
            Error::Machine { help, .. } if !help.is_empty() => {
                Self::new(OWN_FAILURE, cause).with_help(help)
            }
            Error::Machine { .. } => Self::new(OWN_FAILURE, cause)
                .with_help("run `lwp doctor` to see what this machine allows"),
            _ => Self::new(OWN_FAILURE, cause),
        }
    }
}

/// Returns the help that a usage stands for: the line itself, and the command that says more.
fn usage_help(usage: &str) -> String {
    let usage = usage.strip_prefix("Usage: ").unwrap_or(usage);
    let name = usage.split([' ', '=']).take_while(|word| word.starts_with(char::is_alphanumeric));
    let name: Vec<&str> = name.collect();
    format!("usage: {usage}; `{} --help` lists the options", name.join(" "))
}

/// The system's text for `error`, without Rust's "(os error 2)".
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_its_own_line() {
        let failure = Failure::new(125, "no such event").with_help("see `lwp list`");
        assert_eq!(failure.text(), "lwp: no such event\nhelp: see `lwp list`\n");
        assert_eq!(Failure::new(125, "odd").text(), "lwp: odd\n");
    }

    #[test]
    fn virtual_cpu_errors_have_the_codes_that_shells_use() {
        let program = || "gzip".to_owned();
        let not_found = lwp_vcpu::Error::NotFound { program: program() };
        assert_eq!(Failure::from(not_found).code, NOT_FOUND);
        let cause = "Permission denied".to_owned();
        let denied = lwp_vcpu::Error::NotExecutable { program: program(), cause };
        assert_eq!(Failure::from(denied).code, NOT_EXECUTABLE);
        let refused = lwp_vcpu::Error::Refused { program: program(), cause: "32-bit".into() };
        assert_eq!(Failure::from(refused).text(), "lwp: gzip: 32-bit\n");
    }

    #[test]
    fn system_errors_read_like_the_c_library_s() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(plain(&error), "No such file or directory");
    }
}
