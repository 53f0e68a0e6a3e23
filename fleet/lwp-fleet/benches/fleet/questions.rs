//! The questions of the design's table, each with the processor time and the memory that it takes.

use lwp_query::compare::{Counted, Selector, compare};
use lwp_query::history::{Asked, history};
use lwp_query::report::{By, report};
use lwp_query::steps::steps;
use lwp_query::{Budget, Filter, Session};
use lwp_store::Store;

use crate::measure::{once, repeated};
use crate::table::Table;

/// Asks everything of a store.
pub async fn ask(store: &Store, table: &mut Table) {
    let session = Session::new(store, Budget::default()).await.expect("a session");
    let rows = |sql: &'static str| {
        let session = &session;
        async move { session.ask(sql).await.expect("an answer").longs("n")[0].unwrap_or(0) }
    };
    let functions = rows("select count(*) as n from functions").await;
    let lines = rows("select count(*) as n from lines").await;
    let all = Filter::default();
    let top = repeated(async || {
        drop(report(&session, &all, "instructions", By::Function, 20).await.expect("rows"))
    });
    table.row(format!("top functions, {:.1} M rows", functions as f64 / 1e6), top.await);
    let hottest = once(report(&session, &all, "instructions", By::Line, 20)).await;
    table.row(format!("hottest lines, {:.1} M rows", lines as f64 / 1e6), hottest.1);
    let name = session.ask(
        "select function, sum(instructions) from functions group by 1 order by 2 desc limit 1",
    );
    let name = name.await.expect("a function").texts("function")[0].clone();
    let asked = Asked { event: "instructions", function: Some(&name), order: &[] };
    let one = repeated(async || drop(history(&session, &all, &asked).await.expect("series")));
    table.row("one function over all commits", one.await);
    let asked = Asked { event: "instructions", function: None, order: &[] };
    let series = repeated(async || drop(history(&session, &all, &asked).await.expect("series")));
    table.row("totals of all commits, and their steps", series.await);
    let (found, taken) = once(steps(&session, &all, "instructions", &[], 5)).await;
    let found = found.expect("steps").len();
    table.row(format!("{found} steps, each with its functions"), taken);
    let commits = session
        .ask("select \"commit\" from recordings group by 1 order by min(started) desc limit 2")
        .await
        .expect("commits")
        .texts("commit");
    let side = |n: usize| Selector::parse(&commits[n]).expect("a commit");
    let (new, old) = (side(0), side(1));
    let two = repeated(async || {
        let counted = Counted::default();
        drop(compare(&session, (&old, &new), &all, counted).await.expect("pairs"))
    });
    table.row("two commits compared, all benchmarks", two.await);
    let window = "select count(*) as n from (select func, instructions, lag(instructions) over \
                  (partition by project, benchmark, func order by started) as last from functions) \
                  where instructions <> last";
    let (_, taken) = once(session.ask(window)).await;
    table.row("every function against the commit before (a window)", taken);
}
