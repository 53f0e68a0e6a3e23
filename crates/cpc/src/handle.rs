//! The handle: the machine's counters, their events, and what is missing.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::backend::{Backend, Known};
use crate::detect;
use crate::error::{Error, Result, Subcode};
use crate::items;
use crate::records::SpecialItem;
use crate::request::{Attribute, Caps, Request, number};
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
    /// The version with this number in the C interface. 3 means the same as 2, because the value of
    /// `CPC_VER_CURRENT` in later systems, which have records, isn't public.
    pub const fn from_number(number: i32) -> Option<Self> {
        match number {
            2 | 3 => Some(Self::Current),
            0x1_0002 => Some(Self::CpcOnly),
            _ => None,
        }
    }
}

bitflags::bitflags! {
    /// Which events to list. The values are this project's choice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Walk: u32 {
        /// `CPC_TARGET_CPC`: those that can be counted.
        const CPC = 1;
        /// `CPC_TARGET_SMPL`: those that can be recorded.
        const SMPL = 2;
    }
}

/// Which names to list: events of this processor, or generic ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Names {
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
        let smpl = version == Version::Current && descriptions.any(|d| d.caps.contains(Caps::SMPL));
        Self { inner: Arc::new(Handle { backends, missing, cciname, cpuref, smpl }) }
    }

    /// The number of counters.
    pub fn npic(&self) -> u32 {
        self.inner.backends.iter().map(|backend| backend.description().npic).sum()
    }

    /// The capabilities that at least one of the counters has.
    pub fn caps(&self) -> Caps {
        let all = self.inner.backends.iter().map(|backend| backend.description().caps);
        let caps = all.fold(Caps::empty(), Caps::union);
        if self.inner.smpl { caps } else { caps - Caps::SMPL }
    }

    /// Name of the counters.
    pub fn cciname(&self) -> &str {
        &self.inner.cciname
    }

    /// The reference that documents the counters' events.
    pub fn cpuref(&self) -> &str {
        &self.inner.cpuref
    }

    /// Why kinds of counters are missing: one sentence for each.
    pub fn missing(&self) -> &[String] {
        &self.inner.missing
    }

    /// Returns whether the handle can collect records.
    pub fn has_smpl(&self) -> bool {
        self.inner.smpl
    }

    /// Number of counters that can collect records; 0 if the handle cannot.
    pub fn smpl_npic(&self) -> u32 {
        if !self.inner.smpl {
            return 0;
        }
        (0..self.npic()).filter(|pic| !self.names_of_pic(*pic, None, Walk::SMPL).is_empty()).count()
            as u32
    }

    /// Name of what collects the records, if the handle can collect any.
    pub fn smpl_iname(&self) -> Option<&str> {
        if !self.inner.smpl {
            return None;
        }
        let mut descriptions = self.inner.backends.iter().map(|backend| backend.description());
        descriptions.find(|d| d.caps.contains(Caps::SMPL)).map(|d| &*d.name)
    }

    /// Names of the events that counter `pic` can count or record, in the order of its list; of
    /// both kinds without `names`.
    fn names_of_pic(&self, pic: u32, names: Option<Names>, walk: Walk) -> Vec<&str> {
        let Some((backend, local)) = self.inner.locate(pic) else {
            return Vec::new();
        };
        let wanted = self.inner.wanted(walk);
        let events = self.inner.backends[backend].description().events.iter();
        events
            .filter(|event| event.pics >> local & 1 == 1)
            .filter(|event| names.is_none_or(|n| (n == Names::Generic) == event.is_generic()))
            .filter(|event| {
                (wanted.contains(Walk::CPC) && event.counts)
                    || (wanted.contains(Walk::SMPL) && event.records)
            })
            .map(|event| &*event.name)
            .collect()
    }

    /// The events that counter `pic` can count or record, in the order of its list.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such counter.
    pub fn events_of_pic(&self, pic: u32, names: Names, walk: Walk) -> Result<Vec<&str>> {
        if pic >= self.npic() {
            return Err(Error::invalid("there is no such counter"));
        }
        Ok(self.names_of_pic(pic, Some(names), walk))
    }

    /// Every event once, in the reverse order of first appearance over all counters, which is the
    /// order of the original.
    pub fn events(&self, names: Names, walk: Walk) -> Vec<&str> {
        let mut seen = HashSet::new();
        let all = (0..self.npic()).flat_map(|pic| self.names_of_pic(pic, Some(names), walk));
        let mut unique: Vec<&str> = all.filter(|name| seen.insert(*name)).collect();
        unique.reverse();
        unique
    }

    /// Names of the attributes, `picnum` last.
    pub fn attributes(&self, walk: Walk) -> Vec<&str> {
        let wanted = self.inner.wanted(walk);
        let mut names: Vec<&str> = Vec::new();
        for backend in &self.inner.backends {
            for name in &backend.description().attributes {
                let ours = *name != Attribute::SMPL_NRECS || wanted.contains(Walk::SMPL);
                if ours && !names.contains(&&**name) {
                    names.push(name);
                }
            }
        }
        if self.inner.smpl && wanted.contains(Walk::SMPL) {
            names.push(Attribute::SMPL_NRECS);
        }
        names.push(Attribute::PICNUM);
        names
    }

    /// Names of the items of a record, in the order of their indices; empty without SMPL.
    pub fn record_items(&self) -> &'static [&'static str] {
        if self.inner.smpl { &items::NAMES } else { &[] }
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
    pub fn owns(&self, set: &Set) -> bool {
        Arc::ptr_eq(&self.inner, set.handle())
    }

    /// Returns whether both are the same handle.
    pub fn is(&self, other: &Self) -> bool {
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
    fn wanted(&self, walk: Walk) -> Walk {
        if self.smpl { walk } else { walk - Walk::SMPL }
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
        let pic = request.value_of(Attribute::PICNUM);
        let located = pic.map(|pic| self.locate_picnum(pic)).transpose()?;
        let mut candidates = Vec::new();
        for (index, backend) in self.backends.iter().enumerate() {
            candidates.extend(backend.look_up(&request.event).map(|known| (index, known)));
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
                format!("counter {} cannot count \"{}\"", pic.unwrap_or(0), request.event),
            )),
            // A raw number is taken here, as in the original, and refused when the set is bound.
            None if number(&request.event).is_some() => {
                Ok(Entry { request, backend: None, pic: None })
            }
            None => Err(self.unknown_event(&request.event)),
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
            name == Attribute::PICNUM
                || (self.smpl && name == Attribute::SMPL_NRECS)
                || self
                    .backends
                    .iter()
                    .any(|b| b.description().attributes.iter().any(|a| a == name))
        };
        match request.attributes.iter().find(|attribute| !known(&attribute.name)) {
            Some(unknown) => Err(Error::coded(
                Subcode::InvalidAttribute,
                format!("there is no attribute \"{}\" on this machine", unknown.name),
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
