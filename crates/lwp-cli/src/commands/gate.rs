//! `lwp gate`: fails when a program does more than it may.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use lwp_profile::Profile;
use lwp_profile::diff::{By, Diff, compare};
use lwp_report::gate::{Check, Limit, Verdict};

use crate::args::usage_error;
use crate::comparing::{self, MapArgs};
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::profiles::{self, InputArgs};

/// Exit code when a limit is exceeded.
const EXCEEDED: u8 = 3;
/// Functions named as the cause.
const SUSPECTS: usize = 10;
/// Where limits are kept unless something else is said.
const DEFAULT_CONFIG: &str = "lwp.toml";

/// `lwp gate`.
#[derive(Args, Clone, Debug, Default)]
pub struct GateArgs {
    /// The recording.
    #[command(flatten)]
    pub input: InputArgs,

    /// Compare with this recording
    #[arg(short, long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// A limit, as instructions=+0.5%, branches=+1000 or instructions=2_000_000
    #[arg(short, long = "limit", value_name = "EVENT=LIMIT")]
    pub limits: Vec<String>,

    /// The most that an event may count, whatever the baseline: insn=2_000_000
    #[arg(long = "hard", value_name = "EVENT=COUNT")]
    pub hard: Vec<String>,

    /// Read baseline and limits from FILE [default: lwp.toml, if there is one]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Compare with the baseline although the runs differ in this: arguments, mode (sampled or not),
    /// determinism, events; several are separated by commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub allow_different: Vec<String>,

    /// Which files are compared.
    #[command(flatten)]
    pub maps: MapArgs,

    /// How the verdict is written: text, markdown, junit, json, github
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: String,

    /// Write the verdict to FILE; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// Limits and baseline from all sources.
#[derive(Debug, Default, PartialEq)]
struct Rules {
    baseline: Option<PathBuf>,
    limits: BTreeMap<String, Limit>,
    /// Most that events may count, beside the limits.
    hard: BTreeMap<String, Limit>,
}

impl Rules {
    fn all(&self) -> impl Iterator<Item = (&String, Limit)> {
        self.limits.iter().chain(&self.hard).map(|(event, limit)| (event, *limit))
    }
}

/// Checks.
pub fn execute(args: &GateArgs) -> Result<Ending, Failure> {
    let rules = rules(args)?;
    if rules.all().next().is_none() {
        return Err(usage_error(
            "there is no limit to check",
            "give one: --limit instructions=+0.5%, or [gate.limits] in lwp.toml",
        ));
    }
    let after = comparing::open(&args.input.input, &args.input.names)?;
    let before = match &rules.baseline {
        Some(path) => Some(comparing::open(path, &args.input.names)?),
        None => None,
    };
    if let Some(before) = &before {
        comparing::refuse(before, &after, &args.allow_different)?;
    }
    let verdict = judge(args, &rules, before.as_ref(), &after)?;
    let text = match args.format.as_str() {
        "text" => verdict.text(),
        "markdown" | "md" => verdict.markdown(),
        "junit" => verdict.junit(),
        "json" => verdict.json(),
        "github" => verdict.github(),
        other => {
            let cause = format!("no format is called '{other}'");
            return Err(usage_error(cause, "formats are: text, markdown, junit, json, github"));
        }
    };
    profiles::write(&args.output, text.as_bytes())?;
    Ok(if verdict.passes() { Ending::SUCCESS } else { Ending::Code(EXCEEDED) })
}

fn judge(
    args: &GateArgs,
    rules: &Rules,
    before: Option<&Profile>,
    after: &Profile,
) -> Result<Verdict, Failure> {
    let mut checks = Vec::new();
    for (event, limit) in rules.all() {
        if limit.is_relative() && before.is_none() {
            return Err(usage_error(
                format!("the limit {event}={limit} needs a baseline"),
                "name one with --baseline FILE, or in lwp.toml",
            ));
        }
        let value = |profile: &Profile| {
            let index = profiles::event(profile, Some(event))?;
            Ok::<u64, Failure>(profile.total().get(index))
        };
        checks.push(Check {
            event: profiles::event_name(event).to_owned(),
            limit,
            before: before.map(value).transpose()?,
            after: value(after)?,
        });
    }
    let compared = match before {
        Some(before) => compare(before, after, By::Function, &args.maps.matched(before, after)?),
        None => Diff::default(),
    };
    let failed = checks.iter().find(|check| !check.passes());
    let event = failed.and_then(|check| before?.event(&check.event));
    Ok(Verdict {
        command: after.command.clone(),
        suspects: event.map(|event| suspects(&compared, event)).unwrap_or_default(),
        rebuilt: compared.rebuilt,
        checks,
    })
}

/// The functions whose counts have changed most.
fn suspects(diff: &Diff, event: usize) -> Vec<(String, i128)> {
    let mut all: Vec<(String, i128)> =
        diff.rows.iter().map(|row| (row.key.clone(), row.delta(event))).collect();
    all.retain(|(_, delta)| *delta != 0);
    all.sort_by(|a, b| b.1.unsigned_abs().cmp(&a.1.unsigned_abs()).then(a.0.cmp(&b.0)));
    all.truncate(SUSPECTS);
    all
}

/// The command line's rules over the file's.
fn rules(args: &GateArgs) -> Result<Rules, Failure> {
    let path = args.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG));
    let mut rules = match std::fs::read_to_string(&path) {
        Ok(text) => parse_config(&text, &path)?,
        Err(error) if args.config.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            Rules::default()
        }
        Err(error) => return Err(Failure::io(path.display(), &error)),
    };
    for text in &args.limits {
        let (event, limit) = text
            .split_once('=')
            .and_then(|(event, limit)| Some((event, Limit::parse(limit)?)))
            .ok_or_else(|| bad_limit(text))?;
        rules.limits.insert(event.to_owned(), limit);
    }
    for text in &args.hard {
        let (event, most) = text
            .split_once('=')
            .and_then(|(event, most)| Some((event, Limit::parse(most)?)))
            .filter(|(_, most)| !most.is_relative())
            .ok_or_else(|| bad_limit(text))?;
        rules.hard.insert(event.to_owned(), most);
    }
    if args.baseline.is_some() {
        rules.baseline.clone_from(&args.baseline);
    }
    Ok(rules)
}

fn bad_limit(text: &str) -> Failure {
    usage_error(
        format!("'{text}' is not a limit"),
        "write EVENT=+0.5%, EVENT=+1000 or EVENT=2_000_000",
    )
}

/// Reads `[gate] baseline`, `[gate.limits]` and `[gate.hard]`.
fn parse_config(text: &str, path: &Path) -> Result<Rules, Failure> {
    let wrong = |what: String| Failure::new(OWN_FAILURE, format!("{}: {what}", path.display()));
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
    let Some(gate) = table.get("gate") else { return Ok(Rules::default()) };
    let gate = gate.as_table().ok_or_else(|| wrong("gate is not a table".into()))?;
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
                    let limit = limit
                        .ok_or_else(|| wrong(format!("gate.{key}.{event}: not a limit: {text}")))?;
                    let rules = if hard { &mut rules.hard } else { &mut rules.limits };
                    rules.insert(event.clone(), limit);
                }
            }
            _ => return Err(wrong(format!("gate.{key} is not known or has the wrong type"))),
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
        let rules = parse_config(text, Path::new("ci/lwp.toml")).unwrap();
        assert_eq!(rules.baseline, Some(PathBuf::from("ci/base.data")));
        assert_eq!(rules.limits["instructions"], Limit::Percent(0.5));
        assert_eq!(rules.limits["branches"], Limit::Most(2000));
        assert_eq!(rules.hard["branches"], Limit::Most(9000));
        assert!(parse_config("[gate.hard]\na = \"+1%\"\n", Path::new("lwp.toml")).is_err());
        let wrong = ["[gate]\nbase = 1\n", "gate = 1\n", "[gate.limits]\na = \"much\"\n", "[[["];
        for text in wrong {
            assert!(parse_config(text, Path::new("lwp.toml")).is_err(), "{text}");
        }
        assert_eq!(parse_config("", Path::new("lwp.toml")).unwrap(), Rules::default());
    }
}
