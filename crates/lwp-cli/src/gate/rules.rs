//! Rules of `lwp gate`, as `lwp.toml` has them. Nothing here opens a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use lwp_report::gate::Limit;
use wildmatch::WildMatch;

/// Limits by event.
pub type Limits = BTreeMap<String, Limit>;

/// Limits of everything whose name fits a pattern, in which `*` stands for any letters and `?` for
/// one.
pub type Patterns = BTreeMap<String, Limits>;

/// Limits and baseline from all sources.
#[derive(Debug, Default, PartialEq)]
pub struct Rules {
    /// The recording, or the directory of recordings, to compare with.
    pub baseline: Option<PathBuf>,
    /// Limits of each benchmark as a whole.
    pub limits: Limits,
    /// Most that events may count, beside the limits.
    pub hard: Limits,
    /// Limits of functions, each on its own.
    pub functions: Patterns,
    /// Limits of modules, each on its own.
    pub modules: Patterns,
    /// Limits of functions, each with what it calls.
    pub inclusive: Patterns,
    /// Limits of certain benchmarks as a whole, in place of `limits`.
    pub benchmarks: Patterns,
}

impl Rules {
    /// Returns whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        let patterns = [&self.functions, &self.modules, &self.inclusive, &self.benchmarks];
        self.limits.is_empty()
            && self.hard.is_empty()
            && patterns.iter().all(|patterns| patterns.values().all(BTreeMap::is_empty))
    }

    /// The limits of the benchmark called `name`: of each event that of the longest pattern, then
    /// those that are hard.
    pub fn of_benchmark(&self, name: &str) -> Vec<(&String, Limit)> {
        let mut limits: BTreeMap<&String, (usize, Limit)> =
            self.limits.iter().map(|(event, limit)| (event, (0, *limit))).collect();
        for (pattern, special) in &self.benchmarks {
            if !WildMatch::new(pattern).matches(name) {
                continue;
            }
            for (event, limit) in special {
                let known = limits.entry(event).or_insert((0, *limit));
                if pattern.len() >= known.0 {
                    *known = (pattern.len(), *limit);
                }
            }
        }
        let limits = limits.into_iter().map(|(event, (_, limit))| (event, limit));
        limits.chain(self.hard.iter().map(|(event, limit)| (event, *limit))).collect()
    }

    /// Returns the remark that no limit applies to the benchmark called `name`, if so.
    pub fn unlimited(&self, name: &str) -> Option<String> {
        let parts = [&self.functions, &self.modules, &self.inclusive];
        let has_parts = parts.iter().any(|parts| parts.values().any(|limits| !limits.is_empty()));
        if has_parts || !self.of_benchmark(name).is_empty() {
            return None;
        }
        let limited = self.benchmarks.iter().filter(|(_, limits)| !limits.is_empty());
        let known: Vec<String> = limited.map(|(pattern, _)| format!("'{pattern}'")).collect();
        let known = known.join(", ");
        Some(format!("no limit applies: the only limits are those of benchmarks called {known}"))
    }

    /// The events that have limits, by the names that the user gave them; of a benchmark, those of
    /// the limits that apply to it.
    pub fn events(&self, benchmark: Option<&str>) -> BTreeSet<&str> {
        let applies =
            |pattern: &str| benchmark.is_none_or(|it| WildMatch::new(pattern).matches(it));
        let special = self.benchmarks.iter().filter(|(pattern, _)| applies(pattern));
        let parts = self.functions.iter().chain(&self.modules).chain(&self.inclusive);
        let patterns = parts.chain(special);
        let limits = [&self.limits, &self.hard].into_iter();
        let all = limits.chain(patterns.map(|(_, limits)| limits)).flatten();
        all.map(|(event, _)| event.as_str()).collect()
    }

    /// The patterns of benchmarks that fit none of `names`.
    pub fn idle(&self, names: &[&str]) -> Vec<&str> {
        let fits = |pattern: &str| names.iter().any(|it| WildMatch::new(pattern).matches(it));
        let patterns = self.benchmarks.keys().map(String::as_str);
        patterns.filter(|pattern| !fits(pattern)).collect()
    }

    /// Returns whether inclusive counts are limited, which takes measured contexts.
    pub fn need_contexts(&self) -> bool {
        self.inclusive.values().any(|limits| !limits.is_empty())
    }

    /// The first limit that needs a baseline.
    pub fn relative(&self) -> Option<(&String, Limit)> {
        let groups = [&self.functions, &self.modules, &self.inclusive, &self.benchmarks];
        let patterns = groups.iter().flat_map(|patterns| patterns.values());
        let mut all = std::iter::once(&self.limits).chain(patterns).flatten();
        all.find(|(_, limit)| limit.is_relative()).map(|(event, limit)| (event, *limit))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::config::parse;
    use super::*;

    #[test]
    fn the_longest_pattern_that_fits_is_a_benchmark_s() {
        let text = "[gate.limits]\ninstructions = \"+1%\"\n[gate.hard]\ncalls = 9\n\
                    [gate.benchmarks.\"*\"]\nbranches = \"+2%\"\n\
                    [gate.benchmarks.\"sort/*\"]\ninstructions = \"+0%\"\nbranches = \"+3%\"\n\
                    [gate.functions.\"core::*\"]\ninstructions = \"+10\"\n";
        let rules = parse(text, Path::new("lwp.toml")).unwrap();
        let of = |name: &str| -> Vec<String> {
            let limits = rules.of_benchmark(name);
            limits.iter().map(|(event, limit)| format!("{event}={limit}")).collect()
        };
        assert_eq!(of("parse"), ["branches=+2%", "instructions=+1%", "calls=9"]);
        assert_eq!(of("sort/small"), ["branches=+3%", "instructions=+0%", "calls=9"]);
        assert!(rules.relative().is_some() && !rules.is_empty());
        assert_eq!(rules.unlimited("parse"), None);
        assert_eq!(rules.events(Some("parse")).len(), 3);
        assert!(rules.events(None).is_superset(&rules.events(Some("sort/small"))));
        assert_eq!(rules.idle(&["parse"]), ["sort/*"]);
        let special = "[gate.benchmarks.\"a*\"]\ncalls = 9\n[gate.benchmarks.b]\ncalls = 9\n";
        let special = parse(special, Path::new("lwp.toml")).unwrap();
        assert_eq!(special.unlimited("abc"), None);
        assert!(special.unlimited("parse").is_some_and(|note| note.ends_with("called 'a*', 'b'")));
        assert_eq!(rules.functions["core::*"]["instructions"], Limit::More(10));
        let absolute = parse("[gate.limits]\ncalls = 9\n", Path::new("lwp.toml")).unwrap();
        assert_eq!(absolute.relative(), None);
        assert!(parse("[gate.functions.\"a\"]\n", Path::new("x")).unwrap().is_empty());
    }
}
