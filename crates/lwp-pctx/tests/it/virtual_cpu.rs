//! libpctx on the virtual CPU, where ptrace is the host's own and the host is asked instead:
//! programs hear the same as natively. Skipped where `lwp` is not built.
#![allow(clippy::print_stderr, reason = "a test that is skipped says why")]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn here() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").unwrap().into()
}

/// The command `lwp` of the same build, if there is one.
fn lwp() -> Option<PathBuf> {
    let test = env::current_exe().unwrap();
    let lwp = test.parent().unwrap().parent().unwrap().join("lwp");
    if !lwp.exists() {
        eprintln!("skipped: {} is not built", lwp.display());
        return None;
    }
    Some(lwp)
}

/// A folder of one test's own, removed with it, with the library as it is installed.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("lwp-pctx-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let library = env::current_exe().unwrap().with_file_name("liblwp_pctx.so");
        fs::copy(library, folder.join("libpctx.so.1")).unwrap();
        std::os::unix::fs::symlink("libpctx.so.1", folder.join("libpctx.so")).unwrap();
        Self(folder)
    }

    fn compile(&self, source: &str) -> PathBuf {
        let program = self.0.join(source.trim_end_matches(".c"));
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Werror", "-Wno-unused-parameter", "-pthread"]);
        compiler.arg("-I").arg(here().join("include")).arg(here().join("tests").join(source));
        compiler.arg("-o").arg(&program).arg("-L").arg(&self.0).arg("-lpctx");
        compiler.arg(format!("-Wl,-rpath,{}", self.0.display()));
        assert!(compiler.status().unwrap().success());
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs these words under a timeout.
fn run(words: &[&str]) -> Output {
    Command::new("timeout").args(["-k", "1", "300"]).args(words).output().unwrap()
}

/// Standard output, without the numbers of processes.
fn printed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let known = |word: &&str| word.len() < 3 || word.parse::<u32>().is_err();
    let line = |line: &str| line.split(' ').filter(known).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Standard output, with the lines of the copy that controls a new process after the others: it
/// ends when its process has, and the one that it was copied from when its own has, in whichever
/// order.
fn printed_by_each(output: &Output) -> String {
    let text = printed(output);
    let lines: Vec<&str> = text.lines().collect();
    let place = |begin: &str| lines.iter().position(|line| line.starts_with(begin));
    let (Some(first), Some(last)) = (place("fork "), place("child ")) else { return text };
    if last < first {
        return text;
    }
    [&lines[..first], &lines[last + 1..], &lines[first..=last]].concat().join("\n")
}

/// Every scenario of the client that stands for the manual pages: handlers, their order, forks in a
/// copy, ticks, ends.
///
/// Promise: T11
#[test]
fn clients_hear_the_same() {
    let Some(lwp) = lwp() else { return };
    let folder = Folder::new("virtual");
    let client = folder.compile("client.c");
    let scenarios: &[&[&str]] = &[
        &["all", "sh", "-c", "exec sh -c 'exit 3'"],
        &["all", "sh", "-c", "kill -KILL $$"],
        &["fork", "sh", "-c", "(exit 5); exit $?"],
        &["plain", "sh", "-c", "exec true"],
        &["plain", "sh", "-c", "(exit 3); exit $?"],
        &["stop", "sleep", "2"],
        &["terminate", "sleep", "2"],
        &["stranger", "sleep", "0.1"],
        &["again", "sleep", "2"],
        &["refused", "x"],
    ];
    for words in scenarios {
        let natively = run(&[&[client.to_str().unwrap()], *words].concat());
        let virtually = run(&[
            &[lwp.to_str().unwrap(), "run", "--", client.to_str().unwrap()],
            *words,
        ]
        .concat());
        assert_eq!(printed_by_each(&virtually), printed_by_each(&natively), "{words:?}");
        assert_eq!(virtually.status, natively.status, "{words:?}: {virtually:?}");
        assert_eq!(virtually.stderr, natively.stderr, "{words:?}");
    }
}

/// Requests that are wrong, or of what is not the program's to control, are refused, and harm
/// nobody. Guardians that die leave nobody standing.
///
/// Promise: T12
#[test]
fn hostile_requests_are_refused() {
    let Some(lwp) = lwp() else { return };
    let folder = Folder::new("hostile");
    let client = folder.compile("wards.c");
    let output = run(&[lwp.to_str().unwrap(), "run", "--", client.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{output:?}");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// A process beside the run is beyond reach, and says so.
///
/// Promise: T12
#[test]
fn processes_beside_the_run_are_out_of_reach() {
    let Some(lwp) = lwp() else { return };
    let folder = Folder::new("beside");
    let client = folder.compile("wards.c");
    let mut beside = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = beside.id().to_string();
    let output = run(&[lwp.to_str().unwrap(), "run", "--", client.to_str().unwrap(), &pid]);
    let _ = beside.kill();
    let _ = beside.wait();
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = format!("capture: process {pid} is not on the virtual CPU: ");
    assert!(text.starts_with(&expected) && text.contains("from outside"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}
