//! `cargo xtask examples`: the shell examples of README, guide and docs, run as by a reader.
//!
//! A fenced block whose info string is `sh` is a script. Each document has a scratch directory, in
//! which its blocks run one after the other, with `lwp` in PATH, and with `program`, a small C
//! program that calls a function `parse`. Blocks of `sh repository` find the files of the
//! repository there too. Blocks of `sh no-run` install something, need a network or a process of
//! the reader's, and are only counted.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{self, root};

const PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((noinline)) unsigned long parse(unsigned long n) {
    unsigned long sum = 0;
    for (unsigned long i = 0; i < n; i++) sum += sum ^ i;
    return sum;
}
int main(void) { printf("%lu\n", parse(200000)); return 0; }
"#;

/// The command that the examples run.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// The command lwp to run; built when left out
    #[arg(long)]
    lwp: Option<PathBuf>,
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// The line of its fence, from 1.
    line: usize,
    /// The rest of the info string behind `sh`.
    mark: String,
    script: String,
}

/// Runs every example, and fails where one does.
pub fn check(options: &Options) -> Result<()> {
    if !answers("cc") {
        eprintln!("examples: skipped: there is no C compiler to make their program with");
        return Ok(());
    }
    let lwp = match &options.lwp {
        Some(path) => path.canonicalize().context("no such command")?,
        None => built()?,
    };
    let (mut run, mut left) = (0, 0);
    let mut faults = Vec::new();
    for file in documents()? {
        let text = fs::read_to_string(root().join(&file))?;
        let (blocks, others): (Vec<_>, Vec<_>) =
            blocks(&text).into_iter().partition(|block| block.mark != "no-run");
        left += others.len();
        let scratch = Scratch::new(&file, &lwp)?;
        for block in blocks {
            run += 1;
            if let Some(fault) = scratch.fault(&block)? {
                faults.push(format!("{}:{}: {fault}", file.display(), block.line));
            }
        }
    }
    eprintln!("examples: {run} run, {left} marked no-run");
    if !faults.is_empty() {
        bail!("{}", faults.join("\n  "));
    }
    Ok(())
}

/// README, the pages of the guide, and the documents beside the book.
fn documents() -> Result<Vec<PathBuf>> {
    let files = workspace::files()?.into_iter();
    let beside = |file: &Path| {
        file.parent() == Some(Path::new("docs")) && file.extension().is_some_and(|it| it == "md")
    };
    let shown = |file: &PathBuf| {
        file == Path::new("README.md") || file.starts_with("docs/book/src/guide") || beside(file)
    };
    Ok(files.filter(shown).collect())
}

fn built() -> Result<PathBuf> {
    workspace::build()?;
    Ok(workspace::target().join("debug/lwp"))
}

fn answers(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The shell blocks of a document.
fn blocks(text: &str) -> Vec<Block> {
    let mut out = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let (language, mark) = info.split_once([' ', ',']).unwrap_or((info, ""));
        if language == "sh" {
            let (mark, script) = (mark.trim().to_owned(), body.join("\n"));
            out.push(Block { line: index + 1, mark, script });
        }
    }
    out
}

/// The directory that a document's examples run in.
struct Scratch {
    place: PathBuf,
    path: String,
}

impl Scratch {
    fn new(document: &Path, lwp: &Path) -> Result<Self> {
        let name = document.display().to_string().replace('/', "-");
        let place = workspace::target().join("examples").join(name);
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::create_dir_all(place.join("bin"))?;
        fs::write(place.join("program.c"), PROGRAM)?;
        symlink(lwp, place.join("bin/lwp"))?;
        let mut compile = Command::new("cc");
        compile.args(["-g", "-O1", "-o", "program", "program.c"]).current_dir(&place);
        workspace::run(compile)?;
        for file in ["Cargo.lock", "include", "examples"] {
            symlink(root().join(file), place.join(file))?;
        }
        let others = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{others}", place.join("bin").display());
        Ok(Self { place, path })
    }

    /// Runs a block; what it says where it fails. `lwp doctor` ends as the worst finding says,
    /// which is none of ours.
    fn fault(&self, block: &Block) -> Result<Option<String>> {
        let script = block.script.replace("lwp doctor", "lwp doctor || true");
        let mut shell = Command::new("bash");
        shell.args(["-e", "-o", "pipefail", "-c", &script]).current_dir(&self.place);
        shell.env("PATH", &self.path).env("XDG_CACHE_HOME", self.place.join("cache"));
        let output = shell.stdin(Stdio::null()).output().context("cannot start bash")?;
        if output.status.success() {
            return Ok(None);
        }
        let says = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = says.lines().rev().take(5).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Ok(Some(format!("{}:\n    {}", output.status, last.join("\n    "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_shell_are_found_with_their_marks() {
        let text = "a\n```sh\none\ntwo\n```\n```text\nthree\n```\n```sh no-run\nfour\n```\n";
        let block = |line, mark: &str, script: &str| Block {
            line,
            mark: mark.into(),
            script: script.into(),
        };
        assert_eq!(blocks(text), [block(2, "", "one\ntwo"), block(9, "no-run", "four")]);
    }
}
