//! The cost of a record of Lightweight Profiling, by its kind, in static and in generated code.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

const PROGRAM: &str = include_str!("records.c");

/// Builds the program, runs it on the virtual CPU, and returns its table.
pub fn measure(lwp: &Path, dir: &Path) -> Result<String> {
    let (source, program) = (dir.join("records.c"), dir.join("records"));
    std::fs::write(&source, PROGRAM)?;
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut gcc = Command::new("gcc");
    let gcc = gcc.args(["-O2", "-mlwp", "-I"]).arg(include).arg("-o").arg(&program).arg(&source);
    if !gcc.status().context("gcc is needed")?.success() {
        bail!("records.c does not compile");
    }
    let mut run = Command::new(lwp);
    let output = run.args(["run", "--cpu", "full", "--"]).arg(&program).output()?;
    if !output.status.success() {
        bail!("records: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let mut table =
        String::from("\n| a record, µs | static code | generated code |\n| --- | ---: | ---: |\n");
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        table += &format!("| {} |\n", line.replace('\t', " | "));
    }
    Ok(table)
}
