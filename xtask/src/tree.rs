//! Rules for every file: sizes, line widths, structure, and no place on one machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use crate::workspace;

mod budget;
mod items;
mod measure;
mod structure;

use budget::{BUDGET, STRUCTURE};
use measure::Kind;
pub use measure::before_tests;

/// The output that is wanted besides the verdict.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Print the table of exceptions as it would be now
    #[arg(long)]
    budget: bool,
    /// Print each exception with its place
    #[arg(long)]
    places: bool,
    /// Print the structure of each package: methods away from their types, open fields, circles
    #[arg(long)]
    structure: bool,
}

/// Most places that are listed with a fault.
const FEW: usize = 12;

/// Faults of one package, by kind.
type Counts = BTreeMap<String, [usize; Kind::ALL.len()]>;

/// Folders of users, which exist on one machine only. Split here, or this file would fail.
const HOMES: &[&str] = &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Use", "rs/")];

/// What is kept down of each package's structure.
type Structures = BTreeMap<String, [usize; 3]>;

/// Fails on absolute paths into somebody's home, and where a package has more exceptions than its
/// budget, or less structure.
pub fn check(options: &Options) -> Result<()> {
    let mut faults = Vec::new();
    let mut counts = Counts::new();
    let mut places = Vec::new();
    let mut sources = BTreeMap::<String, structure::Sources>::new();
    for file in workspace::files()? {
        // Files that are not text have neither lines nor words.
        let Ok(text) = fs::read_to_string(workspace::root().join(&file)) else {
            continue;
        };
        if is_implementation(&file) {
            let package = package(&file);
            if let Some((_, inner)) = file.to_string_lossy().split_once("/src/") {
                let lines = text.lines().take(measure::before_tests(&text)).map(str::to_owned);
                let package = sources.entry(package.clone()).or_default();
                package.insert(inner.to_owned(), lines.collect());
            }
            let row = counts.entry(package.clone()).or_default();
            for (kind, line) in measure::faults(&text) {
                row[kind as usize] += 1;
                places.push((package.clone(), kind, format!("{}:{line}", file.display())));
            }
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(home) = names_a_home(line) {
                faults.push(format!("{}:{}: names {home}…", file.display(), number + 1));
            }
        }
    }
    if options.places {
        for (_, kind, place) in &places {
            println!("{place}: {}", kind.rule());
        }
    }
    if options.structure {
        print_structure(&sources);
    }
    if options.budget {
        print!("{}", table(&counts));
    }
    let structures: Structures = sources
        .iter()
        .map(|(name, it)| (name.clone(), structure::measure(it).kept_down()))
        .collect();
    if std::env::var_os("LWP_BLESS").is_some() {
        bless(0, &table(&counts))?;
        bless(1, &structure_table(&structures))?;
    } else {
        faults.extend(beyond_budget(&counts, &places));
        faults.extend(beyond_structure(&structures));
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n  "));
    }
    Ok(())
}

/// Prints a row for each package.
fn print_structure(sources: &BTreeMap<String, structure::Sources>) {
    println!("methods away from their type, fields open to other modules, modules in a circle");
    for (package, sources) in sources {
        let found = structure::measure(sources);
        let (away, open) = (format!("{} of {}", found.away, found.blocks), found.open);
        let circle = format!("{} of {}", found.circle, found.modules);
        println!("{package:<18} {away:>12} {open:>6} {circle:>10}");
    }
}

/// Writes a table of the budgets anew, as after a merge of branches that have exceptions each.
fn bless(number: usize, table: &str) -> Result<()> {
    const HEAD: &str = "= &[\n";
    let place = workspace::root().join("xtask/src/tree/budget.rs");
    let text = fs::read_to_string(&place)?;
    let start = text.match_indices(HEAD).nth(number).map(|(at, _)| at + HEAD.len());
    let found = start.and_then(|start| Some((start, start + text[start..].find("];\n")?)));
    let Some((start, end)) = found else { bail!("{} has no table", place.display()) };
    Ok(fs::write(&place, format!("{}{table}{}", &text[..start], &text[end..]))?)
}

/// A line for each package that has become less of a structure.
fn beyond_structure(structures: &Structures) -> Vec<String> {
    const KINDS: [&str; 3] = [
        "blocks of methods away from their type",
        "fields that other modules can change",
        "modules in a circle of references",
    ];
    let mut faults = Vec::new();
    for (package, found) in structures {
        let allowed = STRUCTURE.iter().find(|(name, _)| *name == package);
        let allowed = allowed.map_or_else(Default::default, |it| it.1);
        for ((kind, found), most) in KINDS.into_iter().zip(found).zip(allowed) {
            if *found > most {
                let help = "cargo xtask tree --structure";
                faults.push(format!("{package}: {found} {kind}, and may have {most} ({help})"));
            }
        }
    }
    faults
}

/// The table of structures, as Rust.
fn structure_table(structures: &Structures) -> String {
    let rows = structures.iter().filter(|(_, row)| row.iter().any(|count| *count > 0));
    rows.map(|(package, [away, open, circle])| {
        let name = format!("(\"{package}\",");
        format!("    {name:<18} [{away:>3}, {open:>4}, {circle:>4}]),\n")
    })
    .collect()
}

/// The exceptions that a package may have.
fn allowed(package: &str) -> [usize; Kind::ALL.len()] {
    BUDGET.iter().find(|(name, _)| *name == package).map_or_else(Default::default, |it| it.1)
}

/// A line for each rule that a package breaks more often than it may; a warning where it could be
/// allowed less.
fn beyond_budget(counts: &Counts, places: &[(String, Kind, String)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (package, row) in counts {
        for kind in Kind::ALL {
            let (found, most) = (row[kind as usize], allowed(package)[kind as usize]);
            if found < most {
                let rule = kind.rule();
                eprintln!("tree: {package} needs {found} exceptions, not {most}, to: {rule}");
            }
            if found > most {
                let at: Vec<&str> = places
                    .iter()
                    .filter(|place| place.0 == *package && place.1 == kind)
                    .map(|place| place.2.as_str())
                    .collect();
                let rule = kind.rule();
                let list = match at.len() {
                    0..=FEW => at.join("\n    "),
                    _ => format!("cargo xtask tree --places | grep {package}"),
                };
                faults.push(format!(
                    "{package}: {rule}; {found} do not, {most} may (xtask/src/tree/budget.rs):\n    {list}"
                ));
            }
        }
    }
    faults
}

/// The table of exceptions, as Rust.
fn table(counts: &Counts) -> String {
    let rows = counts.iter().filter(|(_, row)| row.iter().any(|count| *count > 0));
    rows.map(|(package, row)| {
        let name = format!("(\"{package}\",");
        let [file, function, parameters, wide] = row;
        format!("    {name:<18} [{file:>3}, {function:>4}, {parameters:>4}, {wide:>4}]),\n")
    })
    .collect()
}

/// The package that a file belongs to, by its folder.
fn package(file: &Path) -> String {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    let first = parts.next().unwrap_or_default();
    match &*first {
        "crates" | "fleet" => parts.next().unwrap_or_default().into_owned(),
        _ => first.into_owned(),
    }
}

fn is_implementation(file: &Path) -> bool {
    let is_test = file.components().any(|part| part.as_os_str() == "tests");
    file.extension().is_some_and(|extension| extension == "rs") && !is_test
}

/// The home folder that `line` names as an absolute path with something in it; `host/home/x` and a
/// bare mention are none.
fn names_a_home(line: &str) -> Option<&'static str> {
    HOMES.iter().copied().find(|home| {
        line.match_indices(home).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + home.len()..].chars().next();
            !before.is_some_and(|c| c.is_alphanumeric() || "./_-}$".contains(c))
                && after.is_some_and(|c| c.is_alphanumeric() || c == '.')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_found_as_absolute_paths_only() {
        let home = HOMES[0];
        assert_eq!(names_a_home(&format!("see {home}someone/notes")), Some(home));
        assert_eq!(names_a_home(&format!("path=\"{home}.cache\"")), Some(home));
        assert_eq!(names_a_home(&format!("https://example.org{home}page")), None);
        assert_eq!(names_a_home(&format!("{home} is where users live")), None);
    }

    #[test]
    fn tests_are_no_implementation() {
        assert!(is_implementation(Path::new("crates/x/src/lib.rs")));
        assert!(!is_implementation(Path::new("crates/x/tests/a.rs")));
        assert!(!is_implementation(Path::new("README.md")));
    }

    #[test]
    fn a_package_may_not_exceed_its_budget() {
        let (package, row) = ("no-such-package".to_owned(), [0, 0, 0, 1]);
        let counts = Counts::from([(package.clone(), row)]);
        let faults = beyond_budget(&counts, &[(package, Kind::Wide, "a.rs:7".into())]);
        assert!(faults.len() == 1 && faults[0].contains("a.rs:7"), "{faults:?}");
        let counts = Counts::from([("no-such-package".to_owned(), [0; 4])]);
        assert_eq!(beyond_budget(&counts, &[]), [""; 0]);
    }
}
