//! lwp under the name `cargo-lwp`, as a link beside cargo's other subcommands makes it.
//!
//! The program `cargo-lwp` is installed beside lwp and builds with cargo, so it takes over. Without
//! it, `cargo lwp record …` is `lwp record …`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "cargo-lwp";

/// Returns whether this process was called by the name of cargo's subcommand.
fn is_called_so(name: &OsStr) -> bool {
    Path::new(name).file_name().is_some_and(|name| name == NAME)
}

/// The name and the words that lwp was called with, as they are for lwp. If it was called by the
/// name of cargo's subcommand, executes the program `cargo-lwp` beside it with `words`; where there
/// is none, drops the subcommand's name, which cargo passes along.
pub fn own_words(name: OsString, mut words: Vec<OsString>) -> (OsString, Vec<OsString>) {
    if !is_called_so(&name) {
        return (name, words);
    }
    if let Some(program) = beside(std::env::current_exe().ok().as_deref()) {
        // It returns only if it fails, and lwp can do most of it.
        let error = Command::new(&program).args(&words).exec();
        lwp_terminal::say!("lwp: {}: {error}", program.display());
    }
    if words.first().is_some_and(|first| first == "lwp") {
        words.remove(0);
    }
    ("lwp".into(), words)
}

/// The program `cargo-lwp` beside `lwp`, unless that is a link to lwp too.
fn beside(lwp: Option<&Path>) -> Option<PathBuf> {
    let lwp = std::fs::canonicalize(lwp?).ok()?;
    let program = lwp.with_file_name(NAME);
    let other = std::fs::canonicalize(&program).ok()?;
    (other != lwp && other.is_file()).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_subcommand_is_its_file_s() {
        let called = |name: &str| is_called_so(OsStr::new(name));
        assert!(called("cargo-lwp") && called("/usr/bin/cargo-lwp"));
        assert!(!called("lwp") && !called("/cargo-lwp/lwp") && !called(""));
    }
}
