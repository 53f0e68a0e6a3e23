//! `lwp archive`: a recording with everything that is needed to look at it elsewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use lwp_profile::{RecordedFile, Recording, Writer};
use lwp_symbols::{Options, Origins, Resolved};
use lwp_terminal::escape::printable;

use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles::{self, DEFAULT_FILE, NameArgs};
use crate::sources::Files;

/// `lwp archive`.
#[derive(Args, Clone, Debug, Default)]
pub struct ArchiveArgs {
    /// Read this recording
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub input: PathBuf,

    /// Sources of names.
    #[command(flatten)]
    pub names: NameArgs,

    /// Write the archive to FILE
    #[arg(short, long, value_name = "FILE", default_value = "lwp.archive")]
    pub output: PathBuf,

    /// Leave source files out
    #[arg(long)]
    pub no_sources: bool,
}

/// Copies the recording and adds the files it needs.
pub fn execute(args: &ArchiveArgs) -> Result<Ending, Failure> {
    let recording = profiles::read(&args.input)?;
    let bytes =
        std::fs::read(&args.input).map_err(|error| Failure::io(args.input.display(), &error))?;
    // The names it keeps name no files.
    let options = Options { from_files: true, ..args.names.options() };
    let resolved = lwp_symbols::profile(&recording, &options);
    profiles::say(&args.input, &recording, &resolved.warnings);
    let failed = |error| Failure::output(&args.output, &error);
    let mut file = profiles::create(&args.output)?;
    std::io::Write::write_all(&mut file, &bytes).map_err(failed)?;
    let mut writer = Writer::resume(file);
    let mut origins = Origins::new(&recording, &args.names.debug_dirs);
    origins.learn(&resolved.profile);
    let (mut kept, mut sources) = (0, Files::new(Vec::new(), &[]).doubting(origins));
    for path in paths(args, &recording, &resolved) {
        // What cannot be read is missing here as it would be there.
        let bytes = sources.read(&path);
        if let Some(bytes) = as_recorded(&path, bytes, &recording, &options) {
            let path = installed(path);
            writer.file(&RecordedFile { path, bytes }).map_err(failed)?;
            kept += 1;
        }
    }
    writer.end().map_err(failed)?;
    sources.doubts().for_each(|doubt| lwp_terminal::say!("lwp: warning: {doubt}"));
    let output = printable(&args.output.display().to_string());
    lwp_terminal::say!("lwp: wrote {output} with {kept} files");
    Ok(Ending::SUCCESS)
}

/// The bytes of a file; of a module that has changed since, those of the store of builds, if it has
/// them.
fn as_recorded(
    path: &str,
    bytes: Option<Vec<u8>>,
    recording: &Recording,
    options: &Options,
) -> Option<Vec<u8>> {
    let named = recording.modules.values().filter(|module| !module.build_id.is_empty());
    let mut named = named.filter(|module| module.path == path);
    let Some(module) = named.next() else { return bytes };
    let is_it = |bytes: &[u8]| lwp_symbols::build_id_of_bytes(bytes) == module.build_id;
    if bytes.as_deref().is_some_and(is_it) {
        return bytes;
    }
    let kept = options.builds.as_ref()?.executable(&module.build_id, Path::new(path))?;
    std::fs::read(kept).ok().filter(|bytes| is_it(bytes)).or(bytes)
}

/// Returns the path that debug information from the store of builds would be installed at.
fn installed(path: String) -> String {
    let name = Path::new(&path).file_name().and_then(|name| name.to_str());
    match name.and_then(|name| name.strip_suffix(".debuginfo")?.split_at_checked(2)) {
        Some((first, rest)) => format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"),
        None => path,
    }
}

/// The files to keep: modules as they were recorded, their debug files, and sources.
fn paths(args: &ArchiveArgs, recording: &Recording, resolved: &Resolved) -> BTreeSet<String> {
    let known: BTreeSet<&str> = recording.files.iter().map(|file| file.path.as_str()).collect();
    let modules = recording
        .modules
        .values()
        .filter(|module| !module.is_anonymous())
        .map(|module| module.path.clone());
    let debug = resolved.debug_files.iter().map(|path| path.display().to_string());
    let sources = resolved
        .profile
        .locations
        .iter()
        .flat_map(|location| location.frames.iter())
        .map(|frame| frame.file.to_string())
        .filter(|file| !args.no_sources && !file.is_empty());
    modules.chain(debug).chain(sources).filter(|path| !known.contains(path.as_str())).collect()
}
