//! Rules as they are given: in a file, and on the command line.

use std::path::Path;

use lwp_report::gate::Limit;

use super::rules::{self, Rules};
use crate::args::usage_error;
use crate::failure::{Failure, OWN_FAILURE};

/// The file of limits, unless another one is named.
const DEFAULT_CONFIG: &str = "lwp.toml";

impl Rules {
    /// The file's rules, or those of `lwp.toml` if there is one.
    pub fn read(config: Option<&Path>) -> Result<Self, Failure> {
        let path = config.unwrap_or(Path::new(DEFAULT_CONFIG));
        match std::fs::read_to_string(path) {
            Ok(text) => rules::parse(&text, path)
                .map_err(|what| Failure::new(OWN_FAILURE, format!("{}: {what}", path.display()))),
            Err(error) if config.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(error) => Err(Failure::io(path.display(), &error)),
        }
    }

    /// Adds limits as the command line has them: EVENT=LIMIT.
    pub fn add(&mut self, limits: &[String], hard: &[String]) -> Result<(), Failure> {
        for text in limits {
            let (event, limit) = event_and_limit(text).ok_or_else(|| bad_limit(text))?;
            self.limits.insert(event, limit);
        }
        for text in hard {
            let found = event_and_limit(text).filter(|(_, limit)| !limit.is_relative());
            let (event, most) = found.ok_or_else(|| bad_limit(text))?;
            self.hard.insert(event, most);
        }
        Ok(())
    }
}

fn event_and_limit(text: &str) -> Option<(String, Limit)> {
    let (event, limit) = text.split_once('=')?;
    Some((event.to_owned(), Limit::parse(limit)?))
}

fn bad_limit(text: &str) -> Failure {
    usage_error(
        format!("'{text}' is not a limit"),
        "write EVENT=+0.5%, EVENT=+1000 or EVENT=2_000_000",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_adds_limits() {
        let mut rules = Rules::default();
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        rules.add(&words(&["instructions=+5"]), &words(&["calls=7"])).unwrap();
        assert_eq!(rules.of_benchmark("").len(), 2);
        assert!(rules.add(&words(&["calls"]), &[]).is_err());
        assert!(rules.add(&[], &words(&["calls=+7"])).is_err());
    }
}
