//! Functions and modules of recordings, compared with those of others.
//!
//! One question asks for many recordings, because a question costs more than a recording.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::measure::Measure;
use crate::session::Session;

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
}

impl Change {
    /// After minus before.
    pub fn difference(&self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }
}

/// Values by module and name.
type Values = BTreeMap<(String, String), i64>;

/// The values of the functions of some recordings.
#[derive(Debug, Default)]
pub struct Functions {
    by_recording: HashMap<i64, Values>,
    /// Recordings that have functions, if none with values.
    known: HashSet<i64>,
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
        let sql = format!(
            "select recording, module, function, sum({}) as v from functions \
             where {} and {} and recording in ({wanted}) group by recording, module, function",
            measure.value(),
            measure.condition(),
            filter.sql(),
        );
        let rows = session.ask(&sql).await?;
        let (recordings, values) = (rows.longs("recording"), rows.longs("v"));
        let names = rows.texts("module").into_iter().zip(rows.texts("function"));
        let mut all = Self::default();
        for ((recording, value), name) in recordings.into_iter().zip(values).zip(names) {
            let of = all.by_recording.entry(recording.unwrap_or(0)).or_default();
            of.insert(name, value.unwrap_or(0));
        }
        if pairs.iter().any(|(a, b)| [a, b].iter().any(|it| !all.by_recording.contains_key(it))) {
            let sql = format!(
                "select distinct recording from functions where {} and recording in ({wanted})",
                filter.sql(),
            );
            all.known = session.ask(&sql).await?.longs("recording").into_iter().flatten().collect();
        }
        Ok(all)
    }

    /// Returns the functions whose values two recordings have different, those that changed most
    /// first. `None` if one of them has no functions: they have expired.
    pub fn changes(&self, before: i64, after: i64) -> Option<Vec<Change>> {
        let none = Values::new();
        let of = |recording| self.by_recording.get(&recording).unwrap_or(&none);
        let (old, new) = (of(before), of(after));
        let value = |of: &Values, name| of.get(name).copied().unwrap_or(0);
        let names: BTreeSet<&(String, String)> = old.keys().chain(new.keys()).collect();
        let mut changes: Vec<Change> = names
            .into_iter()
            .map(|name| Change {
                module: name.0.clone(),
                function: name.1.clone(),
                before: value(old, name),
                after: value(new, name),
            })
            .filter(|change| change.before != change.after)
            .collect();
        let expired = |of: &Values, recording| of.is_empty() && !self.known.contains(&recording);
        if !changes.is_empty() && (expired(old, before) || expired(new, after)) {
            return None;
        }
        // Names are in order already.
        changes.sort_by_key(|change| std::cmp::Reverse(change.difference().abs()));
        Some(changes)
    }
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
            changes.iter().map(|it| (it.function.as_str(), it.before, it.after)).collect();
        assert_eq!(seen, [("b", 9, 2), ("d", 0, 3), ("c", 1, 0)]);
    }

    #[test]
    fn functions_that_have_expired_are_not_new() {
        let all = functions(&[(2, "a", 5)], &[3]);
        assert_eq!(all.changes(1, 2), None);
        assert_eq!(all.changes(3, 2).map(|changes| changes.len()), Some(1));
        assert_eq!(all.changes(1, 3), Some(Vec::new()));
    }
}
