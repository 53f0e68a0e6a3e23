//! Threads under control, as the virtual CPU's decisions see them: the operations of ptrace(2) on a
//! thread that stands still, and calls made in it. A test puts a script in their place.

use std::fmt::Debug;

use crate::mapped::{self, Expected};
use crate::regs::Regs;
use crate::shm::Inode;
use crate::stop::Stop;
use crate::sys::{self, Result, SigInfo};
use crate::tracee::{OPTIONS, Tid, Tracee};

/// The next stop of a thread that goes on, besides signals and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// None.
    Event,
    /// That at the beginning or the end of a system call.
    Syscall,
    /// That behind one instruction.
    Instruction,
}

/// A system call to be made in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The address of a `syscall` instruction in its memory.
    pub site: u64,
    /// Its number.
    pub number: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// It is made without a single step, which would reset the disposition of a SIGTRAP that is
    /// ignored or blocked.
    pub quiet: bool,
}

/// Control of the threads of a program. Its memory is read and written without it: see
/// [`crate::memory`].
///
/// # Errors
///
/// Those of ptrace(2) for all that returns a result: `ESRCH` if the thread has ended or, save where
/// it is interrupted, does not stand still.
#[allow(clippy::missing_errors_doc, reason = "they are the same for all: see the trait")]
pub trait Tracees: Debug + Send + Sync {
    /// A thread's registers.
    fn regs(&self, tid: Tid) -> Result<Regs>;

    /// Sets a thread's registers.
    fn set_regs(&self, tid: Tid, regs: &Regs) -> Result<()>;

    /// Sets a thread's gs base alone.
    fn set_gs_base(&self, tid: Tid, base: u64) -> Result<()>;

    /// A thread's floating-point and vector state, as an XSAVE image.
    fn extended_state(&self, tid: Tid) -> Result<Vec<u8>>;

    /// Sets what [`extended_state`](Self::extended_state) returns.
    fn set_extended_state(&self, tid: Tid, image: &[u8]) -> Result<()>;

    /// Lets a thread go on until its next stop, delivering `signal` (0: none).
    fn resume(&self, tid: Tid, until: Until, signal: i32) -> Result<()>;

    /// Has a thread stop, wherever it is.
    fn interrupt(&self, tid: Tid) -> Result<()>;

    /// Leaves a thread in the stop of its group.
    fn listen(&self, tid: Tid) -> Result<()>;

    /// Lets a thread go on without anybody who controls it.
    fn detach(&self, tid: Tid) -> Result<()>;

    /// Waits for a thread's next stop.
    fn wait(&self, tid: Tid) -> Result<Stop>;

    /// The number that the kernel has with an event: a new thread, or a status.
    fn event_message(&self, tid: Tid) -> Result<u64>;

    /// The signal that a thread has stopped for.
    fn siginfo(&self, tid: Tid) -> Result<SigInfo>;

    /// Sets the signal that a thread has stopped for.
    fn set_siginfo(&self, tid: Tid, info: &SigInfo) -> Result<()>;

    /// The signals that a thread blocks.
    fn sigmask(&self, tid: Tid) -> Result<u64>;

    /// Sets the signals that a thread blocks.
    fn set_sigmask(&self, tid: Tid, mask: u64) -> Result<()>;

    /// The address of the area of restartable sequences that a thread has registered.
    fn rseq_area(&self, tid: Tid) -> Result<Option<u64>>;

    /// Ends that a thread stops for events, and that its process dies with this one.
    fn loosen(&self, tid: Tid) -> Result<()>;

    /// Has the kernel not apply a thread's system call filter to it, or apply it again.
    ///
    /// # Errors
    ///
    /// `EPERM` without CAP_SYS_ADMIN, or under a filter of our own; `EINVAL` if the kernel cannot.
    fn suspend_filter(&self, tid: Tid, suspend: bool) -> Result<()>;

    /// Has the kernel turn system calls of a thread into SIGSYS, or no longer.
    ///
    /// # Errors
    ///
    /// Those of [`sys::set_user_dispatch`].
    fn set_user_dispatch(&self, tid: Tid, request: sys::UserDispatchRequest) -> Result<()>;

    /// Sends a signal to a process.
    fn kill(&self, pid: i32, signal: i32) -> Result<()>;

    /// Sends a signal to a thread of process `pid`.
    fn send(&self, pid: i32, tid: Tid, signal: i32) -> Result<()>;

    /// Makes a system call in a thread, which is stopped outside of one, and returns the call's own
    /// result. Its registers stay as they are; its stops meanwhile are collected in `held`.
    fn call(&self, tid: Tid, call: Call, held: &mut Vec<Stop>) -> Result<i64>;

    /// Runs code of ours in a thread, from `code` with `argument` in rbx to a breakpoint; see
    /// [`Tracee::run`].
    fn run(&self, tid: Tid, code: u64, argument: u64, held: &mut Vec<Stop>) -> Result<()>;

    /// Returns whether each of `parts` is mapped from `file` in a thread's address space.
    fn has_mapped(&self, tid: Tid, file: Inode, parts: &[Expected]) -> bool;

    /// Lets a thread run, delivering `signal` (0: none).
    fn cont(&self, tid: Tid, signal: i32) -> Result<()> {
        self.resume(tid, Until::Event, signal)
    }

    /// Lets a thread run to the next beginning or end of a system call.
    fn cont_syscall(&self, tid: Tid) -> Result<()> {
        self.resume(tid, Until::Syscall, 0)
    }

    /// Lets a thread execute one instruction.
    fn single_step(&self, tid: Tid) -> Result<()> {
        self.resume(tid, Until::Instruction, 0)
    }
}

/// The kernel's threads.
#[derive(Clone, Copy, Debug)]
pub struct Ptrace;

impl Tracees for Ptrace {
    fn regs(&self, tid: Tid) -> Result<Regs> {
        Tracee(tid).regs()
    }

    fn set_regs(&self, tid: Tid, regs: &Regs) -> Result<()> {
        Tracee(tid).set_regs(regs)
    }

    fn set_gs_base(&self, tid: Tid, base: u64) -> Result<()> {
        Tracee(tid).set_gs_base(base)
    }

    fn extended_state(&self, tid: Tid) -> Result<Vec<u8>> {
        sys::get_extended_state(tid)
    }

    fn set_extended_state(&self, tid: Tid, image: &[u8]) -> Result<()> {
        sys::set_extended_state(tid, image)
    }

    fn resume(&self, tid: Tid, until: Until, signal: i32) -> Result<()> {
        match until {
            Until::Event => sys::cont(tid, signal),
            Until::Syscall => sys::cont_syscall(tid, signal),
            Until::Instruction => sys::single_step(tid, signal),
        }
    }

    fn interrupt(&self, tid: Tid) -> Result<()> {
        sys::interrupt(tid)
    }

    fn listen(&self, tid: Tid) -> Result<()> {
        sys::listen(tid)
    }

    fn detach(&self, tid: Tid) -> Result<()> {
        sys::detach(tid, 0)
    }

    fn wait(&self, tid: Tid) -> Result<Stop> {
        Tracee(tid).wait()
    }

    fn event_message(&self, tid: Tid) -> Result<u64> {
        sys::event_message(tid)
    }

    fn siginfo(&self, tid: Tid) -> Result<SigInfo> {
        sys::get_siginfo(tid)
    }

    fn set_siginfo(&self, tid: Tid, info: &SigInfo) -> Result<()> {
        sys::set_siginfo(tid, info)
    }

    fn sigmask(&self, tid: Tid) -> Result<u64> {
        sys::get_sigmask(tid)
    }

    fn set_sigmask(&self, tid: Tid, mask: u64) -> Result<()> {
        sys::set_sigmask(tid, mask)
    }

    fn rseq_area(&self, tid: Tid) -> Result<Option<u64>> {
        sys::rseq_area(tid)
    }

    fn loosen(&self, tid: Tid) -> Result<()> {
        sys::set_options(tid, 0)
    }

    fn suspend_filter(&self, tid: Tid, suspend: bool) -> Result<()> {
        const PTRACE_O_SUSPEND_SECCOMP: i32 = 1 << 21;
        sys::set_options(tid, OPTIONS | if suspend { PTRACE_O_SUSPEND_SECCOMP } else { 0 })
    }

    fn set_user_dispatch(&self, tid: Tid, request: sys::UserDispatchRequest) -> Result<()> {
        sys::set_user_dispatch(tid, request)
    }

    fn kill(&self, pid: i32, signal: i32) -> Result<()> {
        sys::kill(pid, signal)
    }

    fn send(&self, pid: i32, tid: Tid, signal: i32) -> Result<()> {
        sys::tgkill(pid, tid, signal)
    }

    fn call(&self, tid: Tid, call: Call, held: &mut Vec<Stop>) -> Result<i64> {
        let Call { site, number, args, quiet } = call;
        match quiet {
            true => Tracee(tid).syscall_quietly(site, number, args, held),
            false => Tracee(tid).syscall(site, number, args, held),
        }
    }

    fn run(&self, tid: Tid, code: u64, argument: u64, held: &mut Vec<Stop>) -> Result<()> {
        Tracee(tid).run(code, argument, held)
    }

    fn has_mapped(&self, tid: Tid, file: Inode, parts: &[Expected]) -> bool {
        mapped::are_mapped(tid, file, parts)
    }
}
