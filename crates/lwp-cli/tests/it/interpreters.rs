//! Functions of interpreted languages other than Python, with the real interpreters.
//!
//! Promise: R108
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::stacks;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use recorded::{LWP, lwp, run};
use stacks::{Stack, share, stacks};
use tools::{fresh, has, text};

/// A program of `tests/profiled`.
fn program(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(name);
    path.to_str().expect("path is text").to_owned()
}

/// The samples of a program that prints what it prints alone.
fn recorded(test: &str, command: &[&str]) -> Vec<Stack> {
    let dir = fresh("interpreters", test);
    let alone = run(&dir, command);
    let words = [&[LWP, "record", "-q", "-c", "10007", "--"], command].concat();
    let recorded = run(&dir, &words);
    assert!(recorded.status.success(), "{command:?}: {}", text(&recorded.stderr));
    assert_eq!(text(&recorded.stdout), text(&alone.stdout), "{command:?}");
    assert_eq!(text(&recorded.stderr), text(&alone.stderr), "{command:?}");
    stacks(&dir, "lwp.data", &[])
}

/// Functions of `language`, outermost first, without their classes and packages.
fn chain<'s>(stack: &'s Stack, language: &str) -> Vec<&'s str> {
    let of_it = stack.frames.iter().rev().filter(|frame| frame.is_of(language));
    of_it.map(|frame| frame.function.rsplit("::").next().unwrap_or_default()).collect()
}

/// A chain of functions that stacks end with, and how many times the rounds of `light` called once
/// it has.
type Weight<'a> = (&'a [&'a str], f64);

/// What must hold of the samples of `weights.*`: heavy has three times the rounds of light.
fn weights_are_right(language: &str, stacks: &[Stack], weights: &[Weight<'_>]) {
    let complete = share(stacks, Stack::is_complete);
    assert!(complete >= 0.99, "{language}: {:.2} % of the stacks are complete", 100.0 * complete);
    let of = |wanted: &[&str]| share(stacks, |stack| chain(stack, language).ends_with(wanted));
    let base = of(&["area", "heavy"]) / 3.0;
    assert!(base > 0.01, "{language}: {base}");
    for (wanted, worth) in weights {
        let ratio = of(wanted) / base;
        assert!(
            (ratio / worth - 1.0).abs() < 0.12,
            "{language}: {wanted:?} is worth {ratio:.2}, not {worth}"
        );
    }
    // The evaluator stands for what it executes.
    let evaluators = ["execute_ex", "Perl_runops_standard", "luaV_execute", "vm_exec_core"];
    let folded = |stack: &Stack| {
        let mut pairs = stack.frames.windows(2);
        pairs.any(|pair| evaluators.contains(&&*pair[0].function) && pair[1].is_of(language))
    };
    assert_eq!(share(stacks, folded), 0.0, "{language}");
}

/// The lines of `function` are these.
fn lines_are(
    language: &str,
    stacks: &[Stack],
    function: &str,
    lines: std::ops::RangeInclusive<u32>,
) {
    let its = |name: &str| name.rsplit("::").next() == Some(function);
    let mut seen = false;
    for frame in stacks.iter().flat_map(|stack| &stack.frames) {
        if frame.is_of(language) && frame.module.contains("weights.") && its(&frame.function) {
            assert!(lines.contains(&frame.line), "{language}: {frame:?}");
            seen = true;
        }
    }
    assert!(seen, "{language}: {function} was not met");
}

/// The release that `command` says it is; says that the test is skipped where it is not one of
/// `known`.
fn is_known(command: &[&str], known: &[&str]) -> bool {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let says = output.map(|it| text(&[it.stdout, it.stderr].concat()).to_owned());
    let says = says.unwrap_or_default();
    let is = known.iter().any(|known| says.contains(known));
    if !is {
        eprintln!("skipped: {command:?} says {says:.60?}, and not one of {known:?}");
    }
    is
}

#[test]
fn ruby_s_methods_and_blocks_are_in_the_stacks_of_samples() {
    let known = ["ruby 3.0.", "ruby 3.1.", "ruby 3.2.", "ruby 3.3.", "ruby 3.4.", "ruby 4.0."];
    if !has("ruby") || !is_known(&["ruby", "--version"], &known) {
        return;
    }
    let stacks = recorded("ruby", &["ruby", &program("weights.rb")]);
    let weights: [Weight<'_>; 4] = [
        (&["block in main", "area", "light"], 1.0),
        (&["block in main", "twice", "block in twice", "light"], 2.0),
        (&["main", "block in main", "block (2 levels) in main", "heavy"], 6.0),
        (&["worker", "block in worker", "heavy"], 3.0),
    ];
    weights_are_right("ruby", &stacks, &weights);
    for (function, lines) in [("light", 1..=9), ("heavy", 11..=20), ("area", 23..=26)] {
        lines_are("ruby", &stacks, function, lines);
    }
}

#[test]
fn php_s_functions_are_in_the_stacks_of_samples() {
    if !has("php") || !is_known(&["php", "--version"], &["PHP 8.2."]) {
        return;
    }
    let stacks = recorded("php", &["php", &program("weights.php"), "word"]);
    let weights: [Weight<'_>; 4] = [
        (&["{main}", "main", "area", "light"], 1.0),
        (&["{main}", "main", "twice", "array_map", "light"], 2.0),
        (&["{main}", "main", "each", "light"], 3.0),
        (&["{main}", "main", "usort", "{closure}", "heavy"], 3.0),
    ];
    weights_are_right("php", &stacks, &weights);
    for (function, lines) in [("light", 2..=8), ("heavy", 10..=17), ("area", 21..=25)] {
        lines_are("php", &stacks, function, lines);
    }
}

/// The calls of PHP's functions in an exact recording in `dir`, by name.
fn php_s_calls(dir: &Path) -> BTreeMap<String, u64> {
    let (json, _) = lwp(dir, &["report", "--json"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let mut counted = BTreeMap::new();
    for row in document["rows"].as_array().expect("rows") {
        let [name, module] = ["sym", "dso"].map(|key| row[key].as_str().expect("text"));
        if module.contains("called.php") {
            assert_eq!(row["self"], 0, "{row}");
            *counted.entry(name.to_owned()).or_default() += row["calls"].as_u64().unwrap_or(0);
        }
    }
    counted
}

/// Promise: R113
#[test]
fn calls_of_php_s_functions_are_counted_as_they_count_themselves() {
    if !has("php") || !is_known(&["php", "--version"], &["PHP 8.2."]) {
        return;
    }
    let dir = fresh("interpreters", "php-calls");
    let script = program("called.php");
    let output = run(&dir, &["php", &script, "count"]);
    let count = |line: &str| {
        let (name, count) = line.split_once(' ').expect("a name and a count");
        (name.to_owned(), count.parse().expect("a number"))
    };
    let mut expected: BTreeMap<String, u64> = text(&output.stdout).lines().map(count).collect();
    assert_eq!(expected.len(), 11, "{}", text(&output.stderr));
    // A generator is entered when it is made, for each value, and to end.
    expected.extend(
        [("values", 6 * 7), ("{closure}", 900), ("main", 1)]
            .map(|(name, count)| (name.to_owned(), count)),
    );
    expected.extend((0..300).step_by(50).map(|round| (format!("made{round}"), 2)));
    let alone = run(&dir, &["php", &script]);
    let recorded = run(&dir, &[LWP, "record", "-q", "--", "php", &script]);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    assert_eq!(text(&recorded.stdout), text(&alone.stdout));
    assert_eq!(php_s_calls(&dir), expected);
    let (header, _) = lwp(&dir, &["script", "--header-only"]);
    assert!(!header.contains("# added:"), "nothing is set in the engine: {header:.400}");
    run(&dir, &[LWP, "record", "-q", "--lang", "none", "--", "php", &script]);
    assert_eq!(php_s_calls(&dir), BTreeMap::new());
}

#[test]
fn perl_s_subroutines_are_in_the_stacks_of_samples() {
    let threads = ["-e", "use Config; print $Config{usethreads} ? 'threads' : 'none', \" $]\""];
    if !has("perl") || !is_known(&[&["perl"], &threads[..]].concat(), &["threads 5.036"]) {
        return;
    }
    let stacks = recorded("perl", &["perl", &program("weights.pl"), "word"]);
    let weights: [Weight<'_>; 4] = [
        (&["(main)", "main", "area", "light"], 1.0),
        (&["(main)", "main", "twice", "light"], 2.0),
        (&["(main)", "main", "heavy"], 3.0),
        (&["(main)", "main", "light"], 1.0),
    ];
    weights_are_right("perl", &stacks, &weights);
    for (function, lines) in [("light", 5..=10), ("heavy", 14..=19), ("area", 25..=27)] {
        lines_are("perl", &stacks, function, lines);
    }
}

/// The program for Lua, in words that releases before 5.3 understand too.
fn lua_s_program(dir: &str) -> String {
    let script = std::fs::read_to_string(program("weights.lua")).expect("a program");
    let path = fresh("interpreters", dir).join("weights.lua");
    std::fs::write(&path, script.replace("i & 7", "i % 8")).expect("a program");
    path.to_str().expect("path is text").to_owned()
}

/// The weights of `script`, which say what it is called by.
fn lua_s_weights_are_right(stacks: &[Stack], script: &str) {
    let (each, less) = (format!("function <{script}:29>"), format!("function <{script}:46>"));
    let weights: [Weight<'_>; 4] = [
        (&["main chunk", "main", "area", "light"], 1.0),
        (&["main chunk", "main", "twice", "light"], 2.0),
        (&["main chunk", "main", &each, "light"], 3.0),
        (&["main chunk", "main", &less, "heavy"], 3.0),
    ];
    weights_are_right("lua", stacks, &weights);
    for (function, lines) in [("light", 1..=7), ("heavy", 9..=15), ("area", 19..=22)] {
        lines_are("lua", stacks, function, lines);
    }
}

#[test]
fn lua_s_functions_are_in_the_stacks_of_samples_by_the_names_they_are_called_by() {
    for lua in ["lua5.4", "lua5.3", "lua5.1"].into_iter().filter(|lua| has(lua)) {
        let known = ["Lua 5.4.", "Lua 5.3.6", "Lua 5.1.4", "Lua 5.1.5"];
        if !is_known(&[lua, "-v"], &known) {
            continue;
        }
        let script = match lua {
            "lua5.1" => lua_s_program("lua-program"),
            _ => program("weights.lua"),
        };
        lua_s_weights_are_right(&recorded(lua, &[lua, &script, "word"]), &script);
    }
}

/// The function in which a trace of LuaJIT began names what the trace executes.
#[test]
fn luajit_s_functions_are_in_the_stacks_of_samples() {
    let version = ["luajit", "-e", "print(jit.version, require('ffi').abi('gc64'))"];
    if !has("luajit") || !is_known(&version, &["LuaJIT 2.1.0-beta3\ttrue"]) {
        return;
    }
    let script = lua_s_program("luajit-program");
    for mode in ["-joff", "-jon"] {
        let stacks = recorded(&format!("luajit{mode}"), &["luajit", mode, &script, "word"]);
        lua_s_weights_are_right(&stacks, &script);
    }
}
