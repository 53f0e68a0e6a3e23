//! Recordings, the latest first.

use lwp_query::views::count_column;
use maud::{Markup, html};

use super::{Page, count, links, page, short, text};
use crate::asking::Asking;

/// Recordings of one page.
const MOST: usize = 200;

/// The page.
pub async fn show(asking: Asking) -> Page {
    let (words, session) = (&asking.words, &asking.session);
    let column = count_column(words.event()).unwrap_or("instructions");
    // A recording that counted something else than the one of its benchmark before it is marked.
    let sql = format!(
        "select *, count(*) over () as many from (select id, started, project, benchmark, \"commit\", branch, host, \
         mode, {column} as v, lag(content) over series as old_content, content, lag({column}) over series as old \
         from recordings where {} window series as (partition by project, benchmark, deterministic order by started, id)) \
         order by started desc, id limit {MOST}",
        words.filter()?.sql()
    );
    let rows = session.ask(&sql).await?;
    let many = rows.longs("many").first().copied().flatten().unwrap_or(0);
    let [ids, projects, benchmarks, commits, branches, hosts, modes, started] =
        ["id", "project", "benchmark", "commit", "branch", "host", "mode", "started"]
            .map(|name| rows.texts(name));
    let (values, old) = (rows.longs("v"), rows.longs("old"));
    let (contents, old_contents) = (rows.texts("content"), rows.texts("old_content"));
    let body = html! {
        h1 { "Recordings" small { (count(many)) @if many > MOST as i64 { ", the latest " (MOST) } } }
        @if ids.is_empty() { p.none { "No recording is chosen. lwp fleet push sends some." } }
        div.scroll { table.rows {
            thead { tr { th.name { "Recording" } th.name { "Started" } th.name { "Benchmark" } th.name { "Commit" } th.name { "Branch" } th.name { "Host" } th.num { (text(words.event())) } th.num { "Since the one before" } } }
            tbody { @for row in 0..ids.len() { tr data-row {
                td.name { a.fn href=(links::of("", &id(&ids[row], &modes[row]), "summary")) { (short(&ids[row])) } }
                td.name { (started[row]) }
                td.name { a href=(links::history(&projects[row], &benchmarks[row], "")) { (text(&projects[row])) " " (text(&benchmarks[row])) } }
                td.name { a href=(links::query("", &[("filter", &links::term("commit", &commits[row]))])) { (short(&commits[row])) } }
                td.name { (text(&branches[row])) }
                td.name { (text(&hosts[row])) }
                td.num { @if let Some(value) = values[row] { (count(value)) } @else { (text(&modes[row])) } }
                (since(values[row], old[row], contents[row] == old_contents[row]))
            } } }
        } }
    };
    Ok(page("", words, body))
}

/// The filter that chooses a recording.
fn id(id: &str, mode: &str) -> String {
    format!("id={id}{}", if mode == "sampled" { " mode=sampled" } else { "" })
}

fn since(value: Option<i64>, old: Option<i64>, same: bool) -> Markup {
    html! {
        @match (value, old) {
            (_, _) if same => { td.num.same { "identical" } }
            (Some(value), Some(old)) => { td class=(super::direction(old, value)) { (super::percent(old, value)) } }
            _ => { td.num {} }
        }
    }
}
