//! Exports for optimisers: the branches of one program or library.

use std::path::{Path, PathBuf};

use lwp_export::feedback::{Binary, Feedback, FeedbackError, Written, programs};
use lwp_profile::Recording;
use lwp_symbols::CompiledError;
use lwp_terminal::escape::printable;

use super::ExportArgs;
use crate::args::usage_error;
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::profiles;

/// A file and its name in the recording.
#[derive(Debug)]
pub struct Source {
    path: String,
    binary: Binary,
}

/// Writes the branches of the file that was asked for.
pub fn execute(args: &ExportArgs, feedback: Feedback) -> Result<Ending, Failure> {
    let recording = profiles::read_whole(&args.input.input)?;
    let source = Source::of(&recording, args.binary.as_deref())?;
    let written = profile(&recording, &source, feedback)?;
    write(&args.output, &written.content)?;
    Ok(Ending::SUCCESS)
}

/// Writes all of a file or nothing, or into what is no file.
fn write(output: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let is_file = std::fs::metadata(output).map_or(true, |it| it.is_file());
    if !is_file || output == Path::new("-") {
        return profiles::write(output, bytes);
    }
    let written = profiles::replace(output, |place| std::fs::write(place, bytes));
    written.map_err(|error| Failure::output(output, &error))
}

/// The profile of a file. It says what is missing on standard error.
pub fn profile(
    recording: &Recording,
    source: &Source,
    feedback: Feedback,
) -> Result<Written, Failure> {
    let written = feedback.write(recording, &source.path, &source.binary);
    let written = written.map_err(|error| refusal(&error, &files(recording)))?;
    source.check(feedback)?;
    let path = printable(&source.path);
    if feedback == Feedback::Bolt && !source.binary.has_relocations() {
        lwp_terminal::say!(
            "lwp: {path} has no relocations, so BOLT can reorder the code inside of functions, but \
             not the functions: link it with -Wl,--emit-relocs (-C link-arg=-Wl,--emit-relocs)"
        );
    }
    say_what_is_unlined(&path, &written);
    let [known, unknown] = written.indirect_jumps;
    if unknown > known / 100 {
        let [all, unknown] =
            [known.saturating_add(unknown), unknown].map(lwp_report::number::grouped);
        lwp_terminal::say!(
            "lwp: {path}: {unknown} of {all} executed indirect jumps have no known target: the \
             recording doesn't hold where they led, and jump tables don't tell"
        );
    }
    Ok(written)
}

/// Warns of code that a compiler's profile knows less of than it could.
fn say_what_is_unlined(path: &str, written: &Written) {
    if written.lacks_discriminators() {
        lwp_terminal::say!(
            "lwp: {path} has no discriminators, so all branches of a line count as one: compile it \
             with -g -fdebug-info-for-profiling"
        );
    }
    let [known, unknown] = written.instructions();
    if unknown > known / 10 {
        let [all, unknown] =
            [known.saturating_add(unknown), unknown].map(lwp_report::number::grouped);
        lwp_terminal::say!(
            "lwp: {path}: {unknown} of {all} executed instructions are of functions without lines, \
             which are not in the profile: compile all of its files with -g"
        );
    }
}

/// Why there is no profile, and what to do.
fn refusal(error: &FeedbackError, files: &str) -> Failure {
    let help = match error {
        FeedbackError::Sampled => {
            "record without -c, -F, -e and --time: every branch is counted then".to_owned()
        }
        FeedbackError::NotExecuted(_) => match files {
            "" => "record a longer part of the program".to_owned(),
            files => format!("--binary takes one of {files}"),
        },
        FeedbackError::Changed(_) => {
            "record again: a profile of another build would be wrong; or name the recorded file \
             with --binary"
                .to_owned()
        }
        FeedbackError::Stripped(_) => {
            "record a build with its symbols (without -s and strip): optimisers find functions by \
             them"
                .to_owned()
        }
        FeedbackError::Unlined(_, CompiledError::Split) => {
            "compile it without -gsplit-dwarf".to_owned()
        }
        FeedbackError::Unlined(..) | FeedbackError::NoLines(_) => {
            "compile it with -g -fdebug-info-for-profiling, and don't strip it; record again"
                .to_owned()
        }
        _ => "record again".to_owned(),
    };
    Failure::new(OWN_FAILURE, error.to_string()).with_help(help)
}

/// The files of a recording.
fn files(recording: &Recording) -> String {
    let modules = recording.modules.values().filter(|module| !module.is_anonymous());
    let mut paths: Vec<String> = modules.map(|module| printable(&module.path)).collect();
    paths.sort();
    paths.dedup();
    paths.join(", ")
}

impl Source {
    /// The file that was asked for, or the program that executed most.
    pub fn of(recording: &Recording, asked: Option<&Path>) -> Result<Self, Failure> {
        match asked {
            Some(path) => Self::open(path),
            None => Self::open(&program(recording)?),
        }
    }

    /// The program or library at this path.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error| {
            Failure::io(path.display(), &error).with_help(
            "formats for optimisers need the file that was recorded; name it with --binary FILE",
        )
        };
        let bytes = lwp_symbols::read_file(path).map_err(failed)?;
        let metadata = std::fs::metadata(path).ok();
        let binary = Binary::parse(bytes, metadata.as_ref()).map_err(|error| {
            Failure::new(OWN_FAILURE, format!("{}: {error}", path.display()))
                .with_help("optimisers take a program or library, and no script")
        })?;
        let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { path: absolute.to_string_lossy().into_owned(), binary })
    }
}

impl Source {
    /// Fails if no recording would make it a file that the optimiser takes.
    pub fn check(&self, feedback: Feedback) -> Result<(), Failure> {
        if !self.binary.has_symbols() {
            return Err(refusal(&FeedbackError::Stripped(self.path.clone()), ""));
        }
        if feedback == Feedback::Bolt && self.binary.is_bolted() {
            return Err(Failure::new(OWN_FAILURE, format!("{} was written by BOLT", self.path))
                .with_help("BOLT doesn't optimise its own files: take the one that was linked"));
        }
        Ok(())
    }

    /// The file.
    pub fn binary(&self) -> &Binary {
        &self.binary
    }
}

/// The program that executed most.
fn program(recording: &Recording) -> Result<PathBuf, Failure> {
    let programs = programs(recording);
    programs.first().map(PathBuf::from).ok_or_else(|| match files(recording).as_str() {
        "" => Failure::new(OWN_FAILURE, "the recording is empty: no code of a file was executed")
            .with_help("record a program on the virtual CPU: lwp record -- PROGRAM"),
        files => usage_error(
            "the recording doesn't tell which of its files is the program",
            format!("name it with --binary: {files}"),
        ),
    })
}
