//! What people do first, and what they are told where it cannot work.
//!
//! Promise: R50

use crate::shared::recorded;
use crate::shared::tools;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use recorded::{LWP, lwp, run};
use tools::{has, limited, text};

fn fresh(name: &str) -> PathBuf {
    tools::fresh("first_steps", name)
}

/// Runs lwp, which must fail, and returns what it complained of.
fn complaint(dir: &Path, arguments: &[&str]) -> String {
    let output = run(dir, &[&[LWP], arguments].concat());
    assert_eq!(output.status.code(), Some(125), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// Writes `source`, and compiles it with debug information; false where there is no compiler.
fn compiled(dir: &Path, file: &str, source: &str, flags: &[&str]) -> bool {
    if !has("gcc") {
        return false;
    }
    std::fs::write(dir.join(file), source).expect("source");
    let output = run(dir, &[&["gcc", "-g", "-o", "program", file], flags].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    true
}

#[test]
fn a_recording_without_samples_says_what_to_do() {
    let dir = fresh("no_samples");
    let (_, says) = lwp(&dir, &["record", "-F", "99", "/bin/true"]);
    assert!(says.contains("# 0 samples of instructions"), "{says}");
    assert!(says.contains("lwp: no samples: the program ended before the first was due"), "{says}");
    // The advice helps.
    let at = says.find("with -c ").expect("advice") + "with ".len();
    let option: Vec<&str> = says[at..].split([' ', ',']).take(2).collect();
    let (_, says) = lwp(&dir, &["record", option[0], option[1], "/bin/true"]);
    assert!(!says.contains("no samples"), "{says}");
}

#[test]
fn flame_graphs_are_not_written_as_what_they_are_not() {
    let dir = fresh("pdf");
    lwp(&dir, &["record", "-q", "/bin/true"]);
    let says = complaint(&dir, &["flamegraph", "-o", "x.pdf"]);
    assert!(says.contains("not drawn as .pdf") && says.contains(".svg or .html"), "{says}");
    assert!(!dir.join("x.pdf").exists());
    lwp(&dir, &["flamegraph", "-o", "x.HTML"]);
    let page = std::fs::read_to_string(dir.join("x.HTML")).expect("a page");
    assert!(page.to_lowercase().contains("<html"), "no page");
}

#[test]
fn the_help_of_export_lists_every_format() {
    let dir = fresh("formats");
    let (help, _) = lwp(&dir, &["export", "--help"]);
    let formats = [
        "folded",
        "callgrind",
        "pprof",
        "perf",
        "firefox",
        "speedscope",
        "chrome",
        "jsonl",
        "otlp",
    ];
    for format in formats {
        let found = help.lines().any(|line| line.trim_start().starts_with(&format!("{format} ")));
        assert!(found, "{format}: {help}");
    }
    assert!(complaint(&dir, &["export", "-f", "gif"]).contains("KCachegrind"));
}

#[test]
fn a_comparison_fits_a_screen_and_says_what_it_compares() {
    let dir = fresh("diff");
    lwp(&dir, &["record", "-q", "-o", "old.data", "/bin/true"]);
    lwp(&dir, &["record", "-q", "/bin/ls", "-l", "/"]);
    let (short, _) = lwp(&dir, &["diff", "old.data"]);
    assert!(short.starts_with("# old.data -> lwp.data\n"), "{short}");
    let rows = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(rows(&short), 30, "{short}");
    assert!(short.trim_end().ends_with("more not shown: -n 0 shows all"), "{short}");
    let (all, _) = lwp(&dir, &["diff", "-n", "0", "old.data", "lwp.data"]);
    let hidden: usize = short.lines().last().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert_eq!(rows(&all), 30 + hidden);
    // Programs get everything, and people are told beside it.
    let (json, says) = lwp(&dir, &["diff", "--json", "old.data"]);
    let document: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(document["rows"].as_array().expect("rows").len(), rows(&all));
    assert!(says.contains("lwp: lwp.data is compared with old.data"), "{says}");
    let (series, _) = lwp(&dir, &["diff", "old.data", "lwp.data", "lwp.data"]);
    assert!(series.contains("more not shown: -n 0 shows all"), "{series}");
}

#[test]
fn a_filter_offers_what_may_have_been_meant() {
    let dir = fresh("filter");
    let source = "static inline __attribute__((always_inline)) int parse(int n) { return n * 3 + 1; }\n\
        __attribute__((noinline)) int consume(int n) { int s = 0; while (n--) s += parse(n); return s; }\n\
        int main(int argc, char **argv) { return consume(argc * 100) == 5; }\n";
    if !compiled(&dir, "a.c", source, &["-O2"]) {
        return;
    }
    let record =
        |filter: &str| complaint(&dir, &["record", "-c", "10", "--filter", filter, "./program"]);
    let says = record("parse");
    assert!(says.contains("'parse' has no code of its own"), "{says}");
    assert!(says.contains("inlined into: consume;"), "{says}");
    assert!(says.contains("lwp report --inline"), "{says}");
    let says = record("consme");
    assert!(says.contains("no function is named 'consme'"), "{says}");
    assert!(says.contains("similar names are: consume"), "{says}");
    assert!(record("xqzwvvk").contains("symbols were searched"));
}

#[test]
fn a_filter_tells_inlined_functions_of_one_name_apart() {
    let dir = fresh("filter-paths");
    let source = "#define IN inline __attribute__((always_inline))\n\
        namespace far::away { struct Text { IN int parse(int n) { return n * 5; } }; }\n\
        static IN int parse(int n) { return n * 3 + 1; }\n\
        __attribute__((noinline)) int eat(int n) { int s = 0; while (n--) s += parse(n); return s; }\n\
        __attribute__((noinline)) int drink(int n) { far::away::Text t; return t.parse(n); }\n\
        int main(int argc, char **argv) { return eat(argc * 100) == drink(argc); }\n";
    if !has("g++") || !compiled(&dir, "a.cc", source, &["-O2"]) {
        return;
    }
    let says = complaint(&dir, &["record", "-c", "10", "--filter", "parse", "./program"]);
    let both = "'parse', 'far::away::Text::parse(int)' have no code of their own";
    assert!(says.contains(both), "{says}");
    assert!(says.contains("inlined into: eat(int), drink(int);"), "{says}");
}

/// Where the program's own work is a tenth of the C library's.
const IN_LIBRARY: &str = "#include <stdlib.h>\n#include <string.h>\n\
    __attribute__((noinline)) long own(char *p) { return (long)strlen(p) + 1; }\n\
    static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }\n\
    int main(void) { static int v[5000]; long s = 0;\n\
      for (int i = 0; i < 5000; i++) v[i] = (i * 7919) % 5003;\n\
      for (int i = 0; i < 50; i++) { qsort(v, 5000, sizeof *v, order); s += own((char *)v); }\n\
      return s == 42; }\n";

#[test]
fn the_program_s_own_code_comes_first() {
    let dir = fresh("own");
    if !compiled(&dir, "a.c", IN_LIBRARY, &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    let (hottest, _) = lwp(&dir, &["report", "-n", "1", "--csv"]);
    assert!(hottest.contains("libc"), "{hottest}");
    let (listing, says) = lwp(&dir, &["annotate"]);
    assert!(listing.starts_with("order [program]"), "{listing}");
    assert!(listing.contains("return *(const int *)a"), "{listing}");
    assert!(says.contains("in libc.so.6 is hotter"), "{says}");
    // Where it has none, another's is shown.
    lwp(&dir, &["record", "-q", "-o", "true.data", "/bin/true"]);
    lwp(&dir, &["annotate", "-i", "true.data"]);
}

#[test]
fn missing_source_is_named_and_found_elsewhere() {
    let dir = fresh("moved");
    if !compiled(&dir, "a.c", IN_LIBRARY, &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    std::fs::create_dir(dir.join("elsewhere")).unwrap();
    std::fs::rename(dir.join("a.c"), dir.join("elsewhere/a.c")).unwrap();
    let (listing, says) = lwp(&dir, &["annotate", "order"]);
    assert!(!listing.contains("return *(const int *)a"), "{listing}");
    assert!(says.contains("a.c was not found") && says.contains("--source "), "{says}");
    let at = says.find("--source ").unwrap() + "--source ".len();
    let map = says[at..].trim_end().replace("DIR", dir.join("elsewhere").to_str().unwrap());
    let (listing, says) = lwp(&dir, &["annotate", "order", "--source", &map]);
    assert!(listing.contains("return *(const int *)a"), "{listing}");
    assert!(says.is_empty(), "{says}");
}

#[test]
fn rust_s_own_sources_are_said_to_be_a_component() {
    let dir = fresh("rust_src");
    if !has("rustc") {
        return;
    }
    let source = "fn main() { let n = std::env::args().count();\n\
        let words: Vec<String> = (0..n * 500).map(|i| i.to_string()).collect();\n\
        println!(\"{}\", words.join(\" \").len()); }\n";
    std::fs::write(dir.join("a.rs"), source).unwrap();
    let built = run(&dir, &["rustc", "-O", "-C", "debuginfo=1", "-o", "program", "a.rs"]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    lwp(&dir, &["record", "-q", "./program"]);
    // No toolchain: nothing can be found in one.
    let none = limited(&dir, &[LWP, "annotate", "main"]).env("RUSTC", "/nonexistent").output();
    let says = text(&none.expect("timeout starts").stderr);
    if says.contains("rust-src") {
        assert!(says.contains("--source /rustc/"), "{says}");
    } else {
        // rustup's toolchains have them.
        assert!(!says.contains("/rustc/"), "{says}");
    }
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let dir = fresh("colours");
    lwp(&dir, &["record", "-q", "/bin/true"]);
    lwp(&dir, &["record", "-q", "-o", "ls.data", "/bin/ls"]);
    let commands: [&[&str]; 4] = [
        &["report"],
        &["report", "--tree"],
        &["annotate", "_dl_relocate_object"],
        &["diff", "lwp.data", "ls.data"],
    ];
    for command in commands {
        let plain = lwp(&dir, command).0;
        assert!(!plain.contains('\u{1b}'), "{command:?}: {plain}");
        let colored = lwp(&dir, &[command, &["--color", "always"]].concat()).0;
        assert!(colored.contains("\u{1b}["), "{command:?}: {colored}");
        // They add nothing but colours.
        let mut bare = String::new();
        for part in colored.split('\u{1b}') {
            let skip = part.starts_with('[').then(|| part.find('m').expect("an end") + 1);
            bare.push_str(&part[skip.unwrap_or(0)..]);
        }
        assert_eq!(bare, plain, "{command:?}");
    }
    if !has("script") {
        return;
    }
    let on_terminal = |variables: &[(&str, &str)], more: &str| {
        let command = format!("{LWP} diff lwp.data ls.data {more}");
        let words = ["script", "-q", "-e", "-c", &command, "terminal"];
        let mut command = limited(&dir, &words);
        command.env_remove("NO_COLOR").env_remove("PAGER").env_remove("LWP_PAGER");
        command.env("TERM", "xterm").envs(variables.iter().copied());
        assert!(command.output().expect("timeout starts").status.success());
        text(&std::fs::read(dir.join("terminal")).expect("what was shown"))
    };
    assert!(on_terminal(&[], "").contains("\u{1b}[3"));
    assert!(!on_terminal(&[("NO_COLOR", "1")], "").contains("\u{1b}[3"));
    assert!(!on_terminal(&[], "--color never").contains("\u{1b}[3"));
    assert!(!on_terminal(&[("TERM", "dumb")], "").contains("\u{1b}[3"));
    // A pager has it all, where there is a terminal; one that is missing loses nothing.
    let paged = [("PAGER", "exit 1"), ("LWP_PAGER", "sed s/^/paged:/")];
    assert!(on_terminal(&paged, "").contains("paged:# lwp.data -> ls.data"));
    assert!(!on_terminal(&paged, "--no-pager").contains("paged:"));
    let missing = on_terminal(&[("PAGER", "/nonexistent/pager")], "");
    assert!(missing.contains("# lwp.data -> ls.data"), "{missing}");
    let words = [LWP, "diff", "lwp.data", "ls.data"];
    let piped = limited(&dir, &words).env("LWP_PAGER", "sed s/^/paged:/").output().unwrap();
    assert!(!text(&piped.stdout).contains("paged:"));
}

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a shell that computes for ever.
fn busy() -> Running {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "echo ready; while :; do :; done"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut line = String::new();
    let output = child.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("a line");
    Running(child)
}

/// Promise: R52
#[test]
fn an_attached_process_has_its_own_times() {
    let dir = fresh("times");
    let busy = busy();
    let pid = busy.0.id().to_string();
    let counted = || {
        let words = ["stat", "-j", "-e", "instructions,task-clock", "-p", &pid, "sleep", "1"];
        let (_, says) = lwp(&dir, &words);
        let rows =
            says.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let rows: Vec<_> = rows.collect();
        let value = |event: &str| -> f64 {
            let row = rows.iter().find(|row| row["event"] == event);
            let row = row.unwrap_or_else(|| panic!("{event}: {says}"));
            row["counter-value"].as_str().and_then(|it| it.parse().ok()).expect("a number")
        };
        (value("instructions"), value("task-clock"))
    };
    // On a busy machine the process may get no processor for a second.
    let all = std::iter::repeat_with(counted).take(100);
    let all = all.filter(|(instructions, _)| *instructions > 1e6);
    let (instructions, clock) = all.take(1).next().expect("the process is busy");
    // The command beside it sleeps. No processor here executes fifty instructions in a nanosecond.
    assert!(instructions / (clock * 1e6) < 50.0, "{instructions} in {clock} ms");
    assert!(clock < 10_000.0, "{clock} ms in a second");
}

#[test]
fn a_process_that_refuses_has_its_reason_said() {
    let dir = fresh("refused");
    let busy = busy();
    let pid = busy.0.id().to_string();
    let mut first = limited(&dir, &[LWP, "stat", "-p", &pid]);
    let mut first = first.stderr(Stdio::piped()).spawn().expect("lwp starts");
    let traced = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    while !traced() && first.try_wait().expect("status").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let says = complaint(&dir, &["stat", "-p", &pid]);
    assert!(says.contains("traces it already"), "{says}");
    assert!(!says.contains("as root"), "{says}");
    drop(busy);
    // It may have been about to take over what is gone now.
    let _ = first.wait();
}
