//! An event of one thread that stops it: each overflow sends SIGTRAP to the thread, which its
//! tracer sees before it executes another instruction.
//!
//! A thread that nobody traces is killed by it. So an event is opened for a thread that is traced
//! already, is inherited by no other, ends with the program that the thread executes, and is closed
//! before the thread is let go of.
//!
//! Spec: perf_event_open(2), "sigtrap" (Linux 5.13).

use rustix::io::Errno;

use crate::attr::{Flags, Modes};
use crate::event::Event;
use crate::kernel::{Handle, Kernel};

/// What the signals of these events carry: other events of a program carry something else.
pub const DATA: u64 = u64::from_le_bytes(*b"lwp-trap");

/// si_code of SIGTRAP by an event.
///
/// Spec: siginfo.h, `TRAP_PERF`.
pub const CODE: i32 = 6;

/// An event that stops a thread. Closed when dropped.
#[derive(Debug)]
pub struct Trap {
    _event: Handle,
}

impl Trap {
    /// Stops the thread, which somebody traces, after each `period` of the event in these modes.
    ///
    /// # Errors
    ///
    /// The kernel's: `EINVAL` before Linux 5.13.
    pub fn open(
        kernel: &dyn Kernel,
        tid: i32,
        (event, period): (&Event, u64),
        modes: Modes,
    ) -> Result<Self, Errno> {
        let mut attr = event.attr(modes);
        attr.sample_period = period;
        attr.sig_data = DATA;
        attr.set(Flags::SIGTRAP | Flags::REMOVE_ON_EXEC, true);
        kernel.open(&attr, tid, -1, None).map(|event| Self { _event: event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::kind;
    use crate::kernel::script::Script;

    #[test]
    fn an_event_of_a_thread_ends_with_its_program_and_is_inherited_by_none() {
        let clock = Event::new("cpu-clock", kind::SOFTWARE, 0);
        let kernel = Script::new().answering(|open| {
            let flags = open.attr.flags();
            let wanted = Flags::SIGTRAP | Flags::REMOVE_ON_EXEC;
            let right = flags.contains(wanted) && !flags.contains(Flags::INHERIT);
            let all = (open.pid, open.cpu, open.attr.sig_data, open.attr.sample_period);
            if right && all == (77, -1, DATA, 1000) { Ok(()) } else { Err(Errno::INVAL) }
        });
        assert!(Trap::open(&kernel, 77, (&clock, 1000), Modes::USER).is_ok());
        assert!(Trap::open(&kernel, 78, (&clock, 1000), Modes::USER).is_err());
    }
}
