//! Executions of each thread over time, measured by its own count of the event.

use std::ops::Range;

use lwp_profile::{FunctionId, Sampled, StackId};
use lwp_report::number::grouped;
use maud::{Markup, html};

use crate::cells::{self, Sure, text};
use crate::request::{Request, View};
use crate::selection::Who;
use crate::shell::longest;
use crate::subject::{Lane, Leaves, Subject};

/// Functions that have a colour.
const COLOURS: usize = 10;
/// Most lanes of a page.
const LANES: usize = 40;
/// Height of a lane in pixels.
const HEIGHT: f64 = 54.0;
/// Parts that a lane is drawn in.
const COLUMNS: usize = 256;

/// The view.
pub fn body(request: &Request) -> Markup {
    if request.subject.of.lanes.is_empty() {
        return empty(request);
    }
    let mut lanes: Vec<(usize, &Lane)> = request
        .subject
        .of
        .lanes
        .iter()
        .enumerate()
        .filter(|(_, lane)| shown(request, lane))
        .collect();
    lanes.sort_by_key(|(_, lane)| (std::cmp::Reverse(lane.total), lane.thread));
    let whole = longest(request).max(1);
    let colours = colours(request);
    let on_stack = !request.query.get("f").is_empty();
    let inside = on_stack.then(|| Inside::of(&request.subject, colours.first().copied()));
    html! {
        h1 { "Time line" small { (lanes.len()) (if lanes.len() == 1 { " thread by its" } else { " threads, each by its" }) " own count of " (text(request.event_name())) } }
        (palette(request, &colours))
        (range_form(request, whole))
        div.lanes data-whole=(whole) {
            (axis(whole))
            @for (number, lane) in lanes.iter().take(LANES) {
                @let columns = columns(&request.subject, *number, &colours, inside.as_ref());
                (self::lane(request, lane, whole, &columns))
            }
        }
        @if lanes.len() > LANES { p.note { "Of " (lanes.len()) " threads the " (LANES) " longest are shown." } }
        @if let Some((base, _)) = &request.base { (other(request, base, &colours)) }
        (legend(request))
    }
}

fn empty(request: &Request) -> Markup {
    html! {
        h1 { "Time line" }
        p.none {
            @if request.subject.is_exact() { "This recording has exact counts of the whole run, and no order of time: record samples for one, lwp record -c 100K -- PROGRAM." }
            @else if request.subject.samples.is_some() && request.subject.portions.is_empty() {
                (crate::views::functions::nothing(request))
            }
            @else { "The order of samples is not known: a recording that came through a pipe cannot be read twice." }
        }
    }
}

fn shown(request: &Request, lane: &Lane) -> bool {
    let thread = &request.subject.profile().threads[lane.thread.index()];
    let number = lane.thread.index();
    let met = |who: &Who| match who {
        Who::Language(_) => true,
        who => who.meets(number, thread, crate::Language::Unknown),
    };
    lane.event == request.event() && request.picked.selection.who.iter().all(met)
}

/// Functions with their colours.
type Colours = Vec<FunctionId>;

/// The functions that most was counted in; or the one that is asked for.
fn colours(request: &Request) -> Colours {
    if !request.query.get("f").is_empty() {
        return request.function().into_iter().collect();
    }
    let event = request.event();
    let own = &request.picked.own;
    let mut order: Vec<u32> = (0..own.len() as u32).collect();
    order.sort_by_key(|index| std::cmp::Reverse(own[*index as usize].get(event)));
    order.truncate(COLOURS);
    order.into_iter().filter(|index| own[*index as usize].get(event) > 0).map(FunctionId).collect()
}

fn palette(request: &Request, colours: &Colours) -> Markup {
    let one = !request.query.get("f").is_empty();
    html! {
        p.colours {
            @for (index, id) in colours.iter().enumerate() {
                span { svg.swatch width="14" height="14" { g class={ "c" (index) } { rect width="14" height="14" {} } }
                    a href=(request.link(View::Time, &[("f", &request.subject.keys[id.index()].to_string())])) { (text(&request.label(*id).name)) }
                    @if one { ", on the stack" } }
            }
            @if one { a.switch href=(request.here(&[("f", "")])) role="button" { "the hottest functions instead" } }
            @else { span { svg.swatch width="14" height="14" { g class="x" { rect width="14" height="14" {} } } "others" } }
        }
    }
}

/// Numbers to select a span by, without a mouse or a script.
fn range_form(request: &Request, whole: u64) -> Markup {
    let (from, to) = request.picked.selection.range.unwrap_or((0, whole));
    let others = request.query.pairs().filter(|(name, _)| !["from", "to"].contains(name));
    html! {
        form.range method="get" action="time" {
            @for (name, value) in others { input type="hidden" name=(name) value=(value); }
            label { "From " input type="number" name="from" min="0" max=(whole) value=(from); }
            label { " to " input type="number" name="to" min="0" max=(whole) value=(to.min(whole)); }
            button type="submit" { "Select" }
            span.note { "or drag over a lane; every view then shows this span only." }
        }
    }
}

fn axis(whole: u64) -> Markup {
    let ticks = (0..=4u64).map(|tick| (tick * 25, whole as f64 * tick as f64 / 4.0));
    html! {
        div.lane { span.who {} svg.axis width="100%" height="18" aria-hidden="true" {
            @for (percent, value) in ticks {
                @let anchor = match percent { 0 => "start", 100 => "end", _ => "middle" };
                text x={ (percent) "%" } y="13" text-anchor=(anchor) { (grouped(value as u64)) }
            }
        } }
    }
}

fn lane(request: &Request, lane: &Lane, whole: u64, columns: &Columns) -> Markup {
    let thread = &request.subject.profile().threads[lane.thread.index()];
    let who = Who::Thread(lane.thread.0).word();
    let width = 100.0 / columns.len().max(1) as f64;
    let part = lane.total as f64 / whole as f64 * 100.0;
    html! {
        div.lane {
            span.who title={ "process " (thread.pid) } {
                a href=(request.here(&[("who", &who)])) { (text(&thread.comm)) } " " (thread.tid)
            }
            svg.strip width="100%" height=(HEIGHT) data-brush role="img" aria-label={ "What thread " (thread.tid) " executed" } {
                svg width={ (format!("{part:.3}")) "%" } height=(HEIGHT) {
                    rect.x width="100%" height="100%" {}
                    (stacked(columns, width))
                }
                (chosen(request, whole))
            }
        }
    }
}

/// Greys the part that is not selected.
fn chosen(request: &Request, whole: u64) -> Markup {
    let Some((from, to)) = request.picked.selection.range else { return html! {} };
    let place = |at: u64| (at as f64 / whole as f64 * 100.0).min(100.0);
    html! {
        rect.unchosen width={ (format!("{:.3}", place(from))) "%" } height="100%" {}
        rect.unchosen x={ (format!("{:.3}", place(to))) "%" } width={ (format!("{:.3}", 100.0 - place(to))) "%" } height="100%" {}
    }
}

/// Columns of a lane: the part that each colour has in each.
type Columns = Vec<Vec<f64>>;

/// The columns of the lane with this number. One chosen function is looked for on whole stacks,
/// others are told by innermost functions.
fn columns(
    subject: &Subject,
    number: usize,
    colours: &Colours,
    inside: Option<&Inside>,
) -> Columns {
    let lane = &subject.of.lanes[number];
    let together = lane.parts.len().div_ceil(COLUMNS).max(1);
    if let Some(inside) = inside {
        let column = |parts: &[Vec<(StackId, u32)>]| {
            let (mut sum, mut all) = (0u64, 0u64);
            for (stack, times) in parts.iter().flatten() {
                all += u64::from(*times);
                sum += if inside.has(*stack) { u64::from(*times) } else { 0 };
            }
            vec![sum as f64 / all.max(1) as f64]
        };
        return lane.parts.chunks(together).map(column).collect();
    }
    let column = |parts: &[Leaves]| {
        let mut sums = vec![0u64; colours.len()];
        let mut all = 0u64;
        for (function, times) in parts.iter().flatten() {
            all += times;
            if let Some(colour) = colours.iter().position(|known| known == function) {
                sums[colour] += times;
            }
        }
        sums.into_iter().map(|sum| sum as f64 / all.max(1) as f64).collect()
    };
    subject.leaves[number].chunks(together).map(column).collect()
}

/// The stacks that a function is on: a bit for each, as there may be tens of millions.
struct Inside(Vec<u64>);

impl Inside {
    /// Nowhere.
    fn of_none(stacks: usize) -> Self {
        Self(vec![0; stacks.div_ceil(64)])
    }

    /// The stacks of `id`.
    fn of(subject: &Subject, id: Option<FunctionId>) -> Self {
        let Some((samples, id)) = subject.samples.as_ref().zip(id) else {
            return Self::of_none(0);
        };
        let (shape, stacks) = (&samples.shape, &samples.stacks);
        let mut inside = Self::of_none(stacks.len());
        // What the function calls it in turn lies below its own contexts.
        let mut node = 1;
        let spans = std::iter::from_fn(|| {
            let found = next_of(shape.functions(), id, node)?;
            node = shape.end(found);
            Some(found as u32..node as u32)
        });
        if samples.in_order {
            let mut stack = 0;
            for span in spans {
                stack = first_from(stacks, stack, span.start);
                while stacks.get(stack).is_some_and(|stack| stack.context < span.end) {
                    inside.set(stack);
                    stack += 1;
                }
            }
            return inside;
        }
        let spans: Vec<Range<u32>> = spans.collect();
        for (stack, Sampled { context, .. }) in stacks.iter().enumerate() {
            let at = spans.partition_point(|span| span.end <= *context);
            if spans.get(at).is_some_and(|span| span.contains(context)) {
                inside.set(stack);
            }
        }
        inside
    }

    fn set(&mut self, stack: usize) {
        self.0[stack / 64] |= 1 << (stack % 64);
    }

    fn has(&self, stack: StackId) -> bool {
        self.0.get(stack.index() / 64).is_some_and(|word| word >> (stack.index() % 64) & 1 == 1)
    }
}

/// The index of the first stack from `at` on whose context is not before `context`: it is near.
fn first_from(stacks: &[Sampled], at: usize, context: u32) -> usize {
    let (mut at, mut step) = (at, 1);
    while stacks.get(at + step).is_some_and(|stack| stack.context < context) {
        at += step;
        step *= 2;
    }
    let near = &stacks[at..stacks.len().min(at + step)];
    at + near.partition_point(|stack| stack.context < context)
}

/// The first context of a function from the one with the number `from` on.
fn next_of(functions: &[FunctionId], id: FunctionId, from: usize) -> Option<usize> {
    let mut start = from;
    // Without a branch for each: most have other functions.
    for some in functions.get(from..)?.chunks(64) {
        if some.iter().fold(false, |found, function| found | (*function == id)) {
            return some.iter().position(|function| *function == id).map(|at| start + at);
        }
        start += some.len();
    }
    None
}

/// The lanes of the recording compared with: functions of the same names have the same colours.
fn other(request: &Request, base: &Subject, colours: &Colours) -> Markup {
    let (Some((_, picked)), whole) = (&request.base, longest(request).max(1)) else {
        return html! {};
    };
    let event = picked.selection.event;
    let there: Colours =
        colours.iter().map(|id| request.in_base(*id).unwrap_or(FunctionId(u32::MAX))).collect();
    let mut lanes: Vec<(usize, &Lane)> =
        base.of.lanes.iter().enumerate().filter(|(_, lane)| lane.event == event).collect();
    lanes.sort_by_key(|(_, lane)| std::cmp::Reverse(lane.total));
    let on_stack = !request.query.get("f").is_empty();
    let inside = on_stack.then(|| Inside::of(base, there.first().copied()));
    html! {
        h2 { "Before: " (text(&base.of.name)) }
        @if lanes.is_empty() { p.none { "It has no time line." } }
        div.lanes {
            @for (number, lane) in lanes.iter().take(LANES) {
                @let thread = &base.profile().threads[lane.thread.index()];
                @let columns = columns(base, *number, &there, inside.as_ref());
                @let width = 100.0 / columns.len().max(1) as f64;
                div.lane {
                    span.who { (text(&thread.comm)) " " (thread.tid) }
                    svg.strip width="100%" height=(HEIGHT) {
                        svg width={ (format!("{:.3}", lane.total as f64 / whole as f64 * 100.0)) "%" } height=(HEIGHT) {
                            rect.x width="100%" height="100%" {}
                            (stacked(&columns, width))
                        }
                    }
                }
            }
        }
    }
}

fn stacked(columns: &[Vec<f64>], width: f64) -> Markup {
    let mut rects = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let mut y = HEIGHT;
        for (colour, share) in column.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            y -= share * HEIGHT;
            rects.push((colour, index as f64 * width, y, share * HEIGHT));
        }
    }
    html! {
        @for (colour, x, y, height) in rects {
            rect class={ "c" (colour) } x={ (format!("{x:.3}")) "%" } width={ (format!("{:.3}", width * 1.02)) "%" } y=(format!("{y:.1}")) height=(format!("{height:.1}")) {}
        }
    }
}

fn legend(request: &Request) -> Markup {
    let random = |fact: &(String, String)| fact.0 == "random" && fact.1 != "0";
    let positions = match request.subject.of.facts.iter().any(random) {
        false => (
            Sure::Exact,
            "Positions: samples are an exact number of events apart, so each thread's own count is its clock.",
        ),
        true => (
            Sure::Sampled,
            "Positions: intervals have random low bits, so each thread's own count is known from their mean.",
        ),
    };
    cells::legend(&[
        positions,
        (
            positions.0,
            "Threads have no clock in common: what stands above each other did not happen at the same moment, and time without events, as in waiting, is not seen.",
        ),
        (
            Sure::Sampled,
            "Heights: the part of a column's samples that were taken in a function's own instructions; of one chosen function, with it anywhere on the stack.",
        ),
    ])
}
