//! The functions of `lwp.h` for sessions. The header documents them.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use lwp::{Lwp, Reader, Record};

use crate::failure::{Failure, reported};
use crate::options::Options;
use crate::session::Session;

/// Returns whether LWP can be used here.
#[unsafe(no_mangle)]
pub extern "C" fn lwp_available() -> c_int {
    reported(|| {
        Lwp::detect()?;
        Ok(0)
    })
}

/// Opens a session.
///
/// # Safety
///
/// `options` is NULL, or its first member says how many bytes of it can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_open(options: *const Options) -> *mut Session {
    reported(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { Options::read(options) }?;
        let lwp = Lwp::detect()?;
        let profile = options.profile(lwp)?;
        let (profile, reader, file) = if options.is_shared() {
            let (profile, reader, file) = profile.build_shared()?;
            (profile, reader, Some(file))
        } else {
            let (profile, reader) = profile.build()?;
            (profile, reader, None)
        };
        Session::create(Some((lwp, profile)), reader, file)
    })
}

/// Profiles the calling thread.
///
/// # Safety
///
/// `session` is NULL or an open session of this process or a parent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_start(session: *mut Session) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { Session::get(session) }?.control()?.start(session)?;
        Ok(0)
    })
}

/// Ends profiling of the calling thread.
///
/// # Safety
///
/// As [`lwp_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_stop(session: *mut Session) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { Session::get(session) }?.control()?.stop(session)?;
        Ok(0)
    })
}

/// Publishes what the processor still holds of the calling thread.
///
/// # Safety
///
/// As [`lwp_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_flush(session: *mut Session) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { Session::get(session) }?.control()?.flush(session)?;
        Ok(0)
    })
}

/// Takes at most `count` records out of the ring.
///
/// # Safety
///
/// As [`lwp_start`]; `records` is NULL or has room for `count` records of 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_read(
    session: *mut Session,
    records: *mut Record,
    count: usize,
) -> isize {
    reported(|| {
        // SAFETY: the caller's promise.
        let session = unsafe { Session::get(session) }?;
        let mut reader = session.reader().enter()?;
        if records.is_null() && count != 0 {
            return Err(Failure::Call(libc::EFAULT, "no place for records"));
        }
        let mut taken = 0;
        for record in reader.drain().take(count) {
            // SAFETY: `taken` is less than `count`; a record is bytes of any alignment.
            unsafe { records.add(taken).write(record) };
            taken += 1;
        }
        Ok(taken.cast_signed())
    })
}

/// Stores how many records were lost.
///
/// # Safety
///
/// As [`lwp_start`]; `missed` is NULL or has room for a number of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_missed(session: *mut Session, missed: *mut u64) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let session = unsafe { Session::get(session) }?;
        if missed.is_null() {
            return Err(Failure::Call(libc::EFAULT, "no place for the number"));
        }
        // SAFETY: the caller's promise.
        unsafe { missed.write(session.reader().enter()?.missed()) };
        Ok(0)
    })
}

/// Returns the number of records that can be unread at the same time.
///
/// # Safety
///
/// As [`lwp_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_capacity(session: *mut Session) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let capacity = unsafe { Session::get(session) }?.capacity();
        Ok(c_int::try_from(capacity).unwrap_or(c_int::MAX))
    })
}

/// The descriptor of a shared session.
///
/// # Safety
///
/// As [`lwp_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_fd(session: *mut Session) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { Session::get(session) }?.file();
        let file = file.ok_or(Failure::Call(libc::EINVAL, "the session is not shared"))?;
        Ok(file.as_raw_fd())
    })
}

/// Opens the ring of another process.
#[unsafe(no_mangle)]
pub extern "C" fn lwp_attach(descriptor: c_int) -> *mut Session {
    reported(|| {
        if descriptor < 0 {
            return Err(Failure::System(rustix::io::Errno::BADF));
        }
        // SAFETY: the number is none that stands for nothing. Where it is not open the system says
        // so, and it is not used after this call.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        Session::create(None, Reader::attach(file)?, None)
    })
}

/// Frees a session.
///
/// # Safety
///
/// As [`lwp_start`]; no other call with the session is going on or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_close(session: *mut Session) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { Session::destroy(session) }?;
        Ok(0)
    })
}
