//! Profiles of other tools as facts, so that their history comes along.
//!
//! Samples become a sampled recording with stacks. Callgrind's counts and measurements of benchmark
//! harnesses have events of their own names and are never added up with exact counts of lwp, which
//! have columns of theirs.
#![forbid(unsafe_code)]

mod bench;
mod callgrind;
mod detect;
mod folded;
mod harness;
mod making;
mod otlp;
mod perf_script;
mod pprof;

pub use detect::Format;

use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use lwp_facts::{Facts, Limits, Run};

/// The reason why a file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The format is not known.
    #[error("no format that is known: facts, {}", Format::words())]
    Unknown,
    /// `perf.data` itself, whose names only perf finds.
    #[error("perf's own recording: send what perf script prints")]
    PerfData,
    /// The facts are wrong.
    #[error(transparent)]
    Facts(#[from] lwp_facts::ReadError),
    /// The bytes cannot be unpacked.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A line is not what it must be.
    #[error("line {line}: {why}")]
    Line {
        /// The line, from 1 on.
        line: usize,
        /// The reason.
        why: String,
    },
    /// A message is not what it must be.
    #[error("{0}")]
    Message(String),
    /// More than a limit allows.
    #[error("more than {most} {of}")]
    Limit {
        /// The limit.
        most: u64,
        /// The limited thing.
        of: &'static str,
    },
    /// There is nothing to import.
    #[error("there is no count in it")]
    Empty,
}

/// The result of reading a profile.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Bytes that messages and texts of other tools may have, unpacked: they grow when they are read.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes by which a format is told.
const BEGINNING: usize = 64 << 10;

/// Reads a file: facts, or a profile of another tool. `run` says what the file does not.
///
/// # Errors
///
/// If the format is unknown, or the file is not what its format says.
pub fn read(
    bytes: &[u8],
    format: Option<Format>,
    run: &Run,
    limits: &Limits,
) -> Result<Vec<Facts>> {
    if format.is_none() && detect::is_facts(&beginning(bytes)?) {
        // They unpack themselves, row by row.
        return Ok(vec![Facts::read(bytes, limits)?]);
    }
    let most = limits.bytes.min(MOST_BYTES);
    let unpacked = unpack(bytes, most)?;
    let bytes = unpacked.as_deref().unwrap_or(bytes);
    let format = match format {
        Some(format) => format,
        None => Format::of(bytes).ok_or(match bytes.starts_with(b"PERFILE2") {
            true => Error::PerfData,
            false => Error::Unknown,
        })?,
    };
    if bytes.len() as u64 > most {
        return Err(Error::Limit { most, of: "bytes" });
    }
    let all = match format {
        Format::Pprof => pprof::read(bytes, run, limits),
        Format::Otlp => otlp::read(bytes, run, limits),
        Format::PerfScript => perf_script::read(text(bytes)?, run, limits),
        Format::Folded => folded::read(text(bytes)?, run, limits),
        Format::Callgrind => callgrind::read(text(bytes)?, run, limits),
        Format::Criterion => bench::criterion(text(bytes)?, run),
        Format::Bencher => bench::bencher(text(bytes)?, run),
        Format::Codspeed => bench::codspeed(text(bytes)?, run),
        Format::Hyperfine => harness::hyperfine(text(bytes)?, run),
        Format::Pytest => harness::pytest(text(bytes)?, run, limits),
        Format::Google => harness::google(text(bytes)?, run, limits),
        Format::Go => harness::go(text(bytes)?, run),
        Format::Jmh => harness::jmh(text(bytes)?, run),
        Format::Action => harness::action(text(bytes)?, run),
        Format::ActionHistory => harness::history(text(bytes)?, run, limits),
    }?;
    match all.is_empty() {
        true => Err(Error::Empty),
        false => all.into_iter().map(|facts| held(facts, limits)).collect(),
    }
}

/// Facts whose run and events are what the text of facts may say, so that they can be sent on and
/// kept.
fn held(facts: Facts, limits: &Limits) -> Result<Facts> {
    const LATER: &str = "named later";
    let mut head = Facts {
        run: facts.run.clone(),
        mode: facts.mode,
        events: facts.events.clone(),
        total: facts.total.clone(),
        ..Facts::default()
    };
    for name in [&mut head.run.project, &mut head.run.benchmark] {
        if name.is_empty() {
            LATER.clone_into(name);
        }
    }
    let read = Facts::read(head.write().as_bytes(), limits);
    let mut read = read.map_err(|error| Error::Message(error.reason.to_string()))?;
    for (name, was) in [
        (&mut read.run.project, &facts.run.project),
        (&mut read.run.benchmark, &facts.run.benchmark),
    ] {
        if was.is_empty() {
            name.clear();
        }
    }
    Ok(Facts { run: read.run, events: read.events, ..facts })
}

/// The first bytes, unpacked.
fn beginning(bytes: &[u8]) -> Result<Vec<u8>> {
    match unpacking(bytes) {
        Some(unpacking) => {
            let mut out = Vec::new();
            unpacking.take(BEGINNING as u64).read_to_end(&mut out)?;
            Ok(out)
        }
        None => Ok(bytes[..bytes.len().min(BEGINNING)].to_vec()),
    }
}

fn unpacking(bytes: &[u8]) -> Option<MultiGzDecoder<&[u8]>> {
    bytes.starts_with(&[0x1f, 0x8b]).then(|| MultiGzDecoder::new(bytes))
}

/// The bytes that gzip has packed; `None` where it has not.
fn unpack(bytes: &[u8], most: u64) -> Result<Option<Vec<u8>>> {
    let Some(unpacking) = unpacking(bytes) else { return Ok(None) };
    let mut out = Vec::new();
    unpacking.take(most + 1).read_to_end(&mut out)?;
    match out.len() as u64 > most {
        true => Err(Error::Limit { most, of: "bytes" }),
        false => Ok(Some(out)),
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    let line = |at: usize| bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    std::str::from_utf8(bytes).map_err(|error| Error::Line {
        line: line(error.valid_up_to()),
        why: "no UTF-8".to_owned(),
    })
}
