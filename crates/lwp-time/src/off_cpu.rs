//! Time in which threads have no processor.
//!
//! The kernel records each time that a thread loses its processor or gets one: the difference is
//! time off the processor, measured and not sampled. Why a thread sleeps, and in which functions,
//! is looked up while it does ([`Sleeper`]); what is over sooner than lwp looks has no stack.
//!
//! Promise: R140

use lwp_vcpu::profile::{self, Place, Sink};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::sleeper::Sleeper;

/// Receives time off the processor, beside what the virtual CPU reports too.
pub trait Spans: Sink {
    /// A stack that was off the processor, so many units long.
    fn span(&mut self, sample: &profile::Sample<'_>, units: u64);
}

/// Nanoseconds of the unit that spans are recorded in; what is left of one goes to the thread's
/// next.
pub const UNIT_NS: u64 = 10_000;

/// Sleeps that are shorter are not looked at.
const LEAST_NS: u64 = 300_000;

/// Time off the processor, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpu {
    /// Threads that could run, and whose processor others had taken.
    pub preempted: u64,
    /// Threads that waited for something: for time, input, other threads. Until they have a
    /// processor again, so that they may have waited for one in the end.
    pub asleep: u64,
    /// Of that, with the stack that the thread was in.
    pub with_stack: u64,
}

/// A thread without a processor.
#[derive(Clone, Copy, Debug)]
struct Away {
    pid: i32,
    since: u64,
    preempted: bool,
    /// Somebody has looked at it, with or without success.
    looked_at: bool,
}

/// When a thread went, and its frames then, innermost first.
type Seen = (u64, Vec<Place>);

/// The end of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub pid: i32,
    pub units: u64,
    pub preempted: bool,
    pub stack: Option<Vec<Place>>,
}

/// All threads without a processor.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    away: FxHashMap<i32, Away>,
    /// The newest switches, which are not in order yet: when a thread went, if it is away.
    newest: FxHashMap<i32, (u64, Option<Away>)>,
    /// What was seen of each thread, until its switches have come in their order.
    seen: FxHashMap<i32, Vec<Seen>>,
    /// What each thread's last span had beyond whole units, in ns.
    rest: FxHashMap<i32, u64>,
    /// Threads that have a processor, as far as records say.
    running: FxHashSet<i32>,
    /// Times at which threads stood for samples: they wait for lwp then, as they never do alone.
    stops: FxHashMap<i32, Vec<u64>>,
    /// Threads that have ended: the last switch of one comes after its end.
    ended: FxHashSet<i32>,
    sums: OffCpu,
}

impl Waiting {
    /// The time so far.
    pub fn sums(&self) -> OffCpu {
        self.sums
    }

    /// Notes a switch as soon as it is seen, so that a sleeper can be looked at.
    pub fn seen(&mut self, (pid, tid): (i32, i32), time: u64, out: Option<bool>) {
        let newer = self.newest.get(&tid).is_some_and(|(newest, _)| *newest > time);
        if newer || self.ended.contains(&tid) {
            return;
        }
        let away = out.map(|preempted| Away { pid, since: time, preempted, looked_at: false });
        match away.is_some() {
            true => self.running.remove(&tid),
            false => self.running.insert(tid),
        };
        self.newest.insert(tid, (time, away));
    }

    /// Returns whether a thread may go to sleep, or has done so and was not looked at.
    pub fn is_busy(&self) -> bool {
        let fresh = |(_, away): &(u64, Option<Away>)| {
            away.is_some_and(|away| !away.preempted && !away.looked_at)
        };
        !self.running.is_empty() || self.newest.values().any(fresh)
    }

    /// Looks at all threads that have slept long enough, and gives them to `walk`, which finds
    /// their frames; `None` as long as it doesn't know their process, or they ran meanwhile.
    pub fn look(
        &mut self,
        now: u64,
        mut walk: impl FnMut((i32, i32), &Sleeper) -> Option<Vec<Place>>,
    ) {
        for (tid, (_, away)) in &mut self.newest {
            let Some(away) = away else { continue };
            let long = now.saturating_sub(away.since) >= LEAST_NS;
            if away.preempted || !long || away.looked_at {
                continue;
            }
            let sleeper = Sleeper::look(away.pid, *tid);
            let frames = sleeper.as_ref().map(|sleeper| walk((away.pid, *tid), sleeper));
            away.looked_at = frames != Some(None);
            if let Some(frames) = frames.flatten() {
                self.seen.entry(*tid).or_default().push((away.since, frames));
            }
        }
    }

    /// A thread has lost its processor; these come in order.
    pub fn gone(&mut self, (pid, tid): (i32, i32), since: u64, preempted: bool) {
        if !self.ended.contains(&tid) {
            self.away.insert(tid, Away { pid, since, preempted, looked_at: false });
        }
    }

    /// A thread has a processor again, or has been away up to now. `None` if it is not known since
    /// when, or for less than a unit.
    pub fn back(&mut self, tid: i32, now: u64) -> Option<Span> {
        let away = self.away.remove(&tid)?;
        if self.was_stopped(tid, away.since, now) {
            return None;
        }
        let stack = self.stack_of(tid, away.since);
        let ns = now.saturating_sub(away.since);
        let sum = if away.preempted { &mut self.sums.preempted } else { &mut self.sums.asleep };
        *sum = sum.saturating_add(ns);
        if stack.is_some() {
            self.sums.with_stack = self.sums.with_stack.saturating_add(ns);
        }
        let rest = self.rest.entry(tid).or_default();
        let all = ns.saturating_add(*rest);
        *rest = all % UNIT_NS;
        let (units, preempted) = (all / UNIT_NS, away.preempted);
        (units > 0).then_some(Span { pid: away.pid, units, preempted, stack })
    }

    /// Notes that a thread stands for a sample.
    pub fn stands(&mut self, tid: i32, time: u64) {
        self.stops.entry(tid).or_default().push(time);
    }

    /// Returns whether a thread stood for a sample in a time that is over.
    fn was_stopped(&mut self, tid: i32, since: u64, until: u64) -> bool {
        let Some(stops) = self.stops.get_mut(&tid) else { return false };
        let was = stops.iter().any(|time| (since..=until).contains(time));
        stops.retain(|time| *time > until);
        was
    }

    /// The frames that a thread had while it was away, if it was looked at then.
    fn stack_of(&mut self, tid: i32, since: u64) -> Option<Vec<Place>> {
        let seen = self.seen.get_mut(&tid)?;
        let at = seen.iter().position(|(known, _)| *known == since);
        let frames = at.map(|at| seen.swap_remove(at).1);
        seen.retain(|(known, _)| *known > since);
        frames
    }

    /// A thread has been made, perhaps with the number of one before.
    pub fn made(&mut self, tid: i32) {
        self.ended.remove(&tid);
    }

    /// A thread that runs already sleeps, for all that is known since now.
    pub fn found(&mut self, (pid, tid): (i32, i32), now: u64) {
        if Sleeper::look(pid, tid).is_some() {
            self.seen((pid, tid), now, Some(false));
            self.gone((pid, tid), now, false);
        }
    }

    /// A thread has ended.
    pub fn ended(&mut self, tid: i32) {
        self.ended.insert(tid);
        self.away.remove(&tid);
        self.newest.remove(&tid);
        self.seen.remove(&tid);
        self.rest.remove(&tid);
        self.stops.remove(&tid);
        self.running.remove(&tid);
    }

    /// All threads that are away.
    pub fn all_away(&self) -> Vec<i32> {
        let mut all: Vec<i32> = self.away.keys().copied().collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: i32 = 1 << 23;

    fn span(units: u64, preempted: bool) -> Option<Span> {
        Some(Span { pid: PID, units, preempted, stack: None })
    }

    #[test]
    fn spans_are_the_differences_of_switches() {
        let mut waiting = Waiting::default();
        waiting.gone((PID, 7), 1_000, false);
        waiting.gone((PID, 8), 2_000, true);
        assert_eq!(waiting.all_away(), [7, 8]);
        assert_eq!(waiting.back(7, 26_000), span(2, false));
        // What was left of the first span goes to the second.
        waiting.gone((PID, 7), 30_000, false);
        assert_eq!(waiting.back(7, 35_000), span(1, false));
        assert_eq!(waiting.back(8, 9_000), None);
        assert_eq!(waiting.back(9, 9_000), None);
        let sums = OffCpu { preempted: 7_000, asleep: 30_000, with_stack: 0 };
        assert_eq!(waiting.sums(), sums);
    }

    #[test]
    fn a_stop_for_a_sample_is_no_sleep() {
        let mut waiting = Waiting::default();
        waiting.stands(7, 20_000);
        waiting.stands(7, 90_000);
        waiting.gone((PID, 7), 10_000, false);
        assert_eq!(waiting.back(7, 40_000), None);
        waiting.gone((PID, 7), 50_000, false);
        assert_eq!(waiting.back(7, 70_000), span(2, false));
        waiting.gone((PID, 7), 80_000, false);
        assert_eq!((waiting.back(7, 99_000), waiting.sums().asleep), (None, 20_000));
    }

    #[test]
    fn who_sleeps_is_looked_at_once_and_only_if_it_sleeps_long() {
        let mut waiting = Waiting::default();
        waiting.seen((PID, 7), 10, Some(false));
        waiting.seen((PID, 8), 10, Some(true));
        assert!(waiting.is_busy());
        // Nobody has these numbers: each look is in vain, and none is repeated.
        waiting.look(10 + LEAST_NS - 1, |_, _| unreachable!());
        assert!(waiting.is_busy());
        waiting.look(10 + LEAST_NS, |_, _| unreachable!());
        assert!(!waiting.is_busy());
        waiting.seen((PID, 7), 20, None);
        assert!(waiting.is_busy());
        // An older record of another processor says nothing new.
        waiting.seen((PID, 7), 15, Some(false));
        assert!(waiting.running.contains(&7));
    }

    #[test]
    fn frames_belong_to_the_sleep_in_which_they_were_seen() {
        let mut waiting = Waiting::default();
        let place = Place { module: None, address: 5 };
        waiting.seen.insert(7, vec![(10, vec![place]), (90_000, vec![])]);
        waiting.gone((PID, 7), 10, false);
        let span = waiting.back(7, 50_000).expect("a span");
        assert_eq!((span.units, span.stack), (4, Some(vec![place])));
        waiting.gone((PID, 7), 60_000, false);
        assert_eq!(waiting.back(7, 80_000).and_then(|span| span.stack), None);
        waiting.gone((PID, 7), 90_000, false);
        assert_eq!(waiting.back(7, 190_000).and_then(|span| span.stack), Some(vec![]));
    }
}
