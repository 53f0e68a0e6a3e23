//! Markers for exact counting: a program says from where to where `lwp stat --marked` and
//! `lwp record --marked` count, or reads its own counts.
//!
//! A marker is one instruction that does nothing on a processor. Under `lwp` it stops the thread
//! for a moment, with every count exact: what is executed between two markers is counted to the
//! instruction, and the markers are not.
//!
//! ```
//! let (sum, instructions) = lwp::count::of(|| (0..1000u64).sum::<u64>());
//! match instructions {
//!     Some(instructions) => println!("{sum} took {instructions} instructions"),
//!     None => println!("{sum}; nothing is counted outside `lwp stat` and `lwp record`"),
//! }
//! ```
//!
//! # Safety
//!
//! JUSTIFICATION: a marker exists in assembly only. It is a no-operation with a memory operand that
//! no processor accesses; the virtual CPU writes to rax and rdx, which the assembly declares, and
//! to nothing else.
#![allow(unsafe_code, reason = "inline assembly; see the module's safety section")]

use std::arch::asm;

/// A kind of event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Event {
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

/// Starts counting in all threads of this process, where counting is a matter of markers.
#[inline(always)]
pub fn start() {
    marker!("1");
}

/// Stops counting in all threads of this process, where counting is a matter of markers.
#[inline(always)]
pub fn stop() {
    marker!("2");
}

/// The number of `event`s this thread has executed since it began, where `lwp stat` and
/// `lwp record` count; `None` where nothing is counted exactly: natively, under `lwp run`, and in
/// sampled recordings.
#[inline(always)]
pub fn read(event: Event) -> Option<u64> {
    let set_up = if matches!(event, Event::Instructions) { SET_UP } else { 0 };
    reading!("3", event).map(|count: u64| count.saturating_sub(set_up))
}

/// The result of `work`, and the instructions that it took in this thread; `None` where nothing is
/// counted, see [`read`].
///
/// `work` must not call this function, nor [`events_of`].
#[inline(always)]
pub fn of<R>(work: impl FnOnce() -> R) -> (R, Option<u64>) {
    events_of(Event::Instructions, work)
}

/// The same for any kind of event.
#[inline(always)]
pub fn events_of<R>(event: Event, work: impl FnOnce() -> R) -> (R, Option<u64>) {
    marker!("4");
    let result = work();
    let count = reading!("5", event);
    let set_up = if matches!(event, Event::Instructions) { SET_UP } else { 0 };
    (result, count.map(|count: u64| count.saturating_sub(set_up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_on_a_processor() {
        start();
        assert_eq!(of(|| 6 * 7), (42, None));
        assert_eq!(read(Event::Calls), None);
        stop();
    }
}
