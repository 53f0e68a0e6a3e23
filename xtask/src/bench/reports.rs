//! Readers of recordings: their time beside the recording itself, and on very big ones.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::memory;
use super::ways::find;
use crate::workspace;

/// The time between two looks at the memory.
const INTERVAL: Duration = Duration::from_millis(2);

/// Programs of some hundred megabytes with their symbols, and what they are to do.
const LARGE: &[(&str, &[&str])] = &[("node", &["-e", "0"]), ("rustc", &["hello.rs"])];

/// Big recordings: what `big_recording` is to write, and the command that reads it.
const BIG: &[(&str, [&str; 2], &[&str])] = &[
    ("1 GB, 200,000 stacks", ["200000", "1024"], &["report", "--stdio", "-i", "big.data"]),
    ("1 GB, exact", ["exact", "1024"], &["report", "--stdio", "-i", "big.data"]),
    ("a million stacks", ["1000000", "1"], &["flamegraph", "-i", "big.data", "-o", "big.svg"]),
];

/// The time and memory of one command.
#[derive(Clone, Copy, Debug)]
struct Took {
    time: Duration,
    /// The most memory seen, in KiB.
    memory: u64,
}

/// Measures everything `rounds` times and returns two tables of minima.
pub fn measure(lwp: &Path, rounds: u32, dir: &Path, limit: Duration) -> Result<String> {
    let mut text = String::from("\nreading recordings, minima:\n\n");
    text.push_str("| program | lwp record | lwp report | ratio | memory |\n");
    text.push_str("| --- | ---: | ---: | ---: | ---: |\n");
    fs::write(dir.join("hello.rs"), "fn main() { println!(\"hello\"); }\n")?;
    for (name, arguments) in LARGE {
        let Some(program) = find(name) else {
            let _ = writeln!(text, "| {name} | not installed | | | |");
            continue;
        };
        let recording = ["record", "-q", "-o", "large.data", "--"].map(OsStr::new).into_iter();
        let recording = recording.chain([program.as_os_str()]);
        let recording: Vec<&OsStr> = recording.chain(arguments.iter().map(OsStr::new)).collect();
        // The first one keeps translations for the others.
        once(lwp, &recording, dir, limit)?;
        let recorded = least(lwp, &recording, rounds, dir, limit)?;
        let reporting = ["report", "--stdio", "-i", "large.data"].map(OsStr::new);
        let reported = least(lwp, &reporting, rounds, dir, limit)?;
        let ratio = reported.time.as_secs_f64() / recorded.time.as_secs_f64();
        let (recorded, memory) = (milliseconds(recorded.time), mebibytes(reported.memory));
        let reported = milliseconds(reported.time);
        let _ = writeln!(text, "| {name} | {recorded} | {reported} | {ratio:.2} | {memory} |");
    }
    text.push_str("\n| recording | command | time | memory |\n| --- | --- | ---: | ---: |\n");
    for (name, words, command) in BIG {
        make(words, &dir.join("big.data"))?;
        let arguments: Vec<&OsStr> = command.iter().map(OsStr::new).collect();
        let took = least(lwp, &arguments, rounds, dir, limit)?;
        let (time, memory) = (milliseconds(took.time), mebibytes(took.memory));
        let _ = writeln!(text, "| {name} | {} | {time} | {memory} |", command[0]);
    }
    Ok(text)
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

fn mebibytes(kib: u64) -> String {
    format!("{} MiB", kib / 1024)
}

/// Writes a big recording.
fn make(words: &[&str], path: &Path) -> Result<()> {
    let start = ["run", "--release", "-q", "-p", "lwp-profile", "--example", "big_recording", "--"];
    let mut command = workspace::cargo(&start);
    command.arg(path).args(words);
    workspace::run(command)
}

fn least(
    lwp: &Path,
    arguments: &[&OsStr],
    rounds: u32,
    dir: &Path,
    limit: Duration,
) -> Result<Took> {
    let mut least = once(lwp, arguments, dir, limit)?;
    for _ in 1..rounds {
        let took = once(lwp, arguments, dir, limit)?;
        least.time = least.time.min(took.time);
        least.memory = least.memory.max(took.memory);
    }
    Ok(least)
}

fn once(lwp: &Path, arguments: &[&OsStr], dir: &Path, limit: Duration) -> Result<Took> {
    let mut command = Command::new(lwp);
    command.args(arguments).current_dir(dir).env("XDG_CACHE_HOME", dir.join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let status = format!("/proc/{}/status", child.id());
    let mut memory = 0;
    loop {
        if let Some(end) = child.try_wait()? {
            let time = start.elapsed();
            match end.success() {
                true => return Ok(Took { time, memory }),
                false => bail!("{command:?}: {end}"),
            }
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("{command:?}: more than {} s", limit.as_secs());
        }
        memory = peak(&fs::read_to_string(&status).unwrap_or_default()).max(memory);
        std::thread::sleep(INTERVAL);
    }
}

/// The most memory that a process has had resident, in KiB.
fn peak(status: &str) -> u64 {
    memory::field(status, "VmHWM:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_found() {
        assert_eq!(peak("VmPeak:\t 1 kB\nVmHWM:\t    2048 kB\nRssAnon:\t 3 kB\n"), 2048);
        assert!(peak(&fs::read_to_string("/proc/self/status").unwrap()) > 0);
    }
}
