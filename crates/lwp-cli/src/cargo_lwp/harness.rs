//! Benchmarks as cargo starts them: what their harness makes of a count.
//!
//! Rust's own harness repeats a benchmark until it finds its time settled, so that a count says
//! nothing. Without `--bench` it runs benchmarks once each, as tests. Crate lwp-bench prints counts
//! of its own, beside which those of the whole program only confuse.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The option by which cargo starts a benchmark through this program.
pub const RUN: &str = "--run-benchmark";

/// A text of the harness that comes with Rust, from its list of options.
const OF_LIBTEST: &[u8] = b"List all tests and benchmarks";
/// A text of lwp-bench's.
const OF_LWP_BENCH: &[u8] = b"nothing is counted here: run it by `cargo lwp bench`";

/// Runs a benchmark: lwp with its options, `--`, the program with its arguments.
pub fn run(words: &[OsString]) -> Result<ExitCode, String> {
    let end = words.iter().position(|word| word == "--");
    let parts = end.map(|end| (&words[..end], &words[end + 1..]));
    let Some(([lwp, options @ ..], [program, arguments @ ..])) = parts else {
        return Err(format!("{RUN} is for cargo"));
    };
    let file = std::fs::read(program)
        .map_err(|error| format!("{}: {error}", Path::new(program).display()))?;
    let mut command = Command::new(lwp);
    command.args(options);
    if contains(&file, OF_LWP_BENCH) {
        if options.first().is_some_and(|first| first == "stat") {
            command.args(["-o", "/dev/null"]);
        }
        command.arg("--").arg(program).args(arguments);
    } else if contains(&file, OF_LIBTEST) {
        let names = benchmarks(program, arguments)?;
        if names.is_empty() {
            return super::status(Command::new(program).args(arguments));
        }
        lwp_terminal::say!(
            "cargo-lwp: {} benchmarks of Rust's own harness (#[bench]) run once each; the count is \
             that of all of them and the harness. Crate lwp-bench counts each on its own",
            names.len()
        );
        command.arg("--").arg(program).args(["--exact", "--test-threads=1"]).args(names);
    } else {
        command.arg("--").arg(program).args(arguments);
    }
    super::status(&mut command)
}

fn contains(file: &[u8], text: &[u8]) -> bool {
    file.windows(text.len()).any(|window| window == text)
}

/// The benchmarks of a program of Rust's own harness that its arguments choose.
fn benchmarks(program: &OsString, arguments: &[OsString]) -> Result<Vec<String>, String> {
    let chosen = arguments.iter().filter(|word| *word != "--bench");
    let listed = Command::new(program).args(chosen).args(["--list", "--format", "terse"]).output();
    let listed = listed.map_err(|error| format!("{}: {error}", Path::new(program).display()))?;
    Ok(names(&String::from_utf8_lossy(&listed.stdout)))
}

/// The names of benchmarks in a harness's list.
fn names(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": benchmark")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_are_told_from_tests() {
        let list = "tests::adds: test\nbench_u64: benchmark\nm::bench: benchmark\n\n1 test\n";
        assert_eq!(names(list), ["bench_u64", "m::bench"]);
        assert!(contains(b"abc", b"bc") && !contains(b"abc", b"abcd"));
        assert!(run(&["lwp".into(), "stat".into()]).is_err());
    }
}
