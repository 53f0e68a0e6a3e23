//! `lwp record`: the program on the virtual CPU, and where its instructions were executed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use lwp_profile::{Event, Module, RecordedModule, RecordedNames, Recording, SampledEvent};
use lwp_report::{Options, Table};
use lwp_symbols::{Detail, Options as Search};
use lwp_terminal::escape::printable;
use lwp_vcpu::{Config, Outcome, Plan, Target};

use crate::args::usage_error;
use crate::builds;
use crate::code_filter;
use crate::compilers;
use crate::counting::CountingArgs;
use crate::ending::Ending;
use crate::engine::Engine;
use crate::failure::{Failure, OWN_FAILURE};
use crate::headings;
use crate::languages::{self, Languages};
use crate::profiles::{self, DEFAULT_FILE, NameArgs};
use crate::program;
use crate::progress::Progress;
use crate::provenance;
use crate::recorder::Recorder;
use crate::requests::Requests;
use crate::sampling::{CallGraph, Samplings, interval_of};
use crate::signals::{self, Interrupted, Program};
use crate::stat::control;
use both::NativeRun;

mod both;
mod time;

/// `lwp record`.
#[derive(Args, Clone, Debug, Default)]
#[command(mut_arg("command", |it| it.required_unless_present_any(["pid", "tid", "all_cpus"])))]
pub struct RecordArgs {
    /// Write the recording to FILE; an older one is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub output: PathBuf,

    /// Sample every N-th instruction of each thread with its call stack, instead of counting
    /// everything; N may end in K, M or G
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub count: Option<String>,

    /// Take N samples in each virtual second (10⁹ instructions of a thread); with --time, in each
    /// second of CPU time
    #[arg(short = 'F', long, value_name = "N", conflicts_with = "count",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub freq: Option<u64>,

    /// Run the program natively, not on the virtual CPU, and sample where its CPU time goes, at -F
    /// samples per second of CPU time. Without -F, lwp measures what a sample costs on this
    /// machine, and picks the highest of 997, 499, 199 and 99 that costs at most 1 %. With -p or
    /// -t, lwp interrupts no system call of the process, which continues however lwp ends; with
    /// -p, it stops an interpreter's thread for a moment at each sample, unless --lang is none
    #[arg(long, conflicts_with_all = ["count", "events", "model", "filter", "interval_ip", "random",
        "control", "delay", "marked", "within", "deterministic"])]
    pub time: bool,

    /// With --time, sample everything that runs on this machine: until Ctrl-C, for --duration, or
    /// for as long as PROGRAM runs, as in `lwp record --time -a sleep 30`. The kernel allows this
    /// to root, to processes with CAP_PERFMON, and, if kernel.perf_event_paranoid is 0 or less, to
    /// everyone
    #[arg(short, long, requires = "time", conflicts_with_all = ["pid", "tid", "no_inherit"])]
    pub all_cpus: bool,

    /// Run the program twice, first natively, sampled as with --time, then on the virtual CPU, with
    /// everything counted. One recording holds both runs, so reports show how long each call and
    /// each instruction of a function takes. The program should do the same in both runs; lwp
    /// prints the differences that it notices. -F is the sampling rate of the first run
    #[arg(long, conflicts_with_all = ["time", "all_cpus", "pid", "tid", "count", "events", "filter",
        "interval_ip", "random", "control", "delay", "marked", "within", "duration", "buffer_size",
        "deterministic"])]
    pub both: bool,

    /// Record callers (default)
    #[arg(short = 'g', conflicts_with = "no_call_graph", help_heading = headings::SAMPLES)]
    pub graph: bool,

    /// How to find callers. In exact recordings, `exact` measures what each function executes for
    /// each of its callers; `inferred` records faster, and distributes counts over callers by the
    /// number of calls; `none` also leaves out the targets of indirect calls [default: exact; with
    /// -p, and on processors without BMI2: inferred]. With samples, `shadow` unwinds the stack from
    /// outside with unwind tables; perf's `fp`, `lbr` and `dwarf` are accepted and do the same;
    /// `none` records no stacks. With --time, `dwarf,BYTES` copies BYTES of each stack instead of
    /// 16 KiB; from 65536 on, lwp stops threads for samples and reads whole stacks [default:
    /// shadow]
    #[arg(long, value_name = "MODE", value_parser = CallGraph::parse, conflicts_with = "no_call_graph",
        help_heading = headings::SAMPLES)]
    pub call_graph: Option<CallGraph>,

    /// Same as --call-graph none
    #[arg(long, help_heading = headings::SAMPLES)]
    pub no_call_graph: bool,

    /// Sample only instructions of CODE, and count only them towards the interval (LWP's IP
    /// filter): a function, as NAME or NAME@FILE, wherever its file is mapped; addresses, as
    /// 0x401000..0x4010ff, both ends included; !CODE for everything else
    #[arg(long, value_name = "[!]CODE", help_heading = headings::SAMPLES)]
    pub filter: Option<String>,

    /// Same as --filter with a range of addresses, given as LWP's BaseIP and LimitIP
    #[arg(long, value_name = "[!]BASE,LIMIT", conflicts_with = "filter",
        help_heading = headings::SAMPLES)]
    pub interval_ip: Option<String>,

    /// Replace the low N bits of every interval minus one by random bits (LWP's Random), so that
    /// samples don't fall into step with loops. Every run gets the same random bits; to change
    /// them, use --deterministic with --seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=15),
        help_heading = headings::SAMPLES)]
    pub random: Option<u8>,

    /// Write samples to the file once they take SIZE bytes (K and M are understood). If lwp is
    /// killed, it loses the samples that it has not written. Exact recordings ignore this option
    /// [default: 32K]
    #[arg(long, value_name = "SIZE", value_parser = buffer_size, help_heading = headings::SAMPLES)]
    pub buffer_size: Option<usize>,

    /// Stop recording after SECONDS. lwp detaches from an attached process, and a program that it
    /// started continues unrecorded
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub duration: Option<f64>,

    /// Sample these events, separated by commas; :c=N is an event's own interval
    #[arg(short, long = "event", value_name = "EVENT[:c=N]", action = clap::ArgAction::Append)]
    pub events: Vec<String>,

    /// Name the functions of interpreted languages and of generated code: auto for all known
    /// languages, none to change nothing in their runtimes, or some of python, node, java, dotnet,
    /// ruby, php, perl and lua. Some runtimes name their code only on request; lwp then adds a
    /// variable or an option to the program, but never with --deterministic. In exact recordings,
    /// python also counts the calls of CPython 3.11 and later: each call then needs more stack, and
    /// deep recursion can fail
    #[arg(long, value_name = "LANG", default_value = "auto", value_parser = Languages::parse)]
    pub lang: Languages,

    /// Do not print the hottest functions at the end
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Do not show progress
    #[arg(long)]
    pub no_progress: bool,

    /// Store KEY=VALUE in the recording; `lwp script --header` shows it
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    pub tags: Vec<(String, String)>,

    /// Also count misses of modelled data caches (--cache) and mispredicted branches, and estimate
    /// cycles; reports show these as additional events
    #[arg(long)]
    pub model: bool,

    /// Store no names in the recording; reports then need the unchanged programs and libraries
    #[arg(long)]
    pub no_names: bool,

    /// Sources of names.
    #[command(flatten)]
    pub names: NameArgs,

    /// The program, and the time in which it is recorded.
    #[command(flatten)]
    pub counting: CountingArgs,
}

/// Instructions that stand for a second, where samples are asked for by the second.
const VIRTUAL_SECOND: u64 = 1_000_000_000;

/// Functions printed at the end.
const HOTTEST: usize = 10;

impl RecordArgs {
    /// Returns whether the program finds Lightweight Profiling: not natively, and not if its
    /// countdown takes the samples.
    pub fn offers_lwp(&self) -> bool {
        let samples = self.count.is_some() || self.freq.is_some() || !self.events.is_empty();
        !self.time && !samples && self.counting.offers_lwp()
    }
}

/// Records, and says what was found and what to do next.
pub fn execute(args: &RecordArgs) -> Result<Ending, Failure> {
    // The program has the standard streams alone.
    record(args, [true; 2])
}

/// Records for a command that has something to print to standard output afterwards.
pub fn execute_first(args: &RecordArgs) -> Result<Ending, Failure> {
    record(args, [true, false])
}

fn record(args: &RecordArgs, lets_go: [bool; 2]) -> Result<Ending, Failure> {
    match (args.both, args.time) {
        (true, _) => both::record(args, lets_go),
        (_, true) => time::record(args, lets_go),
        _ => counted(args, lets_go, &Line::open(args.counting.attaches())?, None),
    }
}

/// The line to runs that follow each other, and the signal that ends them.
struct Line {
    requests: Arc<Requests>,
    interrupted: Interrupted,
}

impl Line {
    /// Answers signals from here on: for a program that ran before, or is started.
    fn open(attached: bool) -> Result<Self, Failure> {
        let requests = Arc::new(Requests::default());
        let interrupted = signals::answer(Arc::clone(&requests), Program::attached(attached))?;
        Ok(Self { requests, interrupted })
    }

    /// Notes the signal that has ended a run, if one has.
    fn note(&self, recorder: &Recorder) {
        if let Some(signal) = self.interrupted.signal() {
            recorder.info(&[("interrupted".to_owned(), Ending::Signal(signal).words())]);
        }
    }
}

/// Records on the virtual CPU, after a native run or without one.
fn counted(
    args: &RecordArgs,
    lets_go: [bool; 2],
    line: &Line,
    native: Option<&NativeRun>,
) -> Result<Ending, Failure> {
    let count = args.count.as_deref().map(interval_of).transpose()?;
    // With a native run, it is that run's rate.
    let freq = args.freq.filter(|_| native.is_none());
    let count = count.or(freq.map(|freq| VIRTUAL_SECOND / freq));
    let duration = args.duration.map(duration).transpose()?;
    let sampled = Samplings::parse(&args.events, count)?;
    let plan = if sampled.is_empty() { Plan::Exact } else { Plan::Plain };
    let mut config = args.counting.configuration(plan)?;
    config.sampling.events = sampled.config();
    if !sampled.is_empty() {
        // The countdown of LWP is what samples.
        config.lwp = None;
    }
    config.program.lets_go = lets_go;
    choose_model(args, &mut config)?;
    choose_languages(args, &mut config);
    choose_samples(args, &mut config)?;
    let engine = choose_engine(args, &config)?;
    let recorder = Recorder::create(&args.output)?;
    recorder.info(&info(args, sampled.is_empty()));
    if let Some(native) = native {
        recorder.native(&native.recording);
    }
    if !sampled.is_empty() {
        recorder.events(&sampled.recorded(config.sampling.random_bits));
    }
    if let Some(bytes) = args.buffer_size {
        recorder.set_buffer(bytes);
    }
    if !config.sampling.stacks {
        recorder.leave_calls_out();
    } else if sampled.is_empty() && measures_contexts(args, engine) {
        recorder.measure_contexts();
    }
    let requests = &line.requests;
    if let Some(place) = &args.counting.control {
        config.counted.control_line = Some(control::serve(place, Arc::clone(requests))?);
    }
    let connected = requests.connect();
    recorder.stop_when_broken(requests);
    args.counting.schedule(requests)?;
    if let Some(duration) = duration {
        args.counting.stop_after(duration, requests)?;
    }
    let companion = args.counting.companion(requests)?;
    engine.warn(&config);
    let progress = (!args.quiet && !args.no_progress).then(|| Progress::start(&recorder));
    let outcome = engine.run(&config, connected, Some(recorder.sink()));
    drop(progress);
    let outcome = outcome?;
    line.note(&recorder);
    recorder.finish(&outcome)?;
    args.counting.say_if_unmarked(&outcome);
    // What follows is a courtesy: the recording is safe whatever becomes of it.
    if let Err(failure) = look_back(args, &recorder, &outcome, native) {
        let _ = failure.report();
    }
    Ok(args.counting.ending(companion, &outcome))
}

/// Keeps what reports will want of the files that were executed, and says what was recorded.
fn look_back(
    args: &RecordArgs,
    recorder: &Recorder,
    outcome: &Outcome,
    native: Option<&NativeRun>,
) -> Result<(), Failure> {
    let mut recording = named(args, recorder)?;
    if let Some(native) = native {
        native.compare(&mut recording, recorder, (outcome, !args.counting.no_inherit));
    }
    // Names of what has no file were written with it.
    let modules = &recording.modules;
    let has_file =
        |names: &RecordedNames| !modules.get(&names.module).is_some_and(RecordedModule::is_label);
    recording.names.sort_by_key(|names| !has_file(names));
    let of_files = recording.names.partition_point(has_file);
    let write = || recorder.names(&recording.names[..of_files]);
    let (written, summary) = std::thread::scope(|scope| {
        // Where there are no more threads, one thing comes after the other.
        let aside = std::thread::Builder::new().spawn_scoped(scope, write);
        let summary = match args.quiet {
            true => Ok(String::new()),
            false => summary(&args.output, &recording, outcome),
        };
        (aside.map_or_else(|_| Ok(write()), std::thread::ScopedJoinHandle::join), summary)
    });
    written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    if !args.quiet {
        if args.counting.machine.verbose {
            let _ = lwp_terminal::say_text(&holds(&args.output, outcome));
        }
        let _ = lwp_terminal::say_text(&summary?);
    }
    if !args.counting.machine.no_cache
        && let Some(store) = builds::Store::of_user(false)
    {
        store.keep_all(&recording);
    }
    Ok(())
}

/// Chooses the engine that can do what is asked for.
fn choose_engine(args: &RecordArgs, config: &Config) -> Result<Engine, Failure> {
    let engine = Engine::choose(config)?;
    let asked = args.call_graph == Some(CallGraph::Exact);
    let contexts = ["--call-graph exact", "leave it out: callers are inferred from calls"];
    engine.refuse(config, asked, contexts)?;
    if asked && !can_measure_contexts() {
        let [option, help] = contexts;
        return Err(usage_error(format!("{option} needs a processor with BMI2"), help));
    }
    Ok(engine)
}

/// Returns whether an exact recording measures calling contexts. Without `--call-graph` it does
/// where that works; who called the functions that an attached process is in is not known.
fn measures_contexts(args: &RecordArgs, engine: Engine) -> bool {
    let possible =
        engine == Engine::VirtualCpu && can_measure_contexts() && !args.counting.attaches();
    CallGraph::measures_contexts(args.call_graph, possible)
}

/// Returns whether this processor can execute the code that measures calling contexts.
pub fn can_measure_contexts() -> bool {
    is_x86_feature_detected!("bmi2")
}

/// Adds the model of a machine, where one is asked for.
fn choose_model(args: &RecordArgs, config: &mut Config) -> Result<(), Failure> {
    if !args.model {
        return Ok(());
    }
    if !config.sampling.events.is_empty() {
        return Err(usage_error(
            "--model is for recordings that count everything, and this one samples",
            "leave -c, -F and -e out, or sample dcache-misses",
        ));
    }
    args.counting.machine.add_model(config)
}

/// Takes over which languages are read, and adds the variables that make their runtimes speak.
fn choose_languages(args: &RecordArgs, config: &mut Config) {
    config.sampling.languages = args.lang.read();
    // A process that runs already is left as it is.
    if !args.counting.machine.deterministic && !args.counting.attaches() {
        let exact = config.sampling.events.is_empty();
        config.program.additions = args.lang.additions(exact);
        config.program.sets_evaluators = args.lang.deepens_stacks(exact);
    }
}

/// Takes over which instructions are samples, and what is recorded of them.
fn choose_samples(args: &RecordArgs, config: &mut Config) -> Result<(), Failure> {
    if config.sampling.events.is_empty() {
        let options = [
            ("--filter", args.filter.is_some()),
            ("--interval-ip", args.interval_ip.is_some()),
            ("--random", args.random.is_some()),
        ];
        if let Some((option, _)) = options.iter().find(|(_, given)| *given) {
            return Err(usage_error(
                format!("{option} is about samples, and this recording counts everything"),
                "sample with -c N, as in -c 1000, or -F N",
            ));
        }
    }
    config.sampling.random_bits = args.random.unwrap_or(0);
    config.counted.code = match (&args.filter, &args.interval_ip) {
        (Some(text), _) => Some(code_filter::filter(text, &config.target, &[])?),
        (None, Some(text)) => Some(code_filter::interval_ip(text)?),
        (None, None) => None,
    };
    let graph = args.call_graph.filter(|_| !args.no_call_graph);
    let of_counts = matches!(graph, Some(CallGraph::Exact | CallGraph::Inferred));
    if of_counts && !config.sampling.events.is_empty() {
        return Err(usage_error(
            "--call-graph exact and inferred are for recordings that count everything, and this one \
             samples",
            "leave -c, -F and -e out, or --call-graph: samples have stacks",
        ));
    }
    config.sampling.stacks = !args.no_call_graph && graph != Some(CallGraph::None);
    let name = match graph {
        Some(CallGraph::Perfs(name)) => Some(name),
        Some(CallGraph::Dwarf(_)) => Some("dwarf"),
        _ => None,
    };
    if let (Some(name), false) = (name, args.quiet) {
        lwp_terminal::say!(
            "lwp: --call-graph {name}: stacks are unwound from outside, by unwind tables and, where \
             there are none, by frame pointers"
        );
    }
    Ok(())
}

/// Bytes, with K, M or G behind for larger units.
fn buffer_size(text: &str) -> Result<usize, String> {
    let bytes = crate::args::bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|bytes| *bytes > 0).ok_or("a number of bytes is wanted, as in 64K".into())
}

/// A positive time.
fn duration(seconds: f64) -> Result<Duration, Failure> {
    let usable = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    usable.ok_or_else(|| {
        usage_error(format!("'{seconds}' is no duration"), "give seconds, as in --duration 2.5")
    })
}

/// Describes the contents of a recording in a few lines.
fn holds(path: &Path, outcome: &Outcome) -> String {
    let grouped = lwp_report::number::grouped;
    let size = std::fs::metadata(path).map(|file| file.len()).unwrap_or_default();
    let Ok(recording) = profiles::read(path) else { return String::new() };
    let mut text = format!(
        "lwp: {}: {} bytes, {} processes, {} threads, {} blocks of {} modules\n",
        printable(&path.display().to_string()),
        grouped(size),
        outcome.processes.len(),
        recording.threads.len(),
        grouped(recording.blocks.len() as u64),
        recording.modules.values().filter(|module| !module.is_anonymous()).count()
    );
    if !recording.events.is_empty() {
        let frames = grouped(recording.frames.len() as u64);
        text.push_str(&format!(
            "lwp: {} different stacks, {frames} frames\n",
            recording.samples.len()
        ));
    }
    text
}

/// Returns the facts about a run that its recording keeps.
fn info(args: &RecordArgs, exact: bool) -> Vec<(String, String)> {
    let read = |path: &str| {
        std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let directory = std::env::current_dir().unwrap_or_default();
    let machine = &args.counting.machine;
    let cpu = machine.cpu.map_or("default".to_owned(), |cpu| format!("{cpu:?}"));
    let filter = args.filter.clone().or(args.interval_ip.clone()).unwrap_or_default();
    let mut info = [
        ("command", args.counting.title()),
        ("arguments", args.counting.arguments()),
        ("mode", if exact { "exact" } else { "sampled" }.to_owned()),
        ("lwp", env!("CARGO_PKG_VERSION").to_owned()),
        ("started", started.to_string()),
        ("host", read("/proc/sys/kernel/hostname")),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("directory", directory.display().to_string()),
        ("cpu", cpu),
        ("deterministic", machine.deterministic.to_string()),
        ("languages", args.lang.text()),
        ("filter", filter),
        ("random", args.random.unwrap_or(0).to_string()),
        ("cgroup", lwp_vcpu::doctor::control_group()),
        ("container", lwp_vcpu::doctor::container_id()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec();
    let facts = provenance::facts(&directory, &|name| std::env::var(name).ok());
    info.extend(facts);
    if let Ok(Target::Launch { program, .. }) = program::launch(&args.counting.command)
        && let Some(compilers) = compilers::of(&program)
    {
        info.push(("compilers".to_owned(), compilers));
    }
    if args.model {
        info.push(("model".to_owned(), machine.lwp.caches().to_string()));
    }
    info.extend(args.tags.iter().map(|(key, value)| (format!("tag.{key}"), value.clone())));
    info
}

/// A tag, as KEY=VALUE.
fn tag(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "a key and a value are wanted, as in --tag machine=ci-3".to_owned())
}

/// Reads the recording again, and adds the names of what was executed: the files that have them may
/// be others when somebody asks. A recording without them can be read all the same.
fn named(args: &RecordArgs, recorder: &Recorder) -> Result<Recording, Failure> {
    let mut recording = recorder.read_back()?;
    if !args.no_names {
        // Reports ask for what is missing here, so that nobody waits for a recording.
        let names = NameArgs { no_debuginfod: true, ..args.names.clone() };
        let options = Search { held: recorder.held_files(), ..names.options() };
        recording.names = lwp_symbols::names(&recording, &options);
    }
    Ok(recording)
}

/// The hottest functions, and what to type next.
fn summary(path: &Path, recording: &Recording, outcome: &Outcome) -> Result<String, Failure> {
    if recording.events.is_empty() {
        check(recording, outcome)?;
    }
    let names = profiles::NameArgs::offline();
    let profile = profiles::resolve_to(Detail::Functions, path, recording, &names);
    let time = recording.native.as_ref().and_then(|_| profile.event(Event::TIME));
    let options = Options { event: time.unwrap_or(0), ..Options::default() };
    let mut table = Table::new(&profile, &options);
    table.uncounted = recording.is_uncounted();
    let mut text = String::from("\n");
    text.push_str(&samples(recording));
    text.push_str(&lwp_report::text::table(&table, Some(HOTTEST)));
    if let Some(advice) = languages::advice(recording, &profile) {
        text.push_str(&format!("lwp: {advice}\n"));
    }
    if let Some(advice) = languages::by_samples(recording) {
        text.push_str(&format!("lwp: {advice}\n"));
    }
    if let Some(advice) = languages::without_functions(recording) {
        text.push_str(&format!("lwp: {advice}\n"));
    }
    if recording.info("deterministic") == "true" {
        text.push_str(&c_libraries(recording));
    }
    let file = match path == Path::new(DEFAULT_FILE) {
        true => String::new(),
        false => format!(" -i {}", super::shell_word(&path.display().to_string())),
    };
    let hottest = table.rows.first().and_then(|row| row.keys.last()).cloned().unwrap_or_default();
    text.push_str(&format!("\nlwp: wrote {}. Next:\n", printable(&path.display().to_string())));
    text.push_str(&format!("  lwp report{file}\n"));
    if !hottest.is_empty() {
        let hottest = super::shell_word(&hottest);
        text.push_str(&format!("  lwp annotate{file} {hottest}\n"));
    }
    text.push_str(&format!("  lwp flamegraph{file} -o flame.html\n"));
    Ok(text)
}

/// Names the program's C libraries: counts are the same elsewhere as far as these are.
fn c_libraries(recording: &Recording) -> String {
    let mut lines = BTreeSet::new();
    for module in recording.modules.values() {
        let (path, build_id) = (module.path.clone(), module.build_id.clone());
        let module = Module { path, build_id, ..Module::default() };
        let build = match module.build_id.is_empty() {
            true => "which has no build id".to_owned(),
            false => format!("build id {}", module.build_id_hex()),
        };
        if lwp_report::libc::is_c_library(module.name()) {
            let name = printable(module.name());
            lines.insert(format!("lwp: these counts hold for {name}, {build}\n"));
        }
    }
    lines.into_iter().collect()
}

/// Returns the number of samples of each event, and the number of events that they stand for.
fn samples(recording: &Recording) -> String {
    let mut text = String::new();
    // Of time, the recorder says more.
    let counted = |event: &SampledEvent| !event.is_time() && !event.is_spans();
    for (index, event) in recording.events.iter().enumerate().filter(|(_, it)| counted(it)) {
        let samples = recording.samples.iter().filter(|(s, _)| s.event as usize == index);
        let taken: u64 = samples.map(|(_, times)| times).sum();
        let all: u64 = recording.sampled.values().filter_map(|counts| counts.get(index)).sum();
        let none = if taken == 0 { no_samples(event, all) } else { String::new() };
        let [taken, interval, all] = [taken, event.interval, all].map(lwp_report::number::grouped);
        let about = if !matches!(recording.info("random"), "" | "0") { "about " } else { "" };
        let filter = match recording.info("filter") {
            "" => String::new(),
            filter => format!(" in {}", printable(filter)),
        };
        text.push_str(&format!(
            "# {taken} samples of {}{filter}, one in {about}{interval} of {all}\n",
            printable(&event.name)
        ));
        text.push_str(&none);
    }
    text
}

/// Samples that show most of what a program does.
const ENOUGH: u64 = 1000;

/// Advises on an event that occurred so many times, but of which no sample was taken.
fn no_samples(event: &SampledEvent, all: u64) -> String {
    if all == 0 {
        return format!("lwp: no samples: there were no {} to sample\n", event.name);
    }
    let interval = rounded((all / ENOUGH).max(1));
    let option = match event.name.as_str() {
        "instructions" => format!("-c {interval}"),
        name => format!("-e {name}:c={interval}"),
    };
    format!(
        "lwp: no samples: the program ended before the first was due. Sample more often, as with {option}, or \
         leave -c, -F and -e out: then everything is counted\n"
    )
}

/// `number` with its first digit alone.
fn rounded(number: u64) -> u64 {
    let unit = 10u64.pow(number.checked_ilog10().unwrap_or(0));
    number / unit * unit
}

/// The recording must say the same as the counts.
fn check(recording: &Recording, outcome: &Outcome) -> Result<(), Failure> {
    let (recorded, counted) = (recording.instructions(), outcome.counts().instructions);
    if recorded == counted {
        return Ok(());
    }
    Err(Failure::new(
        OWN_FAILURE,
        format!("the recording has {recorded} instructions, but {counted} were counted"),
    )
    .with_help("this is an error in lwp; `lwp stat` has the true sum"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_sample_there_is_advice() {
        let event = |name: &str| SampledEvent { name: name.into(), ..SampledEvent::default() };
        assert!(no_samples(&event("instructions"), 3_214_567).contains("with -c 3000, or"));
        assert!(no_samples(&event("instructions"), 12).contains("with -c 1, or"));
        assert!(no_samples(&event("calls"), 99_999).contains("with -e calls:c=90, or"));
        assert!(no_samples(&event("calls"), 0).contains("there were no calls"));
    }
}
