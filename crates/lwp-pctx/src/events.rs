//! `pctx_set_events` and the handlers it sets.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};
use std::mem;

use libc::pid_t;

use crate::object::{PctxT, get};
use crate::set_errno;

/// `pctx_sysc_execfn_t`.
pub(crate) type ExecFn =
    unsafe extern "C" fn(*mut PctxT, pid_t, c_int, *mut c_char, *mut c_void) -> c_int;
/// `pctx_sysc_forkfn_t`.
pub(crate) type ForkFn = unsafe extern "C" fn(*mut PctxT, pid_t, pid_t, c_int, *mut c_void);
/// `pctx_sysc_exitfn_t`.
pub(crate) type ExitFn = unsafe extern "C" fn(*mut PctxT, pid_t, c_int, c_int, *mut c_void);
/// The handlers of an LWP, and the tick.
pub(crate) type LwpFn = unsafe extern "C" fn(*mut PctxT, pid_t, c_int, *mut c_void) -> c_int;

/// The handlers that are set.
#[derive(Clone, Copy, Default)]
pub(crate) struct Table {
    pub(crate) exec: Option<ExecFn>,
    pub(crate) fork: Option<ForkFn>,
    pub(crate) exit: Option<ExitFn>,
    pub(crate) lwp_create: Option<LwpFn>,
    pub(crate) init_lwp: Option<LwpFn>,
    pub(crate) fini_lwp: Option<LwpFn>,
    pub(crate) lwp_exit: Option<LwpFn>,
}

impl Table {
    /// Sets the handler of `event`; false if there is no such event.
    ///
    /// # Safety
    ///
    /// `handler` is NULL or a function of the event's type.
    unsafe fn set(&mut self, event: u32, handler: *const c_void) -> bool {
        // SAFETY: the caller's promise; a NULL pointer is the `None` of a function's Option.
        unsafe {
            match event {
                1 => self.exec = mem::transmute::<*const c_void, Option<ExecFn>>(handler),
                2 => self.fork = mem::transmute::<*const c_void, Option<ForkFn>>(handler),
                3 => self.exit = mem::transmute::<*const c_void, Option<ExitFn>>(handler),
                4 => self.lwp_create = mem::transmute::<*const c_void, Option<LwpFn>>(handler),
                5 => self.init_lwp = mem::transmute::<*const c_void, Option<LwpFn>>(handler),
                6 => self.fini_lwp = mem::transmute::<*const c_void, Option<LwpFn>>(handler),
                7 => self.lwp_exit = mem::transmute::<*const c_void, Option<LwpFn>>(handler),
                _ => return false,
            }
        }
        true
    }
}

/// `pctx_set_events(3CPC)`, which takes pairs of event and handler until PCTX_NULL_EVENT.
///
/// Functions of a variable number of arguments cannot be written in Rust yet. All arguments here
/// are whole words, so the first five of the list are in registers and the others on the stack, in
/// order; both places are handed to [`set_events`].
///
/// Spec: System V ABI, AMD64 supplement, §3.2.3.
///
/// # Safety
///
/// `pctx` is NULL or an object of this library; the list is as documented.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn pctx_set_events(pctx: *mut PctxT) -> c_int {
    naked_asm!(
        "lea rax, [rsp + 8]",
        "sub rsp, 56",
        "mov [rsp], rsi",
        "mov [rsp + 8], rdx",
        "mov [rsp + 16], rcx",
        "mov [rsp + 24], r8",
        "mov [rsp + 32], r9",
        "mov rsi, rsp",
        "mov rdx, rax",
        "call {set_events}",
        "add rsp, 56",
        "ret",
        set_events = sym set_events,
    )
}

/// Words of a list that are passed in registers.
const IN_REGISTERS: usize = 5;

/// # Safety
///
/// As for [`pctx_set_events`]; `registers` holds five words, and `stack` the rest of the list.
unsafe extern "C" fn set_events(
    pctx: *mut PctxT,
    registers: *const usize,
    stack: *const usize,
) -> c_int {
    // SAFETY: the caller's promise; the list is read up to its end and no further.
    let word = |index: usize| unsafe {
        if index < IN_REGISTERS { *registers.add(index) } else { *stack.add(index - IN_REGISTERS) }
    };
    // SAFETY: the caller's promise.
    let Some(context) = (unsafe { get(pctx) }) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    let mut table = context.handlers();
    let mut index = 0;
    loop {
        // An enumeration is passed in the low half of a word.
        let event = word(index) as u32;
        if event == 0 {
            context.set_handlers(table);
            return 0;
        }
        // SAFETY: the caller's promise.
        if !unsafe { table.set(event, word(index + 1) as *const c_void) } {
            context.reporter().tell(c"set_events", &format!("there is no event {event}"));
            set_errno(libc::EINVAL);
            return -1;
        }
        index += 2;
    }
}
