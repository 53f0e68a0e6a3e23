//! `lwp perf`: what perf was asked to do, done here.

use std::path::Path;

use lwp_symbols::Detail;

use crate::args::{CommandLine, usage_error};
use crate::ending::Ending;
use crate::failure::Failure;
use crate::perf::script::Form;
use crate::perf::{self, Request};
use crate::profiles::{self, NameArgs};

/// Executes a request to perf.
pub fn execute(words: &[std::ffi::OsString]) -> Result<Ending, Failure> {
    match perf::request(words)? {
        Request::Own(line) => super::dispatch(*line),
        Request::Record { output, recording } => record(&output, *recording),
        Request::Script { input, form } => script(&input, form),
        Request::Print(text) => super::print(&text).map(|()| Ending::SUCCESS),
    }
}

/// Records beside `output`, and writes there what perf itself and its viewers read.
fn record(output: &Path, line: CommandLine) -> Result<Ending, Failure> {
    let Some(beside) = perf::record_args(&line).map(|args| args.output.clone()) else {
        return Err(usage_error("this is not a recording", "see `lwp perf --help`"));
    };
    let ending = super::dispatch(line)?;
    let recording = profiles::read(&beside)?;
    let profile =
        profiles::resolve_to(Detail::Instructions, &beside, &recording, &NameArgs::offline());
    super::export::perf_data(output, &recording, &profile)?;
    lwp_terminal::say!(
        "[ lwp: {} samples in {}; for lwp's own commands: {} ]",
        recording.samples.iter().map(|(_, times)| times).sum::<u64>(),
        output.display(),
        beside.display()
    );
    Ok(ending)
}

/// Prints every sample as `perf script` does.
fn script(input: &Path, form: Form) -> Result<Ending, Failure> {
    let profile = profiles::open(&perf::recording_of(input), &NameArgs::offline())?;
    super::print_with(|out| perf::script::write(out, &profile, form))
}
