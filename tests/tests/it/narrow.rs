//! 32-bit programs: `lwp` executes them one instruction at a time. Natively, they must do the same;
//! a plain stepper written in C must count the same.
//!
//! Skipped where `gcc -m32` makes no program: `tests/multiarch.sh` installs what it needs.
//!
//! Promise: L1

use lwp_tests::{TempDir, compile_tool, lwp_binary};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const EVENTS: &str = "instructions,branches,branches-taken,conditional-branches,conditional-taken,calls,returns,\
                      indirect-branches";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace").to_owned()
}

/// Compiles a file of the workspace; `None` where the compiler cannot.
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
fn built(dir: &Path, name: &str, source: &str, flags: &str) -> Option<PathBuf> {
    let program = dir.join(name);
    let made = Command::new("gcc")
        .args(flags.split(' '))
        .arg("-I")
        .arg(workspace().join("include"))
        .arg("-o")
        .args([&program, &workspace().join(source)])
        .output()
        .expect("gcc starts");
    if !made.status.success() {
        let messages = String::from_utf8_lossy(&made.stderr);
        eprintln!("skipped: gcc {flags}: {messages}\ntests/multiarch.sh installs what -m32 needs");
        return None;
    }
    // A kernel without 32-bit programs refuses this one.
    let runs = Command::new(&program).arg("leaf").output().is_ok();
    if !runs {
        eprintln!("skipped: this kernel runs no 32-bit programs");
    }
    runs.then_some(program)
}

fn run(program: &Path, arguments: &[&Path]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin");
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn lwp(options: &[&str], command: &[&Path]) -> Output {
    let options = options.iter().map(Path::new);
    let separator = Some(Path::new("--")).into_iter();
    let all: Vec<&Path> = options.chain(separator).chain(command.iter().copied()).collect();
    run(Path::new(&lwp_binary()), &all)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The values of perf's JSON lines, in the order of their events' names.
fn values(json: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let word = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let value = word("counter-value");
        (word("event"), value.split('.').next().unwrap_or_default().to_owned())
    };
    let mut rows: Vec<_> = json.lines().filter(|line| line.starts_with('{')).map(row).collect();
    rows.sort();
    rows
}

/// Counts by the stepper in C.
fn stepped(program: &Path, dir: &Path) -> Vec<(String, String)> {
    let file = dir.join("stepped");
    run(&compile_tool("stepcount"), &[&file, program]);
    values(&std::fs::read_to_string(file).expect("counts"))
}

fn counted(command: &[&Path]) -> Vec<(String, String)> {
    values(&text(&lwp(&["stat", "-j", "-o", "-", "-e", EVENTS], command).stdout))
}

/// Spec: LWP §5.2, §10
#[test]
fn lwp_spec_10_the_published_sequence_under_lwp_run() {
    let dir = TempDir::new();
    for flags in ["-m32 -O0 -static", "-m32 -O1", "-m32 -O2 -static", "-m32 -O3 -mlwp -static"] {
        let Some(program) = built(dir.path(), "sequence", "tests/lwp/sequence.c", flags) else {
            return;
        };
        let outcome = lwp(&["run"], &[&program]);
        assert_eq!(outcome.status.code(), Some(0), "{flags}: {}", text(&outcome.stderr));
        let printed = text(&outcome.stdout);
        let want = "9 entries in ring buffer\n4 LWPVAL instructions, 5 LWPINS instructions\n";
        assert!(printed.ends_with(want), "{flags}: {printed}");
        assert!(text(&outcome.stderr).contains("is a 32-bit program: lwp executes it one"));
    }
}

#[test]
fn counts_of_32_bit_programs_are_those_of_a_plain_stepper() {
    let dir = TempDir::new();
    for flags in ["-m32 -O0 -static", "-m32 -O2 -static", "-m32 -O3"] {
        let Some(program) = built(dir.path(), "plain", "tests/narrow/plain.c", flags) else {
            return;
        };
        let native = run(&program, &[]);
        let outcome = lwp(&["run"], &[&program]);
        assert_eq!((outcome.status.code(), &outcome.stdout), (Some(4), &native.stdout), "{flags}");
        let got: Vec<_> =
            counted(&[&program]).into_iter().filter(|(event, _)| !event.is_empty()).collect();
        assert_eq!(got, stepped(&program, dir.path()), "{flags}");
    }
}

/// Forms that 64-bit mode lacks; two loads of SS, behind which the plain stepper misses an
/// instruction each, one of them a jump. The numbers are counted by hand.
#[test]
fn forms_that_64_bit_mode_lacks_are_counted() {
    let dir = TempDir::new();
    let flags = "-m32 -nostdlib -static";
    let Some(program) = built(dir.path(), "forms", "tests/narrow/forms.S", flags) else { return };
    let got = counted(&[&program]);
    let want = [
        ("branches", "15"),
        ("branches-taken", "13"),
        ("calls", "2"),
        ("conditional-branches", "7"),
        ("conditional-taken", "5"),
        ("indirect-branches", "2"),
        ("instructions", "72"),
        ("returns", "1"),
    ];
    let want: Vec<_> = want.map(|(event, count)| (event.to_owned(), count.to_owned())).into();
    assert_eq!(got, want);
}

#[test]
fn signals_threads_children_and_exec_in_both_directions_are_as_natively() {
    let dir = TempDir::new();
    let source = "tests/narrow/chain.c";
    let make = |name, flags| built(dir.path(), name, source, flags);
    let Some(narrow) = make("narrow", "-m32 -O1 -pthread -static") else { return };
    let wide = make("wide", "-O1 -pthread -static").expect("gcc is needed");
    let native = run(&narrow, &[&wide, &narrow]);
    assert_eq!(native.status.code(), Some(5), "{}", text(&native.stderr));
    let outcome = lwp(&["run"], &[&narrow, &wide, &narrow]);
    assert_eq!(outcome.status.code(), Some(5), "{}", text(&outcome.stderr));
    assert_eq!(text(&outcome.stdout), text(&native.stdout));
}

#[test]
fn options_that_cannot_be_had_are_named() {
    let dir = TempDir::new();
    let flags = "-m32 -nostdlib -static";
    let Some(program) = built(dir.path(), "forms", "tests/narrow/forms.S", flags) else { return };
    for (options, named) in [
        (&["stat", "--deterministic"][..], "--deterministic: not for 32-bit programs"),
        (&["stat", "-I", "100"], "-I: not for 32-bit programs"),
        (&["stat", "--model"], "--model: not for 32-bit programs"),
        (&["record", "-c", "10"], "sampling: not for 32-bit programs"),
        (&["record", "--call-graph", "exact"], "--call-graph exact: not for 32-bit programs"),
    ] {
        let outcome = lwp(options, &[&program]);
        assert_eq!(outcome.status.code(), Some(125), "{options:?}");
        let errors = text(&outcome.stderr);
        assert!(errors.contains(named) && errors.contains("\nhelp: "), "{options:?}: {errors}");
    }
}

#[test]
fn a_recording_of_a_32_bit_program_has_all_that_is_counted() {
    let dir = TempDir::new();
    let flags = "-m32 -O0 -static";
    let Some(program) = built(dir.path(), "plain", "tests/narrow/plain.c", flags) else { return };
    let file = dir.path().join("data");
    let place = file.to_string_lossy().into_owned();
    let outcome = lwp(&["record", "-o", &place], &[&program]);
    assert_eq!(outcome.status.code(), Some(4), "{}", text(&outcome.stderr));
    let report = run(Path::new(&lwp_binary()), &[Path::new("report"), Path::new("-i"), &file]);
    let report = text(&report.stdout);
    let counts = stepped(&program, dir.path());
    let (_, all) = counts.iter().find(|(event, _)| event == "instructions").expect("a count");
    let digits: String = report.chars().filter(|letter| *letter != ',').collect();
    assert!(digits.contains(&format!("instructions: {all} ")), "{all}: {report}");
    // Functions of 32-bit files have no names yet.
    assert!(report.contains("plain+0x"), "{report}");
}
