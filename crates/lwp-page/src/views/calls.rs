//! One function between its callers and its callees.

use lwp_profile::{CallGraph, FunctionId, Tree};
use lwp_report::number::{grouped, percent};
use maud::{Markup, html};
use rustc_hash::FxHashMap;

use crate::cells::{self, Sure, badge, change, count, inclusive_is, own_is, ratio, share, text};
use crate::key::Key;
use crate::picked::Picked;
use crate::request::{Request, View};
use crate::subject::Subject;

/// A function on the other side of calls.
#[derive(Clone, Copy, Debug, Default)]
struct Neighbour {
    /// The function; `None` where it is not known.
    function: Option<FunctionId>,
    /// Number of calls from it, or to it.
    calls: u64,
    /// The cost of these calls.
    cost: f64,
}

/// The two sides of a function.
#[derive(Debug, Default)]
struct Sides {
    callers: Vec<Neighbour>,
    callees: Vec<Neighbour>,
}

/// The view.
pub fn body(request: &Request) -> Markup {
    let Some(id) = request.function() else {
        return html! { p.none { "No function was executed." } };
    };
    let sides = sides(&request.subject, &request.picked, id);
    let before = request.base.as_ref().zip(request.in_base(id));
    let before = before.map(|((base, picked), id)| (id, self::sides(base, picked, id)));
    html! {
        (heading(request, id))
        div.between {
            section {
                h2 { "Callers" small { (grouped(sides.callers.len() as u64)) } }
                (table(request, &sides.callers, before.as_ref().map(|before| &before.1.callers)))
            }
            section {
                h2 { "Callees" small { (grouped(sides.callees.len() as u64)) } }
                (table(request, &sides.callees, before.as_ref().map(|before| &before.1.callees)))
            }
        }
        (legend(request))
    }
}

/// The function's name, counts, and the ways to it in other views.
fn heading(request: &Request, id: FunctionId) -> Markup {
    let (picked, label) = (&request.picked, request.label(id));
    let function = request.subject.profile().function(id);
    let (own, inclusive) =
        (picked.own[id.index()].get(request.event()), picked.inclusive[id.index()]);
    let total = picked.total();
    // The addresses of interpreted functions are made up.
    let interpreted = request.subject.profile().module_of(id).interpreted().is_some();
    // In the inverted tree a function stands outermost.
    let upwards = Key::ROOT.then(request.subject.keys[id.index()]).to_string();
    html! {
        h1.function { (text(&label.name)) }
        p.where { span.module { (text(&label.module)) } " · " (label.language.name())
            @if !function.file.is_empty() { " · " (text(&function.file)) ":" (function.line) }
            @if function.address != 0 && !interpreted {
                " · " (format!("{:#x}", function.address))
            } }
        dl.figures {
            div { dt { "Self " (badge(own_is(request))) } dd { (percent(own as f64, total)) small { (grouped(own)) } } }
            div { dt { "Total" @if !picked.inclusive_exact { "~" } " " (badge(inclusive_is(request))) } dd { (percent(inclusive, total)) small { (grouped(inclusive.round() as u64)) } } }
            @if let Some(graph) = &picked.graph {
                div { dt { "Calls " (badge(Sure::Exact)) } dd { (grouped(graph.calls_of(id))) } }
            }
            @if let Some(((_, other), before)) = request.base.as_ref().zip(request.in_base(id)) {
                @let before = other.own[before.index()].get(other.selection.event);
                div { dt { "Self since before" } dd { (ratio(before, own)) small { (grouped(before)) } } }
            }
        }
        p.ways {
            a.button href=(request.function_link(View::Code, id)) { "Code" }
            a.button href=(request.link(View::Tree, &[("inv", "1"), ("at", &upwards)])) { "Callers of callers" }
            a.button href=(request.link(View::Functions, &[("q", &label.name)])) { "In the table" }
            a.button href=(request.link(View::Flame, &[("q", &label.name)])) { "In the flame graph" }
            @if !request.subject.of.lanes.is_empty() {
                a.button href=(request.function_link(View::Time, id)) { "In time" }
            }
        }
    }
}

fn table(request: &Request, side: &[Neighbour], before: Option<&Vec<Neighbour>>) -> Markup {
    let total = request.picked.total();
    let counted = request.picked.graph.is_some();
    let measured = request.subject.profile().has_contexts();
    let key = |function: Option<FunctionId>| function.map(|id| request.subject.keys[id.index()]);
    let old = |function: Option<FunctionId>| {
        let (base, before) = (request.base.as_ref()?, before?);
        let base_key =
            |one: &&Neighbour| one.function.map(|id| base.0.keys[id.index()]) == key(function);
        before.iter().find(base_key).copied()
    };
    html! {
        div.scroll { table.rows {
            thead { tr {
                th.num { "Cost" @if !request.picked.inclusive_exact { "~" } }
                @if counted { th.num { "Calls" } @if before.is_some() { th.num { "Change" } } }
                @else if before.is_some() { th.num { "Change" } }
                th.name { "Function" } th.name { "Module" }
            } }
            tbody { @for one in side.iter().take(500) {
                @let was = old(one.function).unwrap_or_default();
                tr data-row {
                    (share(one.cost, total))
                    @if counted { (count(one.calls)) }
                    @if before.is_some() {
                        @if counted { (change(was.calls, one.calls)) }
                        @else { (change(was.cost as u64, one.cost as u64)) }
                    }
                    td.name { @match one.function {
                        Some(id) => (cells::name(request, id, View::Calls)),
                        None if measured => span.gone { "none: a thread began here, or a signal's handler" },
                        None => span.gone { "not known: an indirect jump, or the kernel" },
                    } }
                    td.module { @if let Some(id) = one.function { (text(&request.label(id).module)) } }
                }
            } }
        } }
        @if side.is_empty() { p.none { "None." } }
    }
}

fn sides(subject: &Subject, picked: &Picked, id: FunctionId) -> Sides {
    let mut sides = match (&picked.graph, &picked.estimates) {
        (Some(_), Some(_)) => from_calls(picked, id),
        (Some(graph), None) => from_contexts(graph, &picked.tree(subject).tree, id),
        _ => from_stacks(&picked.tree(subject).tree, id),
    };
    for side in [&mut sides.callers, &mut sides.callees] {
        side.sort_by(|a, b| {
            b.cost.total_cmp(&a.cost).then(b.calls.cmp(&a.calls)).then(a.function.cmp(&b.function))
        });
    }
    sides
}

/// By counted calls: their costs are estimates.
fn from_calls(picked: &Picked, id: FunctionId) -> Sides {
    let (Some(graph), Some(inclusive)) = (&picked.graph, &picked.estimates) else {
        return Sides::default();
    };
    let all = graph.calls_of(id).max(1) as f64;
    let callers = graph.callers[id.index()].iter().map(|&(function, calls)| {
        // The work of a function that calls itself, or is called around a circle, is not its
        // caller's once more.
        let cost = picked.inclusive[id.index()] * calls as f64 / all;
        Neighbour { function, calls, cost }
    });
    let callees = graph.callees[id.index()].iter().map(|&(function, calls)| {
        let cost = match inclusive.same_group(id, function) {
            true => {
                picked.inclusive[function.index()] * calls as f64
                    / graph.calls_of(function).max(1) as f64
            }
            false => inclusive.of_calls(function, calls),
        };
        Neighbour { function: Some(function), calls, cost }
    });
    Sides { callers: callers.collect(), callees: callees.collect() }
}

/// Functions on the other side of calls, and the samples that they share with one.
#[derive(Default)]
struct Shared(FxHashMap<FunctionId, (usize, u64)>);

impl Shared {
    /// Adds the samples below a context, unless they have been added for one around it. Contexts
    /// come in order.
    fn add(&mut self, tree: &Tree, function: FunctionId, node: usize) {
        let (behind, sum) = self.0.entry(function).or_default();
        if *behind <= node {
            *behind = tree.shape().end(node);
            *sum = sum.saturating_add(tree.total(node));
        }
    }

    fn neighbours(self) -> Vec<Neighbour> {
        let neighbour = |(function, (_, cost)): (FunctionId, (usize, u64))| Neighbour {
            function: Some(function),
            calls: 0,
            cost: cost as f64,
        };
        self.0.into_iter().map(neighbour).collect()
    }
}

/// By recorded stacks: a sample counts once for each pair of functions on its stack.
fn from_stacks(tree: &Tree, id: FunctionId) -> Sides {
    let functions = tree.shape().functions();
    let (mut callers, mut callees) = (Shared::default(), Shared::default());
    let mut inner = Vec::new();
    let of_it = functions.iter().enumerate().skip(1).filter(|(_, function)| **function == id);
    for (node, _) in of_it.filter(|(node, _)| tree.total(*node) > 0) {
        let caller = tree.caller(node);
        if caller != 0 {
            callers.add(tree, functions[caller], node);
        }
        inner.extend(tree.called(node).filter(|inner| tree.total(*inner) > 0));
    }
    inner.sort_unstable();
    for node in inner {
        callees.add(tree, functions[node], node);
    }
    Sides { callers: callers.neighbours(), callees: callees.neighbours() }
}

/// By measured contexts, with the numbers of calls.
fn from_contexts(graph: &CallGraph, tree: &Tree, id: FunctionId) -> Sides {
    let mut sides = from_stacks(tree, id);
    let outermost = tree.called(0).filter(|node| tree.shape().functions()[*node] == id);
    let outermost = outermost.fold(0, |sum: u64, node| sum.saturating_add(tree.total(node)));
    sides.callers.push(Neighbour { cost: outermost as f64, ..Neighbour::default() });
    let callees = graph.callees[id.index()].iter().map(|(callee, calls)| (Some(*callee), *calls));
    sides.callers = with_calls(sides.callers, graph.callers[id.index()].iter().copied());
    sides.callees = with_calls(sides.callees, callees);
    sides
}

/// Functions with the numbers of calls from them or to them, those without cost too.
fn with_calls(
    side: Vec<Neighbour>,
    calls: impl Iterator<Item = (Option<FunctionId>, u64)>,
) -> Vec<Neighbour> {
    let mut all: FxHashMap<Option<FunctionId>, Neighbour> =
        side.into_iter().map(|one| (one.function, one)).collect();
    for (function, calls) in calls {
        let one = all.entry(function).or_default();
        (one.function, one.calls) = (function, calls);
    }
    all.into_values().filter(|one| one.calls > 0 || one.cost > 0.0).collect()
}

fn legend(request: &Request) -> Markup {
    let cost = match inclusive_is(request) {
        Sure::Exact => {
            "Cost: what was measured while these calls were in progress, once where they were several times on the stack."
        }
        Sure::Estimated if request.subject.profile().has_contexts() => {
            "Cost~: the part of the work that was done in these calls, shared out as the instructions that were measured there."
        }
        Sure::Estimated => {
            "Cost~: the part of the work that was done in these calls, if each call of a function cost the same."
        }
        _ => {
            "Cost: samples with the two functions next to each other on their stacks, each sample once. How often calls were made is not known from samples."
        }
    };
    let mut sentences = vec![(inclusive_is(request), cost)];
    if request.picked.graph.is_some() {
        sentences.insert(
            0,
            (
                Sure::Exact,
                "Calls: counted where they were made, by all threads, to the function that was reached, also through pointers.",
            ),
        );
    }
    cells::legend(&sentences)
}
