//! The system calls of overflow notification, and `fork`.
//!
//! # Safety
//!
//! JUSTIFICATION: installing a handler of signals, sending a signal with an address in it, and
//! hearing of `fork` are C interfaces without a safe wrapper. The handler calls only code of this
//! crate that neither allocates nor waits.
#![allow(unsafe_code, reason = "see JUSTIFICATION")]

use std::mem;
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::backend::Cause;
use crate::error::{Error, Result};
use crate::thread;

/// The signal that tells a thread of overflows, which Solaris names SIGEMT. Linux has no SIGEMT on
/// x86, so this is SIGSTKFLT, which the kernel never raises.
pub const OVERFLOW_SIGNAL: c_int = libc::SIGSTKFLT;

/// `si_code` of that signal (`EMT_CPCOVF`).
pub const EMT_CPCOVF: c_int = 1;

/// `siginfo_t` of a signal with an address, as the kernel reads it.
#[repr(C)]
struct AddressInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    _pad: c_int,
    address: u64,
    _rest: [u64; 13],
}

const _: () = assert!(mem::size_of::<AddressInfo>() == mem::size_of::<siginfo_t>());

/// Sends the signal to the calling thread, as an overflow at instruction `pc` does. Handlers may
/// call it.
pub(crate) fn raise_emt(pc: u64) {
    let info = AddressInfo {
        signo: OVERFLOW_SIGNAL,
        errno: 0,
        code: EMT_CPCOVF,
        _pad: 0,
        address: pc,
        _rest: [0; 13],
    };
    // SAFETY: the system call reads one siginfo_t, which `info` is by size and layout. It may be
    // sent with a code of the kernel's because the target is the caller itself. errno is put back,
    // for the code this may have interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        let thread = libc::syscall(libc::SYS_gettid);
        let process = libc::syscall(libc::SYS_getpid);
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process,
            thread,
            OVERFLOW_SIGNAL,
            &raw const info,
        );
        *libc::__errno_location() = errno;
    }
}

/// The signal by which this crate hears of overflows: the highest real-time signal nobody handles.
/// Its handler is installed by the first call.
///
/// # Errors
///
/// EAGAIN if every real-time signal is taken.
pub(crate) fn overflow_signal() -> Result<c_int> {
    static SIGNAL: OnceLock<Option<c_int>> = OnceLock::new();
    let signal = SIGNAL.get_or_init(|| {
        let mut signals = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev();
        signals.find(|signal| install(*signal, on_overflow))
    });
    signal.ok_or(Error::new(libc::EAGAIN, "every real-time signal has a handler already"))
}

/// The signal this crate expects for the threshold interrupt of Lightweight Profiling: the one that
/// `lwp run` sends unless told otherwise. It is not the application's own one, [`OVERFLOW_SIGNAL`].
const THRESHOLD: c_int = libc::SIGPWR;

/// Returns whether [`hear_thresholds`] would find the signal free, or has taken it.
pub(crate) fn can_hear_thresholds() -> bool {
    // SAFETY: the structure is plain data for which zero is valid; nothing is changed.
    unsafe {
        let mut now: libc::sigaction = mem::zeroed();
        libc::sigaction(THRESHOLD, ptr::null(), &raw mut now) == 0
            && (now.sa_sigaction == libc::SIG_DFL
                || now.sa_sigaction == on_threshold as *const () as usize)
    }
}

/// Handles the signal of the threshold interrupt from now on. Returns whether the signal was free.
pub(crate) fn hear_thresholds() -> bool {
    static HEARD: OnceLock<bool> = OnceLock::new();
    *HEARD.get_or_init(|| install(THRESHOLD, on_threshold)) && can_hear_thresholds()
}

/// A handler installed with SA_SIGINFO.
type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Installs a handler for `signal` unless it has one. Returns whether it did.
fn install(signal: c_int, handler: Handler) -> bool {
    // SAFETY: both structures are plain data for which zero is valid, the handler has the signature
    // that SA_SIGINFO asks for, and it is safe to run between any two instructions.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &raw mut before) != 0
            || before.sa_sigaction != libc::SIG_DFL
        {
            return false;
        }
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // The application's handler is to run after this one, on the context it interrupted.
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaddset(&raw mut action.sa_mask, OVERFLOW_SIGNAL);
        libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0
    }
}

extern "C" fn on_overflow(_signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler installed with SA_SIGINFO valid pointers. `si_fd` lies
    // behind `si_band` in the information of a descriptor's signal, which is the only kind that is
    // ever asked for with this signal; another sender at worst names a descriptor nobody has.
    let (descriptor, pc) = unsafe {
        let band = (&raw const *info).cast::<u8>().add(16);
        let descriptor = ptr::read_unaligned(band.add(8).cast::<c_int>());
        let context = &*context.cast::<ucontext_t>();
        (descriptor, context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64)
    };
    if thread::interrupted(Cause::Descriptor(descriptor), pc) {
        raise_emt(pc);
    }
}

extern "C" fn on_threshold(_signal: c_int, _info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler installed with SA_SIGINFO a valid context.
    let pc = unsafe { (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if thread::interrupted(Cause::Threshold, pc as u64) {
        raise_emt(pc as u64);
    }
}

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The time-stamp counter.
pub(crate) fn time_stamp() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 processor. A system that forbids it raises SIGSEGV, as
    // for any program.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Has children of `fork` forget what the forking thread had bound.
pub(crate) fn forget_in_children() {
    extern "C" fn child() {
        thread::forget_after_fork();
    }
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        // SAFETY: the handler may run in any child; it touches thread-local state of this crate
        // only.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
}
