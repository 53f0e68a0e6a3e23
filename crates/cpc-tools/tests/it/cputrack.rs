//! `cputrack` as its users call it, on real programs.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const CPUTRACK: &str = env!("CARGO_BIN_EXE_cputrack");

/// Runs it under a timeout: it must never hang.
fn cputrack(words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300", CPUTRACK]).args(words);
    command.output().unwrap()
}

/// The rows, and that it ended well.
fn rows(words: &[&str]) -> Vec<String> {
    let output = cputrack(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {errors}");
    lines(&output.stdout)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

fn words(row: &str) -> Vec<&str> {
    row.split_whitespace().collect()
}

/// The counts of a row, behind its first `before` words.
fn counts(row: &str, before: usize) -> Vec<u64> {
    let numbers = words(row).into_iter().skip(before).take_while(|word| *word != "#");
    numbers.map(|word| word.parse().unwrap_or_else(|_| panic!("{row}"))).collect()
}

fn tagged<'a>(rows: &'a [String], tag: &str) -> Vec<&'a String> {
    rows.iter().filter(|row| words(row).contains(&tag)).collect()
}

/// A folder of one test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cputrack-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Compiles a C program.
    fn compile(&self, text: &str) -> PathBuf {
        let (source, program) = (self.0.join("p.c"), self.0.join("p"));
        fs::write(&source, text).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source);
        assert!(compiler.status().unwrap().success());
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Touches as many fresh pages as its argument says, in each of two threads after one another.
const PAGES: &str = r"
    #include <pthread.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <unistd.h>
    static long pages;
    static void *touch(void *x) {
        char *p = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(p, pages * 4096, MADV_NOHUGEPAGE);
        for (long i = 0; i < pages; i++) p[i * 4096] = 1;
        return 0;
    }
    int main(int argc, char **argv) {
        pages = atol(argv[1]);
        for (int i = 0; i < 2; i++) {
            pthread_t t;
            pthread_create(&t, 0, touch, 0);
            pthread_join(t, 0);
        }
        return 0;
    }";

#[test]
fn title_and_rows_have_the_documented_columns() {
    let rows = rows(&["-T", "0", "-c", "page-faults,task-clock", "true"]);
    assert_eq!(rows[0], "   time lwp      event      pic0      pic1");
    assert_eq!(rows.len(), 2, "{rows:?}");
    let row = &rows[1];
    assert_eq!(&row[7..12], "   1 ", "{row}");
    assert_eq!(&row[12..23], "      exit ", "{row}");
    assert_eq!(row.len(), 23 + 9 + 1 + 9, "{row}");
    assert!(row[..7].trim().parse::<f64>().is_ok(), "{row}");
    assert!(counts(row, 3)[0] > 10 && counts(row, 3)[1] > 0, "{row}");
}

/// However the specification is written.
#[test]
fn columns_are_in_the_order_of_their_numbers() {
    let rows = rows(&["-T", "0", "-c", "pic1=task-clock,pic0=page-faults", "true"]);
    assert_eq!(rows[0], "   time lwp      event      pic0      pic1");
    let counts = counts(&rows[1], 3);
    assert!(counts[0] < 100_000 && counts[1] > 100_000, "{rows:?}");
}

/// Page faults of a program that touches known pages: threads have their own, the exit has the sum.
#[test]
fn threads_are_counted_on_their_own_and_together() {
    let folder = Folder::new("threads");
    let program = folder.compile(PAGES);
    let rows = rows(&["-T", "0", "-c", "page-faults", program.to_str().unwrap(), "1000"]);
    let exits = tagged(&rows, "lwp_exit");
    assert_eq!(exits.len(), 2, "{rows:?}");
    for (exit, lwp) in exits.iter().zip(["2", "3"]) {
        assert_eq!(words(exit)[1], lwp);
        let faults = counts(exit, 3)[0];
        assert!((1000..1100).contains(&faults), "{exit}");
    }
    assert_eq!(tagged(&rows, "lwp_create").len(), 2);
    let total = counts(tagged(&rows, "exit")[0], 3)[0];
    assert!((2000..2600).contains(&total), "{total}");
    let number = |rows: &[String], tag| tagged(rows, tag).len();
    assert_eq!(number(&rows, "init_lwp") + number(&rows, "fini_lwp"), 0);
    let rows = self::rows(&["-v", "-T0", "-c", "page-faults", program.to_str().unwrap(), "10"]);
    assert_eq!((number(&rows, "init_lwp"), number(&rows, "fini_lwp")), (3, 3), "{rows:?}");
}

#[test]
fn ticks_are_differences_and_the_exit_is_their_sum() {
    let script = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); sleep 0.01; done";
    let rows = rows(&["-T", "0.1", "-c", "task-clock,minor-faults", "sh", "-c", script]);
    let ticks = tagged(&rows, "tick");
    assert!(ticks.len() >= 2, "{rows:?}");
    let exit = counts(tagged(&rows, "exit")[0], 3);
    for (column, exit) in exit.iter().enumerate() {
        let sum: u64 = ticks.iter().map(|tick| counts(tick, 3)[column]).sum();
        assert!(sum > 0 && sum <= *exit, "{rows:?}");
    }
    let times: Vec<f64> = ticks.iter().map(|tick| words(tick)[0].parse().unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{times:?}");
}

#[test]
fn several_sets_take_turns() {
    let sets = ["-T", "0.05", "-c", "task-clock", "-c", "page-faults,minor-faults"];
    let rows = rows(&[&sets[..], &["sleep", "2"]].concat());
    assert_eq!(rows[0], "   time lwp      event      pic0      pic1");
    let ticks = tagged(&rows, "tick");
    assert!(ticks.len() >= 2, "{rows:?}");
    for (index, tick) in ticks.iter().enumerate() {
        let spec = ["# task-clock", "# page-faults,minor-faults"][index % 2];
        assert!(tick.ends_with(spec), "{rows:?}");
    }
    assert_eq!(tagged(&rows, "exit").len(), 2, "one total a set: {rows:?}");
}

#[test]
fn the_clock_column_counts_while_the_thread_runs() {
    let output = cputrack(&["-t", "-T", "0", "-c", "page-faults", "sleep", "0.2"]);
    let rows = lines(&output.stdout);
    assert_eq!(rows[0], "   time lwp      event       tsc      pic0");
    let counts = counts(rows.last().unwrap(), 3);
    assert_eq!(counts.len(), 2);
    // 0.2 s asleep are hundreds of millions of cycles on any machine.
    assert!(counts[0] > 0 && counts[0] < 200_000_000, "{rows:?}");
}

#[test]
fn an_exec_ends_tracking_unless_followed() {
    let script = "exec sh -c 'exit 0'";
    let rows = rows(&["-T", "0", "-c", "page-faults", "sh", "-c", script]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(words(&rows[1])[2], "exec");
    let rows = self::rows(&["-e", "-T", "0", "-c", "page-faults", "sh", "-c", script]);
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!(words(&rows[1])[2], "exec");
    assert!(rows[2].ends_with("# 'sh -c exit 0'"), "{rows:?}");
    assert_eq!(&rows[2][12..23], "      exec ");
    assert_eq!(words(&rows[3])[2], "exit");
}

#[test]
fn children_are_followed_if_asked_for() {
    let script = "(exit 0); (exit 0); exit 0";
    let rows = rows(&["-f", "-T", "0", "-c", "page-faults", "sh", "-c", script]);
    assert_eq!(rows[0], "   time    pid lwp      event      pic0");
    let forks = tagged(&rows, "fork");
    assert_eq!(forks.len(), 2, "{rows:?}");
    let exits = tagged(&rows, "exit");
    assert_eq!(exits.len(), 3, "{rows:?}");
    for fork in forks {
        let child = words(fork).pop().unwrap();
        let exit = exits.iter().find(|row| words(row)[1] == child).unwrap();
        assert!(counts(exit, 4)[0] > 0, "the child's own: {exit}");
    }
    let rows = self::rows(&["-T", "0", "-c", "page-faults", "sh", "-c", script]);
    assert_eq!(tagged(&rows, "exit").len(), 1);
}

/// The program runs on by itself, its output elsewhere so that ours ends.
#[test]
fn samples_can_be_limited() {
    let script = "exec > /dev/null 2>&1; i=0; while [ $i -lt 20 ]; do i=$((i+1)); sleep 0.1; done";
    let limits = ["-T", "0.05", "-N", "3", "-c", "page-faults", "sh", "-c", script];
    let rows = rows(&limits);
    // Deadlines that were missed use up samples.
    let ticks = tagged(&rows, "tick").len();
    assert!((1..=3).contains(&ticks) && rows.len() == 1 + ticks, "{rows:?}");
}

#[test]
fn rows_go_where_they_are_sent() {
    let folder = Folder::new("output");
    let file = folder.0.join("rows");
    fs::write(&file, "old").unwrap();
    let name = file.to_str().unwrap();
    let output = cputrack(&["-n", "-T0", "-o", name, "-c", "page-faults", "echo", "hello"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
    let rows = fs::read_to_string(&file).unwrap();
    assert_eq!(rows.lines().count(), 1, "no title, nothing old: {rows}");
    assert_eq!(words(&rows)[2], "exit");
    // The reader of a pipe has all of them before it sees the end.
    let pipe = folder.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut reader = Command::new("timeout");
    let reader = reader.args(["60", "cat"]).arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", CPUTRACK, "-n", "-T0", "-c", "page-faults", "-o"]).arg(&pipe).arg("true");
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert_eq!(lines(&reader.wait_with_output().unwrap().stdout).len(), 1);
    let output = cputrack(&["-o", "/no/such/folder/x", "-c", "page-faults", "true"]);
    assert_eq!(output.status.code(), Some(1));
}

/// A full disk is a failure; a reader who has enough is none.
#[test]
fn rows_that_cannot_be_written_are_a_failure() {
    for options in [&["-c", "page-faults"][..], &["--lwp", "-c", "instructions"]] {
        let output = cputrack(&[options, &["-o", "/dev/full", "true"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("rows cannot be written"), "{errors}");
        let mut command = Command::new(CPUTRACK);
        command.args(options).args(["-T", "0.01", "sleep", "0.3"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{options:?}");
    }
}

/// Kills and reaps a child of the test when it is done.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['S', 'R']))
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_live_process_is_counted_and_left_alone() {
    for how in [&["-c", "task-clock"][..], &["--lwp", "-c", "instructions"]] {
        let target = Killed(Command::new("sleep").arg("100").spawn().unwrap());
        let pid = target.0.id();
        let limits = ["-T", "0.02", "-N", "2", "-p", &pid.to_string()];
        let rows = rows(&[how, &limits].concat());
        let ticks = tagged(&rows, "tick").len();
        assert!((1..=2).contains(&ticks) && rows.len() == 1 + ticks, "{rows:?}");
        eventually("it goes on", || alive(pid));
    }
}

/// Traces a child of its own, and ends as that does.
const TRACER: &str = r#"
    #include <signal.h>
    #include <sys/ptrace.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) for (;;) pause();
        if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_EXITKILL)) return 1;
        write(1, "ready\n", 6);
        while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
            if (ptrace(PTRACE_CONT, pid, 0, WSTOPSIG(status))) return 2;
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM ? 0 : 3;
    }"#;

/// Its ptrace(2) would fail on the virtual CPU.
#[test]
fn the_virtual_cpu_refuses_a_process_that_traces_others() {
    let folder = Folder::new("tracer");
    let program = folder.compile(TRACER);
    let mut tracer = Killed(Command::new(program).stdout(Stdio::piped()).spawn().unwrap());
    tracer.0.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let pid = tracer.0.id().to_string();
    let child = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let child = child.trim();
    let output = cputrack(&["--lwp", "-c", "instructions", "-T", "0.1", "-N", "1", "-p", &pid]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&format!("it traces process {child}")), "{errors}");
    assert!(errors.contains(&format!("make it detach from process {child}")), "{errors}");
    // It goes on to trace.
    assert!(Command::new("kill").args(["-TERM", child]).status().unwrap().success());
    assert_eq!(tracer.0.wait().unwrap().code(), Some(0));
}

/// A signal ends the run; its totals are printed first, and the program goes on.
///
/// Promise: T7
#[test]
fn signals_end_a_run_with_its_totals() {
    for signal in ["-TERM", "-INT", "-HUP", "-QUIT"] {
        let target = Killed(Command::new("sleep").arg("100").spawn().unwrap());
        let pid = target.0.id().to_string();
        // Whoever started the tests may ignore signals, as a shell does for what it starts in the
        // background.
        let mut track = Command::new("env");
        track.args(["--default-signal", CPUTRACK, "-T", "0.02", "-c", "task-clock", "-p", &pid]);
        let mut track = Killed(track.stdout(Stdio::piped()).spawn().unwrap());
        let mut stdout = track.0.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 150]).unwrap();
        Command::new("kill").args([signal, &track.0.id().to_string()]).status().unwrap();
        eventually("it ends", || !alive(track.0.id()));
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(track.0.wait().unwrap().code(), Some(0), "{signal}");
        let last = rest.lines().last().unwrap();
        assert_eq!(words(last)[2], "exit", "{signal}: {rest}");
        eventually("the program goes on", || alive(target.0.id()));
    }
}

/// Promise: T7
#[test]
fn wrong_calls_end_with_2_and_the_usage() {
    for words in [
        &[][..],
        &["true"],
        &["-c", "page-faults"],
        &["-c", "no-such-event", "true"],
        &["-c", "page-faults,umask=x", "true"],
        &["-c", "pic0=page-faults,pic0=task-clock", "true"],
        &["-c", "pic99=page-faults", "true"],
        &["-c", "page-faults,sys5", "true"],
        &["-r", "1", "-c", "page-faults", "true"],
        &["-T", "never", "-c", "page-faults", "true"],
        &["--lwp", "-c", "cycles", "true"],
        &["--lwp", "-c", "lwp_dme,instructions", "true"],
        &["--lwp", "-c", "lwp_cnh,lwp_dme", "true"],
        &["--lwp", "-c", "lwp_rnh,branches", "true"],
    ] {
        let output = cputrack(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.starts_with("cputrack: ") && errors.contains("\nUsage:\n"), "{errors}");
        assert!(output.stdout.is_empty());
    }
}

/// Promise: T7
#[test]
fn failures_end_with_1_and_a_reason() {
    for (words, reason) in [
        (&["-c", "page-faults", "no-such-program"][..], "not found"),
        (&["-c", "page-faults", "/etc"], "cannot be executed"),
        (&["-c", "page-faults", "-p", "2147483640"], "no process"),
        (&["-c", "context-switches", "true"], "CPC_COUNT_SYSTEM"),
        (&["-c", "page-faults", "./no-such-program"], "./no-such-program: not found"),
        (&["--lwp", "-c", "branches", "no-such-program"], "not found"),
        (&["--lwp", "-c", "branches", "./no-such-program"], "./no-such-program: not found"),
        (&["--lwp", "-c", "branches", "/etc"], "/etc: cannot be executed: Permission denied"),
        (&["--lwp", "-c", "branches", "/etc/passwd"], "cannot be executed: Permission denied"),
        (&["--lwp", "-c", "branches", "/etc/passwd/x"], "cannot be executed: Not a directory"),
        (&["--lwp", "-c", "branches", "-p", "2147483640"], "not found"),
    ] {
        let output = cputrack(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(errors.starts_with("cputrack: ") && errors.contains(reason), "{errors}");
    }
}

/// An event that this machine cannot count says what is missing, and never counts zero.
#[test]
fn what_cannot_be_counted_is_never_a_zero() {
    if Path::new("/sys/bus/event_source/devices/cpu").exists() {
        return;
    }
    let output = cputrack(&["-c", "PAPI_tot_ins", "true"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("performance counters"), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn help_lists_what_can_be_counted() {
    let output = cputrack(&["-h"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("Usage:\n\tcputrack -c spec"));
    // Scripts look for lines like these.
    let lists = text.lines().filter(|line| {
        let word = line.split_whitespace().next().unwrap_or_default();
        word.starts_with("event") && word.ends_with(':')
    });
    assert!(lists.count() >= 1, "{text}");
    assert!(text.contains("attributes: ") && text.contains("page-faults"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 90), "{text}");
    let text = lines(&cputrack(&["--lwp", "-h"]).stdout).join("\n");
    assert!(text.contains("PAPI_tot_ins"), "{text}");
}

/// How much falls into one tick is the scheduler's business; that nothing is counted twice is not.
#[test]
fn the_virtual_cpu_ticks_too() {
    let script = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    let rows = rows(&["--lwp", "-T", "0.02", "-c", "instructions,branches", "sh", "-c", script]);
    let ticks = tagged(&rows, "tick");
    assert!(ticks.len() >= 2, "{rows:?}");
    let exit = counts(tagged(&rows, "exit")[0], 3);
    for (column, exit) in exit.iter().enumerate() {
        let sum: u64 = ticks.iter().map(|tick| counts(tick, 3)[column]).sum();
        assert!(sum > 0 && sum <= *exit, "{rows:?}");
    }
}

#[test]
fn the_virtual_cpu_follows_what_is_asked_for() {
    let folder = Folder::new("virtual");
    let program = folder.compile(PAGES);
    let program = program.to_str().unwrap();
    let rows = rows(&["--lwp", "-v", "-T0", "-c", "instructions", program, "50"]);
    assert_eq!(tagged(&rows, "lwp_exit").len(), 2, "{rows:?}");
    assert_eq!(tagged(&rows, "fini_lwp").len(), 3, "{rows:?}");
    let parts: u64 = tagged(&rows, "fini_lwp").iter().map(|row| counts(row, 3)[0]).sum();
    assert_eq!(counts(tagged(&rows, "exit")[0], 3)[0], parts);
    let script = "(exit 0); exec true";
    let run = |options: &[&str]| {
        let rest = ["-T0", "-c", "instructions", "sh", "-c", script];
        self::rows(&[&["--lwp"], options, &rest].concat())
    };
    let plain = run(&[]);
    assert_eq!((tagged(&plain, "exec").len(), tagged(&plain, "exit").len()), (1, 0), "{plain:?}");
    let all = run(&["-ef"]);
    assert_eq!((tagged(&all, "exec").len(), tagged(&all, "exit").len()), (2, 2), "{all:?}");
}

/// The example of this package, which is built with its tests.
fn pausing() -> PathBuf {
    let folder = Path::new(CPUTRACK).parent().unwrap();
    folder.join("examples/pausing")
}

/// A program switches the counters that have been bound to its threads, and only while there are
/// some.
///
/// Promise: C11
#[test]
fn programs_switch_their_counters() {
    let program = pausing();
    let rows = rows(&["-T", "0", "-c", "task-clock", program.to_str().unwrap()]);
    let exits = tagged(&rows, "lwp_exit");
    assert_eq!(exits.len(), 2, "{rows:?}");
    for exit in exits {
        let ns = counts(exit, 3)[0];
        // It uses 20 ms by its own clock; the counter starts and stops a little inside of that.
        assert!((15_000_000..70_000_000).contains(&ns), "{exit}: without the 60 ms of the pause");
    }
    let alone = Command::new("timeout").args(["-k", "1", "300"]).arg(&program).output().unwrap();
    assert_eq!(alone.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("no counters"), "{alone:?}");
}

/// On the virtual CPU too: however much is done in between, the same is counted.
///
/// Promise: C11
#[test]
fn programs_switch_their_counters_on_the_virtual_cpu() {
    let program = pausing().with_file_name("switching");
    for events in ["instructions,branches", "lwp_ire,lwp_bre"] {
        let counted = |uncounted: &str| -> Vec<Vec<u64>> {
            let program = program.to_str().unwrap();
            let rows = rows(&["--lwp", "-T", "0", "-c", events, program, uncounted]);
            let exits = tagged(&rows, "lwp_exit");
            assert_eq!(exits.len(), 2, "{rows:?}");
            exits.iter().map(|row| counts(row, 3)).collect()
        };
        let (none, much) = (counted("0"), counted("3000000"));
        for (few, many) in none.iter().flatten().zip(much.iter().flatten()) {
            // A million turns count. What differs is how often a library looks, not three million
            // turns.
            assert!(*few > 1_000_000 && few.abs_diff(*many) < 100_000, "{none:?} {much:?}");
        }
    }
}

/// Events of Lightweight Profiling, and clock cycles of the threads.
#[test]
fn the_virtual_cpu_counts_as_lightweight_profiling_does() {
    let folder = Folder::new("misses");
    let program = folder.compile(PAGES);
    let run = |pages: &str| {
        let command =
            ["--lwp", "-t", "-T0", "-c", "lwp_ire,lwp_bre,lwp_dme", program.to_str().unwrap()];
        let rows = rows(&[&command[..], &[pages]].concat());
        assert!(rows[0].contains("tsc"), "{rows:?}");
        counts(tagged(&rows, "exit")[0], 3)
    };
    let exact = rows(&["--lwp", "-T0", "-c", "instructions", program.to_str().unwrap(), "100"]);
    let exact = counts(tagged(&exact, "exit")[0], 3)[0];
    let (few, many) = (run("100"), run("3000"));
    let [tsc, instructions, branches, misses] = few[..] else { panic!("{few:?}") };
    assert!(tsc > 0 && branches > 0 && misses > 0, "{few:?}");
    assert!(
        instructions <= exact && exact - instructions < 1000,
        "all but the system calls: {exact}"
    );
    assert!(many[1] > instructions + 2 * 2900 * 2 && many[2] >= branches + 2 * 2900, "{many:?}");
}

/// Clocks are those of the formula for a processor that waits for nothing: DEV-36.
///
/// Promise: T13
#[test]
fn the_virtual_cpu_counts_modelled_clocks() {
    let rows = rows(&["--lwp", "-T0", "-c", "lwp_ire,lwp_cnh,lwp_rnh", "true"]);
    let [instructions, core, reference] = counts(tagged(&rows, "exit")[0], 3)[..] else {
        panic!("{rows:?}")
    };
    let machine = lwp_uarch::presets::by_name("generic").unwrap();
    let width = u64::from(machine.clock.instructions_per_cycle_256);
    assert_eq!(core, instructions * 256 / width);
    let hz = (u128::from(machine.reference_hz), u128::from(machine.core_hz));
    assert_eq!(u128::from(reference), u128::from(core) * hz.0 / hz.1);
}

/// So do the children that are followed, each by a controller of its own.
///
/// Promise: C11
#[test]
fn followed_children_switch_their_counters() {
    let program = pausing();
    let script = format!("{0} & {0} & wait", program.display());
    let rows = rows(&["-T", "0", "-ef", "-c", "task-clock", "sh", "-c", &script]);
    let exits = tagged(&rows, "lwp_exit");
    assert_eq!(exits.len(), 4, "{rows:?}");
    for exit in exits {
        let ns = counts(exit, 4)[0];
        assert!((20_000_000..70_000_000).contains(&ns), "{exit}");
    }
}

/// Two threads after one another, then a child that executes another program.
const LIVES: &str = r#"
    #include <pthread.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *nothing(void *x) { return x; }
    int main(void) {
        for (int i = 0; i < 2; i++) {
            pthread_t t;
            pthread_create(&t, 0, nothing, 0);
            pthread_join(t, 0);
        }
        if (fork() == 0) {
            execl("/bin/true", "true", "a b", (char *)0);
            _exit(1);
        }
        wait(0);
        return 0;
    }"#;

/// The rows without times and numbers: process (as the how-manieth), LWP, tag, note.
fn story(rows: &[String]) -> Vec<String> {
    let mut pids: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for row in rows {
        let (row, note) = row.split_once('#').unwrap_or((row, ""));
        let mut known = |pid: &str| {
            if !pids.iter().any(|known| known == pid) {
                pids.push(pid.to_owned());
            }
            pids.iter().position(|known| known == pid).unwrap()
        };
        let words = words(row);
        let process = known(words[1]);
        let note = note.trim();
        let note =
            note.parse::<u32>().map_or(note.to_owned(), |pid| known(&pid.to_string()).to_string());
        lines.push(format!("{process} {} {} {note}", words[2], words[3]));
    }
    lines
}

/// Threads, forks, execs and exits are told alike, whatever counts.
///
/// Promise: T6, T11
#[test]
fn the_virtual_cpu_tells_the_same_story() {
    let folder = Folder::new("story");
    let program = folder.compile(LIVES);
    let program = program.to_str().unwrap();
    let native = rows(&["-efvn", "-T", "0", "-c", "page-faults", program]);
    let mut told = story(&native);
    let expected = [
        "0 1 init_lwp ",
        "0 2 init_lwp ",
        "0 2 lwp_create ",
        "0 2 fini_lwp ",
        "0 2 lwp_exit ",
        "0 3 init_lwp ",
        "0 3 lwp_create ",
        "0 3 fini_lwp ",
        "0 3 lwp_exit ",
        "0 1 fork 1",
        "1 1 init_lwp ",
        "1 1 fini_lwp ",
        "1 1 exec ",
        "1 1 exec 'true a b'",
        "1 1 init_lwp ",
        "1 1 fini_lwp ",
        "1 1 exit ",
        "0 1 fini_lwp ",
        "0 1 exit ",
    ];
    assert_eq!(told, expected);
    for period in ["0", "0.01"] {
        let here = rows(&["--lwp", "-efvn", "-T", period, "-c", "instructions", program]);
        told = story(&here);
        told.retain(|line| !line.contains("tick"));
        // Who joins a thread may be on before its end is noticed: only each LWP's own order is
        // sure.
        told.sort_by_key(|line| line[..3].to_owned());
        let mut expected = expected;
        expected.sort_by_key(|line| &line[..3]);
        assert_eq!(told, expected, "{here:?}");
    }
    // Beside the program on the virtual CPU, and asking its host. Skipped where `lwp` is not built.
    let lwp = Path::new(CPUTRACK).with_file_name("lwp");
    if !lwp.exists() {
        eprintln!("skipped: {} is not built", lwp.display());
        return;
    }
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300"]).arg(lwp).args(["run", "--", CPUTRACK, "-efvn", "-T", "0"]);
    let output = command.args(["-c", "page-faults", program]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(story(&lines(&output.stdout)), expected, "{output:?}");
}

/// A 32-bit program, which exits with 7 by `int 0x80`.
fn elf32() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const CODE: u32 = 0x54;
    #[rustfmt::skip]
    let code: [u8; 12] = [
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
    out.extend(words(&[1, 0, BASE, BASE, 0x60, 0x60, 5, 0x1000]));
    out.extend(code);
    out
}

/// The reason is told of every image that was asked for.
#[test]
fn an_image_that_the_virtual_cpu_cannot_count_is_named() {
    let folder = Folder::new("narrow");
    let (bytes, program) = (folder.0.join("bytes"), folder.0.join("narrow"));
    fs::write(&bytes, elf32()).unwrap();
    // No other thread of this process has it open for writing.
    let mut install = Command::new("install");
    assert!(install.args(["-m", "755"]).args([&bytes, &program]).status().unwrap().success());
    if Command::new(&program).status().ok().and_then(|status| status.code()) != Some(7) {
        eprintln!("skipped: this kernel runs no 32-bit programs");
        return;
    }
    let exec = format!("exec {}", program.display());
    for (options, named) in [("-e", true), ("-ef", true), ("-n", false)] {
        let words = ["--lwp", options, "-T0", "-c", "instructions", "sh", "-c", &exec];
        let output = cputrack(&words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            errors.contains("was not counted: 32-bit program"),
            named,
            "{options}: {errors}"
        );
        assert_eq!(output.status.code(), Some(i32::from(named)), "{options}: {errors}");
    }
}

/// A thread executes another program after the first thread has ended.
#[test]
fn an_exec_by_the_only_thread_that_is_left_is_counted() {
    let folder = Folder::new("leaderless");
    let program = folder.compile(
        r#"
        #include <pthread.h>
        #include <unistd.h>
        static void *go(void *x) {
            char byte;
            read(0, &byte, 1);
            execl("/bin/true", "true", (char *)0);
            return x;
        }
        int main(void) {
            pthread_t t;
            pthread_create(&t, 0, go, 0);
            pthread_exit(0);
        }"#,
    );
    let mut process = Killed(Command::new(program).stdin(Stdio::piped()).spawn().unwrap());
    let pid = process.0.id();
    let ended = format!("/proc/{pid}/stat");
    eventually("its first thread ends", || fs::read_to_string(&ended).unwrap().contains(") Z "));
    let mut track = Command::new("timeout");
    track.args(["-k", "1", "300", CPUTRACK, "--lwp", "-e", "-T", "0.02", "-c", "instructions"]);
    track.args(["-p", &pid.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut track = track.spawn().unwrap();
    // A first sample: the process is on the virtual CPU.
    let mut rows = vec![0; 150];
    track.stdout.as_mut().unwrap().read_exact(&mut rows).unwrap();
    drop(process.0.stdin.take());
    let output = track.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    rows.extend(output.stdout);
    let rows = lines(&rows);
    let execs = tagged(&rows, "exec");
    assert_eq!(execs.len(), 2, "{rows:?}");
    assert!(execs[1].ends_with("# 'true'"), "{rows:?}");
    assert!(counts(tagged(&rows, "exit")[0], 3)[0] > 10_000, "{rows:?}");
}
