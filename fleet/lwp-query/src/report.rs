//! Reports: what was executed most, over any filter.

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::measure::Measure;
use crate::session::{Rows, Session};
use crate::totals::totals;

/// The subject of a report's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Functions.
    #[default]
    Function,
    /// Programs and libraries.
    Module,
    /// Source lines.
    Line,
    /// Benchmarks.
    Benchmark,
    /// Machines.
    Host,
    /// Commits.
    Commit,
}

impl By {
    /// Every word, and what it stands for.
    pub const WORDS: [(&'static str, Self); 6] = [
        ("function", Self::Function),
        ("module", Self::Module),
        ("line", Self::Line),
        ("benchmark", Self::Benchmark),
        ("host", Self::Host),
        ("commit", Self::Commit),
    ];

    /// The table that tells the subjects apart; `None` where totals do.
    fn table(self) -> Option<&'static str> {
        match self {
            Self::Line => Some("lines"),
            Self::Function | Self::Module => Some("functions"),
            Self::Benchmark | Self::Host | Self::Commit => None,
        }
    }

    fn columns(self) -> &'static str {
        match self {
            Self::Function => "module, function",
            Self::Module => "module",
            Self::Line => "file, line, function",
            Self::Benchmark => "project, benchmark",
            Self::Host => "host",
            Self::Commit => "\"commit\"",
        }
    }
}

/// Counts what is executed most.
///
/// # Errors
///
/// If the store cannot be read, or no recording that the filter chooses has the event.
pub async fn report(
    session: &Session,
    filter: &Filter,
    event: &str,
    by: By,
    limit: usize,
) -> Result<Rows> {
    let measure = Measure::new(event, filter);
    let sql = match by.table() {
        Some(table) => of_table(table, &measure, &filter.narrowed(session).await?, by, limit),
        None => of_totals(&measure, filter, by, limit),
    };
    let rows = session.ask(&sql).await?;
    if rows.is_empty() {
        return Err(nothing(session, filter, event).await?);
    }
    Ok(rows)
}

/// The question for the rows of a table. Recordings are told apart for the rows of the answer
/// alone: to do so for all of them takes twenty times as long.
fn of_table(table: &str, measure: &Measure, filter: &Filter, by: By, limit: usize) -> String {
    let (value, condition, chosen) = (measure.value(), measure.condition(), filter.sql());
    let columns = by.columns();
    let (sums, sum) = match by {
        By::Function if measure.is_exact() => (", sum(entered) as entered", ", best.entered"),
        _ => ("", ""),
    };
    let each = |text: &dyn Fn(&str) -> String, between: &str| {
        columns.split(", ").map(text).collect::<Vec<_>>().join(between)
    };
    let of_best = each(&|column| format!("best.{column}"), ", ");
    let same = |column: &str| format!("(picked.{column} is not distinct from best.{column})");
    let same = each(&same, " and ");
    let name = measure.event.replace('"', "");
    format!(
        "with picked as (select *, {value} as whole from {table} where {condition} and {chosen}), \
         grouped as (select {columns}, sum(whole) as whole{sums} from picked group by {columns}), \
         ranked as (select *, sum(whole) over () as total from grouped), \
         best as (select * from ranked where whole > 0 order by whole desc, {columns} limit {limit}) \
         select round(100.0 * best.whole / max(best.total), 2) as percent, \
         best.whole as \"{name}\"{sum}, count(distinct picked.recording) as recordings, {of_best} \
         from best join picked on {same} group by best.whole{sum}, {of_best} \
         order by 2 desc, {of_best}"
    )
}

/// The question for totals.
fn of_totals(measure: &Measure, filter: &Filter, by: By, limit: usize) -> String {
    let (picked, columns) = (totals(measure, filter), by.columns());
    let name = measure.event.replace('"', "");
    format!(
        "with grouped as (select {columns}, sum(whole) as whole, sum(runs) as recordings \
         from ({picked}) group by {columns}), \
         ranked as (select *, sum(whole) over () as total from grouped) \
         select round(100.0 * whole / total, 2) as percent, whole as \"{name}\", recordings, {columns} \
         from ranked where whole > 0 order by 2 desc, {columns} limit {limit}"
    )
}

/// The reason why a question has no answer.
pub(crate) async fn nothing(session: &Session, filter: &Filter, event: &str) -> Result<Error> {
    let sql = format!("select count(*) as n from recordings where {}", filter.sql());
    let number = session.ask(&sql).await?.longs("n").first().copied().flatten().unwrap_or(0);
    let which =
        if filter.text().is_empty() { String::new() } else { format!(" by {}", filter.text()) };
    Ok(Error::Question(match number {
        0 => format!("no recording is chosen{which}"),
        _ => {
            let known = crate::events::known(session, filter).await?;
            let known = if known.is_empty() {
                String::new()
            } else {
                format!("; they have {}", known.join(", "))
            };
            format!("none of {number} recordings{which} has the event '{event}'{known}")
        }
    }))
}
