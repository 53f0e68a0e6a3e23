//! Sleep of a thread's own accord, as the kernel describes it.

use lwp_mailbox::memory_map::{CONTEXTS_AT, SLOTS, slot_offset};
use lwp_process::Tid;
use lwp_process::kernel_files;

/// Returns whether a thread sleeps in a system call of its own, or is gone.
pub fn sleeps_by_itself(tid: Tid) -> bool {
    kernel_files::text(tid, "syscall").map_or(true, |text| sleeps(&text))
}

/// Returns whether this, as the kernel describes it, is a thread's own system call, and not that by
/// which it waits for us.
pub fn sleeps(text: &str) -> bool {
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
