//! `cargo deny`: third-party crates by `deny.toml`, as far as this machine can check them; those of
//! the fleet by
//! `fleet/deny.toml`.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::workspace::{self, cargo};

/// The checks that need nothing but the crates themselves.
const OFFLINE: [&str; 3] = ["bans", "licenses", "sources"];

/// Checks licences, duplicates and sources of this workspace.
pub fn check() -> Result<()> {
    checked(&cargo)
}

/// Checks the workspace whose cargo commands `command` makes, and known faults too if their
/// database can be had.
pub fn checked(command: &dyn Fn(&[&str]) -> Command) -> Result<()> {
    if !answers(command(&["deny", "--version"])) {
        eprintln!("deny: skipped: there is no cargo-deny; tests/viewers.sh installs it");
        return Ok(());
    }
    workspace::run(command(&[&["deny", "check"], &OFFLINE[..]].concat()))?;
    if !answers(command(&["deny", "fetch", "db"])) {
        eprintln!("deny: advisories skipped: their database cannot be fetched");
        return Ok(());
    }
    workspace::run(command(&["deny", "check", "advisories"]))
}

/// Returns whether a command succeeds, whatever it says.
fn answers(mut command: Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_does_not_answer() {
        assert!(answers(Command::new("true")) && !answers(Command::new("false")));
        assert!(!answers(Command::new("no-such-command-anywhere")));
    }
}
