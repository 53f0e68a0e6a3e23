//! Comparing profiles: what moved, by how much, and whether the same code was compared.

use std::collections::BTreeMap;

use crate::profile::{FunctionId, Profile, Values};

/// Something with counts before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// What is compared: a function's or line's name.
    pub key: String,
    /// Counts before; `None` where it did not occur.
    pub before: Option<Values>,
    /// Counts after; `None` where it did not occur.
    pub after: Option<Values>,
}

impl Row {
    /// After minus before, for one event.
    pub fn delta(&self, event: usize) -> i128 {
        let value = |side: &Option<Values>| side.as_ref().map_or(0, |values| values.get(event));
        i128::from(value(&self.after)) - i128::from(value(&self.before))
    }
}

/// Two profiles compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// What was compared, by key.
    pub rows: Vec<Row>,
    /// Sum of the one.
    pub before: Values,
    /// Sum of the other.
    pub after: Values,
    /// Names of modules whose build ids differ.
    pub rebuilt: Vec<String>,
}

/// What rows are keyed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum By {
    /// Functions that are not inlined.
    #[default]
    Function,
    /// Source lines.
    Line,
    /// Modules.
    Module,
}

/// Compares `after` with `before`. `name` is what a function is called in both: without what differs
/// from build to build.
pub fn compare(
    before: &Profile,
    after: &Profile,
    by: By,
    name: &dyn Fn(&Profile, FunctionId) -> String,
) -> Diff {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (key, values) in keyed(before, by, name) {
        rows.entry(key).or_default().before = Some(values);
    }
    // The same event may have another index in the other profile.
    let places: Vec<Option<usize>> =
        before.events.iter().map(|event| after.event(&event.name)).collect();
    let aligned = |values: &Values| {
        Values(places.iter().map(|at| at.map_or(0, |at| values.get(at))).collect())
    };
    for (key, values) in keyed(after, by, name) {
        rows.entry(key).or_default().after = Some(aligned(&values));
    }
    let rows = rows.into_iter().map(|(key, row)| Row { key, ..row }).collect();
    Diff {
        rows,
        before: before.total(),
        after: aligned(&after.total()),
        rebuilt: rebuilt(before, after),
    }
}

fn keyed(
    profile: &Profile,
    by: By,
    name: &dyn Fn(&Profile, FunctionId) -> String,
) -> BTreeMap<String, Values> {
    let mut sums: BTreeMap<String, Values> = BTreeMap::new();
    let mut names: BTreeMap<FunctionId, String> = BTreeMap::new();
    for (index, values) in profile.by_location().into_iter().enumerate() {
        if values.is_zero() {
            continue;
        }
        let location = &profile.locations[index];
        let function = location.function();
        let module = profile.modules[location.module.index()].name();
        let key = match by {
            By::Module => module.to_owned(),
            By::Line if location.frames.first().is_some_and(|frame| frame.line != 0) => {
                format!("{}:{}", location.frames[0].file, location.frames[0].line)
            }
            _ => {
                let name = names.entry(function).or_insert_with(|| name(profile, function));
                format!("{name} [{module}]")
            }
        };
        sums.entry(key).or_insert_with(|| Values::zero(values.0.len())).add(&values);
    }
    sums
}

/// Modules of the same name with different build ids.
fn rebuilt(before: &Profile, after: &Profile) -> Vec<String> {
    let mut names = Vec::new();
    for module in &after.modules {
        let old = before.modules.iter().find(|old| old.name() == module.name());
        if old.is_some_and(|old| old.build_id != module.build_id) {
            names.push(module.name().to_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}
