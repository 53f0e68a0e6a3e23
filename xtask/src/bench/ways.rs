//! The ways to run a program: natively, on the virtual CPU, on its peers.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::workloads::Workload;
use crate::workspace;

/// The cache, in the inputs' directory, of runs that are to find none.
const FIRST_CACHE: &str = "first-cache";

/// One way to run a program.
#[derive(Debug)]
pub struct Way {
    /// The heading of its column.
    pub name: &'static str,
    /// The words before the program.
    prefix: Vec<OsString>,
    /// Additional variables of its environment.
    environment: Vec<(&'static str, OsString)>,
    /// True if it stays with the program's children.
    pub follows_children: bool,
    /// True if it starts with an empty cache every time.
    pub first: bool,
    /// True if short programs are left out: what they would show is how it starts.
    pub long_only: bool,
    /// How often it runs the program, which then prints as often.
    runs: usize,
}

impl Way {
    fn new(name: &'static str, prefix: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let prefix = prefix.into_iter().map(Into::into).collect();
        let environment = Vec::new();
        Self {
            name,
            prefix,
            environment,
            follows_children: true,
            first: false,
            long_only: false,
            runs: 1,
        }
    }

    /// A way that begins with an empty cache every time.
    fn first(name: &'static str, prefix: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { first: true, ..Self::new(name, prefix) }
    }

    /// Returns whether this way can and should measure `workload`: what long programs do first is
    /// lost in what they do.
    pub fn measures(&self, workload: &Workload) -> bool {
        (self.follows_children || !workload.many_processes)
            && (!self.first || workload.short)
            && (!self.long_only || !workload.short)
    }

    /// Returns whether a program that prints `expected` natively prints the right thing this way.
    pub fn is_right(&self, printed: &[u8], expected: &[u8]) -> bool {
        printed == expected.repeat(self.runs)
    }

    /// Empties the cache for a run that is to find none.
    pub fn prepare(&self, dir: &Path) {
        if self.first {
            let _ = std::fs::remove_dir_all(dir.join(FIRST_CACHE));
        }
    }

    /// The command that runs `workload` this way.
    pub fn command(&self, workload: &Workload, dir: &Path) -> Command {
        let mut words = self.prefix.iter().chain(&workload.command);
        let program = words.next().expect("a workload has a program");
        let mut command = Command::new(program);
        let cache = if self.first { FIRST_CACHE } else { "cache" };
        command.args(words).current_dir(dir).env("XDG_CACHE_HOME", dir.join(cache));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// cputrack on the virtual CPU, following children as `lwp stat` does.
pub fn cputrack(release: &Path) -> Way {
    let options = ["--lwp", "-efn", "-T", "0", "-o", "/dev/null", "-c", "instructions", "--"];
    let program = release.join("cputrack").into_os_string();
    let words = std::iter::once(program).chain(options.iter().map(OsString::from));
    Way::new("cputrack --lwp", words)
}

/// Profiles that a program keeps of itself: heading, interval. The first counts down, and no event
/// is ever due: what the next two take beyond it are their records.
const PROFILES: &[(&str, &str)] =
    &[("LWP, hardly ever", "33554432"), ("LWP, 1,000,000", "1000000"), ("LWP, 100,000", "100000")];

/// Lightweight Profiling turned on by a preloaded library, which is compiled here.
pub fn profiled(lwp: &Path, dir: &Path) -> Result<Vec<Way>> {
    let (source, library) = (dir.join("profiled.c"), dir.join("profiled.so"));
    std::fs::write(&source, include_str!("profiled.c"))?;
    let include = workspace::root().join("include");
    let built = Command::new("gcc")
        .args(["-O2", "-shared", "-fPIC", "-I"])
        .args([&include, &PathBuf::from("-o"), &library, &source])
        .status();
    if !built.context("gcc is needed")?.success() {
        bail!("profiled.c does not compile");
    }
    let way = |&(name, interval): &(&'static str, &str)| {
        let mut way = Way::new(name, [lwp.as_os_str(), "run".as_ref(), "--".as_ref()]);
        way.long_only = true;
        way.environment = vec![
            ("LD_PRELOAD", library.clone().into_os_string()),
            ("PROFILED_INTERVAL", interval.into()),
        ];
        way
    };
    Ok(PROFILES.iter().map(way).collect())
}

/// Sampling misses of a modelled data cache: every access of the program is looked at.
pub fn misses(lwp: &Path) -> Way {
    let options = ["record", "-q", "-o", "bench.data", "-e", "dcache-misses:c=1000003", "--"];
    let words = std::iter::once(lwp.into()).chain(options.iter().map(OsString::from));
    let mut way = Way::new("dcache-misses", words);
    way.long_only = true;
    way
}

/// The peers: heading, program, options.
#[rustfmt::skip] // A table: one way a line.
const PEERS: &[(&str, &str, &[&str])] = &[
    ("valgrind none", "valgrind",    &["--tool=none", "-q", "--trace-children=yes"]),
    ("cachegrind",    "valgrind",    &["--tool=cachegrind", "-q", "--trace-children=yes", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]),
    ("callgrind",     "valgrind",    &["--tool=callgrind", "-q", "--trace-children=yes", "--callgrind-out-file=/dev/null"]),
    ("qemu-user",     "qemu-x86_64", &[]),
];

/// Recording in one way and another: heading, options. `--time` runs natively, and `--both` both
/// natively and like the first. The last counts down like the ones before it, and no sample is ever
/// due: what they take beyond it are their samples with their stacks.
const RECORDINGS: &[(&str, &[&str])] = &[
    ("record", &[]),
    ("record --call-graph inferred", &["--call-graph", "inferred"]),
    ("record --time", &["--time"]),
    ("record --both", &["--both"]),
    ("record -c 1,000,003", &["-c", "1000003"]),
    ("record -c 100,003", &["-c", "100003"]),
    ("countdown alone", &["-c", "1000000G"]),
];

/// All ways, native first, and a note for each peer that is not installed.
pub fn all(lwp: &Path, with_recordings: bool, with_peers: bool) -> (Vec<Way>, Vec<String>) {
    let lwp = lwp.as_os_str();
    let word = OsString::from;
    let run = || [lwp.to_owned(), word("run"), word("--")];
    let stat = || [lwp.to_owned(), word("stat"), word("-o"), word("/dev/null"), word("--")];
    let mut ways = vec![
        Way::new("native", Vec::<OsString>::new()),
        Way::new("lwp run", run()),
        Way::new("lwp stat", stat()),
        Way::first("first run", run()),
        Way::first("first stat", stat()),
    ];
    for (name, options) in RECORDINGS.iter().filter(|_| with_recordings) {
        let start = [lwp, "record".as_ref(), "-q".as_ref(), "-o".as_ref(), "bench.data".as_ref()];
        let options = options.iter().map(|option| OsStr::new(*option));
        let mut way = Way::new(name, start.into_iter().chain(options).chain([OsStr::new("--")]));
        way.long_only = true;
        way.runs = if name.ends_with("--both") { 2 } else { 1 };
        ways.push(way);
    }
    let mut notes = Vec::new();
    for (name, program, options) in PEERS.iter().filter(|_| with_peers) {
        let Some(file) = find(program) else {
            notes.push(format!("{name}: skipped, {program} is not installed"));
            continue;
        };
        let prefix = std::iter::once(file.into_os_string());
        let mut way = Way::new(name, prefix.chain(options.iter().map(|option| word(option))));
        // qemu-user leaves an exec'd program to the kernel.
        way.follows_children = *program == "valgrind";
        ways.push(way);
    }
    (ways, notes)
}

/// Finds `program` in `PATH`; a name with a slash is taken as it stands.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|file| file.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
