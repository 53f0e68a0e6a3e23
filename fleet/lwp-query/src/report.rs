//! Reports: what was executed most, over any filter.

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::measure::Measure;
use crate::session::{Rows, Session};

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

    fn table(self) -> &'static str {
        match self {
            Self::Line => "lines",
            _ => "functions",
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
    let (value, condition, columns) = (measure.value(), measure.condition(), by.columns());
    let name = event.replace('"', "");
    let entered = match by {
        By::Function if measure.is_exact() => ", sum(entered) as entered",
        _ => "",
    };
    let sql = format!(
        "with picked as (select * from {table} where {condition} and {filter}), \
         whole as (select sum({value}) as total from picked) \
         select round(100.0 * sum({value}) / max(whole.total), 2) as percent, \
         sum({value}) as \"{name}\"{entered}, count(distinct recording) as recordings, {columns} \
         from picked cross join whole group by {columns} having sum({value}) > 0 \
         order by 2 desc, {columns} limit {limit}",
        table = by.table(),
        filter = filter.sql(),
    );
    let rows = session.ask(&sql).await?;
    if rows.is_empty() {
        return Err(nothing(session, filter, event).await?);
    }
    Ok(rows)
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
