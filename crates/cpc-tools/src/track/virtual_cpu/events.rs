//! The events of `cputrack --lwp`: exact counts of all that a thread executes, and those that a
//! unit of Lightweight Profiling would have of it.

use std::fmt::Write;

use lwp_uarch::{CoreClock, ReferenceClock};
use lwp_vcpu::config::LwpConfig;
use lwp_vcpu::{Counts, Sampled, Sampling, ThreadReport};

use crate::failure::Failure;
use crate::spec::Spec;

/// The source of an event's count in the virtual CPU's report of a thread.
#[derive(Clone, Copy)]
pub(super) enum Count {
    /// From the counts of every instruction, system calls included.
    Exact(fn(&Counts) -> u64),
    /// As Lightweight Profiling counts: what enters the kernel does not.
    Lwp(Sampled),
    /// Modelled clocks of the instructions that Lightweight Profiling counts.
    Clocks(Clock),
}

/// A clock of Lightweight Profiling.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    Core,
    Reference,
}

impl Clock {
    /// The clocks of so many instructions while no cache and no predictor is modelled (DEV-36).
    fn of(self, instructions: u64) -> u64 {
        let machine = LwpConfig::default().machine;
        let cycles = CoreClock::new(machine.clock).retire_many(instructions);
        match self {
            Self::Core => cycles,
            Self::Reference => {
                let (reference, core) = (machine.reference_hz, machine.core_hz);
                ReferenceClock::of_core_cycles(reference, core).advance(cycles)
            }
        }
    }
}

impl Count {
    /// Returns a thread's count of the event, in a run that counts `sampling`.
    pub(super) fn of(self, thread: &ThreadReport, sampling: &[Sampling]) -> u64 {
        match self {
            Self::Exact(count) => count(&thread.counts),
            Self::Lwp(what) => {
                let place = sampling.iter().position(|event| event.what == what);
                place.and_then(|place| thread.sampled.get(place)).copied().unwrap_or(0)
            }
            Self::Clocks(clock) => clock.of(Lwp(Sampled::Instructions).of(thread, sampling)),
        }
    }

    /// The event that the virtual CPU has to count for it beyond what it always counts.
    fn sampled(self) -> Option<Sampled> {
        match self {
            Self::Exact(_) => None,
            Self::Lwp(what) => Some(what),
            Self::Clocks(_) => Some(Sampled::Instructions),
        }
    }
}

use Count::{Clocks, Exact, Lwp};

/// EventNames, and how they are counted.
#[rustfmt::skip] // A table: one event a line.
const EVENTS: &[(&[&str], Count)] = &[
    (&["instructions", "PAPI_tot_ins"],                   Exact(|c| c.instructions)),
    (&["branches", "branch-instructions", "PAPI_br_ins"], Exact(|c| c.branches)),
    (&["branches-taken"],                                 Exact(Counts::taken)),
    (&["conditional-branches", "PAPI_br_cn"],             Exact(|c| c.conditional)),
    (&["conditional-taken", "PAPI_br_tkn"],               Exact(|c| c.conditional_taken)),
    (&["conditional-not-taken", "PAPI_br_ntk"],           Exact(|c| c.conditional - c.conditional_taken)),
    (&["unconditional-branches", "PAPI_br_ucn"],          Exact(|c| c.branches - c.conditional)),
    (&["calls"],                                          Exact(|c| c.calls)),
    (&["returns"],                                        Exact(|c| c.returns)),
    (&["indirect-branches"],                              Exact(|c| c.indirect)),
    (&["lwp_ire"],                                        Lwp(Sampled::Instructions)),
    (&["lwp_bre"],                                        Lwp(Sampled::ALL_BRANCHES)),
    (&["lwp_dme", "L1-dcache-load-misses", "PAPI_l1_ldm"], Lwp(Sampled::DcacheMisses)),
    (&["lwp_cnh"],                                        Clocks(Clock::Core)),
    (&["lwp_rnh"],                                        Clocks(Clock::Reference)),
];

/// Lists the events that can be counted here.
pub fn listing() -> String {
    let mut text = "\n\tCPU performance counter interface: the virtual CPU\n\n".to_owned();
    text += "\tevents  [picN=]event[,[picN=]event...]\n\n";
    for (names, _) in EVENTS {
        let _ = writeln!(text, "{:>17}{}", "", names.join(" "));
    }
    text += "\n\tCounted exactly, in user mode, for every thread all the time. Those of lwp_ are\n\
             \twhat Lightweight Profiling counts, in a run of their own: lwp_dme misses of a modelled\n\
             \tdata cache, lwp_cnh and lwp_rnh clocks of a modelled processor that waits for\n\
             \tnothing. Misses and clocks take two runs.\n";
    text
}

/// One specification: its events in the order of their columns.
pub(super) struct Columned {
    pub(super) text: String,
    pub(super) pics: Vec<u32>,
    pub(super) counts: Vec<Count>,
}

impl Columned {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let spec = Spec::parse(text, &[])?;
        if let Some(modifier) = spec.modifiers.first() {
            let reason = match &*modifier.name {
                "sys" => {
                    "the virtual CPU counts in user mode only; without --lwp the PMU may do it"
                }
                _ => "the virtual CPU always counts user mode",
            };
            return Err(Failure::Usage(format!("'{}': {reason}", modifier.name)));
        }
        let mut columned = Self { text: text.to_owned(), pics: Vec::new(), counts: Vec::new() };
        for wanted in &spec.events {
            let pic = wanted.pic.unwrap_or_else(|| columned.pics.iter().max().map_or(0, |p| p + 1));
            if columned.pics.contains(&pic) {
                return Err(Failure::Usage(format!("pic{pic} is used twice in '{text}'")));
            }
            // Columns are in the order of their numbers, whatever the order of the text.
            let place = columned.pics.partition_point(|other| *other < pic);
            columned.pics.insert(place, pic);
            columned.counts.insert(place, count_named(&wanted.event)?);
        }
        Ok(columned)
    }
}

fn count_named(name: &str) -> Result<Count, Failure> {
    // Modifiers of perf are understood where they ask for what is counted anyway.
    let bare = name.strip_suffix(":u").unwrap_or(name);
    let same = |known: &&&str| {
        **known == bare || (known.starts_with("PAPI") && known.eq_ignore_ascii_case(bare))
    };
    let row = EVENTS.iter().find(|(names, _)| names.iter().any(|known| same(&known)));
    row.map(|(_, count)| *count).ok_or_else(|| {
        Failure::Usage(format!(
            "'{name}': the virtual CPU does not count this; see cputrack --lwp -h for what it counts"
        ))
    })
}

/// Returns the events that a run has to count for `specs` beside those that it always counts. No
/// sample is ever taken.
pub(super) fn sampling(specs: &[Columned]) -> Result<Vec<Sampling>, Failure> {
    let mut sampling: Vec<Sampling> = Vec::new();
    let mut exact = false;
    let mut clocks = false;
    for count in specs.iter().flat_map(|spec| &spec.counts) {
        clocks |= matches!(count, Clocks(_));
        match count.sampled() {
            None => exact = true,
            Some(what) if sampling.iter().all(|event| event.what != what) => {
                sampling.push(Sampling { what, interval: u64::MAX });
            }
            Some(_) => {}
        }
    }
    if exact && !sampling.is_empty() {
        return Err(Failure::Usage(
            "events of Lightweight Profiling and exact counts take two runs: use lwp_ire and lwp_bre beside \
             lwp_dme"
                .into(),
        ));
    }
    let misses = |event: &Sampling| event.what == Sampled::DcacheMisses;
    if clocks && sampling.iter().any(misses) {
        return Err(Failure::Usage(
            "lwp_cnh and lwp_rnh are clocks of a processor that does not wait for memory: count \
             lwp_dme in another run"
                .into(),
        ));
    }
    if sampling.iter().any(misses) && !lwp_vcpu::can_watch_caches() {
        return Err(Failure::new(
            "lwp_dme: watching a data cache takes a processor with BMI2 and FSGSBASE",
        ));
    }
    Ok(sampling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread() -> ThreadReport {
        let counts = Counts {
            instructions: 100,
            branches: 20,
            conditional: 12,
            conditional_taken: 7,
            calls: 3,
            returns: 2,
            indirect: 1,
        };
        ThreadReport {
            tid: 1,
            comm: String::new(),
            counts,
            started: std::time::Instant::now(),
            ended: None,
            sampled: vec![9, 4],
            cpu: None,
        }
    }

    #[test]
    fn columns_are_in_the_order_of_their_numbers() {
        let Ok(spec) = Columned::parse("pic2=branches,pic0=instructions,calls") else { panic!() };
        assert_eq!(spec.pics, [0, 2, 3]);
        let values: Vec<u64> = spec.counts.iter().map(|it| it.of(&thread(), &[])).collect();
        assert_eq!(values, [100, 20, 3]);
    }

    #[test]
    fn names_are_understood() {
        let thread = thread();
        let sampling = sampling(&[Columned::parse("lwp_ire,lwp_dme").unwrap()]).unwrap();
        let count =
            |name: &str| count_named(name).map(|count| count.of(&thread, &sampling)).unwrap();
        assert_eq!(["lwp_dme", "lwp_ire", "papi_l1_LDM"].map(count), [4, 9, 4]);
        assert_eq!(count("instructions:u"), 100);
        assert_eq!(count("PAPI_TOT_INS"), 100);
        assert_eq!(count("branches-taken"), 15);
        assert_eq!(count("PAPI_br_ntk"), 5);
        assert_eq!(count("PAPI_br_ucn"), 8);
        for unknown in ["cycles", "instructions:k", "PAPI_tot_cyc", "0xc0"] {
            assert!(count_named(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn specifications_without_attributes() {
        let spec = Columned::parse("pic2=calls,returns,pic0=branches").unwrap();
        assert_eq!(spec.pics, [0, 2, 3]);
        let mixed = ["lwp_bre", "calls"].map(|text| Columned::parse(text).unwrap());
        assert!(sampling(&mixed).is_err(), "two runs");
        assert!(sampling(&mixed[1..]).unwrap().is_empty());
        for wrong in ["calls,sys", "calls,nouser", "pic0=calls,pic0=returns", "cycles"] {
            assert!(Columned::parse(wrong).is_err(), "{wrong}");
        }
    }
}
