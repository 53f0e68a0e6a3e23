//! Generated code in its steady state: programs of JIT compilers, by their own clocks.
//!
//! Each program does the same work in rounds and prints a sum, and the microseconds that the second
//! half of the rounds took: what is measured is code that the compiler is done with, and not how
//! the runtime starts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::ways::Way;
use super::workloads::Workload;
use super::{table, watched};

/// A runtime with its program.
struct Runtime {
    name: &'static str,
    /// The command that compiles the program, if one does.
    compile: &'static [&'static str],
    command: &'static [&'static str],
    file: &'static str,
    source: &'static str,
}

const RUNTIMES: &[Runtime] = &[
    Runtime {
        name: "node",
        compile: &[],
        command: &["node", "numbers.js"],
        file: "numbers.js",
        source: include_str!("steady/numbers.js"),
    },
    Runtime {
        name: "java, serial collector",
        compile: &["javac", "Numbers.java"],
        command: &["java", "-XX:+UseSerialGC", "Numbers"],
        file: "Numbers.java",
        source: include_str!("steady/Numbers.java"),
    },
    Runtime {
        name: "java, ZGC",
        compile: &["javac", "Numbers.java"],
        command: &["java", "-XX:+UseZGC", "Numbers"],
        file: "Numbers.java",
        source: include_str!("steady/Numbers.java"),
    },
    Runtime {
        name: "LuaJIT",
        compile: &[],
        command: &["luajit", "numbers.lua"],
        file: "numbers.lua",
        source: include_str!("steady/numbers.lua"),
    },
    Runtime {
        name: "PyPy",
        compile: &[],
        command: &["pypy3", "numbers.py"],
        file: "numbers.py",
        source: include_str!("steady/numbers.py"),
    },
];

/// Measures the runtimes that are installed, and returns a table: native times, and for the other
/// ways the ratio to them.
pub fn measure(ways: &[Way], rounds: u32, dir: &Path, limit: Duration) -> Result<String> {
    let ways: Vec<&Way> = ways.iter().filter(|way| !way.first).collect();
    let mut text = String::from("\ngenerated code, steady state:\n\n| program |");
    for way in &ways {
        let _ = write!(text, " {} |", way.name);
    }
    let _ = writeln!(text, "\n| --- |{}", " ---: |".repeat(ways.len()));
    for runtime in RUNTIMES {
        let Some(workload) = prepare(runtime, dir)? else {
            eprintln!("{} is not installed: no row", runtime.name);
            continue;
        };
        eprintln!("steady state of {}", runtime.name);
        let _ = write!(text, "| {} |", runtime.name);
        for cell in row(&workload, &ways, rounds, dir, limit)? {
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    Ok(text)
}

/// Writes and compiles the program; `None` where the runtime is not installed.
fn prepare(runtime: &Runtime, dir: &Path) -> Result<Option<Workload>> {
    let dir = dir.join("steady");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(runtime.file), runtime.source)?;
    let path = dir.join(runtime.command.last().context("a program")?);
    let commands = [runtime.compile, &runtime.command[..1]];
    if commands.iter().any(|command| command.first().is_some_and(|name| !is_installed(name))) {
        return Ok(None);
    }
    if let [compiler, arguments @ ..] = runtime.compile {
        let status = Command::new(compiler).args(arguments).current_dir(&dir).status()?;
        if !status.success() {
            bail!("{compiler}: {status}");
        }
    }
    let mut command: Vec<_> = runtime.command.iter().map(Into::into).collect();
    match runtime.compile {
        // A class is found by its directory.
        [_, ..] => {
            let at = command.len() - 1;
            command.splice(at..at, ["-cp".into(), dir.into()]);
        }
        [] => *command.last_mut().context("a program")? = path.into(),
    }
    let name = runtime.name;
    Ok(Some(Workload { name, short: false, many_processes: false, command }))
}

fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// The native median, and the ratio to it in each other way. The first round only warms up.
fn row(
    workload: &Workload,
    ways: &[&Way],
    rounds: u32,
    dir: &Path,
    limit: Duration,
) -> Result<Vec<String>> {
    let mut expected = None;
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        for (way, times) in ways.iter().zip(&mut times) {
            let (sum, time) = clocked(way, workload, dir, limit)?;
            if *expected.get_or_insert(sum) != sum {
                bail!("{} prints another sum in the way {}", workload.name, way.name);
            }
            if round > 0 {
                times.push(time);
            }
        }
    }
    let medians: Vec<f64> = times.iter().filter_map(|times| table::median(times)).collect();
    let native = *medians.first().context("a round")?;
    let ratios = medians.iter().skip(1).map(|median| format!("{:.2}×", median / native));
    Ok(std::iter::once(table::milliseconds(native)).chain(ratios).collect())
}

/// Runs the program; returns its sum and the time that it has taken itself.
fn clocked(way: &Way, workload: &Workload, dir: &Path, limit: Duration) -> Result<(u64, Duration)> {
    let file = dir.join("printed");
    let mut command = way.command(workload, dir);
    watched(command.stdout(fs::File::create(&file)?), limit)
        .with_context(|| format!("{} in the way {}", workload.name, way.name))?;
    let printed = fs::read_to_string(&file)?;
    let numbers: Vec<u64> = printed.lines().filter_map(|line| line.parse().ok()).collect();
    match numbers[..] {
        [sum, micros] => Ok((sum, Duration::from_micros(micros))),
        _ => bail!("{} prints no sum and time: {printed:?}", workload.name),
    }
}
