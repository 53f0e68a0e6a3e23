//! One recording held against its limits.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lwp_profile::diff::{By, Inlined, Keys, compare};
use lwp_profile::{FunctionId, Location, Measured, Profile, Values};
use lwp_report::chance::standard_error;
use lwp_report::diff::View;
use lwp_report::gate::{Benchmark, Change, Check, Limit, Place, Subject};
use wildmatch::WildMatch;

use super::rules::{Patterns, Rules};
use crate::comparing::MapArgs;
use crate::failure::Failure;
use crate::profiles;

/// The event whose changes are listed where no limit is exceeded.
const USUAL: &str = "instructions";

/// A recording and its baseline.
pub struct Compared<'a> {
    /// The benchmark's name.
    pub name: &'a str,
    /// The baseline, if there is one.
    pub before: Option<&'a Profile>,
    /// The recording.
    pub after: &'a Profile,
    /// Files that are compared with each other.
    pub maps: &'a MapArgs,
}

/// Holds a recording against the rules.
pub fn judge(rules: &Rules, compared: &Compared<'_>) -> Result<Benchmark, Failure> {
    let Compared { name, before, after, maps } = *compared;
    let matched = match before {
        Some(before) => maps.matched(before, after)?,
        None => MapArgs::default().matched(after, after)?,
    };
    let both = [before.map(|before| (before, &matched.before)), Some((after, &matched.after))];
    let sides: Vec<_> = both.into_iter().flatten().collect();
    let inlined = Inlined::of(&sides);
    let places = Places::of(both, &inlined);
    let mut checks = whole(rules, compared)?;
    let mut notes = Vec::new();
    let (functions, modules) = (Sums::of_functions(both, &inlined), Sums::of_modules(both));
    parts(&rules.functions, &functions, compared, (&mut checks, &mut notes), &|key| {
        (Subject::Function(key.name.clone()), places.of_function(&key.key()))
    })?;
    parts(&rules.modules, &modules, compared, (&mut checks, &mut notes), &|key| {
        (Subject::Module(key.name.clone()), None)
    })?;
    if rules.need_contexts() {
        let sums = Sums::of_inclusive(both, rules)?;
        parts(&rules.inclusive, &sums, compared, (&mut checks, &mut notes), &|key| {
            (Subject::Inclusive(key.name.clone()), places.of_function(&key.key()))
        })?;
    }
    let diff =
        before.map(|before| compare(before, after, By::Function, &matched)).unwrap_or_default();
    notes.extend(diff.paired.iter().map(ToString::to_string));
    let failed = checks.iter().find(|check| !check.passes()).or(checks.first());
    let event = failed.map_or(USUAL, |check| check.event.as_str()).to_owned();
    let changed = before.and_then(|before| {
        let intervals = lwp_report::diff::intervals(before, after, &event);
        let index = before.event(&event)?;
        let view = View { diff: Some(&diff), event: index, intervals, ..View::default() };
        Some(changes(&view, &places))
    });
    Ok(Benchmark {
        name: name.to_owned(),
        command: after.command.clone(),
        changed: changed.unwrap_or_default(),
        rebuilt: diff.rebuilt,
        event,
        checks,
        notes,
        picture: None,
    })
}

/// The checks of everything together.
fn whole(rules: &Rules, compared: &Compared<'_>) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    for (event, limit) in rules.of_benchmark(compared.name) {
        if limit.is_relative() && compared.before.is_none() {
            continue;
        }
        let value = |profile: &Profile| {
            let index = profiles::event(profile, Some(event))?;
            Ok::<u64, Failure>(profile.total().get(index))
        };
        checks.push(Check {
            subject: Subject::Whole,
            event: profiles::event_name(event).to_owned(),
            limit,
            before: compared.before.map(value).transpose()?,
            after: value(compared.after)?,
            // Sums are the kernel's, also of time.
            errors: [0.0; 2],
            place: None,
        });
    }
    Ok(checks)
}

/// A part of a program that has counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: String,
    /// Of a function.
    module: String,
}

impl Key {
    /// As comparisons call it.
    fn key(&self) -> String {
        format!("{} [{}]", self.name, self.module)
    }
}

/// The profiles before and after with the names under which they are compared.
type Sides<'a> = [Option<(&'a Profile, &'a Keys)>; 2];

/// Counts of parts, before and after.
struct Sums(BTreeMap<Key, [Option<Values>; 2]>);

impl Sums {
    fn of(sides: Sides<'_>, key: &dyn Fn(&Profile, &Keys, &Location) -> Key) -> Self {
        let mut sums: BTreeMap<Key, [Option<Values>; 2]> = BTreeMap::new();
        for (side, profile) in sides.into_iter().enumerate() {
            let Some((profile, keys)) = profile else { continue };
            for (location, values) in profile.locations.iter().zip(profile.by_location()) {
                if values.is_zero() {
                    continue;
                }
                let key = key(profile, keys, location);
                let sum = &mut sums.entry(key).or_default()[side];
                sum.get_or_insert_with(|| Values::zero(values.0.len())).add(&values);
            }
        }
        Self(sums)
    }

    fn of_functions(sides: Sides<'_>, inlined: &Inlined) -> Self {
        Self::of(sides, &|profile, keys, location| {
            function_key(profile, keys, inlined.function(profile, keys, location))
        })
    }

    /// Inclusive counts of functions: of the event that contexts are measured in, and of no other.
    fn of_inclusive(sides: Sides<'_>, rules: &Rules) -> Result<Self, Failure> {
        let mut sums: BTreeMap<Key, [Option<Values>; 2]> = BTreeMap::new();
        for (side, profile) in sides.into_iter().enumerate() {
            let Some((profile, keys)) = profile else { continue };
            let event = measured_event(profile, rules, ["baseline", "recording"][side])?;
            // Functions of one name are one.
            let mut names: BTreeMap<Key, usize> = BTreeMap::new();
            let mut group = |index: usize| {
                let next = names.len();
                let id = FunctionId(index as u32);
                *names.entry(function_key(profile, keys, id)).or_insert(next)
            };
            let groups: Vec<usize> = (0..profile.functions.len()).map(&mut group).collect();
            let Some(measured) = Measured::of(profile, event) else { continue };
            let counts = measured.inclusive_by(names.len(), |function| groups[function.index()]);
            for (key, group) in names {
                if counts[group] > 0 {
                    let mut values = Values::zero(profile.events.len());
                    values.0[event] = counts[group];
                    sums.entry(key).or_default()[side] = Some(values);
                }
            }
        }
        Ok(Self(sums))
    }

    fn of_modules(sides: Sides<'_>) -> Self {
        Self::of(sides, &|profile, keys, location| Key {
            name: module_key(profile, keys, location.function()),
            module: String::new(),
        })
    }
}

fn function_key(profile: &Profile, keys: &Keys, id: FunctionId) -> Key {
    let module = module_key(profile, keys, id);
    let key = &keys.functions[id.index()];
    let name = key.strip_suffix(&format!(" [{module}]")).unwrap_or(key);
    Key { name: name.to_owned(), module }
}

/// The event that contexts are measured in. Fails where they were not measured, or another event is
/// limited.
fn measured_event(profile: &Profile, rules: &Rules, which: &str) -> Result<usize, Failure> {
    let measured = (0..profile.events.len()).find(|event| profile.measures(*event));
    let Some(measured) = measured else {
        let cause =
            format!("limits on inclusive counts need measured contexts, and the {which} has none");
        return Err(crate::args::usage_error(cause, "record with --call-graph exact"));
    };
    let limited = rules.inclusive.values().flat_map(|limits| limits.keys());
    for event in limited {
        if profiles::event(profile, Some(event))? != measured {
            let cause =
                format!("inclusive counts of {event} are estimates, which nothing is held to");
            return Err(crate::args::usage_error(cause, "limit those of instructions"));
        }
    }
    Ok(measured)
}

fn module_key(profile: &Profile, keys: &Keys, id: FunctionId) -> String {
    keys.modules[profile.function(id).module.index()].clone()
}

/// Checks every part that fits a pattern.
fn parts(
    patterns: &Patterns,
    sums: &Sums,
    compared: &Compared<'_>,
    (checks, notes): (&mut Vec<Check>, &mut Vec<String>),
    subject: &dyn Fn(&Key) -> (Subject, Option<Place>),
) -> Result<(), Failure> {
    let Compared { before, after, .. } = compared;
    for (pattern, limits) in patterns {
        let pattern_of = WildMatch::new(pattern);
        let fitting: Vec<_> =
            sums.0.iter().filter(|(key, _)| pattern_of.matches(&key.name)).collect();
        if fitting.is_empty() {
            notes.push(format!("nothing that was executed is called '{pattern}'"));
        }
        for (event, limit) in limits {
            if limit.is_relative() && before.is_none() {
                continue;
            }
            let here = profiles::event(after, Some(event))?;
            let there = before.map(|before| profiles::event(before, Some(event))).transpose()?;
            for (key, [old, new]) in &fitting {
                let (subject, place) = subject(key);
                let there_count = there.and_then(|there| Some(old.as_ref()?.get(there)));
                let here_count = new.as_ref().map_or(0, |values| values.get(here));
                let before = before.zip(there).zip(there_count);
                let before = before.map_or(0.0, |((it, index), count)| error(it, index, count));
                checks.push(Check {
                    subject,
                    event: profiles::event_name(event).to_owned(),
                    limit: *limit,
                    before: there_count,
                    after: here_count,
                    errors: [before, error(after, here, here_count)],
                    place,
                });
            }
        }
    }
    Ok(())
}

/// The standard error of a part of a profile that is sampled time; zero of counts.
fn error(profile: &Profile, event: usize, part: u64) -> f64 {
    let interval = profile.events.get(event).filter(|event| event.is_time());
    let interval = interval.and_then(|event| event.interval);
    let whole = || profile.total().get(event);
    interval.map_or(0.0, |interval| standard_error(part, whole(), interval))
}

/// The functions whose counts have changed by more than chance, most first.
fn changes(view: &View<'_>, places: &Places) -> Vec<Change> {
    let (Some(diff), event) = (view.diff, view.event) else { return Vec::new() };
    let count = |side: &Option<Values>| side.as_ref().map(|values| values.get(event));
    let rows = diff.rows.iter().filter(|row| row.delta(event) != 0);
    let rows = rows.filter(|row| view.is_distinguishable(row));
    let mut all: Vec<Change> = rows
        .map(|row| Change {
            function: row.key.clone(),
            before: count(&row.before),
            after: count(&row.after),
            place: places.of_function(&row.key),
        })
        .collect();
    let size = |change: &Change| change.delta().unsigned_abs();
    all.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| a.function.cmp(&b.function)));
    all
}

/// Places of functions in the repository, by their names in comparisons.
struct Places(HashMap<String, Place>);

impl Places {
    /// Functions are where they have grown most, or else where they are declared.
    fn of(sides: Sides<'_>, inlined: &Inlined) -> Self {
        let roots = roots();
        let mut places = HashMap::new();
        for (profile, keys) in sides.into_iter().flatten() {
            for (index, function) in profile.functions.iter().enumerate() {
                let file = below(&function.file, &roots).filter(|_| function.line != 0);
                let Some(file) = file else { continue };
                places.insert(keys.functions[index].clone(), Place { file, line: function.line });
            }
        }
        places.extend(growth(sides, inlined, &roots));
        Self(places)
    }

    fn of_function(&self, key: &str) -> Option<Place> {
        self.0.get(key).cloned()
    }
}

/// The line of each function that has grown most, in files of the repository. A function from
/// elsewhere has grown where the repository's code calls it.
fn growth(sides: Sides<'_>, inlined: &Inlined, roots: &[PathBuf]) -> HashMap<String, Place> {
    let [Some(before), Some(after)] = sides else { return HashMap::new() };
    let mut known: HashMap<Arc<str>, Option<String>> = HashMap::new();
    let mut lines: BTreeMap<(&str, String, u32), i128> = BTreeMap::new();
    for ((profile, keys), sign) in [(before, -1), (after, 1)] {
        let event = profile.event(USUAL).unwrap_or(0);
        for (location, values) in profile.locations.iter().zip(profile.by_location()) {
            let count = values.get(event);
            let frames = location.frames.iter().filter(|frame| frame.line != 0);
            let mut places = frames.filter_map(|frame| {
                let file = known.entry(Arc::clone(&frame.file));
                let file = file.or_insert_with(|| below(&frame.file, roots)).clone()?;
                Some((file, frame.line))
            });
            let Some((file, line)) = places.next().filter(|_| count > 0) else { continue };
            let function = inlined.function(profile, keys, location);
            let key = (keys.functions[function.index()].as_str(), file, line);
            *lines.entry(key).or_default() += sign * i128::from(count);
        }
    }
    let mut most: HashMap<String, (i128, Place)> = HashMap::new();
    for ((function, file, line), more) in lines {
        let place = Place { file, line };
        match most.get_mut(function) {
            Some(known) if known.0 < more => *known = (more, place),
            None if more > 0 => drop(most.insert(function.to_owned(), (more, place))),
            _ => {}
        }
    }
    most.into_iter().map(|(function, (_, place))| (function, place)).collect()
}

/// The directories that a repository can be in: where its workflow says that it is, and here.
fn roots() -> Vec<PathBuf> {
    let workspace = std::env::var_os("GITHUB_WORKSPACE").filter(|path| !path.is_empty());
    let here = std::env::current_dir().ok();
    // A folder of a repository may be here: its root has the names that annotations want.
    let root = here.as_deref().and_then(|here| {
        let mut above = here.ancestors();
        above.find(|dir| dir.join(".git").exists()).map(Path::to_owned)
    });
    workspace.map(PathBuf::from).into_iter().chain(root).chain(here).collect()
}

/// `file` as it is called from the first of `roots` that it is below. A relative name is one of the
/// repository if there is such a file: the debug information of distributions has relative names
/// too.
fn below(file: &str, roots: &[PathBuf]) -> Option<String> {
    let path = Path::new(file);
    let mut whole = Cow::Borrowed(path);
    if path.is_relative() {
        let steps_out = path.components().any(|part| part == std::path::Component::ParentDir);
        let here = roots.iter().map(|root| root.join(path)).find(|path| path.is_file());
        whole = Cow::Owned(here.filter(|_| !steps_out)?);
    }
    let found = roots.iter().find_map(|root| whole.strip_prefix(root).ok())?;
    // Components leave `.` out.
    Some(found.components().collect::<PathBuf>().display().to_string())
}

/// Fails where a limit is relative and there is nothing for it to be relative to.
pub fn needs_baseline(
    relative: Option<(&String, Limit)>,
    has_baseline: bool,
) -> Result<(), Failure> {
    match relative {
        Some((event, limit)) if !has_baseline => Err(crate::args::usage_error(
            format!("the limit {event}={limit} needs a baseline"),
            "name one with --baseline FILE, or in lwp.toml",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_repository() {
        let roots = [PathBuf::from("/checkout/repo"), PathBuf::from("/checkout")];
        assert_eq!(below("/checkout/repo/src/a.rs", &roots), Some("src/a.rs".into()));
        assert_eq!(below("/checkout/b.rs", &roots), Some("b.rs".into()));
        assert_eq!([below("/rustc/x/a.rs", &roots), below("../a.rs", &roots)], [None, None]);
        assert_eq!(below("", &roots), None);
        // This crate is a folder of the repository; malloc.c is of another one.
        let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let roots = [crate_root.join("src"), crate_root.to_path_buf()];
        assert_eq!(below("./gate/judge.rs", &roots), Some("gate/judge.rs".into()));
        assert_eq!(below("src/gate/judge.rs", &roots), Some("gate/judge.rs".into()));
        assert_eq!(below("tests/it/gate.rs", &roots), Some("tests/it/gate.rs".into()));
        assert_eq!(below("./malloc/malloc.c", &roots), None);
    }
}
