//! `lwp merge`: several recordings as one.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
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
    let mut sum = profiles::read(first)?;
    for path in others {
        sum.join(profiles::read(path)?).map_err(|error| {
            usage_error(
                format!("{} cannot be added to {}: {error}", path.display(), first.display()),
                "merge recordings that were made with the same options",
            )
        })?;
    }
    for warning in &sum.warnings {
        lwp_terminal::say!("lwp: {}", printable(warning));
    }
    let failed = |error| Failure::output(&args.output, &error);
    let mut file = BufWriter::new(profiles::create(&args.output)?);
    sum.write(&mut file).and_then(|()| file.flush()).map_err(failed)?;
    let (output, many) = (printable(&args.output.display().to_string()), args.inputs.len());
    lwp_terminal::say!("lwp: wrote {output}, the sum of {many} recordings");
    Ok(Ending::SUCCESS)
}
