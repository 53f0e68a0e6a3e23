//! The end of `lwp`: that of the program.

use std::process::ExitCode;

use lwp_vcpu::ExitStatus;
use rustix::process::{DumpableBehavior, Resource, Rlimit};

/// The end that lwp's parent shall see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An exit code.
    Code(u8),
    /// Death by this signal.
    Signal(i32),
}

impl Ending {
    /// Everything went well.
    pub const SUCCESS: Self = Self::Code(0);

    /// Names the end, as in `exit code 3` or `signal SIGINT`.
    pub fn words(self) -> String {
        match self {
            Self::Code(code) => format!("exit code {code}"),
            Self::Signal(signal) => match signal_hook::low_level::signal_name(signal) {
                Some(name) => format!("signal {name}"),
                None => format!("signal {signal}"),
            },
        }
    }

    /// Ends the process this way, or returns the exit code to end it with.
    ///
    /// A signal that killed the program is raised here too, so that a shell waiting for lwp reports
    /// what it would have reported for the program. lwp must not leave a core file of its own
    /// beside the program's.
    pub fn conclude(self) -> ExitCode {
        match self {
            Self::Code(code) => ExitCode::from(code),
            Self::Signal(signal) => {
                leave_no_core();
                // The first process of a namespace comes back from here.
                lwp_vcpu::die_by(signal);
                ExitCode::from(shell_code(signal))
            }
        }
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match status {
            // The kernel keeps eight bits of an exit code.
            ExitStatus::Code(code) => Self::Code((code & 0xff) as u8),
            ExitStatus::Signal { signal, .. } => Self::Signal(signal),
            ExitStatus::Detached => Self::SUCCESS,
        }
    }
}

/// The exit code by which shells report death by `signal`.
fn shell_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Switches core files off, both those written to disk and those piped to a collector.
fn leave_no_core() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_follow_the_program() {
        assert_eq!(Ending::from(ExitStatus::Code(3)), Ending::Code(3));
        assert_eq!(Ending::from(ExitStatus::Code(256 + 7)), Ending::Code(7));
        let killed = ExitStatus::Signal { signal: 15, core: false };
        assert_eq!(Ending::from(killed), Ending::Signal(15));
        assert_eq!(Ending::from(ExitStatus::Detached), Ending::SUCCESS);
        assert_eq!(shell_code(11), 139);
        assert_eq!(Ending::Code(3).words(), "exit code 3");
        assert_eq!([2, 64].map(|it| Ending::Signal(it).words()), ["signal SIGINT", "signal 64"]);
    }
}
