//! `lwp gate`: fails when a count is above its limit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use lwp_profile::{Event, Modelled, Profile, Recording, SampledEvent};
use lwp_report::gate::{Benchmark, Format, Verdict};
use lwp_terminal::escape::printable;

use crate::args::{Command, CommandLine, usage_error};
use crate::comparing::{self, MapArgs};
use crate::compilers;
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::gate::counted;
use crate::gate::judge::{Compared, judge, needs_baseline};
use crate::gate::recordings::{self, Found, Recorded};
use crate::gate::rules::Rules;
use crate::profiles::{self, InputArgs};

/// Exit code when a limit is exceeded.
const EXCEEDED: u8 = 3;

/// `lwp gate`.
#[derive(Args, Clone, Debug, Default)]
pub struct GateArgs {
    /// The recording.
    #[command(flatten)]
    pub input: InputArgs,

    /// Recordings of several benchmarks, or directories of them; a file NAME.data is the benchmark
    /// NAME
    #[arg(value_name = "RECORDING", conflicts_with_all = ["input", "command"])]
    pub recordings: Vec<PathBuf>,

    /// Compare with this recording, or several recordings with the files of this directory. A
    /// missing baseline is made from the recordings, with a message
    #[arg(short, long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// Make the recordings the new baseline, without a check
    #[arg(long)]
    pub bless: bool,

    /// Fail if there is no baseline, instead of making one
    #[arg(long, conflicts_with = "bless")]
    pub require_baseline: bool,

    /// Fail above this limit: instructions=+0.5%, branches=+1000 or instructions=2_000_000; in
    /// recordings of time, cpu-time=+5%, in nanoseconds unless in per cent
    #[arg(short, long = "limit", value_name = "EVENT=LIMIT")]
    pub limits: Vec<String>,

    /// Fail above this count, whatever the baseline: instructions=2_000_000
    #[arg(long = "hard", value_name = "EVENT=COUNT")]
    pub hard: Vec<String>,

    /// Read baseline and limits from FILE [default: lwp.toml, if there is one]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Compare although the runs differ in these properties, separated by commas: arguments, mode
    /// (sampled or not), determinism, naming, events
    #[arg(long, value_name = "PROPERTIES", value_delimiter = ',')]
    pub allow_different: Vec<String>,

    /// Files that are compared with each other.
    #[command(flatten)]
    pub maps: MapArgs,

    /// Write the verdict as text, markdown, junit, json, github or sarif
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: String,

    /// Write the verdict to FILE; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,

    /// Also write the verdict in FORMAT to FILE
    #[arg(long = "write", value_name = "FORMAT=FILE")]
    pub writes: Vec<String>,

    /// Draw a differential flame graph of each benchmark that has changed into DIR
    #[arg(long, value_name = "DIR")]
    pub flamegraphs: Option<PathBuf>,

    /// Link the flame graphs in Markdown below this address; {name} stands for the name of a
    /// picture's file
    #[arg(long, value_name = "URL", requires = "flamegraphs")]
    pub flamegraphs_url: Option<String>,

    /// Record PROGRAM with --model, for limits of modelled-cycles
    #[arg(long, requires = "command")]
    pub model: bool,

    /// Record PROGRAM without --deterministic
    #[arg(long, requires = "command")]
    pub no_deterministic: bool,

    /// Record this program first, with --deterministic: another machine counts the same; with
    /// --time if cpu-time is limited
    #[arg(value_name = "PROGRAM", last = true)]
    pub command: Vec<OsString>,
}

/// Checks, or makes a new baseline.
pub fn execute(args: &GateArgs) -> Result<Ending, Failure> {
    let rules = rules(args)?;
    let outputs = outputs(args)?;
    if !args.bless {
        if rules.is_empty() {
            return Err(usage_error(
                "there is no limit to check",
                "give one: --limit instructions=+0.5%, or [gate.limits] in lwp.toml",
            ));
        }
        needs_baseline(rules.relative(), rules.baseline.is_some())?;
    }
    let found = recordings::find(&args.recordings, &args.input.input)?;
    if let Some(baseline) = &rules.baseline {
        found.refuse_baseline(baseline)?;
    }
    if !args.command.is_empty() {
        let models = if args.model { &Modelled::NAMES[..] } else { &[] };
        let known = match times(&rules) {
            true => vec![Event::TIME],
            false => [&Event::EXACT[..], models].concat(),
        };
        rules.refuse_unknown(&known, None)?;
        let ending = record(args, &rules)?;
        if ending != Ending::SUCCESS {
            lwp_terminal::say!("lwp: the program failed, so nothing was compared");
            return Ok(ending);
        }
        refuse_interrupted(&args.input.input)?;
    }
    if args.bless {
        return bless(&rules, &found);
    }
    let verdict = verdict(args, &rules, &found)?;
    for (format, file) in outputs {
        profiles::write_text(&file, &verdict.render(format))?;
    }
    Ok(if verdict.passes() { Ending::SUCCESS } else { Ending::Code(EXCEEDED) })
}

/// The command line's rules over the file's.
fn rules(args: &GateArgs) -> Result<Rules, Failure> {
    let mut rules = Rules::read(args.config.as_deref())?;
    rules.add(&args.limits, &args.hard)?;
    if args.baseline.is_some() {
        rules.baseline.clone_from(&args.baseline);
    }
    Ok(rules)
}

/// The formats that are asked for, and where each goes.
fn outputs(args: &GateArgs) -> Result<Vec<(Format, PathBuf)>, Failure> {
    let named = |name: &str| {
        Format::named(name).ok_or_else(|| {
            let help = format!("formats are: {}", Format::NAMES);
            usage_error(format!("no format is called '{name}'"), help)
        })
    };
    let mut outputs = vec![(named(&args.format)?, args.output.clone())];
    for text in &args.writes {
        let (format, file) = text.split_once('=').ok_or_else(|| {
            usage_error(format!("'{text}' has no '='"), "write --write FORMAT=FILE")
        })?;
        outputs.push((named(format)?, PathBuf::from(file)));
    }
    Ok(outputs)
}

/// Returns whether time is limited, which takes recordings of their own.
fn times(rules: &Rules) -> bool {
    rules.events(None).contains(Event::TIME)
}

/// Records the program, and returns how it ended.
fn record(args: &GateArgs, rules: &Rules) -> Result<Ending, Failure> {
    let mut words: Vec<OsString> = ["lwp", "record", "-q", "-o"].map(OsString::from).into();
    words.push(args.input.input.clone().into());
    if times(rules) {
        words.push("--time".into());
    } else {
        // A verdict on functions' own counts needs no contexts, which take time to measure.
        let callers = if rules.need_contexts() { "exact" } else { "inferred" };
        words.extend(["--call-graph", callers].map(OsString::from));
        if !args.no_deterministic {
            words.push("--deterministic".into());
        }
    }
    if args.model {
        words.push("--model".into());
    }
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    let line = <CommandLine as clap::Parser>::try_parse_from(words);
    match line.map_err(|error| Failure::usage(&error))?.command {
        Command::Record(args) => super::record::execute_first(&args),
        _ => Err(Failure::new(OWN_FAILURE, "this is not a recording")),
    }
}

/// Fails if the run that was just recorded was interrupted. The program may have ended well all
/// the same, but it may not have done all of its work.
fn refuse_interrupted(path: &Path) -> Result<(), Failure> {
    let recording = profiles::read(path)?;
    match recording.info("interrupted") {
        "" => Ok(()),
        signal => {
            let cause = format!("the run was interrupted ({signal}): nothing was compared");
            Err(Failure::new(OWN_FAILURE, cause).with_help("run the gate again"))
        }
    }
}

/// Makes every recording the baseline of its benchmark.
fn bless(rules: &Rules, found: &Found) -> Result<Ending, Failure> {
    let Some(baseline) = &rules.baseline else {
        return Err(usage_error(
            "there is no place for a baseline",
            "name one with --baseline FILE, or in lwp.toml",
        ));
    };
    // What is no recording, or one of nothing, shall not become a baseline; then nothing does.
    let fixed = |one: &Recorded| {
        let recording = read(&one.path)?;
        Ok(recording.info("deterministic") == "true" || is_time(&recording))
    };
    let fixed: Result<Vec<bool>, Failure> = found.all.iter().map(fixed).collect();
    for (one, fixed) in found.all.iter().zip(fixed?) {
        let place = found.baseline_of(baseline, one);
        recordings::keep(&one.path, &place)?;
        let [to, from] = [&place, &one.path].map(|path| printable(&path.display().to_string()));
        lwp_terminal::say!("lwp: wrote the baseline {to} from {from}");
        if !fixed {
            lwp_terminal::say!("lwp: {}", printable(&uncertain(&one.path)));
        }
    }
    Ok(Ending::SUCCESS)
}

/// Reads a recording whose counts can be relied upon.
fn read(path: &Path) -> Result<Recording, Failure> {
    let recording = profiles::read_whole(path)?;
    counted::refuse_uncounted(path, &recording)?;
    Ok(recording)
}

/// Returns whether time was recorded, and no counts.
fn is_time(recording: &Recording) -> bool {
    recording.events.iter().any(SampledEvent::is_time)
}

/// What a comparison of two recordings of time cannot tell.
const ONE_RUN: &str = "times differ from run to run and from machine to machine: ± is the chance \
                       of sampling alone";

fn uncertain(path: &Path) -> String {
    format!(
        "{} was recorded without --deterministic: on another machine, or in another environment, its counts may be \
         others",
        path.display()
    )
}

/// Judges every recording.
fn verdict(args: &GateArgs, rules: &Rules, found: &Found) -> Result<Verdict, Failure> {
    let mut verdict = Verdict { pictures: args.flamegraphs_url.clone(), ..Verdict::default() };
    let mut fresh = Vec::new();
    for one in &found.all {
        let place = rules.baseline.as_deref().map(|baseline| found.baseline_of(baseline, one));
        let mut benchmark = benchmark(args, rules, one, place.as_deref())?;
        fresh.extend(place.clone().filter(|place| !place.exists()).map(|place| (one, place)));
        if let Some(dir) = &args.flamegraphs
            && !benchmark.changed.is_empty()
            && let Some(before) = &place
        {
            benchmark.picture = Some(draw((args, dir), before, one, &benchmark.event)?);
        }
        verdict.benchmarks.push(benchmark);
    }
    // Only now: if one cannot be judged, none becomes a baseline.
    for (one, place) in fresh {
        recordings::keep(&one.path, &place)?;
    }
    let names: Vec<&str> = found.all.iter().map(|one| one.name.as_str()).collect();
    let idle = rules.idle(&names).into_iter();
    verdict.notes.extend(idle.map(|pattern| format!("no benchmark is called '{pattern}'")));
    if let Some(baseline) = rules.baseline.as_deref().filter(|_| found.many) {
        let missing = recordings::missing(baseline, &found.all);
        if !missing.is_empty() {
            verdict
                .notes
                .push(format!("not recorded, but in the baseline: {}", missing.join(", ")));
        }
    }
    Ok(verdict)
}

/// Judges one recording by the baseline that is at `place`, or will be.
fn benchmark(
    args: &GateArgs,
    rules: &Rules,
    one: &Recorded,
    place: Option<&Path>,
) -> Result<Benchmark, Failure> {
    let names = &args.input.names();
    let recording = read(&one.path)?;
    names.check(&recording)?;
    let mut notes = Vec::new();
    let before = match place {
        Some(path) if path.exists() => Some((path, read(path)?)),
        Some(path) if args.require_baseline => {
            let cause = format!("{}: there is no such baseline", path.display());
            return Err(usage_error(cause, "make it with `lwp gate --bless`"));
        }
        Some(path) => {
            notes.push(format!(
                "there was no baseline: {} is one now; commit it, or keep it in a cache",
                path.display()
            ));
            None
        }
        None => None,
    };
    let after = profiles::resolve_whole(&one.path, &recording, names);
    let before: Option<Profile> = match before {
        Some((path, before)) => {
            counted::refuse_fewer(&before, &recording)?;
            let before = profiles::resolve_whole(path, &before, names);
            comparing::refuse(&before, &after, &args.allow_different)?;
            notes.extend(compilers::difference(&before, &after));
            Some(before)
        }
        None => None,
    };
    let known: Vec<&str> = after.events.iter().map(|event| event.name.as_str()).collect();
    rules.refuse_unknown(&known, Some(&one.name))?;
    let maps = &args.maps;
    let compared = Compared { name: &one.name, before: before.as_ref(), after: &after, maps };
    let mut benchmark = judge(rules, &compared)?;
    if place.is_some() && is_time(&recording) {
        notes.push(ONE_RUN.to_owned());
    } else if place.is_some() && recording.info("deterministic") != "true" {
        notes.push(uncertain(&one.path));
    }
    notes.extend(rules.unlimited(&one.name));
    benchmark.notes.extend(notes);
    Ok(benchmark)
}

/// Draws what has changed, and returns the name of the file in `dir`.
fn draw(
    (args, dir): (&GateArgs, &Path),
    before: &Path,
    one: &Recorded,
    event: &str,
) -> Result<String, Failure> {
    let name = if one.name.is_empty() { "lwp" } else { &one.name };
    let name = format!("{name}.svg");
    let file = dir.join(&name);
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Failure::io(parent.display(), &error))?;
    }
    let args = super::flamegraph::FlamegraphArgs {
        input: InputArgs { input: one.path.clone(), ..InputArgs::default() },
        output: file,
        event: Some(event.to_owned()),
        baseline: Some(before.to_owned()),
        maps: args.maps.clone(),
        min_width: 0.3,
        ..Default::default()
    };
    super::flamegraph::execute(&args)?;
    Ok(name)
}
