//! News of tracees and children: waitpid(2), and the signal that tells of them.

use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::sleeping::{event_clear, timespec, wait};
use super::{Errno, Result, check};
use crate::kernel_files;

/// waitpid for any child or tracee, threads included, without waiting. `None`: nothing to report.
///
/// # Errors
///
/// The kernel's: `ECHILD` if there is none.
pub fn wait_any() -> Result<Option<(i32, i32)>> {
    poll_any(0)
}

/// [`wait_any`] for children and tracees of the calling thread alone: what other threads have
/// started is left to them.
///
/// # Errors
///
/// The kernel's: `ECHILD` if there is none.
pub fn wait_any_of_thread() -> Result<Option<(i32, i32)>> {
    poll_any(libc::__WNOTHREAD)
}

fn poll_any(flags: i32) -> Result<Option<(i32, i32)>> {
    let mut status = 0;
    let flags = flags | libc::__WALL | libc::WNOHANG;
    // SAFETY: `status` lives through the call.
    let tid = check(i64::from(unsafe { libc::waitpid(-1, &raw mut status, flags) }))?;
    Ok((tid > 0).then_some((tid as i32, status)))
}

/// waitpid for any child or tracee, threads included, waiting.
///
/// # Errors
///
/// The kernel's: `ECHILD` if there is none.
pub fn wait_for_any() -> Result<(i32, i32)> {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives through the call.
        match check(i64::from(unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) })) {
            Ok(tid) => return Ok((tid as i32, status)),
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The status of one child or tracee, if there is one by now.
///
/// # Errors
///
/// The kernel's: `ECHILD` if it is none of ours.
pub fn wait_now(tid: i32) -> Result<Option<i32>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::WNOHANG;
    // SAFETY: `status` lives through the call.
    let found = check(i64::from(unsafe { libc::waitpid(tid, &raw mut status, flags) }))?;
    Ok((found > 0).then_some(status))
}

/// waitpid for one child or tracee, waiting.
///
/// # Errors
///
/// The kernel's: `ECHILD` if it is none of ours.
pub fn wait_one(tid: i32) -> Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives through the call.
        match check(i64::from(unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) })) {
            Ok(_) => return Ok(status),
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The next stop of one tracee, waiting; its status as waitpid has it. ESRCH if it ends instead,
/// which is left to be waited for; ETIMEDOUT if it does not stop for a long time, whatever it does.
///
/// # Errors
///
/// The kernel's, and `ETIMEDOUT`.
pub fn wait_stop(tid: i32) -> Result<i32> {
    const STOPPED: i32 = 0x7f;
    const PATIENCE: Duration = Duration::from_secs(10);
    let wait = |options| {
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        let (id, options) = (tid as libc::id_t, options | libc::__WALL | libc::WNOHANG);
        // SAFETY: `info` lives through the call.
        let result = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, options) };
        // SAFETY: the kernel has filled in what belongs to a child, or nothing.
        check(i64::from(result)).map(|_| unsafe { (info.si_code, info.si_pid(), info.si_status()) })
    };
    let started = Instant::now();
    loop {
        match wait(libc::WSTOPPED) {
            Ok((_, 0, _)) if started.elapsed() > PATIENCE => return Err(Errno(libc::ETIMEDOUT)),
            Ok((_, 0, _)) => {}
            Ok((.., status)) => return Ok(status << 8 | STOPPED),
            // It has ended, or is not a tracee.
            Err(Errno(libc::ECHILD)) => return Err(Errno::ESRCH),
            Err(Errno(libc::EINTR)) => continue,
            Err(error) => return Err(error),
        }
        // The end of a process's first thread is not reported before that of its others.
        if !await_child_event() && has_ended(tid) {
            return Err(Errno::ESRCH);
        }
    }
}

/// Sleeps until there is news of a child, for two milliseconds at most. Returns whether there is.
fn await_child_event() -> bool {
    let timeout = timespec(Duration::from_millis(2));
    // SAFETY: set and time live through the call, which is told to say nothing of the signal.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const timeout)
            == libc::SIGCHLD
    }
}

/// Returns whether a thread has ended and has not been waited for.
fn has_ended(tid: i32) -> bool {
    let stat = kernel_files::text(tid, "stat").unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X' | 'x'))
}

/// waitpid for one child or tracee, without waiting. `None`: nothing to report.
///
/// # Errors
///
/// The kernel's: `ECHILD` if it is none of ours.
pub fn poll_one(tid: i32) -> Result<Option<i32>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::WNOHANG;
    // SAFETY: `status` lives through the call.
    let changed = check(i64::from(unsafe { libc::waitpid(tid, &raw mut status, flags) }))?;
    Ok((changed > 0).then_some(status))
}

/// This process's disposition of SIGCHLD before [`signal_child_events`].
#[derive(Clone, Copy)]
pub struct ChildDisposition(libc::sigaction);

impl std::fmt::Debug for ChildDisposition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChildDisposition")
    }
}

impl ChildDisposition {
    /// Returns the disposition of SIGCHLD now.
    pub fn now() -> Self {
        // SAFETY: the structure is plain data, for which zero is a value; the call only fills it
        // in.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action);
            Self(action)
        }
    }

    /// Makes SIGCHLD do this again.
    pub fn restore(&self) {
        // SAFETY: what is put back was valid in this process before.
        unsafe { libc::sigaction(libc::SIGCHLD, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// The event descriptor that SIGCHLD signals; -1 while there is none.
static CHILD_EVENT: AtomicI32 = AtomicI32::new(-1);
/// True if this process was started with SIGCHLD blocked, and with SIGCHLD ignored: so are the
/// programs that it starts.
static CHILD_BLOCKED: AtomicBool = AtomicBool::new(false);
static CHILD_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn child_changed(_: libc::c_int) {
    let fd = CHILD_EVENT.load(Ordering::Relaxed);
    let one = 1u64.to_ne_bytes();
    // SAFETY: write is async-signal-safe; the buffer is eight live bytes; errno is put back, so the
    // interrupted code does not notice.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(fd, one.as_ptr().cast(), 8);
        *libc::__errno_location() = errno;
    }
}

/// Makes every SIGCHLD, whichever thread of this process it interrupts, signal the event descriptor
/// `fd`, which must stay open for the rest of the process's life.
///
/// # Errors
///
/// The kernel's.
pub fn signal_child_events(fd: &OwnedFd) -> Result<()> {
    CHILD_EVENT.store(fd.as_raw_fd(), Ordering::Relaxed);
    // SAFETY: the handler is async-signal-safe; the structure is initialised before it is passed.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = child_changed as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        let mut old: libc::sigaction = zeroed();
        check(i64::from(libc::sigaction(libc::SIGCHLD, &raw const action, &raw mut old)))?;
        if old.sa_sigaction == libc::SIG_IGN {
            CHILD_IGNORED.store(true, Ordering::Relaxed);
        }
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        let mut before: libc::sigset_t = zeroed();
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before);
        if libc::sigismember(&raw const before, libc::SIGCHLD) == 1 {
            CHILD_BLOCKED.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Returns whether this process was started with SIGCHLD blocked, and with SIGCHLD ignored.
pub(crate) fn child_events_before() -> (bool, bool) {
    (CHILD_BLOCKED.load(Ordering::Relaxed), CHILD_IGNORED.load(Ordering::Relaxed))
}

/// Ends what [`signal_child_events`] began; the descriptor may be closed afterwards.
pub fn forget_child_events() {
    CHILD_EVENT.store(-1, Ordering::Relaxed);
}

/// SIGCHLD is kept from the thread that made this; see [`hold_child_events`].
pub struct ChildEventsHeld {
    /// The thread's mask before.
    before: libc::sigset_t,
}

impl std::fmt::Debug for ChildEventsHeld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChildEventsHeld")
    }
}

/// Keeps SIGCHLD from the calling thread as long as the result lives.
///
/// Each stop of a tracee sends one, and each would take a handler. A thread of the process from
/// which they are not kept gets them instead.
#[must_use]
pub fn hold_child_events() -> ChildEventsHeld {
    let set = child_event_set();
    // SAFETY: a set is plain data; both live through the call.
    unsafe {
        let mut before: libc::sigset_t = zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        ChildEventsHeld { before }
    }
}

fn child_event_set() -> libc::sigset_t {
    // SAFETY: a set is plain data, for which zero is a value, and initialised before anything is
    // added.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    }
}

impl ChildEventsHeld {
    /// A descriptor that is readable while one is pending.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn descriptor(&self) -> Result<OwnedFd> {
        let (set, flags) = (child_event_set(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        // SAFETY: the set lives through the call.
        let fd = unsafe { libc::signalfd(-1, &raw const set, flags) };
        check(i64::from(fd))?;
        // SAFETY: the descriptor is new and owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Sleeps until `event` has been signalled, one is pending that `pending` was made for, or the
    /// time is up, and takes both. Without `pending`, SIGCHLD is let through meanwhile: the mask is
    /// changed and waiting begins in one step, so that none is missed.
    pub fn wait(&self, event: &OwnedFd, pending: Option<&OwnedFd>, timeout: Option<Duration>) {
        let mask = if pending.is_some() { std::ptr::null() } else { &raw const self.before };
        let [event_is_set, is_pending] = wait(event, pending.map(OwnedFd::as_fd), timeout, mask);
        if event_is_set {
            event_clear(event);
        }
        if let Some(pending) = pending.filter(|_| is_pending) {
            let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
            // SAFETY: the array is as long as said.
            unsafe { libc::read(pending.as_raw_fd(), info.as_mut_ptr().cast(), info.len()) };
        }
    }
}

impl Drop for ChildEventsHeld {
    fn drop(&mut self) {
        // SAFETY: the mask was this thread's before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}
