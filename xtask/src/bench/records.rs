//! The cost of a record of Lightweight Profiling, by its kind, in static and in generated code.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

const PROGRAM: &str = include_str!("records.c");
const PROGRAM_2007: &str = include_str!("records_2007.c");

/// Builds the programs, runs them on the virtual CPU, and returns their table.
pub fn measure(lwp: &Path, dir: &Path) -> Result<String> {
    let mut table =
        String::from("\n| a record, µs | static code | generated code |\n| --- | ---: | ---: |\n");
    table += &rows(lwp, dir, ("records", PROGRAM), &["--cpu", "full"])?;
    table += &rows(lwp, dir, ("records_2007", PROGRAM_2007), &["--revision", "2007"])?;
    Ok(table)
}

/// The rows of one program.
fn rows(lwp: &Path, dir: &Path, (name, text): (&str, &str), options: &[&str]) -> Result<String> {
    let (source, program) = (dir.join(name).with_extension("c"), dir.join(name));
    std::fs::write(&source, text)?;
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut gcc = Command::new("gcc");
    let gcc = gcc.args(["-O2", "-mlwp", "-I"]).arg(include).arg("-o").arg(&program).arg(&source);
    if !gcc.status().context("gcc is needed")?.success() {
        bail!("{name}.c does not compile");
    }
    let mut run = Command::new(lwp);
    let output = run.arg("run").args(options).arg("--").arg(&program).output()?;
    if !output.status.success() {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    Ok(printed.lines().map(|line| format!("| {} |\n", line.replace('\t', " | "))).collect())
}
