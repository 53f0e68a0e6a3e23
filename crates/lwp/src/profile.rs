//! Runs a profile on a thread.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lwp_arch::EventFlags;

use crate::detect::Lwp;
use crate::error::Error;
use crate::insn::Loaded;
use crate::ring::{Region, Words};

/// A control block with its ring. Only one thread can run it at a time.
///
/// [`Lwp::profile`] makes one.
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

    /// Runs the profile on the calling thread until the result is dropped. Counters and ring
    /// continue where they were when the profile last ran.
    ///
    /// ```no_run
    /// # fn work() {}
    /// use lwp::{EventKind, Lwp};
    ///
    /// let (mut profile, mut reader) =
    ///     Lwp::detect()?.profile().event(EventKind::InstructionsRetired, 1000).build()?;
    /// let running = profile.start()?;
    /// work();
    /// running.stop();
    /// println!("{} records", reader.drain().count());
    /// # Ok::<(), lwp::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if this thread already runs a profile, and [`Error::Running`] if an
    /// [`Active`] of this profile still exists. [`Error::NotGranted`] if the processor leaves LWP
    /// off, or doesn't grant everything that it listed when the profile was built; the profile
    /// doesn't run then.
    ///
    /// Spec: LWP §5.3.
    pub fn start(&mut self) -> Result<Running<'_>, Error> {
        Ok(Running { active: self.activate()?, _profile: PhantomData })
    }

    /// Runs the profile on the calling thread, as [`Self::start`] does, but returns a value that
    /// doesn't borrow the profile, so that a structure can hold both. This allocates nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::start`]. While an [`Active`] of this profile exists on any thread, further calls
    /// fail with [`Error::Running`] or, on the same thread, with [`Error::Busy`].
    ///
    /// Spec: LWP §5.3.
    pub fn activate(&self) -> Result<Active, Error> {
        if self.lwp.is_active() {
            return Err(Error::Busy);
        }
        if !self.region.claim() {
            return Err(Error::Running);
        }
        let loaded = Loaded::new(self.lwp, Arc::clone(&self.region));
        let active = Active { lwp: self.lwp, loaded: Some(loaded) };
        let granted = EventFlags::from_bits_retain(self.region.load(0, Ordering::Relaxed));
        // A processor that cannot profile the thread leaves LWP off.
        if granted != self.wanted || !self.lwp.is_active() {
            return Err(Error::NotGranted);
        }
        Ok(active)
    }
}

/// A profile that runs on this thread and borrows its [`Profile`]. Dropping it ends profiling.
#[derive(Debug)]
#[must_use = "profiling ends when this is dropped"]
pub struct Running<'profile> {
    active: Active,
    _profile: PhantomData<&'profile mut Profile>,
}

impl Running<'_> {
    /// Writes everything that the processor still holds to memory: records, head and counters. Call
    /// this before you read on the same thread; readers elsewhere see a record some time after it
    /// was made.
    ///
    /// Spec: LWP §5.4.
    pub fn flush(&self) {
        self.active.flush();
    }

    /// Ends profiling. All records are in the ring then.
    pub fn stop(self) {
        drop(self);
    }
}

/// A profile that runs on this thread, without a borrow of its [`Profile`]. Dropping it ends
/// profiling.
///
/// [`Profile::activate`] makes one. If you leak it (with [`std::mem::forget`], for example), the
/// processor continues to write to the ring, which is then never freed, and the profile can't run
/// again.
#[derive(Debug)]
#[must_use = "profiling ends when this is dropped"]
pub struct Active {
    lwp: Lwp,
    /// Present until the value is dropped.
    loaded: Option<Loaded<Region>>,
}

impl Active {
    /// Makes everything that the processor still holds visible in the ring, as
    /// [`Running::flush`] does.
    ///
    /// Spec: LWP §5.4.
    pub fn flush(&self) {
        self.lwp.slwpcb();
    }

    /// Ends profiling. All records are in the ring then.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            let region = Arc::clone(loaded.memory());
            // The processor lets go of the block before another thread may claim it.
            drop(loaded);
            region.unclaim();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::detect::tests::part;
    use lwp_arch::cpuid::presets;

    /// A profile is claimed while an `Active` of it lives, whichever thread has that.
    #[test]
    fn a_profile_runs_once_at_a_time() {
        let (profile, _) = part(presets::FULL).profile().build().unwrap();
        let region = profile.region();
        assert!(region.claim());
        std::thread::scope(|scope| {
            #[allow(clippy::disallowed_methods, reason = "a test without a thread fails")]
            scope.spawn(|| assert!(!region.claim(), "another thread runs it"));
        });
        region.unclaim();
        assert!(region.claim(), "it can run again");
    }
}
