//! Programs that are linked with their relocations, without which BOLT cannot move functions.
//!
//! Flags for the compiler would replace those of a package's configuration, and build all of its
//! dependencies again. So cargo calls the compiler through this program, for packages of the
//! workspace only, and programs get one more option.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The variable that tells cargo what to call the compiler through.
const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";
/// The variable that makes this program call the compiler. It has the value that the other one had.
const THROUGH: &str = "CARGO_LWP_RUSTC_WRAPPER";

/// Makes a command of cargo's call compilers through the program `own`.
pub fn keep(cargo: &mut Command, own: &Path) {
    let theirs = env::var_os(WRAPPER).unwrap_or_default();
    cargo.env(WRAPPER, own).env(THROUGH, theirs);
    if env::var_os("CARGO_PROFILE_RELEASE_STRIP").is_none() {
        // BOLT finds functions by their symbols.
        cargo.env("CARGO_PROFILE_RELEASE_STRIP", "none");
    }
}

/// Returns whether cargo calls us with these arguments in place of a compiler.
pub fn is_compiling(arguments: &[OsString]) -> bool {
    let first = arguments.first().map(Path::new);
    let is_path = first.is_some_and(|first| first.components().count() > 1);
    let named = first.and_then(Path::file_name).is_some_and(|name| name == "rustc");
    env::var_os(THROUGH).is_some() && (is_path || named)
}

/// Calls the compiler with its arguments, through what cargo would have called it through.
pub fn compile(arguments: &[OsString]) -> Result<ExitCode, String> {
    let theirs = env::var_os(THROUGH).filter(|it| !it.is_empty()).map(PathBuf::from);
    let words = theirs.iter().map(|it| it.as_os_str()).chain(arguments.iter().map(|it| &**it));
    let words: Vec<&OsStr> = words.collect();
    let (program, rest) = words.split_first().ok_or("no compiler is named")?;
    let mut command = Command::new(program);
    command.args(rest);
    if is_program(arguments) {
        command.args(["-C", "link-arg=-Wl,--emit-relocs"]);
    }
    super::status(&mut command)
}

/// Returns whether a compiler with these arguments makes a program.
fn is_program(arguments: &[OsString]) -> bool {
    arguments.windows(2).any(|pair| pair[0] == "--crate-type" && pair[1] == "bin")
        || arguments.iter().any(|word| word == "--crate-type=bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_from_libraries() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(is_program(&words("rustc --crate-name a --crate-type bin --emit=link")));
        assert!(is_program(&words("rustc --crate-type=bin")));
        assert!(!is_program(&words("rustc --crate-name bin --crate-type lib")));
        assert!(!is_program(&words("rustc -vV")));
        // Without the variable, nothing is a compiler.
        assert!(!is_compiling(&words("/bin/rustc -vV")));
    }
}
