//! System calls made in a stopped tracee.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::limits::{self, MoreFiles};
use crate::mapped::Expected;
use crate::shm::Inode;
use crate::tracees::{self, Tracees};
use crate::{Stop, Tid, fd_passing, memory, view};

use crate::maps::Status;

const SYS_OPEN: u64 = 2;
const SYS_CLOSE: u64 = 3;
const SYS_MMAP: u64 = 9;
const SYS_SOCKETPAIR: u64 = 53;
const SYS_RECVMSG: u64 = 47;
const AF_UNIX: u64 = 1;
const SOCK_STREAM_CLOEXEC: u64 = 1 | 0o2_000_000;
const MSG_CMSG_CLOEXEC: u64 = 0x4000_0000;
const MSG_DONTWAIT: u64 = 0x40;
const MAP_NORESERVE: u64 = 0x4000;
/// The distance below the stack pointer beyond which nothing is the program's, whatever runs there.
pub const RED_ZONE: u64 = 512;

/// Bytes of the tracee's memory that [`Injector::receive`] needs: for two sockets, a message, its
/// one part, its control message, and a byte.
pub const RECEIVE_BYTES: usize = 128;
const MESSAGE_AT: usize = 8;
const PART_AT: usize = 64;
const CONTROL_AT: usize = 80;
const BYTE_AT: usize = 112;

/// The bytes that socketpair(2) and recvmsg(2) are given, for `scratch`.
fn receiving(scratch: u64) -> Vec<u8> {
    let mut bytes = vec![0; RECEIVE_BYTES];
    let at = |offset: usize| scratch + offset as u64;
    // msghdr: no name; one part; 24 bytes for a control message. iovec: one byte.
    let words = [0, 0, at(PART_AT), 1, at(CONTROL_AT), 24, 0, at(BYTE_AT), 1];
    for (word, place) in words.into_iter().zip(bytes[MESSAGE_AT..].chunks_exact_mut(8)) {
        place.copy_from_slice(&u64::to_le_bytes(word));
    }
    bytes
}

/// Words of a system call in a list of them: its number and six arguments.
pub const CALL_WORDS: usize = 7;

/// A system call: its number and arguments.
pub type Call = [u64; CALL_WORDS];

/// A mapping to be made of a file of ours.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// PROT_*.
    pub prot: u64,
    /// MAP_*; no memory is reserved in any case.
    pub flags: u64,
    /// Offset in the file.
    pub offset: u64,
}

impl Map {
    /// The call that makes it, of the file open at `fd`.
    pub fn call(&self, fd: u64) -> Call {
        let flags = self.flags | MAP_NORESERVE;
        [SYS_MMAP, self.address, self.bytes, self.prot, flags, fd, self.offset]
    }
}

/// Makes system calls in a stopped tracee, whose registers stay as they are.
///
/// As long as this lives the tracee blocks what signals it can, which so stay pending, each with
/// what it carries. Whatever else stops the tracee happens to it again afterwards.
#[derive(Debug)]
pub struct Injector {
    /// The tracee.
    pub tid: Tid,
    tracees: Arc<dyn Tracees>,
    pid: i32,
    /// The tracee's own mask of blocked signals, while it is another.
    mask: Option<u64>,
    /// Its stops meanwhile.
    held: Vec<Stop>,
    /// Address of a `syscall` instruction in it.
    site: u64,
    /// SIGTRAP is ignored or blocked: neither single steps nor breakpoints.
    quiet: bool,
    /// Its system call filter does not see what it is made to do.
    unfiltered: bool,
    /// The routine that makes a list of calls, and where the list goes below the stack.
    batch: Option<(u64, u64)>,
    /// A path of ours leads the tracee to the same file, if that has been found out.
    sees_our_files: Option<bool>,
}

impl Injector {
    /// For calls by the `syscall` instruction at `site` of `tid`.
    pub fn new(tracees: &Arc<dyn Tracees>, tid: Tid, site: u64, status: &Status) -> Self {
        const SIGTRAP_BIT: u64 = 1 << 4;
        let quiet = ["SigIgn:", "SigBlk:"]
            .iter()
            .any(|field| status.signals(field).is_some_and(|set| set & SIGTRAP_BIT != 0));
        let pid = status.number("Tgid:").and_then(|pid| i32::try_from(pid).ok()).unwrap_or(tid);
        let mask = tracees.sigmask(tid).ok();
        // A SIGTRAP that the kernel forces upon a thread which blocks it resets its disposition.
        let blocked =
            mask.is_some_and(|mask| tracees.set_sigmask(tid, !SIGTRAP_BIT | mask).is_ok());
        let mask = mask.filter(|_| blocked);
        let unfiltered = status.is_filtered() && tracees.suspend_filter(tid, true).is_ok();
        let tracees = Arc::clone(tracees);
        Self {
            tid,
            tracees,
            pid,
            mask,
            held: Vec::new(),
            site,
            quiet,
            unfiltered,
            batch: None,
            sees_our_files: None,
        }
    }

    /// Lists of calls can from now on be made by the routine at `code`; the tracee's stack pointer
    /// is `stack`.
    pub fn use_batch(&mut self, code: u64, stack: u64) {
        self.batch = Some((code, stack - RED_ZONE)).filter(|_| !self.quiet);
    }

    /// Makes one call that must succeed.
    pub fn call(&mut self, call: Call) -> Result<u64, String> {
        let result = self.single(call)?;
        self.succeeded(call[0], result)
    }

    /// Returns whether the result of its call says that `map` was made.
    pub fn has_made(&self, map: &Map, result: i64) -> Result<(), String> {
        if self.succeeded(SYS_MMAP, result)? != map.address {
            return Err(format!("no room at {:#x} for {:#x} bytes", map.address, map.bytes));
        }
        Ok(())
    }

    /// The result of a call that must succeed. A failure for want of memory names the limits on it.
    fn succeeded(&self, nr: u64, result: i64) -> Result<u64, String> {
        u64::try_from(result).map_err(|_| {
            let error = std::io::Error::from_raw_os_error(-result as i32);
            let limits = match error.kind() {
                ErrorKind::OutOfMemory => limits::on_memory(self.tid),
                _ => String::new(),
            };
            format!("system call {nr} in the program: {error}{limits}")
        })
    }

    /// Returns whether a path of ours leads the tracee to the same file.
    pub fn sees_our_files(&mut self) -> bool {
        let tid = self.tid;
        *self.sees_our_files.get_or_insert_with(|| view::is_shared_by(tid))
    }

    /// Returns whether each of `parts` is mapped from `file`.
    pub fn has_mapped(&self, file: Inode, parts: &[Expected]) -> bool {
        self.tracees.has_mapped(self.tid, file, parts)
    }

    /// Opens the file of ours whose path is at `path`, also where the program has no descriptor
    /// left. Elsewhere than in our view of the file system, nothing is opened: somebody else decides
    /// about the path there.
    pub fn open(&mut self, path: u64, flags: u64) -> Result<u64, String> {
        if !self.sees_our_files() {
            return Err("it has another root directory or mounts of its own".into());
        }
        let call = [SYS_OPEN, path, flags, 0, 0, 0, 0];
        let first = self.call(call);
        if first.is_ok() {
            return first;
        }
        let second = match MoreFiles::allow(self.tid) {
            Ok(_more) => self.call(call),
            Err(_) => first,
        };
        second.map_err(|error| format!("it cannot open the virtual CPU's memory: {error}"))
    }

    /// Has `descriptor`, one of ours, handed over through a pair of sockets, which have no name
    /// that anybody else could know; its number in the tracee. `scratch` are [`RECEIVE_BYTES`]
    /// bytes of the tracee for this.
    ///
    /// Not in a program with a filter: it may be killed for a call that it does not expect to make.
    pub fn receive(&mut self, descriptor: i32, scratch: u64) -> Result<u64, String> {
        let tid = self.tid;
        if Status::read(tid).is_filtered() {
            return Err("it has a system call filter".into());
        }
        let write = memory::write_exact(tid, scratch, &receiving(scratch));
        write.map_err(|error| format!("writing to the program: {error}"))?;
        let _more = MoreFiles::allow(tid);
        self.call([SYS_SOCKETPAIR, AF_UNIX, SOCK_STREAM_CLOEXEC, 0, scratch, 0, 0])?;
        let pair = memory::read_u64(tid, scratch).map_err(|error| error.to_string())?;
        let [ours, theirs] = [pair & u64::from(u32::MAX), pair >> 32];
        let given = fd_passing::give(self.pid, ours as i32, descriptor);
        let received = given.map_err(|error| error.to_string()).and_then(|()| {
            let message = scratch + MESSAGE_AT as u64;
            self.call([SYS_RECVMSG, theirs, message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT, 0, 0, 0])
        });
        let received = received.and_then(|_| {
            // The descriptor stands behind the length, level and kind of the control message.
            let header = memory::read_u64(tid, scratch + CONTROL_AT as u64);
            let number = memory::read_u64(tid, scratch + CONTROL_AT as u64 + 16);
            match (header, number) {
                (Ok(20), Ok(number)) => Ok(number & u64::from(u32::MAX)),
                _ => Err("no descriptor has arrived".to_owned()),
            }
        });
        for socket in [ours, theirs] {
            self.call([SYS_CLOSE, socket, 0, 0, 0, 0, 0])?;
        }
        received
    }

    /// Makes mappings of the file open at `fd`.
    pub fn map(&mut self, maps: &[Map], fd: u64) -> Result<(), String> {
        maps.iter().try_for_each(|map| {
            let result = self.single(map.call(fd))?;
            self.has_made(map, result)
        })
    }

    /// Makes a list of calls and returns what the kernel has returned for each.
    pub fn calls(&mut self, calls: &[Call]) -> Result<Vec<i64>, String> {
        if let Some(results) = self.calls_about(&[], |_| calls.to_vec()) {
            return results;
        }
        calls.iter().map(|call| self.single(*call)).collect()
    }

    fn single(&mut self, call: Call) -> Result<i64, String> {
        let [number, args @ ..] = call;
        let call = tracees::Call { site: self.site, number, args, quiet: self.quiet };
        let made = self.tracees.call(self.tid, call, &mut self.held);
        made.map_err(|error| format!("system call {number} in the program: {error}"))
    }

    /// Makes a list of calls in one stop: those that `make` returns for the address of `text` in
    /// the tracee. `None` where there is no routine for that, or no room, and nothing has happened.
    pub fn calls_about(
        &mut self,
        text: &[u8],
        make: impl FnOnce(u64) -> Vec<Call>,
    ) -> Option<Result<Vec<i64>, String>> {
        let (code, top) = self.batch?;
        let tid = self.tid;
        let text_at = (top - text.len() as u64) & !15;
        let calls = make(text_at);
        let end: Call = [0; CALL_WORDS];
        let mut list: Vec<u8> =
            calls.iter().chain([&end]).flatten().flat_map(|word| word.to_le_bytes()).collect();
        let at = text_at - list.len() as u64;
        let mut saved = vec![0; list.len() + text.len()];
        memory::read_exact(tid, at, &mut saved).ok()?;
        let whole = [&list[..], text].concat();
        memory::write_exact(tid, at, &whole).ok()?;
        let made = self
            .tracees
            .run(tid, code, at, &mut self.held)
            .and_then(|()| memory::read_exact(tid, at, &mut list));
        let _ = memory::write_exact(tid, at, &saved);
        if let Err(error) = made {
            return Some(Err(format!("system calls in the program: {error}")));
        }
        let result = |call: &[u8]| i64::from_le_bytes(call[..8].try_into().expect("eight bytes"));
        Some(Ok(list.chunks_exact(CALL_WORDS * 8).take(calls.len()).map(result).collect()))
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        let tid = self.tid;
        // A tracee that is gone wants nothing back.
        if self.unfiltered {
            let _ = self.tracees.suspend_filter(tid, false);
        }
        if let Some(mask) = self.mask {
            let _ = self.tracees.set_sigmask(tid, mask);
        }
        for stop in &self.held {
            match stop {
                Stop::Signal(signal) => drop(self.tracees.send(self.pid, tid, *signal)),
                // Where its group stands still this stops it as a member.
                Stop::Interrupted | Stop::Group(_) => drop(self.tracees.interrupt(tid)),
                _ => {}
            }
        }
    }
}
