//! Comparing profiles: what moved, by how much, and whether the same code was compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::measured::Measured;
use crate::moved_lines::MovedLines;
use crate::profile::{Frame, FunctionId, Location, Profile, Values};

/// Something with counts before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The name of the function or line that is compared.
    pub key: String,
    /// Counts before; `None` where it did not occur.
    pub before: Option<Values>,
    /// Counts after; `None` where it did not occur.
    pub after: Option<Values>,
    /// The name that a function had before, or the line's file and number, where that was another.
    pub renamed_from: Option<String>,
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
    /// The compared rows, by key.
    pub rows: Vec<Row>,
    /// Sum of the one.
    pub before: Values,
    /// Sum of the other.
    pub after: Values,
    /// Names of modules whose build ids differ.
    pub rebuilt: Vec<String>,
    /// Programs of different names that are compared with each other.
    pub paired: Vec<Paired>,
    /// The key of rows.
    pub by: By,
}

/// Two programs of different names, compared as builds of one. They may be two programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paired {
    /// The file name of the one from before.
    pub before: String,
    /// The file name of the other.
    pub after: String,
    /// Number of functions that were executed in both.
    pub common: usize,
    /// Number of functions that were executed in one or both.
    pub all: usize,
}

impl fmt::Display for Paired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after, common, all } = self;
        write!(
            f,
            "{after} is compared with {before}: {common} of {all} executed functions are in both"
        )
    }
}

/// The key of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum By {
    /// Functions, inlined ones on their own where that is known of both.
    #[default]
    Function,
    /// Source lines.
    Line,
    /// Modules.
    Module,
    /// Functions with all that they call, where contexts were measured: the event that they were
    /// measured in, and no other.
    Inclusive,
}

/// The names of a profile's modules and functions in a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// By module.
    pub modules: Vec<String>,
    /// By function.
    pub functions: Vec<String>,
}

/// Two profiles' modules and functions under common names: what has the same name is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Those of the one from before.
    pub before: Keys,
    /// Those of the other.
    pub after: Keys,
    /// The former names of functions with another name now, by their common name.
    pub renamed: BTreeMap<String, String>,
}

impl Matched {
    /// Everything under its own name: modules by their files, functions as `name` has them.
    pub fn by_name(
        before: &Profile,
        after: &Profile,
        name: &dyn Fn(&Profile, FunctionId) -> String,
    ) -> Self {
        let keys = |profile: &Profile| Keys {
            modules: profile.modules.iter().map(|module| module.name().to_owned()).collect(),
            functions: (0..profile.functions.len())
                .map(|index| {
                    let id = FunctionId(index as u32);
                    format!("{} [{}]", name(profile, id), profile.module_of(id).name())
                })
                .collect(),
        };
        Self { before: keys(before), after: keys(after), renamed: BTreeMap::new() }
    }
}

/// Modules of which it is known in all compared profiles what was inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inlined(BTreeSet<String>);

impl Inlined {
    /// The modules for which every one of `sides` that has them has debug information.
    pub fn of(sides: &[(&Profile, &Keys)]) -> Self {
        let mut known: BTreeMap<&str, bool> = BTreeMap::new();
        for (profile, keys) in sides {
            let mut has: BTreeMap<&str, bool> = BTreeMap::new();
            for location in &profile.locations {
                let lines = location.frames.iter().any(|frame| frame.line != 0);
                *has.entry(&keys.modules[location.module.index()]).or_default() |= lines;
            }
            for (module, has) in has {
                *known.entry(module).or_insert(true) &= has;
            }
        }
        let known = known.into_iter().filter(|(_, known)| *known);
        Self(known.map(|(module, _)| module.to_owned()).collect())
    }

    /// The function that an instruction is counted for: the innermost one that has a name, also if
    /// it was inlined, or else the one that was not.
    pub fn function(&self, profile: &Profile, keys: &Keys, location: &Location) -> FunctionId {
        if !self.0.contains(&keys.modules[location.module.index()]) {
            return location.function();
        }
        let named = |frame: &&Frame| !profile.function(frame.function).name.is_empty();
        location.frames.iter().find(named).map_or(location.function(), |frame| frame.function)
    }
}

/// Compares `after` with `before`.
pub fn compare(before: &Profile, after: &Profile, by: By, matched: &Matched) -> Diff {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let moved = moved_files(before, after);
    let sides = [(before, &matched.before), (after, &matched.after)];
    let inlined = Inlined::of(&sides);
    let file = |file| moved.get(file).copied().unwrap_or(file);
    let moved_lines = match by {
        By::Line => MovedLines::of(sides[0], sides[1], file),
        _ => MovedLines::default(),
    };
    let then =
        keyed(sides[0], by, &inlined, |name, line| match moved_lines.now(file(name), line) {
            Some(now) => LineKey { key: format!("{}:{now}", file(name)), renamed: now != line },
            // Another line may have this number now.
            None => LineKey { key: format!("{}:{line} (before)", file(name)), renamed: false },
        });
    for (key, (values, renamed_from)) in then {
        let row = rows.entry(key).or_default();
        (row.before, row.renamed_from) = (Some(values), renamed_from);
    }
    // The same event may have another index in the other profile.
    let places: Vec<Option<usize>> =
        before.events.iter().map(|event| after.event(&event.name)).collect();
    let aligned = |values: &Values| {
        Values(places.iter().map(|at| at.map_or(0, |at| values.get(at))).collect())
    };
    let now = keyed(sides[1], by, &inlined, |name, line| LineKey {
        key: format!("{name}:{line}"),
        renamed: false,
    });
    for (key, (values, _)) in now {
        rows.entry(key).or_default().after = Some(aligned(&values));
    }
    let named = |(key, row): (String, Row)| {
        let renamed = matched.renamed.get(&key).cloned();
        let renamed_from = match by {
            By::Function | By::Inclusive => renamed,
            By::Line | By::Module => row.renamed_from.clone(),
        };
        Row { key, renamed_from, ..row }
    };
    let paired = paired((before, &matched.before), (after, &matched.after));
    let mut rebuilt = rebuilt((before, &matched.before), (after, &matched.after));
    rebuilt.retain(|name| !paired.iter().any(|pair| pair.after == *name));
    Diff {
        rows: rows.into_iter().map(named).collect(),
        before: before.total(),
        after: aligned(&after.total()),
        rebuilt,
        paired,
        by,
    }
}

/// The key of a source line.
struct LineKey {
    key: String,
    /// It had another number.
    renamed: bool,
}

/// Sums by key, and what lines were before.
fn keyed<'a>(
    (profile, keys): (&'a Profile, &Keys),
    by: By,
    inlined: &Inlined,
    line_key: impl Fn(&'a str, u32) -> LineKey,
) -> BTreeMap<String, (Values, Option<String>)> {
    if by == By::Inclusive {
        return inclusive(profile, keys).into_iter().map(|(key, it)| (key, (it, None))).collect();
    }
    let mut sums: BTreeMap<String, (Values, Option<String>)> = BTreeMap::new();
    for (index, values) in profile.by_location().into_iter().enumerate() {
        if values.is_zero() {
            continue;
        }
        let location = &profile.locations[index];
        let mut renamed_from = None;
        let line = location.frames.first().filter(|frame| frame.line != 0);
        let key = match (by, line) {
            (By::Module, _) => keys.modules[location.module.index()].clone(),
            (By::Line, Some(Frame { file, line, .. })) => {
                let LineKey { key, renamed } = line_key(file, *line);
                renamed_from = renamed.then(|| format!("{file}:{line}"));
                key
            }
            _ => keys.functions[inlined.function(profile, keys, location).index()].clone(),
        };
        let zero = || (Values::zero(values.0.len()), renamed_from);
        sums.entry(key).or_insert_with(zero).0.add(&values);
    }
    sums
}

/// Inclusive counts of functions, those of one key being one.
fn inclusive(profile: &Profile, keys: &Keys) -> BTreeMap<String, Values> {
    let measured = (0..profile.events.len()).find(|event| profile.measures(*event));
    let Some((event, measured)) =
        measured.and_then(|event| Some((event, Measured::of(profile, event)?)))
    else {
        return BTreeMap::new();
    };
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups = Vec::with_capacity(keys.functions.len());
    for key in &keys.functions {
        let next = numbers.len();
        groups.push(*numbers.entry(key).or_insert(next));
    }
    let counts = measured.inclusive_by(numbers.len(), |function| groups[function.index()]);
    let counted = numbers.into_iter().filter(|(_, group)| counts[*group] > 0);
    let row = |(key, group): (&str, usize)| {
        let mut values = Values::zero(profile.events.len());
        values.0[event] = counts[group];
        (key.to_owned(), values)
    };
    counted.map(row).collect()
}

/// Source files that lie elsewhere now: those whose name only one of the missing and one of the new
/// ones has.
fn moved_files<'a>(before: &'a Profile, after: &'a Profile) -> BTreeMap<&'a str, &'a str> {
    let files = |profile: &'a Profile| -> BTreeSet<&'a str> {
        let frames = profile.locations.iter().flat_map(|location| location.frames.iter());
        frames.map(|frame| &*frame.file).filter(|file| !file.is_empty()).collect()
    };
    let (old, new) = (files(before), files(after));
    let last = |file: &'a str| file.rsplit('/').next().unwrap_or(file);
    let by_name = |here: &BTreeSet<&'a str>, there: &BTreeSet<&'a str>| {
        let mut names: BTreeMap<&'a str, Vec<&'a str>> = BTreeMap::new();
        for file in here.difference(there) {
            names.entry(last(file)).or_default().push(file);
        }
        names
    };
    let (gone, come) = (by_name(&old, &new), by_name(&new, &old));
    let pairs =
        gone.iter().filter_map(|(name, from)| match (from.as_slice(), &**come.get(name)?) {
            ([from], [to]) => Some((*from, *to)),
            _ => None,
        });
    pairs.collect()
}

/// Programs that have a common name in the comparison, but not by their files.
fn paired(before: (&Profile, &Keys), after: (&Profile, &Keys)) -> Vec<Paired> {
    let programs = |(profile, keys): (&Profile, &Keys)| -> BTreeMap<String, String> {
        let all = profile.modules.iter().zip(&keys.modules).filter(|(it, _)| it.program);
        all.map(|(module, key)| (key.clone(), module.name().to_owned())).collect()
    };
    let executed = |(profile, keys): (&Profile, &Keys), module: &str| -> BTreeSet<String> {
        let counts = profile.by_function().into_iter().enumerate();
        let here = |index: usize| keys.modules[profile.functions[index].module.index()] == module;
        let all = counts.filter(|(index, values)| !values.is_zero() && here(*index));
        all.map(|(index, _)| keys.functions[index].clone()).collect()
    };
    let (old, new) = (programs(before), programs(after));
    let pairs = new.into_iter().filter_map(|(key, now)| Some((old.get(&key)?.clone(), now, key)));
    // cargo appends a hash to a name.
    let other = |name: &str, key: &str| name != key && !name.starts_with(&format!("{key}-"));
    let pairs = pairs.filter(|(was, now, key)| was != now && other(was, key));
    pairs
        .map(|(was, now, key)| {
            let (one, two) = (executed(before, &key), executed(after, &key));
            let (common, all) = (one.intersection(&two).count(), one.union(&two).count());
            Paired { before: was, after: now, common, all }
        })
        .collect()
}

/// Modules of the same name with different build ids.
fn rebuilt(before: (&Profile, &Keys), after: (&Profile, &Keys)) -> Vec<String> {
    let named = |(profile, keys): (&Profile, &Keys)| -> Vec<(String, Vec<u8>)> {
        let names = keys.modules.iter().cloned();
        names.zip(profile.modules.iter().map(|module| module.build_id.clone())).collect()
    };
    let (before, after) = (named(before), named(after));
    let mut names = Vec::new();
    for (name, build) in after {
        let mut old = before.iter().filter(|(old, _)| *old == name).peekable();
        if old.peek().is_some() && old.all(|(_, old)| *old != build) {
            names.push(name);
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Event, Function, Mode, Module, Thread};

    /// A profile of one function with a line in each of `files`.
    fn of_files(files: &[&str]) -> Profile {
        let mut builder = Builder::new("", Mode::Exact, vec![Event::default()]);
        let module = builder.module(Module::default());
        let function = builder.function(Function::default());
        let thread = builder.thread(Thread::default());
        for (address, file) in (0..).zip(files) {
            let frames = [Frame { function, file: (*file).into(), line: 7 }].into();
            let location = Location { module, address, frames, ..Location::default() };
            let location = builder.location(location);
            let stack = builder.stack(vec![location]);
            builder.sample(thread, stack, &Values(vec![1]));
        }
        builder.finish()
    }

    /// A profile in which `inner` is inlined into `outer`, with lines or without.
    fn with_inlined(count: u64, lines: bool) -> Profile {
        let mut builder = Builder::new("", Mode::Exact, vec![Event::default()]);
        let module = builder.module(Module::default());
        let name = |name: &str| Function { name: name.into(), ..Function::default() };
        let [inner, outer] = ["inner", "outer"].map(|it| builder.function(name(it)));
        let thread = builder.thread(Thread::default());
        let frame = |function, line| Frame { function, file: "a.rs".into(), line };
        let frames = match lines {
            true => [frame(inner, 7), frame(outer, 3)].into(),
            false => [frame(outer, 0)].into(),
        };
        let location = builder.location(Location { module, frames, ..Location::default() });
        let stack = builder.stack(vec![location]);
        builder.sample(thread, stack, &Values(vec![count]));
        builder.finish()
    }

    /// A profile of a program that executes `functions`.
    fn of_program(path: &str, functions: &[&str]) -> Profile {
        let mut builder = Builder::new("", Mode::Exact, vec![Event::default()]);
        let build_id = path.as_bytes().to_vec();
        let module = builder.module(Module {
            path: path.into(),
            build_id,
            program: true,
            ..Module::default()
        });
        let thread = builder.thread(Thread::default());
        for (address, name) in (0..).zip(functions) {
            let function =
                builder.function(Function { name: (*name).into(), module, ..Function::default() });
            let frames = [Frame { function, ..Frame::default() }].into();
            let location =
                builder.location(Location { module, address, frames, ..Location::default() });
            let stack = builder.stack(vec![location]);
            builder.sample(thread, stack, &Values(vec![1]));
        }
        builder.finish()
    }

    /// Promise: R122
    #[test]
    fn inlined_functions_are_compared_where_both_sides_know_them() {
        let name = |profile: &Profile, id: FunctionId| profile.function(id).name.clone();
        let keys = |before: &Profile, after: &Profile| -> Vec<(String, i128)> {
            let matched = Matched::by_name(before, after, &name);
            let rows = compare(before, after, By::Function, &matched).rows;
            rows.into_iter().map(|row| (row.key.clone(), row.delta(0))).collect()
        };
        let row = |name: &str, delta| vec![(format!("{name} []"), delta)];
        assert_eq!(keys(&with_inlined(5, true), &with_inlined(7, true)), row("inner", 2));
        assert_eq!(keys(&with_inlined(5, false), &with_inlined(7, true)), row("outer", 2));
        assert_eq!(keys(&with_inlined(5, true), &with_inlined(7, false)), row("outer", 2));
    }

    /// Promise: R43
    #[test]
    fn two_programs_are_not_two_builds_of_one() {
        let (before, after) =
            (of_program("/bin/ls", &["main", "list"]), of_program("/bin/cat", &["main", "copy"]));
        let name = |profile: &Profile, id: FunctionId| profile.function(id).name.clone();
        let mut matched = Matched::by_name(&before, &after, &name);
        assert!(compare(&before, &after, By::Function, &matched).paired.is_empty());
        matched.before.modules = vec!["cat".into()];
        matched.before.functions = vec!["main [cat]".into(), "list [cat]".into()];
        let diff = compare(&before, &after, By::Function, &matched);
        assert_eq!(diff.rebuilt, [""; 0]);
        let words: Vec<String> = diff.paired.iter().map(Paired::to_string).collect();
        assert_eq!(words, ["cat is compared with ls: 1 of 3 executed functions are in both"]);
        let hashed = of_program("/deps/cat-0123456789abcdef", &["main", "copy"]);
        matched.before.functions = matched.after.functions.clone();
        let diff = compare(&hashed, &after, By::Function, &matched);
        assert_eq!((diff.paired, diff.rebuilt), (vec![], vec!["cat".to_owned()]));
    }

    #[test]
    fn lines_of_files_that_moved_are_compared() {
        let before = of_files(&["/a/x.c", "/a/y.c", "/a/m/z.c", "/a/n/z.c"]);
        let after = of_files(&["/b/x.c", "/a/y.c", "/b/m/z.c"]);
        let matched = Matched::by_name(&before, &after, &|_, _| String::new());
        let rows = compare(&before, &after, By::Line, &matched).rows;
        let keys: Vec<(&str, bool, bool)> = rows
            .iter()
            .map(|row| (row.key.as_str(), row.before.is_some(), row.after.is_some()))
            .collect();
        let expected = [
            ("/a/m/z.c:7", true, false),
            ("/a/n/z.c:7", true, false),
            ("/a/y.c:7", true, true),
            ("/b/m/z.c:7", false, true),
            ("/b/x.c:7", true, true),
        ];
        assert_eq!(keys, expected);
    }
}
