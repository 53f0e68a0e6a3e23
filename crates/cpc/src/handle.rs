//! The handle: the machine's counters, their events, and what is missing.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::backend::{Backend, Known};
use crate::detect;
use crate::error::{Error, Result, Subcode};
use crate::items;
use crate::records::SpecialItem;
use crate::request::{Attribute, Capabilities, Request, parse_number};
use crate::set::{Entry, Set};

/// The interface that a client was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// `CPC_VER_CURRENT`: counters, and records where there are any.
    Current,
    /// `CPC_VER_CPC_ONLY`: counters only.
    CpcOnly,
}

impl Version {
    /// The version with this number in the C interface. 3 means the same as 2: the value that later
    /// systems gave to a `CPC_VER_CURRENT` with records is not public.
    #[must_use]
    pub const fn from_number(number: i32) -> Option<Self> {
        match number {
            2 | 3 => Some(Self::Current),
            0x1_0002 => Some(Self::CpcOnly),
            _ => None,
        }
    }
}

bitflags::bitflags! {
    /// What listed events are used for. The bits are those of the C interface.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct EventUses: u32 {
        /// Events that can be counted (`CPC_TARGET_CPC`).
        const COUNTING = 1;
        /// Events that records can be collected of (`CPC_TARGET_SMPL`).
        const RECORDING = 2;
    }
}

/// Which names to list: those of this processor's events, or generic ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventNames {
    /// Events of this processor.
    Platform,
    /// Names that mean the same everywhere; they start with `PAPI`.
    Generic,
}

/// A handle to the machine's counters. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Cpc {
    inner: Arc<Handle>,
}

/// The state behind a [`Cpc`].
pub(crate) struct Handle {
    backends: Vec<Box<dyn Backend>>,
    /// The reason why a kind of counters is not among `backends`, one sentence each.
    missing: Vec<String>,
    cciname: String,
    cpuref: String,
    smpl: bool,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("cciname", &self.cciname).finish_non_exhaustive()
    }
}

impl Cpc {
    /// Opens a handle that can count and collect records.
    ///
    /// Looks for an LWP unit, for the processor's counters (through the kernel), and for the
    /// kernel's own counters, and uses all that it finds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if there are no counters at all,
    /// or [`ErrorKind::PermissionDenied`](crate::ErrorKind::PermissionDenied) if there would be
    /// some with more rights.
    pub fn open() -> Result<Self> {
        Self::open_version(Version::Current)
    }

    /// Opens a handle that can count but not collect records, as clients of the original interface
    /// expect.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_counters() -> Result<Self> {
        Self::open_version(Version::CpcOnly)
    }

    pub(crate) fn open_version(version: Version) -> Result<Self> {
        let found = detect::all()?;
        Ok(Self::with_backends(version, found.backends, found.missing))
    }

    /// A handle on these back ends.
    pub(crate) fn with_backends(
        version: Version,
        backends: Vec<Box<dyn Backend>>,
        missing: Vec<String>,
    ) -> Self {
        let join = |part: fn(&dyn Backend) -> &str, with: &str| {
            let parts: Vec<&str> = backends.iter().map(|backend| part(&**backend)).collect();
            parts.join(with)
        };
        let cciname = join(|backend| &backend.description().name, " + ");
        let cpuref = join(|backend| &backend.description().reference, " ");
        let mut descriptions = backends.iter().map(|backend| backend.description());
        let smpl = version == Version::Current
            && descriptions.any(|d| d.caps.contains(Capabilities::RECORDS));
        Self { inner: Arc::new(Handle { backends, missing, cciname, cpuref, smpl }) }
    }

    /// The number of counters.
    #[must_use]
    pub fn counter_count(&self) -> u32 {
        self.inner.backends.iter().map(|backend| backend.description().npic).sum()
    }

    /// The capabilities that at least one of the counters has.
    pub fn capabilities(&self) -> Capabilities {
        let all = self.inner.backends.iter().map(|backend| backend.description().caps);
        let caps = all.fold(Capabilities::empty(), Capabilities::union);
        if self.inner.smpl { caps } else { caps - Capabilities::RECORDS }
    }

    /// Name of the counters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.cciname
    }

    /// The reference that documents the counters' events.
    #[must_use]
    pub fn reference(&self) -> &str {
        &self.inner.cpuref
    }

    /// Why kinds of counters are missing: one sentence for each.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.inner.missing
    }

    /// Returns whether the handle can collect records.
    #[must_use]
    pub fn can_record(&self) -> bool {
        self.inner.smpl
    }

    /// Number of counters that can collect records; 0 if the handle cannot.
    #[must_use]
    pub fn recording_counter_count(&self) -> u32 {
        if !self.inner.smpl {
            return 0;
        }
        (0..self.counter_count())
            .filter(|pic| !self.names_of_pic(*pic, None, EventUses::RECORDING).is_empty())
            .count() as u32
    }

    /// Name of what collects the records, if the handle can collect any.
    #[must_use]
    pub fn recorder_name(&self) -> Option<&str> {
        if !self.inner.smpl {
            return None;
        }
        let mut descriptions = self.inner.backends.iter().map(|backend| backend.description());
        descriptions.find(|d| d.caps.contains(Capabilities::RECORDS)).map(|d| &*d.name)
    }

    /// Names of the events that counter `pic` can count or record, in the order of its list; of
    /// both kinds without `names`.
    fn names_of_pic(&self, pic: u32, names: Option<EventNames>, walk: EventUses) -> Vec<&str> {
        let Some((backend, local)) = self.inner.locate(pic) else {
            return Vec::new();
        };
        let wanted = self.inner.wanted(walk);
        let events = self.inner.backends[backend].description().events.iter();
        events
            .filter(|event| event.pics >> local & 1 == 1)
            .filter(|event| names.is_none_or(|n| (n == EventNames::Generic) == event.is_generic()))
            .filter(|event| {
                (wanted.contains(EventUses::COUNTING) && event.counts)
                    || (wanted.contains(EventUses::RECORDING) && event.records)
            })
            .map(|event| &*event.name)
            .collect()
    }

    /// The events that `counter`, numbered from 0, can count or record, in the order of its list.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such counter.
    pub fn events_of_counter(
        &self,
        counter: u32,
        names: EventNames,
        uses: EventUses,
    ) -> Result<Vec<&str>> {
        if counter >= self.counter_count() {
            return Err(Error::invalid("there is no such counter"));
        }
        Ok(self.names_of_pic(counter, Some(names), uses))
    }

    /// Every event once. The order is Solaris': the reverse of the order in which the counters list
    /// them.
    #[must_use]
    pub fn events(&self, names: EventNames, uses: EventUses) -> Vec<&str> {
        let mut seen = HashSet::new();
        let all = (0..self.counter_count())
            .flat_map(|counter| self.names_of_pic(counter, Some(names), uses));
        let mut unique: Vec<&str> = all.filter(|name| seen.insert(*name)).collect();
        unique.reverse();
        unique
    }

    /// Names of the attributes that requests can have, `picnum` last.
    #[must_use]
    pub fn attributes(&self, uses: EventUses) -> Vec<&str> {
        let wanted = self.inner.wanted(uses);
        let mut names: Vec<&str> = Vec::new();
        for backend in &self.inner.backends {
            for name in &backend.description().attributes {
                let ours = *name != Attribute::RECORDS || wanted.contains(EventUses::RECORDING);
                if ours && !names.contains(&&**name) {
                    names.push(name);
                }
            }
        }
        if self.inner.smpl && wanted.contains(EventUses::RECORDING) {
            names.push(Attribute::RECORDS);
        }
        names.push(Attribute::COUNTER);
        names
    }

    /// Names of the items of a record, in the order of their indices; empty if the handle can't
    /// collect records. Every record has all items; those that its event lacks are 0.
    ///
    /// | item | meaning |
    /// | --- | --- |
    /// | `pc` | address of the instruction |
    /// | `dlina`, `dlina_valid` | linear address of the data, and 1 if it is known |
    /// | `lat` | latency of a cache miss, in cycles |
    /// | `dsrc` | where the data came from: 0 unknown, 1 local L3, 2 remote, 3 DRAM, 7 other |
    /// | `event_id`, `core_id`, `flags`, `data1`, `data2` | the fields of LWP's event record |
    /// | `timestamp` | time-stamp counter, in cycles |
    /// | `br_taken`, `br_pred` | 1 if a branch was taken, and if it was predicted correctly |
    /// | `br_pred_valid` | 1 if `br_pred` has a meaning |
    /// | `br_target` | the instruction executed after a branch |
    #[must_use]
    pub fn record_items(&self) -> &'static [&'static str] {
        if self.inner.smpl { &items::NAMES } else { &[] }
    }

    /// Index of the item `name` in a record, if there is one.
    #[must_use]
    pub fn record_item(&self, name: &str) -> Option<usize> {
        items::index_of(name).filter(|_| self.inner.smpl)
    }

    /// Index of the item that `special` stands for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the records of this machine
    /// don't have it.
    pub fn special_item(&self, special: SpecialItem) -> Result<usize> {
        let mut descriptions = self.inner.backends.iter().map(|backend| backend.description());
        if self.inner.smpl && descriptions.any(|d| d.special_items.contains(&special)) {
            return Ok(items::index_of_special(special));
        }
        Err(Error::invalid("records of this machine do not have the item"))
    }

    /// Makes an empty set.
    pub fn create_set(&self) -> Set {
        Set::new(Arc::clone(&self.inner))
    }

    /// Returns whether this handle created `set`.
    #[must_use]
    pub fn owns(&self, set: &Set) -> bool {
        Arc::ptr_eq(&self.inner, set.handle())
    }

    /// Returns whether both are clones of one handle.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Handle {
    /// The back ends, in the order of their counters.
    pub(crate) fn backends(&self) -> &[Box<dyn Backend>] {
        &self.backends
    }

    /// Returns whether records can be collected.
    pub(crate) fn smpl(&self) -> bool {
        self.smpl
    }

    /// Returns the events of a walk, given whether the handle has records.
    fn wanted(&self, walk: EventUses) -> EventUses {
        if self.smpl { walk } else { walk - EventUses::RECORDING }
    }

    /// The back end that has counter `pic`, and its number there.
    fn locate(&self, pic: u32) -> Option<(usize, u32)> {
        let mut first = 0;
        for (index, backend) in self.backends.iter().enumerate() {
            let npic = backend.description().npic;
            if pic < first + npic {
                return Some((index, pic - first));
            }
            first += npic;
        }
        None
    }

    /// Finds out what counts `request`, and checks its attributes as far as that can be done before
    /// the set is bound.
    ///
    /// # Errors
    ///
    /// Subcodes: invalid event, invalid attribute, invalid picnum, pic not capable.
    pub(crate) fn resolve(&self, request: Request) -> Result<Entry> {
        self.check_names(&request)?;
        let pic = request.attribute(Attribute::COUNTER);
        let located = pic.map(|pic| self.locate_picnum(pic)).transpose()?;
        let mut candidates = Vec::new();
        for (index, backend) in self.backends.iter().enumerate() {
            candidates.extend(backend.look_up(request.event()).map(|known| (index, known)));
        }
        let fits = |(index, known): &(usize, Known)| match located {
            Some((backend, pic)) => *index == backend && known.pics >> pic & 1 == 1,
            None => true,
        };
        match candidates.iter().find(|candidate| fits(candidate)) {
            Some((index, _)) => {
                Ok(Entry { request, backend: Some(*index), pic: located.map(|(_, pic)| pic) })
            }
            None if !candidates.is_empty() => Err(Error::coded(
                Subcode::PicNotCapable,
                format!("counter {} cannot count \"{}\"", pic.unwrap_or(0), request.event()),
            )),
            // A raw number is taken here, as in the original, and refused when the set is bound.
            None if parse_number(request.event()).is_some() => {
                Ok(Entry { request, backend: None, pic: None })
            }
            None => Err(self.unknown_event(request.event())),
        }
    }

    fn locate_picnum(&self, pic: u64) -> Result<(usize, u32)> {
        let located = u32::try_from(pic).ok().and_then(|pic| self.locate(pic));
        located.ok_or_else(|| {
            let npic: u32 = self.backends.iter().map(|b| b.description().npic).sum();
            let reason = format!("picnum {pic}: the counters are 0 to {}", npic.saturating_sub(1));
            Error::coded(Subcode::InvalidPicnum, reason)
        })
    }

    fn check_names(&self, request: &Request) -> Result<()> {
        let known = |name: &str| {
            name == Attribute::COUNTER
                || (self.smpl && name == Attribute::RECORDS)
                || self
                    .backends
                    .iter()
                    .any(|b| b.description().attributes.iter().any(|a| a == name))
        };
        match request.attributes().iter().find(|attribute| !known(attribute.name())) {
            Some(unknown) => Err(Error::coded(
                Subcode::InvalidAttribute,
                format!("there is no attribute \"{}\" on this machine", unknown.name()),
            )),
            None => Ok(()),
        }
    }

    /// The error for an event no back end knows: why it may be so.
    pub(crate) fn unknown_event(&self, event: &str) -> Error {
        let mut reason = format!("event \"{event}\" cannot be counted on this machine");
        for missing in &self.missing {
            reason.push_str("; ");
            reason.push_str(missing);
        }
        Error::coded(Subcode::InvalidEvent, reason)
    }
}
