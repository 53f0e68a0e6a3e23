//! The promises of SPECIFICATION.md: each has a number of its own, and names tests that exist.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;

use crate::links;
use crate::workspace::{self, root};

const SPECIFICATION: &str = "SPECIFICATION.md";
/// The languages of tests: functions of their files are named.
const SOURCES: [&str; 4] = ["rs", "c", "py", "sh"];

/// Returns the faults of the promises.
pub fn faults() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join(SPECIFICATION))?;
    let mut known = Known::default();
    for file in workspace::files()? {
        known.file(&file, || std::fs::read_to_string(root().join(&file)).unwrap_or_default());
    }
    Ok(faults_in(&text, &known))
}

/// The words that a promise may name.
#[derive(Debug, Default)]
struct Known {
    /// Functions and the like: every word that an opening bracket follows.
    functions: HashSet<String>,
    /// Files, as their last one and their last two components.
    files: HashSet<String>,
}

impl Known {
    /// Takes in a file of the tree with the text that `read` returns.
    fn file(&mut self, file: &Path, read: impl FnOnce() -> String) {
        let Some(extension) = file.extension().and_then(|it| it.to_str()) else { return };
        let path = file.to_string_lossy();
        let mut starts = path.rmatch_indices('/').map(|(at, _)| at + 1);
        let last = &path[starts.next().unwrap_or(0)..];
        let last_two = &path[starts.next().unwrap_or(0)..];
        self.files.insert(last.to_owned());
        // Programs are named by folder and name.
        self.files.insert(last_two.trim_end_matches(&format!(".{extension}")).to_owned());
        self.files.insert(last_two.to_owned());
        if SOURCES.contains(&extension) {
            let text = read();
            let word = |part: &str| part.rsplit(|c: char| !is_word(c)).next().map(str::to_owned);
            let before_brackets = text.split(['(', '<']).filter_map(word);
            self.functions.extend(before_brackets.filter(|word| !word.is_empty()));
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The faults of the rows `| number | promise | test |` of `text`.
fn faults_in(text: &str, known: &Known) -> Vec<String> {
    let mut numbers = HashSet::new();
    let mut faults = Vec::new();
    for (line, row) in links::prose(text) {
        let cells: Vec<&str> = row.splitn(4, '|').map(str::trim).collect();
        let [_, number, _, tests] = cells[..] else { continue };
        if !is_number(number) {
            continue;
        }
        if !numbers.insert(number) {
            faults.push(format!("{SPECIFICATION}:{line}: {number} is another promise's number"));
        }
        let missing = spans(tests).filter(|span| !exists(span, known));
        faults.extend(missing.map(|it| format!("{SPECIFICATION}:{line}: there is no {it}")));
    }
    faults
}

/// Returns whether a cell is a promise's number, as `F12`.
fn is_number(cell: &str) -> bool {
    let digits = cell.trim_start_matches(|c: char| c.is_ascii_uppercase());
    digits.len() < cell.len() && !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit())
}

fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns whether a code span is a function, a file or a program that exists, or none of these.
fn exists(span: &str, known: &Known) -> bool {
    let file = SOURCES.iter().any(|it| span.ends_with(&format!(".{it}")));
    let words: Vec<&str> = span.split('/').collect();
    let plain = |word: &&str| !word.is_empty() && word.chars().all(is_word);
    match words[..] {
        _ if file => {
            let last_two = words[words.len().saturating_sub(2)..].join("/");
            known.files.contains(&last_two)
        }
        // One with an underscore at its end stands for all that begin so.
        [word] if plain(&word) && word.contains('_') && !word.ends_with('_') => {
            known.functions.contains(word)
        }
        [folder, name] if plain(&folder) && plain(&name) => known.files.contains(span),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let mut known = Known::default();
        known.file(Path::new("tests/programs/code/patched.c"), || "int main(void)".to_owned());
        known.file(Path::new("tests/counts.rs"), || "#[test]\nfn counts_add_up() {}".to_owned());
        known.file(Path::new("README.md"), || unreachable!());
        known
    }

    #[test]
    fn tests_that_are_named_exist() {
        let row = |test: &str| format!("| F1 | A promise. | {test} |\n");
        for test in ["`counts.rs`: `counts_add_up`", "`code/patched`", "`insn_*`", "measured"] {
            assert_eq!(faults_in(&row(test), &known()), [""; 0], "{test}");
        }
        for test in ["`counts_add`", "`code/paths`", "`stat.rs`", "`tests/patched.rs`"] {
            assert_eq!(faults_in(&row(test), &known()).len(), 1, "{test}");
        }
    }

    #[test]
    fn numbers_are_promises_own() {
        let text = "| F1 | a | b |\n| F2 | a | b |\n| | promise | test |\n| F1 | c | d |\n";
        let faults = faults_in(text, &known());
        assert_eq!(faults, ["SPECIFICATION.md:4: F1 is another promise's number"]);
    }
}
