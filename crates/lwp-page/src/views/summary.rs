//! The first page: what ran, what was counted, where most of it was, and how sure that is.

use lwp_report::number::{grouped, percent};
use maud::{Markup, html};

use crate::cells::{Sure, badge, change, ratio, text};
use crate::export::OWN;
use crate::picked::{By, groups};
use crate::request::{Request, View};
use crate::shell::certainty;
use crate::views::functions;

/// Functions that are shown here.
const TOP: usize = 12;

/// The view.
pub fn body(request: &Request) -> Markup {
    let mut rows = functions::rows(request);
    functions::sort(request, &mut rows);
    let changed = request.base.is_some() && rows.iter().any(|row| row.own != row.before);
    if changed {
        rows.retain(|row| row.own != row.before);
    }
    rows.truncate(TOP);
    html! {
        div.columns {
            section {
                h2 { "What ran" }
                table.plain.facts {
                    tr { th { "recording" } td { (text(&request.subject.of.name)) } }
                    @for (key, value) in &request.subject.of.facts {
                        @if let Some(name) = fact(key, value) {
                            tr { th { (text(name)) } td { (words(value)) } }
                        }
                    }
                    (people(request))
                }
            }
            section {
                h2 { "What was counted" }
                (totals(request))
                h2 { "How sure that is" }
                (certainty(request))
            }
        }
        @if let Some((base, _)) = &request.base {
            p.note { "Compared with " strong { (text(&base.of.name)) } ": " (rebuilt(request)) }
        }
        h2 { (if changed { "What has changed most" } else { "Where most of it was" }) a.aside href=(request.link(View::Functions, &[])) { "all functions" } }
        (functions::table(request, &rows))
        @if !request.subject.of.notes.is_empty() {
            h2 { "What is missing" }
            ul.notes { @for note in &request.subject.of.notes { li { (text(note)) } } }
        }
        (exports(request))
    }
}

/// The name of a fact in words; `None` for what the page says elsewhere, or what is so unless
/// somebody asks for something else.
fn fact<'f>(key: &'f str, value: &str) -> Option<&'f str> {
    match (key, value) {
        ("arguments" | "mode", _) => None,
        ("cpu", "default") | ("deterministic", "false") | ("random", "0") => None,
        ("languages", "auto") => None,
        ("added", _) => Some("started with"),
        ("cgroup", _) => Some("control group"),
        ("cpu", _) => Some("processor shown"),
        ("languages", _) => Some("runtimes asked"),
        ("random", _) => Some("random bits"),
        _ => Some(key),
    }
}

/// Words that a line is broken between, and not within.
fn words(value: &str) -> Markup {
    html! { @for word in value.split(' ') { span.word { (text(word)) } " " } }
}

/// Processes and threads, as far as there are several.
fn people(request: &Request) -> Markup {
    let processes = groups(&request.subject, By::Process).len();
    let threads = request.subject.profile().threads.len();
    let languages: Vec<String> =
        groups(&request.subject, By::Language).into_iter().map(|group| group.0).collect();
    html! {
        tr { th { "processes" } td { (grouped(processes as u64)) } }
        tr { th { "threads" } td { (grouped(threads as u64)) } }
        tr { th { "written in" } td { (languages.join(", ")) } }
        tr { th { "modules" } td { (grouped(request.subject.profile().modules.len() as u64)) } }
    }
}

fn totals(request: &Request) -> Markup {
    let profile = request.subject.profile();
    let total = &request.picked.counts.total;
    let whole = total.get(0);
    let limited = request.picked.selection.range.is_some();
    let events = profile.events.iter().enumerate();
    // Of sampled events the parts would be those of different samples.
    let parts = profile.events.iter().skip(1).any(|event| event.interval.is_none());
    html! {
        table.rows.events {
            thead { tr { th.name { "Event" } th.num { "Count" } @if parts { th.num { "of " (text(&profile.events.first().map_or(String::new(), |e| e.name.clone()))) } }
                @if request.base.is_some() { th.num { "Before" } th.num { "Change" } th.num { "%" } } th.name { "" } } }
            tbody {
                @for (index, event) in events.filter(|(index, _)| !limited || *index == request.event()) {
                    @let sure = match (event.modelled, event.interval) { (true, _) => Sure::Modelled, (_, Some(_)) => Sure::Sampled, _ => Sure::Exact };
                    @let count = total.get(index);
                    tr {
                        td.name { a href=(request.link(View::Functions, &[("e", &event.name)])) { (text(&event.name)) } }
                        td.num { (grouped(count)) }
                        @if parts { td.num { @if index > 0 && event.interval.is_none() { (percent(count as f64, whole)) } } }
                        @if let Some((base, picked)) = &request.base {
                            @let before = base.profile().event(&event.name).map_or(0, |at| picked.counts.total.get(at));
                            td.num { (grouped(before)) }
                            (change(before, count))
                            td.num { (ratio(before, count)) }
                        }
                        td { (badge(sure)) @if let Some(interval) = event.interval { " one in " (grouped(interval)) } }
                    }
                }
            }
        }
    }
}

/// Modules that are other builds than in the subject compared with.
fn rebuilt(request: &Request) -> Markup {
    let Some((base, _)) = &request.base else { return html! {} };
    let before = &base.profile().modules;
    let other = |module: &&lwp_profile::Module| {
        let old = before.iter().find(|old| old.name() == module.name());
        old.is_some_and(|old| old.build_id != module.build_id)
    };
    let names: Vec<String> =
        request.subject.profile().modules.iter().filter(other).map(|m| text(m.name())).collect();
    html! {
        @if names.is_empty() { "the same builds of all modules." }
        @else { (names.join(", ")) (if names.len() == 1 { " is" } else { " are" }) " another build. " (lwp_report::libc::notice(&names).unwrap_or("")) }
    }
}

fn exports(request: &Request) -> Markup {
    html! {
        h2 { "Keep it as" }
        ul.exports {
            @for (format, _, what) in OWN {
                li { a.button href=(request.export(format)) download { (format) } span { (what) } }
            }
            @if request.subject.of.behind.is_some() {
                @for (kind, format, _, what) in lwp_export::Format::ALL {
                    @let only = if kind.has_one_event() { "; the chosen event only" } else { "" };
                    li { a.button href=(request.export(format)) download { (format) } span { (what) (only) } }
                }
            }
        }
    }
}
