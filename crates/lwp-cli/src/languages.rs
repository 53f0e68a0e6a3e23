//! Runtimes that name the code that they generate if they are asked to, and how they are asked.

use std::path::{Path, PathBuf};

use lwp_profile::{Mode, Origin, Profile, Recording};
use lwp_vcpu::{Addition, Language as Interpreted};

/// A language whose runtime is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// CPython. Samples read its memory; exact recordings count the calls of its functions.
    Python,
    /// Node.
    Node,
    /// HotSpot, started by `java`. Samples read the memory of its interpreter.
    Java,
    /// .NET, started by `dotnet`.
    Dotnet,
    /// Ruby. Samples read its memory.
    Ruby,
    /// PHP. Samples read its memory.
    Php,
    /// Perl. Samples read its memory.
    Perl,
    /// Lua. Samples read its memory.
    Lua,
}

/// Names on the command line.
const NAMES: [(&str, Language); 8] = [
    ("python", Language::Python),
    ("node", Language::Node),
    ("java", Language::Java),
    ("dotnet", Language::Dotnet),
    ("ruby", Language::Ruby),
    ("php", Language::Php),
    ("perl", Language::Perl),
    ("lua", Language::Lua),
];

/// Languages whose functions are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Languages {
    /// All that are known.
    #[default]
    Auto,
    /// None: programs are left as they are.
    None,
    /// These.
    Chosen(Vec<Language>),
}

impl Languages {
    /// From the text of `--lang`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let known = |name: &str| NAMES.into_iter().find(|(known, _)| *known == name);
        let chosen = text.split(',').map(|name| known(name).map(|(_, language)| language));
        let chosen: Option<Vec<Language>> = chosen.collect();
        chosen.map(Self::Chosen).ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name);
            format!("auto, none, or some of {} are wanted, separated by commas", names.join(", "))
        })
    }

    /// The text of `--lang` that says the same.
    pub fn text(&self) -> String {
        match self {
            Self::Auto => "auto".into(),
            Self::None => "none".into(),
            Self::Chosen(chosen) => {
                let of_it = |(_, language): &&(&str, Language)| chosen.contains(language);
                let names: Vec<&str> = NAMES.iter().filter(of_it).map(|(name, _)| *name).collect();
                names.join(",")
            }
        }
    }

    /// Returns whether `language` is looked at.
    pub fn has(&self, language: Language) -> bool {
        match self {
            Self::Auto => true,
            Self::None => false,
            Self::Chosen(chosen) => chosen.contains(&language),
        }
    }

    /// The languages whose functions samples read from their interpreters.
    pub fn read(&self) -> Vec<Interpreted> {
        let all = Interpreted::ALL.into_iter();
        let wanted = |language: &Interpreted| {
            self.has(match language {
                Interpreted::Python => Language::Python,
                Interpreted::Ruby => Language::Ruby,
                Interpreted::Php => Language::Php,
                Interpreted::Perl => Language::Perl,
                Interpreted::Lua => Language::Lua,
                Interpreted::Java => Language::Java,
            })
        };
        all.filter(wanted).collect()
    }

    /// The languages whose functions profiles of time read from their interpreters, if lwp starts
    /// `program`: threads are stopped for that, which only interpreters are worth. A program that
    /// starts one itself has to be told by `--lang`.
    pub fn read_at_stops(&self, program: &Path) -> Vec<Interpreted> {
        match self {
            Self::Auto if !is_interpreter(program) => Vec::new(),
            _ => self.read(),
        }
    }

    /// The languages whose functions profiles of time read from their interpreters in a process
    /// that runs already, and may be traced: threads are stopped for that, which only interpreters
    /// are worth. Any file of one that it executes shows what it is.
    pub fn read_in(&self, pid: i32) -> Vec<Interpreted> {
        match self {
            Self::Auto if interpreter_in(pid).is_none() => Vec::new(),
            _ => self.read(),
        }
    }

    /// Returns whether the language was named on the command line.
    fn names(&self, language: Language) -> bool {
        matches!(self, Self::Chosen(chosen) if chosen.contains(&language))
    }

    /// The languages whose functions have exact counts, if somebody has asked for them: a native
    /// run beside them reads these too.
    pub fn counted(&self) -> Vec<Interpreted> {
        match self.deepens_stacks(true) {
            true => vec![Interpreted::Python],
            false => Vec::new(),
        }
    }

    /// Returns whether exact recordings count the calls of Python's functions by additions to
    /// CPython. Every call of a Python function then needs more of the C stack, and programs that
    /// call themselves deeply fail: somebody must have asked for it.
    pub fn deepens_stacks(&self, exact: bool) -> bool {
        exact && self.names(Language::Python)
    }

    /// Returns the beginnings that programs need for their code to have names, in an exact
    /// recording or one of samples.
    pub fn additions(&self, exact: bool) -> Vec<Addition> {
        let addition =
            |programs: &[&str], variables: &[(&str, &str)], arguments: &[&str]| Addition {
                programs: programs.iter().map(|name| (*name).to_owned()).collect(),
                arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
                variables: variables
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
            };
        let mut all = Vec::new();
        if self.deepens_stacks(exact) {
            all.push(addition(&["python", "python3"], &[("PYTHONPERFSUPPORT", "1")], &[]));
        }
        if self.has(Language::Node) {
            // --perf-basic-prof alone makes V8 write a log into the program's directory.
            let options = "--perf-basic-prof-only-functions --interpreted-frames-native-stack";
            let options = [("NODE_OPTIONS", options)];
            all.push(addition(&["node", "nodejs"], &options, &[]));
        }
        if self.has(Language::Java) {
            // JAVA_TOOL_OPTIONS and JDK_JAVA_OPTIONS do the same, and make Java print that they do.
            // Older ones know not all of it, and pass it over.
            let options = [
                "-XX:+IgnoreUnrecognizedVMOptions",
                "-XX:+UnlockDiagnosticVMOptions",
                "-XX:+DumpPerfMapAtExit",
                "-XX:+PreserveFramePointer",
            ];
            all.push(addition(&["java"], &[], &options));
        }
        if self.has(Language::Dotnet) {
            // Releases before 6 know the other name only, and there every number turns it on.
            let variables = [("DOTNET_PerfMapEnabled", "3"), ("COMPlus_PerfMapEnabled", "3")];
            all.push(addition(&["dotnet"], &variables, &[]));
        }
        all
    }
}

/// Files of runtimes that generate code, and how each is made to name it. A file's name begins so.
const REMEDIES: [(&str, &str, &str); 12] = [
    (
        "libjvm.so",
        "Java",
        "run `java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit` (17 or later)",
    ),
    ("libnode.so", "Node", "run `node --perf-basic-prof --interpreted-frames-native-stack`"),
    ("node", "Node", "run `node --perf-basic-prof --interpreted-frames-native-stack`"),
    ("libcoreclr.so", ".NET", "set DOTNET_PerfMapEnabled=1"),
    ("libmonosgen", "Mono", "run `mono --jitmap`"),
    ("mono-sgen", "Mono", "run `mono --jitmap`"),
    ("libruby", "Ruby", "run `ruby --yjit-perf` (3.3 or later)"),
    ("luajit", "LuaJIT", "run `luajit -jp`, its own profiler"),
    ("libluajit", "LuaJIT", "run `luajit -jp`, its own profiler"),
    ("libpython", "Python", "set PYTHONPERFSUPPORT=1 (3.12 or later)"),
    ("php", "PHP", "run `php -d opcache.jit_debug=0x10`"),
    ("beam.smp", "Erlang", "run `erl +JPperf true`"),
];

/// Generated code without names is worth a word from this share of all events on, in hundredths.
const WORTH: u64 = 5;

/// Advises on a way to name generated code that has no names, if there is much of it and its
/// runtime is known.
pub fn advice(recording: &Recording, profile: &Profile) -> Option<String> {
    let (mut all, mut unnamed) = (0u64, 0u64);
    for sample in &profile.samples {
        let count = sample.values.get(0);
        all = all.saturating_add(count);
        let leaf = profile.stacks.get(sample.stack.index()).and_then(|it| it.locations.first());
        let location = leaf.and_then(|leaf| profile.locations.get(leaf.index()));
        let function = location.and_then(|it| it.frames.first()).map(|it| it.function);
        let function = function.and_then(|function| profile.functions.get(function.index()));
        let is_unnamed = function.is_some_and(|function| {
            let module = profile.modules.get(function.module.index());
            function.origin == Origin::Unknown && module.is_some_and(|it| it.path == "[generated]")
        });
        if is_unnamed {
            unnamed = unnamed.saturating_add(count);
        }
    }
    if unnamed == 0 || unnamed < all / 100 * WORTH {
        return None;
    }
    let names = recording.modules.values().filter_map(|module| module.path.rsplit('/').next());
    let names: Vec<&str> = names.collect();
    let known = |row: &&(&str, &str, &str)| names.iter().any(|name| is_of(name, row.0));
    let (_, runtime, help) = REMEDIES.iter().find(known)?;
    let share = 100 * unnamed / all.max(1);
    let what = if profile.mode == Mode::Exact { "instructions" } else { "samples" };
    Some(format!(
        "{share} % of the {what} are in code that {runtime} generated without names: {help}"
    ))
}

/// Advises on a way to functions of an interpreted program that an exact recording lacks.
pub fn by_samples(recording: &Recording) -> Option<&'static str> {
    let names = recording.modules.values().filter_map(|module| module.path.rsplit('/').next());
    let python = |name: &str| is_of(name, "libpython") || is_of(name, "python");
    let exact = recording.events.is_empty();
    (exact && names.into_iter().any(python)).then_some(
        "Python's functions and lines, and which of them take the instructions, are told by \
         samples: lwp record -c 100K. Calls from 3.11 on: --lang python, which makes each call \
         need more stack",
    )
}

/// Interpreters by their files. A file's name begins so.
const INTERPRETERS: [(&str, &str); 13] = [
    ("python", "Python"),
    ("libpython", "Python"),
    ("ruby", "Ruby"),
    ("libruby", "Ruby"),
    ("php", "PHP"),
    ("php-cgi", "PHP"),
    ("php-fpm", "PHP"),
    ("perl", "Perl"),
    ("libperl", "Perl"),
    ("lua", "Lua"),
    ("liblua", "Lua"),
    ("luajit", "Lua"),
    ("libluajit", "Lua"),
];

/// The interpreter that a file is by its name.
fn interpreter(file: &str) -> Option<&'static str> {
    INTERPRETERS.iter().find(|(name, _)| is_of(file, name)).map(|(_, language)| *language)
}

/// The language of the first interpreter whose code a process has mapped.
pub fn interpreter_in(pid: i32) -> Option<&'static str> {
    let named = |path: &PathBuf| path.file_name().and_then(|it| it.to_str()).and_then(interpreter);
    lwp_time::code_files(pid).iter().find_map(named)
}

/// Returns whether a program is an interpreter, by its name or by what the first line of a script
/// says.
fn is_interpreter(program: &Path) -> bool {
    let named = |path: &Path| path.file_name().and_then(|it| it.to_str()).and_then(interpreter);
    let of_script = || script_interpreters(program).iter().any(|path| named(path).is_some());
    let real = || std::fs::canonicalize(program).is_ok_and(|real| named(&real).is_some());
    named(program).is_some() || of_script() || real()
}

/// The words of a script's first line: `env` has the interpreter's name behind its own.
fn script_interpreters(program: &Path) -> Vec<PathBuf> {
    use std::io::Read;

    let mut start = [0; 256];
    let read = std::fs::File::open(program).and_then(|mut file| file.read(&mut start));
    let start = read.map_or(&[][..], |length| &start[..length]);
    let line = start.strip_prefix(b"#!").and_then(|rest| rest.split(|it| *it == b'\n').next());
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    line.split_ascii_whitespace().map(PathBuf::from).collect()
}

/// Says why a recording of an interpreted program's time has none of its functions, and what to do.
pub fn without_functions(recording: &Recording) -> Option<String> {
    let time = recording.events.iter().any(|event| event.name == lwp_time::EVENT);
    let paths = || recording.modules.values().map(|it| it.path.as_str());
    let mut names = paths().filter_map(|path| path.rsplit('/').next());
    let language = names.find_map(interpreter).filter(|_| time)?;
    let word = language.to_lowercase();
    let source = format!("[{word}]");
    if paths().any(|path| path.starts_with(&source)) || recording.info("languages") == "none" {
        return None;
    }
    let why = match recording.info("languages-read") {
        "" => format!(
            "lwp reads {language}'s in programs that it starts as interpreters, and with -p: \
             lwp record --time --lang {word} -- PROGRAM"
        ),
        _ => format!(
            "lwp does not know how this build of {language} keeps its own \
             (docs/languages.md lists releases)"
        ),
    };
    Some(format!("time is that of the interpreter's functions: {why}"))
}

/// Returns whether a file is the runtime's: what comes behind its name is a version or nothing.
fn is_of(file: &str, runtime: &str) -> bool {
    file.strip_prefix(runtime).is_some_and(|rest| {
        rest.is_empty()
            || runtime.starts_with("lib")
            || rest.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use lwp_profile::{RecordedModule, SampledEvent};

    use super::*;

    #[test]
    fn languages_are_chosen_by_name() {
        assert_eq!(Languages::parse("auto"), Ok(Languages::Auto));
        assert_eq!(Languages::parse("none"), Ok(Languages::None));
        let chosen = Languages::parse("node,python").unwrap();
        assert_eq!(chosen.text(), "python,node");
        assert!(chosen.has(Language::Node) && !chosen.has(Language::Java));
        assert!(Languages::parse("cobol").is_err_and(|says| says.contains("java, dotnet, ruby")));
        assert!(Languages::parse("").is_err());
    }

    #[test]
    fn none_adds_nothing() {
        assert_eq!(Languages::None.additions(true), []);
        assert_eq!(Languages::parse("python").unwrap().additions(false), []);
        assert_eq!(Languages::Auto.additions(true).len(), 3);
        assert_eq!(Languages::parse("python").unwrap().additions(true).len(), 1);
        assert!(!Languages::Auto.deepens_stacks(true));
    }

    #[test]
    fn interpreters_are_known_by_name_and_by_the_first_lines_of_scripts() {
        let all = ["python", "python3.11", "ruby3.1", "php-fpm8.2", "luajit", "lua5.4", "perl"];
        assert!(all.iter().all(|name| is_interpreter(Path::new(name))));
        assert!(!["pythonic", "sh", "perldoc"].iter().any(|name| is_interpreter(Path::new(name))));
        let dir = std::env::temp_dir().join(format!("lwp-first-lines-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        for (line, is) in [
            ("#!/usr/bin/env -S python3 -O\n", true),
            ("#!/opt/ruby\n", true),
            ("#!/bin/sh\n", false),
        ] {
            let script = dir.join("script");
            std::fs::write(&script, line).expect("written");
            assert_eq!(is_interpreter(&script), is, "{line}");
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn runtimes_are_known_by_their_files() {
        assert!(is_of("libpython3.11.so.1.0", "libpython") && is_of("php8.2", "php"));
        let events = vec![SampledEvent { name: "cpu-time".into(), ..SampledEvent::default() }];
        let path = "/usr/bin/python3.11".to_owned();
        let module = RecordedModule { path, ..RecordedModule::default() };
        let modules = [(0, module)].into();
        let timed = Recording { events, modules, ..Recording::default() };
        let advice = without_functions(&timed);
        assert!(advice.is_some_and(|advice| advice.contains("--time --lang python")));
        let mut read = timed.clone();
        read.info.insert("languages-read".into(), "python".into());
        let advice = without_functions(&read);
        assert!(advice.is_some_and(|advice| advice.contains("this build of Python")));
        let path = "[python]/srv/app.py".to_owned();
        read.modules.insert(1, RecordedModule { path, ..RecordedModule::default() });
        assert_eq!(without_functions(&read), None);
        assert_eq!(without_functions(&Recording { events: Vec::new(), ..timed }), None);
        assert!(is_of("node", "node") && !is_of("node_exporter", "node"));
    }
}
