//! Does a path mean the same file to a tracee as it does to this process?
//!
//! A tracee opens the host's files by their paths below `/proc`, which takes one call. Inside a
//! container, below another root directory or in another process namespace, the same path names
//! something else, and whoever owns that place decides what: a stranger's file, a FIFO, a device.
//! So the host compares the two views first, and hands descriptors over ([`crate::handover`]) to a
//! tracee whose view differs.
//!
//! Promise: B6

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::kernel_files::{self, Own, Who};
use crate::tracee::Tid;

/// A view of the file system: the mount namespace, and the directory that is its root, as mount and
/// inode.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    namespace: OsString,
    mount: u64,
    device: (u32, u32),
    inode: u64,
}

impl View {
    /// The view of a process, by the name of its directory in `/proc`.
    fn of(process: impl Who) -> Option<Self> {
        let namespace = kernel_files::link(process, "ns/mnt").ok()?;
        let root = kernel_files::path(process, "root");
        let asked = StatxFlags::INO | StatxFlags::MNT_ID;
        let root = statx(CWD, root, AtFlags::NO_AUTOMOUNT, asked).ok()?;
        Some(Self {
            namespace: namespace.into_os_string(),
            // 0 before Linux 5.8, where nothing tells one mount of a directory from another.
            mount: root.stx_mnt_id,
            device: (root.stx_dev_major, root.stx_dev_minor),
            inode: root.stx_ino,
        })
    }
}

/// Returns whether `/proc` shows this process under its own number: it is that of our process
/// namespace.
fn sees_itself() -> bool {
    let own = kernel_files::link(Own, "");
    own.is_ok_and(|own| own == Path::new(&std::process::id().to_string()))
}

/// Returns whether an absolute path leads `tid` where it leads this process. False where that
/// cannot be found out.
pub fn is_shared_by(tid: Tid) -> bool {
    static OWN: OnceLock<Option<View>> = OnceLock::new();
    let own = OWN.get_or_init(|| View::of(Own).filter(|_| sees_itself()));
    own.is_some() && View::of(tid) == *own
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_shares_the_view_of_its_maker() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        assert!(is_shared_by(child.id().cast_signed()));
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }

    #[test]
    fn a_process_with_mounts_of_its_own_does_not() {
        let unshare = ["-Um", "sh", "-c", "echo ready; exec sleep 60"];
        let started = Command::new("unshare").args(unshare).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = started else { return };
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line);
        let ready = line == "ready\n";
        let shared = is_shared_by(child.id().cast_signed());
        let _ = child.kill();
        let _ = child.wait();
        // Some systems refuse to make such a namespace.
        assert!(!ready || !shared);
    }

    #[test]
    fn nobody_shares_the_view_of_a_process_that_there_is_not() {
        assert!(!is_shared_by(i32::MAX));
    }
}
