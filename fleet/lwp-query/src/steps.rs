//! Steps of totals, and the functions that made them.

use crate::compare::{Change, changes_between};
use crate::error::Result;
use crate::filter::Filter;
use crate::history::{Asked, history};
use crate::measure::Measure;
use crate::session::Session;
use crate::step::Step;
use crate::views::quoted;

/// A step of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The project.
    pub project: String,
    /// The benchmark.
    pub benchmark: String,
    /// The commit before it.
    pub before: String,
    /// The commit that has it.
    pub commit: String,
    /// When that was recorded.
    pub started: String,
    /// The values.
    pub step: Step,
    /// The notes about the commit: the step is expected.
    pub note: String,
    /// The functions that changed most; none where those of a side have expired.
    pub functions: Vec<Change>,
}

/// The steps of all benchmarks that a filter chooses, the latest first; of each, the functions that changed most.
///
/// # Errors
///
/// If the store cannot be read, or no recording that the filter chooses has the event.
pub async fn steps(
    session: &Session,
    filter: &Filter,
    event: &str,
    order: &[String],
    functions: usize,
) -> Result<Vec<Found>> {
    let asked = Asked { event, function: None, order };
    let measure = Measure::new(event, filter);
    let mut all = Vec::new();
    for series in history(session, filter, &asked).await? {
        for step in &series.steps {
            let (before, after) = (&series.points[step.at - 1], &series.points[step.at]);
            let of = |commit: &str| {
                filter.and(&format!(
                    "project = {} and benchmark = {} and recording in (select max(recording) from \
                     recordings where coalesce(\"commit\", id) = {} and project = {} and benchmark = {} \
                     and deterministic = {})",
                    quoted(&series.project),
                    quoted(&series.benchmark),
                    quoted(commit),
                    quoted(&series.project),
                    quoted(&series.benchmark),
                    series.deterministic,
                ))
            };
            let (old, new) = (of(&before.commit), of(&after.commit));
            let changed = changes_between(session, &measure, &old, &new).await?;
            let mut changed = changed.unwrap_or_default();
            changed.truncate(functions);
            all.push(Found {
                project: series.project.clone(),
                benchmark: series.benchmark.clone(),
                before: before.commit.clone(),
                commit: after.commit.clone(),
                started: after.started.clone(),
                step: *step,
                note: after.note.clone(),
                functions: changed,
            });
        }
    }
    all.sort_by(|a, b| b.started.cmp(&a.started).then_with(|| a.benchmark.cmp(&b.benchmark)));
    Ok(all)
}
