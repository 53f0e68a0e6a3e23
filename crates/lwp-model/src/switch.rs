//! The work of an operating system at a switch of threads, in either form of LWP.

use lwp_arch::xsave::LwpXsave;
use lwp_arch::{Fault, Revision};

use crate::Cpu;
use crate::state::Volatile2007;
use crate::unit::LwpUnit;

/// The state of a thread that does not run: kept with the rest of the thread.
///
/// Spec: P07 §5.5.2; LWP §6.2.
#[derive(Clone, Debug, PartialEq)]
pub enum ThreadState {
    /// LWP was off, as it is in every new thread.
    Off,
    /// The XSAVE component.
    Shipped(LwpXsave),
    /// The state that the proposal keeps: the rest is in the thread's control block.
    Proposal(Volatile2007),
}

impl LwpUnit {
    /// Takes what the unit has of the thread that ran, and switches LWP off, so that nothing of it
    /// is left for the next thread: neither in the unit's registers nor as records in a ring of the
    /// wrong program.
    ///
    /// Memory is not touched: block and ring may be paged out. A kernel of the shipped form
    /// executes XSAVE and then writes 0 to `LWP_CBADDR`.
    ///
    /// Spec: P07 §5.5.2.1, §5.5.4; LWP §6.1, §6.2.
    pub fn take_thread(&mut self) -> ThreadState {
        let state = match self.processor().revision() {
            Revision::Shipped => self.xsave().map_or(ThreadState::Off, ThreadState::Shipped),
            Revision::Proposal2007 => {
                self.save_volatile().map_or(ThreadState::Off, ThreadState::Proposal)
            }
        };
        self.stop();
        state
    }

    /// Gives the unit what [`Self::take_thread`] took, on this or another core of the same kind.
    /// `cpu` is the kernel's: CPL 0. The block is read when the thread runs again: see
    /// [`Self::settle`].
    ///
    /// # Errors
    ///
    /// `#GP(0)` as for [`Self::xrstor`]. LWP is then off. The state of another form switches LWP
    /// off, too.
    ///
    /// Spec: P07 §5.5.2.4; LWP §6.1, §6.2.
    pub fn give_thread(&mut self, cpu: &Cpu, state: &ThreadState) -> Result<(), Fault> {
        self.stop();
        match (state, self.processor().revision()) {
            (ThreadState::Shipped(image), Revision::Shipped) => self.xrstor(cpu, Some(image)),
            (ThreadState::Proposal(volatile), Revision::Proposal2007) => {
                self.restore_volatile(Some(volatile.clone()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// LWP goes off, and what the unit held is lost.
    fn stop(&mut self) {
        self.restore_volatile(None);
    }
}
