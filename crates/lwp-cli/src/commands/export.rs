//! `lwp export`: a recording in the format of another tool.

mod feedback;

use std::path::{Path, PathBuf};

use clap::Args;
use lwp_export::feedback::Feedback;
use lwp_export::perf_names::Names;
use lwp_export::{Format, perf_data};
use lwp_profile::{Profile, Recording};

use crate::args::usage_error;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles::{self, InputArgs};

/// `lwp export`.
#[derive(Args, Clone, Debug, Default)]
pub struct ExportArgs {
    /// The recording.
    #[command(flatten)]
    pub input: InputArgs,

    /// Write this format [default: by the output's name]
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<String>,

    /// Write to FILE; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,

    /// Export this event, in formats that hold only one [default: the recording's first]. Of a
    /// recording with a native run, cpu-time exports that run, and all else the counted one
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// In formats for optimisers, export the branches of this program or library [default: the
    /// program that executed most]
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
}

pub use feedback::{Source, profile as feedback};

/// A format of a whole recording, or of the branches of one file.
#[derive(Clone, Copy, Debug)]
enum Chosen {
    Whole(Format),
    Branches(Feedback),
}

impl Chosen {
    fn named(name: &str) -> Option<Self> {
        let whole = Format::named(name).map(Self::Whole);
        whole.or_else(|| Feedback::named(name).map(Self::Branches))
    }

    fn of_file(name: &str) -> Option<Self> {
        let branches = Feedback::of_file(name).map(Self::Branches);
        branches.or_else(|| Format::of_file(name).map(Self::Whole))
    }
}

/// Converts.
pub fn execute(args: &ExportArgs) -> Result<Ending, Failure> {
    let format = match format(args)? {
        Chosen::Whole(format) => format,
        Chosen::Branches(feedback) => return feedback::execute(args, feedback),
    };
    if args.binary.is_some() {
        return Err(usage_error(
            "--binary is for formats of one file's branches, and this format holds all files",
            "leave --binary out, or choose a format for optimisers with -f",
        ));
    }
    let recording = profiles::of_event(profiles::read(&args.input.input)?, args.event.as_deref());
    let names = args.input.names();
    names.check(&recording)?;
    let profile = profiles::resolve(&args.input.input, &recording, &names);
    let event = profiles::event(&profile, args.event.as_deref())?;
    match format {
        Format::PerfData => perf_data(&args.output, &recording, &profile)?,
        _ => profiles::write(&args.output, &format.write(&recording, &profile, event))?,
    }
    Ok(Ending::SUCCESS)
}

/// Writes perf's recording to `output`, and names of interpreted functions into a file beside it,
/// where perf looks for them.
pub fn perf_data(output: &Path, recording: &Recording, profile: &Profile) -> Result<(), Failure> {
    let names = Names::of(recording).filter(|_| output != Path::new("-"));
    let Some(names) = names else {
        return profiles::write(output, &perf_data::encode(recording, profile, None));
    };
    let mut beside = output.as_os_str().to_owned();
    beside.push(".names");
    let beside = std::path::absolute(&beside).unwrap_or_else(|_| PathBuf::from(&beside));
    profiles::write(&beside, &names.file)?;
    let path = &beside.to_string_lossy();
    let file = perf_data::NamesFile { path, names: &names };
    profiles::write(output, &perf_data::encode(recording, profile, Some(&file)))
}

/// The formats, a line each: name, end of file names, what reads it.
fn known() -> String {
    let row = |(format, name, end, readers): &(Format, &str, &str, &str)| {
        let only = if format.has_one_event() { "; event of -e only" } else { "" };
        format!("\n  {name:<11} {end:<17} {readers}{only}")
    };
    let whole = Format::ALL.iter().map(row);
    let branches = Feedback::ALL.iter().map(|(_, name, end, readers)| {
        format!("\n  {name:<11} {end:<17} {readers} (of one program or library)")
    });
    whole.chain(branches).collect()
}

/// Returns the help on formats.
pub fn formats() -> String {
    format!("Formats, the ends or beginnings of their file names, and their readers:{}", known())
}

fn format(args: &ExportArgs) -> Result<Chosen, Failure> {
    let name = args.output.file_name().map(|name| name.to_string_lossy().into_owned());
    match &args.format {
        Some(name) => Chosen::named(name).ok_or_else(|| {
            usage_error(format!("no format is called '{name}'"), format!("formats are:{}", known()))
        }),
        None => name.as_deref().and_then(Chosen::of_file).ok_or_else(|| {
            usage_error(
                "no format is given, and the output's name suggests none",
                format!("name one with -f:{}", known()),
            )
        }),
    }
}
