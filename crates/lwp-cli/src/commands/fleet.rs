//! `lwp fleet`: the program lwp-fleet, beside lwp or on the path.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};

/// The program's name.
const PROGRAM: &str = "lwp-fleet";

/// Becomes lwp-fleet.
pub fn execute(words: &[OsString]) -> Result<Ending, Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    for program in beside.into_iter().chain([PathBuf::from(PROGRAM)]) {
        let error = Command::new(&program).args(words).exec();
        if error.kind() != ErrorKind::NotFound {
            return Err(Failure::io(program.display(), &error));
        }
    }
    let missing = format!("{PROGRAM} is neither beside lwp nor on the path");
    let help = "install it from a checkout of lwp: cargo install --locked --path fleet/lwp-fleet";
    Err(Failure::new(OWN_FAILURE, missing).with_help(help))
}
