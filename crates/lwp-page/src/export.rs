//! Pages' content in other formats, as files to keep.

use lwp_export::Format;
use lwp_report::annotate::{self, Options};
use lwp_report::flame::{self, Before, Graph, Style};
use lwp_report::{SortKey, Table, annotate_text, machine, text};

use crate::request::Request;
use crate::selection::Selection;
use crate::views::code;

/// A file to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, of letters, digits, dots, hyphens and underscores.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Formats of lwp's own: name, end of the file's name, what it is.
pub const OWN: [(&str, &str, &str); 6] = [
    ("text", ".txt", "the table of lwp report"),
    ("csv", ".csv", "the same for spreadsheets"),
    ("json", ".json", "the same for programs"),
    ("svg", ".flame.svg", "a flame graph that needs nothing else"),
    ("html", ".flame.html", "the same as a page with a search field"),
    ("annotate", ".code.txt", "the code of the chosen function with counts"),
];

/// The file in a format; `None` if there is no such format, or no recording behind the subject that
/// it could be made from. Files hold all of a recording, whatever is selected.
pub fn file(request: &Request, format: &str) -> Option<File> {
    if let Some((_, end, _)) = OWN.iter().find(|row| row.0 == format) {
        return Some(File { name: name(request, end), bytes: own(request, format)?.into_bytes() });
    }
    let (format, _, end, _) = Format::ALL.iter().find(|row| row.1 == format)?;
    let subject = &request.subject;
    let recording = subject.of.behind.as_ref()?.recording().ok()?;
    let bytes = match subject.whole(&recording) {
        Some(profile) => format.write(&recording, &profile, request.event()),
        None => format.write(&recording, subject.profile(), request.event()),
    };
    // Some formats go by the start of a name.
    let name = match end.starts_with('.') {
        true => name(request, end),
        false => format!("{end}.{}", name(request, "")),
    };
    Some(File { name, bytes })
}

fn own(request: &Request, format: &str) -> Option<String> {
    let profile = request.subject.profile();
    let event = request.event();
    if format == "annotate" {
        let id = request.function()?;
        let mut sources = code::Lines(&request.subject);
        let options = Options { event, intel: request.query.get("syntax") == "intel" };
        let whole = request.subject.pick(&Selection { event, ..Selection::default() });
        let listing = annotate::listing(profile, &whole.counts, id, options, &mut sources);
        return Some(annotate_text::listing(&listing));
    }
    if matches!(format, "svg" | "html") {
        let style = Style { title: profile.command.clone(), ..Style::default() };
        let there = request.base.as_ref().map(|(base, picked)| (base, picked.tree(base)));
        let before = there.as_ref().map(|(base, shaped)| Before {
            profile: base.profile(),
            tree: &shaped.tree,
            same: base.keys.iter().map(|key| request.subject.functions.get(key).copied()).collect(),
        });
        let here = request.picked.tree(&request.subject);
        let after = (profile, &here.tree);
        let graph = Graph::new(before.as_ref(), after, request.event_name(), &style);
        let draw = if format == "svg" { flame::svg } else { flame::html };
        return Some(draw(&graph, &style));
    }
    let sort = vec![SortKey::Dso, SortKey::Sym];
    let whole = match &request.subject.of.behind {
        Some(behind) => request.subject.whole(&*behind.recording().ok()?),
        None => None,
    };
    let profile = whole.as_ref().unwrap_or(profile);
    let table = Table::new(profile, &lwp_report::Options { event, sort, ..Default::default() });
    match format {
        "csv" => Some(machine::csv(&table)),
        "json" => Some(machine::json(&table)),
        _ => Some(text::table(&table, None)),
    }
}

/// A name that is safe in a header and on every disk.
fn name(request: &Request, end: &str) -> String {
    let base = request.subject.of.name.rsplit('/').next().unwrap_or("");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let base: String = base.chars().take(80).map(|c| if plain(c) { c } else { '_' }).collect();
    let base = base.trim_start_matches('.');
    format!("{}{end}", if base.is_empty() { "recording" } else { base })
}
