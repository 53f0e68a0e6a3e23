//! A process that runs already: sampled, and otherwise left alone.
//!
//! Nothing of it is stopped, and no call of it is interrupted: an event is opened for each of its
//! threads. The events end with this process, however that ends.
//!
//! Only where functions of an interpreter or whole stacks are to be read, lwp itself stops a thread
//! that runs for a moment for each sample: whatever becomes of lwp, no signal is left behind.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lwp_perf::{Record, Rings};
use lwp_process::maps::Status;
use lwp_process::{spawn::threads_of, sys};
use lwp_vcpu::Control;

use crate::address_space::Mapped;
use crate::attended::{Attended, Ends, Subject, Times, process};
use crate::clocks::{Clocks, ThreadClock};
use crate::front::Front;
use crate::launch::in_tracer;
use crate::off_cpu::Spans;
use crate::samples::Samples;
use crate::source::Source;
use crate::stops;
use crate::{Error, Mechanism, Sampling};

/// A process that ran already, and is sampled from now on.
#[derive(Debug)]
pub struct Attached<'a> {
    sampling: &'a Sampling,
    pid: i32,
    process: OwnedFd,
    started: Instant,
    subject: Subject,
    children: bool,
    /// None where threads are stopped for samples and switches are not seen.
    rings: Option<Rings>,
    threads: Vec<i32>,
    /// Records that came while its threads were looked for.
    records: Vec<(u64, Record)>,
}

/// The time in which the record of a new thread comes.
const RECORD_COMES: Duration = Duration::from_millis(2);

impl<'a> Attached<'a> {
    /// Begins to sample a process, with the children that it makes if `children`.
    ///
    /// # Errors
    ///
    /// There is no such process, or the kernel refuses to sample it.
    pub fn to(sampling: &'a Sampling, pid: i32, children: bool) -> Result<Self, Error> {
        let mut attached = Self {
            sampling,
            pid,
            process: process(pid)?,
            started: Instant::now(),
            subject: Subject::Stranger(Clocks::begin(&[pid], children)),
            children,
            rings: match sampling.mechanism() {
                Mechanism::Events => Some(sampling.attached(children)?),
                _ if sampling.sees_switches() => Some(sampling.switch_records(children)?),
                _ => None,
            },
            threads: Vec::new(),
            records: Vec::new(),
        };
        if let Some(mut rings) = attached.rings.take() {
            attached.add_threads(&mut rings)?;
            attached.rings = Some(rings);
        }
        Ok(attached)
    }

    /// Begins to sample one thread of a process, and nothing that it makes.
    ///
    /// # Errors
    ///
    /// There is no such thread, or the kernel refuses to sample it.
    pub fn to_thread(sampling: &'a Sampling, pid: i32, tid: i32) -> Result<Self, Error> {
        let mut rings = sampling.one_thread()?;
        rings.add_thread(tid)?;
        if rings.is_empty() {
            return Err(Error::NoThread(tid));
        }
        Ok(Self {
            sampling,
            pid,
            process: process(pid)?,
            started: Instant::now(),
            subject: Subject::Thread(ThreadClock::begin(pid, tid).ok_or(Error::NoThread(tid))?),
            children: false,
            rings: Some(rings),
            threads: vec![tid],
            records: Vec::new(),
        })
    }

    /// Opens events for all threads. A thread that is made meanwhile has its maker's events if that
    /// had some, which a record says; otherwise the list shows it.
    fn add_threads(&mut self, rings: &mut Rings) -> Result<(), Error> {
        loop {
            let listed = threads_of(self.pid).map_err(|_| Error::NoProcess(self.pid))?;
            if !self.threads.is_empty() {
                // The record may come a little later than the list shows the thread.
                std::thread::sleep(RECORD_COMES);
            }
            rings.take(&mut self.records);
            let inherited: BTreeSet<i32> = self.records.iter().filter_map(made).collect();
            let known = |tid: &i32| self.threads.contains(tid) || inherited.contains(tid);
            let new: Vec<i32> = listed.into_iter().filter(|tid| !known(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                rings.add_thread(tid)?;
                self.threads.push(tid);
            }
        }
        match rings.is_empty() {
            true => Err(Error::NoProcess(self.pid)),
            false => Ok(()),
        }
    }

    /// Samples until the process ends or the end is asked for, and reports to `sink`. If `front` is
    /// there, it is the process in front of this one.
    ///
    /// # Errors
    ///
    /// The kernel's clocks cannot be read, or the process may not be traced where it has to be.
    pub fn record(
        self,
        control: Control,
        front: Option<&Front>,
        sink: &mut dyn Spans,
    ) -> Result<Times, Error> {
        match self.sampling.mechanism() {
            Mechanism::Events => self.sampled(&control, front, sink),
            Mechanism::Stops | Mechanism::Traps => {
                in_tracer(move || self.sampled(&control, front, sink))
            }
        }
    }

    fn sampled(
        self,
        control: &Control,
        front: Option<&Front>,
        sink: &mut dyn Spans,
    ) -> Result<Times, Error> {
        let Self { sampling, pid, mut threads, mut records, .. } = self;
        let mut samples = Samples::new(command_of(pid), sampling, sink);
        let source = match (sampling.mechanism(), self.rings) {
            (Mechanism::Events, Some(rings)) => Source::Rings(Box::new(rings)),
            (_, rings) => {
                let traced = stops::attach(pid, sampling.stops(self.children), rings)?;
                threads = stops::threads(&traced);
                // What threads are made is seen by their stops.
                records.retain(|(_, record)| matches!(record, Record::Switch { .. }));
                Source::Stops(Box::new(traced))
            }
        };
        let now = crate::now_ns();
        for tid in threads.iter().filter(|_| sampling.sees_switches()) {
            samples.off.threads.found((pid, *tid), now);
        }
        found(pid, threads, &mut samples);
        samples.begin(records);
        let mut attended = Attended {
            subject: self.subject,
            source,
            sampling,
            control,
            started: self.started,
            ends: Ends::default(),
            sum: None,
            front,
        };
        attended.run(Some(&self.process), &mut samples)?;
        attended.finish(samples, None)
    }
}

/// The thread that was made, if a record says that one was.
fn made((_, record): &(u64, Record)) -> Option<i32> {
    match record {
        Record::Fork { pid_tid, .. } => Some(pid_tid.1.cast_signed()),
        _ => None,
    }
}

/// Takes in what a process with these threads has by now: their names, and its mappings.
pub(crate) fn found(pid: i32, threads: Vec<i32>, samples: &mut Samples<'_>) {
    samples.threads.found(pid, threads.into_iter().map(|tid| (tid, name_of(pid, tid))));
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    for mapped in maps.split(|byte| *byte == b'\n').filter_map(Mapped::of_line) {
        samples.threads.space(pid).map(mapped);
    }
}

/// The files that a process executes code of.
pub fn code_files(pid: i32) -> Vec<PathBuf> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps.split(|byte| *byte == b'\n').filter_map(Mapped::of_line);
    lines.filter_map(|mapped| mapped.file().map(Path::to_owned)).collect()
}

/// Says why this process may not trace another one, if that shows without doing it.
pub fn untraceable(pid: i32) -> Option<String> {
    let status = Status::read(pid);
    match status.number("TracerPid:") {
        Some(0) => {}
        Some(tracer) => return Some(format!("process {tracer} traces process {pid} already")),
        None => return None,
    }
    // To read its memory takes the same permission. Nothing is there to be read.
    let denied = sys::read_memory(pid, 0, &mut [0]) == Err(sys::Errno(libc::EPERM));
    denied.then(|| format!("process {pid} may not be traced"))
}

/// The name of a thread.
fn name_of(pid: i32, tid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// The command line of a process.
fn command_of(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}
