//! The reason why a tracee has stopped: every wait status, classified once.

/// A tracee's wait status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is gone: it called exit with this code.
    Exited(i32),
    /// It is gone: killed by this signal.
    Killed {
        /// The signal.
        signal: i32,
        /// True if a core was dumped.
        core: bool,
    },
    /// A signal is about to be delivered.
    Signal(i32),
    /// A group stop by this signal (PTRACE_EVENT_STOP with a stopping signal).
    Group(i32),
    /// PTRACE_INTERRUPT took effect, a new tracee's first stop, or SIGCONT ended a group stop.
    Interrupted,
    /// System call entry or exit under PTRACE_SYSCALL.
    Syscall,
    /// exec has succeeded; the message is the former thread id.
    Exec,
    /// A child or thread was made; the message is its id.
    Child,
    /// About to exit; the message is the exit status.
    Exiting,
    /// Any other ptrace event.
    Other(i32),
}

impl Stop {
    /// The wait status of an end; 0 for any other stop.
    pub fn status(self) -> i32 {
        match self {
            Self::Exited(code) => code << 8,
            Self::Killed { signal, core } => signal | if core { 0x80 } else { 0 },
            _ => 0,
        }
    }

    /// Classifies a wait status.
    pub fn from_status(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            return Self::Exited(libc::WEXITSTATUS(status));
        }
        if libc::WIFSIGNALED(status) {
            return Self::Killed { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) };
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => Self::Syscall,
            0 => Self::Signal(signal),
            libc::PTRACE_EVENT_STOP => match signal {
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
                    Self::Group(signal)
                }
                _ => Self::Interrupted,
            },
            libc::PTRACE_EVENT_EXEC => Self::Exec,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                Self::Child
            }
            libc::PTRACE_EVENT_EXIT => Self::Exiting,
            event => Self::Other(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_classified() {
        assert_eq!(Stop::from_status(7 << 8), Stop::Exited(7));
        assert_eq!(Stop::from_status(9), Stop::Killed { signal: 9, core: false });
        assert_eq!(Stop::from_status(0x8b), Stop::Killed { signal: 11, core: true });
        assert_eq!(Stop::from_status(0x0b7f), Stop::Signal(11));
        assert_eq!(Stop::from_status((128 << 16) | 0x137f), Stop::Group(19));
        assert_eq!(Stop::from_status((128 << 16) | 0x057f), Stop::Interrupted);
        assert_eq!(Stop::from_status((4 << 16) | 0x057f), Stop::Exec);
        assert_eq!(Stop::from_status(0x857f), Stop::Syscall);
    }
}
