//! Processes and threads, by the kernel's records.

use std::time::Instant;

use lwp_vcpu::ProcessReport;
use lwp_vcpu::profile::{Sink, ThreadExecutions};
use rustc_hash::FxHashMap;

use crate::address_space::AddressSpace;

/// A process.
#[derive(Debug, Default)]
struct Process {
    space: AddressSpace,
    /// Its image among all.
    image: usize,
    /// Its threads that have not ended.
    live: u32,
}

/// A thread with samples.
#[derive(Debug)]
struct Thread {
    serial: u32,
    image: usize,
    pid: i32,
    samples: u64,
    /// Units of time off the processor.
    off: u64,
}

/// All processes and threads of a program.
#[derive(Debug)]
pub(crate) struct Threads {
    processes: FxHashMap<i32, Process>,
    threads: FxHashMap<i32, Thread>,
    /// Names by thread.
    names: FxHashMap<i32, String>,
    images: Vec<ProcessReport>,
    serials: u32,
    period: u64,
    /// Nanoseconds of a unit of time off the processor, if that is known.
    unit: Option<u64>,
    command: String,
    /// Threads and processes that were made.
    made: u64,
}

impl Threads {
    /// Those of `command`, whose samples stand for `period` ns each, and units of time off the
    /// processor, if that is known, for `unit`.
    pub fn new(command: String, period: u64, unit: Option<u64>) -> Self {
        Self {
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
            names: FxHashMap::default(),
            images: Vec::new(),
            serials: 0,
            period,
            unit,
            command,
            made: 0,
        }
    }

    /// The number of the thread that a sample is of, announced if it is new.
    pub fn sampled(&mut self, pid: i32, tid: i32, sink: &mut dyn Sink) -> u32 {
        let serial = self.known(pid, tid, sink);
        self.threads.entry(tid).and_modify(|thread| thread.samples += 1);
        serial
    }

    /// The number of a thread that was off the processor so many units long.
    pub fn was_off(&mut self, (pid, tid): (i32, i32), units: u64, sink: &mut dyn Sink) -> u32 {
        let serial = self.known(pid, tid, sink);
        let add = |thread: &mut Thread| thread.off = thread.off.saturating_add(units);
        self.threads.entry(tid).and_modify(add);
        serial
    }

    /// The number of a thread, announced if it is new.
    fn known(&mut self, pid: i32, tid: i32, sink: &mut dyn Sink) -> u32 {
        let image = self.process(pid).image;
        let next = self.serials;
        let fresh = Thread { serial: next, image, pid, samples: 0, off: 0 };
        let serial = self.threads.entry(tid).or_insert(fresh).serial;
        if serial == next {
            self.serials += 1;
            self.report(tid, sink);
        }
        serial
    }

    /// Sums of the events: CPU time, and time off the processor if it is known.
    fn sums(&self, cpu: u64, off: u64) -> Vec<u64> {
        let off = self.unit.map(|unit| off.saturating_mul(unit));
        std::iter::once(cpu).chain(off).collect()
    }

    /// A process that runs already has these threads, with their names.
    pub fn found(&mut self, pid: i32, threads: impl ExactSizeIterator<Item = (i32, String)>) {
        let live = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        self.names.extend(threads);
        self.process(pid).live = live;
    }

    /// The number of threads and processes that were made.
    pub fn made_so_far(&self) -> u64 {
        self.made
    }

    /// The processes that have not ended.
    pub fn live(&self) -> Vec<i32> {
        self.processes.keys().copied().collect()
    }

    /// Returns whether a process is known, and has not ended.
    pub fn has(&self, pid: i32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// The mappings of a process.
    pub fn space(&mut self, pid: i32) -> &mut AddressSpace {
        &mut self.process(pid).space
    }

    /// A process, which may have been met in a sample first: records of two processors need not
    /// come in their order.
    fn process(&mut self, pid: i32) -> &mut Process {
        if !self.processes.contains_key(&pid) {
            let name = self.names.get(&pid).cloned().unwrap_or_default();
            let image = self.new_image(pid, 0, name);
            let process = Process { image, live: 1, ..Process::default() };
            self.processes.insert(pid, process);
        }
        self.processes.entry(pid).or_default()
    }

    fn new_image(&mut self, pid: i32, parent: i32, comm: String) -> usize {
        self.images.push(ProcessReport {
            pid,
            parent,
            maker: 0,
            started: Instant::now(),
            command: self.command.clone(),
            comm,
            threads: Vec::new(),
            uncounted: None,
        });
        self.images.len() - 1
    }

    /// A thread has been made, of the maker's process or of a new one.
    pub fn made(&mut self, new: (i32, i32), maker: (i32, i32), sink: &mut dyn Sink) {
        self.made += 1;
        self.close(new.1, sink);
        if let Some(name) = self.names.get(&maker.1).cloned() {
            self.names.insert(new.1, name);
        }
        if new.0 == maker.0 {
            self.process(new.0).live += 1;
            return;
        }
        let space = self.process(maker.0).space.copy();
        let name = self.names.get(&new.1).cloned().unwrap_or_default();
        let image = self.new_image(new.0, maker.0, name);
        self.processes.insert(new.0, Process { space, image, live: 1 });
    }

    /// A thread is called this now.
    pub fn named(&mut self, pid: i32, tid: i32, name: String) {
        if pid == tid
            && let Some(process) = self.processes.get(&pid)
        {
            self.images[process.image].comm.clone_from(&name);
        }
        self.names.insert(tid, name);
    }

    /// A process executes another program, by this name: of its threads one is left.
    pub fn executed(&mut self, pid: i32, name: String, sink: &mut dyn Sink) {
        let of_it = self.threads.iter().filter(|(_, thread)| thread.pid == pid);
        let mut gone: Vec<i32> = of_it.map(|(tid, _)| *tid).collect();
        gone.sort_unstable();
        gone.into_iter().for_each(|tid| self.close(tid, sink));
        let before = self.processes.get(&pid).map(|process| self.images[process.image].parent);
        self.names.insert(pid, name.clone());
        let image = self.new_image(pid, before.unwrap_or(0), name);
        let space = AddressSpace::default();
        self.processes.insert(pid, Process { space, image, live: 1 });
    }

    /// A thread has ended.
    pub fn ended(&mut self, pid: i32, tid: i32, sink: &mut dyn Sink) {
        self.close(tid, sink);
        self.names.remove(&tid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.live = process.live.saturating_sub(1);
        if process.live == 0 {
            self.processes.remove(&pid);
        }
    }

    /// Reports a thread for the last time.
    fn close(&mut self, tid: i32, sink: &mut dyn Sink) {
        self.report(tid, sink);
        self.threads.remove(&tid);
    }

    fn report(&self, tid: i32, sink: &mut dyn Sink) {
        let Some(thread) = self.threads.get(&tid) else { return };
        sink.thread(&ThreadExecutions {
            serial: thread.serial,
            image: u32::try_from(thread.image).unwrap_or(u32::MAX),
            pid: thread.pid,
            tid,
            comm: self.names.get(&tid).cloned().unwrap_or_default(),
            sampled: self.sums(thread.samples.saturating_mul(self.period), thread.off),
            ..ThreadExecutions::default()
        });
    }

    /// Reports all threads that have not ended, and `rest` ns of CPU time that belong to no thread
    /// that is known, as a thread's of their own; returns its number.
    pub fn finish(&mut self, rest: u64, sink: &mut dyn Sink) -> u32 {
        let mut live: Vec<i32> = self.threads.keys().copied().collect();
        live.sort_unstable();
        live.into_iter().for_each(|tid| self.close(tid, sink));
        if rest > 0 {
            sink.thread(&ThreadExecutions {
                serial: self.serials,
                pid: self.images.first().map_or(0, |image| image.pid),
                comm: crate::stacks::UNSEEN.to_owned(),
                sampled: self.sums(rest, 0),
                ..ThreadExecutions::default()
            });
        }
        self.serials
    }

    /// All process images, in the order in which they began.
    pub fn into_images(self) -> Vec<ProcessReport> {
        self.images
    }
}
