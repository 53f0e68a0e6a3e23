//! The scaling of a program of several threads: work that threads do independently, by one and by
//! four.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::ways::Way;
use super::workloads::Workload;
use super::{table, time};

/// Each thread does the same work on memory of its own; the argument is how many there are.
const PROGRAM: &str = r"
#include <pthread.h>
#include <stdlib.h>
static void *work(void *seed)
{
    static const unsigned rounds = 1500;
    unsigned state = (unsigned)(size_t)seed, *numbers = malloc(65536 * sizeof *numbers);
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned at = 0; at < 65536; at++) {
            state = state * 1664525u + 1013904223u;
            if (state & 0x80000000u)
                numbers[at] = numbers[state >> 17 & 65535] + round;
            else
                numbers[at] ^= state;
        }
    state = numbers[17];
    free(numbers);
    return (void *)(size_t)state;
}
int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t threads[64];
    for (int at = 0; at < count; at++)
        if (pthread_create(&threads[at], 0, work, (void *)(size_t)(at + 1)))
            return 1;
    for (int at = 0; at < count; at++)
        pthread_join(threads[at], 0);
    return 0;
}
";

const MANY: u32 = 4;

/// Measures, and returns a table: times with one and with four threads, and how much more work was
/// done in the same time.
pub fn measure(ways: &[Way], rounds: u32, dir: &Path, limit: Duration) -> Result<String> {
    let program = build(dir)?;
    let workload = |threads: u32| Workload {
        name: "threads",
        short: false,
        many_processes: false,
        command: vec![program.clone().into(), threads.to_string().into()],
    };
    let counts = [workload(1), workload(MANY)];
    let ways: Vec<&Way> = ways.iter().filter(|way| way.measures(&counts[0])).collect();
    let mut times = vec![[Vec::new(), Vec::new()]; ways.len()];
    // The first round only warms up.
    for round in 0..=rounds {
        for (way, times) in ways.iter().zip(&mut times) {
            for (workload, times) in counts.iter().zip(times) {
                let time = time(way, workload, dir, limit)?;
                if round > 0 {
                    times.push(time);
                }
            }
        }
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = format!(
        "\nthreads, on {processors} processors:\n\n| way | 1 thread | {MANY} threads | speed-up |\n\
         | --- | ---: | ---: | ---: |\n"
    );
    for (way, [one, many]) in ways.iter().zip(times) {
        let (Some(one), Some(many)) = (table::median(&one), table::median(&many)) else { continue };
        let speed_up = f64::from(MANY) * one / many;
        let (one, many) = (table::milliseconds(one), table::milliseconds(many));
        let _ = writeln!(text, "| {} | {one} | {many} | {speed_up:.2} |", way.name);
    }
    Ok(text)
}

fn build(dir: &Path) -> Result<std::path::PathBuf> {
    let (source, program) = (dir.join("threads.c"), dir.join("threads"));
    fs::write(&source, PROGRAM)?;
    let flags = ["-O2", "-pthread", "-o"];
    let status = Command::new("cc").args(flags).args([&program, &source]).status()?;
    if !status.success() {
        bail!("cc does not compile the program of threads: {status}");
    }
    Ok(program)
}
