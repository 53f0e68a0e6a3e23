//! A child process that executes a program.
//!
//! Until then it shares this process's memory, as after posix_spawn(3): fork would copy the page
//! tables of everything that is mapped here, and make both sides copy each page that they write to
//! afterwards. Other than there we go on meanwhile, because the child is to be traced before it
//! executes anything of the program.
//!
//! # Safety
//!
//! JUSTIFICATION: no safe interface makes such a child.
//!
//! It runs on a stack of its own, with all signals blocked, so that no handler runs in it, and
//! makes system calls by the instruction: the C library's `errno` would be that of the thread that
//! made it. It reads what [`Plan`] holds and writes nothing but its stack. All that lives in
//! [`Child`], which lasts until the child has executed the program or is gone.
#![allow(unsafe_code, reason = "a child that shares our memory; see the module's safety section")]

use std::arch::asm;
use std::ffi::CString;
use std::marker::PhantomData;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;

use crate::kernel_files;
use crate::limits::Room;
use crate::sys::{self, Errno, Result};

/// Instructions for a new child before it becomes the program.
#[derive(Debug)]
pub struct Plan {
    /// The file to execute.
    pub program: CString,
    /// Its arguments, name included.
    pub argv: Vec<CString>,
    /// Its environment.
    pub envp: Vec<CString>,
    /// True if its address space is laid out without randomisation.
    pub fixed_layout: bool,
    /// Bytes to raise a limit on its address space by, if there is one.
    pub room: Room,
}

/// A child that has not executed its program yet. Where that never happens, it is killed.
#[derive(Debug)]
pub struct Child<'a> {
    /// Its process id.
    pub pid: i32,
    /// It has executed the program, or has been waited for.
    done: bool,
    _stack: Box<[u128]>,
    _orders: Box<Orders>,
    _plan: PhantomData<&'a Plan>,
}

impl Child<'_> {
    /// It has executed the program, or has been waited for: it needs nothing of ours any more.
    pub fn done(mut self) -> i32 {
        self.done = true;
        self.pid
    }
}

impl Drop for Child<'_> {
    fn drop(&mut self) {
        if !self.done {
            let _ = sys::kill(self.pid, libc::SIGKILL);
            let _ = sys::wait_one(self.pid);
        }
    }
}

/// Orders for the child, with pointers to its plan.
#[derive(Debug)]
struct Orders {
    program: *const libc::c_char,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    fixed_layout: bool,
    room: Room,
    ready: RawFd,
    report: RawFd,
    child_ignored: bool,
    /// What the program begins with, if it is what this process began with.
    inherited: Option<sys::Inherited>,
    /// Signals that the program has blocked.
    mask: u64,
}

/// Bytes of its stack.
const STACK: usize = 16 << 10;
/// Bytes of a set of signals, for the kernel.
const MASK_BYTES: usize = 8;
/// The last signal.
const SIGNALS: libc::c_int = 64;

/// The kernel's `sigaction`.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Starts a child that waits until `ready` is written to, then executes the plan's program.
///
/// An error of exec comes back as four bytes through `report`, the write end of a pipe.
///
/// # Errors
///
/// The kernel cannot make a process.
pub fn start(plan: &Plan, ready: RawFd, report: RawFd) -> Result<Child<'_>> {
    let pointers = |strings: &[CString]| {
        let strings = strings.iter().map(|s| s.as_ptr());
        strings.chain([std::ptr::null()]).collect()
    };
    let (child_blocked, child_ignored) = sys::child_events_before();
    let mut stack = vec![0u128; STACK / size_of::<u128>()].into_boxed_slice();
    let before = Blocked::all();
    let child_bit = 1 << (libc::SIGCHLD - 1);
    let mask = before.mask() | if child_blocked { child_bit } else { 0 };
    let orders = Box::new(Orders {
        program: plan.program.as_ptr(),
        argv: pointers(&plan.argv),
        envp: pointers(&plan.envp),
        fixed_layout: plan.fixed_layout,
        room: plan.room,
        ready,
        report,
        child_ignored,
        inherited: sys::inherited(),
        mask,
    });
    // SAFETY: the stack's end is aligned, and what `orders` and its pointers lead to lasts as long
    // as the result, whose drop waits for the child. `become_program` does what the module promises
    // of it.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end.cast();
        let orders = (&raw const *orders).cast_mut().cast();
        match is_checked() {
            false => libc::clone(become_program, top, libc::CLONE_VM | libc::SIGCHLD, orders),
            true => match libc::fork() {
                0 => libc::_exit(become_program(orders)),
                pid => pid,
            },
        }
    };
    if pid < 0 {
        return Err(Errno::last());
    }
    drop(before);
    Ok(Child { pid, done: false, _stack: stack, _orders: orders, _plan: PhantomData })
}

/// Returns whether valgrind executes this process: it knows no child that shares memory while we go
/// on. The documented way to ask it, which is a row of instructions without an effect elsewhere.
fn is_checked() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: u64;
    // SAFETY: rdi is turned by 128 bits in all, and rbx exchanged with itself. valgrind reads the
    // request, which lives as long, and answers in rdx.
    unsafe {
        asm!("rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") request.as_ptr(), inlateout("rdx") 0u64 => answer, options(nostack));
    }
    answer != 0
}

/// All signals of the calling thread are blocked while this lives.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> Self {
        // SAFETY: sets are plain data, initialised before they are passed.
        unsafe {
            let mut all: libc::sigset_t = zeroed();
            libc::sigfillset(&raw mut all);
            let mut before: libc::sigset_t = zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }

    /// Returns the signals that were blocked before, a bit for each, the first one's the lowest.
    fn mask(&self) -> u64 {
        let blocked = |signal: &libc::c_int| {
            // SAFETY: an initialised set, and a number.
            unsafe { libc::sigismember(&raw const self.0, *signal) == 1 }
        };
        (1..=SIGNALS).filter(blocked).fold(0, |mask, signal| mask | 1 << (signal - 1))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: what was blocked before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// A bit of personality(2) that has no meaning: a process that has it was not itself the one to ask
/// for a layout that is not random. Children and programs have it from the process before.
const FIXED_FOR_US: u64 = 0x1_0000;

/// Returns a personality with a layout that is not random, and the mark that it is ours unless the
/// program has asked for it.
pub fn with_fixed_layout(persona: u64) -> u64 {
    let fixed = libc::ADDR_NO_RANDOMIZE as u64;
    if persona & fixed != 0 { persona } else { persona | fixed | FIXED_FOR_US }
}

/// Returns a personality as it is without us; `None` where it is that already.
pub fn without_fixed_layout(persona: u64) -> Option<u64> {
    let ours = libc::ADDR_NO_RANDOMIZE as u64 | FIXED_FOR_US;
    (persona & FIXED_FOR_US != 0).then_some(persona & !ours)
}

/// Turns the child into the program; `orders` are [`Orders`].
extern "C" fn become_program(orders: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the maker keeps them until this process has executed the program or is gone.
    let orders = unsafe { &*orders.cast_const().cast::<Orders>() };
    let mut byte = 0u8;
    call(libc::SYS_read, [orders.ready as usize, (&raw mut byte) as usize, 1, 0]);
    reset_signals(orders.child_ignored, orders.inherited.map(|it| it.ignored));
    for fd in (0..3).filter(|fd| orders.inherited.is_some_and(|it| it.closed >> fd & 1 != 0)) {
        call(libc::SYS_close, [fd, 0, 0, 0]);
    }
    if orders.fixed_layout {
        let old = call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0]) as usize;
        call(libc::SYS_personality, [with_fixed_layout(old as u64) as usize, 0, 0, 0]);
    }
    crate::limits::restore_in_child(orders.room);
    let mask = &raw const orders.mask as usize;
    call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, mask, 0, MASK_BYTES]);
    let (argv, envp) = (orders.argv.as_ptr() as usize, orders.envp.as_ptr() as usize);
    let error = call(libc::SYS_execve, [orders.program as usize, argv, envp, 0]);
    let error = (-error as i32).to_ne_bytes();
    call(libc::SYS_write, [orders.report as usize, error.as_ptr() as usize, error.len(), 0]);
    call(libc::SYS_exit_group, [127, 0, 0, 0]);
    127
}

/// Gives every signal that has a handler its default action, and SIGPIPE and SIGCHLD what they had
/// when this process was started: exec would do the former too, but a signal that came before must
/// not find a handler. If those that were `ignored` then are known, no others are.
fn reset_signals(child_ignored: bool, ignored: Option<u64>) {
    for signal in 1..=SIGNALS {
        let mut old = Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
        let into = &raw mut old as usize;
        call(libc::SYS_rt_sigaction, [signal as usize, 0, into, MASK_BYTES]);
        let was_ignored = ignored.map(|set| set >> (signal - 1) & 1 != 0);
        let handler = match signal {
            _ if was_ignored == Some(true) => libc::SIG_IGN,
            _ if was_ignored == Some(false) => libc::SIG_DFL,
            libc::SIGCHLD if child_ignored => libc::SIG_IGN,
            libc::SIGCHLD | libc::SIGPIPE => libc::SIG_DFL,
            _ if old.handler == libc::SIG_IGN => libc::SIG_IGN,
            _ => libc::SIG_DFL,
        };
        if handler != old.handler {
            let new = Action { handler, flags: 0, restorer: 0, mask: 0 };
            let from = &raw const new as usize;
            call(libc::SYS_rt_sigaction, [signal as usize, from, 0, MASK_BYTES]);
        }
    }
}

/// Makes a system call, and leaves `errno` alone: a result below 0 is an error's number, negated.
fn call(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the callers pass pointers to what is theirs, or their maker's, and lasts through the
    // call. The instruction changes rcx, r11 and what the call writes to.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Returns whether it was us who asked for a layout of a process that is not random.
pub fn layout_is_ours(tid: crate::Tid) -> bool {
    persona(tid).and_then(without_fixed_layout).is_some()
}

/// The personality of a thread or process, as the kernel tells it.
fn persona(tid: crate::Tid) -> Option<u64> {
    let text = kernel_files::text(tid, "personality").ok()?;
    u64::from_str_radix(text.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};
    use std::os::fd::AsRawFd;

    use super::*;

    fn plan(program: &str, argv: &[&str], envp: &[&str]) -> Plan {
        let strings = |all: &[&str]| all.iter().map(|one| CString::new(*one).unwrap()).collect();
        Plan {
            program: CString::new(program).unwrap(),
            argv: strings(argv),
            envp: strings(envp),
            fixed_layout: true,
            room: Room::default(),
        }
    }

    /// The wait status of what `plan` becomes, and what has been reported.
    fn run(plan: &Plan) -> (i32, Vec<u8>) {
        let (ready_out, mut ready_in) = pipe().unwrap();
        let (mut report_out, report_in) = pipe().unwrap();
        let child = start(plan, ready_out.as_raw_fd(), report_in.as_raw_fd()).unwrap();
        drop(report_in);
        ready_in.write_all(&[1]).unwrap();
        let mut report = Vec::new();
        report_out.read_to_end(&mut report).unwrap();
        (sys::wait_one(child.done()).unwrap(), report)
    }

    #[test]
    fn a_child_executes_its_program_with_arguments_environment_and_layout() {
        let script = "test \"$A\" = b && test \"$1\" = c && read personality < /proc/self/personality && \
                      test \"$personality\" = 00050000 && exit 7";
        let plan = plan("/bin/sh", &["sh", "-c", script, "sh", "c"], &["A=b"]);
        assert_eq!(run(&plan), (7 << 8, Vec::new()));
    }

    #[test]
    fn handlers_are_reset_and_what_is_blocked_stays_so() {
        let script = "while read name set; do case $name in SigBlk:) test $set = 0000000000000000 || exit 1;; \
                      SigIgn:) exit $((0x$set >> 12 & 1));; esac; done < /proc/self/status";
        assert_eq!(
            run(&plan("/bin/sh", &["sh", "-c", script], &[])).0,
            0,
            "SIGPIPE is not ignored"
        );
    }

    #[test]
    fn an_error_of_exec_is_reported() {
        let (status, report) = run(&plan("/nowhere/at/all", &["all"], &[]));
        assert_eq!((status, report), (127 << 8, libc::ENOENT.to_ne_bytes().to_vec()));
    }

    #[test]
    fn a_child_that_is_given_up_is_gone() {
        let (ready_out, _ready_in) = pipe().unwrap();
        let (_report_out, report_in) = pipe().unwrap();
        let plan = plan("/bin/true", &["true"], &[]);
        let child = start(&plan, ready_out.as_raw_fd(), report_in.as_raw_fd()).unwrap();
        let pid = child.pid;
        drop(child);
        assert_eq!(sys::kill(pid, 0), Err(Errno::ESRCH));
    }
}
