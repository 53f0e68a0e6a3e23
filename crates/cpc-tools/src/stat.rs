//! `cpustat`: the events of whole processors.

mod groups;
mod layout;
mod options;
mod recording;
mod table;
mod worker;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use cpc::Cpc;
use jiff::Timestamp;

use crate::failure::Failure;
use crate::listing;
use crate::output::Output;
use crate::sets::templates;
use crate::signals::Interrupted;
use groups::Shape;
use layout::Layout;
use options::Options;
use recording::{Recorder, Recording};
use table::Table;
use worker::{Message, Plan, Sampled};

/// Runs the command with these arguments, the first of which is its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let done = Options::parse(arguments).and_then(|options| execute(&options));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("cpustat", options::USAGE),
    }
}

fn execute(options: &Options) -> Result<(), Failure> {
    if let Some(path) = options.replay.as_deref().filter(|_| !options.help) {
        return replay(options, path);
    }
    let cpc = Cpc::open().map_err(Failure::new)?;
    if options.help {
        let mut output = Output::open(None)?;
        let text = [options::USAGE, options::OPTIONS, &listing::text(&cpc)];
        output.write(&text.concat());
        return output.finish();
    }
    let templates = templates(&cpc, &options.specs)?;
    let cpus = online()?;
    let plan = Plan::new(options, &templates);
    let (layout, shape) = (Layout::new(&templates, &cpus), options.shape());
    shape.keys.check(&layout)?;
    let printer = Printer::new(options, &layout, &shape)?;
    let interrupted = Interrupted::answer()?;
    let (sender, messages) = channel();
    std::thread::scope(|scope| {
        for cpu in &cpus {
            let (sender, plan, cpc) = (sender.clone(), &plan, &cpc);
            let name = format!("cpu{cpu}");
            let work = move || worker::count(cpc, plan, *cpu, &sender);
            let started = std::thread::Builder::new().name(name).spawn_scoped(scope, work);
            if let Err(error) = started {
                plan.end();
                return Err(Failure::new(format!("no thread for processor {cpu}: {error}")));
            }
        }
        drop(sender);
        let done = printer.follow(&messages, &plan, &interrupted);
        plan.end();
        done
    })
}

/// The processors that are online.
fn online() -> Result<Vec<u32>, Failure> {
    let path = "/sys/devices/system/cpu/online";
    let list = std::fs::read_to_string(path);
    let list = list.map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let parts = list.trim().split(',').filter_map(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some(low.parse::<u32>().ok()?..=high.parse::<u32>().ok()?)
    });
    Ok(parts.flatten().collect())
}

/// Prints the rows of all processors, and records them.
struct Printer<'a> {
    options: &'a Options,
    cpus: usize,
    table: Table<'a>,
    output: Output,
    recorder: Option<Recorder>,
    /// Samples of slots that are not complete yet.
    pending: Vec<Sampled>,
}

impl<'a> Printer<'a> {
    fn new(options: &'a Options, layout: &'a Layout, shape: &'a Shape) -> Result<Self, Failure> {
        let record = |path: &PathBuf| Recorder::create(path, layout);
        Ok(Self {
            options,
            cpus: layout.cpus.len(),
            table: Table::new(layout, shape, options.tsc, options.stamp),
            output: Output::open(None)?,
            recorder: options.record.as_ref().map(record).transpose()?,
            pending: Vec::new(),
        })
    }

    /// Prints until all samples were taken or a signal asks for the end, then the totals.
    fn follow(
        mut self,
        messages: &Receiver<Message>,
        plan: &Plan<'_>,
        interrupted: &Interrupted,
    ) -> Result<(), Failure> {
        let (mut ready, mut failure) = (0, None);
        loop {
            match messages.recv_timeout(Duration::from_millis(50)) {
                Ok(Message::Ready) => {
                    ready += 1;
                    if ready == self.cpus {
                        self.title();
                        plan.begin();
                    }
                }
                Ok(Message::Sampled(sampled)) => {
                    if let Err(error) = self.sampled(sampled, Timestamp::now().as_second()) {
                        failure.get_or_insert(error);
                        plan.end();
                    }
                }
                Ok(Message::Failed(cpu, reason)) => {
                    let place = if self.options.debug { "sample: " } else { "" };
                    failure.get_or_insert(Failure::new(format!("{place}cpu {cpu}: {reason}")));
                    plan.end();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if interrupted.get() || self.output.is_broken() {
                plan.end();
            }
        }
        if ready == self.cpus {
            self.output.write(&self.table.totals());
        }
        failure.map_or_else(|| self.output.finish(), Err)
    }

    fn title(&mut self) {
        if !self.options.no_title {
            self.output.write(&self.table.title());
        }
    }

    /// Adds a sample up and prints it as soon as those of all processors are there. `at` is the
    /// time in seconds since 1970.
    fn sampled(&mut self, sampled: Sampled, at: i64) -> Result<(), Failure> {
        self.table.add(&sampled);
        if sampled.partial {
            return self.record(at, &[sampled]);
        }
        let slot = sampled.slot;
        self.pending.push(sampled);
        let (complete, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|s| s.slot == slot);
        self.pending = waiting;
        if complete.len() < self.cpus {
            self.pending.extend(complete);
            return Ok(());
        }
        self.record(at, &complete)?;
        self.output.write(&self.table.sample(at, complete));
        Ok(())
    }

    fn record(&mut self, at: i64, samples: &[Sampled]) -> Result<(), Failure> {
        self.recorder.as_mut().map_or(Ok(()), |recorder| recorder.add(at, samples))
    }
}

/// Prints a recording.
fn replay(options: &Options, path: &Path) -> Result<(), Failure> {
    let recording = Recording::read(path)?;
    let shape = options.shape();
    shape.keys.check(&recording.layout)?;
    let mut printer = Printer::new(options, &recording.layout, &shape)?;
    printer.title();
    for (at, sampled) in recording.samples {
        printer.sampled(sampled, at)?;
    }
    printer.output.write(&printer.table.totals());
    printer.output.finish()?;
    if recording.torn {
        lwp_terminal::say!(
            "cpustat: {}: the last line is not whole and was left out",
            path.display()
        );
    }
    Ok(())
}
