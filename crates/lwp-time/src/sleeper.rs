//! The stack of a thread that sleeps, without stopping it.
//!
//! The kernel says in which system call a thread sleeps and where its stack ends; the stack itself
//! can be read. What was read belongs together if the thread has not run meanwhile, which its
//! number of turns on a processor says.
//!
//! Promise: R140

use lwp_process::sys;

/// Bytes of a stack that are read: as deep as most stacks of sleepers are.
const STACK_BYTES: usize = 64 << 10;

/// A thread that sleeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sleeper {
    /// The system call that it is in; `None` if it sleeps elsewhere, as in a page fault.
    pub call: Option<u32>,
    /// The stack pointer, and the instruction that it goes on with.
    pub registers: (u64, u64),
    /// The bytes from the stack pointer up.
    pub stack: Vec<u8>,
    /// How often it had been given a processor.
    turns: u64,
}

impl Sleeper {
    /// Looks at a thread; `None` if it runs, has ended, or may not be looked at.
    pub fn look(pid: i32, tid: i32) -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}"));
        let turns = || turns(&read("schedstat").ok()?);
        let before = turns()?;
        let mut sleeper = Self::of_line(&read("syscall").ok()?)?;
        let mut stack = vec![0; STACK_BYTES];
        let got = sys::read_memory(pid, sleeper.registers.0, &mut stack).unwrap_or(0);
        stack.truncate(got);
        (sleeper.stack, sleeper.turns) = (stack, before);
        (turns() == Some(before)).then_some(sleeper)
    }

    /// Returns whether it has not run since it was looked at.
    pub fn sleeps_still(&self, pid: i32, tid: i32) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat"));
        text.is_ok_and(|text| turns(&text) == Some(self.turns))
    }

    /// Spec: proc_pid_syscall(5): the call's number and six arguments, or -1, then stack pointer
    /// and program counter.
    fn of_line(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [call, .., stack, place] = words[..] else { return None };
        let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let registers = (number(stack)?, number(place)?);
        Some(Self { call: call.parse().ok(), registers, ..Self::default() })
    }
}

/// How often a thread was given a processor.
///
/// Spec: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat": the third number.
fn turns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_line_is_read() {
        let of = |line| Sleeper::of_line(line).map(|it| (it.call, it.registers));
        let in_call = "230 0x1 0x0 0x7ffc 0x7ffd 0x0 0x3 0x7ffcd8e0 0x7f3c\n";
        assert_eq!(of(in_call), Some((Some(230), (0x7ffc_d8e0, 0x7f3c))));
        assert_eq!(of("-1 0x7ffcd8e0 0x7f3c\n"), Some((None, (0x7ffc_d8e0, 0x7f3c))));
        assert_eq!((of("running\n"), of(""), of("1 2")), (None, None, None));
        assert_eq!((turns("12 34 56\n"), turns("12")), (Some(56), None));
    }
}
