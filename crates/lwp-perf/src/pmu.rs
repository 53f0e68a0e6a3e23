//! The PMUs that the kernel describes in sysfs: their number, their fields and their named events.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rustix::io::Errno;

use crate::event::Event;
use crate::kernel::Kernel;

/// The directory in which the kernel lists them.
pub const DEVICES: &str = "/sys/bus/event_source/devices";

/// One PMU.
///
/// Spec: sysfs, `bus-event_source-devices-format` and `-events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// Its directory's name: `cpu`, `ibs_op`, `msr`, …
    pub name: String,
    /// Its `perf_event_attr.type`.
    pub kind: u32,
    /// Its fields, by name.
    pub format: BTreeMap<String, Field>,
    /// Its named events: terms, as in `event=0x3c,umask=0x1`.
    pub events: BTreeMap<String, String>,
    /// The processors it is bound to (`cpus`) or is to be opened on (`cpumask`), as a list.
    pub cpus: Option<String>,
}

/// The place of a field's bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The word: 0 is `config`, 1 `config1`, and so on.
    pub word: usize,
    /// The bits, lowest first.
    pub bits: Vec<RangeInclusive<u32>>,
}

/// The reason why terms could not be turned into an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermError {
    /// The PMU has no field and no event of this name.
    #[error("PMU {pmu} has no field or event {name:?}")]
    Unknown {
        /// The PMU.
        pmu: String,
        /// The name.
        name: String,
    },
    /// A value is not a number, or one is missing.
    #[error("{name}: {value:?} is not a number")]
    NotANumber {
        /// The field.
        name: String,
        /// The value that stood there.
        value: String,
    },
    /// A value has more bits than its field.
    #[error("{name}={value:#x} needs more than the {bits} bits of the field")]
    TooWide {
        /// The field.
        name: String,
        /// The value.
        value: u64,
        /// The field's width.
        bits: u32,
    },
}

impl Field {
    /// Parses a format file, such as `config:0-7,32-35`.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, bits) = text.trim().split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            "config3" => 3,
            _ => return None,
        };
        let bits = bits.split(',').map(range).collect::<Option<Vec<_>>>()?;
        Some(Self { word, bits })
    }

    /// Number of bits.
    pub fn width(&self) -> u32 {
        self.bits.iter().map(|range| range.end() - range.start() + 1).sum()
    }

    /// The largest value.
    pub fn max(&self) -> u64 {
        match self.width() {
            64.. => u64::MAX,
            width => (1 << width) - 1,
        }
    }

    /// Puts `value` into its bits of `word`, over what stood there.
    fn insert(&self, word: &mut u64, value: u64) {
        let mut rest = value;
        for bit in self.bits.iter().cloned().flatten() {
            *word = *word & !(1 << bit) | (rest & 1) << bit;
            rest >>= 1;
        }
    }
}

/// One bit or a range of them, inside a 64-bit word.
fn range(text: &str) -> Option<RangeInclusive<u32>> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    (low <= high && high < 64).then_some(low..=high)
}

/// A number in decimal or, after `0x`, hexadecimal, or, after `0`, octal.
pub fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// Returns whether a list of processors, such as `0-3,8`, has `cpu`.
pub fn in_list(list: &str, cpu: u32) -> bool {
    list.trim().split(',').any(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        matches!((low.parse::<u32>(), high.parse::<u32>()), (Ok(low), Ok(high)) if (low..=high).contains(&cpu))
    })
}

/// The processors of a list such as `0-3,8`.
pub fn cpu_list(list: &str) -> Vec<u32> {
    let parts = list.trim().split(',').filter_map(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some(low.parse::<u32>().ok()?..=high.parse::<u32>().ok()?)
    });
    parts.flatten().collect()
}

impl Pmu {
    /// Reads the PMU `name`.
    ///
    /// # Errors
    ///
    /// The PMU's files cannot be read: there is none of that name.
    pub fn read(kernel: &dyn Kernel, name: &str) -> Result<Self, Errno> {
        let path = format!("{DEVICES}/{name}");
        let kind =
            kernel.text(&format!("{path}/type"))?.trim().parse().map_err(|_| Errno::INVAL)?;
        let files = |folder: &str| -> Vec<(String, String)> {
            let names = kernel.names(&format!("{path}/{folder}")).unwrap_or_default();
            let text = |file: String| {
                let text = kernel.text(&format!("{path}/{folder}/{file}")).ok()?;
                Some((file, text.trim().to_owned()))
            };
            names.into_iter().filter_map(text).collect()
        };
        let format = files("format");
        let format =
            format.iter().filter_map(|(name, text)| Some((name.clone(), Field::parse(text)?)));
        // `x.scale`, `x.unit` and `x.snapshot` say something about the event `x`.
        let events = files("events").into_iter().filter(|(name, _)| !name.contains('.'));
        let cpus = ["cpus", "cpumask"].iter().find_map(|file| {
            let text = kernel.text(&format!("{path}/{file}")).ok()?;
            Some(text.trim().to_owned())
        });
        Ok(Self {
            name: name.into(),
            kind,
            format: format.collect(),
            events: events.collect(),
            cpus,
        })
    }

    /// The event that `terms` describe: fields with values, named events, and fields alone, which
    /// are 1.
    ///
    /// # Errors
    ///
    /// A term is unknown, or its value does not fit.
    pub fn event(&self, name: &str, terms: &str) -> Result<Event, TermError> {
        let mut event = Event::new(name, self.kind, 0);
        event.pmu = Some(self.name.clone());
        self.apply(&mut event, terms, true)?;
        Ok(event)
    }

    /// Adds `terms` to `event`.
    fn apply(&self, event: &mut Event, terms: &str, aliases: bool) -> Result<(), TermError> {
        for term in terms.split(',').filter(|term| !term.trim().is_empty()) {
            let (name, value) = match term.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim())),
                None => (term.trim(), None),
            };
            match (self.events.get(name), value) {
                (Some(terms), None) if aliases => self.apply(event, terms, false)?,
                _ => self.set(event, name, value)?,
            }
        }
        Ok(())
    }

    fn set(&self, event: &mut Event, name: &str, value: Option<&str>) -> Result<(), TermError> {
        let value = match value {
            None => 1,
            Some(text) => parse_number(text)
                .ok_or_else(|| TermError::NotANumber { name: name.into(), value: text.into() })?,
        };
        self.set_field(event, name, value)
    }

    /// Sets one field of `event`. The whole words `config` to `config3` are fields too.
    ///
    /// # Errors
    ///
    /// The PMU has no such field, or the value does not fit.
    pub fn set_field(&self, event: &mut Event, name: &str, value: u64) -> Result<(), TermError> {
        let words = [&mut event.config, &mut event.config1, &mut event.config2, &mut event.config3];
        if let Some(field) = self.format.get(name) {
            if value > field.max() {
                let bits = field.width();
                return Err(TermError::TooWide { name: name.into(), value, bits });
            }
            field.insert(words.into_iter().nth(field.word).expect("four words"), value);
            return Ok(());
        }
        let index = match name {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            "config3" => 3,
            _ => return Err(TermError::Unknown { pmu: self.name.clone(), name: name.into() }),
        };
        *words.into_iter().nth(index).expect("four words") = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amd() -> Pmu {
        let field = |text| Field::parse(text).unwrap();
        Pmu {
            name: "cpu".into(),
            kind: 4,
            format: [
                ("event".into(), field("config:0-7,32-35")),
                ("umask".into(), field("config:8-15")),
                ("inv".into(), field("config:23")),
                ("ldlat".into(), field("config1:0-15")),
            ]
            .into(),
            events: [("cpu-cycles".into(), "event=0x76".into())].into(),
            cpus: None,
        }
    }

    #[test]
    fn sysfs_split_fields_are_filled_lowest_first() {
        let event = amd().event("x", "event=0x1c7,umask=0x2,inv,ldlat=30").unwrap();
        assert_eq!(event.config, 0x1_0080_02c7);
        assert_eq!((event.config1, event.kind), (30, 4));
        assert_eq!(event.pmu.as_deref(), Some("cpu"));
    }

    #[test]
    fn sysfs_named_events_take_more_terms() {
        let event = amd().event("x", "cpu-cycles,umask=1").unwrap();
        assert_eq!(event.config, 0x176);
        // A later term wins over an earlier one.
        assert_eq!(amd().event("x", "cpu-cycles,event=0x12").unwrap().config, 0x12);
    }

    #[test]
    fn sysfs_wrong_terms_are_named() {
        let error = |terms| amd().event("x", terms).unwrap_err().to_string();
        assert_eq!(error("umask=0x100"), "umask=0x100 needs more than the 8 bits of the field");
        assert_eq!(error("cmask=1"), "PMU cpu has no field or event \"cmask\"");
        assert_eq!(error("umask=many"), "umask: \"many\" is not a number");
        assert_eq!(error("event="), "event: \"\" is not a number");
    }

    #[test]
    fn sysfs_whole_words_can_be_given() {
        assert_eq!(amd().event("x", "config=0x5,config1=7").unwrap().config1, 7);
    }

    #[test]
    fn formats_outside_a_word_are_refused() {
        assert_eq!(Field::parse("config:0-64"), None);
        assert_eq!(Field::parse("config:7-3"), None);
        assert_eq!(Field::parse("konfig:0"), None);
        assert_eq!(Field::parse("config2:0-63\n").unwrap().max(), u64::MAX);
    }

    #[test]
    fn lists_of_processors() {
        assert!(in_list("0-3,8\n", 2) && in_list("0-3,8", 8));
        assert!(!in_list("0-3,8", 5) && !in_list("", 0));
        assert_eq!(cpu_list("0-2,5\n"), [0, 1, 2, 5]);
    }

    #[test]
    fn numbers_have_three_bases() {
        assert_eq!(parse_number("0x1F"), Some(31));
        assert_eq!(parse_number("010"), Some(8));
        assert_eq!(parse_number("0"), Some(0));
        assert_eq!(parse_number("x"), None);
    }
}
