//! Events that `lwp record` samples, and their intervals.

use lwp_profile::SampledEvent;
use lwp_vcpu::{Sampled, Sampling};

use crate::args::usage_error;
use crate::failure::Failure;

/// Events that can be sampled, by name.
const EVENTS: [(&str, Sampled); 7] = [
    ("instructions", Sampled::Instructions),
    ("branches", Sampled::ALL_BRANCHES),
    ("conditional-branches", Sampled::CONDITIONAL),
    ("calls", Sampled::CALLS),
    ("returns", Sampled::RETURNS),
    ("indirect-branches", Sampled::INDIRECT),
    ("dcache-misses", Sampled::DcacheMisses),
];

/// Values of `--call-graph`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallGraph {
    /// Stacks as lwp makes them.
    Own,
    /// lwp's own stacks, requested by perf's name for another way.
    Perfs(&'static str),
    /// By unwind tables, from a copy of so many bytes of the stack where there is one: `--time`.
    Dwarf(Option<u32>),
    /// No stacks.
    None,
    /// Calling contexts of exact recordings, measured.
    Exact,
    /// Calling contexts of exact recordings, inferred from numbers of calls.
    Inferred,
}

impl CallGraph {
    /// From the text of `--call-graph`: perf's names, with perf's size of a copied stack behind
    /// `dwarf`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, size) = text.split_once(',').map_or((text, None), |(name, it)| (name, Some(it)));
        let sized = size.is_none_or(|size| name == "dwarf" && size.parse::<u32>().is_ok());
        match name {
            _ if !sized => Err("only dwarf can have a number behind it".into()),
            "shadow" => Ok(Self::Own),
            "none" | "no" => Ok(Self::None),
            "exact" => Ok(Self::Exact),
            "inferred" => Ok(Self::Inferred),
            "fp" => Ok(Self::Perfs("fp")),
            "lbr" => Ok(Self::Perfs("lbr")),
            "dwarf" => Ok(Self::Dwarf(size.and_then(|size| size.parse().ok()))),
            _ => Err("known are exact, inferred, fp, lbr, dwarf, shadow and none".into()),
        }
    }

    /// Returns whether an exact recording measures contexts, where `possible`.
    pub fn measures_contexts(chosen: Option<Self>, possible: bool) -> bool {
        match chosen {
            Some(Self::Exact) => true,
            Some(Self::Inferred | Self::None) => false,
            Some(Self::Own | Self::Perfs(_) | Self::Dwarf(_)) | None => possible,
        }
    }
}

/// Sampled events with their names, in the order of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samplings(Vec<(&'static str, Sampling)>);

impl Samplings {
    /// From the texts of `-e` and the number of `-c`; nothing where there is neither.
    pub fn parse(texts: &[String], count: Option<u64>) -> Result<Self, Failure> {
        if texts.is_empty() {
            let interval = count.map(|interval| (EVENTS[0].0, sampling(EVENTS[0].1, interval)));
            return Ok(Self(interval.into_iter().collect()));
        }
        let mut out = Vec::new();
        for text in texts.iter().flat_map(|texts| texts.split(',')) {
            out.push(event(text, count)?);
        }
        let kind = |(_, event): &(&str, Sampling)| std::mem::discriminant(&event.what);
        if out.iter().enumerate().any(|(at, one)| out[..at].iter().any(|it| kind(it) == kind(one)))
        {
            return Err(usage_error(
                "these events cannot be sampled in one run",
                "sample instructions, one kind of branches, and cache misses at a time",
            ));
        }
        let misses = |(_, event): &(&str, Sampling)| event.what == Sampled::DcacheMisses;
        if out.iter().any(misses) && !lwp_vcpu::can_watch_caches() {
            return Err(usage_error(
                "this processor cannot watch a modelled data cache: it lacks BMI2 or FSGSBASE",
                "sample other events, or run on a processor that has both",
            ));
        }
        Ok(Self(out))
    }

    /// Returns whether nothing is sampled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For the virtual CPU.
    pub fn config(&self) -> Vec<Sampling> {
        self.0.iter().map(|(_, sampling)| *sampling).collect()
    }

    /// For the recording, where so many bits of each interval are random.
    pub fn recorded(&self, random_bits: u8) -> Vec<SampledEvent> {
        let event = |(name, sampling): &(&str, Sampling)| SampledEvent {
            name: (*name).to_owned(),
            interval: sampling.mean_interval(random_bits),
            modelled: sampling.what == Sampled::DcacheMisses,
        };
        self.0.iter().map(event).collect()
    }
}

fn sampling(what: Sampled, interval: u64) -> Sampling {
    Sampling { what, interval }
}

/// `EVENT`, `EVENT:u`, `EVENT:c=N` or `EVENT/period=N/`.
fn event(text: &str, count: Option<u64>) -> Result<(&'static str, Sampling), Failure> {
    let at = text.find([':', '/']).unwrap_or(text.len());
    let (name, rest) = text.split_at(at);
    let name = match name {
        "branch-instructions" => "branches",
        name => name,
    };
    let Some((name, what)) = EVENTS.into_iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = EVENTS.iter().map(|(name, _)| *name).collect();
        return Err(usage_error(
            format!("'{name}' cannot be sampled"),
            format!("events that can: {}", names.join(", ")),
        ));
    };
    let mut interval = count;
    for word in rest.split([':', '/']).filter(|word| !word.is_empty()) {
        let number = word.strip_prefix("c=").or_else(|| word.strip_prefix("period="));
        match number {
            Some(number) => interval = Some(interval_of(number)?),
            None if word == "u" => {}
            None => {
                return Err(usage_error(
                    format!("'{text}' has the unknown modifier '{word}'"),
                    "write EVENT:c=N to choose the interval of one event",
                ));
            }
        }
    }
    match interval {
        Some(interval) => Ok((name, sampling(what, interval))),
        None => Err(usage_error(
            format!("how often is '{name}' to be sampled?"),
            format!("write -c N, or -e {name}:c=N; without -e and -c everything is counted"),
        )),
    }
}

/// A positive number; underscores may stand in it, and K, M or G behind.
pub fn interval_of(text: &str) -> Result<u64, Failure> {
    let plain = text.replace('_', "");
    let factor = match plain.bytes().last().map(|last| last.to_ascii_uppercase()) {
        Some(b'K') => 1_000,
        Some(b'M') => 1_000_000,
        Some(b'G') => 1_000_000_000,
        _ => 1,
    };
    let digits = if factor == 1 { &plain[..] } else { &plain[..plain.len() - 1] };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    // The countdown has 63 bits; a year of instructions has 57.
    number.filter(|number| (1..1 << 60).contains(number)).ok_or_else(|| {
        usage_error(
            format!("'{text}' is no interval"),
            "write a number of events, such as 100000, 100_000 or 100K",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str], count: Option<u64>) -> Option<Vec<(&'static str, u64)>> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let parsed = Samplings::parse(&texts, count).ok()?;
        Some(parsed.0.iter().map(|(name, one)| (*name, one.interval)).collect())
    }

    #[test]
    fn call_graphs_have_perf_s_names() {
        assert_eq!(CallGraph::parse("dwarf,64000"), Ok(CallGraph::Dwarf(Some(64000))));
        assert_eq!(CallGraph::parse("dwarf"), Ok(CallGraph::Dwarf(None)));
        assert_eq!(CallGraph::parse("shadow"), Ok(CallGraph::Own));
        assert_eq!(CallGraph::parse("none"), Ok(CallGraph::None));
        assert_eq!(CallGraph::parse("exact"), Ok(CallGraph::Exact));
        assert!(CallGraph::parse("fp,8").is_err() && CallGraph::parse("dwarf,x").is_err());
        assert!(CallGraph::parse("orc").is_err_and(|says| says.contains("shadow")));
    }

    #[test]
    fn intervals_are_one_for_all_or_each_its_own() {
        assert_eq!(parse(&[], None), Some(vec![]));
        assert_eq!(parse(&[], Some(9)), Some(vec![("instructions", 9)]));
        let both = parse(&["branches:c=1K,instructions:u"], Some(5));
        assert_eq!(both, Some(vec![("branches", 1000), ("instructions", 5)]));
        assert_eq!(parse(&["calls/period=3/u"], None), Some(vec![("calls", 3)]));
        assert_eq!(parse(&["instructions"], None), None);
        assert_eq!(parse(&["cycles"], Some(1)), None);
        assert_eq!(parse(&["calls:c=0"], None), None);
        assert_eq!(parse(&["calls,returns"], Some(1)), None);
        assert_eq!(parse(&["calls:k"], Some(1)), None);
        assert_eq!(parse(&["dcache-misses,dcache-misses"], Some(1)), None);
    }
}
