//! What `lwp` says and returns before any program runs.
//!
//! Promise: I5
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::path::PathBuf;
use std::process::{Command, Output};

use lwp_testkit::files::copy_program;

fn lwp(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lwp"));
    command.args(arguments).output().expect("lwp starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("errors are text")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is text")
}

/// A fresh directory under the build's own temporary directory.
fn directory(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("directory");
    dir
}

#[test]
fn usage_errors_are_lwp_s_own() {
    for arguments in [&["stat"][..], &["stat", "--frob", "true"], &["fly"], &[]] {
        let output = lwp(arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(stderr(&output).starts_with("lwp: "), "{}", stderr(&output));
    }
}

/// Promise: I13
#[test]
fn refusals_say_why_and_how_to_go_on() {
    let cases: [(&[&str], &str, &str); 10] = [
        (&["stats", "ls"], "unrecognized subcommand 'stats'", "similar subcommand exists: 'stat'"),
        (&["stat"], "required arguments were not provided", "usage: lwp stat <PROGRAM>..."),
        (&["stat", "--evnt", "x"], "unexpected argument '--evnt'", "argument exists: '--event'"),
        (&["-e", "branches", "stat", "ls"], "unexpected argument '-e'", "`lwp --help` lists"),
        // A number is the option's value, not an argument of the program.
        (&["stat", "-r", "-1", "ls"], "invalid value '-1' for '--repeat <N>'", "--help says which"),
        (&["stat", "-I", "-1", "ls"], "invalid value '-1' for '--interval", "--help says which"),
        (&["record", "--duration", "-1", "ls"], "'-1' is no duration", "give seconds, as in"),
        (&["record", "-F", "-1", "ls"], "invalid value '-1' for '--freq", "--help says which"),
        (&["record", "-c", "-1", "ls"], "'-1' is no interval", "a number of events"),
        (&["diff"], "lwp.data.old: No such file", "a second `lwp record` keeps"),
    ];
    let dir = directory("refusals");
    for (words, cause, help) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lwp"));
        let output = command.args(words).current_dir(&dir).output().expect("lwp starts");
        let says = stderr(&output);
        let (why, advice) = says.split_once("\nhelp: ").expect("help");
        assert!(why.starts_with("lwp: ") && why.contains(cause), "{says}");
        assert!(advice.contains(help), "{says}");
        assert!(!says.contains("For more information"), "{says}");
    }
}

/// A newcomer who types the command alone reads why it failed, and then the whole help.
///
/// Promise: I13
#[test]
fn a_missing_command_is_named_before_the_help() {
    for words in [&[][..], &["cache"]] {
        let says = stderr(&lwp(words));
        let help = stdout(&lwp(&[words, &["--help"]].concat()));
        assert_eq!(says, format!("lwp: a command is missing\n\n{help}"), "{words:?}");
    }
}

#[test]
fn limits_in_the_environment_are_read_or_named() {
    let says = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lwp"));
        command.args(["list"]).env_remove("LWP_CACHE_LIMIT").env_remove("LWP_BUILDS_LIMIT");
        stderr(&command.env(name, value).output().expect("lwp starts"))
    };
    for name in ["LWP_CACHE_LIMIT", "LWP_BUILDS_LIMIT"] {
        let expected =
            format!("lwp: {name}=lots is not a number of bytes such as 500M; the limit is 2G\n");
        assert_eq!(says(name, "lots"), expected);
        assert_eq!([says(name, "1K"), says(name, "")], ["", ""]);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let help = lwp(&["--help"]);
    assert!(help.status.success());
    assert!(stdout(&help).contains("stat"));
    let version = lwp(&["stat", "--version"]);
    assert!(version.status.success());
    assert!(stdout(&version).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_fleet_s_program_is_missed_by_name() {
    let dir = directory("fleet-alone");
    let alone = dir.join("lwp");
    copy_program(env!("CARGO_BIN_EXE_lwp").as_ref(), &alone);
    let output = Command::new(&alone).args(["fleet", "list"]).env("PATH", &dir).output();
    let output = output.expect("lwp starts");
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        stderr(&output),
        "lwp: lwp-fleet is neither beside lwp nor on the path\n\
         help: install it from a checkout of lwp: cargo install --locked --path fleet/lwp-fleet\n"
    );
    assert_eq!(stdout(&output), "");
}

/// Options are promises. What has changed on purpose is taken over with
/// `LWP_BLESS=1 cargo test -p lwp-cli --test command_line`, and looked at in the difference.
///
/// Promise: I14
#[test]
fn help_lists_the_options_that_it_did() {
    const COMMANDS: [&str; 18] = [
        "stat",
        "run",
        "record",
        "report",
        "annotate",
        "flamegraph",
        "diff",
        "gate",
        "merge",
        "optimize",
        "export",
        "serve",
        "script",
        "archive",
        "top",
        "cache",
        "list",
        "doctor",
    ];
    for command in COMMANDS {
        let help = stdout(&lwp(&[command, "-h"]));
        let trimmed: Vec<&str> = help.lines().map(str::trim_end).collect();
        let help = trimmed.join("\n") + "\n";
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/help/{command}.txt"));
        if std::env::var_os("LWP_BLESS").is_some() {
            std::fs::write(&path, &help).expect("it can be written");
        }
        let agreed = std::fs::read_to_string(&path).expect("it can be read");
        assert!(help == agreed, "{command} -h is now:\n{help}");
    }
}

/// Promise: I1
#[test]
fn unknown_events_are_errors_with_suggestions() {
    let output = lwp(&["stat", "-e", "instuctions", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let expected = "lwp: unknown event 'instuctions'\n\
                    help: did you mean 'instructions'? `lwp list` shows all events\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn missing_programs_end_with_127() {
    for verb in ["stat", "run"] {
        let help = "help: no directory of PATH has it; a program here is ./NAME\n";
        for (program, help) in [("no-such-program-anywhere", help), ("./no/such/file", "")] {
            let output = lwp(&[verb, "--", program]);
            assert_eq!(output.status.code(), Some(127), "{verb} {program}");
            assert_eq!(stderr(&output), format!("lwp: {program}: not found\n{help}"));
        }
    }
}

#[test]
fn programs_that_cannot_be_executed_end_with_126() {
    let dir = directory("not-executable");
    let file = dir.join("notes.txt");
    std::fs::write(&file, "no program\n").expect("file");
    let file = file.to_str().expect("name is text");
    let output = lwp(&["stat", "--", file]);
    assert_eq!(output.status.code(), Some(126));
    assert_eq!(stderr(&output), format!("lwp: {file}: Permission denied\n"));
    let output = lwp(&["run", "--", dir.to_str().expect("name is text")]);
    assert_eq!(output.status.code(), Some(126));
}

#[test]
fn output_files_are_opened_before_anything_runs() {
    let dir = directory("output");
    let witness = dir.join("ran");
    let witness = witness.to_str().expect("name is text");
    let output = lwp(&["stat", "-o", "/no/such/dir/file", "--", "/bin/touch", witness]);
    assert_eq!(output.status.code(), Some(125));
    let expected = "lwp: /no/such/dir/file: No such file or directory\n\
                    help: name another file with -o FILE\n";
    assert_eq!(stderr(&output), expected);
    assert!(!std::path::Path::new(witness).exists());
}

#[test]
fn control_lines_are_checked_first() {
    let output = lwp(&["stat", "--control", "pipe:3", "--", "/bin/true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("lwp: invalid control line 'pipe:3'\nhelp: "));
    let output = lwp(&["stat", "--control", "fd:999", "--", "/bin/true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("lwp: /proc/self/fd/999: "));
}

#[test]
fn list_names_every_event_once() {
    let output = lwp(&["list"]);
    assert!(output.status.success());
    let text = stdout(&output);
    for event in ["instructions", "branches OR branch-instructions", "calls", "task-clock"] {
        let lines = text.lines().filter(|line| line.starts_with(&format!("  {event} ")));
        assert_eq!(lines.count(), 1, "{event}\n{text}");
    }
}

/// Promise: I9, I15
#[test]
fn doctor_says_ok_or_how_to_get_there() {
    let output = lwp(&["doctor"]);
    assert!(matches!(output.status.code(), Some(0 | 1)));
    let text = stdout(&output);
    // What was found differs from machine to machine; what was looked at does not.
    let checks: Vec<String> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("help: "))
        .map(|line| {
            let (status, rest) = line.split_at(6);
            assert!(["OK    ", "warn  ", "FAIL  "].contains(&status), "{line}");
            let (name, detail) = rest.split_at(17);
            assert!(!detail.is_empty() && !detail.starts_with(' '), "{line}");
            name.trim_end().to_owned()
        })
        .collect();
    let expected = "kernel, ptrace scope, tracer, container, shared memory, mappings, overcommit, address space, \
                    processor, hidden features, limits, layout, processors, branch table, hardware PMU, vdso, \
                    huge pages, cache, generated code, seccomp, ptrace, fixed addresses, trial, \
                    single steps, advice";
    assert_eq!(checks.join(", "), expected, "{text}");
    assert_eq!(output.status.success(), !text.contains("FAIL"), "{text}");
    // Where these tests run, programs can be run: the trial says how far it came.
    let trial = text.lines().find(|line| line.contains("trial")).expect("a trial");
    assert!(trial.starts_with("OK") && trial.contains("instructions in"), "{text}");
}

/// What would stop a program is named, with a remedy, and the exit code says so.
///
/// Promise: I9
#[test]
fn doctor_finds_what_is_wrong() {
    for (limit, named) in [("-n 20", "open files"), ("-f 100", "the size of files")] {
        let script = format!("ulimit {limit}; exec \"$0\" doctor");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).arg(env!("CARGO_BIN_EXE_lwp"));
        let output = command.output().expect("start a shell");
        let text = stdout(&output);
        let line = text.lines().find(|line| line.contains("limits  ")).expect("limits");
        if line.starts_with("OK") && limit.starts_with("-f") {
            // Privileged, lwp raises its hard limit.
            assert!(output.status.success(), "{text}");
            continue;
        }
        assert!(line.starts_with("FAIL") && line.contains(named), "{text}");
        assert!(text.contains("help: raise it"), "{text}");
        assert_eq!(output.status.code(), Some(1), "{text}");
    }
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = lwp(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        assert!(stdout(&output).contains("per-thread"), "{shell}");
    }
    assert_eq!(lwp(&["completions", "tcsh"]).status.code(), Some(125));
}

#[test]
fn manual_has_a_page_for_every_command() {
    let dir = directory("man").join("man1");
    let output = lwp(&["man", dir.to_str().expect("name is text")]);
    assert!(output.status.success(), "{}", stderr(&output));
    for page in ["lwp.1", "lwp-stat.1", "lwp-run.1", "lwp-doctor.1"] {
        let text = std::fs::read_to_string(dir.join(page)).expect(page);
        assert!(text.contains(".TH"), "{page}");
    }
}

/// What is written for other programs is what those programs read.
///
/// Promise: I11
#[test]
fn shells_and_manual_viewers_read_what_is_written() {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.inspect_err(|error| eprintln!("skipped: {program}: {error}")).ok()
    };
    let script =
        format!("source <({} completions bash) && complete -p lwp", env!("CARGO_BIN_EXE_lwp"));
    if let Some(output) = run("bash", &["-c", &script]) {
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).ends_with(" lwp\n"), "{}", stdout(&output));
        assert_eq!(stderr(&output), "");
    }
    let dir = directory("lint");
    assert!(lwp(&["man", dir.to_str().expect("name is text")]).status.success());
    for page in std::fs::read_dir(dir).expect("pages").flatten() {
        let path = page.path();
        let page = path.to_str().expect("name is text");
        let Some(output) = run("groff", &["-Kutf8", "-man", "-Tutf8", "-ww", "-z", page]) else {
            return;
        };
        assert!(output.status.success());
        assert_eq!(stderr(&output), "", "{page}");
    }
}
