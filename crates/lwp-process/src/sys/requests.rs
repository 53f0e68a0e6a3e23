//! ptrace(2), one function per request.

use std::mem::zeroed;

use super::{Result, check};

fn ptrace(request: libc::c_uint, tid: i32, addr: usize, data: usize) -> Result<libc::c_long> {
    // SAFETY: the callers below pass, for each request, either plain numbers or pointers to live
    // buffers of the request's size.
    check(unsafe { libc::ptrace(request, tid, addr, data) })
}

/// A request that the kernel does not know; see [`crate::wards`].
pub(crate) fn ptrace_request(request: u64, pid: i32, addr: u64, data: u64) -> Result<i64> {
    ptrace(request as libc::c_uint, pid, addr as usize, data as usize)
}

/// A request that the kernel does not know and that stores four words. `None` if the answer says
/// that it has stored none.
pub(crate) fn ptrace_words(request: u64, pid: i32) -> Result<Option<[u64; 4]>> {
    let mut words = [0u64; 4];
    let stored = ptrace(request as libc::c_uint, pid, (&raw mut words).addr(), 0)?;
    Ok((stored != 0).then_some(words))
}

/// PTRACE_SEIZE with options.
///
/// # Errors
///
/// The kernel's: `EPERM` if the process may not be traced, or is traced already.
pub fn seize(tid: i32, options: i32) -> Result<()> {
    ptrace(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

/// PTRACE_SETOPTIONS.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_options(tid: i32, options: i32) -> Result<()> {
    ptrace(libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

/// PTRACE_INTERRUPT.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended.
pub fn interrupt(tid: i32) -> Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// PTRACE_CONT, delivering `signal`.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn cont(tid: i32, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// PTRACE_SINGLESTEP, delivering `signal`.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn single_step(tid: i32, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize).map(drop)
}

/// PTRACE_SYSCALL: run to the next system call entry or exit.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn cont_syscall(tid: i32, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_SYSCALL, tid, 0, signal as usize).map(drop)
}

/// PTRACE_LISTEN: stay stopped, but notice SIGCONT.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn listen(tid: i32) -> Result<()> {
    ptrace(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// PTRACE_DETACH, delivering `signal`.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn detach(tid: i32, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// PTRACE_GETREGS.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn get_regs(tid: i32) -> Result<libc::user_regs_struct> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut regs: libc::user_regs_struct = unsafe { zeroed() };
    ptrace(libc::PTRACE_GETREGS, tid, 0, (&raw mut regs).addr())?;
    Ok(regs)
}

/// PTRACE_SETREGS.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_regs(tid: i32, regs: &libc::user_regs_struct) -> Result<()> {
    ptrace(libc::PTRACE_SETREGS, tid, 0, (&raw const *regs).addr()).map(drop)
}

/// Note type of the register set that XSAVE knows.
const NT_X86_XSTATE: usize = 0x202;
/// More than any processor's XSAVE image takes.
const EXTENDED_BYTES: usize = 16 * 1024;

/// PTRACE_GETREGSET of the floating-point and vector state, as an XSAVE image.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn get_extended_state(tid: i32) -> Result<Vec<u8>> {
    let mut image = vec![0u8; EXTENDED_BYTES];
    let mut io = libc::iovec { iov_base: image.as_mut_ptr().cast(), iov_len: image.len() };
    ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, (&raw mut io).addr())?;
    image.truncate(io.iov_len);
    Ok(image)
}

/// PTRACE_SETREGSET of what [`get_extended_state`] returned.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_extended_state(tid: i32, image: &[u8]) -> Result<()> {
    let base = image.as_ptr().cast_mut().cast();
    let mut io = libc::iovec { iov_base: base, iov_len: image.len() };
    ptrace(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, (&raw mut io).addr()).map(drop)
}

/// Writes one word of the user area: a register by its offset in `struct user`.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn poke_user(tid: i32, offset: usize, value: u64) -> Result<()> {
    ptrace(libc::PTRACE_POKEUSER, tid, offset, value as usize).map(drop)
}

/// PTRACE_POKEDATA: writes a word even where the tracee may not write.
///
/// # Errors
///
/// The kernel's: `EIO` if nothing is mapped there.
pub fn poke_data(tid: i32, address: u64, value: u64) -> Result<()> {
    ptrace(libc::PTRACE_POKEDATA, tid, address as usize, value as usize).map(drop)
}

/// PTRACE_GETEVENTMSG.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn event_message(tid: i32) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, (&raw mut message).addr())?;
    Ok(message)
}

/// PTRACE_GET_RSEQ_CONFIGURATION: the address of the area that a thread has registered by rseq(2).
/// `None` if it has registered nothing.
///
/// # Errors
///
/// The kernel's: `EIO` before Linux 5.13, `ESRCH` if the thread has ended or does not stand still.
pub fn rseq_area(tid: i32) -> Result<Option<u64>> {
    const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
    // Address; size and signature; flags and padding.
    let mut words = [0u64; 3];
    let bytes = size_of_val(&words);
    ptrace(GET_RSEQ_CONFIGURATION, tid, bytes, (&raw mut words).addr())?;
    let [address, ..] = words;
    Ok((address != 0).then_some(address))
}

/// What PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG sets: see prctl(PR_SET_SYSCALL_USER_DISPATCH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserDispatchRequest {
    /// 0 for off.
    pub mode: u64,
    /// The address of the byte that says what becomes of calls.
    pub selector: u64,
    /// The address of the first instruction of the range.
    pub offset: u64,
    /// The bytes of the range.
    pub bytes: u64,
}

/// PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG.
///
/// # Errors
///
/// The kernel's: `EIO` before Linux 6.4, `ESRCH` if the thread has ended or does not stand still.
pub fn set_user_dispatch(tid: i32, request: UserDispatchRequest) -> Result<()> {
    const SET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4210;
    let words = [request.mode, request.selector, request.offset, request.bytes];
    let bytes = size_of_val(&words);
    ptrace(SET_SYSCALL_USER_DISPATCH_CONFIG, tid, bytes, (&raw const words).addr()).map(drop)
}

/// A signal's information, as the kernel stores it.
#[derive(Clone, Copy)]
pub struct SigInfo(libc::siginfo_t);

impl std::fmt::Debug for SigInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigInfo {{ signo: {}, code: {} }}", self.signo(), self.code())
    }
}

// SAFETY: what the structure has of pointers are addresses and values of other processes, which
// nobody here follows.
unsafe impl Send for SigInfo {}
// SAFETY: as above.
unsafe impl Sync for SigInfo {}

/// Signals that cannot be told apart by who looks for one: number, code and sender.
impl PartialEq for SigInfo {
    fn eq(&self, other: &Self) -> bool {
        let facts = |it: &Self| (it.signo(), it.code(), it.sender());
        facts(self) == facts(other)
    }
}

impl Eq for SigInfo {}

impl SigInfo {
    pub(super) fn of(raw: libc::siginfo_t) -> Self {
        Self(raw)
    }

    pub(super) fn raw(&self) -> *const libc::siginfo_t {
        &raw const self.0
    }

    /// si_signo.
    pub fn signo(&self) -> i32 {
        self.0.si_signo
    }

    /// si_code.
    pub fn code(&self) -> i32 {
        self.0.si_code
    }

    /// si_pid: the sender of a signal that a process has sent.
    pub fn sender(&self) -> i32 {
        // SAFETY: si_pid reads four bytes inside the structure; any bytes are a number.
        unsafe { self.0.si_pid() }
    }

    /// si_addr (also si_call_addr of SIGSYS).
    pub fn address(&self) -> u64 {
        // SAFETY: si_addr reads eight bytes inside the structure; any bytes are a number.
        unsafe { self.0.si_addr() as u64 }
    }

    /// si_perf_data and si_perf_flags of a SIGTRAP by an event of perf_event_open(2).
    ///
    /// Spec: asm-generic/siginfo.h, `_sigfault._perf`: behind the address are data, type and flags.
    pub fn perf(&self) -> (u64, u32) {
        let raw = &raw const self.0;
        // SAFETY: both lie inside the 128-byte structure, at bytes 24 and 36, aligned for their
        // types; any bytes are a number.
        unsafe { (raw.cast::<u64>().add(3).read(), raw.cast::<u32>().add(9).read()) }
    }

    /// Returns the kernel's information on a fault, made of signal, code and address.
    pub fn fault(signo: i32, code: i32, address: u64) -> Self {
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut info = Self(unsafe { zeroed() });
        (info.0.si_signo, info.0.si_code) = (signo, code);
        info.set_address(address);
        info
    }

    /// Sets si_addr.
    pub fn set_address(&mut self, address: u64) {
        let raw = (&raw mut self.0).cast::<u64>();
        // SAFETY: si_addr is at byte 16 of the 128-byte structure (after three ints and padding).
        unsafe { raw.add(2).write(address) };
    }
}

/// PTRACE_GETSIGINFO.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn get_siginfo(tid: i32) -> Result<SigInfo> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { zeroed() };
    ptrace(libc::PTRACE_GETSIGINFO, tid, 0, (&raw mut info).addr())?;
    Ok(SigInfo(info))
}

/// PTRACE_SETSIGINFO.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_siginfo(tid: i32, info: &SigInfo) -> Result<()> {
    ptrace(libc::PTRACE_SETSIGINFO, tid, 0, (&raw const info.0).addr()).map(drop)
}

/// PTRACE_GETSIGMASK.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn get_sigmask(tid: i32) -> Result<u64> {
    let mut mask = 0u64;
    ptrace(libc::PTRACE_GETSIGMASK, tid, 8, (&raw mut mask).addr())?;
    Ok(mask)
}

/// PTRACE_SETSIGMASK.
///
/// # Errors
///
/// The kernel's, `ESRCH` if the thread has ended or does not stand still.
pub fn set_sigmask(tid: i32, mask: u64) -> Result<()> {
    ptrace(libc::PTRACE_SETSIGMASK, tid, 8, (&raw const mask).addr()).map(drop)
}
