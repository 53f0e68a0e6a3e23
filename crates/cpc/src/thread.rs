//! The bindings of the calling thread.
//!
//! A thread has at most one set of its own. Handlers of signals may call this crate, so no call
//! waits for another one of the same thread: a handler that interrupts a call gets EAGAIN. The
//! handler by which this crate itself hears of overflows does not even run into that: it leaves a
//! note, and the interrupted call deals with it before it returns.

use std::cell::{Cell, RefCell};
use std::mem;
use std::sync::Arc;

use crate::backend::{Cause, Target};
use crate::binding::Binding;
use crate::control;
use crate::error::{Error, Result};
use crate::set::SetState;
use crate::sys;

/// A note of the handler: what happened, and at which instruction.
type Note = Cell<Option<(Cause, u64)>>;

struct State {
    /// A call of this crate is under way.
    busy: Cell<bool>,
    /// The events meanwhile, by kind; of several of a kind one is enough.
    descriptor: Note,
    threshold: Note,
    bound: RefCell<Option<Bound>>,
    /// The binding before. A handler of a signal must not free it, so that is left to a call
    /// that allocates anyway; see [`clean_up`].
    past: RefCell<Option<Bound>>,
}

/// The set a thread has bound to itself.
struct Bound {
    binding: Binding,
    inherit: bool,
    released: bool,
}

impl Bound {
    /// Gives the counters back and frees nothing.
    fn release(&mut self) {
        if !mem::replace(&mut self.released, true) {
            self.binding.release();
            self.binding.set().thread_unbound();
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.release();
    }
}

thread_local! {
    static STATE: State = const {
        State {
            busy: Cell::new(false),
            descriptor: Cell::new(None),
            threshold: Cell::new(None),
            bound: RefCell::new(None),
            past: RefCell::new(None),
        }
    };
}

/// A call of this crate that is under way. When it ends, what happened meanwhile is dealt with.
pub(crate) struct Guard(());

/// Begins a call.
///
/// # Errors
///
/// EAGAIN if the thread is in a call already: this one comes from a handler that interrupted it.
pub(crate) fn enter() -> Result<Guard> {
    STATE.with(|state| {
        if state.busy.replace(true) {
            return Err(Error::new(
                libc::EAGAIN,
                "called by a handler that interrupted this library",
            ));
        }
        Ok(Guard(()))
    })
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Fails only while the thread ends.
        let _ = STATE.try_with(|state| {
            loop {
                state.busy.set(false);
                // An overflow from here on finds the thread not busy and is dealt with at once.
                let note = state.descriptor.take().or_else(|| state.threshold.take());
                let Some((cause, pc)) = note else {
                    break;
                };
                state.busy.set(true);
                if state.attend(cause) {
                    state.busy.set(false);
                    sys::raise_emt(pc);
                }
            }
        });
    }
}

impl State {
    /// Ends the binding without freeing it.
    fn end(&self) {
        let mut past = self.past.borrow_mut();
        // Binding has cleaned up, so there is nothing yet; otherwise more than one would be freed
        // here.
        if let Some(mut bound) = self.bound.borrow_mut().take() {
            bound.release();
            *past = Some(bound);
        }
    }

    /// Deals with `cause`; returns whether the application is to be signalled.
    fn attend(&self, cause: Cause) -> bool {
        let Ok(mut bound) = self.bound.try_borrow_mut() else {
            return false;
        };
        bound.as_mut().is_some_and(|bound| bound.binding.attend(cause))
    }
}

/// Called by the handler of this crate's own signal. Returns whether the application is to be
/// signalled now.
pub(crate) fn interrupted(cause: Cause, pc: u64) -> bool {
    let attend = |state: &State| {
        if state.busy.get() {
            let note = match cause {
                Cause::Descriptor(_) => &state.descriptor,
                Cause::Threshold => &state.threshold,
            };
            note.set(Some((cause, pc)));
            return false;
        }
        state.attend(cause)
    };
    STATE.try_with(attend).unwrap_or(false)
}

/// Returns whether a threshold has been signalled during the call that is under way.
pub(crate) fn threshold_noted() -> bool {
    STATE.with(|state| {
        let note = state.threshold.take();
        state.threshold.set(note);
        note.is_some()
    })
}

/// Does `work` with the binding of the calling thread, if it has one and its owner has not given
/// the set up. Within [`enter`].
pub(crate) fn with<T>(work: impl FnOnce(&mut Binding) -> T) -> Option<T> {
    STATE.with(|state| {
        let given_up = |bound: &Bound| bound.binding.set().is_destroyed();
        if state.bound.borrow().as_ref().is_some_and(given_up) {
            state.end();
        }
        state.bound.borrow_mut().as_mut().map(|bound| work(&mut bound.binding))
    })
}

/// Frees what the calling thread has unbound. Within [`enter`], and not by a call that handlers of
/// signals may make.
pub(crate) fn clean_up() {
    // Fails only while the thread ends.
    let _ = STATE.try_with(|state| drop(state.past.take()));
}

/// Binds `set` to the calling thread, in place of what it had bound. Within [`enter`].
pub(crate) fn bind(set: &Arc<SetState>, inherit: bool) -> Result<()> {
    sys::forget_in_children();
    unbind_if(|_| true);
    clean_up();
    let binding = Binding::new(set, Target::ThisThread)?;
    keep(binding, inherit);
    Ok(())
}

fn keep(binding: Binding, inherit: bool) {
    binding.set().thread_bound();
    STATE.with(|state| {
        *state.bound.borrow_mut() = Some(Bound { binding, inherit, released: false })
    });
}

/// Ends the binding of the calling thread if it is one `which` means. Within [`enter`].
pub(crate) fn unbind_if(which: impl FnOnce(&Binding) -> bool) -> bool {
    let unbind = |state: &State| {
        let meant = state.bound.borrow().as_ref().is_some_and(|bound| which(&bound.binding));
        if meant {
            state.end();
        }
        meant
    };
    STATE.try_with(unbind).unwrap_or(false)
}

/// Forgets what the thread that called `fork` had bound: its counters are the parent's, which go
/// on.
pub(crate) fn forget_after_fork() {
    let _ = STATE.try_with(|state| {
        state.descriptor.set(None);
        state.threshold.set(None);
        if let Ok(mut bound) = state.bound.try_borrow_mut()
            && let Some(mut bound) = bound.take()
        {
            // Only what is this process's own is dropped: descriptors.
            bound.released = true;
            bound.binding.set().thread_unbound();
        }
    });
}

/// The binding that a thread passes on to the threads that it creates.
#[derive(Debug)]
pub struct Inheritance {
    set: Arc<SetState>,
    presets: Vec<u64>,
}

/// Returns the binding that threads created by the calling thread should inherit: its set, if it
/// was bound with [`crate::BindFlags::INHERIT`], otherwise `None`.
///
/// A Rust program calls this before it creates a thread, and [`Inheritance::bind`] at the beginning
/// of that thread. The C library does both for every `pthread_create`.
#[must_use]
pub fn inherit() -> Option<Inheritance> {
    let _guard = enter().ok()?;
    STATE.with(|state| {
        let bound = state.bound.borrow();
        let bound = bound.as_ref().filter(|bound| bound.inherit)?;
        if bound.binding.set().is_destroyed() {
            return None;
        }
        let presets = bound.binding.presets().to_vec();
        Some(Inheritance { set: Arc::clone(bound.binding.set()), presets })
    })
}

impl Inheritance {
    /// Binds a copy of the set to the calling thread, which passes it on in turn. If the set
    /// signals overflows, the thread gets a signal immediately, with counters that are one short of
    /// an overflow.
    ///
    /// # Errors
    ///
    /// As [`crate::Set::bind_thread`].
    pub fn bind(self) -> Result<()> {
        let guard = enter()?;
        unbind_if(|_| true);
        clean_up();
        let mut binding = Binding::new(&self.set, Target::ThisThread)?;
        binding.inherit(&self.presets)?;
        let frozen = binding.is_frozen();
        keep(binding, true);
        drop(guard);
        if frozen {
            sys::raise_emt(0);
        }
        Ok(())
    }
}

/// Stops the counters that the calling thread has bound, until [`resume`]. They keep their values.
/// If the thread has bound none, but a controlling process has bound some to it, this stops those;
/// see [`crate::SwitchRequests`].
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there are no counters, or they
/// are already stopped; `TryAgain` if counts were lost, or the controlling process doesn't answer.
pub fn pause() -> Result<()> {
    enable(false)
}

/// Resumes the counters that [`pause`] has stopped.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there are no counters, or they
/// are already running; `TryAgain` if counts were lost, or the controlling process doesn't answer.
pub fn resume() -> Result<()> {
    enable(true)
}

/// Lets the counters that the calling thread has bound run (`cpc_enable`) or stand still
/// (`cpc_disable`). Values are kept. If it has bound none, but a controlling process has bound some
/// to it, it is about those; see [`crate::SwitchRequests`].
///
/// # Errors
///
/// EINVAL if there are none, or they do so already; EAGAIN if the counts were lost, or the
/// controlling process does not answer.
pub fn enable(running: bool) -> Result<()> {
    let _guard = enter()?;
    with(|binding| binding.enable(running)).unwrap_or_else(|| control::ask(running))
}

/// Changes the preset of request `index` of the set the calling thread has bound, whichever that
/// is, from its next restart on (`cpc_request_preset`).
///
/// # Errors
///
/// EINVAL if the thread has bound nothing, or there is no such request.
pub fn request_preset(index: usize, preset: u64) -> Result<()> {
    let _guard = enter()?;
    let result = with(|binding| binding.set_preset(index, preset));
    result.unwrap_or(Err(Error::invalid("the thread has no counters")))
}
