//! Rules as they are given: in a file, and on the command line.

use std::path::Path;

use lwp_profile::Modelled;
use lwp_report::gate::Limit;
use lwp_terminal::escape::printable;

use super::config;
use super::rules::Rules;
use crate::args::usage_error;
use crate::failure::{Failure, OWN_FAILURE};
use crate::profiles;

/// The file of limits, unless another one is named.
const DEFAULT_CONFIG: &str = "lwp.toml";

impl Rules {
    /// The file's rules, or those of `lwp.toml` if there is one.
    pub fn read(config: Option<&Path>) -> Result<Self, Failure> {
        let path = config.unwrap_or(Path::new(DEFAULT_CONFIG));
        match std::fs::read_to_string(path) {
            Ok(text) => config::parse(&text, path).map_err(|mistake| {
                Failure::new(OWN_FAILURE, format!("{}:{mistake}", path.display()))
                    .with_help(mistake.help)
            }),
            Err(error) if config.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(error) => Err(Failure::io(path.display(), &error)),
        }
    }

    /// Adds limits as the command line has them: EVENT=LIMIT.
    pub fn add(&mut self, limits: &[String], hard: &[String]) -> Result<(), Failure> {
        for text in limits {
            let (event, limit) = event_and_limit(text)?;
            self.limits.insert(event, limit);
        }
        for text in hard {
            let (event, most) = event_and_limit(text)?;
            if most.is_relative() {
                return Err(bad_limit(text, "hard limits are counts, as in 2_000_000"));
            }
            self.hard.insert(event, most);
        }
        Ok(())
    }

    /// Fails if an event with a limit, one that applies to `benchmark` if there is one, is not
    /// among those that are `known`.
    pub fn refuse_unknown(&self, known: &[&str], benchmark: Option<&str>) -> Result<(), Failure> {
        let unknown = |event: &&str| !known.contains(&profiles::event_name(event));
        let Some(event) = self.events(benchmark).into_iter().find(unknown) else {
            return Ok(());
        };
        let help = match Modelled::NAMES.contains(&profiles::event_name(event)) {
            true => "modelled events are recorded with --model".to_owned(),
            false => format!("there are: {}", printable(&known.join(", "))),
        };
        Err(usage_error(format!("there is a limit on '{event}', which is not recorded"), help))
    }
}

fn event_and_limit(text: &str) -> Result<(String, Limit), Failure> {
    let usual = "write EVENT=+0.5%, EVENT=+1000 or EVENT=2_000_000";
    let (event, limit) = text.split_once('=').ok_or_else(|| bad_limit(text, usual))?;
    Ok((event.to_owned(), Limit::parse(limit).map_err(|help| bad_limit(text, help))?))
}

fn bad_limit(text: &str, help: &str) -> Failure {
    usage_error(format!("'{text}' is not a limit"), help)
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
        assert!(rules.add(&words(&["instructions=+0,5%"]), &[]).is_err());
        assert!(rules.refuse_unknown(&["instructions", "calls"], None).is_ok());
        assert!(rules.refuse_unknown(&["instructions"], Some("a")).is_err());
    }
}
