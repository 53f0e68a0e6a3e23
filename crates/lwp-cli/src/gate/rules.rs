//! Rules of `lwp gate`, as `lwp.toml` has them. Nothing here opens a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
    /// Limits of certain benchmarks as a whole, in place of `limits`.
    pub benchmarks: Patterns,
}

impl Rules {
    /// Returns whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        let patterns = [&self.functions, &self.modules, &self.benchmarks];
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
        let parts = [&self.functions, &self.modules];
        let has_parts = parts.iter().any(|parts| parts.values().any(|limits| !limits.is_empty()));
        if has_parts || !self.of_benchmark(name).is_empty() {
            return None;
        }
        let limited = self.benchmarks.iter().filter(|(_, limits)| !limits.is_empty());
        let known: Vec<String> = limited.map(|(pattern, _)| format!("'{pattern}'")).collect();
        let known = known.join(", ");
        Some(format!("no limit applies: the only limits are those of benchmarks called {known}"))
    }

    /// The first limit that needs a baseline.
    pub fn relative(&self) -> Option<(&String, Limit)> {
        let groups = [&self.functions, &self.modules, &self.benchmarks];
        let patterns = groups.iter().flat_map(|patterns| patterns.values());
        let mut all = std::iter::once(&self.limits).chain(patterns).flatten();
        all.find(|(_, limit)| limit.is_relative()).map(|(event, limit)| (event, *limit))
    }
}

/// Reads the table `gate` of the file at `path`, beside which the baseline lies; fails with what is
/// wrong in it.
pub fn parse(text: &str, path: &Path) -> Result<Rules, String> {
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let Some(gate) = table.get("gate") else { return Ok(Rules::default()) };
    let gate = gate.as_table().ok_or("gate is not a table")?;
    let mut rules = Rules::default();
    for (key, value) in gate {
        match (key.as_str(), value) {
            ("baseline", toml::Value::String(file)) => {
                let beside = path.parent().unwrap_or(Path::new(""));
                rules.baseline = Some(beside.join(file));
            }
            ("limits", toml::Value::Table(table)) => {
                rules.limits = limits(table, "limits")?;
            }
            ("hard", toml::Value::Table(table)) => {
                rules.hard = limits(table, "hard")?;
                if let Some((event, _)) = rules.hard.iter().find(|(_, limit)| limit.is_relative()) {
                    return Err(format!("gate.hard.{event}: not a limit: it is relative"));
                }
            }
            ("functions" | "modules" | "benchmarks", toml::Value::Table(table)) => {
                let patterns = patterns(table, key)?;
                match key.as_str() {
                    "functions" => rules.functions = patterns,
                    "modules" => rules.modules = patterns,
                    _ => rules.benchmarks = patterns,
                }
            }
            _ => return Err(format!("gate.{key} is not known or has the wrong type")),
        }
    }
    Ok(rules)
}

fn patterns(table: &toml::Table, key: &str) -> Result<Patterns, String> {
    let one = |(pattern, value): (&String, &toml::Value)| match value {
        toml::Value::Table(table) => {
            Ok((pattern.clone(), limits(table, &format!("{key}.\"{pattern}\""))?))
        }
        _ => Err(format!("gate.{key}.\"{pattern}\" is not a table of limits")),
    };
    table.iter().map(one).collect()
}

fn limits(table: &toml::Table, key: &str) -> Result<Limits, String> {
    let one = |(event, limit): (&String, &toml::Value)| {
        let text = match limit {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(most) => most.to_string(),
            _ => "neither text nor a whole number".to_owned(),
        };
        let limit = Limit::parse(&text);
        let limit = limit.ok_or_else(|| format!("gate.{key}.{event}: not a limit: {text}"))?;
        Ok((event.clone(), limit))
    };
    table.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_read_and_errors_are_named() {
        let text = "[gate]\nbaseline = \"base.data\"\n[gate.limits]\ninstructions = \"+0.5%\"\n\
                    branches = 2_000\n[gate.hard]\nbranches = 9_000\n";
        let rules = parse(text, Path::new("ci/lwp.toml")).unwrap();
        assert_eq!(rules.baseline, Some(PathBuf::from("ci/base.data")));
        assert_eq!(rules.limits["instructions"], Limit::Percent(0.5));
        assert_eq!(rules.limits["branches"], Limit::Most(2000));
        assert_eq!(rules.hard["branches"], Limit::Most(9000));
        let wrong = [
            "[gate]\nbase = 1\n",
            "gate = 1\n",
            "[gate.limits]\na = \"much\"\n",
            "[gate.hard]\na = \"+1%\"\n",
            "[gate.functions]\na = \"+1%\"\n",
            "[gate.modules.\"a\"]\nbranches = 1.5\n",
            "[[[",
        ];
        for text in wrong {
            assert!(parse(text, Path::new("lwp.toml")).is_err(), "{text}");
        }
        assert_eq!(parse("", Path::new("lwp.toml")).unwrap(), Rules::default());
    }

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
