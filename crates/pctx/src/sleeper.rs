//! A child that executes none of its own code while nobody traces it.
//!
//! The child is stopped after the system call that created it. With every signal blocked, it then
//! executes one of two things:
//!
//! | place | for | costs |
//! | --- | --- | --- |
//! | that instruction again, as pause(2) | a child without a system call filter | nothing |
//! | a jump to itself somewhere in its code | any other | processor time, until the copy attaches |
//!
//! A filter (seccomp) sees every call, and may kill the child for one that the program doesn't
//! normally make. Nothing else in the program notices the call. A loop would work for every child,
//! but not every program has one, and the child pays for its processor time.

use std::fs;

use lwp_process::regs::CS_64;
use lwp_process::{Errno, Regs, Tracee, sys};

use crate::error::field;
use crate::{Error, Pid};

/// Length of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `jmp` to itself.
const LOOP: [u8; 2] = [0xeb, 0xfe];

/// The state of a child before it was put to sleep.
pub(crate) struct Sleeper {
    tracee: Tracee,
    regs: Regs,
    mask: u64,
    /// The address of the loop that it executes; `None` if it pauses.
    spins_at: Option<u64>,
}

impl Sleeper {
    /// Makes the next thing that `child` does a sleep without signals.
    pub(crate) fn put_to_sleep(child: Pid) -> Result<Self, Error> {
        let tracee = Tracee(child);
        let regs = tracee.regs().map_err(Error::System)?;
        let mask = sys::get_sigmask(child).map_err(Error::System)?;
        let pauses = !is_filtered(child) && stands_behind_syscall(child, &regs);
        let spins_at = match pauses {
            true => None,
            false => Some(find_loop(child).ok_or(Error::Sleepless(child))?),
        };
        let sleeper = Self { tracee, regs, mask, spins_at };
        sleeper.lie_down().map_err(Error::System)?;
        Ok(sleeper)
    }

    fn lie_down(&self) -> Result<(), Errno> {
        let mut regs = self.regs;
        if let Some(address) = self.spins_at {
            regs.0.rip = address;
        } else {
            regs.0.rip = self.site();
            regs.0.rax = libc::SYS_pause as u64;
        }
        regs.forget_syscall();
        sys::set_sigmask(self.tracee.0, u64::MAX)?;
        self.tracee.set_regs(&regs)
    }

    /// Puts back what was changed.
    pub(crate) fn wake_up(&self) -> Result<(), Errno> {
        let mut regs = self.regs;
        // The kernel must not restart the interrupted pause.
        regs.forget_syscall();
        self.tracee.set_regs(&regs)?;
        sys::set_sigmask(self.tracee.0, self.mask)
    }

    /// Returns whether the child, which stands still, has not been woken up.
    pub(crate) fn is_asleep(&self) -> bool {
        self.tracee.regs().is_ok_and(|now| match self.spins_at {
            Some(address) => now.0.rip == address,
            None => now.0.orig_rax == libc::SYS_pause as u64 || now.0.rip == self.site(),
        })
    }

    /// Returns whether the child may be made to execute a system call.
    pub(crate) fn may_call(&self) -> bool {
        self.spins_at.is_none()
    }

    /// The address of the instruction that made it.
    pub(crate) fn site(&self) -> u64 {
        self.regs.0.rip.wrapping_sub(SYSCALL_BYTES)
    }
}

/// Returns whether a filter sees the system calls of `pid`.
fn is_filtered(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "Seccomp:").is_some_and(|mode| mode != "0")
}

/// A 32-bit program has other numbers for its calls, and mostly another instruction.
fn stands_behind_syscall(child: Pid, regs: &Regs) -> bool {
    let mut code = [0; 2];
    let site = regs.0.rip.wrapping_sub(SYSCALL_BYTES);
    regs.0.cs == CS_64
        && sys::read_memory(child, site, &mut code) == Ok(code.len())
        && code == SYSCALL
}

/// Finds a jump to itself in a file that `pid` has mapped to be executed. Hardly one is meant as
/// such: its bytes are a part of other instructions too.
fn find_loop(pid: Pid) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().filter_map(code_of_file).find_map(|(start, end)| find_loop_in(pid, start, end))
}

/// The addresses that a line of `maps` is about, if those are code of a file.
///
/// Spec: proc_pid_maps(5).
fn code_of_file(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (range, modes) = (words.next()?, words.next()?);
    let inode = words.nth(2)?;
    if !modes.starts_with("r-x") || inode == "0" {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok();
    Some((address(start)?, address(end)?))
}

fn find_loop_in(pid: Pid, start: u64, end: u64) -> Option<u64> {
    const PIECE_BYTES: usize = 64 << 10;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = start;
    while at < end {
        let wanted = usize::try_from(end - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        let read =
            sys::read_memory(pid, at, &mut piece[..wanted]).ok().filter(|read| *read != 0)?;
        if let Some(place) = piece[..read].windows(LOOP.len()).position(|bytes| bytes == LOOP) {
            return Some(at + place as u64);
        }
        at += read as u64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found_in_maps() {
        let line = "7f10a000-7f20b000 r-xp 00028000 fe:00 1837 /usr/lib/libc.so.6";
        assert_eq!(code_of_file(line), Some((0x7f10_a000, 0x7f20_b000)));
        assert_eq!(code_of_file("7f10a000-7f20b000 r--p 00000000 fe:00 1837 /x"), None);
        assert_eq!(code_of_file("7f10a000-7f20b000 rwxp 00000000 fe:00 1837 /x"), None);
        assert_eq!(code_of_file("7ffd1000-7ffd3000 r-xp 00000000 00:00 0 [vdso]"), None);
        assert_eq!(code_of_file("7f10a000"), None);
    }
}
