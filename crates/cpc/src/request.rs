//! Requests: an event, its counter's start value, and how it is counted.

bitflags::bitflags! {
    /// The ways in which a request counts. The values are those of the C interface.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct RequestFlags: u32 {
        /// `CPC_OVF_NOTIFY_EMT`: when the counter wraps, freeze the set and signal the thread.
        const OVF_NOTIFY_EMT = 0x1;
        /// `CPC_COUNT_USER`: count in user mode.
        const COUNT_USER = 0x2;
        /// `CPC_COUNT_SYSTEM`: count in the kernel.
        const COUNT_SYSTEM = 0x4;
        /// `CPC_COUNT_HV`: count in the hypervisor.
        const COUNT_HV = 0x8;
        /// `CPC_HW_SMPL`: collect records instead of counting. The value is this project's choice.
        const HW_SMPL = 0x10;

        // Unknown bits are kept: they are refused when the set is bound, not before.
        const _ = !0;
    }
}

impl RequestFlags {
    /// All known flags.
    pub const KNOWN: Self = Self::from_bits_retain(0x1F);
}

bitflags::bitflags! {
    /// The ways in which a set is bound. The values are those of the C interface.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct BindFlags: u32 {
        /// `CPC_BIND_LWP_INHERIT`: each thread that this thread creates counts on its own copy of
        /// the set.
        const LWP_INHERIT = 0x1;

        // Unknown bits are kept and refused by the call.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// The capabilities of a handle's counters. The values are those of the C interface.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Caps: u32 {
        /// `CPC_CAP_OVERFLOW_INTERRUPT`: a counter that wraps can interrupt.
        const OVERFLOW_INTERRUPT = 0x1;
        /// `CPC_CAP_OVERFLOW_PRECISE`: it is known which counter wrapped.
        const OVERFLOW_PRECISE = 0x2;
        /// `CPC_CAP_SMPL`: records can be collected. The value is this project's choice.
        const SMPL = 0x4;
    }
}

/// A named number that changes how an event is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attribute {
    /// A name that [`crate::Cpc::attributes`] lists.
    pub name: String,
    /// Its value; the valid range depends on the attribute.
    pub value: u64,
}

impl Attribute {
    /// Chooses the counter that a request uses.
    pub const PICNUM: &'static str = "picnum";
    /// The number of records that an SMPL request holds between two samples.
    pub const SMPL_NRECS: &'static str = "smpl_nrecs";
    /// The length limit of an attribute's name, in bytes (`CPC_MAX_ATTR_LEN`).
    pub const MAX_LEN: usize = 32;

    /// An attribute.
    pub fn new(name: impl Into<String>, value: u64) -> Self {
        Self { name: name.into(), value }
    }
}

/// One event to count, or to collect records of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Name of the event, or its raw number in C notation.
    pub event: String,
    /// The counter's start value. The counter overflows after `2^64 − preset` occurrences; for an
    /// SMPL request, that is the distance between two records.
    pub preset: u64,
    /// Modes and notification.
    pub flags: RequestFlags,
    /// Attributes, in the order they were given.
    pub attributes: Vec<Attribute>,
}

impl Request {
    /// The length limit of an event's name, in bytes (`CPC_MAX_EVENT_LEN`).
    pub const MAX_EVENT_LEN: usize = 512;
    /// The most requests in one set.
    pub const MAX_REQUESTS: usize = 100;
    /// The most attributes of one request.
    pub const MAX_ATTRIBUTES: usize = 50;

    /// Counts `event` in user mode from 0.
    #[must_use]
    pub fn new(event: impl Into<String>) -> Self {
        Self {
            event: event.into(),
            preset: 0,
            flags: RequestFlags::COUNT_USER,
            attributes: Vec::new(),
        }
    }

    /// Collects a record of every `interval`-th `event` in user mode.
    ///
    /// An interval of 0 is `2^64`: no record is ever due.
    #[must_use]
    pub fn records(event: impl Into<String>, interval: u64) -> Self {
        Self {
            preset: interval.wrapping_neg(),
            flags: RequestFlags::COUNT_USER | RequestFlags::HW_SMPL,
            ..Self::new(event)
        }
    }

    /// Starts the counter at `preset`.
    #[must_use]
    pub fn preset(self, preset: u64) -> Self {
        Self { preset, ..self }
    }

    /// Replaces the flags.
    #[must_use]
    pub fn flags(self, flags: RequestFlags) -> Self {
        Self { flags, ..self }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: u64) -> Self {
        self.attributes.push(Attribute::new(name, value));
        self
    }

    /// Returns whether the request collects records instead of counting.
    pub fn is_smpl(&self) -> bool {
        self.flags.contains(RequestFlags::HW_SMPL)
    }

    /// Returns whether the request wants a signal at an overflow.
    pub fn notifies(&self) -> bool {
        self.flags.contains(RequestFlags::OVF_NOTIFY_EMT)
    }

    /// The value of the attribute `name`; if it was given several times, the last value.
    pub fn value_of(&self, name: &str) -> Option<u64> {
        self.attributes.iter().rev().find(|a| a.name == name).map(|a| a.value)
    }

    /// The number of occurrences until the counter overflows or, for an SMPL request, between two
    /// records. `None` stands for `2^64`.
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
pub fn number(text: &str) -> Option<u64> {
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
        assert_eq!(number("192"), Some(192));
        assert_eq!(number("0xc0"), Some(192));
        assert_eq!(number("0300"), Some(192));
        assert_eq!(number(" +7"), Some(7));
        assert_eq!(number("-1"), Some(u64::MAX));
        assert_eq!(number("0"), Some(0));
        for text in ["", "x", "0x", "08", "1 ", "1z", "+-1", "--1", "0x-1"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_interval_is_what_is_left_up_to_the_overflow() {
        assert_eq!(Request::records("x", 1000).interval(), Some(1000));
        assert_eq!(Request::new("x").preset(u64::MAX).interval(), Some(1));
        assert_eq!(Request::new("x").interval(), None);
    }

    #[test]
    fn the_last_of_equal_attributes_counts() {
        let request = Request::new("x").attribute("umask", 1).attribute("umask", 2);
        assert_eq!(request.value_of("umask"), Some(2));
        assert_eq!(request.value_of("cmask"), None);
    }
}
