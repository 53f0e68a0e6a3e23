//! Faults as the kernel shows them to a program.

use lwp_arch::Fault;
use lwp_process::sys::SigInfo;
use lwp_process::{Errno, Tid, sys};

/// The signal information of SIGSEGV for a fault: an address and whether a page was there for #PF,
/// neither for #GP. A unit that is always enabled raises no other.
pub fn information(fault: Fault) -> SigInfo {
    match fault {
        Fault::Pf(fault) => {
            let code = if fault.present { SEGV_ACCERR } else { SEGV_MAPERR };
            SigInfo::fault(libc::SIGSEGV, code, fault.address.0)
        }
        _ => SigInfo::fault(libc::SIGSEGV, SI_KERNEL, 0),
    }
}

const SI_KERNEL: i32 = 0x80;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;

/// Makes SIGSEGV pending for a stopped thread, so that its next step stops to deliver it.
///
/// A fault ignores that SIGSEGV is blocked; then it is deadly, handler or not.
///
/// # Errors
///
/// The thread is gone.
#[allow(clippy::print_stderr, reason = "the oracle is a tool of tests")]
pub fn raise(pid: i32, tid: Tid) -> Result<(), Errno> {
    const SEGV_BIT: u64 = 1 << (libc::SIGSEGV - 1);
    if sys::get_sigmask(tid)? & SEGV_BIT != 0 {
        eprintln!("lwp-reference: a record's fault while SIGSEGV is blocked ends the program");
        return sys::kill(pid, libc::SIGKILL);
    }
    sys::tgkill(pid, tid, libc::SIGSEGV)
}
