//! The table of functions: own counts, inclusive ones, calls, and every other event in its column.

use lwp_profile::{Event, FunctionId};
use lwp_report::number::grouped;
use maud::{Markup, html};

use crate::cells::{self, Sure, badge, change, count, inclusive_is, own_is, share, text};
use crate::request::{Request, View};

/// Rows of a page.
const ROWS: usize = 200;

/// A function with what the table shows of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The function; `None` where only the subject compared with has it.
    pub function: Option<FunctionId>,
    /// Its name and its module's.
    pub name: (String, String),
    /// Own count of the chosen event.
    pub own: u64,
    /// Own count in the subject compared with.
    pub before: u64,
    /// Inclusive count.
    pub inclusive: f64,
    /// Number of calls to it, where calls were counted.
    pub calls: u64,
    /// Own counts of all events.
    pub events: Vec<u64>,
}

/// All functions that something was counted for, in any order.
pub fn rows(request: &Request) -> Vec<Row> {
    let (picked, event) = (&request.picked, request.event());
    let row = |index: usize| {
        let id = FunctionId(index as u32);
        let label = request.label(id);
        Row {
            function: Some(id),
            name: (label.name.clone(), label.module.clone()),
            own: picked.own[index].get(event),
            before: request
                .base
                .as_ref()
                .zip(request.in_base(id))
                .map_or(0, |(base, other)| base.1.own[other.index()].get(base.1.selection.event)),
            inclusive: picked.inclusive[index],
            calls: picked.graph.as_ref().map_or(0, |graph| graph.calls_of(id)),
            events: picked.own[index].0.clone(),
        }
    };
    let seen = |row: &Row| {
        row.own > 0
            || row.before > 0
            || row.inclusive > 0.0
            || row.calls > 0
            || row.events.iter().any(|n| *n > 0)
    };
    let mut rows: Vec<Row> = (0..picked.own.len()).map(row).filter(seen).collect();
    rows.extend(gone(request));
    rows
}

/// Functions that only the subject compared with has.
fn gone(request: &Request) -> Vec<Row> {
    let Some((base, picked)) = &request.base else { return Vec::new() };
    let only = |index: &usize| !request.subject.functions.contains_key(&base.keys[*index]);
    let row = |index: usize| Row {
        function: None,
        name: (base.labels[index].name.clone(), base.labels[index].module.clone()),
        own: 0,
        before: picked.own[index].get(picked.selection.event),
        inclusive: 0.0,
        calls: 0,
        events: vec![0; request.subject.profile().events.len()],
    };
    (0..base.keys.len()).filter(only).map(row).filter(|row| row.before > 0).collect()
}

/// Orders rows by what the address asks for.
pub fn sort(request: &Request, rows: &mut [Row]) {
    let key = request.query.get("sort");
    let event = key.strip_prefix('e').and_then(|index| index.parse::<usize>().ok());
    let weight = |row: &Row| match (key, event) {
        (_, Some(index)) => row.events.get(index).copied().unwrap_or(0) as f64,
        ("total", _) => row.inclusive,
        ("calls", _) => row.calls as f64,
        ("before", _) => row.before as f64,
        ("change", _) => row.own.abs_diff(row.before) as f64,
        _ if key.is_empty() && request.base.is_some() => row.own.abs_diff(row.before) as f64,
        _ => row.own as f64,
    };
    let by_name = |a: &Row, b: &Row| a.name.cmp(&b.name);
    match key {
        "name" => rows.sort_by(by_name),
        "module" => rows.sort_by(|a, b| a.name.1.cmp(&b.name.1).then_with(|| by_name(a, b))),
        // Among equals, as where nothing has changed, the greater one comes first.
        _ => rows.sort_by(|a, b| {
            let by_weight = weight(b).total_cmp(&weight(a));
            by_weight.then(b.own.cmp(&a.own)).then_with(|| by_name(a, b))
        }),
    }
    if request.query.is_on("asc") {
        rows.reverse();
    }
}

/// The view.
pub fn body(request: &Request) -> Markup {
    let mut rows = rows(request);
    let wanted = request.query.get("q").to_lowercase();
    let all = rows.len();
    if !wanted.is_empty() {
        let hit = |text: &str| text.to_lowercase().contains(&wanted);
        rows.retain(|row| hit(&row.name.0) || hit(&row.name.1));
    }
    sort(request, &mut rows);
    let found: u64 = rows.iter().fold(0, |sum, row| sum.saturating_add(row.own));
    let limit = request.query.number("n").unwrap_or(ROWS);
    let shown = &rows[..limit.min(rows.len())];
    html! {
        h1 { "Functions" small {
            @if wanted.is_empty() { (grouped(all as u64)) }
            @else { (grouped(rows.len() as u64)) " of " (grouped(all as u64)) ", "
                (lwp_report::number::percent(found as f64, request.picked.total())) " of " (text(request.event_name())) }
        } }
        (table(request, shown))
        @if shown.len() < rows.len() {
            p.more { a href=(request.here(&[("n", &(limit * 5).to_string())])) {
                "Show more: " (grouped((rows.len() - shown.len()) as u64)) " are left"
            } }
        }
        (legend(request))
    }
}

/// The table of these rows.
pub fn table(request: &Request, rows: &[Row]) -> Markup {
    let profile = request.subject.profile();
    let others = other_events(request);
    let compared = request.base.is_some();
    let calls = request.picked.graph.is_some();
    let both = Both::of(request);
    html! {
        div.scroll { table.rows.functions {
            thead { tr {
                (head(request, "own", "Self", Some(own_is(request))))
                (head(request, "total", "Total", Some(inclusive_is(request))))
                th.num { a href=(request.here(&[("sort", "own"), ("asc", "")])) { (text(request.event_name())) } }
                @if compared {
                    (head(request, "before", "Before", None))
                    (head(request, "change", "Change", None))
                    th.num { "%" }
                }
                @if calls { (head(request, "calls", "Calls", Some(Sure::Exact))) }
                @if both.is_some() {
                    th.num { "~ns/call " (badge(Sure::Estimated)) }
                    th.num { "~ns/instruction " (badge(Sure::Estimated)) }
                }
                (head(request, "name", "Function", None))
                (head(request, "module", "Module", None))
                @for index in &others {
                    (head(request, &format!("e{index}"), &profile.events[*index].name, None))
                }
            } }
            tbody { @for row in rows { (line(request, row, (&others, both))) } }
        } }
        @if rows.is_empty() { p.none { (nothing(request)) } }
    }
}

/// Says why a table is empty.
pub fn nothing(request: &Request) -> &'static str {
    let picked = &request.picked;
    let limited = !picked.selection.who.is_empty() || picked.selection.range.is_some();
    match (request.query.get("q").is_empty(), limited, own_is(request)) {
        (false, ..) => "No function or module that was counted has this in its name.",
        (true, true, _) => "Nothing was counted in what is selected.",
        (true, false, Sure::Sampled) => {
            "No sample was taken: no thread executed as much as the interval. A shorter one takes \
             more, as of lwp record -c 1K."
        }
        (true, false, _) => "Nothing was counted.",
    }
}

/// Time for each so many, with two digits or more.
fn per(time: u64, count: u64) -> Markup {
    let known = (time > 0 && count > 0).then(|| time as f64 / count as f64);
    let shown = known.map(|ns| match ns {
        100.0.. => grouped(ns.round() as u64),
        1.0.. => format!("{ns:.1}"),
        _ => format!("{ns:.3}"),
    });
    html! { td.num { @if let Some(shown) = shown { (shown) } } }
}

fn line(request: &Request, row: &Row, (others, both): (&[usize], Option<Both>)) -> Markup {
    let total = request.picked.total();
    html! {
        tr data-row {
            (share(row.own as f64, total))
            (share(row.inclusive, total))
            (count(row.own))
            @if request.base.is_some() {
                (count(row.before))
                (change(row.before, row.own))
                td.num { (cells::ratio(row.before, row.own)) }
            }
            @if request.picked.graph.is_some() { (count(row.calls)) }
            @if let Some(Both { time, instructions }) = both {
                (per(row.events[time], row.calls))
                (per(row.events[time], row.events[instructions]))
            }
            td.name {
                @match row.function {
                    Some(id) => {
                        (cells::name(request, id, View::Calls))
                        a.code href=(request.function_link(View::Code, id)) title="Code" aria-label="Code" { "{}" }
                    }
                    None => { span.gone { (text(&row.name.0)) } }
                }
            }
            td.module { (text(&row.name.1)) }
            @for index in others { (count(row.events[*index])) }
        }
    }
}

/// The indices of two events that are both known.
#[derive(Clone, Copy, Debug)]
struct Both {
    time: usize,
    instructions: usize,
}

impl Both {
    fn of(request: &Request) -> Option<Self> {
        let profile = request.subject.profile();
        let time = profile.event(Event::TIME).filter(|time| profile.is_sampled_beside(*time))?;
        Some(Self { time, instructions: profile.event(Event::EXACT[0])? })
    }
}

/// Events beside the chosen one. Of a span of time only that one is known.
fn other_events(request: &Request) -> Vec<usize> {
    let all = 0..request.subject.profile().events.len();
    let limited = request.picked.selection.range.is_some();
    all.filter(|index| *index != request.event() && !limited).collect()
}

fn head(request: &Request, key: &str, title: &str, sure: Option<Sure>) -> Markup {
    let now = request.query.get("sort");
    let first = now.is_empty() && key == if request.base.is_some() { "change" } else { "own" };
    let sorted = now == key || first;
    let ascending = request.query.is_on("asc");
    let turn = if sorted && !ascending { "1" } else { "" };
    let order = match (sorted, ascending != matches!(key, "name" | "module")) {
        (false, _) => None,
        (true, false) => Some("descending"),
        (true, true) => Some("ascending"),
    };
    // Columns that narrow screens keep.
    let class = match key {
        "name" => "name",
        "module" => "name module",
        "own" | "change" => "num kept",
        _ => "num",
    };
    html! {
        th class=(class) aria-sort=[order] {
            a href=(request.here(&[("sort", key), ("asc", turn)])) {
                (text(title)) @if sure == Some(Sure::Estimated) { "~" }
                @if let Some(order) = order { span.order { (if order == "ascending" { " ▲" } else { " ▼" }) } }
            }
            @if let Some(sure) = sure { " " (badge(sure)) }
        }
    }
}

fn legend(request: &Request) -> Markup {
    let own = own_is(request);
    let mut sentences = vec![(
        own,
        match own {
            Sure::Exact => {
                "Self: what the function's own instructions counted, what was inlined into them included. Every event was counted."
            }
            Sure::Modelled => "Self: what a model made of the function's own instructions.",
            _ => "Self: samples in the function's own instructions, times their interval.",
        },
    )];
    let inclusive = inclusive_is(request);
    sentences.push((inclusive, match inclusive {
        Sure::Estimated if request.subject.profile().has_contexts() => "Total~: the same with what was called, shared out as the instructions that were measured for each caller.",
        Sure::Exact => "Total: what was measured while the function was running, what it called included; once, where it was several times on the stack.",
        Sure::Estimated => "Total~: the same with what was called, shared out by numbers of calls as if each call of a function cost the same.",
        _ => "Total: samples with the function anywhere on their recorded stacks; inlined functions have rows of their own.",
    }));
    if request.picked.graph.is_some() {
        let all = request.picked.selection.who.is_empty();
        sentences.push((Sure::Exact, match all {
            true => "Calls: how often the function was entered.",
            false => "Calls: how often the function was entered, by all threads: calls are not told apart by threads.",
        }));
    }
    if Both::of(request).is_some() {
        sentences.push((Sure::Estimated, "~ns/call and ~ns/instruction: the function's own time in a native run, which was sampled, by its calls and instructions in another run, which were counted."));
    }
    cells::legend(&sentences)
}
