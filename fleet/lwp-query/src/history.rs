//! Histories: a value by commit.

use std::collections::{BTreeSet, HashMap};

use crate::chance::Sampling;
use crate::error::Result;
use crate::filter::{Filter, like};
use crate::measure::Measure;
use crate::order::Parents;
use crate::session::Session;
use crate::step::{Step, Value, steps_in};
use crate::totals::totals;

/// A value of one commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The commit; the recording's id where it has none.
    pub commit: String,
    /// The time of its first recording, as 2026-11-23T12:00:00Z.
    pub started: String,
    /// The least value of its recordings.
    pub value: i64,
    /// The number of its recordings.
    pub runs: i64,
    /// The standard error of the value; 0 if it was counted.
    pub error: f64,
    /// The notes about the commit.
    pub note: String,
}

/// The values of one benchmark.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The project.
    pub project: String,
    /// The benchmark.
    pub benchmark: String,
    /// True if its runs had a fixed environment.
    pub deterministic: bool,
    /// Points, in the order of their commits.
    pub points: Vec<Point>,
    /// Steps among them.
    pub steps: Vec<Step>,
}

/// A history to ask for.
#[derive(Clone, Debug, Default)]
pub struct Asked<'a> {
    /// The event.
    pub event: &'a str,
    /// Only this function, whose name may have `*`; the total otherwise.
    pub function: Option<&'a str>,
    /// Commits in their order, first to last, as git knows them. Others stand in the order of the
    /// parents that recordings name, and by time.
    pub order: &'a [String],
}

/// The series that a filter chooses, by project and benchmark.
///
/// # Errors
///
/// If the store cannot be read, or no recording that the filter chooses has the event.
pub async fn history(session: &Session, filter: &Filter, asked: &Asked<'_>) -> Result<Vec<Series>> {
    let measure = Measure::new(asked.event, filter);
    let counted = match asked.function {
        None => totals(&measure, filter),
        Some(name) => of_functions(&measure, filter, name),
    };
    let sql = format!(
        "select project, benchmark, deterministic, point, cast(min(started) as bigint) as at, \
         min(v) as v, sum(runs) as runs, max(whole) as whole, max(every) as every from ({counted}) \
         group by project, benchmark, deterministic, point \
         order by project, benchmark, deterministic, at, point"
    );
    let rows = session.ask(&sql).await?;
    if rows.is_empty() {
        return Err(crate::report::nothing(session, filter, asked.event).await?);
    }
    let notes = notes(session).await?;
    let (projects, benchmarks) = (rows.texts("project"), rows.texts("benchmark"));
    let (fixed, points) = (rows.texts("deterministic"), rows.texts("point"));
    let (at, values, runs) = (rows.longs("at"), rows.longs("v"), rows.longs("runs"));
    let (wholes, intervals) = (rows.longs("whole"), rows.longs("every"));
    let error = |row: usize| {
        let value = values[row].unwrap_or(0);
        // Nothing of a total is a matter of chance but its last sample.
        let whole = asked.function.map_or(value, |_| wholes[row].unwrap_or(0));
        Sampling::new(&measure, intervals[row], whole).error(value)
    };
    let mut all: Vec<Series> = Vec::new();
    for row in 0..rows.len() {
        let key = (&projects[row], &benchmarks[row], fixed[row] == "true");
        let is_new = all
            .last()
            .is_none_or(|last| key != (&last.project, &last.benchmark, last.deterministic));
        if is_new {
            let (project, benchmark, deterministic) = (key.0.clone(), key.1.clone(), key.2);
            all.push(Series { project, benchmark, deterministic, ..Series::default() });
        }
        if let Some(series) = all.last_mut() {
            let note = note_of(&notes, &points[row], key.0, key.1);
            series.points.push(Point {
                commit: points[row].clone(),
                started: moment(at[row].unwrap_or(0)),
                value: values[row].unwrap_or(0),
                runs: runs[row].unwrap_or(0),
                error: error(row),
                note,
            });
        }
    }
    arrange_all(session, &mut all, asked.order).await?;
    for series in &mut all {
        let value = |point: &Point| Value { value: point.value as f64, error: point.error };
        let values: Vec<Value> = series.points.iter().map(value).collect();
        series.steps = steps_in(&values, measure.is_exact() && series.deterministic);
    }
    Ok(all)
}

/// The values of functions by recording. A recording whose functions have expired has none; one
/// that never called the function has 0.
fn of_functions(measure: &Measure, filter: &Filter, name: &str) -> String {
    let (value, condition, chosen) = (measure.value(), measure.condition(), filter.sql());
    let interval = measure.interval();
    format!(
        "select project, benchmark, deterministic, point, started, v, 1 as runs, whole, every from \
         (select recording, project, benchmark, deterministic, coalesce(\"commit\", id) as point, \
         started from recordings where {chosen}) picked \
         join (select recording, sum(case when {} then {value} else 0 end) as v, \
         sum({value}) as whole, max({interval}) as every from functions \
         where {condition} and {chosen} group by recording) counted \
         on picked.recording = counted.recording",
        like("function", name)
    )
}

/// Puts the points of all series into the order of their commits: that of git where it knows all of
/// them, otherwise that of the parents which recordings name.
async fn arrange_all(session: &Session, all: &mut [Series], order: &[String]) -> Result<()> {
    let places: HashMap<&str, usize> =
        order.iter().enumerate().map(|(place, commit)| (commit.as_str(), place)).collect();
    let mut rest = Vec::new();
    for series in all {
        if series.points.iter().all(|point| places.contains_key(point.commit.as_str())) {
            series.points.sort_by_key(|point| places[point.commit.as_str()])
        } else {
            rest.push(series)
        }
    }
    if rest.iter().any(|series| series.points.len() > 1) {
        let parents = Parents::of(session).await?;
        rest.into_iter().for_each(|series| arrange(series, &parents));
    }
    Ok(())
}

fn arrange(series: &mut Series, parents: &Parents) {
    let times = |point: &Point| (point.commit.clone(), point.started.clone());
    let points: Vec<(String, String)> = series.points.iter().map(times).collect();
    let points: Vec<(&str, &str)> =
        points.iter().map(|(commit, at)| (commit.as_str(), at.as_str())).collect();
    let order = parents.order(&points);
    series.points = order.into_iter().map(|index| series.points[index].clone()).collect();
}

/// Microseconds since 1970 as text.
pub(crate) fn moment(micros: i64) -> String {
    let at = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    format!("{at:.0}")
}

/// A note as the store has it.
#[derive(Clone)]
pub(crate) struct Noted {
    commit: String,
    project: String,
    benchmark: String,
    text: String,
}

/// All notes.
pub(crate) async fn notes(session: &Session) -> Result<Vec<Noted>> {
    let rows = session
        .ask("select \"commit\", project, benchmark, \"text\" from notes order by started")
        .await?;
    let (commits, projects) = (rows.texts("commit"), rows.texts("project"));
    let (benchmarks, texts) = (rows.texts("benchmark"), rows.texts("text"));
    let note = |row: usize| Noted {
        commit: commits[row].clone(),
        project: projects[row].clone(),
        benchmark: benchmarks[row].clone(),
        text: texts[row].clone(),
    };
    Ok((0..rows.len()).map(note).collect())
}

/// The notes about some commits that name a benchmark, as one text.
pub(crate) fn note_naming(
    notes: &[Noted],
    commits: &BTreeSet<String>,
    project: &str,
    benchmark: &str,
) -> String {
    let naming = notes.iter().filter(|note| note.benchmark == benchmark);
    let naming: Vec<Noted> = naming.cloned().collect();
    let texts = commits.iter().map(|commit| note_of(&naming, commit, project, benchmark));
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The notes about a commit of a benchmark, as one text.
pub(crate) fn note_of(notes: &[Noted], commit: &str, project: &str, benchmark: &str) -> String {
    let same = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
    let all: Vec<&str> = notes
        .iter()
        .filter(|note| !note.commit.is_empty() && commit.starts_with(&note.commit))
        .filter(|note| same(&note.project, project) && same(&note.benchmark, benchmark))
        .map(|note| note.text.as_str())
        .collect();
    all.join("; ")
}
