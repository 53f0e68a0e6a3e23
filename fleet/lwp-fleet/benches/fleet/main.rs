//! Measures a fleet's store: what recordings take when they come and when they are compacted,
//! questions, and the server. Everything is
//! processor time and memory: wall time would be the machine's. `cargo xtask bench-fleet` runs it.
#![allow(clippy::print_stdout, reason = "results")]
#![allow(clippy::disallowed_methods, reason = "a benchmark without threads has failed")]
#![allow(missing_docs, reason = "nobody but this program reads it")]

mod children;
mod engines;
mod hostile;
#[path = "../../tests/it/shared/hostile.rs"]
mod hostile_queries;
mod measure;
mod model;
mod programs;
mod questions;
mod serving;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Parser;
use lwp_query::{Budget, Session};
use lwp_store::object_store::ObjectStoreExt;
use lwp_store::{Kind, Location, Store};
use measure::{Clock, Taken};
use table::Table;

/// The measurements to make.
#[derive(Parser)]
struct Options {
    /// Commits of the model, of 26 benchmarks each; 385 are the design's
    #[arg(long, default_value_t = 40)]
    commits: u64,
    /// Recordings that one command adds
    #[arg(long, default_value_t = 200)]
    recordings: u64,
    /// Only ask this store, which nothing is added to
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Make the model's store in this directory and keep it, for --store
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    keep: Option<PathBuf>,
    /// Measure what this lwp takes to make facts of recordings, too
    #[arg(long, value_name = "FILE")]
    lwp: Option<PathBuf>,
    /// Seconds of hostile queries to the server; 0 for none
    #[arg(long, default_value_t = 60)]
    hostile: u64,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Commits of a recording each, in a store that is then opened; 10,000 are the design's
    #[arg(long, default_value_t = 200)]
    opened: u64,
    /// The directory that paths are meant from
    #[arg(long, hide = true, env = "LWP_BENCH_FROM")]
    from: Option<PathBuf>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    if let Some(from) = &options.from {
        std::env::set_current_dir(from).expect("the caller's directory");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = Table::new();
    match &options.store {
        Some(path) => asking(path, dir.path(), &mut table).await,
        None => modelling(&options, dir.path(), &mut table).await,
    }
    if let Some(path) = &options.json {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        table.write(path, &format!("cargo xtask bench-fleet {command}"));
    }
}

/// Questions to a store that exists.
async fn asking(path: &Path, dir: &Path, table: &mut Table) {
    table.about(path.display());
    let path = path.canonicalize().expect("a store");
    let store = Store::open(place(&path)).await.expect("a store");
    questions::ask(&store, table).await;
    engines::compare(&path, dir, table).await;
}

/// Everything, on a model of a history.
async fn modelling(options: &Options, dir: &Path, table: &mut Table) {
    if let Some(lwp) = &options.lwp {
        exporting(lwp, dir, table);
    }
    programs::add(dir, options.recordings, table);
    adding(dir, table).await;
    opening(dir, options.opened, table).await;
    let path = options.keep.clone().unwrap_or_else(|| dir.join("store"));
    let path = std::path::absolute(path).expect("a path");
    let store = fresh(&path).await;
    filling(&store, options.commits, table).await;
    questions::ask(&store, table).await;
    reading(&store, table).await;
    serving::serve(&path, &dir.join("served"), table);
    engines::compare(&path, dir, table).await;
    if options.hostile > 0 {
        hostile::measure(&path, options.hostile, table);
    }
}

/// Recordings of programs that are everywhere, turned into facts.
fn exporting(lwp: &Path, dir: &Path, table: &mut Table) {
    let done = |words: &[&str]| {
        let status = Command::new(lwp).args(words).stdout(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "{words:?}");
    };
    let file = dir.join("one.data");
    let file = file.to_str().expect("text");
    let source = dir.join("one.c");
    std::fs::write(&source, SOURCE).expect("a file");
    let (source, object) = (source.to_str().expect("text"), dir.join("one.o"));
    let compile = ["gcc", "-O2", "-c", source, "-o", object.to_str().expect("text")];
    for program in [&["ls", "/usr/bin"][..], &["python3", "-c", "import json"], &compile] {
        if !has(program[0]) {
            println!("skipped: there is no {}", program[0]);
            continue;
        }
        done(&[&["record", "-q", "--deterministic", "-o", file, "--"], program].concat());
        let clock = Clock::new(measure::processor("self").of_children);
        done(&["export", "-f", "facts", "-i", file, "-o", "/dev/null"]);
        let taken = clock.taken(measure::processor("self").of_children, 0.0);
        table.row(format!("facts of a recording of {}", program[0]), taken);
    }
}

/// A program that keeps a compiler busy for a moment.
const SOURCE: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    static int less(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }\n\
    int main(void) { int t[99]; for (int i = 0; i < 99; i++) t[i] = i * 7919 % 101;\n\
    qsort(t, 99, sizeof *t, less); printf(\"%d\\n\", t[50]); return 0; }\n";

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn place(path: &Path) -> Location {
    Location::parse(path.to_str().expect("text")).expect("a place")
}

async fn fresh(path: &Path) -> Store {
    Store::init(place(path)).await.expect("a store")
}

/// Bytes of a version's files.
async fn bytes(store: &Store, kind: Option<Kind>) -> u64 {
    let snapshot = store.snapshot().await.expect("a version");
    let files = snapshot.files().iter().filter(|file| kind.is_none_or(|kind| file.kind == kind));
    files.map(|file| file.size).sum()
}

/// The number of a version's files.
async fn files(store: &Store) -> usize {
    store.snapshot().await.expect("a version").files().len()
}

/// Recordings one by one: what a commit of its own costs, and what the files of one take.
async fn adding(dir: &Path, table: &mut Table) {
    let store = fresh(&dir.join("single")).await;
    let texts: Vec<String> =
        (0..model::BENCHMARKS).map(|benchmark| model::facts(benchmark, 0).write()).collect();
    let (_, taken) = measure::once(async {
        for text in &texts {
            let read = lwp_facts::Facts::read(text.as_bytes(), &lwp_facts::Limits::default());
            store.add(&[read.expect("facts")]).await.expect("added");
        }
    })
    .await;
    let many = texts.len() as f64;
    table.row("read facts and add them, a commit each", taken.each(many));
    table.number("a recording of its own", bytes(&store, None).await as f64 / many / 1024.0, "KiB");
}

/// Opening a store of many small commits.
async fn opening(dir: &Path, commits: u64, table: &mut Table) {
    let store = fresh(&dir.join("opened")).await;
    let mut small = model::facts(0, 0);
    (small.functions, small.lines, small.calls) = Default::default();
    for n in 0..commits {
        small.run.started += 1;
        small.run.commit = model::commit(n);
        store.add(std::slice::from_ref(&small)).await.expect("added");
    }
    let place = store.location().clone();
    let open = measure::repeated(async || drop(Store::open(place.clone()).await.expect("a store")));
    table.row(format!("open a store of {commits} commits, nothing compacted"), open.await);
}

/// A history, in batches as the server makes them; then compacted.
async fn filling(store: &Store, commits: u64, table: &mut Table) {
    let all: Vec<(u64, u64)> =
        (0..commits).flat_map(|c| (0..model::BENCHMARKS).map(move |b| (b, c))).collect();
    let (mut seconds, mut on_wall, mut peak, mut rows) = (0.0, 0.0, 0.0_f64, 0);
    for batch in all.chunks(64) {
        let facts: Vec<_> = batch.iter().map(|(b, c)| model::facts(*b, *c)).collect();
        rows += facts.iter().map(lwp_facts::Facts::rows).sum::<usize>();
        let (added, taken) = measure::once(store.add(&facts)).await;
        added.expect("added");
        seconds += taken.cpu_seconds;
        on_wall += taken.wall_seconds;
        peak = peak.max(taken.peak_mib);
    }
    let many = all.len() as f64;
    let all = Taken { cpu_seconds: seconds, wall_seconds: on_wall, peak_mib: peak };
    table.row(format!("add one of {many} recordings, 64 to a commit"), all.each(many));
    table.number("rows of all", rows as f64 / 1e6, "M");
    let kib = |bytes: u64| bytes as f64 / many / 1024.0;
    table.number("a recording in a batch", kib(bytes(store, None).await), "KiB");
    let old = files(store).await;
    let taken = programs::compact(Path::new(store.location().url.path()));
    table.row(format!("lwp fleet compact, {old} files to {}", files(store).await), taken);
    table.row("the same, a million rows", taken.each(rows as f64 / 1e6));
    table.number("a recording, compacted", kib(bytes(store, None).await), "KiB");
    for kind in [Kind::Recording, Kind::Function, Kind::Line, Kind::Call, Kind::Module] {
        let size = kib(bytes(store, Some(kind)).await);
        table.number(format!("of which rows of kind {}", kind.word()), size, "KiB");
    }
}

/// Measures checksums and opening.
async fn reading(store: &Store, table: &mut Table) {
    let snapshot = store.snapshot().await.expect("a version");
    let paths: Vec<_> = snapshot.files().iter().map(|file| file.path.clone()).collect();
    let megabytes = bytes(store, None).await as f64 / 1e6;
    for (what, files) in [("unchecked", store.unchecked()), ("checked", store.checked(&snapshot))] {
        let taken = measure::repeated(async || {
            for path in &paths {
                files.get(path).await.expect("a file").bytes().await.expect("bytes");
            }
        });
        table.row(format!("read all {megabytes:.0} MB, {what}"), taken.await);
    }
    let version = snapshot.version();
    let place = store.location().clone();
    let open = measure::repeated(async || drop(Store::open(place.clone()).await.expect("a store")));
    table.row(format!("open a store of {version} commits"), open.await);
    let session = measure::repeated(async || {
        drop(Session::new(store, Budget::default()).await.expect("a session"));
    });
    table.row("begin to ask", session.await);
}
