//! Folded stacks: one line a stack, outermost function first, as flame graph scripts take them.

use std::collections::BTreeMap;
use std::fmt::Write;

use lwp_profile::{FunctionId, Inferred, Profile};
use lwp_symbols::FunctionNames;

use crate::one_line;

/// The stacks with their counts of one event.
pub fn render(profile: &Profile, event: usize) -> String {
    let names = FunctionNames::new(profile, true);
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &Inferred::of(profile, event).stacks {
        let value = stack.values.get(event);
        if value == 0 {
            continue;
        }
        // A semicolon separates functions.
        let name = |id: &FunctionId| one_line(names.get(*id)).replace(';', ":");
        let line = stack.functions.iter().map(name).collect::<Vec<String>>().join(";");
        let sum = lines.entry(line).or_default();
        *sum = sum.saturating_add(value);
    }
    lines.iter().fold(String::new(), |mut out, (line, value)| {
        let _ = writeln!(out, "{line} {value}");
        out
    })
}
