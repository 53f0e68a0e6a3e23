//! Back ends, which have events and program counters for them, and contexts, which are groups of
//! programmed requests.

use std::fmt::Debug;

use lwp_arch::Record;

use crate::error::Result;
use crate::records::SpecialItem;
use crate::request::{Capabilities, Request};

/// The code whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The calling thread, wherever it runs.
    ThisThread,
    /// A thread of any process, by its kernel number.
    Thread(i32),
    /// Whatever runs on this processor.
    Cpu(u32),
}

/// An event a back end offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventInfo {
    /// Its name. Names that start with `PAPI` are generic.
    pub name: String,
    /// Counters that can count it: bit *n* is counter *n* of the back end.
    pub pics: u64,
    /// True if it can be counted.
    pub counts: bool,
    /// True if records of it can be collected.
    pub records: bool,
}

impl EventInfo {
    /// Returns whether the name means the same on every processor.
    pub fn is_generic(&self) -> bool {
        self.name.starts_with("PAPI")
    }
}

/// A back end's description. Fixed when the handle is opened.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Name of the counters, part of `cpc_cciname`.
    pub name: String,
    /// The reference for their events, part of `cpc_cpuref`.
    pub reference: String,
    /// The number of its counters, at most 64.
    pub npic: u32,
    /// Their capabilities.
    pub caps: Capabilities,
    /// Every listed event, in the order of the lists.
    pub events: Vec<EventInfo>,
    /// Names of attributes, `picnum` not among them.
    pub attributes: Vec<String>,
    /// Special items its records can have.
    pub special_items: Vec<SpecialItem>,
}

/// The meaning of a name in one back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Counters that can count it, as in [`EventInfo::pics`].
    pub(crate) pics: u64,
}

/// A request on its way to the counters.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// The request.
    pub(crate) request: Request,
}

/// One place where events are counted.
pub(crate) trait Backend: Debug + Send + Sync {
    /// Returns the description of the back end.
    fn description(&self) -> &Description;

    /// Returns whether it can make something of `event`, listed or not.
    fn look_up(&self, event: &str) -> Option<Known>;

    /// Indices of the items that mean something in records of `request`, if it can be recorded.
    fn record_items(&self, request: &Request) -> Option<Vec<usize>>;

    /// Programs `plan` for `target` and starts counting, every counter from its preset.
    ///
    /// # Errors
    ///
    /// With a subcode as the interface defines them, or with the `errno` of the system.
    fn program(&self, plan: &[Planned], target: Target) -> Result<Box<dyn Context>>;
}

/// The time and the duration of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// Time of the reading: CLOCK_MONOTONIC in nanoseconds.
    pub(crate) hrtime_ns: i64,
    /// Clock cycles for which the requests have been counting.
    pub(crate) tick: u64,
}

/// The reason why a context wants attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The kernel signalled for this descriptor.
    Descriptor(i32),
    /// A processor signalled that a ring is filled to its threshold.
    Threshold,
}

/// Requests that are programmed. Dropping it gives the counters back.
///
/// Nothing here but construction and dropping allocates or frees: everything else may be called by
/// handlers of signals.
pub(crate) trait Context: Debug + Send {
    /// Writes the occurrences of each request since it was started, in the order of the plan. What
    /// stands at SMPL requests means nothing.
    ///
    /// # Errors
    ///
    /// EAGAIN if the counts were lost.
    fn read(&mut self, counts: &mut [u64]) -> Result<Moment>;

    /// Zeroes every count, takes the presets for the next overflow, and counts on.
    fn restart(&mut self, presets: &[u64]) -> Result<()>;

    /// Lets the counters run or stand still. The counts stay.
    fn set_running(&mut self, running: bool) -> Result<()>;

    /// Returns the request that `cause` is about, if it is one of this context's and has
    /// overflowed. Looks after what else the cause may mean.
    fn overflowed(&mut self, cause: Cause) -> Option<usize>;

    /// Hands the records of request `index` collected so far to `sink`, oldest first; it returns
    /// whether it has room for the record. All are gone afterwards. Returns how many intervals have
    /// passed since the last call without a record that `sink` took.
    fn drain(&mut self, index: usize, sink: &mut dyn FnMut(&Record) -> bool) -> Result<u64>;

    /// Gives the counters back. Nothing is asked of the context after that.
    fn release(&mut self);
}
