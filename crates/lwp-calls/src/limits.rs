//! Limits on address space and data: the program's are the program's, and what is ours does not
//! come out of them.
//!
//! The kernel's limit on a process's address space is the program's and what is ours at the moment:
//! it is set when something of ours is mapped or unmapped, and when the program sets its own. A
//! hard limit can only be lowered, so it is higher by more than that. What the kernel's limits are
//! raised by is taken out again wherever the program looks.

use std::collections::HashMap;

use lwp_mailbox::memory_map::HARD_BYTES;
use lwp_process::{Tid, limits, memory};

use crate::syscalls::{Pending, nr};

/// The resource of setrlimit(2) that is a process's data.
pub const RLIMIT_DATA: u64 = 2;
/// The resource that is its address space.
pub const RLIMIT_AS: u64 = 9;
/// No limit.
pub const NONE: u64 = u64::MAX;

/// Bytes by which the kernel's soft and hard limit are higher than the program's.
pub type Raised = [u64; 2];

/// Those on the address space of each process: see [`Raised`].
#[derive(Debug, Default)]
pub struct RaisedByProcess(pub HashMap<i32, Raised>);

/// Changes both values of a limit, unless they are infinite.
pub fn changed(limit: [u64; 2], raised: Raised, change: fn(u64, u64) -> u64) -> [u64; 2] {
    [0, 1].map(|index| match limit[index] {
        NONE => NONE,
        value => change(value, raised[index]),
    })
}

/// The limit that a call is about: the process as the caller names it, the resource, and where the
/// new and the old limit stand, 0 for nowhere. `None` for another call.
pub fn subject(pending: &Pending) -> Option<(i32, u64, u64, u64)> {
    let [a1, a2, a3, a4] = pending.args;
    let (process, resource, new, old) = match pending.number {
        nr::GETRLIMIT => (0, a1, 0, a2),
        nr::SETRLIMIT => (0, a1, a2, 0),
        nr::PRLIMIT64 => (a1 as i32, a2, a3, a4),
        _ => return None,
    };
    let resource = resource & 0xffff_ffff;
    matches!(resource, RLIMIT_AS | RLIMIT_DATA).then_some((process, resource, new, old))
}

/// Returns whether a call is about a limit that is raised.
pub fn concerns(pending: &Pending) -> bool {
    subject(pending).is_some()
}

/// A limit, soft and hard, as it stands at `at` in a process.
pub fn read_limit(tid: Tid, at: u64) -> Option<[u64; 2]> {
    let bytes: [u8; 16] = memory::read_array(tid, at).ok()?;
    let (soft, hard) = bytes.split_at(8);
    Some([soft, hard].map(|half| u64::from_le_bytes(half.try_into().expect("eight bytes"))))
}

/// The bytes of a limit.
pub fn bytes_of(limit: [u64; 2]) -> Vec<u8> {
    limit.iter().flat_map(|half| half.to_le_bytes()).collect()
}

impl RaisedByProcess {
    /// The bytes by which the kernel's limits on a process's address space are higher than the
    /// program's.
    pub fn of(&self, pid: i32) -> Raised {
        self.0.get(&pid).copied().unwrap_or_default()
    }

    /// The first program's limits are those of the host's caller, and raised.
    pub fn note_first(&mut self, pid: i32) {
        let (before, now) = (limits::address_space_before(), limits::address_space(pid));
        let Some(now) = now.filter(|_| before[0] != NONE) else { return };
        let raised = [0, 1].map(|index| match before[index] {
            NONE => 0,
            before => now[index].saturating_sub(before),
        });
        self.0.insert(pid, raised);
    }

    /// Gives a process that goes on without us the program's limits.
    pub fn give_back(&mut self, pid: i32) {
        let Some(raised) = self.0.remove(&pid) else { return };
        if let Some(limit) = limits::address_space(pid) {
            limits::set_address_space(pid, changed(limit, raised, u64::saturating_sub));
        }
    }
}

/// The bytes by which the kernel's limits are to be higher than the program's, which are `soft` and
/// `hard`, in an address space with so many bytes of ours. `hard_now`: the kernel's hard limit, if
/// it is known; `raised`: the bytes by which that is higher than the program's so far.
pub fn raise_for([soft, hard]: [u64; 2], ours: u64, hard_now: Option<u64>, raised: u64) -> Raised {
    let high = hard_now.is_none_or(|hard| hard == NONE);
    let more = if high { HARD_BYTES } else { raised };
    let within = hard.saturating_add(more).saturating_sub(soft);
    [if soft == NONE { 0 } else { ours.min(within) }, more]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_infinite_stays_so() {
        assert_eq!(changed([5, NONE], [2, 7], u64::saturating_add), [7, NONE]);
        assert_eq!(changed([NONE, NONE], [2, 7], u64::saturating_sub), [NONE, NONE]);
        assert_eq!(changed([5, 6], [2, 7], u64::saturating_sub), [3, 0]);
    }

    #[test]
    fn a_limit_is_raised_by_what_is_ours_and_no_higher_than_the_hard_one() {
        // The kernel's hard limit is infinite: there is room for all that may come.
        let [soft, hard] = raise_for([100 << 30, 200 << 30], 3 << 20, Some(NONE), 0);
        assert_eq!((soft, hard), (3 << 20, HARD_BYTES));
        // It is not, and cannot be raised any more.
        assert_eq!(raise_for([100, 110], 50, Some(1 << 40), 7), [17, 7]);
        assert_eq!(raise_for([NONE, NONE], 50, None, 7), [0, HARD_BYTES]);
    }

    #[test]
    fn calls_about_other_limits_are_none() {
        assert!(concerns(&Pending::new(nr::GETRLIMIT, [RLIMIT_AS, 8, 0, 0])));
        assert!(!concerns(&Pending::new(nr::SETRLIMIT, [7, 8, 0, 0])));
        let set = Pending::new(nr::PRLIMIT64, [12, RLIMIT_DATA | 1 << 32, 8, 16]);
        assert_eq!(subject(&set), Some((12, RLIMIT_DATA, 8, 16)));
    }
}
