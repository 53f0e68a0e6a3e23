//! The frame of every view: title, tabs, the selection, keys.

use lwp_report::number::{grouped, titled};
use maud::{DOCTYPE, Markup, html};

use crate::cells::{badge, inclusive_is, own_is, text};
use crate::picked::{By, groups};
use crate::request::{Request, View};

/// The style of all pages.
pub const STYLE: &str = include_str!("page.css");
/// The one script.
pub const SCRIPT: &str = include_str!("page.js");
/// The picture in a browser's tab.
pub const ICON: &str = include_str!("icon.svg");

/// Most threads that a list offers.
const OFFERED: usize = 200;

/// A page before it has a shell.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The title, in front of the program's name.
    pub title: &'a str,
    /// The word of the view, which the script looks at.
    pub view: &'a str,
    /// The line beside the logo.
    pub line: Markup,
    /// The address that the logo leads to.
    pub front: &'a str,
    /// The path of the style, the script and the picture, up to their names.
    pub files: &'a str,
    /// Tabs and forms below the line.
    pub top: Markup,
    /// The content.
    pub body: Markup,
    /// Keys and what they do.
    pub keys: &'a [(&'a str, &'a str)],
}

impl Frame<'_> {
    /// The whole page.
    pub fn page(&self) -> Markup {
        let file = |name: &str| format!("{}{name}", self.files);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · lwp" }
                    link rel="icon" href=(file("icon.svg"));
                    link rel="stylesheet" href=(file("page.css"));
                    script src=(file("page.js")) defer {}
                }
                body data-view=(self.view) {
                    a.skip href="#main" { "Skip to the view" }
                    header {
                        div.title {
                            a.logo href=(self.front) { "lwp" }
                            (self.line)
                            button.key type="button" data-help hidden title="Keys (?)" { "?" }
                        }
                        (self.top)
                    }
                    main id="main" tabindex="-1" { (self.body) }
                    (help(self.keys))
                }
            }
        }
    }
}

/// The whole page around a view's content.
pub fn page(request: &Request, body: Markup) -> Markup {
    let (_, word, title) =
        View::ALL[View::ALL.iter().position(|row| row.0 == request.view).unwrap_or(0)];
    let command = text(&request.subject.profile().command);
    Frame {
        title: &format!("{title} · {command}"),
        view: word,
        line: html! {
            @if let Some((name, address)) = &request.home { a.home href=(address) { "← " (text(name)) } }
            span.command title=(command) { (command) }
            span.total { (text(&titled(request.event_name(), request.picked.total()))) " " (badge(own_is(request))) }
        },
        front: &request.link(View::Summary, &[]),
        files: "",
        top: html! { (tabs(request)) (controls(request)) },
        body,
        keys: &KEYS,
    }
    .page()
}

fn tabs(request: &Request) -> Markup {
    html! {
        nav aria-label="Views" {
            @for (index, (view, _, title)) in View::ALL.iter().enumerate() {
                a href=(request.link(*view, &[])) data-key=(index + 1)
                    aria-current=[(*view == request.view).then_some("page")] { (title) }
            }
        }
    }
}

/// The form that selects a part of a recording, or another one.
fn controls(request: &Request) -> Markup {
    let profile = request.subject.profile();
    // What is not a field of this form stays as it is.
    let fields = ["r", "base", "e", "who", "q", "from", "to"];
    let others = request.query.pairs().filter(|(name, _)| !fields.contains(name));
    html! {
        form.controls method="get" action=(request.view.word()) data-auto {
            @for (name, value) in others {
                input type="hidden" name=(name) value=(value);
            }
            @if request.names.len() > 1 {
                label { "Recording " select name="r" {
                    @for (number, name) in request.names.iter().enumerate() {
                        option value=(number) selected[number == request.number] { (text(name)) }
                    }
                } }
                label { "compared with " select name="base" {
                    option value="" { "nothing" }
                    @for (number, name) in request.names.iter().enumerate().filter(|(n, _)| *n != request.number) {
                        option value=(number) selected[request.base.is_some() && request.query.number("base") == Some(number)] { (text(name)) }
                    }
                } }
            }
            @if profile.events.len() > 1 {
                label { "Event " select name="e" {
                    @for (index, event) in profile.events.iter().enumerate() {
                        option value=(event.name) selected[index == request.event()] { (text(&event.name)) }
                    }
                } }
            }
            (who(request))
            @if let Some((from, to)) = request.picked.selection.range {
                span.chip {
                    "from " (grouped(from)) " to " (grouped(to.min(longest(request)))) " "
                    a href=(request.here(&[("from", ""), ("to", "")])) title="Select everything" aria-label="Select everything" { "×" }
                }
                input type="hidden" name="from" value=(from);
                input type="hidden" name="to" value=(to);
            }
            label.search { span.sr { "Search " } input type="search" name="q" value=(text(request.query.get("q")))
                placeholder="Search functions" autocomplete="off" spellcheck="false"; }
            button type="submit" { "Show" }
        }
    }
}

/// The length of the longest lane.
pub fn longest(request: &Request) -> u64 {
    let lanes = request.subject.of.lanes.iter().filter(|lane| lane.event == request.event());
    lanes.map(|lane| lane.total).max().unwrap_or(0)
}

fn who(request: &Request) -> Markup {
    let asked = request.query.get("who");
    let sections =
        [("Processes", By::Process), ("Threads", By::Thread), ("Languages", By::Language)];
    let groups = sections.map(|(title, by)| (title, groups(&request.subject, by)));
    html! {
        @if groups.iter().any(|(_, groups)| groups.len() > 1) {
            label { "Only " select name="who" {
                option value="" { "everything" }
                @for (title, groups) in groups.iter().filter(|(_, groups)| groups.len() > 1) {
                    optgroup label=(title) {
                        @for (name, who) in groups.iter().take(OFFERED) {
                            @let word = who.word();
                            option value=(word) selected[word == asked] { (text(name)) }
                        }
                    }
                }
            } }
        }
    }
}

/// Keys and what they do.
const KEYS: [(&str, &str); 11] = [
    ("1 … 7", "the views, in the order of the tabs"),
    ("/", "search; Enter shows what was found, Esc leaves the field"),
    ("j k ↓ ↑", "next and previous row"),
    ("Enter", "open the row: callers and callees, or the branch of a tree"),
    ("c", "the code of the row's function"),
    ("f", "the flame graph from the box or branch in focus"),
    ("n p", "in code: the next hottest line, and the one before"),
    ("← →", "in a tree: close and open a branch"),
    ("Backspace", "the page before"),
    ("Esc", "out of a zoom, a search, this list"),
    ("?", "this list"),
];

/// The list of keys; the script shows it.
fn help(keys: &[(&str, &str)]) -> Markup {
    html! {
        dialog id="help" aria-labelledby="help-title" {
            h2 id="help-title" { "Keys" }
            dl { @for (key, what) in keys { dt { kbd { (key) } } dd { (what) } } }
            p { "Every view has an address of its own: what is selected, searched, opened and zoomed is in it." }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// Lists the exact and the inexact numbers of this recording, in one line each.
pub fn certainty(request: &Request) -> Markup {
    let exact = request.subject.is_exact();
    let measured = request.subject.profile().has_contexts();
    html! {
        table.plain {
            tr { th { "Own counts" } td { (badge(own_is(request))) } td {
                @if exact { "Every execution of every instruction was counted." }
                @else { "A sample stands for all events of its interval; the more samples, the surer." }
            } }
            tr { th { "Inclusive counts" } td { (badge(inclusive_is(request))) } td {
                @if measured && request.picked.inclusive_exact { "Measured for each caller; a recursive function counts once." }
                @else if measured { "Shared out among callers as the instructions that were measured for each." }
                @else if exact { "Shared out among callers by their numbers of calls, as if each call of a function cost the same." }
                @else { "A sample counts once for each function on its recorded stack." }
            } }
            tr { th { "Contexts" } td { (badge(inclusive_is(request))) } td {
                @if measured { "Measured in instructions: which functions called each, how often, and what it executed then." }
                @else if exact { "Call trees and flame graphs are inferred from numbers of calls; each function's own counts in them are exact." }
                @else { "Stacks were recorded with each sample." }
            } }
            @if exact {
                tr { th { "Calls" } td { (badge(crate::cells::Sure::Exact)) } td { "Each call was counted where it was made." } }
            }
        }
    }
}
