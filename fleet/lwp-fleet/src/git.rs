//! Commits as git knows them, where there is a working tree around.

use std::process::{Command, Stdio};

/// The most commits that are asked for.
const MOST: &str = "10000";

/// Commits on the way to HEAD, first to last; none where there is no git or no tree.
pub fn order() -> Vec<String> {
    let mut all = lines(&["rev-list", "--max-count", MOST, "HEAD"]);
    all.reverse();
    all
}

/// The ancestors of HEAD that a change is compared with, nearest first: those of the place where it
/// left `branch`.
pub fn ancestors(branch: &str) -> Vec<String> {
    let fork = lines(&["merge-base", "HEAD", branch]);
    let head = lines(&["rev-parse", "HEAD"]);
    // On the branch itself, it is the commit before.
    let from = match fork.first() {
        Some(fork) if head.first() != Some(fork) => fork.clone(),
        _ => "HEAD^".to_owned(),
    };
    lines(&["rev-list", "--first-parent", "--max-count", "200", &from])
}

/// The commit that git's words name: HEAD, HEAD^, a branch, a tag.
pub fn commit(name: &str) -> Option<String> {
    if name.starts_with('-') {
        return None;
    }
    let name = format!("{name}^{{commit}}");
    lines(&["rev-parse", "--verify", "--quiet", &name]).into_iter().next()
}

/// The commit that a text names: by its first letters, or as git does.
pub fn named(text: &str) -> Option<String> {
    let is_hexadecimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hexadecimal { Some(text.to_ascii_lowercase()) } else { commit(text) }
}

fn lines(words: &[&str]) -> Vec<String> {
    let mut git = Command::new("git");
    git.args(["--no-optional-locks"]).args(words).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(output) = git.output() else { return Vec::new() };
    if !output.status.success() {
        return Vec::new();
    }
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}
