//! One function per system call that std has no safe form of.
//!
//! # Safety
//!
//! JUSTIFICATION: ptrace, wait, process_vm and futex have no safe interface in std, and the crates
//! that offer one do not cover seizing, listening and the general registers' gs base. Every
//! function here passes pointers only to buffers that it owns or borrows for the duration of the
//! call, with their true lengths; numbers are passed by value. A tracee is another process:
//! whatever is done to it cannot break this process's memory safety.
#![allow(unsafe_code, reason = "the system call boundary; see the module's safety section")]

use std::fs::File;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// A system call's error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        // Without Rust's "(os error 1)".
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

impl std::error::Error for Errno {}

impl Errno {
    /// No such process.
    pub const ESRCH: Self = Self(libc::ESRCH);

    /// The calling thread's last error.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Result of a system call.
pub type Result<T> = std::result::Result<T, Errno>;

fn check(value: libc::c_long) -> Result<libc::c_long> {
    if value == -1 { Err(Errno::last()) } else { Ok(value) }
}

fn ptrace(request: libc::c_uint, tid: i32, addr: usize, data: usize) -> Result<libc::c_long> {
    // SAFETY: the callers below pass, for each request, either plain numbers or pointers to live
    // buffers of the request's size.
    check(unsafe { libc::ptrace(request, tid, addr, data) })
}

/// A request that the kernel does not know; see [`crate::wards`].
pub(crate) fn ptrace_request(request: u64, pid: i32, addr: u64, data: u64) -> Result<i64> {
    ptrace(request as libc::c_uint, pid, addr as usize, data as usize)
}

/// The same for one that stores four words. `None` where it says that it has not.
pub(crate) fn ptrace_words(request: u64, pid: i32) -> Result<Option<[u64; 4]>> {
    let mut words = [0u64; 4];
    let stored = ptrace(request as libc::c_uint, pid, (&raw mut words).addr(), 0)?;
    Ok((stored != 0).then_some(words))
}

/// PTRACE_SEIZE with options.
///
/// # Errors
///
/// The kernel's: `EPERM` if the process may not be traced, or is traced already.
pub fn seize(tid: i32, options: i32) -> Result<()> {
    ptrace(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

/// PTRACE_SETOPTIONS.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_options(tid: i32, options: i32) -> Result<()> {
    ptrace(libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

/// PTRACE_INTERRUPT.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended.
pub fn interrupt(tid: i32) -> Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// PTRACE_CONT, delivering `signal`.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn cont(tid: i32, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// PTRACE_SINGLESTEP, delivering `signal`.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn single_step(tid: i32, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize).map(drop)
}

/// PTRACE_SYSCALL: run to the next system call entry or exit.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn cont_syscall(tid: i32, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_SYSCALL, tid, 0, signal as usize).map(drop)
}

/// PTRACE_LISTEN: stay stopped, but notice SIGCONT.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn listen(tid: i32) -> Result<()> {
    ptrace(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// PTRACE_DETACH, delivering `signal`.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn detach(tid: i32, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// PTRACE_GETREGS.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn get_regs(tid: i32) -> Result<libc::user_regs_struct> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut regs: libc::user_regs_struct = unsafe { zeroed() };
    ptrace(libc::PTRACE_GETREGS, tid, 0, (&raw mut regs).addr())?;
    Ok(regs)
}

/// PTRACE_SETREGS.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_regs(tid: i32, regs: &libc::user_regs_struct) -> Result<()> {
    ptrace(libc::PTRACE_SETREGS, tid, 0, (&raw const *regs).addr()).map(drop)
}

/// Note type of the register set that XSAVE knows.
const NT_X86_XSTATE: usize = 0x202;
/// More than any processor's XSAVE image takes.
const EXTENDED_BYTES: usize = 16 * 1024;

/// PTRACE_GETREGSET of the floating-point and vector state, as an XSAVE image.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn get_extended_state(tid: i32) -> Result<Vec<u8>> {
    let mut image = vec![0u8; EXTENDED_BYTES];
    let mut io = libc::iovec { iov_base: image.as_mut_ptr().cast(), iov_len: image.len() };
    ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, (&raw mut io).addr())?;
    image.truncate(io.iov_len);
    Ok(image)
}

/// PTRACE_SETREGSET of what [`get_extended_state`] returned.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_extended_state(tid: i32, image: &[u8]) -> Result<()> {
    let base = image.as_ptr().cast_mut().cast();
    let mut io = libc::iovec { iov_base: base, iov_len: image.len() };
    ptrace(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, (&raw mut io).addr()).map(drop)
}

/// Writes one word of the user area: a register by its offset in `struct user`.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn poke_user(tid: i32, offset: usize, value: u64) -> Result<()> {
    ptrace(libc::PTRACE_POKEUSER, tid, offset, value as usize).map(drop)
}

/// PTRACE_POKEDATA: writes a word even where the tracee may not write.
///
/// # Errors
///
/// The kernel's: `EIO` if nothing is mapped there.
pub fn poke_data(tid: i32, address: u64, value: u64) -> Result<()> {
    ptrace(libc::PTRACE_POKEDATA, tid, address as usize, value as usize).map(drop)
}

/// PTRACE_GETEVENTMSG.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn event_message(tid: i32) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, (&raw mut message).addr())?;
    Ok(message)
}

/// A signal's information, as the kernel stores it.
#[derive(Clone, Copy)]
pub struct SigInfo(libc::siginfo_t);

impl std::fmt::Debug for SigInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigInfo {{ signo: {}, code: {} }}", self.signo(), self.code())
    }
}

impl SigInfo {
    /// si_signo.
    pub fn signo(&self) -> i32 {
        self.0.si_signo
    }

    /// si_code.
    pub fn code(&self) -> i32 {
        self.0.si_code
    }

    /// si_addr (also si_call_addr of SIGSYS).
    pub fn address(&self) -> u64 {
        // SAFETY: si_addr reads eight bytes inside the structure; any bytes are a number.
        unsafe { self.0.si_addr() as u64 }
    }

    /// Returns the kernel's information on a fault, made of signal, code and address.
    pub fn fault(signo: i32, code: i32, address: u64) -> Self {
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut info = Self(unsafe { zeroed() });
        (info.0.si_signo, info.0.si_code) = (signo, code);
        info.set_address(address);
        info
    }

    /// Sets si_addr.
    pub fn set_address(&mut self, address: u64) {
        let raw = (&raw mut self.0).cast::<u64>();
        // SAFETY: si_addr is at byte 16 of the 128-byte structure (after three ints and padding).
        unsafe { raw.add(2).write(address) };
    }
}

/// PTRACE_GETSIGINFO.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn get_siginfo(tid: i32) -> Result<SigInfo> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { zeroed() };
    ptrace(libc::PTRACE_GETSIGINFO, tid, 0, (&raw mut info).addr())?;
    Ok(SigInfo(info))
}

/// PTRACE_SETSIGINFO.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_siginfo(tid: i32, info: &SigInfo) -> Result<()> {
    ptrace(libc::PTRACE_SETSIGINFO, tid, 0, (&raw const info.0).addr()).map(drop)
}

/// PTRACE_GETSIGMASK.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn get_sigmask(tid: i32) -> Result<u64> {
    let mut mask = 0u64;
    ptrace(libc::PTRACE_GETSIGMASK, tid, 8, (&raw mut mask).addr())?;
    Ok(mask)
}

/// PTRACE_SETSIGMASK.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_sigmask(tid: i32, mask: u64) -> Result<()> {
    ptrace(libc::PTRACE_SETSIGMASK, tid, 8, (&raw const mask).addr()).map(drop)
}

/// prlimit(2): the soft and the hard limit of a process on a resource; `u64::MAX` for none.
///
/// # Errors
///
/// The kernel's, `EPERM` for a process of another user.
pub fn limit_of(pid: i32, resource: u32) -> Result<[u64; 2]> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure, which lives through the call.
    let result = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut limit) };
    check(result.into()).map(|_| [limit.rlim_cur, limit.rlim_max])
}

/// get_robust_list(2): the head of a thread's list of robust locks.
///
/// # Errors
///
/// The kernel's.
pub fn robust_list(tid: i32) -> Result<u64> {
    let (mut head, mut len) = (0u64, 0usize);
    // SAFETY: the kernel writes one word to each, and both live through the call.
    let result =
        unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) };
    check(result).map(|_| head)
}

/// waitpid for any child or tracee, threads included, without waiting. `None`: nothing to report.
///
/// # Errors
///
/// The kernel's: `ECHILD` if there is none.
pub fn wait_any() -> Result<Option<(i32, i32)>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::WNOHANG;
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
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
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

/// Forks this process as a controller of its own: `None` in the copy, its process id in the
/// original. Output that the C library holds back is written before, or both would write it.
///
/// Only the calling thread lives on in the copy. Locks that other threads held stay held there, the
/// allocator's excepted: the C library sees to that.
///
/// # Errors
///
/// The kernel cannot make a process.
pub fn fork_controller() -> Result<Option<i32>> {
    // SAFETY: the copy goes on with this thread's own state; see above for what others held.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        let pid = check(i64::from(libc::fork()))? as i32;
        Ok((pid != 0).then_some(pid))
    }
}

/// Ends a copy made by [`fork_controller`]: what the C library holds back is written, and nothing
/// that the original registered for its own end is run.
pub fn exit_controller(code: i32) -> ! {
    // SAFETY: fflush is given "all streams"; _exit does not return.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(code)
    }
}

/// Goes on in a process of its own, which nobody waits for and which gives way to everything else.
/// It has no descriptors but `kept`, the terminal's signals do not reach it, and it shows as
/// `lwp-save`. True in that process, which must end by [`exit_controller`].
///
/// Only the calling thread lives on in it, as in a copy made by [`fork_controller`].
///
/// # Errors
///
/// The kernel cannot make a process.
pub fn leave_behind(kept: &[RawFd]) -> Result<bool> {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    // SAFETY: numbers and C strings only; the process goes on with this thread's own state, and
    // what it closes nobody uses there.
    unsafe {
        if check(i64::from(libc::fork()))? != 0 {
            return Ok(false);
        }
        // The one in between ends at once: what it leaves belongs to nobody here.
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"lwp-save".as_ptr());
        for signal in [libc::SIGCHLD, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_DFL);
        }
        *libc::__errno_location() = 0;
        libc::nice(10);
        let mut from = 0;
        for fd in kept {
            if fd > from {
                libc::close_range(from as libc::c_uint, fd as libc::c_uint - 1, 0);
            }
            from = fd + 1;
        }
        libc::close_range(from as libc::c_uint, libc::c_uint::MAX, 0);
        // What is printed goes nowhere, and above all into no file of ours.
        for _ in 0..3 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        }
    }
    Ok(true)
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

/// Sleeps until `fd` becomes readable or the time is up.
pub fn wait_readable(fd: &OwnedFd, timeout: Option<Duration>) {
    wait_either_readable(fd, None, timeout);
}

/// Sleeps until `fd` or `other` becomes readable, or the time is up.
pub fn wait_either_readable(
    fd: &OwnedFd,
    other: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) {
    wait(fd, other, timeout, std::ptr::null());
}

/// The same with another mask of blocked signals, which is null or lives as long as the call. Says
/// which of the two are readable.
fn wait(
    fd: &OwnedFd,
    other: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> [bool; 2] {
    // A negative descriptor is passed over.
    let other = other.map_or(-1, |other| other.as_raw_fd());
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut poll = [poll(fd.as_raw_fd()), poll(other)];
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(std::ptr::null(), |time| &raw const *time);
    // SAFETY: `poll` and `time` live through the call, and so does what `mask` points to.
    unsafe { libc::ppoll(poll.as_mut_ptr(), 2, time, mask) };
    poll.map(|it| it.revents & libc::POLLIN != 0)
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// process_vm_readv, or what does the same where that is refused; returns how many bytes were read.
///
/// # Errors
///
/// The kernel's; `EFAULT` if nothing is mapped there.
pub fn read_memory(tid: i32, address: u64, buffer: &mut [u8]) -> Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: `local` describes the borrowed buffer; the remote address is only used in the tracee.
    let n = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
    match check(n as i64) {
        Err(Errno(libc::EPERM | libc::ENOSYS)) => {
            memory_file(tid, false)?.read_at(buffer, address).map_err(errno)
        }
        read => Ok(read? as usize),
    }
}

/// Has the kernel map what lies at these addresses of a tracee, each as if the tracee had read
/// there: of a file, that brings neighbouring pages along, and none of them faults any more. What
/// cannot be had stays as it is.
pub fn map_pages(tid: i32, addresses: &[u64]) {
    /// IOV_MAX, of which there is no constant.
    const MOST: usize = 1024;
    for some in addresses.chunks(MOST) {
        let mut bytes = [0u8; MOST];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: some.len() };
        let remote = |address: &u64| libc::iovec { iov_base: *address as *mut _, iov_len: 1 };
        let remote: Vec<libc::iovec> = some.iter().map(remote).collect();
        let count = remote.len() as libc::c_ulong;
        // SAFETY: `local` describes a live buffer of a byte for each of the remote ones, whose
        // addresses are only used in the tracee.
        unsafe { libc::process_vm_readv(tid, &raw const local, 1, remote.as_ptr(), count, 0) };
    }
}

/// The memory of a tracee as a file: for who may trace, but whom a filter forbids the calls that
/// are faster.
fn memory_file(tid: i32, write: bool) -> Result<File> {
    File::options().read(!write).write(write).open(format!("/proc/{tid}/mem")).map_err(errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// process_vm_writev, or what does nearly the same where that is refused: it also writes where the
/// tracee may not; returns how many bytes were written.
///
/// # Errors
///
/// The kernel's; `EFAULT` if nothing can be written there.
pub fn write_memory(tid: i32, address: u64, buffer: &[u8]) -> Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: `local` describes the borrowed buffer, which the kernel only reads.
    let n = unsafe { libc::process_vm_writev(tid, &raw const local, 1, &raw const remote, 1, 0) };
    match check(n as i64) {
        Err(Errno(libc::EPERM | libc::ENOSYS)) => {
            memory_file(tid, true)?.write_at(buffer, address).map_err(errno)
        }
        written => Ok(written? as usize),
    }
}

/// Returns the time that a socket of process `pid` waits to receive, or to send (SO_RCVTIMEO,
/// SO_SNDTIMEO); `None` if that is not limited, if it is no socket, or if it cannot be read.
pub fn socket_timeout(pid: i32, descriptor: RawFd, receives: bool) -> Option<Duration> {
    let option = if receives { libc::SO_RCVTIMEO } else { libc::SO_SNDTIMEO };
    let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let time = socket_option(pid, descriptor, option, zero)?;
    let time = Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    (!time.is_zero()).then_some(time)
}

/// Returns whether a descriptor of process `pid` is known to be a socket of this machine (AF_UNIX).
pub fn is_local_socket(pid: i32, descriptor: RawFd) -> bool {
    let domain = socket_option(pid, descriptor, libc::SO_DOMAIN, libc::AF_UNSPEC);
    domain == Some(libc::AF_UNIX)
}

/// Returns an option of a socket of process `pid`, of which `value` is of the type.
fn socket_option<T: Copy>(
    pid: i32,
    descriptor: RawFd,
    option: libc::c_int,
    mut value: T,
) -> Option<T> {
    let owned = |fd: libc::c_long| {
        // SAFETY: the descriptor is new and owned by nobody else.
        check(fd).ok().map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    };
    // SAFETY: numbers only.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let raw = process.as_raw_fd();
    // SAFETY: numbers only.
    let socket = owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, raw, descriptor, 0) })?;
    let mut size = size_of::<T>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the value and its size live through the call, which writes plain numbers.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, place, &raw mut size)
    };
    check(result.into()).ok()?;
    Some(value)
}

/// Sends one byte and `descriptor` through a socket (SCM_RIGHTS, unix(7)).
///
/// # Errors
///
/// The kernel's.
pub fn send_descriptor(stream: BorrowedFd<'_>, descriptor: RawFd) -> Result<()> {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // Length, level and kind of the message, and the descriptor, as cmsg(3) lays them out.
    let level_and_kind = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
    let mut control = [20, level_and_kind, descriptor as u64];
    // SAFETY: the structure is plain numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: all that the message points to lives through the call.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    check(sent as i64).map(drop)
}

/// tgkill.
///
/// # Errors
///
/// The kernel's.
pub fn tgkill(tgid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: three numbers.
    check(unsafe { libc::syscall(libc::SYS_tgkill, tgid, tid, signal) }).map(drop)
}

/// kill.
///
/// # Errors
///
/// The kernel's.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: two numbers.
    check(i64::from(unsafe { libc::kill(pid, signal) })).map(drop)
}

/// getsid: the session of a process.
///
/// # Errors
///
/// The kernel's.
pub fn session_of(pid: i32) -> Result<i32> {
    // SAFETY: a number.
    check(i64::from(unsafe { libc::getsid(pid) })).map(|session| session as i32)
}

/// Wakes one sleeper on a shared futex word.
pub fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: FUTEX_WAKE uses the address as a key; it is that of a live word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Sleeps while `word` is `value`, at most for `timeout`.
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, value: u32, timeout: Option<Duration>) {
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(std::ptr::null(), |time| &raw const *time);
    // SAFETY: the word and the time live through the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, time) };
}

/// Most words that [`futex_wait_any`] takes.
pub const FUTEX_WAITV_MAX: usize = 128;

/// Sleeps while all of `words`, at most [`FUTEX_WAITV_MAX`], are `value`, at most for `timeout`.
/// False where the kernel knows no such call (before version 5.16), or a filter refuses it.
pub fn futex_wait_any(
    words: &[&std::sync::atomic::AtomicU32],
    value: u32,
    timeout: Duration,
) -> bool {
    #[repr(C)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    const FUTEX_32: u32 = 2;
    let waiter = |word: &&std::sync::atomic::AtomicU32| Waiter {
        value: value.into(),
        address: word.as_ptr() as u64,
        flags: FUTEX_32,
        reserved: 0,
    };
    let waiters: Vec<Waiter> = words.iter().map(waiter).collect();
    // SAFETY: the structure is plain numbers, for which zero is a value, and lives through the
    // call.
    let until = unsafe {
        let mut now: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        let nanos = now.tv_nsec + i64::from(timeout.subsec_nanos());
        libc::timespec {
            tv_sec: now.tv_sec + timeout.as_secs() as i64 + nanos / 1_000_000_000,
            tv_nsec: nanos % 1_000_000_000,
        }
    };
    let count = waiters.len() as libc::c_uint;
    // SAFETY: list and time live through the call, and the list is as long as said; its addresses
    // are those of live words.
    let result = unsafe {
        let (list, until) = (waiters.as_ptr(), &raw const until);
        libc::syscall(libc::SYS_futex_waitv, list, count, 0, until, libc::CLOCK_MONOTONIC)
    };
    !matches!(check(result), Err(Errno(libc::ENOSYS | libc::EPERM | libc::EINVAL)))
}

/// An eventfd, non-blocking and closed on exec.
///
/// # Errors
///
/// The kernel's.
pub fn event_fd() -> Result<OwnedFd> {
    // SAFETY: two numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    check(i64::from(fd))?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an eventfd.
pub fn event_signal(fd: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes of a live array.
    unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), 8) };
}

/// Resets an eventfd.
pub fn event_clear(fd: &OwnedFd) {
    let mut value = [0u8; 8];
    // SAFETY: eight bytes of a live array.
    unsafe { libc::read(fd.as_raw_fd(), value.as_mut_ptr().cast(), 8) };
}

/// Has the kernel announce the breaking of leases on an open file by SIGURG, which is ignored,
/// instead of SIGIO.
pub fn announce_quietly(fd: RawFd) {
    /// Number of the request; libc has no name for it.
    const F_SETSIG: i32 = 10;
    // SAFETY: numbers only.
    unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) };
}

/// Takes a lease on an open file and gives it back: whether the kernel lets it be had.
///
/// Whoever opens the file meanwhile waits until the lease is given back; see [`announce_quietly`].
fn try_lease(fd: RawFd, kind: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        check(libc::fcntl(fd, libc::F_SETLEASE, kind).into())?;
        check(libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK).into()).map(drop)
    }
}

/// Opens a file of any type for reading, without waiting for a writer.
///
/// # Errors
///
/// Those of open(2).
pub fn open_to_read(path: &str) -> std::io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Returns whether any process has a file open for writing: the kernel grants no read lease then.
/// False if this process does not own the file, because it is granted no lease either.
///
/// `file` must be open for reading only.
pub fn is_open_for_writing(file: &File) -> bool {
    announce_quietly(file.as_raw_fd());
    try_lease(file.as_raw_fd(), libc::F_RDLCK) == Err(Errno(libc::EAGAIN))
}

/// Returns whether a file is open or mapped by nothing but descriptor `fd`, its copies, and
/// mappings by them: whether the kernel gives a lease to write. False where that cannot be found
/// out. [`announce_quietly`] comes before.
pub fn has_no_other_user(fd: RawFd) -> bool {
    try_lease(fd, libc::F_WRLCK).is_ok()
}

/// Returns the offset of the next data of a sparse file, at or after `from`, if there are any.
pub fn next_data(fd: RawFd, from: u64) -> Option<u64> {
    // SAFETY: numbers only.
    let start = unsafe { libc::lseek(fd, from as i64, libc::SEEK_DATA) };
    u64::try_from(start).ok()
}

/// Returns the offset at which the data at `from` in a sparse file end: that of the next hole, or
/// the file's end. `None` if `from` is not before the file's end.
pub fn next_hole(fd: RawFd, from: u64) -> Option<u64> {
    // SAFETY: numbers only.
    let end = unsafe { libc::lseek(fd, from as i64, libc::SEEK_HOLE) };
    u64::try_from(end).ok()
}

/// Gives a range of a file back to the system; it reads as zeros.
pub fn punch_hole(fd: RawFd, from: u64, len: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: numbers only.
    unsafe { libc::fallocate(fd, mode, from as i64, len as i64) };
}

/// Suits the allocator to a host of two threads with large tables, before the second thread is
/// made.
///
/// Large blocks come from the kernel one by one, whatever was freed before: tables that grow then
/// move without a copy, and leave no holes behind. Both threads share one heap, which grows in
/// large steps; that of another thread would grow by a system call every few pages.
pub fn suit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: pairs of numbers; a refusal leaves the allocator as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 512 << 10);
    }
}

/// Returns whether the bases of fs and gs are apart from their selectors: the kernel has enabled
/// RDFSBASE and its like.
pub fn bases_are_apart() -> bool {
    const FSGSBASE: libc::c_ulong = 1 << 1;
    // SAFETY: a number in, a number out.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}

/// Returns the number of CPUs that the calling thread may run on.
pub fn allowed_cpus() -> usize {
    // SAFETY: the set is plain bits, and its true size is passed.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return 1;
        }
        libc::CPU_COUNT(&set) as usize
    }
}

/// User and system time of the waited-for children, and of this process.
pub fn cpu_times() -> [(Duration, Duration); 2] {
    [libc::RUSAGE_CHILDREN, libc::RUSAGE_SELF].map(|who| {
        // SAFETY: the structure is plain numbers and lives through the call.
        let usage = unsafe {
            let mut usage: libc::rusage = zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        (time(usage.ru_utime), time(usage.ru_stime))
    })
}

/// Returns whether personality(2) lets us turn address space randomisation off.
pub fn personality_allowed() -> bool {
    // SAFETY: the query form changes nothing; the second call sets what is set already or allows.
    unsafe {
        let old = libc::personality(0xffff_ffff);
        if old < 0 {
            return false;
        }
        let wanted = old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
        let ok = libc::personality(wanted) >= 0;
        libc::personality(old as libc::c_ulong);
        ok
    }
}

/// System calls that are refused to this process, by a filter, a policy or an old kernel, among
/// those that the virtual CPU uses, and perf's. Each is made with arguments with which it does
/// nothing.
pub fn refused_calls() -> Vec<&'static str> {
    const NOBODY: libc::c_long = i32::MAX as libc::c_long;
    let me = libc::c_long::from(std::process::id() as i32);
    let calls = [
        ("ptrace", libc::SYS_ptrace, [libc::PTRACE_CONT.into(), NOBODY, 0, 0, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [me, 0, 0, 0, 0, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, [me, 0, 0, 0, 0, 0]),
        ("memfd_create", libc::SYS_memfd_create, [0, 0, 0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, -1, -1, 0, 0]),
    ];
    let refused = |(_, number, [a, b, c, d, e, f]): &(&str, libc::c_long, [libc::c_long; 6])| {
        // SAFETY: no process has the number, the lists of buffers are empty, and the kernel refuses
        // to read a name or attributes at address zero.
        let result = check(unsafe { libc::syscall(*number, *a, *b, *c, *d, *e, *f) });
        matches!(result, Err(Errno(libc::EPERM | libc::ENOSYS | libc::EACCES)))
    };
    calls.iter().filter(|call| refused(call)).map(|(name, ..)| *name).collect()
}

/// CPUID on this machine.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let result = std::arch::x86_64::__cpuid_count(leaf, subleaf);
    [result.eax, result.ebx, result.ecx, result.edx]
}

/// The limit of the segment with this selector; `None` where there is none.
pub fn segment_limit(selector: u32) -> Option<u32> {
    let (limit, found): (u32, u8);
    // SAFETY: LSL reads nothing but the descriptor tables and faults at no selector; it changes its
    // outputs and the zero flag only.
    unsafe {
        std::arch::asm!("xor {limit:e}, {limit:e}", "lsl {limit:e}, {selector:e}", "setz {found}",
            selector = in(reg) selector, limit = out(reg) limit, found = out(reg_byte) found,
            options(nomem, nostack));
    }
    (found != 0).then_some(limit)
}

/// XCR0 of this machine; 0 where XGETBV is not enabled. Asked for once: a hypervisor takes its time
/// for CPUID.
pub fn xcr0() -> u64 {
    static XCR0: OnceLock<u64> = OnceLock::new();
    *XCR0.get_or_init(read_xcr0)
}

fn read_xcr0() -> u64 {
    if cpuid(1, 0)[2] & (1 << 27) == 0 {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE says that the instruction is enabled; it changes only its outputs.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}
