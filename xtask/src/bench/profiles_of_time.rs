//! Profiles of time: how close they come to what programs measure themselves, what they cost, and
//! who gets which.

mod cost;
mod permissions;
mod shares;
mod stacks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

pub use permissions::measure as permissions;

/// Measures the rows of the table, each several times if it varies.
pub fn measure(lwp: &Path, rounds: u32, dir: &Path) -> Result<String> {
    let place = Place::new(lwp, dir)?;
    let mut table = Table::default();
    shares::measure(&place, &mut table)?;
    cost::measure(&place, rounds, &mut table)?;
    stacks::off_cpu(&place, &mut table)?;
    stacks::complete(&place, &mut table)?;
    stacks::bytes(&place, &mut table)?;
    Ok(table.markdown())
}

/// Rows of what was measured.
#[derive(Debug, Default)]
pub struct Table(Vec<(String, String)>);

impl Table {
    fn add(&mut self, what: impl Into<String>, figure: impl Into<String>) {
        let (what, figure) = (what.into(), figure.into());
        eprintln!("{what}: {figure}");
        self.0.push((what, figure));
    }

    fn markdown(&self) -> String {
        let mut text = String::from("\n| profiles of time | measured |\n| --- | --- |\n");
        for (what, figure) in &self.0 {
            let _ = writeln!(text, "| {what} | {figure} |");
        }
        text
    }
}

/// The command that is measured, and a directory with programs.
#[derive(Debug)]
pub struct Place {
    lwp: PathBuf,
    dir: PathBuf,
}

/// A recording, and what was printed for it.
#[derive(Debug)]
pub struct Recorded {
    printed: String,
    facts: BTreeMap<String, String>,
    bytes: u64,
}

impl Recorded {
    /// A number that the recording knows; 0 where it does not.
    fn number(&self, key: &str) -> f64 {
        self.facts.get(key).and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }

    fn fact(&self, key: &str) -> &str {
        self.facts.get(key).map_or("", String::as_str)
    }
}

impl Place {
    fn new(lwp: &Path, dir: &Path) -> Result<Self> {
        let place = Self { lwp: lwp.to_owned(), dir: dir.to_owned() };
        place.compile("timed.c", "timed")?;
        place.compile("sleeps.c", "sleeps")?;
        place.compile("no_perf_events.c", "filter")?;
        Ok(place)
    }

    /// Compiles a program of the command's tests.
    fn compile(&self, source: &str, name: &str) -> Result<()> {
        let source = profiled(source);
        let source = source.to_str().context("a path that is no text")?;
        self.output(&["gcc", "-O2", "-g", "-pthread", "-o", name, source]).map(drop)
    }

    /// Standard output of a command that must succeed.
    fn output(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.dir).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot start {}", words[0]))?;
        if !output.status.success() {
            bail!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Records `command` with these options, started by the words before.
    fn record(&self, before: &[&str], options: &[&str], command: &[&str]) -> Result<Recorded> {
        let lwp = self.lwp.to_str().context("a path that is no text")?;
        let record = [lwp, "record", "--time", "-q", "-o", "time.data"];
        let printed = self.output(&[before, &record, options, &["--"], command].concat())?;
        let header = self.output(&[lwp, "script", "--header-only", "-i", "time.data"])?;
        let pairs = header.lines().filter_map(|line| line.strip_prefix("# ")?.split_once(": "));
        let facts = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let bytes = std::fs::metadata(self.dir.join("time.data"))?.len();
        Ok(Recorded { printed, facts, bytes })
    }

    /// The last recording's nanoseconds of each function with what it called.
    fn inclusive(&self, event: &str, names: &[&str]) -> Result<BTreeMap<String, f64>> {
        let lwp = self.lwp.to_str().context("a path that is no text")?;
        let words = [lwp, "export", "-i", "time.data", "-f", "folded", "-e", event, "-o", "folded"];
        self.output(&words)?;
        let folded = std::fs::read_to_string(self.dir.join("folded"))?;
        let mut sums = BTreeMap::new();
        for (stack, ns) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
            let ns: f64 = ns.parse()?;
            for name in names.iter().filter(|name| stack.split(';').any(|it| it == **name)) {
                *sums.entry((*name).to_owned()).or_default() += ns;
            }
        }
        Ok(sums)
    }
}

/// Names and nanoseconds, as a program prints them of itself.
fn said(printed: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ')?;
        Some((name.to_owned(), ns.parse().ok()?))
    };
    printed.lines().filter_map(line).collect()
}

/// A program of the command's tests.
fn profiled(name: &str) -> PathBuf {
    workspace::root().join("crates/lwp-cli/tests/profiled").join(name)
}

/// Returns whether this machine has a tool.
fn has(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Lower quartile, median and upper quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    [1, 2, 3].map(|quarter| values.get(last * quarter / 4).copied().unwrap_or(f64::NAN))
}

/// A JSON document that a command prints.
fn json(place: &Place, words: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&place.output(words)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_measured_values() {
        assert_eq!(quartiles(vec![5.0, 1.0, 3.0, 2.0, 4.0]), [2.0, 3.0, 4.0]);
        assert!(quartiles(Vec::new())[1].is_nan());
        assert_eq!(said("a 5\nb x\nc\n"), [("a".to_owned(), 5.0)].into());
    }
}
