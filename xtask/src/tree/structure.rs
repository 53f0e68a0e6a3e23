//! The structure of a package: methods away from their types, open fields, and modules that need
//! each other in circles. Sources are as rustfmt leaves them.

use std::collections::{BTreeMap, BTreeSet};

use super::items;

/// A package's sources without their tests: the path below `src`, and the lines.
pub type Sources = BTreeMap<String, Vec<String>>;

/// What is measured of a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Structure {
    /// Blocks of methods of a type's own that are in another file than the type.
    pub away: usize,
    /// Blocks of methods of a type's own.
    pub blocks: usize,
    /// Fields that other modules can change: `pub`, `pub(crate)`, `pub(super)`.
    pub open: usize,
    /// Top-level modules in the largest circle of references.
    pub circle: usize,
    /// Top-level modules.
    pub modules: usize,
}

impl Structure {
    /// The numbers that only go down: blocks of methods away from their type, open fields, modules
    /// in a circle.
    pub fn kept_down(&self) -> [usize; 3] {
        [self.away, self.open, self.circle]
    }
}

/// Measures a package.
pub fn measure(sources: &Sources) -> Structure {
    let mut homes = BTreeMap::<String, BTreeSet<&str>>::new();
    let mut blocks = Vec::new();
    let mut open = 0;
    for (file, lines) in sources {
        let mut in_struct = false;
        for line in lines {
            if let Some(name) = defined(line) {
                homes.entry(name).or_default().insert(file);
            }
            match items::opened(line) {
                Some((name, false)) => blocks.push((name, file.as_str())),
                Some((_, true)) => in_struct = true,
                None if line == "}" => in_struct = false,
                None => (),
            }
            open += usize::from(in_struct && is_open(line));
        }
    }
    // Methods of types of other packages are no inherent ones.
    blocks.retain(|(name, _)| homes.contains_key(name));
    let away = blocks.iter().filter(|(name, file)| !homes[name].contains(file)).count();
    let arrows = arrows(sources);
    let circle = circles(&arrows).into_iter().max().unwrap_or(0);
    Structure { away, blocks: blocks.len(), open, circle, modules: arrows.len() }
}

/// The type that a line defines.
fn defined(line: &str) -> Option<String> {
    let bare = items::without_visibility(line);
    let rest = ["struct ", "enum ", "union "].iter().find_map(|word| bare.strip_prefix(word))?;
    Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

fn is_open(line: &str) -> bool {
    let field = line.strip_prefix("    ").filter(|it| !it.starts_with(' '));
    field.is_some_and(|it| items::without_visibility(it).len() < it.len() && it.contains(':'))
}

/// The top-level module of a file.
fn module(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The top-level modules that each one names by `crate::`, itself left out. The root is none.
fn arrows(sources: &Sources) -> BTreeMap<&str, BTreeSet<&str>> {
    let is_root = |name: &&str| !["lib", "main", "bin"].contains(name);
    let names: BTreeSet<&str> = sources.keys().map(|it| module(it)).filter(is_root).collect();
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> =
        names.iter().map(|name| (*name, BTreeSet::new())).collect();
    for (file, lines) in sources {
        let Some(from) = arrows.get_mut(module(file)) else { continue };
        let text = lines.concat();
        let named = text.split("crate::").skip(1).flat_map(first_words);
        from.extend(named.filter_map(|word| names.get(word).copied()));
        from.remove(module(file));
    }
    arrows
}

/// The first word of a path, or those of the paths in braces.
fn first_words(path: &str) -> Vec<&str> {
    let word =
        |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let Some(group) = path.strip_prefix('{') else { return vec![&path[..word(path)]] };
    let (mut depth, mut begins, mut words) = (0, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && c.is_alphabetic() => {
                words.push(&group[at..at + word(&group[at..])]);
                begins = false;
            }
            _ => (),
        }
    }
    words
}

/// The modules to which one leads, at whatever distance.
fn reached<'a>(from: &'a str, arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        next.extend(arrows[module].iter().filter(|to| seen.insert(**to)));
    }
    seen
}

/// The sizes of the sets of modules that lead to each other.
fn circles(arrows: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<usize> {
    let all: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|module| (*module, reached(module, arrows))).collect();
    let size = |(module, reached): (&&str, &BTreeSet<&str>)| {
        reached.iter().filter(|other| all[**other].contains(*module)).count()
    };
    all.iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        files.iter().map(|(file, text)| ((*file).to_owned(), lines(text))).collect()
    }

    #[test]
    fn methods_are_beside_their_type_or_away() {
        let sources = sources(&[
            (
                "a.rs",
                "pub struct A {\n    pub b: u8,\n    pub(crate) c: u8,\n    d: u8,\n}\nimpl A {\n}\n",
            ),
            ("b/c.rs", "impl A {\n}\nimpl Drop for A {\n}\nimpl Foreign {\n}\n"),
        ]);
        let found = measure(&sources);
        assert_eq!((found.away, found.blocks, found.open), (1, 2, 2));
    }

    #[test]
    fn circles_are_of_modules_that_lead_to_each_other() {
        let sources = sources(&[
            ("lib.rs", "mod a;\n"),
            ("a.rs", "use crate::{b::B, c};\n"),
            ("b.rs", "fn f() { crate::c::f(); }\n"),
            ("c/d.rs", "use crate::a;\n"),
            ("e.rs", "use crate::a;\n"),
        ]);
        let found = measure(&sources);
        assert_eq!((found.circle, found.modules), (3, 4));
    }
}
