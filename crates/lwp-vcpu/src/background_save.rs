//! Writes translations to the store, at the end of a run and while it lasts.
//!
//! Writing takes several times as long as reading, so a separate process writes large updates
//! ([`sys::leave_behind`]). It is a copy of this process, whose memory doesn't change while the run
//! continues or ends. Code is the exception, because it is shared with the program: this process
//! waits until the other one has copied the code, so that the copy takes no memory here.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use lwp_code::family::Family;
use lwp_code::module_images::Unsaved;
use lwp_dbt::ExecutionProfile;
use lwp_mailbox::contexts::Contexts;
use lwp_process::{Tid, sys};
use lwp_run::config::Config;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cpu_clock;
use crate::machine::{CodeCaches, Errands, Machine, Tasks, Thread};

/// Fragments that take longer to write than anybody should wait: some 20 ms.
const MUCH: usize = 4000;
/// The time that a run lasts before something is written while it goes on. Every time it takes
/// twice as long until the next.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The time for which a look at a thread's processor time, some 20 µs, need not be repeated.
const RECENT: Duration = Duration::from_millis(50);

/// The time after which a thread's program is worth knowing well.
const LONG: Duration = Duration::from_secs(1);

/// The record of what has been written of a run that goes on.
#[derive(Debug)]
pub struct Saving {
    next: Instant,
    pause: Duration,
    /// New fragments that there were the last time.
    fragments: usize,
    /// The time after which a thread's program is worth knowing well.
    worth: Duration,
    /// True if a thread has run for so long that it is worth to know its programs well.
    pub long: bool,
    /// The thread that was looked at last, and what was seen.
    looked: Option<Look>,
    /// The process that writes meanwhile says here which families it has laid out anew.
    improved: Option<PipeReader>,
}

/// A look at the processor time of a thread.
#[derive(Clone, Copy, Debug)]
struct Look {
    tid: Tid,
    /// The beginning of the thread, which tells it from earlier ones with its number.
    started: Instant,
    at: Instant,
    long: bool,
}

impl Look {
    /// Returns whether it still tells about that thread: one that has run for long always has.
    fn tells(&self, tid: Tid, started: Instant) -> bool {
        let same = self.tid == tid && self.started == started;
        same && (self.long || self.at.elapsed() < RECENT)
    }
}

impl Default for Saving {
    fn default() -> Self {
        Self {
            next: Instant::now() + FIRST_PAUSE,
            pause: FIRST_PAUSE,
            fragments: 0,
            worth: LONG,
            long: false,
            looked: None,
            improved: None,
        }
    }
}

impl Saving {
    /// Nothing yet, of a run with these settings.
    pub fn of(config: &Config) -> Self {
        let saving = Self::default();
        match config.trials.improve {
            Some(after) => {
                Self { next: Instant::now() + after, pause: after, worth: after, ..saving }
            }
            None => saving,
        }
    }

    /// Returns whether a thread that has `started` then has run for long: by its processor time, of
    /// which it gets little on a busy machine.
    pub fn is_long(&self, tid: Tid, started: Instant) -> bool {
        let elapsed = started.elapsed();
        elapsed >= self.worth && cpu_clock::of_thread(tid).unwrap_or(elapsed) >= self.worth
    }

    /// As [`Saving::is_long`], and remembers that a thread has run for long. For those who ask
    /// again and again: the answer may be a moment old.
    pub fn has_become_long(&mut self, tid: Tid, started: Instant) -> bool {
        if let Some(look) = self.looked.filter(|look| look.tells(tid, started)) {
            return look.long;
        }
        let long = self.is_long(tid, started);
        self.looked = Some(Look { tid, started, at: Instant::now(), long });
        self.long |= long;
        long
    }

    /// The families that have been laid out anew since this was asked last.
    fn take_improved(&mut self) -> Vec<usize> {
        let Some(improved) = &mut self.improved else { return Vec::new() };
        let mut polled = [PollFd::new(improved, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut polled, Some(&now)), Ok(1..)) {
            return Vec::new();
        }
        let mut families = [0; 256];
        match improved.read(&mut families) {
            Ok(read @ 1..) => families[..read].iter().map(|family| usize::from(*family)).collect(),
            _ => {
                self.improved = None;
                Vec::new()
            }
        }
    }
}

/// What has become of the wish to have another process write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aside {
    /// It writes.
    Begun,
    /// Enough others are writing for other runs: what this one has translated is not kept.
    Crowded,
    /// There cannot be one.
    Impossible,
}

/// Keeps what a run translates and learns: in memory while it goes on, and in the store.
#[derive(Debug)]
pub struct Keeper<'a> {
    /// The settings of the run.
    pub config: &'a Config,
    /// The contexts of all threads.
    pub contexts: &'a Contexts,
    /// Processes and threads.
    pub tasks: &'a Tasks,
    /// Address spaces and their translations.
    pub caches: &'a mut CodeCaches,
    /// Errands for the tracer.
    pub errands: &'a mut Errands,
}

impl Machine {
    /// Returns the means to keep what is translated and learned.
    pub fn keeper(&mut self) -> Keeper<'_> {
        let Self { config, contexts, tasks, caches, errands, .. } = self;
        Keeper { config, contexts, tasks, caches, errands }
    }
}

impl Keeper<'_> {
    /// Writes what this run has translated, at its end.
    pub fn keep(&mut self) {
        let mut work = self.unsaved();
        let much = work.iter().map(|unit| unit.fragments).sum::<usize>() >= MUCH;
        // Who translates ahead of time wants to find it.
        let aside = match much && self.config.kept.warm.is_none() {
            true => self.save_aside(&mut work),
            false => Aside::Impossible,
        };
        if aside == Aside::Impossible {
            self.save(&mut work, &mut |_| {});
        }
    }

    /// Writes what there is while the run goes on, should it be time for that: what is killed later
    /// has not been translated in vain.
    pub fn keep_meanwhile(&mut self) {
        self.use_improved();
        let now = Instant::now();
        let saving = &self.caches.saving;
        if self.caches.store.is_none() || now < saving.next || saving.improved.is_some() {
            return;
        }
        self.caches.saving.pause *= 2;
        self.caches.saving.next = now + self.caches.saving.pause;
        let mut work = self.unsaved();
        let new = self.caches.families.iter().flatten().flat_map(|family| family.modules.iter());
        let new: usize = new.map(|(_, module)| module.unit.new_fragments()).sum();
        let grown = new >= self.caches.saving.fragments + MUCH / 4;
        if !grown && !work.iter().any(Unsaved::may_improve) {
            return;
        }
        // Where others are writing, it is tried again.
        if self.save_aside(&mut work) != Aside::Crowded {
            self.caches.saving.fragments = new;
        }
    }

    /// Has the tracer replace the translations of families that have been laid out anew since they
    /// were made.
    fn use_improved(&mut self) {
        let families = self.caches.saving.take_improved();
        if !families.is_empty() {
            self.errands.improved.extend(families);
            self.errands.wake();
        }
    }

    fn unsaved(&self) -> Vec<Unsaved> {
        let saving = &self.caches.saving;
        let lasts = |(tid, thread): (&Tid, &Thread)| saving.is_long(*tid, thread.account.started);
        let long = saving.long || self.tasks.threads.iter().any(lasts);
        self.caches
            .families
            .iter()
            .flatten()
            .filter_map(Family::keeping)
            .flat_map(|it| it.unsaved(long))
            .collect()
    }

    /// Has another process write `work`.
    fn save_aside(&mut self, work: &mut [Unsaved]) -> Aside {
        let Some(store) = self.caches.store.as_ref().filter(|_| !work.is_empty()) else {
            return Aside::Impossible;
        };
        let Some(place) = store.writer_place() else { return Aside::Crowded };
        // Both are held by the other process until it ends.
        let Ok(lock) = store.lock_shared() else { return Aside::Impossible };
        let Ok((mut copied, copying)) = std::io::pipe() else { return Aside::Impossible };
        let Ok((improved, mut improving)) = std::io::pipe() else { return Aside::Impossible };
        let files = work.iter().filter_map(|unit| unit.file);
        let memories =
            self.caches.families.iter().flatten().map(|family| family.arenas.memory.fd());
        let locks = [lock.as_raw_fd(), place.as_raw_fd()];
        let ours = [store.fd(), copying.as_raw_fd(), improving.as_raw_fd()];
        // Live threads have counted, too.
        let contexts = self.contexts.files.descriptors();
        let kept: Vec<_> = files.chain(memories).chain(contexts).chain(locks).chain(ours).collect();
        match sys::leave_behind(&kept) {
            Ok(false) => {
                drop(copying);
                // Nothing is ever written: it ends when the other process has copied everything, or
                // ends.
                let _ = copied.read(&mut [0]);
                self.caches.saving.improved = Some(improved);
                Aside::Begun
            }
            Ok(true) => {
                self.copy_code(work);
                drop(copying);
                // Whether anybody still listens is their business.
                self.save(work, &mut |families| drop(improving.write_all(families)));
                sys::exit_controller(0)
            }
            Err(_) => Aside::Impossible,
        }
    }

    fn copy_code(&self, work: &mut [Unsaved]) {
        for unit in work {
            if let Some(family) = self.caches.families.get(unit.family).and_then(Option::as_ref) {
                unit.copy_code(&family.arenas.memory);
            }
        }
    }

    /// Writes units, those first of which most is known. `improved` is told the numbers of families
    /// of which something has become known well: once all that this run knows well has been
    /// written, and at the end.
    fn save(&self, work: &mut [Unsaved], improved: &mut dyn FnMut(&[u8])) {
        self.copy_code(work);
        let mut learned: HashMap<usize, Option<ExecutionProfile>> = HashMap::new();
        for unit in work.iter() {
            learned.entry(unit.family).or_insert_with(|| self.learned(unit.family));
        }
        let profile = |unit: &Unsaved| learned.get(&unit.family).and_then(Option::as_ref);
        let executions =
            |unit: &Unsaved| profile(unit).map_or(0, |it| it.executions_in(unit.extent));
        work.sort_by_cached_key(|unit| Reverse(executions(unit)));
        let known = work.partition_point(|unit| executions(unit) >= lwp_dbt::WELL);
        let (known, others) = work.split_at_mut(known);
        let mut written = false;
        for part in [known, others] {
            let mut families = Vec::new();
            for unit in part {
                let profile = profile(unit);
                let family = self.caches.families.get(unit.family).and_then(Option::as_ref);
                let knowledge = family.and_then(|family| family.keeping()?.save(unit, profile));
                written |= knowledge.is_some();
                if knowledge.is_some_and(|known| unit.is_improved_by(known)) {
                    families.extend(u8::try_from(unit.family));
                }
            }
            families.sort_unstable();
            families.dedup();
            improved(&families);
        }
        if let Some(store) = self.caches.store.as_ref().filter(|_| written) {
            let _ = store.prune();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_tells_of_its_own_thread_for_a_moment_or_for_ever() {
        let now = Instant::now();
        let long_ago = now.checked_sub(RECENT * 2).expect("the machine has run for so long");
        let look = |at, long| Look { tid: 7, started: now, at, long };
        assert!(look(now, false).tells(7, now) && !look(long_ago, false).tells(7, now));
        assert!(look(long_ago, true).tells(7, now));
        assert!(!look(now, true).tells(8, now) && !look(now, true).tells(7, long_ago));
    }
}
