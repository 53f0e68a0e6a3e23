//! The results: a table for people, and JSON.

use std::path::Path;

use serde_json::{Value, json};

use crate::measure::Taken;

/// Rows of results.
pub struct Table(Vec<Value>);

impl Table {
    /// A table without rows; its head is printed.
    pub fn new() -> Self {
        println!("| | processor time | on the wall | memory at most |\n|---|---|---|---|");
        Self(Vec::new())
    }

    /// A row that says what the next ones are about.
    pub fn about(&mut self, what: impl std::fmt::Display) {
        println!("| **{what}** | | | |");
    }

    /// A row of processor time and memory.
    pub fn row(&mut self, what: impl Into<String>, taken: Taken) {
        let what = what.into();
        let Taken { cpu_seconds, wall_seconds, peak_mib } = taken;
        let memory = match peak_mib > 0.0 {
            true => format!("{peak_mib:.0} MiB"),
            false => String::new(),
        };
        println!("| {what} | {cpu_seconds:.3} s | {wall_seconds:.3} s | {memory} |");
        self.0.push(json!({
            "what": what, "cpu_seconds": cpu_seconds, "wall_seconds": wall_seconds,
            "peak_mib": peak_mib
        }));
    }

    /// A row of something else.
    pub fn number(&mut self, what: impl Into<String>, value: f64, unit: &str) {
        let what = what.into();
        println!("| {what} | {value:.2} {unit} | | |");
        self.0.push(json!({ "what": what, "value": value, "unit": unit }));
    }

    /// Writes the rows to a file.
    pub fn write(&self, path: &Path, command: &str) {
        let all = json!({ "command": command, "results": self.0 });
        let text = serde_json::to_string_pretty(&all).expect("JSON");
        std::fs::write(path, text + "\n").expect("a file");
    }
}
