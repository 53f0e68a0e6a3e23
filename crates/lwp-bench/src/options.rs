//! The benchmark program's arguments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::results;

const HELP: &str = "\
Usage: BENCHMARK [OPTIONS] [FILTER...]

Runs the benchmarks whose names contain a FILTER, or all if there is none

  --list           list the benchmarks
  --exact          treat a FILTER as a whole name
  --save FILE      save the results to FILE
  --compare FILE   show the change since the results saved in FILE
  --limit PERCENT  with --compare: exit with code 3 if a benchmark has grown by more than this
  --test           run each benchmark once
";

/// The options of a run.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    pub list: bool,
    pub once: bool,
    exact: bool,
    filters: Vec<String>,
    pub save: Option<PathBuf>,
    /// The results to compare with.
    pub before: BTreeMap<String, u64>,
    /// Per cent that a benchmark may grow.
    pub limit: Option<f64>,
}

/// The meaning of a command line.
#[derive(Debug, PartialEq)]
pub enum Request {
    Run(Options),
    Help(String),
}

impl Options {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Request, String> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => {
                    (name.to_owned(), Some(value.to_owned()))
                }
                _ => (word.clone(), None),
            };
            let mut value =
                || attached.clone().or_else(|| words.next()).ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--help" | "-h" => return Ok(Request::Help(HELP.to_owned())),
                "--list" => options.list = true,
                "--exact" => options.exact = true,
                "--test" => options.once = true,
                "--save" => options.save = Some(value()?.into()),
                "--compare" => options.before = results::read(Path::new(&value()?))?,
                "--limit" => {
                    let text = value()?;
                    let limit =
                        text.trim_end_matches('%').parse().ok().filter(|limit| *limit >= 0.0);
                    options.limit = Some(limit.ok_or(format!("{text} is not a percentage"))?);
                }
                // Cargo's.
                "--bench" | "--nocapture" | "--quiet" | "-q" => {}
                _ if word.starts_with('-') => {
                    return Err(format!("unknown option {word}; see --help"));
                }
                _ => options.filters.push(word),
            }
        }
        if options.limit.is_some() && options.before.is_empty() {
            return Err("--limit needs --compare".into());
        }
        Ok(Request::Run(options))
    }

    /// Returns whether a benchmark is to be run.
    pub fn wants(&self, name: &str) -> bool {
        let fits =
            |filter: &String| if self.exact { filter == name } else { name.contains(&**filter) };
        self.filters.is_empty() || self.filters.iter().any(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        match Options::parse(line.split_whitespace().map(str::to_owned))? {
            Request::Run(options) => Ok(options),
            Request::Help(text) => Err(text),
        }
    }

    #[test]
    fn filters_choose_benchmarks() {
        let some = parse("--bench sort parse").expect("options");
        assert!(some.wants("sort/10") && some.wants("parse") && !some.wants("sum"));
        let exact = parse("--exact sort").expect("options");
        assert!(exact.wants("sort") && !exact.wants("sort/10"));
        assert!(parse("").expect("options").wants("anything"));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("--bogus").is_err_and(|error| error.contains("--bogus")));
        assert!(parse("--save").is_err() && parse("--limit x").is_err());
        assert!(parse("--limit 1%").is_err_and(|error| error.contains("--compare")));
        assert!(
            parse("--compare /no/such/file").is_err_and(|error| error.contains("/no/such/file"))
        );
        assert!(parse("--help").is_err_and(|text| text.starts_with("Usage")));
    }
}
