//! The targets of C pointers.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use cpc::Error;

use crate::errno::invalid;

/// A kind of object that C code has pointers to.
pub(crate) trait Kind: Sized + 'static {
    /// The first word of a live object.
    const TAG: u64;
    /// Memory of destroyed objects, the longest unused first.
    fn spares() -> &'static Mutex<VecDeque<Spare<Self>>>;
}

/// An object, or the place of one. Its memory is never given back, only to another object of the
/// kind.
#[repr(C)]
pub struct Object<T> {
    tag: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

/// Memory of a destroyed object.
pub(crate) struct Spare<T>(*mut Object<T>);

// SAFETY: nobody uses the memory of a destroyed object; the pointer says only where it is.
unsafe impl<T> Send for Spare<T> {}

impl<T: Kind> Object<T> {
    /// A live object with this value.
    pub(crate) fn create(value: T) -> *mut Self {
        let spare = lock(T::spares()).pop_front();
        let Some(Spare(object)) = spare else {
            let object = Self { tag: AtomicU64::new(T::TAG), value: UnsafeCell::new(Some(value)) };
            return Box::into_raw(Box::new(object));
        };
        // SAFETY: the memory was an object of this kind, came from `Box::into_raw`, and has no
        // user.
        unsafe {
            *(*object).value.get() = Some(value);
            (*object).tag.store(T::TAG, SeqCst);
        }
        object
    }

    /// Takes the value out of a live object; the memory is kept for another.
    ///
    /// # Safety
    ///
    /// `object` is live, and no call uses it: what the interface asks of a caller that destroys
    /// one.
    pub(crate) unsafe fn destroy(object: *mut Self) -> Option<T> {
        // SAFETY: the caller's promise.
        let value = unsafe {
            (*object).tag.store(0, SeqCst);
            (*(*object).value.get()).take()
        };
        lock(T::spares()).push_back(Spare(object));
        value
    }
}

/// The object that `pointer` points to.
///
/// # Errors
///
/// EINVAL for NULL, for a destroyed object, and for an object of another kind.
///
/// # Safety
///
/// `pointer` is NULL or points to memory this library has handed out, and no other thread destroys
/// the object while it is used.
pub(crate) unsafe fn get<'a, T: Kind>(pointer: *const Object<T>) -> Result<&'a T, Error> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(invalid("NULL in place of an object"));
    }
    // SAFETY: memory that was handed out is never given back, and starts with a tag.
    let live = unsafe { (*pointer).tag.load(SeqCst) } == T::TAG;
    // SAFETY: a live object is written only by `create` and `destroy`.
    let value = if live { unsafe { (*(*pointer).value.get()).as_ref() } } else { None };
    value.ok_or(invalid("the object was destroyed, or is of another kind"))
}

/// Locks; nothing behind these locks is left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
