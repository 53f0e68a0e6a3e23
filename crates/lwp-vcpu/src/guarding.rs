//! Notices writes to writable pages with code.
//!
//! Once such a page is *guarded*, the host translates its code like any other: the first write to
//! the page waits until the host has disconnected its fragments. If a program writes to a page
//! often, the page stays unguarded for a while, and its fragments compare their own bytes before
//! they run.
//!
//! The host guards pages with userfaultfd(2) or, if that is refused, with mprotect(2): see
//! [`protection`].

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lwp_mailbox::contexts::Contexts;
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Status};
use lwp_process::userfault::{Reach, SYS_USERFAULTFD, Userfault, Writes};
use lwp_process::{Tid, Tracees, sys};
use lwp_run::config::{Config, Guards, Target};
use rustc_hash::FxHashMap;

use crate::lwp::report_all_early;
use crate::machine::{CodeCaches, Machine, Tasks, Where};
use crate::setup::find_syscall;

mod kernel_writes;
mod lock_holder;
mod protection;
mod write_watch;

pub use kernel_writes::{awaits_release, tell_again};
use lwp_code::guards::{FIRST_PAUSE, Means, Protection};
pub use lwp_code::guards::{Notices, Source, Unasked, Way};
pub use protection::{FaultAction, unprotect_for_signal, write_again, write_fault};
pub use write_watch::watch;

use lwp_process::maps::PAGE;

const SYS_CLOSE: u64 = 3;
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
        if let Some(descriptor) = notices.descriptor() {
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
