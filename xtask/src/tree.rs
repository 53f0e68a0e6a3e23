//! What holds for every file: it is not too long, and it does not name a place on one machine.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use crate::workspace;

/// Lines of an implementation file, its tests left out. Longer ones are reported, not refused: a
/// table may have its reasons.
const LONGEST: usize = 600;

/// Folders of users, which exist on one machine only. Split here, or this file would fail.
const HOMES: &[&str] = &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Use", "rs/")];

/// Reports long files and fails on absolute paths into somebody's home.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    for file in workspace::files()? {
        // Files that are not text have neither lines nor words.
        let Ok(text) = fs::read_to_string(workspace::root().join(&file)) else {
            continue;
        };
        let lines = implementation_lines(&text);
        if is_implementation(&file) && lines > LONGEST {
            eprintln!("warning: {} has {lines} lines, more than {LONGEST}", file.display());
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(home) = names_a_home(line) {
                faults.push(format!("{}:{}: names {home}…", file.display(), number + 1));
            }
        }
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n  "));
    }
    Ok(())
}

fn is_implementation(file: &Path) -> bool {
    let is_test = file.components().any(|part| part.as_os_str() == "tests");
    file.extension().is_some_and(|extension| extension == "rs") && !is_test
}

/// The lines before the test module.
fn implementation_lines(text: &str) -> usize {
    text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count()
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
    fn tests_do_not_count_as_implementation() {
        assert_eq!(implementation_lines("a\nb\n#[cfg(test)]\nc\n"), 2);
        assert!(is_implementation(Path::new("crates/x/src/lib.rs")));
        assert!(!is_implementation(Path::new("crates/x/tests/a.rs")));
        assert!(!is_implementation(Path::new("README.md")));
    }
}
