//! `lwp report`: a recording as a table.

use clap::{Args, ValueEnum};
use lwp_profile::{Event, Recording, Unequal};
use lwp_report::number::grouped;
use lwp_report::tree_text::{self, Shown};
use lwp_report::{Options, SortKey, Table};
use lwp_symbols::{Detail, function_name};
use lwp_terminal::escape::printable;

use crate::args::usage_error;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::output::OutputArgs;
use crate::profiles::{self, InputArgs};

/// `lwp report`.
#[derive(Args, Clone, Debug, Default)]
pub struct ReportArgs {
    /// The recording.
    #[command(flatten)]
    pub input: InputArgs,

    /// Show this event [default: the recording's first; cpu-time for recordings made with --both]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Group rows by these keys: comm, pid, tid, thread, process, dso (module), sym (func), srcfile
    /// (file), srcline (line), addr (inst)
    #[arg(short, long, value_name = "KEYS", default_value = "dso,sym")]
    pub sort: String,

    /// Order functions by inclusive counts, which include those of their callees
    #[arg(long, overrides_with = "no_children")]
    pub children: bool,

    /// Order functions by their own counts (default)
    #[arg(long, overrides_with = "children")]
    pub no_children: bool,

    /// Leave out rows below PERCENT of the total
    #[arg(long, value_name = "PERCENT")]
    pub percent_limit: Option<f64>,

    /// Show a tree of callers and their callees, down to branches of half a percent (see
    /// --percent-limit)
    #[arg(short = 'g', long, conflicts_with_all = ["json", "csv", "sort"])]
    pub tree: bool,

    /// Check the recording itself: whether the instructions of each function's measured contexts add
    /// up to the function's own count. Exit status 1 if not
    #[arg(long, conflicts_with_all = ["tree", "json", "csv", "sort", "format"])]
    pub check: bool,

    /// Show loops instead of functions: how often each was entered, how many iterations it made,
    /// the instructions in it and, for recordings made with --both, the time of an iteration
    #[arg(long, conflicts_with_all = ["tree", "check", "sort", "event", "children", "inline"])]
    pub loops: bool,

    /// Show at most N levels of the tree
    #[arg(long, value_name = "N", requires = "tree")]
    pub max_stack: Option<usize>,

    /// Show at most N rows
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,

    /// Count inlined functions separately
    #[arg(long, overrides_with = "no_inline")]
    pub inline: bool,

    /// Count inlined functions with the function that contains them (default)
    #[arg(long, overrides_with = "inline")]
    pub no_inline: bool,

    /// Show names as the linker has them, mangled
    #[arg(long)]
    pub no_demangle: bool,

    /// Print text, json or csv
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "csv", "stdio"])]
    pub format: Option<Format>,

    /// Print JSON
    #[arg(short, long, conflicts_with = "csv")]
    pub json: bool,

    /// Print CSV
    #[arg(long)]
    pub csv: bool,

    /// Print text, on a terminal too
    #[arg(long)]
    pub stdio: bool,

    /// Colours and pages.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A form of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    Text,
    /// One JSON document
    Json,
    /// Values separated by commas, with a line of headings
    Csv,
}

impl ReportArgs {
    /// The form that was asked for.
    fn form(&self) -> Option<Format> {
        let short =
            [(self.json, Format::Json), (self.csv, Format::Csv), (self.stdio, Format::Text)];
        self.format.or(short.iter().find(|(given, _)| *given).map(|(_, format)| *format))
    }
}

/// Prints the table.
pub fn execute(args: &ReportArgs) -> Result<Ending, Failure> {
    let form = args.form();
    if args.check {
        return check(args);
    }
    if args.tree {
        if !matches!(form, None | Some(Format::Text)) {
            return Err(usage_error("trees are printed as text only", "leave --format out"));
        }
        return tree(args);
    }
    if args.loops {
        return loops(args, form);
    }
    let sort = sort_keys(&args.sort)?;
    let (input, names) = (&args.input, args.input.names());
    let recording = shown(args)?;
    names.check(&recording)?;
    let table = form.is_some() || !interactive();
    let instructions = args.inline || sort.iter().any(|key| key.is_of_instructions());
    let detail = if table && !instructions { Detail::Functions } else { Detail::Lines };
    let profile = profiles::resolve_to(detail, &input.input, &recording, &names);
    let options = Options {
        sort,
        event: match &args.event {
            // Where both are known, time says more.
            None if recording.native.is_some() => profile.event(Event::TIME).unwrap_or(0),
            name => profiles::event(&profile, name.as_deref())?,
        },
        children: args.children,
        demangle: !args.no_demangle,
        percent_limit: args.percent_limit.unwrap_or(0.0),
        inline: args.inline,
    };
    #[cfg(feature = "tui")]
    if !table {
        return crate::tui::run(&recording, &profile, crate::tui::Shown { options, input });
    }
    let mut table = Table::new(&profile, &options);
    table.uncounted = recording.is_uncounted();
    table.partial = recording.is_partial();
    let machine = matches!(form, Some(Format::Json | Format::Csv));
    if machine {
        let rows = args.limit.unwrap_or(usize::MAX).min(table.rows.len());
        table.hidden += table.rows.len() - rows;
        table.rows.truncate(rows);
    }
    let text = match form {
        Some(Format::Json) => lwp_report::machine::json(&table),
        Some(Format::Csv) => lwp_report::machine::csv(&table),
        _ => lwp_report::text::painted(&table, args.limit, args.output.paint()),
    };
    if machine { super::print(&text) } else { args.output.show(&text) }?;
    // They may be large, and the process is about to end.
    std::mem::forget((recording, profile, table));
    Ok(Ending::SUCCESS)
}

/// The recording that the table is of.
fn shown(args: &ReportArgs) -> Result<Recording, Failure> {
    let (recording, event) = (profiles::read(&args.input.input)?, args.event.as_deref());
    // Of a native run beside counts, the table of these has the CPU time alone.
    Ok(match event {
        Some(Event::OFF_CPU) => profiles::of_event(recording, event),
        _ => recording,
    })
}

/// Returns whether there is a terminal to show a view on.
fn interactive() -> bool {
    #[cfg(feature = "tui")]
    return crate::tui::interactive();
    #[cfg(not(feature = "tui"))]
    false
}

/// Prints the loops.
fn loops(args: &ReportArgs, form: Option<Format>) -> Result<Ending, Failure> {
    let (input, names) = (&args.input.input, &args.input.names());
    let recording = profiles::read(input)?;
    names.check(&recording)?;
    let profile = profiles::resolve_to(Detail::Lines, input, &recording, names);
    let found = profiles::loops(input, &profile)?;
    let limit = args.limit;
    match form {
        Some(Format::Json) => super::print(&lwp_report::loops::json(&profile, &found, limit))?,
        Some(Format::Csv) => super::print(&lwp_report::loops::csv(&profile, &found, limit))?,
        _ => {
            let paint = args.output.paint();
            args.output.show(&lwp_report::loops::table(&profile, &found, limit, paint))?;
        }
    }
    Ok(Ending::SUCCESS)
}

/// Exit code when contexts and counts differ.
const UNEQUAL: u8 = 1;

/// Says whether measured contexts add up to what was counted.
fn check(args: &ReportArgs) -> Result<Ending, Failure> {
    let (input, names) = (&args.input.input, &args.input.names());
    let recording = profiles::read(input)?;
    names.check(&recording)?;
    let profile = profiles::resolve_to(Detail::Functions, input, &recording, names);
    if !profile.has_contexts() {
        let cause = format!("{}: no calling contexts were measured", input.display());
        return Err(usage_error(cause, "record with --call-graph exact"));
    }
    let unequal = profile.unequal_contexts();
    let contexts = grouped(profile.contexts.len() as u64);
    let mut text = match unequal.len() {
        0 => format!("{contexts} contexts add up to the own counts of all functions\n"),
        some => format!("{contexts} contexts; {some} functions have other own counts:\n"),
    };
    for Unequal { function, counted, measured } in &unequal {
        let name = printable(&function_name(&profile, *function, true));
        let (counted, measured) = (grouped(*counted), grouped(*measured));
        text.push_str(&format!("{counted:>20} counted {measured:>20} in contexts  {name}\n"));
    }
    args.output.show(&text)?;
    Ok(if unequal.is_empty() { Ending::SUCCESS } else { Ending::Code(UNEQUAL) })
}

/// Branches below this many percent are left out of a tree, unless something else is said.
const LEAST_PERCENT: f64 = 0.5;

/// Prints who called whom.
fn tree(args: &ReportArgs) -> Result<Ending, Failure> {
    let (input, names) = (&args.input.input, &args.input.names());
    let (profile, tree, event) = profiles::open_contexts(input, names, args.event.as_deref())?;
    let shown = Shown {
        event,
        percent_limit: args.percent_limit.unwrap_or(LEAST_PERCENT),
        max_stack: args.max_stack.unwrap_or(usize::MAX),
        demangle: !args.no_demangle,
        paint: args.output.paint(),
    };
    args.output.show(&tree_text::tree(&profile, &tree, &shown))?;
    Ok(Ending::SUCCESS)
}

fn sort_keys(text: &str) -> Result<Vec<SortKey>, Failure> {
    text.split(',')
        .map(|key| {
            key.trim().parse().map_err(|error: lwp_report::table::UnknownKey| {
                usage_error(error.to_string(), format!("keys are: {}", SortKey::NAMES))
            })
        })
        .collect()
}
