//! The command line, as clap sees it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use lwp_terminal::escape::printable;
use lwp_vcpu::config::{Guards, Trials};
use lwp_vcpu::{Cache, Config, CpuModel, Plan, Target};

use crate::counting::CountingArgs;
use crate::lwp_args::LwpArgs;

use crate::commands::annotate::AnnotateArgs;
use crate::commands::archive::ArchiveArgs;
use crate::commands::cache::travel::{CacheExportArgs, CacheImportArgs};
use crate::commands::diff::DiffArgs;
use crate::commands::export::ExportArgs;
use crate::commands::flamegraph::FlamegraphArgs;
use crate::commands::gate::GateArgs;
use crate::commands::merge::MergeArgs;
use crate::commands::optimize::OptimizeArgs;
use crate::commands::record::RecordArgs;
use crate::commands::report::ReportArgs;
use crate::commands::script::ScriptArgs;
#[cfg(feature = "page")]
use crate::commands::serve::ServeArgs;
use crate::commands::top::TopArgs;
use crate::failure::{self, Failure};
use crate::headings;

/// Count exactly what unmodified programs execute, without hardware counters.
#[derive(Debug, Parser)]
#[command(
    name = "lwp",
    version,
    propagate_version = true,
    after_help = "The exit status is the program's own. 125: lwp itself failed; 126: the program \
                  cannot be executed; 127: it was not found."
)]
pub struct CommandLine {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program and count its events exactly
    Stat(StatArgs),
    /// Run a program on the virtual CPU without counting
    #[command(mut_arg("lwp_events", |arg| arg.visible_alias("events")))]
    Run(RunArgs),
    /// Run a program and record its execution by function, line and instruction
    Record(RecordArgs),
    /// Show the hottest functions of a program while it runs
    Top(TopArgs),
    /// Show a recording as a table by function, line, thread or other keys
    Report(ReportArgs),
    /// Show a function's source and instructions with counts
    Annotate(AnnotateArgs),
    /// Compare two recordings
    Diff(DiffArgs),
    /// Draw a recording as a flame graph
    Flamegraph(FlamegraphArgs),
    /// Show recordings as pages in a browser on this machine
    #[cfg(feature = "page")]
    Serve(ServeArgs),
    /// Convert a recording for other tools: perf, pprof, KCachegrind, Firefox Profiler …
    #[command(after_help = crate::commands::export::formats())]
    Export(ExportArgs),
    /// Fail if a program executes more than its limits allow
    Gate(GateArgs),
    /// Print a recording as lines of text, for scripts
    Script(ScriptArgs),
    /// Pack a recording and the files that it needs into one file
    Archive(ArchiveArgs),
    /// Merge several recordings into one: several runs of a program, or the programs of a test
    /// suite
    Merge(MergeArgs),
    /// Record a program, have BOLT optimise it for that run, and compare the two programs
    Optimize(OptimizeArgs),
    /// List the events that `lwp stat -e` counts
    List,
    /// Behave like perf: stat, record, report, script, list. A link to lwp that is named perf does
    /// the same
    #[command(disable_version_flag = true, disable_help_flag = true)]
    Perf {
        /// perf's command and options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Keep and compare the recordings of many machines and commits, and query them with SQL. This
    /// runs the program lwp-fleet, which you install separately
    #[command(disable_version_flag = true, disable_help_flag = true)]
    Fleet {
        /// Command and options of lwp-fleet
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Behave like `valgrind --tool=callgrind` and write its files. A link to lwp that is named
    /// valgrind does the same
    #[command(disable_version_flag = true, disable_help_flag = true)]
    Valgrind {
        /// valgrind's options, program and arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Manage the cache: translations, which make second runs start faster, and copies of recorded
    /// programs and libraries
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Check whether this machine allows everything that lwp does, and suggest remedies
    Doctor,
    /// Print a shell completion script
    Completions {
        /// The shell to write it for.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// The directory for them; created if missing.
        dir: PathBuf,
    },
}

/// `lwp cache`.
#[derive(Clone, Debug, Subcommand)]
pub enum CacheCommand {
    /// List the kept files, most recently used first
    List,
    /// Read every file in full and remove damaged ones; exit code 1 if there were any
    Verify,
    /// Remove the least recently used files, down to the limit (LWP_CACHE_LIMIT, 2G)
    Prune,
    /// Remove everything
    Clear,
    /// Write translations and execution profiles into one file, for other machines with the same
    /// lwp and the same programs and libraries (by build id)
    Export(CacheExportArgs),
    /// Import translations and execution profiles of this machine's programs from a file that `lwp
    /// cache export` has written. lwp executes them in place of the programs' own code, and checks
    /// them only for damage: trust such a file no more than a program from the same source
    Import(CacheImportArgs),
    /// Translate programs and their libraries ahead of time: the code that earlier runs executed if
    /// there is an execution profile, otherwise every function. lwp doesn't run the programs, only
    /// their dynamic linker, to find out what is mapped where
    Warm {
        /// Dynamically linked programs.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Translate every function, even if there is an execution profile
        #[arg(long, conflicts_with = "from")]
        functions: bool,
        /// Translate only the code that was executed in this exact recording, the most executed
        /// code first
        #[arg(long, value_name = "RECORDING")]
        from: Option<PathBuf>,
    },
}

/// `lwp stat`.
#[derive(Args, Clone, Debug, Default)]
pub struct StatArgs {
    /// Count these events, separated by commas, with perf's modifiers or without; `lwp list` shows
    /// all events [default: task-clock and all exact counts]
    #[arg(short, long = "event", value_name = "EVENTS", action = clap::ArgAction::Append)]
    pub events: Vec<String>,

    /// Run the program N times and print mean and spread; 0 repeats until interrupted
    #[arg(short, long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
        conflicts_with_all = ["pid", "tid"])]
    pub repeat: u32,

    /// Print values separated by SEP, in perf's column order
    #[arg(short = 'x', long, value_name = "SEP", conflicts_with = "json")]
    pub field_separator: Option<String>,

    /// Print one JSON object per line, with perf's keys
    #[arg(short = 'j', long = "json-output")]
    pub json: bool,

    /// Write the counts to FILE instead of standard error; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Add to the file of -o instead of replacing it
    #[arg(long, requires = "output")]
    pub append: bool,

    /// Report each thread separately
    #[arg(long, conflicts_with_all = ["per_process", "repeat"])]
    pub per_thread: bool,

    /// Report each process separately; an exec starts a new one
    #[arg(long, conflicts_with = "repeat")]
    pub per_process: bool,

    /// Print the counts of each interval of MS milliseconds, while the program runs
    #[arg(short = 'I', long, value_name = "MS", conflicts_with = "repeat",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub interval_print: Option<u64>,

    /// Also count misses of modelled data caches (--cache) and mispredicted branches, and estimate
    /// cycles
    #[arg(long, conflicts_with = "interval_print")]
    pub model: bool,

    /// Print large numbers with thousands separators (default)
    #[arg(long, overrides_with = "no_big_num")]
    pub big_num: bool,

    /// Print large numbers without thousands separators
    #[arg(long, overrides_with = "big_num")]
    pub no_big_num: bool,

    /// Print derived figures next to the counts, such as branches in per cent of instructions
    /// (default)
    #[arg(long, overrides_with = "no_metric")]
    pub metric: bool,

    /// Print only the counts
    #[arg(long, overrides_with = "metric")]
    pub no_metric: bool,

    /// The program, and the time in which it is counted.
    #[command(flatten)]
    pub counting: CountingArgs,
}

/// `lwp run`.
#[derive(Args, Clone, Debug, Default)]
pub struct RunArgs {
    /// The processor and its surroundings.
    #[command(flatten)]
    pub machine: MachineArgs,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
}

/// Options of every command that runs a program.
#[derive(Args, Clone, Debug, Default)]
pub struct MachineArgs {
    /// Get the same counts on every machine: fix layout, environment, random numbers, time stamps
    /// and processor
    #[arg(long, conflicts_with = "aslr", help_heading = headings::RUN)]
    pub deterministic: bool,

    /// Seed everything random under --deterministic with N
    #[arg(long, value_name = "N", default_value_t = 0, requires = "deterministic",
        help_heading = headings::RUN)]
    pub seed: u64,

    /// Add a variable to the fixed environment of --deterministic (PATH, HOME, LC_ALL, TZ), with
    /// VALUE, or with the value that it has in lwp's own environment
    #[arg(long, value_name = "NAME[=VALUE]", requires = "deterministic",
        help_heading = headings::RUN)]
    pub env: Vec<OsString>,

    /// Fail, or run the program natively and uncounted, on a machine that doesn't allow the virtual
    /// CPU
    #[arg(long, value_name = "ACTION", default_value = "fail", help_heading = headings::RUN)]
    pub fallback: Fallback,

    /// Leave address space randomisation on; counts may then vary between runs
    #[arg(long, help_heading = headings::RUN)]
    pub aslr: bool,

    /// Neither load nor save translations (see `lwp cache`), and save no copies of recorded
    /// programs and libraries
    #[arg(long, help_heading = headings::RUN)]
    pub no_cache: bool,

    /// Keep translations in DIR instead of the user's cache
    #[arg(long, value_name = "DIR", conflicts_with = "no_cache", help_heading = headings::RUN)]
    pub cache_dir: Option<PathBuf>,

    /// End the run after MS milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..),
        allow_negative_numbers = true, help_heading = headings::RUN)]
    pub timeout: Option<u64>,

    /// Print more: why translations are not kept, why the run was slow, the contents of a recording
    #[arg(short, long)]
    pub verbose: bool,

    /// Present this processor to the program [default: host; x86-64-v3 with --deterministic]
    #[arg(long, value_name = "CPU", help_heading = headings::HARDWARE)]
    pub cpu: Option<Cpu>,

    /// Lightweight Profiling.
    #[command(flatten)]
    pub lwp: LwpArgs,
}

/// The choices of `--fallback`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum)]
pub enum Fallback {
    /// Explain why, and exit with 125 without running the program
    #[default]
    Fail,
    /// Run the program natively, and explain why it wasn't counted
    Native,
}

/// The environment under --deterministic, before what is added.
const FIXED_ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", "/nonexistent"),
    ("LC_ALL", "C"),
    ("TZ", "UTC0"),
];

/// The fixed environment with the variables of `--env`; those are looked up with `ours` where they
/// have no value.
fn fixed_environment(
    added: &[OsString],
    ours: impl Fn(&OsStr) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let fixed = FIXED_ENVIRONMENT.iter().map(|(name, value)| (name.into(), value.into()));
    let mut environment: Vec<(OsString, OsString)> = fixed.collect();
    for variable in added {
        let bytes = variable.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => {
                let [name, value] = [&bytes[..at], &bytes[at + 1..]].map(OsStr::from_bytes);
                (name.to_owned(), Some(value.to_owned()))
            }
            None => (variable.clone(), ours(variable)),
        };
        environment.retain(|(known, _)| *known != name);
        environment.extend(value.map(|value| (name, value)));
    }
    environment
}

/// The choices of `--cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cpu {
    /// This machine's own, minus what cannot be translated
    #[value(name = "host")]
    Host,
    /// Up to SSE4.2 and POPCNT
    #[value(name = "x86-64-v2")]
    V2,
    /// Up to AVX2, BMI and FMA
    #[value(name = "x86-64-v3")]
    V3,
    /// Up to AVX-512 F, BW, CD, DQ and VL
    #[value(name = "x86-64-v4")]
    V4,
    /// This machine's own up to AVX2, with the Lightweight Profiling of a Bulldozer
    #[value(name = "bulldozer")]
    Bulldozer,
    /// This machine's own up to AVX2, with the Lightweight Profiling of a Steamroller
    #[value(name = "steamroller")]
    Steamroller,
    /// This machine's own up to AVX2, with the Lightweight Profiling of a 4700S
    #[value(name = "4700s")]
    Amd4700s,
    /// The default processor with all of Lightweight Profiling; same as no --cpu
    #[value(name = "full")]
    Full,
}

impl Cpu {
    /// The part whose LWP is shown.
    pub fn lwp_part(self) -> &'static str {
        match self {
            Self::Bulldozer => "bulldozer",
            Self::Steamroller => "steamroller",
            Self::Amd4700s => "4700s",
            Self::Host | Self::V2 | Self::V3 | Self::V4 | Self::Full => "full",
        }
    }

    /// Returns whether it is named for its LWP.
    pub fn names_lwp(self) -> bool {
        self.model().is_none()
    }

    /// Returns whether it has the LWP of a part that was sold: all of these have the shipped form.
    pub fn is_part(self) -> bool {
        matches!(self, Self::Bulldozer | Self::Steamroller | Self::Amd4700s)
    }

    /// The processor otherwise, where it is not the default.
    fn model(self) -> Option<CpuModel> {
        match self {
            Self::Host => Some(CpuModel::Host),
            Self::V2 => Some(CpuModel::V2),
            Self::V3 => Some(CpuModel::V3),
            Self::V4 => Some(CpuModel::V4),
            Self::Bulldozer | Self::Steamroller | Self::Amd4700s | Self::Full => None,
        }
    }
}

impl MachineArgs {
    /// The timeout as a duration.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_millis)
    }

    /// The processor to show. A deterministic run must not depend on the host's, so it has a fixed
    /// default.
    fn cpu_model(&self) -> CpuModel {
        match self.cpu.and_then(Cpu::model) {
            Some(model) => model,
            None if self.deterministic => CpuModel::V3,
            None if self.cpu.is_some_and(Cpu::is_part) => CpuModel::HostAvx,
            None => CpuModel::Host,
        }
    }

    /// The configuration of a run of `target` under these options.
    pub fn config(&self, target: Target, plan: Plan) -> Config {
        if self.deterministic && !lwp_vcpu::doctor::layout_can_be_fixed() {
            lwp_terminal::say!(
                "lwp: personality(2) is refused here: addresses are random, and counts may differ from run \
                 to run in spite of --deterministic; see `lwp doctor`"
            );
        }
        if self.lwp.is_of_2007() && self.cpu.is_some_and(Cpu::is_part) {
            lwp_terminal::say!(
                "lwp: no processor had Lightweight Profiling in the form of 2007, so --cpu only \
                 affects the rest of the processor"
            );
        }
        let mut config = Config::launch(PathBuf::new(), Vec::new(), plan);
        let attaches = matches!(target, Target::Attach { .. });
        config.target = target;
        config.cpu = self.cpu_model();
        config.lwp = self.lwp.config(self.cpu, attaches);
        config.program.aslr = self.aslr;
        config.kept.cache = if self.no_cache { None } else { cache(self.cache_dir.as_deref()) };
        if self.verbose && !self.no_cache {
            say_why_not_kept(config.kept.cache.as_ref());
        }
        config.program.deterministic = self.deterministic;
        config.program.seed = self.seed;
        config.program.environment =
            self.deterministic.then(|| fixed_environment(&self.env, |name| std::env::var_os(name)));
        config.program.native_fallback = self.fallback == Fallback::Native;
        config.program.timeout = self.timeout();
        config.trials = trials();
        config
    }
}

/// Reads the settings for trials and tests from the environment.
fn trials() -> Trials {
    let is = |name, wanted: &str| std::env::var_os(name).is_some_and(|value| value == wanted);
    let number = |name| std::env::var(name).ok();
    Trials {
        guards: match () {
            () if is("LWP_GUARD", "0") => Guards::Off,
            () if is("LWP_GUARD", "user") => Guards::UserMode,
            () if is("LWP_GUARD", "protect") => Guards::Protection,
            () => Guards::Best,
        },
        arena_bytes: number("LWP_ARENA_BYTES").and_then(|bytes| bytes.parse().ok()),
        waste: number("LWP_WASTE").and_then(|fragments| fragments.parse().ok()),
        improve: number("LWP_IMPROVE")
            .and_then(|after| Some(Duration::from_millis(after.parse().ok()?))),
        far: !is("LWP_FAR", "0"),
        keeps: !is("LWP_KEEP", "0"),
        trace: std::env::var_os("LWP_TRACE").is_some(),
    }
}

impl MachineArgs {
    /// Has the misses of `--cache` counted instruction by instruction.
    pub fn add_model(&self, config: &mut Config) -> Result<(), Failure> {
        if !lwp_vcpu::can_watch_caches() {
            return Err(usage_error(
                "this processor cannot watch a modelled data cache: it lacks BMI2 or FSGSBASE",
                "leave the model out, or run on a processor that has both",
            ));
        }
        // What watches the caches is LWP's countdown.
        config.lwp = None;
        config.model = Some(self.lwp.caches());
        Ok(())
    }
}

/// Says why translations are not kept in `cache`, if so. The run itself goes on without a word.
fn say_why_not_kept(cache: Option<&Cache>) {
    match cache.map(|cache| lwp_vcpu::store::Store::open(&cache.place, cache.limit)) {
        Some(Ok(_)) => {}
        Some(Err(error)) => {
            lwp_terminal::say!("lwp: translations are not kept: {}", printable(&error.to_string()));
        }
        None => {
            lwp_terminal::say!("lwp: translations are not kept: there is no directory for them")
        }
    }
}

/// Returns the cache of translations: `dir` or the user's place, and its limit in bytes, which is
/// `LWP_CACHE_LIMIT` with K, M or G for larger units. `None` without a place.
pub fn cache(dir: Option<&Path>) -> Option<Cache> {
    let place = dir.map(Path::to_owned).or_else(lwp_vcpu::store::default_place)?;
    let limit = std::env::var("LWP_CACHE_LIMIT").ok().and_then(|text| bytes(&text));
    Some(Cache { place, limit: limit.unwrap_or(lwp_vcpu::store::DEFAULT_LIMIT) })
}

/// Says so if a limit in the environment is no number of bytes: the default holds instead.
pub fn say_wrong_limits() {
    for name in ["LWP_CACHE_LIMIT", "LWP_BUILDS_LIMIT"] {
        let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
            continue;
        };
        if value.to_str().and_then(bytes).is_none() {
            let value = printable(&value.to_string_lossy());
            lwp_terminal::say!(
                "lwp: {name}={value} is not a number of bytes such as 500M; the limit is 2G"
            );
        }
    }
}

/// A number of bytes, with K, M or G behind for larger units.
pub fn bytes(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_uppercase() {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Reads the process's command line. Help and version texts end the process here, successfully.
pub fn parse() -> Result<CommandLine, Failure> {
    let mut words = std::env::args_os();
    let name = words.next();
    if crate::valgrind::is_called_so(name.as_deref()) {
        return Ok(CommandLine { command: Command::Valgrind { words: words.collect() } });
    }
    if crate::perf::is_called_so(name.as_deref()) {
        return Ok(CommandLine { command: Command::Perf { words: words.collect() } });
    }
    let (name, words) = crate::cargo_link::own_words(name.unwrap_or_default(), words.collect());
    if let Some(command) = run_alone(&words) {
        return Ok(CommandLine { command });
    }
    let line = || std::iter::once(&name).chain(&words);
    CommandLine::try_parse_from(line()).map_err(|error| {
        if !error.use_stderr() {
            // Help or the version: standard output is where it belongs, and an error of its own.
            match error.print() {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    return Failure::io("standard output", &error);
                }
                _ => std::process::exit(0),
            }
        }
        // The refusal shows words of the command line.
        let words = line().map(|word| printable(&word.to_string_lossy()));
        Failure::usage(&CommandLine::try_parse_from(words).err().unwrap_or(error))
    })
}

/// Returns the command of a right command line that runs a program: defining the other commands too
/// takes longer than a short program runs. `None` leaves the words to the whole definition.
fn run_alone(words: &[OsString]) -> Option<Command> {
    match words.first()?.to_str()? {
        "stat" => arguments(words).map(Command::Stat),
        "run" => arguments(words).map(Command::Run),
        "record" => arguments(words).map(Command::Record),
        _ => None,
    }
}

fn arguments<A: Args>(words: &[OsString]) -> Option<A> {
    let command = A::augment_args(clap::Command::new("lwp"));
    A::from_arg_matches(&command.try_get_matches_from(words).ok()?).ok()
}

/// The command's definition, for completions and manual pages.
pub fn definition() -> clap::Command {
    CommandLine::command()
}

/// Fails with a usage error in our own words.
pub fn usage_error(cause: impl Into<String>, help: impl Into<String>) -> Failure {
    Failure::new(failure::OWN_FAILURE, cause).with_help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(words: &[&str]) -> StatArgs {
        let words = ["lwp", "stat"].iter().chain(words);
        match CommandLine::try_parse_from(words).unwrap().command {
            Command::Stat(args) => args,
            other => panic!("not stat: {other:?}"),
        }
    }

    fn refused(words: &[&str]) -> bool {
        CommandLine::try_parse_from(["lwp", "stat"].iter().chain(words)).is_err()
    }

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn commands_that_run_a_program_mean_the_same_alone() {
        let lines = [
            "stat true",
            "stat -e branches -r 3 -- gzip -e -9",
            "stat -p 12 --no-cache",
            "stat -D -1 -x, -I 100 true --help",
            "run --cpu bulldozer -- ./a.out --version",
            "record -F 999 -g -o x.data sh -c true",
            "record -c 1000003 --call-graph dwarf -- a",
        ];
        for line in lines {
            let words = words(line);
            let alone = run_alone(&words).expect(line);
            let whole = std::iter::once(OsString::from("lwp")).chain(words);
            let whole = CommandLine::try_parse_from(whole).expect(line);
            assert_eq!(format!("{alone:?}"), format!("{:?}", whole.command), "{line}");
        }
        let left = [
            "stat",
            "stat --help",
            "run -h",
            "stat --version",
            "record -V",
            "stat --bogus a",
            "report",
            "-V",
            "",
        ];
        for line in left {
            assert!(run_alone(&words(line)).is_none(), "{line}");
        }
    }

    #[test]
    fn options_of_the_program_stay_with_the_program() {
        let args = stat(&["-e", "branches", "gzip", "-e", "-9"]);
        assert_eq!(args.events, ["branches"]);
        assert_eq!(args.counting.command, ["gzip", "-e", "-9"]);
        let args = stat(&["-r", "3", "--", "-odd", "-r"]);
        assert_eq!(args.repeat, 3);
        assert_eq!(args.counting.command, ["-odd", "-r"]);
    }

    #[test]
    fn delay_takes_minus_one() {
        assert_eq!(stat(&["-D", "-1", "true"]).counting.delay, Some(-1));
        assert_eq!(stat(&["--delay", "250", "true"]).counting.delay, Some(250));
    }

    #[test]
    fn the_last_word_on_separators_counts() {
        assert!(stat(&["--big-num", "--no-big-num", "true"]).no_big_num);
        assert!(!stat(&["--no-big-num", "--big-num", "true"]).no_big_num);
        assert!(!stat(&["--no-metric", "--metric", "true"]).no_metric);
    }

    #[test]
    fn limits_have_units() {
        assert_eq!(
            [bytes("4096"), bytes("2k"), bytes("3G")],
            [Some(4096), Some(2048), Some(3 << 30)]
        );
        assert_eq!([bytes(""), bytes("M"), bytes("-1"), bytes("99999999999G")], [None; 4]);
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(refused(&[]));
        assert!(refused(&["-j", "-x,", "true"]));
        assert!(refused(&["--append", "true"]));
        assert!(refused(&["--per-thread", "--per-process", "true"]));
        assert!(refused(&["--per-thread", "-r", "2", "true"]));
        assert!(refused(&["-I", "100", "-r", "2", "true"]));
        assert!(refused(&["-I", "0", "true"]));
        assert!(refused(&["--seed", "1", "true"]));
        assert!(refused(&["--deterministic", "--aslr", "true"]));
        assert!(refused(&["--cpu", "pentium", "true"]));
        assert!(!refused(&["-p", "1"]));
        assert!(!refused(&["--per-thread", "true"]));
    }

    #[test]
    fn deterministic_runs_have_a_fixed_environment() {
        let target = || Target::Attach { pid: 1 };
        let config = |words: &[&str]| {
            stat(words).counting.machine.config(target(), Plan::Exact).program.environment
        };
        assert_eq!(config(&["true"]), None);
        let fixed = config(&["--deterministic", "true"]).expect("an environment");
        let names = |environment: &[(OsString, OsString)]| -> Vec<OsString> {
            environment.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&fixed), ["PATH", "HOME", "LC_ALL", "TZ"]);
        let ours = |name: &OsStr| (name == "TERM").then(|| "vt100".into());
        let added = ["TERM", "GONE", "HOME=/", "A=b=c", "TZ"].map(OsString::from);
        let environment = fixed_environment(&added, ours);
        assert_eq!(names(&environment), ["PATH", "LC_ALL", "TERM", "HOME", "A"]);
        let values: Vec<&OsString> = environment[2..].iter().map(|(_, value)| value).collect();
        assert_eq!(values, ["vt100", "/", "b=c"]);
        assert!(refused(&["--env", "HOME", "true"]));
    }

    #[test]
    fn deterministic_runs_do_not_depend_on_the_host_processor() {
        let model = |words: &[&str]| {
            let target = Target::Attach { pid: 1 };
            stat(words).counting.machine.config(target, Plan::Exact).cpu
        };
        assert_eq!(model(&["true"]), CpuModel::Host);
        assert_eq!(model(&["--deterministic", "true"]), CpuModel::V3);
        assert_eq!(model(&["--deterministic", "--cpu", "x86-64-v2", "true"]), CpuModel::V2);
        assert_eq!(model(&["--deterministic", "--cpu", "bulldozer", "true"]), CpuModel::V3);
        assert_eq!(model(&["--cpu", "bulldozer", "true"]), CpuModel::HostAvx);
        assert_eq!(model(&["--cpu", "full", "true"]), CpuModel::Host);
    }
}
