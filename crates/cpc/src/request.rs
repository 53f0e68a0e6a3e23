//! Requests: an event, its counter's start value, and how it is counted.

bitflags::bitflags! {
    /// How a request counts. The bits are those of the C interface.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct RequestFlags: u32 {
        /// When the counter wraps, freeze the set and signal the thread (`CPC_OVF_NOTIFY_EMT`).
        const NOTIFY_OVERFLOW = 0x1;
        /// Count in user mode (`CPC_COUNT_USER`).
        const USER = 0x2;
        /// Count in the kernel (`CPC_COUNT_SYSTEM`).
        const KERNEL = 0x4;
        /// Count in the hypervisor (`CPC_COUNT_HV`).
        const HYPERVISOR = 0x8;
        /// Collect records instead of counting (`CPC_HW_SMPL`).
        const RECORDS = 0x10;

        // Unknown bits are kept: they are refused when the set is bound, not before.
        const _ = !0;
    }
}

impl RequestFlags {
    /// All known flags.
    pub const KNOWN: Self = Self::from_bits_retain(0x1F);
}

bitflags::bitflags! {
    /// How a set is bound to a thread. The bits are those of the C interface.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct BindFlags: u32 {
        /// Each thread that this thread creates counts on its own copy of the set
        /// (`CPC_BIND_LWP_INHERIT`).
        const INHERIT = 0x1;

        // Unknown bits are kept and refused by the call.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// What a machine's counters can do. The bits are those of the C interface.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Capabilities: u32 {
        /// A counter that wraps can interrupt (`CPC_CAP_OVERFLOW_INTERRUPT`).
        const OVERFLOW_INTERRUPT = 0x1;
        /// It is known which counter wrapped (`CPC_CAP_OVERFLOW_PRECISE`).
        const OVERFLOW_PRECISE = 0x2;
        /// Records can be collected (`CPC_CAP_SMPL`).
        const RECORDS = 0x4;
    }
}

/// A named number that changes how an event is counted.
///
/// ```
/// use cpc::Attribute;
///
/// let counter = Attribute::new(Attribute::COUNTER, 1);
/// assert_eq!((counter.name(), counter.value()), ("picnum", 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attribute {
    name: String,
    value: u64,
}

impl Attribute {
    /// Chooses the counter that a request uses, numbered from 0: the attribute `picnum`.
    pub const COUNTER: &'static str = "picnum";
    /// The number of records that a request holds between two samples: the attribute
    /// `smpl_nrecs`.
    pub const RECORDS: &'static str = "smpl_nrecs";
    /// The length limit of an attribute's name, in bytes.
    pub const MAX_NAME_LEN: usize = 32;

    /// Makes an attribute. A [`Set`](crate::Set) refuses names that [`crate::Cpc::attributes`]
    /// doesn't list.
    #[must_use]
    pub fn new(name: impl Into<String>, value: u64) -> Self {
        Self { name: name.into(), value }
    }

    /// The attribute's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The attribute's value; the valid range depends on the attribute.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.value
    }
}

/// An event to count, or to collect records of.
///
/// ```
/// use cpc::{Request, RequestFlags};
///
/// let both = RequestFlags::USER | RequestFlags::KERNEL;
/// let request = Request::new("PAPI_tot_ins").with_flags(both).with_attribute("picnum", 1);
/// assert_eq!(request.attribute("picnum"), Some(1));
/// assert_eq!(Request::records("PAPI_br_ins", 1000).interval(), Some(1000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    event: String,
    preset: u64,
    flags: RequestFlags,
    /// In the order in which they were given.
    attributes: Vec<Attribute>,
}

impl Request {
    /// The length limit of an event's name, in bytes: a name is shorter than this.
    pub const MAX_EVENT_LEN: usize = 512;
    /// The most attributes of one request.
    pub const MAX_ATTRIBUTES: usize = 50;

    /// Counts `event` in user mode from 0. `event` is a name that [`crate::Cpc::events`] lists, or
    /// a raw number in C notation.
    #[must_use]
    pub fn new(event: impl Into<String>) -> Self {
        Self { event: event.into(), preset: 0, flags: RequestFlags::USER, attributes: Vec::new() }
    }

    /// Collects a record of every `interval`-th `event` in user mode.
    ///
    /// An interval of 0 is `2^64`: no record is ever due.
    #[must_use]
    pub fn records(event: impl Into<String>, interval: u64) -> Self {
        Self {
            preset: interval.wrapping_neg(),
            flags: RequestFlags::USER | RequestFlags::RECORDS,
            ..Self::new(event)
        }
    }

    /// Starts the counter at `preset`, so that it overflows after `2^64 − preset` events. If the
    /// request collects records, that is the distance between two records.
    #[must_use]
    pub fn with_preset(self, preset: u64) -> Self {
        Self { preset, ..self }
    }

    /// Replaces the flags.
    #[must_use]
    pub fn with_flags(self, flags: RequestFlags) -> Self {
        Self { flags, ..self }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<String>, value: u64) -> Self {
        self.attributes.push(Attribute::new(name, value));
        self
    }

    /// Adds attributes.
    #[must_use]
    pub fn with_attributes(mut self, attributes: impl IntoIterator<Item = Attribute>) -> Self {
        self.attributes.extend(attributes);
        self
    }

    /// The event's name, or its raw number in C notation.
    #[must_use]
    pub fn event(&self) -> &str {
        &self.event
    }

    /// The value at which the counter starts.
    #[must_use]
    pub fn preset(&self) -> u64 {
        self.preset
    }

    /// How the request counts.
    #[must_use]
    pub fn flags(&self) -> RequestFlags {
        self.flags
    }

    /// The attributes, in the order in which they were added.
    #[must_use]
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// The value of the attribute `name`; if it was added several times, the last value.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<u64> {
        self.attributes.iter().rev().find(|a| a.name == name).map(|a| a.value)
    }

    /// Returns whether the request collects records instead of counting.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.flags.contains(RequestFlags::RECORDS)
    }

    /// Returns whether the request wants a signal at an overflow.
    #[must_use]
    pub fn notifies(&self) -> bool {
        self.flags.contains(RequestFlags::NOTIFY_OVERFLOW)
    }

    /// The number of events until the counter overflows or, if the request collects records,
    /// between two records. `None` stands for `2^64`.
    #[must_use]
    pub fn interval(&self) -> Option<u64> {
        match self.preset.wrapping_neg() {
            0 => None,
            interval => Some(interval),
        }
    }
}

/// Parses `text` as a number in C notation: decimal, hexadecimal after `0x`, octal after `0`.
/// `None` if any part of it isn't one.
///
/// Raw events are written like this. As with `strtol`, leading white space and a sign are allowed.
#[must_use]
pub fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits, 10),
    };
    // from_str_radix would take a second sign.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_strtol_does() {
        assert_eq!(parse_number("192"), Some(192));
        assert_eq!(parse_number("0xc0"), Some(192));
        assert_eq!(parse_number("0300"), Some(192));
        assert_eq!(parse_number(" +7"), Some(7));
        assert_eq!(parse_number("-1"), Some(u64::MAX));
        assert_eq!(parse_number("0"), Some(0));
        for text in ["", "x", "0x", "08", "1 ", "1z", "+-1", "--1", "0x-1"] {
            assert_eq!(parse_number(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_interval_is_what_is_left_up_to_the_overflow() {
        assert_eq!(Request::records("x", 1000).interval(), Some(1000));
        assert_eq!(Request::new("x").with_preset(u64::MAX).interval(), Some(1));
        assert_eq!(Request::new("x").interval(), None);
    }

    #[test]
    fn the_last_of_equal_attributes_counts() {
        let request = Request::new("x").with_attribute("umask", 1).with_attribute("umask", 2);
        assert_eq!(request.attribute("umask"), Some(2));
        assert_eq!(request.attribute("cmask"), None);
    }
}
