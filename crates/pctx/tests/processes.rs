//! Real programs under control: what is called, in which order, with what.
//!
//! Promise: T1
#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![allow(unsafe_code, reason = "the harness has threads, and tests follow forks beside them")]

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pctx::{End, Error, Flow, Handlers, LwpId, Pctx, Pid};

/// Runs share SIGCHLD, which a process has one of.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of a test's own, removed with it.
struct Folder(PathBuf);

impl std::ops::Deref for Folder {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    let folder = std::env::temp_dir().join(format!("pctx-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    Folder(folder)
}

/// Compiles a C program.
fn compile(folder: &Path, text: &str) -> PathBuf {
    let (source, program) = (folder.join("p.c"), folder.join("p"));
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source);
    assert!(compiler.status().unwrap().success());
    program
}

fn create(words: &[&str]) -> Pctx {
    let pctx = create_alone(words);
    // SAFETY: the harness has another thread, which waits for the test, and other tests wait for
    // `ONE`. None holds a lock that a copy uses, which are glibc's, and those are made for it.
    unsafe { pctx.copies().allow_with_threads() };
    pctx
}

/// Without the permission to follow forks beside the harness's threads.
fn create_alone(words: &[&str]) -> Pctx {
    let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
    Pctx::create(words[0].as_ref(), &argv).unwrap()
}

/// Writes down every call. The file is shared with copies of this process.
struct Log {
    path: PathBuf,
    exec: bool,
    fork: bool,
    /// Answered instead of going on, at this call.
    stop_at: Option<&'static str>,
}

impl Log {
    fn new(folder: &Path) -> Self {
        Self { path: folder.join("log"), exec: true, fork: false, stop_at: None }
    }

    fn write(&self, line: &str) -> Flow {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        match self.stop_at {
            Some(call) if line.starts_with(call) => Flow::Stop,
            _ => Flow::Continue,
        }
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Handlers for Log {
    fn init_lwp(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        assert!(pctx.tid(lwp).is_some());
        self.write(&format!("init_lwp {}", lwp.get()))
    }
    fn fini_lwp(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        assert!(pctx.tid(lwp).is_some(), "an LWP that ends can still be looked at");
        self.write(&format!("fini_lwp {}", lwp.get()))
    }
    fn lwp_create(&mut self, _: &Pctx, lwp: LwpId) -> Flow {
        self.write(&format!("lwp_create {}", lwp.get()))
    }
    fn lwp_exit(&mut self, _: &Pctx, lwp: LwpId) -> Flow {
        self.write(&format!("lwp_exit {}", lwp.get()))
    }
    fn follows_exec(&self) -> bool {
        self.exec
    }
    fn exec(&mut self, _: &Pctx, lwp: LwpId, command: &str) -> Flow {
        self.write(&format!("exec {} {command}", lwp.get()))
    }
    fn follows_forks(&self) -> bool {
        self.fork
    }
    fn fork(&mut self, child: Pctx, parent: Pid, lwp: LwpId) {
        self.write(&format!("fork by {parent} {}", lwp.get()));
        let end = child.run(None, None, self);
        self.write(&format!("child {end:?}"));
    }
    fn exit(&mut self, _: &Pctx, lwp: LwpId, status: ExitStatus) {
        self.write(&format!("exit {} {:?} {:?}", lwp.get(), status.code(), status.signal()));
    }
    fn tick(&mut self, _: &Pctx, lwp: LwpId) -> Flow {
        self.write(&format!("tick {}", lwp.get()))
    }
}

fn run(name: &str, words: &[&str]) -> (End, Vec<String>) {
    let folder = folder(name);
    let mut log = Log::new(&folder);
    let end = create(words).run(None, None, &mut log).unwrap();
    (end, log.lines())
}

/// Kills and reaps a child of the test when it is done.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that lives, and the first letter of its state.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_program_starts_and_exits() {
    let _one = alone();
    let (end, lines) = run("exits", &["sh", "-c", "exit 7"]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(7 << 8)));
    assert_eq!(lines, ["init_lwp 1", "fini_lwp 1", "exit 1 Some(7) None"]);
}

#[test]
fn a_signal_that_kills_is_an_exit() {
    let _one = alone();
    let (end, lines) = run("killed", &["sh", "-c", "kill -TERM $$"]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(15)));
    assert_eq!(lines, ["init_lwp 1", "fini_lwp 1", "exit 1 None Some(15)"]);
    let (end, lines) = run("killed9", &["sh", "-c", "kill -KILL $$"]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(9)));
    assert_eq!(lines, ["init_lwp 1", "fini_lwp 1", "exit 1 None Some(9)"]);
}

#[test]
fn an_exec_starts_over() {
    let _one = alone();
    let (end, lines) = run("exec", &["sh", "-c", "exec sh -c 'exit 3'"]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(3 << 8)));
    let expected = ["init_lwp 1", "fini_lwp 1", "exec 1 sh -c exit 3", "init_lwp 1", "fini_lwp 1"];
    assert_eq!(lines[..5], expected);
    assert_eq!(lines[5..], ["exit 1 Some(3) None"]);
}

#[test]
fn an_exec_that_nobody_follows_ends_the_run() {
    let _one = alone();
    let folder = folder("unfollowed");
    let mut log = Log::new(&folder);
    log.exec = false;
    let pctx = create(&["sh", "-c", "exec sh -c 'exit 3'"]);
    assert_eq!(pctx.run(None, None, &mut log), Ok(End::Exec));
    assert_eq!(log.lines(), ["init_lwp 1", "fini_lwp 1"]);
    // It can be gone on with.
    assert_eq!(pctx.run(None, None, &mut log), Ok(End::Exited(ExitStatus::from_raw(3 << 8))));
    assert_eq!(log.lines()[2..], ["init_lwp 1", "fini_lwp 1", "exit 1 Some(3) None"]);
    assert_eq!(pctx.run(None, None, &mut log), Err(Error::NoProcess(pctx.pid())));
}

const THREADS: &str = r"
    #include <pthread.h>
    #include <stdlib.h>
    #include <unistd.h>
    static void *work(void *x) { usleep(20000 * (long)x); return 0; }
    static void *stay(void *x) { for (;;) pause(); }
    int main(int argc, char **argv) {
        pthread_t t[3];
        for (long i = 0; i < 3; i++) {
            pthread_create(&t[i], 0, work, (void *)(i + 1));
            pthread_join(t[i], 0);
        }
        pthread_create(&t[0], 0, stay, 0);
        pthread_create(&t[1], 0, stay, 0);
        usleep(20000);
        exit(5);
    }";

#[test]
fn threads_are_small_numbers() {
    let _one = alone();
    let folder = folder("threads");
    let program = compile(&folder, THREADS);
    let (end, lines) = run("threads-run", &[program.to_str().unwrap()]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(5 << 8)));
    let mut expected = vec!["init_lwp 1".to_owned()];
    for lwp in 2..5 {
        for call in ["init_lwp", "lwp_create", "fini_lwp", "lwp_exit"] {
            expected.push(format!("{call} {lwp}"));
        }
    }
    assert_eq!(lines[..expected.len()], expected);
    // Two that are made at once are heard of in any order.
    let mut both = lines[expected.len()..][..4].to_vec();
    both.sort();
    assert_eq!(both, ["init_lwp 5", "init_lwp 6", "lwp_create 5", "lwp_create 6"]);
    expected.extend(both);
    // All of them end with the process, in any order, and then it does.
    let mut last: Vec<&String> = lines[expected.len()..].iter().collect();
    let exit = last.pop().unwrap();
    assert!(exit.starts_with("exit ") && exit.ends_with(" Some(5) None"), "{exit}");
    last.sort();
    assert_eq!(last, ["fini_lwp 1", "fini_lwp 5", "fini_lwp 6"]);
}

/// A thread that is not the leader executes another program: the number starts again at 1.
#[test]
fn an_exec_by_any_thread_leaves_one() {
    let _one = alone();
    let folder = folder("threadexec");
    let text = r#"
        #include <pthread.h>
        #include <unistd.h>
        static void *stay(void *x) { for (;;) pause(); }
        static void *go(void *x) {
            usleep(20000);
            execl("/bin/sh", "sh", "-c", "exit 4", (char *)0);
            return 0;
        }
        int main(void) {
            pthread_t t;
            pthread_create(&t, 0, stay, 0);
            pthread_create(&t, 0, go, 0);
            for (;;) pause();
        }"#;
    let program = compile(&folder, text);
    let (end, lines) = run("threadexec-run", &[program.to_str().unwrap()]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(4 << 8)), "{lines:?}");
    let exec = lines.iter().position(|line| line == "exec 1 sh -c exit 4").unwrap();
    // A thread that the exec ends before its first instruction was never there: it has neither
    // call.
    let place = |call, lwp| lines[..exec].iter().position(|line| *line == format!("{call} {lwp}"));
    let both = |lwp| (place("init_lwp", lwp), place("fini_lwp", lwp));
    let seen = (1..=3).map(both).filter(|calls| *calls != (None, None));
    let seen: Vec<_> = seen.collect();
    assert!(seen.len() >= 2, "{lines:?}");
    assert!(seen.iter().all(|(init, fini)| init.is_some() && init < fini), "{lines:?}");
    assert_eq!(lines[exec + 1..], ["init_lwp 1", "fini_lwp 1", "exit 1 Some(4) None"]);
}

#[test]
fn children_are_followed_by_a_copy() {
    let _one = alone();
    let folder = folder("fork");
    let mut log = Log::new(&folder);
    log.fork = true;
    let pctx = create(&["sh", "-c", "(exit 3); exit $?"]);
    let end = pctx.run(None, None, &mut log).unwrap();
    pctx.copies().wait();
    assert_eq!(
        end,
        End::Exited(ExitStatus::from_raw(3 << 8)),
        "the parent still learns how its child ended"
    );
    let lines = log.lines();
    let by = format!("fork by {} 1", pctx.pid());
    let child: Vec<&String> = lines.iter().skip_while(|line| **line != by).collect();
    assert_eq!(child[1], "init_lwp 1", "{lines:?}");
    assert!(lines.contains(&"exit 1 Some(3) None".to_owned()), "{lines:?}");
    let ended = "child Ok(Exited(ExitStatus(unix_wait_status(768))))".to_owned();
    assert!(lines.contains(&ended), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| **line == "exit 1 Some(3) None").count(), 2);
}

/// Being handed over leaves no trace: registers, signal mask and what was pending are the
/// program's.
///
/// Promise: T2
#[test]
fn a_followed_child_notices_nothing() {
    let _one = alone();
    let folder = folder("unnoticed");
    let text = r#"
        #include <signal.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static volatile int stops;
        static void child(int s, siginfo_t *i, void *x) {
            if (i->si_code == CLD_STOPPED || i->si_code == CLD_CONTINUED) stops++;
        }
        static volatile int got;
        static void usr(int s) { got++; }
        int main(void) {
            struct sigaction a = { .sa_sigaction = child, .sa_flags = SA_SIGINFO };
            sigaction(SIGCHLD, &a, 0);
            signal(SIGUSR1, usr);
            sigset_t mask, now;
            sigemptyset(&mask);
            sigaddset(&mask, SIGUSR2);
            sigprocmask(SIG_SETMASK, &mask, 0);
            for (int i = 0; i < 20; i++) {
                pid_t pid = i % 2 ? fork() : vfork();
                if (pid == 0) {
                    sigprocmask(SIG_SETMASK, 0, &now);
                    if (memcmp(&now, &mask, 8)) _exit(1);
                    if (i % 2) {
                        raise(SIGUSR1);
                        if (got != 1) _exit(2);
                    }
                    _exit(40 + i);
                }
                int status = 0;
                while (waitpid(pid, &status, 0) < 0) ;
                if (WEXITSTATUS(status) != 40 + i) return 100 + WEXITSTATUS(status);
            }
            return stops ? 3 : 0;
        }"#;
    let program = compile(&folder, text);
    let mut log = Log::new(&folder);
    log.fork = true;
    let pctx = create(&[program.to_str().unwrap()]);
    assert_eq!(pctx.run(None, None, &mut log), Ok(End::Exited(ExitStatus::from_raw(0))));
    pctx.copies().wait();
    let forks = log.lines().iter().filter(|line| line.starts_with("fork by")).count();
    assert_eq!(forks, 20);
}

/// A filter would kill for a call that the program does not make.
///
/// Promise: T2
#[test]
fn a_filtered_child_makes_no_call_of_ours() {
    let _one = alone();
    let folder = folder("filtered");
    let text = r#"
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <stddef.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pause, 1, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog program = { sizeof code / sizeof *code, code };
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 99;
            for (int i = 0; i < 10; i++) {
                pid_t pid = i % 2 ? fork() : vfork();
                if (pid == 0) _exit(40 + i);
                int status = 0;
                while (waitpid(pid, &status, 0) < 0) ;
                if (status != 40 + i << 8) return 1;
            }
            return 0;
        }"#;
    let program = compile(&folder, text);
    let mut log = Log::new(&folder);
    log.fork = true;
    let pctx = create(&[program.to_str().unwrap()]);
    assert_eq!(pctx.run(None, None, &mut log), Ok(End::Exited(ExitStatus::from_raw(0))));
    pctx.copies().wait();
    let lines = log.lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with("fork by")).count(), 10);
    for code in 40..50 {
        let exit = format!("exit 1 Some({code}) None");
        assert!(lines.contains(&exit), "{lines:?}");
    }
}

/// Pipelines, grandchildren, vfork and exec at once.
#[test]
fn families_are_followed() {
    let _one = alone();
    let folder = folder("family");
    let mut log = Log::new(&folder);
    log.fork = true;
    let script =
        "printf 'b\\na\\n' | sort | (cat; /bin/true) > /dev/null; sh -c '/bin/true; exit 9'";
    let pctx = create(&["sh", "-c", script]);
    let end = pctx.run(None, None, &mut log).unwrap();
    pctx.copies().wait();
    assert_eq!(end, End::Exited(ExitStatus::from_raw(9 << 8)));
    let lines = log.lines();
    let count = |prefix: &str| lines.iter().filter(|line| line.starts_with(prefix)).count();
    assert!(count("fork by") >= 5, "{lines:?}");
    assert_eq!(count("exit "), count("fork by") + 1, "every process ended: {lines:?}");
    assert_eq!(count("exec 1 sort"), 1);
}

/// A copy of a process with several threads can't run any safe code: without a promise, children
/// are not followed, and the handler learns why.
///
/// Promise: T14
#[test]
fn a_process_with_threads_follows_no_forks() {
    struct Refused(Vec<Error>);
    impl Handlers for Refused {
        fn follows_forks(&self) -> bool {
            true
        }
        fn fork(&mut self, _: Pctx, _: Pid, _: LwpId) {
            unreachable!("no copy is made");
        }
        fn not_followed(&mut self, _: &Pctx, _: Pid, error: &Error) {
            self.0.push(error.clone());
        }
    }
    let _one = alone();
    // This thread and the harness's.
    let mut handlers = Refused(Vec::new());
    let pctx = create_alone(&["sh", "-c", "(exit 3); exit $?"]);
    let (send, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || wait.recv());
    let end = pctx.run(None, None, &mut handlers).unwrap();
    drop(send);
    assert!(other.join().is_ok());
    assert_eq!(end, End::Exited(ExitStatus::from_raw(3 << 8)), "the child ran on by itself");
    assert_eq!(handlers.0, [Error::Threads]);
}

/// A process with one thread follows forks with no promise: the example has one.
#[test]
fn the_example_prints_what_happens() {
    let example = example("follow");
    let output = Command::new(example).args(["sh", "-c", "(exit 3); exit $?"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(text.matches(": is a child of ").count(), 1, "{text}{errors}");
    assert_eq!(text.matches(": exit status: 3").count(), 2, "{text}{errors}");
}

/// An example of this crate, which cargo builds with its tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let debug = test.ancestors().find(|dir| dir.join("examples").is_dir());
    debug.expect("a folder with examples").join("examples").join(name)
}

#[test]
fn children_that_nobody_follows_run_on() {
    let _one = alone();
    let (end, lines) = run("nofork", &["sh", "-c", "(exit 3); exit $?"]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(3 << 8)));
    assert_eq!(lines, ["init_lwp 1", "fini_lwp 1", "exit 1 Some(3) None"]);
}

/// The state of a process that sleeps but for us: on the virtual CPU, where nobody sees that it is
/// traced, it seems to run.
fn standing() -> char {
    if lwp_process::nested_ptrace::are_had() { 'R' } else { 't' }
}

#[test]
fn ticks_come_while_it_runs_and_end_the_run() {
    let _one = alone();
    let folder = folder("ticks");
    let mut log = Log::new(&folder);
    let pctx = create(&["sleep", "100"]);
    let pid = pctx.pid();
    let started = Instant::now();
    let end = pctx.run(Some(Duration::from_millis(20)), Some(3), &mut log).unwrap();
    assert_eq!(end, End::Ticks);
    assert!(started.elapsed() >= Duration::from_millis(60));
    let lines = log.lines();
    // Deadlines that were missed use up ticks.
    assert!((2..=4).contains(&lines.len()) && lines[0] == "init_lwp 1", "{lines:?}");
    assert!(lines[1..].iter().all(|line| line == "tick 1"), "{lines:?}");
    assert_eq!(state(pid), Some(standing()), "left stopped");
    pctx.release();
    eventually("it sleeps on", || state(pid) == Some('S'));
    Command::new("kill").arg("-KILL").arg(pid.to_string()).status().unwrap();
}

#[test]
fn a_handler_can_end_the_run() {
    let _one = alone();
    for call in ["init_lwp", "tick", "fini_lwp", "exec"] {
        let folder = folder(&format!("stop-{call}"));
        let mut log = Log::new(&folder);
        log.stop_at = Some(call);
        let ticks = call == "tick";
        let pctx = create(&["sh", "-c", if ticks { "exec sleep 100" } else { "exec true" }]);
        let period = ticks.then_some(Duration::from_millis(10));
        assert_eq!(pctx.run(period, None, &mut log), Ok(End::Handler), "{call}");
        assert!(log.lines().last().unwrap().starts_with(call));
        pctx.kill();
    }
}

#[test]
fn a_run_can_be_ended_from_elsewhere() {
    let _one = alone();
    let folder = folder("terminate");
    let mut log = Log::new(&folder);
    let pctx = create(&["sleep", "100"]);
    let terminator = pctx.terminator();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        terminator.terminate();
    });
    assert_eq!(pctx.run(None, None, &mut log), Ok(End::Terminated));
    thread.join().unwrap();
    assert_eq!(state(pctx.pid()), Some(standing()));
    pctx.kill();
}

/// Promise: T3
#[test]
fn a_live_process_is_captured_and_released_unharmed() {
    let _one = alone();
    let folder = folder("capture");
    let program = compile(
        &folder,
        r"
        #include <pthread.h>
        #include <unistd.h>
        static void *stay(void *x) { for (;;) pause(); }
        int main(void) {
            pthread_t t;
            for (int i = 0; i < 3; i++) pthread_create(&t, 0, stay, 0);
            write(1, &t, 1);
            for (;;) pause();
        }",
    );
    let mut child = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
    let child = Killed(child);
    let pid = child.0.id() as Pid;
    let pctx = Pctx::capture(pid).unwrap();
    assert_eq!(pctx.lwps(), [LwpId::new(1), LwpId::new(2), LwpId::new(3), LwpId::new(4)]);
    assert_eq!(pctx.tid(LwpId::new(1)), Some(pid));
    let mut log = Log::new(&folder);
    let end = pctx.run(Some(Duration::from_millis(10)), Some(1), &mut log).unwrap();
    assert_eq!(end, End::Ticks);
    assert_eq!(log.lines().iter().filter(|line| line.starts_with("tick")).count(), 4);
    let busy = Pctx::capture(pid).unwrap_err();
    assert!(matches!(busy, Error::Traced { .. }), "{busy}");
    pctx.release();
    eventually("it sleeps on", || state(pid) == Some('S'));
    let again = Pctx::capture(pid).unwrap();
    again.release();
}

#[test]
fn refusals_say_why() {
    let _one = alone();
    let create = |name: &str| Pctx::create(name.as_ref(), &[name.into()]).map(drop).unwrap_err();
    assert_eq!(create("no-such-program"), Error::NotFound("no-such-program".into()));
    assert_eq!(create("/no/such/program"), Error::NotFound("/no/such/program".into()));
    assert!(matches!(create("/etc"), Error::NotExecutable { .. }));
    let nul = Pctx::create("true".as_ref(), &["a\0b".into()]).map(drop).unwrap_err();
    assert_eq!(nul, Error::Nul("true".into()));
    let capture = |pid| Pctx::capture(pid).map(drop).unwrap_err();
    assert_eq!(capture(std::process::id() as Pid), Error::Ourselves);
    assert_eq!(capture(i32::MAX - 7), Error::NoProcess(i32::MAX - 7));
    let zombie = Killed(Command::new("true").spawn().unwrap());
    let pid = zombie.0.id() as Pid;
    eventually("it ends", || state(pid) == Some('Z'));
    assert_eq!(capture(pid), Error::Zombie(pid));
    if let Ok(stat) = fs::read_to_string("/proc/2/status")
        && !stat.contains("VmSize:")
    {
        let refused = capture(2);
        assert!(matches!(refused, Error::KernelThread(2)), "{refused}");
    }
}

/// The first thread's status is the process's.
#[test]
fn a_process_whose_first_thread_has_ended_is_left_alone() {
    const LEADERLESS: &str = r"
        #include <pthread.h>
        #include <unistd.h>
        static void *stay(void *x) { for (;;) pause(); }
        int main(void) { pthread_t t; pthread_create(&t, 0, stay, 0); pthread_exit(0); }";
    let _one = alone();
    let folder = folder("leaderless");
    let program = compile(&folder, LEADERLESS);
    let process = Killed(Command::new(program).spawn().unwrap());
    let pid = process.0.id() as Pid;
    eventually("its first thread ends", || state(pid) == Some('Z'));
    assert_eq!(Pctx::capture(pid).map(drop).unwrap_err(), Error::Zombie(pid));
    let tasks: Vec<_> = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().collect();
    for task in tasks {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
    }
}

/// A thread that makes another may be killed before it can say so.
#[test]
fn a_process_that_ends_while_it_makes_threads_is_seen_to_its_end() {
    const CHAINS: &str = r"
        #include <pthread.h>
        #include <unistd.h>
        static void *next(void *x) {
            pthread_t t;
            if (pthread_create(&t, 0, next, 0) == 0) pthread_detach(t);
            return 0;
        }
        int main(void) {
            for (int i = 0; i < 3; i++) next(0);
            usleep(10000);
            _exit(4);
        }";
    let _one = alone();
    let folder = folder("chains");
    let program = compile(&folder, CHAINS);
    for _ in 0..20 {
        let pctx = create(&[program.to_str().unwrap()]);
        let end = pctx.run(Some(Duration::from_millis(100)), Some(600), &mut Quiet).unwrap();
        assert_eq!(end, End::Exited(ExitStatus::from_raw(4 << 8)), "it has a minute");
    }
}

struct Quiet;

impl Handlers for Quiet {}

#[test]
fn a_stopped_process_is_let_go_stopped() {
    let _one = alone();
    let process = Killed(Command::new("sleep").arg("100").spawn().unwrap());
    let pid = process.0.id() as Pid;
    kill(pid, "-STOP");
    eventually("it is stopped", || state(pid) == Some('T'));
    let pctx = Pctx::capture(pid).unwrap();
    let end = pctx.run(Some(Duration::from_millis(50)), Some(3), &mut Quiet).unwrap();
    assert_eq!(end, End::Ticks);
    pctx.release();
    eventually("it is stopped again", || state(pid) == Some('T'));
    kill(pid, "-CONT");
    eventually("it goes on", || state(pid) == Some('S'));
}

fn kill(pid: Pid, signal: &str) {
    let pid = pid.to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

/// A handler's wish leaves the process standing still.
#[test]
fn a_process_stands_still_when_a_handler_ends_the_run() {
    struct Ends;
    impl Handlers for Ends {
        fn tick(&mut self, _: &Pctx, _: LwpId) -> Flow {
            Flow::Stop
        }
    }
    let _one = alone();
    let pctx = create(&["sh", "-c", "while :; do :; done"]);
    let end = pctx.run(Some(Duration::from_millis(20)), None, &mut Ends).unwrap();
    assert_eq!((end, state(pctx.pid())), (End::Handler, Some('t')));
    pctx.kill();
}

/// Stops of job control are the program's own affair.
#[test]
fn a_stopped_program_stays_stopped_until_continued() {
    let _one = alone();
    let folder = folder("jobs");
    let mut log = Log::new(&folder);
    let script = "(sleep 2; kill -CONT $$) & kill -STOP $$; exit 6";
    let pctx = create(&["sh", "-c", script]);
    let end = pctx.run(Some(Duration::from_millis(50)), None, &mut log).unwrap();
    assert_eq!(end, End::Exited(ExitStatus::from_raw(6 << 8)));
    let ticks = log.lines().iter().filter(|line| line.starts_with("tick")).count();
    assert!(ticks >= 1, "it was stopped for forty of them");
}

/// The dispositions of this process are as before.
#[test]
fn sigchld_is_put_back() {
    let _one = alone();
    let before = fs::read_to_string("/proc/self/status").unwrap();
    run("sigchld", &["true"]);
    let after = fs::read_to_string("/proc/self/status").unwrap();
    let caught = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("SigCgt:")).unwrap();
        line.to_owned()
    };
    assert_eq!(caught(&before), caught(&after));
}

/// Waits in calls that a stop ends with EINTR, in a thread each. Its argument says what comes
/// meanwhile; its exit code has a bit for each call that was interrupted.
const WAITS: &str = r#"
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/inotify.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static int polled, watched;
    static char buf[4096];
    static long polls(void) { struct epoll_event e; return epoll_wait(polled, &e, 1, -1); }
    static long watches(void) { return read(watched, buf, sizeof buf); }
    static long expects(void) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        return sigwaitinfo(&set, 0);
    }
    static long (*const call[])(void) = { polls, watches, expects };
    static volatile int interrupted;
    static void *wait_in(void *x) {
        for (;;)
            if (call[(long)x]() < 0 && errno == EINTR)
                __atomic_fetch_or(&interrupted, 1 << (long)x, __ATOMIC_SEQ_CST);
    }
    int main(int argc, char **argv) {
        pthread_t t[3];
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, 0);
        polled = epoll_create1(0);
        watched = inotify_init();
        for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, wait_in, (void *)i);
        usleep(100000);
        if (!strcmp(argv[1], "ignored")) {
            signal(SIGTSTP, SIG_IGN);
            int signals[] = { SIGWINCH, SIGURG, SIGCONT, SIGTSTP };
            for (int i = 0; i < 12; i++) {
                pthread_kill(t[i % 3], signals[i / 3]);
                usleep(20000);
            }
        } else if (!strcmp(argv[1], "stopped")) {
            if (fork() == 0) {
                kill(getppid(), SIGSTOP);
                usleep(100000);
                kill(getppid(), SIGCONT);
                _exit(0);
            }
            wait(0);
            usleep(100000);
        } else {
            write(1, "ready\n", 6);
            while (read(0, buf, 1) > 0) ;
        }
        _exit(interrupted);
    }"#;

/// The kernel wakes a traced thread for signals that are ignored, and some calls end with EINTR
/// then.
///
/// Promise: T3
#[test]
fn ignored_signals_interrupt_no_call() {
    let _one = alone();
    let folder = folder("ignored");
    let program = compile(&folder, WAITS);
    let (end, _) = run("ignored-run", &[program.to_str().unwrap(), "ignored"]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(0)));
}

/// So do the stops of a capture and of a release.
///
/// Promise: T3
#[test]
fn taking_over_and_letting_go_interrupt_no_call() {
    let _one = alone();
    let folder = folder("uninterrupted");
    let program = compile(&folder, WAITS);
    let mut process = Command::new(program);
    process.arg("captured").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Killed(process.spawn().unwrap());
    std::io::Read::read_exact(process.0.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    for _ in 0..20 {
        let pctx = Pctx::capture(process.0.id() as Pid).unwrap();
        let end = pctx.run(Some(Duration::from_millis(5)), Some(2), &mut Quiet).unwrap();
        assert_eq!(end, End::Ticks);
        pctx.release();
    }
    drop(process.0.stdin.take());
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
}

/// A stop by job control interrupts calls natively too.
///
/// Promise: T3
#[test]
fn job_control_interrupts_the_calls_that_it_does_natively() {
    let _one = alone();
    let folder = folder("jobcalls");
    let program = compile(&folder, WAITS);
    let native = Command::new(&program).arg("stopped").output().unwrap().status.code().unwrap();
    let (end, _) = run("jobcalls-run", &[program.to_str().unwrap(), "stopped"]);
    assert_eq!(end, End::Exited(ExitStatus::from_raw(native << 8)));
}
