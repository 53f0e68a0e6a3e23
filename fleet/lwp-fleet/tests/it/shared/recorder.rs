//! The lwp of the other workspace, for tests that record programs.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// An lwp.
pub struct Recorder {
    lwp: PathBuf,
}

impl Recorder {
    /// The one that `LWP` names, or that of the other workspace; `None`, with a message, where there
    /// is none.
    pub fn find() -> Option<Self> {
        if let Some(named) = std::env::var_os("LWP") {
            let named = PathBuf::from(named);
            assert!(named.is_file(), "LWP names no file: {}", named.display());
            return Some(Self { lwp: named });
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let built = ["debug", "release"].map(|profile| root.join(profile).join("lwp"));
        let found = built.into_iter().find(|path| path.is_file()).map(|lwp| Self { lwp });
        if found.is_none() {
            eprintln!("skipped: no lwp in ../target, and LWP names none");
        }
        found
    }

    /// A search path that has lwp and lwp-fleet first, by links in a folder of `dir`.
    pub fn path_in(&self, dir: &Path) -> String {
        let bin = dir.join("bin");
        std::fs::create_dir(&bin).expect("a directory");
        let lwp = self.lwp.canonicalize().expect("lwp");
        for (program, name) in [(lwp, "lwp"), (env!("CARGO_BIN_EXE_lwp-fleet").into(), "lwp-fleet")]
        {
            std::os::unix::fs::symlink(program, bin.join(name)).expect("a link");
        }
        format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"))
    }

    /// The report of a recording, as JSON.
    pub fn report(&self, data: &Path) -> Vec<u8> {
        let mut command = Command::new(&self.lwp);
        command.args(["report", "--json", "--event", "instructions", "-i"]).arg(data);
        let output = command.output().expect("lwp starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Records a program.
    pub fn record(&self, to: &Path, program: &[&str]) {
        let mut command = Command::new(&self.lwp);
        command.args(["record", "-q", "--deterministic", "-o"]).arg(to).arg("--").args(program);
        let output = command.output().expect("lwp starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
