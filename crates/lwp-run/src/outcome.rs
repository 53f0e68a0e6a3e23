//! The report of a run of the virtual CPU.

use std::ops::{AddAssign, Sub};
use std::time::{Duration, Instant};

/// Exact event counts of one thread, process or run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Retired instructions; a REP string instruction counts once.
    pub instructions: u64,
    /// Retired near branches of every kind; system calls are not branches.
    pub branches: u64,
    /// Conditional branches, LOOP and JRCXZ included.
    pub conditional: u64,
    /// Conditional branches that were taken.
    pub conditional_taken: u64,
    /// Near calls, direct and indirect.
    pub calls: u64,
    /// Near returns.
    pub returns: u64,
    /// Indirect jumps and indirect calls; returns are not included.
    pub indirect: u64,
}

impl Counts {
    /// All taken branches: every branch but the conditional ones that fell through.
    pub fn taken(&self) -> u64 {
        self.branches.wrapping_sub(self.conditional).wrapping_add(self.conditional_taken)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.instructions = self.instructions.wrapping_add(other.instructions);
        self.branches = self.branches.wrapping_add(other.branches);
        self.conditional = self.conditional.wrapping_add(other.conditional);
        self.conditional_taken = self.conditional_taken.wrapping_add(other.conditional_taken);
        self.calls = self.calls.wrapping_add(other.calls);
        self.returns = self.returns.wrapping_add(other.returns);
        self.indirect = self.indirect.wrapping_add(other.indirect);
    }
}

impl Sub for Counts {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.wrapping_sub(other.instructions),
            branches: self.branches.wrapping_sub(other.branches),
            conditional: self.conditional.wrapping_sub(other.conditional),
            conditional_taken: self.conditional_taken.wrapping_sub(other.conditional_taken),
            calls: self.calls.wrapping_sub(other.calls),
            returns: self.returns.wrapping_sub(other.returns),
            indirect: self.indirect.wrapping_sub(other.indirect),
        }
    }
}

/// The way in which the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It called exit with this code.
    Code(i32),
    /// A signal killed it.
    Signal {
        /// The signal's number.
        signal: i32,
        /// True if the kernel wrote a core file.
        core: bool,
    },
    /// It was attached to and lives on.
    Detached,
}

/// One thread's counts.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// Thread id.
    pub tid: i32,
    /// Its name when it ended.
    pub comm: String,
    /// The counts of its execution.
    pub counts: Counts,
    /// The time at which it came into the process image.
    pub started: Instant,
    /// The time at which it left it; none yet, in a report of a run that goes on.
    pub ended: Option<Instant>,
    /// The number of occurrences of each sampled event, in the order of
    /// [`crate::SamplingConfig::events`].
    pub sampled: Vec<u64>,
    /// CPU time that it has taken in this image, the virtual CPU's own work in it included; `None`
    /// where [`crate::ReportConfig::thread_times`] does not ask for it, or the kernel does not say
    /// it.
    pub cpu: Option<Duration>,
}

/// One process's counts: of one program image run by it; an exec starts the next report.
#[derive(Clone, Debug)]
pub struct ProcessReport {
    /// Process id; 0 for a program that was killed before its first instruction.
    pub pid: i32,
    /// Its parent's process id, 0 for the first.
    pub parent: i32,
    /// The thread that made it by fork; 0 for the first, and for an image that an exec has loaded.
    pub maker: i32,
    /// The time at which it was made or loaded.
    pub started: Instant,
    /// Its arguments, with blanks in between; a child of fork has its parent's.
    pub command: String,
    /// Its name (as in `/proc/PID/comm`).
    pub comm: String,
    /// The process's threads, in the order they started.
    pub threads: Vec<ThreadReport>,
    /// The reason why this process ran natively and was not counted, if so.
    pub uncounted: Option<String>,
}

impl ProcessReport {
    /// Returns whether it executed instructions that were not counted.
    pub fn ran_natively(&self) -> bool {
        self.uncounted.is_some() && self.pid != 0
    }

    /// The sum over all threads.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for thread in &self.threads {
            sum += thread.counts;
        }
        sum
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The way in which the first process ended.
    pub status: ExitStatus,
    /// Every process, in the order they started.
    pub processes: Vec<ProcessReport>,
    /// Wall-clock time of the run.
    pub elapsed: Duration,
    /// User CPU time of all processes, the virtual CPU's own work in them included.
    pub user: Duration,
    /// System CPU time of all processes.
    pub system: Duration,
    /// CPU time of the host (translator and tracer).
    pub host: Duration,
    /// The instructions that were executed one at a time.
    pub alone: Alone,
}

/// Instructions that were executed natively, one at a time, because they could not be translated
/// where they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone {
    /// Their number.
    pub instructions: u64,
    /// The time that they took, in all threads together.
    pub time: Duration,
}

impl Alone {
    /// A remark on it where it took more than a second: a run is slow then for no reason of the
    /// program's.
    pub fn remark(&self) -> Option<String> {
        let seconds = self.time.as_secs_f64();
        (seconds > 1.0).then(|| {
            let count = self.instructions;
            format!("{count} instructions were executed one at a time, which took {seconds:.1} s")
        })
    }
}

impl Outcome {
    /// The sum over all processes.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for process in &self.processes {
            sum += process.counts();
        }
        sum
    }
}

/// The reason why the virtual CPU could not run a program.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No such program.
    #[error("{program}: not found")]
    NotFound {
        /// The program that was to be run.
        program: String,
    },
    /// The program exists but cannot be executed.
    #[error("{program}: {cause}")]
    NotExecutable {
        /// The program that was to be run.
        program: String,
        /// The kernel's reason.
        cause: String,
    },
    /// The program is of a kind that this CPU refuses.
    #[error("{program}: {cause}")]
    Refused {
        /// The program that was to be run.
        program: String,
        /// The reason, and what to do instead.
        cause: String,
    },
    /// The machine forbids what the virtual CPU needs.
    #[error("{what}")]
    Machine {
        /// The failure.
        what: String,
        /// The remedy.
        help: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_steps_are_spoken_of_once_they_take_a_second() {
        let alone = |millis| Alone { instructions: 5000, time: Duration::from_millis(millis) };
        assert_eq!(alone(900).remark(), None);
        let remark = alone(1500).remark().unwrap();
        assert_eq!(remark, "5000 instructions were executed one at a time, which took 1.5 s");
    }
}
