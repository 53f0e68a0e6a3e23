//! Unsafe code lives in named files; every other crate forbids it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The files in which `unsafe` may occur; one that ends with a slash stands for a folder.
#[rustfmt::skip] // A table: one place a line.
const BUDGET: &[&str] = &[
    "crates/lwp-process/src/sys/",     // ptrace, wait, process_vm_*: one function per request
    "crates/lwp-process/src/shm.rs",   // memory shared with the tracee
    "crates/lwp-process/src/child.rs", // a child that shares our memory until it executes a program
    "crates/lwp-process/src/userfault.rs", // notice of writes to a tracee's pages
    "crates/lwp-perf/src/sys.rs",     // perf_event_open
    "crates/lwp-perf/src/mmap.rs",    // the kernel's ring
    "crates/lwp/src/count.rs",        // markers, one instruction each
    "crates/lwp/src/insn.rs",         // the four instructions
    "crates/lwp/src/ring.rs",         // a ring shared with a processor
    "crates/lwp/examples/self_optimizing/memory.rs", // calls code that it has generated
    "crates/lwp-capi/src/",           // pointers of C callers
    "crates/pctx/src/copies.rs",      // a promise about threads beside a fork
    "crates/pctx/tests/processes.rs", // makes that promise for the harness's threads
    "crates/cpc/src/sys.rs",          // signals of overflows, fork
    "crates/cpc/src/lwp/insn.rs",     // memory that a processor writes to
    "crates/lwp-cpc/src/",            // pointers of C callers
    "crates/lwp-pctx/src/",           // pointers of C callers
    "crates/lwp-testkit/src/",        // runs assembled snippets natively
    "tests/src/run.rs",               // starts and stops test programs with nothing inherited
];

/// Fails on `unsafe` outside the budget, and on a crate that neither has a budget nor forbids it.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    for file in workspace::files()? {
        let Some(name) = file.to_str().filter(|name| name.ends_with(".rs")) else {
            continue;
        };
        let text = fs::read_to_string(workspace::root().join(&file))
            .with_context(|| format!("cannot read {name}"))?;
        if !budgeted(name) {
            let lines = unsafe_lines(&text);
            faults.extend(lines.iter().map(|line| format!("{name}:{line}: unsafe code")));
        }
        if is_crate_root(&file) && !has_budget(name) && !forbids(&text) {
            faults.push(format!("{name}: no #![forbid(unsafe_code)]"));
        }
    }
    if !faults.is_empty() {
        bail!("{}\n  (the budget is a table in xtask)", faults.join("\n  "));
    }
    Ok(())
}

fn budgeted(file: &str) -> bool {
    BUDGET.iter().any(|place| *place == file || (place.ends_with('/') && file.starts_with(place)))
}

/// Returns whether some file of the crate whose root is `file` is in the budget.
fn has_budget(file: &str) -> bool {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    BUDGET.iter().any(|place| place.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// A library's or a program's first file. Test targets are crates too, but are held by the scan.
fn is_crate_root(file: &Path) -> bool {
    file.ends_with("src/lib.rs") || file.ends_with("src/main.rs")
}

fn forbids(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]")
}

/// The numbers of the lines on which the keyword stands, comments and literals left out.
fn unsafe_lines(text: &str) -> Vec<usize> {
    let code = without_comments_and_literals(text);
    let mut lines = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if words.any(|word| word == "unsafe") {
            lines.push(number + 1);
        }
    }
    lines
}

/// Replaces comments, strings and characters by nothing, and keeps the line ends.
fn without_comments_and_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = comment(rest).or_else(|| literal(rest));
        let Some(length) = skipped else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            // A raw string starts only where a word does: `r` in `for"` is none.
            if first.is_alphanumeric() || first == '_' {
                let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let word = word.unwrap_or(rest.len());
                code.push_str(&rest[..word]);
                rest = &rest[word..];
            }
            continue;
        };
        code.extend(rest[..length].chars().filter(|c| *c == '\n'));
        code.push(' ');
        rest = &rest[length..];
    }
    code
}

/// The length of the comment that `text` starts with; block comments nest.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    Some(text.len())
}

/// The length of the string or character that `text` starts with.
fn literal(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|prefix| {
        let after = text.strip_prefix(prefix);
        after.is_some_and(|after| after.starts_with(['"', '\'', '#']))
    })?;
    let after = &text[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
        after[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let start = prefix.len() + hashes + 1;
        let length = text[start..].find(&end).map_or(text.len(), |at| start + at + end.len());
        return Some(length);
    }
    match bytes[prefix.len()] {
        b'"' => Some(quoted(bytes, prefix.len(), b'"')),
        b'\'' if prefix != "c" && is_character(after) => Some(quoted(bytes, prefix.len(), b'\'')),
        _ => None,
    }
}

/// Returns the end of the text quoted from `start`, backslashes minded.
fn quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Tells `'a'` and `'\n'` from the lifetime `'a`.
fn is_character(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyword_is_found_in_code_only() {
        let text = r##"
            // unsafe in a comment
            /* unsafe /* nested unsafe */ unsafe */
            let a = "unsafe \" unsafe";
            let b = r#"unsafe " unsafe"#;
            let c: &'static str = f::<'a>('"', '\'', b'"'); unsafe { d() }
            #![forbid(unsafe_code)]
            let unsafety = x.is_unsafe();
            pub unsafe fn e() {}
        "##;
        assert_eq!(unsafe_lines(text), [6, 9]);
    }

    #[test]
    fn lines_are_counted_through_literals() {
        assert_eq!(unsafe_lines("let a = \"\n\n\";\nunsafe {}"), [4]);
        assert_eq!(unsafe_lines("let a = r\"\n\\\";\nunsafe {}"), [3]);
        assert_eq!(unsafe_lines("/*\n*/ unsafe"), [2]);
        assert!(unsafe_lines("\"never closed unsafe").is_empty());
    }

    #[test]
    fn budgets_are_files_or_folders() {
        assert!(budgeted("crates/lwp-process/src/sys/memory.rs"));
        assert!(!budgeted("crates/lwp-process/src/tracee.rs"));
        assert!(budgeted("crates/lwp-testkit/src/native.rs"));
        assert!(has_budget("crates/lwp-process/src/lib.rs"));
        assert!(has_budget("crates/lwp/src/lib.rs"));
        assert!(!has_budget("crates/lwp-vcpu/src/lib.rs"));
        assert!(!has_budget("xtask/src/main.rs"));
    }

    #[test]
    fn forbidding_needs_its_own_line() {
        assert!(forbids("//! x\n#![forbid(unsafe_code)]\n"));
        assert!(!forbids("// #![forbid(unsafe_code)]\n"));
    }
}
