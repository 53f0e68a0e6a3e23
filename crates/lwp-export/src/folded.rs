//! Folded stacks: one line a stack, outermost function first, as flame graph scripts take them.

use std::collections::BTreeMap;
use std::fmt::Write;

use lwp_profile::{Inferred, Profile};
use lwp_symbols::function_name;

use crate::one_line;

/// The stacks with their counts of one event.
pub fn render(profile: &Profile, event: usize) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &Inferred::of(profile, event).stacks {
        let value = stack.values.get(event);
        if value == 0 {
            continue;
        }
        let names: Vec<String> = stack
            .functions
            .iter()
            // A semicolon separates functions.
            .map(|id| one_line(&function_name(profile, *id, true)).replace(';', ":"))
            .collect();
        let sum = lines.entry(names.join(";")).or_default();
        *sum = sum.saturating_add(value);
    }
    lines.iter().fold(String::new(), |mut out, (line, value)| {
        let _ = writeln!(out, "{line} {value}");
        out
    })
}
