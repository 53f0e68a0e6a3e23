//! `cpustat`: the events of whole processors.

mod options;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use cpc::{Cpc, Version};
use jiff::Zoned;

use crate::failure::Failure;
use crate::listing;
use crate::output::Output;
use crate::rows::{Columns, Note, StatRow};
use crate::sets::{Template, templates, title_pics};
use crate::signals::Interrupted;
use options::{Options, Stamp};
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
    let cpc = Cpc::open(Version::Current).map_err(Failure::new)?;
    if options.help {
        let mut output = Output::open(None)?;
        let text = [options::USAGE, options::OPTIONS, &listing::text(&cpc)];
        output.write(&text.concat());
        return Ok(());
    }
    let templates = templates(&cpc, &options.specs)?;
    let cpus = online()?;
    let plan = Plan::new(options, &templates);
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
        let printer = Printer::new(options, &templates, &cpus)?;
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

/// Prints the rows of all processors, in their order.
struct Printer<'a> {
    options: &'a Options,
    templates: &'a [Template],
    columns: Columns,
    cpus: usize,
    output: Output,
    /// One a specification: counts and cycles of all processors.
    totals: Vec<(u64, Vec<u64>)>,
    /// What has come in for the sample that is being waited for.
    pending: Vec<Sampled>,
    seconds: f64,
}

impl<'a> Printer<'a> {
    fn new(options: &'a Options, templates: &'a [Template], cpus: &[u32]) -> Result<Self, Failure> {
        let totals = templates.iter().map(|template| (0, vec![0; template.pics.len()]));
        Ok(Self {
            options,
            templates,
            columns: Columns { pid: false, tsc: options.tsc },
            cpus: cpus.len(),
            output: Output::open(None)?,
            totals: totals.collect(),
            pending: Vec::new(),
            seconds: 0.0,
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
                Ok(Message::Sampled(sampled)) => self.sampled(sampled),
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
            self.print_totals();
        }
        failure.map_or(Ok(()), Err)
    }

    fn title(&mut self) {
        if !self.options.no_title {
            self.output.write(&self.columns.stat_title(title_pics(self.templates)));
        }
    }

    /// Adds a sample up and prints it as soon as those of all processors are there.
    fn sampled(&mut self, sampled: Sampled) {
        let (tsc, counts) = &mut self.totals[sampled.set];
        *tsc = tsc.wrapping_add(sampled.tsc);
        for (total, count) in counts.iter_mut().zip(&sampled.counts) {
            *total = total.wrapping_add(*count);
        }
        self.seconds = self.seconds.max(sampled.seconds);
        if sampled.partial {
            return;
        }
        self.pending.push(sampled);
        let oldest = self.pending.iter().map(|sampled| sampled.slot).min();
        let (complete, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|s| Some(s.slot) == oldest);
        if complete.len() < self.cpus {
            self.pending = waiting;
            self.pending.extend(complete);
            return;
        }
        self.pending = waiting;
        self.print(complete);
    }

    fn print(&mut self, mut rows: Vec<Sampled>) {
        rows.sort_by_key(|row| row.cpu);
        let mut text = match self.options.stamp {
            None => String::new(),
            Some(Stamp::Unix) => format!("{}\n", Zoned::now().timestamp().as_second()),
            Some(Stamp::Date) => format!("{}\n", Zoned::now().strftime("%a %b %e %H:%M:%S %Z %Y")),
        };
        for row in &rows {
            let tag = "tick";
            text += &self.row(row.seconds, row.cpu as usize, tag, row.set, row.tsc, &row.counts);
        }
        self.output.write(&text);
    }

    fn print_totals(&mut self) {
        let mut text = String::new();
        for (set, (tsc, counts)) in self.totals.iter().enumerate() {
            text += &self.row(self.seconds, self.cpus, "total", set, *tsc, counts);
        }
        self.output.write(&text);
    }

    fn row(
        &self,
        seconds: f64,
        cpu: usize,
        tag: &str,
        set: usize,
        tsc: u64,
        counts: &[u64],
    ) -> String {
        let note = match self.templates {
            [_] => Note::None,
            several => Note::Text(&several[set].text),
        };
        self.columns.stat(StatRow { seconds, cpu, tag, tsc, counts, note })
    }
}
