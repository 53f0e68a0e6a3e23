//! Functions without names in two builds: their addresses say nothing, their code and order do.

use std::collections::{BTreeMap, BTreeSet};

use lwp_profile::diff::Matched;
use lwp_profile::{FunctionId, Origin, Profile};

use crate::bodies::Bodies;

/// Functions by the common name of their module, in order of their addresses.
type ByModule<'a> = BTreeMap<&'a str, Vec<FunctionId>>;

/// Two functions that are the same.
type Pair = (FunctionId, FunctionId);

/// Gives the unnamed functions of builds that differ the keys of their counterparts, and one of
/// their own to those that have none. Their keys are by address so far.
pub(super) fn pair(before: &Profile, after: &Profile, matched: &mut Matched) {
    let pairs = pairs(before, after, matched);
    let taken: BTreeSet<String> = matched.after.functions.iter().cloned().collect();
    for (old, new) in pairs {
        let key = new.map(|new| matched.after.functions[new.index()].clone());
        let own = &mut matched.before.functions[old.index()];
        match key {
            Some(key) => *own = key,
            None if taken.contains(own) => {
                let (name, module) = own.rsplit_once(" [").unwrap_or((own, ""));
                *own = format!("{name} (old build) [{module}");
            }
            None => {}
        }
    }
}

/// Every unnamed function of a build from before that is another one now, and its counterpart.
fn pairs(
    before: &Profile,
    after: &Profile,
    matched: &Matched,
) -> Vec<(FunctionId, Option<FunctionId>)> {
    let (old, new) = (unnamed(before, matched, true), unnamed(after, matched, false));
    let rebuilt = |module: &&str| !is_same_build(before, after, matched, module);
    let modules: Vec<&str> = old.keys().copied().filter(rebuilt).collect();
    let all = |by: &ByModule<'_>| -> Vec<FunctionId> {
        modules.iter().filter_map(|module| by.get(module)).flatten().copied().collect()
    };
    let (gone, come) = (all(&old), all(&new));
    let name = |profile: &Profile, names: &[String], id| names[module_of(profile, id)].clone();
    let old_bodies = Bodies::of(before, &gone, |id| name(before, &matched.before.modules, id));
    let new_bodies = Bodies::of(after, &come, |id| name(after, &matched.after.modules, id));
    let mut found: BTreeMap<FunctionId, FunctionId> = BTreeMap::new();
    let mut taken: BTreeSet<FunctionId> = BTreeSet::new();
    let in_place = in_place(before, after, (&gone, &old_bodies), (&come, &new_bodies), matched);
    for (from, to) in in_place.into_iter().chain(old_bodies.same_as(&new_bodies)) {
        if !found.contains_key(&from) && taken.insert(to) {
            found.insert(from, to);
        }
    }
    for module in &modules {
        let Some(new) = new.get(module) else { continue };
        for (from, to) in in_order(before, after, matched, (&old[module], new), &found) {
            if !found.contains_key(&from) && taken.insert(to) {
                found.insert(from, to);
            }
        }
    }
    gone.into_iter().map(|old| (old, found.get(&old).copied())).collect()
}

fn module_of(profile: &Profile, id: FunctionId) -> usize {
    profile.function(id).module.index()
}

/// The unnamed functions of files.
fn unnamed<'a>(profile: &Profile, matched: &'a Matched, before: bool) -> ByModule<'a> {
    let keys = if before { &matched.before } else { &matched.after };
    let mut found = ByModule::new();
    for id in (0..profile.functions.len() as u32).map(FunctionId) {
        let is_file = !profile.module_of(id).path.starts_with('[');
        if profile.function(id).origin == Origin::Unknown && is_file {
            found.entry(&keys.modules[module_of(profile, id)]).or_default().push(id);
        }
    }
    for functions in found.values_mut() {
        functions.sort_unstable_by_key(|id| profile.function(*id).address);
    }
    found
}

/// Returns whether a module is the same build in both, as far as build ids tell.
fn is_same_build(before: &Profile, after: &Profile, matched: &Matched, module: &str) -> bool {
    let builds = |profile: &Profile, names: &[String]| -> BTreeSet<Vec<u8>> {
        let of_it = names.iter().zip(&profile.modules).filter(|(name, _)| *name == module);
        of_it.map(|(_, module)| module.build_id.clone()).collect()
    };
    let old = builds(before, &matched.before.modules);
    old == builds(after, &matched.after.modules) && !old.contains(&[][..])
}

/// Functions of equal size at one address, with no instruction that differs.
fn in_place(
    before: &Profile,
    after: &Profile,
    (gone, old): (&[FunctionId], &Bodies),
    (come, new): (&[FunctionId], &Bodies),
    matched: &Matched,
) -> Vec<Pair> {
    let place = |profile: &Profile, names: &[String], id: FunctionId| {
        let function = profile.function(id);
        (names[module_of(profile, id)].clone(), function.address, function.size)
    };
    let come = come.iter().map(|id| (place(after, &matched.after.modules, *id), *id));
    let come: BTreeMap<(String, u64, u64), FunctionId> = come.collect();
    let pairs = gone.iter().filter_map(|from| {
        let to = *come.get(&place(before, &matched.before.modules, *from))?;
        old.fits(*from, new, to).then_some((*from, to))
    });
    pairs.collect()
}

/// Functions between the same neighbours, where there are as many of them before and after. The
/// order of functions in a file stays, mostly.
fn in_order(
    before: &Profile,
    after: &Profile,
    matched: &Matched,
    (old, new): (&[FunctionId], &[FunctionId]),
    found: &BTreeMap<FunctionId, FunctionId>,
) -> Vec<Pair> {
    let (Some(one), Some(other)) = (old.first(), new.first()) else { return Vec::new() };
    let named = |profile: &Profile, of: FunctionId, names: &[String]| -> BTreeMap<String, u64> {
        let all = profile.functions.iter().zip(names);
        let of_it = all.filter(|(function, _)| {
            function.module == profile.function(of).module
                && matches!(function.origin, Origin::Symbol | Origin::Stub)
        });
        of_it.map(|(function, key)| (key.clone(), function.address)).collect()
    };
    let here = named(before, *one, &matched.before.functions);
    let there = named(after, *other, &matched.after.functions);
    let named = here.iter().filter_map(|(key, old)| Some((*old, *there.get(key)?)));
    let address = |profile: &Profile, id: FunctionId| profile.function(id).address;
    let known = found.iter().filter(|(from, _)| old.contains(from));
    let known = known.map(|(from, to)| (address(before, *from), address(after, *to)));
    let mut anchors = increasing(named.chain(known).collect());
    anchors.push((u64::MAX, u64::MAX));
    let taken: BTreeSet<FunctionId> = found.values().copied().collect();
    let (mut pairs, mut last) = (Vec::new(), (0, 0));
    for anchor in anchors {
        let between = |profile: &Profile, all: &[FunctionId], from: u64, to: u64| {
            let ids = all.iter().copied();
            let ids = ids.filter(|id| (from..to).contains(&address(profile, *id)));
            ids.collect::<Vec<FunctionId>>()
        };
        let mut from = between(before, old, last.0, anchor.0);
        let mut to = between(after, new, last.1, anchor.1);
        from.retain(|id| !found.contains_key(id));
        to.retain(|id| !taken.contains(id));
        if from.len() == to.len() {
            pairs.extend(from.into_iter().zip(to));
        }
        last = anchor;
    }
    pairs
}

/// The longest selection of pairs that increases on both sides.
fn increasing(mut pairs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    pairs.sort_unstable();
    // The index of the pair that ends the best selection of each length, and the one before each.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; pairs.len()];
    for (index, pair) in pairs.iter().enumerate() {
        let at = ends.partition_point(|end| pairs[*end].1 < pair.1);
        before[index] = at.checked_sub(1).map(|at| ends[at]);
        match ends.get_mut(at) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let last = ends.last().copied();
    let mut found: Vec<(u64, u64)> =
        std::iter::successors(last, |at| before[*at]).map(|at| pairs[at]).collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_increase_on_both_sides() {
        let pairs = vec![(1, 10), (2, 50), (3, 20), (4, 30), (5, 5)];
        assert_eq!(increasing(pairs), [(1, 10), (3, 20), (4, 30)]);
        assert_eq!(increasing(Vec::new()), []);
    }
}
