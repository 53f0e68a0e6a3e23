//! `lwp record --time` where the kernel refuses to sample: lwp stops threads instead.
//!
//! Promise: R145

use crate::shared::recorded;
use crate::shared::tools;
use crate::timed::{assert_shares, report, rows, said_times};

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use recorded::{LWP, compile, lwp, run};
use tools::text;

/// A directory with `program`, made of a source, and `filter`, which refuses perf_event_open(2).
/// `None` where there is no compiler.
fn prepared(name: &str, source: &str) -> Option<PathBuf> {
    let dir = tools::fresh("timed_by_stops", name);
    if !compile(&dir, "no_perf_events.c", &[]) {
        return None;
    }
    std::fs::rename(dir.join("program"), dir.join("filter")).expect("renamed");
    compile(&dir, source, &["-O2", "-pthread"]).then_some(dir)
}

/// Records the command under the filter; what it printed, and what lwp said.
fn record(dir: &Path, options: &[&str], command: &[&str]) -> (String, String) {
    let lwp = ["./filter", LWP, "record", "--time"];
    let output = run(dir, &[&lwp[..], options, &["--"], command].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    (text(&output.stdout), said)
}

/// The number of samples: on a busy machine lwp takes fewer than it was asked for.
fn samples(dir: &Path) -> f64 {
    let (header, _) = lwp(dir, &["script", "--header"]);
    let samples = header.lines().find_map(|line| line.strip_prefix("# samples: "));
    samples.unwrap_or_else(|| panic!("{header}")).parse().expect("a number")
}

#[test]
fn shares_are_those_that_the_program_measures() {
    let Some(dir) = prepared("shares", "timed.c") else { return };
    for mode in ["c", "k", "t", "p"] {
        let (printed, said) = record(&dir, &["-F", "499"], &["./program", "3", mode]);
        if said.contains("the machine is too busy") {
            println!("skipped: the machine is too busy");
            return;
        }
        let mut truth = said_times(&printed);
        let found = by_function_of_the_program(&dir);
        // How often lwp meets two threads depends on who else runs.
        let beside = ["beside", "in_child"].map(|name| truth.remove(name));
        for (name, _) in ["beside", "in_child"].iter().zip(beside).filter(|(_, ns)| ns.is_some()) {
            assert!(found.get(*name).is_some_and(|ns| *ns > 0.0), "{mode}: {found:?}");
        }
        let samples = samples(&dir);
        assert!(samples > 1000.0, "{mode}: {samples}");
        let known = truth.keys().filter_map(|name| found.get(name)).sum::<f64>();
        let part = known / found.values().sum::<f64>();
        assert_shares(&truth, &found, samples * part);
    }
}

/// Nanoseconds of each of the program's functions below main, with what it called.
fn by_function_of_the_program(dir: &Path) -> std::collections::BTreeMap<String, f64> {
    let (folded, _) = lwp(dir, &["export", "-f", "folded"]);
    let mut sums = std::collections::BTreeMap::new();
    for line in folded.lines() {
        let Some((stack, ns)) = line.rsplit_once(' ') else { continue };
        for name in ["heavy", "light", "reading", "beside", "in_child"] {
            if stack.split(';').any(|frame| frame == name) {
                *sums.entry(name.to_owned()).or_default() += ns.parse::<f64>().expect("ns");
            }
        }
    }
    sums
}

#[test]
fn sums_are_those_of_the_kernel() {
    let Some(dir) = prepared("sums", "timed.c") else { return };
    for mode in ["c", "t", "p", "k"] {
        let (printed, _) = record(&dir, &["-q", "-F", "199"], &["./program", "1", mode]);
        let all = said_times(&printed)["all"];
        let sum = report(&dir, "sym")["total"].as_f64().expect("ns");
        assert!((sum / all - 1.0).abs() < 0.01, "{mode}: {sum} of {all}");
    }
}

#[test]
fn it_is_said_what_is_done_and_what_is_not_seen() {
    let Some(dir) = prepared("said", "timed.c") else { return };
    let (_, said) = record(&dir, &["-F", "499"], &["./program", "2", "k"]);
    for part in [
        "a seccomp filter refuses perf_event_open: lwp stops threads for samples instead",
        "native, 499 samples a second of CPU time; ",
        "# stops     ",
        "[kernel, not visible]",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let found = rows(&report(&dir, "sym"), "sym");
    assert!(found["[kernel, not visible]"] > 0.0, "{found:?}");
    let (header, _) = lwp(&dir, &["script", "--header"]);
    assert!(header.contains("# mechanism: stops"), "{header}");
    let (folded, _) = lwp(&dir, &["export", "-f", "folded"]);
    assert!(folded.contains("main;") && folded.contains("reading"), "{folded}");
}

#[test]
fn the_program_does_not_notice() {
    let Some(dir) = prepared("unnoticed", "uninterrupted.c") else { return };
    let (printed, said) = record(&dir, &["-F", "1999"], &["./program", "400"]);
    assert!(said.contains("# stops"), "{said}");
    assert_eq!(printed.lines().count(), 6, "{printed}");
    for line in printed.lines() {
        assert!(line.ends_with(" 0"), "{printed}{said}");
    }
}

#[test]
fn the_end_is_the_program_s() {
    let Some(dir) = prepared("ends", "timed.c") else { return };
    let code = |command: &[&str]| {
        let lwp = ["./filter", LWP, "record", "--time", "-q", "--"];
        let output = run(&dir, &[&lwp[..], command].concat());
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(code(&["sh", "-c", "exit 7"]), (Some(7), String::new()));
    assert_eq!(code(&["true"]), (Some(0), String::new()));
    assert_eq!(code(&["/no/such/program"]).0, Some(127));
    std::fs::write(dir.join("plain"), "x").expect("written");
    assert_eq!(code(&["./plain"]).0, Some(126));
    assert_ne!(code(&["sh", "-c", "kill -TERM $$"]).0, Some(0));
    // What a program leaves behind goes on.
    let script = "(read line <fifo; echo \"$line\" >left) >said 2>&1 & exit 3";
    assert!(Command::new("mkfifo").arg(dir.join("fifo")).status().expect("mkfifo").success());
    assert_eq!(code(&["sh", "-c", script]).0, Some(3));
    std::fs::write(dir.join("fifo"), "on\n").expect("written");
    wait_for(&dir.join("left"), "on\n");
    let lwp = ["./filter", LWP, "record", "--time", "-q", "--timeout", "200", "--", "sleep", "60"];
    assert!(!run(&dir, &lwp).status.success());
    // A process that is stopped stays so until it is told to go on.
    let stands = "until grep -qi '^State:.t' /proc/$!/status; do sleep 0.01; done";
    let script = format!("sh -c 'kill -STOP $$; echo on' & {stands}; kill -CONT $!; wait $!");
    assert_eq!(record(&dir, &["-q"], &["sh", "-c", &script]).0, "on\n");
}

/// Waits until a file has this content.
fn wait_for(file: &Path, content: &str) {
    let start = Instant::now();
    while std::fs::read_to_string(file).ok().as_deref() != Some(content) {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", file.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_program_survives_lwp() {
    let Some(dir) = prepared("survives", "timed.c") else { return };
    let script = "echo $$ >pid; ./program 1 t >said; echo over >over";
    let lwp = ["./filter", LWP, "record", "--time", "-q", "-F", "997", "--", "sh", "-c", script];
    let mut lwp = Command::new(lwp[0]).args(&lwp[1..]).current_dir(&dir).spawn().expect("lwp");
    let start = Instant::now();
    while !dir.join("said").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "the program does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    lwp.kill().expect("killed");
    let _ = lwp.wait();
    wait_for(&dir.join("over"), "over\n");
    let said = std::fs::read_to_string(dir.join("said")).expect("what the program said");
    assert!(said.contains("beside ") && said.contains("all "), "{said}");
}

#[test]
fn both_works_too() {
    let Some(dir) = prepared("both", "both.c") else { return };
    let output = run(&dir, &["./filter", LWP, "record", "--both", "-q", "--", "./program", "50"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = report(&dir, "sym");
    let rows = found["rows"].as_array().expect("rows");
    let chases = rows.iter().find(|row| row["sym"] == "chases").expect("a row");
    assert_eq!(chases["calls"], 50, "{chases}");
    assert!(chases["ns_per_call_estimated"].as_f64().is_some_and(|ns| ns > 0.0), "{chases}");
}

/// Promise: R132
#[test]
fn who_can_neither_sample_nor_stop_is_told_what_to_do() {
    let Some(dir) = prepared("refused", "timed.c") else { return };
    std::fs::write(dir.join("lwp.data"), "kept").expect("written");
    let lwp = ["./filter", "--no-ptrace", LWP, "record", "--time", "--", "/bin/echo", "ran"];
    let output = run(&dir, &lwp);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    for part in [
        "time cannot be sampled here: a seccomp filter refuses perf_event_open, and ptrace(2): ",
        "help: ",
        "SYS_PTRACE",
        "leave --time out",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(text(&output.stdout), "");
    assert_eq!(std::fs::read(dir.join("lwp.data")).expect("kept"), b"kept");
    // Stops are for programs that lwp starts.
    let own = std::process::id().to_string();
    let output = run(&dir, &["./filter", LWP, "record", "--time", "-p", &own]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("a seccomp filter refuses perf_event_open"), "{said}");
}
