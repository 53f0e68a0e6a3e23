//! `cargo xtask check`: what a change touches, checked in minutes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use crate::testing::Selection;
use crate::workspace::{self, cargo};
use crate::{ci, layering, tree, unsafe_budget};

/// What counts as the change.
#[derive(Args, Debug)]
pub struct Options {
    /// Everything since this commit, and what is not committed
    #[arg(long, value_name = "COMMIT", default_value = "HEAD")]
    since: String,
}

/// Checks the rules of the tree, lints everything that has to be compiled, and runs the quick tests
/// of the packages that have changed.
pub fn run(options: &Options) -> Result<()> {
    let files = changed(&options.since)?;
    let packages = packages_of(&files, &workspace::metadata()?)?;
    workspace::run(cargo(&["fmt", "--all", "--check"]))?;
    layering::check()?;
    unsafe_budget::check()?;
    tree::check(&tree::Options::default())?;
    if packages.is_empty() {
        eprintln!("no package of this workspace has changed since {}", options.since);
        return Ok(());
    }
    let names: Vec<&str> = packages.iter().map(String::as_str).collect();
    eprintln!("changed: {}", names.join(", "));
    let packages = packages.into_iter().collect();
    ci::test(&Selection { packages, quick: true, ..Selection::default() })
}

/// The files that differ from a commit, and those that git does not know.
fn changed(since: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for words in [
        &["diff", "--name-only", "-z", since][..],
        &["ls-files", "-z", "--others", "--exclude-standard"],
    ] {
        let mut git = Command::new("git");
        git.args(words).current_dir(workspace::root());
        let names = String::from_utf8(workspace::output(git)?)?;
        files.extend(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from));
    }
    Ok(files)
}

/// The packages that have any of these files in their folders.
fn packages_of(files: &[PathBuf], metadata: &Value) -> Result<BTreeSet<String>> {
    let root = metadata["workspace_root"].as_str().context("metadata without a root")?;
    let mut all = BTreeSet::new();
    for package in metadata["packages"].as_array().context("metadata without packages")? {
        let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
        let folder = Path::new(manifest).parent().context("a manifest without a folder")?;
        let folder = folder.strip_prefix(root)?;
        if files.iter().any(|file| file.starts_with(folder)) {
            all.insert(package["name"].as_str().context("a package without a name")?.to_owned());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_those_whose_folders_have_the_files() {
        let package = |name: &str| serde_json::json!({"name": name, "manifest_path": format!("/w/crates/{name}/Cargo.toml")});
        let metadata = serde_json::json!({
            "workspace_root": "/w",
            "packages": [package("lwp"), package("lwp-arch"), package("cpc")],
        });
        let files = ["crates/lwp-arch/src/lib.rs", "crates/cpc/Cargo.toml", "README.md"];
        let files = files.map(PathBuf::from);
        let found = packages_of(&files, &metadata).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["cpc", "lwp-arch"]);
    }
}
