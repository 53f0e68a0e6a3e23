//! `cargo xtask package`: every crate as crates.io would get it, and the command installed from
//! nothing but that.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{self, cargo};

/// The extent of the trial.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Do not install the command from the packages
    #[arg(long)]
    no_install: bool,
    /// Install a build of the profile dev, which takes less time
    #[arg(long)]
    debug: bool,
}

/// Packages, and installs what was packaged.
pub fn run(options: &Options) -> Result<()> {
    let metadata = workspace::metadata()?;
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    // An empty list is `publish = false`.
    let published =
        packages.iter().filter(|it| it["publish"].as_array().is_none_or(|to| !to.is_empty()));
    let mut names = Vec::new();
    for package in published {
        let name = package["name"].as_str().context("a package without name")?;
        let folder = package["manifest_path"].as_str().context("a package without manifest")?;
        let folder = Path::new(folder).parent().context("a manifest without folder")?;
        if !folder.join("README.md").is_file() {
            bail!("{name} has no README.md");
        }
        for key in ["description", "license", "repository"] {
            if package[key].as_str().is_none_or(str::is_empty) {
                bail!("{name} has no {key}");
            }
        }
        if package["metadata"]["docs"]["rs"].is_null() {
            bail!("{name} has no [package.metadata.docs.rs]");
        }
        names.push(name);
    }
    // Packages that are not published need not be fit for it.
    let mut package = cargo(&["package", "--no-verify", "--allow-dirty"]);
    package.args(names.iter().flat_map(|name| ["-p", name]));
    workspace::run(package)?;
    if options.no_install {
        return Ok(());
    }
    install(&names, packages[0]["version"].as_str().unwrap_or_default(), options.debug)
}

/// Unpacks the packages, and installs the command from them in place of the registry's.
fn install(names: &[&str], version: &str, debug: bool) -> Result<()> {
    let place = workspace::target().join("package-test");
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(place.join(".cargo"))?;
    let mut patches = String::from("[patch.crates-io]\n");
    for name in names {
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(workspace::target().join(format!("package/{name}-{version}.crate")));
        tar.arg("-C").arg(&place);
        workspace::run(tar)?;
        patches
            .push_str(&format!("{name} = {{ path = \"{}/{name}-{version}\" }}\n", place.display()));
    }
    fs::write(place.join(".cargo/config.toml"), patches)?;
    let mut command = cargo(&["install", "--path"]);
    command.current_dir(&place).arg(place.join(format!("lwp-cli-{version}")));
    command.arg("--root").arg(place.join("root")).env("CARGO_TARGET_DIR", place.join("target"));
    if debug {
        command.arg("--debug");
    }
    workspace::run(command)?;
    for program in ["lwp", "cargo-lwp"] {
        if !place.join("root/bin").join(program).is_file() {
            bail!("{program} is not installed");
        }
    }
    let mut lwp = Command::new(place.join("root/bin/lwp"));
    lwp.args(["stat", "-e", "instructions", "--", "/bin/true"]);
    workspace::run(lwp)
}
