//! Inclusive counts, propagated along the call graph.
//!
//! Where contexts were measured, so were inclusive counts (see [`crate::Measured`]), and nothing here
//! is needed. Otherwise own counts and numbers of calls are exact. How much of a callee's work was done for which caller
//! is not recorded in an exact profile; it is *estimated* by assuming that every call of a function
//! costs the same, as gprof does. Functions that call each other in a circle form a group: the
//! group's work is shared out by the calls that enter it, and among its members as
//! [`crate::circles`] says.

use crate::circles::Circle;
use crate::graph::CallGraph;
use crate::measured::Measured;
use crate::profile::{FunctionId, Profile};

/// Inclusive counts of one event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inclusive {
    /// Of each function: what it did itself and what was done for it.
    pub of: Vec<f64>,
    /// True if the numbers are true, because contexts were measured or the profile has stacks.
    pub exact: bool,
    /// Component of each function.
    component: Vec<usize>,
    /// Inclusive count of each component.
    of_component: Vec<f64>,
    /// Calls that enter each component from outside it.
    entries: Vec<u64>,
}

impl Inclusive {
    /// Inclusive counts of `event`.
    pub fn of(profile: &Profile, graph: &CallGraph, event: usize) -> Self {
        if profile.is_sampled_beside(event) {
            return Self::from_stacks(profile, event);
        }
        if let Some(measured) = Measured::of(profile, event) {
            return Self::measured(&measured);
        }
        if profile.calls.is_empty() && profile.has_stacks() {
            return Self::from_stacks(profile, event);
        }
        let (component, members) = graph.components();
        let mut entries = vec![0u64; members.len()];
        let mut entered = vec![0u64; component.len()];
        for edge in &graph.edges {
            let to = component[edge.to.index()];
            if edge.from.is_none_or(|from| component[from.index()] != to) {
                entries[to] = entries[to].saturating_add(edge.count);
                let entered = &mut entered[edge.to.index()];
                *entered = entered.saturating_add(edge.count);
            }
        }
        let mut of_component = vec![0.0; members.len()];
        let mut of = vec![0.0; component.len()];
        // Callees come before callers.
        for (number, functions) in members.iter().enumerate() {
            let mut sum = 0.0;
            for &function in functions {
                let own = graph.own[function.index()].get(event) as f64;
                let mut inclusive = own;
                for &(callee, count) in &graph.callees[function.index()] {
                    let to = component[callee.index()];
                    if to != number && entries[to] > 0 {
                        inclusive += of_component[to] * count as f64 / entries[to] as f64;
                    }
                }
                of[function.index()] = inclusive;
                sum += inclusive;
            }
            of_component[number] = sum;
            if functions.len() > 1 {
                around(functions, graph, &entered, &mut of);
            }
        }
        Self { of, exact: false, component, of_component, entries }
    }

    /// Inclusive counts of measured contexts.
    pub fn measured(measured: &Measured<'_>) -> Self {
        let of = measured.inclusive().into_iter().map(|sum| sum as f64).collect();
        Self { of, exact: measured.is_exact(), ..Self::default() }
    }

    /// True inclusive counts: each sample counts once for every function on its stack.
    fn from_stacks(profile: &Profile, event: usize) -> Self {
        let mut of = vec![0.0; profile.functions.len()];
        // The number of the sample that counted for a function last.
        let mut last = vec![usize::MAX; of.len()];
        for (number, sample) in profile.samples.iter().enumerate() {
            let value = sample.values.get(event) as f64;
            for &location in profile.stacks[sample.stack.index()].locations.iter() {
                for frame in profile.location(location).frames.iter() {
                    let function = frame.function.index();
                    if last[function] != number {
                        last[function] = number;
                        of[function] += value;
                    }
                }
            }
        }
        Self { of, exact: true, ..Self::default() }
    }

    /// Returns whether two functions call each other in a circle.
    pub fn same_group(&self, a: FunctionId, b: FunctionId) -> bool {
        let component = |id: FunctionId| self.component.get(id.index());
        component(a).is_some() && component(a) == component(b)
    }

    /// Returns the cost of `count` calls of `callee` from outside its group, by the assumption
    /// above.
    pub fn of_calls(&self, callee: FunctionId, count: u64) -> f64 {
        let Some(&number) = self.component.get(callee.index()) else { return 0.0 };
        match self.entries[number] {
            0 => 0.0,
            entries => self.of_component[number] * count as f64 / entries as f64,
        }
    }
}

/// Adds what was done around a circle to what its functions did themselves, or had done outside it.
fn around(functions: &[FunctionId], graph: &CallGraph, entered: &[u64], of: &mut [f64]) {
    let number = |function: &FunctionId| functions.binary_search(function).ok();
    let mut calls = Vec::new();
    for (caller, function) in functions.iter().enumerate() {
        for (callee, times) in &graph.callees[function.index()] {
            calls.extend(number(callee).map(|callee| (caller, callee, *times as f64)));
        }
    }
    let circle = Circle {
        work: functions.iter().map(|function| of[function.index()]).collect(),
        entries: functions.iter().map(|function| entered[function.index()] as f64).collect(),
        calls,
    };
    for (function, inclusive) in functions.iter().zip(circle.inclusive().into_iter().flatten()) {
        of[function.index()] = inclusive;
    }
}
