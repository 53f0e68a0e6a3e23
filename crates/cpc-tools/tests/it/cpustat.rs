//! `cpustat` as its users call it.

use std::io::Read;
use std::process::{Command, Output, Stdio};

const CPUSTAT: &str = env!("CARGO_BIN_EXE_cpustat");

/// Runs it under a timeout: it must never hang.
fn cpustat(words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300", CPUSTAT]).args(words);
    command.output().unwrap()
}

fn rows(words: &[&str]) -> Vec<String> {
    let output = cpustat(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn words(row: &str) -> Vec<&str> {
    row.split_whitespace().collect()
}

fn counts(row: &str) -> Vec<u64> {
    let numbers = words(row).into_iter().skip(3).take_while(|word| *word != "#");
    numbers.map(|word| word.parse().unwrap_or_else(|_| panic!("{row}"))).collect()
}

fn cpus() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let parts = list.trim().split(',').map(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        high.parse::<usize>().unwrap() - low.parse::<usize>().unwrap() + 1
    });
    parts.sum()
}

/// Whole processors may be counted by few. Where we may not, the refusal is the test.
fn allowed() -> bool {
    let output = cpustat(&["-c", "cpu-clock,sys", "0.01", "1"]);
    if output.status.success() {
        return true;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("perf_event_paranoid"), "{errors}");
    false
}

#[test]
fn every_processor_has_a_row_and_all_have_a_total() {
    if !allowed() {
        return;
    }
    let rows = rows(&["-c", "context-switches,page-faults,sys", "0.2", "2"]);
    assert_eq!(rows[0], "   time cpu event      pic0      pic1");
    assert_eq!(rows.len(), 1 + 2 * cpus() + 1, "{rows:?}");
    let mut sums = [0, 0];
    for (index, row) in rows[1..=2 * cpus()].iter().enumerate() {
        assert_eq!(words(row)[1], (index % cpus()).to_string(), "in order: {rows:?}");
        assert_eq!(words(row)[2], "tick");
        let counts = counts(row);
        sums = [sums[0] + counts[0], sums[1] + counts[1]];
    }
    let total = rows.last().unwrap();
    assert_eq!(words(total)[1..3], [&*cpus().to_string(), "total"]);
    assert_eq!(counts(total), sums, "{rows:?}");
    assert!(sums[0] > 0, "{rows:?}");
    assert_eq!(rows[1].len(), 7 + 1 + 3 + 1 + 5 + 1 + 9 + 1 + 9, "{rows:?}");
}

#[test]
fn sets_take_turns_and_rounds_can_be_spaced() {
    if !allowed() {
        return;
    }
    let two = ["-c", "context-switches,sys", "-c", "cpu-clock,sys"];
    let rows = rows(&[&two[..], &["-n", "0.05", "3"]].concat());
    assert_eq!(rows.len(), 3 * cpus() + 2, "{rows:?}");
    let specs: Vec<&str> = rows.iter().map(|row| row.split_once("# ").unwrap().1).collect();
    assert_eq!(specs[0], "context-switches,sys");
    assert_eq!(specs[cpus()], "cpu-clock,sys");
    assert_eq!(specs[2 * cpus()], "context-switches,sys");
    let rows = self::rows(&[&two[..], &["-n", "-p", "1.5", "0.05", "2"]].concat());
    assert_eq!(rows.len(), 4 * cpus() + 2, "two rounds: {rows:?}");
    let time = |row: &str| words(row)[0].parse::<f64>().unwrap();
    assert!(time(&rows[2 * cpus()]) >= 1.5, "{rows:?}");
    assert!(time(&rows[cpus()]) < 1.5, "{rows:?}");
}

#[test]
fn times_can_be_printed() {
    if !allowed() {
        return;
    }
    let rows = rows(&["-n", "-T", "u", "-c", "cpu-clock,sys", "0.02", "2"]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for stamp in [&rows[0], &rows[1 + cpus()]] {
        let stamp: u64 = stamp.parse().unwrap();
        assert!(now.abs_diff(stamp) < 60, "{rows:?}");
    }
    let rows = self::rows(&["-n", "-T", "d", "-c", "cpu-clock,sys", "0.02", "1"]);
    assert_eq!(words(&rows[0]).len(), 6, "{rows:?}");
}

#[test]
fn idle_processors_can_be_kept_busy() {
    if !allowed() {
        return;
    }
    let rows = rows(&["-s", "-t", "-n", "-c", "cpu-clock,nouser,sys", "0.3", "1"]);
    assert_eq!(rows.len(), cpus() + 1);
    assert_eq!(counts(&rows[0]).len(), 2, "tsc and one counter: {rows:?}");
}

#[test]
fn a_signal_ends_it_with_the_totals() {
    if !allowed() {
        return;
    }
    for signal in ["-TERM", "-INT"] {
        // Whoever started the tests may ignore signals, as a shell does for what it starts in the
        // background.
        let mut command = Command::new("env");
        command
            .args(["--default-signal", CPUSTAT, "-c", "cpu-clock,sys", "0.05"])
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 150]).unwrap();
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let last = rest.lines().last().unwrap();
        assert!(last.contains(" total "), "{rest}");
    }
}

/// The file `name`, new with every run of the test.
fn file(name: &str) -> String {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&file);
    file.to_str().unwrap().to_owned()
}

/// Promise: T10
#[test]
fn what_was_recorded_is_printed_again_in_any_form() {
    if !allowed() {
        return;
    }
    let file = file("cpustat-recorded");
    let two = ["-c", "context-switches,page-faults,sys", "-c", "cpu-clock,sys"];
    let live = rows(&[&two[..], &["-O", &file, "0.05", "4"]].concat());
    assert_eq!(rows(&["-I", &file]), live);
    // All processors are one bin: what is printed of it is the sum of their rows.
    let bins = rows(&["-I", &file, "-A", "1"]);
    assert_eq!(bins[0], "   time BIN event      pic0      pic1 sze");
    assert_eq!(bins.len(), 1 + 4 + 2, "{bins:?}");
    let sum: u64 = live[1..=cpus()].iter().map(|row| counts(row)[0]).sum();
    assert_eq!(counts(&bins[1])[0], sum, "{live:?} {bins:?}");
    assert_eq!(*counts(&bins[1]).last().unwrap(), cpus() as u64);
    let means = rows(&["-I", &file, "-n", "-m", "-A", "1"]);
    assert_eq!(counts(&means[0])[0], sum / cpus() as u64);
    assert_eq!(words(means.last().unwrap())[2], "mean");
    // The busiest processor of each sample.
    let first = rows(&["-I", &file, "-n", "-k", "-pic0", "-o", "1"]);
    assert_eq!(first.len(), 4 + 2);
    let most = live[1..=cpus()].iter().map(|row| counts(row)[0]).max();
    assert_eq!(Some(counts(&first[0])[0]), most);
    let stamps = rows(&["-I", &file, "-n", "-T", "u"]);
    assert!(stamps[0].parse::<u64>().is_ok(), "{stamps:?}");
    for (words, code) in [
        (&["-I", &file, "-k", "pic7"][..], 2),
        (&["-I", &file, "-c", "cpu-clock"], 2),
        (&["-I", "/proc/self/status"], 1),
        (&["-I", "/no/such/file"], 1),
        (&["-c", "cpu-clock,sys", "-O", "/no/such/file", "0.01", "1"], 1),
    ] {
        assert_eq!(cpustat(words).status.code(), Some(code), "{words:?}");
    }
}

/// Promise: T10
#[test]
fn processors_are_grouped_by_core_and_socket() {
    if !allowed() {
        return;
    }
    let topology = |name: &str| -> std::collections::BTreeSet<String> {
        let cpu = |cpu| {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            let socket = std::fs::read_to_string(format!("{folder}/physical_package_id")).unwrap();
            socket + &std::fs::read_to_string(format!("{folder}/{name}")).unwrap()
        };
        (0..cpus()).map(cpu).collect()
    };
    for (by, groups) in [("cor", topology("core_id")), ("soc", topology("physical_package_id"))] {
        let rows = rows(&["-A", by, "-c", "cpu-clock,sys", "0.05", "1"]);
        assert_eq!(rows[0], format!("   time {by} event      pic0 sze"));
        assert_eq!(rows.len(), 1 + groups.len() + 1, "{rows:?}");
        let sizes: u64 = rows[1..=groups.len()].iter().map(|row| counts(row)[1]).sum();
        assert_eq!(sizes, cpus() as u64, "{rows:?}");
    }
}

#[test]
fn wrong_calls_end_with_2_and_the_usage() {
    for words in [&[][..], &["-c", "no-such"], &["-c", "cpu-clock", "0"], &["-T", "x"]] {
        let output = cpustat(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.starts_with("cpustat: ") && errors.contains("\nUsage:\n"), "{errors}");
    }
    let help = cpustat(&["-h"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("attributes: "));
}
