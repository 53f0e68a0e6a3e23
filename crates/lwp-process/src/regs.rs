//! The general registers of a stopped tracee.

use crate::sys::{self, Result};

/// The registers as ptrace hands them over.
pub type Raw = libc::user_regs_struct;

/// The general registers, rip, flags and segment bases.
#[derive(Clone, Copy, Debug)]
pub struct Regs(pub libc::user_regs_struct);

impl Default for Regs {
    /// Registers that are all zero.
    fn default() -> Self {
        Self(Raw {
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbp: 0,
            rbx: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rax: 0,
            rcx: 0,
            rdx: 0,
            rsi: 0,
            rdi: 0,
            orig_rax: 0,
            rip: 0,
            cs: 0,
            eflags: 0,
            rsp: 0,
            ss: 0,
            fs_base: 0,
            gs_base: 0,
            ds: 0,
            es: 0,
            fs: 0,
            gs: 0,
        })
    }
}

impl PartialEq for Regs {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        a.rip == b.rip
            && a.rsp == b.rsp
            && a.eflags == b.eflags
            && [a.rax, a.rbx, a.rcx, a.rdx, a.rsi, a.rdi, a.rbp, a.orig_rax]
                == [b.rax, b.rbx, b.rcx, b.rdx, b.rsi, b.rdi, b.rbp, b.orig_rax]
            && [a.r8, a.r9, a.r10, a.r11, a.r12, a.r13, a.r14, a.r15]
                == [b.r8, b.r9, b.r10, b.r11, b.r12, b.r13, b.r14, b.r15]
    }
}

/// General register number `register`, as instructions encode it.
pub fn general(regs: &mut Raw, register: u8) -> &mut u64 {
    match register {
        0 => &mut regs.rax,
        1 => &mut regs.rcx,
        2 => &mut regs.rdx,
        3 => &mut regs.rbx,
        4 => &mut regs.rsp,
        5 => &mut regs.rbp,
        6 => &mut regs.rsi,
        7 => &mut regs.rdi,
        8 => &mut regs.r8,
        9 => &mut regs.r9,
        10 => &mut regs.r10,
        11 => &mut regs.r11,
        12 => &mut regs.r12,
        13 => &mut regs.r13,
        14 => &mut regs.r14,
        _ => &mut regs.r15,
    }
}

/// Returns the value of a general register, given its number.
pub fn general_value(regs: &Raw, register: u8) -> u64 {
    *general(&mut regs.clone(), register)
}

/// Offset of gs_base in `struct user`, whose first member is the register structure.
pub const GS_BASE_OFFSET: usize = std::mem::offset_of!(libc::user_regs_struct, gs_base);

/// Code segment of 64-bit user code.
pub const CS_64: u64 = 0x33;

impl Regs {
    /// Reads a stopped tracee's.
    ///
    /// # Errors
    ///
    /// The kernel's, `ESRCH` if the thread has ended or does not stand still.
    pub fn get(tid: i32) -> Result<Self> {
        sys::get_regs(tid).map(Self)
    }

    /// Writes them back.
    ///
    /// # Errors
    ///
    /// The kernel's, `ESRCH` if the thread has ended or does not stand still.
    pub fn set(&self, tid: i32) -> Result<()> {
        sys::set_regs(tid, &self.0)
    }

    /// Tells the kernel that no system call is being left, so that it does not restart one.
    pub fn forget_syscall(&mut self) {
        self.0.orig_rax = u64::MAX;
    }

    /// Moves a tracee back to before a system call that it was stopped inside and that is to be
    /// restarted, so that it makes the call again wherever it is led to.
    pub fn rewind_syscall(&mut self) {
        if self.in_syscall() && restart::is(self.0.rax) {
            self.0.rax = match self.0.rax as i64 {
                restart::ERESTART_RESTARTBLOCK => restart::SYS_RESTART_SYSCALL,
                _ => self.0.orig_rax,
            };
            self.0.rip -= 2;
        }
        self.forget_syscall();
    }

    /// Returns whether the tracee was stopped inside a system call that has failed with EINTR, and
    /// has done nothing yet.
    pub fn is_interrupted(&self) -> bool {
        const EINTR: i64 = -4;
        // Its number among the calls of 32-bit programs.
        const CLOSE_32: u64 = 6;
        // What close(2) closes is closed, whatever it returns.
        let close = if self.0.cs == CS_64 { libc::SYS_close as u64 } else { CLOSE_32 };
        let closes = self.0.orig_rax == close;
        self.in_syscall() && self.0.rax as i64 == EINTR && !closes
    }

    /// Returns whether the tracee was stopped inside a system call.
    pub fn in_syscall(&self) -> bool {
        self.0.orig_rax as i64 >= 0
    }
}

/// Results by which the kernel marks a system call that a signal has interrupted.
pub mod restart {
    /// Restart if the handler has SA_RESTART, or there is no handler.
    pub const ERESTARTSYS: i64 = -512;
    /// Restart always.
    pub const ERESTARTNOINTR: i64 = -513;
    /// Restart only where there is no handler.
    pub const ERESTARTNOHAND: i64 = -514;
    /// Restart by `restart_syscall` where there is no handler.
    pub const ERESTART_RESTARTBLOCK: i64 = -516;
    /// Number of `restart_syscall`.
    pub const SYS_RESTART_SYSCALL: u64 = 219;

    /// Returns whether `rax` is one of them.
    pub fn is(rax: u64) -> bool {
        matches!(rax as i64, ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK)
    }
}
