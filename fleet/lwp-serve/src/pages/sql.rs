//! A question in SQL, and its answer as a table.

use lwp_query::Rows;
use maud::{Markup, html};

use super::{Page, page, text};
use crate::asking::Reader;

/// The question of an empty page.
const FIRST: &str = "select project, benchmark, count(*) as recordings from recordings group by 1, 2 order by 3 desc limit 50";
/// Rows that are shown.
const MOST: usize = 1000;

/// The page.
pub async fn show(reader: Reader) -> Page {
    let words = &reader.words;
    let question = words.or("q", FIRST);
    let answer = match words.get("q") {
        "" => None,
        question => Some(match reader.ask(question).await {
            // What is wrong with a question stands beside it.
            Err(refusal) if refusal.again.is_some() => return Err(refusal),
            answer => answer,
        }),
    };
    let body = html! {
        form method="get" action="/sql" {
            label { span.sr { "Question" } textarea name="q" spellcheck="false" autocomplete="off" { (question) } }
            p { button type="submit" { "Ask" } " " span.note { "Tables: recordings, functions, lines, calls, stacks, modules, totals, rollups, notes. Views: recording_values, function_values, series." } }
        }
        @match answer {
            Some(Ok(rows)) => (table(&rows)),
            Some(Err(refusal)) => { p.none role="alert" { (text(&refusal.why)) } },
            None => {}
        }
    };
    Ok(page("sql", words, body))
}

fn table(rows: &Rows) -> Markup {
    let names = rows.schema.fields().iter().map(|field| text(field.name()));
    let names: Vec<String> = names.collect();
    let cells: Vec<Vec<String>> = names.iter().map(|name| rows.texts(name)).collect();
    let shown = rows.len().min(MOST);
    html! {
        p.note { (rows.len()) " rows" @if rows.len() > MOST { ", the first " (MOST) " are shown" } }
        div.scroll { table.rows {
            thead { tr { @for name in &names { th.name { (name) } } } }
            tbody { @for row in 0..shown { tr data-row { @for cells in &cells { td.name { (text(cells.get(row).map_or("", String::as_str))) } } } } }
        } }
    }
}
