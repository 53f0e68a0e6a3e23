//! The LWP units of threads, and what retires in them.

use lwp_code::family::Family;
use lwp_code::space::Space;
use lwp_mailbox::contexts::{Context, Contexts};
use lwp_process::{Tid, Tracees};
use lwp_run::config::Config;

use super::memory::TraceeMemory;
use super::{Executed, Profiled, instruction, sampler};
use crate::machine::{CodeCaches, Counting, Machine, Observers, Processor, Tasks};

/// The LWP units of a run's threads.
#[derive(Debug)]
pub struct Profiling<'a> {
    /// The configuration of the run.
    pub config: &'a Config,
    /// The contexts, which have the countdowns.
    pub contexts: &'a mut Contexts,
    /// The threads, with their units.
    pub tasks: &'a mut Tasks,
    /// The translations.
    pub caches: &'a mut CodeCaches,
    /// Reports and recorders.
    pub observers: &'a mut Observers,
    /// The processor shown.
    pub processor: &'a Processor,
    /// Control of the threads.
    pub tracees: &'a dyn Tracees,
}

impl Machine {
    /// Returns the LWP units of the threads.
    pub fn profiling(&mut self) -> Profiling<'_> {
        let Self { config, contexts, tasks, caches, observers, processor, tracees, .. } = self;
        Profiling { config, contexts, tasks, caches, observers, processor, tracees: &**tracees }
    }
}

impl Profiling<'_> {
    /// Returns the counts of the threads.
    pub(super) fn counting(&mut self) -> Counting<'_> {
        let Self { config, contexts, tasks, caches, observers, .. } = self;
        Counting { config, contexts, tasks, caches, observers }
    }

    /// The address space and family of a thread.
    pub(super) fn space_of(&mut self, tid: Tid) -> Option<(&mut Space, &mut Family)> {
        self.caches.space_of(self.tasks, tid)
    }

    /// A thread's context.
    pub(super) fn context(&self, tid: Tid) -> Option<Context<'_>> {
        self.tasks.context(self.contexts, tid)
    }

    /// One instruction of a thread has been executed by the host, and not been charged.
    pub fn lwp_executed(&mut self, tid: Tid, pc: u64, next: u64) {
        if self.tasks.lwp(tid).is_none() {
            return;
        }
        let executed = instruction::classify(tid, pc, next);
        self.tasks.lwp_collect(self.contexts, tid);
        if let Some(lwp) = self.tasks.lwp_mut(tid) {
            lwp.unit.surroundings.look_for_core(tid);
        }
        self.lwp_retire(tid, &executed);
        if self.config.samples()
            && let Ok(mut regs) = self.tracees.regs(tid)
        {
            regs.0.rip = pc;
            self.counting().take_overdue(tid, sampler::stopped_with(&regs));
        }
        self.tasks.lwp_publish(self.contexts, tid);
    }

    /// The thread may read the time stamp counter no longer, or again.
    pub fn lwp_stamp_anew(&mut self, tid: Tid) {
        self.tasks.lwp_collect(self.contexts, tid);
        let stamp = self.processor.stamp();
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let stamp = thread.readable(stamp);
        if let Some(lwp) = &mut thread.lwp {
            lwp.unit.surroundings.stamp = stamp;
        }
        self.tasks.lwp_publish(self.contexts, tid);
    }

    /// Reports an instruction that has been executed and cannot be restarted: a record that meets a
    /// fault now is lost.
    pub(super) fn lwp_retire(&mut self, tid: Tid, executed: &Executed) {
        let stamp = self.processor.stamp();
        let stamp = self.tasks.threads.get(&tid).map_or(stamp, |thread| thread.readable(stamp));
        self.tasks.filter_samples_at(self.config, self.caches, tid, executed.ip);
        if let Some(Profiled { lwp, context, .. }) = self.tasks.profiled(self.contexts, tid) {
            lwp.unit.surroundings.stamp = stamp;
            lwp.cache.finish_accesses(context, executed.ip);
            if lwp.retire(&mut TraceeMemory::new(tid), executed).is_err() {
                lwp.unit.model.await_nothing();
            }
        }
        self.tasks.lwp_interrupt(self.tracees, tid, self.config.lwp.as_ref());
    }
}
