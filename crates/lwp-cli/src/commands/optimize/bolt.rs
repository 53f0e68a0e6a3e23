//! The installed BOLT.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use lwp_export::feedback::Binary;
use lwp_terminal::escape::printable;

use crate::failure::{Failure, OWN_FAILURE};

/// The command that optimises programs.
#[derive(Debug)]
pub struct Bolt {
    command: PathBuf,
}

/// Lines of BOLT's that are repeated when it fails.
const LINES: usize = 6;

impl Bolt {
    /// The one that was asked for, or the first of `PATH`: without a version in its name, or with
    /// the highest.
    pub fn find(asked: Option<&Path>) -> Result<Self, Failure> {
        if let Some(command) = asked {
            // A name without a slash is one of PATH.
            if command.components().count() > 1 {
                let missing = |error| {
                    Failure::io(command.display(), &error)
                        .with_help("name the file of llvm-bolt with --bolt FILE")
                };
                std::fs::metadata(command).map_err(missing)?;
            }
            return Ok(Self { command: command.to_owned() });
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let plain = dirs.iter().map(|dir| dir.join("llvm-bolt")).find(|file| file.is_file());
        let command = plain.or_else(|| newest(&dirs)).ok_or_else(|| {
            Failure::new(OWN_FAILURE, "llvm-bolt is not installed").with_help(
                "install BOLT, on Debian and Ubuntu with `apt install bolt-16` or newer, or name \
                 it with --bolt FILE; `lwp export -f bolt` writes its profile without it",
            )
        })?;
        Ok(Self { command })
    }

    /// Writes `made` from `original` by the profile.
    pub fn optimise(
        &self,
        binary: &Binary,
        [original, made, profile]: [&Path; 3],
        more: &[OsString],
    ) -> Result<(), Failure> {
        let mut command = Command::new(&self.command);
        let mut data = OsString::from("-data=");
        data.push(profile);
        command.arg(original).arg("-o").arg(made).arg(data);
        command.args(["-reorder-blocks=ext-tsp", "-split-functions", "-split-all-cold"]);
        if binary.has_relocations() {
            command.args(["-reorder-functions=hfsort", "-use-gnu-stack"]);
        }
        if binary.has_debug_info() {
            command.arg("-update-debug-sections");
        }
        let output = command.args(more).output().map_err(|error| {
            Failure::io(self.command.display(), &error)
                .with_help("name another llvm-bolt with --bolt FILE")
        })?;
        if output.status.success() && made.is_file() {
            self.say(&String::from_utf8_lossy(&output.stderr));
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = text.lines().rev().take(LINES).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        let cause =
            format!("{} failed ({}): {}", self.command.display(), output.status, lines.join("; "));
        let profile = printable(&profile.display().to_string());
        Err(Failure::new(OWN_FAILURE, cause)
            .with_help(format!("nothing was written; its profile is {profile}")))
    }

    /// Passes on what BOLT makes of the profile.
    fn say(&self, text: &str) {
        for line in text.lines().filter(|line| line.contains("profile")) {
            lwp_terminal::say!("lwp: {}", printable(line));
        }
    }
}

/// The `llvm-bolt-N` with the greatest N.
fn newest(dirs: &[PathBuf]) -> Option<PathBuf> {
    let files = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    let versions = files.filter_map(|file| {
        let version: u32 = file.file_name().to_str()?.strip_prefix("llvm-bolt-")?.parse().ok()?;
        Some((version, file.path()))
    });
    versions.max_by_key(|(version, _)| *version).map(|(_, path)| path)
}
