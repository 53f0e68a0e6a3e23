//! Calls of interpreted functions: the functions that the values at the entries of evaluators stand
//! for.

use lwp_code::family::Family;
use lwp_dbt::FragmentId;
use lwp_run::addition::Addition;
use rustc_hash::FxHashMap;

use super::{BlockEnd, Executions, Jump, Profiler, ThreadProfile, add, positive};
use crate::call_stack::languages::Languages;

/// A fragment that counts values, and a value; or one that ends in an indirect call, and a target.
pub type Target = (FragmentId, u64);

/// The entry of an evaluator, and the number of a function that was called by it.
pub type Interpreted = (u64, u32);

impl Executions {
    /// The indirect calls, and counted values, that are not interpreted functions' yet.
    pub fn calls(&self) -> impl Iterator<Item = (Target, i64)> + use<> {
        let all: Vec<(Target, i64)> = self.calls.iter().map(|(at, count)| (*at, *count)).collect();
        all.into_iter()
    }

    /// Counts values as the functions that they are.
    pub fn name_targets(&mut self, named: &FxHashMap<Target, Interpreted>) {
        for (target, call) in named {
            if let Some(count) = self.calls.remove(target) {
                add(self.interpreted.entry(*call).or_default(), count);
            }
        }
    }

    /// Gives the count of a value to a function, or to nobody. The counters' own count for it,
    /// `counted`, stands for nothing from here on.
    fn end_target(&mut self, target: Target, counted: i64, call: Option<Interpreted>) {
        let count = self.calls.remove(&target).unwrap_or(0).wrapping_add(counted);
        if let Some(call) = call.filter(|_| count != 0) {
            add(self.interpreted.entry(call).or_default(), count);
        }
        if counted != 0 {
            self.calls.insert(target, counted.wrapping_neg());
        }
    }
}

impl ThreadProfile {
    /// The indirect calls and values that were counted before counting was last switched off.
    pub fn kept_calls(&self) -> impl Iterator<Item = (Target, i64)> + use<> {
        self.kept.calls()
    }

    /// Returns whether a value has been counted since it was something else, given the number that
    /// the counters have for it.
    pub fn has_called(&self, id: FragmentId, value: u64, counted: i64) -> bool {
        let of = |it: &Executions| it.calls.get(&(id, value)).copied().unwrap_or(0);
        counted.wrapping_add(of(&self.places)) != 0 || of(&self.kept) != 0
    }

    /// A value, for which the counters have `counted`, has been a function, and will be another.
    pub fn end_target(&mut self, target: Target, counted: i64, call: Option<Interpreted>) {
        self.places.end_target(target, counted, call);
        self.mark.end_target(target, 0, call);
        self.kept.end_target(target, 0, call);
        self.named.remove(&target);
    }
}

impl Profiler {
    /// The calls of interpreted functions among `executions`; says what has been added for them.
    pub fn interpreted(
        &mut self,
        family: &mut Family,
        (pid, languages): (i32, &mut Languages),
        executions: &Executions,
    ) -> Vec<Jump> {
        let mut out = Vec::new();
        for (&(entry, function), &count) in &executions.interpreted {
            let (end, times) = (BlockEnd::IndirectCall, positive(count));
            let from = self.place(family, pid, entry);
            let evaluator = family.modules.evaluators.entered_at(entry);
            if let Some(file) = evaluator.and_then(|it| it.set_in()) {
                self.add_addition(pid, &evaluator_set(file));
            }
            if let Some(to) = languages.declared(function, pid, self).filter(|_| times > 0) {
                out.push(Jump { from, to, end, alone: false, taken: true, times });
            }
        }
        out
    }
}

/// The addition that an evaluator is set in.
fn evaluator_set(file: &str) -> Addition {
    let variable = ("PyInterpreterState.eval_frame", "_PyEval_EvalFrameDefault");
    Addition {
        programs: vec![file.to_owned()],
        arguments: Vec::new(),
        variables: vec![(variable.0.to_owned(), variable.1.to_owned())],
    }
}
