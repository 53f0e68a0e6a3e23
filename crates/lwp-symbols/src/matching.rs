//! The modules and functions of two builds that are the same.
//!
//! Promise: R42

mod unnamed;

use std::collections::BTreeMap;

use lwp_profile::diff::{Keys, Matched};
use lwp_profile::{FunctionId, Module, Origin, Profile};

use crate::bodies::Bodies;
use crate::naming::{function_name, stable_function_name, unnamed as unnamed_as};

/// A module from before and the one that it is compared with, each by its path or the end of it.
pub type ModulePair = (String, String);

/// Finds what is the same in two profiles.
///
/// Modules are matched by `pairs` first, then by the name that programs link them by, by their file
/// name without the hash that cargo appends, and last as the only program that is left on either
/// side. Functions are matched by their names without what differs from build to build; without
/// names, by their code and their order in the file. Of those that are left in a module, one whose
/// code is that of another is that one, renamed.
pub fn matched(before: &Profile, after: &Profile, pairs: &[ModulePair]) -> Matched {
    let (old, new) = modules(before, after, pairs);
    let mut matched = Matched {
        before: Keys { functions: functions(before, &old), modules: old },
        after: Keys { functions: functions(after, &new), modules: new },
        renamed: BTreeMap::new(),
    };
    unnamed::pair(before, after, &mut matched);
    rename(before, after, &mut matched);
    matched
}

/// The function of `after` that each function of `before` is compared with.
pub fn counterparts(matched: &Matched) -> Vec<Option<FunctionId>> {
    let mut by_key: BTreeMap<&str, FunctionId> = BTreeMap::new();
    for (index, key) in matched.after.functions.iter().enumerate() {
        by_key.entry(key).or_insert(FunctionId(index as u32));
    }
    let keys = matched.before.functions.iter();
    keys.map(|key| by_key.get(key.as_str()).copied()).collect()
}

/// A function's name in every build; of one without a name, in this build.
fn function_key(profile: &Profile, id: FunctionId, module: &str) -> String {
    let function = profile.function(id);
    match function.origin {
        Origin::Unknown if function.name.is_empty() => function_name(profile, id, true),
        Origin::Unknown => unnamed_as(module, &function.name),
        _ => stable_function_name(profile, id),
    }
}

fn functions(profile: &Profile, modules: &[String]) -> Vec<String> {
    let name = |index: usize| {
        let id = FunctionId(index as u32);
        let module = profile.function(id).module.index();
        let module = modules.get(module).map_or("", String::as_str);
        format!("{} [{module}]", function_key(profile, id, module))
    };
    (0..profile.functions.len()).map(name).collect()
}

/// A file name without the hash that cargo appends.
fn without_hash(name: &str) -> &str {
    let (stem, suffix) = match name.strip_suffix(".so") {
        Some(stem) => (stem, ".so"),
        None => (name, ""),
    };
    match stem.rsplit_once('-') {
        Some((start, hash))
            if (suffix.is_empty() || suffix == ".so")
                && !start.is_empty()
                && hash.len() == 16
                && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) =>
        {
            start
        }
        _ => name,
    }
}

/// Returns whether a profile has a module that `text` is the path of, or the end of it.
pub fn has_module(profile: &Profile, text: &str) -> bool {
    profile.modules.iter().any(|module| is_called(module, text))
}

/// Returns whether `text` is a module's path, or the end of it.
pub fn is_called(module: &Module, text: &str) -> bool {
    let rest = module.path.strip_suffix(text.trim_start_matches("./"));
    !text.is_empty()
        && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/') || text.starts_with('/'))
}

/// Common names of the modules of two profiles.
fn modules(before: &Profile, after: &Profile, pairs: &[ModulePair]) -> (Vec<String>, Vec<String>) {
    let mut old: Vec<Option<String>> = vec![None; before.modules.len()];
    let mut new: Vec<Option<String>> = vec![None; after.modules.len()];
    for (from, to) in pairs {
        let target = after.modules.iter().position(|module| is_called(module, to));
        let Some(target) = target else { continue };
        let name = after.modules[target].name().to_owned();
        for (index, _) in before.modules.iter().enumerate().filter(|(_, it)| is_called(it, from)) {
            old[index] = Some(name.clone());
            new[target] = Some(name.clone());
        }
    }
    type Same = fn(&Module, &Module) -> bool;
    let same: [Same; 3] = [
        |a, b| a.name() == b.name(),
        |a, b| !a.soname.is_empty() && a.soname == b.soname,
        |a, b| without_hash(a.name()) == without_hash(b.name()),
    ];
    for same in same {
        for (index, module) in before.modules.iter().enumerate() {
            let others = after.modules.iter().enumerate();
            for (other, there) in others.filter(|(_, there)| same(module, there)) {
                // Several files of one name are one.
                let name = match (&old[index], &new[other]) {
                    (None, None) => without_hash(there.name()).to_owned(),
                    (Some(name), None) | (None, Some(name)) if module.name() == there.name() => {
                        name.clone()
                    }
                    _ => continue,
                };
                old[index] = Some(name.clone());
                new[other] = Some(name);
            }
        }
    }
    let left = |profile: &Profile, names: &[Option<String>]| {
        let all = profile.modules.iter().zip(names).enumerate();
        let left = all.filter(|(_, (module, name))| module.program && name.is_none());
        left.map(|(index, _)| index).collect::<Vec<usize>>()
    };
    if let ([from], [to]) = (&left(before, &old)[..], &left(after, &new)[..]) {
        let name = without_hash(after.modules[*to].name()).to_owned();
        old[*from] = Some(name.clone());
        new[*to] = Some(name);
    }
    let settled = |profile: &Profile, names: Vec<Option<String>>| {
        let own = profile.modules.iter().map(|module| without_hash(module.name()).to_owned());
        names.into_iter().zip(own).map(|(name, own)| name.unwrap_or(own)).collect()
    };
    (settled(before, old), settled(after, new))
}

/// Gives functions whose code is that of a function from before the same key.
fn rename(before: &Profile, after: &Profile, matched: &mut Matched) {
    let left = |keys: &Keys, others: &Keys| -> Vec<FunctionId> {
        let known: std::collections::BTreeSet<&String> = others.functions.iter().collect();
        let all = keys.functions.iter().enumerate();
        let left = all.filter(|(_, key)| !known.contains(key));
        left.map(|(index, _)| FunctionId(index as u32)).collect()
    };
    let (gone, come) =
        (left(&matched.before, &matched.after), left(&matched.after, &matched.before));
    if gone.is_empty() || come.is_empty() {
        return;
    }
    let module = |profile: &Profile, keys: &Keys, id: FunctionId| {
        keys.modules[profile.function(id).module.index()].clone()
    };
    let old = Bodies::of(before, &gone, |id| module(before, &matched.before, id));
    let new = Bodies::of(after, &come, |id| module(after, &matched.after, id));
    for (from, to) in old.same_as(&new) {
        let key = matched.after.functions[to.index()].clone();
        let name = function_key(before, from, &module(before, &matched.before, from));
        matched.renamed.insert(key.clone(), name);
        matched.before.functions[from.index()] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(paths: &[(&str, &str, bool)]) -> Profile {
        let module = |&(path, soname, program): &(&str, &str, bool)| Module {
            path: path.into(),
            soname: soname.into(),
            program,
            ..Module::default()
        };
        Profile { modules: paths.iter().map(module).collect(), ..Profile::default() }
    }

    #[test]
    fn modules_are_matched_by_their_roles() {
        let before = profile(&[
            ("/a/deps/sums-0123456789abcdef", "", true),
            ("/lib/libc.so.6", "libc.so.6", false),
            ("/lib/libz.so.1.2.11", "libz.so.1", false),
            ("/old/tool", "", true),
            ("/x/one.so", "", false),
        ]);
        let after = profile(&[
            ("/b/deps/sums-fedcba9876543210", "", true),
            ("/lib/libc.so.6", "libc.so.6", false),
            ("/lib/libz.so.1.3", "libz.so.1", false),
            ("/new/tool2", "", true),
            ("/x/two.so", "", false),
        ]);
        let (old, new) = modules(&before, &after, &[]);
        assert_eq!(new, ["sums", "libc.so.6", "libz.so.1.3", "tool2", "two.so"]);
        assert_eq!(old, ["sums", "libc.so.6", "libz.so.1.3", "tool2", "one.so"]);
        let pairs = [("x/one.so".to_owned(), "two.so".to_owned())];
        assert_eq!(modules(&before, &after, &pairs).0[4], "two.so");
    }

    #[test]
    fn only_hashes_of_cargo_are_taken_off() {
        for (name, expected) in [
            ("a-0123456789abcdef", "a"),
            ("liba-0123456789abcdef.so", "liba"),
            ("a-0123456789abcdeg", "a-0123456789abcdeg"),
            ("a-2024", "a-2024"),
            ("-0123456789abcdef", "-0123456789abcdef"),
            ("libc.so.6", "libc.so.6"),
            ("a.sort-0123456789abcdef", "a.sort"),
        ] {
            assert_eq!(without_hash(name), expected);
        }
    }
}
