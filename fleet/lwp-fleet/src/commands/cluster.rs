//! Questions to a cluster: the program lwp-fleet-node asks them, beside this one or on the path.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;

/// The program's name.
const PROGRAM: &str = "lwp-fleet-node";

/// Becomes lwp-fleet-node, which knows the same questions; returns only the reason why it could
/// not.
pub fn execute() -> Failure {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    for program in beside.into_iter().chain([PathBuf::from(PROGRAM)]) {
        let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
        if error.kind() != ErrorKind::NotFound {
            return Failure::new(format!("{}: {error}", program.display()));
        }
    }
    Failure::new(format!("{PROGRAM} is neither beside lwp-fleet nor on the path"))
        .with_help("install it: cargo install lwp-fleet-node")
}
