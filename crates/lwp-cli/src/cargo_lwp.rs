//! `cargo lwp`: builds with cargo and runs what was built on the virtual CPU.
//!
//! Cargo is told to start programs through `lwp`, by the environment variable that it has for that;
//! so everything that `cargo run`, `cargo test` and `cargo bench` can be asked for works here too.
#![forbid(unsafe_code)]

#[path = "cargo_lwp/harness.rs"]
mod harness;
#[path = "cargo_lwp/relocations.rs"]
mod relocations;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
Builds with cargo and runs the program, test or benchmark on the virtual CPU

Usage: cargo lwp stat|record|flamegraph|bench|test|optimize [CARGO OPTIONS] [-- PROGRAM ARGUMENTS]

  stat         count its events
  record       write lwp.data; see `lwp report`
  flamegraph   write lwp.data and flamegraph.html
  bench        count the events of benchmarks: `cargo bench`, whatever is named
  test         count the events of tests: `cargo test`, whatever is named
  optimize     link with relocations, write PROGRAM.bolt beside the program that `cargo run` starts,
               and compare the two; see `lwp optimize`

With --test or --tests `cargo test` is run, with --bench or --benches `cargo bench`, otherwise
`cargo run`. Programs are built with --release and debug information unless a profile is chosen:
--dev, --release or --profile NAME. A test or benchmark should be named (--bench NAME): without a
name cargo runs several programs, and the last one's recording is kept.

Benchmarks of Rust's own harness (#[bench]) run once each: the harness repeats them by time.

Benchmarks are counted with --deterministic, so that another run, also on another machine, counts the
same: they have a fixed environment. --env NAME[=VALUE] lets a variable through, --no-deterministic all of it.

`cargo lwp optimize` takes these options of `lwp optimize`: --output, --runs, --input, --bolt and
--bolt-arg.
";

/// Files of the recording and of the picture.
const RECORDING: &str = "lwp.data";
const PICTURE: &str = "flamegraph.html";
/// lwp's own failure.
const OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    // Cargo passes its subcommand's name along.
    let mut arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if relocations::is_compiling(&arguments) {
        return relocations::compile(&arguments).unwrap_or_else(|cause| failed(&cause));
    }
    if arguments.first().is_some_and(|first| first == "lwp") {
        arguments.remove(0);
    }
    if let Some((first, words)) = arguments.split_first()
        && first == harness::RUN
    {
        return harness::run(words).unwrap_or_else(|cause| failed(&cause));
    }
    let mut options = arguments.iter().take_while(|word| *word != "--");
    if arguments.is_empty() || options.any(|word| word == "--help" || word == "-h") {
        let said = io::stdout().lock().write_all(HELP.as_bytes());
        let asked = !arguments.is_empty() && said.is_ok();
        return ExitCode::from(if asked { 0 } else { OWN_FAILURE });
    }
    match Plan::new(&arguments) {
        Ok(plan) => execute(&plan).unwrap_or_else(|cause| failed(&cause)),
        Err(cause) => failed(&cause),
    }
}

/// Says why nothing could be done.
fn failed(cause: &str) -> ExitCode {
    lwp_terminal::say!("cargo-lwp: {cause}");
    ExitCode::from(OWN_FAILURE)
}

/// The command to execute.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    verb: &'static str,
    /// Cargo's subcommand and its arguments.
    cargo: Vec<OsString>,
    /// Further options of lwp, which fix the program's environment.
    fixed: Vec<OsString>,
}

/// Variables of cargo's that benchmarks find their files by.
const LET_THROUGH: [&str; 2] = ["CARGO_MANIFEST_DIR", "CARGO_TARGET_DIR"];

impl Plan {
    /// Reads the arguments; fails with what is wrong in them.
    fn new(arguments: &[OsString]) -> Result<Self, String> {
        let Some((verb, rest)) = arguments.split_first() else {
            return Err(format!("a command is missing: {}", VERBS.join(", ")));
        };
        let Some(verb) = VERBS.into_iter().find(|name| verb == name) else {
            return Err(unknown(&verb.to_string_lossy()));
        };
        let end = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
        let (options, program) = rest.split_at(end);
        let (options, of_optimize) = match verb {
            OPTIMIZE => options_of_optimize(options)?,
            _ => (options.to_vec(), Vec::new()),
        };
        let (options, own) = own_options(&options).ok_or("--env needs NAME or NAME=VALUE")?;
        let has = |names: &[&str]| {
            options.iter().any(|word| {
                let word = word.to_string_lossy();
                names.iter().any(|name| {
                    word.strip_prefix(name)
                        .is_some_and(|end| end.is_empty() || end.starts_with('='))
                })
            })
        };
        let subcommand = match () {
            () if verb == "bench" || has(&["--bench", "--benches"]) => "bench",
            () if verb == "test" || has(&["--test", "--tests"]) => "test",
            () => "run",
        };
        let mut cargo: Vec<OsString> = vec![subcommand.into()];
        // A benchmark has its own profile.
        let chosen = has(&["--release", "-r", "--profile", "--dev"]) || subcommand == "bench";
        if !chosen {
            cargo.push("--release".into());
        }
        cargo.extend(options.iter().filter(|word| *word != "--dev").cloned());
        cargo.extend(program.iter().cloned());
        if verb == OPTIMIZE {
            if subcommand != "run" || own.deterministic.is_some() || !own.env.is_empty() {
                return Err(ONLY_PROGRAMS.to_owned());
            }
            return Ok(Self { verb, cargo, fixed: of_optimize });
        }
        let fixed = own.deterministic.unwrap_or(subcommand == "bench" && verb != "flamegraph");
        Ok(Self { verb, cargo, fixed: if fixed { own.fixed() } else { Vec::new() } })
    }

    /// The command that cargo starts programs with.
    fn runner(&self, tools: &Tools, directory: &Path) -> Result<OsString, String> {
        let recording = directory.join(RECORDING);
        // Cargo splits the variable at spaces and knows no quotes.
        let fixed = self.fixed.iter().map(Path::new);
        for word in [&*tools.own, &*tools.lwp, &recording].into_iter().chain(fixed) {
            if word.to_string_lossy().contains(char::is_whitespace) {
                return Err(format!("cargo cannot be given what has spaces: {}", word.display()));
            }
        }
        let mut runner = OsString::new();
        if self.cargo.first().is_some_and(|subcommand| subcommand == "bench") {
            runner.push(&tools.own);
            runner.push(format!(" {} ", harness::RUN));
        }
        runner.push(&tools.lwp);
        match self.verb {
            "stat" | "bench" | "test" => runner.push(" stat"),
            OPTIMIZE => runner.push(" optimize"),
            verb => {
                runner.push(if verb == "record" { " record -o " } else { " record -q -o " });
                runner.push(&recording);
            }
        }
        for word in &self.fixed {
            runner.push(" ");
            runner.push(word);
        }
        runner.push(" --");
        Ok(runner)
    }
}

/// The commands.
const VERBS: [&str; 6] = ["stat", "record", "flamegraph", "bench", "test", OPTIMIZE];

/// The command that calls BOLT.
const OPTIMIZE: &str = "optimize";

/// Options of `lwp optimize` that are passed on. Each has a value.
const OF_OPTIMIZE: [&str; 5] = ["--output", "--runs", "--input", "--bolt", "--bolt-arg"];

const ONLY_PROGRAMS: &str = "'optimize' takes the program that `cargo run` starts: leave out \
    --test, --bench, --env and --deterministic";

/// Advice on a command that there is not.
fn unknown(verb: &str) -> String {
    let known = VERBS.join(", ");
    match verb {
        "gate" | "report" | "annotate" | "diff" | "top" | "serve" | "export" => format!(
            "'{verb}' builds nothing: record with `cargo lwp record`, then call `lwp {verb}`; \
             commands are: {known}"
        ),
        _ => format!("no command is called '{verb}'; commands are: {known}"),
    }
}

/// Programs that are called.
#[derive(Debug)]
struct Tools {
    /// lwp.
    lwp: PathBuf,
    /// This program.
    own: PathBuf,
}

impl Tools {
    /// The lwp beside this program, or the one in the path. This program may be a link.
    fn find() -> Result<Self, String> {
        let own = env::current_exe().map_err(|error| error.to_string())?;
        let called = env::args_os().next().map(PathBuf::from);
        let beside = called.into_iter().chain([own.clone()]).map(|it| it.with_file_name("lwp"));
        let path = env::var_os("PATH").unwrap_or_default();
        let in_path: Vec<PathBuf> = env::split_paths(&path).map(|dir| dir.join("lwp")).collect();
        let found = beside.chain(in_path).find(|file| file.is_file() && file.is_absolute());
        let lwp = found.ok_or("lwp is neither beside cargo-lwp nor in the path")?;
        Ok(Self { lwp, own })
    }
}

/// Options that are not cargo's.
#[derive(Debug, Default)]
struct Own {
    /// True if the program is to be deterministic; `None` without such an option.
    deterministic: Option<bool>,
    /// Variables that the program is to have.
    env: Vec<OsString>,
}

impl Own {
    /// Returns the options of lwp that make a program deterministic.
    fn fixed(self) -> Vec<OsString> {
        let usual = LET_THROUGH.map(OsString::from).into_iter();
        let variables = usual.chain(self.env).flat_map(|variable| ["--env".into(), variable]);
        std::iter::once(OsString::from("--deterministic")).chain(variables).collect()
    }
}

/// Cargo's options and our own; `None` where one lacks its value.
fn own_options(options: &[OsString]) -> Option<(Vec<OsString>, Own)> {
    let (mut cargo, mut own) = (Vec::new(), Own::default());
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        match text.strip_prefix("--env=") {
            _ if text == "--deterministic" => own.deterministic = Some(true),
            _ if text == "--no-deterministic" => own.deterministic = Some(false),
            _ if text == "--env" => own.env.push(words.next()?.clone()),
            Some(variable) => own.env.push(variable.into()),
            None => cargo.push(word.clone()),
        }
    }
    Some((cargo, own))
}

/// Cargo's options, and those that are passed on to `lwp optimize`.
fn options_of_optimize(options: &[OsString]) -> Result<(Vec<OsString>, Vec<OsString>), String> {
    let (mut cargo, mut passed) = (Vec::new(), Vec::new());
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        if !OF_OPTIMIZE.contains(&name) {
            cargo.push(word.clone());
            continue;
        }
        passed.push(word.clone());
        if name == text {
            passed.push(words.next().ok_or_else(|| format!("{name} needs a value"))?.clone());
        }
    }
    Ok((cargo, passed))
}

fn execute(plan: &Plan) -> Result<ExitCode, String> {
    let tools = Tools::find()?;
    let directory = env::current_dir().map_err(|error| error.to_string())?;
    let runner = plan.runner(&tools, &directory)?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(&plan.cargo);
    for target in ["X86_64_UNKNOWN_LINUX_GNU", "X86_64_UNKNOWN_LINUX_MUSL"] {
        command.env(format!("CARGO_TARGET_{target}_RUNNER"), &runner);
    }
    if plan.verb == OPTIMIZE {
        relocations::keep(&mut command, &tools.own);
    }
    for profile in ["RELEASE", "BENCH"].iter().filter(|_| plan.verb != OPTIMIZE) {
        let name = format!("CARGO_PROFILE_{profile}_DEBUG");
        if env::var_os(&name).is_none() {
            // With line tables alone, inlined functions have no paths.
            command.env(name, "limited");
        }
    }
    let code = status(&mut command)?;
    if plan.verb == "flamegraph" && directory.join(RECORDING).exists() {
        let mut draw = Command::new(&tools.lwp);
        draw.args(["flamegraph", "-i", RECORDING, "-o", PICTURE]);
        if status(&mut draw)? != ExitCode::SUCCESS {
            return Err("drawing the picture failed".into());
        }
    }
    Ok(code)
}

/// Runs `command` to its end.
fn status(command: &mut Command) -> Result<ExitCode, String> {
    let name = command.get_program().to_owned();
    let status =
        command.status().map_err(|error| format!("{}: {error}", Path::new(&name).display()))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN_FAILURE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words as arguments.
    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn cargo(text: &str) -> String {
        let plan = Plan::new(&words(text)).expect(text);
        plan.cargo.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_subcommand_follows_the_options() {
        assert_eq!(cargo("stat"), "run --release");
        assert_eq!(cargo("record --bin x -- --bench a"), "run --release --bin x -- --bench a");
        assert_eq!(cargo("stat --dev"), "run");
        assert_eq!(cargo("stat --profile=dev -p x"), "run --profile=dev -p x");
        assert_eq!(cargo("flamegraph --bench sum -- --quick"), "bench --bench sum -- --quick");
        assert_eq!(cargo("record --test=end"), "test --release --test=end");
        assert_eq!(cargo("bench"), "bench");
        assert_eq!(cargo("test --lib -- one"), "test --release --lib -- one");
        let wrong = |text: &str| Plan::new(&words(text)).expect_err(text);
        assert!(wrong("frobnicate").contains("no command is called 'frobnicate'"));
        assert!(wrong("gate -l calls=1").contains("then call `lwp gate`"));
        assert!(wrong("").contains("a command is missing: stat, "));
        assert!(wrong("bench --env").contains("--env needs"));
        assert_eq!(cargo("optimize --runs 3 --bin x -- --runs"), "run --release --bin x -- --runs");
        assert!(wrong("optimize --bench x").contains("that `cargo run` starts"));
        assert!(wrong("optimize --runs").contains("--runs needs a value"));
    }

    fn tools(lwp: &str) -> Tools {
        Tools { lwp: lwp.into(), own: "/bin/cargo-lwp".into() }
    }

    #[test]
    fn programs_are_started_through_lwp() {
        let runner = |verb: &str, lwp: &str| {
            let plan = Plan::new(&words(verb)).expect(verb);
            plan.runner(&tools(lwp), Path::new("/build"))
        };
        let planned = |words_: &str| {
            let plan = Plan::new(&words(words_)).expect(words_);
            plan.runner(&tools("/bin/lwp"), Path::new("/build"))
        };
        assert_eq!(planned("stat"), Ok("/bin/lwp stat --".into()));
        let fixed = "--deterministic --env CARGO_MANIFEST_DIR --env CARGO_TARGET_DIR";
        let own = "/bin/cargo-lwp --run-benchmark";
        assert_eq!(planned("bench"), Ok(format!("{own} /bin/lwp stat {fixed} --").into()));
        let let_through = planned("record --bench sums --env=A=b --env C");
        let recorded =
            format!("{own} /bin/lwp record -o /build/lwp.data {fixed} --env A=b --env C --");
        assert_eq!(let_through, Ok(recorded.into()));
        let optimized = planned("optimize --runs=0 --bolt llvm-bolt-16");
        assert_eq!(optimized, Ok("/bin/lwp optimize --runs=0 --bolt llvm-bolt-16 --".into()));
        let free = format!("{own} /bin/lwp stat --");
        assert_eq!(planned("bench --no-deterministic"), Ok(free.into()));
        assert_eq!(planned("test --deterministic"), Ok(format!("/bin/lwp stat {fixed} --").into()));
        assert_eq!(cargo("bench --env A --bench sums -- --env"), "bench --bench sums -- --env");
        let recorded = "/bin/lwp record -q -o /build/lwp.data --";
        assert_eq!(runner("flamegraph", "/bin/lwp"), Ok(recorded.into()));
        assert!(runner("stat", "/my bin/lwp").is_err());
    }
}
