//! `cargo xtask dist`: everything that a release consists of, in `target/dist`.
//!
//! The commands are linked statically, so that one file runs on every x86-64 Linux; the C libraries
//! are not, because the programs that load them bring a C library along.

mod deb;
mod stage;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{self, cargo, root};

/// The parts that are left out.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Write to DIR instead of target/dist
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Make no Debian package
    #[arg(long)]
    no_deb: bool,
    /// Make no Python wheel, which needs maturin
    #[arg(long)]
    no_wheel: bool,
}

/// The target whose C library is part of a program.
const MUSL: &str = "x86_64-unknown-linux-musl";
/// The target whose C library can be.
const GNU: &str = "x86_64-unknown-linux-gnu";

/// The release.
#[derive(Debug)]
pub struct Release {
    /// The version of all crates.
    pub version: String,
    /// The target of the commands.
    pub target: &'static str,
    /// The directory in which the commands were built.
    pub commands: PathBuf,
    /// The directory in which the C libraries were built.
    pub libraries: PathBuf,
    /// The destination of everything.
    pub out: PathBuf,
}

impl Release {
    /// The name of files about it.
    pub fn name(&self) -> String {
        format!("lwp-{}-x86_64-linux", self.version)
    }
}

/// Builds and packs.
pub fn run(options: &Options) -> Result<()> {
    let target = if has_target(MUSL)? { MUSL } else { GNU };
    let built = workspace::target();
    let out = options.out.clone().unwrap_or_else(|| built.join("dist"));
    let release = Release {
        version: version()?,
        target,
        commands: built.join(target).join("release-lto"),
        libraries: built.join("release-lto"),
        out,
    };
    if release.out.exists() {
        fs::remove_dir_all(&release.out)?;
    }
    fs::create_dir_all(&release.out)?;
    workspace::run(statically(cargo(&[
        "build",
        "--profile",
        "release-lto",
        "--target",
        target,
        "-p",
        "lwp-cli",
        "-p",
        "cpc-tools",
    ])))?;
    let libraries = ["-p", "lwp-capi", "-p", "lwp-cpc", "-p", "lwp-pctx"];
    let command = cargo(&[&["build", "--profile", "release-lto"], &libraries[..]].concat());
    workspace::run(without_lines(command))?;
    check_static(&release.commands.join("lwp"))?;
    stage::tarball(&release)?;
    stage::image(&release)?;
    if !options.no_deb {
        deb::package(&release)?;
    }
    if !options.no_wheel {
        wheel::build(&release)?;
    }
    fs::copy(root().join("packaging/install.sh"), release.out.join("install.sh"))?;
    checksums(&release.out)?;
    eprintln!("xtask: {} has:", release.out.display());
    for entry in fs::read_dir(&release.out)? {
        eprintln!("  {}", entry?.file_name().display());
    }
    Ok(())
}

/// `command` with the C library linked into what it builds for GNU's target; musl's is by itself.
pub fn statically(mut command: Command) -> Command {
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    without_lines(command)
}

/// `command` without line tables, four fifths of what it would build. Names remain.
fn without_lines(mut command: Command) -> Command {
    command.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    command
}

/// Returns whether programs can be built for `target` here.
fn has_target(target: &str) -> Result<bool> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir", "--target", target]);
    let folder = String::from_utf8(workspace::output(rustc)?)?;
    Ok(Path::new(folder.trim()).join("self-contained").is_dir())
}

fn version() -> Result<String> {
    let metadata = workspace::metadata()?;
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    let cli = packages.iter().find(|package| package["name"] == "lwp-cli");
    let version = cli.and_then(|package| package["version"].as_str());
    Ok(version.context("lwp-cli has no version")?.to_owned())
}

/// Fails if a program needs a library.
fn check_static(program: &Path) -> Result<()> {
    let mut readelf = Command::new("readelf");
    readelf.args(["-W", "-d"]).arg(program);
    let text = String::from_utf8_lossy(&workspace::output(readelf)?).into_owned();
    let needed: Vec<&str> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    if !needed.is_empty() {
        bail!("{} is not static:\n{}", program.display(), needed.join("\n"));
    }
    Ok(())
}

/// Writes `SHA256SUMS` of the files in `dir`.
fn checksums(dir: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let mut sum = Command::new("sha256sum");
    sum.current_dir(dir).arg("--").args(names);
    fs::write(dir.join("SHA256SUMS"), workspace::output(sum)?)?;
    Ok(())
}
