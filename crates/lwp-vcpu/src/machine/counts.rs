//! The counts of threads, and the times at which they count: reports, and switching on and off.

use std::time::{Duration, Instant};

use lwp_ptrace::Tid;

use super::{Machine, Thread};
use crate::config::Plan;
use crate::contexts::Sum;
use crate::cpu_clock::CpuClocks;
use crate::outcome::{ProcessReport, ThreadReport};

impl Machine {
    /// Takes a thread out, its counts into its process's report.
    pub fn remove_thread(&mut self, tid: Tid) {
        self.collect_misses(tid);
        self.learn_from(tid);
        self.report_thread(tid);
        let total = self.thread_sum(tid);
        let Some(thread) = self.tasks.threads.remove(&tid) else { return };
        let kept = self.counted(&thread, total);
        let (sampled, cpu) = (self.sampled_totals(&thread), self.cpu_of(tid, &thread));
        let wanted = self.is_reported(tid);
        if let Some(process) = self.tasks.processes.get(&thread.pid).filter(|_| wanted) {
            let report = process.report;
            let thread = ThreadReport {
                tid,
                comm: self.name_of(&thread, report),
                counts: kept.counts(),
                started: thread.account.started,
                ended: Some(Instant::now()),
                sampled,
                cpu,
            };
            self.observers.reports.add_thread(report, thread);
        }
        self.tasks.slots[thread.slot] = 0;
        if let Some((makers, _)) = thread.moving {
            self.contexts.files.leave(makers);
        }
        self.contexts.release(thread.slot);
    }

    /// Watches the clocks of threads that were running before.
    pub fn watch_clocks(&mut self, tids: impl Iterator<Item = Tid>) {
        self.observers.clocks = Some(CpuClocks::of_running(tids));
    }

    /// Takes the time that a thread has used up into the account. It still exists, and is about to
    /// end or to be let go.
    pub fn stop_clock(&mut self, tid: Tid) {
        if self.is_reported(tid)
            && let Some(clocks) = &mut self.observers.clocks
        {
            clocks.ended(tid);
        }
    }

    /// Returns whether what a thread does is to be reported.
    pub fn is_reported(&self, tid: Tid) -> bool {
        self.config.only_thread.is_none_or(|only| only == tid)
    }

    /// The reports as they would be if every thread ended now.
    pub fn so_far(&mut self) -> Vec<ProcessReport> {
        let mut live = Vec::new();
        let tids: Vec<Tid> =
            self.tasks.threads.keys().copied().filter(|tid| self.is_reported(*tid)).collect();
        for tid in tids {
            self.note_name(tid);
            let total = self.thread_sum(tid);
            let Some(thread) = self.tasks.threads.get(&tid) else { continue };
            let Some(process) = self.tasks.processes.get(&thread.pid) else { continue };
            let counts = self.counted(thread, total).counts();
            let (sampled, cpu) = (self.sampled_totals(thread), self.cpu_of(tid, thread));
            let report = ThreadReport {
                tid,
                comm: self.name_of(thread, process.report),
                counts,
                started: thread.account.started,
                ended: None,
                sampled,
                cpu,
            };
            live.push((process.report, report));
        }
        self.observers.reports.so_far(live)
    }

    /// CPU time that a living thread has taken since it was made, if it is to be reported.
    pub fn cpu_time(&self, tid: Tid) -> Option<Duration> {
        if !self.config.thread_times {
            return None;
        }
        let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }

    /// A thread is about to end: its CPU time can be asked for now, and not later.
    pub fn note_cpu_time(&mut self, tid: Tid) {
        let now = self.cpu_time(tid);
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.account.cpu.1 = now;
        }
    }

    /// Asks for the name of a thread that lives in its image: threads name themselves, and each
    /// other, by prctl(2) and files.
    pub fn note_name(&mut self, tid: Tid) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let Ok(mut name) = std::fs::read(format!("/proc/{}/task/{tid}/comm", thread.pid)) else {
            return;
        };
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        thread.account.comm = Some(String::from_utf8_lossy(&name).into_owned());
    }

    /// A thread's own name, or that of its process, whose report has this number.
    pub fn name_of(&self, thread: &Thread, report: usize) -> String {
        let of_process = || self.observers.reports[report].comm.clone();
        thread.account.comm.clone().unwrap_or_else(of_process)
    }

    /// CPU time of a thread in its image.
    fn cpu_of(&self, tid: Tid, thread: &Thread) -> Option<Duration> {
        let now = thread.account.cpu.1.or_else(|| self.cpu_time(tid))?;
        Some(now.saturating_sub(thread.account.cpu.0.unwrap_or_default()))
    }

    /// The counts of a thread while counting was on, given its total.
    fn counted(&self, thread: &Thread, total: Sum) -> Sum {
        let mut sum = thread.account.kept;
        if thread.account.counting {
            sum.add_sum(total.minus(thread.account.mark));
        }
        sum
    }

    /// Everything that a thread's counters say, corrected.
    pub fn thread_sum(&mut self, tid: Tid) -> Sum {
        let mut sum = Sum::default();
        let Some(thread) = self.tasks.threads.get(&tid) else { return sum };
        sum.add_sum(thread.account.correction);
        let slot = thread.slot;
        let Some(index) = self.tasks.space_index(tid) else { return sum };
        let Some(Some(space)) = self.caches.spaces.get(index) else { return sum };
        let Some(Some(family)) = self.caches.families.get(space.family) else { return sum };
        if self.config.plan == Plan::Exact {
            self.contexts.context(slot).collect(family.code_cache.counters(), &mut sum);
        }
        sum
    }

    /// Takes what a thread's counters say into its account, because they will be another
    /// translator's.
    pub fn keep_counts(&mut self, tid: Tid, slot: usize) {
        self.learn_from(tid);
        self.close_report(tid);
        let sum = self.thread_sum(tid);
        self.contexts.context(slot).clear_counters();
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.account.correction = sum;
        }
    }

    /// Switches counting on or off, for all threads.
    pub fn set_enabled(&mut self, on: bool) {
        self.observers.enabled = on;
        let tids: Vec<Tid> = self.tasks.threads.keys().copied().collect();
        for tid in tids {
            self.switch_counting(tid);
        }
    }

    /// Switches a thread's counting on or off, as is wanted now.
    pub fn switch_counting(&mut self, tid: Tid) {
        let Some(thread) = self.tasks.threads.get(&tid) else { return };
        let on = self.wants_counts(thread.pid, &thread.account.bounds);
        if thread.account.counting == on {
            return;
        }
        self.mark_executions(tid, !on);
        self.switch_sampling(tid, !on);
        self.switch_misses(tid, !on);
        let total = self.thread_sum(tid);
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        if !on {
            thread.account.kept.add_sum(total.minus(thread.account.mark));
        }
        thread.account.mark = total;
        thread.account.counting = on;
    }
}
