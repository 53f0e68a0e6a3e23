//! `cargo xtask fleet`: the checks of the workspace in `fleet/`, which has a lock file and a target
//! directory of its own.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::deny;
use crate::testing::{Selection, Suite, Variable};
use crate::workspace::{self, cargo};

/// Packages for other systems are not wanted.
const TARGET: &str = "--target=x86_64-unknown-linux-gnu";

/// The directory that cargo builds the fleet in: beside the other packages' where one is set.
fn target() -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(|set| PathBuf::from(set).join("fleet"));
    set.unwrap_or_else(|| workspace::root().join("fleet/target"))
}

/// A cargo command in the fleet's workspace.
fn of_fleet(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.current_dir(workspace::root().join("fleet"));
    command.env("CARGO_TARGET_DIR", target()).env("CARGO_INCREMENTAL", "0");
    command
}

/// The programs that tests find by variables, where nothing else is said and they are here.
fn programs() -> Vec<Variable> {
    // As tests/viewers.sh installs them.
    let viewers = std::env::var_os("LWP_VIEWERS").map(PathBuf::from);
    let viewers = viewers.unwrap_or_else(|| workspace::root().join("target/viewers"));
    let all = [
        ("LWP", workspace::target().join("debug/lwp")),
        ("LWP_MOTO_SERVER", viewers.join("python/bin/moto_server")),
        ("LWP_PYTHON", viewers.join("python/bin/python")),
    ];
    let is_wanted = |(variable, program): &(&str, PathBuf)| {
        program.is_file() && (*variable == "LWP" || std::env::var_os(variable).is_none())
    };
    all.into_iter().filter(is_wanted).map(|(name, path)| (name, path.into())).collect()
}

#[rustfmt::skip] // A table: one tool a line.
/// A tool; the variable that names it; the tests that are skipped without it.
const TOOLS: [(&str, &str, &str); 9] = [
    ("lwp",          "LWP",             "recordings: walk, action, sums, foreign, push, raw"),
    ("cc",           "",                "recordings of small programs: walk, action, foreign"),
    ("git",          "",                "working trees: walk, action, questions"),
    ("curl",         "",                "the action"),
    ("moto_server",  "LWP_MOTO_SERVER", "buckets: bucket, faults, and a cluster of one"),
    ("python3",      "LWP_PYTHON",      "another engine: duckdb"),
    ("chromedriver", "",                "pages in a browser: pages"),
    ("valgrind",     "",                "callgrind: foreign"),
    ("perf",         "",                "perf: foreign"),
];

/// The tools that are neither named by a variable nor on the path, and the tests that are skipped
/// therefore.
fn missing(
    path: &OsStr,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    for (tool, named, of) in TOOLS {
        let named = variable(named).map(PathBuf::from);
        let on_path = || std::env::split_paths(path).map(|dir| dir.join(tool));
        let found = named.or_else(|| on_path().find(|program| program.is_file()));
        match found {
            Some(python) if tool == "python3" && !has_duckdb(&python) => {
                all.push(("duckdb for python", of));
            }
            Some(_) => (),
            None => all.push((tool, of)),
        }
    }
    all
}

fn has_duckdb(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import duckdb"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Builds and lints the fleet and its tests. Returns no suite, and says why, where its packages are
/// neither here nor to be had.
pub fn build() -> Result<Option<Suite>> {
    if let Some(reason) = out_of_reach()? {
        eprintln!(
            "skipped: the fleet is neither built nor tested: its packages cannot be fetched:\n{reason}"
        );
        return Ok(None);
    }
    workspace::run(of_fleet(&["fmt", "--all", "--check"]))?;
    let mut build = of_fleet(&workspace::BUILD);
    workspace::lint(&mut build);
    workspace::run(build)?;
    let selection = Selection::default();
    Ok(Some(Suite { cargo: of_fleet, target: target(), variables: programs(), selection }))
}

/// Runs the fleet's tests, and says which are skipped.
pub fn test(suite: &Suite) -> Result<()> {
    let variable = |name: &str| {
        let set = suite.variables.iter().find(|(set, _)| *set == name);
        set.map(|(_, value)| value.clone()).or_else(|| std::env::var_os(name))
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (tool, of) in missing(&path, &variable) {
        eprintln!("skipped: the fleet's tests of {of}: there is no {tool}");
    }
    suite.run()?;
    deny::checked(&of_fleet)
}

/// Builds, lints and tests the fleet.
pub fn check() -> Result<()> {
    build()?.map_or(Ok(()), |suite| test(&suite))
}

/// Fetches the fleet's packages. Returns cargo's words if they are not here and cannot be
/// downloaded.
///
/// # Errors
///
/// If cargo fails for another reason, such as a lock file that does not fit the manifests.
fn out_of_reach() -> Result<Option<String>> {
    let mut here = of_fleet(&["fetch", "--locked", TARGET, "--offline", "--quiet"]);
    if here.stderr(Stdio::null()).status()?.success() {
        return Ok(None);
    }
    let mut fetch = of_fleet(&["fetch", "--locked", TARGET]);
    let output = fetch.output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(None),
        false if tells_of_a_download(&words) => Ok(Some(words.into_owned())),
        false => bail!("{}: {}\n{words}", workspace::in_a_shell(&fetch), output.status),
    }
}

/// Returns whether cargo says that something could not be downloaded.
fn tells_of_a_download(words: &str) -> bool {
    ["failed to download", "Unable to update registry"].iter().any(|it| words.contains(it))
}

/// The measurements of the fleet.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Measured {
    /// Options of the measurements; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    options: Vec<OsString>,
}

/// Measures stores, questions and the server, with the options that the measurements themselves
/// have.
pub fn measure(measured: &Measured) -> Result<()> {
    let mut bench = of_fleet(&["bench", "--locked", "--workspace", "--bench", "fleet", "--"]);
    bench.args(&measured.options);
    // Cargo starts them in the package's directory; paths are meant from here.
    bench.env("LWP_BENCH_FROM", std::env::current_dir()?);
    workspace::run(bench)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_that_cannot_be_downloaded_excuse_the_fleet() {
        let unreachable = "error: failed to get `flate2` as a dependency of package `lwp-import`\n\n\
            Caused by:\n  failed to download from `https://index.crates.io/config.json`\n";
        assert!(tells_of_a_download(unreachable));
        let stale =
            "error: cannot update the lock file because --locked was passed to prevent this";
        assert!(!tells_of_a_download(stale));
        assert!(!tells_of_a_download("error: failed to run `rustc` to learn about the target"));
    }

    #[test]
    fn tools_that_are_missing_are_named_with_their_tests() {
        let none = missing(OsStr::new(""), &|_| None);
        assert_eq!(none.len(), TOOLS.len());
        assert!(none.contains(&("chromedriver", "pages in a browser: pages")));
        let one = |name: &str| (name == "LWP_MOTO_SERVER").then(|| "/opt/moto_server".into());
        let rest = missing(OsStr::new(""), &one);
        assert!(!rest.iter().any(|(tool, _)| *tool == "moto_server"), "{rest:?}");
        // A python without the engine is as good as none.
        let python = |name: &str| (name == "LWP_PYTHON").then(|| "/bin/false".into());
        let rest = missing(OsStr::new(""), &python);
        assert!(rest.iter().any(|(tool, _)| *tool == "duckdb for python"), "{rest:?}");
    }
}
