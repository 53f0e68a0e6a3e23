//! `lwp perf`: what perf was asked to do, done here.

use std::path::Path;

use lwp_export::Format;
use lwp_profile::Profile;
use lwp_report::escape::printable;
use lwp_symbols::{Detail, FunctionNames};

use crate::args::{CommandLine, usage_error};
use crate::ending::Ending;
use crate::failure::Failure;
use crate::perf::{self, Request};
use crate::profiles::{self, NameArgs};

/// Executes a request to perf.
pub fn execute(words: &[std::ffi::OsString]) -> Result<Ending, Failure> {
    match perf::request(words)? {
        Request::Own(line) => super::dispatch(*line),
        Request::Record { output, recording } => record(&output, *recording),
        Request::Script { input, inline } => script(&input, inline),
        Request::Print(text) => super::print(&text).map(|()| Ending::SUCCESS),
    }
}

/// Records beside `output`, and writes there what perf itself and its viewers read.
fn record(output: &Path, line: CommandLine) -> Result<Ending, Failure> {
    let Some(beside) = perf::record_args(&line).map(|args| args.output.clone()) else {
        return Err(usage_error("this is no recording", "see `lwp perf --help`"));
    };
    let ending = super::dispatch(line)?;
    let recording = profiles::read(&beside)?;
    let profile =
        profiles::resolve_to(Detail::Instructions, &beside, &recording, &NameArgs::offline());
    profiles::write(output, &Format::PerfData.write(&recording, &profile, 0))?;
    lwp_terminal::say!(
        "[ lwp: {} samples in {}; for lwp's own commands: {} ]",
        recording.samples.iter().map(|(_, times)| times).sum::<u64>(),
        output.display(),
        beside.display()
    );
    Ok(ending)
}

/// Prints every sample as `perf script` does.
fn script(input: &Path, inline: bool) -> Result<Ending, Failure> {
    let profile = profiles::open(&perf::recording_of(input), &NameArgs::offline())?;
    super::print_with(|out| samples(out, &profile, inline))
}

/// One block for each sample: readers count blocks. Time is the number of the sample.
fn samples(out: &mut dyn std::io::Write, profile: &Profile, inline: bool) -> std::io::Result<()> {
    let names = FunctionNames::new(profile, true);
    let mut number = 0u64;
    for sample in &profile.samples {
        let thread = &profile.threads[sample.thread.index()];
        let locations = &profile.stacks[sample.stack.index()].locations;
        let stack = stack((profile, &names), locations, inline);
        // perf's comm has at most fifteen letters, and readers split it off at blanks.
        let comm: String = printable(&thread.comm).chars().take(15).collect();
        for (event, &value) in profile.events.iter().zip(&sample.values.0) {
            let interval = event.interval.unwrap_or(value).max(1);
            for _ in 0..value / interval {
                number += 1;
                let (seconds, micros) = (number / 1_000_000, number % 1_000_000);
                writeln!(
                    out,
                    "{comm:>16} {}/{} [000] {seconds:5}.{micros:06}: {interval:>10} {}:u: ",
                    thread.pid,
                    thread.tid,
                    printable(&event.name)
                )?;
                out.write_all(stack.as_bytes())?;
                writeln!(out)?;
            }
        }
    }
    Ok(())
}

/// The lines of a stack, innermost first.
fn stack(
    (profile, names): (&Profile, &FunctionNames<'_>),
    locations: &[lwp_profile::LocationId],
    inline: bool,
) -> String {
    let mut out = String::new();
    for &id in locations {
        let location = profile.location(id);
        let function = profile.function(location.function());
        let inlined = &location.frames[..location.frames.len() - 1];
        for frame in inlined.iter().filter(|_| inline) {
            let name = printable(names.get(frame.function));
            out.push_str(&format!("\t{:16x} {name} (inlined)\n", location.address));
        }
        let name = printable(names.get(location.function()));
        let offset = location.address.wrapping_sub(function.address);
        let module = printable(&profile.modules[location.module.index()].path);
        out.push_str(&format!("\t{:16x} {name}+{offset:#x} ({module})\n", location.address));
    }
    out
}
