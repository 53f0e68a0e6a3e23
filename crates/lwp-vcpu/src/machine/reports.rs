//! The reports of a run's processes: separate, or merged into one as processes end.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use lwp_run::outcome::{Counts, ProcessReport, ThreadReport};

/// Reports by number. Where they are folded, the number of a process that has ended is given to
/// another.
#[derive(Debug, Default)]
pub struct Reports {
    list: Vec<ProcessReport>,
    /// The counts of processes that have ended, and the numbers that they had.
    ended: Sum,
    free: Vec<usize>,
    fold: bool,
    /// The first process, for which the sum stands.
    first: Option<ProcessReport>,
}

impl Reports {
    /// No reports yet; whether they are to be folded.
    pub fn new(fold: bool) -> Self {
        Self { fold, ..Self::default() }
    }

    /// Adds a report; its number.
    pub fn add(&mut self, report: ProcessReport) -> usize {
        if self.fold && self.first.is_none() {
            self.first = Some(report.clone());
        }
        match self.free.pop() {
            Some(number) => {
                self.list[number] = report;
                number
            }
            None => {
                self.list.push(report);
                self.list.len() - 1
            }
        }
    }

    /// Nobody asks for this report by its number any more: its process has ended.
    ///
    /// One that was not counted is kept, with the reason why.
    pub fn forget(&mut self, number: usize) {
        let Some(report) = self.list.get_mut(number) else { return };
        if self.fold && report.uncounted.is_none() {
            for thread in std::mem::take(&mut report.threads) {
                self.ended.add(&thread);
            }
            self.free.push(number);
        }
    }

    /// A thread has ended.
    pub fn add_thread(&mut self, number: usize, thread: ThreadReport) {
        let Some(report) = self.list.get_mut(number) else { return };
        match report.threads.first_mut() {
            Some(first) if self.fold => {
                let mut sum = Sum::default();
                sum.add(first);
                sum.add(&thread);
                (first.counts, first.sampled, first.cpu) = (sum.counts, sum.sampled, sum.cpu);
            }
            _ => report.threads.push(thread),
        }
    }

    /// The reports as they are now, with live threads' counts, each behind the number of its
    /// process's report.
    pub fn so_far(&self, live: Vec<(usize, ThreadReport)>) -> Vec<ProcessReport> {
        let mut now = Self {
            list: self.list.clone(),
            ended: self.ended.clone(),
            free: self.free.clone(),
            fold: self.fold,
            first: self.first.clone(),
        };
        for (number, thread) in live {
            now.add_thread(number, thread);
        }
        now.into_list()
    }

    /// Every report, in the order in which processes started; where they are folded, the sum as the
    /// first process's one thread, and then those that were not counted.
    pub fn into_list(mut self) -> Vec<ProcessReport> {
        match self.first.take() {
            Some(first) => self.folded(first),
            None => {
                for report in &mut self.list {
                    report.threads.sort_by_key(|thread| thread.tid);
                }
                self.list
            }
        }
    }

    fn folded(self, first: ProcessReport) -> Vec<ProcessReport> {
        let (mut sum, mut counted) = (self.ended, !self.free.is_empty());
        let mut uncounted = Vec::new();
        for report in self.list {
            match report.uncounted {
                Some(_) => uncounted.push(report),
                None => {
                    counted = true;
                    report.threads.iter().for_each(|thread| sum.add(thread));
                }
            }
        }
        uncounted.sort_by_key(|report| report.started);
        let (tid, comm, started) = (first.pid, first.comm.clone(), first.started);
        let (counts, sampled, cpu) = (sum.counts, sum.sampled, sum.cpu);
        let thread = ThreadReport { tid, comm, counts, started, ended: None, sampled, cpu };
        let whole = counted.then(|| ProcessReport { threads: vec![thread], ..first });
        whole.into_iter().chain(uncounted).collect()
    }
}

/// The counts of several threads together.
#[derive(Clone, Debug, Default)]
struct Sum {
    counts: Counts,
    sampled: Vec<u64>,
    cpu: Option<Duration>,
}

impl Sum {
    fn add(&mut self, thread: &ThreadReport) {
        self.counts += thread.counts;
        self.sampled.resize(self.sampled.len().max(thread.sampled.len()), 0);
        for (sum, passed) in self.sampled.iter_mut().zip(&thread.sampled) {
            *sum = sum.wrapping_add(*passed);
        }
        self.cpu = match (self.cpu, thread.cpu) {
            (Some(sum), Some(time)) => Some(sum + time),
            (sum, time) => sum.or(time),
        };
    }
}

impl Index<usize> for Reports {
    type Output = ProcessReport;
    fn index(&self, number: usize) -> &ProcessReport {
        &self.list[number]
    }
}

impl IndexMut<usize> for Reports {
    fn index_mut(&mut self, number: usize) -> &mut ProcessReport {
        &mut self.list[number]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn process(pid: i32) -> ProcessReport {
        ProcessReport {
            pid,
            parent: 0,
            maker: 0,
            started: Instant::now(),
            command: String::new(),
            comm: format!("p{pid}"),
            threads: Vec::new(),
            uncounted: None,
        }
    }

    fn thread(tid: i32, instructions: u64) -> ThreadReport {
        let counts = Counts { instructions, ..Counts::default() };
        let (started, cpu) = (Instant::now(), Some(Duration::from_millis(instructions)));
        let sampled = vec![instructions, 2 * instructions];
        ThreadReport { tid, comm: String::new(), counts, started, ended: None, sampled, cpu }
    }

    /// Process ids, and instructions, of reports.
    fn shown(list: &[ProcessReport]) -> Vec<(i32, u64)> {
        list.iter().map(|report| (report.pid, report.counts().instructions)).collect()
    }

    /// A first process with two threads, a child that is not counted, and ten others, one after the
    /// other.
    fn run(fold: bool) -> Reports {
        let mut reports = Reports::new(fold);
        let first = reports.add(process(1));
        reports.add_thread(first, thread(5, 1000));
        let native = reports.add(process(2));
        reports[native].uncounted = Some("native".into());
        reports.forget(native);
        for pid in 10..20 {
            let number = reports.add(process(pid));
            reports.add_thread(number, thread(pid, 1));
            reports.forget(number);
        }
        reports.add_thread(first, thread(1, 100));
        reports
    }

    #[test]
    fn folded_reports_take_no_room_and_have_the_same_sum() {
        let folded = run(true);
        assert_eq!(folded.list.len(), 3, "the first, the native one, and one for all others");
        let live = vec![(0, thread(6, 10_000))];
        assert_eq!(shown(&folded.so_far(live.clone())), [(1, 11_110), (2, 0)]);
        let list = folded.into_list();
        assert_eq!(shown(&list), [(1, 1110), (2, 0)]);
        assert_eq!(list[0].threads[0].sampled, [1110, 2220]);
        assert_eq!(list[0].threads[0].cpu, Some(Duration::from_millis(1110)));
        let whole = run(false);
        assert_eq!(whole.so_far(live)[0].threads.len(), 3);
        let list = whole.into_list();
        assert_eq!(list.len(), 12);
        assert_eq!(list[0].threads[0].tid, 1, "in the order of their numbers");
        assert_eq!(shown(&list).iter().map(|(_, n)| n).sum::<u64>(), 1110);
    }

    #[test]
    fn what_was_not_counted_has_no_sum() {
        let mut reports = Reports::new(true);
        let first = reports.add(process(1));
        reports[first].uncounted = Some("native".into());
        assert_eq!(shown(&reports.into_list()), [(1, 0)]);
        assert!(Reports::new(true).into_list().is_empty());
    }
}
