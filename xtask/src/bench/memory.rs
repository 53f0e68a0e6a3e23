//! The host's memory: its own memory, and what it shares with the program.
//!
//! The kernel counts both for the `lwp` process: anonymous pages are the host's own; shared ones
//! are arenas, contexts and the indirect tables' templates, as far as the host has touched them.
//! The largest value seen counts, looking every few milliseconds: what is needed for less long is
//! not seen.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::ways::Way;
use super::workloads::Workload;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(5);

/// The most seen of a run, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Most {
    own: u64,
    shared: u64,
}

/// Measures each program once in each of the virtual CPU's ways, and returns a table.
pub fn measure(
    workloads: &[Workload],
    ways: &[Way],
    dir: &Path,
    limit: Duration,
) -> Result<String> {
    let ours: Vec<&Way> =
        ways.iter().filter(|way| way.first || way.name.starts_with("lwp")).collect();
    let mut text = String::from("\nmemory of the host, own / shared with the program, in MiB:\n\n");
    let names: Vec<&str> = ours.iter().map(|way| way.name).collect();
    let _ = writeln!(text, "| program | {} |", names.join(" | "));
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(ours.len()));
    for workload in workloads {
        let _ = write!(text, "| {} |", workload.name);
        for way in &ours {
            let most = watch(way, workload, dir, limit)?;
            let mib = |kib: u64| kib as f64 / 1024.0;
            let _ = write!(text, " {:.1} / {:.1} |", mib(most.own), mib(most.shared));
        }
        text.push('\n');
    }
    Ok(text)
}

fn watch(way: &Way, workload: &Workload, dir: &Path, limit: Duration) -> Result<Most> {
    way.prepare(dir);
    let mut command = way.command(workload, dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let status = format!("/proc/{}/status", child.id());
    let (mut most, start) = (Most::default(), Instant::now());
    while child.try_wait()?.is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let now = parse(&text);
        most = Most { own: most.own.max(now.own), shared: most.shared.max(now.shared) };
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("{}: more than {} s", workload.name, limit.as_secs());
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(most)
}

fn parse(status: &str) -> Most {
    Most { own: field(status, "RssAnon:"), shared: field(status, "RssShmem:") }
}

/// A number of KiB in a process's status.
pub fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_fields_are_found() {
        let status = "Name:\tlwp\nVmHWM:\t   9000 kB\nRssAnon:\t    2048 kB\nRssShmem:\t 512 kB\n";
        assert_eq!(parse(status), Most { own: 2048, shared: 512 });
        let own = parse(&fs::read_to_string("/proc/self/status").unwrap());
        assert!(own.own > 0);
    }
}
