//! Names come from programs: whatever they hold, no command writes a character that a terminal
//! would obey.
//!
//! Promise: R10
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lwp_profile::{
    Block, BlockCount, BlockEnd, Image, Mapping, RecordedFile, RecordedFrame, RecordedModule,
    RecordedSample, RecordedSymbol, SampledEvent, ThreadExecutions, Writer,
};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// An attack by every way: escape sequences of both lengths, a title, a carriage return, a new
/// line, delete, marks that turn a line round, separators.
const BAD: &str =
    "\u{1b}]0;pwn\u{7}\u{1b}[31m\r\u{8}\u{7f}\u{9b}2J\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}\nrow";

fn bad(name: &str) -> String {
    format!("{name}{BAD}{name}")
}

fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("escapes-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

/// Fails where `bytes` hold anything that a terminal obeys, or a line that only a name can have
/// begun.
fn assert_harmless(what: &str, bytes: &[u8]) {
    let text = String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| panic!("{what}: no text"));
    let obeyed = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if let Some(c) = text.chars().find(|c| obeyed(*c)) {
        panic!("{what}: {c:?} in {text:?}");
    }
    assert!(!text.lines().any(|line| line.starts_with("row")), "{what}: a line of its own: {text}");
}

fn run(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300", LWP]).args(words).current_dir(dir);
    command.env("XDG_CACHE_HOME", dir.join("cache"));
    command.output().expect("it starts")
}

/// Runs lwp, and looks at both streams; whether it has succeeded.
fn harmless(dir: &Path, words: &[&str]) -> bool {
    let output = run(dir, words);
    assert_harmless(&format!("{words:?}"), &output.stdout);
    assert_harmless(&format!("{words:?}, errors"), &output.stderr);
    assert!(!matches!(output.status.code(), Some(101 | 124) | None), "{words:?}: {output:?}");
    output.status.success()
}

/// A recording with an attack in every field; exact, or of samples.
fn recording(path: &Path, sampled: bool, runs: u64) {
    let mut writer = Writer::new(std::fs::File::create(path).expect("a file")).expect("a header");
    let keys = [
        "command",
        "host",
        "kernel",
        "directory",
        "cgroup",
        "filter",
        "random",
        "strange\u{1b}[0m",
    ];
    let values = keys.map(|key| (key, bad(key)));
    let mode = ("mode", if sampled { "sampled" } else { "exact" }.to_owned());
    let info = values.iter().chain([&mode]).map(|(key, value)| (*key, value.as_str()));
    writer.info(info).unwrap();
    let mapping = Mapping { start: 0x1000, end: 0x3000, offset: 0 };
    for (id, path) in [(0, bad("/lib/a.so")), (1, String::new())] {
        let build_id = vec![runs as u8; 20];
        let mappings = vec![mapping.clone()];
        let module =
            RecordedModule { id, path, build_id, pid: 7, mappings, ..RecordedModule::default() };
        writer.module(&module).unwrap();
    }
    let block = |id: u32, module| Block {
        id,
        module,
        address: 0x1000 + 16 * u64::from(id),
        lengths: vec![1, 1],
        counted: 2,
        end: BlockEnd::from_raw(4),
        target: Some(0x1000),
        bytes: vec![0x90, 0xc3],
    };
    writer.blocks(&[block(0, 0), block(1, 1), block(2, 1)]).unwrap();
    let image = |id, uncounted| {
        let (comm, command) = (bad("comm"), bad("command"));
        Image { id, pid: 7, parent: 1, comm, uncounted, command }
    };
    writer.image(&image(0, None)).unwrap();
    writer.image(&image(1, Some(bad("reason")))).unwrap();
    let symbol =
        |address, name: &str| RecordedSymbol { pid: 7, address, size: 16, name: bad(name) };
    writer.symbols(&[symbol(0x1010, "f"), symbol(0x1020, "g")]).unwrap();
    writer.file(&RecordedFile { path: bad("/src/a.c"), bytes: bad("code").into_bytes() }).unwrap();
    let count = |block| BlockCount { block, runs, not_taken: 0 };
    let blocks = if sampled { Vec::new() } else { vec![count(0), count(1), count(2)] };
    let thread = ThreadExecutions {
        pid: 7,
        tid: 8,
        comm: bad("thread"),
        blocks,
        ..ThreadExecutions::default()
    };
    writer.thread(&thread).unwrap();
    if sampled {
        let event = |name: &str| SampledEvent { name: bad(name), interval: 10, modelled: true };
        writer.events(&[event("instructions"), event("branches")]).unwrap();
        let frame =
            |caller, module, address| RecordedFrame { caller, module: Some(module), address };
        writer
            .frames(
                0,
                &[frame(None, 0, 0x1000), frame(Some(0), 1, 0x1010), frame(Some(1), 1, 0x1021)],
            )
            .unwrap();
        let sample = RecordedSample { serial: 0, event: 0, frame: 2 };
        let samples = vec![sample; runs as usize];
        writer.samples(&samples).unwrap();
        writer.sampled(0, &[10 * runs, 5]).unwrap();
    }
    writer.end().unwrap();
}

/// Commands that look at `x.data`, and at `y.data` besides.
#[rustfmt::skip] // A list: one command a line.
const LOOKS: &[&str] = &[
    "report -i x.data",
    "report -i x.data --sort comm,pid,tid,thread,dso,sym,srcfile,srcline,addr",
    "report -i x.data --no-demangle --sort sym",
    "report -i x.data --csv --sort thread,sym,dso",
    "report -i x.data --json --sort thread,sym,dso",
    "report -i x.data --tree",
    "report -i x.data -e nonsense",
    "annotate -i x.data",
    "annotate -i x.data f",
    "annotate -i x.data -l f",
    "annotate -i x.data --objdump-like f",
    "annotate -i x.data r",
    "annotate -i x.data zzz",
    "flamegraph -i x.data -o -",
    "flamegraph -i x.data -o page.html",
    "flamegraph -i x.data --baseline y.data -o -",
    "diff x.data y.data",
    "diff x.data y.data --by line",
    "diff x.data y.data --csv",
    "diff x.data y.data --json",
    "diff x.data y.data x.data",
    "diff x.data y.data x.data --csv",
    "diff x.data y.data x.data --json",
    "gate -i y.data --baseline x.data --limit instructions=+1%",
    "gate -i y.data --baseline x.data --limit instructions=+1% --format markdown",
    "gate -i y.data --baseline x.data --limit instructions=+1% --format junit",
    "gate -i y.data --baseline x.data --limit instructions=+1% --format json",
    "gate -i y.data --baseline x.data --limit instructions=+1% --format github",
    "gate -i y.data --baseline x.data --limit instructions=+1% --format sarif",
    "export -i x.data -f folded -o -",
    "export -i x.data -f callgrind -o -",
    "export -i x.data -f firefox -o -",
    "export -i x.data -f speedscope -o -",
    "export -i x.data -f chrome -o -",
    "export -i x.data -f jsonl -o -",
    "script -i x.data --header",
    "merge -o sum.data x.data y.data",
    "archive -i x.data -o x.archive",
    "perf script -i x.data",
    "perf report -i x.data --stdio",
    "perf annotate -i x.data --stdio",
    "report -i x.archive",
    "report -i sum.data",
    "cache warm /bin/true --from x.data",
];

#[test]
fn no_field_of_a_recording_reaches_the_terminal_as_it_is() {
    for sampled in [false, true] {
        let dir = folder(if sampled { "sampled" } else { "exact" });
        recording(&dir.join("x.data"), sampled, 10);
        recording(&dir.join("y.data"), sampled, 20);
        let mut good = 0;
        for look in LOOKS {
            let words: Vec<&str> = look.split(' ').collect();
            good += usize::from(harmless(&dir, &words));
        }
        // Gates fail, and one event is unknown; the rest must have shown something.
        assert!(good > LOOKS.len() / 2, "only {good} commands succeeded");
        // Names of files are names too.
        let name = bad("recording").replace('/', "");
        std::fs::rename(dir.join("x.data"), dir.join(&name)).expect("another name");
        for command in ["report", "script", "annotate", "flamegraph"] {
            harmless(&dir, &[command, "-i", &name]);
            harmless(&dir, &[command, "-i", &format!("{name}.missing")]);
        }
        harmless(&dir, &["diff", &name, "y.data", &name]);
        harmless(&dir, &["merge", "-o", &bad("out"), &name, "y.data"]);
        harmless(&dir, &["archive", "-i", &name, "-o", &bad("archive")]);
        harmless(&dir, &["flamegraph", "-i", &name, "-o", &bad("flame.svg")]);
    }
}

/// A program that calls itself names, by prctl, its arguments and its file.
const PROGRAM: &str = r#"
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    prctl(PR_SET_NAME, "\x1b]0;pwn\x07\x1b[31m");
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_NAME, "k\x1b[5mz\nrow");
        for (volatile int i = 0; i < 1000; i++) {}
        _exit(0);
    }
    wait(0);
    return 0;
}
"#;

#[test]
fn no_name_of_a_running_program_reaches_the_terminal_as_it_is() {
    let dir = folder("running");
    let program = dir.join(bad("prog").replace('/', ""));
    std::fs::write(dir.join("esc.c"), PROGRAM).expect("a source");
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(dir.join("esc.c")).status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no compiler");
        return;
    }
    let (program, argument) = (program.to_str().expect("text").to_owned(), bad("argument"));
    let recorded = bad("out.data");
    #[rustfmt::skip] // A list: one command a line.
    let options: &[&[&str]] = &[
        &["run"],
        &["run", "-v", "--cache-dir", BAD],
        &["stat"],
        &["stat", "-v", "--cache-dir", "/dev/null/\u{1b}[31m"],
        &["stat", "--per-process"],
        &["stat", "--per-thread"],
        &["stat", "--no-inherit"],
        &["stat", "-x,", "--per-process"],
        &["stat", "-j", "--per-thread"],
        &["stat", "-j", "--no-inherit"],
        &["stat", "-x", ";", "--no-inherit"],
        &["stat", "-I", "10", "--per-thread"],
        &["stat", "-e", BAD],
        &["stat", "--frob", BAD],
        &["stat", "--control", BAD],
        &["stat", "-o", "/nonexistent/\u{1b}[31m"],
        &["record", "-v", "-o", &recorded],
        &["record", "-c", "100", "-o", &recorded],
        &["record", "-c", "100", "--filter", BAD],
        &["record", "-e", BAD],
        &["top", "--batch"],
        &["top", "--batch", "--json"],
    ];
    for words in options {
        harmless(&dir, &[*words, &["--", &program, &argument]].concat());
    }
    harmless(&dir, &["stat", "--", BAD]);
    harmless(&dir, &[BAD]);
    harmless(&dir, &["report", "-i", &recorded, "--sort", "comm,sym"]);
    harmless(&dir, &["cache", "list"]);
    harmless(&dir, &["cache", "verify"]);
}
