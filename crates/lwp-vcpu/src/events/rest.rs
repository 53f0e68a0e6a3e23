//! Whether the program stands still, as somebody does who has asked for something and waits for the answer.
//!
//! A program that switches its own counting on and off by a control line goes on until it reads the answer, a few
//! hundred instructions more or less before it is heard. Where counting is switched once it waits, the same is counted
//! every time.

use std::time::Duration;

use lwp_ptrace::Tid;

use crate::machine::Machine;
use crate::memory_map::{CONTEXTS_AT, SLOTS, slot_offset};

/// How long a program is waited for.
pub const LONGEST: Duration = Duration::from_millis(20);
/// How often it is looked at meanwhile.
pub const LOOK: Duration = Duration::from_micros(100);

/// Whether every thread of the program sleeps in a system call of its own.
pub fn is_reached(machine: &Machine) -> bool {
    machine.threads.keys().all(|tid| sleeps_by_itself(*tid))
}

/// Whether a thread sleeps in a system call of its own, or is gone: then there is nothing to wait for.
pub fn sleeps_by_itself(tid: Tid) -> bool {
    std::fs::read_to_string(format!("/proc/{tid}/syscall")).map_or(true, |text| sleeps(&text))
}

/// Whether this, as the kernel describes it, is a thread's own system call, and not that by which it waits for us.
fn sleeps(text: &str) -> bool {
    const FUTEX: &str = "202";
    let mut words = text.split_whitespace();
    let (number, first) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let address = first.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let ours = CONTEXTS_AT..CONTEXTS_AT + slot_offset(SLOTS);
    match number {
        "running" | "-1" | "" => false,
        FUTEX => address.is_none_or(|address| !ours.contains(&address)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_us_does_not_rest() {
        assert!(sleeps("0 0x3 0x7ffc 0x1 0x0 0x0 0x0 0x7ffd 0x7f01\n"));
        assert!(sleeps("202 0x7f0012340000 0x80 0x0 0x0 0x0 0x0 0x7ffd 0x7f01\n"));
        assert!(!sleeps(&format!("202 {:#x} 0x80 0x0 0x0 0x0 0x0 0x0 0x0\n", CONTEXTS_AT + 64)));
        assert!(!sleeps("running\n") && !sleeps("-1 0x7ffd 0x7f01\n") && !sleeps(""));
    }
}
