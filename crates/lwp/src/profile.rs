//! Running a profile on a thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lwp_arch::EventFlags;

use crate::detect::Lwp;
use crate::error::Error;
use crate::insn::Active;
use crate::ring::{Region, Words};

/// A control block with its ring, ready to be run by one thread at a time.
pub struct Profile {
    lwp: Lwp,
    region: Arc<Region>,
    wanted: EventFlags,
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = format_args!("{:#x}", self.region.address());
        f.debug_struct("Profile").field("lwpcb", &address).field("wanted", &self.wanted).finish()
    }
}

impl Profile {
    pub(crate) const fn new(lwp: Lwp, region: Arc<Region>, wanted: EventFlags) -> Self {
        Self { lwp, region, wanted }
    }

    #[cfg(test)]
    pub(crate) const fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Runs the profile on the calling thread until what is returned is dropped. Counters and ring
    /// go on from where they were when it last ran.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if this thread runs a profile already. [`Error::NotGranted`] if the
    /// processor does not grant what it listed when the profile was made, or leaves LWP off; it
    /// does not run then.
    ///
    /// Spec: LWP §5.3.
    pub fn start(&mut self) -> Result<Running<'_>, Error> {
        Ok(Running { active: self.activate()?, profile: self })
    }

    /// As [`Self::start`], for callers that keep the profile and what runs of it in one place.
    /// Nothing is allocated. Nobody but the caller sees to it that a profile runs on one thread at
    /// a time: two would overwrite each other's records.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    ///
    /// Spec: LWP §5.3.
    pub fn activate(&self) -> Result<Active, Error> {
        if self.lwp.is_active() {
            return Err(Error::Busy);
        }
        let active = Active::load(self.lwp, Arc::clone(&self.region));
        let granted = EventFlags::from_bits_retain(self.region.load(0, Ordering::Relaxed));
        // A processor that cannot profile the thread leaves LWP off.
        if granted != self.wanted || !self.lwp.is_active() {
            return Err(Error::NotGranted);
        }
        Ok(active)
    }
}

/// A profile that runs on this thread. Dropping it ends profiling.
#[derive(Debug)]
pub struct Running<'profile> {
    active: Active,
    profile: &'profile mut Profile,
}

impl Running<'_> {
    /// Makes everything the processor still holds visible in the ring: records, head and counters.
    /// A reader on the same thread does this before it reads.
    ///
    /// Spec: LWP §5.4.
    pub fn flush(&self) {
        self.profile.lwp.slwpcb();
    }

    /// Ends profiling. Everything is in the ring then.
    pub fn stop(self) {
        drop(self.active);
    }
}
