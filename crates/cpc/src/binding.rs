//! A bound set: its counters in the back ends, their presets, and whether they run.

use std::sync::Arc;

use crate::backend::{Cause, Context, Moment, Planned, Target};
use crate::buf::Buf;
use crate::clock;
use crate::error::{Error, Result, Subcode};
use crate::items;
use crate::request::{Capabilities, RequestFlags};
use crate::set::{Entry, SetState, check_flags};

/// The requests one back end counts.
#[derive(Debug)]
struct Part {
    context: Box<dyn Context>,
    /// Index in the set of each request of the context.
    requests: Vec<usize>,
    /// The context's counts when last read, in its order.
    counts: Vec<u64>,
    /// Presets in its order, to start it again without allocating.
    presets: Vec<u64>,
}

/// A bound set.
#[derive(Debug)]
pub(crate) struct Binding {
    set: Arc<SetState>,
    parts: Vec<Part>,
    /// The values that a restart begins at, by request.
    presets: Vec<u64>,
    /// The values that the counters began at, by request.
    bases: Vec<u64>,
    /// The requests that collect records.
    smpl: Vec<bool>,
    /// The requests that signal an overflow.
    notifies: Vec<bool>,
    /// The requests that have overflowed since the last start.
    overflowed: Vec<bool>,
    /// Neither disabled nor frozen.
    running: bool,
    /// An overflow has stopped the set.
    frozen: bool,
    /// No overflow has been signalled since the last start.
    armed: bool,
}

impl Binding {
    /// Programs the requests of `set` for `target`. All are checked before any is programmed.
    ///
    /// # Errors
    ///
    /// See [`crate::Set::bind_thread`].
    pub(crate) fn new(set: &Arc<SetState>, target: Target) -> Result<Self> {
        let entries = set.entries().clone();
        check(set, &entries)?;
        clock::calibrate();
        let mut parts: Vec<Part> = Vec::new();
        for (backend, plan, requests) in plans(set, &entries)? {
            let context = set.handle().backends()[backend].program(&plan, target)?;
            let counts = vec![0; plan.len()];
            let presets = plan.iter().map(|planned| planned.request.preset()).collect();
            parts.push(Part { context, requests, counts, presets });
        }
        let presets: Vec<u64> = entries.iter().map(|entry| entry.request.preset()).collect();
        Ok(Self {
            set: Arc::clone(set),
            parts,
            bases: presets.clone(),
            presets,
            smpl: entries.iter().map(|entry| entry.request.is_recording()).collect(),
            notifies: entries.iter().map(|entry| entry.request.notifies()).collect(),
            overflowed: vec![false; entries.len()],
            running: true,
            frozen: false,
            armed: true,
        })
    }

    pub(crate) fn set(&self) -> &Arc<SetState> {
        &self.set
    }

    /// Returns whether this is a binding of `set`.
    pub(crate) fn is_of(&self, set: &Arc<SetState>) -> bool {
        Arc::ptr_eq(&self.set, set)
    }

    /// Returns whether some request signals an overflow.
    pub(crate) fn notifies(&self) -> bool {
        self.notifies.contains(&true)
    }

    /// Takes a snapshot into `buf`.
    pub(crate) fn sample(&mut self, buf: &Buf) -> Result<()> {
        let fits = buf.len() == self.smpl.len()
            && self
                .smpl
                .iter()
                .enumerate()
                .all(|(index, smpl)| *smpl == buf.records(index).is_ok());
        if !fits {
            return Err(Error::invalid("the buffer was made for other requests"));
        }
        let mut moment = Moment::default();
        for part in &mut self.parts {
            let read = part.context.read(&mut part.counts)?;
            moment.hrtime_ns = moment.hrtime_ns.max(read.hrtime_ns);
            moment.tick = moment.tick.max(read.tick);
            for (count, request) in part.counts.iter().zip(&part.requests) {
                let (base, overflowed) = (self.bases[*request], self.overflowed[*request]);
                buf.store(*request, value(base, *count, overflowed));
            }
        }
        buf.stamp(moment.hrtime_ns, moment.tick);
        self.collect(buf)
    }

    /// Moves the records collected so far into `buf`.
    fn collect(&mut self, buf: &Buf) -> Result<()> {
        for part in &mut self.parts {
            for (local, request) in part.requests.iter().enumerate() {
                if !self.smpl[*request] {
                    continue;
                }
                let records = buf.records(*request)?;
                records.clear();
                let mut push = |record: &_| records.push(&items::of_record(record));
                records.set_lost(part.context.drain(local, &mut push)?);
            }
        }
        Ok(())
    }

    /// Starts every counter from its preset.
    pub(crate) fn restart(&mut self) -> Result<()> {
        for part in &mut self.parts {
            for (preset, request) in part.presets.iter_mut().zip(&part.requests) {
                *preset = self.presets[*request];
            }
        }
        self.armed = true;
        self.overflowed.fill(false);
        self.bases.copy_from_slice(&self.presets);
        for part in &mut self.parts {
            part.context.restart(&part.presets)?;
            part.context.set_running(true)?;
        }
        self.running = true;
        self.frozen = false;
        Ok(())
    }

    /// Changes what request `index` begins at from the next restart on.
    pub(crate) fn set_preset(&mut self, index: usize, preset: u64) -> Result<()> {
        let place = self.presets.get_mut(index);
        *place.ok_or(Error::invalid("the set has no such request"))? = preset;
        Ok(())
    }

    /// Lets the counters run or stand still.
    ///
    /// # Errors
    ///
    /// EINVAL if they do so already.
    pub(crate) fn enable(&mut self, running: bool) -> Result<()> {
        if self.running == running {
            return Err(Error::invalid("the counters are in that state already"));
        }
        self.set_running(running)?;
        self.frozen = false;
        Ok(())
    }

    fn set_running(&mut self, running: bool) -> Result<()> {
        for part in &mut self.parts {
            part.context.set_running(running)?;
        }
        self.running = running;
        Ok(())
    }

    /// Deals with something a context wants attention for. Returns whether the application is to be
    /// signalled: a request that asked for it has overflowed. The set is frozen then.
    pub(crate) fn attend(&mut self, cause: Cause) -> bool {
        let overflowed = self.parts.iter_mut().find_map(|part| {
            let local = part.context.overflowed(cause)?;
            part.requests.get(local).copied()
        });
        let Some(request) = overflowed else {
            return false;
        };
        if !self.notifies[request] {
            return false;
        }
        self.overflowed[request] = true;
        if !self.armed {
            return false;
        }
        self.freeze();
        true
    }

    /// Stops the set as an overflow does.
    fn freeze(&mut self) {
        self.armed = false;
        self.frozen = true;
        // A counter that cannot be stopped goes on, which is the most that can be done here.
        let _ = self.set_running(false);
    }

    /// Makes this the copy an inheriting thread starts with: presets as in `parent`, and if
    /// overflows are signalled, frozen with those counters one short of it.
    pub(crate) fn inherit(&mut self, presets: &[u64]) -> Result<()> {
        self.presets.copy_from_slice(presets);
        self.restart()?;
        if self.notifies() {
            self.freeze();
            for part in &mut self.parts {
                part.context.restart(&part.presets)?;
                part.context.set_running(false)?;
            }
            for (base, notifies) in self.bases.iter_mut().zip(&self.notifies) {
                if *notifies {
                    *base = u64::MAX;
                }
            }
        }
        Ok(())
    }

    /// The values that a restart begins at, by request.
    pub(crate) fn presets(&self) -> &[u64] {
        &self.presets
    }

    /// Gives the counters back, and frees nothing: handlers of signals may call it.
    pub(crate) fn release(&mut self) {
        self.parts.iter_mut().for_each(|part| part.context.release());
    }

    /// Returns whether an overflow has stopped the set and nothing has started it since.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }
}

/// Returns the value of a counter that began at `base` and has counted `count`.
///
/// A counter that has overflowed is at zero or above. The kernel's own clocks may tell a little
/// less: their overflow comes from a timer, and their count from another clock.
fn value(base: u64, count: u64, overflowed: bool) -> u64 {
    let least = if overflowed { base.wrapping_neg() } else { 0 };
    base.wrapping_add(count.max(least))
}

/// Checks the requests before any back end is asked.
fn check(set: &SetState, entries: &[Entry]) -> Result<()> {
    for (index, entry) in entries.iter().enumerate() {
        check_flags(&entry.request, set.handle().smpl())?;
        let Some(backend) = entry.backend else {
            return Err(set.handle().unknown_event(entry.request.event()));
        };
        let same_pic = |other: &&Entry| {
            entry.pic.is_some() && (other.backend, other.pic) == (entry.backend, entry.pic)
        };
        if entries[..index].iter().any(|other| same_pic(&other)) {
            return Err(Error::invalid("two requests name the same counter"));
        }
        let description = set.handle().backends()[backend].description();
        if entry.request.notifies() && !description.caps.contains(Capabilities::OVERFLOW_INTERRUPT)
        {
            return Err(Error::described(
                libc::ENOTSUP,
                format!("{} cannot signal an overflow", description.name),
            ));
        }
        let offered = description.events.iter().find(|event| event.name == entry.request.event());
        let possible = offered.is_none_or(|event| {
            if entry.request.flags().contains(RequestFlags::RECORDS) {
                event.records
            } else {
                event.counts
            }
        });
        if !possible {
            let how = if entry.request.is_recording() { "recorded" } else { "counted" };
            let reason = format!("event \"{}\" cannot be {how}", entry.request.event());
            return Err(Error::coded(Subcode::InvalidEvent, reason));
        }
    }
    Ok(())
}

/// The requests by back end: which, what it is to count, and their indices in the set.
type Plan = (usize, Vec<Planned>, Vec<usize>);

fn plans(set: &SetState, entries: &[Entry]) -> Result<Vec<Plan>> {
    let mut plans: Vec<Plan> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let Some(backend) = entry.backend else {
            return Err(set.handle().unknown_event(entry.request.event()));
        };
        let planned = Planned { request: entry.request.clone() };
        match plans.iter_mut().find(|plan| plan.0 == backend) {
            Some((_, plan, requests)) => {
                plan.push(planned);
                requests.push(index);
            }
            None => plans.push((backend, vec![planned], vec![index])),
        }
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_overflowed_is_not_short_of_it() {
        let base = u64::MAX - 999;
        assert_eq!(value(base, 998, false), u64::MAX - 1);
        assert_eq!(value(base, 998, true), 0);
        assert_eq!(value(base, 1000, true), 0);
        assert_eq!(value(base, 1007, true), 7);
        assert_eq!(value(0, 7, true), 7);
    }
}
