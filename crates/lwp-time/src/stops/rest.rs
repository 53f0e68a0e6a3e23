//! The rest of a write that a stop has cut short.
//!
//! A stop ends a call that waits. The kernel makes most of them again, unnoticed; but a write to a
//! pipe or socket that has moved some of its bytes returns how many. Natively it waits until all
//! have moved, and programs rely on that. So lwp has the thread write the rest, and returns the
//! sum.

use lwp_process::regs::CS_64;
use lwp_process::{Regs, Tracee};

/// A write whose rest is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// Bytes that have moved before.
    moved: u64,
    /// The call's own arguments.
    buffer: u64,
    length: u64,
    /// The thread is in the call for the rest.
    entered: bool,
}

impl Rest {
    /// What is left of the write that a thread of `pid` with these registers comes out of; `None`
    /// if it comes out of none that was cut short.
    pub fn of(pid: i32, regs: &Regs) -> Option<Self> {
        let is_write = [libc::SYS_write, libc::SYS_sendto].contains(&regs.0.orig_rax.cast_signed());
        let (moved, length) = (regs.0.rax, regs.0.rdx);
        if !is_write || regs.0.cs != CS_64 || moved == 0 || moved >= length {
            return None;
        }
        let file = std::fs::read_link(format!("/proc/{pid}/fd/{}", regs.0.rdi as u32)).ok()?;
        let file = file.to_str()?;
        let waits = file.starts_with("pipe:") || file.starts_with("socket:");
        waits.then_some(Self { moved, buffer: regs.0.rsi, length, entered: false })
    }

    /// Has the thread, which stands behind the short write, make another call for the rest.
    pub fn begin(self, tid: i32) -> Option<Self> {
        let mut regs = Tracee(tid).regs().ok()?;
        regs.0.rsi = self.buffer.wrapping_add(self.moved);
        regs.0.rdx = self.length - self.moved;
        regs.0.rax = regs.0.orig_rax;
        regs.0.rip = regs.0.rip.wrapping_sub(2);
        regs.forget_syscall();
        Tracee(tid).set_regs(&regs).ok().map(|()| self)
    }

    /// The thread stands at the beginning or the end of the call for the rest. Returns whether that
    /// call goes on.
    pub fn stands(&mut self, tid: i32) -> bool {
        if !std::mem::replace(&mut self.entered, true) {
            return true;
        }
        let Ok(mut regs) = Tracee(tid).regs() else { return false };
        // A failure with some bytes moved is a short write, as natively.
        let more = regs.0.rax.cast_signed().max(0).cast_unsigned();
        self.restore(&mut regs, more);
        let _ = Tracee(tid).set_regs(&regs);
        false
    }

    /// A signal comes before the call for the rest: the short write stands, as natively.
    pub fn cancel(&self, tid: i32) {
        if self.entered {
            return;
        }
        let Ok(mut regs) = Tracee(tid).regs() else { return };
        regs.0.rip = regs.0.rip.wrapping_add(2);
        self.restore(&mut regs, 0);
        let _ = Tracee(tid).set_regs(&regs);
    }

    fn restore(&self, regs: &mut Regs, more: u64) {
        regs.0.rax = self.moved.saturating_add(more);
        (regs.0.rsi, regs.0.rdx) = (self.buffer, self.length);
    }
}
