//! One JSON object a line: functions, then lines, then calls, then measured calls, for scripts and
//! databases.

use std::collections::BTreeMap;
use std::fmt::Write;

use lwp_profile::{CallGraph, CallKind, FunctionId, Measured, Profile, Values};
use lwp_symbols::FunctionNames;
use lwp_terminal::escape;
use serde_json::{Map, Value, json};

/// The profile as lines. Every object has a `"kind"`.
pub fn render(profile: &Profile) -> String {
    let mut out = String::new();
    let mut line = |value: Value| {
        let _ = writeln!(out, "{}", escape::json(&value.to_string()));
    };
    line(json!({
        "kind": "profile",
        "command": profile.command,
        "exact": profile.mode == lwp_profile::Mode::Exact,
        "total": counts(profile, &profile.total()),
    }));
    let names = FunctionNames::new(profile, true);
    let graph = CallGraph::of(profile);
    let measured = measured(profile);
    let inclusive = measured.as_ref().map(Measured::inclusive).unwrap_or_default();
    for (index, own) in graph.own.iter().enumerate() {
        let inclusive = inclusive.get(index).copied();
        if own.is_zero() && inclusive.unwrap_or(0) == 0 {
            continue;
        }
        let id = FunctionId(index as u32);
        let function = profile.function(id);
        let mut row = json!({
            "kind": "function",
            "function": names.get(id),
            "symbol": function.name,
            "module": profile.module_of(id).path,
            "build_id": profile.module_of(id).build_id_hex(),
            "address": function.address,
            "file": function.file,
            "line": function.line,
            "called": graph.calls_of(id),
            "own": counts(profile, own),
        });
        if let Some(inclusive) = inclusive {
            row["inclusive_instructions"] = json!(inclusive);
        }
        line(row);
    }
    for ((file, number), values) in lines(profile) {
        line(json!({
            "kind": "line", "file": file, "line": number, "own": counts(profile, &values),
        }));
    }
    for call in &profile.calls {
        let from = call.from.map(|id| profile.location(id));
        line(json!({
            "kind": "call",
            "caller": from.map(|from| names.get(from.function())),
            "address": from.map(|from| from.address),
            "callee": names.get(call.to),
            "how": match call.kind {
                CallKind::Direct => "direct",
                CallKind::Tail => "tail",
                CallKind::Import => "import",
                CallKind::Indirect => "indirect",
            },
            "count": call.count,
        }));
    }
    for call in measured.map(|all| all.calls()).unwrap_or_default() {
        line(json!({
            "kind": "measured-call",
            "caller": call.caller.map(|caller| names.get(caller)),
            "address": call.site.map(|site| profile.location(site).address),
            "callee": names.get(call.callee),
            "count": call.calls,
            "inclusive_instructions": call.inclusive,
        }));
    }
    out
}

/// Contexts with the counts that were measured in them.
fn measured(profile: &Profile) -> Option<Measured<'_>> {
    let event = (0..profile.events.len()).find(|event| profile.measures(*event))?;
    Measured::of(profile, event)
}

fn counts(profile: &Profile, values: &Values) -> Value {
    let pairs = profile.events.iter().zip(&values.0);
    Value::Object(pairs.map(|(event, n)| (event.name.clone(), json!(n))).collect::<Map<_, _>>())
}

fn lines(profile: &Profile) -> BTreeMap<(String, u32), Values> {
    let mut sums: BTreeMap<(String, u32), Values> = BTreeMap::new();
    for (location, values) in profile.locations.iter().zip(profile.by_location()) {
        let Some(frame) = location.frames.first().filter(|frame| frame.line != 0) else { continue };
        let key = (frame.file.to_string(), frame.line);
        sums.entry(key).or_insert_with(|| Values::zero(values.0.len())).add(&values);
    }
    sums
}
