//! The verdict as JSON.

use serde_json::{Value, json};

use super::{Benchmark, Change, Check, Place, Subject, Verdict};
use crate::escape;

/// The verdict as one document.
pub fn render(verdict: &Verdict) -> String {
    let benchmarks: Vec<Value> = verdict.benchmarks.iter().map(benchmark).collect();
    let document = json!({
        "passes": verdict.passes(),
        "benchmarks": benchmarks,
        "notes": verdict.notes,
    });
    escape::json(&format!("{document:#}\n"))
}

fn benchmark(benchmark: &Benchmark) -> Value {
    json!({
        "name": benchmark.name,
        "command": benchmark.command,
        "passes": benchmark.passes(),
        "checks": benchmark.checks.iter().map(check).collect::<Vec<_>>(),
        "changed_event": benchmark.event,
        "changed_most": benchmark.changed.iter().map(change).collect::<Vec<_>>(),
        "rebuilt": benchmark.rebuilt,
        "notes": benchmark.notes,
        "picture": benchmark.picture,
    })
}

fn check(check: &Check) -> Value {
    let (kind, name) = match &check.subject {
        Subject::Whole => ("whole", None),
        Subject::Function(name) => ("function", Some(name)),
        Subject::Module(name) => ("module", Some(name)),
        Subject::Inclusive(name) => ("inclusive", Some(name)),
    };
    json!({
        "of": kind,
        "name": name,
        "event": check.event,
        "limit": check.limit.to_string(),
        "allowed": check.ceiling(),
        "before": check.before,
        "after": check.after,
        "margin": (check.margin() > 0.0).then(|| check.margin().round()),
        "passes": check.passes(),
        "place": check.place.as_ref().map(place),
    })
}

fn change(change: &Change) -> Value {
    json!({
        "function": change.function,
        "before": change.before,
        "after": change.after,
        "change": change.delta().to_string(),
        "place": change.place.as_ref().map(place),
    })
}

fn place(place: &Place) -> Value {
    json!({ "file": place.file, "line": place.line })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::samples;

    #[test]
    fn programs_read_the_same_as_people() {
        let json: Value = serde_json::from_str(&render(&samples::exceeded())).unwrap();
        assert_eq!(json["passes"], false);
        let [first, second] = [&json["benchmarks"][0], &json["benchmarks"][1]];
        assert_eq!((&first["passes"], &second["passes"]), (&json!(false), &json!(true)));
        assert_eq!(first["checks"][0]["allowed"], 101);
        assert_eq!(first["checks"][1]["place"], json!({ "file": "src/a,b.rs", "line": 7 }));
        assert_eq!(first["changed_most"][1]["change"], "-1");
    }
}
