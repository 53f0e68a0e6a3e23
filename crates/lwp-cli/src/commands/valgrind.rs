//! `lwp valgrind`: what callgrind was asked to do, done here.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use lwp_vcpu::{Config, ExitStatus, Markers, Plan};

use crate::args::MachineArgs;
use crate::code_filter::{Places, matching};
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::profiles::NameArgs;
use crate::program;
use crate::recorder::Recorder;
use crate::requests::Requests;
use crate::signals::{self, Program};
use crate::valgrind::parts::{Parted, Process};
use crate::valgrind::{Log, Options, Request, files, request};

/// Executes a request to valgrind; `$VALGRIND_OPTS` comes before the command line.
pub fn execute(words: &[std::ffi::OsString]) -> Result<Ending, Failure> {
    let given = std::env::var("VALGRIND_OPTS").unwrap_or_default();
    let usual = given.split_whitespace().map(std::ffi::OsString::from);
    let words: Vec<_> = usual.chain(words.iter().cloned()).collect();
    match request(&words)? {
        Request::Print(text) => super::print(&text).map(|()| Ending::SUCCESS),
        Request::Run(options) => run(&options),
    }
}

fn run(options: &Options) -> Result<Ending, Failure> {
    let config = configuration(options)?;
    // The recording is nobody's but ours.
    let memory = rustix::fs::memfd_create("lwp-valgrind", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|error| Failure::new(OWN_FAILURE, format!("memory for a recording: {error}")))?;
    let place = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let recorder = Recorder::create(&place)?;
    if options.caches || options.branches {
        recorder.info(&[("model".to_owned(), options.model()?.to_string())]);
    }
    if super::record::can_measure_contexts() {
        recorder.measure_contexts();
    }
    let parted = Parted::new(recorder.clone());
    let requests = Arc::new(Requests::default());
    let connected = requests.connect();
    signals::answer(Arc::clone(&requests), Program::Launched)?;
    let outcome = lwp_vcpu::run_profiled(&config, Some(connected), Some(Box::new(parted.clone())))?;
    recorder.finish(&outcome)?;
    let mut recording = recorder.read_back()?;
    let names = NameArgs::offline().options();
    let search = lwp_symbols::Options { held: recorder.held_files(), ..names };
    recording.names = lwp_symbols::names(&recording, &search);
    let lines = files::unmet(options);
    if options.quiet && !lines.is_empty() {
        // Quiet or not, nobody shall take one thing for another.
        let pid = outcome.processes.first().map_or(0, |first| first.pid);
        let lines: String = lines.iter().map(|line| format!("=={pid}== {line}\n")).collect();
        say(&options.log, pid, &lines)?;
    }
    for process in traced(options, parted.processes(&recording, &outcome)) {
        let counted = files::write(options, &recording, &process)?;
        if !options.quiet {
            say(&options.log, process.pid, &files::messages(options, &process, &counted))?;
        }
    }
    for process in outcome.processes.iter().filter(|_| !options.quiet) {
        let wanted = options.children || process.parent == 0;
        if let Some(reason) = process.uncounted.as_ref().filter(|_| wanted) {
            say(
                &options.log,
                process.pid,
                &format!("=={}== not counted: {reason}\n", process.pid),
            )?;
        }
    }
    Ok(match outcome.status {
        ExitStatus::Detached => Ending::SUCCESS,
        status => status.into(),
    })
}

/// The processes that are not left out. Valgrind does not see what a skipped process starts.
fn traced(options: &Options, processes: Vec<Process>) -> Vec<Process> {
    let mut skipped = BTreeSet::new();
    let leaves_out = |process: &Process| process.parent != 0 && options.skips(&process.command);
    // A parent may stand behind its children in the list.
    let mut known = usize::MAX;
    while known != skipped.len() {
        known = skipped.len();
        for process in &processes {
            if skipped.contains(&process.parent) || leaves_out(process) {
                skipped.insert(process.pid);
            }
        }
    }
    processes.into_iter().filter(|process| !skipped.contains(&process.pid)).collect()
}

/// Deterministic, but in our environment: harnesses pass what their benchmarks need.
fn configuration(options: &Options) -> Result<Config, Failure> {
    let target = program::launch(&options.command)?;
    let machine = MachineArgs { deterministic: true, ..MachineArgs::default() };
    let mut config = machine.config(target, Plan::Exact);
    config.program.environment = None;
    config.program.follow_children = options.children;
    let (collect, instrument) = (options.collects(), options.instrument);
    config.counted.markers = Some(Markers::Callgrind { collect, instrument });
    if options.models_caches() {
        config.lwp = None;
        config.model = Some(options.model()?);
    }
    for pattern in &options.toggle {
        let found = matching(pattern, &Places::of(&config.target, &[]))?;
        config.counted.within.extend(found);
    }
    Ok(config)
}

/// Writes messages of a process where they belong.
fn say(log: &Log, pid: i32, text: &str) -> Result<(), Failure> {
    let place = match log {
        Log::Usual => {
            return lwp_terminal::say_text(text).map_err(|error| Failure::io("messages", &error));
        }
        Log::Descriptor(descriptor) => PathBuf::from(format!("/proc/self/fd/{descriptor}")),
        Log::File(pattern) => files::expanded(pattern, pid)?,
    };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&place);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::io(place.display(), &error))
}
