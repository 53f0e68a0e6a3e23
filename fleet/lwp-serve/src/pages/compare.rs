//! Two sides, compared benchmark by benchmark, function by function.

use lwp_query::compare::{Comparison, Pair, Selector, compare};
use maud::{Markup, html};

use super::{Page, changes, count, direction, links, page, percent, text};
use crate::asking::{Reader, Words};

/// Functions of a benchmark.
const MOST: usize = 40;

/// The page.
pub async fn show(reader: Reader) -> Page {
    let (a, b) = (reader.words.get("a").to_owned(), reader.words.get("b").to_owned());
    if a.is_empty() || b.is_empty() {
        let body = html! {
            h1 { "Compare" }
            p.none { "Each side is a commit or a recording's id by its first letters, branch:NAME for the latest of a branch, or label:KEY=VALUE." }
        };
        return Ok(page("compare", &reader.words, body));
    }
    let mut asking = reader.asking().await?;
    let (words, session) = (&asking.words, &asking.session);
    let (before, after) = (Selector::parse(&a)?, Selector::parse(&b)?);
    let compared = compare(session, (&before, &after), &words.filter()?, words.counted()).await?;
    asking.words.set_event(compared.event.clone());
    Ok(page("compare", &asking.words, body(&compared, &asking.words)))
}

fn body(compared: &Comparison, words: &Words) -> Markup {
    let changed: Vec<&Pair> = compared.pairs.iter().filter(|pair| !pair.is_identical()).collect();
    let identical = compared.pairs.len() - changed.len();
    html! {
        h1 { (text(words.get("b"))) " compared with " (text(words.get("a"))) small { (identical) " of " (compared.pairs.len()) " benchmarks are identical" } }
        (switches(compared.inclusive, words))
        @for (list, what) in [(&compared.only_before, "Vanished, only before: "), (&compared.only_after, "New, only after: ")] {
            @if !list.is_empty() { p.note { (what) (text(&compared.names(list).join(", "))) } }
        }
        @if !changed.is_empty() { (summary(&changed, &compared.event)) }
        @for pair in &changed {
            h2 { (text(&pair.project)) " " (text(&pair.benchmark))
                a.aside href=(flame(pair)) { "differential flame graph" }
                a.aside href=(between(pair, "functions")) { "all functions" }
            }
            @for caveat in pair.caveats() { p.note { (text(&caveat)) } }
            @if !pair.rebuilt.is_empty() { p.note { "Other builds: " (text(&pair.rebuilt.join(", "))) } }
            (changes(&pair.changes, MOST, &pair.project, &pair.benchmark))
        }
    }
}

/// Links to own and to inclusive counts.
fn switches(is_inclusive: bool, words: &Words) -> Markup {
    let kept = ["a", "b", "e", "filter"].map(|name| (name, words.get(name)));
    let address =
        |children| links::query("compare", &[&kept[..], &[("children", children)]].concat());
    let pressed = |is: bool| if is { "true" } else { "false" };
    html! {
        p.switches {
            a.switch href=(address("")) aria-pressed=(pressed(!is_inclusive)) { "own counts" }
            a.switch href=(address("1")) aria-pressed=(pressed(is_inclusive)) {
                "with what functions called"
            }
        }
    }
}

fn summary(changed: &[&Pair], event: &str) -> Markup {
    html! {
        div.scroll { table.rows {
            thead { tr { th.name { "Benchmark" } th.num { "Before" } th.num { (text(event)) } th.num { "Change" } th.name { "Note" } } }
            tbody { @for pair in changed { tr data-row {
                td.name { a href=(links::history(&pair.project, &pair.benchmark, "")) { (text(&pair.project)) " " (text(&pair.benchmark)) } }
                td.num { (count(pair.before.value)) }
                td.num { (count(pair.after.value)) }
                td class=(direction(pair.before.value, pair.after.value)) { (percent(pair.before.value, pair.after.value)) }
                td.said { (text(&pair.note)) }
            } } }
        } }
    }
}

fn between(pair: &Pair, view: &str) -> String {
    links::of(&links::term("id", &pair.before.id), &links::term("id", &pair.after.id), view)
}

fn flame(pair: &Pair) -> String {
    between(pair, "flame")
}
