//! Programs that profile themselves, in C and in Rust: on the reference runner, on a second
//! processor if there is one, and natively, where they must say that there is no LWP and not die of
//! it.
//!
//! Promise: W4, W6

use lwp_tests::asm::{SecondRunner, run};
use lwp_tests::{End, Outcome, TempDir, lwp_binary};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const REFERENCE: &str = env!("CARGO_BIN_EXE_lwp-reference");

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace").to_owned()
}

/// Compiles a C program with the header; warnings are errors.
fn compile(compiler: &str, flags: &[&str], source: &str, dir: &Path) -> PathBuf {
    let program = dir.join("program");
    let mut include = OsString::from("-I");
    include.push(workspace().join("include"));
    let built = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror"])
        .args(flags)
        .arg(include)
        .arg("-o")
        .args([&program, &workspace().join(source)])
        .output()
        .expect("the compiler starts");
    let messages = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{compiler} {flags:?} {source}: {messages}");
    program
}

/// Runs a program on each processor that has LWP; all must print the same. Returns what they print.
fn profiled(program: &Path, arguments: &[&str], dir: &Path) -> String {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let reference = [REFERENCE.into(), "--".into(), program.as_os_str().to_owned()];
    let mut commands = vec![reference.to_vec()];
    let second = SecondRunner::find(dir);
    commands.extend(second.and_then(|second| second.command("full", program)));
    let mut printed = Vec::new();
    for mut command in commands {
        command.extend(arguments.iter().cloned());
        let Outcome { end, stdout, stderr, .. } = run(command.clone(), dir);
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(end, End::Code(0), "{command:?}: {stderr}");
        printed.push(String::from_utf8_lossy(&stdout).into_owned());
    }
    for other in &printed[1..] {
        assert_eq!(&printed[0], other, "the second processor differs");
    }
    printed.swap_remove(0)
}

/// Returns whether this machine has LWP itself.
fn host_has_lwp(dir: &Path) -> bool {
    let program = compile("gcc", &["-std=c11"], "tests/lwp/layout.c", dir);
    run(vec![program.into_os_string()], dir).end == End::Code(0)
}

/// Spec: LWP §5.8, §3.1, §3.4
#[test]
fn lwp_spec_5_8_the_header_serves_every_dialect() {
    let want = "1 cad0 1 badf00d\n255 4567 2 deadbeef\n1 cad1 3 badf00d0badf00d\n\
                255 4568 4 deadbeefdeadbeef\n";
    let dir = TempDir::new();
    for (compiler, language) in [
        ("gcc", "-std=c99"),
        ("gcc", "-std=c11"),
        ("gcc", "-std=gnu17"),
        ("g++", "-std=c++11"),
        ("g++", "-std=c++17"),
    ] {
        for optimisation in ["-O0", "-O2"] {
            for lwp in [None, Some("-mlwp")] {
                // Nothing is linked on the way, an instruction at a time.
                let mut flags = vec![language, optimisation, "-static"];
                flags.extend(lwp);
                if compiler == "g++" {
                    flags.extend(["-x", "c++"]);
                }
                let program = compile(compiler, &flags, "tests/lwp/layout.c", dir.path());
                assert_eq!(profiled(&program, &[], dir.path()), want, "{compiler} {flags:?}");
            }
        }
    }
}

/// Spec: LWP §10
#[test]
fn lwp_spec_10_the_published_sequence() {
    let dir = TempDir::new();
    for flags in [["-std=c99", "-O1"], ["-mlwp", "-O2"]] {
        let program = compile("gcc", &flags, "tests/lwp/sequence.c", dir.path());
        let printed = profiled(&program, &[], dir.path());
        let mut lines = printed.lines();
        assert_eq!(lines.next(), Some("flags 2 head 448 missed 0 counter 8"));
        let records: Vec<&str> = lines.by_ref().take(17).collect();
        let order = "I0 V0 I7 V10 I14 V20 I21 I28 V30 I0 I7 V9 I14 V19 I21 I28 V29";
        for (index, (record, name)) in records.iter().zip(order.split(' ')).enumerate() {
            let (flags, data2) = match (name.starts_with('I'), index < 9) {
                (true, true) => ("4567", "deadbeef"),
                (true, false) => ("4567", "deadbeefdeadbeef"),
                (false, true) => ("cad", "badf00d"),
                (false, false) => ("cad", "badf00d0badf00d"),
            };
            assert_eq!(*record, format!("{name} {flags} {data2} 0"));
        }
        let rest: Vec<&str> = lines.collect();
        let summary =
            ["17 entries in ring buffer", "7 LWPVAL instructions, 10 LWPINS instructions"];
        assert_eq!(rest, summary);
    }
}

/// A 32-bit program on the reference, which is not on the virtual CPU: nine entries, four and five.
/// Skipped where the compiler makes none.
///
/// Spec: LWP §5.2, §10
#[test]
fn lwp_spec_10_the_published_sequence_in_32_bits() {
    let dir = TempDir::new();
    let probe = dir.path().join("probe.c");
    std::fs::write(&probe, "#include <stdio.h>\nint main(void) { return 0; }\n").unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args(["-m32", "-o"]).arg(dir.path().join("probe")).arg(&probe);
    if !compiler.output().is_ok_and(|made| made.status.success()) {
        eprintln!("skipped: gcc -m32 makes no program; Debian has what it lacks in gcc-multilib");
        return;
    }
    for flags in [["-m32", "-std=c99", "-O1"], ["-m32", "-mlwp", "-O2"]] {
        let program = compile("gcc", &flags, "tests/lwp/sequence.c", dir.path());
        let command = [REFERENCE.into(), "--".into(), program.into_os_string()];
        let outcome = run(command.to_vec(), dir.path());
        assert_eq!(outcome.end, End::Code(0), "{outcome:?}");
        let printed = String::from_utf8_lossy(&outcome.stdout);
        let mut lines = printed.lines();
        assert_eq!(lines.next(), Some("flags 2 head 192 missed 0 counter 9"));
        for name in "I0 V0 I7 V10 I14 V20 I21 I28 V30".split(' ') {
            let rest = if name.starts_with('I') { "4567 deadbeef 0" } else { "cad badf00d 0" };
            assert_eq!(lines.next(), Some(&*format!("{name} {rest}")));
        }
        let summary = ["9 entries in ring buffer", "4 LWPVAL instructions, 5 LWPINS instructions"];
        assert_eq!(lines.collect::<Vec<_>>(), summary);
    }
}

/// Spec: LWP §5.4 to §5.7, §6.4
/// Promise: W14
#[test]
fn lwp_spec_5_7_a_record_is_made_once_however_often_signals_interrupt() {
    let dir = TempDir::new();
    let program = compile("gcc", &["-std=gnu17", "-O2"], "tests/lwp/interrupted.c", dir.path());
    let printed = profiled(&program, &["600"], dir.path());
    assert_eq!(printed, "600 inserted, 200 sampled, 0 wrong, missed 0\n");
    // The reference steps through a handler for longer than the timer waits.
    let Some(second) = SecondRunner::find(dir.path()) else { return };
    for rounds in ["1000000", "1000001", "1000002"] {
        let mut command = second.command("full", &program).expect("a processor");
        command.extend([rounds.into(), "50".into()]);
        assert_eq!(run(command, dir.path()).end, End::Code(0), "{rounds}");
    }
}

/// Spec: LWP §4.2, §5.7
/// Promise: W17, W18
#[test]
fn lwp_spec_4_2_what_retires_is_counted_once_however_often_signals_interrupt() {
    let dir = TempDir::new();
    // Its addresses are in the records.
    let flags = ["-std=gnu17", "-O2", "-static", "-no-pie"];
    // Branches that come due much sooner than instructions, or do not, in a block or two or after
    // many.
    let all = &["190", "230", "310", "410", "630"][..];
    let two = &["230", "410"][..];
    let intervals = [(61, 23, all), (61, 37, two), (5021, 307, two), (1511, 997, two)];
    for (instructions, branches, timers) in intervals {
        let intervals = format!("-DINTERVALS=INSTRUCTIONS={instructions},BRANCHES={branches}");
        let flags = [&flags[..], &[&intervals]].concat();
        let program = compile("gcc", &flags, "tests/lwp/retired.c", dir.path());
        for bits in ["0", "3"] {
            let printed = profiled(&program, &["2", bits], dir.path());
            assert!(printed.ends_with("missed 0\n"), "{printed}");
        }
        let Some(second) = SecondRunner::find(dir.path()) else { continue };
        // A timer that expires before its handler has returned lets nothing else run.
        for every in timers {
            let mut command = second.command("full", &program).expect("a processor");
            // Long intervals leave a batch little to do: the timer is to expire.
            let batches = if instructions > 100 { "60" } else { "6" };
            command.extend([batches, "0", every].map(OsString::from));
            let outcome = run(command, dir.path());
            let stderr = String::from_utf8_lossy(&outcome.stderr);
            assert_eq!(outcome.end, End::Code(0), "{intervals}, every {every} µs: {stderr}");
        }
    }
    if SecondRunner::find(dir.path()).is_none() {
        return;
    }
    let program = compile("gcc", &flags, "tests/lwp/retired.c", dir.path());
    // Where branches are written down, it is the host that takes them in before a handler is
    // called.
    for every in ["190", "410", "730"] {
        let options = ["--cpu", "full", "--deterministic", "--predictor", "zen4"];
        let outcome = on_virtual_cpu(&options, &program, &["4", "0", every], dir.path());
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.end, End::Code(0), "judged, every {every} microseconds: {stderr}");
    }
}

/// Generated code is recorded as it is when it is executed: after it was rewritten, and while it
/// rewrites itself.
///
/// Spec: LWP §4.2, §5.7
#[test]
fn lwp_spec_4_2_generated_code_is_recorded_as_it_is() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O2", "-static", "-no-pie"];
    let program = compile("gcc", &flags, "tests/lwp/generated.c", dir.path());
    for events in ["2", "4", "6"] {
        let printed = profiled(&program, &[events, "60"], dir.path());
        assert!(printed.contains(", 0 wrong, ") && printed.ends_with("missed 0\n"), "{printed}");
    }
}

/// What a full ring has no room for is counted, and nothing else changes.
///
/// Spec: LWP §5.7
#[test]
fn lwp_spec_5_7_what_a_full_ring_has_no_room_for_is_counted() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O2", "-static", "-no-pie"];
    let program = compile("gcc", &flags, "tests/lwp/full.c", dir.path());
    for bits in ["0", "3"] {
        let printed = profiled(&program, &[bits], dir.path());
        assert!(!printed.contains(" 0 "), "{printed}");
    }
}

/// Records have the time at which they were stored, whoever stores them.
///
/// Spec: LWP §5.2
/// Promise: W29
#[test]
fn lwp_spec_5_2_time_stamps_are_those_of_a_clock() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O1", "-static", "-no-pie"];
    let program = compile("gcc", &flags, "tests/lwp/stamps.c", dir.path());
    for options in [&["--cpu", "full"][..], &["--cpu", "full", "--predictor", "zen4"]] {
        let outcome = on_virtual_cpu(options, &program, &[], dir.path());
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.end, End::Code(0), "{options:?}: {stderr}");
        let printed = String::from_utf8_lossy(&outcome.stdout);
        assert!(printed.ends_with(" records, 40 inserted, 0 wrong\n"), "{printed}");
    }
}

/// A handler in C that repairs a page of the ring is interrupted by no other fault of the ring, and
/// the profile goes on.
///
/// Spec: LWP §6.4
/// Promise: W25
#[test]
fn lwp_spec_6_4_dev_37_handlers_repair_pages_of_the_ring() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O1", "-static", "-no-pie"];
    let program = compile("gcc", &flags, "tests/lwp/repaired.c", dir.path());
    for (events, interval) in [("4", "99"), ("8", "99"), ("4", "3"), ("0xc", "60")] {
        let printed = profiled(&program, &[events, interval], dir.path());
        let (faults, records) = printed.split_once(" faults, ").expect("two numbers");
        let records = records.split(' ').next().and_then(|number| number.parse::<u32>().ok());
        assert_eq!(faults, "4", "{printed}");
        assert!(records.is_some_and(|records| records >= 480), "{printed}");
        assert!(printed.ends_with(", on\n"), "{printed}");
    }
}

/// What nobody should do while LWP is on leaves what it leaves on the reference, and hurts nobody
/// else.
///
/// Spec: LWP §5.3, §5.4, §6.1, §6.2, §6.4
/// Promise: W19
#[test]
fn lwp_spec_6_2_hostile_programs_do_the_same_everywhere() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O1", "-static", "-no-pie", "-pthread"];
    let program = compile("gcc", &flags, "tests/lwp/hostile.c", dir.path());
    let printed = profiled(&program, &[], dir.path());
    assert!(printed.contains("component in a frame: 0 in the frame\n-- signal 11\n"), "{printed}");
    assert!(printed.ends_with("wild head: head inside 1, outside 0\n-- code 0\n"), "{printed}");
    for options in [&["--cpu", "bulldozer"][..], &["--predictor", "zen4", "--cache", "zen4"]] {
        let outcome = on_virtual_cpu(options, &program, &[], dir.path());
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), printed, "{options:?}");
    }
}

/// Runs a program on the virtual CPU with these options.
fn on_virtual_cpu(options: &[&str], program: &Path, arguments: &[&str], dir: &Path) -> Outcome {
    let words = [&["run", "--no-cache"], options, &["--"]].concat();
    let mut command: Vec<OsString> = vec![lwp_binary().into()];
    command.extend(words.iter().map(OsString::from));
    command.push(program.as_os_str().to_owned());
    command.extend(arguments.iter().map(OsString::from));
    run(command, dir)
}

/// Clocks without stalls follow from instructions, by the routine that executes SLWPCB as by the
/// host.
///
/// Spec: LWP §4.2, §5.4
#[test]
fn lwp_spec_5_4_a_flush_writes_clocks_that_follow_from_instructions() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O2"];
    let program = compile("gcc", &flags, "tests/lwp/clocks.c", dir.path());
    let outcome = on_virtual_cpu(&["--cpu", "full"], &program, &["20000"], dir.path());
    let printed = String::from_utf8_lossy(&outcome.stdout);
    assert!(printed.starts_with("0 wrong, missed 0"), "{outcome:?}");
}

/// A profile that a thread switches off and on again by itself, with the block changed or not.
///
/// Spec: LWP §3.2, §5.3
/// Promise: W30
#[test]
fn lwp_spec_5_3_a_profile_is_switched_off_and_on_again() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O2", "-static"];
    let program = compile("gcc", &flags, "tests/lwp/toggle.c", dir.path());
    let printed = profiled(&program, &["100", "3"], dir.path());
    // Off for long enough for the host to find out, and for next to nothing.
    let many = on_virtual_cpu(&["--cpu", "full"], &program, &["100", "3"], dir.path());
    let long = on_virtual_cpu(&["--cpu", "full"], &program, &["100", "300000"], dir.path());
    assert_eq!(String::from_utf8_lossy(&many.stdout), printed);
    assert_eq!(String::from_utf8_lossy(&long.stdout), printed);
}

/// Signals come between all instructions of the routine that switches a profile off and on.
///
/// Spec: LWP §5.3
/// Promise: W30
#[test]
fn lwp_spec_5_3_a_profile_is_off_or_on_whenever_a_signal_comes() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O2", "-static"];
    let program = compile("gcc", &flags, "tests/lwp/toggle_storm.c", dir.path());
    for every in ["230", "410"] {
        let outcome = on_virtual_cpu(&["--cpu", "full"], &program, &["2000", every], dir.path());
        let printed = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(outcome.end, End::Code(0), "every {every} µs: {printed}{outcome:?}");
    }
}

/// A thread that sleeps on the eventfd is woken at each threshold, and by nothing else.
///
/// Spec: LWP §5.7, §6.5
/// Promise: W16
#[test]
fn lwp_spec_6_5_the_threshold_wakes_whoever_waits_for_the_eventfd() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O2", "-pthread"];
    let program = compile("gcc", &flags, "tests/lwp/eventfd.c", dir.path());
    let options = ["--interrupt", "eventfd:100"];
    let outcome = on_virtual_cpu(&options, &program, &["640", "100"], dir.path());
    let printed = String::from_utf8_lossy(&outcome.stdout);
    assert_eq!(printed, "640 drained, 20 wakings, 0 wrong, missed 0\n", "{outcome:?}");
}

/// What is no eventfd is not written to, and the user is told.
///
/// Spec: LWP §6.5
/// Promise: W16
#[test]
fn lwp_spec_6_5_nothing_but_an_eventfd_is_written_to() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O2", "-pthread"];
    let program = compile("gcc", &flags, "tests/lwp/eventfd.c", dir.path());
    for number in ["1", "100"] {
        let option = format!("eventfd:{number}");
        let options = ["--interrupt", &option];
        let arguments = ["640", number, "alone"];
        let outcome = on_virtual_cpu(&options, &program, &arguments, dir.path());
        let printed = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(printed, "640 drained, 0 wrong\n", "{number}");
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(said.contains(&format!("descriptor {number} of process")), "{said}");
    }
}

/// However many threads begin at once, and whatever others map meanwhile, no profile is lost.
///
/// Spec: LWP §5.3, §6.2
/// Promise: W22
#[test]
fn lwp_spec_6_2_threads_begin_profiles_together() {
    let dir = TempDir::new();
    let flags = ["-std=gnu17", "-O2", "-pthread"];
    let program = compile("gcc", &flags, "tests/lwp/together.c", dir.path());
    for arguments in [&[][..], &["mapping"]] {
        for run in 0..15 {
            let outcome = on_virtual_cpu(&[], &program, arguments, dir.path());
            let printed = String::from_utf8_lossy(&outcome.stdout);
            let wanted = "8 complete, 0 off, 0 wrong\n";
            assert_eq!(printed, wanted, "{arguments:?}, run {run}: {outcome:?}");
        }
    }
}

/// Code gigabytes apart, in an address space whose first 2 GiB the program keeps for itself: no
/// profile is lost.
///
/// Spec: LWP §5.3
/// Promise: W23
#[test]
fn lwp_spec_5_3_profiles_of_code_that_lies_far_apart() {
    let dir = TempDir::new();
    let program = compile(
        "gcc",
        &["-std=gnu17", "-O2", "-pie", "-fPIE"],
        "tests/lwp/far_apart.c",
        dir.path(),
    );
    let outcome = on_virtual_cpu(&[], &program, &[], dir.path());
    let printed = String::from_utf8_lossy(&outcome.stdout);
    assert_eq!(printed, "10 10 10 10 10 of 50\n", "{outcome:?}");
}

/// Records say on which processor the thread was, wherever it is moved; where runs are to repeat
/// they say 0.
///
/// Spec: LWP §4.1
/// Promise: W21
#[test]
fn lwp_spec_4_1_dev_50_records_name_the_processor() {
    let dir = TempDir::new();
    let program = compile("gcc", &["-std=gnu17", "-O2"], "tests/lwp/core.c", dir.path());
    for (options, arguments) in [(&[][..], &[][..]), (&["--deterministic"], &["fixed"])] {
        let outcome = on_virtual_cpu(options, &program, arguments, dir.path());
        let printed = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(printed, "all right, 0 wrong\n", "{options:?}: {outcome:?}");
    }
}

/// A wrong value says what is known.
#[test]
fn wrong_lwp_options_say_what_is_right() {
    let dir = TempDir::new();
    for (option, value, says) in [
        ("--events", "cycles", "known are values, instructions"),
        ("--cache", "32K", "SIZE/WAYS/LINE"),
        ("--cache", "64K/64/64", "at most 128 sets"),
        ("--predictor", "tage", "family15h, zen4 and generic"),
        ("--interrupt", "eventfd:x", "as in eventfd:100"),
    ] {
        let options = [option, value];
        let outcome = on_virtual_cpu(&options, Path::new("/bin/true"), &[], dir.path());
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert_ne!(outcome.end, End::Code(0), "{options:?}");
        assert!(said.contains(says), "{options:?}: {said}");
    }
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_the_c_example_prints_records() {
    let dir = TempDir::new();
    let program = compile("gcc", &["-std=c99", "-O1"], "examples/branches.c", dir.path());
    let printed = profiled(&program, &[], dir.path());
    let last = printed.lines().last().unwrap_or_default();
    let records: u32 = last.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(records > 100 && last.contains(" 0 lost; longest 231"), "{printed}");
}

/// What asks for the shipped form says that there is the other, and uses none of it.
///
/// Spec: P07 §5.1; LWP §8
/// Promise: W28
#[test]
fn p07_5_1_programs_of_the_shipped_form_name_the_other() {
    let dir = TempDir::new();
    let in_c = compile("gcc", &["-std=c99", "-O1"], "examples/branches.c", dir.path());
    for program in [in_c, example("branches")] {
        let outcome = on_virtual_cpu(&["--revision", "2007"], &program, &[], dir.path());
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!((outcome.end, outcome.stdout), (End::Code(1), Vec::new()), "{said}");
        assert!(said.to_lowercase().contains("form") && said.contains("2007"), "{said}");
    }
}

/// An example of crate lwp, as cargo builds it with the tests of all packages, or by itself.
fn example(name: &str) -> PathBuf {
    let reference = Path::new(REFERENCE);
    let target = reference.ancestors().nth(2).expect("TARGET/PROFILE/lwp-reference").to_owned();
    let program = target.join("debug/examples").join(name);
    if program.exists() {
        return program;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--workspace", "--example", name, "--target-dir"]).arg(&target);
    let status = build.current_dir(workspace()).status().expect("cargo starts");
    assert!(status.success(), "building the example failed");
    program
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_one_thread_drains_the_rings_of_others() {
    let dir = TempDir::new();
    let printed = profiled(&example("drain_many"), &["3", "60"], dir.path());
    assert_eq!(printed, "3 threads, 60 records each: none lost, none torn\n");
}

/// Two threads that ran one profile would overwrite each other's records.
///
/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_a_profile_runs_on_one_thread_at_a_time() {
    let dir = TempDir::new();
    let printed = profiled(&example("one_thread"), &[], dir.path());
    assert_eq!(printed, "one thread at a time, and again afterwards\n");
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_a_second_process_drains_the_ring() {
    let dir = TempDir::new();
    let printed = profiled(&example("second_process"), &["40"], dir.path());
    assert_eq!(printed, "40 records of another process: none lost, none torn\n");
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_the_rust_example_prints_records() {
    let dir = TempDir::new();
    let printed = profiled(&example("branches"), &[], dir.path());
    assert!(printed.lines().count() > 10, "{printed}");
    assert!(printed.ends_with("longest Some(97), records lost: 0\n"), "{printed}");
}

/// What a runtime that optimises itself prints: the numbers of the line that begins so.
fn numbers(printed: &str, line: &str) -> Vec<u64> {
    let found = printed.lines().find_map(|it| it.strip_prefix(line));
    let found = found.unwrap_or_else(|| panic!("no {line}: {printed}"));
    let words = found.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Runs a runtime that optimises itself, without measuring times. Checks that it does, and returns
/// how many records were lost.
fn optimises_itself(program: &Path, interval: &str, records: &str) -> u64 {
    let dir = TempDir::new();
    let outcome = on_virtual_cpu(&[], program, &[interval, records, "0"], dir.path());
    assert_eq!(outcome.end, End::Code(0), "{outcome:?}");
    let printed = String::from_utf8_lossy(&outcome.stdout);
    let learnt = numbers(&printed, "learnt from ");
    assert!(learnt[0] >= 64 && learnt[1] >= 64, "{printed}");
    // The loop's branch goes back for all items but the last of a piece.
    let back = numbers(&printed, "block 5: ");
    assert!(back[0] > 20 && back[1] < 5, "{printed}");
    // An item is seldom empty.
    let empty = numbers(&printed, "block 0: ");
    assert!(empty[0] * 5 < empty[1], "{printed}");
    let says = |line: &str| assert!(printed.lines().any(|it| it == line), "no {line}: {printed}");
    says("order of blocks: [0, 2, 4, 5, 6, 1, 3]");
    says("inline in block 4: xor");
    says("decided as from a record of everything: yes");
    says("result as interpreted: yes");
    assert_eq!(numbers(&printed, "instructions "), [17_792, 14_168], "{printed}");
    assert_eq!(numbers(&printed, "branches taken "), [3_902, 1_246], "{printed}");
    learnt[4]
}

/// A program finds its own hot branches and usual values, and executes less afterwards.
///
/// Spec: LWP §5.6, §7
/// Promise: W24
#[test]
fn lwp_spec_7_the_rust_example_optimises_itself() {
    let program = example("self_optimizing");
    assert_eq!(optimises_itself(&program, "200", "4096"), 0);
    assert!(optimises_itself(&program, "1", "512") > 1000, "the ring is full again and again");
}

/// Spec: LWP §1.1
/// Promise: W24
#[test]
fn lwp_spec_1_1_a_runtime_without_lwp_says_so() {
    let dir = TempDir::new();
    if host_has_lwp(dir.path()) {
        return;
    }
    let outcome = run(vec![example("self_optimizing").into_os_string()], dir.path());
    assert_eq!(outcome.end, End::Code(77));
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(said.contains("no Lightweight Profiling (under `lwp run` it would)"), "{said}");
}

/// Spec: LWP §1.1
/// Promise: W5
#[test]
fn lwp_spec_1_1_without_lwp_programs_say_so() {
    let dir = TempDir::new();
    if host_has_lwp(dir.path()) {
        return;
    }
    for name in ["branches", "drain_many", "one_thread", "second_process"] {
        let outcome = run(vec![example(name).into_os_string()], dir.path());
        assert_eq!(outcome.end, End::Code(1), "{name}");
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert!(stderr.contains("NoLwp"), "{name}: {stderr}");
    }
    let program = compile("gcc", &["-std=c99"], "examples/branches.c", dir.path());
    let outcome = run(vec![program.into_os_string()], dir.path());
    assert_eq!(outcome.end, End::Code(1));
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("no Lightweight Profiling"));
}
