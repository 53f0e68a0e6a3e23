//! Histories: counts of benchmarks by commit, with steps and notes; of one function too.

use lwp_query::history::{Asked, Series, history};
use maud::{Markup, html};

use super::{Page, chart, count, direction, page, percent, short, text};
use crate::asking::Asking;
use crate::tokens::Scope;

/// Series of one page.
const MOST: usize = 30;
/// Points that are listed.
const LISTED: usize = 200;

/// The page.
pub async fn show(asking: Asking) -> Page {
    let asking = asking.with_event().await?;
    let words = &asking.words;
    let function = words.get("f");
    let asked = Asked {
        event: words.event(),
        function: Some(function).filter(|name| !name.is_empty()),
        order: &[],
    };
    let all = history(&asking.session, &words.filter()?, &asked).await?;
    let may_note = asking.token.scopes.contains(&Scope::Write);
    let body = html! {
        @if !function.is_empty() { h1.function { (text(function)) small { (text(words.event())) " by commit" } } }
        @if all.len() > MOST { p.note { "The first " (MOST) " of " (all.len()) " benchmarks are shown." } }
        @for series in all.iter().take(MOST) { (one(series, words.event(), all.len() == 1 && may_note)) }
    };
    Ok(page("history", words, body))
}

fn one(series: &Series, event: &str, with_form: bool) -> Markup {
    let steps = series.steps.len();
    html! {
        section.series {
            h2 { (text(&series.project)) " " (text(&series.benchmark)) small {
                (series.points.len()) " commits, " (steps) (if steps == 1 { " step" } else { " steps" })
                @if series.deterministic { ", deterministic" }
            } }
            (chart::chart(series, event))
            (table(series, event))
            @if with_form { (form(series)) }
        }
    }
}

fn table(series: &Series, event: &str) -> Markup {
    let latest = (0..series.points.len()).rev().take(LISTED);
    html! {
        details open[!series.steps.is_empty()] {
            summary { "Commits" }
            div.scroll { table.rows {
                thead { tr { th.name { "Commit" } th.name { "First recorded" } th.num { (text(event)) } th.num { "Change" } th.num { "Recordings" } th.name { "Note" } } }
                tbody { @for index in latest {
                    @let point = &series.points[index];
                    @let before = index.checked_sub(1).map_or(point.value, |before| series.points[before].value);
                    @let step = series.steps.iter().any(|step| step.at == index);
                    tr data-row {
                        td.name { a href=(chart::target(series, index, event)) { (short(&point.commit)) } @if step { " " span.badge.estimated { "step" } } }
                        td.name { (point.started) }
                        td.num { (count(point.value)) }
                        td class=(direction(before, point.value)) { (percent(before, point.value)) }
                        td.num { (point.runs) }
                        td.said { (text(&point.note)) }
                    }
                } }
            } }
        }
    }
}

/// The form that notes something about a commit.
fn form(series: &Series) -> Markup {
    let at_step = |commit: &str| {
        let points = series.steps.iter().filter_map(|step| series.points.get(step.at));
        points.into_iter().next_back().is_some_and(|point| point.commit == commit)
    };
    html! {
        h2 { "Note something about a commit" }
        form.range method="post" action="/notes" {
            input type="hidden" name="project" value=(series.project);
            input type="hidden" name="benchmark" value=(series.benchmark);
            label { "Commit " select name="commit" {
                @for point in series.points.iter().rev().take(LISTED) {
                    option value=(point.commit) selected[at_step(&point.commit)] { (short(&point.commit)) }
                }
            } }
            label { "Note " input type="text" name="text" required maxlength="4000" placeholder="expected: the new parser"; }
            button type="submit" { "Note" }
        }
    }
}
