//! Comparisons of two commits, branches or recordings, benchmark by benchmark.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::{Sampling, margin_of};
use crate::changes::{Builds, Functions};
pub use crate::changes::{Change, Changes};
use crate::error::{Error, Result};
use crate::events;
use crate::filter::Filter;
use crate::history::{note_naming, note_of, notes};
use crate::measure::Measure;
use crate::session::{Rows, Session};
use crate::views::quoted;

/// A side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// As it was given.
    pub text: String,
    condition: String,
}

impl Selector {
    /// A commit or a recording's id by its first letters, `branch:NAME` for the latest of a branch,
    /// or `label:KEY=VALUE`.
    ///
    /// # Errors
    ///
    /// If it is none of these.
    pub fn parse(text: &str) -> Result<Self> {
        let condition = match text.split_once(':') {
            Some(("branch", name)) => format!("branch = {}", quoted(name)),
            Some(("label", pair)) => {
                let pair = pair.split_once('=').ok_or_else(|| {
                    Error::Question(format!("'{text}': label:KEY=VALUE is wanted"))
                })?;
                format!("labels[{}] = {}", quoted(pair.0), quoted(pair.1))
            }
            Some(_) => {
                return Err(Error::Question(format!(
                    "'{text}' is no commit, id, branch:NAME or label:KEY=VALUE"
                )));
            }
            None if text.len() < 4 => {
                return Err(Error::Question(format!("'{text}' is too short for a commit")));
            }
            None => {
                let text = quoted(text);
                format!("(starts_with(\"commit\", {text}) or starts_with(id, {text}))")
            }
        };
        Ok(Self { text: text.to_owned(), condition })
    }
}

/// A recording that is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Its id.
    pub id: String,
    /// Its key.
    pub recording: i64,
    /// Its commit.
    pub commit: String,
    /// The hash of what was counted.
    pub content: String,
    /// The value.
    pub value: i64,
    /// The number of recordings of its benchmark at its commit.
    pub runs: usize,
    /// The difference between the greatest and the least value among them.
    pub spread: i64,
    /// The way in which the value was sampled.
    pub sampling: Sampling,
    /// The version of the tool that recorded.
    pub tool: String,
    /// The processor that the program saw.
    pub cpu: String,
    /// `true` if its environment was fixed.
    pub deterministic: String,
}

/// A benchmark, compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// The project.
    pub project: String,
    /// The benchmark.
    pub benchmark: String,
    /// The latest recording of the one side.
    pub before: Side,
    /// The latest recording of the other.
    pub after: Side,
    /// Functions that changed. None where everything is equal, and where the functions of a side
    /// have expired.
    pub changes: Changes,
    /// What a side lacks of its functions, in words.
    pub lacks: Option<&'static str>,
    /// Modules that are other builds.
    pub rebuilt: Vec<String>,
    /// The notes about the commit of the other side: the change is expected.
    pub note: String,
}

impl Pair {
    /// Returns true if everything that was counted is equal.
    pub fn is_identical(&self) -> bool {
        self.before.content == self.after.content
    }

    /// The change of the total, in per cent.
    pub fn percent(&self) -> f64 {
        let (before, after) = (self.before.value as f64, self.after.value as f64);
        if before == 0.0 { f64::INFINITY } else { 100.0 * (after - before) / before }
    }

    /// The growth of the total.
    pub fn growth(&self) -> i128 {
        i128::from(self.after.value) - i128::from(self.before.value)
    }

    /// Returns true if neither side's counts repeat from run to run.
    pub fn is_noisy(&self) -> bool {
        [&self.before, &self.after].iter().all(|side| side.deterministic != "true")
    }

    /// The part of a change that needs no cause: the spread of the runs of one commit, where counts
    /// do not repeat, and the chance that samples leave.
    pub fn spread(&self) -> i64 {
        let sides = [&self.before, &self.after].map(|side| (side.sampling, side.value));
        self.spread_of_runs().max(margin_of(sides))
    }

    fn spread_of_runs(&self) -> i64 {
        if self.is_noisy() { self.before.spread.max(self.after.spread) } else { 0 }
    }

    fn noise(&self) -> Option<String> {
        let runs = self.before.runs.max(self.after.runs);
        let known = match runs {
            0 | 1 => "with one run of each, their spread is unknown".to_owned(),
            _ => format!(
                "runs of one commit differ by up to {}",
                crate::number::grouped(self.spread_of_runs().into())
            ),
        };
        self.is_noisy().then(|| format!("neither recording is deterministic: {known}"))
    }

    /// The differences that make the two hard to compare, in words.
    pub fn caveats(&self) -> Vec<String> {
        let of = |what: &str, before: &str, after: &str| {
            (before != after).then(|| format!("{what} was {}, is {}", named(before), named(after)))
        };
        let (before, after) = (&self.before, &self.after);
        let all = [
            of("lwp's version", &before.tool, &after.tool),
            of("the processor", &before.cpu, &after.cpu),
            of("--deterministic", &before.deterministic, &after.deterministic),
        ];
        let libc = self
            .rebuilt
            .iter()
            .filter(|module| module.starts_with("libc.") || module.starts_with("ld-"));
        let libc = libc.map(|module| format!("{module} is another build"));
        let lacks = self.lacks.map(|what| format!("{what}: only totals are compared"));
        all.into_iter().flatten().chain(self.noise()).chain(libc).chain(lacks).collect()
    }
}

/// A benchmark that only one side has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Single {
    /// The project.
    pub project: String,
    /// The benchmark.
    pub benchmark: String,
    /// The notes that name it, about the commits of the other side: it is meant to be missing.
    pub note: String,
}

fn named(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// What a comparison counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted<'a> {
    /// The event; by default the one that the recordings have.
    pub event: Option<&'a str>,
    /// True if a function counts together with everything that it called.
    pub inclusive: bool,
}

/// Two sides, compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The event.
    pub event: String,
    /// True if functions were counted together with everything that they called.
    pub inclusive: bool,
    /// Benchmarks of both sides.
    pub pairs: Vec<Pair>,
    /// Benchmarks that only the first side has: they vanished.
    pub only_before: Vec<Single>,
    /// Benchmarks that only the second side has: they are new.
    pub only_after: Vec<Single>,
}

impl Comparison {
    /// The event, and whether counts of functions are inclusive, in words.
    pub fn counted(&self) -> String {
        let kind = if self.inclusive { ", functions with what they called" } else { "" };
        format!("{}{kind}", self.event)
    }

    /// The name of a benchmark, with its project if there are several.
    pub fn name(&self, project: &str, benchmark: &str) -> String {
        let singles = self.only_before.iter().chain(&self.only_after).map(|one| &one.project);
        let mut projects = self.pairs.iter().map(|pair| &pair.project).chain(singles);
        if projects.any(|other| other != project) {
            format!("{project} {benchmark}")
        } else {
            benchmark.to_owned()
        }
    }

    /// The names of benchmarks that only one side has.
    pub fn names(&self, of: &[Single]) -> Vec<String> {
        of.iter().map(|one| self.name(&one.project, &one.benchmark)).collect()
    }
}

/// Compares the latest recordings of two sides, benchmark by benchmark, in the event that is asked
/// for or in the one that they have.
///
/// # Errors
///
/// If the store cannot be read, or a side has no recording.
pub async fn compare(
    session: &Session,
    sides: (&Selector, &Selector),
    filter: &Filter,
    counted: Counted<'_>,
) -> Result<Comparison> {
    let either = format!("({} or {})", sides.0.condition, sides.1.condition);
    let event = &events::event(session, &filter.and_recordings(&either), counted.event).await?;
    let measure = Measure::new(event, filter);
    let of_functions = if counted.inclusive { measure.inclusive()? } else { measure.clone() };
    let before = latest(session, sides.0, filter, &measure).await?;
    let mut after = latest(session, sides.1, filter, &measure).await?;
    let inclusive = counted.inclusive;
    let mut out = Comparison { event: event.clone(), inclusive, ..Comparison::default() };
    let notes = notes(session).await?;
    let commits: BTreeSet<String> = after.values().map(|side| side.commit.clone()).collect();
    for ((project, benchmark), before) in before {
        let Some(after) = after.remove(&(project.clone(), benchmark.clone())) else {
            let note = note_naming(&notes, &commits, &project, &benchmark);
            out.only_before.push(Single { project, benchmark, note });
            continue;
        };
        let note = note_of(&notes, &after.commit, &project, &benchmark);
        out.pairs.push(Pair { project, benchmark, before, after, note, ..Pair::default() });
    }
    let mut different: Vec<&mut Pair> =
        out.pairs.iter_mut().filter(|pair| !pair.is_identical()).collect();
    let mut rest = &mut different[..];
    while !rest.is_empty() {
        let many = explain_first(session, &of_functions, rest).await?;
        rest = &mut rest[many..];
    }
    let single = |(project, benchmark)| Single { project, benchmark, ..Single::default() };
    out.only_after = after.into_keys().map(single).collect();
    Ok(out)
}

/// Finds out what changed in the first of some pairs, and returns their number.
async fn explain_first(
    session: &Session,
    measure: &Measure,
    pairs: &mut [&mut Pair],
) -> Result<usize> {
    let sides = |pair: &Pair| (pair.before.recording, pair.after.recording);
    let recordings: Vec<(i64, i64)> = pairs.iter().map(|pair| sides(pair)).collect();
    let all = Filter::default();
    let (many, functions) = Functions::of_first(session, measure, &all, &recordings).await?;
    let builds = Builds::of(session, &recordings[..many]).await?;
    for pair in &mut pairs[..many] {
        let (before, after) = sides(pair);
        let changes = functions.changes(before, after);
        pair.lacks = changes.is_none().then(|| lacking(measure));
        pair.changes = changes.unwrap_or_default();
        pair.rebuilt = builds.changed(before, after);
    }
    Ok(many)
}

/// The reason why functions of two recordings cannot be compared.
fn lacking(measure: &Measure) -> &'static str {
    match measure.is_inclusive() {
        true => "one of the two has no inclusive counts",
        false => "functions of one of the two have expired",
    }
}

/// The latest recording of each benchmark on a side.
async fn latest(
    session: &Session,
    side: &Selector,
    filter: &Filter,
    measure: &Measure,
) -> Result<BTreeMap<(String, String), Side>> {
    let every = if measure.is_exact() { "cast(null as bigint)" } else { "t.\"interval\"" };
    let value = match measure.is_exact() {
        true => format!("r.{}", measure.value()),
        false => "t.\"value\"".to_owned(),
    };
    let joined = match measure.is_exact() {
        true => String::new(),
        false => {
            format!("join totals t on t.recording = r.recording and t.{}", measure.condition())
        }
    };
    let sql = format!(
        "with picked as (select * from recordings where {} and {}) \
         select r.id, r.recording, r.\"commit\", r.content, {value} as v, r.tool_version, r.cpu, \
         r.deterministic, r.project, r.benchmark, {every} as every from picked r {joined} \
         where {value} is not null order by r.started, r.id",
        side.condition,
        filter.sql(),
    );
    let rows = session.ask(&sql).await?;
    if rows.is_empty() {
        let of_side = filter.and_recordings(&side.condition);
        let known = events::known(session, &of_side).await?;
        return Err(Error::Question(match known.is_empty() {
            true => format!("no recording of '{}' is chosen", side.text),
            false => format!(
                "no recording of '{}' has the event '{}'; they have {}",
                side.text,
                measure.event,
                known.join(", ")
            ),
        }));
    }
    let names = rows.texts("project").into_iter().zip(rows.texts("benchmark"));
    let mut runs: BTreeMap<(String, String), Vec<Side>> = BTreeMap::new();
    for (name, side) in names.zip(sides(&rows, measure)) {
        runs.entry(name).or_default().push(side);
    }
    Ok(runs.into_iter().filter_map(|(name, runs)| Some((name, last(runs)?))).collect())
}

/// The last one of some runs, with the spread of those of its commit.
fn last(mut runs: Vec<Side>) -> Option<Side> {
    let mut side = runs.pop()?;
    let same = runs.iter().filter(|run| run.commit == side.commit && !run.commit.is_empty());
    let values: Vec<i64> = same.map(|run| run.value).chain([side.value]).collect();
    side.runs = values.len();
    let bounds = values.iter().max().zip(values.iter().min());
    side.spread = bounds.map_or(0, |(most, least)| most.saturating_sub(*least));
    Some(side)
}

fn sides(rows: &Rows, measure: &Measure) -> Vec<Side> {
    let [ids, commits, contents, tools, cpus, fixed] =
        ["id", "commit", "content", "tool_version", "cpu", "deterministic"]
            .map(|name| rows.texts(name));
    let (recordings, values) = (rows.longs("recording"), rows.longs("v"));
    let intervals = rows.longs("every");
    let side = |row: usize| Side {
        id: ids[row].clone(),
        recording: recordings[row].unwrap_or(0),
        commit: commits[row].clone(),
        content: contents[row].clone(),
        value: values[row].unwrap_or(0),
        sampling: Sampling::new(measure, intervals[row], values[row].unwrap_or(0)),
        tool: tools[row].clone(),
        cpu: cpus[row].clone(),
        deterministic: fixed[row].clone(),
        ..Side::default()
    };
    (0..rows.len()).map(side).collect()
}
