//! Why threads have no processor: the innermost entries of their stacks.

use std::collections::BTreeSet;

use lwp_perf::Record;
use lwp_unwind::{RIP, RSP, Registers};
use lwp_vcpu::profile::{self, Place};

use crate::off_cpu::{Span, Waiting};
use crate::samples::Samples;
use crate::sleeper::Sleeper;
use crate::stacks::{Copied, OFF};

/// Addresses that stand for reasons: nothing is mapped there.
mod standing_for {
    pub const PREEMPTED: u64 = 1;
    /// Asleep, and over before lwp looked, or not to be looked at.
    pub const UNSEEN: u64 = 2;
    /// Asleep outside of a system call: for a page of memory, or stopped.
    pub const NO_CALL: u64 = 3;
    /// System calls by number from here on.
    pub const CALLS: u64 = 0x1000;
}

/// Threads without a processor, and the reasons that were met.
#[derive(Debug, Default)]
pub(crate) struct OffProcessor {
    pub threads: Waiting,
    reasons: BTreeSet<u64>,
}

impl OffProcessor {
    /// Notes switches among new records.
    pub fn note(&mut self, records: &[(u64, Record)]) {
        for (time, record) in records {
            if let Record::Switch { pid_tid: (pid, tid), out, preempted } = record {
                let thread = (pid.cast_signed(), tid.cast_signed());
                self.threads.seen(thread, *time, out.then_some(*preempted));
            }
        }
    }

    /// The names of the reasons that were met, by address.
    pub fn names(&self) -> Vec<(u64, u64, String)> {
        let name = |address: &u64| (*address, 1, name(*address));
        self.reasons.iter().map(name).collect()
    }
}

fn name(reason: u64) -> String {
    match reason {
        standing_for::PREEMPTED => "[waiting for a processor]".to_owned(),
        standing_for::UNSEEN => "[asleep, not looked at]".to_owned(),
        standing_for::NO_CALL => "[asleep outside of a system call]".to_owned(),
        call => {
            let number = call - standing_for::CALLS;
            let known = CALLS.iter().find(|(known, _)| u64::try_from(*known) == Ok(number));
            known.map_or(format!("[in system call {number}]"), |(_, name)| format!("[in {name}]"))
        }
    }
}

impl Samples<'_> {
    /// Looks at threads that sleep.
    pub fn look(&mut self, now: u64) {
        let Self { off, threads, stacks, sink, .. } = self;
        let OffProcessor { threads: waiting, reasons } = off;
        let mut places = |(pid, tid): (i32, i32), sleeper: &Sleeper| {
            if !threads.has(pid) {
                return None;
            }
            let call = |call: u32| standing_for::CALLS + u64::from(call);
            let address = sleeper.call.map_or(standing_for::NO_CALL, call);
            reasons.insert(address);
            let mut places = vec![Place { module: Some(stacks.label(OFF, &mut **sink)), address }];
            let code = stacks.code(pid, threads.space(pid), &mut **sink);
            let mut registers = Registers::default();
            registers.set(RSP, sleeper.registers.0);
            registers.set(RIP, sleeper.registers.1);
            let still = stacks.reads_languages().then_some(tid);
            let copied = Copied { registers, stack: &sleeper.stack, still };
            let _ = stacks.frames_of(pid, &code, copied, (&mut places, &mut **sink));
            (still.is_none() || sleeper.sleeps_still(pid, tid)).then_some(places)
        };
        waiting.look(now, &mut places);
    }

    /// A thread has a processor again.
    pub fn back(&mut self, tid: i32, time: u64) {
        let Some(span) = self.off.threads.back(tid, time) else { return };
        let Span { pid, units, preempted, stack } = span;
        let stack = stack.unwrap_or_else(|| {
            let address = if preempted { standing_for::PREEMPTED } else { standing_for::UNSEEN };
            self.off.reasons.insert(address);
            vec![Place { module: Some(self.stacks.label(OFF, self.sink)), address }]
        });
        let serial = self.threads.was_off((pid, tid), units, self.sink);
        self.sink.span(&profile::Sample { serial, event: 1, stack: &stack }, units);
    }

    /// Ends the time of all threads that are still without a processor.
    pub fn end_waiting(&mut self, now: u64) {
        for tid in self.off.threads.all_away() {
            self.back(tid, now);
        }
    }
}

/// System calls in which threads sleep, by number.
const CALLS: [(libc::c_long, &str); 62] = [
    (libc::SYS_read, "read"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_preadv, "preadv"),
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_open, "open"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_close, "close"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_sync, "sync"),
    (libc::SYS_msync, "msync"),
    (libc::SYS_poll, "poll"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_select, "select"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_epoll_pwait2, "epoll_pwait2"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_sendmmsg, "sendmmsg"),
    (libc::SYS_sendfile, "sendfile"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_recvmmsg, "recvmmsg"),
    (libc::SYS_splice, "splice"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_pause, "pause"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_futex_waitv, "futex_waitv"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_waitid, "waitid"),
    (libc::SYS_vfork, "vfork"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_clone3, "clone3"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_exit_group, "exit_group"),
    (libc::SYS_exit, "exit"),
    (libc::SYS_rt_sigsuspend, "rt_sigsuspend"),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
    (libc::SYS_semop, "semop"),
    (libc::SYS_semtimedop, "semtimedop"),
    (libc::SYS_msgrcv, "msgrcv"),
    (libc::SYS_msgsnd, "msgsnd"),
    (libc::SYS_mq_timedreceive, "mq_timedreceive"),
    (libc::SYS_io_getevents, "io_getevents"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_madvise, "madvise"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_names() {
        let of = |call| name(standing_for::CALLS + call);
        assert_eq!((of(230), of(0)), ("[in clock_nanosleep]".to_owned(), "[in read]".to_owned()));
        assert_eq!(of(9999), "[in system call 9999]");
        assert_eq!(name(standing_for::PREEMPTED), "[waiting for a processor]");
    }
}
