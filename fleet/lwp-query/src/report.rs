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
    let columns = by.columns();
    let name = event.replace('"', "");
    let entered = match by {
        By::Function if measure.is_exact() => ", sum(entered) as entered",
        _ => "",
    };
    let (picked, recordings) = match by.table() {
        Some(table) => (rows_of(table, &measure, filter), "count(distinct recording)"),
        None => (totals(&measure, filter), "sum(runs)"),
    };
    let sql = format!(
        "with picked as ({picked}), all_of_it as (select sum(whole) as total from picked) \
         select round(100.0 * sum(whole) / max(all_of_it.total), 2) as percent, \
         sum(whole) as \"{name}\"{entered}, {recordings} as recordings, {columns} \
         from picked cross join all_of_it group by {columns} having sum(whole) > 0 \
         order by 2 desc, {columns} limit {limit}"
    );
    let rows = session.ask(&sql).await?;
    if rows.is_empty() {
        return Err(nothing(session, filter, event).await?);
    }
    Ok(rows)
}

/// The question for the rows of a table that a filter chooses, their values as `whole`.
fn rows_of(table: &str, measure: &Measure, filter: &Filter) -> String {
    let (value, condition) = (measure.value(), measure.condition());
    format!("select *, {value} as whole from {table} where {condition} and {}", filter.sql())
}

/// The reason why a question has no answer.
pub(crate) async fn nothing(session: &Session, filter: &Filter, event: &str) -> Result<Error> {
    let sql = format!("select count(*) as n from recordings where {}", filter.sql());
    let number = session.ask(&sql).await?.longs("n").first().copied().flatten().unwrap_or(0);
    let which =
        if filter.text().is_empty() { String::new() } else { format!(" by {}", filter.text()) };
    Ok(Error::Question(match number {
        0 => format!("no recording is chosen{which}"),
        _ => format!("none of {number} recordings{which} has the event '{event}'"),
    }))
}
