//! `lwp gate`: fails when a program does more than it may.

use std::path::PathBuf;

use clap::Args;
use lwp_profile::Profile;
use lwp_profile::diff::{By, Diff, compare};
use lwp_report::gate::{Check, Limit, Verdict};

use crate::args::usage_error;
use crate::comparing::{self, MapArgs};
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::gate_rules::{self, Rules};
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
    profiles::write_text(&args.output, &text)?;
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
        Ok(text) => gate_rules::parse(&text, &path)
            .map_err(|what| Failure::new(OWN_FAILURE, format!("{}: {what}", path.display())))?,
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
