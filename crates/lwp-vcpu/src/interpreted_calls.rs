//! Calls of interpreted functions, counted exactly.
//!
//! If an interpreter enters its evaluator once for each call, or executes a certain operation for
//! it, the called function is a value in memory: the address of its code object. Translated code
//! counts such values as it counts the targets of indirect calls ([`lwp_dbt::Value`]). The host
//! reads the names from the interpreter's memory when a code object ends and when the thread ends.
//! So if another code object gets the same address later, it counts as another function.

use lwp_code::interpreter_entries::{Evaluator, compiles};
use lwp_dbt::context::calls::call_site;
use lwp_dbt::{AppPc, FragmentId};
use lwp_languages::counting::Counted;
use lwp_mailbox::contexts::Context;
use lwp_process::Tid;

use crate::machine::Counting;

/// A place at which calls are counted: its fragment, the first of the fragment's counters, and its
/// first instruction.
#[derive(Clone, Copy, Debug)]
struct Site {
    id: FragmentId,
    first: u32,
    pc: AppPc,
}

/// The number of times that the counters of a thread have for `value`, where the first of them is
/// `first`.
fn counted_for(context: Context<'_>, first: u32, value: u64) -> i64 {
    let mut count = context.counters().calls_to(call_site(first), value);
    if context.counters().get(first) == !value {
        count = count.wrapping_add(context.counters().get(first + 1));
    }
    count.cast_signed()
}

impl Counting<'_> {
    /// The instruction at `pc` is about to be executed, with which a code object may end, or all of
    /// them: whatever has been counted for it is a function's that has no other chance to be named.
    pub fn end_code(&mut self, tid: Tid, pc: u64, code: u64) {
        let Some((_, family)) = self.caches.space_of(self.tasks, tid) else { return };
        let Some(evaluator) = family.modules.evaluators.ending_at(pc).cloned() else { return };
        let told = family.modules.evaluators.ending_sites(&family.code_cache, pc);
        let all = family.modules.evaluators.sites(&family.code_cache).to_vec();
        let sites = all.into_iter().map(|(id, first)| {
            let pc = family.code_cache.fragment(id).pc;
            Site { id, first, pc }
        });
        let sites: Vec<Site> = sites.filter(|it| evaluator.entries().contains(&it.pc)).collect();
        let space = self.tasks.space_index(tid);
        if let Some(context) = self.tasks.context(self.contexts, tid) {
            told.iter().for_each(|counter| context.counters().set(*counter, !code));
        }
        let threads = self.tasks.threads.keys().copied();
        let tids: Vec<Tid> = threads.filter(|it| self.tasks.space_index(*it) == space).collect();
        let codes = match evaluator.end_of_all() == Some(AppPc(pc)) {
            true => self.called_at(&sites, &tids),
            false => vec![code],
        };
        for code in codes {
            self.end_one(tid, &evaluator, code, (&sites, &tids));
        }
    }

    /// The code objects that threads have called at these places.
    fn called_at(&self, sites: &[Site], tids: &[Tid]) -> Vec<u64> {
        let mut codes = Vec::new();
        for tid in tids {
            let Some(executions) = self.tasks.executions(self.contexts, self.caches, *tid) else {
                continue;
            };
            let kept = self.tasks.threads.get(tid).map(|it| it.account.profile.kept_calls());
            let its = executions.calls().chain(kept.into_iter().flatten());
            let its = its.map(|(target, _)| target);
            codes.extend(its.filter(|it| sites.iter().any(|site| site.id == it.0)).map(|it| it.1));
        }
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// A code object ends, which threads have called at these places.
    fn end_one(
        &mut self,
        tid: Tid,
        evaluator: &Evaluator,
        code: u64,
        (sites, tids): (&[Site], &[Tid]),
    ) {
        let mut function = None;
        for &other in tids {
            for site in sites {
                let Some(thread) = self.tasks.threads.get(&other) else { continue };
                let counted = counted_for(self.contexts.context(thread.slot), site.first, code);
                if !thread.account.profile.has_called(site.id, code, counted) {
                    continue;
                }
                let read = || self.function_of(tid, evaluator, code);
                let call = function.get_or_insert_with(read).map(|it| (site.pc.0, it));
                if let Some(thread) = self.tasks.threads.get_mut(&other) {
                    thread.account.profile.end_target((site.id, code), counted, call);
                }
            }
        }
    }

    /// The number of the function that a code object is of.
    fn function_of(&mut self, tid: Tid, evaluator: &Evaluator, code: u64) -> Option<u32> {
        if matches!(evaluator.counted(), Counted::Php(_)) {
            let (space, family) = self.caches.space_of(self.tasks, tid)?;
            if compiles((space, family), tid) {
                return None;
            }
        }
        let languages = &mut self.observers.call_stacks.languages;
        languages.number(tid, |memory| evaluator.counted().function(evaluator.bias(), code, memory))
    }

    /// Reads the names of the functions that a thread has called, as long as its process is there.
    pub fn name_calls(&mut self, tid: Tid) {
        if !self.observers.counts_places() {
            return;
        }
        let Some((_, family)) = self.caches.space_of(self.tasks, tid) else { return };
        if family.modules.evaluators.sites(&family.code_cache).is_empty() {
            return;
        }
        let Some(executions) = self.tasks.executions(self.contexts, self.caches, tid) else {
            return;
        };
        for ((id, code), _) in executions.calls() {
            let Some((_, family)) = self.caches.space_of(self.tasks, tid) else { return };
            let pc = family.code_cache.fragment(id).pc.0;
            let Some(evaluator) = family.modules.evaluators.entered_at(pc).cloned() else {
                continue;
            };
            let function = self.function_of(tid, &evaluator, code);
            if let (Some(function), Some(thread)) = (function, self.tasks.threads.get_mut(&tid)) {
                thread.account.profile.named.insert((id, code), (pc, function));
            }
        }
    }
}
