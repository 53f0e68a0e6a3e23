//! Pages, one a file: each asks the store and makes a whole page of the answer.

pub mod benchmarks;
mod chart;
pub mod compare;
pub mod history;
pub mod links;
pub mod recordings;
pub mod sql;
pub mod steps;
pub mod top;

use axum::extract::{Path, RawQuery};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use lwp_page::Frame;
use lwp_query::compare::Changes;
use lwp_store::COUNTS;
use lwp_terminal::escape::printable;
use maud::{Markup, html};

use crate::asking::Words;
use crate::refusal::Refusal;

/// A page, or the reason why there is none.
pub type Page = Result<Html<String>, Refusal>;

/// The rules of style that only these pages need.
const STYLE: &str = include_str!("pages/fleet.css");

/// Views: the word of their address, their title.
const VIEWS: [(&str, &str); 6] = [
    ("", "Recordings"),
    ("benchmarks", "Benchmarks"),
    ("steps", "Steps"),
    ("compare", "Compare"),
    ("top", "Top"),
    ("sql", "SQL"),
];

/// Keys and what they do.
const KEYS: [(&str, &str); 6] = [
    ("1 … 6", "the views, in the order of the tabs"),
    ("/", "the filter"),
    ("j k ↓ ↑", "next and previous row"),
    ("Backspace", "the page before"),
    ("Esc", "out of the filter, out of this list"),
    ("?", "this list"),
];

/// Text of a recording's, without what would change a line.
pub fn text(text: &str) -> String {
    printable(text)
}

/// The first letters of a commit or an id.
pub fn short(commit: &str) -> String {
    printable(&commit.chars().take(12).collect::<String>())
}

/// A whole page around `body`.
pub fn page(view: &str, words: &Words, body: Markup) -> Html<String> {
    let row = VIEWS.iter().find(|(word, _)| *word == view);
    let title = row.map_or("History", |(_, title)| title);
    let frame = Frame {
        title: &format!("{title} · fleet"),
        view: if view.is_empty() { "recordings" } else { view },
        line: html! { span.command { "fleet" } },
        front: "/",
        files: "/",
        top: html! { (tabs(view, words)) (controls(view, words)) },
        body,
        keys: &KEYS,
    };
    Html(frame.page().into_string())
}

fn tabs(view: &str, words: &Words) -> Markup {
    html! {
        nav aria-label="Views" {
            @for (index, (word, title)) in VIEWS.iter().enumerate() {
                a href=(links::view(word, words)) data-key=(index + 1) aria-current=[(*word == view).then_some("page")] { (title) }
            }
        }
    }
}

/// The form with the filter and the event.
fn controls(view: &str, words: &Words) -> Markup {
    let events = COUNTS.map(|column| column.replace('_', "-"));
    let event = words.event();
    html! {
        @if view != "sql" {
            form.controls method="get" action={ "/" (view) } {
                @for name in ["a", "b", "f", "by"] {
                    @if !words.get(name).is_empty() && view != "compare" { input type="hidden" name=(name) value=(words.get(name)); }
                }
                @if view == "compare" {
                    label { "Before " input type="search" name="a" value=(words.get("a")) placeholder="commit, branch:NAME" spellcheck="false"; }
                    label { "After " input type="search" name="b" value=(words.get("b")) placeholder="commit, branch:NAME" spellcheck="false"; }
                }
                label { "Event " select name="e" {
                    @for known in &events { option value=(known) selected[known == event] { (known) } }
                    @if !events.iter().any(|known| known == event) { option value=(event) selected { (text(event)) } }
                } }
                label.search { "Filter " input type="search" name="filter" value=(words.get("filter")) list="terms"
                    placeholder="project=p benchmark=parse* since=7d" autocomplete="off" spellcheck="false"; }
                button type="submit" { "Show" }
            }
        }
    }
}

/// The style of all pages, those of the fleet too.
pub fn style() -> Response {
    let common = lwp_page::fixed("page.css").map(|reply| reply.bytes).unwrap_or_default();
    let all = [common.as_slice(), STYLE.as_bytes()].concat();
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], all).into_response()
}

/// The style, the script, the picture.
pub async fn file(Path(file): Path<String>) -> Response {
    match lwp_page::fixed(&file) {
        Some(_) if file == "page.css" => style(),
        Some(reply) => reply.into_response(),
        None => Refusal::new(StatusCode::NOT_FOUND, "there is no such page").into_response(),
    }
}

fn bare(title: &str, body: Markup) -> Html<String> {
    let frame = Frame {
        title,
        view: "enter",
        line: html! { span.command { "fleet" } },
        front: "/",
        files: "/",
        top: html! {},
        body,
        keys: &[],
    };
    Html(frame.page().into_string())
}

/// The form that asks for a token, and leads to the page that was asked for.
pub async fn enter(RawQuery(query): RawQuery) -> Html<String> {
    let words = Words::new(&query.unwrap_or_default());
    let body = html! {
        h1 { "A token is wanted" }
        form.controls method="post" action="/enter" {
            input type="hidden" name="to" value=(links::own(words.get("to")));
            input.sr type="text" name="name" value="token" autocomplete="username" tabindex="-1" aria-hidden="true";
            label { "Token " input type="password" name="token" autocomplete="current-password" autofocus; }
            button type="submit" { "Enter" }
        }
        p.note { "Whoever keeps the store makes one: lwp fleet token add NAME --scope read" }
    };
    bare("Enter · fleet", body)
}

/// The page behind the form.
pub fn entered(to: &str) -> Html<String> {
    let name = if to == "/" { "To the recordings" } else { "To the page" };
    bare(
        "Entered · fleet",
        html! { h1 { "The token is known" } p { a.button href=(to) { (name) } } },
    )
}

/// A count, its thousands in groups.
pub fn count(value: i64) -> String {
    match u64::try_from(value) {
        Ok(value) => lwp_report::number::grouped(value),
        Err(_) => lwp_report::number::signed(value.into()),
    }
}

/// A change in per cent.
pub fn percent(before: i64, after: i64) -> String {
    match (before, after) {
        (before, after) if before == after => "=".to_owned(),
        (0, _) => "new".to_owned(),
        _ => format!("{:+.2}%", 100.0 * (after as f64 - before as f64) / before as f64),
    }
}

/// The class of a change.
pub fn direction(before: i64, after: i64) -> &'static str {
    match after.cmp(&before) {
        std::cmp::Ordering::Greater => "num more",
        std::cmp::Ordering::Less => "num less",
        std::cmp::Ordering::Equal => "num same",
    }
}

/// Functions that changed, those that changed most first, at most so many; then how many only have
/// another name.
pub fn changes(changes: &Changes, most: usize, project: &str, benchmark: &str) -> Markup {
    html! {
        div.scroll { table.rows {
            thead { tr { th.num { "Difference" } th.num { "Before" } th.num { "After" } th.name { "Function" } } }
            tbody { @for change in changes.changed.iter().take(most) { tr data-row {
                td class=(direction(change.before, change.after)) { (lwp_report::number::signed(change.difference())) (change.plus_minus()) }
                td.num { (count(change.before)) }
                td.num { (count(change.after)) }
                td.name {
                    a.fn href=(links::history(project, benchmark, &change.function)) { (text(&change.function)) } " " span.module { (text(&change.module)) }
                    @if let Some(former) = change.former() { " " span.module { (text(&former)) } }
                }
            } } }
        } }
        @for line in [changes.indistinguishable(), changes.renames()].into_iter().flatten() {
            p.note { (text(&line)) }
        }
    }
}
