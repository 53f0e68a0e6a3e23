//! `cargo xtask book`: links of all documents, the pages of the book, the code that its internals
//! name, and the tests that promises name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::links::{self, Documents};
use crate::promises;
use crate::workspace::{self, root};

const BOOK: &str = "docs/book";
const SOURCES: &str = "docs/book/src";
/// Pages whose rows name a file and a function of it.
const WALK: &str = "docs/book/src/internals/walk.md";
/// Documents that name the code as it is; decisions tell of the code as it was.
const NAMES_CODE: &[&str] =
    &["ARCHITECTURE.md", "docs/book/src/glossary.md", "docs/book/src/internals"];

/// Fails on broken links, pages that the summary lacks, and names of files and functions that do
/// not exist. Builds the book where there is mdbook.
pub fn check() -> Result<()> {
    let mut documents = Documents::of_tree()?;
    let mut faults = documents.faults()?;
    faults.extend(unlisted_pages()?);
    faults.extend(missing_functions(&read(WALK)?));
    faults.extend(promises::faults(&documents)?);
    for file in workspace::files()? {
        let named = NAMES_CODE.iter().any(|place| file.starts_with(place));
        if named && file.extension().is_some_and(|it| it == "md") {
            let text = read(&file)?;
            let missing = files_named(&text).into_iter().filter(|name| !documents.has_ending(name));
            faults.extend(missing.map(|name| format!("{}: there is no {name}", file.display())));
            for (item, place) in items_named(&text) {
                let mut there = documents.ending(&place).filter_map(|file| read(file).ok());
                if !there.any(|text| text.contains(&item)) {
                    faults.push(format!("{}: {place} has no {item}", file.display()));
                }
            }
        }
    }
    if faults.is_empty() {
        faults = build()?;
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n  "));
    }
    Ok(())
}

fn read(file: impl AsRef<Path>) -> Result<String> {
    let file = file.as_ref();
    fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {}", file.display()))
}

/// Pages of the book that its summary does not list, which mdBook does not render.
fn unlisted_pages() -> Result<Vec<String>> {
    let summary = Path::new(SOURCES).join("SUMMARY.md");
    let listed: BTreeSet<PathBuf> = links::links(&read(&summary)?)
        .into_iter()
        .map(|link| Path::new(SOURCES).join(link.target))
        .collect();
    let pages = workspace::files()?
        .into_iter()
        .filter(|file| file.starts_with(SOURCES) && file.extension().is_some_and(|it| it == "md"));
    let unlisted = pages.filter(|page| *page != summary && !listed.contains(page));
    Ok(unlisted.map(|page| format!("{}: not in SUMMARY.md", page.display())).collect())
}

/// Rows `| step | file | function |` whose file does not define the function.
fn missing_functions(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in links::prose(text) {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, _, file, function, _] = cells[..] else { continue };
        if !file.ends_with(".rs") {
            continue;
        }
        let opens = ['(', '<'].map(|next| format!("fn {function}{next}"));
        let text = read(file).unwrap_or_default();
        let defined = opens.iter().any(|opening| text.contains(opening));
        if !defined {
            faults.push(format!("{WALK}:{number}: {file} has no function {function}"));
        }
    }
    faults
}

/// The Rust files that a document names in code spans.
fn files_named(text: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (_, line) in links::prose(text) {
        let files =
            links::spans(line).filter(|span| span.ends_with(".rs") && !span.contains([' ', '*']));
        out.extend(files.map(str::to_owned));
    }
    out
}

/// The items that a document places as `` `Item` in `file.rs` ``, each with its file.
fn items_named(text: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (_, line) in links::prose(text) {
        let parts: Vec<&str> = line.split('`').collect();
        for [item, between, file] in
            parts.windows(3).filter_map(|it| <[&str; 3]>::try_from(it).ok())
        {
            let item = item.rsplit("::").next().unwrap_or(item);
            if between == " in " && file.ends_with(".rs") {
                out.push((item.to_owned(), file.to_owned()));
            }
        }
    }
    out
}

/// Builds the book and checks the links of its pages. Says why not, where there is no mdbook.
fn build() -> Result<Vec<String>> {
    let program = std::env::var_os("MDBOOK").unwrap_or_else(|| "mdbook".into());
    let mut version = Command::new(&program);
    version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !version.status().is_ok_and(|status| status.success()) {
        eprintln!("book: not built: there is no mdbook; cargo install mdbook, or MDBOOK=PATH");
        return Ok(Vec::new());
    }
    let out = workspace::target().join("book");
    let mut command = Command::new(&program);
    command.arg("build").arg(root().join(BOOK)).arg("-d").arg(&out).stdin(Stdio::null());
    workspace::run(command)?;
    page_faults(&out)
}

/// Links between the pages of a built book that lead nowhere.
fn page_faults(out: &Path) -> Result<Vec<String>> {
    let mut faults = BTreeSet::new();
    for page in pages(out)? {
        // The page of all pages is for printers, and that for unknown addresses lies at any
        // address.
        if page.ends_with("print.html") || page.ends_with("404.html") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        let folder = page.parent().context("a page without folder")?;
        for target in attribute_values(&text, "href").chain(attribute_values(&text, "src")) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            let outside = path.contains(':') || path.starts_with("//");
            if !path.is_empty() && !outside && !folder.join(path).exists() {
                let page = page.strip_prefix(out).unwrap_or(&page).display();
                faults.insert(format!("book: {page}: {target}: no such page"));
            }
        }
    }
    Ok(faults.into_iter().collect())
}

fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            out.extend(pages(&path)?);
        } else if path.extension().is_some_and(|it| it == "html") {
            out.push(path);
        }
    }
    Ok(out)
}

fn attribute_values<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {name}=\"");
    let starts: Vec<usize> =
        text.match_indices(&opening).map(|(at, found)| at + found.len()).collect();
    starts.into_iter().filter_map(|at| text[at..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_functions_that_exist() {
        let row = |function: &str| format!("| 1 | `xtask/src/book.rs` | `{function}` |\n");
        assert_eq!(missing_functions(&row("check")), [""; 0]);
        let faults = missing_functions(&row("no_such_function"));
        assert!(faults.len() == 1 && faults[0].contains("no_such_function"), "{faults:?}");
        assert_eq!(missing_functions("| a | b | c |\n"), [""; 0]);
    }

    #[test]
    fn files_are_named_in_code_spans() {
        let text = "`a/b.rs` and `c.rs` `fn d.rs` b.rs\n```\n`e.rs`\n```\n";
        assert_eq!(files_named(text).into_iter().collect::<Vec<_>>(), ["a/b.rs", "c.rs"]);
    }

    #[test]
    fn items_are_placed_in_files() {
        let pair = |item: &str, file: &str| (item.to_owned(), file.to_owned());
        assert_eq!(items_named("| a | `X::y` in `b/c.rs` |"), [pair("y", "b/c.rs")]);
        assert_eq!(items_named("`X` and `c.rs`, `d` in `e`"), []);
    }

    #[test]
    fn attributes_have_values() {
        let text = r#"<a class="x" href="b.html#c">d</a> <img src="e.svg">"#;
        assert_eq!(attribute_values(text, "href").collect::<Vec<_>>(), ["b.html#c"]);
        assert_eq!(attribute_values(text, "src").collect::<Vec<_>>(), ["e.svg"]);
    }
}
