//! The rows of a run on the virtual CPU.
//!
//! The virtual CPU reports what there is, at every tick and in the end: images of processes and
//! their threads, since when and until when. What has happened since the report before is told in
//! its order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use lwp_vcpu::{Outcome, ProcessReport, Sampling, ThreadReport};

use super::events::Columned;
use super::switches::{Rows, Switches, combined};
use crate::output::Output;
use crate::rows::{Columns, Note, TrackRow};
use crate::track::options::Options;

/// A thread of an image: numbers may be used again.
pub(super) type Key = (i32, Instant);

/// State of the output about one program image.
#[derive(Default)]
struct Image {
    /// Threads in the order in which they started: their numbers are the places, from 1.
    threads: Vec<Key>,
    /// Their counts at the tick before, one row a specification.
    seen: BTreeMap<Key, Rows>,
    /// Those whose end was printed.
    ended: BTreeSet<Key>,
    /// True if the fork that made it was printed.
    announced: bool,
    /// True if its totals were.
    over: bool,
}

impl Image {
    /// The number of thread `key`; 1, if it was never seen.
    fn number(&self, key: impl Fn(&Key) -> bool) -> i32 {
        let place = self.threads.iter().position(key).unwrap_or(0);
        i32::try_from(place + 1).unwrap_or(i32::MAX)
    }
}

/// An event of the run. Events of the same time are printed in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happened {
    /// The thread with this place in the report left its image.
    Ended(usize),
    /// The image was left, by exec or exit.
    Over,
    /// The image's process was made by fork.
    Forked,
    /// A thread came into the image.
    Started(usize),
}

/// Prints rows.
pub(super) struct Printer<'a> {
    options: &'a Options,
    columns: Columns,
    specs: &'a [Columned],
    sampling: &'a [Sampling],
    switches: Switches,
    pub(super) output: Output,
    started: Instant,
    /// By place in the list of reports.
    images: BTreeMap<usize, Image>,
    /// Something was reported that makes the run fail.
    pub(super) failed: bool,
    /// All samples that were asked for are printed, and nothing else is to follow.
    pub(super) enough: bool,
}

fn key(thread: &ThreadReport) -> Key {
    (thread.tid, thread.started)
}

impl<'a> Printer<'a> {
    pub(super) fn new(
        options: &'a Options,
        specs: &'a [Columned],
        sampling: &'a [Sampling],
        output: Output,
    ) -> Self {
        Self {
            options,
            columns: options.columns(),
            specs,
            sampling,
            switches: Switches::default(),
            output,
            started: Instant::now(),
            images: BTreeMap::new(),
            failed: false,
            enough: false,
        }
    }

    /// Returns whether the report at `index` is asked for and has counts.
    fn wanted(&self, reports: &[ProcessReport], index: usize) -> bool {
        self.asked_for(reports, index) && reports[index].uncounted.is_none()
    }

    /// Returns whether the report at `index` is asked for: with -f every process, with -e every
    /// image.
    fn asked_for(&self, reports: &[ProcessReport], index: usize) -> bool {
        let report = &reports[index];
        let first = reports.first().is_some_and(|first| first.pid == report.pid);
        let later = reports[..index].iter().any(|other| other.pid == report.pid);
        (self.options.follow_fork || first) && (self.options.follow_exec || !later)
    }

    /// Prints what has happened, and what every living thread has counted since the tick before.
    pub(super) fn tick(&mut self, reports: &[ProcessReport]) {
        let now = Instant::now();
        self.tell(reports, false);
        for (index, report) in reports.iter().enumerate() {
            if !self.wanted(reports, index) {
                continue;
            }
            for thread in report.threads.iter().filter(|thread| thread.ended.is_none()) {
                let now_counted = self.counted(thread);
                let image = self.images.entry(index).or_default();
                let lwp = image.number(|known| *known == key(thread));
                let fresh = fresh(image.seen.entry(key(thread)).or_default(), &now_counted);
                self.rows(now, report.pid, lwp, "tick", &fresh);
            }
        }
    }

    /// Prints what is not printed yet at the end of the run.
    pub(super) fn finish(&mut self, outcome: &Outcome) {
        for (index, report) in outcome.processes.iter().enumerate() {
            if let Some(reason) = &report.uncounted
                && self.asked_for(&outcome.processes, index)
            {
                lwp_terminal::say!("cputrack: process {} was not counted: {reason}", report.pid);
                self.failed = true;
            }
        }
        if !self.enough {
            self.tell(&outcome.processes, true);
        }
    }

    /// Prints what has happened and was not printed, in its order. With `finished` all is over.
    fn tell(&mut self, reports: &[ProcessReport], finished: bool) {
        let mut told: Vec<(Instant, Happened, usize)> = Vec::new();
        for index in 0..reports.len() {
            if self.wanted(reports, index) {
                self.look(reports, index, finished, &mut told);
            }
        }
        told.sort();
        for (at, happened, index) in told {
            let report = &reports[index];
            match happened {
                Happened::Started(place) => self.started(report, index, &report.threads[place]),
                Happened::Ended(place) => self.ended(at, report, index, &report.threads[place]),
                Happened::Forked => self.forked(reports, index),
                Happened::Over => self.over(at, reports, index),
            }
        }
    }

    /// Collects what has happened to the image at `index`.
    fn look(
        &mut self,
        reports: &[ProcessReport],
        index: usize,
        finished: bool,
        told: &mut Vec<(Instant, Happened, usize)>,
    ) {
        let report = &reports[index];
        let image = self.images.entry(index).or_default();
        if report.maker != 0 && self.options.follow_fork && !image.announced {
            image.announced = true;
            let threads = report.threads.iter().map(|thread| thread.started);
            let at = threads.chain([report.started]).min().unwrap_or(report.started);
            told.push((at, Happened::Forked, index));
        }
        let mut places: Vec<usize> = (0..report.threads.len()).collect();
        // The first thread is the one that has the process's number.
        places.sort_by_key(|place| {
            let thread = &report.threads[*place];
            (thread.tid != report.pid, thread.started)
        });
        for place in places {
            let thread = &report.threads[place];
            if !image.threads.contains(&key(thread)) {
                image.threads.push(key(thread));
                told.push((thread.started, Happened::Started(place), index));
            }
            if let Some(ended) = thread.ended
                && image.ended.insert(key(thread))
            {
                told.push((ended, Happened::Ended(place), index));
            }
        }
        let next = reports[index + 1..].iter().find(|later| later.pid == report.pid);
        let left = report.threads.iter().map(|thread| thread.ended).max().flatten();
        let gone = || !Path::new(&format!("/proc/{}", report.pid)).exists();
        let living = report.threads.iter().any(|thread| thread.ended.is_none());
        let over = match next {
            Some(next) => Some(left.map_or(next.started, |left| left.max(next.started))),
            None if finished || (!living && !report.threads.is_empty() && gone()) => {
                Some(left.unwrap_or_else(Instant::now))
            }
            None => None,
        };
        if let Some(at) = over
            && !std::mem::replace(&mut image.over, true)
        {
            told.push((at, Happened::Over, index));
        }
    }

    fn number(&self, index: usize, thread: Key) -> i32 {
        self.images.get(&index).map_or(1, |image| image.number(|known| *known == thread))
    }

    fn started(&mut self, report: &ProcessReport, index: usize, thread: &ThreadReport) {
        let lwp = self.number(index, key(thread));
        let none = self.nothing();
        if self.options.verbose {
            self.rows(thread.started, report.pid, lwp, "init_lwp", &none);
        }
        if thread.tid != report.pid {
            self.rows(thread.started, report.pid, lwp, "lwp_create", &none);
        }
    }

    fn ended(&mut self, at: Instant, report: &ProcessReport, index: usize, thread: &ThreadReport) {
        let lwp = self.number(index, key(thread));
        let counts = self.counted(thread);
        if self.options.verbose {
            self.rows(at, report.pid, lwp, "fini_lwp", &counts);
        }
        if thread.tid != report.pid {
            self.rows(at, report.pid, lwp, "lwp_exit", &counts);
        }
    }

    /// The row of a fork stands with the thread that made it.
    fn forked(&mut self, reports: &[ProcessReport], index: usize) {
        let child = &reports[index];
        let makes = |(_, report): &(usize, &ProcessReport)| {
            report.pid == child.parent && report.started <= child.started
        };
        let parent = reports[..index].iter().enumerate().rfind(makes);
        let image = parent.and_then(|(index, _)| self.images.get(&index));
        let lwp = image.map_or(1, |image| image.number(|known| known.0 == child.maker));
        self.noted(child.started, child.parent, lwp, "fork", &child.pid.to_string());
    }

    /// The totals of an image, and what was loaded in its place.
    fn over(&mut self, at: Instant, reports: &[ProcessReport], index: usize) {
        let report = &reports[index];
        let next = reports[index + 1..].iter().find(|later| later.pid == report.pid);
        let tag = if next.is_some() { "exec" } else { "exit" };
        let threads = report.threads.iter().map(|thread| self.counted(thread));
        let totals =
            threads.fold(self.nothing(), |sum, rows| combined(&sum, &rows, u64::wrapping_add));
        self.rows(at, report.pid, 1, tag, &totals);
        if let Some(next) = next.filter(|_| self.options.follow_exec) {
            self.noted(at, report.pid, 1, "exec", &format!("'{}'", next.command));
        }
    }

    fn seconds(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.started).as_secs_f64()
    }

    /// A row without counts.
    fn noted(&mut self, at: Instant, pid: i32, lwp: i32, tag: &str, note: &str) {
        let seconds = self.seconds(at);
        let note = Note::Text(note);
        let row = self.columns.track(TrackRow { seconds, pid, lwp, tag, counts: None, note });
        self.output.write(&row);
    }

    /// One row a specification.
    fn rows(&mut self, at: Instant, pid: i32, lwp: i32, tag: &str, counts: &[Vec<u64>]) {
        let seconds = self.seconds(at);
        for (spec, counts) in self.specs.iter().zip(counts) {
            let note = if self.specs.len() > 1 { Note::Text(&spec.text) } else { Note::None };
            let counts = counts.split_first().map(|(tsc, counts)| (*tsc, counts));
            let row = TrackRow { seconds, pid, lwp, tag, counts, note };
            self.output.write(&self.columns.track(row));
        }
    }

    /// Returns a thread's counts since its start: for each specification clock cycles, and then its
    /// events.
    fn there_is(&self, thread: &ThreadReport) -> Rows {
        let ns = thread.cpu.map_or(0, |cpu| u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX));
        let tsc = if ns == 0 { 0 } else { cpc::tsc_cycles(Duration::from_nanos(ns)) };
        let of = |spec: &Columned| {
            let counts = spec.counts.iter().map(|count| count.of(thread, self.sampling));
            std::iter::once(tsc).chain(counts).collect()
        };
        self.specs.iter().map(of).collect()
    }

    fn nothing(&self) -> Rows {
        self.specs.iter().map(|spec| vec![0; spec.counts.len() + 1]).collect()
    }

    /// Returns a thread's counts, less those of the times in which its counters were stopped.
    fn counted(&self, thread: &ThreadReport) -> Rows {
        self.switches.counted(key(thread), self.there_is(thread))
    }

    /// Lets the counters of a living thread run or stand still. False: there is no such thread, or
    /// they do so already.
    pub(super) fn switch(&mut self, reports: &[ProcessReport], tid: i32, running: bool) -> bool {
        let wanted = |index: &usize| self.wanted(reports, *index);
        let mut threads =
            (0..reports.len()).filter(wanted).flat_map(|index| &reports[index].threads);
        let found = threads.find(|thread| thread.tid == tid && thread.ended.is_none());
        let Some(thread) = found else { return false };
        let now = self.there_is(thread);
        self.switches.switch(key(thread), now, running)
    }
}

/// Returns the amount by which each number of `now` exceeds `seen`, and raises `seen` to `now`.
/// Counters are read while they run, so one may be behind for a moment; it then counts from where
/// it was.
fn fresh(seen: &mut Rows, now: &[Vec<u64>]) -> Rows {
    seen.resize(now.len(), Vec::new());
    let rows = seen.iter_mut().zip(now);
    rows.map(|(seen, now)| {
        seen.resize(now.len(), 0);
        let fresh = |(seen, now): (&mut u64, &u64)| {
            let before = std::mem::replace(seen, (*seen).max(*now));
            *seen - before
        };
        seen.iter_mut().zip(now).map(fresh).collect()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_never_run_backwards() {
        let mut seen = Vec::new();
        assert_eq!(fresh(&mut seen, &[vec![5, 9]]), [[5, 9]]);
        assert_eq!(fresh(&mut seen, &[vec![4, 10]]), [[0, 1]]);
        assert_eq!(fresh(&mut seen, &[vec![7, 10]]), [[2, 0]], "sums stay right");
    }
}
