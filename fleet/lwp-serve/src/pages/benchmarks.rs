//! Benchmarks: one line each, with its latest count and its steps.

use lwp_query::history::{Asked, history};
use maud::html;

use super::{Page, count, direction, links, page, percent, short, text};
use crate::asking::Asking;

/// The page.
pub async fn show(asking: Asking) -> Page {
    let asking = asking.with_event().await?;
    let (words, session) = (&asking.words, &asking.session);
    let asked = Asked { event: words.event(), function: None, order: &[] };
    let all = history(session, &words.filter()?, &asked).await?;
    let body = html! {
        h1 { "Benchmarks" small { (all.len()) } }
        div.scroll { table.rows {
            thead { tr { th.name { "Benchmark" } th.num { "Commits" } th.num { "Steps" } th.num { "Latest" } th.num { "Since the first" } th.name { "Latest commit" } } }
            tbody { @for series in &all {
                @let first = series.points.first().map_or(0, |point| point.value);
                @let last = series.points.last();
                @let value = last.map_or(0, |point| point.value);
                tr data-row {
                    td.name { a href=(links::history(&series.project, &series.benchmark, "")) { (text(&series.project)) " " (text(&series.benchmark)) } @if series.deterministic { " " span.badge.exact { "deterministic" } } }
                    td.num { (series.points.len()) }
                    td.num { (series.steps.len()) }
                    td.num { (count(value)) }
                    td class=(direction(first, value)) { (percent(first, value)) }
                    td.name { (last.map_or(String::new(), |point| short(&point.commit))) }
                }
            } }
        } }
    };
    Ok(page("benchmarks", words, body))
}
