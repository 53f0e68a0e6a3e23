//! System calls that wait, and those that see which signals are blocked, pending or ignored.

use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use lwp_ptrace::regs::Regs;
use lwp_ptrace::{memory, sys};

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
const RT_SIGPENDING: u64 = 127;
const RT_SIGTIMEDWAIT: u64 = 128;
const RT_SIGSUSPEND: u64 = 130;
const IO_GETEVENTS: u64 = 208;
const SEMTIMEDOP: u64 = 220;
const EPOLL_WAIT: u64 = 232;
const PSELECT6: u64 = 270;
const PPOLL: u64 = 271;
const EPOLL_PWAIT: u64 = 281;
const SIGNALFD: u64 = 282;
const ACCEPT4: u64 = 288;
const SIGNALFD4: u64 = 289;
const RECVMMSG: u64 = 299;
const SENDMMSG: u64 = 307;
const EXECVEAT: u64 = 322;
const IO_PGETEVENTS: u64 = 333;
const IO_URING_ENTER: u64 = 426;
const GETRANDOM: u64 = 318;
const EPOLL_PWAIT2: u64 = 441;

const EAGAIN: i64 = -11;
const ETIME: i64 = -62;
const EINPROGRESS: i64 = -115;
/// Of io_uring_enter(2): its fifth argument is a structure; its time is a point in time.
const IORING_ENTER_EXT_ARG: u64 = 1 << 3;
const IORING_ENTER_ABS_TIMER: u64 = 1 << 5;
const MSG_PEEK: u64 = 2;
const MSG_WAITALL: u64 = 0x100;

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
            let time = memory::read_u64(tid, regs.r8 + 16).ok().filter(|_| relative)?;
            (timespec(tid, time)?, ETIME)
        }
        _ => return None,
    })
}

fn timespec(tid: i32, address: u64) -> Option<Duration> {
    let seconds = memory::read_u64(tid, address).ok()?;
    let nanos = memory::read_u64(tid, address + 8).ok()?;
    Some(Duration::new(seconds, u32::try_from(nanos).ok()?))
}

/// Returns whether the kernel makes the call at hand again with all of its time, though it does so
/// by itself.
pub fn forgets_time(regs: &Regs) -> bool {
    regs.0.orig_rax == IO_PGETEVENTS
}

/// A call that moves bytes and does not return before all are moved, unless it is interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Its number.
    pub number: u64,
    /// The number of bytes that were moved before it was interrupted.
    pub done: u64,
}

impl Transfer {
    /// Returns the call at whose end a thread of `pid` is, if it has moved a part of its bytes.
    pub fn interrupted(pid: i32, regs: &Regs) -> Option<Self> {
        Self::in_part(regs).filter(|it| it.number != WRITE || is_stream(pid, regs.0.rdi as i32))
    }

    fn in_part(regs: &Regs) -> Option<Self> {
        let mut regs = *regs;
        let (number, done) = (regs.0.orig_rax, regs.0.rax);
        let (_, bytes) = operands(&mut regs, number)?;
        (0 < done && done < *bytes).then_some(Self { number, done })
    }

    /// Leads the arguments to the bytes that are left.
    pub fn pass_on(self, regs: &mut Regs) {
        if let Some((buffer, bytes)) = operands(regs, self.number) {
            *buffer = buffer.wrapping_add(self.done);
            *bytes = bytes.wrapping_sub(self.done);
        }
    }

    /// Puts the arguments back, and the result of both parts in the place of that of the second.
    pub fn put_back(self, regs: &mut Regs, second: i64) {
        if let Some((buffer, bytes)) = operands(regs, self.number) {
            *buffer = buffer.wrapping_sub(self.done);
            *bytes = bytes.wrapping_add(self.done);
        }
        regs.0.rax = self.done + u64::try_from(second).unwrap_or(0);
    }
}

/// Returns whether a signal can end a write to this descriptor of `pid` in its middle: a file takes
/// all, or as much as there is room for.
fn is_stream(pid: i32, descriptor: i32) -> bool {
    let about = std::fs::metadata(format!("/proc/{pid}/fd/{descriptor}"));
    about.is_ok_and(|about| {
        let kind = about.file_type();
        kind.is_fifo() || kind.is_socket() || kind.is_char_device()
    })
}

/// The buffer and the number of bytes of a call that moves all of them.
fn operands(regs: &mut Regs, number: u64) -> Option<(&mut u64, &mut u64)> {
    let regs = &mut regs.0;
    let waits = regs.r10 & (MSG_WAITALL | MSG_PEEK) == MSG_WAITALL;
    match number {
        WRITE | SENDTO => Some((&mut regs.rsi, &mut regs.rdx)),
        RECVFROM if waits => Some((&mut regs.rsi, &mut regs.rdx)),
        GETRANDOM => Some((&mut regs.rdi, &mut regs.rsi)),
        _ => None,
    }
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

/// Returns whether it matters to a call which of the signals in `hidden` are blocked or pending.
pub fn minds_signals(tid: i32, regs: &Regs, hidden: u64) -> bool {
    match regs.0.orig_rax {
        RT_SIGACTION | RT_SIGPROCMASK | RT_SIGRETURN | RT_SIGPENDING | SIGNALFD | SIGNALFD4 => true,
        CLONE | CLONE3 | FORK | VFORK | EXECVE | EXECVEAT => true,
        _ => unblocks(tid, regs) & hidden != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers at the end of a call.
    fn after(number: u64, arguments: [u64; 4], result: i64) -> Regs {
        let mut regs = Regs::default();
        let [rdi, rsi, rdx, r10] = arguments;
        (regs.0.rdi, regs.0.rsi, regs.0.rdx, regs.0.r10) = (rdi, rsi, rdx, r10);
        (regs.0.orig_rax, regs.0.rax) = (number, result.cast_unsigned());
        regs
    }

    #[test]
    fn an_interrupted_transfer_goes_on_where_it_was() {
        let mut regs = after(WRITE, [1, 0x1000, 100, 0], 30);
        let transfer = Transfer::in_part(&regs).unwrap();
        transfer.pass_on(&mut regs);
        assert_eq!((regs.0.rsi, regs.0.rdx), (0x1000 + 30, 70));
        for (second, sum) in [(70, 100), (5, 35), (-32, 30), (-4, 30)] {
            let mut regs = regs;
            transfer.put_back(&mut regs, second);
            assert_eq!((regs.0.rsi, regs.0.rdx, regs.0.rax), (0x1000, 100, sum));
        }
    }

    #[test]
    fn short_results_that_are_no_interruption_stay() {
        for (number, flags, result) in [
            (WRITE, 0, 100),
            (WRITE, 0, 0),
            (WRITE, 0, -11),
            (READ, 0, 30),
            (RECVFROM, 0, 30),
            (RECVFROM, MSG_WAITALL | MSG_PEEK, 30),
        ] {
            let regs = after(number, [1, 0x1000, 100, flags], result);
            assert!(Transfer::in_part(&regs).is_none(), "{number} {flags} {result}");
        }
        assert!(Transfer::in_part(&after(RECVFROM, [1, 2, 100, MSG_WAITALL], 30)).is_some());
    }
}
