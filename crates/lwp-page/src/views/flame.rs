//! Contexts as a picture: a flame graph, its root at the top or at the bottom.

use lwp_profile::FunctionId;
use lwp_report::flame::Box;
use lwp_report::number::{grouped, percent, signed};
use maud::{Markup, html};

use crate::cells::{self, Sure, badge, inclusive_is, text};
use crate::picture::{Picture, shape};
use crate::request::{Request, View};
use crate::views::tree::{outer, switches};
use lwp_symbols::Language;

/// Boxes narrower than this part of the picture are left out; zooming shows them.
const LEAST: f64 = 0.0006;
/// Height of a box, and of the space that it takes, in pixels.
const BOX: usize = 18;
const ROW: usize = 19;

/// The view.
pub fn body(request: &Request) -> Markup {
    let picture = Picture::new(request, LEAST);
    let up = request.query.is_on("up");
    let details = "Point at a box, or go to it with the Tab key: its counts stand here.";
    html! {
        h1 { (title(request)) small {
            (grouped(picture.graph.total)) " " (text(request.event_name())) " " (badge(inclusive_is(request)))
            (matched(request, &picture))
        } }
        (switches(request, &[("up", "root at the bottom"), ("inv", "from callees to callers"), ("fold", "recursion folded")]))
        (outer(request, &picture))
        p.details id="details" aria-live="polite" data-empty=(details) { (details) }
        (drawing(request, &picture, up))
        (colours(request, &picture))
        (legend(request))
    }
}

fn title(request: &Request) -> &'static str {
    if request.base.is_some() { "Differential flame graph" } else { "Flame graph" }
}

/// Boxes are elements of their own size in percent, so that the picture fits every window and long
/// names are cut where their box ends.
fn drawing(request: &Request, picture: &Picture, up: bool) -> Markup {
    let height = picture.graph.depth * ROW;
    let wanted = request.query.get("q").to_lowercase();
    html! {
        svg.flame width="100%" height=(height) role="img" aria-label="Contexts as boxes, as wide as what was counted in them" {
            @for (index, one) in picture.graph.boxes.iter().enumerate() {
                @let row = if up { picture.graph.depth - 1 - one.depth } else { one.depth };
                @let hit = !wanted.is_empty() && one.name.to_lowercase().contains(&wanted);
                a href=(target(request, picture, index)) class=(class(request, picture, index, hit))
                    data-f=[picture.functions[index].map(|id| request.subject.keys[id.index()].to_string())] {
                    svg x={ (percentage(one.start)) "%" } y=(row * ROW) width={ (percentage(one.width)) "%" } height=(BOX) {
                        title { (details(request, picture, one)) }
                        rect width="100%" height="100%" {}
                        @if one.width > 0.012 { text x="4" y="13" { (text(&one.name)) } }
                    }
                }
            }
        }
    }
}

fn percentage(part: f64) -> String {
    format!("{:.3}", part * 100.0)
}

/// A box leads to the picture of itself; those around it lead further out.
fn target(request: &Request, picture: &Picture, index: usize) -> String {
    let at = if index == 0 { String::new() } else { picture.keys[index].to_string() };
    request.here(&[("at", &at)])
}

fn class(request: &Request, picture: &Picture, index: usize, hit: bool) -> String {
    let one = &picture.graph.boxes[index];
    let mut class = match one.before {
        Some(before) => changed(one, before, picture),
        None => match picture.functions[index] {
            Some(id) => module_class(&one.module, &one.name, request.label(id).language),
            None => "x".to_owned(),
        },
    };
    if index < picture.outer {
        class.push_str(" outer");
    }
    if hit {
        class.push_str(" hit");
    }
    class
}

/// Red from r1 to r5 for what has grown, blue from b1 to b5 for what has shrunk, by the part of the
/// box that has changed. Less than a five-hundredth of the whole is grey: it must not shout.
fn changed(one: &Box, before: u64, picture: &Picture) -> String {
    let whole = picture.graph.total.max(picture.graph.before.unwrap_or(0)).max(1) as f64;
    let (before, after) = (before as f64, one.total as f64);
    let (delta, part) =
        ((after - before).abs(), (after - before).abs() / before.max(after).max(1.0));
    if delta / whole < 0.002 || part < 0.005 {
        return "x".to_owned();
    }
    let step = ((part * 5.0).ceil() as u32).clamp(1, 5);
    format!("{}{step}", if after > before { 'r' } else { 'b' })
}

/// Colours tell where code is from: the program, libraries, generated code; shades tell neighbours
/// apart.
fn module_class(module: &str, name: &str, language: Language) -> String {
    let shade = name.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(byte)) % 4;
    let colour = match (language, module) {
        _ if language.has_runtime() => 'l',
        (Language::Generated, _) | (_, "[generated]") => 'g',
        (Language::Unknown, _) => 'u',
        _ if lwp_profile::is_shared_library(module) || module.starts_with('[') => 's',
        _ => 'p',
    };
    format!("{colour}{shade}")
}

fn details(request: &Request, picture: &Picture, one: &Box) -> String {
    let module = match one.module.as_str() {
        "" => String::new(),
        // Code without a file has a name in brackets already.
        module if module.starts_with('[') => format!(" {}", text(module)),
        module => format!(" [{}]", text(module)),
    };
    let event = text(request.event_name());
    let share = percent(one.total as f64, picture.graph.total);
    let mut out = format!("{}{module}: {} {event}, {share}", text(&one.name), grouped(one.total));
    if one.own > 0 {
        out.push_str(&format!(
            "; self {}, {}",
            grouped(one.own),
            percent(one.own as f64, picture.graph.total)
        ));
    }
    if let Some(before) = one.before {
        let delta = i128::from(one.total) - i128::from(before);
        out.push_str(&format!("; {} against {} before", signed(delta), grouped(before)));
    }
    out
}

/// The part of the picture that the search has found, each part of it once.
fn matched(request: &Request, picture: &Picture) -> Markup {
    let wanted = request.query.get("q").to_lowercase();
    let (mut sum, mut end) = (0.0, 0.0);
    for one in picture.graph.boxes.iter().skip(picture.outer) {
        // Inner boxes come behind outer ones, and from left to right.
        if one.start >= end - 1e-9 && one.name.to_lowercase().contains(&wanted) {
            sum += one.width;
            end = one.start + one.width;
        }
    }
    html! { @if !wanted.is_empty() { ", " (format!("{:.2}", sum * 100.0)) " % matched" } }
}

fn colours(request: &Request, picture: &Picture) -> Markup {
    let languages = languages(request, picture);
    let all: &[(&str, &str)] = match request.base.is_some() {
        true => &[
            ("r5", "new, or grown many times"),
            ("r2", "has grown"),
            ("x", "hardly changed"),
            ("b2", "has shrunk"),
            ("b5", "almost gone"),
        ],
        false => &[
            ("p1", "the program"),
            ("s1", "libraries and the kernel's page"),
            ("l1", &languages),
            ("g1", "other generated code"),
            ("u1", "without a name"),
        ],
    };
    let used = |class: &str| {
        request.base.is_some() || {
            let first = class.chars().next();
            (0..picture.graph.boxes.len())
                .any(|index| self::class(request, picture, index, false).chars().next() == first)
        }
    };
    html! {
        p.colours { @for (class, what) in all.iter().filter(|row| used(row.0)) { span { svg.swatch width="14" height="14" { g class=(class) { rect width="14" height="14" {} } } (what) } } }
    }
}

/// The names of languages with a runtime that boxes are in.
fn languages(request: &Request, picture: &Picture) -> String {
    let of_box = |id: &Option<FunctionId>| id.map(|id| request.label(id).language);
    let mut all: Vec<Language> = picture.functions.iter().filter_map(of_box).collect();
    all.retain(|language| language.has_runtime());
    all.sort_unstable();
    all.dedup();
    let names: Vec<&str> = all.into_iter().map(Language::name).collect();
    names.join(", ")
}

fn legend(request: &Request) -> Markup {
    let inclusive = inclusive_is(request);
    let widths = match inclusive {
        Sure::Estimated if request.subject.profile().has_contexts() => {
            "A box is as wide as what was counted in its function and below. Contexts were measured in instructions, by which each function's own counts of this event, which are exact, are shared out."
        }
        Sure::Exact => {
            "A box is as wide as what was measured in its function and below, called from those around it."
        }
        Sure::Estimated => {
            "A box is as wide as what was counted in its function and below. Contexts are inferred: each function's own counts, which are exact, are shared out among its callers by numbers of calls."
        }
        _ => {
            "A box is as wide as the samples that were taken in its function and below, on recorded stacks."
        }
    };
    let mut sentences = vec![(inclusive, widths)];
    if request.base.is_some() {
        sentences.push((inclusive, "Widths are those of this recording; colours tell what has changed since the other one. What is gone has no width: the table of functions has it."));
    }
    if shape(&request.query).inverted {
        sentences.push((inclusive, "Innermost functions stand outermost, with what was counted in themselves; their callers stand inside."));
    }
    html! {
        (cells::legend(&sentences))
        p.note { "From left to right there is no order of time: that is the " a href=(request.link(View::Time, &[])) { "time line" } "." }
    }
}
