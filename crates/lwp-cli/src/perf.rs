//! Standing in for `perf`: `lwp perf …`, or lwp called by that name.
//!
//! Harnesses and viewers call perf with a handful of options. What has a meaning here is handed to
//! lwp's own commands; what only tunes perf is taken and dropped; what asks for something else is
//! refused with the reason, because a harness must not take another number for the one it asked
//! for.

pub mod fields;
pub mod script;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::args::{Command, CommandLine, usage_error};
use crate::failure::Failure;
use fields::Fields;
use script::Form;

/// A request to perf, in lwp's words.
#[derive(Debug)]
pub enum Request {
    /// One of lwp's own commands.
    Own(Box<CommandLine>),
    /// `perf record`: sample, and leave a file that perf reads.
    Record {
        /// The file to write for perf.
        output: PathBuf,
        /// The command that records, into the file beside it.
        recording: Box<CommandLine>,
    },
    /// `perf script`.
    Script {
        /// perf's file.
        input: PathBuf,
        /// The form of the text.
        form: Form,
    },
    /// `perf --version`, `perf --help`.
    Print(String),
}

/// Treatment of one of perf's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is lwp's as well, under this name.
    Is(&'static str),
    /// It changes nothing here, and need not.
    Drop,
    /// It would change the output, and does not: that is said.
    Say(&'static str),
    /// It asks for what cannot be had.
    Refuse(&'static str),
}

/// Form of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    None,
    /// Attached or in the next word.
    Needed,
    /// Attached, or none.
    Attached,
    /// Attached, or in the next word if that is not an option.
    Optional,
}

/// Names of an option, its value and its fate.
type Row = (&'static [&'static str], Value, Fate);

const NUMBERS: Fate = Fate::Say("the table has no numbers of samples");
const EVENTS: Fate = Fate::Say("the processor's cache events are not visible from user mode");
const FLAT: Fate = Fate::Say("the table has no stacks; `lwp report -g` shows a tree");
const BRANCHES: Fate = Fate::Say(
    "samples have no branches; `lwp export -f brstack` makes such a file of an exact recording",
);
const SYSTEM: Fate =
    Fate::Refuse("other programs than the one started or named by -p are not seen");

#[rustfmt::skip] // Tables: one option a line.
const STAT: &[Row] = &[
    (&["-e", "--event"],           Value::Needed,   Fate::Is("--event")),
    (&["-r", "--repeat"],          Value::Needed,   Fate::Is("--repeat")),
    (&["-x", "--field-separator"], Value::Needed,   Fate::Is("--field-separator")),
    (&["-j", "--json-output"],     Value::None,     Fate::Is("--json-output")),
    (&["-o", "--output"],          Value::Needed,   Fate::Is("--output")),
    (&["--append"],                Value::None,     Fate::Is("--append")),
    (&["--per-thread"],            Value::None,     Fate::Is("--per-thread")),
    (&["-p", "--pid"],             Value::Needed,   Fate::Is("--pid")),
    (&["-i", "--no-inherit"],      Value::None,     Fate::Is("--no-inherit")),
    (&["--control"],               Value::Needed,   Fate::Is("--control")),
    (&["-D", "--delay"],           Value::Needed,   Fate::Is("--delay")),
    (&["--timeout"],               Value::Needed,   Fate::Is("--timeout")),
    (&["--no-big-num"],            Value::None,     Fate::Is("--no-big-num")),
    (&["-B", "--big-num"],         Value::None,     Fate::Drop),
    (&["-c", "--scale", "--no-scale", "-S", "--sync", "-v", "--verbose", "-q", "--quiet"],
                                   Value::None,     Fate::Drop),
    (&["-g", "--group", "--no-csv-summary", "--summary"],
                                   Value::None,     Fate::Drop),
    (&["-d", "--detailed"],        Value::None,     EVENTS),
    (&["-a", "--all-cpus"],        Value::None,     SYSTEM),
    (&["-C", "--cpu"],             Value::Needed,   SYSTEM),
    (&["-t", "--tid"],             Value::Needed,   Fate::Is("--tid")),
    (&["-I", "--interval-print"],  Value::Needed,   Fate::Is("--interval-print")),
];

#[rustfmt::skip]
const RECORD: &[Row] = &[
    (&["-c", "--count"],           Value::Needed,   Fate::Is("--count")),
    (&["-p", "--pid"],             Value::Needed,   Fate::Is("--pid")),
    (&["-i", "--no-inherit"],      Value::None,     Fate::Is("--no-inherit")),
    (&["--control"],               Value::Needed,   Fate::Is("--control")),
    (&["-D", "--delay"],           Value::Needed,   Fate::Is("--delay")),
    // These three are looked at below.
    (&["-o", "--output"],          Value::Needed,   Fate::Is("--output")),
    (&["-e", "--event"],           Value::Needed,   Fate::Is("--event")),
    (&["-F", "--freq"],            Value::Needed,   Fate::Is("--freq")),
    // Stacks are always recorded.
    (&["-g"],                      Value::None,     Fate::Drop),
    (&["--call-graph", "-m", "--mmap-pages", "-k", "--clockid"],
                                   Value::Needed,   Fate::Drop),
    (&["-j", "--branch-filter"],   Value::Needed,   BRANCHES),
    (&["-b", "--branch-any"],      Value::None,     BRANCHES),
    (&["--max-size"],              Value::Needed,   Fate::Say("the file has every sample")),
    (&["-d", "--data"],            Value::None,     Fate::Say("samples have no addresses of data")),
    (&["-n", "--no-samples"],      Value::None,     Fate::Say("the file has every sample")),
    (&["-z", "--compression-level", "--user-callchains"],
                                   Value::Attached, Fate::Drop),
    (&["-q", "--quiet", "-v", "--verbose", "-s", "--stat", "-T", "--timestamp", "-P", "--period",
       "-N", "--no-buildid-cache", "-B", "--no-buildid", "--all-user", "--strict-freq", "--exclude-perf",
       "-R", "--raw-samples", "-f", "--force"],
                                   Value::None,     Fate::Drop),
    (&["-a", "--all-cpus"],        Value::None,     SYSTEM),
    (&["-C", "--cpu"],             Value::Needed,   SYSTEM),
    (&["-t", "--tid"],             Value::Needed,   Fate::Is("--tid")),
    (&["--filter"],                Value::Needed,   Fate::Refuse("samples cannot be filtered")),
];

#[rustfmt::skip]
const REPORT: &[Row] = &[
    (&["-i", "--input"],           Value::Needed,   Fate::Is("--input")),
    (&["-s", "--sort"],            Value::Needed,   Fate::Is("--sort")),
    (&["--percent-limit"],         Value::Needed,   Fate::Is("--percent-limit")),
    (&["--children"],              Value::None,     Fate::Is("--children")),
    (&["--stdio", "--no-children", "-f", "--force", "-v", "--verbose", "-q", "--quiet", "--header", "--no-inline",
       "--inline", "--show-total-period"],
                                   Value::None,     Fate::Drop),
    (&["-n", "--show-nr-samples"], Value::None,     NUMBERS),
    (&["-g", "--call-graph"],      Value::Optional, FLAT),
    (&["-G", "--inverted"],        Value::None,     FLAT),
    (&["--max-stack"],             Value::Needed,   FLAT),
    (&["--symfs"],                 Value::Needed,   Fate::Say("names are those of the recording")),
    (&["--kallsyms", "-k", "--vmlinux"],
                                   Value::Needed,   Fate::Drop),
];

#[rustfmt::skip]
const ANNOTATE: &[Row] = &[
    (&["-i", "--input"],           Value::Needed,   Fate::Is("--input")),
    (&["-s", "--symbol"],          Value::Needed,   Fate::Is("--symbol")),
    (&["-M", "--disassembler-style"], Value::Needed, Fate::Is("--disassembler-style")),
    (&["--stdio", "-f", "--force", "-v", "--verbose", "-q", "--quiet", "-l", "--print-line"],
                                   Value::None,     Fate::Drop),
    (&["-P", "--full-paths", "--source", "--asm-raw", "--no-asm-raw", "-n", "--show-nr-samples"],
                                   Value::None,     Fate::Drop),
    (&["--show-total-period", "--group"], Value::None, Fate::Drop),
    (&["-d", "--dsos", "--dso"],   Value::Needed,   Fate::Say("files are not told apart")),
    (&["--objdump", "--percent-type", "--percent-limit", "--symfs"],
                                   Value::Needed,   Fate::Say("lwp disassembles by itself")),
    (&["-k", "--vmlinux", "-m", "--modules"], Value::Needed, Fate::Drop),
];

#[rustfmt::skip]
const SCRIPT: &[Row] = &[
    (&["-i", "--input"],           Value::Needed,   Fate::Is("--input")),
    (&["--no-inline"],             Value::None,     Fate::Is("--no-inline")),
    (&["-F", "--fields"],          Value::Needed,   Fate::Is("--fields")),
    (&["--max-stack"],             Value::Needed,   Fate::Is("--max-stack")),
    (&["-f", "--force", "--inline", "-v", "--verbose", "--ns"],
                                   Value::None,     Fate::Drop),
    (&["--header", "-I"],          Value::None,     Fate::Say("`lwp script --header-only` describes the recording")),
    (&["--show-mmap-events", "--show-task-events"],
                                   Value::None,     Fate::Say("samples are printed, and no other records")),
    (&["-G", "--hide-call-graph"], Value::None,     Fate::Refuse("samples have their stacks")),
    (&["--symfs"],                 Value::Needed,   Fate::Say("names are those of the recording")),
    (&["--kallsyms", "-k", "--vmlinux"],
                                   Value::Needed,   Fate::Drop),
];

/// Returns whether this process was called by perf's name.
pub fn is_called_so(name: Option<&OsStr>) -> bool {
    name.and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == "perf")
}

/// Parses perf's words, without the leading `perf`.
pub fn request(words: &[OsString]) -> Result<Request, Failure> {
    let Some((command, rest)) = words.split_first() else {
        return Ok(Request::Print(help()));
    };
    let command = command.to_string_lossy();
    if let Some(rows) = rows_of(&command).filter(|_| asks_for_help(rest)) {
        return Ok(Request::Print(help_of(&command, rows)));
    }
    match command.as_ref() {
        "--version" | "-v" | "version" => Ok(Request::Print(version())),
        "--help" | "-h" | "help" => Ok(Request::Print(help())),
        "stat" => own("stat", &Options::read("stat", STAT, rest)?),
        "record" => record(Options::read("record", RECORD, rest)?),
        "report" => {
            let mut options = Options::read("report", REPORT, rest)?;
            let input = options.take("--input").map_or_else(default_file, PathBuf::from);
            options.push("--input", recording_of(&input).into_os_string());
            options.words.push("--stdio".into());
            own("report", &options)
        }
        "annotate" => annotate(Options::read("annotate", ANNOTATE, rest)?),
        "script" => script(Options::read("script", SCRIPT, rest)?),
        "list" => own("list", &Options::default()),
        other => Err(usage_error(
            format!("lwp does not stand in for `perf {other}`"),
            "it does for: perf stat, perf record, perf report, perf annotate, perf script, \
             perf list",
        )),
    }
}

/// The file that `perf record` writes unless another one is named.
fn default_file() -> PathBuf {
    PathBuf::from("perf.data")
}

/// perf's version line.
pub fn version() -> String {
    format!("perf version 6.1 (lwp {})\n", env!("CARGO_PKG_VERSION"))
}

fn help() -> String {
    "lwp in place of perf: perf stat, perf record, perf report, perf annotate, perf script, perf \
     list\n\n \
     usage: perf [--version] COMMAND [ARGS]\n\nCounts are exact, samples are of instructions or \
     branches; `lwp help` says what lwp does by itself.\n"
        .to_owned()
}

/// The options of one of perf's commands.
fn rows_of(command: &str) -> Option<&'static [Row]> {
    match command {
        "stat" => Some(STAT),
        "record" => Some(RECORD),
        "report" => Some(REPORT),
        "script" => Some(SCRIPT),
        "annotate" => Some(ANNOTATE),
        _ => None,
    }
}

/// Returns whether one of the options before the program asks for help.
fn asks_for_help(words: &[OsString]) -> bool {
    let mut options = words.iter().map(|word| word.to_string_lossy());
    options
        .by_ref()
        .take_while(|word| word.starts_with('-') && word != "--")
        .any(|word| word == "--help" || word == "-h")
}

/// Describes the treatment of a command's options.
fn help_of(command: &str, rows: &[Row]) -> String {
    let names = |wanted: &dyn Fn(Fate) -> bool| -> String {
        let fitting = rows.iter().filter(|(_, _, fate)| wanted(*fate));
        let names: Vec<String> = fitting.map(|(names, ..)| names.join(", ")).collect();
        names.join("\n  ")
    };
    let refused = names(&|fate| matches!(fate, Fate::Refuse(_)));
    let refused = match refused.is_empty() {
        true => String::new(),
        false => format!("refused:\n  {refused}\n\n"),
    };
    format!(
        "lwp in place of `perf {command}`\n\noptions:\n  {}\n\n\
         taken, and without an effect here:\n  {}\n\n{refused}\
         `lwp {command} --help` says what lwp does by itself.\n",
        names(&|fate| matches!(fate, Fate::Is(_))),
        names(&|fate| matches!(fate, Fate::Drop | Fate::Say(_))),
    )
}

/// The recording that belongs to perf's file: beside it, or the file itself.
pub fn recording_of(file: &Path) -> PathBuf {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".lwp");
    let beside = PathBuf::from(beside);
    if beside.exists() { beside } else { file.to_owned() }
}

fn own(command: &str, options: &Options) -> Result<Request, Failure> {
    parsed(command, options).map(|line| Request::Own(Box::new(line)))
}

fn parsed(command: &str, options: &Options) -> Result<CommandLine, Failure> {
    let mut words: Vec<OsString> = vec!["lwp".into(), command.into()];
    words.extend(options.words.iter().cloned());
    if !options.program.is_empty() {
        words.push("--".into());
        words.extend(options.program.iter().cloned());
    }
    CommandLine::try_parse_from(words).map_err(|error| Failure::usage(&error))
}

/// The most frames of a stack that perf prints unless something else is asked for.
const MOST_FRAMES: usize = 127;

fn script(mut options: Options) -> Result<Request, Failure> {
    let fields = options.take("--fields");
    let fields = fields.map(|text| Fields::parse(&text.to_string_lossy())).transpose()?;
    let most_frames = match options.take("--max-stack") {
        None => MOST_FRAMES,
        Some(text) => text.to_string_lossy().parse().map_err(|_| {
            let cause = format!("--max-stack: '{}' is no number", text.to_string_lossy());
            usage_error(cause, "write the number of frames, as in --max-stack 16")
        })?,
    };
    let inline = !options.has("--no-inline");
    let form = Form { fields: fields.unwrap_or_default(), inline, most_frames };
    let input = options.take("--input").map_or_else(default_file, PathBuf::from);
    Ok(Request::Script { input, form })
}

fn annotate(mut options: Options) -> Result<Request, Failure> {
    let input = options.take("--input").map_or_else(default_file, PathBuf::from);
    options.push("--input", recording_of(&input).into_os_string());
    // The function stands behind the options, as one of them, or is the hottest.
    if let Some(symbol) = options.take("--symbol") {
        options.program = vec![symbol];
    }
    options.words.push("--stdio".into());
    own("annotate", &options)
}

/// Instructions that stand for a second where a frequency is asked for.
const SECOND: u64 = 1_000_000_000;
/// perf's own default frequency.
const FREQUENCY: u64 = 4000;

fn record(mut options: Options) -> Result<Request, Failure> {
    let output = options.take("--output").map_or_else(default_file, PathBuf::from);
    let frequency = options.take("--freq");
    if !options.has("--count") {
        let frequency = match frequency.as_deref().map(OsStr::to_string_lossy) {
            None => FREQUENCY,
            Some(text) if text == "max" => FREQUENCY,
            Some(text) => text.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                usage_error(format!("'{text}' is no frequency"), "write a number, as in -F 997")
            })?,
        };
        // An odd interval falls into step with loops less easily.
        let interval = (SECOND / frequency).max(1) | 1;
        options.push("--count", interval.to_string().into());
    }
    for event in sampled_events(&mut options) {
        options.push("--event", event.into());
    }
    let mut beside = output.clone().into_os_string();
    beside.push(".lwp");
    options.push("--output", beside);
    options.words.push("--quiet".into());
    let recording = Box::new(parsed("record", &options)?);
    Ok(Request::Record { output, recording })
}

/// Takes the events out that can be sampled. Those that stand for time become instructions, which
/// is said.
fn sampled_events(options: &mut Options) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(texts) = options.take("--event") {
        for text in texts.to_string_lossy().split(',') {
            let name = text.split([':', '/']).next().unwrap_or_default();
            match name {
                "cycles" | "cpu-cycles" | "cpu-clock" | "task-clock" => {
                    lwp_terminal::say!(
                        "lwp: {name} cannot be seen from user mode; sampling instructions"
                    );
                }
                _ => out.push(text.to_owned()),
            }
        }
    }
    out
}

/// A command line of perf's, in lwp's words.
#[derive(Debug, Default)]
struct Options {
    words: Vec<OsString>,
    program: Vec<OsString>,
}

impl Options {
    fn read(command: &str, rows: &[Row], words: &[OsString]) -> Result<Self, Failure> {
        let mut out = Self::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let text = word.to_string_lossy().into_owned();
            if text == "--" {
                out.program = rest.cloned().collect();
                break;
            }
            if !text.starts_with('-') || text == "-" {
                out.program = std::iter::once(word.clone()).chain(rest.cloned()).collect();
                break;
            }
            for (name, attached) in split(rows, &text) {
                out.option(command, rows, &name, attached, &mut rest)?;
            }
        }
        Ok(out)
    }

    fn option<'a>(
        &mut self,
        command: &str,
        rows: &[Row],
        name: &str,
        attached: Option<String>,
        rest: &mut std::slice::Iter<'a, OsString>,
    ) -> Result<(), Failure> {
        let Some(&(_, value, fate)) = row_of(rows, name) else {
            return Err(usage_error(
                format!("`perf {command}` has the option {name}, if any, that lwp does not know"),
                format!("leave it out, or see `lwp {command} --help` for what there is"),
            ));
        };
        let value = match (value, attached) {
            (Value::Needed, None) => rest.next().cloned(),
            (Value::Optional, None) => {
                let next = rest.as_slice().first();
                let is_value = next.is_some_and(|next| !next.to_string_lossy().starts_with('-'));
                if is_value { rest.next().cloned() } else { None }
            }
            (_, attached) => attached.map(OsString::from),
        };
        match fate {
            Fate::Is(own) => {
                self.words.push(own.into());
                self.words.extend(value);
            }
            Fate::Drop => {}
            Fate::Say(why) => lwp_terminal::say!("lwp: {name} has no effect here: {why}"),
            Fate::Refuse(why) => {
                return Err(usage_error(format!("{name}: {why}"), "leave the option out"));
            }
        }
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    fn push(&mut self, name: &str, value: OsString) {
        self.words.push(name.into());
        self.words.push(value);
    }

    /// Takes an option with a value out.
    fn take(&mut self, name: &str) -> Option<OsString> {
        let at = self.words.iter().position(|word| word == name)?;
        let mut taken = self.words.drain(at..(at + 2).min(self.words.len()));
        taken.nth(1)
    }
}

fn row_of<'r>(rows: &'r [Row], name: &str) -> Option<&'r Row> {
    rows.iter().find(|(names, ..)| names.contains(&name))
}

/// The options in a word: `--name=value`, `-e value`, `-evalue`, `-ab`.
fn split(rows: &[Row], word: &str) -> Vec<(String, Option<String>)> {
    if let Some(long) = word.strip_prefix("--") {
        return match long.split_once('=') {
            Some((name, value)) => vec![(format!("--{name}"), Some(value.to_owned()))],
            None => vec![(word.to_owned(), None)],
        };
    }
    let mut out = Vec::new();
    for (at, letter) in word[1..].char_indices() {
        let name = format!("-{letter}");
        let rest = &word[1 + at + letter.len_utf8()..];
        let takes = row_of(rows, &name).is_some_and(|(_, value, _)| *value != Value::None);
        if takes && !rest.is_empty() {
            let value = rest.strip_prefix('=').unwrap_or(rest);
            out.push((name, Some(value.to_owned())));
            break;
        }
        out.push((name, None));
    }
    out
}

/// Returns the options of `lwp record` in a line, which name the file for the commands that follow.
pub fn record_args(line: &CommandLine) -> Option<&crate::commands::record::RecordArgs> {
    match &line.command {
        Command::Record(args) => Some(args),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(words: &[&str]) -> Result<Request, Failure> {
        request(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    fn line(words: &[&str]) -> CommandLine {
        match ask(words).expect("understood") {
            Request::Own(line) => *line,
            Request::Record { recording, .. } => *recording,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn harnesses_command_lines_are_understood() {
        let words = [
            "stat",
            "--control=fd:3,4",
            "--delay=-1",
            "--event=instructions:u,cycles:u",
            "--no-big-num",
            "-j",
            "--output=out",
            "./bench",
            "--bench",
            "-e",
            "x",
        ];
        let Command::Stat(args) = line(&words).command else { panic!("not stat") };
        assert_eq!(args.counting.control.as_deref(), Some("fd:3,4"));
        assert_eq!((args.counting.delay, args.json, args.no_big_num), (Some(-1), true, true));
        assert_eq!(args.events, ["instructions:u,cycles:u"]);
        assert_eq!(args.counting.command, ["./bench", "--bench", "-e", "x"]);
        let Command::Stat(args) = line(&["stat", "-r", "0", "-vB", "-eins", "true"]).command else {
            panic!("not stat")
        };
        assert_eq!((args.repeat, &args.events[..]), (0, &["ins".to_owned()][..]));
    }

    #[test]
    fn flame_graph_tools_command_lines_are_understood() {
        let words = [
            "record",
            "-F",
            "997",
            "--call-graph",
            "dwarf,64000",
            "-g",
            "-z=3",
            "-o",
            "x/perf.data",
            "./program",
            "-F",
            "1",
        ];
        let Request::Record { output, recording } = ask(&words).expect("understood") else {
            panic!("not record")
        };
        assert_eq!(output, Path::new("x/perf.data"));
        let args = record_args(&recording).expect("record");
        assert_eq!(args.output, Path::new("x/perf.data.lwp"));
        assert_eq!(args.count.as_deref(), Some("1003009"));
        assert_eq!(args.counting.command, ["./program", "-F", "1"]);
        match ask(&["script", "--force", "--no-inline", "-i", "p"]).expect("understood") {
            Request::Script { input, form } => {
                assert_eq!((input.as_path(), form.inline), (Path::new("p"), false));
            }
            other => panic!("{other:?}"),
        }
        let asked = ask(&["script", "-F", "+pid", "--max-stack=16"]).expect("understood");
        let Request::Script { form, .. } = asked else { panic!("{asked:?}") };
        assert_eq!(form.most_frames, 16);
        assert!(form.fields.has(Fields::PID) && form.inline);
        let Command::Annotate(args) =
            line(&["annotate", "-i", "p", "--stdio", "-l", "leaf"]).command
        else {
            panic!("not annotate")
        };
        assert_eq!(args.function.as_deref(), Some("leaf"));
        for words in [&["report", "-g", "none", "-i", "p"][..], &["report", "-i", "p", "-g"]] {
            let Command::Report(args) = line(words).command else { panic!("not report") };
            assert_eq!(args.input.input, Path::new("p"));
        }
        let Command::Annotate(args) = line(&["annotate", "-s", "main"]).command else {
            panic!("not annotate")
        };
        assert_eq!(args.function.as_deref(), Some("main"));
        assert_eq!(args.input.input, Path::new("perf.data"));
        let Command::Stat(args) = line(&["stat", "-I", "100", "true"]).command else {
            panic!("not stat")
        };
        assert_eq!(args.interval_print, Some(100));
    }

    #[test]
    fn events_that_cannot_be_sampled_become_instructions() {
        let line = line(&["record", "-e", "cycles:u", "-c", "100", "true"]);
        let args = record_args(&line).expect("record");
        assert_eq!((args.count.as_deref(), args.events.len()), (Some("100"), 0));
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for words in [
            &["stat", "-a", "true"][..],
            &["stat", "-C", "0", "true"],
            &["record", "-F", "x", "true"],
            &["stat", "--frobnicate", "true"],
            &["top"],
            &["script", "-F", "brstack"],
            &["script", "--max-stack", "x"],
            &["script", "-G"],
        ] {
            assert!(ask(words).is_err(), "{words:?}");
        }
        for command in ["stat", "record", "report", "script", "annotate"] {
            let Ok(Request::Print(text)) = ask(&[command, "--help"]) else { panic!("{command}") };
            assert!(text.contains(&format!("`lwp {command} --help`")), "{text}");
        }
        let asked = ask(&["stat", "-v", "-h"]);
        let Ok(Request::Print(text)) = asked else { panic!("{asked:?}") };
        assert!(text.contains("refused:\n  -a, --all-cpus\n  -C, --cpu\n"), "{text}");
        assert!(matches!(ask(&["stat", "true", "--help"]), Ok(Request::Own(_))));
        assert!(
            matches!(ask(&["--version"]), Ok(Request::Print(text)) if text.starts_with("perf version"))
        );
        assert!(
            is_called_so(Some(OsStr::new("/x/perf"))) && !is_called_so(Some(OsStr::new("lwp")))
        );
    }
}
