//! Copies of this process, and what is asked of others.

use std::os::fd::RawFd;

use super::{Errno, Result, check};

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

/// Something that processes can have in common: a number of kcmp(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Common {
    /// Their memory.
    Memory = 1,
    /// Their table of descriptors.
    Descriptors = 2,
}

/// Returns whether two processes have something in common; `None` where the kernel does not tell.
pub fn have_in_common(one: i32, other: i32, what: Common) -> Option<bool> {
    // SAFETY: numbers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, what as i32, 0, 0) };
    check(order).ok().map(|order| order == 0)
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
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| *signal != libc::SIGPIPE) {
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

/// CPU time that a process has used, that of its ended threads included, in ns: the scheduler's own
/// account. It can be read until somebody has waited for the process.
///
/// # Errors
///
/// The kernel's: `ESRCH` if there is no such process.
pub fn cpu_time_of(pid: i32) -> Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut clock = 0;
    // SAFETY: the kernel writes one clock number and one time, which live through the calls.
    unsafe {
        match libc::clock_getcpuclockid(pid, &raw mut clock) {
            0 => check(i64::from(libc::clock_gettime(clock, &raw mut time)))?,
            error => return Err(Errno(error)),
        };
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
