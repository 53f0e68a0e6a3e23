//! BOLT's `fdata`: one line for each edge, with its ends as function and offset, the number of
//! mispredictions and the number of executions.

use std::fmt::Write;

use super::Binary;
use super::executed::Target;
use super::flow::{Edge, Flow};

/// What BOLT reads with `-data`. Without a model of a predictor, nothing was mispredicted.
pub(super) fn render(flow: &Flow<'_>, binary: &Binary, modelled: bool) -> String {
    let mut out = String::new();
    for function in flow.functions() {
        for edge in &function.edges {
            let missed = if modelled { missed(edge) } else { 0 };
            let [from, to] = [Some(edge.from), edge.to].map(|at| place(binary, at));
            let _ = writeln!(out, "{from} {to} {missed} {}", edge.times);
        }
        if function.entered > 0 {
            let start = place(binary, Some(function.symbol.address));
            let _ = writeln!(out, "{UNKNOWN} {start} 0 {}", function.entered);
        }
    }
    out
}

/// A place outside of the file.
const UNKNOWN: &str = "0 [unknown] 0";

fn place(binary: &Binary, address: Target) -> String {
    let known = address.and_then(|address| Some((address, binary.function_at(address)?)));
    known.map_or(UNKNOWN.to_owned(), |(address, function)| {
        format!("1 {} {:x}", function.unique, address - function.address)
    })
}

/// Mispredictions of the model, which knows which way a branch goes more often.
fn missed(edge: &Edge) -> u64 {
    match edge.other {
        Some(other) if other >= edge.times => edge.times,
        _ => 0,
    }
}
