//! Sets: requests that are counted together.

use std::alloc::{Layout, handle_alloc_error};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::backend::Target;
use crate::binding::Binding;
use crate::buf::Buf;
use crate::cpu;
use crate::error::{Error, Result, Subcode};
use crate::handle::Handle;
use crate::items;
use crate::request::{Attribute, BindFlags, Request, RequestFlags};
use crate::thread;

/// The number of records that a request holds between two samples unless it sets
/// [`Attribute::RECORDS`].
pub const DEFAULT_RECORDS: usize = 1024;
/// The most records that a request can hold.
pub const MAX_RECORDS: u64 = 1 << 22;

/// A request of a set, and what counts it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The request.
    pub(crate) request: Request,
    /// The back end; `None` for a raw number nothing here can count.
    pub(crate) backend: Option<usize>,
    /// The counter asked for, numbered by the back end.
    pub(crate) pic: Option<u32>,
}

impl Entry {
    /// Returns the number of records that the request holds; none for a counter.
    fn records(&self) -> Option<usize> {
        if !self.request.is_recording() {
            return None;
        }
        let asked = self.request.attribute(Attribute::RECORDS);
        Some(asked.map_or(DEFAULT_RECORDS, |n| n.clamp(1, MAX_RECORDS) as usize))
    }
}

/// The state behind a [`Set`]; bindings share it.
#[derive(Debug)]
pub(crate) struct SetState {
    handle: Arc<Handle>,
    entries: Mutex<Vec<Entry>>,
    /// Threads that have bound the set to themselves.
    threads: AtomicUsize,
    /// The binding to a thread of another process or to a processor.
    elsewhere: Mutex<Option<Elsewhere>>,
    /// Set once the owner has given the set up; bindings of other threads then end.
    destroyed: AtomicBool,
}

/// A binding that is not the calling thread's own.
#[derive(Debug)]
struct Elsewhere {
    // Before `pin`: the counters are given back before the thread may leave the processor.
    binding: Binding,
    pin: Option<cpu::Pin>,
}

/// The set that was last bound to each thread from elsewhere, for threads that switch their
/// counters themselves.
static CONTROLLED: Mutex<Vec<(i32, Weak<SetState>)>> = Mutex::new(Vec::new());

/// The set that was last bound to thread `tid` from elsewhere.
pub(crate) fn bound_to(tid: i32) -> Option<Arc<SetState>> {
    lock(&CONTROLLED).iter().find(|(of, _)| *of == tid).and_then(|(_, set)| set.upgrade())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing behind these locks is left half changed by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SetState {
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        lock(&self.entries)
    }

    /// A thread has bound the set.
    pub(crate) fn thread_bound(&self) {
        self.threads.fetch_add(1, SeqCst);
    }

    /// A thread has given up its binding.
    pub(crate) fn thread_unbound(&self) {
        self.threads.fetch_sub(1, SeqCst);
    }

    /// Lets the counters bound to a thread from elsewhere run or stand still.
    ///
    /// # Errors
    ///
    /// EINVAL if there are none, or they do so already.
    pub(crate) fn enable_elsewhere(&self, running: bool) -> Result<()> {
        match lock(&self.elsewhere).as_mut() {
            Some(Elsewhere { binding, pin: None }) => binding.enable(running),
            _ => Err(Error::invalid("the thread has no counters")),
        }
    }

    /// Returns whether the owner has given the set up.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(SeqCst)
    }
}

/// Requests that are counted together.
///
/// Many threads may bind a set at the same time. Each thread has its own counters, and sampling,
/// restarting and unbinding affect those of the calling thread. Dropping a set unbinds it.
#[derive(Debug)]
#[must_use = "dropping a set unbinds it"]
pub struct Set {
    state: Arc<SetState>,
}

impl Set {
    /// The most requests in one set.
    pub const MAX_REQUESTS: usize = 100;

    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let state = SetState {
            handle,
            entries: Mutex::default(),
            threads: AtomicUsize::new(0),
            elsewhere: Mutex::default(),
            destroyed: AtomicBool::new(false),
        };
        Self { state: Arc::new(state) }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.state.handle
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.entries().len()
    }

    /// Returns whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether some thread, or this set's owner elsewhere, has it bound.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.state.threads.load(SeqCst) > 0 || lock(&self.state.elsewhere).is_some()
    }

    /// Adds a request and returns its index: 0, 1, 2 in the order of the calls.
    ///
    /// Flags and preset are looked at when the set is bound, as in the original.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the set is bound or full, or
    /// the request has too many attributes. `UnknownEvent`, `UnknownAttribute`, `NoSuchCounter` or
    /// `CounterNotCapable` if nothing can count the request.
    pub fn add(&self, request: Request) -> Result<usize> {
        let _guard = thread::enter()?;
        if self.is_bound() {
            return Err(Error::invalid("the set is bound"));
        }
        if request.attributes().len() > Request::MAX_ATTRIBUTES {
            return Err(Error::invalid("a request has at most 50 attributes"));
        }
        if request.event().is_empty() || request.event().len() >= Request::MAX_EVENT_LEN {
            let reason = "the name of an event has 1 to 511 characters";
            return Err(Error::coded(Subcode::InvalidEvent, reason));
        }
        let entry = self.state.handle.resolve(request)?;
        let mut entries = self.state.entries();
        if entries.len() >= Self::MAX_REQUESTS {
            return Err(Error::invalid("a set has at most 100 requests"));
        }
        entries.push(entry);
        Ok(entries.len() - 1)
    }

    /// The requests in the order of their indices.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.state.entries().iter().map(|entry| entry.request.clone()).collect()
    }

    /// Makes a buffer for the requests that the set has now. If there is no memory, this aborts the
    /// process, like every allocation in Rust; see [`Self::try_create_buf`].
    pub fn create_buf(&self) -> Buf {
        self.try_create_buf().unwrap_or_else(|_| handle_alloc_error(Layout::new::<Buf>()))
    }

    /// Makes a buffer for the requests that the set has now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if there is no memory for the
    /// records that the buffer has to hold.
    pub fn try_create_buf(&self) -> Result<Buf> {
        let asked =
            |entry: &Entry| self.items_of(entry).iter().fold(0, |asked, item| asked | 1 << item);
        let shape =
            |entry: &Entry| entry.records().map(|records| (records, items::COUNT, asked(entry)));
        let buf = Buf::new(self.state.entries().iter().map(shape));
        buf.ok_or(Error::new(libc::ENOMEM, "no memory for the records of the buffer"))
    }

    /// Indices of the items that the records of request `index` have; the other items are 0.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such request, or
    /// it is a counter.
    pub fn record_items_of(&self, index: usize) -> Result<Vec<usize>> {
        let entries = self.state.entries();
        let entry = entries.get(index).ok_or(Error::invalid("the set has no such request"))?;
        if !entry.request.is_recording() || !self.state.handle.smpl() {
            return Err(Error::invalid("the request is for CPC, not for SMPL"));
        }
        Ok(self.items_of(entry))
    }

    /// The items that mean something in the records of a request.
    fn items_of(&self, entry: &Entry) -> Vec<usize> {
        let backend = entry.backend.and_then(|b| self.state.handle.backends().get(b));
        let items = backend.and_then(|backend| backend.record_items(&entry.request));
        items.unwrap_or_else(|| vec![items::PC])
    }

    /// Checks a binding of the set with these flags, before counters are asked for.
    fn check(&self, flags: BindFlags, allowed: BindFlags) -> Result<()> {
        if !allowed.contains(flags) {
            return Err(Error::invalid("unknown bind flags, or flags this binding does not take"));
        }
        if self.is_empty() {
            return Err(Error::invalid("the set is empty"));
        }
        Ok(())
    }

    /// Starts counting in the calling thread, from the presets. This first unbinds the set that the
    /// thread had bound before, even if it then fails.
    ///
    /// With [`BindFlags::INHERIT`], threads that this thread creates count too, each on its own
    /// copy of the set; see [`crate::inherit`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for unknown flags or an empty
    /// set; `Unsupported` if a request wants a signal at an overflow and its counter can't
    /// interrupt; `TryAgain` if the counters are taken; and, if the requests can't be counted, the
    /// kind that describes why (`UnknownEvent` to `InvalidFlags`, or `PermissionDenied`).
    pub fn bind_thread(&self, flags: BindFlags) -> Result<()> {
        let _guard = thread::enter()?;
        self.check(flags, BindFlags::INHERIT)?;
        thread::bind(&self.state, flags.contains(BindFlags::INHERIT))
    }

    /// Starts counting in another thread, of this process or of another one, by the kernel's number
    /// of that thread. This replaces the set's earlier binding to another thread or a processor.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoSuchThread`](crate::ErrorKind::NoSuchThread) if there is no such thread;
    /// `PermissionDenied` if the caller may not observe it; otherwise as [`Self::bind_thread`].
    pub fn bind_tid(&self, tid: i32) -> Result<()> {
        self.bind_tid_with(tid, BindFlags::empty())
    }

    pub(crate) fn bind_tid_with(&self, tid: i32, flags: BindFlags) -> Result<()> {
        let _guard = thread::enter()?;
        self.check(flags, BindFlags::empty())?;
        if tid <= 0 {
            return Err(Error::new(libc::ESRCH, "there is no such thread"));
        }
        let mut elsewhere = lock(&self.state.elsewhere);
        *elsewhere = None;
        let binding = Binding::new(&self.state, Target::Thread(tid))?;
        *elsewhere = Some(Elsewhere { binding, pin: None });
        drop(elsewhere);
        let mut controlled = lock(&CONTROLLED);
        controlled.retain(|(other, set)| *other != tid && set.strong_count() > 0);
        controlled.push((tid, Arc::downgrade(&self.state)));
        Ok(())
    }

    /// Starts counting everything that runs on processor `id`, and keeps the calling thread on that
    /// processor until the set is unbound.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such processor or
    /// the set is bound elsewhere; `ProcessorUnavailable` if the processor is offline or the thread
    /// can't be kept on it; `TryAgain` if this process has already bound a set to it;
    /// `PermissionDenied` if the caller may not count whole processors; otherwise as
    /// [`Self::bind_thread`].
    pub fn bind_cpu(&self, id: u32) -> Result<()> {
        // What doesn't fit is no processor either.
        self.bind_cpu_with(i32::try_from(id).unwrap_or(-1), BindFlags::empty())
    }

    pub(crate) fn bind_cpu_with(&self, id: i32, flags: BindFlags) -> Result<()> {
        let _guard = thread::enter()?;
        self.check(flags, BindFlags::empty())?;
        let mut elsewhere = lock(&self.state.elsewhere);
        if elsewhere.is_some() {
            return Err(Error::invalid("the set is bound"));
        }
        let id = cpu::check(id)?;
        let pin = cpu::Pin::new(id)?;
        let binding = Binding::new(&self.state, Target::Cpu(id))?;
        *elsewhere = Some(Elsewhere { binding, pin: Some(pin) });
        Ok(())
    }

    /// Does `work` with the binding this call is about: the set's own elsewhere, or the calling
    /// thread's if it is of this set.
    fn with<T>(&self, work: impl FnOnce(&mut Binding) -> Result<T>) -> Result<T> {
        let _guard = thread::enter()?;
        let mut work = Some(work);
        let of_thread = thread::with(|binding| {
            if !binding.is_of(&self.state) {
                return None;
            }
            work.take().map(|work| work(binding))
        });
        if let Some(result) = of_thread.flatten() {
            return result;
        }
        let mut elsewhere = lock(&self.state.elsewhere);
        let (Some(work), Some(elsewhere)) = (work, elsewhere.as_mut()) else {
            return Err(Error::invalid("the set is not bound by this thread"));
        };
        if let Some(pin) = &elsewhere.pin {
            pin.check_here()?;
        }
        work(&mut elsewhere.binding)
    }

    /// Writes a snapshot into `buf`: the values of the counters, and the records collected since
    /// the last snapshot.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if this thread has not bound the
    /// set or `buf` has another shape; `TryAgain` if counts were lost, or the thread has left the
    /// processor that it is bound to.
    pub fn sample(&self, buf: &Buf) -> Result<()> {
        self.with(|binding| binding.sample(buf))
    }

    /// Restarts every counter from its preset, even if the set is frozen. As in the original, this
    /// restarts whichever set the calling thread has bound; it restarts *this* set, bound
    /// elsewhere, only if the thread has bound none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if nothing is bound; `TryAgain`
    /// if counts were lost.
    pub fn restart(&self) -> Result<()> {
        let guard = thread::enter()?;
        if let Some(result) = thread::with(Binding::restart) {
            return result;
        }
        drop(guard);
        self.with(Binding::restart)
    }

    /// Changes the preset of request `index` for the calling thread's binding of this set. It takes
    /// effect at the next restart.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the thread has not bound this
    /// set, or there is no such request.
    pub fn set_preset(&self, index: usize, preset: u64) -> Result<()> {
        self.with(|binding| binding.set_preset(index, preset))
    }

    /// Stops counting and gives the counters back.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if this thread has not bound the
    /// set; `TryAgain` if another thread has bound it to a processor, in which case it is unbound
    /// anyway.
    pub fn unbind(&self) -> Result<()> {
        let _guard = thread::enter()?;
        if thread::unbind_if(|binding| binding.is_of(&self.state)) {
            return Ok(());
        }
        let elsewhere = lock(&self.state.elsewhere).take();
        match elsewhere {
            None => Err(Error::invalid("the set is not bound by this thread")),
            Some(Elsewhere { binding, pin }) => {
                drop(binding);
                pin.map_or(Ok(()), cpu::Pin::release)
            }
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        self.state.destroyed.store(true, SeqCst);
        // From a handler that interrupted this library nothing can be given back now; the counters
        // then go with the thread.
        if let Ok(_guard) = thread::enter() {
            thread::unbind_if(|binding| binding.is_of(&self.state));
            thread::clean_up();
            drop(lock(&self.state.elsewhere).take());
        }
    }
}

/// Checks the flags of `request` and the room that it asks for, whatever counts it.
pub(crate) fn check_flags(request: &Request, smpl: bool) -> Result<()> {
    let refuse = |reason: &'static str| Err(Error::coded(Subcode::InvalidFlags, reason));
    if !RequestFlags::KNOWN.contains(request.flags()) {
        return refuse("unknown request flags");
    }
    let modes = RequestFlags::USER | RequestFlags::KERNEL | RequestFlags::HYPERVISOR;
    if !request.flags().intersects(modes) {
        return refuse("a request must count in user mode, in the kernel or in the hypervisor");
    }
    if request.is_recording() && !smpl {
        return refuse("records cannot be collected here, or the handle was opened for CPC only");
    }
    let room = request.attribute(Attribute::RECORDS).filter(|_| request.is_recording());
    if room.is_some_and(|records| records == 0 || records > MAX_RECORDS) {
        let reason = format!("\"{}\" is from 1 to {MAX_RECORDS}", Attribute::RECORDS);
        return Err(Error::coded(Subcode::AttributeOutOfRange, reason));
    }
    Ok(())
}
