//! System calls that wait, and those that see which signals are blocked, pending or ignored.

use std::time::Duration;

use lwp_process::regs::Regs;
use lwp_process::{memory, sys};

use super::nr::{CLONE, CLONE3, FORK, RT_SIGRETURN, VFORK};

const READ: u64 = 0;
const WRITE: u64 = 1;
const RT_SIGACTION: u64 = 13;
const RT_SIGPROCMASK: u64 = 14;
const READV: u64 = 19;
const WRITEV: u64 = 20;
const CONNECT: u64 = 42;
const ACCEPT: u64 = 43;
const SENDTO: u64 = 44;
const RECVFROM: u64 = 45;
const SENDMSG: u64 = 46;
const RECVMSG: u64 = 47;
const EXECVE: u64 = 59;
const KILL: u64 = 62;
const RT_SIGPENDING: u64 = 127;
const RT_SIGTIMEDWAIT: u64 = 128;
const RT_SIGQUEUEINFO: u64 = 129;
const RT_SIGSUSPEND: u64 = 130;
const TKILL: u64 = 200;
const IO_GETEVENTS: u64 = 208;
const SEMTIMEDOP: u64 = 220;
const EPOLL_WAIT: u64 = 232;
const TGKILL: u64 = 234;
const PSELECT6: u64 = 270;
const PPOLL: u64 = 271;
const EPOLL_PWAIT: u64 = 281;
const SIGNALFD: u64 = 282;
const ACCEPT4: u64 = 288;
const SIGNALFD4: u64 = 289;
const RT_TGSIGQUEUEINFO: u64 = 297;
const RECVMMSG: u64 = 299;
const SENDMMSG: u64 = 307;
const EXECVEAT: u64 = 322;
const IO_PGETEVENTS: u64 = 333;
const PIDFD_SEND_SIGNAL: u64 = 424;
const IO_URING_ENTER: u64 = 426;
const EPOLL_PWAIT2: u64 = 441;

const EAGAIN: i64 = -11;
const ETIME: i64 = -62;
const EINPROGRESS: i64 = -115;
/// Of io_uring_enter(2): its fifth argument is a structure; its time is a point in time.
const IORING_ENTER_EXT_ARG: u64 = 1 << 3;
const IORING_ENTER_ABS_TIMER: u64 = 1 << 5;

/// The time that a call interrupted by an ignored signal may take in all, and the value that it
/// returns then. `None` where the kernel knows the rest of the time by itself, or where the call
/// has no end.
pub fn timeout(pid: i32, tid: i32, regs: &Regs) -> Option<(Duration, i64)> {
    let regs = &regs.0;
    let socket = |receives| sys::socket_timeout(pid, regs.rdi as i32, receives);
    Some(match regs.orig_rax {
        RT_SIGTIMEDWAIT => (timespec(tid, regs.rdx)?, EAGAIN),
        SEMTIMEDOP => (timespec(tid, regs.r10)?, EAGAIN),
        IO_GETEVENTS | IO_PGETEVENTS => (timespec(tid, regs.r8)?, 0),
        EPOLL_WAIT | EPOLL_PWAIT => {
            let millis = u64::try_from(regs.r10 as u32 as i32).ok()?;
            (Duration::from_millis(millis), 0)
        }
        EPOLL_PWAIT2 => (timespec(tid, regs.r10)?, 0),
        READ | READV | RECVFROM | RECVMSG | RECVMMSG | ACCEPT | ACCEPT4 => (socket(true)?, EAGAIN),
        WRITE | WRITEV | SENDTO | SENDMSG | SENDMMSG => (socket(false)?, EAGAIN),
        CONNECT => match sys::is_local_socket(pid, regs.rdi as i32) {
            true => (socket(false)?, EAGAIN),
            false => (socket(false)?, EINPROGRESS),
        },
        IO_URING_ENTER if regs.r10 & IORING_ENTER_EXT_ARG != 0 => {
            let relative = regs.r10 & IORING_ENTER_ABS_TIMER == 0;
            let time = memory::read_u64(tid, regs.r8.wrapping_add(16)).ok().filter(|_| relative)?;
            (timespec(tid, time)?, ETIME)
        }
        _ => return None,
    })
}

/// The time at `address`; `None` where there is none that the kernel would take.
fn timespec(tid: i32, address: u64) -> Option<Duration> {
    let seconds = memory::read_u64(tid, address).ok()?;
    let nanos = memory::read_u64(tid, address.wrapping_add(8)).ok()?;
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

/// Returns whether the kernel makes the call at hand again with all of its time, though it does so
/// by itself.
pub fn forgets_time(regs: &Regs) -> bool {
    regs.0.orig_rax == IO_PGETEVENTS
}

/// The signals that a call does not block while it waits, or waits for, whatever the thread blocks.
pub fn unblocks(tid: i32, regs: &Regs) -> u64 {
    let regs = &regs.0;
    let any = |mask: u64| if mask == 0 { 0 } else { u64::MAX };
    match regs.orig_rax {
        RT_SIGTIMEDWAIT => memory::read_u64(tid, regs.rdi).unwrap_or(u64::MAX),
        RT_SIGSUSPEND => u64::MAX,
        PPOLL => any(regs.r10),
        PSELECT6 | IO_PGETEVENTS => any(regs.r9),
        IO_URING_ENTER if regs.r10 & IORING_ENTER_EXT_ARG != 0 => {
            any(memory::read_u64(tid, regs.r8).unwrap_or(1))
        }
        EPOLL_PWAIT | EPOLL_PWAIT2 | IO_URING_ENTER => any(regs.r8),
        _ => 0,
    }
}

/// The signal that a call sends, as a set: perhaps to the thread that makes it, which then has
/// taken it when the call returns. Another thread may handle it by now.
fn sends(regs: &Regs) -> u64 {
    let regs = &regs.0;
    let signal = match regs.orig_rax {
        KILL | TKILL | RT_SIGQUEUEINFO | PIDFD_SEND_SIGNAL => regs.rsi as u32,
        TGKILL | RT_TGSIGQUEUEINFO => regs.rdx as u32,
        _ => 0,
    };
    signal.checked_sub(1).and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0)
}

/// Returns whether it matters to a call which of the signals in `hidden` are blocked or pending.
pub fn minds_signals(tid: i32, regs: &Regs, hidden: u64) -> bool {
    match regs.0.orig_rax {
        RT_SIGACTION | RT_SIGPROCMASK | RT_SIGRETURN | RT_SIGPENDING | SIGNALFD | SIGNALFD4 => true,
        CLONE | CLONE3 | FORK | VFORK | EXECVE | EXECVEAT => true,
        _ => (unblocks(tid, regs) | sends(regs)) & hidden != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lwp_process::regs::Raw;

    fn call(number: u64, rsi: u64, rdx: u64) -> Regs {
        Regs(Raw { orig_rax: number, rsi, rdx, ..Regs::default().0 })
    }

    #[test]
    fn what_a_call_sends_is_not_kept_from_it() {
        const USR1: u64 = 1 << 9;
        for (call, minds) in [
            (call(KILL, 10, 0), true),
            (call(TGKILL, 0, 10), true),
            (call(TGKILL, 10, 12), false),
            (call(RT_SIGQUEUEINFO, 10, 0), true),
            (call(RT_TGSIGQUEUEINFO, 0, 10), true),
            (call(PIDFD_SEND_SIGNAL, 10, 0), true),
            (call(KILL, 0, 0), false),
            (call(KILL, 65, 0), false),
            (call(KILL, u64::MAX, 0), false),
            (call(READ, 10, 10), false),
        ] {
            assert_eq!(minds_signals(0, &call, USR1), minds, "{:?}", call.0.orig_rax);
        }
    }

    /// A call with these fourth and fifth arguments.
    fn waits(number: u64, r10: u64, r8: u64) -> Regs {
        Regs(Raw { orig_rax: number, r10, r8, ..Regs::default().0 })
    }

    fn at<const N: usize>(words: &[u64; N]) -> u64 {
        words.as_ptr() as u64
    }

    #[test]
    fn the_time_of_a_call_is_where_the_call_has_it() {
        let me = std::process::id() as i32;
        let time = Box::new([3, 500_000_000]);
        let whole = Duration::new(3, 500_000_000);
        let extended = Box::new([0, 0, at(&time), 0]);
        let exact = IORING_ENTER_EXT_ARG | IORING_ENTER_ABS_TIMER;
        for (regs, expected) in [
            (call(RT_SIGTIMEDWAIT, 0, at(&time)), Some((whole, EAGAIN))),
            (waits(SEMTIMEDOP, at(&time), 0), Some((whole, EAGAIN))),
            (waits(IO_GETEVENTS, 0, at(&time)), Some((whole, 0))),
            (waits(EPOLL_PWAIT2, at(&time), 0), Some((whole, 0))),
            (waits(EPOLL_WAIT, 1500, 0), Some((Duration::from_millis(1500), 0))),
            // It waits for ever.
            (waits(EPOLL_WAIT, u64::from(u32::MAX), 0), None),
            (waits(EPOLL_PWAIT2, 0, 0), None),
            (waits(IO_URING_ENTER, IORING_ENTER_EXT_ARG, at(&extended)), Some((whole, ETIME))),
            (waits(IO_URING_ENTER, exact, at(&extended)), None),
            (waits(IO_URING_ENTER, 0, at(&extended)), None),
            (waits(IO_URING_ENTER, IORING_ENTER_EXT_ARG, 8), None),
            (waits(KILL, 1500, at(&time)), None),
        ] {
            assert_eq!(timeout(me, me, &regs), expected, "{}", regs.0.orig_rax);
        }
    }

    #[test]
    fn a_time_that_is_none_is_no_time() {
        let me = std::process::id() as i32;
        // A program may write there while its call waits.
        for time in [[0, 1_000_000_000], [u64::MAX, u64::from(u32::MAX)], [1, u64::MAX]] {
            let time = Box::new(time);
            assert_eq!(timeout(me, me, &waits(EPOLL_PWAIT2, at(&time), 0)), None, "{time:?}");
        }
    }

    #[test]
    fn calls_that_unblock_signals_mind_them() {
        const USR1: u64 = 1 << 9;
        let me = std::process::id() as i32;
        let (set, other, extended) = (Box::new([USR1]), Box::new([USR1 << 1]), Box::new([0, 0, 0]));
        let registers = Regs::default().0;
        let of = |regs: Raw| minds_signals(me, &Regs(regs), USR1);
        let wait = |rdi| Raw { orig_rax: RT_SIGTIMEDWAIT, rdi, ..registers };
        assert!(of(wait(at(&set))) && !of(wait(at(&other))));
        // What cannot be read may be any of them.
        assert!(of(wait(8)));
        assert!(of(Raw { orig_rax: RT_SIGSUSPEND, ..registers }));
        for (number, with, without) in [
            (PPOLL, Raw { r10: 1, ..registers }, registers),
            (PSELECT6, Raw { r9: 1, ..registers }, registers),
            (IO_PGETEVENTS, Raw { r9: 1, ..registers }, registers),
            (EPOLL_PWAIT, Raw { r8: 1, ..registers }, registers),
            (EPOLL_PWAIT2, Raw { r8: 1, ..registers }, registers),
            (
                IO_URING_ENTER,
                Raw { r10: IORING_ENTER_EXT_ARG, r8: at(&set), ..registers },
                Raw { r10: IORING_ENTER_EXT_ARG, r8: at(&extended), ..registers },
            ),
        ] {
            assert!(of(Raw { orig_rax: number, ..with }), "{number}");
            assert!(!of(Raw { orig_rax: number, ..without }), "{number}");
        }
        assert!(of(Raw { orig_rax: FORK, ..registers }));
    }
}
