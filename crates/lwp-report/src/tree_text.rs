//! Trees of contexts as text: who was called from where.

use std::fmt::Write;

use lwp_profile::{Profile, Tree};
use lwp_symbols::FunctionNames;

use crate::escape::printable;
use crate::number::{grouped, percent};
use crate::paint::{Paint, part};

/// The part of a tree to show.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Index of the event.
    pub event: usize,
    /// At least this part of the whole.
    pub percent_limit: f64,
    /// At most so many functions below each other.
    pub max_stack: usize,
    /// Names as programmers write them.
    pub demangle: bool,
    /// Colours.
    pub paint: Paint,
}

/// The tree, callees below their callers, the greatest first.
pub fn tree(profile: &Profile, tree: &Tree, shown: &Shown) -> String {
    let root = tree.root();
    let name = profile.events.get(shown.event).map_or("", |event| event.name.as_str());
    let mut out = String::new();
    if !profile.command.is_empty() {
        let _ = writeln!(out, "# {}", printable(&profile.command));
    }
    let _ = writeln!(out, "# {name}: {}", grouped(root.total));
    if !tree.recorded {
        let how = match profile.has_contexts() {
            true => "Who called is measured in instructions: other events are shared out by these",
            false => {
                "Who called is inferred: each function's counts are shared out by numbers of calls"
            }
        };
        let _ = writeln!(out, "# {how}");
    }
    let _ = writeln!(out, "#\n#  Total    Self  Function");
    let names = FunctionNames::new(profile, shown.demangle);
    let least = root.total as f64 * shown.percent_limit / 100.0;
    let mut waiting = below(tree, 0, 0);
    let mut hidden = 0usize;
    while let Some((number, depth)) = waiting.pop() {
        let node = tree.node(number);
        if (node.total as f64) < least || depth >= shown.max_stack {
            hidden += 1;
            continue;
        }
        let (total, own) =
            (percent(node.total as f64, root.total), percent(node.own as f64, root.total));
        let indent = 2 * depth;
        let total = shown.paint.heat(part(node.total, root.total), &format!("{total:>8}"));
        let own = shown.paint.heat(part(node.own, root.total), &format!("{own:>7}"));
        let _ =
            writeln!(out, "{total} {own}  {:indent$}{}", "", printable(names.get(node.function)));
        waiting.extend(below(tree, number, depth + 1));
    }
    if hidden > 0 {
        let _ = writeln!(out, "# {hidden} branches not shown");
    }
    out
}

/// Returns the callees of the node with this number, the greatest last.
fn below(tree: &Tree, node: usize, depth: usize) -> Vec<(usize, usize)> {
    let counted = tree.called(node).filter(|node| tree.total(*node) > 0);
    let mut below: Vec<(usize, usize)> = counted.map(|node| (node, depth)).collect();
    // By function among equals, so that equal profiles look alike.
    below.reverse();
    below.sort_by_key(|(node, _)| tree.total(*node));
    below
}
