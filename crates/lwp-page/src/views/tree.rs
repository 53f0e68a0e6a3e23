//! Contexts as a tree that can be opened: from callers to callees, or the other way.

use lwp_report::number::{grouped, percent, signed};
use maud::{Markup, html};

use crate::cells::{self, badge, inclusive_is, text};
use crate::picked::By;
use crate::picture::{Picture, shape};
use crate::request::{Request, View};

/// Branches below this part of the whole are closed, unless something else is asked for.
const LEAST: f64 = 0.005;
/// Most branches of a page.
const MOST: usize = 1500;
/// Branches that are open from the start have at least this part of what is shown.
const OPEN: f64 = 0.1;

/// The view.
pub fn body(request: &Request) -> Markup {
    let least = request.query.number::<f64>("min").map_or(LEAST, |percent| percent / 100.0);
    let picture = Picture::new(request, least.clamp(0.000_01, 1.0));
    let branches = Branches::of(&picture);
    let inverted = shape(&request.query).inverted;
    html! {
        h1 { (if inverted { "Callers of every function" } else { "Call tree" })
            small { "of " (grouped(picture.graph.total)) " " (text(request.event_name())) " " (badge(inclusive_is(request))) } }
        (switches(request, &[("inv", "from callees to callers"), ("fold", "recursion folded")]))
        (outer(request, &picture))
        div.tree.compared[request.base.is_some()].callers[inverted] role="tree" {
            div.treehead aria-hidden="true" {
                // What a function did itself is shared out among its callers.
                @if inverted { span.t { "Self" } } @else { span.t { "Total" } span.s { "Self" } }
                @if request.base.is_some() { span.d { "Change" } }
                span { "Function" }
            }
            (branches.below(request, &picture, picture.outer, 0))
        }
        (legend(request, least))
    }
}

/// Boxes as branches: what is inside each, the greatest first.
struct Branches {
    inside: Vec<Vec<usize>>,
}

impl Branches {
    fn of(picture: &Picture) -> Self {
        let boxes = &picture.graph.boxes;
        let mut inside = vec![Vec::new(); boxes.len()];
        let mut around: Vec<usize> = Vec::new();
        for (index, one) in boxes.iter().enumerate().take(MOST) {
            around.truncate(one.depth);
            if let Some(outer) = around.last() {
                inside[*outer].push(index);
            }
            around.push(index);
        }
        for list in &mut inside {
            list.sort_by_key(|index| std::cmp::Reverse(boxes[*index].total));
        }
        Self { inside }
    }

    /// Draws the boxes inside a box.
    fn below(&self, request: &Request, picture: &Picture, index: usize, depth: usize) -> Markup {
        let inside = self.inside.get(index).map_or(&[][..], Vec::as_slice);
        // Pages that are nested more deeply are slow to show; the address of a branch opens it on a
        // page of its own.
        if depth >= 120 {
            return html! { div.branch.more { a href=(request.here(&[("at", &picture.keys[index].to_string())])) { "go on from here" } } };
        }
        html! {
            @for &inner in inside {
                @if self.inside[inner].is_empty() {
                    div.branch role="treeitem" { (line(request, picture, inner)) }
                } @else {
                    details.branch role="treeitem" open[picture.graph.boxes[inner].width >= OPEN || depth == 0 && inside.len() == 1] {
                        summary { (line(request, picture, inner)) }
                        div.inner role="group" { (self.below(request, picture, inner, depth + 1)) }
                    }
                }
            }
        }
    }
}

fn line(request: &Request, picture: &Picture, index: usize) -> Markup {
    let one = &picture.graph.boxes[index];
    let total = picture.graph.total;
    let at = picture.keys[index].to_string();
    let width = if total == 0 { 0.0 } else { 100.0 * one.total as f64 / total as f64 };
    let wanted = request.query.get("q").to_lowercase();
    let hit = !wanted.is_empty() && one.name.to_lowercase().contains(&wanted);
    html! {
        span.t title={ (grouped(one.total)) " " (text(request.event_name())) } {
            svg.bar width="100%" height="100%" aria-hidden="true" { rect width={ (format!("{width:.2}")) "%" } height="100%" {} }
            span { (percent(one.total as f64, total)) }
        }
        @if !shape(&request.query).inverted {
            span.s title={ (grouped(one.own)) " " (text(request.event_name())) } { @if one.own > 0 { (percent(one.own as f64, total)) } }
        }
        @if let Some(before) = one.before {
            @let delta = i128::from(one.total) - i128::from(before);
            span class={ "d " (match delta { 0 => "same", 1.. => "more", _ => "less" }) } { @if delta == 0 { "=" } @else { (signed(delta)) } }
        }
        span.w {
            @match picture.functions[index] {
                Some(id) => { a.fn.hit[hit] href=(request.function_link(View::Calls, id)) { (text(&one.name)) } }
                None => { span.fn.group.hit[hit] { (text(&one.name)) } }
            }
            @if !one.module.is_empty() { span.module { (text(&one.module)) } }
            a.zoom href=(request.here(&[("at", &at)])) title="Only this branch" aria-label="Only this branch" { "⤢" }
            a.flamelink href=(flame(request, &at)) title="Flame graph of this branch" aria-label="Flame graph of this branch" { "▤" }
        }
    }
}

fn flame(request: &Request, at: &str) -> String {
    let on = |name| if request.query.is_on(name) { "1" } else { "" };
    let by = request.query.get("by");
    request.link(View::Flame, &[("at", at), ("inv", on("inv")), ("fold", on("fold")), ("by", by)])
}

/// The way back out of a branch.
pub fn outer(request: &Request, picture: &Picture) -> Markup {
    html! {
        @if picture.outer > 0 {
            p.path aria-label="Around this branch" {
                a href=(request.here(&[("at", "")])) data-out { "all" }
                @for index in 1..=picture.outer {
                    " › "
                    @let name = text(&picture.graph.boxes.get(index).map_or(String::new(), |one| one.name.clone()));
                    @if index == picture.outer { strong { (name) } }
                    @else { a href=(request.here(&[("at", &picture.keys[index].to_string())])) { (name) } }
                }
            }
        }
    }
}

/// Links that turn options on and off, and what stands outermost.
pub fn switches(request: &Request, options: &[(&str, &str)]) -> Markup {
    let by = shape(&request.query).by;
    let sections = [
        ("", By::Function, "functions"),
        ("process", By::Process, "processes"),
        ("thread", By::Thread, "threads"),
        ("language", By::Language, "languages"),
    ];
    html! {
        div.switches {
            @for (name, title) in options {
                @let on = request.query.is_on(name);
                // Another shape has other contexts.
                a.switch href=(request.here(&[(name, if on { "" } else { "1" }), ("at", "")])) aria-pressed=(on) role="button" { (title) }
            }
            span.group { "outermost: "
                @for (word, section, title) in sections {
                    a.switch href=(request.here(&[("by", word), ("at", "")])) aria-pressed=(section == by) role="button" { (title) }
                }
            }
        }
    }
}

fn legend(request: &Request, least: f64) -> Markup {
    let inclusive = inclusive_is(request);
    let contexts = match inclusive {
        cells::Sure::Estimated if request.subject.profile().has_contexts() => {
            "Contexts were measured in instructions, by which each function's own counts of this event, which are exact, are shared out."
        }
        cells::Sure::Exact => {
            "Each context was measured: what a function executed when these called it."
        }
        cells::Sure::Estimated => {
            "Contexts are inferred: each function's own counts, which are exact, are shared out among its callers by numbers of calls, of all threads."
        }
        _ => {
            "Contexts were recorded with each sample; inlined functions are branches of their own."
        }
    };
    html! {
        (cells::legend(&[(inclusive, contexts)]))
        aside.legend {
            p { "Branches of less than " (format!("{:.3}", least * 100.0).trim_end_matches('0').trim_end_matches('.')) " % are left out. "
                a href=(request.here(&[("min", &format!("{}", least * 10.0))])) { "Show smaller ones" } "."
                @if request.base.is_some() { " Contexts that are no longer there are not shown; the table of functions has what is gone." } }
        }
    }
}
