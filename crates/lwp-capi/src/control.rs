//! Starting and stopping: which session runs on which thread.

use std::cell::Cell;
use std::ptr;
use std::thread;

use lwp::{Active, Lwp, Profile};

use crate::failure::Failure;
use crate::session::Session;

/// A profile, and what runs of it.
pub(crate) struct Control {
    lwp: Lwp,
    profile: Profile,
    running: Option<Active>,
}

/// The session that runs on a thread; null without one. A thread that ends stops its session, so
/// that others can use it on.
struct Mine(Cell<*mut Session>);

thread_local! {
    static MINE: Mine = const { Mine(Cell::new(ptr::null_mut())) };
}

impl Drop for Mine {
    fn drop(&mut self) {
        // SAFETY: as long as a session runs on this thread, nobody else frees it; what a parent
        // process has left here is a page of zeros.
        let Ok(session) = (unsafe { Session::get(self.0.get()) }) else { return };
        // Others may hold the control for a moment, to find that they cannot have it.
        for _ in 0..1000 {
            if let Ok(mut control) = session.control() {
                control.running = None;
                return;
            }
            thread::yield_now();
        }
    }
}

/// Returns whether `session` runs on the calling thread. What is said of a session that does not
/// run is no matter.
fn is_mine(session: *mut Session) -> bool {
    MINE.try_with(|mine| mine.0.get() == session).unwrap_or(false)
}

impl Control {
    pub(crate) const fn new(lwp: Lwp, profile: Profile) -> Self {
        Self { lwp, profile, running: None }
    }

    /// Runs the profile on the calling thread. `session` is the session that has this control.
    pub(crate) fn start(&mut self, session: *mut Session) -> Result<(), Failure> {
        if self.running.is_some() {
            return Err(Failure::Call(libc::EBUSY, "the session runs already"));
        }
        // Asked for first: what a thread keeps of this library is allocated then, and not while it
        // is profiled.
        let started = MINE.try_with(|mine| {
            let active = self.profile.activate()?;
            mine.0.set(session);
            Ok::<Active, Failure>(active)
        });
        let started = started.map_err(|_| Failure::Call(libc::EAGAIN, "the thread is ending"))?;
        self.running = Some(started?);
        Ok(())
    }

    pub(crate) fn stop(&mut self, session: *mut Session) -> Result<(), Failure> {
        self.check_runs_here(session)?;
        self.finish();
        Ok(())
    }

    pub(crate) fn flush(&self, session: *mut Session) -> Result<(), Failure> {
        self.check_runs_here(session)?;
        self.lwp.slwpcb();
        Ok(())
    }

    /// Stops what runs on this thread, so that the session can be freed.
    pub(crate) fn end(&mut self, session: *mut Session) -> Result<(), Failure> {
        if self.running.is_some() {
            if !is_mine(session) {
                return Err(Failure::Call(libc::EBUSY, "the session runs on another thread"));
            }
            self.finish();
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.running = None;
        let _ = MINE.try_with(|mine| mine.0.set(ptr::null_mut()));
    }

    fn check_runs_here(&self, session: *mut Session) -> Result<(), Failure> {
        if self.running.is_none() {
            return Err(Failure::Call(libc::EINVAL, "the session does not run"));
        }
        if !is_mine(session) {
            return Err(Failure::Call(libc::EPERM, "the session runs on another thread"));
        }
        Ok(())
    }
}
