//! The results: a table for people, and JSON.

use std::path::Path;

use serde_json::{Value, json};

use crate::measure::Taken;

/// Rows of results.
#[derive(Default)]
pub struct Table(Vec<Value>);

impl Table {
    /// A row of processor time and memory.
    pub fn row(&mut self, what: impl Into<String>, taken: Taken) {
        let (what, seconds, mib) = (what.into(), taken.cpu_seconds, taken.peak_mib);
        println!("| {what} | {seconds:.3} s | {mib:.0} MiB |");
        self.0.push(json!({ "what": what, "cpu_seconds": seconds, "peak_mib": mib }));
    }

    /// A row of something else.
    pub fn number(&mut self, what: impl Into<String>, value: f64, unit: &str) {
        let what = what.into();
        println!("| {what} | {value:.2} {unit} | |");
        self.0.push(json!({ "what": what, "value": value, "unit": unit }));
    }

    /// Writes the rows to a file.
    pub fn write(&self, path: &Path, command: &str) {
        let all = json!({ "command": command, "results": self.0 });
        let text = serde_json::to_string_pretty(&all).expect("JSON");
        std::fs::write(path, text + "\n").expect("a file");
    }
}
