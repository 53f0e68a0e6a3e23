//! Steps: commits at which counts changed, and the functions that changed them.

use lwp_query::steps::{Found, steps};
use maud::{Markup, html};

use super::{Page, changes, count, links, page, percent, short, text};
use crate::asking::Asking;

/// Functions of a step.
const MOST: usize = 5;

/// The page.
pub async fn show(asking: Asking) -> Page {
    let asking = asking.with_event().await?;
    let (words, session) = (&asking.words, &asking.session);
    let found = steps(session, &words.filter()?, words.event(), &[], MOST).await?;
    let body = html! {
        h1 { "Steps" small { (found.len()) " of " (text(words.event())) } }
        @if found.is_empty() { p.none { "No count has changed for good." } }
        @for found in &found { (one(found, words.event())) }
    };
    Ok(page("steps", words, body))
}

fn one(found: &Found, event: &str) -> Markup {
    let (before, after) = (found.step.before as i64, found.step.after as i64);
    let filter = links::benchmark(&found.project, &found.benchmark);
    let words =
        [("a", found.before.as_str()), ("b", &found.commit), ("e", event), ("filter", &filter)];
    html! {
        section.series {
            h2 {
                a href=(links::query("compare", &words)) { (short(&found.commit)) } " "
                a href=(links::history(&found.project, &found.benchmark, "")) { (text(&found.project)) " " (text(&found.benchmark)) }
                small { (count(before)) " to " (count(after)) ", " (percent(before, after)) ", first recorded " (found.started) }
            }
            @if !found.note.is_empty() { p.note { "Noted: " (text(&found.note)) } }
            (changes(&found.changes, MOST, &found.project, &found.benchmark))
        }
    }
}
