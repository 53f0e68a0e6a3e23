//! Counting between markers: exact to the instruction, against a processor that is stepped and against callgrind.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

#[path = "shared/tools.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;

use lwp_testkit::stepped;
use tools::{fresh, has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");
const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");

/// Work of many kinds, with a function called `region` that enters and leaves in several ways.
const WORK: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static volatile uint64_t sink;
__attribute__((noinline)) static uint64_t mix(uint64_t n) {
    uint64_t a = 1;
    for (uint64_t i = 0; i < n; i++) a = (a ^ i) * 0x9e3779b97f4a7c15u >> (i & 7);
    return a;
}
__attribute__((noinline)) static int order(const void *a, const void *b) {
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}
__attribute__((noinline)) static void work(uint64_t n) {
    int numbers[64];
    char bytes[300];
    for (int i = 0; i < 64; i++) numbers[i] = (int)(mix(i) % 1000);
    qsort(numbers, 64, sizeof numbers[0], order);
    memset(bytes, (int)n, sizeof bytes);
    __asm__ volatile("cld; rep movsb" : : "D"(bytes), "S"(numbers), "c"(200) : "memory");
    sink += mix(n) + numbers[3] + bytes[7];
}
"#;

/// Compiles `program` behind [`WORK`].
fn compiled(name: &str, program: &str, options: &[&str]) -> Option<PathBuf> {
    if !has("gcc") {
        return None;
    }
    let dir = fresh("marked", name);
    let (source, binary) = (dir.join("program.c"), dir.join("program"));
    std::fs::write(&source, format!("{WORK}\n{program}\n")).expect("written");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-static", "-I", INCLUDE, "-o"]).arg(&binary).arg(&source);
    let output = gcc.args(options).output().expect("gcc starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(binary)
}

/// The instructions that `lwp stat` counts.
fn counted(program: &Path, options: &[&str]) -> u64 {
    let dir = program.parent().expect("a directory");
    let words =
        [&[LWP, "stat", "-x,", "-e", "instructions"][..], options, &["--", "./program"]].concat();
    let output = limited(dir, &words).output().expect("lwp starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = text(&output.stderr);
    let row = report.lines().find(|line| line.contains(",instructions")).expect(&report);
    row.split(',').next().and_then(|number| number.parse().ok()).expect(&report)
}

/// Whether a stepped instruction is our own marker of this code.
fn is_marker(step: &stepped::Step, code: u8) -> bool {
    step.bytes[..7] == [0x0f, 0x1f, 0x80, b'L', b'W', b'P', code]
}

/// How many instructions a processor executes between the two markers.
fn stepped_between(program: &Path) -> Option<u64> {
    let (mut count, mut on) = (0, false);
    let end =
        stepped::each_instruction(program, |step| match (is_marker(step, 1), is_marker(step, 2)) {
            (true, _) => on = true,
            (_, true) => on = false,
            _ => count += u64::from(on),
        });
    if end != Some(0) {
        eprintln!("skipped: programs cannot be stepped here");
        return None;
    }
    Some(count)
}

const TWO_REGIONS: &str = r#"
#include <lwp_count.h>
int main(void) {
    work(3000);
    for (int i = 1; i <= 3; i++) {
        lwp_count_start();
        work(100 * i);
        lwp_count_stop();
        work(5000);
    }
    return 0;
}
"#;

#[test]
fn what_is_between_markers_is_counted_to_the_instruction() {
    let Some(program) = compiled("between", TWO_REGIONS, &[]) else { return };
    let Some(stepped) = stepped_between(&program) else { return };
    for round in 0..5 {
        assert_eq!(counted(&program, &["--marked"]), stepped, "round {round}");
    }
    assert_eq!(counted(&program, &["--marked", "--no-cache"]), stepped);
    assert_eq!(counted(&program, &["--marked", "--deterministic"]), stepped);
    // Without being asked to heed them, everything is counted.
    assert!(counted(&program, &[]) > stepped + 100_000);
}
