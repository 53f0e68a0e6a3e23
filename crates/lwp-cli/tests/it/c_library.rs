//! What is said of the C library, which moves the counts of programs that have not changed.
//!
//! Promise: R39

use crate::shared::tools;

use std::path::Path;
use std::process::Output;

use tools::{fresh, has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");
const NOTICE: &str = "malloc and other functions may differ between builds of the C library";

fn run(dir: &Path, command: &[&str]) -> Output {
    limited(dir, command).output().expect("timeout starts")
}

/// Runs a command, which must succeed; what it printed on standard output and error.
fn succeeds(dir: &Path, command: &[&str]) -> (String, String) {
    let output = run(dir, command);
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// Makes a library whose function turns so often, and records a program that calls it.
fn record_with(dir: &Path, library: &str, rounds: &str, recording: &str) {
    let source = "int f(void) { volatile int n = ROUNDS; while (n) n--; return n; }\n";
    std::fs::write(dir.join("library.c"), source).expect("source");
    std::fs::write(dir.join("main.c"), "int f(void); int main(void) { return f(); }\n")
        .expect("source");
    let rounds = format!("-DROUNDS={rounds}");
    let soname = format!("-Wl,-soname,{library}");
    let shared = ["gcc", "-shared", "-fPIC", "-Wl,--build-id", &soname, &rounds, "-o", library];
    succeeds(dir, &[&shared[..], &["library.c"]].concat());
    let place = format!("-Wl,-rpath,{}", dir.to_str().expect("path is text"));
    succeeds(dir, &["gcc", "-o", "program", "main.c", library, &place]);
    succeeds(dir, &[LWP, "record", "-q", "-o", recording, "--", "./program"]);
}

/// Another build of the C library is named, and what that means, by diff and gate; another build of
/// any other library is only named.
#[test]
fn another_c_library_is_named_as_what_may_have_moved_counts() {
    if !has("gcc") {
        return;
    }
    // A version that no system has, so that the program keeps its own C library beside it.
    for (library, told) in [("libc.so.99", 1), ("libx.so.99", 0)] {
        let dir = fresh("c_library", library);
        record_with(&dir, library, "1000", "before.data");
        record_with(&dir, library, "2000", "lwp.data");
        let commands: [&[&str]; 4] = [
            &["diff", "before.data", "lwp.data"],
            &["diff", "before.data", "lwp.data", "lwp.data"],
            &["gate", "--baseline", "before.data", "-l", "instructions=+900%"],
            &["gate", "--baseline", "before.data", "-l", "instructions=+900%", "-f", "markdown"],
        ];
        for command in commands {
            let (printed, _) = succeeds(&dir, &[&[LWP], command].concat());
            let lines = printed.lines().filter(|line| line.contains(NOTICE)).count();
            assert_eq!(lines, told, "{command:?}: {printed}");
            assert!(command.contains(&"markdown") || printed.contains(library), "{printed}");
        }
        let (same, _) = succeeds(&dir, &[LWP, "diff", "lwp.data", "lwp.data"]);
        assert!(!same.contains(NOTICE), "{same}");
    }
}

/// Counts of a deterministic run hold as far as the C library is the same: it says which one that
/// is, once. What is not deterministic, or has no C library of its own, says nothing, nor does -q.
#[test]
fn deterministic_recordings_say_which_c_library_their_counts_hold_for() {
    if !has("gcc") || !has("readelf") {
        return;
    }
    let dir = fresh("c_library", "deterministic");
    std::fs::write(dir.join("main.c"), "int main(void) { return 0; }\n").expect("source");
    succeeds(&dir, &["gcc", "-o", "program", "main.c"]);
    succeeds(&dir, &["gcc", "-static", "-o", "static", "main.c"]);
    let said = |options: &[&str], program: &str| {
        let (_, errors) = succeeds(&dir, &[&[LWP, "record"], options, &["--", program]].concat());
        let lines = errors.lines().filter(|line| line.contains("these counts hold for"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = said(&["--deterministic"], "./program");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let (loaded, _) = succeeds(&dir, &["ldd", "./program"]);
    let library = loaded.lines().find(|line| line.contains("libc.so")).expect("a C library");
    let path = library.split_whitespace().nth(2).expect("a path");
    let (notes, _) = succeeds(&dir, &["readelf", "-n", path]);
    let build = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).expect("a name");
    let build = build.expect("a build id");
    assert_eq!(*line, format!("lwp: these counts hold for {name}, build id {build}"));
    assert!(said(&["--deterministic", "-q"], "./program").is_empty());
    assert!(said(&[], "./program").is_empty());
    assert!(said(&["--deterministic"], "./static").is_empty());
}
