//! Markers for exact counting, one instruction each.
//!
//! # Safety
//!
//! JUSTIFICATION: a marker can only be written in assembly. It is a no-operation with a memory
//! operand that no processor accesses. The virtual CPU only writes to rax and rdx, which the
//! assembly declares.
#![allow(unsafe_code, reason = "inline assembly; see the module's safety section")]

use std::arch::asm;

/// A kind of event that `lwp stat` and `lwp record` count exactly, for [`read_count`] and
/// [`count_events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Counter {
    /// Retired instructions; a repeated string instruction is one.
    Instructions = 0,
    /// Near branches of every kind.
    Branches = 1,
    /// Branches that were taken.
    BranchesTaken = 2,
    /// Conditional branches.
    ConditionalBranches = 3,
    /// Conditional branches that were taken.
    ConditionalTaken = 4,
    /// Near calls.
    Calls = 5,
    /// Near returns.
    Returns = 6,
    /// Indirect jumps and calls.
    IndirectBranches = 7,
}

/// A marker that answers nothing: `nop dword ptr [rax + disp32]`, with `LWP` and a code in its
/// displacement.
macro_rules! marker {
    ($code:literal) => {
        // SAFETY: the instruction does nothing. Without `nomem`, so that nothing is moved across
        // it.
        unsafe {
            asm!(
                concat!(".byte 0x0f, 0x1f, 0x80, 0x4c, 0x57, 0x50, ", $code),
                options(nostack, preserves_flags)
            )
        }
    };
}

/// Instructions of a reading before its marker.
const SET_UP: u64 = 3;

/// A marker that answers a count of event `$event` in rax and 1 in rdx, where there is one.
macro_rules! reading {
    ($code:literal, $event:expr) => {{
        let (count, counted): (u64, u64);
        // SAFETY: the last instruction does nothing or, on the virtual CPU, writes to rax and rdx.
        unsafe {
            asm!(
                "xor eax, eax",
                "xor edx, edx",
                "mov edi, {event:e}",
                concat!(".byte 0x0f, 0x1f, 0x80, 0x4c, 0x57, 0x50, ", $code),
                event = in(reg) $event as u32,
                out("rax") count,
                out("rdx") counted,
                out("rdi") _,
                options(nostack)
            );
        }
        (counted != 0).then_some(count)
    }};
}

/// Starts counting in all threads of this process, under `lwp stat --marked` and
/// `lwp record --marked`. Elsewhere it does nothing.
///
/// A marker is one instruction that does nothing on a processor. Under lwp it stops the thread for
/// a moment, with every count exact: lwp counts each instruction between two markers, but not the
/// markers.
///
/// ```
/// lwp::count_start();
/// let sum: u64 = (0..1000).sum();
/// lwp::count_stop();
/// # assert_eq!(sum, 499_500);
/// ```
#[inline(always)]
pub fn count_start() {
    marker!("1");
}

/// Stops the counting that [`count_start`] started, in all threads of this process.
#[inline(always)]
pub fn count_stop() {
    marker!("2");
}

/// The number of events that this thread has executed since it began.
///
/// `None` if nothing counts exactly: natively, under `lwp run`, and in sampled recordings.
///
/// ```
/// use lwp::Counter;
///
/// if let Some(calls) = lwp::read_count(Counter::Calls) {
///     println!("{calls} calls so far");
/// }
/// ```
#[must_use]
#[inline(always)]
pub fn read_count(counter: Counter) -> Option<u64> {
    let set_up = if matches!(counter, Counter::Instructions) { SET_UP } else { 0 };
    reading!("3", counter).map(|count: u64| count.saturating_sub(set_up))
}

/// Runs `work`. Returns its result, and the number of instructions that it took in this thread.
///
/// The number is `None` if nothing counts exactly, as with [`read_count`]. `work` must not call
/// this function or [`count_events`]: a thread has one region at a time.
///
/// ```
/// let (sum, instructions) = lwp::count_instructions(|| (0..1000u64).sum::<u64>());
/// match instructions {
///     Some(instructions) => println!("{sum} took {instructions} instructions"),
///     None => println!("{sum}; run me under `lwp stat` to count"),
/// }
/// ```
#[inline(always)]
pub fn count_instructions<R>(work: impl FnOnce() -> R) -> (R, Option<u64>) {
    count_events(Counter::Instructions, work)
}

/// Runs `work`. Returns its result, and the number of `counter`'s events in this thread meanwhile.
///
/// The number is `None` if nothing counts exactly, as with [`read_count`]. `work` must not call
/// this function or [`count_instructions`]: a thread has one region at a time.
#[inline(always)]
pub fn count_events<R>(counter: Counter, work: impl FnOnce() -> R) -> (R, Option<u64>) {
    marker!("4");
    let result = work();
    let count = reading!("5", counter);
    let set_up = if matches!(counter, Counter::Instructions) { SET_UP } else { 0 };
    (result, count.map(|count: u64| count.saturating_sub(set_up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_on_a_processor() {
        count_start();
        assert_eq!(count_instructions(|| 6 * 7), (42, None));
        assert_eq!(read_count(Counter::Calls), None);
        count_stop();
    }
}
