//! Counts of what retires, by process image and thread.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use lwp_arch::retired::BranchKind;
use lwp_process::{Tid, sys};
use lwp_reference::{Decoded, Observer, Task};
use lwp_vcpu::profile::Sink;
use lwp_vcpu::{Config, Counts, ProcessReport, ThreadReport};
use rustc_hash::FxHashMap;

use crate::attend::Shared;
use crate::recording::{Recording, Trace};

/// A thread that runs.
#[derive(Debug)]
struct Running {
    /// Indices of its image and, in there, of its report.
    image: usize,
    slot: usize,
    counts: Counts,
    trace: Trace,
}

/// Everything that is counted in a run.
#[derive(Debug)]
pub struct Counter {
    shared: Arc<Shared>,
    follows_children: bool,
    lets_go: [bool; 2],
    reports: Vec<ProcessReport>,
    /// The image that each process runs.
    images: FxHashMap<i32, usize>,
    threads: FxHashMap<Tid, Running>,
    recording: Option<Recording>,
}

impl Counter {
    /// Nothing has been started.
    pub fn new(config: &Config, shared: Arc<Shared>, sink: Option<Box<dyn Sink>>) -> Self {
        Self {
            shared,
            follows_children: config.program.follow_children,
            lets_go: config.program.lets_go,
            reports: Vec::new(),
            images: FxHashMap::default(),
            threads: FxHashMap::default(),
            recording: sink.map(|sink| Recording::new(sink, config.reports.checkpoint)),
        }
    }

    /// What was counted, once everything has ended.
    pub fn into_reports(self) -> Vec<ProcessReport> {
        self.reports
    }

    /// Starts the report of the image that a process runs now.
    fn add_image(&mut self, pid: i32, parent: i32) {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
        self.images.insert(pid, self.reports.len());
        self.reports.push(ProcessReport {
            pid,
            parent,
            maker: 0,
            started: Instant::now(),
            command,
            comm: name_of(pid),
            threads: Vec::new(),
            uncounted: None,
        });
    }

    /// Starts the report of a thread.
    fn add_thread(&mut self, task: Task) {
        let Some(&image) = self.images.get(&task.pid) else { return };
        let threads = &mut self.reports[image].threads;
        let slot = threads.len();
        threads.push(ThreadReport {
            tid: task.tid,
            comm: name_of(task.tid),
            counts: Counts::default(),
            started: Instant::now(),
            ended: None,
            sampled: Vec::new(),
            cpu: None,
        });
        let trace = self.recording.as_mut().map(Recording::new_trace).unwrap_or_default();
        let running = Running { image, slot, counts: Counts::default(), trace };
        self.threads.insert(task.tid, running);
    }

    /// Reports to the sink what a thread has executed so far.
    fn record(&mut self, tid: Tid) {
        let (Some(running), Some(recording)) = (self.threads.get(&tid), &mut self.recording) else {
            return;
        };
        let process = &self.reports[running.image];
        recording.report(&running.trace, running.image, process, &process.threads[running.slot]);
    }
}

impl Observer for Counter {
    fn follows_children(&self) -> bool {
        self.follows_children
    }

    fn started(&mut self, task: Task) {
        if task.tid == task.pid {
            if self.shared.begin(task.pid) {
                sys::let_go_of_streams(self.lets_go);
            }
            let parent = parent_of(task.pid).filter(|parent| self.images.contains_key(parent));
            self.add_image(task.pid, parent.unwrap_or(0));
        }
        self.add_thread(task);
    }

    fn executed(&mut self, task: Task) {
        self.shared.begin(task.pid);
        let parent = self.images.get(&task.pid).map(|image| self.reports[*image].parent);
        if let Some(recording) = &mut self.recording {
            recording.forget(task.pid);
        }
        self.add_image(task.pid, parent.unwrap_or(0));
        self.add_thread(task);
    }

    fn retired(&mut self, task: Task, instruction: &Decoded, next: u64) {
        let counting = self.shared.counts();
        let Some(running) = self.threads.get_mut(&task.tid) else { return };
        if counting {
            add(&mut running.counts, instruction);
        }
        let Some(recording) = &mut self.recording else { return };
        if counting {
            recording.retired(&mut running.trace, task.pid, instruction, next);
        }
        if instruction.crosses_privilege {
            recording.may_change(task.pid);
        }
        if recording.is_due() {
            let all: Vec<Tid> = self.threads.keys().copied().collect();
            all.into_iter().for_each(|tid| self.record(tid));
        }
    }

    fn ending(&mut self, task: Task) {
        if let Some(running) = self.threads.get(&task.tid) {
            self.reports[running.image].threads[running.slot].comm = name_of(task.tid);
        }
    }

    fn ended(&mut self, task: Task) {
        if let Some(running) = self.threads.get(&task.tid) {
            let report = &mut self.reports[running.image].threads[running.slot];
            report.counts = running.counts;
            report.ended = Some(Instant::now());
        }
        self.record(task.tid);
        self.threads.remove(&task.tid);
        if task.tid == task.pid {
            self.shared.end(task.pid);
        }
    }
}

/// Counts an instruction as `lwp list` says; far transfers are branches of no other kind.
fn add(counts: &mut Counts, instruction: &Decoded) {
    counts.instructions += 1;
    let Some((kind, taken)) = instruction.branch else { return };
    counts.branches += 1;
    match kind {
        BranchKind::Conditional => {
            counts.conditional += 1;
            counts.conditional_taken += u64::from(taken);
        }
        BranchKind::DirectCall => counts.calls += 1,
        BranchKind::IndirectCall => {
            counts.calls += 1;
            counts.indirect += 1;
        }
        BranchKind::IndirectJump => counts.indirect += 1,
        BranchKind::Return => counts.returns += 1,
        BranchKind::DirectJump | BranchKind::FarTransfer => {}
    }
}

fn name_of(tid: Tid) -> String {
    let name = fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

fn parent_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}
