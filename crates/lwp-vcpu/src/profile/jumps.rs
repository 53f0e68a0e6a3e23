//! Targets of indirect calls, of stubs of linkage tables, and of single-stepped branches.

use iced_x86::Instruction;
use lwp_code::family::{Family, RestoredCode, UnitId};
use lwp_code::origins::block_end;
use lwp_code::words::{last_of, look_at_words};
use lwp_dbt::context::calls::call_site_counter;
use lwp_dbt::{CachePc, Counters, EventDeltas, FragmentId, PcSource, Role, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::Tid;
use lwp_run::sink::{BlockEnd, Jump, Place};
use rustc_hash::FxHashMap;

use super::{Executions, Profiler, positive};
use crate::lwp::{give_back, rest_of};
use crate::machine::{Counting, Observers, Tasks};
use crate::server::Answer;
use crate::state::View;

impl Executions {
    /// The indirect call at the end of `fragment` led to `target` so much more often than was
    /// counted.
    pub fn called(&mut self, fragment: FragmentId, target: u64, times: i64) {
        let count = self.calls.entry((fragment, target)).or_default();
        *count = count.wrapping_add(times);
    }

    /// The branch at `from`, which counts `deltas`, was executed alone, and led to `to`.
    pub fn jumped(&mut self, from: u64, to: u64, deltas: EventDeltas) {
        if deltas.branches == 0 {
            return;
        }
        let taken = deltas.conditional == 0 || deltas.conditional_taken != 0;
        *self.jumps.entry((from, to, block_end(deltas), taken)).or_default() += 1;
    }
}

impl Profiler {
    /// Returns whether indirect calls are counted by where they lead.
    pub fn wants_calls(&self) -> bool {
        self.sink.wants_calls()
    }

    /// Everything that is known of where branches led.
    pub(super) fn jumps(
        &mut self,
        family: &mut Family,
        pid: i32,
        executions: &Executions,
    ) -> Vec<Jump> {
        let mut places: FxHashMap<u64, Place> = FxHashMap::default();
        let mut out = Vec::new();
        for (&(from, to, end, taken), &count) in &executions.jumps {
            let [from, to] = [from, to].map(|address| {
                *places.entry(address).or_insert_with(|| self.place(family, pid, address))
            });
            out.push(Jump { from, to, end, alone: true, taken, times: positive(count) });
        }
        let mut sites: FxHashMap<FragmentId, Option<Place>> = FxHashMap::default();
        let mut code = RestoredCode::default();
        for (&(fragment, to), &count) in &executions.calls {
            let pc = family.code_cache.fragment(fragment).pc.0;
            if family.modules.evaluators.entered_at(pc).is_some() {
                // A code object that nobody could read.
                continue;
            }
            let site = *sites.entry(fragment).or_insert_with(|| {
                let (unit, last) = last_instruction(&mut code, family, fragment)?;
                let module = Some(self.module(family, pid, unit));
                Some(Place { module, address: last.ip() })
            });
            let Some(from) = site else { continue };
            let to = *places.entry(to).or_insert_with(|| self.place(family, pid, to));
            let (end, times) = (BlockEnd::IndirectCall, positive(count));
            out.push(Jump { from, to, end, alone: false, taken: true, times });
        }
        look_at_words(family, pid);
        for (&fragment, &[runs, _]) in &executions.runs {
            let led = family.origins.as_ref().and_then(|origins| origins.words().led(fragment));
            let Some(led) = led else { continue };
            let [from, to] = led.map(|address| {
                *places.entry(address).or_insert_with(|| self.place(family, pid, address))
            });
            let (end, times) = (BlockEnd::IndirectJump, positive(runs));
            out.push(Jump { from, to, end, alone: false, taken: true, times });
        }
        out.retain(|jump| jump.times > 0);
        out.sort_unstable();
        out
    }

    pub(super) fn place(&mut self, family: &mut Family, pid: i32, address: u64) -> Place {
        let unit = family.origins.as_ref().and_then(|origins| origins.unit_at(address));
        let module = unit.map(|unit| self.module(family, pid, unit));
        Place { module, address }
    }
}

/// The unit of a fragment, and the instruction that it ends with.
fn last_instruction(
    code: &mut RestoredCode,
    family: &Family,
    id: FragmentId,
) -> Option<(UnitId, Instruction)> {
    let (unit, bytes) = code.origin_of(family, id)?;
    Some((unit, last_of(family.code_cache.fragment(id).pc, &bytes)?))
}

/// Adds where the indirect calls of the thread with this context led that its counters do not tell
/// of, as its table says.
pub(super) fn add_calls(context: Context<'_>, counters: &Counters, sum: &mut Executions) {
    context.counters().for_each_call(|site, target, count| {
        let counter = call_site_counter(site) as usize;
        if let Some(Role::CallTarget(fragment)) = counters.role(counter) {
            sum.called(fragment, target, count as i64);
        }
    });
}

impl Observers {
    /// Takes an indirect call back that was counted and not made, where a thread leaves translated
    /// code.
    pub fn take_call_back(&self, tasks: &mut Tasks, tid: Tid, view: &View) {
        if let (Some(target), Some(fragment)) = (view.called, view.fragment) {
            self.note_place(tasks, tid, |places| places.called(fragment, target, -1));
        }
    }
}

/// Makes it possible for a thread to count the call that it asks about. Returns what its context
/// does not say any more: site, target, how often.
fn make_room(context: Context<'_>) -> Vec<(u32, u64, u64)> {
    let (site, target) = (context.get(Slot::CallSite) as u32, context.get(Slot::CallTarget));
    let mut kept = Vec::new();
    if let Some(count) = context.counters().take_call(site, target) {
        let first = call_site_counter(site);
        let [before, times] = [first, first + 1].map(|index| context.counters().get(index));
        context.counters().set(first + 1, 0);
        context.counters().set(first, !target);
        kept.extend([(site, target, count), (site, !before, times)]);
    } else {
        context.counters().for_each_call(|site, target, count| kept.push((site, target, count)));
        context.counters().clear_calls();
    }
    kept
}

impl Counting<'_> {
    /// Reports the files that this thread's process has executed, and that it has generated code:
    /// what names either may be out of reach when it has ended.
    pub fn note_files(&mut self, tid: Tid) {
        if !self.observers.counts_places() {
            return;
        }
        let Some(pid) = self.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
        let Some(index) = self.tasks.space_index(tid) else { return };
        let (Some(Some(space)), Some(profiler)) =
            (self.caches.spaces.get(index), &mut self.observers.profiler)
        else {
            return;
        };
        let Some(Some(family)) = self.caches.families.get_mut(space.family) else { return };
        for unit in space.code.units() {
            if family.origins.as_ref().is_some_and(|origins| origins.has_news(unit)) {
                profiler.module(family, pid, unit);
            }
        }
    }
}

impl Answer<'_> {
    /// A thread cannot count the call that it is about to make: there is no slot, or the call has
    /// led there so often that this becomes its first target. Puts the counts right for the thread
    /// to begin with the call anew. Returns the call's address.
    pub fn calls_full(&mut self) -> Option<u64> {
        let tid = self.cx.tid;
        let after = CachePc(self.context().get(Slot::CallAfter));
        let (mut state, fragment) = self.machine.space_of(tid)?.1.code_cache.state_at(after)?;
        let PcSource::Known(pc) = state.pc else { return None };
        state.called = false;
        let correction = self.machine.counting().unfinished(tid, &state, fragment);
        let selection = self.machine.tasks.lwp(tid).map(|lwp| lwp.selection()).unwrap_or_default();
        let noted = self.machine.profiling().lwp_settle_note(tid, state.countdown, pc.0);
        if let (Some(executed), Some(fragment), false) = (state.countdown, fragment, noted) {
            let code = &self.machine.space_of(tid)?.1.code_cache;
            let rest = rest_of(code, fragment, executed, selection.instructions);
            give_back(self.context(), rest);
        }
        let kept = make_room(self.context());
        let counters = self.machine.space_of(tid)?.1.code_cache.counters();
        let calls: Vec<(FragmentId, u64, i64)> = kept
            .into_iter()
            .filter_map(|(site, target, count)| {
                match counters.role(call_site_counter(site) as usize) {
                    Some(Role::CallTarget(fragment)) => Some((fragment, target, count as i64)),
                    _ => None,
                }
            })
            .collect();
        self.machine.observers.note_place(&mut self.machine.tasks, tid, |places| {
            calls
                .iter()
                .for_each(|(fragment, target, times)| places.called(*fragment, *target, *times));
        });
        if let Some(thread) = self.machine.tasks.threads.get_mut(&tid) {
            thread.account.correction.add_sum(correction);
        }
        Some(pc.0)
    }
}
