//! `lwp fleet add`.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use lwp_facts::{Facts, Id, Limits, Run};
use lwp_import::Format;
use lwp_profile::chunk;
use lwp_store::Store;
use lwp_terminal::escape::printable;

use super::filing::FilingArgs;
use crate::args::StoreArgs;
use crate::failure::Failure;

/// `lwp fleet add`.
#[derive(Args, Clone, Debug)]
pub struct AddArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub filing: FilingArgs,

    /// Recordings: lwp.data, facts as `lwp export -f facts` writes them, profiles of perf, pprof,
    /// OpenTelemetry and callgrind, folded stacks, results of criterion, Bencher, CodSpeed,
    /// hyperfine, pytest-benchmark, Google Benchmark, go test, JMH and github-action-benchmark; - is
    /// standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Refuse truncated recordings
    #[arg(long)]
    pub strict: bool,

    /// Also store the files of lwp record themselves, for lwp fleet get
    #[arg(long)]
    pub raw: bool,
}

/// The most that a file may have.
const LARGEST: u64 = 8 << 30;
/// Recordings of one commit, at most.
const BATCH: usize = 64;
/// Rows at which a commit is made with fewer recordings.
const ROWS: usize = 200_000;

/// Adds recordings, a batch in a commit.
pub async fn execute(args: &AddArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let mut batch = Batch::default();
    let (mut new, mut known) = (0, 0);
    for file in &args.files {
        // Nothing of a batch is added when a file of it is refused.
        let bytes = contents(file)?;
        let facts = facts_of(file, &bytes, (&args.filing, args.strict))?;
        if args.raw {
            keep(&store, file, (&bytes.bytes, &facts)).await?;
        }
        drop(bytes);
        batch.push(file, facts);
        if batch.is_full() {
            let added = batch.add(&store).await?;
            (new, known) = (new + added.0, known + added.1);
        }
    }
    let added = batch.add(&store).await?;
    (new, known) = (new + added.0, known + added.1);
    if new + known > 1 {
        lwp_terminal::say!("lwp-fleet: {new} added, {known} already there");
    }
    Ok(())
}

/// Recordings of one commit, which are in memory together.
#[derive(Default)]
struct Batch<'a> {
    places: Vec<&'a PathBuf>,
    facts: Vec<Facts>,
    rows: usize,
}

impl<'a> Batch<'a> {
    fn push(&mut self, file: &'a PathBuf, facts: Vec<Facts>) {
        self.rows += facts.iter().map(Facts::rows).sum::<usize>();
        self.places.extend(facts.iter().map(|_| file));
        self.facts.extend(facts);
    }

    fn is_full(&self) -> bool {
        self.facts.len() >= BATCH || self.rows >= ROWS
    }

    /// Adds the recordings, and empties the batch. Returns the numbers of new ones and of others.
    async fn add(&mut self, store: &Store) -> Result<(usize, usize), Failure> {
        let Self { places, facts, .. } = std::mem::take(self);
        if facts.is_empty() {
            return Ok((0, 0));
        }
        let (mut new, mut known) = (0, 0);
        for (added, (file, facts)) in store.add(&facts).await?.iter().zip(places.iter().zip(&facts))
        {
            super::print(&line(added.id, added.new, facts, file))?;
            if added.new { new += 1 } else { known += 1 }
        }
        Ok((new, known))
    }
}

/// The fate of a recording.
pub fn line(id: Id, new: bool, facts: &Facts, file: &Path) -> String {
    let run = &facts.run;
    let what = if new { "added" } else { "already there" };
    let (benchmark, commit) =
        (printable(&run.benchmark), run.commit.get(..10).unwrap_or(&run.commit));
    format!("{id} {what}: {benchmark} {commit} from {}\n", printable(&file.display().to_string()))
}

/// Keeps the file that a recording was made of. A failure from here on leaves it without its
/// recording; `lwp fleet vacuum` deletes it then.
async fn keep(store: &Store, path: &Path, of: (&[u8], &[Facts])) -> Result<(), Failure> {
    match of {
        (bytes, [facts]) if bytes.starts_with(&chunk::MAGIC) => {
            Ok(store.keep_raw(facts.id(), lwp_store::pack(bytes)?).await?)
        }
        _ => Err(Failure::new(format!("{}: --raw keeps recordings of lwp record", path.display()))
            .with_help("add other files without it")),
    }
}

/// The facts of a file.
pub fn read(path: &Path, filing: &FilingArgs, strict: bool) -> Result<Vec<Facts>, Failure> {
    facts_of(path, &contents(path)?, (filing, strict))
}

/// The bytes of a file, and the time at which it was written.
struct Contents {
    bytes: Vec<u8>,
    modified: Option<SystemTime>,
}

fn contents(path: &Path) -> Result<Contents, Failure> {
    let place = if path.as_os_str() == "-" { Path::new("/dev/stdin") } else { path };
    let named =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let file = std::fs::File::open(place).map_err(|error| named(&error))?;
    let modified = file.metadata().and_then(|metadata| metadata.modified()).ok();
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    if read.map_err(|error| named(&error))? as u64 > LARGEST {
        return Err(named(&"larger than 8 GiB"));
    }
    Ok(Contents { bytes, modified })
}

fn facts_of(
    path: &Path,
    contents: &Contents,
    (filing, strict): (&FilingArgs, bool),
) -> Result<Vec<Facts>, Failure> {
    let named =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let mut all = match contents.bytes.starts_with(&chunk::MAGIC) {
        true => vec![of_recording(path, &contents.bytes, limits(filing))?],
        false => foreign(path, contents, filing)?,
    };
    for facts in &mut all {
        if strict && !facts.run.complete {
            return Err(named(&"the recording was cut off"));
        }
        file_as(facts, filing);
        if facts.run.started <= 0 {
            return Err(named(&"the recording does not say when it was made")
                .with_help("say it with --date"));
        }
    }
    Ok(all)
}

/// The facts of another tool's profile. What it does not say of its run is taken from the file: its
/// name is the benchmark, and the time at which it was written the run's.
fn foreign(path: &Path, contents: &Contents, filing: &FilingArgs) -> Result<Vec<Facts>, Failure> {
    let named = |error: &dyn std::fmt::Display| {
        Failure::new(format!("{}: {error}", path.display())).with_help(
            "recordings are made by lwp record, facts by lwp export -f facts; --from names another tool's format",
        )
    };
    let bytes = match contents.bytes.starts_with(b"PERFILE2") {
        true => Cow::Owned(perf_script(path).map_err(|error| named(&error))?),
        false => Cow::Borrowed(contents.bytes.as_slice()),
    };
    let modified = contents.modified.unwrap_or_else(SystemTime::now).duration_since(UNIX_EPOCH);
    let run = Run {
        project: "default".to_owned(),
        started: modified.map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(0)),
        ..Run::default()
    };
    let format = filing.from.map(Format::from);
    let all = lwp_import::read(&bytes, format, &run, &limits(filing));
    let mut all = all.map_err(|error| named(&error))?;
    for facts in all.iter_mut().filter(|facts| facts.run.benchmark.is_empty()) {
        facts.run.benchmark = benchmark_of(path);
    }
    Ok(all)
}

/// The benchmark's name that a file's name says; criterion has it in a file beside.
fn benchmark_of(path: &Path) -> String {
    if path.file_name().is_some_and(|name| name == "estimates.json") {
        let beside = std::fs::read(path.with_file_name("benchmark.json")).ok();
        let value =
            beside.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
        if let Some(name) = value.as_ref().and_then(|value| value["full_id"].as_str()) {
            return name.to_owned();
        }
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|stem| stem != "-").unwrap_or_else(|| "standard input".to_owned())
}

/// The text that perf makes of its own recording.
fn perf_script(path: &Path) -> std::io::Result<Vec<u8>> {
    let fields = "comm,pid,tid,time,period,event,ip,sym,dso";
    let output = Command::new("perf")
        .args(["script", "-F", fields, "-i"])
        .arg(path)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => std::io::Error::other(
                "perf is not on the path, and only it knows names: add what perf script prints",
            ),
            _ => error,
        })?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(std::io::Error::other("perf could not read it")),
    }
}

/// The facts of a recording, whose names lwp finds.
fn of_recording(path: &Path, bytes: &[u8], limits: Limits) -> Result<Facts, Failure> {
    let named =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let text = exported(bytes, "facts").map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => named(&"lwp is neither beside lwp-fleet nor on the path")
            .with_help("make facts of it where lwp is: lwp export -f facts"),
        _ => named(&error),
    })?;
    let limits = Limits { line_bytes: 64 << 20, ..limits };
    Facts::read(text.as_slice(), &limits).map_err(|error| named(&error.reason))
}

/// The bytes that `lwp export` makes of a recording.
pub fn exported(recording: &[u8], format: &str) -> std::io::Result<Vec<u8>> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("lwp"));
    let program = beside.filter(|lwp| lwp.is_file()).unwrap_or_else(|| "lwp".into());
    let mut lwp = Command::new(program)
        .args(["export", "-f", format, "-i", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = lwp.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
    std::thread::scope(|scope| {
        // It reads everything before it writes, but nobody should have to know that.
        let sent = std::thread::Builder::new().spawn_scoped(scope, move || {
            let _ = input.write_all(recording);
        })?;
        let output = lwp.wait_with_output()?;
        let _ = sent.join();
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(std::io::Error::other("lwp could not read it")),
        }
    })
}

/// The limits of facts: whoever says when the run was knows better than its clock.
fn limits(filing: &FilingArgs) -> Limits {
    match filing.date {
        Some(_) => Limits::default().at_any_time(),
        None => Limits::default(),
    }
}

fn file_as(facts: &mut Facts, filing: &FilingArgs) {
    let run = &mut facts.run;
    let fields = [
        (&filing.project, &mut run.project),
        (&filing.benchmark, &mut run.benchmark),
        (&filing.commit, &mut run.commit),
        (&filing.branch, &mut run.branch),
    ];
    for (given, field) in fields {
        if let Some(given) = given {
            given.clone_into(field);
        }
    }
    run.started = filing.date.unwrap_or(run.started);
    run.labels.extend(filing.labels.iter().cloned());
}
