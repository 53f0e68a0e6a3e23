//! Groups of counts: those of one process, and those of one part where the program ends parts
//! itself.

use std::sync::{Arc, Mutex, PoisonError};

use lwp_profile::{Recording, ThreadExecutions};
use lwp_vcpu::Outcome;
use lwp_vcpu::profile as vcpu;

use crate::recorder::Recorder;

/// A part that a program has ended.
#[derive(Clone, Debug)]
struct Ended {
    pid: i32,
    serials: Vec<u32>,
    label: String,
}

/// A recording, and the parts that it falls into.
#[derive(Clone, Debug)]
pub struct Parted {
    recorder: Recorder,
    ended: Arc<Mutex<Vec<Ended>>>,
}

/// The reason why a part ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A client request, with its text.
    Request(String),
    /// The program's end.
    Program,
}

/// A part of what a process has executed.
#[derive(Debug)]
pub struct Part {
    /// From 1 on.
    pub number: usize,
    /// The reason why it ended.
    pub end: End,
    /// Executions of each thread in the part; threads are numbered from 1 on.
    pub threads: Vec<(usize, ThreadExecutions)>,
}

/// Executions of a process.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its arguments.
    pub command: String,
    /// In order.
    pub parts: Vec<Part>,
}

impl Parted {
    /// Nothing yet, to be recorded by `recorder`.
    pub fn new(recorder: Recorder) -> Self {
        Self { recorder, ended: Arc::default() }
    }

    /// The processes of a run: those that were counted, each with the last program that it has
    /// become.
    pub fn processes(&self, recording: &Recording, outcome: &Outcome) -> Vec<Process> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let all = &outcome.processes;
        let last = |index: usize| all[index + 1..].iter().all(|later| later.pid != all[index].pid);
        (0..all.len())
            .filter(|&index| all[index].uncounted.is_none() && last(index))
            .map(|index| process(recording, outcome, index, &ended))
            .collect()
    }
}

fn process(recording: &Recording, outcome: &Outcome, index: usize, ended: &[Ended]) -> Process {
    let report = &outcome.processes[index];
    let image = u32::try_from(index).unwrap_or(u32::MAX);
    let own: Vec<&ThreadExecutions> =
        recording.threads.values().filter(|thread| thread.image == image).collect();
    // A thread's first part tells its place among the others.
    let mut tids: Vec<i32> = Vec::new();
    for thread in &own {
        if !tids.contains(&thread.tid) {
            tids.push(thread.tid);
        }
    }
    let number = |tid: i32| tids.iter().position(|it| *it == tid).map_or(1, |at| at + 1);
    let numbered = |fits: &dyn Fn(u32) -> bool| -> Vec<(usize, ThreadExecutions)> {
        let fits = own.iter().filter(|thread| fits(thread.serial));
        fits.map(|thread| (number(thread.tid), (*thread).clone())).collect()
    };
    let mut parts = Vec::new();
    let mut taken: Vec<u32> = Vec::new();
    for part in ended.iter().filter(|part| part.pid == report.pid) {
        // Threads that have ended before belong to the part that ends next.
        let before = part.serials.iter().max().copied().unwrap_or(0);
        let threads = numbered(&|serial| serial <= before && !taken.contains(&serial));
        taken.extend(threads.iter().map(|(_, thread)| thread.serial));
        let (number, end) = (parts.len() + 1, End::Request(part.label.clone()));
        parts.push(Part { number, end, threads });
    }
    let threads = numbered(&|serial| !taken.contains(&serial));
    parts.push(Part { number: parts.len() + 1, end: End::Program, threads });
    let (pid, parent, command) = (report.pid, report.parent, report.command.clone());
    Process { pid, parent, command, parts }
}

impl vcpu::Sink for Parted {
    fn module(&mut self, module: &vcpu::Module) {
        self.recorder.module(module);
    }

    fn blocks(&mut self, blocks: &[vcpu::Block]) {
        self.recorder.blocks(blocks);
    }

    fn thread(&mut self, thread: &vcpu::ThreadExecutions) {
        self.recorder.thread(thread);
    }

    fn part(&mut self, pid: i32, serials: &[u32], label: &str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push(Ended { pid, serials: serials.to_vec(), label: label.to_owned() });
    }

    fn wants_calls(&self) -> bool {
        self.recorder.wants_calls()
    }

    fn wants_contexts(&self) -> bool {
        self.recorder.wants_contexts()
    }

    fn sample(&mut self, sample: &vcpu::Sample<'_>) {
        self.recorder.sample(sample);
    }
}
