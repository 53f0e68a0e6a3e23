//! Standing in for `valgrind --tool=callgrind`: `lwp valgrind …`, or lwp called by that name.
//!
//! Harnesses call callgrind with a handful of options. What has a meaning here is done; what
//! changes neither counts nor files is taken and dropped; the rest is refused by name, because a
//! harness must not take another number for the one it asked for.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use lwp_vcpu::{Caches, LwpConfig};
use wildmatch::WildMatch;

use crate::args::usage_error;
use crate::failure::Failure;

pub mod files;
pub mod parts;

/// A request to valgrind.
#[derive(Debug)]
pub enum Request {
    /// Run a program.
    Run(Box<Options>),
    /// `--version`, `--help`.
    Print(String),
}

/// The destination of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// Standard error.
    #[default]
    Usual,
    /// A descriptor.
    Descriptor(i32),
    /// A file for each process, by a pattern.
    File(String),
}

/// Callgrind's options, and those of Valgrind that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `--callgrind-out-file`: `%p` is the process, `%q{NAME}` a variable.
    pub output: String,
    /// `--log-file`, `--log-fd`.
    pub log: Log,
    /// `-q`.
    pub quiet: bool,
    /// `--trace-children`.
    pub children: bool,
    /// `--collect-atstart`; by default, unless a function toggles it.
    pub collect: Option<bool>,
    /// `--instr-atstart`.
    pub instrument: bool,
    /// `--toggle-collect`, every one.
    pub toggle: Vec<String>,
    /// `--dump-instr`.
    pub addresses: bool,
    /// `--dump-line`.
    pub lines: bool,
    /// `--compress-strings`.
    pub numbers_for_names: bool,
    /// `--combine-dumps`.
    pub combine: bool,
    /// `--separate-threads`.
    pub by_thread: bool,
    /// `--branch-sim`.
    pub branches: bool,
    /// `--cache-sim`.
    pub caches: bool,
    /// `--D1` and `--LL`: size, lines in a set, and bytes in a line.
    pub shapes: [[u64; 3]; 2],
    /// Requests that cannot be met and that do not change the counts.
    pub missing: Vec<String>,
    /// Options that have no effect here.
    pub ignored: Vec<String>,
    /// `--trace-children-skip`: patterns of programs whose processes are left out.
    pub skipped: Vec<String>,
    /// `--trace-children-skip-by-arg`: patterns of arguments.
    pub skipped_by_argument: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            output: "callgrind.out.%p".to_owned(),
            log: Log::Usual,
            quiet: false,
            children: false,
            collect: None,
            instrument: true,
            toggle: Vec::new(),
            addresses: false,
            lines: true,
            numbers_for_names: true,
            combine: false,
            by_thread: false,
            branches: false,
            caches: false,
            shapes: [[32 << 10, 8, 64], [8 << 20, 16, 64]],
            missing: Vec::new(),
            ignored: Vec::new(),
            skipped: Vec::new(),
            skipped_by_argument: Vec::new(),
            command: Vec::new(),
        }
    }
}

/// Options that change neither counts nor files.
const DROPPED: &[&str] = &[
    "I1",
    "allow-file-caps",
    "allow-mismatched-debuginfo",
    "aspace-minaddr",
    "avg-transtab-entry-size",
    "child-silent-after-fork",
    "compress-pos",
    "default-suppressions",
    "demangle",
    "dsymutil",
    "error-exitcode",
    "error-limit",
    "extra-debuginfo-path",
    "fair-sched",
    "fullpath-after",
    "gen-suppressions",
    "keep-debuginfo",
    "main-stacksize",
    "max-stackframe",
    "max-threads",
    "num-callers",
    "num-transtab-sectors",
    "read-inline-info",
    "read-var-info",
    "show-below-main",
    "show-emwarns",
    "sigill-diagnostics",
    "skip-direct-rec",
    "skip-plt",
    "smc-check",
    "suppressions",
    "time-stamp",
    "valgrind-stacksize",
    "vgdb",
    "vgdb-error",
    "vgdb-poll",
    "vgdb-prefix",
];

/// Returns the text of `--version`: the format's version, which harnesses look at, and our own.
pub fn version() -> String {
    format!("valgrind-3.19.0.lwp-{}\n", env!("CARGO_PKG_VERSION"))
}

fn help() -> String {
    "Counts what a program executes, in place of valgrind --tool=callgrind, and writes what callgrind writes

Usage: lwp valgrind --tool=callgrind [OPTIONS] PROGRAM [ARGUMENTS]

  --callgrind-out-file=FILE   callgrind.out.%p; %p is the process, %q{NAME} a variable
  --collect-atstart=no        count only where the program, or --toggle-collect, says so
  --toggle-collect=FUNCTION   from its entry to its return; * and ? stand for any letters
  --instr-atstart=no          count nothing before the program starts it
  --trace-children=yes        programs that it starts too
  --trace-children-skip=PATTERNS, --trace-children-skip-by-arg=PATTERNS
                              without these programs, and all that they start
  --dump-instr=yes, --dump-line=no, --compress-strings=no, --combine-dumps=yes, --separate-threads=yes
  --cache-sim=yes             misses of a modelled data cache, --D1=SIZE,WAYS,LINE, and of one behind it, --LL
  --branch-sim=yes            branches, and conditional branches that a modelled predictor gets wrong
  --log-file=FILE, --log-fd=N, -q

Runs are deterministic: the processor is an x86-64-v3 one, and addresses, random numbers and time stamps are fixed.
There is no model of an instruction cache. Options that tune Valgrind itself are ignored, and
the log names them; others are refused. Client requests of callgrind's are obeyed.
"
    .to_owned()
}

/// Returns whether lwp was called by valgrind's name.
pub fn is_called_so(name: Option<&OsStr>) -> bool {
    name.and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == "valgrind")
}

/// Parses valgrind's words.
pub fn request(words: &[OsString]) -> Result<Request, Failure> {
    let mut options = Options::default();
    let mut rest = words;
    while let Some((word, more)) = rest.split_first() {
        let text = word.to_string_lossy();
        if text == "--" {
            rest = more;
            break;
        }
        let Some(option) = text.strip_prefix('-').filter(|option| !option.is_empty()) else {
            break;
        };
        rest = more;
        let option = option.strip_prefix('-').unwrap_or(option);
        match option.split_once('=') {
            None if option == "version" => return Ok(Request::Print(version())),
            None if option == "help" || option == "h" => return Ok(Request::Print(help())),
            Some(("tool", _)) => {}
            // Its options may be another tool's.
            option => right_tool(words).and_then(|()| options.take(&text, option))?,
        }
    }
    right_tool(words)?;
    if rest.is_empty() {
        return Err(usage_error("no program given", "see `lwp valgrind --help`"));
    }
    options.command = rest.to_vec();
    Ok(Request::Run(Box::new(options)))
}

/// Returns whether callgrind is asked for: valgrind's tool is memcheck where none is named.
fn right_tool(words: &[OsString]) -> Result<(), Failure> {
    let options = words.iter().map(|word| word.to_string_lossy().into_owned());
    let options = options.take_while(|word| word.starts_with('-') && word != "--");
    let named = options.filter_map(|word| Some(word.strip_prefix("--tool=")?.to_owned())).last();
    match named.as_deref().unwrap_or("memcheck") {
        "callgrind" => Ok(()),
        other => Err(usage_error(
            format!("lwp stands in for callgrind, not for {other}"),
            "give --tool=callgrind, or call valgrind itself",
        )),
    }
}

impl Options {
    /// Takes an option in, which is `text` as a whole.
    fn take(&mut self, text: &str, option: Option<(&str, &str)>) -> Result<(), Failure> {
        let Some((name, value)) = option else {
            match text {
                "-q" | "--quiet" => self.quiet = true,
                "-v" | "--verbose" | "-d" => self.ignored.push(text.to_owned()),
                _ => return Err(unknown(text)),
            }
            return Ok(());
        };
        let yes = || match value {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(usage_error(format!("{text} is neither yes nor no"), "give yes or no")),
        };
        match name {
            "callgrind-out-file" => self.output = value.to_owned(),
            "log-file" => self.log = Log::File(value.to_owned()),
            "log-fd" => {
                let number = value.parse().ok().filter(|number| *number >= 0);
                self.log = Log::Descriptor(number.ok_or_else(|| unknown(text))?);
            }
            "trace-children" => self.children = yes()?,
            "collect-atstart" => self.collect = Some(yes()?),
            "instr-atstart" => self.instrument = yes()?,
            "toggle-collect" => self.toggle.push(value.to_owned()),
            "dump-instr" => self.addresses = yes()?,
            "dump-line" => self.lines = yes()?,
            "compress-strings" => self.numbers_for_names = yes()?,
            "combine-dumps" => self.combine = yes()?,
            "separate-threads" => self.by_thread = yes()?,
            "branch-sim" => {
                self.branches = yes()?;
                self.lack(self.branches, "mispredicted indirect branches (--branch-sim)");
            }
            "cache-sim" => {
                self.caches = yes()?;
                self.lack(self.caches, "instruction cache and numbers of accesses (--cache-sim)");
            }
            "D1" | "LL" => self.shapes[usize::from(name == "LL")] = shape(text, value)?,
            "collect-systime" => {
                self.lack(value != "no", "times of system calls (--collect-systime)")
            }
            "collect-jumps" => self.lack(yes()?, "jumps (--collect-jumps)"),
            "trace-children-skip" => self.skipped.extend(patterns(value)),
            "trace-children-skip-by-arg" => self.skipped_by_argument.extend(patterns(value)),
            // CodSpeed's own: costs of an object go to whoever called it.
            "obj-skip" => self.lack(true, "objects to skip, which are written (--obj-skip)"),
            _ if self.changes_nothing(text, name, value) => {}
            _ => return Err(unknown(text)),
        }
        Ok(())
    }

    /// Returns whether an option asks for what is done by default, or tunes Valgrind itself. The
    /// log names the latter.
    fn changes_nothing(&mut self, text: &str, name: &str, value: &str) -> bool {
        let is_default = match name {
            "separate-callers" | "dump-every-bb" => value == "0",
            "collect-bus" | "simulate-wb" | "simulate-hwpref" | "cacheuse" | "track-fds"
            | "xml" => value == "no",
            "xtree-memory" | "sim-hints" | "kernel-variant" => value == "none",
            _ => false,
        };
        let tunes = ["run-libc-freeres", "run-cxx-freeres", "separate-recs"].contains(&name)
            || DROPPED.contains(&name);
        if tunes && !is_default {
            self.ignored.push(text.to_owned());
        }
        is_default || tunes
    }

    fn lack(&mut self, asked: bool, what: &str) {
        self.missing.retain(|missing| missing != what);
        if asked {
            self.missing.push(what.to_owned());
        }
    }

    /// Returns whether misses are counted: not every processor can watch the caches.
    pub fn models_caches(&self) -> bool {
        self.caches && lwp_vcpu::can_watch_caches()
    }

    /// The caches that are to be modelled.
    pub fn model(&self) -> Result<Caches, Failure> {
        let [[size, ways, line], [all, all_ways, all_line]] = self.shapes;
        let text = format!("{size}/{ways}/{line}@4,{all}/{all_ways}/{all_line}@45");
        let caches: Result<Caches, String> = text.parse().map_err(|error| format!("{error}"));
        let fits = caches.and_then(|caches| LwpConfig::fits(&caches).map(|()| caches));
        fits.map_err(|why| {
            usage_error(
                format!("these caches cannot be modelled: {why}"),
                "choose others by --D1=SIZE,WAYS,LINE and --LL=SIZE,WAYS,LINE, or leave --cache-sim out",
            )
        })
    }

    /// Returns whether processes of a program, whose command line is `command`, are left out.
    pub fn skips(&self, command: &str) -> bool {
        let mut words = command.split(' ');
        let program = words.next().unwrap_or_default();
        let fits = |patterns: &[String], text: &str| {
            patterns.iter().any(|pattern| WildMatch::new(pattern).matches(text))
        };
        fits(&self.skipped, program) || words.any(|word| fits(&self.skipped_by_argument, word))
    }

    /// Returns whether threads collect from their beginning.
    pub fn collects(&self) -> bool {
        self.collect.unwrap_or(self.toggle.is_empty())
    }
}

/// Patterns, separated by commas.
fn patterns(value: &str) -> impl Iterator<Item = String> {
    value.split(',').filter(|pattern| !pattern.is_empty()).map(str::to_owned)
}

/// Size, lines in a set, and bytes in a line.
fn shape(text: &str, value: &str) -> Result<[u64; 3], Failure> {
    let numbers: Vec<u64> = value.split(',').filter_map(|number| number.parse().ok()).collect();
    let three = numbers.try_into().ok().filter(|_| value.split(',').count() == 3);
    three.ok_or_else(|| {
        usage_error(format!("{text} is no cache"), "give SIZE,WAYS,LINE, as in --D1=32768,8,64")
    })
}

fn unknown(text: &str) -> Failure {
    usage_error(
        format!("{text}: lwp does not do this in callgrind's place"),
        "leave it out, or call valgrind itself; `lwp valgrind --help` lists what is done",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Options, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match request(&words) {
            Ok(Request::Run(options)) => Ok(*options),
            Ok(Request::Print(text)) => Err(text),
            Err(failure) => Err(format!("{failure:?}")),
        }
    }

    /// As gungraun 0.20 calls it.
    const GUNGRAUN: &str = "--tool=callgrind --error-exitcode=0 --trace-children=yes --fair-sched=try --vgdb=no \
        --I1=32768,8,64 --D1=32768,8,64 --LL=8388608,16,64 --cache-sim=yes --compress-strings=no --compress-pos=no \
        --dump-line=yes --dump-instr=no --combine-dumps=no --separate-threads=yes \
        --toggle-collect=*::__gungraun_wrapper_mod::* --callgrind-out-file=/tmp/a.out.#%p --log-file=/tmp/a.log.#%p \
        bench --gungraun-run 0";
    /// As CodSpeed's runner does.
    const CODSPEED: &str = "-q --tool=callgrind --trace-children=yes --cache-sim=yes --I1=32768,8,64 --D1=32768,8,64 \
        --LL=8388608,16,64 --instr-atstart=no --collect-systime=nsec --compress-strings=no --combine-dumps=yes \
        --dump-line=no --read-inline-info=yes --trace-children-skip=*esbuild,*/sh \
        --obj-skip=/usr/bin/python3.11 --obj-skip=/usr/lib/libpython3.11.so.1.0 \
        --callgrind-out-file=/tmp/%p.out --log-file=/tmp/valgrind.log bench";

    #[test]
    fn harnesses_are_understood() {
        let options = asked(GUNGRAUN).expect("understood");
        assert_eq!(options.toggle, ["*::__gungraun_wrapper_mod::*"]);
        assert!(!options.collects() && options.instrument && options.children && options.by_thread);
        assert_eq!(options.log, Log::File("/tmp/a.log.#%p".into()));
        let missing = ["instruction cache and numbers of accesses (--cache-sim)"];
        assert_eq!(options.missing, missing);
        let model = options.model().ok().map(|caches| caches.to_string());
        assert_eq!(model.as_deref(), Some("32768/8/64@4,8388608/16/64@45,memory@240"));
        assert_eq!(options.command, ["bench", "--gungraun-run", "0"]);
        let options = asked(CODSPEED).expect("understood");
        assert!(options.quiet && options.collects() && !options.instrument && options.combine);
        assert!(!options.lines && !options.numbers_for_names);
        assert_eq!(options.ignored, ["--I1=32768,8,64", "--read-inline-info=yes"]);
        let objects = "objects to skip, which are written (--obj-skip)";
        assert!(options.missing.iter().any(|missing| missing == objects), "{:?}", options.missing);
        assert!(
            options.skips("/app/node_modules/.bin/esbuild --bundle") && options.skips("/bin/sh")
        );
        assert!(!options.skips("bench esbuild"));
        let by_argument = asked("--tool=callgrind --trace-children-skip-by-arg=--child* true");
        let by_argument = by_argument.expect("understood");
        assert!(by_argument.skips("a --child=1") && !by_argument.skips("--child=1"));
    }

    #[test]
    fn what_has_no_effect_is_named() {
        let options = asked("--tool=callgrind --vgdb=no -v --error-exitcode=9 true");
        assert_eq!(options.expect("understood").ignored, ["--vgdb=no", "-v", "--error-exitcode=9"]);
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        for option in ["--bogus=yes", "--dump-before=main", "--xml=yes", "--cacheuse=yes", "--wait"]
        {
            let refusal = asked(&format!("--tool=callgrind {option} true")).expect_err(option);
            assert!(refusal.contains(option), "{refusal}");
        }
        assert!(asked("--tool=memcheck true").is_err_and(|refusal| refusal.contains("memcheck")));
        assert!(asked("true").is_err_and(|refusal| refusal.contains("memcheck")));
        // As cargo-valgrind calls it.
        let leaks = asked("--xml=yes --xml-socket=127.0.0.1:1 true");
        assert!(leaks.is_err_and(|refusal| refusal.contains("memcheck")));
        assert!(asked("--tool=callgrind").is_err());
        assert!(asked("--tool=callgrind --D1=1,2 true").is_err());
        let odd = asked("--tool=callgrind --D1=32768,3,64 true").expect("only modelled if asked");
        assert!(odd.model().is_err());
        assert!(asked("--tool=callgrind --dump-instr=perhaps true").is_err());
        assert!(asked("--version").is_err_and(|text| text.starts_with("valgrind-3.19.0")));
    }

    #[test]
    fn a_program_s_options_are_its_own() {
        let options = asked("--tool=callgrind -- --odd --tool=x").expect("understood");
        assert_eq!(options.command, ["--odd", "--tool=x"]);
        assert!(is_called_so(Some(OsStr::new("/a/valgrind"))) && !is_called_so(None));
    }
}
