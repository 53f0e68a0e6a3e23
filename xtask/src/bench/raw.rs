//! Raw results as JSON: every time of every run, with the command and the machine that made them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::table::Cell;
use super::ways::Way;
use super::workloads::Workload;
use crate::workspace::root;

/// A measurement, as the tables have it.
pub struct Results<'a> {
    /// The measured binary.
    pub lwp: &'a Path,
    /// The rows.
    pub workloads: &'a [Workload],
    /// The columns.
    pub ways: &'a [Way],
    /// A row of cells for each program.
    pub cells: &'a [Vec<Cell>],
    /// The remarks on programs and ways that are missing.
    pub notes: &'a [String],
    /// The other tables, each with its name, as Markdown.
    pub tables: &'a [(&'static str, String)],
}

/// Creates the file, so that a wrong name fails before an hour of measuring.
pub fn create(place: &Path) -> Result<()> {
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), fs::create_dir_all)?;
    fs::write(place, "").with_context(|| format!("cannot write {}", place.display()))
}

/// Writes the results to `place`.
pub fn write(place: &Path, results: &Results<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for (workload, cells) in results.workloads.iter().zip(results.cells) {
        let row = results.ways.iter().zip(cells);
        rows.extend(row.filter_map(|(way, cell)| run(workload.name, way.name, cell)));
    }
    let tables =
        results.tables.iter().map(|(name, text)| ((*name).to_owned(), text.as_str().into()));
    let document = json!({
        "command": command(std::env::args_os().skip(1)),
        "lwp": said(Command::new(results.lwp).arg("--version")),
        "commit": said(Command::new("git").args(["describe", "--always", "--dirty"])),
        "machine": machine(),
        "runs": rows,
        "notes": results.notes,
        "tables": tables.collect::<serde_json::Map<String, Value>>(),
    });
    let text = serde_json::to_string_pretty(&document)? + "\n";
    fs::write(place, text).with_context(|| format!("cannot write {}", place.display()))
}

/// The runs of one program in one way; `None` if that way does not measure the program.
fn run(program: &str, way: &str, cell: &Cell) -> Option<Value> {
    match cell {
        Cell::Times(times) => {
            let seconds: Vec<f64> = times.iter().map(std::time::Duration::as_secs_f64).collect();
            Some(json!({ "program": program, "way": way, "seconds": seconds }))
        }
        Cell::Failed(cause) => Some(json!({ "program": program, "way": way, "failed": cause })),
        Cell::NotApplicable => None,
    }
}

/// The command, with paths of this machine reduced to the names of their files.
fn command(words: impl Iterator<Item = impl AsRef<OsStr>>) -> String {
    let short = |word: &OsStr| {
        let name = Path::new(word).file_name().filter(|_| Path::new(word).is_absolute());
        name.unwrap_or(word).to_string_lossy().into_owned()
    };
    let words = words.map(|word| short(word.as_ref()));
    ["cargo".to_owned(), "xtask".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// Facts about the machine; no name of it.
fn machine() -> Value {
    let value = |file: &str, key: &str| {
        let text = fs::read_to_string(PathBuf::from("/proc").join(file)).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned())
    };
    json!({
        "processor": value("cpuinfo", "model name"),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": value("meminfo", "MemTotal"),
        "kernel": value("sys/kernel/osrelease", ""),
        "load": value("loadavg", ""),
    })
}

/// The first line that a command prints, run in the tree; `None` where it fails.
fn said(command: &mut Command) -> Option<String> {
    let output = command.current_dir(root()).output().ok().filter(|it| it.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::ways;

    #[test]
    fn commands_keep_no_paths_of_the_machine() {
        let words = ["bench", "--lwp", "/opt/build/lwp", "--json", "bench/results/a.json"];
        let expected = "cargo xtask bench --lwp lwp --json bench/results/a.json";
        assert_eq!(command(words.iter()), expected);
    }

    #[test]
    fn every_run_is_written() {
        let workload = |name| Workload {
            name,
            short: false,
            many_processes: false,
            command: vec!["x".into()],
        };
        let (mut ways, _) = ways::all("lwp".as_ref(), false, false);
        ways.truncate(3);
        let times = [250, 500].map(Duration::from_millis).to_vec();
        let cells = [vec![Cell::Times(times), Cell::Failed("late".into()), Cell::NotApplicable]];
        let place = std::env::temp_dir().join(format!("lwp-raw-{}.json", std::process::id()));
        create(&place).unwrap();
        let results = Results {
            lwp: "false".as_ref(),
            workloads: &[workload("gzip")],
            ways: &ways,
            cells: &cells,
            notes: &["a note".to_owned()],
            tables: &[("memory", "| a |\n".to_owned())],
        };
        write(&place, &results).unwrap();
        let document: Value = serde_json::from_slice(&fs::read(&place).unwrap()).unwrap();
        fs::remove_file(&place).unwrap();
        let runs = json!([
            { "program": "gzip", "way": "native", "seconds": [0.25, 0.5] },
            { "program": "gzip", "way": "lwp run", "failed": "late" },
        ]);
        assert_eq!(document["runs"], runs);
        assert_eq!(document["lwp"], Value::Null);
        assert_eq!(document["tables"]["memory"], "| a |\n");
        assert!(document["machine"]["processors"].as_u64() > Some(0), "{document}");
    }
}
