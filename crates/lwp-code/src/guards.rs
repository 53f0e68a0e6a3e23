//! The state of pages with code that can be written at any time: which are guarded against writes,
//! which are left alone, and what threads know of it.
//!
//! Code in such a page is translated like any other once the page is *guarded*: the first write to
//! it waits until what was translated of the page has been cut off. A page that is written often is
//! left alone for a while; its fragments compare their own bytes before they run instead.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lwp_arch::insn;
use lwp_process::maps::{self, Mapping, PAGE, joins, pieces};
use lwp_process::userfault::{Reach, Userfault, Write};
use lwp_process::{Tid, memory};
use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;

use crate::syscall_sites::find_syscall;

/// So many writes, each at most [`CLOSE`] after the one before, are a burst: the page is left
/// alone.
const BURST: u32 = 8;
const CLOSE: Duration = Duration::from_millis(10);
/// The time for which it is left alone at first. Each further burst doubles that.
pub const FIRST_PAUSE: Duration = Duration::from_millis(20);
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
pub enum Means {
    /// A descriptor of the kernel's.
    Userfault {
        /// The descriptor.
        descriptor: Userfault,
        /// The kernel's own writes wait too. Where they fail instead, calls are looked at first.
        waits_for_kernel: bool,
    },
    /// The protection of the pages, which a thread of the program has to change.
    Protection(Protection),
}

impl Means {
    /// The descriptor, where there is one.
    pub fn descriptor(&self) -> Option<&Userfault> {
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

/// How a page with code is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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
    /// Those of an address space in which no page is guarded yet.
    pub fn new(key: u64, means: Means, unasked: Unasked) -> Self {
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
    pub fn next_write(&self) -> Option<Write> {
        self.means.descriptor()?.next_write()
    }

    /// Nothing that was translated of the page of `address` can be reached any more: lets the write
    /// to it happen.
    pub fn let_write(&self, address: u64) {
        let page = address & !(PAGE - 1);
        let mut pages = self.pages();
        if let Some(page) = pages.get_mut(&page) {
            page.note_write(Instant::now());
        }
        self.unprotect(page);
    }

    /// Has the page written to again, or notes that a thread is to give it its protection back.
    pub fn unprotect(&self, page: u64) {
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
    pub fn pauses_over(&self) -> Vec<u64> {
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
    pub fn pauses(&self) -> bool {
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

/// Addresses from one to below the other.
type Range = (u64, u64);

/// Each may split a mapping in three, and the kernel allows 65,530 of them.
const MOST_GUARDED: usize = 8192;
/// First address that no program has.
const USER_END: u64 = 0x7fff_ffff_f000;

/// The range in which pages may be guarded, as far as threads know.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    range: Range,
    /// Something else may be mapped there since.
    changed: bool,
}

impl Told {
    fn covers(&self, range: Range) -> bool {
        !self.changed && self.range.0 <= range.0 && range.1 <= self.range.1
    }

    /// Notes that something else is mapped in `range`. Calls that have begun before may fill it: if
    /// it lies among the guarded pages, threads are to be told again.
    fn note_mapped(&mut self, range: Range) {
        self.changed |= range.0 < self.range.1 && self.range.0 < range.1;
    }
}

impl Notices {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether pages in `range` may be guarded now: either the kernel can write to them, or
    /// threads know that it cannot.
    pub fn may_guard(&self, range: Range) -> bool {
        self.means.waits_for_kernel() || self.told().covers(range)
    }

    /// How a page is kept, if code of it has been executed.
    pub fn state_of(&self, page: u64) -> Option<State> {
        self.pages().get(&page).map(|page| page.state)
    }

    /// The pages of which code has been executed.
    pub fn known_pages(&self) -> Vec<u64> {
        self.pages().keys().copied().collect()
    }

    /// Of a copy of an address space: these pages are guarded, and its threads know what those of
    /// `original` know.
    pub fn inherit(&self, original: &Self, guarded: impl Iterator<Item = u64>) {
        *self.told() = *original.told();
        let guarded = guarded.map(|page| (page, Page { state: State::Guarded, ..Page::NEW }));
        self.pages().extend(guarded);
    }

    /// The range in which pages may be guarded, as far as threads know.
    pub fn told_range(&self) -> Range {
        self.told().range
    }

    /// That range, if something else may have been mapped there since threads were told.
    pub fn told_anew(&self) -> Option<Range> {
        let told = *self.told();
        told.changed.then_some(told.range)
    }

    /// Returns whether the kernel's own writes to a guarded page wait too.
    pub fn waits_for_kernel(&self) -> bool {
        self.means.waits_for_kernel()
    }

    /// The descriptor that tells of writes, where pages are guarded by one.
    pub fn descriptor(&self) -> Option<&Userfault> {
        self.means.descriptor()
    }

    /// Notes that pages in `range` may be guarded from now on. Returns what threads are to be told,
    /// unless they know it.
    pub fn widen(&self, range: Range) -> Option<Range> {
        let mut told = self.told();
        if told.covers(range) {
            return None;
        }
        let first = if told.range == (0, 0) { range } else { told.range };
        let range = (first.0.min(range.0), first.1.max(range.1));
        *told = Told { range, changed: false };
        Some(range)
    }

    /// Leaves the pages of `range` alone for ever, as far as threads have been told of them.
    /// Returns those that are guarded.
    pub fn leave(&self, range: Range) -> Vec<u64> {
        let told = if self.means.waits_for_kernel() { (0, USER_END) } else { self.told().range };
        let range = (range.0.max(told.0), range.1.min(told.1));
        let mut pages = self.pages();
        let mut leave = |page: &u64| {
            let state = &mut pages.entry(*page).or_insert(Page::NEW).state;
            std::mem::replace(state, State::Left(None)) == State::Guarded
        };
        pages_of(range).filter(&mut leave).collect()
    }
}

/// The pages of an address space to which the kernel may write whenever it likes.
#[derive(Clone, Debug, Default)]
pub struct Unasked(Arc<Mutex<FxHashSet<u64>>>);

impl Unasked {
    fn pages(&self) -> MutexGuard<'_, FxHashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most pages that one range may have: a signal stack of more is as good as none.
    const MOST: usize = 1 << 16;

    /// The kernel may write to `range` whenever it likes.
    pub fn add(&self, range: Range) {
        self.pages().extend(pages_of(range).take(Self::MOST));
    }

    /// Returns whether it may write to a page so.
    pub fn has(&self, page: u64) -> bool {
        self.pages().contains(&page)
    }

    /// Those of a copy of the address space.
    pub fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.pages().clone())))
    }
}

/// The state of guarding by protection in an address space.
#[derive(Debug, Default)]
pub struct Protection {
    /// Pages that are guarded no longer, and that a thread is to give their own protection back.
    released: Mutex<FxHashSet<u64>>,
    /// No page is guarded any more.
    retired: AtomicBool,
    /// A `syscall` instruction in the program.
    site: AtomicU64,
}

impl Protection {
    fn released(&self) -> MutexGuard<'_, FxHashSet<u64>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the pages that are to be given their own protection back.
    pub fn take_released(&self) -> Vec<u64> {
        std::mem::take(&mut *self.released()).into_iter().collect()
    }

    /// Those pages are still to be given it.
    pub fn keep_released(&self, pages: Vec<u64>) {
        self.released().extend(pages);
    }

    /// A page is guarded no longer.
    pub fn release(&self, page: u64) {
        self.released().insert(page);
    }

    /// A `syscall` instruction in the address space of `tid`.
    pub fn site(&self, tid: Tid) -> Option<u64> {
        let known = self.site.load(Ordering::Relaxed);
        if known != 0 && memory::read_array(tid, known).is_ok_and(|code: [u8; 2]| code == [0x0f, 5])
        {
            return Some(known);
        }
        let found = find_syscall(tid, &maps::read(tid)).ok()?;
        self.site.store(found, Ordering::Relaxed);
        Some(found)
    }
}

impl Notices {
    /// The state of guarding by protection, where pages are guarded so.
    pub fn protection(&self) -> Option<&Protection> {
        match &self.means {
            Means::Protection(protection) => Some(protection),
            Means::Userfault { .. } => None,
        }
    }

    /// Returns whether code at `pc`, in memory that ends at `end`, is guarded as soon as a thread
    /// stands still for that.
    pub fn lacks_guard(&self, pc: u64, end: u64) -> bool {
        self.protection().is_some() && pages_of(code_at(pc, end)).any(|page| self.is_open(page))
    }

    /// Returns whether a page is guarded as soon as a thread stands still for that.
    pub fn is_open(&self, page: u64) -> bool {
        let Some(protection) = self.protection() else { return false };
        let state = self.pages().get(&page).map_or(State::Open, |page| page.state);
        state == State::Open
            && !protection.retired.load(Ordering::Relaxed)
            && self.is_guardable(page)
    }

    /// Guards nothing from now on. False where whoever has these notices is to drop them.
    pub fn retire(&self) -> bool {
        let Some(protection) = self.protection() else { return false };
        protection.retired.store(true, Ordering::Relaxed);
        for (address, page) in self.pages().iter_mut() {
            if std::mem::replace(&mut page.state, State::Left(None)) == State::Guarded {
                protection.release(*address);
            }
        }
        true
    }

    /// Returns whether a page is still to be given its own protection back.
    pub fn is_released(&self, page: u64) -> bool {
        self.protection().is_some_and(|protection| protection.released().contains(&page))
    }

    /// Returns whether pages are still to be given their own protection back.
    pub fn has_released(&self) -> bool {
        self.protection().is_some_and(|protection| !protection.released().is_empty())
    }

    /// The pages of code at `pc` that are to be guarded, if there are not too many.
    pub fn to_guard(&self, pc: u64, end: u64) -> Vec<u64> {
        let open: Vec<u64> =
            pages_of(code_at(pc, end)).filter(|page| self.is_open(*page)).collect();
        let mut pages = self.pages();
        let guarded = pages.values().filter(|page| page.state == State::Guarded).count();
        if guarded < MOST_GUARDED {
            return open;
        }
        for page in open {
            pages.entry(page).or_insert(Page::NEW).state = State::Left(None);
        }
        Vec::new()
    }

    /// Leaves the pages of `range` alone that are guarded, until something is mapped or protected
    /// there. Returns them.
    pub fn leave_guarded(&self, range: (u64, u64)) -> Vec<u64> {
        let mut pages = self.pages();
        let guarded = |(at, page): &(&u64, &mut Page)| {
            page.state == State::Guarded && **at < range.1 && range.0 < **at + PAGE
        };
        let left = pages.iter_mut().filter(guarded).map(|(at, page)| {
            page.state = State::Left(None);
            *at
        });
        left.collect()
    }

    /// Notes whether pages could be guarded, by the results of the calls.
    pub fn note_guarded(&self, guarded: &[u64], results: &[i64]) {
        let mut pages = self.pages();
        for (page, result) in guarded.iter().zip(results) {
            let state = if *result == 0 { State::Guarded } else { State::Left(None) };
            pages.entry(*page).or_insert(Page::NEW).state = state;
        }
    }

    /// The pages that cannot be written to for our sake, in order.
    pub fn protected_pages(&self) -> Vec<u64> {
        let Some(protection) = self.protection() else { return Vec::new() };
        let pages = self.pages();
        let guarded = pages.iter().filter(|(_, page)| page.state == State::Guarded);
        let mut all: Vec<u64> = guarded.map(|(address, _)| *address).collect();
        all.extend(protection.released().iter());
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The bytes that an instruction at `pc` may have in memory that ends at `end`.
fn code_at(pc: u64, end: u64) -> (u64, u64) {
    (pc, pc.saturating_add(insn::LONGEST as u64).min(end))
}

/// The mappings as the program has set them: pages that are protected for our sake can be written
/// to, and the mapping that they are parts of is one.
pub fn as_set<'a>(mappings: &'a [Mapping], source: &Source) -> Cow<'a, [Mapping]> {
    let Source::Given(notices) = source else { return Cow::Borrowed(mappings) };
    let pages = notices.protected_pages();
    match pages.is_empty() {
        true => Cow::Borrowed(mappings),
        false => Cow::Owned(with_pages(mappings, &pages)),
    }
}

/// The mappings where `pages`, in order, can be written to as well, joined as the kernel joins
/// them.
fn with_pages(mappings: &[Mapping], pages: &[u64]) -> Vec<Mapping> {
    let mut shown: Vec<Mapping> = Vec::with_capacity(mappings.len());
    for mapping in mappings.iter().flat_map(|mapping| pieces(mapping.clone(), pages)) {
        match shown.last_mut().filter(|last| joins(last, &mapping)) {
            Some(last) => last.end = mapping.end,
            None => shown.push(mapping),
        }
    }
    shown
}

#[cfg(test)]
mod tests;
