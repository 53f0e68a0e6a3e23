//! prctl(PR_SET_SYSCALL_USER_DISPATCH): system calls of a thread that become SIGSYS, by the place
//! where they are made and a byte of the program's.
//!
//! The kernel decides by the address of the instruction. Translated code makes calls elsewhere, and
//! the host makes some of its own. So the host decides, and the kernel is told only of the one call
//! that becomes a signal, in a form that leaves it no choice: another thread may write the byte.
//!
//! Promise: F38

use lwp_process::kernel_files;
use lwp_process::{Tid, memory, sys};

use crate::syscalls::{Pending, nr};

const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const OFF: u64 = 0;
const EXCLUSIVE_ON: u64 = 1;
const INCLUSIVE_ON: u64 = 2;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
/// First address that no tracee can have.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;
/// The byte's values for calls that are made, and for calls that become signals.
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
/// An address at which nobody has memory.
const NOWHERE: u64 = 1;

/// Returns whether the kernel lets a tracer turn a call into such a signal: since Linux 6.4.
pub fn is_had() -> bool {
    let release = kernel_files::of_machine("/proc/sys/kernel/osrelease").unwrap_or_default();
    release_is_new_enough(&release)
}

fn release_is_new_enough(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next()) >= (6, 4)
}

/// What becomes of a call that is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// SIGSYS, which the program may handle.
    Signal,
    /// The byte cannot be read: the process ends by SIGSEGV.
    Unreadable,
    /// The byte has no meaning: the process ends by SIGSYS.
    Meaningless,
}

impl Stopped {
    /// How the kernel is told of it. `meaningless` is the address of such a byte that the program
    /// cannot write to.
    pub fn request(self, meaningless: u64) -> sys::UserDispatchRequest {
        let selector = match self {
            Self::Signal => 0,
            Self::Unreadable => NOWHERE,
            Self::Meaningless => meaningless,
        };
        sys::UserDispatchRequest { mode: EXCLUSIVE_ON, selector, offset: 0, bytes: 0 }
    }

    /// Returns whether a byte has no meaning.
    pub fn is_meaningless(byte: u8) -> bool {
        !matches!(byte, ALLOW | BLOCK)
    }
}

/// What a thread has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserDispatch {
    mode: u64,
    offset: u64,
    bytes: u64,
    selector: u64,
}

impl UserDispatch {
    /// What a call asks for, `None` for an end of it, as the kernel takes it or refuses it. Another
    /// call asks for nothing.
    pub fn asked_by(pending: &Pending, selector: u64) -> Option<Result<Option<Self>, i64>> {
        let [what, mode, offset, bytes] = pending.args;
        if pending.number != nr::PRCTL || what as u32 != PR_SET_SYSCALL_USER_DISPATCH as u32 {
            return None;
        }
        let wraps = offset.wrapping_add(bytes) <= offset;
        let refused = match mode {
            OFF => offset != 0 || bytes != 0 || selector != 0,
            EXCLUSIVE_ON => offset != 0 && wraps,
            INCLUSIVE_ON => bytes == 0 || wraps,
            _ => true,
        };
        Some(match mode {
            _ if refused => Err(EINVAL),
            OFF => Ok(None),
            _ if selector >= TASK_SIZE => Err(EFAULT),
            _ => Ok(Some(Self { mode, offset, bytes, selector })),
        })
    }

    /// What becomes of the call of a thread behind which `next` is the next instruction, if it is
    /// not made.
    pub fn stops(&self, tid: Tid, next: u64) -> Option<Stopped> {
        let inside = next.wrapping_sub(self.offset) < self.bytes;
        if inside != (self.mode == INCLUSIVE_ON) {
            return None;
        }
        if self.selector == 0 {
            return Some(Stopped::Signal);
        }
        match memory::read_array(tid, self.selector) {
            Ok([ALLOW]) => None,
            Ok([BLOCK]) => Some(Stopped::Signal),
            Ok(_) => Some(Stopped::Meaningless),
            Err(_) => Some(Stopped::Unreadable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(mode: u64, offset: u64, bytes: u64, selector: u64) -> Result<Option<u64>, i64> {
        let call = Pending::new(nr::PRCTL, [PR_SET_SYSCALL_USER_DISPATCH, mode, offset, bytes]);
        let asked = UserDispatch::asked_by(&call, selector).expect("it is about that");
        asked.map(|asked| asked.map(|it| it.mode))
    }

    #[test]
    fn arguments_are_taken_and_refused_as_by_the_kernel() {
        assert_eq!(asked(OFF, 0, 0, 0), Ok(None));
        assert_eq!(asked(OFF, 0, 0, 8), Err(EINVAL));
        assert_eq!(asked(EXCLUSIVE_ON, 0, 0, 0), Ok(Some(EXCLUSIVE_ON)));
        assert_eq!(asked(EXCLUSIVE_ON, 0x1000, 0, 8), Err(EINVAL));
        assert_eq!(asked(EXCLUSIVE_ON, 0x1000, u64::MAX, 8), Err(EINVAL));
        assert_eq!(asked(EXCLUSIVE_ON, 0x1000, 0x1000, TASK_SIZE), Err(EFAULT));
        assert_eq!(asked(INCLUSIVE_ON, 0x1000, 0, 8), Err(EINVAL));
        assert_eq!(asked(INCLUSIVE_ON, 0x1000, 1, 8), Ok(Some(INCLUSIVE_ON)));
        assert_eq!(asked(3, 0, 0, 0), Err(EINVAL));
        let other = Pending::new(nr::PRCTL, [15, 1, 0, 0]);
        assert_eq!(UserDispatch::asked_by(&other, 0), None);
    }

    #[test]
    fn calls_are_stopped_by_place_and_byte() {
        let me = std::process::id() as Tid;
        let bytes = [ALLOW, 1, 2];
        let of = |mode, at: usize| UserDispatch {
            mode,
            offset: 0x1000,
            bytes: 0x100,
            selector: (&raw const bytes[at]).addr() as u64,
        };
        for (next, inside) in [(0xfff, false), (0x1000, true), (0x10ff, true), (0x1100, false)] {
            for mode in [EXCLUSIVE_ON, INCLUSIVE_ON] {
                let stopped = inside == (mode == INCLUSIVE_ON);
                let expected = [None, Some(Stopped::Signal), Some(Stopped::Meaningless)];
                for (at, expected) in expected.into_iter().enumerate() {
                    let found = of(mode, at).stops(me, next);
                    assert_eq!(found, expected.filter(|_| stopped), "{next:#x} {at}");
                }
            }
        }
        let none = UserDispatch { selector: 0, ..of(EXCLUSIVE_ON, 0) };
        assert_eq!([none.stops(me, 0), none.stops(me, 0x1000)], [Some(Stopped::Signal), None]);
        let bad = UserDispatch { selector: NOWHERE, ..none };
        assert_eq!(bad.stops(me, 0), Some(Stopped::Unreadable));
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, new) in [("6.4.0-arch1", true), ("6.18.44", true), ("7.0-rc1", true)] {
            assert_eq!(release_is_new_enough(release), new, "{release}");
        }
        for release in ["6.3.9", "5.15.0-91-generic", "", "unknown"] {
            assert!(!release_is_new_enough(release), "{release}");
        }
    }
}
