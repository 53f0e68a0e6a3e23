//! One test in a process of its own.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// A test that takes longer hangs. The slowest takes a tenth of it on two idle processors.
const LIMIT: Duration = Duration::from_secs(900);

/// How a test ended.
#[derive(Debug)]
pub struct Ended {
    /// The way.
    pub end: End,
    /// All that it printed, if it failed.
    pub words: String,
    /// The time from its start to its end.
    pub elapsed: Duration,
    /// Processor time of it and of the children that it has waited for.
    pub processor: Duration,
}

impl Ended {
    /// Returns whether the test passed.
    pub fn is_success(&self) -> bool {
        matches!(self.end, End::Status(status) if status.success())
    }
}

/// The way in which a test ended.
#[derive(Debug)]
pub enum End {
    /// By itself.
    Status(ExitStatus),
    /// It was killed at the time limit.
    TimedOut,
    /// It could not be started or waited for.
    Lost(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) if status.success() => f.write_str("ok"),
            Self::Status(status) => write!(f, "FAILED ({status})"),
            Self::TimedOut => write!(f, "FAILED (no end after {} s)", LIMIT.as_secs()),
            Self::Lost(why) => write!(f, "FAILED ({why})"),
        }
    }
}

/// Runs a test. Its words go to `file`, not to a pipe, which a process that it leaves behind could
/// hold open.
pub fn run(command: Command, file: &Path) -> Ended {
    let began = Instant::now();
    let (end, processor) = match start(command, file) {
        Ok(child) => wait(child, began),
        Err(error) => (End::Lost(error.to_string()), Duration::ZERO),
    };
    let mut ended = Ended { end, words: String::new(), elapsed: began.elapsed(), processor };
    if !ended.is_success() {
        ended.words = String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
    }
    let _ = fs::remove_file(file);
    ended
}

fn start(mut command: Command, file: &Path) -> std::io::Result<Child> {
    let output = File::create(file)?;
    // A group of its own: what a test that hangs has started is ended with it.
    command.stdout(output.try_clone()?).stderr(output).process_group(0).spawn()
}

fn wait(mut child: Child, began: Instant) -> (End, Duration) {
    let pid = Pid::from_child(&child);
    let mut pause = Duration::from_millis(1);
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Ok(Some(_)) => break,
            Ok(None) if began.elapsed() > LIMIT => {
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                let _ = child.wait();
                return (End::TimedOut, Duration::ZERO);
            }
            Ok(None) => thread::sleep(pause),
            Err(error) => return (End::Lost(error.to_string()), Duration::ZERO),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    let processor = processor_time(pid);
    match child.wait() {
        Ok(status) => (End::Status(status), processor),
        Err(error) => (End::Lost(error.to_string()), processor),
    }
}

/// The processor time of a process that has ended and was not waited for, and of its children.
fn processor_time(pid: Pid) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    ticks(&stat).map_or(Duration::ZERO, |ticks| Duration::from_millis(ticks * 10))
}

/// utime, stime, cutime and cstime: proc(5) has them as fields 14 to 17, in hundredths of seconds.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<u64> =
        fields.split_whitespace().skip(11).take(4).filter_map(|it| it.parse().ok()).collect();
    (fields.len() == 4).then(|| fields.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Ended {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("lwp-xtask-{}-{number}", std::process::id());
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, &std::env::temp_dir().join(name))
    }

    #[test]
    fn words_of_tests_that_fail_are_kept() {
        assert!(sh("true").is_success());
        let failed = sh("echo out; echo err >&2; exit 3");
        assert!(!failed.is_success());
        assert_eq!(failed.words, "out\nerr\n");
        assert_eq!(failed.end.to_string(), "FAILED (exit status: 3)");
    }

    #[test]
    fn a_process_that_is_left_behind_keeps_nobody_waiting() {
        let ended = sh("setsid sleep 30 & exit 0");
        assert!(ended.is_success() && ended.elapsed < Duration::from_secs(25));
    }

    #[test]
    fn processor_time_is_that_of_children_too() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1 0 99";
        assert_eq!(ticks(stat), Some(127));
        assert_eq!(ticks("12 (a) S"), None);
    }
}
