//! `cargo xtask bench`: how much longer programs take on the virtual CPU.
//!
//! Every round runs every program once in every way, so that a machine that gets slower or faster
//! meanwhile does so for all columns. Medians are compared; ratios are to the native median of the
//! same measurement. Translations are kept from run to run, except in the columns that say "first".

mod dispatch;
mod memory;
mod profiles_of_time;
mod raw;
mod records;
mod reports;
mod sampling;
mod steady;
mod table;
mod threads;
mod ways;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace;
use table::Cell;
use ways::Way;
use workloads::Workload;

/// The measurements to make.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Run each program in each way this often
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure these programs only; none: those of the other tables alone
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure `lwp record` too, exact and sampled
    #[arg(long)]
    with_recordings: bool,
    /// Measure Lightweight Profiling too, turned on by the program
    #[arg(long)]
    with_profiling: bool,
    /// Measure what a record of Lightweight Profiling costs, by its kind
    #[arg(long)]
    with_records: bool,
    /// Measure sampled misses of a modelled data cache too
    #[arg(long)]
    with_misses: bool,
    /// Measure valgrind's tools and qemu-user too, where they are installed
    #[arg(long)]
    with_peers: bool,
    /// Measure cputrack on the virtual CPU too, and what a sample of libcpc costs
    #[arg(long)]
    with_libcpc: bool,
    /// Measure how a program of four threads scales too
    #[arg(long)]
    with_threads: bool,
    /// Measure generated code in its steady state too: node, java, .NET, LuaJIT, PyPy, wasmtime
    #[arg(long)]
    with_generated: bool,
    /// Measure what an indirect branch costs in two ways
    #[arg(long)]
    with_dispatch: bool,
    /// Measure the host's memory too
    #[arg(long)]
    with_memory: bool,
    /// Measure how fast recordings are read too, also very big ones; takes 1 GB of disk
    #[arg(long)]
    with_reports: bool,
    /// Measure profiles of time too: shares, sums, cost, stacks, sleeps, bytes
    #[arg(long)]
    with_time: bool,
    /// Measure what profiles of time root and nobody get; changes kernel.perf_event_paranoid
    /// meanwhile
    #[arg(long)]
    with_permissions: bool,
    /// Write every time of every run to FILE too, with the command and the machine's facts
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure this binary instead of building one
    #[arg(long, value_name = "FILE")]
    lwp: Option<PathBuf>,
    /// Give a run up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
}

/// Builds, prepares, measures, prints.
pub fn run(options: &Options) -> Result<()> {
    if let Some(place) = &options.json {
        raw::create(place)?;
    }
    let lwp = match &options.lwp {
        Some(file) => std::path::absolute(file)?,
        None => build("lwp-cli")?.join("lwp"),
    };
    let release = match options.with_libcpc {
        true => {
            build("lwp-cpc")?;
            Some(build("cpc-tools")?)
        }
        false => None,
    };
    let dir = Scratch::new()?;
    let (workloads, mut notes) = workloads::prepare(&dir.0, &options.only)?;
    let (mut ways, missing) = ways::all(&lwp, options.with_recordings, options.with_peers);
    ways.extend(options.with_misses.then(|| ways::misses(&lwp)));
    ways.extend(release.as_deref().map(ways::cputrack));
    if options.with_profiling {
        ways.extend(ways::profiled(&lwp, &dir.0)?);
    }
    notes.extend(missing);
    let cells = measure(&workloads, &ways, &dir.0, options)?;
    if !workloads.is_empty() {
        print!("{}", table::markdown(&workloads, &ways, &cells, &notes));
    }
    let place = Place { lwp: &lwp, release: release.as_deref(), dir: &dir.0 };
    let tables = others(options, &place, &workloads, &ways)?;
    if let Some(file) = &options.json {
        let results = raw::Results {
            lwp: &lwp,
            workloads: &workloads,
            ways: &ways,
            cells: &cells,
            notes: &notes,
            tables: &tables,
        };
        raw::write(file, &results)?;
    }
    Ok(())
}

/// The cells of the main table: every program in every way, in turns.
fn measure(
    workloads: &[Workload],
    ways: &[Way],
    dir: &Path,
    options: &Options,
) -> Result<Vec<Vec<Cell>>> {
    let limit = Duration::from_secs(options.limit);
    let mut cells: Vec<Vec<Cell>> = Vec::new();
    for workload in workloads {
        eprintln!("warming up {}", workload.name);
        cells.push(warm_up(workload, ways, dir, limit)?);
    }
    let rounds = if workloads.is_empty() { 0 } else { options.rounds };
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for (workload, row) in workloads.iter().zip(&mut cells) {
            for (way, cell) in ways.iter().zip(row) {
                if let Cell::Times(times) = cell {
                    match time(way, workload, dir, limit) {
                        Ok(time) => times.push(time),
                        Err(error) => *cell = Cell::Failed(error.to_string()),
                    }
                }
            }
        }
    }
    Ok(cells)
}

/// The measured binaries, and the directory of the inputs.
struct Place<'a> {
    lwp: &'a Path,
    release: Option<&'a Path>,
    dir: &'a Path,
}

/// The tables that options ask for, each printed as soon as it is measured.
fn others(
    options: &Options,
    place: &Place<'_>,
    workloads: &[Workload],
    ways: &[Way],
) -> Result<Vec<(&'static str, String)>> {
    let (rounds, dir) = (options.rounds, place.dir);
    let limit = Duration::from_secs(options.limit);
    let mut tables = Vec::new();
    let mut add = |name, table: Result<String>| -> Result<()> {
        let table = table?;
        print!("{table}");
        tables.push((name, table));
        Ok(())
    };
    if let Some(release) = place.release {
        add("libcpc", sampling::table(place.lwp, release, dir))?;
    }
    if options.with_threads {
        add("threads", threads::measure(ways, rounds, dir, limit))?;
    }
    if options.with_generated {
        add("generated", steady::measure(ways, rounds, dir, limit))?;
    }
    if options.with_dispatch {
        add("dispatch", dispatch::measure(dir))?;
    }
    if options.with_records {
        add("records", records::measure(place.lwp, dir))?;
    }
    if options.with_memory {
        add("memory", memory::measure(workloads, ways, dir, limit))?;
    }
    if options.with_time {
        add("time", profiles_of_time::measure(place.lwp, rounds, dir))?;
    }
    if options.with_permissions {
        add("permissions", profiles_of_time::permissions(place.lwp, dir))?;
    }
    if options.with_reports {
        add("reports", reports::measure(place.lwp, rounds, dir, limit))?;
    }
    Ok(tables)
}

/// Builds a package in release mode and returns the directory where it is.
fn build(package: &str) -> Result<PathBuf> {
    workspace::run(workspace::cargo(&["build", "--profile", "release-lto", "--package", package]))?;
    let metadata = workspace::metadata()?;
    let target = metadata["target_directory"].as_str().context("no target directory")?;
    Ok(Path::new(target).join("release-lto"))
}

/// A directory for the inputs, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("lwp-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program in every way, unmeasured, and compares what it prints with what it prints
/// natively: a fast wrong answer is no result.
fn warm_up(workload: &Workload, ways: &[Way], dir: &Path, limit: Duration) -> Result<Vec<Cell>> {
    let mut expected = None;
    let mut cells = Vec::new();
    for way in ways {
        if !way.measures(workload) {
            cells.push(Cell::NotApplicable);
            continue;
        }
        way.prepare(dir);
        let file = dir.join("printed");
        let printed = std::fs::File::create(&file)?;
        let run = watched(way.command(workload, dir).stdout(printed), limit)
            .and_then(|()| Ok(std::fs::read(&file)?));
        match (run, &expected) {
            (Ok(printed), None) => {
                expected = Some(printed);
                cells.push(Cell::Times(Vec::new()));
            }
            (Err(error), None) => bail!("{} does not run natively: {error:#}", workload.name),
            (Ok(printed), Some(expected)) if way.is_right(&printed, expected) => {
                cells.push(Cell::Times(Vec::new()));
            }
            (Ok(_), Some(_)) => cells.push(Cell::Failed("prints something else".into())),
            (Err(error), Some(_)) => cells.push(Cell::Failed(error.to_string())),
        }
    }
    Ok(cells)
}

/// The wall-clock time of one run.
fn time(way: &Way, workload: &Workload, dir: &Path, limit: Duration) -> Result<Duration> {
    way.prepare(dir);
    let mut command = way.command(workload, dir);
    let start = Instant::now();
    watched(command.stdout(Stdio::null()), limit)?;
    Ok(start.elapsed())
}

/// Runs `command`, and kills it at the limit. Waiting is left to the kernel, and only the watchdog
/// looks at the clock: polling would cost more than the shortest programs take.
fn watched(command: &mut Command, limit: Duration) -> Result<()> {
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let (ended, watch) = mpsc::channel::<()>();
    let pid = child.id().to_string();
    let watchdog = std::thread::spawn(move || {
        let late = watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if late {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
        late
    });
    let status = child.wait()?;
    drop(ended);
    if watchdog.join().unwrap_or(false) {
        bail!("more than {} s", limit.as_secs());
    }
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_programs_are_stopped() {
        let limit = Duration::from_millis(100);
        let late = watched(Command::new("sleep").arg("20"), limit);
        assert!(late.unwrap_err().to_string().starts_with("more than"));
        let failed = watched(Command::new("false").arg("x"), Duration::from_secs(20));
        assert!(failed.unwrap_err().to_string().contains("exit status: 1"));
        assert!(watched(Command::new("true").arg("x"), Duration::from_secs(20)).is_ok());
    }
}
