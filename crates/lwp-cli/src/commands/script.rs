//! `lwp script`: a recording as lines of text, for scripts.

use std::io::Write;

use clap::Args;
use lwp_profile::{Location, LocationId, Profile, Recording};
use lwp_symbols::function_name;
use lwp_terminal::escape::printable;
use rustc_hash::FxHashMap;

use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles::{self, InputArgs};

/// `lwp script`.
#[derive(Args, Clone, Debug, Default)]
pub struct ScriptArgs {
    /// The recording.
    #[command(flatten)]
    pub input: InputArgs,

    /// Print this event only [default: all]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Print the recording's facts first: command, host, container, time
    #[arg(long)]
    pub header: bool,

    /// Print these facts and nothing else
    #[arg(long)]
    pub header_only: bool,
}

/// Prints a line for each thread, instruction and event, like `perf script`:
/// `comm tid: count event: address function+offset (module)`. Stacks follow, indented, and then an
/// empty line.
pub fn execute(args: &ScriptArgs) -> Result<Ending, Failure> {
    let recording = profiles::read(&args.input.input)?;
    if args.header_only {
        return super::print_with(|out| out.write_all(header(&recording).as_bytes()));
    }
    let header = if args.header { header(&recording) } else { String::new() };
    let names = args.input.names();
    names.check(&recording)?;
    let profile = profiles::resolve(&args.input.input, &recording, &names);
    let only =
        args.event.as_deref().map(|name| profiles::event(&profile, Some(name))).transpose()?;
    super::print_with(|out| {
        out.write_all(header.as_bytes())?;
        write(out, &profile, only)
    })
}

/// A line for each fact, as a comment.
fn header(recording: &Recording) -> String {
    let facts = recording.info.iter().filter(|(_, value)| !value.is_empty());
    let line =
        |(key, value): (&String, &String)| format!("# {}: {}\n", printable(key), printable(value));
    facts.map(line).collect()
}

fn write(out: &mut dyn Write, profile: &Profile, only: Option<usize>) -> std::io::Result<()> {
    let mut places = Places { profile, texts: FxHashMap::default() };
    for sample in &profile.samples {
        let thread = &profile.threads[sample.thread.index()];
        let stack = &profile.stacks[sample.stack.index()];
        let deep = stack.locations.len() > 1;
        for (event, &value) in sample.values.0.iter().enumerate() {
            if value == 0 || only.is_some_and(|only| only != event) {
                continue;
            }
            let name = printable(&profile.events[event].name);
            let comm = printable(&thread.comm);
            write!(out, "{comm} {}: {value} {name}:", thread.tid)?;
            if !deep {
                writeln!(out, " {}", places.text(stack.locations[0]))?;
                continue;
            }
            writeln!(out)?;
            for id in stack.locations.iter() {
                writeln!(out, "\t{}", places.text(*id))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// The texts of places that have been written: stacks lead through the same ones again and again.
struct Places<'a> {
    profile: &'a Profile,
    texts: FxHashMap<LocationId, String>,
}

impl Places<'_> {
    fn text(&mut self, id: LocationId) -> &str {
        let profile = self.profile;
        self.texts.entry(id).or_insert_with(|| place(profile, profile.location(id)))
    }
}

/// `address function+offset (module) file:line`.
fn place(profile: &Profile, location: &Location) -> String {
    let id = location.function();
    let function = profile.function(id);
    let offset = location.address.wrapping_sub(function.address);
    let name = printable(&function_name(profile, id, true));
    let module = printable(&profile.modules[location.module.index()].path);
    let line = match location.frames.first().filter(|frame| frame.line != 0) {
        Some(frame) => format!(" {}:{}", printable(&frame.file), frame.line),
        None => String::new(),
    };
    format!("{:x} {name}+{offset:#x} ({module}){line}", location.address)
}
