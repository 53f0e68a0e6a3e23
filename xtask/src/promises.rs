//! The promises of SPECIFICATION.md, and the tests that hold them.
//!
//! A test names its promises in a line of its own above it: `/// Promise: F10`, with commas between
//! several, and with a colon before what part of the promise it holds. A file whose tests all hold
//! a promise has the line in its header; a program in C, or a script, has it in a comment.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::links::{self, Documents};
use crate::workspace::{self, root};

const SPECIFICATION: &str = "SPECIFICATION.md";
/// The languages of tests.
const SOURCES: [&str; 6] = ["rs", "c", "S", "s", "py", "sh"];
/// The beginnings of comments that name promises.
const COMMENTS: [&str; 5] = ["/// ", "//! ", "/* ", "// ", "# "];

/// The tests of each promise, by its number.
type Tests = BTreeMap<String, Vec<Test>>;

/// A test that holds a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    file: PathBuf,
    /// The function; `None` for a whole file.
    function: Option<String>,
}

/// A row of SPECIFICATION.md.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    line: usize,
    number: &'a str,
    notes: &'a str,
}

/// Returns the faults of the promises.
pub fn faults(documents: &Documents) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join(SPECIFICATION))?;
    Ok(faults_in(&text, &collected()?, documents))
}

/// Prints each promise's tests.
pub fn print() -> Result<()> {
    let text = std::fs::read_to_string(root().join(SPECIFICATION))?;
    let tests = collected()?;
    for row in rows(&text) {
        println!("{}", row.number);
        for Test { file, function } in tests.get(row.number).into_iter().flatten() {
            let function = function.as_deref().map(|it| format!(": {it}")).unwrap_or_default();
            println!("    {}{function}", file.display());
        }
        if !row.notes.is_empty() {
            println!("    {}", row.notes);
        }
    }
    Ok(())
}

/// The tests of the whole tree.
fn collected() -> Result<Tests> {
    let mut tests = Tests::new();
    for file in workspace::files()? {
        let extension = file.extension().and_then(|it| it.to_str());
        if extension.is_some_and(|it| SOURCES.contains(&it)) {
            let source = std::fs::read_to_string(root().join(&file)).unwrap_or_default();
            collect(&file, &source, &mut tests);
        }
    }
    Ok(tests)
}

/// Adds the tests in `source`.
fn collect(file: &Path, source: &str, tests: &mut Tests) {
    let lines: Vec<&str> = source.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let numbers = numbers_of(line);
        if numbers.is_empty() {
            continue;
        }
        let is_above = line.trim_start().starts_with("///");
        let function = is_above.then(|| lines[index..].iter().find_map(|it| name_of(it))).flatten();
        let test = Test { file: file.to_owned(), function: function.map(str::to_owned) };
        for number in numbers {
            tests.entry(number.to_owned()).or_default().push(test.clone());
        }
    }
}

/// The promises that a line names, if it is a comment that does.
fn numbers_of(line: &str) -> Vec<&str> {
    let line = line.trim_start();
    let comment = COMMENTS.iter().find_map(|it| line.strip_prefix(it));
    let Some(named) = comment.and_then(|it| it.strip_prefix("Promise: ")) else {
        return Vec::new();
    };
    let named = named.trim_end_matches("*/").split(": ").next().unwrap_or_default();
    let numbers: Vec<&str> = named.split(',').map(str::trim).collect();
    if numbers.iter().all(|it| is_number(it)) { numbers } else { Vec::new() }
}

/// The function that a line begins.
fn name_of(line: &str) -> Option<&str> {
    let rest = line.split_once("fn ")?.1;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    line.trim_start().starts_with(|c: char| c.is_ascii_lowercase()).then_some(&rest[..end])
}

/// The rows `| number | promise | notes |` of `text`.
fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    links::prose(text).filter_map(|(line, row)| {
        let cells: Vec<&str> = row.splitn(4, '|').map(str::trim).collect();
        let [_, number, _, notes] = cells[..] else { return None };
        let notes = notes.trim_end_matches('|').trim();
        is_number(number).then_some(Row { line, number, notes })
    })
}

fn faults_in(text: &str, tests: &Tests, documents: &Documents) -> Vec<String> {
    let mut numbers = HashSet::new();
    let mut faults = Vec::new();
    for Row { line, number, notes } in rows(text) {
        let mut fault = |what: String| faults.push(format!("{SPECIFICATION}:{line}: {what}"));
        if !numbers.insert(number) {
            fault(format!("{number} is another promise's number"));
        }
        if notes.is_empty() && !tests.contains_key(number) {
            fault(format!("no test holds {number}, and no note says why"));
        }
        let missing = links::spans(notes).filter(|it| is_file(it) && !documents.has_ending(it));
        missing.for_each(|it| fault(format!("there is no {it}")));
    }
    for (number, tests) in tests.iter().filter(|(number, _)| !numbers.contains(number.as_str())) {
        let files = tests.iter().map(|it| format!("{}: there is no {number}", it.file.display()));
        faults.extend(files);
    }
    faults
}

/// Returns whether a code span names a file of tests.
fn is_file(span: &str) -> bool {
    SOURCES.iter().any(|it| span.ends_with(&format!(".{it}"))) && !span.contains(' ')
}

/// Returns whether a cell is a promise's number, as `F12`.
fn is_number(cell: &str) -> bool {
    let digits = cell.trim_start_matches(|c: char| c.is_ascii_uppercase());
    digits.len() < cell.len() && !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults of these rows, if `source` has the tests.
    fn faults_of(text: &str, source: &str) -> Vec<String> {
        let documents = Documents::of([PathBuf::from("tests/soak.py")].to_vec());
        let mut tests = Tests::new();
        collect(Path::new("tests/counts.rs"), source, &mut tests);
        faults_in(text, &tests, &documents)
    }

    #[test]
    fn a_promise_has_a_test_or_a_note() {
        let held = "/// Promise: F1, F2: on a busy machine\n#[test]\nfn counts_add_up() {}\n";
        let rows = "| F1 | A promise. | |\n| F2 | Another. | pending |\n";
        assert_eq!(faults_of(rows, held), [""; 0]);
        assert_eq!(faults_of(rows, "").len(), 1);
        assert_eq!(faults_of("| F1 | A promise. | `soak.py` |\n", ""), [""; 0]);
        assert_eq!(faults_of("| F1 | A promise. | `gone.py` |\n", "").len(), 1);
    }

    #[test]
    fn tests_name_promises_that_there_are() {
        let faults = faults_of("| F1 | A promise. | measured |\n", "//! Promise: F3\n");
        assert_eq!(faults, ["tests/counts.rs: there is no F3"]);
        assert_eq!(faults_of("", "/// Promise: a list of words.\n"), [""; 0]);
    }

    #[test]
    fn numbers_are_promises_own() {
        let text = "| F1 | a | b |\n| F2 | a | b |\n| | promise | notes |\n| F1 | c | d |\n";
        let faults = faults_of(text, "");
        assert_eq!(faults, ["SPECIFICATION.md:4: F1 is another promise's number"]);
    }

    #[test]
    fn tests_are_found_by_function_or_file() {
        let mut tests = Tests::new();
        let source = "//! Promise: F1\n\n    /// Words.\n    ///\n    /// Promise: F2\n    \
                      #[test]\n    fn one() {}\n";
        collect(Path::new("a.rs"), source, &mut tests);
        collect(Path::new("b.c"), "int main;\n/* Promise: F2 */\n", &mut tests);
        let test = |file: &str, function: Option<&str>| Test {
            file: file.into(),
            function: function.map(str::to_owned),
        };
        assert_eq!(tests["F1"], [test("a.rs", None)]);
        assert_eq!(tests["F2"], [test("a.rs", Some("one")), test("b.c", None)]);
    }
}
