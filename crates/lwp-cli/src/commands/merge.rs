//! `lwp merge`: several recordings as one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lwp_profile::Recording;
use lwp_terminal::escape::printable;

use crate::args::usage_error;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles;

/// `lwp merge`.
#[derive(Args, Clone, Debug, Default)]
pub struct MergeArgs {
    /// Write the sum to FILE
    #[arg(short, long, value_name = "FILE", default_value = "merged.data")]
    pub output: PathBuf,

    /// Recordings of the same kind: all exact, or all sampled with the same events and intervals
    #[arg(required = true, num_args = 1.., value_name = "RECORDING")]
    pub inputs: Vec<PathBuf>,
}

/// Reads all of them, then writes their sum.
pub fn execute(args: &MergeArgs) -> Result<Ending, Failure> {
    let (first, others) = args.inputs.split_first().ok_or_else(|| {
        usage_error("no recording given", "name some: lwp merge -o sum.data a.data b.data")
    })?;
    let mut sum = profiles::read_whole(first)?;
    for path in others {
        sum.join(profiles::read_whole(path)?).map_err(|error| {
            usage_error(
                format!("{} cannot be added to {}: {error}", path.display(), first.display()),
                "merge recordings that were made with the same options",
            )
        })?;
    }
    write(&sum, &args.output)?;
    let (output, many) = (printable(&args.output.display().to_string()), args.inputs.len());
    lwp_terminal::say!("lwp: wrote {output}, the sum of {many} recordings");
    Ok(Ending::SUCCESS)
}

/// Writes the sum. A file is there as a whole or stays as it was; a device or a pipe is written to
/// as it is.
fn write(sum: &Recording, path: &Path) -> Result<(), Failure> {
    let into = |out: Box<dyn Write>| {
        let mut out = BufWriter::new(out);
        sum.write(&mut out).and_then(|()| out.flush())
    };
    let failed = |error: io::Error| Failure::output(path, &error);
    if path.as_os_str() == "-" || path.metadata().is_ok_and(|there| !there.is_file()) {
        return into(profiles::create(path)?).map_err(failed);
    }
    profiles::replace(path, |beside| into(Box::new(File::create(beside)?))).map_err(failed)
}
