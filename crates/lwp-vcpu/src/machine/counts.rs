//! The counts of threads: reports, and switching counting on and off.

use std::time::{Duration, Instant};

use lwp_mailbox::contexts::{Contexts, Sum};
use lwp_process::Tid;
use lwp_process::kernel_files;
use lwp_run::config::{Config, Plan};
use lwp_run::outcome::{ProcessReport, ThreadReport};

use super::{Account, CodeCaches, Machine, Observers, Tasks};
use crate::lwp::report_kept;

impl Tasks {
    /// A thread is about to end: its CPU time can be asked for now, and not later.
    pub fn note_cpu_time(&mut self, config: &Config, tid: Tid) {
        let now = cpu_time(config, tid);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.account.cpu.1 = now;
        }
    }

    /// Asks for the name of a thread that lives in its image: threads name themselves, and each
    /// other, by prctl(2) and files.
    pub fn note_name(&mut self, tid: Tid) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let file = format!("task/{tid}/comm");
        let Ok(mut name) = kernel_files::bytes(thread.pid, &file) else { return };
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        thread.account.comm = Some(String::from_utf8_lossy(&name).into_owned());
    }
}

impl Account {
    /// Returns the thread's own name, where it is known, or that of its process.
    pub fn name_in(&self, process: &ProcessReport) -> String {
        self.comm.as_ref().unwrap_or(&process.comm).clone()
    }

    /// The counts while counting was on, given the total.
    fn counted(&self, total: Sum) -> Sum {
        let mut sum = self.kept;
        if self.counting {
            sum.add_sum(total.minus(self.mark));
        }
        sum
    }

    /// CPU time of the thread in its image, which has taken `now` since it was made if it lives and
    /// is to be reported.
    fn cpu_in_image(&self, now: impl FnOnce() -> Option<Duration>) -> Option<Duration> {
        let now = self.cpu.1.or_else(now)?;
        Some(now.saturating_sub(self.cpu.0.unwrap_or_default()))
    }

    /// Switches counting on or off where the total stands at `total`.
    fn switch(&mut self, total: Sum, on: bool) {
        if !on {
            self.kept.add_sum(total.minus(self.mark));
        }
        self.mark = total;
        self.counting = on;
    }
}

/// CPU time that a living thread has taken since it was made, if `config` wants it to be reported.
pub(super) fn cpu_time(config: &Config, tid: Tid) -> Option<Duration> {
    if !config.reports.thread_times {
        return None;
    }
    let text = kernel_files::text(tid, "schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// The counts of a run's threads, and the reports to a recorder.
#[derive(Debug)]
pub struct Counting<'a> {
    /// The configuration of the run.
    pub config: &'a Config,
    /// The contexts, which have the counters.
    pub contexts: &'a mut Contexts,
    /// The threads, with their accounts.
    pub tasks: &'a mut Tasks,
    /// The translations, which say what a counter stands for.
    pub caches: &'a mut CodeCaches,
    /// Reports and recorders.
    pub observers: &'a mut Observers,
}

impl Machine {
    /// Returns the counts of the threads.
    pub fn counting(&mut self) -> Counting<'_> {
        let Self { config, contexts, tasks, caches, observers, .. } = self;
        Counting { config, contexts, tasks, caches, observers }
    }
}

impl Observers {
    /// Takes the time that a thread has used up into the account. It still exists, and is about to
    /// end or to be let go.
    pub fn stop_clock(&mut self, config: &Config, tid: Tid) {
        if config.reports(tid)
            && let Some(clocks) = &mut self.clocks
        {
            clocks.ended(tid);
        }
    }
}

impl Counting<'_> {
    /// Takes a thread out, its counts into its process's report.
    pub fn remove_thread(&mut self, tid: Tid) {
        self.tasks.collect_misses(self.contexts, tid);
        self.caches.learn_from(self.tasks, self.contexts, tid);
        self.report_thread(tid);
        let total = self.thread_sum(tid);
        let Some(thread) = self.tasks.threads.remove(&tid) else { return };
        let kept = thread.account.counted(total);
        let (sampled, cpu) = (
            thread.sampled_totals(self.contexts),
            thread.account.cpu_in_image(|| cpu_time(self.config, tid)),
        );
        let wanted = self.config.reports(tid);
        if let Some(process) = self.tasks.processes.get(&thread.pid).filter(|_| wanted) {
            let report = process.report;
            let thread = ThreadReport {
                tid,
                comm: thread.account.name_in(&self.observers.reports[report]),
                counts: kept.counts(),
                started: thread.account.started,
                ended: Some(Instant::now()),
                sampled,
                cpu,
            };
            self.observers.reports.add_thread(report, thread);
        }
        self.tasks.slots[thread.slot] = 0;
        self.contexts.release(thread.slot);
    }

    /// The reports as they would be if every thread ended now.
    pub fn so_far(&mut self) -> Vec<ProcessReport> {
        let mut live = Vec::new();
        let tids: Vec<Tid> =
            self.tasks.threads.keys().copied().filter(|tid| self.config.reports(*tid)).collect();
        for tid in tids {
            self.tasks.note_name(tid);
            let total = self.thread_sum(tid);
            let Some(thread) = self.tasks.threads.get(&tid) else { continue };
            let Some(process) = self.tasks.processes.get(&thread.pid) else { continue };
            let counts = thread.account.counted(total).counts();
            let (sampled, cpu) = (
                thread.sampled_totals(self.contexts),
                thread.account.cpu_in_image(|| cpu_time(self.config, tid)),
            );
            let report = ThreadReport {
                tid,
                comm: thread.account.name_in(&self.observers.reports[process.report]),
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

    /// Everything that a thread's counters say, corrected.
    pub fn thread_sum(&mut self, tid: Tid) -> Sum {
        let mut sum = Sum::default();
        let Some(thread) = self.tasks.threads.get(&tid) else { return sum };
        sum.add_sum(thread.account.correction);
        let slot = thread.slot;
        let Some(index) = self.tasks.space_index(tid) else { return sum };
        let Some(family) = self.caches.family_of(index) else { return sum };
        if self.config.plan == Plan::Exact {
            self.contexts.context(slot).counters().collect(family.code_cache.counters(), &mut sum);
        }
        sum
    }

    /// Takes what a thread's counters say into its account, because they will be another
    /// translator's.
    pub fn keep_counts(&mut self, tid: Tid, slot: usize) {
        self.caches.learn_from(self.tasks, self.contexts, tid);
        self.take_contexts(tid);
        self.close_report(tid);
        let sum = self.thread_sum(tid);
        self.contexts.context(slot).counters().clear();
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.account.correction = sum;
        }
        self.begin_contexts_anew(tid);
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
        if self.config.samples() {
            report_kept(self, tid);
        }
        self.mark_executions(tid, !on);
        if let Some(mut profiled) = self.tasks.profiled(self.contexts, tid) {
            profiled.switch_counting(!on);
        }
        let total = self.thread_sum(tid);
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        thread.account.switch(total, on);
    }
}
