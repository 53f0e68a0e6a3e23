//! Steps of totals, and the functions that made them.

use std::collections::HashMap;

use crate::changes::{Changes, Functions};
use crate::error::Result;
use crate::filter::Filter;
use crate::history::{Asked, Point, Series, history};
use crate::measure::Measure;
use crate::session::Session;
use crate::step::Step;

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
    /// The time of that recording.
    pub started: String,
    /// The values.
    pub step: Step,
    /// The notes about the commit: the step is expected.
    pub note: String,
    /// The functions that changed most; none where those of a side have expired.
    pub changes: Changes,
}

/// The steps of all benchmarks that a filter chooses, the latest first; of each, the functions that
/// changed most.
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
    let series = history(session, filter, &asked).await?;
    let steps = series.iter().flat_map(|series| series.steps.iter().map(move |it| (series, it)));
    let steps: Vec<(&Series, &Step)> = steps.collect();
    let measure = Measure::new(event, filter);
    let recordings = match steps.is_empty() {
        true => HashMap::new(),
        false => recordings(session, filter).await?,
    };
    let of = |series: &Series, commit: &str| {
        let point = (series.project.clone(), series.benchmark.clone(), commit.to_owned());
        recordings.get(&(point, series.deterministic)).copied().unwrap_or_default()
    };
    let sides = |(series, step): &(&Series, &Step)| {
        let [before, after] = sides_of(series, step);
        (of(series, &before.commit), of(series, &after.commit))
    };
    let pairs: Vec<(i64, i64)> = steps.iter().map(sides).collect();
    let mut all = Vec::new();
    while let Some(rest) = pairs.get(all.len()..).filter(|rest| !rest.is_empty()) {
        let (many, changed) = Functions::of_first(session, &measure, filter, rest).await?;
        let some = steps[all.len()..].iter().zip(&rest[..many]);
        all.extend(some.map(|((series, step), (old, new))| {
            let [before, after] = sides_of(series, step);
            let mut changes = changed.changes(*old, *new).unwrap_or_default();
            changes.changed.truncate(functions);
            changes.chance.truncate(functions);
            Found {
                project: series.project.clone(),
                benchmark: series.benchmark.clone(),
                before: before.commit.clone(),
                commit: after.commit.clone(),
                started: after.started.clone(),
                step: **step,
                note: after.note.clone(),
                changes,
            }
        }));
    }
    all.sort_by(|a, b| b.started.cmp(&a.started).then_with(|| a.benchmark.cmp(&b.benchmark)));
    Ok(all)
}

/// The points before and at a step.
fn sides_of<'a>(series: &'a Series, step: &Step) -> [&'a Point; 2] {
    [&series.points[step.at - 1], &series.points[step.at]]
}

/// A point of a series by project, benchmark and commit, and whether its runs had a fixed
/// environment.
type Place = ((String, String, String), bool);

/// A recording of each point.
async fn recordings(session: &Session, filter: &Filter) -> Result<HashMap<Place, i64>> {
    let sql = format!(
        "select project, benchmark, coalesce(\"commit\", id) as point, deterministic, \
         max(recording) as recording from recordings where {} group by 1, 2, 3, 4",
        filter.sql()
    );
    let rows = session.ask(&sql).await?;
    let points = rows.texts("project").into_iter().zip(rows.texts("benchmark"));
    let points = points
        .zip(rows.texts("point"))
        .map(|((project, benchmark), point)| (project, benchmark, point));
    let fixed = rows.texts("deterministic").into_iter().map(|it| it == "true");
    let keys = points.zip(fixed);
    let recordings = rows.longs("recording").into_iter().map(Option::unwrap_or_default);
    Ok(keys.zip(recordings).collect())
}
