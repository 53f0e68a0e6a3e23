//! What this process was started with: streams, ignored signals, and signals that arrive for a
//! program in front of which it stands.
//!
//! The runtime of Rust opens closed standard streams and ignores SIGPIPE before `main`. A function
//! that runs before it notes how they were, for a command that stands in front of a program.

use std::fs::File;
use std::io::{PipeReader, Read, pipe};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};

use super::{Result, SigInfo, check};

/// Closed standard streams, a bit each.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// Ignored signals, a bit each, the first one's the lowest.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Programs that this process starts begin with the same.
static PASSED_ON: AtomicBool = AtomicBool::new(false);
/// The pipe for signals that have arrived; -1 while there is none.
static ARRIVED: AtomicI32 = AtomicI32::new(-1);

/// Standard streams and ignored signals at this process's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited {
    /// Closed streams, a bit each.
    pub closed: u8,
    /// Ignored signals, a bit each.
    pub ignored: u64,
}

#[used]
// SAFETY: the section holds pointers to functions that are called before main, and this is one. It
// makes system calls and stores numbers, and needs nothing that is not there by then.
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    for fd in 0..3 {
        // SAFETY: numbers only.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
    for signal in 1..=libc::SIGRTMAX() {
        if handler_of(signal) == libc::SIG_IGN {
            IGNORED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
        }
    }
}

/// The kernel's action for a signal: the C library does not tell of those that it keeps for itself.
fn handler_of(signal: libc::c_int) -> usize {
    // Handler, flags, restorer, mask.
    let mut action = [0usize; 4];
    let (into, mask_bytes) = (action.as_mut_ptr(), size_of::<u64>());
    // SAFETY: the kernel writes one structure of four words, which lives through the call.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, null::<usize>(), into, mask_bytes) };
    action[0]
}

/// Has the programs that this process starts begin with the streams and the ignored signals that it
/// was started with itself.
pub fn pass_on_streams_and_signals() {
    PASSED_ON.store(true, Ordering::Relaxed);
}

/// Returns what a program is to begin with, if it is to be as this process was started.
pub(crate) fn inherited() -> Option<Inherited> {
    PASSED_ON.load(Ordering::Relaxed).then(|| Inherited {
        closed: CLOSED.load(Ordering::Relaxed),
        ignored: IGNORED.load(Ordering::Relaxed),
    })
}

/// Puts the null device in the place of standard input (0) or standard output (1), so that whoever
/// holds the other end learns when the program has closed it. Where there is none, it stays.
#[expect(clippy::disallowed_methods, reason = "the path is that of the null device")]
fn let_go_of_stream(fd: i32) {
    if let Ok(none) = File::options().read(true).write(true).open("/dev/null") {
        // SAFETY: numbers only. The stream stays a valid descriptor.
        unsafe { libc::dup2(none.as_raw_fd(), fd) };
    }
}

/// Lets go of standard input and standard output, in this order, where that is asked for: the
/// program that was started has them, and their other ends learn when it closes them.
pub fn let_go_of_streams(lets_go: [bool; 2]) {
    for (fd, lets_go) in (0..).zip(lets_go) {
        if lets_go {
            let_go_of_stream(fd);
        }
    }
}

/// Signals that arrive at this process instead of doing what they do by default.
#[derive(Debug)]
pub struct Arrivals(PipeReader);

extern "C" fn arrived(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let fd = ARRIVED.load(Ordering::Relaxed);
    // SAFETY: write is async-signal-safe, and the kernel passes a whole structure; errno is put
    // back, so the interrupted code does not notice.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(fd, info.cast_const().cast(), size_of::<libc::siginfo_t>());
        *libc::__errno_location() = errno;
    }
}

impl Arrivals {
    /// Takes these signals from here on. Once for a process.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn of(signals: impl Iterator<Item = i32>) -> Result<Self> {
        let failed = |error: std::io::Error| super::Errno(error.raw_os_error().unwrap_or(0));
        let (reader, writer) = pipe().map_err(failed)?;
        let fd = writer.into_raw_fd();
        // SAFETY: numbers; a handler must not wait for room.
        check(i64::from(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }))?;
        ARRIVED.store(fd, Ordering::Relaxed);
        for signal in signals {
            // SAFETY: the handler is async-signal-safe; the structure is initialised before it is
            // passed.
            unsafe {
                let mut action: libc::sigaction = zeroed();
                action.sa_sigaction = arrived as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                libc::sigfillset(&raw mut action.sa_mask);
                check(i64::from(libc::sigaction(signal, &raw const action, std::ptr::null_mut())))?;
            }
        }
        Ok(Self(reader))
    }

    /// Waits for the next one. `None` if there will be none.
    pub fn wait(&mut self) -> Option<SigInfo> {
        let mut bytes = [0u8; size_of::<libc::siginfo_t>()];
        self.0.read_exact(&mut bytes).ok()?;
        // SAFETY: as many bytes as the structure has, which is plain numbers.
        Some(SigInfo::of(unsafe { bytes.as_ptr().cast::<libc::siginfo_t>().read_unaligned() }))
    }
}

/// Lets the calling thread take all signals.
pub fn unblock_signals() {
    // SAFETY: a set is plain data, initialised before it is passed.
    unsafe {
        let mut none: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// The real-time signals that programs may use.
pub fn real_time_signals() -> std::ops::RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// Sends a signal to a process as it was sent before: with its value and its sender where the
/// kernel allows that, which is for those of sigqueue(3) and of timers.
///
/// # Errors
///
/// The kernel's.
pub fn send_as(pid: i32, info: &SigInfo) -> Result<()> {
    let (signal, code) = (info.signo(), info.code());
    if code >= 0 || code == libc::SI_TKILL {
        return super::kill(pid, signal);
    }
    // SAFETY: the structure lives through the call.
    check(unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signal, info.raw()) }).map(drop)
}

/// Ends this process by a signal, as by its default action. Returns where that is not to end.
pub fn die_by(signal: i32) {
    unblock_signals();
    // SAFETY: numbers only.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
    }
}

/// Returns whether this process leads its session, and whether `pid` is in its process group.
pub fn stands_before(pid: i32) -> (bool, bool) {
    // SAFETY: numbers only.
    unsafe { (libc::getsid(0) == libc::getpid(), libc::getpgid(pid) == libc::getpgrp()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_was_started_with_is_noted_before_main() {
        // A test harness has its streams, and ignores what its parent did; the runtime adds SIGPIPE.
        assert_eq!(CLOSED.load(Ordering::Relaxed) & !0b111, 0);
        assert!(inherited().is_none(), "nobody has asked for it");
        assert_eq!(handler_of(libc::SIGPIPE), libc::SIG_IGN);
    }
}
