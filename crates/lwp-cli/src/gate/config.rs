//! `lwp.toml` as text: the table `gate`, and the line of whatever is wrong in it.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use lwp_report::gate::Limit;
use toml::de::{DeTable, DeValue};

use super::rules::{Limits, Patterns, Rules};

/// A mistake in the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Its line, counted from one.
    pub line: usize,
    /// The mistake, in words.
    pub cause: String,
    /// How to mend it; may be empty.
    pub help: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.cause)
    }
}

/// The text of a file, in which values have places.
struct Source<'a>(&'a str);

impl Source<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.0.as_bytes().get(..at).unwrap_or(self.0.as_bytes());
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn mistake(&self, at: Range<usize>, cause: impl Into<String>, help: &str) -> Mistake {
        Mistake { line: self.line(at.start), cause: cause.into(), help: help.to_owned() }
    }

    /// The mistake that the parser of TOML has found.
    fn syntax(&self, error: &toml::de::Error) -> Mistake {
        let at = error.span().unwrap_or_default();
        let line = self.0.lines().nth(self.line(at.start) - 1).unwrap_or_default().trim();
        let cause = match line {
            "" => error.message().to_owned(),
            line => format!("{line}: {}", error.message()),
        };
        self.mistake(at, cause, &unquoted(line).unwrap_or_default())
    }
}

/// Advice on a line that has a limit without quotes, as in `instructions = +0.5%`.
fn unquoted(line: &str) -> Option<String> {
    let (event, limit) = line.split_once('=')?;
    let (event, limit) = (event.trim(), limit.split('#').next()?.trim());
    let looks_so = limit.contains(['%', '+', ',']) && !limit.contains(['"', '\'', '[', '{']);
    looks_so.then(|| format!("limits with + or % are written in quotes: {event} = \"{limit}\""))
}

/// The keys of the table `gate`.
const KEYS: [&str; 7] =
    ["baseline", "limits", "hard", "functions", "modules", "inclusive", "benchmarks"];

/// Reads the table `gate` of the file at `path`, beside which the baseline lies.
pub fn parse(text: &str, path: &Path) -> Result<Rules, Mistake> {
    let source = Source(text);
    let table = DeTable::parse(text).map_err(|error| source.syntax(&error))?;
    if let Some((other, _)) = table.get_ref().iter().find(|(key, _)| key.get_ref() != "gate") {
        let cause = format!("{} is not known", other.get_ref());
        return Err(source.mistake(other.span(), cause, "the file has one table: gate"));
    }
    let Some(gate) = table.get_ref().get("gate") else { return Ok(Rules::default()) };
    let (gate, place) = (gate.get_ref(), gate.span());
    let wrong = |place, cause: String| source.mistake(place, cause, "");
    let gate = gate.as_table().ok_or_else(|| wrong(place, "gate is not a table".into()))?;
    let mut rules = Rules::default();
    for (key, value) in gate {
        let (name, place): (&str, _) = (key.get_ref(), key.span());
        match (name, value.get_ref()) {
            ("baseline", DeValue::String(file)) => {
                let beside = path.parent().unwrap_or(Path::new(""));
                rules.baseline = Some(beside.join(&**file));
            }
            ("limits", DeValue::Table(table)) => {
                rules.limits = limits(&source, table, name)?;
            }
            ("hard", DeValue::Table(table)) => rules.hard = hard(&source, table)?,
            ("functions", DeValue::Table(table)) => {
                rules.functions = patterns(&source, table, name)?;
            }
            ("modules", DeValue::Table(table)) => {
                rules.modules = patterns(&source, table, name)?;
            }
            ("inclusive", DeValue::Table(table)) => {
                rules.inclusive = patterns(&source, table, name)?;
            }
            ("benchmarks", DeValue::Table(table)) => {
                rules.benchmarks = patterns(&source, table, name)?;
            }
            (name, _) if KEYS.contains(&name) => {
                let kind = if name == "baseline" { "text" } else { "a table" };
                return Err(wrong(place, format!("gate.{name} is not {kind}")));
            }
            _ => {
                let help = format!("keys are: {}", KEYS.join(", "));
                return Err(source.mistake(place, format!("gate.{name} is not known"), &help));
            }
        }
    }
    Ok(rules)
}

fn hard(source: &Source<'_>, table: &DeTable<'_>) -> Result<Limits, Mistake> {
    let limits = limits(source, table, "hard")?;
    let relative = |event: &str| limits.get(event).is_some_and(|limit| limit.is_relative());
    let Some((event, _)) = table.iter().find(|(event, _)| relative(event.get_ref())) else {
        return Ok(limits);
    };
    let cause = format!("gate.hard.{}: the limit is relative", event.get_ref());
    Err(source.mistake(event.span(), cause, "hard limits are counts, as in 2_000_000"))
}

fn patterns(source: &Source<'_>, table: &DeTable<'_>, key: &str) -> Result<Patterns, Mistake> {
    let mut patterns = Patterns::new();
    for (pattern, value) in table {
        let name: &str = pattern.get_ref();
        let DeValue::Table(table) = value.get_ref() else {
            let cause = format!("gate.{key}.\"{name}\" is not a table of limits");
            let help = format!("write [gate.{key}.\"{name}\"], and the limits below");
            return Err(source.mistake(value.span(), cause, &help));
        };
        let limits = limits(source, table, &format!("{key}.\"{name}\""))?;
        patterns.insert(name.to_owned(), limits);
    }
    Ok(patterns)
}

fn limits(source: &Source<'_>, table: &DeTable<'_>, key: &str) -> Result<Limits, Mistake> {
    let mut limits = Limits::new();
    for (event, value) in table {
        let event: &str = event.get_ref();
        let written = source.0.get(value.span()).unwrap_or_default();
        let limit = match value.get_ref() {
            DeValue::String(text) => Limit::parse(text),
            // TOML has +1000 for 1000. Whoever writes it means 1000 more.
            DeValue::Integer(number) if number.radix() == 10 => Limit::parse(written),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .map(Limit::Most)
                .map_err(|_| "the number is too large"),
            _ => Err("limits are text, as in \"+0.5%\", or whole numbers, as in 2_000_000"),
        };
        let limit = limit.map_err(|help| {
            let cause = format!("gate.{key}.{event}: not a limit: {written}");
            source.mistake(value.span(), cause, help)
        })?;
        limits.insert(event.to_owned(), limit);
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn read(text: &str) -> Result<Rules, Mistake> {
        parse(text, Path::new("ci/lwp.toml"))
    }

    #[test]
    fn limits_baselines_and_counts_are_read() {
        let text = "[gate]\nbaseline = \"base.data\"\n[gate.limits]\ninstructions = \"+0.5%\"\n\
                    branches = 2_000\ncalls = +1_000\n\
                    [gate.hard]\nbranches = 9_000\ncalls = 0x10\n";
        let rules = read(text).expect("rules");
        assert_eq!(rules.baseline, Some(PathBuf::from("ci/base.data")));
        assert_eq!(rules.limits["instructions"], Limit::Percent(0.5));
        assert_eq!(rules.limits["branches"], Limit::Most(2000));
        assert_eq!(rules.limits["calls"], Limit::More(1000));
        assert_eq!(rules.hard["branches"], Limit::Most(9000));
        assert_eq!(rules.hard["calls"], Limit::Most(16));
        assert_eq!(read(""), Ok(Rules::default()));
    }

    #[test]
    fn mistakes_have_their_line_and_a_remedy() {
        let mistakes = [
            ("[gate]\nbase = 1\n", 2, "keys are: baseline"),
            ("\ngate = 1\n", 2, ""),
            ("[gate]\nlimits = 1\n", 2, ""),
            ("[gate.limits]\na = \"much\"\n", 2, "+0.5%"),
            ("[gate.limits]\nb = 1\na = \"+0,5%\"\n", 3, "separated by a point"),
            ("[gate.limits]\n\n\na = +0.5%\n", 4, "in quotes: a = \"+0.5%\""),
            ("[gate.limits]\na = +0,5\n", 2, "in quotes"),
            ("[gate.limits]\na = -5\n", 2, "+0.5%"),
            ("[gate.hard]\nb = 1\na = \"+1%\"\n", 3, "hard limits are counts"),
            ("[gate.functions]\na = \"+1%\"\n", 2, "write [gate.functions.\"a\"]"),
            ("[gate.modules.\"a\"]\nbranches = 1.5\n", 2, "whole numbers"),
            ("[gate.inclusive]\na = 5\n", 2, "write [gate.inclusive.\"a\"]"),
            ("\n[gat.limits]\na = \"+1%\"\n", 2, "one table: gate"),
            ("[limits]\na = \"+1%\"\n", 1, "one table: gate"),
            ("[[[", 1, ""),
        ];
        for (text, line, help) in mistakes {
            let mistake = read(text).expect_err(text);
            assert_eq!(mistake.line, line, "{text}: {mistake:?}");
            assert!(mistake.help.contains(help), "{text}: {mistake:?}");
        }
    }
}
