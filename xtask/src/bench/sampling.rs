//! The cost of a sample of libcpc: the C program of crate `lwp-cpc`, natively and on the virtual
//! CPU.

use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace;

/// Measures with the library in `release`, working in `dir`, and returns a table.
pub fn table(lwp: &Path, release: &Path, dir: &Path) -> Result<String> {
    let library = dir.join("libcpc.so.1");
    std::fs::copy(release.join("liblwp_cpc.so"), &library)
        .with_context(|| format!("no library in {}", release.display()))?;
    symlink("libcpc.so.1", dir.join("libcpc.so"))?;
    let parts = workspace::root().join("crates/lwp-cpc");
    let program = dir.join("sample");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O2", "-I"]).arg(parts.join("include"));
    compiler.arg(parts.join("benches/sample.c")).arg("-o").arg(&program);
    compiler.arg("-L").arg(dir).arg("-lcpc").arg(format!("-Wl,-rpath,{}", dir.display()));
    workspace::run(compiler)?;
    let mut translated = Command::new(lwp);
    translated.args(["run", "--"]).arg(&program);
    let mut text =
        "\n| a sample | requests | where | ns |\n| --- | ---: | --- | ---: |\n".to_owned();
    for (place, command) in [("native", Command::new(&program)), ("lwp run", translated)] {
        let printed = workspace::output(command)?;
        rows(&mut text, &String::from_utf8(printed)?, place)?;
    }
    Ok(text)
}

/// A row for each line that the program has printed: counters, requests, nanoseconds.
fn rows(text: &mut String, printed: &str, place: &str) -> Result<()> {
    for line in printed.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().with_context(|| format!("not a result: {line}"));
        let (counters, requests, ns) = (word()?, word()?, word()?.parse::<f64>()?);
        writeln!(text, "| {counters} | {requests} | {place} | {ns:.0} |")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_made_of_three_words() {
        let mut text = String::new();
        rows(&mut text, "lwp 2 120.7\nsoftware 1 353.1\n", "native").unwrap();
        assert_eq!(text, "| lwp | 2 | native | 121 |\n| software | 1 | native | 353 |\n");
        assert!(rows(&mut text, "lwp 2\n", "native").is_err());
        assert!(rows(&mut text, "lwp 2 many\n", "native").is_err());
    }
}
