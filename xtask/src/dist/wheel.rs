//! A Python wheel with the commands, by maturin: `pip install lwp-profiler`.

use std::process::Command;

use anyhow::Result;

use super::{Release, statically};
use crate::workspace::{self, root};

/// Makes the wheel, or says why there is none.
pub fn build(release: &Release) -> Result<()> {
    let maturin = std::env::var_os("MATURIN").unwrap_or_else(|| "maturin".into());
    let known = Command::new(&maturin).arg("--version").output();
    if !known.is_ok_and(|output| output.status.success()) {
        eprintln!("xtask: no wheel: there is no maturin (pip install maturin, or MATURIN=...)");
        return Ok(());
    }
    let mut command = Command::new(maturin);
    command.current_dir(root()).args([
        "build",
        "--profile",
        "release-lto",
        "--target",
        release.target,
    ]);
    // Nothing of it depends on the machine's C library.
    command.args(["--compatibility", "manylinux2014"]);
    command.args(["-m", "crates/lwp-cli/Cargo.toml", "--out"]).arg(&release.out);
    workspace::run(statically(command))
}
