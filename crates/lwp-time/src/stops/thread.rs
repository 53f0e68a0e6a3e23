//! A thread of a program that is sampled by stops.

use std::time::{Duration, Instant};

use lwp_process::regs::CS_64;
use lwp_process::sys;
use lwp_process::{Regs, Stop, Tracee};

use super::rest::Rest;

/// Bytes of a stack that are read at most: a deeper one is cut.
pub(crate) const DEEPEST_READ: usize = 1 << 20;

/// A thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    /// Its CPU time in ns, as it was looked at last.
    pub used: u64,
    /// The CPU time that its samples stand for, and what it had used before.
    pub sampled: u64,
    /// The number of times that it had been given a processor at the last look.
    turns: u64,
    /// It had one then.
    runs: bool,
    /// It was asked to stop, and has not done so.
    pub asked: bool,
    /// Bytes of its stack that are read; 0 if stacks are left out.
    pub stack_bytes: usize,
    /// The number of times that it had been given a processor when it was asked to stop while it
    /// ran.
    pub turn: Option<u64>,
    /// The write that its stop has cut short.
    pub rest: Option<Rest>,
}

impl Thread {
    /// One that has used so much CPU time.
    pub fn new(used: u64, stack_bytes: usize) -> Self {
        Self {
            used,
            sampled: used,
            turns: 0,
            runs: true,
            asked: false,
            stack_bytes,
            turn: None,
            rest: None,
        }
    }

    /// It goes on in another program, and what it has used so far goes with it.
    pub fn executed(&mut self) -> Self {
        Self { used: std::mem::take(&mut self.used), asked: false, rest: None, ..*self }
    }

    /// Lets it go on with `signal` (0: none).
    pub fn go_on(&self, tid: i32, signal: i32) {
        // One that has ended meanwhile goes nowhere.
        let _ = match self.rest {
            Some(_) => sys::cont_syscall(tid, signal),
            None => sys::cont(tid, signal),
        };
    }

    /// Looks at its accounts. Returns whether it is to be stopped for a sample.
    ///
    /// A thread that runs on another processor is stopped wherever it is. One that has lost its
    /// processor shows where it did so, and kernels that preempt lazily prefer the ends of system
    /// calls: it is taken only where there is one processor, if lwp was woken in time, or, as an
    /// exception that is counted, if it was not met for a long time.
    pub fn look(&mut self, (pid, tid): (i32, i32), look: Look) -> Option<Met> {
        let start = Instant::now();
        let accounts = Accounts::of(pid, tid)?;
        let idle = !self.runs && accounts.turns == self.turns;
        (self.used, self.turns, self.turn) = (accounts.used, accounts.turns, None);
        if idle || self.asked {
            return None;
        }
        self.runs = accounts.turns.checked_sub(1) == switches(pid, tid);
        if self.runs && start.elapsed() < BRIEF {
            self.turn = Some(accounts.turns);
            return Some(Met::Running);
        }
        let missing = self.used.saturating_sub(self.sampled);
        let overdue = look.alone && missing > OVERDUE * look.period_ns;
        match (look.alone && look.prompt) || overdue {
            true if !waits(pid, tid) => None,
            true if look.prompt => Some(Met::Running),
            true => Some(Met::Waiting),
            false => None,
        }
    }

    /// Returns whether it has lost its processor since the last look, as far as is known.
    pub fn was_missed(&self, period_ns: u64) -> bool {
        !self.asked && self.used.saturating_sub(self.sampled) > period_ns
    }

    /// Returns whether a thread that stands has run since it was asked to stop, without a break. If
    /// it has lost its processor meanwhile, it stands where it did so: that is no chance.
    pub fn was_met(&self, pid: i32, tid: i32) -> bool {
        let stands = || Accounts::of(pid, tid).map(|accounts| accounts.turns);
        self.turn.is_none() || self.turn == stands()
    }

    /// Its stack was cut, or was not: the next time more of it is read.
    pub fn was_cut(&mut self, cut: bool) {
        if cut {
            self.stack_bytes = (2 * self.stack_bytes).min(DEEPEST_READ);
        }
    }
}

/// A thread is stopped where it lost its processor if it is so many periods late.
const OVERDUE: u64 = 32;
/// What was seen of a thread longer ago says nothing of now.
const BRIEF: Duration = Duration::from_micros(300);

/// One look at all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// CPU time between two samples of a thread, in ns.
    pub period_ns: u64,
    /// There is one processor for lwp and the program.
    pub alone: bool,
    /// lwp was woken in time: on one processor, who has none has lost it to lwp just now.
    pub prompt: bool,
}

/// A thread that is stopped for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// It runs.
    Running,
    /// It waits for a processor.
    Waiting,
}

/// The scheduler's accounts of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accounts {
    /// CPU time in ns: up to a tick old while the thread runs.
    pub used: u64,
    /// The number of times that it was given a processor.
    turns: u64,
}

impl Accounts {
    pub fn of(pid: i32, tid: i32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        Self::of_text(&text)
    }

    /// Spec: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
    fn of_text(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        let used = numbers.next()?.ok()?;
        Some(Self { used, turns: numbers.nth(1)?.ok()? })
    }
}

/// The number of times that a thread has lost its processor: one less than it was given one, as
/// long as it has one.
fn switches(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    switches_in(&text)
}

/// Spec: proc_pid_status(5).
fn switches_in(text: &str) -> Option<u64> {
    let number = |line: &str| -> Option<u64> {
        let (name, number) = line.split_once(':')?;
        name.ends_with("ctxt_switches").then(|| number.trim().parse().ok())?
    };
    text.lines().filter_map(number).reduce(u64::saturating_add)
}

/// Returns whether a process does nothing upon a signal.
pub(crate) fn is_ignored(pid: i32, signal: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let has = |name| {
        let mask = text.lines().find_map(|line| line.strip_prefix(name));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.unwrap_or(0) >> (signal - 1) & 1 != 0
    };
    let harmless = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];
    has("SigIgn:") || harmless.contains(&signal) && !has("SigCgt:")
}

/// Returns whether a thread runs, or waits for nothing but a processor. Whoever sleeps is left
/// alone: its system call would be interrupted.
///
/// Spec: proc_pid_syscall(5).
fn waits(pid: i32, tid: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
    text.is_ok_and(|text| text.starts_with("running"))
}

/// What was seen of a thread that stood still.
#[derive(Debug)]
pub(crate) struct Stood {
    regs: Regs,
    /// The bytes from its stack pointer up.
    pub stack: Vec<u8>,
}

impl Stood {
    /// Looks at a thread that stands at `stop`; `None` if it has ended.
    pub fn look(tid: i32, stop: Stop, stack_bytes: usize) -> Option<Self> {
        let stood = Self::at_rest(tid, stack_bytes)?;
        Tracee(tid).leave_call_to_kernel(stop);
        Some(stood)
    }

    /// Looks at a thread that stands where no call was ended for it.
    pub fn at_rest(tid: i32, stack_bytes: usize) -> Option<Self> {
        let tracee = Tracee(tid);
        let regs = tracee.regs().ok()?;
        let mut stack = vec![0; if regs.0.cs == CS_64 { stack_bytes } else { 0 }];
        let got = match stack.is_empty() {
            true => 0,
            false => sys::read_memory(tid, regs.0.rsp, &mut stack).unwrap_or(0),
        };
        stack.truncate(got);
        Some(Self { regs, stack })
    }

    /// Has it write the rest, if its stop has cut a write short.
    pub fn rest(&self, pid: i32, tid: i32) -> Option<Rest> {
        Rest::of(pid, &self.regs)?.begin(tid)
    }

    /// The instruction that it goes on with.
    pub fn ip(&self) -> u64 {
        self.regs.0.rip
    }

    /// Returns whether it came out of a system call to stop.
    pub fn is_in_call(&self) -> bool {
        self.regs.in_syscall()
    }

    /// The registers in perf's order; `None` of a 32-bit program.
    pub fn registers(&self) -> Option<[u64; 17]> {
        let r = &self.regs.0;
        let all = [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.rip, r.r8, r.r9, r.r10,
            r.r11, r.r12, r.r13, r.r14, r.r15,
        ];
        (r.cs == CS_64).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_s_numbers_are_read() {
        let accounts = Accounts { used: 12, turns: 56 };
        assert_eq!(Accounts::of_text("12 34 56\n"), Some(accounts));
        assert_eq!(Accounts::of_text("12 34"), None);
        let text = "Threads:\t1\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t15\n";
        assert_eq!((switches_in(text), switches_in("Threads:\t1\n")), (Some(55), None));
    }

    /// This thread runs while it looks at itself.
    #[test]
    fn a_thread_that_runs_has_had_one_turn_more_than_it_has_lost() {
        let link = std::fs::read_link("/proc/thread-self").expect("a link");
        let tid = link.file_name().and_then(|tid| tid.to_str()?.parse().ok()).expect("a number");
        let pid = std::process::id().cast_signed();
        let met = (0..100).any(|_| {
            let turns = Accounts::of(pid, tid).map(|accounts| accounts.turns - 1);
            turns.is_some() && turns == switches(pid, tid)
        });
        assert!(met);
    }

    #[test]
    fn signals_without_a_handler_may_be_ignored() {
        let pid = std::process::id().cast_signed();
        assert!(is_ignored(pid, libc::SIGURG) && !is_ignored(pid, libc::SIGTERM));
    }
}
