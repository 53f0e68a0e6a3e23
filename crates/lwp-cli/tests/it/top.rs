//! `lwp top`: frames while a program runs, on a pipe and on a terminal.
//!
//! Promise: R17

use crate::shared::tools;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// Compiles a program that spends its time in `busy`, for ever or for a while.
fn compile(dir: &Path) -> bool {
    if !has("gcc") {
        return false;
    }
    let program = "#include <stdio.h>\n\
        __attribute__((noinline)) long busy(long n) {\n\
            long s = n; for (int i = 0; i < 10000; i++) { s = s * 3 + i; } return s; }\n\
        int main(int argc, char **argv) {\n\
            long s = 0; puts(\"hello\"); fflush(stdout);\n\
            for (long i = 0; argc > 1 || i < 20000; i++) s += busy(i);\n\
            return s == 42; }\n";
    std::fs::write(dir.join("busy.c"), program).unwrap();
    let output = limited(dir, &["gcc", "-O1", "-o", "busy", "busy.c"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    true
}

/// The rows of each frame: now, total, instructions, module, function.
fn frames(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut frames = Vec::new();
    for line in text.lines() {
        if line.starts_with("# lwp top:") {
            frames.push(Vec::new());
        } else if line.contains('%') {
            let words = line.split_whitespace().map(str::to_owned).collect();
            frames.last_mut().expect("a heading").push(words);
        }
    }
    frames
}

#[test]
fn frames_follow_the_program() {
    let dir = tools::fresh("top", "batch");
    if !compile(&dir) {
        return;
    }
    let output = limited(&dir, &[LWP, "top", "-d", "0.1", "./busy"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The program's own output is nobody else's.
    assert_eq!(text(&output.stdout), "hello\n");
    let frames = frames(&text(&output.stderr));
    let last = frames.last().expect("a frame at the end");
    let busy = last.iter().find(|row| row[4] == "busy").expect("busy");
    // 20,000 calls; a turn of its loop is at least three instructions.
    let instructions: u64 = busy[2].replace(',', "").parse().unwrap();
    assert!(instructions > 600_000_000, "{instructions}");
    // What is shown at the end is what a recording has.
    let recorded = limited(&dir, &[LWP, "record", "-q", "./busy"]).status().unwrap();
    assert!(recorded.success());
    let report = limited(&dir, &[LWP, "report", "--csv", "-s", "sym"]).output().unwrap();
    let report = text(&report.stdout);
    assert!(report.contains(&instructions.to_string()), "{instructions} is not in {report}");
}

#[test]
fn enough_frames_are_an_end_without_failure() {
    let dir = tools::fresh("top", "enough");
    if !compile(&dir) {
        return;
    }
    let words = [LWP, "top", "-d", "2", "-n", "2", "-o", "frames", "./busy", "endless"];
    let output = limited(&dir, &words).output().unwrap();
    assert!(output.status.success(), "{:?} {}", output.status, text(&output.stderr));
    let frames = frames(&std::fs::read_to_string(dir.join("frames")).unwrap());
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[1][0][4], "busy");
}

#[test]
fn a_program_that_is_not_counted_is_named() {
    let dir = tools::fresh("top", "uncounted");
    // There is no room for translated code: the program runs natively.
    let script = format!("ulimit -v 4000000; exec {LWP} top --once -- /bin/true");
    let output = limited(&dir, &["sh", "-c", &script]).output().unwrap();
    let says = text(&output.stderr);
    assert!(output.status.success(), "{says}");
    assert!(says.contains("lwp: not counted: true-"), "{says}");
    assert!(says.contains("no memory for translated code"), "{says}");
}

#[test]
fn an_attached_program_goes_on() {
    let dir = tools::fresh("top", "attached");
    if !compile(&dir) {
        return;
    }
    let mut busy = limited(&dir, &["./busy", "endless"]).stdout(Stdio::null()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", busy.id());
    let deadline = Instant::now() + Duration::from_secs(60);
    let pid = loop {
        let child = std::fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
        if !child.is_empty() || Instant::now() > deadline {
            break child;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let words = [LWP, "top", "-d", "2", "-n", "2", "-p", &pid];
    let output = limited(&dir, &words).output().unwrap();
    let alive = Path::new("/proc").join(&pid).exists();
    busy.kill().unwrap();
    busy.wait().unwrap();
    let _ = Command::new("kill").args(["-9", &pid]).status();
    assert!(output.status.success() && alive, "{}", text(&output.stderr));
    assert_eq!(frames(&text(&output.stderr))[1][0][4], "busy");
}

#[test]
fn a_terminal_shows_it_and_gets_the_output_afterwards() {
    let dir = tools::fresh("top", "terminal");
    if !has("tmux") || !compile(&dir) {
        return;
    }
    let tmux = |words: &[&str]| {
        let all = [&["tmux", "-L", "lwp-top-test", "-f", "/dev/null"], words].concat();
        text(&limited(&dir, &all).output().unwrap().stdout)
    };
    let screen = |wanted: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let screen = tmux(&["capture-pane", "-p"]);
            if screen.contains(wanted) || Instant::now() > deadline {
                return screen;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let command = format!("{LWP} top -d 0.2 ./busy endless; echo status $?; sleep 100");
    tmux(&["new-session", "-d", "-x", "100", "-y", "30", &command]);
    let running = screen("  busy");
    tmux(&["send-keys", "t"]);
    let by_total = screen("t by now");
    tmux(&["send-keys", "q"]);
    let after = screen("status");
    tmux(&["kill-server"]);
    assert!(running.contains("q quit") && !running.contains("hello"), "{running}");
    assert!(by_total.contains("t by now"), "{by_total}");
    assert!(after.contains("hello") && after.contains("status 0"), "{after}");
}
