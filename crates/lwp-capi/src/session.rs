//! The target of a `struct lwp_session *`.
//!
//! A session lies alone in a page that a fork clears (`MADV_WIPEONFORK`): a child finds no session
//! there, whichever way it was made, and nothing of what belongs to the parent.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lwp::{Lwp, Profile, Reader};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::control::Control;
use crate::failure::Failure;

/// The tag of a session as long as it is there: "lwp" and a number.
const LIVE: u64 = 0x6C77_7000_0000_0001;
const PAGE: usize = 4096;

/// An open session.
#[repr(C)]
pub struct Session {
    tag: AtomicU64,
    /// `None` where the ring is another process's.
    control: Option<Alone<Control>>,
    reader: Alone<Reader>,
    /// Records that can be unread at the same time.
    capacity: u32,
    file: Option<OwnedFd>,
}

const _: () = assert!(mem::size_of::<Session>() <= PAGE && mem::align_of::<Session>() <= PAGE);

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("lwp_session")
    }
}

impl Session {
    /// Puts a session into a page of its own.
    pub(crate) fn create(
        profile: Option<(Lwp, Profile)>,
        reader: Reader,
        file: Option<OwnedFd>,
    ) -> Result<*mut Self, Failure> {
        let page = Page::new()?;
        let control = profile.map(|(lwp, profile)| Alone::new(Control::new(lwp, profile)));
        let (tag, capacity) = (AtomicU64::new(LIVE), reader.capacity());
        let session = Self { tag, control, reader: Alone::new(reader), capacity, file };
        let place = page.keep().cast::<Self>();
        // SAFETY: the page is this session's alone, large enough and aligned.
        unsafe { place.write(session) };
        Ok(place)
    }

    /// The reader of the session's records.
    pub(crate) fn reader(&self) -> &Alone<Reader> {
        &self.reader
    }

    /// Records that can be unread at the same time.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The file that other processes can attach to, if the session has one.
    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// The session behind `place`.
    ///
    /// # Safety
    ///
    /// `place` is NULL or was returned by [`Self::create`] in this process or a parent, and is not
    /// destroyed as long as the result is used.
    pub(crate) unsafe fn get<'a>(place: *mut Self) -> Result<&'a Self, Failure> {
        // SAFETY: the caller's promise. In a child the page is there and zero, and nothing but the
        // tag is looked at.
        if place.is_null() || unsafe { &(*place).tag }.load(Ordering::Relaxed) != LIVE {
            return Err(Failure::Call(libc::EINVAL, "no session of this process"));
        }
        // SAFETY: the tag says that the session is there.
        Ok(unsafe { &*place })
    }

    /// The guard of that which starts and stops the session.
    pub(crate) fn control(&self) -> Result<Guard<'_, Control>, Failure> {
        let control = self.control.as_ref();
        let control = control
            .ok_or(Failure::Call(libc::EINVAL, "the ring is another process's: it is only read"))?;
        control.enter()
    }

    /// Frees the session, unless it runs on another thread.
    ///
    /// # Safety
    ///
    /// As [`Self::get`]; no other call uses the session now or later.
    pub(crate) unsafe fn destroy(place: *mut Self) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let session = unsafe { Self::get(place) }?;
        if session.control.is_some() {
            session.control()?.end(place)?;
        }
        // SAFETY: the caller's promise: nobody else uses it; the page is the session's alone.
        unsafe {
            ptr::drop_in_place(place);
            drop(Page(place.cast()));
        }
        Ok(())
    }
}

/// A mapped page that a fork clears.
struct Page(*mut c_void);

impl Page {
    fn new() -> Result<Self, Failure> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice overlays nothing, and the
        // advice changes nothing in this process.
        unsafe {
            let page = Self(mmap_anonymous(ptr::null_mut(), PAGE, rights, flags)?);
            madvise(page.0, PAGE, Advice::LinuxWipeOnFork)?;
            Ok(page)
        }
    }

    fn keep(self) -> *mut c_void {
        let place = self.0;
        mem::forget(self);
        place
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: whoever has the page says by dropping it that nobody uses it. A failure leaves it
        // mapped.
        let _ = unsafe { munmap(self.0, PAGE) };
    }
}

/// A thing that only one call at a time may use. Whoever comes second is refused and does not wait:
/// it may be a handler that has interrupted the first.
pub(crate) struct Alone<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

impl<T> Alone<T> {
    const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub(crate) fn enter(&self) -> Result<Guard<'_, T>, Failure> {
        if self.taken.swap(true, Ordering::Acquire) {
            return Err(Failure::Call(
                libc::EBUSY,
                "another call with the session is not finished",
            ));
        }
        Ok(Guard(self))
    }
}

/// The right to use the value.
pub(crate) struct Guard<'a, T>(&'a Alone<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `taken` is set and this guard's, so there is no other reference to the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}
