//! The fields of `perf script`: those of a sample's line, and those of a frame's.
//!
//! Promise: I7

use crate::args::usage_error;
use crate::failure::Failure;

/// The fields that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields(u16);

/// Names of fields that lwp has, and their bits.
const KNOWN: [(&str, u16); 12] = [
    ("comm", Fields::COMM),
    ("pid", Fields::PID),
    ("tid", Fields::TID),
    ("cpu", Fields::CPU),
    ("time", Fields::TIME),
    ("period", Fields::PERIOD),
    ("event", Fields::EVENT),
    ("ip", Fields::IP),
    ("sym", Fields::SYM),
    ("symoff", Fields::OFFSET),
    ("dso", Fields::DSO),
    ("srcline", Fields::LINE),
];

/// Names of perf's that print nothing for a sample like ours.
const EMPTY: [&str; 3] = ["trace", "flags", "misc"];

/// Kinds of events in front of a list, as in `hw:comm,tid`.
const KINDS: [&str; 7] = ["hw", "sw", "trace", "raw", "break", "bpf", "synth"];

impl Fields {
    /// The program's name.
    pub const COMM: u16 = 1;
    /// The process.
    pub const PID: u16 = 1 << 1;
    /// The thread.
    pub const TID: u16 = 1 << 2;
    /// The processor, which is always 0.
    pub const CPU: u16 = 1 << 3;
    /// The time.
    pub const TIME: u16 = 1 << 4;
    /// Events that the sample stands for.
    pub const PERIOD: u16 = 1 << 5;
    /// The event's name.
    pub const EVENT: u16 = 1 << 6;
    /// Addresses of the stack.
    pub const IP: u16 = 1 << 7;
    /// Functions of the stack.
    pub const SYM: u16 = 1 << 8;
    /// Distances from the beginnings of functions.
    pub const OFFSET: u16 = 1 << 9;
    /// Files of the stack.
    pub const DSO: u16 = 1 << 10;
    /// Source lines of the stack.
    pub const LINE: u16 = 1 << 11;

    /// Returns whether a field is printed.
    pub fn has(self, field: u16) -> bool {
        self.0 & field != 0
    }

    /// The fields of `-F`: a list, or changes to the default, as in `+pid,-dso`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let list = match text.split_once(':') {
            Some((kind, list)) if KINDS.contains(&kind) => list,
            _ => text,
        };
        let changes = list.split(',').all(|name| name.starts_with(['+', '-']));
        let mut fields = if changes { Self::default() } else { Self(0) };
        for word in list.split(',') {
            let name = word.trim_start_matches(['+', '-']);
            if EMPTY.contains(&name) {
                continue;
            }
            let Some((_, bit)) = KNOWN.iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
                return Err(usage_error(
                    format!("-F: lwp's samples have no field '{name}'"),
                    format!("fields are: {}", known.join(", ")),
                ));
            };
            match word.starts_with('-') {
                true => fields.0 &= !bit,
                false => fields.0 |= bit,
            }
        }
        Ok(fields)
    }
}

impl Default for Fields {
    /// Those that perf prints of hardware events.
    fn default() -> Self {
        Self(
            Self::COMM
                | Self::TID
                | Self::CPU
                | Self::TIME
                | Self::PERIOD
                | Self::EVENT
                | Self::IP
                | Self::SYM
                | Self::OFFSET
                | Self::DSO,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_changes_are_read() {
        let of = |text: &str| Fields::parse(text).expect(text);
        assert!(of("+pid").has(Fields::PID) && of("+pid").has(Fields::COMM));
        assert!(!of("-dso").has(Fields::DSO) && of("-dso").has(Fields::SYM));
        let listed = of("comm,pid,tid,cpu,time,event,ip,sym,dso,trace");
        assert!(listed.has(Fields::TID) && !listed.has(Fields::PERIOD));
        assert_eq!(of("hw:ip,sym"), of("ip,sym"));
        assert_eq!(of("+pid,-pid"), Fields::default());
        for wrong in ["brstack", "", "+uregs", "comm,,ip"] {
            assert!(Fields::parse(wrong).is_err(), "{wrong}");
        }
    }
}
