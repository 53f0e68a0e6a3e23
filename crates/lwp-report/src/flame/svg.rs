//! A flame graph as one SVG file.

use std::fmt::Write;

use crate::escape::markup;
use crate::number::{amount, percent, signed_amount, titled};

use super::graph::{Box, Graph, Style};

/// Height of a box with its gap.
const ROW: f64 = 18.0;
/// Space for the title above and the details below.
const TOP: f64 = 66.0;
const BOTTOM: f64 = 28.0;
/// Average width of a character.
const CHARACTER: f64 = 7.0;

const SCRIPT: &str = include_str!("flame.js");
const CSS: &str = include_str!("flame.css");

/// The graph as a file of its own.
pub fn svg(graph: &Graph, style: &Style) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n");
    element(&mut out, graph, style, true);
    out
}

/// The `svg` element; `alone` with style and script in itself.
pub fn element(out: &mut String, graph: &Graph, style: &Style, alone: bool) {
    let height = TOP + graph.depth as f64 * ROW + BOTTOM;
    let width = style.width;
    let title = markup(&style.title);
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"flame-title\" \
         data-width=\"{width}\" data-row=\"{ROW}\" data-top=\"{TOP}\" data-depth=\"{}\" \
         data-icicle=\"{}\">",
        graph.depth, style.icicle
    );
    let _ = writeln!(out, "<title id=\"flame-title\">{title}</title>");
    if alone {
        let _ = writeln!(out, "<style><![CDATA[\n{CSS}]]></style>");
    }
    let _ = writeln!(out, "<rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
    let middle = width / 2.0;
    let _ = writeln!(
        out,
        "<text class=\"title\" data-at=\"middle\" x=\"{middle}\" y=\"22\" text-anchor=\"middle\">{title}</text>"
    );
    let _ = writeln!(
        out,
        "<text class=\"note\" data-at=\"middle\" x=\"{middle}\" y=\"40\" text-anchor=\"middle\">{}</text>",
        markup(&subtitle(graph))
    );
    if alone {
        let right = width - 8.0;
        let _ = writeln!(
            out,
            "<text class=\"act\" id=\"reset\" x=\"8\" y=\"22\" visibility=\"hidden\">Reset zoom</text>\
             <text class=\"act\" data-at=\"right\" id=\"search\" x=\"{right}\" y=\"22\" text-anchor=\"end\">Search</text>"
        );
    }
    for frame in &graph.boxes {
        draw(out, graph, style, frame);
    }
    legend(out, graph, height - 16.0);
    if alone {
        // In a page it stands beside the search field, where it is seen however deep the stacks
        // are.
        let _ = writeln!(
            out,
            "<text class=\"note\" id=\"details\" x=\"8\" y=\"{}\"> </text>",
            TOP - 4.0
        );
        let _ = writeln!(out, "<script><![CDATA[\n{SCRIPT}]]></script>");
    }
    out.push_str("</svg>\n");
}

/// The meaning of colours.
const MODULES: [(&str, (u32, u32)); 4] = [
    ("the program", (26, 80)),
    ("libraries", (215, 45)),
    ("generated code", (105, 45)),
    ("other code", (260, 25)),
];
const CHANGES: [(&str, (u32, u32)); 3] =
    [("has grown", (5, 70)), ("as before", (0, 0)), ("has shrunk", (215, 70))];

/// Writes what the colours stand for.
fn legend(out: &mut String, graph: &Graph, y: f64) {
    let rows = if graph.before.is_some() { &CHANGES[..] } else { &MODULES };
    for ((what, (hue, saturation)), x) in rows.iter().zip([8, 148, 288, 428]) {
        let _ = writeln!(
            out,
            "<g class=\"k\"><rect x=\"{x}\" y=\"{}\" width=\"11\" height=\"11\" rx=\"2\" \
             fill=\"hsl({hue},{saturation}%,70%)\" style=\"--h:{hue};--s:{saturation}%\"/>\
             <text class=\"note\" x=\"{}\" y=\"{y}\">{what}</text></g>",
            y - 10.0,
            x + 17
        );
    }
}

/// Returns the count and name of the event, its change, and the remark on the numbers.
fn subtitle(graph: &Graph) -> String {
    let event = graph.event.as_str();
    let mut text = titled(event, graph.total);
    if let Some(before) = graph.before {
        let delta = i128::from(graph.total) - i128::from(before);
        let delta = signed_amount(event, delta);
        let _ = write!(text, ", {delta} than before; red has grown, blue has shrunk");
    }
    if !graph.note.is_empty() {
        let _ = write!(text, " \u{2014} {}", graph.note);
    }
    text
}

fn draw(out: &mut String, graph: &Graph, style: &Style, frame: &Box) {
    let (x, width) = (frame.start * style.width, frame.width * style.width);
    let row = match style.icicle {
        true => frame.depth,
        false => graph.depth - 1 - frame.depth,
    };
    let y = TOP + row as f64 * ROW;
    let (hue, saturation) = colour(graph, frame);
    let fits = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    let _ = writeln!(
        out,
        "<g class=\"f\" data-x=\"{:.9}\" data-w=\"{:.9}\" data-d=\"{}\" data-n=\"{}\"{}>\
         <title>{}</title>\
         <rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" rx=\"1\" \
         fill=\"hsl({hue},{saturation}%,70%)\" style=\"--h:{hue};--s:{saturation}%\"/>\
         <text x=\"{:.2}\" y=\"{}\">{}</text></g>",
        frame.start,
        frame.width,
        frame.depth,
        markup(&frame.name),
        short_forms(&frame.name),
        markup(&details(graph, frame)),
        ROW - 1.0,
        x + 3.0,
        y + 13.0,
        markup(&shortened(&frame.name, fits)),
    );
}

fn details(graph: &Graph, frame: &Box) -> String {
    let mut text = frame.name.clone();
    if !frame.module.is_empty() {
        let _ = write!(text, " [{}]", frame.module);
    }
    let event = graph.event.as_str();
    let _ = write!(
        text,
        ": {}, {}; own {}",
        titled(event, frame.total),
        percent(frame.total as f64, graph.total),
        amount(event, frame.own)
    );
    if let Some(before) = frame.before {
        let delta = i128::from(frame.total) - i128::from(before);
        let (delta, before) = (signed_amount(event, delta), amount(event, before));
        let _ = write!(text, "; {delta} than before ({before})");
    }
    text
}

/// Hue and saturation: by module, or by how much the box has changed.
fn colour(graph: &Graph, frame: &Box) -> (u32, u32) {
    if let Some(before) = frame.before {
        let (before, after) = (before as f64, frame.total as f64);
        let whole = (graph.total.max(graph.before.unwrap_or(0)) as f64).max(1.0);
        let change = (after - before) / before.max(after).max(1.0);
        // What is hardly anything of the whole must not shout.
        let weight = ((after - before).abs() / whole * 50.0).min(1.0);
        let strength = (change.abs() * 80.0 * weight.sqrt()) as u32;
        return (if change > 0.0 { 5 } else { 215 }, strength);
    }
    let module = frame.module.as_str();
    let hash =
        |text: &str| text.bytes().fold(5381u32, |sum, byte| sum.wrapping_mul(33) ^ u32::from(byte));
    let shade = hash(&frame.name) % 20;
    match module {
        "" => (0, 0),
        "[vdso]" | "[unknown]" => (260, 25),
        "[generated]" => (95 + shade, 45),
        _ if lwp_profile::is_shared_library(module) => (190 + hash(module) % 40 + shade / 2, 45),
        _ => (18 + shade + hash(module) % 10, 80),
    }
}

/// As much of `name` as fits into `room` characters: the function's own name last of all.
fn shortened(name: &str, room: usize) -> String {
    if room < 3 { String::new() } else { lwp_symbols::fitted(name, room) }
}

/// Shorter forms of a name, for the script, which learns the room of a box when it is zoomed.
fn short_forms(name: &str) -> String {
    let (bare, own) = lwp_symbols::short_forms(name);
    let attribute = |key: &str, text: &str| format!(" data-{key}=\"{}\"", markup(text));
    let mut out = String::new();
    if bare != name {
        out += &attribute("s", &bare);
    }
    if own != bare {
        out += &attribute("o", &own);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: R50: narrow places show functions' own names.
    #[test]
    fn narrow_boxes_have_the_functions_own_name() {
        let name = "void outer::of_some_length::Table<unsigned long>::insert(int)";
        assert_eq!(shortened(name, 100), name);
        assert_eq!(shortened(name, 24), "\u{2026}::Table<\u{2026}>::insert");
        assert_eq!(
            [shortened(name, 6), shortened(name, 4), shortened(name, 2)],
            ["insert".to_owned(), "ins\u{2026}".to_owned(), String::new()]
        );
        assert_eq!(
            short_forms(name),
            " data-s=\"outer::of_some_length::Table&lt;\u{2026}&gt;::insert\" data-o=\"insert\""
        );
        assert_eq!(short_forms("main"), "");
        assert!(short_forms("a\"b::c").contains(" data-o=\"c\""));
    }
}
