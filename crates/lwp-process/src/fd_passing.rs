//! Handing a descriptor to a tracee that cannot open it under any name, because it has another root
//! directory or another `/proc`, or is another user's: through one of two sockets that the tracee
//! has made as a pair.

use std::io;
use std::os::fd::{AsFd, RawFd};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::sys;
use crate::tracee::Tid;

/// Sends `descriptor` through socket number `socket` of process `pid`, which we trace.
///
/// # Errors
///
/// Those of pidfd_open(2), pidfd_getfd(2) (from Linux 5.6 on) and sendmsg(2).
pub fn give(pid: Tid, socket: RawFd, descriptor: RawFd) -> io::Result<()> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let socket = pidfd_getfd(process, socket, PidfdGetfdFlags::empty())?;
    sys::send_descriptor(socket.as_fd(), descriptor)
        .map_err(|error| io::Error::from_raw_os_error(error.0))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Promise: X6
    #[test]
    fn what_is_sent_arrives_at_the_other_end() {
        let me = std::process::id() as i32;
        let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
        let file = fs::File::open("/dev/null").expect("a file");
        give(me, ours.as_raw_fd(), file.as_raw_fd()).expect("a message");
        drop(ours);
        let mut message = Vec::new();
        theirs.read_to_end(&mut message).expect("the message");
        assert_eq!(message, [0]);
    }

    /// Promise: X6
    #[test]
    fn a_process_without_the_socket_is_given_nothing() {
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.expect("a process");
        let nothing = give(child.id() as i32, 1 << 20, 0);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(nothing.is_err());
    }
}
