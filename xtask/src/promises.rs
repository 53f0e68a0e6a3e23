//! The promises of SPECIFICATION.md: each has a number of its own, and names tests that exist.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;

use crate::links::{self, Documents};
use crate::workspace::{self, root};

const SPECIFICATION: &str = "SPECIFICATION.md";
/// The languages of tests: functions of their files are named.
const SOURCES: [&str; 4] = ["rs", "c", "py", "sh"];

/// The languages of programs, which are named by folder and name.
const PROGRAMS: [&str; 3] = ["c", "S", "s"];

/// Returns the faults of the promises.
pub fn faults(documents: &Documents) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join(SPECIFICATION))?;
    let mut functions = HashSet::new();
    for file in workspace::files()? {
        let extension = file.extension().and_then(|it| it.to_str());
        if extension.is_some_and(|it| SOURCES.contains(&it)) {
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            functions.extend(functions_of(&source));
        }
    }
    Ok(faults_in(&text, &Known { functions, documents }))
}

/// The words that a promise may name.
#[derive(Debug)]
struct Known<'a> {
    functions: HashSet<String>,
    documents: &'a Documents,
}

/// Functions and the like: every word that an opening bracket follows.
fn functions_of(source: &str) -> impl Iterator<Item = String> {
    let words = source.split(['(', '<']).filter_map(|it| it.rsplit(|c| !is_word(c)).next());
    words.filter(|word| !word.is_empty()).map(str::to_owned)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The faults of the rows `| number | promise | test |` of `text`.
fn faults_in(text: &str, known: &Known<'_>) -> Vec<String> {
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
        let missing = links::spans(tests).filter(|span| !exists(span, known));
        faults.extend(missing.map(|it| format!("{SPECIFICATION}:{line}: there is no {it}")));
    }
    faults
}

/// Returns whether a cell is a promise's number, as `F12`.
fn is_number(cell: &str) -> bool {
    let digits = cell.trim_start_matches(|c: char| c.is_ascii_uppercase());
    digits.len() < cell.len() && !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit())
}

/// Returns whether a code span names no function, file or program, or one that exists.
fn exists(span: &str, known: &Known<'_>) -> bool {
    let file = SOURCES.iter().any(|it| span.ends_with(&format!(".{it}")));
    let words: Vec<&str> = span.split('/').collect();
    let plain = |word: &&str| !word.is_empty() && word.chars().all(is_word);
    match words[..] {
        _ if file => known.documents.has_ending(span),
        // One with an underscore at its end stands for all that begin so.
        [word] if plain(&word) && word.contains('_') && !word.ends_with('_') => {
            known.functions.contains(word)
        }
        [folder, name] if plain(&folder) && plain(&name) => {
            known.documents.has(Path::new(span))
                || PROGRAMS.iter().any(|it| known.documents.has_ending(&format!("{span}.{it}")))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn faults_of(text: &str) -> Vec<String> {
        let files = ["tests/programs/code/patched.c", "tests/counts.rs", "README.md"];
        let documents = Documents::of(files.map(PathBuf::from).to_vec());
        let functions = functions_of("#[test]\nfn counts_add_up() {}").collect();
        faults_in(text, &Known { functions, documents: &documents })
    }

    #[test]
    fn tests_that_are_named_exist() {
        let row = |test: &str| format!("| F1 | A promise. | {test} |\n");
        for test in ["`counts.rs`: `counts_add_up`", "`code/patched`", "`insn_*`", "measured"] {
            assert_eq!(faults_of(&row(test)), [""; 0], "{test}");
        }
        for test in ["`counts_add`", "`code/paths`", "`stat.rs`", "`tests/patched.rs`"] {
            assert_eq!(faults_of(&row(test)).len(), 1, "{test}");
        }
    }

    #[test]
    fn numbers_are_promises_own() {
        let text = "| F1 | a | b |\n| F2 | a | b |\n| | promise | test |\n| F1 | c | d |\n";
        let faults = faults_of(text);
        assert_eq!(faults, ["SPECIFICATION.md:4: F1 is another promise's number"]);
    }
}
