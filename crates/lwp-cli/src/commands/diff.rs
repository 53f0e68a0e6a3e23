//! `lwp diff`: two recordings compared.

use std::path::{Path, PathBuf};

use clap::Args;
use lwp_profile::Profile;
use lwp_profile::diff::{By, compare};
use lwp_report::diff::{self, View};
use lwp_report::series::Series;
use lwp_terminal::escape::printable;

use crate::args::usage_error;
use crate::comparing::{self, MapArgs};
use crate::ending::Ending;
use crate::failure::Failure;
use crate::output::OutputArgs;
use crate::profiles::{self, NameArgs, OnlyArgs, PREVIOUS_FILE};

/// `lwp diff`.
#[derive(Args, Clone, Debug, Default)]
pub struct DiffArgs {
    /// Recordings, the oldest first; each later one is compared with it [default: lwp.data.old
    /// lwp.data]
    #[arg(value_name = "RECORDING")]
    pub recordings: Vec<PathBuf>,

    /// Compare this event [default: the recording's first]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Compare by function (sym), line (srcline) or program and library (dso)
    #[arg(short, long, value_name = "KEY", default_value = "sym")]
    pub sort: String,

    /// Compare functions with what they call, by inclusive counts; all recordings must have
    /// measured them, as `lwp record` does by default
    #[arg(long, conflicts_with = "sort")]
    pub children: bool,

    /// Order rows by the relative change
    #[arg(long)]
    pub relative: bool,

    /// Show at most N rows; 0 shows all [default: 30, and all as JSON and CSV]
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,

    /// Print JSON
    #[arg(short, long, conflicts_with = "csv")]
    pub json: bool,

    /// Print CSV
    #[arg(long)]
    pub csv: bool,

    /// Files that are compared with each other.
    #[command(flatten)]
    pub maps: MapArgs,

    /// Sources of names.
    #[command(flatten)]
    pub names: NameArgs,

    /// The language that alone is compared.
    #[command(flatten)]
    pub only: OnlyArgs,

    /// Colours and pages.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Rows of a text, unless something else is said: a screen's.
const ROWS: usize = 30;

impl DiffArgs {
    /// Returns whether the output is for programs.
    fn is_for_machines(&self) -> bool {
        self.json || self.csv
    }

    /// At most so many rows.
    fn rows(&self) -> Option<usize> {
        match self.limit {
            None if self.is_for_machines() => None,
            None => Some(ROWS),
            Some(rows) => (rows > 0).then_some(rows),
        }
    }

    /// Prints it as what it is for.
    fn show(&self, text: &str) -> Result<(), Failure> {
        match self.is_for_machines() {
            true => super::print(text),
            false => self.output.show(text),
        }
    }
}

/// Compares.
pub fn execute(args: &DiffArgs) -> Result<Ending, Failure> {
    let by = match args.sort.as_str() {
        _ if args.children => By::Inclusive,
        "sym" | "symbol" | "function" => By::Function,
        "srcline" | "line" => By::Line,
        "dso" | "module" => By::Module,
        other => {
            let cause = format!("profiles cannot be compared by '{other}'");
            return Err(usage_error(cause, "keys are: sym, srcline, dso"));
        }
    };
    let (first, others) = recordings(&args.recordings);
    if args.recordings.len() < 2 && args.is_for_machines() {
        // In the text, the first line says so.
        let [after, before] =
            [&others[0], &first].map(|path| printable(&path.display().to_string()));
        lwp_terminal::say!("lwp: {after} is compared with {before}");
    }
    if others.len() > 1 {
        return series(args, by, &first, &others);
    }
    let names = args.only.with(&args.names);
    let before = comparing::open(&first, &names)?;
    let after = comparing::open(&others[0], &names)?;
    comparing::warn(&before, &after);
    let event = profiles::event(&before, args.event.as_deref())?;
    let name = before.events.get(event).map_or(String::new(), |event| event.name.clone());
    refuse_estimates(by, &name, &first, &before)?;
    refuse_estimates(by, &name, &others[0], &after)?;
    let compared = compare(&before, &after, by, &args.maps.matched(&before, &after)?);
    let view = View {
        diff: Some(&compared),
        intervals: diff::intervals(&before, &after, &name),
        event,
        name,
        limit: args.rows(),
        relative: args.relative,
        paint: args.output.paint(),
    };
    let text = match (args.json, args.csv) {
        (true, _) => diff::json(&view),
        (_, true) => diff::csv(&view),
        _ => format!("{}{}", files(&first, &others[0]), diff::text(&view)),
    };
    args.show(&text)?;
    Ok(Ending::SUCCESS)
}

/// Fails where a recording lacks an event, or inclusive counts of it that were measured are to be
/// compared and there are none.
fn refuse_estimates(by: By, event: &str, path: &Path, profile: &Profile) -> Result<(), Failure> {
    let index = profiles::event(profile, Some(event))?;
    if by != By::Inclusive || profile.measures(index) {
        return Ok(());
    }
    let (cause, help) = match profile.has_contexts() {
        true => ("inclusive counts of this event are estimates", "compare those of instructions"),
        false => ("inclusive counts were not measured", "record with --call-graph exact"),
    };
    Err(usage_error(format!("{}: {cause}", path.display()), help))
}

/// The line that says which recordings are compared.
fn files(before: &Path, after: &Path) -> String {
    let [before, after] = [before, after].map(|path| printable(&path.display().to_string()));
    format!("# {before} -> {after}\n")
}

/// Returns the first recording, and those to compare with it.
fn recordings(named: &[PathBuf]) -> (PathBuf, Vec<PathBuf>) {
    match named.split_first() {
        None => (PREVIOUS_FILE.into(), vec![profiles::DEFAULT_FILE.into()]),
        Some((first, [])) => (first.clone(), vec![profiles::DEFAULT_FILE.into()]),
        Some((first, others)) => (first.clone(), others.to_vec()),
    }
}

/// Compares several recordings with the first.
fn series(args: &DiffArgs, by: By, first: &Path, others: &[PathBuf]) -> Result<Ending, Failure> {
    let sources = args.only.with(&args.names);
    let before = profiles::open(first, &sources)?;
    let event = profiles::event(&before, args.event.as_deref())?;
    let name = before.events.get(event).map_or(String::new(), |event| event.name.clone());
    let mut names = vec![first.display().to_string()];
    let mut compared = Vec::with_capacity(others.len());
    for path in others {
        let after = profiles::open(path, &sources)?;
        refuse_estimates(by, &name, path, &after)?;
        names.push(path.display().to_string());
        comparing::warn(&before, &after);
        compared.push(compare(&before, &after, by, &args.maps.matched(&before, &after)?));
    }
    refuse_estimates(by, &name, first, &before)?;
    let series = Series::new((event, &name), &names, &compared, args.relative);
    let text = match (args.json, args.csv) {
        (true, _) => series.json(args.rows()),
        (_, true) => series.csv(args.rows()),
        _ => series.text(args.rows()),
    };
    args.show(&text)?;
    Ok(Ending::SUCCESS)
}
