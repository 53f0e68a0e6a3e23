//! A thread that has a profile, with everything that its countdown needs.

use lwp_dbt::block::Block;
use lwp_dbt::context::{KnownCut, NO_PROCESSOR};
use lwp_dbt::{CachePc, Slot};
use lwp_mailbox::contexts::{Context, Contexts};
use lwp_process::regs::Raw;
use lwp_process::{Tid, Tracees, Vectors};

use super::known::DueFor;
use super::noted::Note;
use super::{KnownCuts, ThreadLwp};
use crate::machine::Tasks;

/// A thread's profile, the cuts that the thread knows, and its context.
#[derive(Debug)]
pub struct Profiled<'t, 'c> {
    pub(super) lwp: &'t mut ThreadLwp,
    pub(super) known_cuts: &'t mut KnownCuts,
    pub(super) context: Context<'c>,
}

impl Tasks {
    /// Returns a thread's profile.
    pub fn lwp(&self, tid: Tid) -> Option<&ThreadLwp> {
        self.threads.get(&tid)?.lwp.as_deref()
    }

    /// Returns a thread's profile, to change it.
    pub fn lwp_mut(&mut self, tid: Tid) -> Option<&mut ThreadLwp> {
        self.threads.get_mut(&tid)?.lwp.as_deref_mut()
    }

    /// Returns a thread with its context, if it has a profile.
    pub fn profiled<'t, 'c>(
        &'t mut self,
        contexts: &'c Contexts,
        tid: Tid,
    ) -> Option<Profiled<'t, 'c>> {
        let thread = self.threads.get_mut(&tid)?;
        Some(Profiled {
            lwp: thread.lwp.as_deref_mut()?,
            known_cuts: &mut thread.lwp_state.known_cuts,
            context: contexts.context(thread.slot),
        })
    }

    /// Takes in what a thread has counted, if it has a profile.
    pub fn lwp_collect(&mut self, contexts: &Contexts, tid: Tid) {
        if let Some(mut profiled) = self.profiled(contexts, tid) {
            profiled.collect_but(None);
        }
    }

    /// Publishes a thread's countdown, if it has a profile.
    pub fn lwp_publish(&mut self, contexts: &Contexts, tid: Tid) {
        if let Some(profiled) = self.profiled(contexts, tid) {
            profiled.lwp.publish(profiled.context);
        }
    }

    /// Takes in the misses that a thread has noted, where it counts them. It executes no translated
    /// code at this moment.
    pub fn collect_misses(&mut self, contexts: &Contexts, tid: Tid) {
        if let Some(profiled) =
            self.profiled(contexts, tid).filter(|it| it.lwp.sampling.tally.is_some())
        {
            profiled.lwp.take_notes(profiled.context, None);
        }
    }

    /// Forgets the misses of a thread: they have been reported for good, or are not wanted.
    pub fn forget_misses(&mut self, tid: Tid) {
        if let Some(tally) = self.lwp_mut(tid).and_then(|lwp| lwp.sampling.tally.as_mut()) {
            tally.forget();
        }
    }

    /// Lets no thread lead itself to cut fragments that it knows, and none keep samples: code has
    /// changed.
    pub fn forget_cuts(&mut self, contexts: &Contexts) {
        for thread in self.threads.values_mut() {
            let context = contexts.context(thread.slot);
            thread.lwp_state.known_cuts.forget(context);
            if let Some(lwp) = &mut thread.lwp {
                lwp.sampling.kept.stop(context);
            }
        }
    }
}

impl Profiled<'_, '_> {
    /// Takes in what the thread has counted, but for the data cache accesses of the instruction at
    /// `but`, which is about to retire.
    pub(super) fn collect_but(&mut self, but: Option<u64>) {
        let processor = self.context.get(Slot::Processor);
        if processor != NO_PROCESSOR {
            // The segment's limit has the node in its upper bits.
            self.lwp.unit.surroundings.core = processor as u8;
        }
        self.lwp.collect_but(self.context, self.known_cuts, but);
    }

    /// An instruction of the thread `tid` is about to be executed natively.
    pub fn about_to_step(&mut self, tracees: &dyn Tracees, tid: Tid, regs: &Raw) {
        self.lwp.cache.about_to_step(
            || tracees.extended_state(tid).ok().map(Vectors::within),
            tid,
            self.context,
            regs,
        );
    }

    /// Takes over from a thread that has led itself to a cut fragment, as if the host had.
    pub fn take_over(&mut self) {
        let address = self.context.get(Slot::LwpCut);
        if address != 0 {
            self.context.set(Slot::LwpCut, 0);
            self.lwp.cut = self.known_cuts.at(self.context, address).cloned();
        }
    }

    /// Lets the thread lead itself to its cut fragment at `head`, on a side of its address space:
    /// the first instructions of a block, which are `block`. It goes on at `next` by itself, if
    /// that is there. False where it cannot, or could before.
    pub(super) fn know_cut(
        &mut self,
        side: usize,
        block: &Block,
        (head, next): (CachePc, Option<CachePc>),
        event: DueFor,
    ) -> bool {
        let Some(cut) = &self.lwp.cut else { return false };
        let Some(known) = cut.known(block, head, event, &self.lwp.selection()) else {
            return false;
        };
        let known = KnownCut { next: next.map_or(0, |next| next.0), ..known };
        self.known_cuts.remember(self.context, side, known, cut.clone())
    }

    /// Returns the event that the thread has noted and not recorded yet.
    pub(super) fn note(&self) -> Option<Note> {
        Note::of(self.context)
    }

    /// A repeated string instruction at the end of the thread's cut fragment, if it has begun, has
    /// come as far as `regs` say, or as the context says where they are left out.
    pub(super) fn repeated(&mut self, tid: Tid, regs: Option<&Raw>) {
        let Some(pc) = self.lwp.end_of_cut() else { return };
        let now = match regs {
            Some(regs) => [regs.rcx, regs.rsi, regs.rdi],
            None => [Slot::Rcx, Slot::Rsi, Slot::Rdi].map(|slot| self.context.get(slot)),
        };
        self.lwp.cache.repeated(tid, self.context, pc, now);
    }

    /// Makes room for other samples than those that the thread has kept, which have been reported.
    pub(super) fn make_room(self) {
        self.lwp.sampling.kept.make_room(self.context);
    }

    /// Restarts the thread's sampling: all that it has sampled has been reported for good.
    pub fn restart_sampling(&mut self) {
        let [high, low] = self.lwp.since_published(self.context);
        if let Some(sampler) = &mut self.lwp.sampling.sampler {
            sampler.restart(high, low);
        }
    }

    /// Counting of sampled events, and of misses, is being switched. The misses that a running
    /// thread has noted and nobody has taken in come after the switch.
    pub fn switch_counting(&mut self, off: bool) {
        let [high, low] = self.lwp.since_published(self.context);
        if let Some(sampler) = &mut self.lwp.sampling.sampler {
            sampler.switch(high, low, off);
        }
        if let Some(tally) = &mut self.lwp.sampling.tally {
            tally.switch(off);
        }
    }
}
