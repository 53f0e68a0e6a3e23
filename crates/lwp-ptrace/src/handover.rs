//! Handing a descriptor to a tracee that cannot open it under any name, because it has another root directory or
//! another `/proc`: through a socket in a directory that both of them reach, the tracee by its own name for it.
//!
//! Only what lacks a name is mended so. Whom the kernel would refuse the descriptor for what it is, another user or
//! one of another user namespace, gets nothing.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use crate::sys;
use crate::tracee::Tid;

/// Where a socket may be made, in the tracee's root directory.
const DIRECTORIES: [&str; 5] = ["tmp/", "dev/shm/", "run/", "var/tmp/", ""];

/// A socket that waits for a tracee. Its name is gone when this is.
#[derive(Debug)]
pub struct Handover {
    listener: UnixListener,
    outside: PathBuf,
    inside: String,
}

impl Handover {
    /// Makes a socket in the first directory of `tid`'s root in which that is possible.
    ///
    /// # Errors
    ///
    /// That the tracee has another user namespace, or why no socket could be made in the last directory.
    pub fn new(tid: Tid) -> io::Result<Self> {
        let users = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
        if users("self")? != users(&tid.to_string())? {
            return Err(io::Error::other("it has another user namespace"));
        }
        let mut last = Err(io::ErrorKind::NotFound.into());
        for directory in DIRECTORIES {
            let inside = format!("/{directory}.lwp-{}-{tid}", std::process::id());
            let outside = PathBuf::from(format!("/proc/{tid}/root{inside}"));
            match UnixListener::bind(&outside) {
                Ok(listener) => {
                    let handover = Self { listener, outside, inside };
                    fs::set_permissions(&handover.outside, Permissions::from_mode(0o600))?;
                    handover.listener.set_nonblocking(true)?;
                    return Ok(handover);
                }
                Err(error) => last = Err(error),
            }
        }
        last
    }

    /// The socket's name in the tracee.
    pub fn path(&self) -> &str {
        &self.inside
    }

    /// Sends `descriptor` to process `pid`, which has connected.
    ///
    /// # Errors
    ///
    /// That nobody has connected, or somebody else, or another user.
    pub fn give(&self, pid: i32, descriptor: RawFd) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        let own = rustix::process::geteuid().as_raw();
        if sys::peer(stream.as_fd()) != Ok((pid, own)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        sys::send_descriptor(stream.as_fd(), descriptor)
            .map_err(|error| io::Error::from_raw_os_error(error.0))
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.outside);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn nobody_else_is_given_anything() {
        let me = std::process::id() as i32;
        let handover = Handover::new(me).expect("a socket");
        let file = fs::File::open("/dev/null").expect("a file");
        let nobody = handover.give(me, file.as_raw_fd()).expect_err("nobody has come");
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock);
        let mut stream = UnixStream::connect(handover.path()).expect("its name is here too");
        let denied = handover.give(me + 1, file.as_raw_fd()).expect_err("it is another");
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        assert!(stream.write_all(b"x").is_err(), "it has been hung up on");
        let path = handover.path().to_owned();
        drop(handover);
        assert!(UnixStream::connect(path).is_err());
    }
}
