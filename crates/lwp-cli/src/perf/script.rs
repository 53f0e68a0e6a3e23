//! Samples as `perf script` prints them. Viewers read this text: FlameGraph's stackcollapse,
//! speedscope, the Firefox Profiler.
//!
//! Promise: I7

use std::collections::HashMap;
use std::io::{self, Write};

use lwp_profile::{LocationId, Profile, ThreadId};
use lwp_report::escape::printable;
use lwp_symbols::FunctionNames;

use super::fields::Fields;

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The fields that are printed.
    pub fields: Fields,
    /// Inlined functions are frames of their own.
    pub inline: bool,
    /// Most frames of a stack, from the innermost on.
    pub most_frames: usize,
}

/// A profile that is being printed.
struct Text<'a> {
    profile: &'a Profile,
    names: FunctionNames<'a>,
    form: Form,
    /// Nanoseconds that have passed in each thread, by each event: one for each event counted.
    clocks: HashMap<(ThreadId, usize), u64>,
}

/// Prints one block for each sample: readers count blocks.
pub fn write(out: &mut dyn Write, profile: &Profile, form: Form) -> io::Result<()> {
    let names = FunctionNames::new(profile, true);
    let mut text = Text { profile, names, form, clocks: HashMap::new() };
    for sample in &profile.samples {
        let locations = &profile.stacks[sample.stack.index()].locations;
        let stack = text.stack(locations);
        for (event, &value) in sample.values.0.iter().enumerate().take(profile.events.len()) {
            let interval = profile.events[event].interval.unwrap_or(value).max(1);
            for _ in 0..value / interval {
                out.write_all(text.heading(sample.thread, event, interval).as_bytes())?;
                out.write_all(stack.as_bytes())?;
                writeln!(out)?;
            }
        }
    }
    Ok(())
}

impl Text<'_> {
    /// The line of a sample. Its first letter is the program's: readers tell it from frames by
    /// that, so that perf does not pad names in front of stacks, either.
    fn heading(&mut self, thread: ThreadId, event: usize, interval: u64) -> String {
        use std::fmt::Write;

        let (fields, mut out) = (self.form.fields, String::new());
        let clock = self.clocks.entry((thread, event)).or_default();
        *clock = clock.saturating_add(interval);
        let (seconds, nanos) = (*clock / 1_000_000_000, *clock % 1_000_000_000);
        let (profile, thread) = (self.profile, &self.profile.threads[thread.index()]);
        if fields.has(Fields::COMM) {
            // perf's names have at most fifteen letters. A name without any would be a frame.
            let comm: String = printable(&thread.comm).trim().chars().take(15).collect();
            let _ = write!(out, "{} ", if comm.is_empty() { "?" } else { &comm });
        }
        match (fields.has(Fields::PID), fields.has(Fields::TID)) {
            (true, true) => drop(write!(out, "{:>7}/{:<7} ", thread.pid, thread.tid)),
            (true, false) => drop(write!(out, "{:>7} ", thread.pid)),
            (false, true) => drop(write!(out, "{:>7} ", thread.tid)),
            (false, false) => {}
        }
        if fields.has(Fields::CPU) {
            out.push_str("[000] ");
        }
        if fields.has(Fields::TIME) {
            let _ = write!(out, "{seconds:>5}.{nanos:09}: ");
        }
        if fields.has(Fields::PERIOD) {
            let _ = write!(out, "{interval:>10} ");
        }
        if fields.has(Fields::EVENT) {
            let _ = write!(out, "{}:u: ", printable(&profile.events[event].name));
        }
        out.push('\n');
        out
    }

    /// The lines of a stack, innermost first.
    fn stack(&self, locations: &[LocationId]) -> String {
        let mut lines = Vec::new();
        for &id in locations {
            let location = self.profile.location(id);
            let (outermost, inlined) = match location.frames.split_last() {
                Some((outermost, inlined)) => (outermost, inlined),
                None => continue,
            };
            for frame in inlined.iter().filter(|_| self.form.inline) {
                let name = printable(self.names.get(frame.function));
                lines.push(self.frame(
                    location.address,
                    &name,
                    "(inlined)",
                    (&frame.file, frame.line),
                ));
            }
            let function = self.profile.function(outermost.function);
            let mut name = printable(self.names.get(outermost.function));
            if self.form.fields.has(Fields::OFFSET) {
                name.push_str(&format!("+{:#x}", location.address.wrapping_sub(function.address)));
            }
            let module = &self.profile.modules[location.module.index()].path;
            // Readers take a frame for something else if its file has a blank.
            let module = format!("({})", printable(module).replace(' ', "\\x20"));
            let line = (&*outermost.file, outermost.line);
            lines.push(self.frame(location.address, &name, &module, line));
        }
        lines.truncate(self.form.most_frames);
        lines.concat()
    }

    fn frame(&self, address: u64, name: &str, module: &str, (file, line): (&str, u32)) -> String {
        let fields = self.form.fields;
        let mut words = Vec::new();
        if fields.has(Fields::IP) {
            words.push(format!("{address:16x}"));
        }
        if fields.has(Fields::SYM) {
            words.push(name.to_owned());
        }
        if fields.has(Fields::DSO) {
            words.push(module.to_owned());
        }
        if words.is_empty() {
            return String::new();
        }
        let mut out = format!("\t{}\n", words.join(" "));
        if fields.has(Fields::LINE) && line != 0 {
            out.push_str(&format!("  {}:{line}\n", printable(file)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use lwp_profile::{Builder, Event, Frame, Function, Location, Mode, Module, Thread, Values};

    use super::*;

    /// Two samples of `leaf`, called by `main`, in a thread whose name has blanks.
    fn profile() -> Profile {
        let event = Event { name: "instructions".into(), interval: Some(1500), modelled: false };
        let mut builder = Builder::new("", Mode::Sampled, vec![event]);
        let module = builder.module(Module { path: "/a b/prog".into(), ..Module::default() });
        let comm = " a long name of many letters".into();
        let thread = builder.thread(Thread { comm, pid: 7, tid: 8 });
        let places = [("leaf", 0x1010), ("main", 0x2005)].map(|(name, address)| {
            let (start, origin) = (address & !0xf, lwp_profile::Origin::Symbol);
            let function = Function {
                name: name.into(),
                module,
                address: start,
                origin,
                ..Function::default()
            };
            let function = builder.function(function);
            let frames = [Frame { function, file: "a.c".into(), line: 3 }].into();
            builder.location(Location { module, address, frames, ..Location::default() })
        });
        let stack = builder.stack(places.to_vec());
        builder.sample(thread, stack, &Values(vec![3000]));
        builder.finish()
    }

    fn printed(fields: &str, most_frames: usize) -> String {
        let fields = Fields::parse(fields).expect(fields);
        let (mut out, form) = (Vec::new(), Form { fields, inline: true, most_frames });
        write(&mut out, &profile(), form).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn samples_begin_with_the_program_s_name() {
        let text = printed("+pid", 127);
        let block = |time: &str| {
            format!(
                "a long name of        7/8       [000]     0.{time}:       1500 instructions:u: \n\
                 \t            1010 leaf+0x0 (/a\\x20b/prog)\n\
                 \t            2005 main+0x5 (/a\\x20b/prog)\n\n"
            )
        };
        assert_eq!(text, block("000001500") + &block("000003000"));
    }

    #[test]
    fn fields_and_frames_are_chosen() {
        let text = printed("comm,tid,event,ip,sym,srcline", 1);
        let block =
            "a long name of        8 instructions:u: \n\t            1010 leaf\n  a.c:3\n\n";
        assert_eq!(text, block.repeat(2));
        assert_eq!(printed("sym", 2), "\n\tleaf\n\tmain\n\n".repeat(2));
    }
}
