//! Failures as a C program learns of them: a value, `errno`, and a text.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::fmt::{self, Write};
use std::ptr;

/// The reason why a call failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The crate refused a profile, or a name for code.
    Lwp(lwp::Error),
    /// The system refused something else.
    System(rustix::io::Errno),
    /// The call itself is wrong, or comes at a wrong time: number and text.
    Call(c_int, &'static str),
}

impl Failure {
    fn errno(self) -> c_int {
        match self {
            Self::Lwp(error) => error.errno(),
            Self::System(errno) => errno.raw_os_error(),
            Self::Call(errno, _) => errno,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lwp(error) => error.fmt(f),
            Self::System(errno) => errno.fmt(f),
            Self::Call(_, text) => f.write_str(text),
        }
    }
}

impl From<lwp::Error> for Failure {
    fn from(error: lwp::Error) -> Self {
        Self::Lwp(error)
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno)
    }
}

/// Text in a fixed place, so that a failure needs no memory. What does not fit is cut off between
/// characters; the last byte is always the NUL.
#[derive(Clone, Copy)]
#[repr(C)]
struct Text {
    bytes: [u8; 256],
    used: usize,
}

impl Text {
    const EMPTY: Self = Self { bytes: [0; 256], used: 0 };
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.used;
        let fits = text.floor_char_boundary(room);
        self.bytes[self.used..self.used + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.used += fits;
        if fits < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

thread_local! {
    static LAST: Cell<Text> = const { Cell::new(Text::EMPTY) };
}

/// The reason why the last failed call of this thread failed.
#[unsafe(no_mangle)]
pub extern "C" fn lwp_last_error() -> *const c_char {
    // The text is the first member, and ends with NUL.
    LAST.with(|last| last.as_ptr().cast_const().cast())
}

/// The value that a function of the interface returns when it fails.
pub(crate) trait Refusal {
    /// -1, or NULL.
    const REFUSAL: Self;
}

impl Refusal for c_int {
    const REFUSAL: Self = -1;
}

impl Refusal for isize {
    const REFUSAL: Self = -1;
}

impl<T> Refusal for *mut T {
    const REFUSAL: Self = ptr::null_mut();
}

/// The calling thread's `errno`.
fn errno() -> *mut c_int {
    // SAFETY: asks nothing of its caller; the place lives as long as the thread.
    unsafe { libc::__errno_location() }
}

/// Does `call`. If it fails, `errno` and the thread's text say why; if not, `errno` is what it was.
pub(crate) fn reported<T: Refusal>(call: impl FnOnce() -> Result<T, Failure>) -> T {
    // SAFETY: see `errno`. Nobody holds a reference to it.
    let before = unsafe { *errno() };
    let (result, after) = match call() {
        Ok(result) => (result, before),
        Err(failure) => {
            let mut text = Text::EMPTY;
            // What does not fit is left out.
            let _ = write!(text, "{failure}");
            LAST.set(text);
            (T::REFUSAL, failure.errno())
        }
    };
    // SAFETY: as above.
    unsafe { *errno() = after };
    result
}
