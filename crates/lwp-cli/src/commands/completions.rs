//! `lwp completions` and `lwp man`, both made from the definition of the command line.

use std::path::Path;

use clap_complete::Shell;

use super::print_bytes;
use crate::args;
use crate::ending::Ending;
use crate::failure::Failure;

/// Prints the completion script for `shell`.
pub fn script(shell: Shell) -> Result<Ending, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::definition(), "lwp", &mut script);
    print_bytes(&script)?;
    Ok(Ending::SUCCESS)
}

/// Writes `lwp.1` and a page for each subcommand into `dir`.
pub fn manual(dir: &Path) -> Result<Ending, Failure> {
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(args::definition(), dir));
    written.map_err(|error| Failure::io(dir.display(), &error))?;
    Ok(Ending::SUCCESS)
}
