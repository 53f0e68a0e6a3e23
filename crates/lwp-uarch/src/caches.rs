//! A hierarchy of caches as data: that of a preset, or one written down by a user.

use std::fmt;
use std::str::FromStr;

use crate::cache::CacheShape;
use crate::latency::{Level, Memory};
use crate::presets::{self, Preset};

/// The data caches of a machine, from the core outwards, and the memory behind them.
///
/// Written as the name of a preset, or level by level as `SIZE/WAYS/LINE`, separated by commas,
/// with `memory` at the end if wanted. `@CYCLES` behind any of them is its latency; what is not
/// said is taken from the preset `generic`.
///
/// ```
/// use lwp_uarch::Caches;
///
/// let caches: Caches = "16K/4/64,2M/16/64@21,memory@200".parse().unwrap();
/// assert_eq!(caches.levels.len(), 2);
/// assert_eq!((caches.levels[0].shape.sets(), caches.levels[1].latency_cycles), (64, 21));
/// assert!("16K/3/64".parse::<Caches>().unwrap_err().to_string().contains("power of two"));
/// ```
///
/// Spec: LWP §4.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caches {
    /// One to three levels with lines of one length.
    pub levels: Vec<Level>,
    /// The memory behind them.
    pub memory: Memory,
}

/// The reason why a text describes no caches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CachesError {
    /// Neither a preset nor a level.
    #[error("{0:?} is neither SIZE/WAYS/LINE (as in 32K/8/64) nor one of {names}", names = names())]
    Level(String),
    /// A size, number of ways, length of a line or latency that is no number, or 0.
    #[error("{0:?} is no number above 0 (sizes may end in K or M)")]
    Number(String),
    /// The sizes do not fit together.
    #[error("{0}: SIZE / WAYS / LINE must be a power of two, and LINE one of 16 to 1024")]
    Irregular(String),
    /// More than a model should hold.
    #[error("{0}: the largest cache that is modelled has 64M")]
    TooLarge(String),
    /// Levels of different lines.
    #[error("{0}: all levels have lines of the same length, here {1}")]
    Line(String, u32),
    /// A level that is not slower than the one before.
    #[error(
        "{0}: each level must be slower than the one before; @CYCLES behind it says how slow it is"
    )]
    Latency(String),
    /// No level, or too many.
    #[error("one to three levels are modelled, not {0}")]
    Levels(usize),
}

fn names() -> String {
    presets::ALL.map(|preset| preset.name).join(", ")
}

/// The largest cache.
const LARGEST: u64 = 64 << 20;

impl Caches {
    /// Those of a preset.
    pub fn of(preset: &Preset) -> Self {
        Self { levels: preset.levels.to_vec(), memory: preset.memory }
    }

    fn check_latencies(&self) -> Result<(), CachesError> {
        let mut before = 0;
        let latencies = self.levels.iter().enumerate();
        let latencies = latencies
            .map(|(index, level)| (format!("level {}", index + 1), level.latency_cycles))
            .chain([("memory".to_owned(), self.memory.latency_cycles)]);
        for (name, latency) in latencies {
            if latency <= before {
                return Err(CachesError::Latency(name));
            }
            before = latency;
        }
        Ok(())
    }
}

impl fmt::Display for Caches {
    /// The text that [`FromStr`] reads, latencies included.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for level in &self.levels {
            let CacheShape { bytes, ways, line_bytes } = level.shape;
            write!(f, "{bytes}/{ways}/{line_bytes}@{},", level.latency_cycles)?;
        }
        write!(f, "memory@{}", self.memory.latency_cycles)
    }
}

impl FromStr for Caches {
    type Err = CachesError;

    fn from_str(text: &str) -> Result<Self, CachesError> {
        if let Some(preset) = presets::by_name(text) {
            return Ok(Self::of(preset));
        }
        let generic = &presets::GENERIC;
        let mut parts: Vec<&str> = text.split(',').collect();
        let mut memory = generic.memory;
        if let Some(last) = parts.last().filter(|last| last.starts_with("memory")) {
            let latency = last.strip_prefix("memory@");
            let latency = latency.ok_or_else(|| CachesError::Level((*last).to_owned()))?;
            memory.latency_cycles = number(latency)?;
            parts.pop();
        }
        if !(1..=generic.levels.len()).contains(&parts.len()) {
            return Err(CachesError::Levels(parts.len()));
        }
        let levels = parts.iter().zip(generic.levels).map(|(part, like)| level(part, like));
        let levels: Vec<Level> = levels.collect::<Result<_, _>>()?;
        let line = levels[0].shape.line_bytes;
        if let Some(at) = levels.iter().position(|level| level.shape.line_bytes != line) {
            return Err(CachesError::Line(parts[at].to_owned(), line));
        }
        let caches = Self { levels, memory };
        caches.check_latencies()?;
        Ok(caches)
    }
}

/// A level as written; its latency, if that is not, and its name in records are those of `like`.
fn level(text: &str, like: Level) -> Result<Level, CachesError> {
    let (shape, latency_cycles) = match text.split_once('@') {
        Some((shape, latency)) => (shape, number(latency)?),
        None => (text, like.latency_cycles),
    };
    let [size, ways, line] = shape.split('/').collect::<Vec<_>>()[..] else {
        return Err(CachesError::Level(text.to_owned()));
    };
    let shape = CacheShape { bytes: bytes(size)?, ways: number(ways)?, line_bytes: number(line)? };
    if shape.bytes > LARGEST {
        return Err(CachesError::TooLarge(text.to_owned()));
    }
    if !(16..=1024).contains(&shape.line_bytes) || !shape.is_regular() {
        return Err(CachesError::Irregular(text.to_owned()));
    }
    Ok(Level { shape, latency_cycles, ..like })
}

fn number(text: &str) -> Result<u32, CachesError> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| CachesError::Number(text.to_owned()))
}

fn bytes(text: &str) -> Result<u64, CachesError> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    Ok(u64::from(number(digits)?) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Caches>().expect_err(text).to_string()
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_caches_are_presets_or_written_level_by_level() {
        for preset in presets::ALL {
            assert_eq!(preset.name.parse(), Ok(Caches::of(preset)));
            let Ok(again) = Caches::of(preset).to_string().parse::<Caches>() else {
                panic!("{}", preset.name)
            };
            assert_eq!(again.to_string(), Caches::of(preset).to_string());
        }
        let written = "32k/8/64,512K/8/64,16M/16/64";
        assert_eq!(written.parse(), Ok(Caches::of(&presets::GENERIC)));
        let one: Caches = "8192/2/32@3,memory@9".parse().unwrap();
        let level = one.levels[0];
        assert_eq!((level.shape.bytes, level.shape.ways, level.shape.line_bytes), (8192, 2, 32));
        assert_eq!((level.latency_cycles, one.memory.latency_cycles), (3, 9));
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_wrong_caches_say_what_is_wrong() {
        for (text, says) in [
            ("", "is neither"),
            ("zen9", "generic"),
            ("32K/8", "is neither"),
            ("32K/8/64,memory", "is neither"),
            ("32K/0/64", "above 0"),
            ("32K/8/64@", "above 0"),
            ("32G/8/64", "above 0"),
            ("33K/8/64", "power of two"),
            ("32K/8/8", "16 to 1024"),
            ("128M/8/64", "64M"),
            ("32K/8/64,512K/8/128", "same length"),
            ("32K/8/64@20,512K/8/64", "slower"),
            ("32K/8/64,memory@3", "slower"),
            ("4K/1/64,8K/1/64,16K/1/64,32K/1/64", "three levels"),
            ("memory@3", "three levels"),
        ] {
            assert!(error(text).contains(says), "{text}: {}", error(text));
        }
    }
}
