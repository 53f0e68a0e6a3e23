//! Samples that threads take by themselves, with their interpreter's functions: they are those that
//! the host takes.
//!
//! Promise: R116
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::tools;

use std::path::Path;

use recorded::{LWP, compile, lwp, run};
use tools::{fresh, has, text};

/// The samples of a deterministic run of these events, whether or not threads keep some, without
/// the number of the process.
fn samples(dir: &Path, keeps: &str, events: &str, command: &[&str]) -> Vec<String> {
    let alone = run(dir, command);
    let keeps = format!("LWP_KEEP={keeps}");
    let record = [LWP, "record", "-q", "--deterministic", "-e", events, "--"];
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
fn are_the_same(test: &str, events: &str, command: &[&str], function: &str) {
    let dir = fresh("kept_samples", test);
    are_the_same_in(&dir, events, command, function);
}

fn are_the_same_in(dir: &Path, events: &str, command: &[&str], function: &str) {
    let by_host = samples(dir, "0", events, command);
    assert!(by_host.iter().any(|line| line.contains(function)), "no sample of {function}");
    // The second run knows the program better.
    for _ in 0..2 {
        let kept = samples(dir, "1", events, command);
        let differs = by_host.iter().zip(&kept).position(|(one, other)| one != other);
        let around = |lines: &[String]| {
            let at = differs.unwrap_or(lines.len().min(by_host.len()));
            lines[at.saturating_sub(30).min(lines.len())..lines.len().min(at + 5)].join("\n")
        };
        let [kept_there, by_host_there] = [&kept, &by_host].map(|it| around(it));
        assert!(by_host == kept, "{command:?}:\n{kept_there}\n\nnot\n\n{by_host_there}");
    }
}

fn perl_is_here() -> bool {
    let here = has("perl");
    if !here {
        eprintln!("skipped: no perl");
    }
    here
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
        are_the_same(
            "python",
            "instructions:c=30011",
            &[&executable, &program("short_lived.py")],
            "recurse",
        );
    }
}

#[test]
fn perl_s_samples_are_the_same_whoever_takes_them() {
    if !perl_is_here() {
        return;
    }
    are_the_same("perl", "instructions:c=1009", &["perl", &program("short_lived.pl")], "recurse");
}

/// A process's functions are known until its program ends.
#[test]
fn a_program_in_place_of_another_has_its_own_functions() {
    if !perl_is_here() {
        return;
    }
    let dir = fresh("kept_samples", "replaced");
    for (name, function) in [("a.pl", "one"), ("b.pl", "two")] {
        let script = format!(
            "sub {function} {{ my $s = 0; $s += $_ for 1..2000; $s }}\n\
             my $t = 0; $t += {function}() for 1..3; print \"$t\\n\";\n\
             exec $^X, 'b.pl' if $0 eq 'a.pl';\n"
        );
        std::fs::write(dir.join(name), script).unwrap();
    }
    for function in ["main::one", "main::two"] {
        are_the_same_in(&dir, "instructions:c=5003", &["perl", "a.pl"], function);
    }
}

#[test]
fn a_watched_data_cache_has_its_room_for_itself() {
    if !perl_is_here() {
        return;
    }
    let dir = fresh("kept_samples", "watched");
    let script = "sub work { my %h; $h{$_ % 97} .= $_ for 1..3000; scalar keys %h }\n\
                  print work() + work(), \"\\n\";\n";
    std::fs::write(dir.join("work.pl"), script).unwrap();
    let events = "instructions:c=30011,dcache-misses:c=101";
    are_the_same_in(&dir, events, &["perl", "work.pl"], "main::work");
}

/// The memory below a thread's stack is not the thread's, and may be its guard.
#[test]
fn nothing_below_the_stack_s_page_is_read() {
    let dir = fresh("kept_samples", "edge");
    if !compile(&dir, "edge.c", &["-O1", "-pthread"]) {
        eprintln!("skipped: no gcc");
        return;
    }
    are_the_same_in(&dir, "instructions:c=1009", &["./program"], "spin");
}

#[test]
fn structures_that_lead_nowhere_harm_nothing() {
    let dir = fresh("kept_samples", "pretender");
    if !compile(&dir, "pretender.c", &["-O1", "-rdynamic"]) {
        eprintln!("skipped: no gcc");
        return;
    }
    for (interval, way) in [
        (211, "handled"),
        (1009, "handled"),
        (10007, "handled"),
        (211, "blocked"),
        (211, "ignored"),
    ] {
        let events = format!("instructions:c={interval}");
        let by_host = samples(&dir, "0", &events, &["./program", way]);
        assert!(by_host.iter().any(|line| line.contains("file.pl")), "Perl's stack is not read");
        let kept = samples(&dir, "1", &events, &["./program", way]);
        assert_eq!(by_host, kept, "every {interval}, {way}");
    }
}
