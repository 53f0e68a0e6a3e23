//! Notice of writes to pages with code that can be written at any time.
//!
//! Code in such a page is translated like any other once the page is *guarded*: the first write to
//! it waits until the host has cut off what was translated of the page. A page that is written
//! often is left alone for a while; its fragments compare their own bytes before they run instead.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use lwp_ptrace::userfault::{Reach, SYS_USERFAULTFD, Userfault, Write, Writes};
use lwp_ptrace::{Tid, sys};
use rustc_hash::FxHashMap;

use crate::config::{Config, Guards, Target};
use crate::exec::find_syscall;
use crate::inject::Injector;
use crate::machine::Machine;
use crate::maps::{self, Status};

mod fills;
mod holder;
mod watch;

use fills::Told;
pub use fills::Unasked;
pub use watch::watch;

const SYS_CLOSE: u64 = 3;
const PAGE: u64 = 4096;
/// So many writes, each at most [`CLOSE`] after the one before, are a burst: the page is left
/// alone.
const BURST: u32 = 8;
const CLOSE: Duration = Duration::from_millis(10);
/// The time for which it is left alone at first. Each further burst doubles that.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MOST_DOUBLINGS: u32 = 8;
/// A page that has been quiet for so long is one as at the beginning.
const CALM: Duration = Duration::from_secs(20);

/// The notices of writes in one address space.
#[derive(Debug)]
pub struct Notices {
    /// Their number among all of a run.
    pub key: u64,
    descriptor: Userfault,
    /// The kernel's own writes wait too. Where they fail instead, calls are looked at first.
    waits_for_kernel: bool,
    pages: Mutex<FxHashMap<u64, Page>>,
    /// The range in which pages may be guarded, as far as threads know.
    told: Mutex<Told>,
    /// Those to which the kernel may write whenever it likes.
    unasked: Unasked,
}

/// A page in which code has been executed.
#[derive(Clone, Copy, Debug)]
struct Page {
    state: State,
    /// The time of the last write to it while it was guarded, and the number of them in a row.
    written: Option<Instant>,
    row: u32,
    /// The number of bursts so far.
    bursts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is guarded as soon as code of it is translated.
    Open,
    /// A write to it gives notice.
    Guarded,
    /// Its code compares its own bytes, until then or for ever.
    Left(Option<Instant>),
}

/// The knowledge of the notices of an address space.
#[derive(Clone, Debug, Default)]
pub enum Source {
    /// Nobody has asked for them.
    #[default]
    Unknown,
    /// They cannot be had.
    Refused,
    /// They are there.
    Given(Arc<Notices>),
}

impl Notices {
    /// Those of the address space that `descriptor` belongs to.
    fn new(key: u64, descriptor: Userfault, reach: Reach, unasked: Unasked) -> Self {
        Self {
            key,
            descriptor,
            waits_for_kernel: reach == Reach::All,
            pages: Mutex::default(),
            told: Mutex::default(),
            unasked,
        }
    }

    fn pages(&self) -> MutexGuard<'_, FxHashMap<u64, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Guards the pages of `range`, which lies in memory that extends over `mapping`: false where
    /// one of them is not to be guarded. What was read of them before may have changed.
    pub fn guard(&self, range: (u64, u64), mapping: (u64, u64)) -> bool {
        pages_of(range).all(|page| self.guard_page(page, mapping))
    }

    /// Guards the page; false where it is not to be guarded.
    fn guard_page(&self, page: u64, mapping: (u64, u64)) -> bool {
        if !self.may_guard((page, page + PAGE)) || self.unasked.has(page) {
            return false;
        }
        let mut pages = self.pages();
        let state = &mut pages.entry(page).or_insert(Page::NEW).state;
        match state {
            State::Guarded => return true,
            State::Left(_) => return false,
            State::Open => {}
        }
        let guard = || self.descriptor.protect((page, page + PAGE), true);
        let guarded = guard().or_else(|_| {
            self.descriptor.register(mapping)?;
            guard()
        });
        *state = if guarded.is_ok() { State::Guarded } else { State::Left(None) };
        guarded.is_ok()
    }

    /// The next write that waits.
    fn next_write(&self) -> Option<Write> {
        self.descriptor.next_write()
    }

    /// Nothing that was translated of the page of `address` can be reached any more: lets the write
    /// to it happen.
    fn let_write(&self, address: u64) {
        let page = address & !(PAGE - 1);
        let mut pages = self.pages();
        if let Some(page) = pages.get_mut(&page) {
            page.note_write(Instant::now());
        }
        self.unprotect(page);
    }

    fn unprotect(&self, page: u64) {
        // The page may be gone, and its address space too.
        let _ = self.descriptor.protect((page, page + PAGE), false);
    }

    /// Notes that what is mapped in `range` has changed.
    pub fn forget(&self, range: (u64, u64)) {
        self.told().changed = true;
        self.pages().retain(|page, _| *page + PAGE <= range.0 || range.1 <= *page);
    }

    /// The pages that have been left alone for long enough: what is translated of them from now on
    /// is guarded.
    fn pauses_over(&self) -> Vec<u64> {
        let now = Instant::now();
        let mut over = Vec::new();
        for (address, page) in self.pages().iter_mut() {
            if matches!(page.state, State::Left(Some(until)) if until <= now) {
                page.state = State::Open;
                over.push(*address);
            }
        }
        over
    }

    /// Returns whether a page is left alone for a while.
    fn pauses(&self) -> bool {
        self.pages().values().any(|page| matches!(page.state, State::Left(Some(_))))
    }
}

impl Page {
    const NEW: Self = Self { state: State::Open, written: None, row: 0, bursts: 0 };

    fn note_write(&mut self, now: Instant) {
        if self.state != State::Guarded {
            return;
        }
        let since = self.written.replace(now).map_or(CALM, |written| now - written);
        self.state = State::Open;
        self.row = if since < CLOSE { self.row + 1 } else { 0 };
        if since >= CALM {
            self.bursts = 0;
        }
        if self.row >= BURST {
            let pause = FIRST_PAUSE * (1 << self.bursts.min(MOST_DOUBLINGS));
            self.state = State::Left(Some(now + pause));
            self.bursts += 1;
            self.row = 0;
        }
    }
}

/// The pages that `range` touches.
pub fn pages_of(range: (u64, u64)) -> impl Iterator<Item = u64> {
    (range.0 & !(PAGE - 1)..range.1).step_by(PAGE as usize)
}

/// The notices of all address spaces of a run.
#[derive(Debug, Default)]
pub struct Board {
    /// The writes of which notice can be had.
    reach: Option<Reach>,
    waiting: Option<Arc<Waiting>>,
    /// Nobody waits for them yet.
    new: bool,
    made: u64,
}

/// The things that somebody waits for.
#[derive(Debug)]
pub struct Waiting {
    writes: Writes,
    end: OwnedFd,
    given: Mutex<FxHashMap<u64, Weak<Notices>>>,
}

/// The key of the end of the run.
const END: u64 = 0;

impl Waiting {
    fn new() -> std::io::Result<Self> {
        let end = sys::event_fd().map_err(|error| std::io::Error::from_raw_os_error(error.0))?;
        let writes = Writes::new()?;
        writes.add_fd(&end, END)?;
        Ok(Self { writes, end, given: Mutex::default() })
    }

    fn given(&self) -> MutexGuard<'_, FxHashMap<u64, Weak<Notices>>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The notices with this key, as long as their address space exists.
    fn with_key(&self, key: u64) -> Option<Arc<Notices>> {
        self.given().get(&key)?.upgrade()
    }

    /// Those of all address spaces.
    fn all(&self) -> Vec<Arc<Notices>> {
        let mut given = self.given();
        given.retain(|_, notices| notices.strong_count() > 0);
        given.values().filter_map(Weak::upgrade).collect()
    }
}

/// The writes to generated code of which notice can be had in a run.
///
/// If the kernel cannot write to guarded pages, all that it might write is known only of a
/// program that has been looked at from its beginning.
pub fn reach(config: &Config) -> Option<Reach> {
    let filtered = Status::read(std::process::id() as Tid).number("Seccomp:") != Some(0);
    let reach = match config.trials.guards {
        Guards::Best if !filtered => Reach::best().ok()?,
        Guards::UserMode => Reach::UserMode,
        Guards::Best | Guards::Off => return None,
    };
    let launched = matches!(config.target, Target::Launch { .. });
    let looks_at_calls = launched && config.sampling.is_empty();
    (reach == Reach::All || looks_at_calls).then_some(reach)
}

impl Board {
    /// None yet, in a run in which notice of such writes can be had.
    pub fn reaching(reach: Option<Reach>) -> Self {
        Self { reach, ..Self::default() }
    }

    /// Takes over descriptor `number` of process `pid`, which has been made for this.
    fn add(&mut self, pid: i32, number: i32, unasked: Unasked) -> Option<Arc<Notices>> {
        if self.waiting.is_none() {
            self.waiting = Some(Arc::new(Waiting::new().ok()?));
            self.new = true;
        }
        let waiting = self.waiting.as_ref()?;
        self.made += 1;
        let descriptor = Userfault::take(pid, number).ok()?;
        let notices = Arc::new(Notices::new(self.made, descriptor, self.reach?, unasked));
        waiting.given().insert(notices.key, Arc::downgrade(&notices));
        waiting.writes.add(&notices.descriptor, notices.key).ok()?;
        Some(notices)
    }

    /// The things that somebody is to wait for from now on, once.
    pub fn new_waiting(&mut self) -> Option<Arc<Waiting>> {
        self.waiting.clone().filter(|_| std::mem::take(&mut self.new))
    }

    /// Everything is over.
    pub fn end(&self) {
        if let Some(waiting) = &self.waiting {
            sys::event_signal(&waiting.end);
        }
    }
}

impl Machine {
    /// Finds out whether notice of writes to code can be had in the address space of `tid`, which
    /// stands still, unless another thread has asked before: pages stay guarded by the notices that
    /// were there first.
    pub fn find_notices(&mut self, tid: Tid) {
        if self.space_of(tid).is_some_and(|(space, _)| !matches!(space.notices, Source::Unknown)) {
            return;
        }
        let notices = self.caches.notices.reach.and_then(|reach| self.make_notices(tid, reach));
        let source = notices.map_or(Source::Refused, Source::Given);
        for side in self.all_sides(tid) {
            if let Some(Some(space)) = self.caches.spaces.get_mut(side) {
                space.notices = source.clone();
            }
        }
    }

    fn make_notices(&mut self, tid: Tid, reach: Reach) -> Option<Arc<Notices>> {
        let pid = self.tasks.threads.get(&tid)?.pid;
        let status = Status::read(tid);
        // A filter may kill for a call that it does not expect.
        if status.number("Seccomp:").is_some_and(|mode| mode != 0) {
            return None;
        }
        let site = find_syscall(tid, &maps::read(tid))?;
        let mut injector = Injector::new(tid, site, &status);
        let number = injector.call([SYS_USERFAULTFD, reach.flags(), 0, 0, 0, 0, 0]).ok()?;
        let base = self.tasks.base_space(tid).and_then(|base| self.caches.spaces[base].as_ref());
        let unasked = base.map_or_else(Unasked::default, |space| space.unasked.clone());
        let notices = self.caches.notices.add(pid, number as i32, unasked);
        let _ = injector.call([SYS_CLOSE, number, 0, 0, 0, 0, 0]);
        notices
    }

    /// Does without notices from now on: nobody can wait for them.
    pub fn withdraw_notices(&mut self) {
        for place in &mut self.caches.spaces {
            let Some(space) = place.as_mut() else { continue };
            let Some(Some(family)) = self.caches.families.get_mut(space.family) else { continue };
            if matches!(space.notices, Source::Given(_)) {
                for unit in space.private_units() {
                    family.invalidate_all(unit);
                }
            }
            space.notices = Source::Refused;
        }
    }

    /// The page of `address` is about to be written to: cuts off what was translated of it, and
    /// lets that happen.
    fn about_to_be_written(&mut self, notices: &Notices, address: u64) {
        self.cut_off_page(notices.key, address & !(PAGE - 1));
        notices.let_write(address);
    }

    /// Has what is translated of pages that have been left alone for long enough guarded again.
    /// Returns whether there are others that have not.
    fn end_pauses(&mut self, all: &[Arc<Notices>]) -> bool {
        for notices in all {
            for page in notices.pauses_over() {
                self.cut_off_page(notices.key, page);
            }
        }
        all.iter().any(|notices| notices.pauses())
    }

    /// Cuts off what was translated of a page of the address space whose notices these are, on all
    /// its sides.
    fn cut_off_page(&mut self, key: u64, page: u64) {
        self.lwp_forget_cuts();
        for place in &mut self.caches.spaces {
            let Some(space) = place.as_mut().filter(|space| space.has_notices(key)) else {
                continue;
            };
            let Some(Some(family)) = self.caches.families.get_mut(space.family) else { continue };
            for unit in space.private_units() {
                family.invalidate_page(unit, page);
            }
        }
    }
}
