//! Answers as JSON, the same from the command and from the server.

use serde_json::{Value, json};

use crate::compare::{Change, Comparison, Pair, Side, Single};
use crate::history::Series;
use crate::steps::Found;

/// Histories.
pub fn histories(all: &[Series]) -> Value {
    let series = all.iter().map(|series| {
        let points = series.points.iter().enumerate().map(|(index, point)| {
            json!({
                "commit": point.commit, "started": point.started, "value": point.value,
                "runs": point.runs, "note": point.note,
                "step": series.steps.iter().any(|step| step.at == index),
            })
        });
        json!({
            "project": series.project, "benchmark": series.benchmark,
            "deterministic": series.deterministic, "points": points.collect::<Vec<_>>(),
        })
    });
    json!(series.collect::<Vec<_>>())
}

/// Steps.
pub fn steps(found: &[Found]) -> Value {
    let step = |found: &Found| {
        json!({
            "project": found.project, "benchmark": found.benchmark, "commit": found.commit,
            "before_commit": found.before, "started": found.started, "before": found.step.before,
            "after": found.step.after, "note": found.note,
            "functions": all(&found.changes.changed),
            "indistinguishable": all(&found.changes.chance),
            "renamed": all(&found.changes.renamed),
        })
    };
    json!(found.iter().map(step).collect::<Vec<_>>())
}

/// A comparison of two sides, which are named as they were asked for.
pub fn comparison(compared: &Comparison, names: (&str, &str)) -> Value {
    let pair = |pair: &Pair| {
        json!({
            "project": pair.project, "benchmark": pair.benchmark,
            "identical": pair.is_identical(), "note": pair.note,
            "before": side(&pair.before),
            "after": side(&pair.after),
            "rebuilt": pair.rebuilt, "caveats": pair.caveats(),
            "spread": pair.spread(),
            "functions": all(&pair.changes.changed),
            "indistinguishable": all(&pair.changes.chance),
            "renamed": all(&pair.changes.renamed),
        })
    };
    json!({
        "event": compared.event, "inclusive": compared.inclusive, "before": names.0, "after": names.1,
        "pairs": compared.pairs.iter().map(pair).collect::<Vec<_>>(),
        "only_before": singles(&compared.only_before), "only_after": singles(&compared.only_after),
    })
}

fn side(of: &Side) -> Value {
    json!({ "id": of.id, "commit": of.commit, "value": of.value })
}

fn singles(of: &[Single]) -> Value {
    let one =
        |it: &Single| json!({ "project": it.project, "benchmark": it.benchmark, "note": it.note });
    json!(of.iter().map(one).collect::<Vec<_>>())
}

fn all(changes: &[Change]) -> Value {
    json!(changes.iter().map(change).collect::<Vec<_>>())
}

fn change(change: &Change) -> Value {
    let was = change
        .was
        .as_ref()
        .map(|(module, function)| json!({ "module": module, "function": function }));
    json!({
        "module": change.module, "function": change.function,
        "before": change.before, "after": change.after, "was": was,
        "margin": (change.margin > 0).then_some(change.margin),
    })
}
