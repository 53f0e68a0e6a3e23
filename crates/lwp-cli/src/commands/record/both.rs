//! `lwp record --both`: a native run for the time, and a counted one for everything else.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use lwp_profile::{Event, Profile, Recording};
use lwp_symbols::{Detail, function_name};
use lwp_terminal::escape::printable;
use lwp_vcpu::{ExitStatus, Outcome};

use super::{Line, RecordArgs, counted, time};
use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles::NameArgs;
use crate::recorder::Recorder;

/// The program's native run.
pub(super) struct NativeRun {
    /// Its recording, whose bytes these are.
    pub recording: Vec<u8>,
    status: ExitStatus,
    /// Threads and processes that were made in it.
    made: u64,
}

/// Records both runs, and says what was found and what to do next.
pub fn record(args: &RecordArgs, lets_go: [bool; 2]) -> Result<Ending, Failure> {
    let line = Line::open(false)?;
    let input = Input::of_this_process();
    input.warn();
    let place = beside(&args.output);
    let first = RecordArgs { output: place.clone(), ..args.clone() };
    // The second run needs lwp's streams as well.
    let run = time::run(&first, [false; 2], &line);
    let (ending, times) = run.inspect_err(|_| drop(std::fs::remove_file(&place)))?;
    let kept = || printable(&place.display().to_string());
    if line.interrupted.signal().is_some() {
        lwp_terminal::say!("lwp: nothing was counted; the native run is in {}", kept());
        return Ok(ending);
    }
    let failed = |error| Failure::io(place.display(), &error);
    let recording = std::fs::read(&place).map_err(failed)?;
    let native = NativeRun { recording, status: times.outcome.status, made: times.made };
    input.rewind();
    if !args.quiet {
        lwp_terminal::say!("lwp: the program runs again, on the virtual CPU, and is counted");
    }
    match counted(args, lets_go, &line, Some(&native)) {
        Ok(ending) => {
            let _ = std::fs::remove_file(&place);
            Ok(ending)
        }
        Err(failure) => {
            lwp_terminal::say!("lwp: the native run is in {}", kept());
            Err(failure)
        }
    }
}

/// The place for the first run's recording, until the second one has it: beside the whole, or, if
/// that goes into a pipe, among temporary files.
fn beside(output: &Path) -> PathBuf {
    let is_file = std::fs::metadata(output).map_or(true, |there| there.is_file());
    if !is_file {
        return std::env::temp_dir().join(format!("lwp-{}.time", std::process::id()));
    }
    let mut name = output.as_os_str().to_owned();
    name.push(".time");
    PathBuf::from(name)
}

/// Standard input, which both runs read.
struct Input {
    file: Option<File>,
    /// The place in it where the first run begins to read.
    start: Option<u64>,
}

impl Input {
    fn of_this_process() -> Self {
        let mut file = std::io::stdin().as_fd().try_clone_to_owned().map(File::from).ok();
        let start = file.as_mut().and_then(|file| file.stream_position().ok());
        Self { file, start }
    }

    /// Says that the second run cannot read what the first has read.
    fn warn(&self) {
        let kind = self.file.as_ref().and_then(|file| Some(file.metadata().ok()?.file_type()));
        if kind.is_some_and(|kind| kind.is_fifo() || kind.is_socket()) {
            lwp_terminal::say!(
                "lwp: standard input is a pipe: the second run only gets what the first one leaves"
            );
            lwp_terminal::say!("help: if the program reads it, give it a file: < FILE");
        }
    }

    fn rewind(mut self) {
        if let (Some(file), Some(start)) = (&mut self.file, self.start) {
            let _ = file.seek(SeekFrom::Start(start));
        }
    }
}

impl NativeRun {
    /// Notes what the program did otherwise in the counted run, in the recording, which has
    /// finished, and in `recording`, what was read of it.
    pub fn compare(
        &self,
        recording: &mut Recording,
        recorder: &Recorder,
        (counted, children): (&Outcome, bool),
    ) {
        let mut differences = Vec::new();
        let endings = [self.status, counted.status].map(|status| Ending::from(status).words());
        if endings[0] != endings[1] {
            differences.push(format!("{}, then {}", endings[0], endings[1]));
        }
        let made = threads_of(counted).saturating_sub(1);
        if children && made != self.made {
            let first = self.made;
            differences.push(format!("{first} threads and processes were made, then {made}"));
        }
        let options = NameArgs::offline().options();
        let options = lwp_symbols::Options { detail: Detail::Functions, ..options };
        let resolved = lwp_symbols::profile(recording, &options);
        differences.extend(only_natively(&resolved.profile));
        if differences.is_empty() {
            return;
        }
        let differences = differences.join("; ");
        lwp_terminal::say!("lwp: the two runs differ: {}", printable(&differences));
        lwp_terminal::say!(
            "help: give the program the same input and state twice; `lwp stat -r 5` shows how much \
             its counts vary"
        );
        let fact = ("differences".to_owned(), differences);
        recorder.info(std::slice::from_ref(&fact));
        recording.info.extend([fact]);
    }
}

/// The number of threads that a program had, in all of its processes.
fn threads_of(outcome: &Outcome) -> u64 {
    let threads = outcome.processes.iter().flat_map(|process| {
        let threads = process.threads.iter().map(|thread| thread.tid);
        threads.chain([process.pid])
    });
    threads.filter(|tid| *tid != 0).collect::<BTreeSet<i32>>().len() as u64
}

/// A part of the time that is not said in functions that only one run has.
const LEAST: f64 = 0.01;

/// Says how much time the native run has in code that the counted one has not executed.
fn only_natively(profile: &Profile) -> Option<String> {
    let time = profile.event(Event::TIME)?;
    let whole: u64 = profile.total().get(time);
    let mut missing: Vec<(u64, String)> = Vec::new();
    for ((id, own), function) in (0..).zip(profile.by_function()).zip(&profile.functions) {
        let module = &profile.modules[function.module.index()];
        // The kernel is not counted, nor is time that no sample was seen of.
        let countable = !module.path.starts_with('[');
        if countable && own.get(time) > 0 && own.get(0) == 0 {
            missing
                .push((own.get(time), function_name(profile, lwp_profile::FunctionId(id), true)));
        }
    }
    missing.sort_by(|a, b| b.cmp(a));
    let sum: u64 = missing.iter().map(|(ns, _)| ns).sum();
    let part = sum as f64 / whole.max(1) as f64;
    if part < LEAST {
        return None;
    }
    let names: Vec<&str> = missing.iter().take(3).map(|(_, name)| name.as_str()).collect();
    let more = if missing.len() > names.len() { ", …" } else { "" };
    let (part, names) = (100.0 * part, names.join(", "));
    Some(format!(
        "{part:.1} % of the time is in code that the second has not executed: {names}{more}"
    ))
}
