//! Counting between markers: exact to the instruction, against a processor that is stepped and
//! against callgrind.
//!
//! Promise: R70: compared with a single-stepped processor
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::tools;

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

/// Returns whether a stepped instruction is our own marker of this code.
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

/// Counting switched by commands whose answers nobody waits for, and by markers inside of that.
const COMMANDED: &str = r#"
#include <fcntl.h>
#include <lwp_count.h>
#include <sys/uio.h>
#include <unistd.h>
static void command(int line, const char *text) {
    size_t bytes = strlen(text);
#ifdef PIECES
    struct iovec pieces[2] = {{(void *)text, 3}, {(void *)(text + 3), bytes - 3}};
    if (writev(line, pieces, 2) < 0) exit(1);
#else
    if (write(line, text, bytes) < 0) exit(1);
#endif
}
int main(void) {
    int line = open("control", O_RDWR);
    for (int i = 1; i <= 20; i++) {
        command(line, "enable\n");
        lwp_count_start();
        work(PER * i);
        lwp_count_stop();
        command(line, "disable\n");
        work(3000);
    }
    return 0;
}
"#;

/// Promise: E9
#[test]
fn commands_of_the_program_itself_take_effect_where_it_gives_them() {
    for (pieces, kind) in [(&["-DPIECES"][..], "pieces"), (&[], "whole")] {
        let both = ["-DPER=10", "-DPER=35"].map(|per| {
            let name = format!("commanded-{kind}{per}");
            let program = compiled(&name, COMMANDED, &[&[per], pieces].concat())?;
            let dir = program.parent().expect("a directory");
            let fifos = limited(dir, &["mkfifo", "control", "answers"]).status();
            assert!(fifos.expect("mkfifo starts").success());
            let options = ["-D", "-1", "--control", "fifo:control,answers"];
            let counts = [(); 5].map(|()| counted(&program, &options));
            assert_eq!(counts, [counts[0]; 5], "{name}");
            Some((counts[0], counted(&program, &["--marked"])))
        });
        let [Some((few, few_marked)), Some((many, many_marked))] = both else { return };
        // What is outside the markers is the same in both.
        assert_eq!(many - few, many_marked - few_marked, "{kind}");
        assert!(few > few_marked && few - few_marked < 20 * 100, "{few}, {few_marked}");
    }
}

#[test]
fn what_is_between_markers_is_counted_to_the_instruction() {
    let Some(program) = compiled("between", TWO_REGIONS, &[]) else { return };
    let Some(stepped) = stepped_between(&program) else { return };
    for round in 0..5 {
        assert_eq!(counted(&program, &["--marked"]), stepped, "round {round}");
    }
    assert_eq!(counted(&program, &["--marked", "--no-cache"]), stepped);
    assert_eq!(counted(&program, &["--marked", "--deterministic", "--cpu", "host"]), stepped);
    // Without being asked to heed them, everything is counted.
    assert!(counted(&program, &[]) > stepped + 100_000);
}

const READS: &str = r#"
#include <lwp_count.h>
int main(void) {
    uint64_t in_region = 0, all = 0, calls = 0;
    work(10);
    lwp_count_start();
    lwp_count_begin();
    work(500);
    int counted = lwp_count_since(LWP_COUNT_INSTRUCTIONS, &in_region);
    lwp_count_stop();
    lwp_count_since(LWP_COUNT_CALLS, &calls);
    lwp_count_read(LWP_COUNT_INSTRUCTIONS, &all);
    printf("%d %lu %lu %lu\n", counted, in_region, calls, all);
    return 0;
}
"#;

/// What a program that reads its own counts prints.
fn printed(program: &Path, before: &[&str]) -> Vec<u64> {
    let dir = program.parent().expect("a directory");
    let output = limited(dir, &[before, &["./program"]].concat()).output().expect("it starts");
    let numbers = text(&output.stdout);
    numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

#[test]
fn a_program_reads_what_it_has_executed() {
    let Some(program) = compiled("reads", READS, &[]) else { return };
    assert_eq!(printed(&program, &[]), [0, 0, 0, 0], "natively");
    assert_eq!(printed(&program, &[LWP, "run", "--"]), [0, 0, 0, 0]);
    let Some(stepped) = stepped_between(&program) else { return };
    let [counted, in_region, calls, all] = printed(&program, &[LWP, "stat", "--"])[..] else {
        panic!("four numbers")
    };
    // Between start and stop there are also the marker that begins, three instructions that set the
    // reading up, its marker, and what its answer is made into.
    let around = stepped - in_region;
    assert!(counted == 1 && (5..20).contains(&around), "{stepped} {in_region}");
    assert!(calls > 100 && all > in_region, "{calls} {all}");
    // However often, and wherever counting is switched on or off.
    for options in [&["stat", "--marked", "--"][..], &["stat", "--"], &["record", "-q", "--"]] {
        let again = printed(&program, &[&[LWP], options].concat());
        assert_eq!(again[..3], [1, in_region, calls], "{options:?}");
    }
}

const FUNCTIONS: &str = r#"
#include <setjmp.h>
static jmp_buf place;
__attribute__((noinline)) uint64_t leaf(uint64_t n) { return mix(n) + 1; }
__attribute__((noinline)) uint64_t region(uint64_t n) {
    if (n == 99) longjmp(place, 1);
    if (n > 1000) return leaf(n) ^ region(n / 2);
    return leaf(n);
}
__attribute__((noinline)) uint64_t region_tail(uint64_t n) { sink += n; return leaf(n); }
int main(void) {
    work(100);
    uint64_t (*volatile pointer)(uint64_t) = region;
    for (int i = 0; i < 5; i++) { sink += region(10 * i); work(50); sink += region_tail(7 * i); }
    sink += pointer(5000);
    if (!setjmp(place)) region(99);
    work(20);
    sink += region(3);
    return 0;
}
"#;

/// Address and length of a function.
fn symbol(program: &Path, name: &str) -> (u64, u64) {
    let output = Command::new("nm").arg("-S").arg(program).output().expect("nm starts");
    let table = text(&output.stdout);
    let row = table.lines().find(|row| row.ends_with(&format!(" {name}"))).expect(name);
    let words: Vec<&str> = row.split(' ').collect();
    let number = |word| u64::from_str_radix(word, 16).expect("hexadecimal");
    (number(words[0]), number(words[1]))
}

#[test]
fn what_is_within_a_function_is_counted_to_the_instruction() {
    let Some(program) = compiled("within", FUNCTIONS, &["-no-pie"]) else { return };
    for name in ["region", "region_tail", "leaf"] {
        let (first, _) = symbol(&program, name);
        let (mut count, mut frames) = (0u64, Vec::new());
        let end = stepped::each_instruction(&program, |step| {
            while frames.last().is_some_and(|stack| *stack < step.stack) {
                frames.pop();
            }
            if step.pc == first && frames.last() != Some(&step.stack) {
                frames.push(step.stack);
            }
            count += u64::from(!frames.is_empty());
        });
        if end != Some(0) {
            return eprintln!("skipped: programs cannot be stepped here");
        }
        // What longjmp left is known to be done when the next function begins, or a marked one
        // returns.
        let counted = counted(&program, &["--within", name]);
        match name {
            "region" => assert!(counted >= count && counted < count + 40_000, "{counted} {count}"),
            _ => assert_eq!(counted, count, "{name}"),
        }
        for _ in 0..3 {
            assert_eq!(self::counted(&program, &["--within", name]), counted, "{name}");
        }
    }
    let both = counted(&program, &["--within", "region*"]);
    assert!(both > counted(&program, &["--within", "region_tail"]));
}

const THREADS: &str = r#"
#include <lwp_count.h>
#include <pthread.h>
static void *run(void *n) { work((uintptr_t)n); return 0; }
int main(void) {
    pthread_t threads[4];
    work(10);
    lwp_count_start();
    for (uintptr_t i = 0; i < 4; i++) {
        pthread_create(&threads[i], 0, run, (void *)(i * 10000));
        pthread_join(threads[i], 0);
    }
    lwp_count_stop();
    for (uintptr_t i = 0; i < 4; i++) {
        pthread_create(&threads[i], 0, run, (void *)(i * 10000));
        pthread_join(threads[i], 0);
    }
    return 0;
}
"#;

#[test]
fn threads_that_begin_between_markers_are_counted_too() {
    let Some(program) = compiled("threads", THREADS, &["-pthread"]) else { return };
    let marked = counted(&program, &["--marked"]);
    let all = counted(&program, &[]);
    // Half of the work, and a little more than that for the first stacks.
    assert!(marked > all * 2 / 5 && marked < all * 3 / 5, "{marked} of {all}");
    // Whoever joins a thread waits for it or finds that it has ended, which are other paths through
    // the library.
    let again = counted(&program, &["--marked"]);
    assert!(again.abs_diff(marked) < 1000, "{again} after {marked}");
}

#[test]
fn recordings_hold_what_is_between_markers() {
    let Some(program) = compiled("recorded", TWO_REGIONS, &[]) else { return };
    let dir = program.parent().expect("a directory");
    let counted = counted(&program, &["--marked"]);
    let words = [LWP, "record", "-q", "--marked", "-o", "m.data", "--", "./program"];
    assert!(limited(dir, &words).status().expect("lwp starts").success());
    let words = [LWP, "report", "-i", "m.data"];
    let report = text(&limited(dir, &words).output().expect("lwp starts").stdout);
    let grouped = counted.to_string();
    let (thousands, rest) = grouped.split_at(grouped.len() - 3);
    assert!(report.contains(&format!("# instructions: {thousands},{rest} ")), "{report}");
    assert!(report.contains("mix") && !report.contains("_start"), "{report}");
}

#[test]
fn a_program_without_markers_counts_nothing_and_is_told_so() {
    let output = limited(Path::new("/"), &[LWP, "stat", "--marked", "--", "/bin/true"]).output();
    let says = text(&output.expect("lwp starts").stderr);
    assert!(says.contains("nothing was counted: the program executed no marker"), "{says}");
    let words = [LWP, "stat", "--within", "no_such_function", "--", "/bin/true"];
    let says = text(&limited(Path::new("/"), &words).output().expect("lwp starts").stderr);
    assert!(says.contains("no_such_function"), "{says}");
}
