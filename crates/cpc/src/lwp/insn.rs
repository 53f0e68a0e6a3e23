//! LLWPCB and SLWPCB of the processor this runs on.
//!
//! # Safety
//!
//! JUSTIFICATION: the instructions are the only interface to the unit. A loaded block is written by the
//! processor until another is loaded, so the thread keeps the memory alive until it has unloaded it.
#![allow(unsafe_code, reason = "see JUSTIFICATION")]

use std::arch::asm;
use std::arch::x86_64::__cpuid;
use std::cell::RefCell;
use std::sync::Arc;

use lwp_arch::cpuid::fn8000_001c::{self, Ebx, Ecx, Features};
use lwp_arch::cpuid::{Capabilities, fn8000_0001};

use super::memory::Memory;
use super::unit::Unit;
use crate::sys;

/// The processor's own unit.
#[derive(Debug)]
pub(super) struct Hardware {
    capabilities: Capabilities,
    enabled: Features,
}

/// The block a thread has loaded, kept alive for as long as the processor may write to it.
struct Loaded(Arc<Memory>);

impl Drop for Loaded {
    fn drop(&mut self) {
        if slwpcb() == self.0.address() {
            // SAFETY: 0 switches the unit off.
            unsafe { llwpcb(0) };
        }
    }
}

thread_local! {
    static LOADED: RefCell<Option<Loaded>> = const { RefCell::new(None) };
}

/// Loads the control block at `address`, or none for 0.
///
/// # Safety
///
/// The block and its ring must be memory only atomics look at, for as long as it is active. The
/// processor must have LWP, switched on.
unsafe fn llwpcb(address: u64) {
    // SAFETY: see above; the instruction changes no register and no flag.
    unsafe { asm!("llwpcb {}", in(reg) address, options(nostack, preserves_flags)) }
}

/// Flushes, and returns the address of the active block. Only on a processor that has LWP: [`Hardware`]
/// exists, or a block was loaded.
fn slwpcb() -> u64 {
    let address;
    // SAFETY: writes only to the block that is active, which `llwpcb` allowed.
    unsafe { asm!("slwpcb {}", out(reg) address, options(nostack, preserves_flags)) }
    address
}

impl Hardware {
    /// The unit of this processor, if it has one and the system has switched it on.
    pub(super) fn detect() -> Option<Self> {
        if __cpuid(0x8000_0000).eax < fn8000_001c::LEAF
            || __cpuid(fn8000_0001::LEAF).ecx & fn8000_0001::ECX_LWP == 0
        {
            return None;
        }
        let leaf = __cpuid(fn8000_001c::LEAF);
        let enabled = Features::from_bits_truncate(leaf.eax);
        let capabilities = Capabilities {
            features: Features::from_bits_truncate(leaf.edx),
            ebx: Ebx(leaf.ebx),
            ecx: Ecx::from_bits_retain(leaf.ecx),
            xsave_offset: 0,
        };
        let usable = enabled.contains(Features::LWP_AVAIL)
            && capabilities.validate().is_ok()
            && capabilities.ebx.event_size() as usize == lwp_arch::Record::SIZE;
        usable.then_some(Self { capabilities, enabled })
    }
}

impl Unit for Hardware {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn enabled(&self) -> Features {
        self.enabled
    }

    fn interrupts(&self) -> bool {
        self.enabled.contains(Features::LWP_INT) && sys::can_hear_thresholds()
    }

    fn hear(&self) -> bool {
        sys::hear_thresholds()
    }

    fn load(&self, memory: &Arc<Memory>) {
        LOADED.with(|loaded| {
            // Unloads what was loaded, also if it is the same.
            drop(loaded.take());
            // SAFETY: `Memory` is atomics throughout, and `loaded` keeps it until it is unloaded.
            unsafe { llwpcb(memory.address()) };
            *loaded.borrow_mut() = Some(Loaded(Arc::clone(memory)));
        });
    }

    fn unload(&self, memory: &Arc<Memory>) {
        // Fails while the thread ends; then it has been unloaded.
        let _ = LOADED.try_with(|loaded| {
            let ours = loaded.borrow().as_ref().is_some_and(|l| Arc::ptr_eq(&l.0, memory));
            if ours {
                drop(loaded.take());
            }
        });
    }

    fn flush(&self) -> u64 {
        slwpcb()
    }

    fn insert(&self) {
        // SAFETY: writes only to the ring of the block that is active, which `llwpcb` allowed, and to
        // the carry flag.
        unsafe { asm!("lwpins {:e}, {:e}, 0", in(reg) 0, in(reg) 0, options(nostack)) }
    }
}
