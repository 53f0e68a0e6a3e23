//! Gates as teams use them: a baseline that is made and blessed, limits for parts, many benchmarks,
//! and a verdict that is shown where the change is.
//!
//! Promise: R39, R53
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::tools;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use recorded::{LWP, lwp, run};
use tools::{has, limited, text};

/// Two functions that work as much as the build says.
const SOURCE: &str = "static volatile long sum;\n\
    __attribute__((noinline)) void parse_words(long n) { while (n--) sum += n; }\n\
    \n\
    __attribute__((noinline)) void sort_lines(long n) { while (n--) sum ^= n; }\n\
    int main(void) { parse_words(WORDS); sort_lines(LINES); return 0; }\n";

/// A directory with the program's source; `None` where there is no compiler.
fn program(name: &str) -> Option<PathBuf> {
    let dir = tools::fresh("gate", name);
    if !has("gcc") {
        return None;
    }
    std::fs::write(dir.join("work.c"), SOURCE).expect("source");
    Some(dir)
}

/// Builds the program.
fn build(dir: &Path, words: &str, lines: &str) {
    let source = dir.join("work.c");
    let amounts = [format!("-DWORDS={words}"), format!("-DLINES={lines}")];
    let [words, lines] = &amounts;
    let source = source.to_str().expect("text");
    let built = run(dir, &["gcc", "-g", "-O1", words, lines, "-o", "work", source]);
    assert!(built.status.success(), "{}", text(&built.stderr));
}

/// Records a run of the program, built so.
fn record(dir: &Path, file: &str, words: &str, lines: &str) {
    if let Some(parent) = Path::new(file).parent() {
        std::fs::create_dir_all(dir.join(parent)).expect("directory");
    }
    build(dir, words, lines);
    lwp(dir, &["record", "-q", "--deterministic", "-o", file, "--", "./work"]);
}

/// Runs the gate as a workflow in this directory would.
fn gate(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = limited(dir, &[&[LWP, "gate"], arguments].concat());
    command.env("GITHUB_WORKSPACE", dir).output().expect("timeout starts")
}

/// The gate's verdict; it must end with `code`.
fn verdict(dir: &Path, arguments: &[&str], code: i32) -> String {
    let output = gate(dir, arguments);
    let says = text(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {says}{}", text(&output.stderr));
    says
}

fn json(dir: &Path, arguments: &[&str], code: i32) -> Value {
    let text = verdict(dir, &[arguments, &["-f", "json"]].concat(), code);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_first_baseline_is_made_and_the_next_is_blessed() {
    let Some(dir) = program("bless") else { return };
    let limit = ["-b", "base/one.data", "-l", "instructions=+1%"];
    record(&dir, "lwp.data", "1000", "1000");
    // A limit that needs none holds already.
    verdict(&dir, &[&limit[..], &["--hard", "instructions=5"]].concat(), 3);
    assert!(dir.join("base/one.data").exists());
    std::fs::remove_dir_all(dir.join("base")).expect("it was made");
    let says = text(&gate(&dir, &[&limit[..], &["--require-baseline"]].concat()).stderr);
    assert!(says.contains("lwp gate --bless"), "{says}");
    assert!(!dir.join("base").exists());

    let first = verdict(&dir, &limit, 0);
    assert!(first.contains("note: there was no baseline: base/one.data is one now"), "{first}");
    let same = verdict(&dir, &limit, 0);
    assert!(same.contains("ok       instructions") && !same.contains("note:"), "{same}");
    record(&dir, "lwp.data", "9000", "1000");
    let more = verdict(&dir, &limit, 3);
    assert!(more.contains("changed most:") && more.contains("  parse_words [work]"), "{more}");
    let blessed = gate(&dir, &["-b", "base/one.data", "--bless"]);
    assert!(blessed.status.success(), "{}", text(&blessed.stderr));
    assert!(text(&blessed.stderr).contains("wrote the baseline base/one.data from lwp.data"));
    verdict(&dir, &limit, 0);
    // What is no recording does not become a baseline.
    std::fs::write(dir.join("lwp.data"), "x").expect("file");
    assert_eq!(gate(&dir, &["-b", "base/one.data", "--bless"]).status.code(), Some(125));
    std::fs::copy(dir.join("base/one.data"), dir.join("two.data")).expect("a copy");
    verdict(&dir, &["-i", "two.data", "-b", "base/one.data", "-l", "insn=+0"], 0);
    assert_eq!(gate(&dir, &["--bless"]).status.code(), Some(125));
}

#[test]
fn functions_and_modules_have_limits_of_their_own() {
    let Some(dir) = program("parts") else { return };
    record(&dir, "base.data", "1000", "1000");
    // One does less, the other more: the whole is the same, to some calls.
    record(&dir, "lwp.data", "900", "1100");
    let config = "[gate]\nbaseline = \"base.data\"\n\
        [gate.limits]\ninstructions = \"+5%\"\n\
        [gate.functions.\"*_words\"]\ninstructions = \"+0%\"\n\
        [gate.functions.\"sort_l*\"]\ninstructions = \"+1%\"\n\
        [gate.functions.\"gone_*\"]\ninstructions = \"+1%\"\n\
        [gate.modules.\"work\"]\ninstructions = \"+5%\"\nbranches = 10\n";
    std::fs::write(dir.join("lwp.toml"), config).expect("file");
    let document = json(&dir, &[], 3);
    let checks = document["benchmarks"][0]["checks"].as_array().expect("checks");
    let of = |name: &str, event: &str| -> &Value {
        let mut all = checks.iter().filter(|it| it["name"] == name && it["event"] == event);
        &all.next().unwrap_or_else(|| panic!("{name} {event}: {document}"))["passes"]
    };
    assert_eq!(of("parse_words", "instructions"), &Value::Bool(true));
    assert_eq!(of("sort_lines", "instructions"), &Value::Bool(false));
    assert_eq!(of("work", "instructions"), &Value::Bool(true));
    assert_eq!(of("work", "branches"), &Value::Bool(false));
    let text = verdict(&dir, &[], 3);
    assert!(text.contains("EXCEEDED instructions in sort_lines: "), "{text}");
    assert!(text.contains("EXCEEDED branches in module work: "), "{text}");
    assert!(text.contains("ok       2 limits of functions and modules"), "{text}");
    assert!(text.contains("note: nothing that was executed is called 'gone_*'"), "{text}");
}

#[test]
fn many_benchmarks_have_one_verdict() {
    let Some(dir) = program("many") else { return };
    for file in ["base/parse.data", "base/sort/big.data", "base/dropped.data"] {
        record(&dir, file, "500", "500");
    }
    record(&dir, "now/parse.data", "500", "500");
    record(&dir, "now/sort/big.data", "500", "520");
    record(&dir, "now/new.data", "5", "5");
    let config = "[gate]\nbaseline = \"base\"\n[gate.limits]\ninstructions = \"+0.1%\"\n";
    std::fs::write(dir.join("lwp.toml"), config).expect("file");
    let document = json(&dir, &["now"], 3);
    let passes = |name: &str| {
        let mut all = document["benchmarks"].as_array().expect("benchmarks").iter();
        let found = all.find(|it| it["name"] == name).unwrap_or_else(|| panic!("{document}"));
        found["passes"].as_bool().expect("a verdict")
    };
    assert_eq!([passes("parse"), passes("sort/big"), passes("new")], [true, false, true]);
    assert_eq!(document["notes"][0], "not recorded, but in the baseline: dropped");
    assert!(dir.join("base/new.data").exists());
    let text = verdict(&dir, &["now"], 3);
    assert!(text.ends_with("EXCEEDED: 1 of 3 benchmarks\n"), "{text}");
    // A limit for those benchmarks alone.
    let lenient = format!("{config}[gate.benchmarks.\"sort/*\"]\ninstructions = \"+50%\"\n");
    std::fs::write(dir.join("lwp.toml"), lenient).expect("file");
    let text = verdict(&dir, &["now"], 0);
    assert!(text.ends_with("ok: 3 benchmarks within their limits\n"), "{text}");
    std::fs::write(dir.join("lwp.toml"), config).expect("file");
    assert!(gate(&dir, &["now", "--bless"]).status.success());
    verdict(&dir, &["now"], 0);
    assert_eq!(gate(&dir, &["now", "-i", "x"]).status.code(), Some(125));
}

#[test]
fn a_change_is_shown_where_it_is() {
    let Some(dir) = program("places") else { return };
    record(&dir, "base.data", "1000", "1000");
    record(&dir, "lwp.data", "1000", "3000");
    let limit = ["-b", "base.data", "-l", "instructions=+1%"];
    let line =
        1 + SOURCE.lines().position(|line| line.contains("void sort_lines")).expect("it is there");
    let says = verdict(&dir, &[&limit[..], &["-f", "github"]].concat(), 3);
    let place = format!("::warning file=work.c,line={line},title=lwp gate::");
    let warning =
        says.lines().find(|it| it.starts_with(&place)).unwrap_or_else(|| panic!("{says}"));
    assert!(warning.contains("sort_lines [work]: instructions +"), "{warning}");

    let url = "https://example.org/graphs/{name}";
    let more = ["-f", "markdown", "--write", "sarif=x.sarif", "--write", "junit=x.xml"];
    let pictures = ["--flamegraphs", "graphs", "--flamegraphs-url", url];
    let comment = verdict(&dir, &[&limit[..], &more, &pictures].concat(), 3);
    assert!(comment.starts_with("<!-- lwp gate -->\n"), "{comment}");
    assert!(comment.contains(&format!("sort\\_lines \\[work\\] (work.c:{line}) |")), "{comment}");
    assert!(comment.contains("](https://example.org/graphs/lwp.svg)"), "{comment}");
    let picture = std::fs::read_to_string(dir.join("graphs/lwp.svg")).expect("a picture");
    assert!(picture.contains("<svg") && picture.contains("sort_lines"));

    let sarif = std::fs::read_to_string(dir.join("x.sarif")).expect("a file");
    let sarif: Value = serde_json::from_str(&sarif).expect("JSON");
    let place = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "work.c");
    assert_eq!(place["region"]["startLine"], line);
    let xml = std::fs::read_to_string(dir.join("x.xml")).expect("a file");
    assert!(xml.contains("<failure message=") && xml.contains("sort_lines [work]"), "{xml}");
    assert_eq!(gate(&dir, &[&limit[..], &["--write", "gif=x"]].concat()).status.code(), Some(125));
}

#[test]
fn other_readers_read_the_verdict() {
    let Some(dir) = program("readers") else { return };
    record(&dir, "base.data", "1000", "1000");
    record(&dir, "lwp.data", "1000", "3000");
    let write = ["--write", "sarif=x.sarif", "--write", "junit=x.xml"];
    let limits = ["-b", "base.data", "-l", "instructions=+1%", "-l", "calls=+0%"];
    verdict(&dir, &[&limits[..], &write].concat(), 3);
    let viewers = std::env::var_os("LWP_VIEWERS").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/viewers");
    let python = viewers.unwrap_or(beside).join("python/bin/python");
    let python = python.to_str().expect("path is text");
    let script = "import junitparser, sarif.loader\n\
        x = junitparser.JUnitXml.fromfile('x.xml')\n\
        s = sarif.loader.load_sarif_file('x.sarif')\n\
        r = s.get_results()\n\
        print(x.tests, x.failures, len(r), s.runs[0].get_tool_name())\n";
    let output = run(&dir, &[python, "-c", script]);
    if !output.status.success() {
        eprintln!("skipped: no junitparser and sarif-tools; tests/viewers.sh installs them");
        return;
    }
    assert_eq!(text(&output.stdout), "2 1 1 lwp gate\n");
}

/// Promise: R54
#[test]
fn a_program_is_recorded_and_judged_in_one_go() {
    let Some(dir) = program("at_once") else { return };
    let gated = |more: &[&str], n: &str, code: i32| {
        build(&dir, n, n);
        let all = [&["-b", "base.data", "-l", "instructions=+0"], more, &["--", "./work"]];
        verdict(&dir, &all.concat(), code)
    };
    gated(&[], "700", 0);
    // Another environment moves nothing: it is deterministic.
    let again = limited(&dir, &[LWP, "gate", "-b", "base.data", "-l", "instructions=+0", "--"])
        .arg("./work")
        .env("ANOTHER", "x".repeat(5000))
        .output()
        .expect("timeout starts");
    assert!(again.status.success(), "{}", text(&again.stdout));
    gated(&["--no-deterministic"], "700", 125);
    let says = gated(&["--no-deterministic", "--allow-different", "determinism"], "700", 3);
    assert!(says.contains("note: lwp.data was recorded without --deterministic"), "{says}");
    gated(&[], "800", 3);
    // A program that fails is not judged.
    let failed = gate(&dir, &["-l", "instructions=9", "--", "/bin/sh", "-c", "exit 4"]);
    assert_eq!(failed.status.code(), Some(4), "{}", text(&failed.stdout));
}

/// Runs the gate, which must refuse: its words on standard error.
fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = gate(dir, arguments);
    let says = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{arguments:?}: {}{says}", text(&output.stdout));
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    assert!(says.contains("\nhelp: "), "{says}");
    says
}

/// Promise: a limit that cannot hold is refused before anything runs or becomes a baseline.
///
/// Promise: R53
#[test]
fn limits_with_mistakes_are_refused_at_once() {
    let dir = tools::fresh("gate", "mistakes");
    let program = ["--", "/usr/bin/touch", "ran"];
    for (limit, help) in [
        ("instructons=+0.5%", "there are: instructions, "),
        ("modelled-cycles=+1%", "recorded with --model"),
        ("instructions=+0,5%", "separated by a point"),
        ("instructions=1,5", "whole numbers"),
    ] {
        let says = refused(&dir, &[&["-b", "new.data", "-l", limit][..], &program].concat());
        assert!(says.contains(help), "{says}");
    }
    let files = [
        ("[gate.limits]\n\ninstructions = +0.5%\n", "lwp.toml:3: instructions = +0.5%: ", "quotes"),
        ("[gate.limits]\ninstructions = \"+0,5%\"\n", "lwp.toml:2: ", "separated by a point"),
        ("[gate.functions.\"f\"]\ncals = 1\n", "limit on 'cals'", "there are: instructions"),
    ];
    for (file, place, help) in files {
        std::fs::write(dir.join("lwp.toml"), file).expect("file");
        let says = refused(&dir, &[&["-b", "new.data"][..], &program].concat());
        assert!(says.contains(place) && says.contains(help), "{says}");
    }
    assert!(!dir.join("ran").exists() && !dir.join("new.data").exists());
    // Recordings that are there have their own events.
    std::fs::remove_file(dir.join("lwp.toml")).expect("file");
    lwp(&dir, &["record", "-q", "--", "/bin/true"]);
    let says = refused(&dir, &["-b", "new.data", "-l", "instructons=+0.5%"]);
    assert!(says.contains("there are: instructions"), "{says}");
    assert!(!dir.join("new.data").exists());
}

/// Promise: R53
#[test]
fn an_interrupted_run_is_not_judged() {
    let dir = tools::fresh("gate", "interrupted");
    // lwp is asked for the end, and the program ends well all the same.
    let script = "trap 'exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.05; done";
    let output =
        gate(&dir, &["-b", "new.data", "-l", "instructions=+1%", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("was interrupted (signal SIGTERM)"));
    assert!(!dir.join("new.data").exists());
}

#[test]
fn a_program_that_was_not_counted_does_not_pass() {
    let dir = tools::fresh("gate", "uncounted");
    // There is no room for translated code: the program runs natively.
    let script = "ulimit -v 4000000; exec \"$0\" \"$@\"";
    let short = |words: &[&str]| run(&dir, &[&["sh", "-c", script, LWP], words].concat());
    let gate = ["gate", "-b", "base.data", "-l", "instructions=+0%"];
    let refused = |words: &[&str]| {
        let output = short(words);
        let says = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{}{says}", text(&output.stdout));
        assert!(says.contains("there is nothing to compare: "), "{says}");
        assert!(says.contains("was not counted: no memory for translated code"), "{says}");
        assert!(says.contains("\nhelp: ") && !text(&output.stdout).contains("ok"), "{says}");
    };
    refused(&[&gate[..], &["--", "/bin/true"]].concat());
    assert!(!dir.join("base.data").exists(), "nothing has become a baseline");
    refused(&["gate", "-b", "base.data", "--bless"]);
    assert!(!dir.join("base.data").exists(), "nothing has become a baseline");
    // With a baseline, zero would be within every limit.
    lwp(&dir, &["record", "-q", "--deterministic", "-o", "base.data", "--", "/bin/true"]);
    refused(&[&gate[..], &["--", "/bin/true"]].concat());
    // Nor is zero reported as a count.
    let recorded = short(&["record", "-o", "zero.data", "--", "/bin/true"]);
    assert!(text(&recorded.stderr).contains("# instructions: not counted"), "{recorded:?}");
    let (report, _) = lwp(&dir, &["report", "--stdio", "-i", "zero.data"]);
    assert!(report.contains("# instructions: not counted\n"), "{report}");
    assert!(!report.contains("every event counted"), "{report}");
}

/// Promise: R123
#[test]
fn damaged_and_unfinished_recordings_are_not_judged() {
    let dir = tools::fresh("gate", "damaged");
    lwp(&dir, &["record", "-q", "--deterministic", "-o", "whole.data", "--", "/bin/true"]);
    let whole = std::fs::read(dir.join("whole.data")).expect("recording");
    let mut damaged = whole.clone();
    damaged[whole.len() / 3] ^= 0x55;
    for (name, bytes) in
        [("cut", &whole[..whole.len() / 3]), ("short", &whole[..40]), ("damaged", &damaged)]
    {
        let file = format!("{name}.data");
        std::fs::write(dir.join(&file), bytes).expect("file");
        let limit = ["-l", "instructions=+0%"];
        for arguments in [
            &["-i", &file, "-b", "whole.data"][..],
            &["-i", "whole.data", "-b", &file],
            &["-i", &file, "-b", "new.data"],
            &["-i", &file, "-b", "new.data", "--bless"],
        ] {
            let says = refused(&dir, &[arguments, &limit].concat());
            assert!(says.contains("the recording is damaged or unfinished: "), "{says}");
            assert!(!dir.join("new.data").exists(), "nothing has become a baseline");
        }
        // Nor does another recording beside it.
        std::fs::create_dir_all(dir.join("both")).expect("directory");
        std::fs::write(dir.join("both/a.data"), &whole).expect("file");
        std::fs::write(dir.join("both/b.data"), bytes).expect("file");
        for arguments in [&["both", "-b", "bases"][..], &["both", "-b", "bases", "--bless"]] {
            refused(&dir, &[arguments, &limit].concat());
            assert!(!dir.join("bases").exists(), "nothing has become a baseline");
        }
        // Nothing is left of counts that are written at the end. Zero would be wrong.
        let report = run(&dir, &[LWP, "report", "--stdio", "-i", &file]);
        assert_eq!(report.status.code(), Some(125), "{}", text(&report.stdout));
        let says = text(&report.stderr);
        assert!(says.contains("the recording is damaged or unfinished: "), "{says}");
    }
}

#[test]
fn a_recording_is_not_its_own_baseline() {
    let Some(dir) = program("own") else { return };
    build(&dir, "9", "9");
    let limit = ["-l", "instructions=+0%"];
    let says = refused(&dir, &[&["-b", "lwp.data"], &limit[..], &["--", "./work"]].concat());
    assert!(says.contains("lwp.data is the recording and the baseline"), "{says}");
    assert!(!dir.join("lwp.data").exists(), "nothing was recorded");
    record(&dir, "lwp.data", "9", "9");
    record(&dir, "base/a.data", "9", "9");
    let before = std::fs::read(dir.join("lwp.data")).expect("recording");
    std::os::unix::fs::symlink("lwp.data", dir.join("link.data")).expect("link");
    for arguments in [
        &["-b", "lwp.data"][..],
        &["-b", "./base/../lwp.data", "--", "./work"],
        &["-b", "link.data", "--", "./work"],
        &["-b", "lwp.data", "--bless"],
        &["-b", "base", "base"],
        &["-b", "base", "base/a.data"],
    ] {
        refused(&dir, &[&limit[..], arguments].concat());
    }
    assert_eq!(std::fs::read(dir.join("lwp.data")).expect("recording"), before);
}

#[test]
fn one_named_recording_has_the_baseline_of_its_name() {
    let Some(dir) = program("named") else { return };
    record(&dir, "base/parse.data", "50", "50");
    record(&dir, "recs/parse.data", "50", "9000");
    record(&dir, "recs/fine.data", "50", "50");
    let limit = ["-l", "instructions=+1%"];
    let says = verdict(&dir, &[&["-b", "base/", "recs/parse.data"], &limit[..]].concat(), 3);
    assert!(!says.contains("note:"), "{says}");
    assert!(!dir.join("base/lwp.data").exists());
    // A file is the baseline of any name.
    let file = ["-b", "base/parse.data"];
    verdict(&dir, &[&file, &limit[..], &["recs/fine.data"]].concat(), 0);
    let config = "[gate]\nbaseline = \"base\"\n\
        [gate.benchmarks.\"parse\"]\ninstructions = \"+1%\"\n";
    std::fs::write(dir.join("lwp.toml"), config).expect("file");
    verdict(&dir, &["recs/parse.data"], 3);
    // No limit applies, which is said.
    let says = verdict(&dir, &["recs/fine.data"], 0);
    assert!(says.contains("note: no limit applies: the only limits are those of "), "{says}");
    assert!(says.contains("called 'parse'\n"), "{says}");
}
