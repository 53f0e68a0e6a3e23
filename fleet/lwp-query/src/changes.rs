//! Functions and modules of recordings, compared with those of others.
//!
//! One question asks for many recordings, because a question costs more than a recording.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use lwp_store::COUNTS;

use crate::chance::{Sampling, margin_of};
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::measure::Measure;
use crate::number::{grouped, signed};
use crate::renames::{Body, paired};
use crate::session::{Rows, Session};
use crate::views::quoted;

/// The number of pairs of recordings that are asked for at once; each has thousands of functions.
const AT_ONCE: usize = 32;

/// A function, before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its module.
    pub module: String,
    /// Its name.
    pub function: String,
    /// The value before.
    pub before: i64,
    /// The value after.
    pub after: i64,
    /// Half the width of the interval that holds the difference in 95 of 100 pairs of recordings; 0
    /// if both values were counted.
    pub margin: i64,
    /// Its module and name before, if they were others.
    pub was: Option<Name>,
}

impl Change {
    /// After minus before.
    pub fn difference(&self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }

    /// Returns true if the difference may be a matter of chance.
    pub fn is_chance(&self) -> bool {
        self.difference().abs() <= self.margin.into()
    }

    /// ` ±` and the margin; empty if both values were counted.
    pub fn plus_minus(&self) -> String {
        if self.margin == 0 { String::new() } else { format!(" ±{}", grouped(self.margin.into())) }
    }

    /// The name before, and the module if it was another one; `None` if both are the same.
    pub fn former(&self) -> Option<String> {
        let (module, was) = self.was.as_ref()?;
        Some(if *module == self.module {
            format!("renamed from {was}")
        } else {
            format!("renamed from {was} ({module})")
        })
    }
}

/// The functions in which two recordings differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those whose values differ, the ones that changed most first.
    pub changed: Vec<Change>,
    /// Those whose values differ by no more than chance explains, in the same order.
    pub chance: Vec<Change>,
    /// Those that have another name and the same value.
    pub renamed: Vec<Change>,
}

impl Changes {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.chance.is_empty() && self.renamed.is_empty()
    }

    /// The functions whose difference may be a matter of chance, in a line; `None` if there are
    /// none.
    pub fn indistinguishable(&self) -> Option<String> {
        let most = self.chance.first()?;
        let many = match self.chance.len() {
            1 => "not distinguishable".to_owned(),
            many => format!("{} functions not distinguishable, at most", grouped(many as i128)),
        };
        let (change, margin) = (signed(most.difference()), most.plus_minus());
        Some(format!("{many}: {change}{margin} {} ({})", most.function, most.module))
    }

    /// The functions that only have another name, in a line; `None` if there are none.
    pub fn renames(&self) -> Option<String> {
        let first = self.renamed.first()?;
        let (module, was) = first.was.as_ref()?;
        let many = match self.renamed.len() {
            1 => "renamed".to_owned(),
            many => format!("{} functions renamed", grouped(many as i128)),
        };
        let from = if *module == first.module { String::new() } else { format!(" ({module})") };
        Some(format!("{many}: {was}{from} is {} ({})", first.function, first.module))
    }
}

/// A module and the name of a function in it.
pub type Name = (String, String);

/// Values by module and name.
type Values = BTreeMap<Name, i64>;

/// The values of the functions of some recordings.
#[derive(Debug, Default)]
pub struct Functions {
    by_recording: HashMap<i64, Values>,
    samplings: HashMap<i64, Sampling>,
    /// Recordings that have functions, if none with values.
    known: HashSet<i64>,
    /// Functions that only one recording of a pair has.
    bodies: HashMap<(i64, Name), Body>,
}

impl Functions {
    /// Asks for the values of the first of `pairs`: of as many as an answer may have rows for.
    /// Returns their number too.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a single pair has more rows than an answer may have.
    pub async fn of_first(
        session: &Session,
        measure: &Measure,
        filter: &Filter,
        pairs: &[(i64, i64)],
    ) -> Result<(usize, Self)> {
        let mut many = pairs.len().min(AT_ONCE);
        loop {
            match Self::of(session, measure, filter, &pairs[..many]).await {
                Err(Error::Rows(_)) if many > 1 => many /= 2,
                functions => return Ok((many, functions?)),
            }
        }
    }

    /// Asks for the values of `pairs` of recordings, as far as `filter` chooses them.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn of(
        session: &Session,
        measure: &Measure,
        filter: &Filter,
        pairs: &[(i64, i64)],
    ) -> Result<Self> {
        let Some(wanted) = either(pairs) else { return Ok(Self::default()) };
        let sql = match measure.is_inclusive() && !measure.is_exact() {
            true => inclusive_of_stacks(measure, filter, &wanted),
            false => of_functions(measure, filter, &wanted),
        };
        let rows = session.ask(&sql).await?;
        let (recordings, values) = (rows.longs("recording"), rows.longs("v"));
        let names = rows.texts("module").into_iter().zip(rows.texts("function"));
        let mut all = Self::default();
        for ((recording, value), name) in recordings.into_iter().zip(values).zip(names) {
            let of = all.by_recording.entry(recording.unwrap_or(0)).or_default();
            of.insert(name, value.unwrap_or(0));
        }
        all.samplings = samplings(measure, &rows);
        let (lonely, names) = all.lonely(pairs);
        if !names.is_empty() {
            all.bodies = bodies(session, &lonely, &names).await?;
        }
        // Without inclusive counts, nothing is known of a function.
        let lacks =
            |(a, b): &(i64, i64)| [a, b].iter().any(|it| !all.by_recording.contains_key(it));
        if !measure.is_inclusive() && pairs.iter().any(lacks) {
            let sql = format!(
                "select distinct recording from functions where {} and recording in ({wanted})",
                filter.sql(),
            );
            all.known = session.ask(&sql).await?.longs("recording").into_iter().flatten().collect();
        }
        Ok(all)
    }

    /// The recordings of `pairs` that have functions which their partner does not have and the
    /// other way around, and the names of these functions.
    fn lonely(&self, pairs: &[(i64, i64)]) -> (BTreeSet<i64>, BTreeSet<String>) {
        let (mut recordings, mut names) = (BTreeSet::new(), BTreeSet::new());
        for (before, after) in pairs {
            let (gone, new) = self.only(*before, *after);
            if !gone.is_empty() && !new.is_empty() {
                recordings.extend([*before, *after]);
                names.extend(gone.into_iter().chain(new).map(|name| name.1.clone()));
            }
        }
        (recordings, names)
    }

    /// The names that only one of two recordings has.
    fn only(&self, before: i64, after: i64) -> (Vec<&Name>, Vec<&Name>) {
        let none = const { &Values::new() };
        let of = |recording| self.by_recording.get(&recording).unwrap_or(none);
        let (old, new) = (of(before), of(after));
        let gone = old.keys().filter(|name| !new.contains_key(*name)).collect();
        (gone, new.keys().filter(|name| !old.contains_key(*name)).collect())
    }

    /// The names after of functions that had another one before, and that one.
    fn renames(&self, before: i64, after: i64) -> HashMap<&Name, &Name> {
        let (gone, new) = self.only(before, after);
        if gone.is_empty() || new.is_empty() {
            return HashMap::new();
        }
        let bodies = |recording: i64, names: &[&Name]| -> Vec<Body> {
            let body = |name: &&Name| {
                let known = self.bodies.get(&(recording, (*name).clone())).cloned();
                let (module, function) = (*name).clone();
                known.unwrap_or(Body { module, function, ..Body::default() })
            };
            names.iter().map(body).collect()
        };
        let pairs = paired(&bodies(before, &gone), &bodies(after, &new));
        pairs.into_iter().map(|(old, at)| (new[at], gone[old])).collect()
    }

    /// Returns the functions in which two recordings differ. `None` if one of them has no
    /// functions: they have expired.
    pub fn changes(&self, before: i64, after: i64) -> Option<Changes> {
        let none = Values::new();
        let of = |recording| self.by_recording.get(&recording).unwrap_or(&none);
        let (old, new) = (of(before), of(after));
        let value = |of: &Values, name: &Name| of.get(name).copied().unwrap_or(0);
        let expired = |of: &Values, recording| of.is_empty() && !self.known.contains(&recording);
        if old != new && (expired(old, before) || expired(new, after)) {
            return None;
        }
        let renames = self.renames(before, after);
        let moved: HashSet<&Name> = renames.values().copied().collect();
        let samplings =
            [before, after].map(|it| self.samplings.get(&it).copied().unwrap_or_default());
        let names: BTreeSet<&Name> = old.keys().chain(new.keys()).collect();
        let change = |name: &Name| {
            let was = renames.get(name).copied();
            let (before, after) = (value(old, was.unwrap_or(name)), value(new, name));
            Change {
                module: name.0.clone(),
                function: name.1.clone(),
                before,
                after,
                margin: margin_of([(samplings[0], before), (samplings[1], after)]),
                was: was.cloned(),
            }
        };
        let all = names.into_iter().filter(|name| !moved.contains(*name)).map(change);
        let (mut changed, same): (Vec<_>, Vec<_>) =
            all.partition(|change| change.before != change.after);
        // Names are in order already.
        changed.sort_by_key(|change| std::cmp::Reverse(change.difference().abs()));
        let (chance, changed) = changed.into_iter().partition(Change::is_chance);
        let renamed = same.into_iter().filter(|change| change.was.is_some()).collect();
        Some(Changes { changed, chance, renamed })
    }
}

/// The question for the functions of some recordings, listed in SQL.
fn of_functions(measure: &Measure, filter: &Filter, wanted: &str) -> String {
    format!(
        "select recording, module, function, sum({}) as v, max({}) as every from functions \
         where {} and {} and recording in ({wanted}) group by recording, module, function",
        measure.value(),
        measure.interval(),
        measure.condition(),
        filter.sql(),
    )
}

/// The question for the inclusive values of functions in sampled recordings: a stack counts once
/// for each function in it.
fn inclusive_of_stacks(measure: &Measure, filter: &Filter, wanted: &str) -> String {
    let (value, interval) = (measure.value(), measure.interval());
    let (condition, chosen) = (measure.condition(), filter.sql());
    format!(
        "with picked as (select recording, frames, {value} as v, {interval} as every from stacks \
         where {condition} and {chosen} and recording in ({wanted})), \
         wholes as (select recording, sum(v) as whole, max(every) as every from picked \
         group by recording), \
         framed as (select recording, unnest(array_distinct(frames)) as func, v from picked), \
         summed as (select recording, func, sum(v) as v from framed group by recording, func), \
         named as (select distinct recording, func, module, function from functions \
         where recording in ({wanted})) \
         select s.recording, n.module, n.function, s.v, w.every, w.whole from summed s \
         join named n on n.recording = s.recording and n.func = s.func \
         join wholes w on w.recording = s.recording"
    )
}

/// How each recording of an answer was sampled.
fn samplings(measure: &Measure, rows: &Rows) -> HashMap<i64, Sampling> {
    let (recordings, values) = (rows.longs("recording"), rows.longs("v"));
    let (intervals, wholes) = (rows.longs("every"), rows.longs("whole"));
    let mut sums: HashMap<i64, (Option<i64>, i64)> = HashMap::new();
    for (row, recording) in recordings.into_iter().enumerate() {
        let (interval, whole) = sums.entry(recording.unwrap_or(0)).or_default();
        *interval = intervals[row].max(*interval);
        // Own values add up to the whole; inclusive ones come with it.
        *whole = match wholes.get(row) {
            Some(known) => known.unwrap_or(0),
            None => whole.saturating_add(values[row].unwrap_or(0)),
        };
    }
    let sampling = |(interval, whole)| Sampling::new(measure, interval, whole);
    sums.into_iter().map(|(recording, of)| (recording, sampling(of))).collect()
}

/// The most names that a question lists; otherwise it asks for all functions.
const MOST_NAMES: usize = 500;

/// Everything that tells functions of some recordings apart but their names.
async fn bodies(
    session: &Session,
    recordings: &BTreeSet<i64>,
    names: &BTreeSet<String>,
) -> Result<HashMap<(i64, Name), Body>> {
    let sums = COUNTS.map(|column| format!("sum(\"{column}\") as \"{column}\"")).join(", ");
    let wanted: Vec<String> = recordings.iter().map(i64::to_string).collect();
    let named = match names.len() <= MOST_NAMES {
        true => {
            let list: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            format!(" and function in ({})", list.join(", "))
        }
        false => String::new(),
    };
    let sql = format!(
        "select recording, module, function, max(file) as file, max(line) as line, \
         sum(entered) as entered, sum(\"value\") as v, {sums} from functions \
         where recording in ({}){named} group by recording, module, function",
        wanted.join(", ")
    );
    Ok(bodies_in(&session.ask(&sql).await?))
}

fn bodies_in(rows: &Rows) -> HashMap<(i64, Name), Body> {
    let [modules, functions, files] = ["module", "function", "file"].map(|name| rows.texts(name));
    let (recordings, lines) = (rows.longs("recording"), rows.longs("line"));
    let counts: Vec<Vec<Option<i64>>> =
        ["entered", "v"].into_iter().chain(COUNTS).map(|name| rows.longs(name)).collect();
    let body = |row: usize| {
        let body = Body {
            module: modules[row].clone(),
            function: functions[row].clone(),
            counts: counts.iter().map(|column| column[row].unwrap_or(0)).collect(),
            file: files[row].clone(),
            line: lines[row].unwrap_or(0),
        };
        ((recordings[row].unwrap_or(0), (body.module.clone(), body.function.clone())), body)
    };
    (0..rows.len()).map(body).collect()
}

/// The builds of the modules of some recordings.
#[derive(Debug, Default)]
pub struct Builds(HashMap<i64, BTreeMap<String, BTreeSet<String>>>);

impl Builds {
    /// Asks for those of `pairs` of recordings.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn of(session: &Session, pairs: &[(i64, i64)]) -> Result<Self> {
        let Some(wanted) = either(pairs) else { return Ok(Self::default()) };
        let sql = format!(
            "select distinct recording, module, coalesce(build_id, '') as build from modules \
             where recording in ({wanted})"
        );
        let rows = session.ask(&sql).await?;
        let recordings = rows.longs("recording").into_iter();
        let mut all = Self::default();
        for ((recording, module), build) in
            recordings.zip(rows.texts("module")).zip(rows.texts("build"))
        {
            let of = all.0.entry(recording.unwrap_or(0)).or_default();
            of.entry(module).or_default().insert(build);
        }
        Ok(all)
    }

    /// Returns the modules of which two recordings have different builds.
    pub fn changed(&self, before: i64, after: i64) -> Vec<String> {
        let (Some(old), Some(new)) = (self.0.get(&before), self.0.get(&after)) else {
            return Vec::new();
        };
        let differs = |module: &String, builds: &BTreeSet<String>| {
            old.get(module).is_some_and(|old| old.len() > 1 || builds.len() > 1 || old != builds)
        };
        new.iter()
            .filter(|(module, it)| differs(module, it))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// The recordings of `pairs`, as a list in SQL; `None` where there are none.
fn either(pairs: &[(i64, i64)]) -> Option<String> {
    let all: BTreeSet<i64> = pairs.iter().flat_map(|(before, after)| [*before, *after]).collect();
    let all: Vec<String> = all.iter().map(i64::to_string).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(of: &[(i64, &str, i64)], known: &[i64]) -> Functions {
        let mut all = Functions { known: known.iter().copied().collect(), ..Functions::default() };
        for (recording, name, value) in of {
            let name = ("m".to_owned(), (*name).to_owned());
            all.by_recording.entry(*recording).or_default().insert(name, *value);
        }
        all
    }

    #[test]
    fn the_largest_change_comes_first() {
        let all = functions(
            &[(1, "a", 5), (1, "b", 9), (1, "c", 1), (2, "a", 5), (2, "b", 2), (2, "d", 3)],
            &[],
        );
        let changes = all.changes(1, 2).unwrap();
        let seen: Vec<(&str, i64, i64)> =
            changes.changed.iter().map(|it| (it.function.as_str(), it.before, it.after)).collect();
        assert_eq!(seen, [("b", 9, 2), ("d", 0, 3), ("c", 1, 0)]);
    }

    #[test]
    fn functions_that_have_expired_are_not_new() {
        let all = functions(&[(2, "a", 5)], &[3]);
        assert_eq!(all.changes(1, 2), None);
        assert_eq!(all.changes(3, 2).map(|changes| changes.changed.len()), Some(1));
        assert_eq!(all.changes(1, 3), Some(Changes::default()));
    }
}
