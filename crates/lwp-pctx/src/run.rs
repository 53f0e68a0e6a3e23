//! `pctx_run`: C handlers behind the crate's.

use std::ffi::{CString, c_int, c_uint};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr;
use std::time::Duration;

use pctx::{End, Error, Flow, Handlers, LwpId, Pctx, Pid};

use crate::events::{LwpFn, Table};
use crate::object::{Context, PctxT, get};
use crate::set_errno;

/// `pctx_run(3CPC)`.
///
/// # Safety
///
/// `pctx` is NULL or an object of this library, `tick` NULL or a function of the documented type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pctx_run(
    pctx: *mut PctxT,
    msec: c_uint,
    nsamples: c_uint,
    tick: Option<LwpFn>,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(context) = (unsafe { get(pctx) }) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    if context.pctx().is_ours() && context.is_running() {
        context.reporter().tell(c"run", "the process is being run: a handler cannot run it again");
        set_errno(libc::EINVAL);
        return -1;
    }
    let period = (msec != 0).then(|| Duration::from_millis(msec.into()));
    let ran = match context.pctx().is_ours() {
        true => run(pctx, context, period, nsamples, tick),
        false => Err(Error::OtherThread(context.pctx().pid())),
    };
    let result = match ran {
        Ok(End::Handler) => -1,
        Ok(_) => 0,
        Err(error) => {
            context.reporter().tell(c"run", &error.to_string());
            set_errno(error.errno());
            -1
        }
    };
    if context.pctx().is_ours() && context.is_released() {
        // SAFETY: the caller's promise. Nothing uses the context any more.
        drop(unsafe { PctxT::destroy(pctx) });
    }
    result
}

/// Runs what is behind `object`. What a handler has released is let go at the end.
fn run(
    object: *mut PctxT,
    context: &Context,
    period: Option<Duration>,
    nsamples: c_uint,
    tick: Option<LwpFn>,
) -> Result<End, Error> {
    let mut client = Client { object, context, tick };
    // SAFETY: the fork handler is C: the manual page says that only its thread exists in the copy,
    // and its client keeps to functions that are safe there. Between fork and handler, this library
    // uses glibc's allocator, which a copy may use, and no lock of its own.
    unsafe { context.pctx().copies().allow_with_threads() };
    context.while_running(|pctx| pctx.run(period, Some(nsamples), &mut client))
}

/// The C client of one run.
struct Client<'a> {
    object: *mut PctxT,
    context: &'a Context,
    tick: Option<LwpFn>,
}

impl Client<'_> {
    fn table(&self) -> Table {
        self.context.handlers()
    }

    /// Calls a handler of an LWP, if it is set.
    fn lwp(&self, handler: Option<LwpFn>, lwp: LwpId) -> Flow {
        let Some(handler) = handler else {
            return Flow::Continue;
        };
        let (pid, arg) = (self.context.pctx().pid(), self.context.arg());
        // SAFETY: the client set a function of this type for the event.
        quietly(|| flow(unsafe { handler(self.object, pid, lwp.get(), arg) }))
    }
}

/// A handler that returns something else than 0 ends the run.
fn flow(returned: c_int) -> Flow {
    if returned == 0 { Flow::Continue } else { Flow::Stop }
}

/// Calls a handler with HUP, INT, QUIT and TERM held back, as documented.
fn quietly<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are initialised before they are used; only this thread's mask is changed.
    unsafe {
        let mut held = MaybeUninit::uninit();
        libc::sigemptyset(held.as_mut_ptr());
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            libc::sigaddset(held.as_mut_ptr(), signal);
        }
        let mut before = MaybeUninit::uninit();
        libc::pthread_sigmask(libc::SIG_BLOCK, held.as_ptr(), before.as_mut_ptr());
        let result = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        result
    }
}

impl Handlers for Client<'_> {
    fn attention(&self) -> Option<BorrowedFd<'_>> {
        let watch = self.context.watch()?;
        // SAFETY: who named the descriptor keeps it open for as long as the object lives.
        Some(unsafe { BorrowedFd::borrow_raw(watch.descriptor) })
    }

    fn attend(&mut self) {
        if let Some(watch) = self.context.watch() {
            // SAFETY: who named the function promised this type.
            unsafe { (watch.attend)() };
        }
    }

    fn init_lwp(&mut self, _: &Pctx, lwp: LwpId) -> Flow {
        self.lwp(self.table().init_lwp, lwp)
    }

    fn fini_lwp(&mut self, _: &Pctx, lwp: LwpId) -> Flow {
        self.lwp(self.table().fini_lwp, lwp)
    }

    fn lwp_create(&mut self, _: &Pctx, lwp: LwpId) -> Flow {
        self.lwp(self.table().lwp_create, lwp)
    }

    fn lwp_exit(&mut self, _: &Pctx, lwp: LwpId) -> Flow {
        self.lwp(self.table().lwp_exit, lwp)
    }

    fn tick(&mut self, _: &Pctx, lwp: LwpId) -> Flow {
        self.lwp(self.tick, lwp)
    }

    fn follows_exec(&self) -> bool {
        self.table().exec.is_some()
    }

    fn exec(&mut self, pctx: &Pctx, lwp: LwpId, command: &str) -> Flow {
        let Some(handler) = self.table().exec else {
            return Flow::Continue;
        };
        // Arguments end with NUL, so the line has none.
        let command = CString::new(command).unwrap_or_default().into_raw();
        // SAFETY: the client set a function of this type; the string is its to change, not to keep.
        let returned = quietly(|| unsafe {
            handler(self.object, pctx.pid(), lwp.get(), command, self.context.arg())
        });
        // SAFETY: came from `into_raw`.
        drop(unsafe { CString::from_raw(command) });
        flow(returned)
    }

    fn follows_forks(&self) -> bool {
        self.table().fork.is_some()
    }

    fn fork(&mut self, child: Pctx, parent: Pid, lwp: LwpId) {
        let table = self.table();
        let Some(handler) = table.fork else {
            return;
        };
        let pid = child.pid();
        let context = Context::new(child, self.context.arg(), *self.context.reporter());
        context.set_handlers(table);
        let object = PctxT::create(context);
        // SAFETY: the client set a function of this type. It runs in a process of its own and may
        // run the child, so signals are not held back here.
        unsafe {
            handler(object, parent, pid, lwp.get(), self.context.arg());
            drop(PctxT::destroy(object));
        }
    }

    fn not_followed(&mut self, _: &Pctx, child: Pid, error: &Error) {
        let message = format!("process {child} is not followed: {error}");
        self.context.reporter().remark(c"run", &message);
    }

    fn exit(&mut self, pctx: &Pctx, lwp: LwpId, status: ExitStatus) {
        if let Some(handler) = self.table().exit {
            let arg = self.context.arg();
            // SAFETY: the client set a function of this type for the event.
            quietly(|| unsafe {
                handler(self.object, pctx.pid(), lwp.get(), status.into_raw(), arg)
            });
        }
    }
}
