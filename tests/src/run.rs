//! Runs one command in a folder of its own, with a time limit that holds.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Environment variable that marks every process of one run, however it detaches itself.
const MARK: &str = "LWP_TESTS_RUN";

/// A command to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Variables added to the fixed minimal environment.
    pub env: Vec<(String, OsString)>,
    /// Bytes on standard input.
    pub stdin: Vec<u8>,
    /// Time limit; a run that exceeds it has failed.
    pub timeout: Duration,
    /// True if the environment is exactly `env`, without the minimal one and the mark of the run.
    pub bare_env: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It was killed at its time limit.
    TimedOut,
}

/// Everything seen of a finished run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Processes that outlived the command, or were there at the time limit: one line each.
    pub leftovers: Vec<String>,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// A folder that is removed when dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates an empty folder.
    ///
    /// # Panics
    ///
    /// If the system's temporary folder cannot be written.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Fixed width: the length of a path can show in a program's layout and counts.
        let name = format!("lwp-tests-{:07}-{number:05}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A program under test may leave a folder without permissions; the leak is harmless then.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Job {
    /// A job with no input and the given limit.
    pub fn new(argv: Vec<OsString>, timeout: Duration) -> Self {
        Self { argv, env: Vec::new(), stdin: Vec::new(), timeout, bare_env: false }
    }

    /// Runs the command with `work` as current folder; captured streams go to `capture`.
    ///
    /// Output goes to files and not to pipes: a stray grandchild that keeps a pipe open must not
    /// make the harness hang.
    ///
    /// # Panics
    ///
    /// If the command cannot be started.
    pub fn run(&self, work: &Path, capture: &Path) -> Outcome {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{:07}.{number:07}", std::process::id());
        let stream = |name: &str| capture.join(format!("{number}.{name}"));
        fs::write(stream("stdin"), &self.stdin).expect("write standard input");

        let started = Instant::now();
        let mut child = self
            .command(work, &mark)
            .stdin(File::open(stream("stdin")).expect("open standard input"))
            .stdout(Stdio::from(File::create(stream("stdout")).expect("create a capture file")))
            .stderr(Stdio::from(File::create(stream("stderr")).expect("create a capture file")))
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {:?}: {e}", self.argv[0]));
        let (end, leftovers) = supervise(&mut child, self.timeout.mul_f64(timeout_factor()), &mark);
        let elapsed = started.elapsed();
        let read = |name: &str| fs::read(stream(name)).expect("read a capture file");
        Outcome { end, stdout: read("stdout"), stderr: read("stderr"), leftovers, elapsed }
    }

    fn command(&self, work: &Path, mark: &str) -> Command {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).current_dir(work).process_group(0).env_clear();
        if !self.bare_env {
            for name in ["PATH", "LD_LIBRARY_PATH"] {
                command.envs(std::env::var_os(name).map(|value| (name, value)));
            }
            command.env("HOME", work).env("TMPDIR", work).env("LC_ALL", "C").env("TZ", "UTC");
            command.env(MARK, mark);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        // SAFETY: the closure makes system calls alone, which are async-signal-safe and take no
        // pointers.
        unsafe { command.pre_exec(inherit_nothing) };
        command
    }
}

/// Returns whether the kernel executes the program `path` at all, laid out without randomisation.
/// (execvp, which [`Command`] uses, would try it as a script.)
///
/// # Panics
///
/// If the path has a NUL byte, or a process cannot be made or waited for.
pub fn kernel_executes(path: &Path) -> bool {
    let name = CString::new(path.as_os_str().as_bytes()).expect("a path without NUL");
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let execute = move || {
        let argv = [name.as_ptr(), std::ptr::null()];
        // SAFETY: async-signal-safe calls; the pointers are to strings that live on.
        unsafe {
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            libc::execve(name.as_ptr(), argv.as_ptr(), argv[1..].as_ptr());
        }
        Err(std::io::Error::last_os_error())
    };
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(execute) };
    let Ok(mut child) = command.spawn() else { return false };
    child.kill().expect("kill");
    child.wait().expect("wait");
    true
}

/// Takes back what the caller of the harness passes on, which is not part of a test: marks every
/// descriptor but the standard ones close-on-exec, and gives signals that are ignored in a shell's
/// background their defaults.
fn inherit_nothing() -> std::io::Result<()> {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: signal(2) is async-signal-safe, and SIG_DFL is no function of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: close_range takes no pointers; descriptors only get a flag.
    let result = unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The time that processes of a run may outlive the first one.
const LINGER: Duration = Duration::from_secs(10);

/// Factor on time limits, for slow machines and debug builds, or for a quick look.
fn timeout_factor() -> f64 {
    match std::env::var("LWP_TEST_TIMEOUT") {
        Ok(text) => text.parse().expect("LWP_TEST_TIMEOUT is a number"),
        Err(_) => 1.0,
    }
}

fn supervise(child: &mut Child, limit: Duration, mark: &str) -> (End, Vec<String>) {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait().expect("wait for the command") {
            return (End::from(status), kill_leftovers(mark, LINGER));
        }
        if Instant::now() >= deadline {
            let mut seen = describe_marked(mark);
            kill_group(child.id());
            seen.extend(kill_leftovers(mark, Duration::ZERO));
            child.wait().expect("reap the killed command");
            return (End::TimedOut, seen);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Signal(signal),
            None => Self::Code(status.code().expect("an exited process has a code")),
        }
    }
}

fn kill_group(leader: u32) {
    kill(-i32::try_from(leader).expect("a process id fits"));
}

fn kill(pid: i32) {
    // SAFETY: kill takes no pointers; the worst outcome is ESRCH for a process already gone.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Kills processes of a run that are still there after `grace` and describes them.
fn kill_leftovers(mark: &str, grace: Duration) -> Vec<String> {
    let deadline = Instant::now() + grace;
    loop {
        let alive = marked(mark);
        if alive.is_empty() {
            return Vec::new();
        }
        if Instant::now() >= deadline {
            let described = alive.iter().map(|&pid| describe(pid)).collect();
            alive.into_iter().for_each(kill);
            return described;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn describe_marked(mark: &str) -> Vec<String> {
    marked(mark).into_iter().map(describe).collect()
}

/// Processes whose environment carries the mark of a run.
fn marked(mark: &str) -> Vec<i32> {
    let needle = format!("{MARK}={mark}\0").into_bytes();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let has_mark = |pid: &i32| {
        // Gone, or another user's: not ours either way.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        environment.windows(needle.len()).any(|window| window == needle)
    };
    pids.filter(has_mark).filter(|pid| !is_saver(*pid)).collect()
}

/// Returns whether a process is one that lwp leaves behind, which fills the cache and ends by
/// itself.
fn is_saver(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == b"lwp-save\n")
}

/// One line about a process and each of its threads: enough to see what a hang waits for.
fn describe(pid: i32) -> String {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let mut line = format!("{pid} {}:", read(format!("/proc/{pid}/comm")));
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return line };
    for task in tasks.flatten() {
        let dir = task.path();
        let file = |name: &str| read(dir.join(name).to_string_lossy().into_owned());
        let state = file("stat").rsplit(')').next().unwrap_or("").chars().nth(1).unwrap_or('?');
        let syscall = file("syscall");
        let wchan = file("wchan");
        line += &format!(" [{} {state} {wchan} {syscall}]", task.file_name().to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, timeout: Duration) -> Outcome {
        let argv = ["sh", "-c", script].map(OsString::from).to_vec();
        let dir = TempDir::new();
        Job::new(argv, timeout).run(dir.path(), dir.path())
    }

    #[test]
    fn outcome_has_code_and_both_streams() {
        let outcome = sh("echo out; echo err >&2; exit 7", Duration::from_secs(10));
        assert_eq!(outcome.end, End::Code(7));
        assert_eq!(outcome.stdout, b"out\n");
        assert_eq!(outcome.stderr, b"err\n");
        assert!(outcome.leftovers.is_empty());
    }

    #[test]
    fn outcome_has_the_fatal_signal() {
        assert_eq!(sh("kill -USR1 $$", Duration::from_secs(10)).end, End::Signal(libc::SIGUSR1));
    }

    #[test]
    fn a_hang_ends_at_the_limit_with_all_children() {
        let outcome = sh("setsid sleep 1000 & sleep 1000", Duration::from_millis(300));
        assert_eq!(outcome.end, End::TimedOut);
        assert!(!outcome.leftovers.is_empty(), "the hanging processes are described");
        assert!(outcome.elapsed < Duration::from_secs(60));
    }

    #[test]
    fn a_process_left_behind_is_found_and_killed() {
        let outcome =
            sh("setsid sleep 1000 >/dev/null 2>&1 & sleep 0.3; exit 0", Duration::from_secs(10));
        assert_eq!(outcome.end, End::Code(0));
        assert_eq!(outcome.leftovers.len(), 1, "{:?}", outcome.leftovers);
    }
}
