//! A store in a directory that lives as long as a test, and the command on it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A store.
pub struct Store {
    /// The directory that it is in, for other files too.
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
}

impl Store {
    /// An empty one.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let store = Self { dir, path };
        store.fleet(&["init"]);
        store
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
        command.args(words).env("LWP_FLEET_STORE", &self.path).stdin(Stdio::null());
        command.current_dir(self.dir.path());
        command
    }

    pub fn run_in(&self, directory: &Path, words: &[&str]) -> Output {
        self.command(words).current_dir(directory).output().expect("lwp-fleet starts")
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("lwp-fleet starts")
    }

    /// Starts a command that nobody listens to.
    pub fn start(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("lwp-fleet starts")
    }

    /// Runs a command that succeeds; returns its output.
    #[track_caller]
    pub fn fleet(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {error}{out}");
        out
    }

    /// A file of the directory, with this text.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("text").to_owned()
    }

    /// Adds a recording.
    #[track_caller]
    pub fn add(&self, text: &str) -> String {
        self.fleet(&["add", &self.file("one.facts", text)])
    }

    /// The first row of an answer, whose columns are numbers.
    #[track_caller]
    pub fn numbers(&self, sql: &str) -> Vec<i64> {
        let text = self.fleet(&["sql", "--format", "csv", sql]);
        let line = text.lines().nth(1).expect("a row");
        line.split(',').map(|cell| cell.parse().unwrap_or(0)).collect()
    }

    #[track_caller]
    pub fn number(&self, sql: &str) -> i64 {
        self.numbers(sql)[0]
    }
}
