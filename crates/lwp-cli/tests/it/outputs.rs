//! Output that cannot be written, and threads that cannot be started: errors with a reason, never
//! panics.
//!
//! Promise: I12
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use lwp_testkit::files::copy_program;

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// What lwp returns when it has failed itself.
const OWN_FAILURE: i32 = 125;

/// A folder with a recording of its own.
fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("outputs-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    let mut record = Command::new(LWP);
    record.args(["record", "-q", "--", "/bin/true"]).current_dir(&dir);
    assert!(run(&mut record, Stdio::null(), Stdio::inherit()).success());
    dir
}

fn run(command: &mut Command, stdout: Stdio, stderr: Stdio) -> ExitStatus {
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).status().expect("it starts")
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("/dev/full").into()
}

/// A pipe that nobody reads.
fn broken() -> Stdio {
    let (_, writer) = std::io::pipe().expect("a pipe");
    writer.into()
}

/// Returns whether a panic ended it: by a code, or by abort where panics do that.
fn panicked(status: ExitStatus) -> bool {
    status.code() == Some(101) || status.signal() == Some(6)
}

/// Every command, and whether what it is about goes to standard output.
#[rustfmt::skip] // A table: one command a line.
const COMMANDS: &[(&str, bool)] = &[
    ("--help",                                         true),
    ("stat --version",                                 true),
    ("run -- /bin/true",                               false),
    ("stat -- /bin/true",                              false),
    ("stat -o - -- /bin/true",                         true),
    ("stat -x, -o - -- /bin/true",                     true),
    ("stat -j -o - --per-thread -- /bin/true",         true),
    ("stat -I 10 -o - -- /bin/sleep 0.05",             true),
    ("stat -v --cache-dir /dev/null/x -- /bin/true",   false),
    ("record -v -o other.data -- /bin/true",           false),
    ("record -c 1000 -o other.data -- /bin/true",      false),
    ("top --once -o - -- /bin/true",                   true),
    ("top --batch -- /bin/true",                       false),
    ("report",                                         true),
    ("report --csv",                                   true),
    ("report --json",                                  true),
    ("report --tree",                                  true),
    ("annotate",                                       true),
    ("annotate --objdump-like",                        true),
    ("flamegraph -o -",                                true),
    ("flamegraph -o flame.svg",                        false),
    ("diff lwp.data lwp.data",                         true),
    ("diff lwp.data lwp.data lwp.data",                true),
    ("gate --limit instructions=1G -o -",              true),
    ("gate --limit instructions=1",                    true),
    ("export -f folded -o -",                          true),
    ("export -f callgrind -o -",                       true),
    ("export -f pprof -o -",                           true),
    ("script",                                         true),
    ("archive -o other.archive",                       false),
    ("archive -o -",                                   true),
    ("merge -o other.data lwp.data lwp.data",          false),
    ("list",                                           true),
    ("cache list",                                     true),
    ("cache verify",                                   true),
    ("completions bash",                               true),
    ("man pages",                                      false),
    ("perf --version",                                 true),
    ("perf script -i lwp.data",                        true),
    ("no-such-command",                                false),
    ("stat -- /no/such/program",                       false),
];

fn command(dir: &Path, words: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300", LWP]).args(words.split(' ')).current_dir(dir);
    command.env("XDG_CACHE_HOME", dir.join("cache"));
    command
}

#[test]
fn a_full_or_broken_output_is_an_error_and_no_panic() {
    let dir = folder("full");
    for (words, prints) in COMMANDS {
        let run = |stdout, stderr| run(&mut command(&dir, words), stdout, stderr);
        let good = run(Stdio::null(), Stdio::null());
        let full_out = run(full(), Stdio::null());
        let failed = full_out.code() == Some(OWN_FAILURE);
        assert!(failed || !prints, "{words} >/dev/full: {full_out}");
        assert!(failed || full_out == good, "{words} >/dev/full: {full_out}");
        // Somebody who has read enough is no error.
        let broken_out = run(broken(), Stdio::null());
        assert_eq!(broken_out, good, "{words} | true");
        for stderr in [full(), broken()] {
            let status = run(Stdio::null(), stderr);
            assert!(!panicked(status), "{words} 2>/dev/full: {status}");
            assert!(status == good || status.code() == Some(OWN_FAILURE), "{words}: {status}");
        }
        let both = run(full(), full());
        assert!(
            !panicked(both) && (!prints || both.code() == Some(OWN_FAILURE)),
            "{words}: {both}"
        );
    }
}

#[test]
fn counts_that_cannot_be_written_are_a_failure() {
    let dir = folder("counts");
    let status = run(&mut command(&dir, "stat -- /bin/true"), Stdio::null(), full());
    assert_eq!(status.code(), Some(OWN_FAILURE));
    // Counts that nobody wants to read are none.
    let status = run(&mut command(&dir, "stat -- /bin/false"), Stdio::null(), full());
    assert!(!panicked(status), "{status}");
    let status = run(&mut command(&dir, "stat -- /bin/false"), Stdio::null(), broken());
    assert_eq!(status.code(), Some(1), "as the program did");
}

#[test]
fn closed_streams_are_no_panic() {
    let dir = folder("closed");
    for (words, _) in COMMANDS {
        for closed in ["1>&-", "2>&-", "0<&- 1>&- 2>&-"] {
            let words = words.replace(',', "','");
            let script = format!("exec timeout -k 1 300 {LWP} {words} {closed}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).current_dir(&dir);
            shell.env("XDG_CACHE_HOME", dir.join("cache"));
            let status = run(&mut shell, Stdio::null(), Stdio::null());
            assert!(!panicked(status), "{words} {closed}: {status}");
        }
    }
}

/// Root is not held to the limit, so another user is needed.
#[test]
fn where_no_thread_may_be_made_lwp_says_so() {
    let can = Command::new("setpriv").arg("--version").output().is_ok_and(|it| it.status.success());
    if !can || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: setpriv and root are needed to run as a user with a limit");
        return;
    }
    // The user must reach the program.
    let lwp = std::env::temp_dir().join(format!("lwp-limited-{}", std::process::id()));
    copy_program(LWP.as_ref(), &lwp);
    for (user, words) in ["stat", "run", "stat -I 10", "record -o /dev/null", "top --batch -D 10"]
        .into_iter()
        .enumerate()
    {
        for processes in 1..=5 {
            let user = 61_000 + user;
            let script = format!("ulimit -u {processes}; exec \"$0\" {words} -- /bin/true");
            let mut command = Command::new("timeout");
            command.args(["-k", "1", "300", "setpriv", "--clear-groups"]);
            command.args([&format!("--reuid={user}"), &format!("--regid={user}")]);
            command.args(["sh", "-c", &script]).arg(&lwp).current_dir("/");
            command.env_remove("XDG_CACHE_HOME").env("HOME", "/nonexistent");
            let output = command.output().expect("it starts");
            let errors = String::from_utf8_lossy(&output.stderr);
            let status = output.status;
            assert!(!panicked(status) && !errors.contains("panicked"), "{words}: {errors}");
            let said = errors.starts_with("lwp: ") && errors.contains("ulimit -u");
            let failed = status.code() == Some(OWN_FAILURE) && said;
            assert!(failed || status.success(), "{words}, {processes}: {status}: {errors}");
        }
    }
    let _ = std::fs::remove_file(lwp);
}
