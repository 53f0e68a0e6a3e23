//! lwp without privileges, beside programs that the kernel hides from it.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use lwp_testkit::files::copy_program;
use lwp_tests::{Job, TempDir, compile_tool, find_tool, lwp_binary};

/// A process that hides its memory from others of its user hides it from an lwp without privileges,
/// too: it goes on as it does natively, and so do its children, threads and programs.
///
/// Promise: X3
#[test]
fn processes_that_cannot_be_looked_into() {
    if find_tool("setpriv").is_none() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, who may look into all, and setpriv");
        return;
    }
    let dir = TempDir::new();
    copy_program(&compile_tool("hidden"), &dir.path().join("hidden"));
    copy_program(lwp_binary(), &dir.path().join("lwp"));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let as_user = |command: &str| {
        let script = format!("setpriv --reuid 54321 --clear-groups {command}; echo $?");
        let argv = ["/bin/sh", "-c", &script].map(OsString::from).to_vec();
        let outcome = Job::new(argv, Duration::from_secs(120)).run(dir.path(), dir.path());
        let [stdout, stderr] =
            [&outcome.stdout, &outcome.stderr].map(|it| String::from_utf8_lossy(it));
        assert_eq!(stderr, "", "{command}");
        stdout.into_owned()
    };
    let natively = as_user("./hidden");
    assert!(natively.ends_with("6\n"), "{natively}");
    for lwp in ["run", "stat -o /dev/null", "stat -i -o /dev/null"] {
        assert_eq!(as_user(&format!("./lwp {lwp} --no-cache -- ./hidden")), natively, "{lwp}");
    }
}

/// A sandbox that allows what its program calls itself, and kills for anything else: threads get
/// contexts that were mapped before, and copies that fork makes run natively.
///
/// Promise: B12
#[test]
fn sandboxes_that_kill_for_other_calls_live_on() {
    if find_tool("setpriv").is_none() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to have less, and setpriv");
        return;
    }
    let dir = TempDir::new();
    copy_program(&compile_tool("sandbox"), &dir.path().join("sandbox"));
    copy_program(lwp_binary(), &dir.path().join("lwp"));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    for command in ["./sandbox", "./lwp run -- ./sandbox", "./lwp stat -o /dev/null -- ./sandbox"] {
        let script = format!("setpriv --reuid 54321 --clear-groups {command}; echo $?");
        let argv = ["/bin/sh", "-c", &script].map(OsString::from).to_vec();
        let outcome = Job::new(argv, Duration::from_secs(120)).run(dir.path(), dir.path());
        let [stdout, stderr] =
            [&outcome.stdout, &outcome.stderr].map(|it| String::from_utf8_lossy(it));
        assert_eq!(stdout, "threads 5\nforks 5\nat once 20\n0\n", "{command}: {stderr}");
    }
}
