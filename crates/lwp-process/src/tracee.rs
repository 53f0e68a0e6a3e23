//! A stopped or running thread of the program.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel_files;
use crate::regs::{Regs, restart};
use crate::stop::Stop;
use crate::sys::{self, Errno, Result};

/// A thread id.
pub type Tid = i32;

/// Events that a tracee reports beyond signals, and its death with us.
pub const OPTIONS: i32 = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_EXITKILL;

/// SIGTRAP's code for a breakpoint instruction.
const SI_KERNEL: i32 = 0x80;

/// The wait that goes on: its number among all, above the thread's own; 0 while there is none.
static WAIT: AtomicU64 = AtomicU64::new(0);

/// The thread whose stop this process waits for now, and a number that no other wait has. One
/// thread of a process traces, so there is one such wait at most.
pub fn awaited() -> Option<(Tid, u64)> {
    let wait = WAIT.load(Ordering::Acquire);
    (wait != 0).then_some((wait as u32 as Tid, wait))
}

/// Says for as long as it lives that a thread is waited for.
struct Wait;

impl Wait {
    fn of(tid: Tid) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        WAIT.store(number << 32 | u64::from(tid as u32), Ordering::Release);
        Self
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        WAIT.store(0, Ordering::Release);
    }
}

/// Returns whether a signal stops a process that neither handles nor ignores it.
fn stops(signal: i32) -> bool {
    matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

/// Returns whether a thread's process ignores a signal.
///
/// Spec: proc_pid_status(5), a mask in hexadecimal digits.
fn is_ignored(tid: Tid, signal: i32) -> bool {
    let status = kernel_files::text(tid, "status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 != 0
}

/// A thread under our control. Plain handle: who holds it decides what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tracee(pub Tid);

/// Faults of a thread while it is led elsewhere. One may be of where it stood before.
#[derive(Debug, Default)]
struct Faults(u32);

impl Faults {
    const MOST: u32 = 4;
}

impl Tracee {
    /// Its registers.
    ///
    /// # Errors
    ///
    /// The kernel's, `ESRCH` if the thread has ended or does not stand still.
    pub fn regs(self) -> Result<Regs> {
        Regs::get(self.0)
    }

    /// Sets its registers.
    ///
    /// # Errors
    ///
    /// The kernel's, `ESRCH` if the thread has ended or does not stand still.
    pub fn set_regs(self, regs: &Regs) -> Result<()> {
        regs.set(self.0)
    }

    /// Has the kernel decide on a call that `stop`, at which it stands, has ended with EINTR: the
    /// call is made again, unless a signal is handled before.
    ///
    /// A stop that is asked for, and a signal that is ignored, reach a traced thread only, and end
    /// calls such as epoll_wait(2). A stop of job control ends them natively too: signal(7).
    pub fn leave_call_to_kernel(self, stop: Stop) {
        let Ok(mut regs) = self.regs() else { return };
        if !regs.is_interrupted() {
            return;
        }
        match stop {
            // Stops that follow before the call returns are not to have it made again.
            Stop::Group(_) => regs.forget_syscall(),
            Stop::Signal(signal) if stops(signal) && !is_ignored(self.0, signal) => return,
            _ => regs.0.rax = restart::ERESTARTNOHAND as u64,
        }
        let _ = self.set_regs(&regs);
    }

    /// Sets its gs base alone.
    ///
    /// # Errors
    ///
    /// The kernel's, `ESRCH` if the thread has ended or does not stand still.
    pub fn set_gs_base(self, base: u64) -> Result<()> {
        sys::poke_user(self.0, crate::regs::GS_BASE_OFFSET, base)
    }

    /// Lets it run, delivering `signal` (0: none).
    ///
    /// # Errors
    ///
    /// The kernel's, `ESRCH` if the thread has ended or does not stand still.
    pub fn cont(self, signal: i32) -> Result<()> {
        sys::cont(self.0, signal)
    }

    /// Waits for its next stop.
    ///
    /// # Errors
    ///
    /// The kernel's: `ECHILD` if it is none of ours.
    pub fn wait(self) -> Result<Stop> {
        let _wait = Wait::of(self.0);
        sys::wait_one(self.0).map(Stop::from_status)
    }

    /// Waits for its next stop. Should it end instead, that is still to be waited for.
    fn wait_stop(self) -> Result<Stop> {
        let _wait = Wait::of(self.0);
        sys::wait_stop(self.0).map(Stop::from_status)
    }

    /// Makes a system call in it: `site` is the address of a `syscall` instruction in its memory.
    /// It must be stopped outside a system call; its registers are as before afterwards.
    ///
    /// Its stops meanwhile are collected in `held`: signals, interrupts, the stops of its group.
    ///
    /// # Errors
    ///
    /// The kernel's; the call's own result is the value.
    pub fn syscall(self, site: u64, nr: u64, args: [u64; 6], held: &mut Vec<Stop>) -> Result<i64> {
        let saved = self.prepare_syscall(site, nr, args)?;
        self.step_collecting(held, &saved)?;
        let result = self.regs()?.0.rax as i64;
        self.set_regs(&saved)?;
        Ok(result)
    }

    /// Sets the registers for a system call at `site`; returns what they were.
    fn prepare_syscall(self, site: u64, nr: u64, args: [u64; 6]) -> Result<Regs> {
        let saved = self.regs()?;
        let mut regs = saved;
        regs.0.rip = site;
        regs.0.rax = nr;
        [regs.0.rdi, regs.0.rsi, regs.0.rdx, regs.0.r10, regs.0.r8, regs.0.r9] = args;
        regs.forget_syscall();
        self.set_regs(&regs)?;
        Ok(saved)
    }

    /// Makes the thread execute a system call, by system call stops instead of a single step: a
    /// step would reset the disposition of a SIGTRAP that is ignored or blocked.
    ///
    /// # Errors
    ///
    /// The kernel's; the call's own result is the value.
    pub fn syscall_quietly(
        self,
        site: u64,
        nr: u64,
        args: [u64; 6],
        held: &mut Vec<Stop>,
    ) -> Result<i64> {
        let saved = self.prepare_syscall(site, nr, args)?;
        let mut faults = Faults::default();
        // Entry, then exit.
        for _ in 0..2 {
            sys::cont_syscall(self.0, 0)?;
            loop {
                match self.wait_stop()? {
                    Stop::Syscall => break,
                    stop => self.hold_few(stop, held, &mut faults, &saved)?,
                }
                sys::cont_syscall(self.0, 0)?;
            }
        }
        let result = self.regs()?.0.rax as i64;
        self.set_regs(&saved)?;
        Ok(result)
    }

    /// Runs code of ours in it, from `code` with `argument` in rbx to a breakpoint. It must be
    /// stopped outside a system call, and SIGTRAP must be neither blocked nor ignored; its
    /// registers are as before afterwards.
    ///
    /// Its stops meanwhile are collected in `held`.
    ///
    /// # Errors
    ///
    /// The kernel's, `ESRCH` if the thread has ended or does not stand still.
    pub fn run(self, code: u64, argument: u64, held: &mut Vec<Stop>) -> Result<()> {
        let saved = self.regs()?;
        let mut regs = saved;
        regs.0.rip = code;
        regs.0.rbx = argument;
        regs.forget_syscall();
        self.set_regs(&regs)?;
        self.cont(0)?;
        let mut faults = Faults::default();
        loop {
            match self.wait_stop()? {
                Stop::Signal(libc::SIGTRAP) if sys::get_siginfo(self.0)?.code() == SI_KERNEL => {
                    return self.set_regs(&saved);
                }
                stop => self.hold_few(stop, held, &mut faults, &saved)?,
            }
            self.cont(0)?;
        }
    }

    /// Collects a stop as [`hold`](Self::hold) does. A thread that faults again and again is not
    /// where it was led to: somebody has changed the instructions there. It gets its registers back.
    fn hold_few(
        self,
        stop: Stop,
        held: &mut Vec<Stop>,
        faults: &mut Faults,
        saved: &Regs,
    ) -> Result<()> {
        if !self.hold(stop, held) {
            faults.0 += 1;
        }
        if faults.0 > Faults::MOST {
            self.set_regs(saved)?;
            return Err(Errno(libc::EFAULT));
        }
        Ok(())
    }

    /// Collects a stop, but for the fault of an instruction that the thread stood at before: it is
    /// executed again, and faults again. Sent anew, the signal would not say where. Returns whether
    /// the stop is collected.
    fn hold(self, stop: Stop, held: &mut Vec<Stop>) -> bool {
        const BUS_MCEERR_AO: i32 = 5;
        let fault = match stop {
            Stop::Signal(libc::SIGSEGV | libc::SIGILL | libc::SIGFPE | libc::SIGBUS) => {
                let code = sys::get_siginfo(self.0).map_or(0, |info| info.code());
                code > 0 && (stop != Stop::Signal(libc::SIGBUS) || code != BUS_MCEERR_AO)
            }
            _ => false,
        };
        if !fault {
            held.push(stop);
        }
        !fault
    }

    /// Executes one instruction; what stops it meanwhile is collected.
    fn step_collecting(self, held: &mut Vec<Stop>, saved: &Regs) -> Result<()> {
        let mut faults = Faults::default();
        sys::single_step(self.0, 0)?;
        loop {
            match self.wait_stop()? {
                Stop::Signal(libc::SIGTRAP) => {
                    let code = sys::get_siginfo(self.0)?.code();
                    if code == libc::TRAP_TRACE || code == libc::TRAP_BRKPT {
                        return Ok(());
                    }
                    held.push(Stop::Signal(libc::SIGTRAP));
                }
                stop => self.hold_few(stop, held, &mut faults, saved)?,
            }
            sys::single_step(self.0, 0)?;
        }
    }
}
