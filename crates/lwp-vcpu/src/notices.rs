//! Notice of writes to pages with code that can be written at any time.
//!
//! Code in such a page is translated like any other once the page is *guarded*: the first write to
//! it waits until the host has cut off what was translated of the page. A page that is written
//! often is left alone for a while; its fragments compare their own bytes before they run instead.
//!
//! Pages are guarded by userfaultfd(2), or by mprotect(2) where that is refused: see
//! [`protection`].

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use lwp_process::userfault::{Reach, SYS_USERFAULTFD, Userfault, Write, Writes};
use lwp_process::{Tid, Tracees, sys};
use rustc_hash::FxHashMap;

use crate::config::{Config, Guards, Target};
use crate::contexts::Contexts;
use crate::exec::find_syscall;
use crate::inject::Injector;
use crate::lwp::report_all_early;
use crate::machine::{CodeCaches, Machine, Tasks, Where};
use crate::maps::{self, Status};

mod fills;
mod holder;
mod protection;
mod watch;

use fills::Told;
pub use fills::{Unasked, awaits_release, tell_again};
use protection::Protection;
pub use protection::{FaultAction, as_set, unprotect_for_signal, write_again, write_fault};
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
    means: Means,
    pages: Mutex<FxHashMap<u64, Page>>,
    /// The range in which pages may be guarded, as far as threads know.
    told: Mutex<Told>,
    /// Those to which the kernel may write whenever it likes.
    unasked: Unasked,
}

/// The means of guarding pages.
#[derive(Debug)]
enum Means {
    /// A descriptor of the kernel's.
    Userfault {
        descriptor: Userfault,
        /// The kernel's own writes wait too. Where they fail instead, calls are looked at first.
        waits_for_kernel: bool,
    },
    /// The protection of the pages, which a thread of the program has to change.
    Protection(Protection),
}

impl Means {
    fn descriptor(&self) -> Option<&Userfault> {
        match self {
            Self::Userfault { descriptor, .. } => Some(descriptor),
            Self::Protection(_) => None,
        }
    }

    /// Returns whether the kernel's own writes to a guarded page wait too.
    fn waits_for_kernel(&self) -> bool {
        matches!(self, Self::Userfault { waits_for_kernel: true, .. })
    }
}

/// The writes to generated code of which notice can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Those that wait for the holder of a descriptor.
    Userfault(Reach),
    /// Those of the program, by a fault in it.
    Protection,
}

impl Way {
    /// Returns whether the kernel's own writes to a guarded page fail.
    pub fn looks_at_calls(self) -> bool {
        self != Self::Userfault(Reach::All)
    }
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

impl Source {
    /// Guards nothing from now on.
    pub fn give_up(&mut self) {
        if !matches!(self, Self::Given(notices) if notices.retire()) {
            *self = Self::Refused;
        }
    }
}

impl Notices {
    fn new(key: u64, means: Means, unasked: Unasked) -> Self {
        Self { key, means, pages: Mutex::default(), told: Mutex::default(), unasked }
    }

    fn pages(&self) -> MutexGuard<'_, FxHashMap<u64, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Guards the pages of `range`, which lies in memory that extends over `mapping`: false where
    /// one of them is not to be guarded. What was read of them before may have changed.
    pub fn guard(&self, range: (u64, u64), mapping: (u64, u64)) -> bool {
        pages_of(range).all(|page| self.guard_page(page, mapping))
    }

    /// Returns whether all pages of `range` are guarded.
    pub fn have_guarded(&self, range: (u64, u64)) -> bool {
        let pages = self.pages();
        let is_guarded = |page| pages.get(&page).is_some_and(|it| it.state == State::Guarded);
        pages_of(range).all(is_guarded)
    }

    /// Guards the page; false where it is not to be guarded.
    fn guard_page(&self, page: u64, mapping: (u64, u64)) -> bool {
        if !self.is_guardable(page) {
            return false;
        }
        let mut pages = self.pages();
        let state = &mut pages.entry(page).or_insert(Page::NEW).state;
        match state {
            State::Guarded => return true,
            State::Left(_) => return false,
            State::Open => {}
        }
        // A protected page is guarded at a stop of the thread that wants its code.
        let Some(descriptor) = self.means.descriptor() else { return false };
        let guard = || descriptor.protect((page, page + PAGE), true);
        let guarded = guard().or_else(|_| {
            descriptor.register(mapping)?;
            guard()
        });
        *state = if guarded.is_ok() { State::Guarded } else { State::Left(None) };
        guarded.is_ok()
    }

    /// Returns whether the kernel need not write to a page at times that nobody knows.
    fn is_guardable(&self, page: u64) -> bool {
        self.may_guard((page, page + PAGE)) && !self.unasked.has(page)
    }

    /// The next write that waits.
    fn next_write(&self) -> Option<Write> {
        self.means.descriptor()?.next_write()
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
        match &self.means {
            Means::Userfault { descriptor, .. } => {
                // The page may be gone, and its address space too.
                let _ = descriptor.protect((page, page + PAGE), false);
            }
            Means::Protection(protection) => protection.release(page),
        }
    }

    /// Notes that what is mapped in `range` has changed.
    pub fn forget(&self, range: (u64, u64)) {
        self.told().note_mapped(range);
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
    way: Option<Way>,
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
    /// A page is left alone from now on.
    paused: OwnedFd,
    given: Mutex<FxHashMap<u64, Weak<Notices>>>,
}

/// The key of the end of the run.
const END: u64 = 0;
/// The key of a pause that begins.
const PAUSED: u64 = u64::MAX;

impl Waiting {
    fn new() -> std::io::Result<Self> {
        let event = || sys::event_fd().map_err(|error| std::io::Error::from_raw_os_error(error.0));
        let (end, paused, writes) = (event()?, event()?, Writes::new()?);
        writes.add_fd(&end, END)?;
        writes.add_fd(&paused, PAUSED)?;
        Ok(Self { writes, end, paused, given: Mutex::default() })
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
pub fn way(config: &Config) -> Option<Way> {
    // A filter may kill for a call that it does not expect. Whoever loads a library calls mprotect.
    let filtered = filters(std::process::id() as Tid) != Some(0);
    let best = || Reach::best().map_or(Way::Protection, Way::Userfault);
    let way = match config.trials.guards {
        Guards::Best if !filtered => best(),
        Guards::Best | Guards::Protection => Way::Protection,
        Guards::UserMode => Way::Userfault(Reach::UserMode),
        Guards::Off => return None,
    };
    let launched = matches!(config.target, Target::Launch { .. });
    let looks_at_calls = launched && config.sampling.events.is_empty();
    (!way.looks_at_calls() || looks_at_calls).then_some(way)
}

/// The number of system call filters in force in a thread; one where only that there are some is
/// known.
fn filters(tid: Tid) -> Option<u64> {
    let status = Status::read(tid);
    match status.number("Seccomp:")? {
        0 => Some(0),
        _ => Some(status.number("Seccomp_filters:").unwrap_or(1)),
    }
}

impl Board {
    /// None yet, in a run in which notice of such writes can be had.
    pub fn reaching(way: Option<Way>) -> Self {
        Self { way, ..Self::default() }
    }

    /// Adds notices that are had by these means.
    fn add(&mut self, means: Means, unasked: Unasked) -> Option<Arc<Notices>> {
        if self.waiting.is_none() {
            self.waiting = Some(Arc::new(Waiting::new().ok()?));
            self.new = true;
        }
        let waiting = self.waiting.as_ref()?;
        self.made += 1;
        let notices = Arc::new(Notices::new(self.made, means, unasked));
        waiting.given().insert(notices.key, Arc::downgrade(&notices));
        if let Some(descriptor) = notices.means.descriptor() {
            waiting.writes.add(descriptor, notices.key).ok()?;
        }
        Some(notices)
    }

    /// Has somebody look at how long pages are left alone.
    fn note_pause(&self) {
        if let Some(waiting) = &self.waiting {
            sys::event_signal(&waiting.paused);
        }
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

impl Where<'_> {
    /// Returns whether pages of the address space of `tid` are still to be given their protection
    /// back.
    pub fn has_released(&self, tid: Tid) -> bool {
        self.notices_of(tid).is_some_and(|notices| notices.has_released())
    }

    /// The pages of the address space of `tid` that cannot be written to for our sake, in order.
    pub fn protected_pages(&self, tid: Tid) -> Vec<u64> {
        self.notices_of(tid).map_or_else(Vec::new, |notices| notices.protected_pages())
    }

    /// The notices of the address space of `tid`.
    pub fn notices_of(&self, tid: Tid) -> Option<Arc<Notices>> {
        let space = self.caches.spaces.get(self.tasks.base_space(tid)?)?.as_ref()?;
        match &space.notices {
            Source::Given(notices) => Some(Arc::clone(notices)),
            _ => None,
        }
    }

    /// The notices of the address space of `tid` that are had by protection.
    fn protecting(&self, tid: Tid) -> Option<Arc<Notices>> {
        self.notices_of(tid).filter(|notices| notices.protection().is_some())
    }

    /// The pages of the address space of `tid` to which the kernel may write whenever it likes.
    fn unasked_of(&self, tid: Tid) -> Unasked {
        let base = self.tasks.base_space(tid).and_then(|base| self.caches.spaces[base].as_ref());
        base.map_or_else(Unasked::default, |space| space.unasked.clone())
    }
}

impl CodeCaches {
    /// Does without notices from now on: nobody can wait for them.
    pub fn withdraw_notices(&mut self) {
        for place in &mut self.spaces {
            let Some(space) = place.as_mut() else { continue };
            let Some(Some(family)) = self.families.get_mut(space.family) else { continue };
            if matches!(space.notices, Source::Given(_)) {
                for unit in space.code.private_units() {
                    family.invalidate_all(unit);
                }
            }
            space.notices.give_up();
        }
    }
}

/// The guards of pages with code: of the address spaces in which threads run.
#[derive(Debug)]
pub struct Guarding<'a> {
    tasks: &'a mut Tasks,
    contexts: &'a Contexts,
    caches: &'a mut CodeCaches,
    tracees: &'a Arc<dyn Tracees>,
}

impl Machine {
    /// Returns the guards of pages with code.
    pub fn guarding(&mut self) -> Guarding<'_> {
        let Self { tasks, contexts, caches, tracees, .. } = self;
        Guarding { tasks, contexts, caches, tracees }
    }
}

impl Guarding<'_> {
    /// Finds out whether notice of writes to code can be had in the address space of `tid`, which
    /// stands still, unless another thread has asked before: pages stay guarded by the notices that
    /// were there first.
    pub fn find_notices(&mut self, tid: Tid) {
        if self
            .caches
            .space_of(self.tasks, tid)
            .is_some_and(|(space, _)| !matches!(space.notices, Source::Unknown))
        {
            return;
        }
        let notices = self.caches.notices.way.and_then(|way| self.make_notices(tid, way));
        self.give_notices(tid, notices.map_or(Source::Refused, Source::Given));
    }

    /// Has all sides of the address space of `tid` know these notices.
    fn give_notices(&mut self, tid: Tid, source: Source) {
        for side in self.caches.of(self.tasks).all_sides(tid) {
            if let Some(Some(space)) = self.caches.spaces.get_mut(side) {
                space.notices = source.clone();
            }
        }
    }

    fn make_notices(&mut self, tid: Tid, way: Way) -> Option<Arc<Notices>> {
        let pid = self.tasks.threads.get(&tid)?.pid;
        let unasked = self.caches.of(self.tasks).unasked_of(tid);
        let Way::Userfault(reach) = way else {
            // The filters of ours let a program protect its memory; those of its own need not.
            if filters(tid)? > filters(std::process::id() as Tid)? {
                return None;
            }
            return self.caches.notices.add(Means::Protection(Protection::default()), unasked);
        };
        let status = Status::read(tid);
        // A filter may kill for a call that it does not expect.
        if status.is_filtered() {
            return None;
        }
        let site = find_syscall(tid, &maps::read(tid)).ok()?;
        let mut injector = Injector::new(self.tracees, tid, site, &status);
        let number = injector.call([SYS_USERFAULTFD, reach.flags(), 0, 0, 0, 0, 0]).ok()?;
        let descriptor = Userfault::take(pid, number as i32);
        let _ = injector.call([SYS_CLOSE, number, 0, 0, 0, 0, 0]);
        let (descriptor, waits_for_kernel) = (descriptor.ok()?, reach == Reach::All);
        self.caches.notices.add(Means::Userfault { descriptor, waits_for_kernel }, unasked)
    }

    /// Has what is translated of pages that have been left alone for long enough guarded again.
    /// Returns whether there are others that have not.
    pub fn end_pauses(&mut self, all: &[Arc<Notices>]) -> bool {
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
        self.tasks.forget_cuts(self.contexts);
        for place in &mut self.caches.spaces {
            let Some(space) = place.as_mut().filter(|space| space.has_notices(key)) else {
                continue;
            };
            let Some(Some(family)) = self.caches.families.get_mut(space.family) else { continue };
            for unit in space.code.private_units() {
                family.invalidate_page(unit, page);
            }
        }
    }
}

/// The page of `address` is about to be written to: reports the samples that were taken of its
/// code, cuts off what was translated of it, and lets the write happen.
pub fn about_to_be_written(machine: &mut Machine, notices: &Notices, address: u64) {
    if machine.config.samples() {
        report_all_early(machine);
    }
    machine.guarding().cut_off_page(notices.key, address & !(PAGE - 1));
    notices.let_write(address);
}

#[cfg(test)]
mod tests;
