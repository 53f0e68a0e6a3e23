//! What the tests of recordings run their commands with.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds after which what hangs is ended. Harnesses compile dozens of crates, on machines that
/// are busy.
const LIMIT: &str = "600";

/// An empty directory for the test `name` of `suite`.
pub fn fresh(suite: &str, name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(suite).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("directory");
    dir
}

/// A command in `dir`, ended if it takes too long.
pub fn limited(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", LIMIT]).args(words).current_dir(dir).stdin(Stdio::null());
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns whether this machine has `tool`; says so where it has not.
pub fn has(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: no {tool}");
    }
    found
}
