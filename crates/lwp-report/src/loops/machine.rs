//! Loops for programs: JSON and CSV.

use std::fmt::Write;

use lwp_profile::Profile;
use serde_json::{Map, Value, json};

use super::{Loop, Loops};
use crate::escape::{self, csv as field};

/// The names of a loop's numbers.
const NUMBERS: [&str; 6] =
    ["depth", "entries", "iterations", "instructions", "instructions_with_inner_loops", "address"];

fn numbers(profile: &Profile, it: &Loop) -> [u64; 6] {
    let address = profile.location(it.header).address;
    [it.depth as u64, it.entries, it.iterations, it.own, it.all, address]
}

/// The loops as one JSON document.
pub fn json(profile: &Profile, loops: &Loops, limit: Option<usize>) -> String {
    let shown = limit.unwrap_or(usize::MAX).min(loops.loops.len());
    let rows = loops.loops[..shown].iter().map(|it| {
        let place = super::text::Place::of(profile, it.header);
        let mut row = Map::new();
        row.insert("dso".to_owned(), json!(profile.module_of(it.function).name()));
        row.insert("sym".to_owned(), json!(place.function));
        row.insert("file".to_owned(), json!(place.file));
        row.insert("line".to_owned(), json!(place.line));
        for (name, number) in NUMBERS.iter().zip(numbers(profile, it)) {
            row.insert((*name).to_owned(), json!(number));
        }
        if let Some(time) = it.time {
            row.insert("cpu_time".to_owned(), json!(time));
        }
        if let Some(estimate) = loops.per_iteration(it) {
            row.insert("ns_per_iteration_estimated".to_owned(), json!(estimate.ns));
            row.insert("ns_per_iteration_margin_percent".to_owned(), json!(estimate.margin));
        }
        Value::Object(row)
    });
    let document = json!({
        "command": profile.command,
        "total": loops.total,
        "loops": rows.collect::<Vec<_>>(),
        "loops_left_out": loops.loops.len() - shown,
        "edges_of_cycles_with_several_entries": loops.irreducible,
    });
    escape::json(&format!("{document:#}\n"))
}

/// The loops as values separated by commas, with a line of headings.
pub fn csv(profile: &Profile, loops: &Loops, limit: Option<usize>) -> String {
    let mut heads = NUMBERS.to_vec();
    if loops.has_time() {
        heads.extend(["cpu_time", "ns_per_iteration_estimated", "ns_per_iteration_margin_percent"]);
    }
    heads.extend(["dso", "sym", "file", "line"]);
    let mut out = heads.join(",") + "\n";
    for it in loops.loops.iter().take(limit.unwrap_or(usize::MAX)) {
        let place = super::text::Place::of(profile, it.header);
        let mut fields: Vec<String> = numbers(profile, it).map(|number| number.to_string()).into();
        if loops.has_time() {
            fields.push(it.time.unwrap_or(0).to_string());
            let estimate = loops.per_iteration(it);
            let text = |number: Option<f64>| number.map_or(String::new(), |it| it.to_string());
            fields.push(text(estimate.map(|it| it.ns)));
            fields.push(text(estimate.map(|it| it.margin)));
        }
        fields.push(field(profile.module_of(it.function).name()));
        fields.push(field(&place.function));
        fields.push(field(&place.file));
        fields.push(place.line.to_string());
        let _ = writeln!(out, "{}", fields.join(","));
    }
    out
}
