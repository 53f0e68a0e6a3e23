//! Comparability of two profiles: differences between the runs beside the program.
//!
//! Promise: R110

use std::fmt;

use crate::profile::{Mode, Profile};

/// A difference of two runs that makes their counts differ whatever the program does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// One counts every execution, the other one samples.
    Mode,
    /// Only one was deterministic.
    Determinism {
        /// True if that is the one from before.
        before: bool,
    },
    /// The program had other arguments.
    Arguments {
        /// Those from before.
        before: String,
        /// Those of the other.
        after: String,
    },
    /// Runtimes were asked in another way to name their code, which they do with instructions that
    /// count.
    Naming {
        /// Additions to the programs from before.
        before: String,
        /// Additions to those of the other.
        after: String,
    },
    /// Other events, or other intervals between samples.
    Events {
        /// Those from before.
        before: String,
        /// Those of the other.
        after: String,
    },
}

impl Difference {
    /// The names of all kinds.
    pub const NAMES: [&'static str; 5] = ["mode", "determinism", "arguments", "naming", "events"];

    /// The name of its kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Determinism { .. } => "determinism",
            Self::Arguments { .. } => "arguments",
            Self::Naming { .. } => "naming",
            Self::Events { .. } => "events",
        }
    }

    /// All differences of two profiles.
    pub fn between(before: &Profile, after: &Profile) -> Vec<Self> {
        let mut all = Vec::new();
        if before.mode != after.mode {
            all.push(Self::Mode);
        }
        let fixed = |profile: &Profile| profile.info("deterministic").to_owned();
        let (old, new) = (fixed(before), fixed(after));
        if old != new && !old.is_empty() && !new.is_empty() {
            all.push(Self::Determinism { before: old == "true" });
        }
        let (old, new) = (arguments(before), arguments(after));
        if old != new {
            all.push(Self::Arguments { before: old, after: new });
        }
        let added = |profile: &Profile| profile.info("added").to_owned();
        let (old, new) = (added(before), added(after));
        // Deterministic runs have no additions: one difference is enough.
        if old != new && fixed(before) == fixed(after) {
            all.push(Self::Naming { before: old, after: new });
        }
        let (old, new) = (events(before), events(after));
        // Counts and samples never have the same ones.
        if old != new && before.mode == after.mode {
            all.push(Self::Events { before: old, after: new });
        }
        all
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |text: &String| if text.is_empty() { "none" } else { text }.to_owned();
        match self {
            Self::Mode => write!(f, "one recording counts every execution, the other one samples"),
            Self::Determinism { before: true } => {
                write!(f, "only the recording from before is deterministic")
            }
            Self::Determinism { before: false } => {
                write!(f, "the recording from before is not deterministic, the other one is")
            }
            Self::Arguments { before, after } => {
                write!(
                    f,
                    "the program had other arguments: {}, now {}",
                    named(before),
                    named(after)
                )
            }
            Self::Naming { before, after } => write!(
                f,
                "runtimes were asked for names in another way, which counts too (--lang): {}, now {}",
                named(before),
                named(after)
            ),
            Self::Events { before, after } => {
                write!(f, "the recordings have other events: {before}, now {after}")
            }
        }
    }
}

/// The arguments of the program; in older recordings, the command without its first word.
fn arguments(profile: &Profile) -> String {
    match profile.info.get("arguments") {
        Some(arguments) => arguments.clone(),
        None => profile.command.split_once(' ').map_or("", |(_, rest)| rest).to_owned(),
    }
}

/// Events and intervals, in the order of their names.
fn events(profile: &Profile) -> String {
    let event = |event: &crate::Event| match event.interval {
        // Samples of time can be compared however many there are: their sums are the kernel's.
        Some(interval) if profile.mode == Mode::Sampled && !event.is_time() => {
            format!("{}:c={interval}", event.name)
        }
        _ => event.name.clone(),
    };
    // Counts can be compared whether or not a native run was recorded beside them.
    let beside = |number: usize| profile.is_sampled_beside(number);
    let events = profile.events.iter().enumerate().filter(|(number, _)| !beside(*number));
    let mut all: Vec<String> = events.map(|(_, it)| event(it)).collect();
    all.sort_unstable();
    let events = all.join(",");
    match profile.info("model") {
        "" => events,
        // Other caches miss other lines.
        model => format!("{events} by the model {model}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    fn profile(command: &str, info: &[(&str, &str)]) -> Profile {
        let info = info.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Profile { command: command.into(), info, events: Event::exact(), ..Profile::default() }
    }

    fn kinds(before: &Profile, after: &Profile) -> Vec<&'static str> {
        Difference::between(before, after).iter().map(Difference::name).collect()
    }

    #[test]
    fn runs_of_two_builds_can_be_compared_and_other_runs_cannot() {
        let one = profile("./a x 1", &[("deterministic", "true")]);
        assert_eq!(kinds(&one, &one), [""; 0]);
        assert_eq!(kinds(&one, &profile("/tmp/b x 1", &[])), [""; 0]);
        assert_eq!(kinds(&one, &profile("./a x 2", &[])), ["arguments"]);
        let kept = profile("'a b' x 1", &[("arguments", "x 1"), ("deterministic", "false")]);
        assert_eq!(kinds(&one, &kept), ["determinism"]);
        let asked = [("arguments", "x 1"), ("added", "python3: PYTHONPERFSUPPORT=1")];
        let asked = profile("./a x 1", &asked);
        assert_eq!(kinds(&profile("./a x 1", &[]), &asked), ["naming"]);
        assert_eq!(kinds(&asked, &asked), [""; 0]);
        let sampled = |interval| Profile {
            mode: Mode::Sampled,
            events: vec![Event { name: "a".into(), interval: Some(interval), modelled: false }],
            ..profile("./a x 1", &[])
        };
        assert_eq!(kinds(&one, &sampled(5)), ["mode"]);
        assert_eq!(kinds(&sampled(7), &sampled(5)), ["events"]);
        assert!(Difference::NAMES.contains(&kinds(&sampled(7), &sampled(5))[0]));
    }
}
