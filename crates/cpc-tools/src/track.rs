//! `cputrack`: the events of a program's threads.

mod native;
mod options;
mod virtual_cpu;

use std::ffi::OsString;
use std::process::ExitCode;

use cpc::Cpc;

use crate::failure::Failure;
use crate::listing;
use options::Options;

/// Runs the command with these arguments, the first of which is its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let done = Options::parse(arguments).and_then(|options| execute(&options));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("cputrack", options::USAGE),
    }
}

fn execute(options: &Options) -> Result<(), Failure> {
    if options.help {
        return help(options);
    }
    if options.lwp { virtual_cpu::track(options) } else { native::track(options) }
}

/// The usage, and what can be counted, on standard output.
fn help(options: &Options) -> Result<(), Failure> {
    let mut text = format!("{}{}", options::USAGE, options::OPTIONS);
    if options.lwp {
        text += &virtual_cpu::listing();
    } else {
        let cpc = Cpc::open().map_err(Failure::new)?;
        text += &listing::text(&cpc);
    }
    let mut output = crate::output::Output::open(None)?;
    output.write(&text);
    output.finish()
}
