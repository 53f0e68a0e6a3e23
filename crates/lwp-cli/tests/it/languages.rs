//! Functions of interpreted languages and of runtimes that generate code, with the real
//! interpreters.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::stacks;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use recorded::{LWP, compile, lwp, run};
use stacks::{Stack, share, stacks};
use tools::{fresh, has, text};

/// A program of `tests/profiled`.
fn program(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(name);
    path.to_str().expect("path is text").to_owned()
}

/// CPython's interpreters on this machine, one of each release from 3.8 on, by the second and third
/// number of its version: those in the path, and pyenv's.
fn releases() -> BTreeMap<(u32, u32), String> {
    let mut candidates: Vec<PathBuf> = vec!["/usr/bin/python3".into(), "python3".into()];
    candidates.extend((8..=14).map(|minor| PathBuf::from(format!("python3.{minor}"))));
    let root = Command::new("pyenv").arg("root").output();
    let root = root.map(|output| text(&output.stdout).trim().to_owned()).unwrap_or_default();
    let versions = std::fs::read_dir(Path::new(&root).join("versions"));
    candidates
        .extend(versions.into_iter().flatten().flatten().map(|it| it.path().join("bin/python3")));
    let mut found = BTreeMap::new();
    for candidate in candidates {
        let script =
            "import sys; print(sys.implementation.name, *sys.version_info[1:3], sys.executable)";
        let Ok(output) = Command::new(&candidate).args(["-c", script]).output() else { continue };
        let says = text(&output.stdout);
        let words: Vec<&str> = says.split_whitespace().collect();
        if let ["cpython", minor, patch, executable] = words[..]
            && let (Ok(minor), Ok(patch)) = (minor.parse(), patch.parse())
            && minor >= 8
        {
            found.entry((minor, patch)).or_insert_with(|| executable.to_owned());
        }
    }
    if found.is_empty() {
        eprintln!("skipped: no CPython from 3.8 on");
    }
    found
}

/// The first of them of each release series.
pub(crate) fn pythons() -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    for ((minor, _), python) in releases() {
        found.entry(minor).or_insert(python);
    }
    found
}

/// Records `command` with these options; what it prints must be what it prints alone.
fn record(dir: &Path, options: &[&str], command: &[&str]) {
    let alone = run(dir, command);
    std::fs::write(dir.join("begun"), "").expect("a file");
    let words = [&[LWP, "record", "-q"], options, &["--"], command].concat();
    let recorded = run(dir, &words);
    let status = recorded.status;
    assert!(status.success(), "{options:?} {command:?}: {status}, {}", text(&recorded.stderr));
    assert_eq!(text(&recorded.stdout), text(&alone.stdout), "{command:?}");
    assert_eq!(text(&recorded.stderr), text(&alone.stderr), "{command:?}");
}

/// The perf maps that the processes of the last recording have left in /tmp. Processes of other
/// times may have had the same numbers.
fn maps_left(dir: &Path) -> Vec<PathBuf> {
    let (header, _) = lwp(dir, &["script"]);
    let pids = header
        .lines()
        .filter_map(|line| line.strip_suffix(':').filter(|_| !line.starts_with('\t')));
    let pids =
        pids.filter_map(|head| head.split(": ").next()?.rsplit(' ').next()?.parse::<u32>().ok());
    let paths = pids.map(|pid| PathBuf::from(format!("/tmp/perf-{pid}.map")));
    let written = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let begun = written(&dir.join("begun"));
    assert!(begun.is_some());
    let mut left: Vec<PathBuf> = paths.filter(|path| written(path) >= begun).collect();
    left.dedup();
    left
}

fn ends_with(stack: &Stack, chain: &[&str]) -> bool {
    stack.chain("python").ends_with(chain)
}

/// What must hold of the samples of `weights.py`, whichever interpreter executes it.
fn weights_are_right(python: &str, stacks: &[Stack]) {
    let complete = share(stacks, Stack::is_complete);
    assert!(complete >= 0.99, "{python}: {:.2} % of the stacks are complete", 100.0 * complete);
    // How often each is called, and how many rounds it has: 3 of heavy are worth one of light.
    let of = |chain: &[&str]| share(stacks, |stack| ends_with(stack, chain));
    let base = of(&["<module>", "main", "area", "heavy"]) / 3.0;
    assert!(base > 0.02, "{python}: {base}");
    for (chain, worth) in [
        (&["<module>", "main", "area", "light"][..], 1.0),
        (&["<module>", "main", "twice", "light"], 2.0),
        (&["main", "each", "light"], 3.0),
        (&["<module>", "main", "<lambda>", "heavy"], 6.0),
        (&["_bootstrap", "_bootstrap_inner", "run", "worker", "heavy"], 3.0),
    ] {
        let ratio = of(chain) / base;
        assert!(
            (ratio / worth - 1.0).abs() < 0.12,
            "{python}: {chain:?} is worth {ratio:.2}, not {worth}"
        );
    }
    for frame in
        stacks.iter().flat_map(|stack| &stack.frames).filter(|it| it.module.contains("weights.py"))
    {
        let lines = match frame.function.rsplit('.').next().unwrap_or_default() {
            "light" => 6..=10,
            "heavy" => 13..=17,
            "area" => 21..=23,
            "twice" => 25..=27,
            "each" => 30..=32,
            "worker" => 35..=37,
            _ => continue,
        };
        assert!(lines.contains(&frame.line), "{python}: {frame:?}");
    }
    let in_first = |stack: &Stack| {
        let mut frames = stack.frames.iter().filter(|frame| frame.is_of("python"));
        let pair = (frames.next(), frames.next());
        matches!(pair, (Some(inner), Some(outer)) if inner.function == "light"
            && outer.function.ends_with("area") && outer.line == 22)
    };
    let called = of(&["area", "light"]);
    assert!(
        (share(stacks, in_first) / called - 1.0).abs() < 1e-9,
        "{python}: the call is in line 22"
    );
}

/// Promise: R80
#[test]
fn python_s_functions_and_lines_are_in_the_stacks_of_samples() {
    let dir = fresh("languages", "python");
    let script = program("weights.py");
    for (minor, python) in pythons() {
        record(&dir, &["-c", "20011"], &[&python, &script]);
        let folded = stacks(&dir, "lwp.data", &[]);
        weights_are_right(&python, &folded);
        // The evaluator executes what stands outside it.
        let evaluators = |stack: &Stack| {
            let mut frames = stack.frames.windows(2);
            frames.any(|pair| {
                pair[0].function.starts_with("_PyEval_EvalFrameDefault") && pair[1].is_of("python")
            })
        };
        assert_eq!(share(&folded, evaluators), 0.0, "{python}");
        let all = stacks(&dir, "lwp.data", &["--no-fold"]);
        let named = share(&all, evaluators);
        // Where a part of the evaluator has no symbol, an address stands for it.
        assert!(named > 0.5, "3.{minor}: {named}");
        let chains = |stacks: &[Stack]| -> u64 { stacks.iter().map(|it| it.weight).sum() };
        assert_eq!(chains(&all), chains(&folded));
    }
}

/// Promise: R80, R152
#[test]
fn one_language_can_be_shown_alone() {
    let dir = fresh("languages", "only");
    let script = program("weights.py");
    let Some((_, python)) = pythons().into_iter().next_back() else { return };
    record(&dir, &["-c", "20011"], &[&python, &script]);
    let folded = |options: &[&str]| {
        let (text, _) = lwp(&dir, &[&["export", "-f", "folded"], options].concat());
        text.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
    };
    assert_eq!(folded(&["--only", "python"]), folded(&[]));
    let all = stacks(&dir, "lwp.data", &[]);
    let only = stacks(&dir, "lwp.data", &["--only", "python"]);
    assert!(!only.is_empty());
    for stack in &only {
        assert!(stack.frames.iter().all(|frame| frame.is_of("python")), "{stack:?}");
    }
    for chain in [&["<module>", "main", "area", "heavy"][..], &["main", "twice", "light"]] {
        let of = |stacks: &[Stack]| -> u64 {
            stacks.iter().filter(|stack| ends_with(stack, chain)).map(|it| it.weight).sum()
        };
        assert!(of(&only) > 0, "{chain:?}");
        assert_eq!(of(&only), of(&all), "{chain:?}");
    }
    // What Python's functions call is their own.
    let own = |options: &[&str]| {
        let (json, _) = lwp(&dir, &[&["report", "--json"], options].concat());
        let document: Value = serde_json::from_str(&json).expect("JSON");
        let rows = document["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["sym"] == "heavy").expect("a row");
        row["self"].as_u64().expect("a number")
    };
    assert!(own(&["--only", "python"]) > own(&[]));
    let (_, said) = lwp(&dir, &["flamegraph", "--no-fold", "-o", "all.svg"]);
    assert!(said.contains("help: --only python leaves out"), "{said}");
    let (_, said) = lwp(&dir, &["flamegraph", "--only", "python", "-o", "only.svg"]);
    assert!(!said.contains("help:"), "{said}");
    let (picture, _) = lwp(&dir, &["flamegraph", "--only", "python", "-o", "-"]);
    assert!(picture.contains("heavy") && !picture.contains("Py_RunMain"));
    let (_, said) = lwp(&dir, &["report", "--only", "ruby"]);
    assert!(said.contains("no stack has a function of Ruby"), "{said}");
    let unknown = run(&dir, &[LWP, "report", "--only", "cobol"]);
    assert!(text(&unknown.stderr).contains("there are: python, node"));
    record(&dir, &[], &["/bin/true"]);
    let exact = run(&dir, &[LWP, "report", "--only", "python"]);
    assert_eq!(exact.status.code(), Some(125));
    assert!(text(&exact.stderr).contains("exact counts have no stacks"));
}

/// Promise: R157
#[test]
fn pictures_begin_with_the_program_where_the_interpreter_would_fill_them() {
    let dir = fresh("languages", "pictures");
    let script = program("weights.py");
    let Some((_, python)) = pythons().into_iter().next_back() else { return };
    record(&dir, &["-c", "20011"], &[&python, &script]);
    let draw = |options: &[&str]| {
        let (_, said) = lwp(&dir, &[&["flamegraph", "-o", "x.svg"], options].concat());
        (std::fs::read_to_string(dir.join("x.svg")).expect("a picture"), said)
    };
    let (whole, said) = draw(&["--no-fold"]);
    assert!(whole.contains("Py_RunMain") && !said.contains("left out"), "{said}");
    // The interpreter's own start and end, which call no function of the program's, take one or two
    // hundredths: 60 of 1,200 pixels are five.
    let (picture, said) = draw(&["--min-width", "60"]);
    assert!(picture.contains("heavy"), "{picture}");
    assert!(!picture.contains("Py_RunMain"), "{picture}");
    assert!(said.contains("--no-fold shows them"), "{said}");
    // The functions in C that Python's functions call stay: the time goes there.
    let native = |picture: &str| picture.matches("_PyLong_").count() > 0;
    assert_eq!(native(&picture), native(&whole));
    // A program without interpreted functions stays as it is.
    record(&dir, &["-c", "997"], &["/bin/ls", "/"]);
    assert!(!draw(&[]).1.contains("left out"));
}

/// Promise: R151
#[test]
fn functions_of_python_s_subinterpreters_are_in_the_stacks() {
    let dir = fresh("languages", "subinterpreters");
    let script = program("subinterpreters.py");
    for (minor, python) in pythons() {
        let module = if minor < 13 { "_xxsubinterpreters" } else { "_interpreters" };
        if !run(&dir, &[&python, "-c", &format!("import {module}")]).status.success() {
            eprintln!("skipped: {python} has no {module}");
            continue;
        }
        record(&dir, &["-c", "20011"], &[&python, &script]);
        let stacks = stacks(&dir, "lwp.data", &[]);
        let of = |chain: &[&str]| share(&stacks, |stack| ends_with(stack, chain));
        let (nested, threaded) = (["<module>", "main", "nested"], ["run", "threaded"]);
        for (outer, name) in [(&nested[..], "within"), (&threaded, "beside")] {
            let chain = |function| [outer, &["execute", "<module>", name, function]].concat();
            let (heavy, light) = (of(&chain("heavy")), of(&chain("light")));
            assert!(light > 0.02, "{python}: {name} {light}");
            let ratio = heavy / light / 3.0;
            assert!((ratio - 1.0).abs() < 0.12, "{python}: {name} {heavy} {light}");
            assert!(of(&[outer, &["alone"]].concat()) > 0.02, "{python}: {name}");
        }
        // Each belongs to the thread that executes it.
        let executed = |stack: &Stack| {
            let chain = stack.chain("python");
            ["within", "beside"].map(|name| chain.contains(&name))
        };
        assert_eq!(share(&stacks, |stack| executed(stack) == [true, true]), 0.0, "{python}");
        let chains = share(&stacks, |stack| executed(stack) != [false, false]);
        let right = share(&stacks, |stack| {
            let chain = stack.chain("python");
            match executed(stack) {
                [true, false] => chain.starts_with(&nested),
                [false, true] => chain.windows(2).any(|pair| pair == threaded),
                _ => false,
            }
        });
        assert!((right / chains - 1.0).abs() < 1e-9, "{python}: {right} of {chains}");
        let complete = share(&stacks, Stack::is_complete);
        assert!(complete >= 0.99, "{python}: {complete}");
    }
}

#[test]
fn python_s_stubs_for_perf_change_nothing_in_the_stacks() {
    let dir = fresh("languages", "stubs");
    // A script of our own, by whose path its maps are known.
    std::fs::copy(program("weights.py"), dir.join("weights.py")).unwrap();
    let script = dir.join("weights.py").to_str().unwrap().to_owned();
    for (_, python) in pythons().into_iter().filter(|(minor, _)| *minor >= 12) {
        let command = ["env", "PYTHONPERFSUPPORT=1", &python, &script];
        record(&dir, &["-c", "20011"], &command);
        let folded = stacks(&dir, "lwp.data", &[]);
        weights_are_right(&python, &folded);
        let stub = |stack: &Stack| stack.frames.iter().any(|it| it.function.starts_with("py::"));
        assert!(share(&folded, stub) == 0.0, "{python}");
        // Without Python's own frames, its stubs are in complete stacks.
        record(&dir, &["-c", "20011", "--lang", "none"], &command);
        let plain = stacks(&dir, "lwp.data", &[]);
        let complete = share(&plain, Stack::is_complete);
        assert!(complete >= 0.99, "{python}: {complete}");
        assert!(share(&plain, stub) > 0.5, "{python}");
        remove_maps_that_tell_of(&script);
    }
}

/// Removes the maps that Python has written in /tmp of this script.
fn remove_maps_that_tell_of(script: &str) {
    let all = std::fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.path());
    let is_map = |path: &PathBuf| path.extension().is_some_and(|it| it == "map");
    for path in all.filter(is_map) {
        if std::fs::read_to_string(&path).is_ok_and(|map| map.contains(script)) {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Rows of the report, by the beginning of their names.
fn rows(dir: &Path, prefix: &str) -> Vec<Value> {
    let (json, _) = lwp(dir, &["report", "--json"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let rows = document["rows"].as_array().expect("rows").clone();
    rows.into_iter()
        .filter(|row| row["sym"].as_str().is_some_and(|it| it.starts_with(prefix)))
        .collect()
}

/// Promise: R81
#[test]
fn exact_recordings_count_calls_of_python_s_functions() {
    let dir = fresh("languages", "exact");
    let script = program("counted.py");
    for (_, python) in pythons().into_iter().filter(|(minor, _)| *minor >= 12) {
        record(&dir, &["--lang", "python"], &[&python, &script]);
        for (name, calls) in
            [("fib", 177), ("leaf", 77), ("middle.<locals>.<genexpr>", 79), ("middle", 1)]
        {
            let found = rows(&dir, &format!("py::{name}:"));
            let counted: u64 = found.iter().filter_map(|row| row["calls"].as_u64()).sum();
            assert_eq!(counted, calls, "{python}: {name}: {found:?}");
            let sums = |key: &str| found.iter().filter_map(|row| row[key].as_u64()).sum::<u64>();
            assert!(sums("total") > 10 * sums("self"), "{python}: {name}: {found:?}");
        }
        assert_eq!(maps_left(&dir), Vec::<PathBuf>::new());
        let output = run(&dir, &[LWP, "record", "--", &python, "-c", "pass"]);
        assert!(text(&output.stderr).contains("told by samples: lwp record -c 100K"));
    }
}

/// Before 3.12, calls are counted where they enter the evaluator: all of them, and each as Python
/// itself counts it.
///
/// Promise: R81
#[test]
fn calls_are_counted_as_python_itself_counts_them() {
    let dir = fresh("languages", "called");
    let script = program("called.py");
    for ((minor, patch), python) in releases().into_iter().filter(|((minor, _), _)| *minor < 12) {
        // Earlier releases need nothing to be set.
        let options = if minor == 11 { &["--lang", "python"][..] } else { &[] };
        record(&dir, options, &[&python, &script]);
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        let (mut evaluator, mut all) = (0, 0);
        for row in rows(&dir, "") {
            let [name, module] = ["sym", "dso"].map(|key| row[key].as_str().expect("text"));
            let calls = row["calls"].as_u64().unwrap_or(0);
            match row["self"].as_u64() {
                Some(0) => all += calls,
                _ if name == "_PyEval_EvalFrameDefault" => evaluator = calls,
                _ => {}
            }
            if module.ends_with("called.py") || module.ends_with("<made>") {
                let name = name.rsplit('.').next().unwrap_or_default().to_owned();
                *counted.entry(name).or_default() += calls;
            }
        }
        // These execute one method without a call, which is left out.
        let early = minor == 11 && patch < 4;
        let told = if early { all <= evaluator } else { all == evaluator };
        assert!(told && all > 10_000, "{python}: {all} of {evaluator} calls");
        // Python cannot count the signals of another run, nor what its own counting begins in, nor
        // another process.
        assert!(counted.remove("tick").is_some_and(|it| it > 10), "{python}");
        assert_eq!(counted.remove("forked"), Some(50), "{python}");
        assert_eq!(counted.remove("Thing"), Some(1), "{python}");
        *counted.get_mut("<module>").expect("the module is executed") -= 1;
        let output = run(&dir, &[&python, &script, "count"]);
        let mut itself: BTreeMap<String, u64> = text(&output.stdout)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, times)| (name.to_owned(), times.parse().expect("a number")))
            .collect();
        assert!(itself.len() > 12, "{python}: {}", text(&output.stderr));
        if early {
            assert_eq!(itself.remove("__getitem__"), Some(160), "{python}");
        }
        if minor == 11 {
            // The evaluator makes a generator, which Python does not call a call.
            *itself.get_mut("each").expect("a generator") += 160;
        }
        assert_eq!(counted, itself, "{python}");
        let (header, _) = lwp(&dir, &["script", "--header-only"]);
        let says = header.lines().find(|line| line.starts_with("# added:")).unwrap_or_default();
        assert_eq!(says.contains("eval_frame=_PyEval_EvalFrameDefault"), minor == 11, "{says}");
    }
}

/// Promise: a recording lets a program call itself as deeply as it does natively.
///
/// Promise: R124
#[test]
fn python_s_recursion_is_as_deep_as_natively() {
    let dir = fresh("languages", "deep");
    std::fs::write(dir.join("deep.py"), DEEP).expect("script");
    let mut tried = false;
    for (minor, python) in pythons() {
        let natively = run(&dir, &[&python, "deep.py"]);
        assert!(natively.status.success(), "{python}: {}", text(&natively.stderr));
        for options in [&[][..], &["-c", "1000003"]] {
            let recorded = run(
                &dir,
                &[&[LWP, "record", "-q"][..], options, &["--", &python, "deep.py"]].concat(),
            );
            assert_eq!(recorded.status, natively.status, "{python}: {}", text(&recorded.stderr));
            assert_eq!(text(&recorded.stdout), text(&natively.stdout), "{python} {options:?}");
        }
        tried |= minor >= 11;
    }
    if !tried {
        eprintln!("skipped in part: no CPython from 3.11 on");
    }
}

/// Calls itself as deeply as the usual limit allows, and, from 3.11 on, where a call of a Python
/// function needs no C stack, 60,000 calls deep. Prints the depths, and what children see.
const DEEP: &str = r#"
import os, subprocess, sys
def down(n): return 0 if n == 0 else 1 + down(n - 1)
def most():
    n = 0
    def deeper():
        nonlocal n
        n += 1
        deeper()
    try: deeper()
    except RecursionError: return n
print(most())
if sys.version_info >= (3, 11):
    sys.setrecursionlimit(10**6)
    print(down(25000), down(60000))
print(sorted(key for key in os.environ if 'PERF' in key), sys.argv)
see = 'import os; print(sorted(key for key in os.environ if "PERF" in key))'
print(subprocess.run([sys.executable, '-c', see], capture_output=True, text=True).stdout)
"#;

/// Promise: a recording changes neither the depth to which Node calls, nor its directory, arguments
/// and streams.
///
/// Promise: R124
#[test]
fn node_is_left_as_it_is_at_its_limits() {
    if !has("node") {
        return;
    }
    let dir = fresh("languages", "node-limits");
    let script = "let n = 0; function f() { n++; f() } try { f() } catch (e) { console.log(n) }\
        function g(a, b) { n++; return 1 + g(a + 1, b) }\
        for (let i = 0; i < 3; i++) { n = 0; try { g(1, 2) } catch (e) { console.log(n) } }\
        console.log(process.argv.slice(2), process.execArgv, require('fs').readdirSync('.'))";
    std::fs::write(dir.join("limits.js"), script).expect("script");
    let natively = text(&run(&dir, &["node", "limits.js", "a"]).stdout);
    for options in [&[][..], &["-c", "1000003"]] {
        let words = [&[LWP, "record", "-q", "-o", "../node-limits.data"], options].concat();
        let recorded = run(&dir, &[&words[..], &["--", "node", "limits.js", "a"]].concat());
        assert_eq!(text(&recorded.stdout), natively, "{options:?} {}", text(&recorded.stderr));
        let left: Vec<_> = std::fs::read_dir(&dir).expect("directory").flatten().collect();
        assert_eq!(left.len(), 1, "nothing is left behind: {left:?}");
    }
}

/// What has been asked for nothing is left alone: neither are calls counted nor is an evaluator set.
///
/// Promise: R81
#[test]
fn nothing_is_set_in_python_where_nothing_may_be_added() {
    let dir = fresh("languages", "unset");
    let script = program("called.py");
    for (minor, python) in pythons().into_iter().filter(|(minor, _)| *minor < 12) {
        for options in [&["--lang", "none"][..], &["--deterministic"], &[]] {
            record(&dir, options, &[&python, &script]);
            let calls = rows(&dir, "leaf").len();
            assert_eq!(calls == 1, options.len() < 2 && minor < 11, "{python} {options:?}");
            let (header, _) = lwp(&dir, &["script", "--header-only"]);
            assert!(!header.contains("eval_frame"), "{python} {options:?}");
        }
    }
}

/// Promise: R82
#[test]
fn node_names_its_functions_without_being_told_to() {
    if !has("node") {
        return;
    }
    let dir = fresh("languages", "node");
    record(&dir, &["-c", "20011"], &["node", &program("counted.js"), "word"]);
    let all = stacks(&dir, "lwp.data", &[]);
    let complete = share(&all, Stack::is_complete);
    assert!(complete >= 0.99, "{complete}");
    let has = |stack: &Stack, name: &str| {
        let of_it = |function: &str| function.starts_with("JS:") && function.contains(name);
        stack.frames.iter().any(|frame| of_it(&frame.function))
    };
    for name in ["fib ", "leaf ", "middle "] {
        assert!(share(&all, |stack| has(stack, name)) > 0.001, "{name}");
    }
    let inner = share(&all, |stack| has(stack, "leaf "));
    let both = share(&all, |stack| has(stack, "leaf ") && stack.is_complete());
    assert!(both / inner > 0.99);
    assert_eq!(maps_left(&dir), Vec::<PathBuf>::new());
}

/// Promise: R82
#[test]
fn java_names_its_methods_without_being_told_to() {
    if !has("javac") || !has("java") {
        return;
    }
    let dir = fresh("languages", "java");
    let source = program("Counted.java");
    assert!(run(&dir, &["javac", "-d", ".", &source]).status.success());
    record(&dir, &["-c", "20011"], &["java", "-cp", ".", "Counted"]);
    let all = stacks(&dir, "lwp.data", &[]);
    let complete = share(&all, Stack::is_complete);
    assert!(complete >= 0.99, "{complete}");
    let in_method = |stack: &Stack, name: &str| {
        stack.frames.iter().any(|frame| frame.function.contains(&format!("Counted.{name}(")))
    };
    assert!(share(&all, |stack| in_method(stack, "leaf")) > 0.05);
    assert_eq!(maps_left(&dir), Vec::<PathBuf>::new());
}

/// Virtual machines of Java on this machine: the one in the path, and those beside it.
fn javas() -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut first = std::env::split_paths(&path).map(|it| it.join("java"));
    let first = first.find(|it| it.exists()).expect("java is in the path");
    let mut found = Vec::new();
    let all = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let mut others: Vec<PathBuf> = all.map(|it| it.path().join("bin/java")).collect();
    others.sort();
    others.insert(0, first);
    let mut seen: Vec<Option<PathBuf>> = Vec::new();
    for path in others {
        let is = std::fs::canonicalize(&path).ok();
        if is.is_some() && !seen.contains(&is) {
            seen.push(is);
            found.extend(path.to_str().map(str::to_owned));
        }
    }
    found
}

/// The bottom of a chain of methods, innermost last, and how many times the rounds of `light`
/// called once it has.
const JAVA: [(&[&str], f64); 6] = [
    (&["main", "area", "light"], 1.0),
    (&["main", "area", "heavy"], 3.0),
    (&["main", "twice", "light"], 2.0),
    (&["each", "light"], 3.0),
    (&["run", "lambda$main$0", "heavy"], 3.0),
    (&["run", "lambda$main$1", "heavy"], 3.0),
];

/// Checks of the samples of `Weights.java`, of which nothing is compiled.
fn java_is_right(java: &str, all: &[Stack]) {
    let complete = share(all, Stack::is_complete);
    assert!(complete >= 0.99, "{java}: {complete}");
    // Between methods stand those that call through reflection, whichever a release has.
    let fits = |stack: &Stack, chain: &[&str]| {
        let names = stack.chain("java");
        match chain {
            ["each", last] => names.contains(&"each") && names.last() == Some(last),
            _ => names.ends_with(chain),
        }
    };
    let base = share(all, |stack| fits(stack, JAVA[0].0));
    assert!(base > 0.02, "{java}: {base}");
    for (chain, worth) in JAVA {
        let ratio = share(all, |stack| fits(stack, chain)) / base;
        assert!((ratio / worth - 1.0).abs() < 0.12, "{java}: {chain:?}: {ratio:.2}, not {worth}");
    }
    let unnamed = share(all, |stack| stack.frames.iter().any(|it| it.function == "Interpreter"));
    assert!(unnamed < 0.01, "{java}: {unnamed}");
    for frame in all.iter().flat_map(|stack| &stack.frames) {
        let lines = match frame.function.as_str() {
            "some.work.Weights.light" => 6..=10,
            "some.work.Weights.heavy" => 14..=18,
            "some.work.Weights$Square.area" => 27..=28,
            "some.work.Weights.twice" => 33..=34,
            _ => continue,
        };
        assert_eq!(frame.module, "[java]some/work/Weights.java");
        assert!(lines.contains(&frame.line), "{java}: {frame:?}");
    }
    let called = |stack: &Stack| {
        let mut frames = stack.frames.iter().filter(|frame| frame.is_of("java"));
        let pair = (frames.next(), frames.next());
        matches!(pair, (Some(inner), Some(outer)) if inner.function.ends_with(".heavy")
            && outer.function.ends_with(".area") && outer.line == 28)
    };
    let ratio = share(all, called) / share(all, |stack| fits(stack, JAVA[1].0));
    assert!((ratio - 1.0).abs() < 1e-9, "{java}: the call is in line 28: {ratio}");
}

/// Promise: R111
#[test]
fn java_s_interpreted_methods_and_lines_are_in_the_stacks_of_samples() {
    if !has("javac") || !has("java") {
        return;
    }
    let dir = fresh("languages", "interpreted");
    let compile = ["javac", "--release", "11", "-d", ".", &program("Weights.java")];
    assert!(run(&dir, &compile).status.success());
    for java in javas() {
        for added in [&[][..], &["--lang", "java"]] {
            let options = [&["-c", "20011"], added].concat();
            record(&dir, &options, &[&java, "-Xint", "-cp", ".", "some.work.Weights"]);
            java_is_right(&java, &stacks(&dir, "lwp.data", &[]));
        }
        // Methods are compiled while the program runs, and names stay those that they had.
        record(&dir, &["-c", "20011"], &[&java, "-cp", ".", "some.work.Weights"]);
        let all = stacks(&dir, "lwp.data", &[]);
        let named = share(&all, |stack| stack.chain("java").contains(&"main"));
        assert!(named > 0.02, "{java}: {named}");
        let unnamed =
            share(&all, |stack| stack.frames.iter().any(|it| it.function == "Interpreter"));
        assert!(unnamed < 0.01, "{java}: {unnamed}");
    }
    assert_eq!(maps_left(&dir), Vec::<PathBuf>::new());
}

/// Mono's compiler makes what .NET executes.
///
/// Promise: R109
#[test]
fn dotnet_names_its_methods_without_being_told_to() {
    if !has("dotnet") || !has("mcs") {
        return;
    }
    let dir = fresh("languages", "dotnet");
    let runtimes = text(&run(&dir, &["dotnet", "--list-runtimes"]).stdout).to_owned();
    let version = |line: &str| {
        line.strip_prefix("Microsoft.NETCore.App ")?.split(' ').next().map(str::to_owned)
    };
    let Some(version) = runtimes.lines().filter_map(version).next_back() else {
        eprintln!("skipped: dotnet has no runtime: {runtimes}");
        return;
    };
    assert!(run(&dir, &["mcs", "-out:Counted.dll", &program("Counted.cs")]).status.success());
    let framework = serde_json::json!({ "name": "Microsoft.NETCore.App", "version": version });
    let options = serde_json::json!({ "runtimeOptions": { "framework": framework,
        "configProperties": { "System.Globalization.Invariant": true } } });
    std::fs::write(dir.join("Counted.runtimeconfig.json"), options.to_string()).expect("a file");
    record(&dir, &["-c", "20011"], &["dotnet", "Counted.dll"]);
    let all = stacks(&dir, "lwp.data", &[]);
    let complete = share(&all, Stack::is_complete);
    assert!(complete >= 0.99, "{complete}");
    // The compiler has put the others into Main.
    for method in ["Fib", "Main"] {
        let name = format!("Counted::{method}(");
        let is_in = |stack: &Stack| stack.frames.iter().any(|it| it.function.contains(&name));
        assert!(share(&all, is_in) > 0.001, "{method}");
    }
    assert_eq!(maps_left(&dir), Vec::<PathBuf>::new());
}

/// Promise: R83
#[test]
fn programs_that_are_no_runtime_see_nothing_of_it() {
    let dir = fresh("languages", "unseen");
    record(&dir, &["-c", "100003"], &["sh", "-c", "env; env | wc"]);
    record(&dir, &[], &["env"]);
    if has("node") {
        let script =
            "console.log(require('child_process').execSync('env', {env: {A: '1'}}).toString())";
        record(&dir, &["-c", "1000003"], &["node", "-e", script]);
    }
    let (header, _) = lwp(&dir, &["script", "--header-only"]);
    assert!(header.lines().any(|line| line == "# languages: auto"), "{header:.400}");
}

/// The map has the number that the process has for itself, and lies on a file system that is gone
/// with it.
///
/// Promise: R84
#[test]
fn perf_maps_of_containers_are_found() {
    let dir = fresh("languages", "container");
    let contain = ["unshare", "-m", "-p", "-f"];
    let script = "mount -t tmpfs none /tmp && exec ./program";
    let inside = [&contain[..], &["sh", "-c", script]].concat();
    if !compile(&dir, "generator.c", &["-O1"]) || !has("unshare") {
        return;
    }
    if !run(&dir, &inside).status.success() {
        eprintln!("skipped: no process namespace may be made here");
        return;
    }
    std::fs::remove_file(dir.join("jit-1.dump")).expect("the program's other list");
    for options in [&[][..], &["-c", "10"]] {
        assert!(
            run(&dir, &[&[LWP, "record", "-q"], options, &["--"], &inside].concat())
                .status
                .success()
        );
        let found = rows(&dir, "first loop");
        assert_eq!(found.len(), 1, "{options:?}");
        assert!(found[0]["self"].as_u64().is_some_and(|count| count.abs_diff(2002) < 20));
    }
}

/// Promise: R83
#[test]
fn none_leaves_runtimes_alone_and_says_how_they_are_asked() {
    if !has("node") {
        return;
    }
    let dir = fresh("languages", "none");
    // Most of its instructions are generated code, however soon that is optimised.
    let script = "function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } f(31)";
    let command = [LWP, "record", "--lang", "none", "-c", "20011", "--", "node", "-e", script];
    let output = run(&dir, &command);
    assert!(output.status.success());
    let says = text(&output.stderr);
    assert!(says.contains("without names: run `node --perf-basic-prof"), "{says}");
    let (header, _) = lwp(&dir, &["script", "--header-only"]);
    assert!(header.lines().any(|line| line == "# languages: none"), "{header:.400}");
    assert!(!header.lines().any(|line| line.starts_with("# added")), "{header:.400}");
    for (options, added) in [(&["--deterministic"][..], false), (&[], true)] {
        record(&dir, &[options, &["-c", "1000003"]].concat(), &["node", "-e", "0"]);
        let (header, _) = lwp(&dir, &["script", "--header-only"]);
        let said =
            header.lines().any(|line| line.starts_with("# added: node, nodejs: NODE_OPTIONS="));
        assert_eq!(said, added, "{options:?}: {header:.400}");
    }
}

/// py-spy reads the same frames by other means. Of its stacks, those with some weight are ours too.
///
/// Promise: R80, R147
#[test]
fn py_spy_sees_the_same_python_stacks() {
    if !has("py-spy") {
        return;
    }
    let dir = fresh("languages", "spy");
    let script = program("weights.py");
    for (minor, python) in pythons().into_iter().filter(|(minor, _)| *minor <= 13) {
        let spy =
            ["py-spy", "record", "-r", "500", "-f", "raw", "-o", "spy.txt", "--", &python, &script];
        if !run(&dir, &spy).status.success() {
            eprintln!("skipped: py-spy may not look at 3.{minor}");
            continue;
        }
        let spied = std::fs::read_to_string(dir.join("spy.txt")).expect("py-spy's stacks");
        let chains = |options: &[&str]| -> Vec<String> {
            record(&dir, options, &[&python, &script]);
            let stacks = stacks(&dir, "lwp.data", &[]);
            stacks.iter().map(|it| it.chain("python").join(";")).collect()
        };
        let ours = chains(&["-c", "20011"]);
        let timed = chains(&["--time", "-F", "1999"]);
        let total: u64 = spied.lines().filter_map(weight).sum();
        for line in
            spied.lines().filter(|line| line.contains(";main (") || line.contains(";worker ("))
        {
            let chain = line.rsplit_once(' ').map_or("", |(chain, _)| chain).split(';');
            let names = chain.map(|frame| frame.split(" (").next().unwrap_or_default());
            let names: Vec<&str> =
                names.map(|name| name.rsplit('.').next().unwrap_or_default()).collect();
            let names = names.join(";");
            if weight(line).unwrap_or(0) * 50 > total {
                assert!(ours.contains(&names), "3.{minor}: {names}");
                assert!(timed.contains(&names), "3.{minor}, by time: {names}");
            }
        }
    }
}

fn weight(line: &str) -> Option<u64> {
    line.rsplit(' ').next()?.parse().ok()
}
