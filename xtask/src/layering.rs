//! Crates have levels, and a crate depends only on crates of lower levels: cycles cannot be
//! written, and the pure parts stay free of the operating system. The engine's crates open files in
//! three places only, as their lints say.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

/// The level of packages that exist for development; nothing may depend on them, save tests.
const DEV: u8 = u8::MAX;

/// Every package and its level.
#[rustfmt::skip] // A table: one level a line.
const LEVELS: &[(u8, &[&str])] = &[
    // Facts.
    (0,   &["lwp-arch", "lwp-terminal"]),
    // Pure logic.
    (1,   &["lwp-contexts", "lwp-model", "lwp-uarch", "lwp-dbt", "lwp-profile", "lwp-languages"]),
    // System and formats.
    (2,   &["lwp-process", "lwp-perf", "lwp-symbols", "lwp-unwind", "lwp-facts"]),
    // What a run takes and tells.
    (3,   &["lwp-run"]),
    // Memory shared with its threads.
    (4,   &["lwp-mailbox"]),
    // System calls and /proc.
    (5,   &["lwp-calls"]),
    // Translations, kept and guarded.
    (6,   &["lwp-code"]),
    // Engines.
    (7,   &["lwp-vcpu", "lwp", "lwp-export", "lwp-report", "lwp-reference"]),
    // Product libraries, pages.
    (8,   &["lwp-cpc-core", "lwp-pctx-core", "lwp-page", "lwp-bench", "lwp-time", "lwp-step"]),
    // Edges.
    (9,   &["lwp-cli", "lwp-capi", "lwp-cpc", "lwp-pctx", "cpc-tools"]),
    // Recordings of a fleet.
    (10,  &["lwp-store", "lwp-import"]),
    // Questions to recordings.
    (11,  &["lwp-query"]),
    // The same over the network.
    (12,  &["lwp-serve"]),
    // The edge of the other workspace.
    (13,  &["lwp-fleet"]),
    // The same over several machines.
    (14,  &["lwp-fleet-node"]),
    (DEV, &["lwp-fuzz", "lwp-testkit", "lwp-tests", "xtask"]),
];

/// The package that handles the program's processes. Its lints, and those of the engine's packages
/// above it, forbid to open files in any other way.
const PROCESS: &str = "lwp-process";
/// The level of the engines.
const ENGINE: u8 = 7;

/// One package depending on another of the workspace.
#[derive(Debug, PartialEq, Eq)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    dev: bool,
}

/// Fails if a package has no level, or depends on one that is not below it.
pub fn check() -> Result<()> {
    let metadata = workspace::all_metadata()?;
    let packages = packages(&metadata)?;
    let mut faults = Vec::new();
    for package in &packages {
        if level(package).is_none() {
            faults.push(format!("{package} has no level: add it to LEVELS in xtask"));
        }
    }
    let edges = edges(&metadata, &packages)?;
    faults.extend(edges.iter().filter_map(fault));
    let own = lints_of(PROCESS).context("no lints of the engine")?;
    let engine = edges.iter().filter(|edge| handles_processes(edge)).map(|edge| edge.from);
    for package in engine.filter(|from| lints_of(from).as_ref() != Some(&own)) {
        faults.push(format!("{package} handles processes: link {} to {PROCESS}'s", lints(package)));
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n  "));
    }
    Ok(())
}

/// Returns true if a package of the engine depends on the one that handles processes.
fn handles_processes(edge: &Edge<'_>) -> bool {
    edge.to == PROCESS && !edge.dev && level(edge.from).is_some_and(|level| level <= ENGINE)
}

/// The file with the lints of a package.
fn lints(package: &str) -> String {
    format!("crates/{package}/clippy.toml")
}

fn lints_of(package: &str) -> Option<Vec<u8>> {
    std::fs::read(workspace::root().join(lints(package))).ok()
}

fn level(package: &str) -> Option<u8> {
    let row = LEVELS.iter().find(|(_, packages)| packages.contains(&package));
    row.map(|(level, _)| *level)
}

fn packages(metadata: &Value) -> Result<Vec<&str>> {
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    Ok(packages.iter().filter_map(|package| package["name"].as_str()).collect())
}

/// The dependencies between packages of the workspace.
fn edges<'a>(metadata: &'a Value, packages: &[&str]) -> Result<Vec<Edge<'a>>> {
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().context("metadata without packages")? {
        let from = package["name"].as_str().context("package without name")?;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(to) = dependency["name"].as_str().filter(|name| packages.contains(name))
            else {
                continue;
            };
            edges.push(Edge { from, to, dev: dependency["kind"] == "dev" });
        }
    }
    Ok(edges)
}

/// Returns the fault of `edge`, if it has one. Tests may use the test kit; packages for development
/// may use everything, each other included.
fn fault(edge: &Edge<'_>) -> Option<String> {
    let (from, to) = (level(edge.from)?, level(edge.to)?);
    let allowed = from == DEV || to < from || (edge.dev && edge.to == "lwp-testkit");
    let kind = if edge.dev { "tests of " } else { "" };
    (!allowed).then(|| {
        format!("{kind}{} (level {from}) must not depend on {} (level {to})", edge.from, edge.to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(from: &str, to: &str, dev: bool) -> bool {
        fault(&Edge { from, to, dev }).is_none()
    }

    #[test]
    fn arrows_go_down() {
        assert!(allowed("lwp-vcpu", "lwp-dbt", false));
        assert!(allowed("lwp-cli", "lwp-vcpu", false));
        assert!(!allowed("lwp-dbt", "lwp-process", false));
        assert!(!allowed("lwp-dbt", "lwp-model", false));
        assert!(!allowed("lwp-arch", "lwp-testkit", false));
    }

    #[test]
    fn engines_open_no_files_of_their_own() {
        let handles = |from, dev| handles_processes(&Edge { from, to: PROCESS, dev });
        assert!(handles("lwp-vcpu", false) && handles("lwp-calls", false));
        assert!(!handles("lwp-vcpu", true) && !handles("lwp-cli", false));
    }

    #[test]
    fn tests_may_use_the_test_kit_only() {
        assert!(allowed("lwp-dbt", "lwp-testkit", true));
        assert!(allowed("lwp-tests", "lwp-testkit", false));
        assert!(allowed("lwp-tests", "lwp-cli", false));
        assert!(!allowed("lwp-dbt", "lwp-vcpu", true));
        assert!(!allowed("lwp-dbt", "xtask", true));
    }

    #[test]
    fn no_package_has_two_levels() {
        let mut all: Vec<&str> =
            LEVELS.iter().flat_map(|(_, packages)| *packages).copied().collect();
        let number = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), number);
    }

    #[test]
    fn edges_are_read_from_metadata() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "lwp-dbt", "dependencies": [
                { "name": "iced-x86", "kind": null }, { "name": "lwp-process", "kind": "dev" } ] },
            { "name": "lwp-process", "dependencies": [] },
        ]});
        let packages = packages(&metadata).unwrap();
        let edges = edges(&metadata, &packages).unwrap();
        assert_eq!(edges, [Edge { from: "lwp-dbt", to: "lwp-process", dev: true }]);
    }
}
