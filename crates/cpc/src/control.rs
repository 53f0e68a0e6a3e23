//! Counters that a controlling process has bound to a thread, switched by the thread itself.
//!
//! A controller is a program such as `cputrack`, which has attached to another program with ptrace
//! and binds sets to its threads. The controlled program may call `cpc_enable` and `cpc_disable`
//! although it has not bound anything itself. The counters belong to the controller, so the library
//! asks it to switch them. The controller listens at a datagram socket in the abstract namespace,
//! which is named after its process. The kernel reports the controller's process number as the
//! thread's tracer or, on the virtual CPU, the host does. Each side only accepts messages if the
//! kernel confirms the sender's process. If nobody traces the thread, or the tracer doesn't listen,
//! there is no controller.

use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::ffi::CStr;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::sockopt::{Timeout, set_socket_passcred, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrAny,
    SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendto, socket_with,
};

use lwp_process::nested_ptrace;

use crate::error::{Error, Result};
use crate::{set, sys};

/// The time that a controller may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No path or name here is longer.
const NAME_BYTES: usize = 64;

/// The message: a thread, and then 1 for counting or 0; and back the thread and an error number or
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    tid: i32,
    value: i32,
}

impl Message {
    const BYTES: usize = 8;

    fn bytes(self) -> [u8; Self::BYTES] {
        (u64::from(self.tid.cast_unsigned()) << 32 | u64::from(self.value.cast_unsigned()))
            .to_le_bytes()
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let word = u64::from_le_bytes(bytes);
        Self { tid: (word >> 32) as i32, value: word as i32 }
    }
}

/// A message, the process that the kernel says has sent it, and where that receives.
type Received = (Message, i32, Option<SocketAddrAny>);

/// Takes one message. Anything else that arrives is passed over.
fn receive(socket: &OwnedFd) -> std::result::Result<Option<Received>, Errno> {
    let mut bytes = [0; Message::BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let pid = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_nonzero().get()),
        _ => None,
    });
    let (true, Some(pid)) = (received.bytes == Message::BYTES, pid) else {
        return Ok(None);
    };
    let mut message = [0; Message::BYTES];
    message.copy_from_slice(&bytes[..Message::BYTES]);
    Ok(Some((Message::from_bytes(message), pid, received.address)))
}

/// A socket whose messages tell who has sent them.
fn socket(flags: SocketFlags) -> std::result::Result<OwnedFd, Errno> {
    let flags = flags | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    set_socket_passcred(&socket, true)?;
    Ok(socket)
}

/// The address at which process `pid` listens. Process numbers are those of a namespace, which is
/// therefore named.
fn address(pid: i32) -> std::result::Result<SocketAddrUnix, Errno> {
    let namespace = rustix::fs::stat(c"/proc/self/ns/pid")?.st_ino;
    let mut name = [0; NAME_BYTES];
    let mut rest = &mut name[..];
    write!(rest, "libcpc/{namespace}/{pid}").map_err(|_| Errno::NAMETOOLONG)?;
    let unused = rest.len();
    SocketAddrUnix::new_abstract_name(&name[..NAME_BYTES - unused])
}

/// The number in line `field` of the status of a thread, of the one that asks if it is 0.
fn status(tid: i32, field: &str) -> Option<i32> {
    let mut path = [0; NAME_BYTES];
    match tid {
        0 => write!(&mut path[..], "/proc/thread-self/status\0").ok()?,
        tid => write!(&mut path[..], "/proc/{tid}/status\0").ok()?,
    }
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // The lines looked for are among the first; what stands before them is shorter than this.
    let mut text = [0; 1024];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut text)).ok()?;
    number_in(&text[..length], field)
}

/// The number behind `field` and a colon, at the start of a line.
fn number_in(text: &[u8], field: &str) -> Option<i32> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(field.as_bytes())?.strip_prefix(b":"))?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Asks whoever controls the calling thread to let its counters run or stand still.
///
/// # Errors
///
/// EINVAL if nobody does, or has bound no counters to it, or they do so already; EAGAIN if the
/// controller does not answer.
pub(crate) fn ask(running: bool) -> Result<()> {
    let none = Error::invalid("the thread has no counters");
    let tracer = status(0, "TracerPid").filter(|tid| *tid != 0);
    let controller = match tracer {
        // It is a thread that traces; it is its process that listens.
        Some(tracer) => status(tracer, "Tgid"),
        None => nested_ptrace::guardian(0),
    };
    let controller = controller.ok_or(none.clone())?;
    let tid = sys::thread_id();
    let silent = Error::new(libc::EAGAIN, "the controlling process does not answer");
    let socket = socket(SocketFlags::empty()).map_err(|_| silent.clone())?;
    let wish = Message { tid, value: i32::from(running) }.bytes();
    let to = address(controller).map_err(|_| none.clone())?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(|_| silent.clone())?;
    rustix::io::retry_on_intr(|| sendto(&socket, &wish, SendFlags::NOSIGNAL, &to))
        .map_err(|_| none)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match receive(&socket) {
            Ok(Some((answer, pid, _))) if pid == controller && answer.tid == tid => {
                return match answer.value {
                    0 => Ok(()),
                    errno => Err(Error::new(errno, "the controlling process refused")),
                };
            }
            Ok(_) | Err(Errno::INTR) if Instant::now() < deadline => {}
            _ => return Err(silent),
        }
    }
}

/// The socket at which programs that this process controls ask it to switch their counters on or
/// off.
///
/// A controller gets it with [`SwitchRequests::of_this_process`] after it has bound a set with
/// [`crate::Set::bind_tid`]. Whenever the socket is readable, it calls [`SwitchRequests::answer`].
#[derive(Debug)]
pub struct SwitchRequests {
    socket: OwnedFd,
    /// The process; a child of `fork` has to listen for itself.
    process: u32,
}

impl SwitchRequests {
    /// Returns this process's socket; the first call opens it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Other`](crate::ErrorKind::Other), or another kind for the system's error
    /// number, if the socket can't be opened. Controlled programs then fail with EINVAL, as they do
    /// without a controller.
    pub fn of_this_process() -> Result<Arc<Self>> {
        static CURRENT: Mutex<Option<Arc<SwitchRequests>>> = Mutex::new(None);
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some(requests) = current.as_ref().filter(|requests| requests.process == process) {
            return Ok(Arc::clone(requests));
        }
        let listen = || {
            let socket = socket(SocketFlags::NONBLOCK)?;
            bind(&socket, &address(process.cast_signed())?)?;
            Ok(Self { socket, process })
        };
        let requests = listen().map_err(|errno: Errno| {
            Error::new(errno.raw_os_error(), "programs under control cannot be listened to")
        })?;
        let requests = Arc::new(requests);
        *current = Some(Arc::clone(&requests));
        Ok(requests)
    }

    /// Carries out all waiting requests and answers them. Doesn't wait for requests.
    pub fn answer(&self) {
        self.answer_by(switch_bound);
    }

    /// Answers all waiting requests with `switch`, for a controller with counters of its own
    /// instead of bound sets. `switch` takes the kernel's number of a thread, and whether its
    /// counters should run.
    pub fn answer_by(&self, mut switch: impl FnMut(i32, bool) -> Result<()>) {
        loop {
            match receive(&self.socket) {
                Ok(Some((wish, pid, Some(from)))) => {
                    let done = obey(wish, pid, &mut switch);
                    let errno = done.err().map_or(0, |error| error.errno());
                    let answer = Message { tid: wish.tid, value: errno }.bytes();
                    // One that does not wait any more needs no answer.
                    let _ = sendto(&self.socket, &answer, SendFlags::NOSIGNAL, &from);
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for SwitchRequests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Switches the counters of a thread, if it is one of the process that asks.
fn obey(wish: Message, pid: i32, switch: &mut impl FnMut(i32, bool) -> Result<()>) -> Result<()> {
    if status(wish.tid, "Tgid") != Some(pid) {
        return Err(Error::invalid("the thread has no counters"));
    }
    switch(wish.tid, wish.value != 0)
}

/// Switches the set that was bound to a thread from this process.
fn switch_bound(tid: i32, running: bool) -> Result<()> {
    let set = set::bound_to(tid).ok_or(Error::invalid("the thread has no counters"))?;
    set.enable_elsewhere(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_through_bytes() {
        let message = Message { tid: 0x1234_5678, value: -7 };
        assert_eq!(Message::from_bytes(message.bytes()), message);
    }

    #[test]
    fn fields_are_found_at_the_start_of_a_line() {
        let text = b"Name:\tTgid:\t9\nTgid:\t42\nTracerPid:\t0\n";
        assert_eq!(number_in(text, "Tgid"), Some(42));
        assert_eq!(number_in(text, "TracerPid"), Some(0));
        assert_eq!(number_in(text, "Tracer"), None);
    }

    #[test]
    fn the_status_of_threads_is_read() {
        let process = std::process::id().cast_signed();
        assert_eq!(status(0, "Tgid"), Some(process));
        assert_eq!(status(sys::thread_id(), "Tgid"), Some(process));
        assert_eq!(status(-5, "Tgid"), None);
    }

    /// Whatever others write to the socket is passed over.
    ///
    /// Promise: C11
    #[test]
    fn only_messages_are_taken() {
        let requests = SwitchRequests::of_this_process().unwrap();
        let again = SwitchRequests::of_this_process().unwrap();
        assert!(Arc::ptr_eq(&requests, &again));
        let client = socket(SocketFlags::empty()).unwrap();
        set_socket_timeout(&client, Timeout::Recv, Some(PATIENCE)).unwrap();
        let to = address(std::process::id().cast_signed()).unwrap();
        let tid = sys::thread_id();
        for garbage in [&b""[..], b"x", b"123456789"] {
            sendto(&client, garbage, SendFlags::empty(), &to).unwrap();
        }
        for wish in [Message { tid, value: 1 }, Message { tid: 1, value: 1 }] {
            sendto(&client, &wish.bytes(), SendFlags::empty(), &to).unwrap();
        }
        requests.answer();
        for tid in [tid, 1] {
            let (answer, pid, _) = receive(&client).unwrap().unwrap();
            assert_eq!(answer, Message { tid, value: libc::EINVAL }, "it has bound nothing");
            assert_eq!(pid, std::process::id().cast_signed());
        }
    }
}
