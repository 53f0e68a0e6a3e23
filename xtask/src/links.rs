//! Markdown as far as its links go: relative links lead to files that exist, anchors to headings
//! that exist.

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace;

/// A relative link.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// The line it is on, from 1.
    pub line: usize,
    /// Path and anchor as written.
    pub target: String,
}

/// The documents of the tree.
#[derive(Debug, Default)]
pub struct Documents {
    files: Vec<PathBuf>,
    anchors: HashMap<PathBuf, Vec<String>>,
}

impl Documents {
    /// Those that git knows.
    pub fn of_tree() -> Result<Self> {
        Ok(Self::of(workspace::files()?))
    }

    /// These files.
    pub fn of(files: Vec<PathBuf>) -> Self {
        Self { files, anchors: HashMap::new() }
    }

    /// Faults of every document's relative links.
    pub fn faults(&mut self) -> Result<Vec<String>> {
        let is_markdown = |file: &&PathBuf| file.extension().is_some_and(|it| it == "md");
        let documents: Vec<PathBuf> = self.files.iter().filter(is_markdown).cloned().collect();
        let mut faults = Vec::new();
        for file in documents {
            for link in links(&expanded(&file)?) {
                if let Some(fault) = self.fault(&file, &link.target)? {
                    faults.push(format!(
                        "{}:{}: {}: {fault}",
                        file.display(),
                        link.line,
                        link.target
                    ));
                }
            }
        }
        Ok(faults)
    }

    /// Returns whether the file or folder is part of the tree.
    pub fn has(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file == path || file.starts_with(path))
    }

    /// The files whose path ends with `path`, `src` folders left out of both.
    pub fn ending(&self, path: &str) -> impl Iterator<Item = &Path> {
        let without_src =
            |path: &Path| -> PathBuf { path.iter().filter(|it| *it != "src").collect() };
        let wanted = without_src(Path::new(path));
        let files = self.files.iter().map(PathBuf::as_path);
        files.filter(move |file| without_src(file).ends_with(&wanted))
    }

    /// Returns whether there is such a file.
    pub fn has_ending(&self, path: &str) -> bool {
        self.ending(path).next().is_some()
    }

    fn fault(&mut self, from: &Path, target: &str) -> Result<Option<&'static str>> {
        let (path, anchor) = target.split_once('#').map_or((target, None), |it| (it.0, Some(it.1)));
        let to = match path {
            "" => from.to_owned(),
            _ => normal(&from.parent().unwrap_or(Path::new("")).join(path)),
        };
        if !self.has(&to) {
            return Ok(Some("no such file"));
        }
        let (Some(anchor), true) = (anchor, to.extension().is_some_and(|it| it == "md")) else {
            return Ok(None);
        };
        if !self.anchors.contains_key(&to) {
            self.anchors.insert(to.clone(), anchors(&expanded(&to)?));
        }
        let known = self.anchors[&to].iter().any(|it| it == anchor);
        Ok((!known).then_some("no such heading"))
    }
}

/// A document's text with what mdBook includes in it.
pub fn expanded(file: &Path) -> Result<String> {
    let text = read(file)?;
    let mut out = String::new();
    for line in text.lines() {
        let included = line.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
        match included {
            Some(target) => out.push_str(&included_text(file, target)?),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    Ok(out)
}

/// The text that `{{#include target}}` stands for; the target may name an anchor behind a colon.
fn included_text(file: &Path, target: &str) -> Result<String> {
    let (path, anchor) = target.split_once(':').map_or((target, None), |it| (it.0, Some(it.1)));
    let path = normal(&file.parent().unwrap_or(Path::new("")).join(path));
    let text = read(&path)?;
    let Some(anchor) = anchor else { return Ok(text) };
    let begin = format!("ANCHOR: {anchor} ");
    let end = format!("ANCHOR_END: {anchor} ");
    let from = text.find(&begin).with_context(|| format!("{}: no {begin}", path.display()))?;
    let to = text.find(&end).with_context(|| format!("{}: no {end}", path.display()))?;
    let body = &text[from..to];
    Ok(body.split_once('\n').map_or("", |it| it.1).to_owned())
}

fn read(file: &Path) -> Result<String> {
    let path = workspace::root().join(file);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", file.display()))
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// The lines of a document outside fenced code, each with its number from 1.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let start = line.trim_start();
        match fence {
            Some(mark) => {
                if start.starts_with(mark) {
                    fence = None;
                }
                None
            }
            None => {
                fence = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
                fence.is_none().then_some((index + 1, line))
            }
        }
    })
}

/// The relative links of a document: `[text](target)`, images, and definitions.
pub fn links(text: &str) -> Vec<Link> {
    let mut out = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let inline = line.match_indices("](").map(|(at, _)| {
            let rest = &line[at + 2..];
            &rest[..rest.find([')', ' ']).unwrap_or(rest.len())]
        });
        let defined = line.trim_start().strip_prefix('[').and_then(|it| it.split_once("]: "));
        let targets = inline.chain(defined.map(|(_, target)| target.trim()));
        for target in targets.filter(|target| is_relative(target)) {
            out.push(Link { line: number, target: target.to_owned() });
        }
    }
    out
}

fn is_relative(target: &str) -> bool {
    !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")
}

/// The code spans of a line.
pub fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A line without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
pub fn anchors(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let base = slug(heading.trim());
        let taken = out.iter().filter(|it| **it == base).count();
        out.push(if taken == 0 { base } else { format!("{base}-{taken}") });
    }
    out
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "[a](b.md) `[c](d.md)` ![e](f.svg \"g\")\n```\n[h](i.md)\n```\n[j]: k.md#l\n";
        let found: Vec<(usize, String)> =
            links(text).into_iter().map(|link| (link.line, link.target)).collect();
        let expected = [(1, "b.md"), (1, "f.svg"), (5, "k.md#l")];
        assert_eq!(found, expected.map(|(line, target)| (line, target.to_owned())));
        assert_eq!(links("[a](https://example.org/x.md) [b](mailto:c@example.org)"), []);
    }

    #[test]
    fn anchors_are_those_of_headings() {
        let text = "# A `b`, c-d\n## Twice\n## Twice\n#none\n```\n# code\n```\n";
        assert_eq!(anchors(text), ["a-b-c-d", "twice", "twice-1"]);
    }

    #[test]
    fn files_and_headings_must_exist() {
        let files = vec!["docs/a.md".into(), "docs/b/c.rs".into()];
        let anchors = HashMap::from([(PathBuf::from("docs/a.md"), vec!["known".to_owned()])]);
        let mut documents = Documents { files, anchors };
        let mut fault = |target| documents.fault(Path::new("docs/a.md"), target).expect("known");
        assert_eq!(fault("#known"), None);
        assert_eq!(fault("../docs/b"), None);
        assert_eq!(fault("a.md#unknown"), Some("no such heading"));
        assert_eq!(fault("../a.md"), Some("no such file"));
        assert!(documents.has_ending("b/c.rs") && !documents.has_ending("d/c.rs"));
    }
}
