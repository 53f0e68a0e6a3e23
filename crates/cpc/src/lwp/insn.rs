//! The unit of the processor this runs on.
//!
//! # Safety
//!
//! JUSTIFICATION: [`Memory`] promises that a processor may write to it. The instructions themselves
//! are the crate `lwp`'s.
#![allow(unsafe_code, reason = "see JUSTIFICATION")]

use std::cell::RefCell;
use std::sync::Arc;

use ::lwp::Lwp;
use ::lwp::raw::{ControlBlock, Loaded};
use lwp_arch::cpuid::Capabilities;
use lwp_arch::cpuid::fn8000_001c::Features;

use super::memory::Memory;
use super::unit::Unit;
use crate::sys;

// SAFETY: the block lies in front of its ring in words that are atomics throughout, and that are
// freed when the value is dropped.
unsafe impl ControlBlock for Memory {
    fn address(&self) -> u64 {
        self.address()
    }
}

/// The processor's own unit.
#[derive(Debug)]
pub(super) struct Hardware(Lwp);

thread_local! {
    /// The block that the thread has loaded, kept alive for as long as the processor may write to
    /// it.
    static LOADED: RefCell<Option<Loaded<Memory>>> = const { RefCell::new(None) };
}

impl Hardware {
    /// The unit of this processor.
    ///
    /// # Errors
    ///
    /// The processor has none that the system has switched on, or one that this crate does not use.
    pub(super) fn detect() -> Result<Self, ::lwp::Error> {
        let lwp = Lwp::detect()?;
        let record = lwp.capabilities().ebx.event_size() as usize;
        if record != lwp_arch::Record::SIZE {
            return Err(::lwp::Error::NoLwp);
        }
        Ok(Self(lwp))
    }
}

impl Unit for Hardware {
    fn capabilities(&self) -> Capabilities {
        *self.0.capabilities()
    }

    fn enabled(&self) -> Features {
        self.0.features()
    }

    fn interrupts(&self) -> bool {
        self.enabled().contains(Features::LWP_INT) && sys::can_hear_thresholds()
    }

    fn hear(&self) -> bool {
        sys::hear_thresholds()
    }

    fn load(&self, memory: &Arc<Memory>) {
        LOADED.with(|loaded| {
            // Unloads what was loaded, also if it is the same.
            drop(loaded.take());
            *loaded.borrow_mut() = Some(Loaded::new(self.0, Arc::clone(memory)));
        });
    }

    fn unload(&self, memory: &Arc<Memory>) {
        // Fails while the thread ends; then it has been unloaded.
        let _ = LOADED.try_with(|loaded| {
            let ours =
                loaded.borrow().as_ref().is_some_and(|block| Arc::ptr_eq(block.memory(), memory));
            if ours {
                drop(loaded.take());
            }
        });
    }

    fn flush(&self) -> u64 {
        self.0.slwpcb()
    }

    fn insert(&self) {
        // Whether there was room nobody asks.
        let _ = self.0.lwpins::<0>(0, 0);
    }
}
