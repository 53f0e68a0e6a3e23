//! The target of a `pctx_t *`.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use pctx::{Pctx, Terminator};

use crate::events::Table;
use crate::report::Reporter;

/// A descriptor that a run waits for besides its own events, and the function to call then:
/// libcpc's.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    pub(crate) descriptor: c_int,
    pub(crate) attend: unsafe extern "C" fn(),
}

/// A process under control and what its C client gave with it.
pub(crate) struct Context {
    pctx: Pctx,
    terminator: Terminator,
    handlers: Cell<Table>,
    watch: Cell<Option<Watch>>,
    arg: *mut c_void,
    reporter: Reporter,
    /// `pctx_run` has not returned.
    running: Cell<bool>,
    /// A handler has released the object: the run ends, and what it uses goes with it.
    released: Cell<bool>,
}

impl Context {
    pub(crate) fn new(pctx: Pctx, arg: *mut c_void, reporter: Reporter) -> Self {
        let terminator = pctx.terminator();
        Self {
            pctx,
            terminator,
            handlers: Cell::default(),
            watch: Cell::new(None),
            arg,
            reporter,
            running: Cell::new(false),
            released: Cell::new(false),
        }
    }

    pub(crate) fn pctx(&self) -> &Pctx {
        &self.pctx
    }

    pub(crate) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// The client's argument of its handlers.
    pub(crate) fn arg(&self) -> *mut c_void {
        self.arg
    }

    pub(crate) fn handlers(&self) -> Table {
        self.handlers.get()
    }

    pub(crate) fn set_handlers(&self, handlers: Table) {
        self.handlers.set(handlers);
    }

    pub(crate) fn watch(&self) -> Option<Watch> {
        self.watch.get()
    }

    pub(crate) fn set_watch(&self, watch: Option<Watch>) {
        self.watch.set(watch);
    }

    /// Ends the run, if there is one. Async-signal-safe.
    pub(crate) fn terminate(&self) {
        self.terminator.terminate();
    }

    /// Returns whether `pctx_run` has not returned.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Does the work of `pctx_run`.
    pub(crate) fn while_running<T>(&self, run: impl FnOnce(&Pctx) -> T) -> T {
        self.running.set(true);
        let result = run(&self.pctx);
        self.running.set(false);
        result
    }

    /// Releases the object when its run ends, which is now.
    pub(crate) fn release_after_run(&self) {
        self.released.set(true);
        self.terminator.terminate();
    }

    /// Returns whether a handler has released the object.
    pub(crate) fn is_released(&self) -> bool {
        self.released.get()
    }
}

/// The first word of a live object: "pctx" and a number.
const LIVE: u64 = 0x7063_7478_0000_0001;

/// A `pctx_t`. Its memory is never given back: a late `pctx_terminate` must be able to look.
#[repr(C)]
pub struct PctxT {
    tag: AtomicU64,
    context: UnsafeCell<Option<Context>>,
}

impl PctxT {
    pub(crate) fn create(context: Context) -> *mut Self {
        let context = UnsafeCell::new(Some(context));
        Box::into_raw(Box::new(Self { tag: AtomicU64::new(LIVE), context }))
    }

    /// Takes the context out; `None` if there is none any more.
    ///
    /// # Safety
    ///
    /// `object` is NULL or was made by [`PctxT::create`]; no call uses it, save `pctx_terminate`,
    /// which looks at the tag first.
    pub(crate) unsafe fn destroy(object: *mut Self) -> Option<Context> {
        if object.is_null() {
            return None;
        }
        // SAFETY: the memory is never given back; who changes the tag owns the context.
        unsafe {
            if (*object).tag.swap(0, Ordering::AcqRel) != LIVE {
                return None;
            }
            (*(*object).context.get()).take()
        }
    }
}

/// The context behind `object`, unless it was released.
///
/// # Safety
///
/// `object` is NULL or was made by [`PctxT::create`], and is not released while the result is used.
pub(crate) unsafe fn get<'a>(object: *mut PctxT) -> Option<&'a Context> {
    if object.is_null() {
        return None;
    }
    // SAFETY: the memory is never given back; a live object's context is not written.
    unsafe {
        if (*object).tag.load(Ordering::Acquire) != LIVE {
            return None;
        }
        (*(*object).context.get()).as_ref()
    }
}

impl std::fmt::Debug for PctxT {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("pctx_t")
    }
}
