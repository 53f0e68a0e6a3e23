//! lwp where containers run it: under their filters, without privileges, on a read-only root, in
//! namespaces of its own; and what it says where it cannot work. What the machine does not let a
//! test set up is skipped, and said.
//!
//! Promise: E4: another user, a container's filter
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::tools;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use lwp_testkit::files::copy_program;
use recorded::{LWP, run};
use tools::{has, limited, text};

fn fresh(name: &str) -> PathBuf {
    tools::fresh("containers", name)
}

/// Compiles what runs programs under a container's filter, as `contained`, and a program to be
/// counted, as `program`, which needs nothing of the file system.
fn filtered(name: &str) -> Option<PathBuf> {
    let dir = fresh(name);
    if !recorded::compile(&dir, "contained.c", &["-O1"]) {
        return None;
    }
    std::fs::rename(dir.join("program"), dir.join("contained")).expect("rename");
    recorded::compile(&dir, "sorting.c", &["-O1", "-static"]);
    Some(dir)
}

/// The number that stands before `event` in a report.
fn count(output: &Output, event: &str) -> u64 {
    let report = text(&output.stderr);
    let line = report.lines().find(|line| line.ends_with(event)).unwrap_or_else(|| {
        panic!("no {event}: {report}");
    });
    let number = line.split_whitespace().next().expect("a number").replace(',', "");
    number.parse().unwrap_or_else(|_| panic!("{line}"))
}

fn succeeded(output: Output) -> Output {
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    output
}

/// Returns whether a command that sets something up succeeds here.
fn possible(dir: &Path, command: &[&str]) -> bool {
    let output = limited(dir, command).output().expect("timeout starts");
    if !output.status.success() {
        eprintln!("skipped: {command:?}: {}", text(&output.stderr));
    }
    output.status.success()
}

/// Promise: X1, X2
#[test]
fn counts_are_the_same_under_a_container_s_filter() {
    let Some(dir) = filtered("filter") else { return };
    let stat = [LWP, "stat", "--deterministic", "-e", "instructions", "--", "./program"];
    let free = succeeded(run(&dir, &stat));
    for mode in ["default", "noread"] {
        let output = succeeded(run(&dir, &[&["./contained", mode], &stat[..]].concat()));
        assert_eq!(count(&output, "instructions"), count(&free, "instructions"), "{mode}");
        assert_eq!(output.stdout, free.stdout);
        // Nobody is left to believe that other programs' addresses are the same.
        assert!(text(&output.stderr).starts_with("lwp: personality(2) is refused here"));
        // Processes and threads, and a recording.
        let script = "for i in 1 2 3; do ls / | cat >/dev/null; done; ./program >/dev/null";
        let record = [LWP, "record", "-q", "-o", mode, "--", "/bin/sh", "-c", script];
        succeeded(run(&dir, &[&["./contained", mode], &record[..]].concat()));
        let report = succeeded(run(&dir, &[LWP, "report", "-i", mode, "-s", "comm"]));
        for comm in ["sh", "ls", "cat", "program"] {
            assert!(text(&report.stdout).contains(comm), "{comm}: {}", text(&report.stdout));
        }
    }
}

/// Promise: X5
#[test]
fn where_tracing_is_refused_it_is_said_or_the_program_runs_natively() {
    let Some(dir) = filtered("refused") else { return };
    let old = |words: &[&str]| run(&dir, &[&["./contained", "old", LWP], words].concat());
    let touch = ["/usr/bin/touch", "ran"];
    let refused = old(&[&["stat", "--"], &touch[..]].concat());
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("SYS_PTRACE"), "{}", text(&refused.stderr));
    assert!(!dir.join("ran").exists());

    let native = ["--fallback", "native"];
    let stat = succeeded(old(&[&["stat"], &native[..], &["--"], &touch].concat()));
    assert!(dir.join("ran").exists());
    let report = text(&stat.stderr);
    let reason = "ran natively: tracing the program: Operation not permitted";
    assert!(report.contains("<not counted>      touch-") && report.contains(reason), "{report}");
    // Nothing that looks like a count.
    for line in report.lines().filter(|line| line.contains("instructions")) {
        assert!(line.trim().starts_with("<not counted>"), "{line}");
    }
    for (command, code) in [(&["run"][..], 7), (&["stat"], 0), (&["record", "-q"], 255)] {
        let script = format!("echo out; exit {code}");
        let ended = old(&[command, &native, &["--", "/bin/sh", "-c", &script]].concat());
        assert_eq!((ended.status.code(), text(&ended.stdout)), (Some(code), "out\n".into()));
    }
    let killed = old(&[&["stat"], &native[..], &["--", "/bin/sh", "-c", "kill -9 $$"]].concat());
    assert_eq!(killed.status.signal(), Some(9));
    // A recording of nothing says why there is nothing.
    old(&[&["record", "-q"], &native[..], &["--", "./program"]].concat());
    let report = run(&dir, &[LWP, "report"]);
    assert!(
        text(&report.stderr).contains("was not counted: ran natively"),
        "{}",
        text(&report.stderr)
    );
    // Its time is limited too.
    let slow =
        old(&[&["run", "--timeout", "200"], &native[..], &["--", "/bin/sleep", "60"]].concat());
    assert!(
        slow.status.signal() == Some(15) || slow.status.code() == Some(128 + 15),
        "{}",
        slow.status
    );
}

/// Promise: I9
#[test]
fn doctor_names_what_a_container_refuses() {
    let Some(dir) = filtered("doctor") else { return };
    let line = |mode: &str, name: &str| {
        let output = run(&dir, &["./contained", mode, LWP, "doctor"]);
        let text = text(&output.stdout);
        let line = text.lines().find(|line| line.contains(&format!("  {name:<16} ")));
        (output.status.code(), line.unwrap_or_else(|| panic!("no {name}: {text}")).to_owned())
    };
    let (code, seccomp) = line("default", "seccomp");
    assert_eq!(code, Some(0));
    assert!(seccomp.ends_with("refused: perf_event_open, personality; lwp works"), "{seccomp}");
    assert!(line("default", "layout").1.starts_with("warn"));
    let generated = line("default", "generated code").1;
    assert!(
        generated.contains("lwp notices writes to it by the protection of its pages"),
        "{generated}"
    );
    assert!(line("default", "advice").1.contains("stat -r"));
    let (code, seccomp) = line("old", "seccomp");
    assert_eq!(code, Some(1));
    assert!(seccomp.starts_with("warn") && seccomp.contains("refused: ptrace, "), "{seccomp}");
    assert!(line("old", "ptrace").1.starts_with("FAIL"));
    assert!(line("old", "advice").1.contains("--fallback native"));
}

/// Promise: X3
#[test]
fn without_privileges_and_on_a_read_only_root() {
    let dir = fresh("read_only");
    let inside = |script: &str| {
        let prepare =
            "mount --rbind / root && mount -o remount,bind,ro root && mount -t proc p root/proc";
        let script = format!("{prepare} && exec chroot root /bin/sh -c '{script}'");
        limited(&dir, &["unshare", "-r", "-m", "-p", "-f", "/bin/sh", "-c", &script])
            .env("HOME", "/nonexistent")
            .env_remove("XDG_CACHE_HOME")
            .output()
            .expect("timeout starts")
    };
    std::fs::create_dir(dir.join("root")).expect("directory");
    if !has("unshare") || !inside("true").status.success() {
        eprintln!("skipped: {}", text(&inside("true").stderr));
        return;
    }
    assert!(!inside("touch /written").status.success(), "the root can be written");
    let stat = succeeded(inside(&format!("{LWP} stat -e instructions -- /bin/ls /")));
    assert!(count(&stat, "instructions") > 100_000);
    assert!(text(&stat.stdout).contains("bin"));
    let refused = inside(&format!("cd / && {LWP} record -- /bin/ls"));
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("Read-only file system"), "{}", text(&refused.stderr));
    let doctor = succeeded(inside(&format!("{LWP} doctor")));
    assert!(text(&doctor.stdout).contains("warn  cache "), "{}", text(&doctor.stdout));
}

/// Promise: X3
#[test]
fn another_user_counts_the_same() {
    let dir = fresh("user");
    let other = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "--no-new-privs"];
    // Only root may become another, who must be able to reach lwp.
    if !has("setpriv") || !possible(&dir, &[&other[..], &[LWP, "--version"]].concat()) {
        return;
    }
    let stat =
        [LWP, "stat", "--deterministic", "--no-cache", "-e", "instructions", "--", "/bin/ls", "/"];
    let ours = succeeded(run(&dir, &stat));
    let theirs = succeeded(run(&dir, &[&other[..], &stat].concat()));
    assert_eq!(count(&theirs, "instructions"), count(&ours, "instructions"));
}

/// Promise: X4
#[test]
fn namespaces_hide_nothing_that_it_needs() {
    let dir = fresh("namespaces");
    let unshare = ["unshare", "-U", "-r", "-m", "-p", "-i", "-n", "-f", "--mount-proc"];
    if !has("unshare") || !possible(&dir, &[&unshare[..], &["true"]].concat()) {
        return;
    }
    let inside = |words: &[&str]| succeeded(run(&dir, &[&unshare[..], &[LWP], words].concat()));
    let stat = inside(&["stat", "-e", "instructions", "--", "/bin/sh", "-c", "ls /; echo $$"]);
    assert!(count(&stat, "instructions") > 100_000 && !text(&stat.stderr).contains("not counted"));
    inside(&["record", "-q", "--", "/bin/ls", "/"]);
    let report = succeeded(run(&dir, &[LWP, "report"]));
    assert!(text(&report.stdout).contains("_dl_relocate_object"), "{}", text(&report.stdout));
}

/// Promise: R30
#[test]
fn recordings_say_where_they_were_made() {
    let dir = fresh("where");
    succeeded(run(&dir, &[LWP, "record", "-q", "--", "/bin/true"]));
    let header = |file: &str| recorded::lwp(&dir, &["script", "--header-only", "-i", file]).0;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let known = header("lwp.data");
    let group = known.lines().find_map(|line| line.strip_prefix("# cgroup: ")).unwrap_or("");
    let same = groups.lines().any(|line| line.rsplit(':').next() == Some(group));
    assert!(same || groups.is_empty(), "{group} is not in {groups}");
    assert!(known.contains("# command: /bin/true\n"), "{known}");

    // An engine mounts what it has made for a container over files that are known.
    let id = "5f".repeat(32);
    let made = dir.join("docker/containers").join(&id);
    std::fs::create_dir_all(&made).expect("directory");
    std::fs::write(made.join("hostname"), "inside\n").expect("file");
    let hostname = made.join("hostname");
    let mount = format!("mount --bind {} /etc/hostname", hostname.display());
    let script = format!("{mount} && exec {LWP} record -q -o inside.data -- /bin/true");
    if !possible(&dir, &["unshare", "-r", "-m", "/bin/sh", "-c", &mount]) {
        return;
    }
    succeeded(run(&dir, &["unshare", "-r", "-m", "/bin/sh", "-c", &script]));
    assert!(
        header("inside.data").contains(&format!("# container: {id}\n")),
        "{}",
        header("inside.data")
    );
}

/// Who may make namespaces and mount, without being anybody outside.
const ADMINISTRATOR: [&str; 3] = ["unshare", "-r", "-m"];

/// Returns the instructions of all processes of the name `name` in a report by process.
fn instructions(report: &str, name: &str) -> i64 {
    let number = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [process, number, "instructions"] = words[..] else { return None };
        let named = process.starts_with(&format!("{name}-"));
        named.then(|| number.replace(',', "").parse().expect("a number"))
    };
    let numbers: Vec<i64> = report.lines().filter_map(number).collect();
    assert!(!numbers.is_empty(), "{name}: {report}");
    numbers.iter().sum()
}

/// A root directory of its own: what is there has names that mean something else outside.
///
/// Promise: X6
#[test]
fn programs_with_another_root_are_counted() {
    let dir = fresh("root");
    if !recorded::compile(&dir, "sorting.c", &["-O1", "-static"]) {
        return;
    }
    std::fs::create_dir_all(dir.join("root/bin")).expect("directory");
    copy_program(&dir.join("program"), &dir.join("root/bin/true"));
    let enter = ["/usr/bin/unshare", "-p", "-f", "-R", "root", "/bin/true"];
    if !has("unshare") || !possible(&dir, &[&ADMINISTRATOR, &enter[..]].concat()) {
        return;
    }
    let native = succeeded(run(&dir, &[&ADMINISTRATOR, &enter[..]].concat()));
    let stat = |words: &[&str]| {
        let stat = [LWP, "stat", "--deterministic", "-e", "instructions", "--per-process", "--"];
        succeeded(run(&dir, &[&ADMINISTRATOR, &stat[..], words].concat()))
    };
    let outside = instructions(&text(&stat(&["root/bin/true"]).stderr), "true");
    for _ in 0..2 {
        let inside = stat(&enter);
        assert_eq!(inside.stdout, native.stdout);
        let report = text(&inside.stderr);
        assert!(!report.contains("not counted"), "{report}");
        // The C library looks at the program's path, which is another.
        assert!((instructions(&report, "true") - outside).abs() < 1000, "{outside}: {report}");
    }
    // Nothing is left behind.
    let left: Vec<_> = std::fs::read_dir(dir.join("root")).expect("directory").flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    // Its names are those of the program inside, not of what has the name outside.
    succeeded(run(&dir, &[&ADMINISTRATOR[..], &[LWP, "record", "-q", "--"], &enter[..]].concat()));
    let (report, warnings) = recorded::lwp(&dir, &["report", "-s", "comm,dso,sym"]);
    assert!(
        report.lines().any(|line| line.contains(" true ") && line.ends_with(" hash")),
        "{report}"
    );
    assert_eq!(warnings, "");
}

/// A file system that is mounted in a namespace is gone when the namespace is.
///
/// Promise: X8
#[test]
fn files_that_only_the_program_sees_are_kept() {
    let dir = fresh("mounted");
    if !recorded::compile(&dir, "sorting.c", &["-O1"]) {
        return;
    }
    std::fs::create_dir(dir.join("mounted")).expect("directory");
    let script = "mount -t tmpfs none mounted && cp program mounted/hidden && mounted/hidden";
    let program = ["unshare", "-m", "/bin/sh", "-c", script];
    if !has("unshare") || !possible(&dir, &[&ADMINISTRATOR, &program[..]].concat()) {
        return;
    }
    for options in [&[][..], &["-c", "1009"]] {
        let record = [&ADMINISTRATOR, &[LWP, "record", "-q"], options, &["--"], &program[..]];
        succeeded(run(&dir, &record.concat()));
        assert!(!dir.join("mounted/hidden").exists());
        let (report, warnings) = recorded::lwp(&dir, &["report", "-s", "dso,sym"]);
        assert!(
            report.contains("hidden") && report.lines().any(|line| line.ends_with(" hash")),
            "{report}"
        );
        assert_eq!(warnings, "");
        let (listing, _) = recorded::lwp(&dir, &["annotate", "hash"]);
        assert!(listing.contains("sorting.c:"), "{listing}");
    }
}

/// A container within what lwp runs: a process namespace with its own /proc.
///
/// Promise: X6
#[test]
fn programs_may_make_namespaces() {
    let dir = fresh("made");
    let unshare = ["/usr/bin/unshare", "-m", "-p", "-i", "-n", "-f", "--mount-proc"];
    if !has("unshare") || !possible(&dir, &[&ADMINISTRATOR, &unshare[..], &["true"]].concat()) {
        return;
    }
    let script = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); done; ls /proc/self/exe; echo $$";
    let stat = |unshare: &[&str]| {
        let stat = [LWP, "stat", "--per-process", "--"];
        let program = [unshare, &["/bin/sh", "-c", script]].concat();
        let output = succeeded(run(&dir, &[&ADMINISTRATOR, &stat[..], &program].concat()));
        assert_eq!(text(&output.stdout), "/proc/self/exe\n1\n");
        text(&output.stderr)
    };
    let outside = stat(&unshare);
    // Another user namespace is another owner, whose translated code is apart.
    let inside = stat(&[&unshare[..1], &["-U", "-r"], &unshare[1..]].concat());
    for name in ["sh", "ls"] {
        let counts = [&outside, &inside].map(|report| {
            assert!(!report.contains("not counted"), "{report}");
            instructions(report, name)
        });
        assert!((counts[0] - counts[1]).abs() < 10_000, "{name}: {outside}{inside}");
    }
}

/// Promise: X7
#[test]
fn other_c_libraries_are_counted() {
    let dir = fresh("musl");
    if !has("musl-gcc") {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled/threads.c");
    let source = source.to_str().expect("path is text");
    for flags in [&["-static"][..], &[]] {
        let compile = ["musl-gcc", "-g", "-O1", "-pthread", "-o", "program", source];
        succeeded(run(&dir, &[&compile, flags].concat()));
        let native = run(&dir, &["./program"]);
        for command in
            [&["stat"][..], &["record", "-q"], &["record", "-q", "-c", "1000", "-o", "sampled"]]
        {
            let output = run(&dir, &[&[LWP], command, &["--", "./program"]].concat());
            assert_eq!(
                (output.status, &output.stdout),
                (native.status, &native.stdout),
                "{command:?}"
            );
            assert!(!text(&output.stderr).contains("not counted"), "{}", text(&output.stderr));
        }
        for file in ["lwp.data", "sampled"] {
            let (report, _) = recorded::lwp(&dir, &["report", "-i", file]);
            assert!(report.contains("  work"), "{file}: {report}");
        }
    }
}
