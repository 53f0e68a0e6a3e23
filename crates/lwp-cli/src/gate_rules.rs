//! What `lwp gate` is to check, as `lwp.toml` says it. Nothing here opens a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lwp_report::gate::Limit;

/// Limits and baseline from all sources.
#[derive(Debug, Default, PartialEq)]
pub struct Rules {
    /// The recording that is compared with.
    pub baseline: Option<PathBuf>,
    /// Most that events may count, by their names.
    pub limits: BTreeMap<String, Limit>,
    /// The same again, for limits that a recording to compare with does not move.
    pub hard: BTreeMap<String, Limit>,
}

impl Rules {
    /// Every limit, with its event.
    pub fn all(&self) -> impl Iterator<Item = (&String, Limit)> {
        self.limits.iter().chain(&self.hard).map(|(event, limit)| (event, *limit))
    }
}

/// Reads `[gate] baseline`, `[gate.limits]` and `[gate.hard]`.
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
            ("limits" | "hard", toml::Value::Table(limits)) => {
                let hard = key == "hard";
                for (event, limit) in limits {
                    let text = match limit {
                        toml::Value::String(text) => text.clone(),
                        toml::Value::Integer(most) => most.to_string(),
                        _ => "neither text nor a whole number".to_owned(),
                    };
                    let limit = Limit::parse(&text).filter(|it| !(hard && it.is_relative()));
                    let limit =
                        limit.ok_or_else(|| format!("gate.{key}.{event}: not a limit: {text}"))?;
                    let rules = if hard { &mut rules.hard } else { &mut rules.limits };
                    rules.insert(event.clone(), limit);
                }
            }
            _ => return Err(format!("gate.{key} is not known or has the wrong type")),
        }
    }
    Ok(rules)
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
        assert!(parse("[gate.hard]\na = \"+1%\"\n", Path::new("lwp.toml")).is_err());
        let wrong = ["[gate]\nbase = 1\n", "gate = 1\n", "[gate.limits]\na = \"much\"\n", "[[["];
        for text in wrong {
            assert!(parse(text, Path::new("lwp.toml")).is_err(), "{text}");
        }
        assert_eq!(parse("", Path::new("lwp.toml")).unwrap(), Rules::default());
    }
}
