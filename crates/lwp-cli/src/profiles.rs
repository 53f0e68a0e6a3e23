//! Opening recordings: what every command that looks at a profile does first.

use std::path::{Path, PathBuf};

use clap::Args;
use lwp_profile::{Event, Modelled, Profile, ReadError, Recording, Tree};
use lwp_report::loops::Loops;
use lwp_symbols::{Detail, InContext, Language, Options};
use lwp_terminal::escape::printable;

use crate::args::usage_error;
use crate::failure::{Failure, OWN_FAILURE};
use crate::headings;

/// The file of recordings, unless another one is named.
pub const DEFAULT_FILE: &str = "lwp.data";
/// The recording that the one in [`DEFAULT_FILE`] has replaced.
pub const PREVIOUS_FILE: &str = "lwp.data.old";

/// The source of a profile.
#[derive(Args, Clone, Debug, Default)]
pub struct InputArgs {
    /// Read this recording
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub input: PathBuf,

    #[command(flatten)]
    pub names: NameArgs,

    #[command(flatten)]
    pub only: OnlyArgs,
}

impl InputArgs {
    /// Sources of names, and the language that alone is shown.
    pub fn names(&self) -> NameArgs {
        self.only.with(&self.names)
    }
}

/// The language that alone is shown.
#[derive(Args, Clone, Debug, Default)]
pub struct OnlyArgs {
    /// Show only functions of LANG (python, node, java, dotnet, ruby, php, perl, lua); what they
    /// call in other languages counts as their own. Needs samples
    #[arg(long, value_name = "LANG", value_parser = language, help_heading = headings::NAMES)]
    only: Option<Language>,
}

impl OnlyArgs {
    /// These sources of names, and this language.
    pub fn with(&self, names: &NameArgs) -> NameArgs {
        NameArgs { only: self.only, ..names.clone() }
    }
}

fn language(word: &str) -> Result<Language, String> {
    const KNOWN: &str = "there are: python, node, java, dotnet, ruby, php, perl, lua";
    Language::of_runtime(word).ok_or_else(|| KNOWN.to_owned())
}

/// Sources of names.
#[derive(Args, Clone, Debug, Default)]
pub struct NameArgs {
    /// Search DIR, laid out like /usr/lib/debug, for debug files before the system's
    #[arg(long = "debug-dir", value_name = "DIR", help_heading = headings::NAMES)]
    pub debug_dirs: Vec<PathBuf>,

    /// Do not ask the servers of DEBUGINFOD_URLS for missing files
    #[arg(long, help_heading = headings::NAMES)]
    pub no_debuginfod: bool,

    /// Show the evaluators of interpreted languages, such as CPython's _PyEval_EvalFrameDefault, in
    /// addition to the functions that they execute
    #[arg(long, help_heading = headings::NAMES)]
    pub no_fold: bool,

    /// The language that alone is shown.
    #[arg(skip)]
    pub only: Option<Language>,

    /// The language whose callers in other languages are not shown.
    #[arg(skip)]
    pub without_callers_of: Option<Language>,
}

impl NameArgs {
    /// Returns options that request nothing of servers, which may take long to answer.
    pub fn offline() -> Self {
        Self { no_debuginfod: true, ..Self::default() }
    }

    /// Returns the options for the search for names.
    pub fn options(&self) -> Options {
        let from_files = !self.debug_dirs.is_empty();
        let (debug_roots, no_fold) = (self.debug_dirs.clone(), self.no_fold);
        let builds = crate::builds::store(!self.no_debuginfod);
        let (only, without_callers_of) = (self.only, self.without_callers_of);
        Options {
            debug_roots,
            from_files,
            no_fold,
            only,
            without_callers_of,
            builds,
            ..Options::default()
        }
    }

    /// Fails where only one language is to be shown of a recording without stacks.
    pub fn check(&self, recording: &Recording) -> Result<(), Failure> {
        let Some(only) = self.only.filter(|_| recording.events.is_empty()) else { return Ok(()) };
        let cause = format!("--only {}: exact counts have no stacks", only.word());
        Err(usage_error(cause, "take samples: record with -c, -F or --time"))
    }
}

/// Reads the recording at `path`. It fails where damage has left neither counts nor samples:
/// nothing can be said of the program then, least of all that it executed nothing.
pub fn read(path: &Path) -> Result<Recording, Failure> {
    let recording = Recording::read(std::io::BufReader::with_capacity(1 << 20, file(path)?))
        .map_err(|error| unreadable(path, &error))?;
    match recording.is_partial() && recording.is_empty() {
        true => Err(damaged(path, &recording).with_help("nothing is left of it: record again")),
        false => Ok(recording),
    }
}

/// The failure that counts of the recording are missing.
fn damaged(path: &Path, recording: &Recording) -> Failure {
    let (path, reasons) = (path.display(), recording.warnings.join("; "));
    let cause = format!("{path}: the recording is damaged or unfinished: {reasons}");
    Failure::new(OWN_FAILURE, cause)
}

/// Reads a recording that is added up or compared. It fails where the recording is damaged or
/// unfinished: counts are missing, and a sum or a verdict would not show it.
pub fn read_whole(path: &Path) -> Result<Recording, Failure> {
    let recording = read(path)?;
    match recording.is_partial() {
        true => Err(damaged(path, &recording)
            .with_help("record again; `lwp report` still shows the part that can be read")),
        false => Ok(recording),
    }
}

/// The failure to read a recording.
pub fn unreadable(path: &Path, error: &ReadError) -> Failure {
    Failure::new(OWN_FAILURE, format!("{}: {error}", path.display()))
        .with_help("recordings are made by `lwp record`")
}

/// Opens the recording at `path`.
pub fn file(path: &Path) -> Result<std::fs::File, Failure> {
    // Standard input, as for perf.
    let place = if path.as_os_str() == "-" { Path::new("/dev/stdin") } else { path };
    std::fs::File::open(place).map_err(|error| {
        let failure = Failure::io(path.display(), &error);
        match error.kind() {
            std::io::ErrorKind::NotFound => failure.with_help(match path.to_str() {
                Some(PREVIOUS_FILE) => {
                    "a second `lwp record` keeps the recording before as lwp.data.old; or name both"
                }
                _ => "make a recording first: lwp record -- PROGRAM, or name one",
            }),
            _ => failure,
        }
    })
}

/// Reads a recording and finds its names.
pub fn open(path: &Path, names: &NameArgs) -> Result<Profile, Failure> {
    let recording = read(path)?;
    names.check(&recording)?;
    Ok(resolve(path, &recording, names))
}

/// Finds the names of a recording, and says on standard error what could not be found.
pub fn resolve(path: &Path, recording: &Recording, names: &NameArgs) -> Profile {
    named(path, recording, &names.options())
}

/// Finds the names of a recording, with all instructions of every function, including those without
/// samples.
pub fn resolve_whole(path: &Path, recording: &Recording, names: &NameArgs) -> Profile {
    let options = Options { whole_functions: Some(u64::MAX), ..names.options() };
    named(path, recording, &options)
}

/// Finds the names of a recording in as much detail as `detail` says; functions alone take a
/// fraction of the time.
pub fn resolve_to(detail: Detail, path: &Path, recording: &Recording, names: &NameArgs) -> Profile {
    named(path, recording, &Options { detail, ..names.options() })
}

/// Reads a recording, finds its names, and the contexts of the event called `event`; of the first
/// one if there is no name.
pub fn open_contexts(
    path: &Path,
    names: &NameArgs,
    event: Option<&str>,
) -> Result<(Profile, Tree, usize), Failure> {
    contexts_of(path, of_event(read(path)?, event), names, event)
}

/// Finds the names of `recording`, which was read from `path`, and the contexts of the event called
/// `event`; of the first one if there is no name.
pub fn contexts_of(
    path: &Path,
    recording: Recording,
    names: &NameArgs,
    event: Option<&str>,
) -> Result<(Profile, Tree, usize), Failure> {
    names.check(&recording)?;
    let options = names.options();
    let events: Vec<&str> = match recording.events.is_empty() {
        true if recording.is_modelled() => [&Event::EXACT[..], &Modelled::NAMES[..]].concat(),
        true => Event::EXACT.to_vec(),
        false => recording.events.iter().map(|event| event.name.as_str()).collect(),
    };
    let event = index_of(&events, event)?;
    let InContext { resolved, tree } = lwp_symbols::contexts(&recording, &options, event);
    say(path, &recording, &resolved.warnings);
    let profile = resolved.profile;
    // It may be large, and the process is about to end.
    std::mem::forget(recording);
    Ok((profile, tree, event))
}

/// Returns the native run where `event` is one of its own, else the counts alone: of several runs,
/// what can hold only one.
pub fn of_event(mut recording: Recording, event: Option<&str>) -> Recording {
    let native = recording.native.take();
    let name = event.map(event_name);
    let has = |native: &Recording| native.events.iter().any(|it| Some(it.name.as_str()) == name);
    match native.filter(|native| has(native)) {
        Some(native) => *native,
        None => recording,
    }
}

fn named(path: &Path, recording: &Recording, options: &Options) -> Profile {
    let resolved = lwp_symbols::profile(recording, options);
    say(path, recording, &resolved.warnings);
    resolved.profile
}

/// Says on standard error what could not be found out.
pub fn say(path: &Path, recording: &Recording, warnings: &[String]) {
    for warning in warnings {
        let path = printable(&path.display().to_string());
        lwp_terminal::say!("lwp: {path}: {}", printable(warning));
    }
    for image in recording.images.values() {
        if let Some(reason) = &image.uncounted {
            let (comm, reason) = (printable(&image.comm), printable(reason));
            lwp_terminal::say!("lwp: {comm}-{} was not counted: {reason}", image.pid);
        }
    }
}

/// The loops of a recording of counts.
pub fn loops(path: &Path, profile: &Profile) -> Result<Loops, Failure> {
    Loops::of(profile).ok_or_else(|| {
        let cause = format!("{}: loops need exact counts", path.display());
        usage_error(cause, "record without -c, -F, -e and --time, or with --both")
    })
}

/// The index of the event called `name`; the first one if there is no name.
pub fn event(profile: &Profile, name: Option<&str>) -> Result<usize, Failure> {
    let known: Vec<&str> = profile.events.iter().map(|event| event.name.as_str()).collect();
    index_of(&known, name)
}

/// Returns the name that recordings have for an event, given another of its names or a modifier.
pub fn event_name(name: &str) -> &str {
    match name.split(':').next().unwrap_or(name) {
        "insn" | "insns" | "inst" => "instructions",
        "branch" | "branch-instructions" => "branches",
        "taken-branches" => "branches-taken",
        "estimated-cycles" => "modelled-cycles",
        name => name,
    }
}

fn index_of(known: &[&str], name: Option<&str>) -> Result<usize, Failure> {
    let Some(name) = name else { return Ok(0) };
    let name = event_name(name);
    known.iter().position(|event| *event == name).ok_or_else(|| {
        usage_error(
            format!("the recording has no event called '{name}'"),
            format!("it has: {}", printable(&known.join(", "))),
        )
    })
}

/// Creates the file at `path`; `-` is standard output.
pub fn create(path: &Path) -> Result<Box<dyn std::io::Write>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(Willing(std::io::stdout())));
    }
    let file = std::fs::File::create(path);
    Ok(Box::new(file.map_err(|error| Failure::output(path, &error))?))
}

/// Standard output, whose reader may have seen enough.
struct Willing(std::io::Stdout);

impl std::io::Write for Willing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// Writes `text` to the file at `path`; `-` is standard output.
pub fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, lwp_terminal::escape::lines(text).as_bytes())
}

/// Writes `bytes` to the file at `path`; `-` is standard output.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return crate::commands::print_bytes(bytes);
    }
    std::fs::write(path, bytes).map_err(|error| Failure::output(path, &error))
}

/// Writes the file at `path` by `write`, which gets the place of a file beside it: all of it, or
/// nothing.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    // A link goes on to lead there.
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut beside = place.as_os_str().to_owned();
    beside.push(format!(".new-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = write(&beside).and_then(|()| std::fs::rename(&beside, &place));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}
