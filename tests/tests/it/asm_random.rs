//! Random programs on the reference runner and, if there is one, on a second processor.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `LWP_RANDOM_FIRST` | number of the first case; default 1 |
//! | `LWP_RANDOM_CASES` | how many cases; default 120 |
//!
//! Promise: W8, W10, W12
//! Promise: W3: with a second processor

use lwp_tests::asm::{SHOWN_BYTES, SecondRunner, assemble, run, without_time_stamps};
use lwp_tests::asm_random::{Events, random_program};
use lwp_tests::{End, Outcome, TempDir, lwp_binary};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

const REFERENCE: &str = env!("CARGO_BIN_EXE_lwp-reference");
/// Cases in one program.
const BATCH: u64 = 40;

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => default,
    }
}

/// Builds the cases from `first` on and runs them on the reference.
fn reference(
    events: Events,
    options: &[&str],
    first: u64,
    count: u64,
    dir: &Path,
) -> (OsString, Outcome) {
    let source = dir.join(format!("{events:?}-{first}.s"));
    fs::write(&source, random_program(events, first, count)).expect("write a program");
    let program = source.with_extension("");
    assemble(&source, &program);
    let program = program.into_os_string();
    let words = [&[REFERENCE], options, &["--"]].concat();
    let mut argv: Vec<OsString> = words.iter().map(OsString::from).collect();
    argv.push(program.clone());
    let outcome = run(argv, dir);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Code(0), "cases from {first} on: {stderr}");
    assert_eq!(outcome.stdout.len() as u64, count * SHOWN_BYTES as u64);
    (program, outcome)
}

/// The cases of which two outputs differ, and the first byte that does.
fn different(first: u64, one: &[u8], other: &[u8]) -> Vec<(u64, usize)> {
    let pairs = one.chunks(SHOWN_BYTES).zip(other.chunks(SHOWN_BYTES)).enumerate();
    let place = |a: &[u8], b: &[u8]| a.iter().zip(b).position(|(a, b)| a != b);
    pairs.filter_map(|(index, (a, b))| Some((first + index as u64, place(a, b)?))).collect()
}

/// Runs cases on both processors, with `options`, which both know.
fn check(events: Events, options: &[&str]) {
    let command =
        |second: &SecondRunner, program: &Path| second.command_with("full", options, program);
    check_on(events, options, command);
}

/// Runs cases on both processors; `command_of` says how the second one is started.
fn check_on(
    events: Events,
    options: &[&str],
    command_of: impl Fn(&SecondRunner, &Path) -> Option<Vec<OsString>>,
) {
    let dir = TempDir::new();
    let second = SecondRunner::find(dir.path());
    let (start, cases) = (setting("LWP_RANDOM_FIRST", 1), setting("LWP_RANDOM_CASES", 120));
    let (mut faults, mut records) = (String::new(), 0);
    let mut first = start;
    while first < start + cases {
        let count = BATCH.min(start + cases - first);
        let (program, outcome) = reference(events, options, first, count, dir.path());
        records += outcome.stdout.chunks(SHOWN_BYTES).filter(|shown| moved(shown)).count() as u64;
        let command = second.as_ref().and_then(|second| command_of(second, program.as_ref()));
        if let Some(command) = command {
            let other = run(command, dir.path());
            let ours = without_time_stamps(&outcome.stdout);
            let theirs = without_time_stamps(&other.stdout);
            if other.end != End::Code(0) || ours.len() != theirs.len() {
                faults += &format!("cases from {first} on ended with {:?}\n", other.end);
            }
            for (case, byte) in different(first, &ours, &theirs) {
                faults += &format!(
                    "case {case} differs at byte {byte} (LWP_RANDOM_FIRST={case} LWP_RANDOM_CASES=1)\n"
                );
            }
        }
        first += count;
    }
    assert!(records * 2 > cases, "{records} of {cases} cases record anything: no test");
    assert!(faults.is_empty(), "\n{faults}");
}

/// Returns whether a case recorded: something lies in its ring.
fn moved(shown: &[u8]) -> bool {
    shown[192..192 + 4096].iter().any(|byte| *byte != 0)
}

/// Value samples, programmed events, instructions, branches.
#[test]
fn random_programs_record_the_same() {
    check(Events::Facts, &[]);
}

/// The whole processor is shown, not a fixed one: translated code looks at the masks of XSAVE and
/// XRSTOR.
///
/// Promise: W10: also
#[test]
fn random_programs_record_the_same_where_the_whole_processor_is_shown() {
    // Records name the processor that the program ran on: the reference's is always the first.
    let pinned = ["taskset", "-c", "0"];
    if !Command::new(pinned[0]).args(&pinned[1..]).arg("true").status().is_ok_and(|it| it.success())
    {
        eprintln!("skipped: no program can be bound to the first processor");
        return;
    }
    let words = ["run", "--no-cache", "--cpu", "full", "--"].map(OsString::from);
    let pinned = pinned.map(OsString::from);
    let command = |_: &SecondRunner, program: &Path| {
        let ends = [lwp_binary().into(), program.as_os_str().to_owned()];
        Some([&pinned[..], &ends[..1], &words, &ends[1..]].concat())
    };
    check_on(Events::Facts, &[], command);
}

/// Cache misses too.
///
/// Promise: W9
#[test]
fn random_programs_record_the_same_misses() {
    check(Events::Misses, &[]);
}

/// Clocks too; memory takes no time where its misses are not counted.
#[test]
fn random_programs_record_the_same_of_the_clocks() {
    check(Events::Clocks, &[]);
}

/// Clocks of another machine, which retires more instructions in a cycle.
///
/// Promise: W15
#[test]
fn random_programs_record_the_same_of_the_clocks_of_another_machine() {
    check(Events::Clocks, &["--clocks", "zen4"]);
}

/// Cache misses and clocks too, which then wait for memory.
///
/// Promise: W18
#[test]
fn random_programs_record_the_same_of_the_models() {
    check(Events::Modelled, &[]);
}

/// Clocks with a slow memory, which some profiles cannot wait for once.
#[test]
fn random_programs_record_the_same_of_the_clocks_beside_other_caches() {
    check(Events::Modelled, &["--cache", "4K/4/64@3,16K/2/64@9,memory@1900", "--clocks", "zen4"]);
}

/// Clocks that wait for memory and for mispredictions.
///
/// Promise: W15, W18
#[test]
fn random_programs_record_the_same_of_the_models_with_predictions() {
    check(Events::Modelled, &["--predictor", "zen4"]);
}

/// Misses of other caches, with shorter lines, which more accesses span.
///
/// Promise: W15
#[test]
fn random_programs_record_the_same_misses_of_other_caches() {
    check(Events::Misses, &["--cache", "2K/2/16@3,4K/1/16@9,memory@77"]);
}

/// Branches as a predictor judges them, which some profiles filter by.
///
/// Promise: W15, W18
#[test]
fn random_programs_record_the_same_predictions() {
    check(Events::Facts, &["--predictor", "generic"]);
}

/// Clocks too, to which mispredictions add.
///
/// Promise: W15, W18
#[test]
fn random_programs_record_the_same_of_the_clocks_with_predictions() {
    check(Events::Clocks, &["--predictor", "family15h", "--clocks", "family15h"]);
}

/// Some events only are granted, whatever is asked for.
///
/// Promise: W15
#[test]
fn random_programs_record_the_same_of_what_is_granted() {
    check(Events::Misses, &["--events", "branches,dcache-misses"]);
}

/// The form of 2007.
///
/// Promise: W11
#[test]
fn random_programs_record_the_same_in_the_form_of_2007() {
    check(Events::Proposal, &["--revision", "2007"]);
}

/// Its random programs depend on predictions too.
///
/// Promise: W11, W15, W18
#[test]
fn random_programs_record_the_same_in_the_form_of_2007_with_predictions() {
    check(Events::Proposal, &["--revision", "2007", "--predictor", "zen4", "--cache", "zen4"]);
}

/// A case depends on its number only: alone it shows what it shows among others.
#[test]
fn a_case_is_the_same_alone() {
    let dir = TempDir::new();
    let (_, all) = reference(Events::Facts, &[], 1, 5, dir.path());
    let (_, alone) = reference(Events::Facts, &[], 3, 1, dir.path());
    let among = &all.stdout[2 * SHOWN_BYTES..3 * SHOWN_BYTES];
    // Addresses differ; kinds, flags and counts do not.
    assert_eq!(among[16..24], alone.stdout[16..24], "head");
    assert_eq!(among[128..192], alone.stdout[128..192], "intervals and counters");
}
