//! Answers as JSON, the same from the command and from the server.

use serde_json::{Value, json};

use crate::compare::{Change, Comparison, Pair, Single};
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
pub fn steps(all: &[Found]) -> Value {
    let step = |found: &Found| {
        json!({
            "project": found.project, "benchmark": found.benchmark, "commit": found.commit,
            "before_commit": found.before, "started": found.started, "before": found.step.before,
            "after": found.step.after, "note": found.note,
            "functions": found.changes.changed.iter().map(change).collect::<Vec<_>>(),
            "indistinguishable": found.changes.chance.iter().map(change).collect::<Vec<_>>(),
            "renamed": found.changes.renamed.iter().map(change).collect::<Vec<_>>(),
        })
    };
    json!(all.iter().map(step).collect::<Vec<_>>())
}

/// A comparison of two sides, which are named as they were asked for.
pub fn comparison(compared: &Comparison, names: (&str, &str)) -> Value {
    let pair = |pair: &Pair| {
        json!({
            "project": pair.project, "benchmark": pair.benchmark,
            "identical": pair.is_identical(), "note": pair.note,
            "before": { "id": pair.before.id, "commit": pair.before.commit, "value": pair.before.value },
            "after": { "id": pair.after.id, "commit": pair.after.commit, "value": pair.after.value },
            "rebuilt": pair.rebuilt, "caveats": pair.caveats(),
            "spread": pair.spread(),
            "functions": pair.changes.changed.iter().map(change).collect::<Vec<_>>(),
            "indistinguishable": pair.changes.chance.iter().map(change).collect::<Vec<_>>(),
            "renamed": pair.changes.renamed.iter().map(change).collect::<Vec<_>>(),
        })
    };
    json!({
        "event": compared.event, "inclusive": compared.inclusive, "before": names.0, "after": names.1,
        "pairs": compared.pairs.iter().map(pair).collect::<Vec<_>>(),
        "only_before": singles(&compared.only_before), "only_after": singles(&compared.only_after),
    })
}

fn singles(of: &[Single]) -> Value {
    let one =
        |it: &Single| json!({ "project": it.project, "benchmark": it.benchmark, "note": it.note });
    json!(of.iter().map(one).collect::<Vec<_>>())
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
