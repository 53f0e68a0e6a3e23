//! Finding tests and what they say they test.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Key;
use crate::workspace;

/// A test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Function name, or `asm/NAME`.
    pub name: String,
    /// The sections it tests.
    pub sections: BTreeSet<Key>,
}

/// Every test of the tree.
pub fn all() -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for file in workspace::files()? {
        let Some(name) = file.to_str() else { continue };
        let is_program = name.starts_with("tests/asm/") && name.ends_with(".s");
        if !is_program && !name.ends_with(".rs") {
            continue;
        }
        let text = fs::read_to_string(workspace::root().join(&file))
            .with_context(|| format!("cannot read {name}"))?;
        match is_program {
            true => tests.push(of_program(&file, &text)),
            false => tests.extend(of_source(&text)),
        }
    }
    Ok(tests)
}

/// An assembly program: its head names the sections.
fn of_program(file: &Path, text: &str) -> Test {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let lines = text.lines().filter_map(|line| line.strip_prefix("#@ spec:"));
    Test { name: format!("asm/{stem}"), sections: lines.flat_map(citations).collect() }
}

/// The test functions of a source file.
fn of_source(text: &str) -> Vec<Test> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if *line != "#[test]" {
            continue;
        }
        let function = lines[at..].iter().find_map(|line| line.strip_prefix("fn "));
        let Some((name, _)) = function.and_then(|rest| rest.split_once('(')) else { continue };
        let above = lines[..at].iter().rev().take_while(|line| {
            line.starts_with("///") || line.starts_with("#[") || line.starts_with("//")
        });
        let mut sections: BTreeSet<Key> =
            above.filter_map(|line| line.strip_prefix("/// Spec:")).flat_map(citations).collect();
        if sections.is_empty() {
            sections.extend(by_name(name));
        }
        tests.push(Test { name: name.to_owned(), sections });
    }
    tests
}

/// The sections in `LWP §5.7, §7; P07 §5.4. DEV-19`: a number belongs to the document named last.
fn citations(text: &str) -> Vec<Key> {
    let mut document = None;
    let mut keys = Vec::new();
    for word in text.split([' ', ',', ';', ':']) {
        match word {
            "LWP" | "P07" => document = Some(word),
            _ => {
                let number = word.strip_prefix('§').map(|n| n.trim_end_matches('.'));
                if let (Some(document), Some(number)) = (document, number) {
                    keys.push((document.to_owned(), number.to_owned()));
                }
            }
        }
    }
    keys
}

/// The section in `lwp_spec_5_7_…` or `p07_5_4_…`.
fn by_name(name: &str) -> Option<Key> {
    let documents = [("lwp_spec_", "LWP"), ("p07_", "P07")];
    let (rest, document) = documents
        .iter()
        .find_map(|(prefix, document)| Some((name.strip_prefix(prefix)?, *document)))?;
    let parts: Vec<&str> = rest.split('_').take_while(|part| part.parse::<u8>().is_ok()).collect();
    (!parts.is_empty()).then(|| (document.to_owned(), parts.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(document: &str, number: &str) -> Key {
        (document.to_owned(), number.to_owned())
    }

    #[test]
    fn spec_lines_are_read() {
        let keys = citations(" P07 §5.3, §5.5.2.4; LWP §7. DEV-19");
        assert_eq!(keys, [key("P07", "5.3"), key("P07", "5.5.2.4"), key("LWP", "7")]);
    }

    #[test]
    fn names_tell_where_no_line_does() {
        assert_eq!(by_name("lwp_spec_5_7_dev_7_threshold"), Some(key("LWP", "5.7")));
        assert_eq!(by_name("p07_5_5_2_4_restores"), Some(key("P07", "5.5.2.4")));
        assert_eq!(by_name("lwp_spec_of_nothing"), None);
        assert_eq!(by_name("a_test"), None);
    }

    #[test]
    fn functions_are_found_with_their_lines() {
        let text = "/// Why.\n///\n/// Spec: LWP §1.1\n#[test]\nfn a() {}\n\nfn b() {}\n#[test]\nfn p07_3_c() {}";
        let tests = of_source(text);
        assert_eq!(tests.len(), 2);
        assert_eq!(tests[0].sections, BTreeSet::from([key("LWP", "1.1")]));
        assert_eq!(tests[1].sections, BTreeSet::from([key("P07", "3")]));
    }
}
