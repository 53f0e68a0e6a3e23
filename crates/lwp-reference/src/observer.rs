//! What happens while a program is stepped, for whoever counts.

use std::fmt::Debug;

use lwp_process::Tid;

use crate::decode::Decoded;

/// A thread and its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: i32,
}

/// Is told of threads, and of every instruction that retires. Threads that it is told of stand
/// still meanwhile, save those that have ended.
pub trait Observer: Debug {
    /// Returns whether processes that the program makes are stepped; others run natively.
    fn follows_children(&self) -> bool {
        true
    }

    /// A thread begins: the program's first, or one that another has made. If the two numbers are
    /// equal, so does a process.
    fn started(&mut self, _task: Task) {}

    /// The process has executed a program, and this is its only thread.
    fn executed(&mut self, _task: Task) {}

    /// The instruction has retired, and the thread goes on at `next`. A repeated string instruction
    /// retires once; system calls do too.
    fn retired(&mut self, _task: Task, _instruction: &Decoded, _next: u64) {}

    /// The thread is about to end, with its memory still there.
    fn ending(&mut self, _task: Task) {}

    /// The thread has ended, or exec has taken it.
    fn ended(&mut self, _task: Task) {}
}

/// Nobody counts.
#[derive(Debug)]
pub struct Unobserved;

impl Observer for Unobserved {}
