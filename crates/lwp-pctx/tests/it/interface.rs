//! libpctx.so.1 as C programs see it: names, versions, header, behaviour.
//!
//! Promise: T4, C21
//! Promise: T1: from C

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use lwp_testkit::c_library::{DIALECTS, all_checks, memcheck, readelf};

fn here() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").unwrap().into()
}

/// The library of the same build as this test.
fn library() -> PathBuf {
    // Beside the test: what is a folder higher only `cargo build` brings up to date.
    let library = env::current_exe().unwrap().with_file_name("liblwp_pctx.so");
    assert!(library.exists(), "{}: built with the rlib", library.display());
    library
}

/// A folder of one test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("lwp-pctx-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // As it is installed.
        fs::copy(library(), folder.join("libpctx.so.1")).unwrap();
        std::os::unix::fs::symlink("libpctx.so.1", folder.join("libpctx.so")).unwrap();
        Self(folder)
    }

    fn client(&self) -> PathBuf {
        let program = self.0.join("client");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Werror", "-Wno-unused-parameter", "-I"]);
        compiler.arg(here().join("include")).arg(here().join("tests/client.c"));
        compiler.arg("-o").arg(&program).arg("-L").arg(&self.0).arg("-lpctx");
        compiler.arg(format!("-Wl,-rpath,{}", self.0.display()));
        assert!(compiler.status().unwrap().success());
        program
    }

    /// Runs the client under a timeout and returns what it printed.
    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "300"]).arg(self.client()).args(words);
        command.output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn printed(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn names_and_versions_are_the_list_s() {
    let symbols = readelf("--dyn-syms", &library());
    let mut names: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains(" GLOBAL ") && !line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|name| name.contains('@'))
        .collect();
    names.sort_unstable();
    let list = fs::read_to_string(here().join("abi/libpctx.syms")).unwrap();
    assert_eq!(names, list.lines().collect::<Vec<_>>());
    assert!(readelf("-d", &library()).contains("[libpctx.so.1]"));
}

#[test]
fn the_header_stands_alone() {
    for (compiler, standard) in DIALECTS {
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
        if compiler == "cc" {
            command.args(["-Wstrict-prototypes", "-pedantic", "-x", "c"]);
        } else {
            command.args(["-x", "c++"]);
        }
        let status = command.arg(here().join("include/libpctx.h")).status().unwrap();
        assert!(status.success(), "{compiler} {standard}");
    }
}

#[test]
fn seven_handlers_are_called_in_order() {
    let folder = Folder::new("all");
    let output = folder.run(&["all", "sh", "-c", "exec sh -c 'exit 3'"]);
    let expected = [
        "error in set_events: there is no event 77",
        "init_lwp 1",
        "fini_lwp 1",
        "exec 1 sh -c exit 3",
        "init_lwp 1",
        "fini_lwp 1",
        "exit 1 0x300",
        "run 0",
    ];
    assert_eq!(printed(&output), expected);
    assert!(output.status.success());
}

/// The handler runs in a copy of the controller, with a context of its own. Buffered output is
/// written once. Handlers, ticks, copies of the process and refusals, under memcheck, which has
/// nothing to report.
#[test]
fn memcheck_has_nothing_to_report() {
    let folder = Folder::new("memcheck");
    let client = folder.client();
    let runs = [
        &["all", "sh", "-c", "exec sh -c 'exit 3'"][..],
        &["fork", "sh", "-c", "(exit 5); exit $?"],
        &["stranger", "sleep", "0.1"],
        &["refused", "x"],
    ];
    for words in runs.into_iter().take(if all_checks() { 4 } else { 2 }) {
        if memcheck(&client, words).is_none() {
            return;
        }
    }
}

#[test]
fn forks_are_handled_in_a_copy() {
    let folder = Folder::new("fork");
    let output = folder.run(&["fork", "sh", "-c", "(exit 5); exit $?"]);
    let lines = printed(&output);
    for once in ["fork 1", "child 0", "run 0"] {
        assert_eq!(lines.iter().filter(|line| *line == once).count(), 1, "{once}: {lines:?}");
    }
    assert_eq!(lines.iter().filter(|line| *line == "exit 1 0x500").count(), 2, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("error in")).count(), 1, "{lines:?}");
}

#[test]
fn an_exec_that_nobody_follows_ends_the_run() {
    let folder = Folder::new("plain");
    let output = folder.run(&["plain", "sh", "-c", "exec true"]);
    assert_eq!(printed(&output).last().unwrap(), "run 0");
}

#[test]
fn ticks_are_counted_and_can_end_the_run() {
    let folder = Folder::new("ticks");
    let last = |what| printed(&folder.run(&[what, "sleep", "2"])).split_off(1);
    let ticks = last("ticks");
    // Deadlines that were missed use up ticks.
    assert!(["ticks 1", "ticks 2", "ticks 3"].contains(&&*ticks[0]), "{ticks:?}");
    assert_eq!(ticks[1], "run 0");
    assert_eq!(last("stop"), ["run -1"]);
    assert_eq!(last("terminate"), ["run 0"]);
}

/// Promise: C6: . subcodes 9 and 11 can't occur on Linux
#[test]
fn other_threads_and_handlers_do_no_harm() {
    let folder = Folder::new("stranger");
    let lines = printed(&folder.run(&["stranger", "sleep", "0.1"])).split_off(1);
    let told = |what: &str, line: &str| {
        let expected = format!("error in {what}: process ");
        assert!(line.starts_with(&expected) && line.contains("another thread"), "{lines:?}");
    };
    told("run", &lines[0]);
    assert_eq!(lines[1], "stranger -1 1");
    told("release", &lines[2]);
    assert_eq!(lines[3..], ["run 0"]);
    // A handler that runs its own context again, and one that releases it.
    let lines = printed(&folder.run(&["again", "sleep", "2"])).split_off(1);
    assert!(lines[0].contains("is being run"), "{lines:?}");
    assert_eq!(lines[1..], ["again -1 1", "run 0"]);
}

#[test]
fn refusals_are_told_and_set_errno() {
    let folder = Folder::new("refused");
    let output = folder.run(&["refused", "x"]);
    let lines = printed(&output);
    assert_eq!(lines[0], "error in create: no-such-program: not found");
    assert_eq!(lines[1], "error in capture: a process cannot control itself");
    assert_eq!(output.status.code(), Some(0), "{lines:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told, "libpctx: pctx_create: no-such-program: not found\n");
}
