//! The cost of an indirect branch through the indirect table, and through a cache of one target at
//! its site.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

const PROGRAM: &str = include_str!("dispatch.c");

/// Builds and runs the program, and returns its table.
pub fn measure(dir: &Path) -> Result<String> {
    let (source, program) = (dir.join("dispatch.c"), dir.join("dispatch"));
    std::fs::write(&source, PROGRAM)?;
    // Absolute addresses in its assembly are 32 bits wide.
    let built =
        Command::new("gcc").args(["-O2", "-no-pie", "-o"]).arg(&program).arg(&source).status();
    if !built.context("gcc is needed")?.success() {
        bail!("dispatch.c does not compile");
    }
    let output = Command::new(&program).output()?;
    if !output.status.success() {
        bail!("dispatch: {}", output.status);
    }
    Ok(format!("\nan indirect branch:\n\n{}", String::from_utf8_lossy(&output.stdout)))
}
