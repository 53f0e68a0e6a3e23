//! `lwp stat -I`: what is counted in each interval, while the program runs.
//!
//! Promise: I8

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use lwp_vcpu::config::Request;
use lwp_vcpu::{Alone, Counts, ExitStatus, Outcome, ProcessReport, ThreadReport};

use crate::requests::Requests;

/// Counts by interval: what there is now, less what there was at the end of the interval before.
#[derive(Debug)]
pub struct Intervals {
    started: Instant,
    /// Start of the interval, from the start.
    from: Duration,
    before: Vec<ProcessReport>,
}

impl Intervals {
    /// Begins the first interval.
    pub fn start() -> Self {
        Self { started: Instant::now(), from: Duration::ZERO, before: Vec::new() }
    }

    /// Ends an interval at which so much had been counted: when that was, from the start, and what
    /// was counted in it.
    pub fn end(&mut self, now: Vec<ProcessReport>) -> (Duration, Outcome) {
        let at = self.started.elapsed();
        let outcome = Outcome {
            alone: Alone::default(),
            status: ExitStatus::Detached,
            processes: difference(&now, &self.before),
            elapsed: at.saturating_sub(self.from),
            user: Duration::ZERO,
            system: Duration::ZERO,
            host: Duration::ZERO,
        };
        self.from = at;
        self.before = now;
        (at, outcome)
    }

    /// Ends an interval every `length`, and hands what was counted to `write`, until `over` is
    /// closed or the run has ended; then returns itself for what is left.
    pub fn run(
        mut self,
        length: Duration,
        requests: &Arc<Requests>,
        reports: &Receiver<Vec<ProcessReport>>,
        over: &Receiver<()>,
        mut write: impl FnMut(Duration, Outcome),
    ) -> Self {
        let mut next = self.started + length;
        while let Err(RecvTimeoutError::Timeout) =
            over.recv_timeout(next.saturating_duration_since(Instant::now()))
        {
            // A late one does not make the next ones crowd.
            next = (next + length).max(Instant::now());
            let asked = requests.current().is_some_and(|run| run.send(Request::Report).is_ok());
            let Some(now) = asked.then(|| reports.recv().ok()).flatten() else { break };
            let (at, outcome) = self.end(now);
            write(at, outcome);
        }
        self
    }
}

/// Returns the counts of each process in `now` less those in `before`, an earlier state of the same
/// run: processes and their threads are only ever added.
fn difference(now: &[ProcessReport], before: &[ProcessReport]) -> Vec<ProcessReport> {
    let mut processes = Vec::new();
    let before: HashMap<_, _> = before.iter().map(|it| ((it.pid, it.started), it)).collect();
    for process in now {
        let earlier = before.get(&(process.pid, process.started));
        let mut process = process.clone();
        if earlier.is_some_and(|earlier| earlier.uncounted.is_some()) {
            // It has been named.
            continue;
        }
        for thread in &mut process.threads {
            let known = earlier.and_then(|earlier| same(&earlier.threads, thread));
            if let Some(known) = known {
                thread.counts = since(&thread.counts, &known.counts);
            }
        }
        processes.push(process);
    }
    processes
}

/// Returns the counts between two readings. A block is counted when it is entered, and the part
/// that a signal cut off is taken back: a later reading may be a few instructions lower.
fn since(now: &Counts, before: &Counts) -> Counts {
    let branches = now.branches.saturating_sub(before.branches);
    let conditional = now.conditional.saturating_sub(before.conditional).min(branches);
    let taken = now.conditional_taken.saturating_sub(before.conditional_taken);
    Counts {
        instructions: now.instructions.saturating_sub(before.instructions),
        branches,
        conditional,
        conditional_taken: taken.min(conditional),
        calls: now.calls.saturating_sub(before.calls),
        returns: now.returns.saturating_sub(before.returns),
        indirect: now.indirect.saturating_sub(before.indirect),
    }
}

/// The thread among `threads` that is `thread`. A process may give the number of one that has ended
/// to another.
fn same<'a>(threads: &'a [ThreadReport], thread: &ThreadReport) -> Option<&'a ThreadReport> {
    threads.iter().find(|known| known.tid == thread.tid && known.started == thread.started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::report::samples;

    #[test]
    fn intervals_add_up() {
        let first = samples::outcome().processes;
        let mut second = first.clone();
        second[0].threads[0].counts.instructions += 70;
        let mut third = second.clone();
        third[1].threads[1].counts.instructions += 9;
        let again = ThreadReport { started: Instant::now(), ..third[1].threads[1].clone() };
        third[1].threads.push(again);
        let mut intervals = Intervals::start();
        let counted: Vec<u64> =
            [first, second, third].map(|now| intervals.end(now).1.counts().instructions).to_vec();
        assert_eq!(counted, [3_001_000, 70, 9 + 1_009]);
    }

    #[test]
    fn a_process_is_named_once() {
        let now = samples::outcome().processes;
        let named = |outcome: Outcome| {
            outcome.processes.iter().filter(|process| process.uncounted.is_some()).count()
        };
        let mut intervals = Intervals::start();
        assert_eq!(named(intervals.end(now.clone()).1), 1);
        assert_eq!(named(intervals.end(now).1), 0);
    }
}
