//! Programs that are measured from their start to their end.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::measure::{Clock, Taken, processor};

/// The time between two looks at a program's memory.
const BETWEEN: Duration = Duration::from_millis(2);

/// MiB that were resident at most in a process; 0 if it has ended.
pub fn peak(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Executes a command, and returns its output and what it took.
///
/// # Panics
///
/// If it fails.
pub fn done(command: &mut Command) -> (String, Taken) {
    let (output, taken) = ended(command);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), taken)
}

/// Executes a command that may fail, and returns its output and what it took.
pub fn ended(command: &mut Command) -> (Output, Taken) {
    let (out, error) = (tempfile::NamedTempFile::new(), tempfile::NamedTempFile::new());
    let (out, error) = (out.expect("a file"), error.expect("a file"));
    let reopened = |file: &tempfile::NamedTempFile| Stdio::from(file.reopen().expect("a file"));
    command.stdin(Stdio::null()).stdout(reopened(&out)).stderr(reopened(&error));
    let clock = Clock::new(processor("self").of_children);
    let mut child: Child = command.spawn().expect("it starts");
    let mut most = 0.0_f64;
    let status = loop {
        most = most.max(peak(child.id()));
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        std::thread::sleep(BETWEEN);
    };
    let taken = clock.taken(processor("self").of_children, most);
    let [stdout, stderr] = [out, error].map(|file| std::fs::read(file.path()).expect("a file"));
    (Output { status, stdout, stderr }, taken)
}
