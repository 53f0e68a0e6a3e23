//! `cargo xtask coverage`: the lines of the engine that its own tests execute, without a traced
//! program: unit tests of `lwp-dbt` and `lwp-vcpu`, and the tests of `lwp-dbt`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::tree::before_tests;
use crate::workspace::{self, cargo, output, root};

/// The packages, and the tests of each.
const TESTED: &[(&str, &[&str])] = &[("lwp-dbt", &["--lib", "--tests"]), ("lwp-vcpu", &["--lib"])];

/// Builds with counters, runs the tests, and prints a table of lines executed. Says so where the
/// tools are missing.
pub fn check() -> Result<()> {
    let rustc = String::from_utf8(output(version_of_rustc())?)?;
    let (host, llvm) = host_and_llvm(&rustc).context("rustc tells neither host nor LLVM")?;
    let [Some(profdata), Some(cov)] =
        ["llvm-profdata", "llvm-cov"].map(|name| tool(name, host, llvm))
    else {
        eprintln!("coverage: skipped: rustup component add llvm-tools");
        return Ok(());
    };
    let place = workspace::target().join("coverage");
    let counts = place.join("counts");
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts)?;
    let mut programs = Vec::new();
    let mut times = BTreeMap::new();
    for (package, which) in TESTED {
        let built = build(package, which, host, &place)?;
        let start = Instant::now();
        for program in &built {
            test(package, program, &counts)?;
        }
        times.insert((*package).to_owned(), start.elapsed());
        programs.extend(built);
    }
    let lines = lines(&[profdata, cov], &programs, &counts)?;
    print!("{}", table(&lines, &times));
    Ok(())
}

fn version_of_rustc() -> Command {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg("-vV");
    rustc
}

/// The host's triple, and the major version of LLVM, as `rustc -vV` has them.
fn host_and_llvm(text: &str) -> Option<(&str, &str)> {
    let value = |key| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    Some((value("host:")?, value("LLVM version:")?.split('.').next()?))
}

/// A tool of that LLVM: rustup's, or one with its version in its name, or without.
fn tool(name: &str, host: &str, llvm: &str) -> Option<OsString> {
    let fits = |program: &str| {
        let mut command = Command::new(program);
        let said = command.arg("--version").stdin(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&said.stdout)
            .contains(&format!("LLVM version {llvm}."))
            .then(|| program.into())
    };
    let components = sysroot().map(|at| format!("{at}/lib/rustlib/{host}/bin/{name}"));
    let named = [format!("{name}-{llvm}"), name.to_owned()];
    components.into_iter().chain(named).find_map(|program| fits(&program))
}

/// The folder of the toolchain at hand, which has the tools where the component is installed.
fn sysroot() -> Option<String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let said = rustc.args(["--print", "sysroot"]).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8(said.stdout).ok()?.trim().to_owned())
}

/// Builds tests with counters, apart from other builds, and returns the programs.
fn build(package: &str, which: &[&str], host: &str, place: &Path) -> Result<Vec<PathBuf>> {
    // With a target named, build scripts have no counters.
    let mut command = cargo(&["test", "--no-run", "--locked", "--message-format=json"]);
    command.args(["--target", host, "--package", package]).args(which);
    command.env("RUSTFLAGS", "-C instrument-coverage").env("CARGO_TARGET_DIR", place);
    let text = String::from_utf8(output(command)?)?;
    let mut programs = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)?;
        let is_test = message["profile"]["test"] == true;
        programs.extend(message["executable"].as_str().filter(|_| is_test).map(PathBuf::from));
    }
    if programs.is_empty() {
        bail!("{package} has no tests");
    }
    Ok(programs)
}

/// Runs a test program as cargo does: in its package's directory.
fn test(package: &str, program: &Path, counts: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.arg("--quiet").current_dir(root().join("crates").join(package)).stdin(Stdio::null());
    command.env("CARGO_MANIFEST_DIR", root().join("crates").join(package));
    command.env("LLVM_PROFILE_FILE", counts.join("%p-%m.profraw"));
    workspace::run(command)
}

/// Lines of code and lines executed, by package.
type Lines = BTreeMap<String, (u64, u64)>;

/// Adds up the counts of all runs.
fn lines(tools: &[OsString; 2], programs: &[PathBuf], counts: &Path) -> Result<Lines> {
    let [profdata, cov] = tools;
    let merged = counts.join("merged.profdata");
    let mut merge = Command::new(profdata);
    merge.args(["merge", "--sparse", "--failure-mode=all", "-o"]).arg(&merged).arg(counts);
    workspace::run(merge)?;
    let mut export = Command::new(cov);
    export.args(["export", "--format=lcov"]).arg("--instr-profile").arg(&merged);
    let (first, others) = programs.split_first().context("no programs")?;
    export.arg(first);
    for program in others {
        export.arg("--object").arg(program);
    }
    let text = String::from_utf8(output(export)?)?;
    Ok(of_lcov(&text, |file| fs::read_to_string(file).map_or(usize::MAX, |it| before_tests(&it))))
}

/// The lines of each tested package, its test modules left out: `end` is the number of lines of a
/// file before them.
fn of_lcov(text: &str, end: impl Fn(&str) -> usize) -> Lines {
    let mut out = Lines::new();
    let mut file: Option<(&str, usize)> = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("SF:") {
            file = package(name).map(|package| (package, end(name)));
        } else if let (Some(counts), Some((package, end))) = (line.strip_prefix("DA:"), file) {
            let Some((number, count)) = counts.split_once(',') else { continue };
            if number.parse::<usize>().is_ok_and(|number| number <= end) {
                let row = out.entry(package.to_owned()).or_default();
                row.0 += 1;
                row.1 += u64::from(count != "0");
            }
        }
    }
    out
}

/// The tested package that a source file belongs to, if it holds more than tests.
fn package(file: &str) -> Option<&'static str> {
    let tests =
        |within: &str| within.ends_with("tests.rs") || within.split('/').any(|it| it == "tests");
    let holds = |package: &str| {
        let within = file.split_once(&format!("/crates/{package}/src/"));
        within.is_some_and(|(_, within)| !tests(within))
    };
    TESTED.iter().map(|(package, _)| *package).find(|package| holds(package))
}

fn table(lines: &Lines, times: &BTreeMap<String, Duration>) -> String {
    let mut text = String::from("| package | lines | executed | tests take |\n");
    text += "| --- | ---: | ---: | ---: |\n";
    for (package, (all, executed)) in lines {
        let share = *executed as f64 * 100.0 / *all as f64;
        let seconds = times.get(package).map_or(0.0, Duration::as_secs_f64);
        let _ = writeln!(text, "| {package} | {all} | {share:.1} % | {seconds:.0} s |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustc_tells_its_llvm() {
        let text = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.2\n";
        assert_eq!(host_and_llvm(text), Some(("x86_64-unknown-linux-gnu", "22")));
        assert_eq!(host_and_llvm("rustc 1.95.0\n"), None);
        assert_eq!(tool("no-such-tool", "x86_64-unknown-linux-gnu", "22"), None);
    }

    #[test]
    fn lines_are_counted_by_package_and_before_the_tests() {
        let text = "SF:/x/crates/lwp-dbt/src/a.rs\nDA:1,5\nDA:2,0\nDA:9,7\nend_of_record\n\
                    SF:/x/crates/other/src/b.rs\nDA:1,5\nend_of_record\n\
                    SF:/x/crates/lwp-vcpu/src/c.rs\nDA:3,1\n\
                    SF:/x/crates/lwp-vcpu/src/tests/d.rs\nDA:3,0\n";
        let lines = of_lcov(text, |_| 8);
        let row = |package: &str| lines.get(package).copied();
        assert_eq!((row("lwp-dbt"), row("lwp-vcpu")), (Some((2, 1)), Some((1, 1))));
        assert_eq!(lines.len(), 2);
        let shown = table(&lines, &BTreeMap::new());
        assert!(
            shown.ends_with("| lwp-dbt | 2 | 50.0 % | 0 s |\n| lwp-vcpu | 1 | 100.0 % | 0 s |\n")
        );
    }
}
