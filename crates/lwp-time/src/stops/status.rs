//! What `/proc` says of threads: their processes and names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What `/proc` says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// The process that it belongs to.
    pub process: i32,
    /// The process that made that one.
    pub parent: i32,
}

impl Status {
    pub fn of(tid: i32) -> Option<Self> {
        Self::of_text(&std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?)
    }

    /// Spec: proc_pid_status(5).
    fn of_text(text: &str) -> Option<Self> {
        let value = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse().ok())
        };
        Some(Self { process: value("Tgid:")?, parent: value("PPid:").unwrap_or(0) })
    }
}

/// A thread's name.
pub(super) fn comm(pid: i32, tid: i32) -> std::io::Result<OsString> {
    let mut name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm"))?;
    name.pop_if(|last| *last == b'\n');
    Ok(OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_lines_are_read() {
        let text = "Name:\ta\nTgid:\t12\nNgid:\t0\nPid:\t13\nPPid:\t1\n";
        assert_eq!(Status::of_text(text), Some(Status { process: 12, parent: 1 }));
        assert_eq!(Status::of_text("Name:\tTgid:\n"), None);
        let own = std::process::id().cast_signed();
        assert_eq!(Status::of(own).map(|it| it.process), Some(own));
        assert!(comm(own, own).is_ok_and(|name| !name.is_empty()));
        assert!(super::super::has_accounts());
    }
}
