//! Samples that threads take by themselves, with their interpreter's functions: they are those that
//! the host takes.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

#[path = "shared/recorded.rs"]
mod recorded;
#[path = "shared/tools.rs"]
mod tools;

use std::path::Path;

use recorded::{LWP, compile, lwp, run};
use tools::{fresh, has, text};

/// The samples of a deterministic run with this interval, whether or not threads keep some, without
/// the number of the process.
fn samples(dir: &Path, keeps: &str, interval: &str, command: &[&str]) -> Vec<String> {
    let alone = run(dir, command);
    let keeps = format!("LWP_KEEP={keeps}");
    let record = [LWP, "record", "-q", "--deterministic", "-c", interval, "--"];
    let recorded = run(dir, &[&["env", &keeps], &record[..], command].concat());
    assert!(recorded.status.success(), "{command:?}: {}", text(&recorded.stderr));
    assert_eq!(text(&recorded.stdout), text(&alone.stdout), "{command:?}");
    let (script, _) = lwp(dir, &["script"]);
    let line = |line: &str| match line.split_once(": ") {
        Some((head, rest)) if !line.starts_with('\t') => {
            format!("{}: {rest}", head.split(' ').next().unwrap_or_default())
        }
        _ => line.to_owned(),
    };
    script.lines().map(line).collect()
}

/// Threads take the same samples by themselves as the host does.
fn are_the_same(test: &str, interval: &str, command: &[&str], function: &str) {
    let dir = fresh("kept_samples", test);
    let by_host = samples(&dir, "0", interval, command);
    assert!(by_host.iter().any(|line| line.contains(function)), "no sample of {function}");
    // The second run knows the program better.
    for _ in 0..2 {
        let kept = samples(&dir, "1", interval, command);
        let differs = by_host.iter().zip(&kept).position(|(one, other)| one != other);
        let around = |lines: &[String]| {
            let at = differs.unwrap_or(lines.len().min(by_host.len()));
            lines[at.saturating_sub(30).min(lines.len())..lines.len().min(at + 5)].join("\n")
        };
        let [kept_there, by_host_there] = [&kept, &by_host].map(|it| around(it));
        assert!(by_host == kept, "{command:?}:\n{kept_there}\n\nnot\n\n{by_host_there}");
    }
}

fn program(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(name);
    path.to_str().expect("path is text").to_owned()
}

#[test]
fn python_s_samples_are_the_same_whoever_takes_them() {
    for python in ["/usr/bin/python3", "python3"] {
        let executable = run(Path::new("/"), &[python, "-c", "import sys; print(sys.executable)"]);
        if !executable.status.success() {
            eprintln!("skipped: no {python}");
            continue;
        }
        let executable = text(&executable.stdout).trim().to_owned();
        are_the_same("python", "30011", &[&executable, &program("short_lived.py")], "recurse");
    }
}

#[test]
fn perl_s_samples_are_the_same_whoever_takes_them() {
    if !has("perl") {
        eprintln!("skipped: no perl");
        return;
    }
    are_the_same("perl", "1009", &["perl", &program("short_lived.pl")], "recurse");
}

#[test]
fn structures_that_lead_nowhere_harm_nothing() {
    let dir = fresh("kept_samples", "pretender");
    if !compile(&dir, "pretender.c", &["-O1", "-rdynamic"]) {
        eprintln!("skipped: no gcc");
        return;
    }
    for interval in ["211", "1009", "10007"] {
        let by_host = samples(&dir, "0", interval, &["./program"]);
        assert!(by_host.iter().any(|line| line.contains("file.pl")), "Perl's stack is not read");
        let kept = samples(&dir, "1", interval, &["./program"]);
        assert_eq!(by_host, kept, "every {interval}");
    }
}
