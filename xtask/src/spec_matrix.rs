//! `cargo xtask spec-matrix`: every section of the two documents about Lightweight Profiling with
//! its tests, and every choice of `docs/deviations.md` with the tests it names.
//!
//! A test belongs to a section if its name or the `Spec:` line above it says so:
//!
//! ```text
//!   /// Spec: LWP §5.7, §7. DEV-19          #@ spec: LWP §5.7
//!   #[test]                                 (head of a program in tests/asm)
//!   fn lwp_spec_5_7_…
//! ```

mod sections;
mod tests_of;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{links, workspace};
use sections::Section;

/// The content of the matrix.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Name every test, not only how many there are
    #[arg(long)]
    names: bool,
}

/// Document and number of a section: `("LWP", "5.7")`.
pub type Key = (String, String);

/// Prints the matrix. Fails on a section without a test, on a test of a section that does not
/// exist, and on a choice that names a test that does not exist.
pub fn print(options: &Options) -> Result<()> {
    let sections = sections::all(&read("docs/lwp.md")?);
    let tests = tests_of::all()?;
    let mut by_section: BTreeMap<&Key, Vec<&str>> = BTreeMap::new();
    for test in &tests {
        for key in &test.sections {
            by_section.entry(key).or_default().push(&test.name);
        }
    }
    println!("| section | title | tests |\n| --- | --- | --- |");
    for section in &sections {
        let names = by_section.get(&section.key).map_or(&[][..], Vec::as_slice);
        println!("{}", row(section, names, options.names));
    }
    let mut faults = gaps(&sections, &by_section);
    let names: BTreeSet<&str> = tests.iter().map(|test| test.name.as_str()).collect();
    faults.extend(choice_faults(&read("docs/deviations.md")?, &names));
    if !faults.is_empty() {
        bail!("{}", faults.join("\n  "));
    }
    Ok(())
}

/// As [`print()`], for `cargo xtask ci`.
pub fn check() -> Result<()> {
    print(&Options::default())
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(workspace::root().join(file)).with_context(|| format!("cannot read {file}"))
}

fn row(section: &Section, names: &[&str], all: bool) -> String {
    let (document, number) = &section.key;
    let tests = match (section.without_tests, all) {
        (Some(reason), _) if names.is_empty() => format!("none: {reason}"),
        (_, true) => names.join(", "),
        _ => names.len().to_string(),
    };
    format!("| {document} §{number} | {} | {tests} |", section.title)
}

fn gaps(sections: &[Section], by_section: &BTreeMap<&Key, Vec<&str>>) -> Vec<String> {
    let mut faults = Vec::new();
    for section in sections {
        let (document, number) = &section.key;
        if section.without_tests.is_none() && !by_section.contains_key(&section.key) {
            faults.push(format!("{document} §{number} ({}) has no test", section.title));
        }
    }
    for (key, names) in by_section {
        if !sections.iter().any(|section| section.key == **key) {
            let (document, number) = key;
            faults.push(format!(
                "{document} §{number} does not exist; cited by {}",
                names.join(", ")
            ));
        }
    }
    faults
}

/// Choices without tests, and tests that are not there.
fn choice_faults(text: &str, names: &BTreeSet<&str>) -> Vec<String> {
    let rows = |line: &str| -> Option<(String, String)> {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let number = cells.next().filter(|cell| cell.starts_with("DEV-"))?;
        Some((number.to_owned(), cells.collect::<Vec<_>>().join("|")))
    };
    let (choices, tests) = text.split_once("## Tests").unwrap_or((text, ""));
    let tests: BTreeMap<String, String> = tests.lines().filter_map(rows).collect();
    let mut faults = Vec::new();
    for (number, _) in choices.lines().filter_map(rows) {
        let Some(named) = tests.get(&number) else {
            faults.push(format!("{number} names no test"));
            continue;
        };
        let named: Vec<&str> = links::spans(named).collect();
        faults.extend(
            named
                .iter()
                .filter(|name| !names.contains(**name))
                .map(|name| format!("{number} names {name}, which is no test")),
        );
        if named.is_empty() && !tests[&number].contains("pending") {
            faults.push(format!("{number} names no test and does not say pending"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_sections_and_unknown_ones_are_faults() {
        let sections = sections::all("## 1. One\n\n### 1.1 A\n\ntext\n\n### 1.2 B\n");
        let sections: Vec<Section> =
            sections.into_iter().filter(|section| section.key.0 == "LWP").collect();
        let known = ("LWP".to_owned(), "1.1".to_owned());
        let unknown = ("LWP".to_owned(), "7.7".to_owned());
        let by_section = BTreeMap::from([(&known, vec!["a"]), (&unknown, vec!["b"])]);
        let faults = gaps(&sections, &by_section);
        assert_eq!(faults, ["LWP §1.2 (B) has no test", "LWP §7.7 does not exist; cited by b"]);
    }

    #[test]
    fn choices_name_tests_that_exist() {
        let text = "| DEV-1 | a | ours |\n| DEV-2 | b | ours |\n| DEV-3 | c | ours |\n| DEV-4 | d | x |\n\
                    ## Tests\n| DEV-1 | `here` |\n| DEV-2 | `gone` |\n| DEV-3 | pending |\n";
        let faults = choice_faults(text, &BTreeSet::from(["here"]));
        assert_eq!(faults, ["DEV-2 names gone, which is no test", "DEV-4 names no test"]);
    }
}
