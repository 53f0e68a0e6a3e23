//! The top of a fleet: what was executed most, over any filter.

use lwp_query::Rows;
use lwp_query::report::{By, report};
use maud::{Markup, html};

use super::{Page, count, links, page, text};
use crate::asking::{Asking, Words};

/// Rows of the table.
const MOST: usize = 100;

/// The page.
pub async fn show(asking: Asking) -> Page {
    let asking = asking.with_event().await?;
    let (words, session) = (&asking.words, &asking.session);
    let asked = words.or("by", "function");
    let by = By::WORDS.iter().find(|(word, _)| *word == asked).map_or(By::Function, |row| row.1);
    let rows = report(session, &words.filter()?, words.event(), by, MOST).await?;
    let filter = words.get("filter");
    let body = html! {
        h1 { "Top" small { (text(words.event())) " of " (if filter.is_empty() { "all recordings".to_owned() } else { text(filter) }) } }
        p.switches {
            "by " @for (word, kind) in By::WORDS {
                a.switch href=(links::query("top", &[("by", word), ("e", words.event()), ("filter", filter)])) aria-pressed=(if kind == by { "true" } else { "false" }) { (word) }
            }
            a.switch.group href=(links::of("", filter, "flame")) { "flame graph" }
            a.switch href=(links::of("", filter, "tree")) { "call tree" }
        }
        (table(&rows, words))
    };
    Ok(page("top", words, body))
}

fn table(rows: &Rows, words: &Words) -> Markup {
    let name = words.event().replace('"', "");
    let (parts, values, many) =
        (rows.texts("percent"), rows.longs(&name), rows.longs("recordings"));
    let fixed = ["percent", "entered", "recordings", name.as_str()];
    let columns: Vec<&str> = rows
        .schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .filter(|name| !fixed.contains(name))
        .collect();
    let cells: Vec<Vec<String>> = columns.iter().map(|column| rows.texts(column)).collect();
    html! {
        div.scroll { table.rows {
            thead { tr { th.num { "%" } th.num { (text(&name)) } th.num { "Recordings" } @for column in &columns { th.name { (column) } } } }
            tbody { @for row in 0..rows.len() { tr data-row {
                td.num { (parts[row]) }
                td.num { (count(values.get(row).copied().flatten().unwrap_or(0))) }
                td.num { (count(many.get(row).copied().flatten().unwrap_or(0))) }
                @for (column, cells) in columns.iter().zip(&cells) {
                    td.name { @if let Some(address) = target(column, &cells[row], words) { a.fn href=(address) { (text(&cells[row])) } } @else { (text(&cells[row])) } }
                }
            } } }
        } }
    }
}

/// The page about a cell: a function's history, or the recordings of a benchmark, host or commit.
fn target(column: &str, value: &str, words: &Words) -> Option<String> {
    match column {
        "function" => {
            let words = [("f", value), ("e", words.event()), ("filter", words.get("filter"))];
            Some(links::query("history", &words))
        }
        "benchmark" | "host" | "commit" | "project" => {
            Some(links::query("", &[("filter", &links::term(column, value))]))
        }
        _ => None,
    }
}
