//! Exports in the programs that they are for: each opens the file and says what it sees. A test
//! whose viewer is missing is skipped and says so; `tests/viewers.sh` installs them.
//!
//! Promise: R18: if tests/viewers.sh has installed them
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::tools;

use std::path::{Path, PathBuf};

use serde_json::Value;

use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// Where `tests/viewers.sh` puts what is not the system's.
fn viewers() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/viewers");
    std::env::var_os("LWP_VIEWERS").map_or(beside, PathBuf::from)
}

/// A file of a viewer, if that is installed.
fn viewer(path: &str) -> Option<String> {
    let file = viewers().join(path);
    if !file.exists() {
        eprintln!("skipped: no {path} among the viewers; tests/viewers.sh installs them");
        return None;
    }
    // The file itself may be a link, and know by its name what belongs to it.
    let file = viewers().canonicalize().expect("a directory").join(path);
    Some(file.to_str().expect("path is text").to_owned())
}

/// A script beside this test.
fn script(name: &str) -> String {
    format!("{}/tests/viewers/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// What a command prints; it must succeed.
fn prints(dir: &Path, words: &[&str]) -> String {
    let output = limited(dir, words).output().expect("timeout starts");
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A recording with stacks of a program whose `leaf` is called by `middle`, and the instructions
/// that lwp itself reports for the two: own, and with what they call.
fn recorded(name: &str) -> Option<(PathBuf, [[u64; 2]; 2])> {
    let dir = tools::fresh("viewers", name);
    if !has("gcc") {
        return None;
    }
    let program = "__attribute__((noinline)) long leaf(long n) {\n\
            long s = n; for (int i = 0; i < 1000; i++) s = s * 3 + i; return s; }\n\
        __attribute__((noinline)) long middle(long n) {\n\
            long s = 0; for (int i = 0; i < 50; i++) s += leaf(n + i); return s + 1; }\n\
        int main() { long s = 0; for (int i = 0; i < 100; i++) s += middle(i); return s == 42; }\n";
    std::fs::write(dir.join("program.c"), program).unwrap();
    prints(&dir, &["gcc", "-g", "-O1", "-o", "program", "program.c"]);
    prints(&dir, &[LWP, "record", "-q", "-c", "10000", "./program"]);
    let report: Value =
        serde_json::from_str(&prints(&dir, &[LWP, "report", "--json"])).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let counts = ["leaf", "middle"].map(|name| {
        let row = rows.iter().find(|row| row["sym"] == name).expect(name);
        ["self", "total"].map(|key| row[key].as_f64().expect("a number") as u64)
    });
    assert!(counts[0][0] > 10_000_000, "{counts:?}");
    Some((dir, counts))
}

fn export(dir: &Path, file: &str) -> String {
    prints(dir, &[LWP, "export", "-o", file]);
    dir.join(file).to_str().unwrap().to_owned()
}

/// A number as speedscope writes it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap()).collect();
    groups.join(",")
}

/// The document that Chromium makes of a page, after its scripts have run.
fn page(dir: &Path, url: &str) -> Option<String> {
    if !has("chromium") {
        return None;
    }
    let profile = format!("--user-data-dir={}", dir.join("chromium").display());
    let words = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-unsafe-swiftshader",
        "--virtual-time-budget=10000",
        "--dump-dom",
        &profile,
        url,
    ];
    Some(prints(dir, &words))
}

/// The words of a document, markup removed.
fn words(document: &str) -> Vec<String> {
    let pieces = document.split('<').filter_map(|piece| piece.split_once('>'));
    let texts = pieces.map(|(_, text)| text.trim().replace("&gt;", ">"));
    texts.filter(|text| !text.is_empty()).collect()
}

/// What speedscope shows of a file in its table of functions.
fn in_speedscope(dir: &Path, file: &str) -> Option<Vec<String>> {
    let app = viewer("npm/node_modules/speedscope/dist/release/index.html")?;
    if !has("node") {
        return None;
    }
    // As its own command does it: a script that hands the file over.
    let script = "const fs = require('fs'); const [file, out] = process.argv.slice(1);\n\
        const words = [file, fs.readFileSync(file).toString('base64')].map(w => JSON.stringify(w));\n\
        fs.writeFileSync(out, `speedscope.loadFileFromBase64(${words.join()})`);";
    prints(dir, &["node", "-e", script, file, "load.js"]);
    let load = dir.join("load.js");
    let url = format!("file://{app}#localProfilePath={}&view=sandwich", load.display());
    Some(words(&page(dir, &url)?))
}

#[test]
fn speedscope_shows_the_counts() {
    let Some((dir, [leaf, middle])) = recorded("speedscope") else { return };
    export(&dir, "x.speedscope.json");
    let Some(words) = in_speedscope(&dir, "x.speedscope.json") else { return };
    for (name, [own, total]) in [("leaf", leaf), ("middle", middle)] {
        let at = words.iter().position(|word| word == name).expect(name);
        // Total and own, each with its part of the whole, and the name.
        for (word, count) in words[at - 2..at].iter().zip([total, own]) {
            assert!(
                word.starts_with(&format!("{} (", grouped(count))),
                "{:?}",
                &words[at - 2..=at]
            );
        }
    }
    assert!(words.iter().any(|word| word == "instructions"));
}

#[test]
fn speedscope_reads_what_perf_script_prints() {
    let Some((dir, _)) = recorded("perf-script") else { return };
    std::fs::rename(dir.join("lwp.data"), dir.join("perf.data")).expect("renamed");
    let script = prints(&dir, &[LWP, "perf", "script", "-i", "perf.data"]);
    let samples = script.matches("instructions:u:").count();
    std::fs::write(dir.join("x.perf.txt"), &script).expect("text");
    let Some(words) = in_speedscope(&dir, "x.perf.txt") else { return };
    assert!(samples > 100 && words.iter().any(|word| word == "leaf"), "{words:?}");
}

/// Two threads, each with a function of its own.
///
/// Promise: R125
#[test]
fn threads_are_shown_on_their_own() {
    let dir = tools::fresh("viewers", "threads");
    if !has("gcc") {
        return;
    }
    let program = "#include <pthread.h>\n\
        static volatile long sink;\n\
        #define WORK(n) for (long i = 0; i < n; i++) sink += i\n\
        __attribute__((noinline)) void first(void) { WORK(300000); }\n\
        __attribute__((noinline)) void second(void) { WORK(200000); }\n\
        void *run(void *arg) { second(); return arg; }\n\
        int main() { pthread_t t; pthread_create(&t, 0, run, 0); pthread_join(t, 0);\n\
        first(); return 0; }\n";
    std::fs::write(dir.join("program.c"), program).unwrap();
    prints(&dir, &["gcc", "-g", "-O1", "-pthread", "-o", "program", "program.c"]);
    for options in [&[][..], &["-c", "5000"]] {
        prints(&dir, &[&[LWP, "record", "-q"][..], options, &["./program"]].concat());
        let json = |format: &str| -> Value {
            let text = prints(&dir, &[LWP, "export", "-f", format]);
            serde_json::from_str(&text).expect("JSON")
        };
        let firefox = json("firefox");
        let threads = firefox["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 2, "{options:?}");
        assert_ne!(threads[0]["tid"], threads[1]["tid"]);
        assert_eq!(threads[0]["pid"], threads[1]["pid"]);
        let speedscope = json("speedscope");
        let names: Vec<&str> = speedscope["shared"]["frames"]
            .as_array()
            .expect("frames")
            .iter()
            .map(|frame| frame["name"].as_str().expect("text"))
            .collect();
        let profiles = speedscope["profiles"].as_array().expect("profiles");
        let of = |name: &str| {
            let at = names.iter().position(|it| *it == name).expect(name) as u64;
            let with = |profile: &&Value| {
                let samples = profile["samples"].as_array().expect("samples");
                profile["name"].as_str().is_some_and(|it| it.ends_with(": instructions"))
                    && samples
                        .iter()
                        .flat_map(|it| it.as_array().expect("a stack"))
                        .any(|it| *it == at)
            };
            let found: Vec<String> =
                profiles.iter().filter(with).map(|it| it["name"].to_string()).collect();
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            found[0].clone()
        };
        assert_ne!(of("first"), of("second"), "{options:?}");
    }
}

/// Promise: own costs add up to the whole, of samples too.
///
/// Promise: R125
#[test]
fn callgrind_annotate_adds_samples_up() {
    let Some((dir, [leaf, middle])) = recorded("callgrind-samples") else { return };
    if !has("callgrind_annotate") {
        return;
    }
    export(&dir, "callgrind.out.1");
    let number = |line: &str| -> u64 {
        let digits = line.trim_start().split([' ', '(']).next().unwrap_or_default();
        digits.replace(',', "").parse().expect(line)
    };
    let shown = |words: &[&str]| {
        let words = [&["callgrind_annotate", "--threshold=100"], words, &["callgrind.out.1"]];
        prints(&dir, &words.concat())
    };
    let own = shown(&["--auto=no"]);
    let row = |text: &str, name: &str| {
        let of_it = |line: &&str| line.contains(&format!(":{name} [")) || line.ends_with(name);
        number(text.lines().find(of_it).unwrap_or_else(|| panic!("{name}: {text}")))
    };
    let total = number(own.lines().find(|line| line.contains("PROGRAM TOTALS")).expect(&own));
    assert_eq!(row(&own, "leaf"), leaf[0]);
    assert!(row(&own, "middle") <= middle[0] && leaf[0] <= total, "{own}");
    let inclusive = shown(&["--auto=no", "--inclusive=yes"]);
    assert_eq!(row(&inclusive, "middle"), middle[1]);
    assert!(row(&inclusive, "main") <= total, "{inclusive}");
}

#[test]
fn speedscope_reads_the_chrome_trace() {
    let Some((dir, [leaf, _])) = recorded("chrome") else { return };
    export(&dir, "x.trace.json");
    let Some(words) = in_speedscope(&dir, "x.trace.json") else { return };
    let name = format!("leaf {{\"own\":{}}}", leaf[0]);
    let at = words.iter().position(|word| *word == name);
    // An event stands for a microsecond.
    let seconds = format!("{:.2}s", leaf[0] as f64 / 1e6);
    let at = at.unwrap_or_else(|| panic!("{name} is not in {words:?}"));
    assert!(words[at - 2..at].iter().any(|word| word.starts_with(&seconds)), "{words:?}");
}

#[test]
fn the_firefox_profiler_shows_the_counts() {
    let Some((dir, [leaf, middle])) = recorded("firefox") else { return };
    let Some(cli) = viewer("npm/node_modules/.bin/profiler-cli").filter(|_| has("node")) else {
        return;
    };
    export(&dir, "x.profile.json");
    let sessions = dir.join("sessions");
    let ask = |words: &[&str]| {
        let all = [&[cli.as_str()], words].concat();
        let output = limited(&dir, &all).env("PROFILER_CLI_SESSION_DIR", &sessions).output();
        let output = output.expect("timeout starts");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    // Its own patience with the process that it starts is half a second.
    let mut loaded = ask(&["load", "x.profile.json"]);
    for _ in 0..20 {
        if loaded.0 || !loaded.2.contains("did not become ready") {
            break;
        }
        ask(&["stop", "--all"]);
        loaded = ask(&["load", "x.profile.json"]);
    }
    let functions = ask(&["thread", "functions", "--json"]);
    let stopped = ask(&["stop", "--all"]);
    assert!(loaded.0 && functions.0 && stopped.0, "{loaded:?} {functions:?} {stopped:?}");
    let document: Value = serde_json::from_str(&functions.1).expect("JSON");
    let functions = document["functions"].as_array().expect("functions");
    for (name, counts) in [("leaf", leaf), ("middle", middle)] {
        let row = functions.iter().find(|row| row["name"] == name).expect(name);
        let seen = ["selfSamples", "totalSamples"].map(|key| row[key].as_u64());
        assert_eq!(seen, counts.map(Some), "{name}");
    }
}

#[test]
fn pprof_readers_see_the_counts() {
    let Some((dir, [leaf, middle])) = recorded("pprof") else { return };
    let Some(module) = viewer("npm/node_modules/pprof-format").filter(|_| has("node")) else {
        return;
    };
    export(&dir, "x.pb.gz");
    let words = ["node", &script("pprof.cjs"), &module, "x.pb.gz"];
    let seen: Value = serde_json::from_str(&prints(&dir, &words)).expect("JSON");
    assert_eq!(seen["sums"]["leaf"], serde_json::json!(leaf));
    assert_eq!(seen["sums"]["middle"], serde_json::json!(middle));
    assert_eq!((&seen["type"], &seen["period"]), (&"instructions".into(), &10_000.into()));
}

#[test]
fn opentelemetry_s_own_messages_hold_the_counts() {
    let Some((dir, [leaf, middle])) = recorded("otlp") else { return };
    let Some(python) = viewer("python/bin/python") else { return };
    export(&dir, "x.otlp.pb");
    let words = [python.as_str(), &script("otlp.py"), "x.otlp.pb"];
    let seen: Value = serde_json::from_str(&prints(&dir, &words)).expect("JSON");
    assert_eq!(seen["sums"]["leaf"], serde_json::json!(leaf));
    assert_eq!(seen["sums"]["middle"], serde_json::json!(middle));
    assert_eq!((&seen["type"], &seen["period"]), (&"instructions".into(), &10_000.into()));
    assert_eq!(seen["resource"]["process.command_line"], "./program");
    assert!(seen["attributes"].to_string().contains("thread.name=program"), "{seen}");
}

/// An exact recording of the same program: own counts are exact, callers are known by their calls.
///
/// Promise: R51
#[test]
fn exact_profiles_have_stacks_that_say_they_are_inferred() {
    let Some((dir, _)) = recorded("inferred") else { return };
    prints(&dir, &[LWP, "record", "-q", "./program"]);
    let report: Value =
        serde_json::from_str(&prints(&dir, &[LWP, "report", "--json"])).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let own = |name: &str| {
        let row = rows.iter().find(|row| row["sym"] == name).expect(name);
        row["self"].as_u64().expect("a count")
    };
    let (leaf, middle, main) = (own("leaf"), own("middle"), own("main"));
    let check = |seen: &Value| {
        let sums = &seen["sums"];
        assert_eq!(sums["leaf"], serde_json::json!([leaf, leaf]), "{seen}");
        assert_eq!(sums["middle"], serde_json::json!([middle, middle + leaf]), "{seen}");
        assert_eq!(sums["main"], serde_json::json!([main, main + middle + leaf]), "{seen}");
    };
    let mut tried = 0;
    if let Some(module) = viewer("npm/node_modules/pprof-format").filter(|_| has("node")) {
        export(&dir, "x.pb.gz");
        let words = ["node", &script("pprof.cjs"), &module, "x.pb.gz"];
        let seen: Value = serde_json::from_str(&prints(&dir, &words)).expect("JSON");
        check(&seen);
        assert!(seen["comments"].to_string().contains("stacks are inferred"), "{seen}");
        tried += 1;
    }
    if let Some(python) = viewer("python/bin/python") {
        export(&dir, "x.otlp.pb");
        let words = [python.as_str(), &script("otlp.py"), "x.otlp.pb"];
        let seen: Value = serde_json::from_str(&prints(&dir, &words)).expect("JSON");
        check(&seen);
        assert_eq!(seen["stacks"], "inferred");
        tried += 1;
    }
    eprintln!("{tried} of 2 readers were there");
}

/// Puts a script at the end of a page, and returns the title that it leaves.
fn after_script(dir: &Path, file: &str, end: &str, script: &str) -> Option<String> {
    let made = std::fs::read_to_string(dir.join(file)).unwrap();
    let at = made.rfind(end).expect(end);
    let changed = format!("{}{script}{}", &made[..at], &made[at..]);
    std::fs::write(dir.join(file), changed).unwrap();
    let document = page(dir, &format!("file://{}", dir.join(file).display()))?;
    let from = document.find("seen:").unwrap_or_else(|| panic!("{document}"));
    let rest = &document[from + 5..];
    Some(rest[..rest.find('<').unwrap()].to_owned())
}

/// Searches for `leaf`, zooms into `middle`, goes back, and notes what was seen.
const TRY_OUT: &str = "
const box = name => document.querySelector(`g.f[data-n='${name}']`);
const wide = name => Number(box(name).querySelector('rect').getAttribute('width'));
const before = wide('leaf');
const click = element => element.dispatchEvent(new MouseEvent('click', {bubbles: true}));
click(box('leaf'));
const zoomed = wide('leaf');
const reset = document.getElementById('reset');
const offered = reset.hidden === false || reset.getAttribute('visibility') === 'visible';
click(reset);
const whole = Number(document.querySelector('svg.flame').getAttribute('width'));
const seen = {zoomed: Math.round(1200 * zoomed / whole), back: Math.abs(wide('leaf') - before) < 0.1, offered};
";

#[test]
fn flame_graphs_live_in_chromium() {
    let Some((dir, _)) = recorded("flame") else { return };
    prints(&dir, &[LWP, "flamegraph", "-o", "flame.html"]);
    let script = format!(
        "<script>{TRY_OUT}
        const pattern = document.getElementById('pattern');
        pattern.value = '^leaf$';
        pattern.dispatchEvent(new Event('input', {{bubbles: true}}));
        seen.matched = document.getElementById('matched').textContent;
        seen.kept = location.hash;
        pattern.value = '';
        location.hash = '#s=%5Emiddle%24';
        window.dispatchEvent(new Event('hashchange'));
        seen.recalled = [pattern.value, document.getElementById('matched').textContent];
        pattern.blur();
        document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '/', bubbles: true}}));
        seen.focused = document.activeElement === pattern;
        document.title = 'seen:' + JSON.stringify(seen);</script>"
    );
    let Some(seen) = after_script(&dir, "flame.html", "</body>", &script) else { return };
    let seen: Value = serde_json::from_str(&seen.replace("&quot;", "\"")).expect("JSON");
    assert_eq!(seen["zoomed"], 1200, "{seen}");
    assert_eq!((&seen["back"], &seen["offered"]), (&true.into(), &true.into()), "{seen}");
    // leaf has more than nine tenths of everything.
    assert!(seen["matched"].as_str().unwrap().contains("9"), "{seen}");
    // The address has the search, and brings it back; / leads to it.
    assert_eq!(seen["kept"], "#s=%5Eleaf%24", "{seen}");
    assert_eq!(seen["recalled"][0], "^middle$", "{seen}");
    assert!(seen["recalled"][1].as_str().unwrap().contains("% matched"), "{seen}");
    assert_eq!(seen["focused"], true, "{seen}");
    prints(&dir, &[LWP, "flamegraph", "-o", "flame.svg"]);
    let script = format!(
        "<script><![CDATA[{TRY_OUT}
        document.getElementById('details').textContent = 'seen:' + JSON.stringify(seen);]]></script>"
    );
    let Some(seen) = after_script(&dir, "flame.svg", "</svg>", &script) else { return };
    let seen: Value = serde_json::from_str(&seen.replace("&quot;", "\"")).expect("JSON");
    assert_eq!(seen["zoomed"], 1200, "{seen}");
    assert_eq!((&seen["back"], &seen["offered"]), (&true.into(), &true.into()), "{seen}");
}
