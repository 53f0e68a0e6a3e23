//! What a recording costs the program, in pairs of runs.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Place, Table, has, quartiles};

/// Work that is always the same; prints its own CPU time in ns.
const WORK_C: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <time.h>
static volatile uint64_t sink;
static unsigned table[1 << 20];
int main(void) {
    uint64_t a = 1;
    for (uint64_t i = 0; i < 150000000u; i++)
        a = (a ^ i) * 0x9e3779b97f4a7c15u, table[a >> 44] += (unsigned)a;
    sink = a;
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    printf("%lld\n", (long long)t.tv_sec * 1000000000 + t.tv_nsec);
}
"#;
const WORK_PYTHON: &str = "
import time
def work(n):
    t = 0
    for i in range(n):
        t += i & 7
    return t
for _ in range(60):
    work(200000)
print(time.process_time_ns())
";

pub fn measure(place: &Place, rounds: u32, table: &mut Table) -> Result<()> {
    std::fs::write(place.dir.join("work.c"), WORK_C)?;
    place.output(&["gcc", "-O2", "-o", "work", "work.c"])?;
    pairs(place, rounds, &["./work"], table)?;
    if has("python3") {
        std::fs::write(place.dir.join("work.py"), WORK_PYTHON)?;
        pairs(place, rounds, &["python3", "work.py"], table)?;
        idle(place, table)?;
    }
    Ok(())
}

/// The program's own CPU time with lwp at its default, by that without; runs take turns, and each
/// ratio is that of two neighbours.
fn pairs(place: &Place, rounds: u32, command: &[&str], table: &mut Table) -> Result<()> {
    let ns = |printed: &str| -> Result<f64> { Ok(printed.trim().parse()?) };
    let (mut with, mut without, mut said) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..rounds {
        let native = ns(&place.output(command)?)?;
        let recorded = place.record(&[], &[], command)?;
        let again = ns(&place.output(command)?)?;
        with.push(2.0 * ns(&recorded.printed)? / (native + again));
        without.push(again / native);
        let (rate, cost) = (recorded.number("rate"), recorded.number("sample-cost"));
        said = format!("{rate:.0} a second, {:.2} % by lwp", rate * cost / 1e7);
    }
    let [low, median, high] = quartiles(with);
    let [low_native, middle, high_native] = quartiles(without);
    table.add(
        format!("cost of the default, `{}`", command.join(" ")),
        format!(
            "×{median:.3} ({low:.3} to {high:.3}), native by native ×{middle:.3} \
             ({low_native:.3} to {high_native:.3}), {rounds} pairs; {said}"
        ),
    );
    Ok(())
}

/// A program that is ended with the measurement.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How often a process that sleeps was given a processor.
fn turns(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    text.split_whitespace().nth(2).context("no turns")?.parse().context("no number")
}

/// A process that sleeps is not woken by `-p`.
fn idle(place: &Place, table: &mut Table) -> Result<()> {
    let script = "import time\ntime.sleep(100)";
    let python = Command::new("python3").args(["-c", script]).stdin(Stdio::null()).spawn()?;
    let python = Running(python);
    let pid = python.0.id();
    let start = Instant::now();
    loop {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall"))?;
        if call.starts_with("230 ") || call.starts_with("23 ") {
            break;
        }
        if start.elapsed() > Duration::from_secs(20) {
            bail!("python3 does not sleep: {call}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = turns(pid)?;
    let lwp = place.lwp.to_str().context("a path that is no text")?;
    let options = ["--duration", "2", "-o", "idle.data"];
    place.output(
        &[&[lwp, "record", "--time", "-q", "-p", &pid.to_string()], &options[..]].concat(),
    )?;
    let woken = turns(pid)? - before;
    table.add("idle Python for 2 s with `-p`", format!("woken {woken} times"));
    Ok(())
}
