//! `lwp record --time`: the program natively, and where its CPU time goes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lwp_profile::{NamedCode, RecordedNames, SampledEvent};
use lwp_report::number::{grouped, seconds};
use lwp_terminal::say;
use lwp_time::{
    Attached, Error, Front, LabelNames, Launch, MOST_STACK_BYTES, Machine, Mechanism, OffCpu,
    STACK_BYTES, Sampling, Side, StopSums, Times,
};
use lwp_vcpu::{Control, Language, Target};

use super::{Line, RecordArgs, duration, info, look_back};
use crate::counting;
use crate::ending::Ending;
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, OWN_FAILURE};
use crate::program::{self, not_started};
use crate::progress::Progress;
use crate::recorder::Recorder;
use crate::sampling::CallGraph;

/// Records, and says what was found and what to do next.
pub fn record(args: &RecordArgs, lets_go: [bool; 2]) -> Result<Ending, Failure> {
    let subject = Subject::of(args)?;
    let sampling = choose(args, &subject)?;
    let mut front = None;
    if sampling.mechanism() == Mechanism::Traps || subject.is_traced(&sampling) {
        match lwp_time::split(lets_go).map_err(|error| refusal(&error, &subject.name()))? {
            Side::Front(status) => return Ok(status.into()),
            Side::Back(it) => front = Some(it),
        }
    }
    let line = Line::open(subject.goes_on())?;
    sample(args, (subject, &sampling), lets_go, (&line, front)).map(|(ending, _)| ending)
}

/// Records; returns what was measured too.
pub(super) fn run(
    args: &RecordArgs,
    lets_go: [bool; 2],
    line: &Line,
) -> Result<(Ending, Times), Failure> {
    let subject = Subject::of(args)?;
    let sampling = choose(args, &subject)?;
    sample(args, (subject, &sampling), lets_go, (line, None))
}

/// Writes what is known before the first sample.
fn describe(recorder: &Recorder, args: &RecordArgs, (subject, sampling): (&Subject, &Sampling)) {
    recorder.leave_calls_out();
    recorder.info(&info(args, false));
    recorder.info(&facts(sampling));
    if args.all_cpus {
        recorder.info(&[("command".to_owned(), subject.name())]);
    }
    let period = sampling.period_ns();
    let name = lwp_time::EVENT.to_owned();
    let on = SampledEvent { name, interval: period, modelled: false };
    let (name, interval) = (lwp_time::OFF_EVENT.to_owned(), lwp_time::UNIT_NS);
    let off = SampledEvent { name, interval, modelled: false };
    let off = Some(off).filter(|_| sampling.sees_switches());
    let events: Vec<SampledEvent> = std::iter::once(on).chain(off).collect();
    recorder.events(&events);
}

fn sample(
    args: &RecordArgs,
    (subject, sampling): (Subject, &Sampling),
    lets_go: [bool; 2],
    (line, front): (&Line, Option<Front>),
) -> Result<(Ending, Times), Failure> {
    let time = args.duration.map(duration).transpose()?;
    // The last recording stays where it is if the kernel refuses.
    let begun = subject.begin(sampling, !args.counting.no_inherit)?;
    let recorder = Recorder::create(&args.output)?;
    describe(&recorder, args, (&subject, sampling));
    if let Some(bytes) = args.buffer_size {
        recorder.set_buffer(bytes);
    }
    let requests = &line.requests;
    let control = requests.connect();
    recorder.stop_when_broken(requests);
    let mut companion = None;
    if subject.goes_on() {
        let ends = [time, args.counting.machine.timeout()].into_iter().flatten();
        ends.min().map(|end| counting::stop_after(end, requests)).transpose()?;
        companion = args.counting.beside(requests)?;
    }
    if !args.quiet {
        say!("lwp: {}", plan(sampling));
    }
    let progress = (!args.quiet && !args.no_progress).then(|| Progress::start(&recorder));
    let front = front.as_ref();
    let launching = Launching { recorder: &recorder, control, lets_go, duration: time, front };
    let times = subject.record(args, (sampling, begun), launching);
    // A signal from here on is lwp's own.
    drop(progress);
    let times = times?;
    line.note(&recorder);
    finish(&recorder, &times)?;
    if times.abandoned {
        return Ok((Ending::SUCCESS, times));
    }
    if !args.quiet {
        let _ = lwp_terminal::say_text(&said(sampling, &times));
    }
    // What follows is a courtesy: the recording is safe whatever becomes of it. Of two runs, the
    // second one says what to do next.
    let quiet = RecordArgs { quiet: args.quiet || args.both, ..args.clone() };
    if let Err(failure) = look_back(&quiet, &recorder, &times.outcome, None) {
        let _ = failure.report();
    }
    Ok((args.counting.ending(companion, &times.outcome), times))
}

/// The way in which time is sampled: by the kernel, or, where that refuses, by stops of a program
/// that lwp starts itself.
fn choose(args: &RecordArgs, subject: &Subject) -> Result<Sampling, Failure> {
    let (kernel, stack_bytes) = (Arc::new(lwp_time::Linux), stack_bytes(args));
    let refused = match Sampling::choose(kernel, stack_bytes, args.freq) {
        Ok(sampling) if subject.goes_on() => return Ok(reading_in(sampling, args, subject)),
        Ok(sampling) => return Ok(reading_languages(sampling, args, subject)),
        Err(refused) => refused,
    };
    if subject.goes_on() {
        return Err(refusal(&refused.into(), &subject.name()));
    }
    match Sampling::by_stops(stack_bytes, args.freq) {
        Ok(sampling) => {
            if !args.quiet {
                say!("lwp: {}: lwp stops threads for samples instead", refused.cause);
            }
            Ok(sampling.reading(subject.languages(args), wants_whole_stacks(args)))
        }
        Err(error @ (Error::NoStops(_) | Error::NoAccounts)) => Err(Failure::new(
            OWN_FAILURE,
            format!("time cannot be sampled here: {}, and {error}", refused.cause),
        )
        .with_help(format!(
            "{}; or allow ptrace (in a container: --cap-add SYS_PTRACE, or a seccomp profile with \
             ptrace; kernel.yama.ptrace_scope below 3); or count instructions instead: leave \
             --time out",
            refused.help()
        ))),
        Err(error) => Err(refusal(&error, &subject.name())),
    }
}

/// Has interpreters stopped for samples, so that the functions that they execute can be read, and
/// other programs if whole stacks are wanted.
fn reading_languages(sampling: Sampling, args: &RecordArgs, subject: &Subject) -> Sampling {
    let languages = subject.languages(args);
    if languages.is_empty() && !wants_whole_stacks(args) {
        return sampling;
    }
    match sampling.clone().by_traps(languages, args.freq) {
        Ok(sampling) => sampling,
        Err(error) => {
            if !args.quiet {
                say!("lwp: {error}: {}", missing(args));
            }
            sampling
        }
    }
}

/// What is missing where threads can't be stopped for samples.
fn missing(args: &RecordArgs) -> &'static str {
    match wants_whole_stacks(args) {
        true => "no more of a stack is read than the kernel copies",
        false => "functions of interpreted languages are not read",
    }
}

/// Has lwp stop threads of an interpreter that runs already, if that is possible, so that the
/// functions that they execute can be read, and of others if whole stacks are wanted.
fn reading_in(sampling: Sampling, args: &RecordArgs, subject: &Subject) -> Sampling {
    let languages = match subject {
        Subject::Process(pid) if stack_bytes(args) > 0 => args.lang.read_in(*pid),
        _ => Vec::new(),
    };
    let wanted = wants_whole_stacks(args) || !languages.is_empty();
    let (Subject::Process(pid), true) = (subject, wanted) else { return sampling };
    let refused = match lwp_time::untraceable(*pid) {
        Some(why) => why,
        None => match sampling.clone().by_interrupts(languages, args.freq) {
            Ok(sampling) => return sampling,
            Err(error) => error.to_string(),
        },
    };
    if !args.quiet {
        say!("lwp: {refused}: {}", missing(args));
    }
    sampling
}

/// What is timed.
enum Subject {
    /// A process that runs.
    Process(i32),
    /// A thread of a process that runs.
    Thread { pid: i32, tid: i32 },
    /// Everything that runs.
    Machine,
    /// A program that is started.
    Program { program: PathBuf, argv: Vec<OsString> },
}

/// What is sampled already.
enum Begun<'a> {
    Process(Attached<'a>),
    Machine(Machine<'a>),
}

impl Subject {
    fn of(args: &RecordArgs) -> Result<Self, Failure> {
        if let Some(pid) = args.counting.pid {
            return Ok(Self::Process(pid));
        }
        if let Some(tid) = args.counting.tid {
            return Ok(Self::Thread { pid: counting::process_of(tid)?, tid });
        }
        if args.all_cpus {
            return Ok(Self::Machine);
        }
        let Target::Launch { program, argv } = program::launch(&args.counting.command)? else {
            unreachable!("launch() launches");
        };
        Ok(Self::Program { program, argv })
    }

    fn name(&self) -> String {
        match self {
            Self::Process(pid) => format!("process {pid}"),
            Self::Thread { tid, .. } => format!("thread {tid}"),
            Self::Machine => "all processors".to_owned(),
            Self::Program { program, .. } => program.display().to_string(),
        }
    }

    /// The languages whose functions are read from their interpreters, in threads that are stopped
    /// for samples. A native run that is paired with a counted one has those that are counted.
    fn languages(&self, args: &RecordArgs) -> Vec<Language> {
        match self {
            Self::Program { .. } if stack_bytes(args) == 0 => Vec::new(),
            Self::Program { .. } if args.both => args.lang.counted(),
            Self::Program { program, .. } => args.lang.read_at_stops(program),
            _ => Vec::new(),
        }
    }

    /// Returns whether it runs already, and its threads are stopped for samples.
    fn is_traced(&self, sampling: &Sampling) -> bool {
        self.goes_on() && sampling.mechanism() != Mechanism::Events
    }

    /// Returns whether it runs before lwp does, and goes on afterwards.
    fn goes_on(&self) -> bool {
        !matches!(self, Self::Program { .. })
    }

    /// Begins to sample what runs already.
    fn begin<'a>(
        &self,
        sampling: &'a Sampling,
        children: bool,
    ) -> Result<Option<Begun<'a>>, Failure> {
        let begun = match self {
            Self::Process(pid) => {
                Attached::to(sampling, *pid, children).map(|it| Some(Begun::Process(it)))
            }
            Self::Thread { pid, tid } => {
                Attached::to_thread(sampling, *pid, *tid).map(|it| Some(Begun::Process(it)))
            }
            Self::Machine => Machine::begin(sampling).map(|it| Some(Begun::Machine(it))),
            Self::Program { .. } => Ok(None),
        };
        begun.map_err(|error| refusal(&error, &self.name()))
    }

    /// Samples until the end, and reports to `recorder`.
    fn record(
        &self,
        args: &RecordArgs,
        (sampling, begun): (&Sampling, Option<Begun<'_>>),
        launching: Launching<'_>,
    ) -> Result<Times, Failure> {
        let Launching { recorder, control, lets_go, duration, front } = launching;
        let sink = &mut *recorder.spans();
        let times = match (begun, self) {
            (Some(Begun::Process(attached)), _) => attached.record(control, front, sink),
            (Some(Begun::Machine(machine)), _) => machine.record(control, sink),
            (None, Self::Program { program, argv }) => {
                let children = !args.counting.no_inherit;
                let timeout = args.counting.machine.timeout();
                let launch =
                    Launch { program, argv, children, lets_go, timeout, duration, control, front };
                lwp_time::record(sampling, launch, sink)
            }
            (None, _) => unreachable!("what runs has been begun with"),
        };
        times.map_err(|error| refusal(&error, &self.name()))
    }
}

/// Where a recording goes, and what a program gets with its start.
struct Launching<'a> {
    recorder: &'a Recorder,
    control: Control,
    lets_go: [bool; 2],
    duration: Option<Duration>,
    front: Option<&'a Front>,
}

/// Writes what is known only at the end.
fn finish(recorder: &Recorder, times: &Times) -> Result<(), Failure> {
    let names: Vec<RecordedNames> = times.labels.iter().map(names).collect();
    recorder.names(&names)?;
    let found = times.completeness;
    let facts = [
        ("cpu-time", times.cpu_ns.to_string()),
        ("samples", times.samples.to_string()),
        ("lost-samples", times.losses.lost.to_string()),
        ("damaged-records", times.losses.damaged.to_string()),
        ("throttled", times.losses.throttled.to_string()),
        ("complete-stacks", found.complete.to_string()),
        ("cut-stacks", found.cut.to_string()),
        ("lost-stacks", found.lost.to_string()),
        ("ring-bytes", times.ring_bytes.to_string()),
    ];
    recorder.info(&facts.map(|(key, value)| (key.to_owned(), value)));
    if let Some(StopSums { samples, waiting, events, refused, stood_ns }) = times.stops {
        let facts = [
            ("stops-for-samples", samples),
            ("stops-without-processor", waiting),
            ("other-stops", events),
            ("threads-without-event", refused),
            ("stopped", stood_ns),
        ];
        recorder.info(&facts.map(|(key, value)| (key.to_owned(), value.to_string())));
    }
    if let Some(OffCpu { preempted, asleep, with_stack }) = times.off_cpu {
        let facts = [
            ("waiting-for-processor", preempted),
            ("asleep", asleep),
            ("asleep-with-stack", with_stack),
        ];
        recorder.info(&facts.map(|(key, value)| (key.to_owned(), value.to_string())));
    }
    recorder.finish(&times.outcome)
}

/// Names of a module without a file, as a recording keeps them.
fn names(label: &LabelNames) -> RecordedNames {
    let code = |(address, size, name): &(u64, u64, String)| NamedCode {
        address: *address,
        size: *size,
        name: name.as_str().into(),
        ..NamedCode::default()
    };
    let functions = label.functions.iter().map(code).collect();
    RecordedNames { module: label.module, debug: true, functions, ..RecordedNames::default() }
}

/// Bytes of each sampled stack.
fn stack_bytes(args: &RecordArgs) -> u32 {
    let graph = args.call_graph.filter(|_| !args.no_call_graph);
    match graph {
        _ if args.no_call_graph => 0,
        Some(CallGraph::None) => 0,
        Some(CallGraph::Dwarf(Some(bytes))) => bytes.clamp(8, MOST_STACK_BYTES) & !7,
        _ => STACK_BYTES,
    }
}

/// The most bytes of a stack that perf takes.
const MOST_OF_PERF: u32 = 65_528;

/// Returns whether stacks are wanted as a whole: more of them than the kernel copies.
fn wants_whole_stacks(args: &RecordArgs) -> bool {
    let graph = args.call_graph.filter(|_| !args.no_call_graph);
    matches!(graph, Some(CallGraph::Dwarf(Some(bytes))) if bytes > MOST_OF_PERF)
}

/// Facts about the way in which time is sampled.
fn facts(sampling: &Sampling) -> Vec<(String, String)> {
    let cost = sampling.cost().ns().map_or(String::new(), |ns| ns.to_string());
    let kernel = if sampling.sees_kernel() { "visible" } else { "hidden" };
    let mechanism = match sampling.mechanism() {
        Mechanism::Events => "cpu-clock",
        Mechanism::Stops => "stops",
        Mechanism::Traps => "sigtrap",
    };
    let words: Vec<&str> = sampling.languages().iter().map(|it| it.word()).collect();
    let facts = [
        ("mechanism", mechanism.to_owned()),
        ("rate", sampling.rate().to_string()),
        ("sample-cost", cost),
        ("kernel-time", kernel.to_owned()),
        ("languages-read", words.join(",")),
    ];
    facts.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

/// The rate, and what it costs.
fn plan(sampling: &Sampling) -> String {
    let rate = sampling.rate();
    let cost = match sampling.cost().ns() {
        Some(ns) if ns.saturating_mul(rate) > 1_000_000_000 => {
            "the machine is too busy to measure what a sample costs".to_owned()
        }
        Some(ns) => {
            let what = match sampling.mechanism() {
                Mechanism::Events => "sample",
                Mechanism::Stops | Mechanism::Traps => "stop for one",
            };
            let (ms, part) = (ns as f64 / 1e6, ns as f64 * rate as f64 / 1e7);
            format!("a {what} takes {ms:.3} ms here, {part:.1} % in all")
        }
        None => "what a sample costs here could not be measured".to_owned(),
    };
    format!("native, {rate} samples a second of CPU time; {cost}")
}

/// What was measured, and what is missing.
fn said(sampling: &Sampling, times: &Times) -> String {
    let mut text = format!(
        "# cpu-time  {} by the kernel's clocks, {} samples, {}\n",
        seconds(times.cpu_ns),
        grouped(times.samples),
        losses(times),
    );
    let found = times.completeness;
    if found.all() > 0 {
        let part = |count: u64| 100.0 * count as f64 / found.all() as f64;
        text.push_str(&format!(
            "# stacks    {:.1} % complete, {:.1} % cut at the end of the copy, \
             {:.1} % without a way on\n",
            part(found.complete),
            part(found.cut),
            part(found.lost)
        ));
    }
    if let Some(OffCpu { preempted, asleep, with_stack }) = times.off_cpu {
        let part = 100.0 * with_stack as f64 / asleep.max(1) as f64;
        text.push_str(&format!(
            "# off-cpu   {} asleep ({part:.1} % with stacks), {} waiting for a processor: \
             report -e off-cpu\n",
            seconds(asleep),
            seconds(preempted),
        ));
    }
    let asks = sampling.mechanism() == Mechanism::Stops;
    if let Some(sums) = times.stops {
        text.push_str(&stops(sampling, times, sums));
    }
    if !sampling.sees_kernel() && !asks {
        let part = 100.0 * times.remainder.kernel as f64 / times.cpu_ns.max(1) as f64;
        text.push_str(&format!(
            "lwp: the kernel is not visible: its {part:.1} %, by difference, are a row of their \
             own\n\
             help: sysctl kernel.perf_event_paranoid=1, or CAP_PERFMON\n"
        ));
    }
    if times.hides_names {
        text.push_str(
            "lwp: the kernel hides the names of its functions\n\
             help: sysctl kernel.kptr_restrict=0, or CAP_SYSLOG\n",
        );
    }
    text
}

/// Per cent of the time without samples from which on a machine is too busy for stops.
const MOST_UNSEEN: f64 = 10.0;

/// The number of stops whose mean is worth printing.
const ENOUGH_STOPS: u64 = 200;

/// How often threads were stopped, and what a stop doesn't show.
fn stops(sampling: &Sampling, times: &Times, sums: StopSums) -> String {
    let StopSums { samples, waiting, events, refused, stood_ns } = sums;
    let elapsed = times.outcome.elapsed.as_secs_f64().max(1e-9);
    let unseen = 100.0 * times.remainder.unsampled as f64 / times.cpu_ns.max(1) as f64;
    let asks = sampling.mechanism() == Mechanism::Stops;
    let busy = match unseen < MOST_UNSEEN || !asks {
        true => String::new(),
        false => format!(
            "lwp: {unseen:.0} % of the time has no samples: the machine is too busy, and shares may \
             be off by more than their margins\n\
             help: measure when the machine is less busy\n"
        ),
    };
    let waited = match waiting {
        0 => String::new(),
        some => format!(
            "lwp: {} samples show where a thread lost its processor, which favours system calls\n\
             help: give the program and lwp more processors\n",
            grouped(some)
        ),
    };
    let refused = match refused {
        0 => String::new(),
        some => format!(
            "lwp: {} threads have no samples: the kernel refused their events\n\
             help: raise the limit on open files (ulimit -n)\n",
            grouped(some)
        ),
    };
    // The first stops are longer: lwp reads the tables of the program's files.
    let cost = match stood_ns {
        ns if samples < ENOUGH_STOPS || ns == 0 => String::new(),
        ns => format!(
            "; {:.3} ms each, {:.1} % of the time in all",
            ns as f64 / 1e6 / samples.max(1) as f64,
            100.0 * ns as f64 / times.cpu_ns.max(1) as f64
        ),
    };
    let unseen_by = match times.off_cpu {
        Some(_) => "the kernel's functions are",
        None => "the kernel's functions and the time off the processor are",
    };
    let hidden = match sampling.sees_kernel() {
        true => "; system calls are [kernel, not visible]",
        false if asks => "; system calls are [kernel, not visible]",
        false => "",
    };
    format!(
        "# stops     {} for samples, {} for threads, programs and signals: {:.0} in each \
         second{cost}\n\
         lwp: {unseen_by} not visible to stops{hidden}\n\
         {busy}{waited}{refused}",
        grouped(samples),
        grouped(events),
        (samples + events) as f64 / elapsed,
    )
}

fn losses(times: &Times) -> String {
    let mut losses = Vec::new();
    let kinds = [
        (times.losses.lost, "lost"),
        (times.losses.damaged, "damaged"),
        (times.losses.throttled, "times throttled"),
    ];
    for (count, what) in kinds.into_iter().filter(|(count, _)| *count > 0) {
        losses.push(format!("{} {what}", grouped(count)));
    }
    if losses.is_empty() { "none lost".to_owned() } else { losses.join(", ") }
}

/// Why a program was not timed, and what to do.
fn refusal(error: &Error, program: &str) -> Failure {
    let cause = error.to_string();
    match error {
        Error::Unavailable(refused) => Failure::new(
            OWN_FAILURE,
            format!("time cannot be sampled here: {}", refused.cause),
        )
        .with_help(format!(
            "{}; or count instructions instead, which needs no permission: leave --time out",
            refused.help()
        )),
        Error::NotFound => not_started(program),
        Error::NoProcess(_) | Error::NoThread(_) => Failure::new(NOT_FOUND, cause)
            .with_help("`ps -e` lists processes, and `ps -eL` their threads"),
        Error::NotExecutable(why) => Failure::new(NOT_EXECUTABLE, format!("{program}: {why}")),
        _ => Failure::new(OWN_FAILURE, cause),
    }
}
