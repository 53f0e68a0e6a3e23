//! Where the program or the machine is short of something: native behaviour or a clear error, and
//! never a hang.
//!
//! Promise: F14
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use lwp_testkit::files::{copy_program, write_program};
use lwp_tests::{Comparison, End, Job, Outcome, TempDir, compile, find_tool, lwp_binary};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A shell script, compared with its native run.
fn sh(script: &str) -> Comparison<'_> {
    Comparison::new(&["/bin/sh", "-c", script])
}

/// A shell script around `lwp`, which it finds as `$LWP`, in a folder of its own.
fn around_lwp(dir: &Path, script: &str) -> Outcome {
    let argv = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
    let mut job = Job::new(argv, LIMIT);
    job.env = vec![("LWP".to_owned(), lwp_binary().into())];
    job.run(dir, dir)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles a C program into `dir`, statically: it needs no descriptor to start.
fn static_program(dir: &Path, name: &str, source: &str) -> PathBuf {
    let (input, output) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&input, source).expect("write a source");
    let built =
        Command::new("gcc").args(["-O1", "-static", "-o"]).arg(&output).arg(&input).status();
    assert!(built.expect("gcc is needed").success());
    output
}

#[test]
fn few_descriptors() {
    sh("ulimit -n 10; echo one | cat; ls / | head -3; for i in 1 2 3; do (echo $i); done; ulimit -n")
        .check();
    sh("ulimit -n 4; echo one; ls / | head -1").ends(End::Code(2)).check();
}

/// More processes at a time than the host may have descriptors.
#[test]
fn more_processes_than_descriptors() {
    let dir = TempDir::new();
    static_program(
        dir.path(),
        "many",
        "#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         int main(void){ int ends[2], s, right = 0; char byte; pipe(ends);\n\
         for (int i = 0; i < 100; i++) if (fork() == 0) {\n\
         close(ends[1]); read(ends[0], &byte, 1); _exit(5); }\n\
         close(ends[1]); for (int i = 0; i < 100; i++) { wait(&s); right += s == 0x500; }\n\
         printf(\"%d\\n\", right); return 3; }",
    );
    let options = "--no-cache -x, -e instructions -o";
    let mut counts = Vec::new();
    for limit in ["", "ulimit -n 64; "] {
        let script =
            format!("{limit}\"$LWP\" stat {options} counts -- ./many; echo $?; cat counts");
        let outcome = around_lwp(dir.path(), &script);
        let out = text(&outcome.stdout);
        assert!(out.starts_with("100\n3\n"), "{out}{}", text(&outcome.stderr));
        counts.push(out.split(',').next().map(str::to_owned));
    }
    // Each process has contexts of its own, which take a descriptor of lwp's.
    let named = counts[1].as_ref().is_some_and(|it| it.contains("lwp has no descriptor"));
    assert!(counts[0] == counts[1] || named, "{counts:?}");
}

/// The machine's memory is reached through a descriptor, which such a program has none left for.
#[test]
fn no_descriptor_left() {
    let dir = TempDir::new();
    static_program(
        dir.path(),
        "say",
        "#include <stdio.h>\nint main(void){puts(\"said\");return 4;}",
    );
    let script = "\"$LWP\" stat --no-cache -x, -e instructions -o counts -- \
                  sh -c 'ulimit -S -n 3; exec ./say'; echo $?; cat counts";
    let outcome = around_lwp(dir.path(), script);
    let out = text(&outcome.stdout);
    assert!(out.starts_with("said\n4\n"), "{out}\n{}", text(&outcome.stderr));
    assert!(!out.contains("not counted"), "{out}");
    let hard = script.replace("ulimit -S -n", "ulimit -n");
    let out = text(&around_lwp(dir.path(), &hard).stdout);
    assert!(out.starts_with("said\n4\n"), "{out}");
}

#[test]
fn little_memory() {
    sh("ulimit -v 200000; echo one | cat; ls / | head -3; ulimit -v").check();
    sh("ulimit -d 2000; echo one | cat; ls / | head -3; ulimit -d").check();
    sh("ulimit -s 64; echo one | cat; ls / | head -3; ulimit -s").check();
    sh("ulimit -s unlimited; echo one | cat; ls / | head -3; ulimit -s").check();
    sh("ulimit -l 0; echo one | cat; ulimit -l").check();
}

/// Little room for data is as much as natively, and the program is counted.
#[test]
fn little_data() {
    let dir = TempDir::new();
    let script = "\"$LWP\" stat --no-cache -x, -e instructions -o counts -- \
                  sh -c 'ulimit -S -d 2000; ulimit -d; sh -c \"echo one\"'; grep -c 'not counted' counts";
    let outcome = around_lwp(dir.path(), script);
    assert_eq!(text(&outcome.stdout), "2000\none\n0\n", "{}", text(&outcome.stderr));
}

/// What does not fit fails as it does natively.
#[test]
fn too_little_memory() {
    if find_tool("perl").is_none() {
        eprintln!("skipped: no perl");
        return;
    }
    let big = "perl -e '$x = \"a\" x 900000000; print length $x, \"\\n\"' 2>/dev/null; echo $?";
    sh(&format!("ulimit -v 400000; {big}")).check();
    sh(&format!("ulimit -d 400000; {big}")).check();
}

#[test]
fn files_of_no_size() {
    sh("ulimit -f 0; echo one | cat >/dev/null; exit 4").ends(End::Code(4)).check();
    // SIGXFSZ.
    sh("ulimit -c 0; ulimit -f 0; cat /bin/sh > out").ends(End::Signal(25)).check();
}

/// The soft limits of whoever starts lwp are the program's, not lwp's own.
#[test]
fn limits_of_the_caller_are_passed_on() {
    let dir = TempDir::new();
    let script = "ulimit -S -n 20; ulimit -S -f 8; ulimit -S -v 900000; ulimit -S -d 2000; \
                  \"$LWP\" run --no-cache -- sh -c 'ulimit -n; ulimit -f; ulimit -v; ulimit -d'";
    let outcome = around_lwp(dir.path(), script);
    assert_eq!(text(&outcome.stdout), "20\n8\n900000\n2000\n", "{}", text(&outcome.stderr));
    assert_eq!(outcome.end, End::Code(0));
}

/// Where lwp itself has no room, it says what is missing and how to get it.
///
/// Promise: F36
#[test]
fn lwp_s_own_limits_are_named() {
    let cases = [
        ("ulimit -n 8", "open files"),
        ("ulimit -f 8", "size of files"),
        ("ulimit -v 300000", "address space"),
        ("ulimit -d 3000", "data"),
    ];
    for (limit, named) in cases {
        let dir = TempDir::new();
        let script = format!("{limit}; exec \"$LWP\" run --no-cache -- /bin/echo started");
        // Privileged users may go past a hard limit; then there is nothing to report.
        let outcome = around_lwp(dir.path(), &script);
        let (out, error) = (text(&outcome.stdout), text(&outcome.stderr));
        match outcome.end {
            End::Code(0) => assert_eq!(out, "started\n"),
            end => {
                assert_eq!(end, End::Code(125), "{limit}: {error}");
                assert!(error.contains("help") && error.contains(named), "{limit}: {error}");
                assert_eq!(out, "", "{limit}");
            }
        }
    }
}

/// With a stack or memory that is too small for lwp itself, it names the limit.
#[test]
fn limits_that_are_too_small_for_lwp_are_named() {
    let cases = [
        ("ulimit -s 16", "run -- /bin/echo started", "the stack"),
        ("ulimit -s 16", "report -i /dev/null", "the stack"),
        ("ulimit -d 10000", "report -i /dev/null", "data"),
        ("ulimit -v 60000", "report -i /dev/null", "address space"),
    ];
    for (limit, command, named) in cases {
        let dir = TempDir::new();
        let outcome = around_lwp(dir.path(), &format!("{limit}; exec \"$LWP\" {command}"));
        let (out, error) = (text(&outcome.stdout), text(&outcome.stderr));
        assert_eq!(outcome.end, End::Code(125), "{limit}, {command}: {error}");
        // Privileged users may go past a hard limit: then the file is what is wrong.
        let is_named = error.contains(named) && error.contains("help");
        assert!(is_named || error.contains("/dev/null"), "{limit}, {command}: {error}");
        assert_eq!(out, "", "{limit}, {command}");
    }
}

/// A program that a limit keeps off the virtual CPU runs natively, and lwp names the limit.
///
/// Promise: F36
#[test]
fn a_limit_that_keeps_a_program_off_the_virtual_cpu_is_named() {
    let dir = TempDir::new();
    let script = "ulimit -d 10000; exec \"$LWP\" run -- /bin/echo started";
    let outcome = around_lwp(dir.path(), script);
    let error = text(&outcome.stderr);
    assert_eq!(outcome.end, End::Code(0), "{error}");
    assert_eq!(text(&outcome.stdout), "started\n");
    assert!(error.contains("its limit on data is 10000 KiB (ulimit -d)"), "{error}");
}

/// With few descriptors for itself, lwp runs programs as they run natively, or says at once that it
/// cannot.
///
/// Promise: F36
#[test]
fn few_descriptors_for_lwp_suffice_or_are_refused() {
    let words = "echo a | cat | cat | cat | sort; (true & true & wait); ls /dev/null | head -1";
    for files in [9, 11, 12, 13, 15, 16, 20, 24, 28, 32, 40] {
        let dir = TempDir::new();
        let script = format!("ulimit -n {files}; exec \"$LWP\" run -- /bin/sh -c '{words}'");
        let outcome = around_lwp(dir.path(), &script);
        let error = text(&outcome.stderr);
        match outcome.end {
            End::Code(0) => assert_eq!(text(&outcome.stdout), "a\n/dev/null\n", "{files}: {error}"),
            end => {
                assert_eq!(end, End::Code(125), "{files}: {error}");
                assert!(error.contains("open files") && error.contains("help"), "{files}: {error}");
                assert_eq!(text(&outcome.stdout), "", "{files}");
            }
        }
    }
}

/// A limited address space holds what lwp needs, or the program runs natively: lwp does not end for
/// want of memory, and kills no process.
///
/// Promise: F36
#[test]
fn a_limited_address_space_costs_counts_at_most() {
    let words = "echo a | cat | cat | sort; (true & true & wait)";
    for megabytes in [1500, 2200, 4000, 4150, 4400, 5200, 6000] {
        let dir = TempDir::new();
        let script = format!(
            "ulimit -v {}; exec \"$LWP\" stat --no-cache -o counts -- /bin/sh -c '{words}'",
            megabytes * 1024
        );
        let outcome = around_lwp(dir.path(), &script);
        let counts = fs::read_to_string(dir.path().join("counts")).unwrap_or_default();
        let error = format!("{megabytes}: {}{counts}", text(&outcome.stderr));
        assert_eq!(outcome.end, End::Code(0), "{error}");
        assert_eq!(text(&outcome.stdout), "a\n", "{error}");
        let named = counts.contains("limit on address space") || !counts.contains("not counted");
        assert!(named, "{error}");
    }
}

/// A core dump is the program's: nothing of the virtual CPU's is in it, be it mapped at first or
/// later, in a program or in a copy that fork has made.
///
/// Promise: F20
#[test]
fn core_dumps_hold_the_program_alone() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.is_empty() || pattern.starts_with(['|', '/']) {
        eprintln!("skipped: core dumps do not go to the current folder: {pattern}");
        return;
    }
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        #include <sys/mman.h>
        #include <sys/wait.h>
        int main(int argc, char **argv)
        {
            /* Far from everything else: translated near there. */
            char *code = mmap((void *)0x10000000000, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            memcpy(code, "\xb8\1\0\0\0\xc3", 6);
            if (((int (*)(void))code)() != 1)
                return 1;
            if (argc > 1 && fork())
                return wait(NULL) < 0;
            abort();
        }"#;
    let dir = TempDir::new();
    static_program(dir.path(), "fails", SOURCE);
    let size = |command: &str| -> u64 {
        let script =
            format!("ulimit -c unlimited; mkdir d; cd d; {command}; stat -c %s core*; rm -r ../d");
        let outcome = around_lwp(dir.path(), &script);
        let out = text(&outcome.stdout);
        out.trim().parse().unwrap_or_else(|_| panic!("{out} {}", text(&outcome.stderr)))
    };
    for argument in ["", "fork"] {
        let native = size(&format!("../fails {argument}"));
        for mode in ["run", "stat -o counts"] {
            let virtual_cpu = size(&format!("\"$LWP\" {mode} --no-cache -- ../fails {argument}"));
            let most = native + (64 << 10);
            assert!(virtual_cpu <= most, "{mode} {argument}: {virtual_cpu}, natively {native}");
        }
    }
}

/// Neither a process nor a thread can be made; lwp itself, where it is so limited, says so.
#[test]
fn few_processes() {
    if find_tool("setpriv").is_none() || !is_root() {
        eprintln!("skipped: needs root, who is exempt, and setpriv");
        return;
    }
    let dir = TempDir::new();
    static_program(
        dir.path(),
        "lonely",
        "#include <errno.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         #include <sys/resource.h>\nstatic void *f(void *p){return p;}\n\
         int main(void){ struct rlimit one = {1, 1}; setrlimit(RLIMIT_NPROC, &one);\n\
         int pid = fork(); pthread_t t; int made = pthread_create(&t, 0, f, 0);\n\
         printf(\"%d %d\\n\", pid == -1 && errno == EAGAIN, made == EAGAIN); return 2; }",
    );
    copy_program(lwp_binary(), &dir.path().join("lwp"));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let as_user = "setpriv --reuid 54321 --clear-groups";
    for command in ["./lonely", "./lwp run --no-cache -- ./lonely"] {
        let outcome = around_lwp(dir.path(), &format!("{as_user} {command}; echo $?"));
        assert_eq!(text(&outcome.stdout), "1 1\n2\n", "{command}: {}", text(&outcome.stderr));
    }
    for most in 1..4 {
        let script =
            format!("{as_user} prlimit --nproc={most} ./lwp run --no-cache -- ./who; echo $?");
        let outcome = around_lwp(dir.path(), &script);
        let (out, error) = (text(&outcome.stdout), text(&outcome.stderr));
        assert!(
            out == "125\n" && error.contains("ulimit -u") || !out.contains("125"),
            "{out}{error}"
        );
    }
}

#[test]
fn all_descriptors_closed() {
    sh("exec 0<&- 1>&- 2>&-; cat /etc/passwd | wc; exit 3").ends(End::Code(3)).check();
    let dir = TempDir::new();
    static_program(
        dir.path(),
        "close_all",
        "#define _GNU_SOURCE\n#include <unistd.h>\n#include <sys/wait.h>\n\
         int main(void){ for (int i = 0; i < 1024; i++) close(i);\n\
         int s; if (fork() == 0) _exit(5); wait(&s);\n\
         char *a[] = {\"true\", 0}; if (fork() == 0) { execv(\"/bin/true\", a); _exit(9); }\n\
         int t; wait(&t); return WEXITSTATUS(s) + WEXITSTATUS(t); }",
    );
    let outcome =
        around_lwp(dir.path(), "\"$LWP\" stat --no-cache -o counts -- ./close_all; echo $?");
    assert_eq!(text(&outcome.stdout), "5\n", "{}", text(&outcome.stderr));
}

/// The reader goes away first.
#[test]
fn output_that_nobody_reads() {
    sh("yes | head -1; seq 1 1000000 | head -2; (seq 1 1000000; echo $? >&2) | true").check();
    let dir = TempDir::new();
    let script = "\"$LWP\" stat --no-cache -o counts -- seq 1 1000000 | head -1; test -s counts && echo counted";
    let outcome = around_lwp(dir.path(), script);
    assert_eq!(text(&outcome.stdout), "1\ncounted\n", "{}", text(&outcome.stderr));
    // The report itself has no reader either.
    let script = "\"$LWP\" stat --no-cache -- true 2>&1 | true; echo over";
    assert_eq!(text(&around_lwp(dir.path(), script).stdout), "over\n");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const WHO: &str = "#include <stdio.h>\n#include <unistd.h>\n#include <sys/auxv.h>\n\
    int main(void){printf(\"%d %d %lu\\n\",getuid(),geteuid(),getauxval(AT_SECURE));return 6;}";

/// A program that prints its user ids, set-user-id of user 54322, in a folder that everybody may
/// enter.
fn set_user_id(dir: &Path) -> PathBuf {
    let program = static_program(dir, "who", WHO);
    std::os::unix::fs::chown(&program, Some(54322), None).expect("chown");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("chmod");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("chmod");
    program
}

/// The kernel gives a traced program no privileges that its tracer lacks. Where the tracer has
/// them, the program gets them. It is counted in either case, in code that other users do not have,
/// and so is what a program of another user starts.
///
/// Promise: X6, L2
#[test]
fn set_user_id_programs() {
    if !is_root() || find_tool("setpriv").is_none() {
        eprintln!("skipped: needs root and setpriv");
        return;
    }
    let dir = TempDir::new();
    let program = set_user_id(dir.path());
    let options = "--no-cache --per-process -x, -e instructions -o";
    // Rows of each program, all of them with a count.
    let counted = |script: &str, output: &str, rows: &[(&str, usize)]| {
        let out = text(&around_lwp(dir.path(), &format!("{script}; cat counts")).stdout);
        let counts = out.strip_prefix(output).unwrap_or_else(|| panic!("{out}"));
        assert!(!counts.contains("not counted"), "{out}");
        for &(name, times) in rows {
            let is = |line: &&str| line.split(',').any(|field| field.starts_with(name));
            assert_eq!(counts.lines().filter(is).count(), times, "{name}: {out}");
        }
    };
    let script = format!("\"$LWP\" stat {options} counts -- ./who; echo $?");
    counted(&script, "0 54322 1\n6\n", &[("who-", 1)]);
    let inner = "./who; cat /dev/null; echo after; exit 7";
    let script = format!(
        "\"$LWP\" stat {options} counts -- setpriv --reuid 54321 --clear-groups sh -c '{inner}'; echo $?"
    );
    counted(&script, "54321 54322 1\nafter\n7\n", &[("setpriv-", 1), ("who-", 1), ("cat-", 1)]);
    // lwp as an ordinary user: the program runs without its privileges, and is counted.
    let lwp = dir.path().join("lwp");
    copy_program(lwp_binary(), &lwp);
    let script = format!(
        "setpriv --reuid 54321 --clear-groups ./lwp stat --no-cache -x, -e instructions -- {}; echo $?",
        program.display()
    );
    let outcome = around_lwp(dir.path(), &script);
    assert_eq!(text(&outcome.stdout), "54321 54321 1\n6\n", "{}", text(&outcome.stderr));
    assert!(!text(&outcome.stderr).contains("not counted"), "{}", text(&outcome.stderr));
}

/// A 32-bit program: writes "32 bits" and exits with 7, by `int 0x80`.
fn elf32() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const CODE: u32 = 0x54;
    #[rustfmt::skip]
    let code: [u8; 34] = [
        0xb8, 4, 0, 0, 0,                   // mov eax, write
        0xbb, 1, 0, 0, 0,                   // mov ebx, 1
        0xb9, 0x76, 0x80, 0x04, 0x08,       // mov ecx, text
        0xba, 8, 0, 0, 0,                   // mov edx, 8
        0xcd, 0x80,
        0xb8, 1, 0, 0, 0,                   // mov eax, exit
        0xbb, 7, 0, 0, 0,                   // mov ebx, 7
        0xcd, 0x80,
    ];
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let mut out = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend([2, 0, 3, 0]); // executable, i386
    out.extend(words(&[1, BASE + CODE, 0x34, 0, 0]));
    out.extend([0x34, 0, 0x20, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // One loaded segment: offset, addresses, sizes, read and execute, alignment.
    out.extend(words(&[1, 0, BASE, BASE, 0x7e, 0x7e, 5, 0x1000]));
    assert_eq!(out.len(), CODE as usize);
    out.extend(code);
    assert_eq!(out.len(), 0x76);
    out.extend(b"32 bits\n");
    out
}

/// Promise: L1
#[test]
fn programs_of_32_bits() {
    let dir = TempDir::new();
    let program = dir.path().join("narrow");
    write_program(&program, &elf32());
    if Command::new(&program).output().ok().and_then(|out| out.status.code()) != Some(7) {
        eprintln!("skipped: this kernel runs no 32-bit programs");
        return;
    }
    let options = "--no-cache -x, -e instructions -o counts";
    // It is stepped itself, also as the interpreter of a script: six instructions to write and to
    // exit, with their two calls.
    write_program(&dir.path().join("script"), b"#!./narrow\n");
    for command in ["./narrow", "./script"] {
        let script = format!("\"$LWP\" stat {options} -- {command}; echo $?");
        let outcome = around_lwp(dir.path(), &script);
        assert_eq!(text(&outcome.stdout), "32 bits\n7\n", "{}", text(&outcome.stderr));
        let counts = fs::read_to_string(dir.path().join("counts")).expect("counts");
        assert!(counts.starts_with("8,,instructions"), "{counts}");
    }
    // As the child of a 64-bit program it is left to the processor, which the report says.
    let script = format!("\"$LWP\" stat {options} -- sh -c './narrow; echo $?; exit 9'; echo $?");
    let outcome = around_lwp(dir.path(), &script);
    assert_eq!(text(&outcome.stdout), "32 bits\n7\n9\n", "{}", text(&outcome.stderr));
    let counts = fs::read_to_string(dir.path().join("counts")).expect("counts");
    assert!(counts.contains("narrow") && counts.contains("32-bit program"), "{counts}");
    // Before it runs, where there is no report.
    for (command, said) in [
        ("run --no-cache -- ./narrow", false),
        ("run --no-cache -- sh -c './narrow; exit 7'", true),
        ("stat --no-cache -o counts -- sh -c './narrow; exit 7'", false),
    ] {
        let outcome = around_lwp(dir.path(), &format!("\"$LWP\" {command}; echo $?"));
        assert_eq!(text(&outcome.stdout), "32 bits\n7\n", "{command}");
        let errors = text(&outcome.stderr);
        assert_eq!(errors.contains("lwp: narrow runs natively, uncounted: 32-bit program"), said);
        assert_eq!(errors.contains("\n  help: start it with lwp"), said, "{command}: {errors}");
    }
}

/// Counts and output with a setting for trials, its name and value. The current folder `work`, which must be
/// empty, and the length of the environment are the same each time, because counts depend on them.
fn counts_with(
    work: &Path,
    (name, value): (&str, u64),
    program: &[&str],
    flushed: bool,
) -> (Vec<u64>, String) {
    let capture = TempDir::new();
    let file = capture.path().join("counts");
    let mut argv: Vec<OsString> = vec![lwp_binary().into()];
    argv.extend(["stat", "--no-cache", "--deterministic", "-x,", "-o"].map(Into::into));
    argv.extend([file.clone().into_os_string(), "-e".into()]);
    argv.push(
        "instructions,branches,branches-taken,conditional-taken,calls,returns,indirect-branches"
            .into(),
    );
    argv.push("--".into());
    argv.extend(program.iter().map(OsString::from));
    let mut job = Job::new(argv, LIMIT);
    job.bare_env = true;
    job.env = vec![
        (name.to_owned(), format!("{value:012}").into()),
        ("PYTHONHASHSEED".to_owned(), "0".into()),
    ];
    let counted = job.run(work, capture.path());
    assert_eq!(counted.end, End::Code(0), "{}", text(&counted.stderr));
    let rows = fs::read_to_string(&file).expect("counts");
    let count = |row: &str| row.split(',').next().and_then(|value| value.parse().ok());
    let counts: Vec<u64> = rows.lines().filter_map(count).collect();
    assert_eq!(counts.len(), 7, "{rows}");
    if flushed {
        job.env.push(("LWP_TRACE".to_owned(), "1".into()));
        let traced = job.run(work, capture.path());
        let flushes = text(&traced.stderr).matches("translations flushed").count();
        assert!(flushes >= 2, "only {flushes} flushes with {name}={value}");
    }
    (counts, text(&counted.stdout))
}

fn python() -> Option<String> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let path = String::from_utf8(output.ok()?.stdout).ok()?.trim().to_owned();
    (!path.is_empty()).then_some(path)
}

/// A program whose translations do not fit starts over with them, and its counts are the same.
///
/// Promise: L7
#[test]
fn full_arenas_are_flushed() {
    let Some(python) = python() else {
        eprintln!("skipped: no python3");
        return;
    };
    let script = "import json, re, decimal\n\
                  print(sum(i * i % 7 for i in range(20000)), json.dumps([1, {'a': None}]), decimal.Decimal(2).sqrt())";
    let program = [python.as_str(), "-c", script];
    let dir = TempDir::new();
    let (want, output) = counts_with(dir.path(), ("LWP_ARENA_BYTES", 1 << 30), &program, false);
    for megabytes in [4, 12] {
        let (got, out) =
            counts_with(dir.path(), ("LWP_ARENA_BYTES", megabytes << 20), &program, true);
        assert_eq!(out, output);
        assert_eq!(got, want, "with {megabytes} MiB");
    }
}

/// A program that replaces its code again and again has the translations of what is gone flushed,
/// and its counts are the same.
///
/// Promise: O9
#[test]
fn waste_is_flushed() {
    let executable = compile("code/rewritten_in_place").remove(0);
    let program = [executable.path.to_str().expect("a path of this project's")];
    let dir = TempDir::new();
    let (want, output) = counts_with(dir.path(), ("LWP_WASTE", 1 << 30), &program, false);
    let (got, out) = counts_with(dir.path(), ("LWP_WASTE", 500), &program, true);
    assert_eq!(out, output);
    assert_eq!(got, want);
}

/// Instructions that begin in one mapping and end in the next are translated like others: executed
/// one at a time, a million of them would take long enough for lwp to say so.
///
/// Promise: F30
#[test]
fn instructions_across_mappings_are_translated() {
    let executable = compile("cpu/across_mappings").remove(0);
    let output = Command::new(lwp_binary())
        .args(["run", "-v", "--no-cache", "--"])
        .arg(&executable.path)
        .output()
        .expect("lwp starts");
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("one at a time"), "{said}");
}

/// Threads, generated code, signals and children while translations are flushed.
///
/// Promise: L7
#[test]
fn a_flush_stops_every_thread() {
    let Some(python) = python() else {
        eprintln!("skipped: no python3");
        return;
    };
    let script = r#"
import os, select, signal, socket, subprocess, threading, time
ticks = 0
def tick(*_):
    global ticks
    ticks += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
out = []
waiting, asleep = socket.socketpair()
def work(n):
    import random, decimal, fractions, json
    out.append(sum(i * i % 7 for i in range(n)) + int(decimal.Decimal(n).sqrt()) + len(json.dumps(list(range(n)))))
def block():
    out.append(len(waiting.recv(10)))
def poll():
    poller = select.epoll()
    poller.register(waiting.fileno(), 0)
    out.append(len(poller.poll(1.0)))
threads = [threading.Thread(target=work, args=(3000 + i,)) for i in range(5)]
threads += [threading.Thread(target=block), threading.Thread(target=poll)]
[t.start() for t in threads]
for i in range(4):
    assert subprocess.run(['sh', '-c', 'exit 3']).returncode == 3
asleep.send(b'wake')
[t.join() for t in threads]
end = time.monotonic() + 20
while ticks < 20 and time.monotonic() < end:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
print(sorted(out), ticks >= 20)
"#;
    let native = Command::new(&python).args(["-c", script]).output().expect("start python3");
    let dir = TempDir::new();
    for _ in 0..3 {
        let argv: Vec<OsString> = [
            lwp_binary().as_os_str(),
            "stat".as_ref(),
            "--no-cache".as_ref(),
            "-o".as_ref(),
            "counts".as_ref(),
            "--".as_ref(),
            python.as_ref(),
            "-c".as_ref(),
            script.as_ref(),
        ]
        .map(Into::into)
        .to_vec();
        let mut job = Job::new(argv, LIMIT);
        job.env = vec![("LWP_ARENA_BYTES".to_owned(), (5 << 20).to_string().into())];
        let outcome = job.run(dir.path(), dir.path());
        assert_eq!(outcome.end, End::Code(0), "{}", text(&outcome.stderr));
        assert_eq!(text(&outcome.stdout), text(&native.stdout), "{}", text(&outcome.stderr));
        assert_eq!(text(&outcome.stderr), "");
    }
}

/// Runs a program of `tests/programs` so often, with an empty cache, and has its translations
/// replaced a few milliseconds after it has begun.
fn replaced_meanwhile(name: &str, rounds: u32) {
    let program = compile(name)[0].path.clone();
    for round in 0..rounds {
        let dir = TempDir::new();
        let mut argv: Vec<OsString> = vec![lwp_binary().into(), "run".into()];
        argv.extend(["--cache-dir".into(), dir.path().join("cache").into(), "--".into()]);
        argv.push(program.clone().into());
        let mut job = Job::new(argv, LIMIT);
        job.env = vec![("LWP_IMPROVE".to_owned(), (5 + round % 4 * 10).to_string().into())];
        let outcome = job.run(dir.path(), dir.path());
        let said = text(&outcome.stdout);
        assert_eq!(outcome.end, End::Code(0), "{name}, round {round}: {said}");
    }
}

/// Translations are replaced while threads and processes are being made, which die and execute
/// programs at once.
#[test]
fn replaced_while_processes_are_made() {
    replaced_meanwhile("threads/process_exit", 10);
}

/// Translations are replaced while calls move bytes, which move all of them.
///
/// Promise: F17
#[test]
fn replaced_while_calls_move_bytes() {
    replaced_meanwhile("signals/ignored_transfers", 4);
    replaced_meanwhile("signals/ignored_vectors", 4);
}

/// Under determinism the host reads the time stamp counter, but a program that has asked for faults
/// has them.
///
/// Promise: F40
#[test]
fn reads_of_a_fixed_clock_fault_too() {
    let dir = TempDir::new();
    let program = compile("cpu/time_stamp_faults")[0].path.clone();
    let native = Job::new(vec![program.clone().into()], LIMIT).run(dir.path(), dir.path());
    let mut argv: Vec<OsString> = vec![lwp_binary().into(), "stat".into(), "-o".into()];
    argv.extend(["/dev/null".into(), "--deterministic".into(), "--no-cache".into(), "--".into()]);
    argv.push(program.into());
    let outcome = Job::new(argv, LIMIT).run(dir.path(), dir.path());
    assert_eq!(outcome.end, End::Code(0), "{}", text(&outcome.stdout));
    assert_eq!(text(&outcome.stdout), text(&native.stdout));
}
