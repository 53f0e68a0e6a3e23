//! Programs of `tests/profiled`, and lwp run on them.

use std::path::Path;
use std::process::Output;

use super::tools::{has, limited, text};

pub const LWP: &str = env!("CARGO_BIN_EXE_lwp");

pub fn run(dir: &Path, command: &[&str]) -> Output {
    limited(dir, command).output().expect("timeout starts")
}

/// Runs lwp, which must succeed; what it printed on standard output and error.
pub fn lwp(dir: &Path, arguments: &[&str]) -> (String, String) {
    let output = run(dir, &[&[LWP], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// Compiles a program of `tests/profiled`; false where there is no compiler.
pub fn compile(dir: &Path, name: &str, flags: &[&str]) -> bool {
    let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
    if !has(compiler) {
        return false;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(name);
    let source = source.to_str().expect("path is text");
    let output = run(dir, &[&[compiler, "-g", "-o", "program", source], flags].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    true
}
