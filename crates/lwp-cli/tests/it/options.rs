//! What the options of the profile commands do, each shown by its effect.

use crate::shared::recorded;
use crate::shared::tools;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use recorded::{LWP, compile, lwp, run};
use tools::{has, text};

fn fresh(name: &str) -> PathBuf {
    tools::fresh("options", name)
}

/// The sum of a recording's first event.
fn total(dir: &Path, file: &str) -> u64 {
    let (json, _) = lwp(dir, &["report", "--json", "-s", "dso", "-i", file]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    document["total"].as_u64().expect("total")
}

/// Promise: R25
#[test]
fn the_program_s_end_is_every_command_s() {
    let dir = fresh("endings");
    let commands: [&[&str]; 5] = [
        &["run"],
        &["stat", "-o", "counts"],
        &["record", "-q"],
        &["record", "-q", "-c", "1000"],
        &["top", "--batch", "-o", "frames"],
    ];
    for command in commands {
        let ended = |program: &[&str]| run(&dir, &[&[LWP], command, &["--"], program].concat());
        for code in [0, 1, 3, 77, 255] {
            let script = format!("exit {code}");
            let status = ended(&["/bin/sh", "-c", &script]).status;
            assert_eq!(status.code(), Some(code), "{command:?}");
        }
        for (signal, name) in [(9, "KILL"), (15, "TERM"), (6, "ABRT")] {
            // Timeout ends as what it ran; a shell would say 128 and the number.
            let status = ended(&["/bin/sh", "-c", &format!("kill -{name} $$")]).status;
            let seen = status.signal() == Some(signal) || status.code() == Some(128 + signal);
            assert!(seen, "{command:?}: {status} after {name}");
        }
        assert_eq!(ended(&["/nonexistent/program"]).status.code(), Some(127), "{command:?}");
        assert_eq!(ended(&["/etc/passwd"]).status.code(), Some(126), "{command:?}");
        let wrong = run(&dir, &[&[LWP], command, &["--no-such-option"]].concat());
        assert_eq!(wrong.status.code(), Some(125), "{command:?}");
    }
}

/// Promise: R26
#[test]
fn recording_is_switched_on_and_off() {
    let dir = fresh("switched");
    let loops = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done";
    let shell = |script: &str| ["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let record = |options: &[&str], script: &str| {
        let script = shell(script);
        let words: Vec<&str> = script.iter().map(String::as_str).collect();
        lwp(&dir, &[&["record", "-q"], options, &["--"], &words].concat());
        total(&dir, "lwp.data")
    };
    let whole = record(&[], loops);
    assert!(whole > 100_000);
    assert_eq!(record(&["-D", "-1"], loops), 0);
    // Late enough, there is nothing left to record; in time, everything is.
    assert_eq!(record(&["--delay", "60000"], loops), 0);
    assert_eq!(record(&["--duration", "60"], loops), whole);
    let brief = record(&["--duration", "0.3"], &format!("{loops}; sleep 3; {loops}; {loops}"));
    assert!(brief < 3 * whole, "{brief} of {whole} a round");
    for fifo in ["control", "ack"] {
        assert!(run(&dir, &["mkfifo", fifo]).status.success());
    }
    // The program itself switches recording on, works, and switches it off.
    let script = format!(
        "exec 7>control 8<ack; {loops}; echo enable >&7; read a <&8; {loops}; \
         echo disable >&7; read a <&8; {loops}"
    );
    let part = record(&["-D", "-1", "--control", "fifo:control,ack"], &script);
    assert!(part > whole / 2 && part < 2 * whole, "{part} of {whole} a round");
}

/// Promise: R32
#[test]
fn what_a_model_says_is_marked() {
    let dir = fresh("modelled");
    let sampled = ["-e", "dcache-misses:c=100", "-o", "modelled", "--", "/bin/ls", "/"];
    let output = run(&dir, &[&[LWP, "record", "-q"], &sampled[..]].concat());
    if !output.status.success() {
        // Translated code needs BMI2 and FSGSBASE for it, which is said.
        assert!(text(&output.stderr).contains("BMI2"), "{}", text(&output.stderr));
        return;
    }
    lwp(&dir, &["record", "-q", "-c", "1000", "-o", "measured", "--", "/bin/ls", "/"]);
    for (file, marked) in [("modelled", true), ("measured", false)] {
        let (table, _) = lwp(&dir, &["report", "-i", file]);
        assert_eq!(table.contains(", from a model)"), marked, "{table}");
    }
}

/// Promise: I10
#[test]
fn a_dash_is_the_standard_stream() {
    let dir = fresh("dashes");
    let (counts, _) =
        lwp(&dir, &["stat", "-o", "-", "-x,", "-e", "calls", "--", "/bin/echo", "hi"]);
    let lines: Vec<&str> = counts.lines().collect();
    assert!(lines[0] == "hi" && lines[1].contains(",calls,") && lines.len() == 2, "{counts}");
    // A recording among what the program prints could not be told from it.
    let refused = run(&dir, &[LWP, "record", "-o", "-", "--", "/bin/echo", "hi"]);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(125), String::new()));
    lwp(&dir, &["record", "-q", "--", "/bin/true"]);
    let script = format!("{LWP} merge -o - lwp.data 2>/dev/null | {LWP} report -i - -s dso --csv");
    let piped = run(&dir, &["/bin/sh", "-c", &script]);
    assert_eq!(text(&piped.stdout), lwp(&dir, &["report", "-s", "dso", "--csv"]).0);
    assert!(!dir.join("-").exists());
}

#[test]
fn rates_are_intervals_of_a_virtual_second() {
    let dir = fresh("rates");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let (_, by_rate) =
        lwp(&dir, &["record", "-g", "-F", "1000000", "-o", "rate", "--", "./program"]);
    lwp(&dir, &["record", "-q", "-c", "1000", "-o", "count", "--", "./program"]);
    assert!(by_rate.contains("one in 1,000 of"), "{by_rate}");
    let (difference, _) = lwp(&dir, &["diff", "count", "rate"]);
    assert!(difference.contains("nothing differs"), "{difference}");
    let both = run(&dir, &[LWP, "record", "-F", "5", "-c", "5", "true"]);
    assert_eq!(both.status.code(), Some(125));
}

#[test]
fn lwp_says_as_much_as_it_is_asked_to() {
    let dir = fresh("words");
    let (_, quiet) = lwp(&dir, &["record", "-q", "--", "/bin/true"]);
    assert_eq!(quiet, "");
    let (_, usual) = lwp(&dir, &["record", "--no-progress", "--", "/bin/true"]);
    assert!(usual.contains("lwp report") && !usual.contains(" blocks of "), "{usual}");
    let (_, verbose) = lwp(&dir, &["record", "-v", "--", "/bin/true"]);
    assert!(verbose.contains("1 processes, 1 threads, "), "{verbose}");
}

#[test]
fn trees_show_who_called() {
    let dir = fresh("tree");
    if !compile(&dir, "stacks.cpp", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "-c", "17", "--", "./program"]);
    let depth = |line: &str| line.len() - line.trim_start().len();
    let (tree, _) = lwp(&dir, &["report", "--tree"]);
    assert!(!tree.contains("inferred"), "{tree}");
    let functions: Vec<&str> =
        tree.lines().filter(|l| !l.starts_with('#')).map(|line| &line[18..]).collect();
    let main = functions.iter().position(|line| line.trim() == "main").expect("main");
    assert!(depth(functions[main + 1]) > depth(functions[main]), "{tree}");
    let (shallow, _) = lwp(&dir, &["report", "-g", "--max-stack", "2"]);
    let deepest = shallow.lines().filter(|l| !l.starts_with('#')).map(|l| depth(&l[18..])).max();
    assert_eq!(deepest, Some(2), "{shallow}");
    let lines = |percent: &str| {
        let (tree, _) = lwp(&dir, &["report", "-g", "--percent-limit", percent]);
        tree.lines().filter(|line| !line.starts_with('#')).count()
    };
    assert!(lines("0") > lines("5") && lines("5") > lines("50") && lines("101") == 0);
    // An exact recording has measured contexts; one without says so.
    lwp(&dir, &["record", "-q", "--", "./program"]);
    assert!(!lwp(&dir, &["report", "--tree"]).0.contains("inferred"));
    lwp(&dir, &["record", "-q", "--call-graph", "inferred", "--", "./program"]);
    assert!(lwp(&dir, &["report", "--tree"]).0.contains("is inferred"));
}

/// Promise: R27
#[test]
fn copies_of_inlined_functions_are_annotated() {
    let dir = fresh("inlined");
    if !compile(&dir, "units_main.cpp", &["-O2", "-x", "c++", &unit("units_other.cpp")]) {
        return;
    }
    lwp(&dir, &["record", "-q", "--", "./program"]);
    let (copies, _) = lwp(&dir, &["annotate", "twice"]);
    assert!(copies.contains("inlined into deep::run(unsigned int):"), "{copies}");
    assert!(copies.contains("return mixer.step(x) + mixer.step(x + 1);"), "{copies}");
    assert!(!copies.contains("not executed"), "{copies}");
    // What is counted there is what the table has for it, all that is inlined into it included.
    let (json, _) = lwp(&dir, &["report", "--json", "--inline", "-s", "dso,sym"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let own = |name: &str| -> u64 {
        let rows = document["rows"].as_array().expect("rows").iter();
        rows.filter(|row| row["sym"] == name).filter_map(|row| row["self"].as_u64()).sum()
    };
    let sum = own("twice") + own("Mixer::step(unsigned int)");
    let grouped = format!("{},{:03}", sum / 1000, sum % 1000);
    assert!(copies.starts_with(&format!("twice [program]: {grouped} instructions")), "{copies}");
    // Lines alone.
    let (lines, _) = lwp(&dir, &["annotate", "--line", "deep::run"]);
    assert!(lines.contains("units_main.cpp:27  "), "{lines}");
    assert!(!lines.contains("mov "), "{lines}");
}

fn unit(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(name);
    path.to_str().expect("path is text").to_owned()
}

#[test]
fn styles_and_places_of_sources_are_chosen() {
    let dir = fresh("sources");
    if !compile(&dir, "recursion.c", &["-O1", "-fdebug-prefix-map=/=/gone/"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "--", "./program"]);
    let line = "return n == 0 ? 1 : odd(n - 1);";
    assert!(!lwp(&dir, &["annotate", "even"]).0.contains(line));
    let (found, _) = lwp(&dir, &["annotate", "even", "--source", "/gone/=/"]);
    assert!(found.contains(line) && found.contains('%'), "{found}");
    let (intel, _) = lwp(&dir, &["annotate", "even", "-M", "intel"]);
    assert!(!intel.contains("%edi") && intel.contains("edi"), "{intel}");
    assert_eq!(run(&dir, &[LWP, "annotate", "-M", "vax"]).status.code(), Some(125));
}

/// Promise: R38
#[test]
fn listings_like_objdump_s_have_its_lines() {
    let dir = fresh("objdump");
    if !has("objdump") || !compile(&dir, "sorting.c", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "--", "./program"]);
    let theirs = text(&run(&dir, &["objdump", "-d", "program"]).stdout);
    // What stands between an address and the operands, whose spelling is left to each.
    let code = |line: &str| -> Option<String> {
        let mut fields = line.split('\t');
        let address = fields.next()?.rsplit(' ').next()?.to_owned();
        let bytes = fields.next()?.trim().to_owned();
        let mnemonic = fields.next().and_then(|text| text.split(' ').next()).unwrap_or("");
        address.ends_with(':').then(|| format!("{address} {bytes} {mnemonic}"))
    };
    let known: Vec<String> = theirs.lines().filter_map(code).collect();
    for function in ["compare", "hash", "main"] {
        let (listing, _) = lwp(&dir, &["annotate", "--objdump-like", function]);
        let lines: Vec<String> = listing.lines().filter_map(code).collect();
        assert!(lines.len() > 5, "{listing}");
        for line in lines {
            // The same instruction may have another name: jae and jnb, or a prefix told apart.
            let bytes = line.rsplit_once(' ').map_or(line.as_str(), |(bytes, _)| bytes);
            assert!(known.iter().any(|it| it.starts_with(bytes)), "{line}: {theirs}");
        }
        // The counts are those of the table.
        let (csv, _) = lwp(&dir, &["report", "--format", "csv", "-s", "func"]);
        let row = csv.lines().find(|row| row.ends_with(&format!(",{function}"))).expect("a row");
        let of = |line: &str| -> Option<u64> {
            line.contains(":\t").then(|| line.split_whitespace().next()?.parse().ok())?
        };
        let sum: u64 = listing.lines().filter_map(of).sum();
        assert_eq!(row.split(',').next(), Some(sum.to_string().as_str()), "{listing}");
    }
    let (intel, _) = lwp(&dir, &["annotate", "--objdump-like", "-M", "intel", "hash"]);
    assert!(intel.contains("<hash>:") && !intel.contains("%e"), "{intel}");
}

#[test]
fn reports_have_the_form_and_the_keys_that_are_asked_for() {
    let dir = fresh("forms");
    lwp(&dir, &["record", "-q", "--", "/bin/true"]);
    let report = |options: &[&str]| lwp(&dir, &[&["report"], options].concat()).0;
    for (format, same) in [("json", "--json"), ("csv", "--csv"), ("text", "--stdio")] {
        assert_eq!(report(&["--format", format]), report(&[same]));
    }
    for (key, same) in [
        ("func", "sym"),
        ("symbol", "sym"),
        ("module", "dso"),
        ("inst", "addr"),
        ("line", "srcline"),
        ("file", "srcfile"),
    ] {
        assert_eq!(report(&["--csv", "-s", key]), report(&["--csv", "-s", same]), "{key}");
    }
    let thread = report(&["--csv", "-s", "thread"]);
    assert!(thread.starts_with("self,thread\n") && thread.contains(",true-"), "{thread}");
    let refused = |options: &[&str]| {
        let output = run(&dir, &[&[LWP, "report"], options].concat());
        assert_eq!(output.status.code(), Some(125), "{options:?}");
        text(&output.stderr)
    };
    assert!(refused(&["-s", "tag"]).contains("recordings have no tags"));
    assert!(refused(&["-s", "cpu"]).contains("no sort key"));
    assert!(refused(&["--format", "xml"]).contains("possible values: text, json, csv"));
    refused(&["--format", "json", "--csv"]);
    assert!(refused(&["--tree", "--format", "json"]).contains("text only"));
}

/// Promise: R24
#[test]
fn circles_have_the_inclusive_counts_of_callgrind() {
    for (program, functions, exact) in [
        ("recursion.c", &["fib", "even", "odd", "ackermann"][..], true),
        ("parser.c", &["expression", "term", "factor", "number"], false),
    ] {
        let dir = fresh(&format!("circles-{program}"));
        if !has("callgrind_annotate") || !compile(&dir, program, &["-O1"]) {
            return;
        }
        let valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=out", "./program"];
        assert!(run(&dir, &valgrind).status.success());
        let listing =
            run(&dir, &["callgrind_annotate", "--inclusive=yes", "--threshold=100", "out"]);
        let listing = text(&listing.stdout);
        let report = |callers: &str| -> Value {
            lwp(&dir, &["record", "-q", "--call-graph", callers, "--", "./program"]);
            serde_json::from_str(&lwp(&dir, &["report", "--json"]).0).expect("JSON")
        };
        let (measured, inferred) = (report("exact"), report("inferred"));
        let of = |document: &Value, function: &str, key: &str| {
            let rows = document["rows"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["sym"] == *function).expect("a row");
            row[key].as_f64().expect("an inclusive count")
        };
        for function in functions {
            // Of several activations, callgrind's first line is the outermost one's.
            let names = |line: &&str| line.contains(&format!(":{function} ["));
            let line =
                listing.lines().find(names).unwrap_or_else(|| panic!("{function}: {listing}"));
            let theirs = line.split_whitespace().next().map(|word| word.replace(',', ""));
            let theirs: f64 = theirs.and_then(|word| word.parse().ok()).expect("a count");
            let total = of(&measured, function, "total");
            assert!(total == theirs, "{function}: {total}, callgrind {theirs}");
            let estimate = of(&inferred, function, "total_estimated");
            let off = (estimate - theirs).abs() / theirs;
            let most = if exact { 0.0 } else { 0.1 };
            assert!(off <= most, "{function}: {estimate}, callgrind {theirs}");
        }
    }
}

#[test]
fn several_recordings_are_compared_with_the_first() {
    let dir = fresh("series");
    for (file, rounds) in [("a", "10"), ("b", "20"), ("c", "400")] {
        let script = "i=0; while [ $i -lt $0 ]; do i=$((i+1)); done";
        lwp(&dir, &["record", "-q", "-o", file, "--", "/bin/sh", "-c", script, rounds]);
    }
    let (json, _) = lwp(&dir, &["diff", "-j", "a", "b", "c", "a"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let totals: Vec<u64> =
        document["totals"].as_array().expect("totals").iter().filter_map(Value::as_u64).collect();
    assert!(totals[0] < totals[1] && totals[1] < totals[2] && totals[0] == totals[3]);
    let sum = |index: usize| -> i128 {
        let rows = document["rows"].as_array().expect("rows").iter();
        rows.map(|row| i128::from(row["counts"][index].as_u64().unwrap_or(0))).sum()
    };
    // What is left out is the same everywhere, so the rows have the whole difference.
    for (index, total) in totals.iter().enumerate() {
        assert_eq!(sum(index) - sum(0), i128::from(*total) - i128::from(totals[0]), "{index}");
    }
    assert!(lwp(&dir, &["diff", "a", "a", "a"]).0.contains("nothing differs"));
    let (csv, _) = lwp(&dir, &["diff", "--csv", "a", "b", "c", "-n", "1"]);
    assert_eq!((csv.lines().count(), csv.lines().next()), (2, Some("a,b,c,what")));
}

/// Promise: R11
#[test]
fn hard_limits_hold_beside_relative_ones() {
    let dir = fresh("hard");
    lwp(&dir, &["record", "-q", "--", "/bin/true"]);
    let count = total(&dir, "lwp.data");
    let gate = |arguments: &[&str]| run(&dir, &[&[LWP, "gate"], arguments].concat());
    let most = |n: u64| format!("insn={n}");
    std::fs::copy(dir.join("lwp.data"), dir.join("base.data")).expect("a copy");
    let relative = ["-b", "base.data", "--limit", "insn=+0%"];
    assert!(gate(&[&relative[..], &["--hard", &most(count)]].concat()).status.success());
    let exceeded = gate(&[&relative[..], &["--hard", &most(count - 1), "-f", "github"]].concat());
    assert_eq!(exceeded.status.code(), Some(3));
    let lines = text(&exceeded.stdout);
    assert!(lines.starts_with("::notice title=lwp gate::/bin/true: instructions: "), "{lines}");
    assert!(lines.contains("\n::error title=lwp gate::/bin/true: instructions: "), "{lines}");
    std::fs::write(dir.join("lwp.toml"), "[gate.hard]\ninstructions = 1\n").expect("file");
    assert_eq!(gate(&["-f", "junit"]).status.code(), Some(3));
    assert_eq!(gate(&["--hard", "insn=+1%"]).status.code(), Some(125));
}

/// Nothing can be fixed in a process that runs already.
#[test]
fn only_programs_that_lwp_starts_are_deterministic() {
    let dir = fresh("settled");
    for command in ["record", "stat", "top"] {
        for option in ["-p", "-t"] {
            let output = run(&dir, &[LWP, command, "--deterministic", option, "1"]);
            let says = text(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{command} {option}: {says}");
            assert!(says.contains("--deterministic is for programs that lwp starts"), "{says}");
            assert!(says.contains("\nhelp: leave --deterministic out"), "{says}");
            assert!(!dir.join("lwp.data").exists());
        }
    }
}

#[test]
fn one_frame_for_scripts_is_json() {
    let dir = fresh("once");
    let (json, _) =
        lwp(&dir, &["top", "--once", "--json", "-o", "-", "-d", "3", "--", "sleep", "300"]);
    let frame: Value = serde_json::from_str(&json).expect("one line of JSON");
    let functions = frame["functions"].as_array().expect("functions");
    let sum: u64 = functions.iter().filter_map(|row| row["total"].as_u64()).sum();
    assert!(sum > 0 && sum <= frame["total"].as_u64().expect("total"), "{frame}");
    assert_eq!(frame["command"], "sleep 300");
}
