//! `lwp optimize`: record a program, have BOLT optimise it, and measure whether that helped.

mod bolt;
mod runs;
mod table;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use lwp_export::feedback::Feedback;
use lwp_terminal::escape::printable;
use lwp_vcpu::Target;

use super::export;
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::{profiles, program};

use bolt::Bolt;
use runs::Runs;

/// `lwp optimize`.
#[derive(Args, Clone, Debug, Default)]
pub struct OptimizeArgs {
    /// Write the optimised program to FILE [default: PROGRAM.bolt]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace PROGRAM if the optimised one prints the same output and ends in the same way; the
    /// original is kept as PROGRAM.orig
    #[arg(long, conflicts_with = "output")]
    pub in_place: bool,

    /// Optimise for this exact recording, as `lwp record` or `lwp merge` wrote it, instead of
    /// recording PROGRAM
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Run each program N times to measure user time; 0 measures none
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    pub runs: u32,

    /// Call this llvm-bolt [default: llvm-bolt of PATH, or the newest llvm-bolt-N]
    #[arg(long, value_name = "FILE")]
    pub bolt: Option<PathBuf>,

    /// Pass this option to llvm-bolt too
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub bolt_arg: Vec<OsString>,

    /// The program and its arguments, for a typical run
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
}

/// Records, optimises and compares.
pub fn execute(args: &OptimizeArgs) -> Result<Ending, Failure> {
    let bolt = Bolt::find(args.bolt.as_deref())?;
    let original = original(&args.command)?;
    let source = export::Source::open(&original)?;
    source.check(Feedback::Bolt)?;
    let output = args.output.clone().unwrap_or_else(|| with_end(&original, ".bolt"));
    let parts = Parts::create(&output)?;
    let runs = Runs::new(&args.command, parts.dir());
    let recording = match &args.input {
        Some(file) => file.clone(),
        None => runs.record(&original, &parts.file("lwp.data"))?,
    };
    let made = parts.file("program");
    let profile = profile(&source, &recording, &parts)?;
    bolt.optimise(source.binary(), [&original, &made, &profile], &args.bolt_arg)?;
    place(&made, &output)?;
    let compared = runs.compare([&original, &output], args.runs)?;
    super::print(&table::render([&original, &output], &compared))?;
    if !compared.is_same() {
        return Err(Failure::new(
            OWN_FAILURE,
            format!("{} does not do what the original does", output.display()),
        )
        .with_help("don't use it; try another version of BOLT with --bolt"));
    }
    if args.in_place {
        replace(&original, &output)?;
    }
    parts.remove();
    Ok(Ending::SUCCESS)
}

/// The program's file.
fn original(command: &[OsString]) -> Result<PathBuf, Failure> {
    match program::launch(command)? {
        Target::Launch { program, .. } => {
            program.canonicalize().map_err(|error| Failure::io(program.display(), &error))
        }
        _ => Err(Failure::new(OWN_FAILURE, "no program given")),
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Writes the profile of a recording, and returns where it is.
fn profile(source: &export::Source, recording: &Path, parts: &Parts) -> Result<PathBuf, Failure> {
    let recording = profiles::read_whole(recording)?;
    let written = export::feedback(&recording, source, Feedback::Bolt)?;
    let profile = parts.file("profile.fdata");
    profiles::write(&profile, &written.content)?;
    Ok(profile)
}

/// Moves the optimised program to where it was asked for, all at once.
fn place(made: &Path, output: &Path) -> Result<(), Failure> {
    std::fs::rename(made, output).map_err(|error| Failure::output(output, &error))
}

/// Puts the optimised program in the place of the original, which is kept beside it.
fn replace(original: &Path, output: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io(original.display(), &error).with_help("nothing was replaced");
    let mode = std::fs::metadata(original).map_err(failed)?.permissions().mode();
    let permissions = std::fs::Permissions::from_mode(mode & 0o777);
    std::fs::set_permissions(output, permissions).map_err(failed)?;
    let kept = with_end(original, ".orig");
    let _ = std::fs::remove_file(&kept);
    std::fs::hard_link(original, &kept).map_err(failed)?;
    std::fs::rename(output, original).map_err(failed)?;
    lwp_terminal::say!(
        "lwp: replaced it; the original is {}",
        printable(&kept.display().to_string())
    );
    Ok(())
}

/// The files of an optimisation, in a directory beside its result. They stay if it fails.
struct Parts {
    dir: PathBuf,
}

impl Parts {
    fn create(output: &Path) -> Result<Self, Failure> {
        let dir = with_end(output, &format!(".parts-{}", std::process::id()));
        let created = std::fs::create_dir(&dir).and_then(|()| dir.canonicalize());
        let dir = created.map_err(|error| Failure::output(output, &error))?;
        Ok(Self { dir })
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Drop for Parts {
    /// Removes a directory that is still empty.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}
