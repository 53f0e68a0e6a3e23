//! The cache model against cachegrind, on the same program with the same geometry: the same number
//! of loads miss the first level, and the same number go to memory.
//!
//! Both take least-recently-used lines, allocate on stores, count an access across two lines once,
//! and count a read-modify-write as a load. They differ where the program is made not to go:
//! cachegrind lets instructions share the last level, and looks a line up there at every miss of
//! the first level where this model has a second level between; neither shows while nothing is
//! evicted from the last level. And of a load across two lines that both miss, cachegrind takes the
//! worse, a record the lower address: where the lower line came from a nearer level the record says
//! so. The last levels are therefore compared without such loads.
//!
//! Promise: W7
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use lwp_tests::asm::run;
use lwp_tests::{End, TempDir, find_tool};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const REFERENCE: &str = env!("CARGO_BIN_EXE_lwp-reference");
/// Where EventCounter4 lies in the control block.
const COUNTER: std::ops::Range<usize> = 156..160;
/// The counter that the program starts with.
const FULL: u64 = 0x1FF_FFFF;

fn build(flags: &[&str], name: &str, dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("lwp/cache_walk.c");
    let program = dir.join(name);
    let built = Command::new("gcc")
        .args(["-O1", "-mlwp", "-nostdlib", "-static", "-no-pie", "-fno-stack-protector"])
        .args(["-fno-tree-loop-distribute-patterns", "-Wno-overflow"])
        .args(flags)
        .arg("-o")
        .args([&program, &source])
        .output()
        .expect("gcc starts");
    let messages = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{messages}");
    program
}

/// Loads that the model says missed, of at least `latency` steps of 16 cycles.
fn modelled(latency: &str, align: &str, dir: &Path) -> u64 {
    let flags = ["-DLWP", &format!("-DLATENCY={latency}"), align];
    let program = build(&flags, "with", dir);
    let outcome = run(vec![REFERENCE.into(), "--".into(), program.into_os_string()], dir);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Code(0), "{stderr}");
    let counter = outcome.stdout[COUNTER].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    FULL - counter
}

/// What cachegrind counts: misses of loads in the first and in the last level.
fn simulated(valgrind: &Path, align: &str, dir: &Path) -> (u64, u64) {
    let program = build(&[align], "without", dir);
    let counts = dir.join("counts");
    let mut out = OsString::from("--cachegrind-out-file=");
    out.push(&counts);
    let argv = vec![
        valgrind.into(),
        "--tool=cachegrind".into(),
        "--cache-sim=yes".into(),
        "--I1=32768,8,64".into(),
        "--D1=32768,8,64".into(),
        "--LL=16777216,16,64".into(),
        out,
        program.into_os_string(),
    ];
    let outcome = run(argv, dir);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Code(0), "{stderr}");
    let text = std::fs::read_to_string(&counts).expect("cachegrind wrote its counts");
    let words = |name: &str| -> Vec<String> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.split_whitespace().map(str::to_owned).collect()
    };
    let (names, values) = (words("events:"), words("summary:"));
    let value = |name: &str| -> u64 {
        let at = names.iter().position(|known| known == name).expect(name);
        values[at].parse().expect("a count")
    };
    (value("D1mr"), value("DLmr"))
}

/// Spec: LWP §4.2, §11. DEV-34
#[test]
fn lwp_spec_4_2_dev_34_misses_are_those_of_cachegrind() {
    let Some(valgrind) = find_tool("valgrind") else {
        eprintln!("valgrind is not installed; nothing compared");
        return;
    };
    let dir = TempDir::new();
    let (first, _) = simulated(&valgrind, "-DALIGN=1", dir.path());
    assert!(first > 5000, "{first} misses are no test");
    assert_eq!(modelled("0", "-DALIGN=1", dir.path()), first, "misses of the first level");
    let (_, last) = simulated(&valgrind, "-DALIGN=8", dir.path());
    assert!(last > 1000, "{last} misses are no test");
    assert_eq!(modelled("15", "-DALIGN=8", dir.path()), last, "loads from memory");
}
