//! Records of the rings become samples of a recording.

use std::collections::BTreeSet;
use std::time::Duration;

use lwp_perf::{Record, Rings, Sample};
use lwp_vcpu::profile::{self, Place};

use crate::Sampling;
use crate::address_space::Mapped;
use crate::kernel_names::{KERNEL_START, KernelNames};
use crate::off_cpu::{Spans, UNIT_NS};
use crate::reasons::OffProcessor;
use crate::remainder::Remainder;
use crate::stacks::{Copied, KERNEL, OFF, Stacks, UNSEEN, registers};
use crate::threads::Threads;

/// Addresses that stand for what has none: nothing is mapped there.
mod standing_for {
    /// The kernel's time, where it may not be seen.
    pub const HIDDEN_KERNEL: u64 = 1;
    /// Samples that a ring had no room for.
    pub const LOST: u64 = 2;
    /// Between samples: threads that ended before the next, and interrupts that came late.
    pub const UNSAMPLED: u64 = 3;
    /// Whoever called the outermost frame that was found.
    pub const CALLERS: u64 = 4;
}

/// The modules that these addresses are in, and what stands there.
const NAMES: [(u64, &str, &str); 4] = [
    (standing_for::HIDDEN_KERNEL, KERNEL, "[kernel, not visible]"),
    (standing_for::LOST, UNSEEN, "[lost samples]"),
    (standing_for::UNSAMPLED, UNSEEN, "[between samples]"),
    (standing_for::CALLERS, UNSEEN, "[callers not found]"),
];

/// Names of a module that has no file: address, bytes and name of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelNames {
    /// The module.
    pub module: u32,
    /// The names, in order.
    pub functions: Vec<(u64, u64, String)>,
}

/// A thread that was stopped for a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped<'a> {
    pub pid: i32,
    pub tid: i32,
    /// The instruction that it goes on with.
    pub ip: u64,
    /// The kernel had its time: it came out of a system call.
    pub in_call: bool,
    /// Its registers in perf's order; `None` if its stack is not to be walked.
    pub registers: Option<[u64; 17]>,
    /// The bytes from its stack pointer up.
    pub stack: &'a [u8],
    /// It stands still until the sample is taken in.
    pub still: bool,
}

/// How the walk over a stack ended, if not at its bottom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// At the end of the copy.
    pub cut: bool,
    /// Where no table says how to go on.
    pub lost: bool,
}

/// A record may be seen so much later than others of its time.
const DISORDER_NS: u64 = 1_000_000;

/// Entries of a call chain from here on say whose entries follow.
///
/// Spec: perf_event.h, `PERF_CONTEXT_MAX`.
const CONTEXTS: u64 = 0_u64.wrapping_sub(4095);
const CONTEXT_KERNEL: u64 = 0_u64.wrapping_sub(128);

/// The samples so far.
#[derive(Debug)]
pub(crate) struct Samples<'a> {
    pub(crate) sink: &'a mut dyn Spans,
    /// Threads without a processor.
    pub off: OffProcessor,
    pub threads: Threads,
    pub stacks: Stacks,
    /// Sampled addresses of the kernel.
    pub kernel: BTreeSet<u64>,
    pub taken: u64,
    period: u64,
    waiting: Vec<(u64, Record)>,
    places: Vec<Place>,
}

impl<'a> Samples<'a> {
    /// None yet, of `command`.
    pub fn new(command: String, sampling: &Sampling, sink: &'a mut dyn Spans) -> Self {
        let (period, unit) = (sampling.period_ns(), sampling.sees_switches().then_some(UNIT_NS));
        Self {
            sink,
            off: OffProcessor::default(),
            threads: Threads::new(command, period, unit),
            stacks: Stacks::new(sampling.languages()),
            kernel: BTreeSet::new(),
            taken: 0,
            period,
            waiting: Vec::new(),
            places: Vec::new(),
        }
    }

    /// The time after which records are to be read again: soon while a thread may go to sleep, for
    /// who sleeps is looked at then.
    pub fn patience(&self) -> Duration {
        match self.off.threads.is_busy() {
            true => Duration::from_micros(500),
            false => Duration::from_millis(2),
        }
    }

    /// Begins with records that were taken out of the rings before.
    pub fn begin(&mut self, records: Vec<(u64, Record)>) {
        self.waiting = records;
    }

    /// Takes the records out of `rings`, and takes those in that are from before `until`. Records
    /// of a later time wait: another processor may have older ones.
    pub fn read(&mut self, rings: &mut Rings, until: u64) {
        let known = self.waiting.len();
        rings.take(&mut self.waiting);
        self.off.note(&self.waiting[known..]);
        self.look(until);
        self.take_in_until(until);
    }

    /// Takes in what has happened before `until`.
    fn take_in_until(&mut self, until: u64) {
        self.waiting.sort_by_key(|(time, _)| *time);
        let until = until.saturating_sub(DISORDER_NS);
        let ready = self.waiting.partition_point(|(time, _)| *time < until);
        let later = self.waiting.split_off(ready);
        for (time, record) in std::mem::replace(&mut self.waiting, later) {
            self.take_in(time, record);
        }
    }

    /// Takes records of switches out of `rings`, beside which threads are stopped for samples, and
    /// leaves all others of them out.
    pub fn read_switches(&mut self, rings: &mut Rings, until: u64) {
        let known = self.waiting.len();
        rings.take(&mut self.waiting);
        let mut at = 0;
        self.waiting.retain(|(_, record)| {
            at += 1;
            at <= known || matches!(record, Record::Switch { .. })
        });
        self.off.note(&self.waiting[known..]);
        self.look(until);
        self.take_in_until(until);
    }

    /// Takes in what has happened, in its order.
    pub fn take_in(&mut self, time: u64, record: Record) {
        let signed = |(pid, tid): (u32, u32)| (pid.cast_signed(), tid.cast_signed());
        match record {
            Record::Sample(sample) => self.sample(&sample),
            Record::Mmap(record) => {
                if let Some(mapped) = Mapped::of(&record) {
                    self.threads.space(signed(record.pid_tid).0).map(mapped);
                }
            }
            Record::Comm { pid_tid, name, exec } => {
                let ((pid, tid), name) = (signed(pid_tid), name.to_string_lossy().into_owned());
                match exec {
                    true => {
                        self.stacks.forget_process(pid);
                        self.threads.executed(pid, name, self.sink);
                    }
                    false => self.threads.named(pid, tid, name),
                }
            }
            Record::Switch { pid_tid, out: true, preempted } => {
                self.off.threads.gone(signed(pid_tid), time, preempted);
            }
            Record::Switch { pid_tid, .. } => self.back(signed(pid_tid).1, time),
            Record::Fork { pid_tid, parent } => {
                self.off.threads.made(signed(pid_tid).1);
                self.threads.made(signed(pid_tid), signed(parent), self.sink);
            }
            Record::Exit { pid_tid } => {
                let (pid, tid) = signed(pid_tid);
                self.back(tid, time);
                self.off.threads.ended(tid);
                self.threads.ended(pid, tid, self.sink);
                if !self.threads.has(pid) {
                    self.stacks.forget_process(pid);
                }
            }
            _ => {}
        }
    }

    fn sample(&mut self, sample: &Sample) {
        let Some((pid, tid)) = sample.pid_tid else { return };
        let (pid, tid) = (pid.cast_signed(), tid.cast_signed());
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let serial = self.threads.sampled(pid, tid, self.sink);
        self.kernel_frames(sample, &mut places);
        let copied = sample
            .user_registers
            .map(|values| Copied::moment(registers(values), &sample.user_stack));
        let ip = sample.ip.filter(|_| places.is_empty());
        self.user_frames(pid, copied, ip, &mut places);
        self.report(serial, places);
    }

    /// Takes a sample of a thread that was stopped for it.
    pub fn stopped(&mut self, thread: Stopped<'_>) -> Walked {
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let serial = self.threads.sampled(thread.pid, thread.tid, self.sink);
        if thread.in_call {
            let module = Some(self.stacks.label(KERNEL, self.sink));
            places.push(Place { module, address: standing_for::HIDDEN_KERNEL });
        }
        let still = thread.still.then_some(thread.tid);
        let copied = thread.registers.map(|values| Copied {
            registers: registers(values),
            stack: thread.stack,
            still,
        });
        let before = self.stacks.completeness();
        self.user_frames(thread.pid, copied, Some(thread.ip), &mut places);
        let after = self.stacks.completeness();
        self.report(serial, places);
        Walked { cut: after.cut > before.cut, lost: after.lost > before.lost }
    }

    /// Returns whether a process is known to have code at an address.
    pub fn knows(&mut self, pid: i32, address: u64) -> bool {
        self.threads.space(pid).has(address)
    }

    /// Adds the frames of a copied stack; without one, the place of `ip`.
    fn user_frames(
        &mut self,
        pid: i32,
        copied: Option<Copied<'_>>,
        ip: Option<u64>,
        places: &mut Vec<Place>,
    ) {
        let code = self.stacks.code(pid, self.threads.space(pid), self.sink);
        let is_copied = copied.is_some();
        let complete = copied.is_none_or(|copied| {
            self.stacks.walk(pid, &code, copied, (&mut *places, &mut *self.sink))
        });
        if let Some(ip) = ip.filter(|_| !is_copied || places.is_empty()) {
            let range = code.iter().find(|range| (range.start..range.end).contains(&ip));
            places.push(Place { module: range.map(|range| range.tag), address: ip });
        }
        if !complete {
            let module = Some(self.stacks.label(UNSEEN, self.sink));
            places.push(Place { module, address: standing_for::CALLERS });
        }
    }

    fn report(&mut self, serial: u32, places: Vec<Place>) {
        self.sink.sample(&profile::Sample { serial, event: 0, stack: &places });
        self.taken += 1;
        self.places = places;
    }

    /// The frames in the kernel, innermost first.
    fn kernel_frames(&mut self, sample: &Sample, places: &mut Vec<Place>) {
        let mut in_kernel = false;
        let mut add = |address: u64| {
            // The first is the sampled instruction, the others are where calls return to.
            let address = if places.is_empty() { address } else { address.wrapping_sub(1) };
            let module = Some(self.stacks.label(KERNEL, self.sink));
            self.kernel.insert(address);
            places.push(Place { module, address });
        };
        for &entry in &sample.callchain {
            match entry {
                CONTEXTS.. => in_kernel = entry == CONTEXT_KERNEL,
                _ if in_kernel => add(entry),
                _ => {}
            }
        }
        if places.is_empty()
            && let Some(ip) = sample.ip.filter(|ip| *ip >= KERNEL_START)
        {
            let module = Some(self.stacks.label(KERNEL, self.sink));
            self.kernel.insert(ip);
            places.push(Place { module, address: ip });
        }
    }

    /// The names of modules without a file, those of the kernel's functions among them.
    pub fn names(&self, kernel: Option<&KernelNames>) -> Vec<LabelNames> {
        let of_kernel = kernel.map(KernelNames::functions).unwrap_or_default();
        [(KERNEL, of_kernel), (UNSEEN, Vec::new()), (OFF, self.off.names())]
            .into_iter()
            .filter_map(|(label, functions)| {
                let module = self.stacks.known_label(label)?;
                let standing = NAMES.into_iter().filter(|(_, of, _)| *of == label);
                let standing = standing.map(|(address, _, name)| (address, 1, name.to_owned()));
                Some(LabelNames { module, functions: standing.chain(functions).collect() })
            })
            .collect()
    }

    /// Reports all threads, and CPU time that no sample stands for, as rows of its own.
    pub fn finish(&mut self, remainder: Remainder) {
        let parts = [
            (remainder.kernel, KERNEL, standing_for::HIDDEN_KERNEL),
            (remainder.lost, UNSEEN, standing_for::LOST),
            (remainder.unsampled, UNSEEN, standing_for::UNSAMPLED),
        ];
        let times = |ns: u64| (ns + self.period / 2) / self.period.max(1);
        let rest: u64 = parts.iter().map(|(ns, ..)| times(*ns) * self.period).sum();
        let serial = self.threads.finish(rest, self.sink);
        for (ns, label, address) in parts {
            for _ in 0..times(ns) {
                let module = Some(self.stacks.label(label, self.sink));
                let stack = [Place { module, address }];
                self.sink.sample(&profile::Sample { serial, event: 0, stack: &stack });
            }
        }
    }
}
