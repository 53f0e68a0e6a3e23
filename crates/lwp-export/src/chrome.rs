//! Chrome's trace events: contexts side by side, their width in events where others have time.

use lwp_profile::{Profile, Tree};
use lwp_symbols::FunctionNames;
use lwp_terminal::escape::json;
use serde_json::{Value, json};

use crate::{estimate, one_line};

/// The contexts of one event as complete events.
pub fn render(profile: &Profile, event: usize) -> String {
    let tree = Tree::of(profile, event);
    let mut events = vec![json!({
        "ph": "M", "pid": 1, "tid": 1, "name": "process_name",
        "args": { "name": one_line(&profile.command) },
    })];
    children(&FunctionNames::new(profile, true), profile, &tree, (0, 0), &mut events);
    let mut words = format!(
        "widths are {}, not time",
        profile.events.get(event).map_or("", |event| event.name.as_str())
    );
    if !tree.recorded {
        words.push_str("; ");
        words.push_str(estimate(profile));
    }
    let document = json!({
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": { "generator": format!("lwp {}", env!("CARGO_PKG_VERSION")), "note": words },
    });
    json(&document.to_string())
}

fn children(
    names: &FunctionNames<'_>,
    profile: &Profile,
    tree: &Tree,
    (node, start): (usize, u64),
    out: &mut Vec<Value>,
) {
    let mut at = start;
    for number in tree.called(node).filter(|child| tree.total(*child) > 0) {
        let child = tree.node(number);
        out.push(json!({
            "ph": "X", "pid": 1, "tid": 1, "ts": at, "dur": child.total,
            "name": names.get(child.function),
            "cat": profile.module_of(child.function).name(),
            "args": { "own": child.own },
        }));
        children(names, profile, tree, (number, at), out);
        at = at.saturating_add(child.total);
    }
}
