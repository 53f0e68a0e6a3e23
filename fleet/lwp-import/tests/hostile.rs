//! Whatever bytes come: reading ends without a panic and within its limits, and facts that were read are written and read again as they are.
//! `LWP_FLEET_FUZZ` is the number of files that are made of each format.
//!
//! Promise: FL22

use std::io::Write;

use lwp_export::Format as Exported;
use lwp_facts::{Facts, Limits, Run};
use lwp_import::{Error, Format, read};
use lwp_profile::Recording;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Small limits, so that they are met.
fn limits() -> Limits {
    Limits { bytes: 1 << 20, rows: 2000, frames: 100, ..Limits::default() }
}

fn run() -> Run {
    Run { project: "p".into(), benchmark: "b".into(), started: 1_750_000_000, ..Run::default() }
}

/// Recordings of lwp, in another tool's format.
fn exported(format: &str) -> Vec<Vec<u8>> {
    let recordings: [&[u8]; 2] = [
        include_bytes!("../../../fuzz/corpus/recording/exact"),
        include_bytes!("../../../fuzz/corpus/recording/sampled"),
    ];
    let one = |bytes: &&[u8]| {
        let recording = Recording::parse(bytes).expect("a recording");
        let resolved = lwp_symbols::profile(&recording, &lwp_symbols::Options::default());
        Exported::named(format).expect("a format").write(&recording, &resolved.profile, 0)
    };
    recordings.iter().map(one).collect()
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Good files of a format; `None` stands for facts.
fn seeds(format: Option<Format>) -> Vec<Vec<u8>> {
    let Some(format) = format else {
        let dated = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("a text");
            let (head, rest) = text.split_once("\"started\":").expect("a time");
            let rest = rest.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit());
            format!("{head}\"started\":1750000000{rest}").into_bytes()
        };
        return exported("facts").into_iter().map(dated).collect();
    };
    match format {
        Format::Pprof => exported("pprof").into_iter().map(unpacked).collect(),
        Format::Otlp => exported("otlp"),
        Format::Folded => {
            [exported("folded"), texts(&["a;b;c 10\na;b 3\nmain 9223372036854775000\n"])].concat()
        }
        Format::Callgrind => [exported("callgrind"), texts(&[CALLGRIND])].concat(),
        Format::PerfScript => texts(&[PERF]),
        Format::Criterion => texts(&CRITERION),
        Format::Bencher => texts(&["{\"a::b\":{\"latency\":{\"value\":88.0,\"lower_value\":1}}}"]),
        Format::Codspeed => texts(&[CODSPEED]),
        Format::Hyperfine => texts(&[HYPERFINE]),
        Format::Pytest => texts(&[PYTEST]),
        Format::Google => texts(&[GOOGLE]),
        Format::Go => texts(&[GO]),
        Format::Jmh => texts(&[JMH]),
        Format::Action => texts(&["[{\"name\":\"a\",\"unit\":\"ns/iter\",\"value\":254}]"]),
        Format::ActionHistory => texts(&[HISTORY]),
    }
}

const CALLGRIND: &str = "# callgrind format\nversion: 1\npositions: line\nevents: Ir Dr\nob=(1) a\n\
    fl=(1) a.c\nfn=(1) f\n1 5 6\n+3 7\ncfn=(2) g\ncalls=2 9\n* 4 4\nfn=(2)\n9 1\n";
const PERF: &str = "prog 12/13 45.6: 250000 cycles:u: \n\t    55e0 main+0x10 (/usr/bin/prog)\n\
    \t    7f00 [unknown] (/lib/libc.so.6)\n\nprog 12 46.0: 1 cycles: \n\t 55e0 f (/a)\n\n";
const CRITERION: [&str; 2] = [
    "{\"mean\":{\"point_estimate\":12.5},\"slope\":{\"point_estimate\":11.0}}",
    "{\"reason\":\"benchmark-complete\",\"id\":\"x\",\"typical\":{\"estimate\":3.5,\"unit\":\"ns\"}}\n",
];
const CODSPEED: &str = "{\"creator\":{\"name\":\"codspeed\"},\"benchmarks\":[{\"name\":\"x\",\"uri\":\"u\",\
    \"stats\":{\"mean_ns\":5.5,\"min_ns\":4}}]}";

const HYPERFINE: &str = "{\"results\":[{\"command\":\"sleep 1\",\"median\":1.25,\"user\":0.5,\
    \"system\":0.25,\"parameters\":{\"n\":\"1\"}}]}";
const PYTEST: &str = "{\"machine_info\":{},\"commit_info\":{\"id\":\"abc\",\"branch\":\"main\"},\
    \"datetime\":\"2024-05-06T07:08:09\",\"benchmarks\":[{\"fullname\":\"t.py::a\",\
    \"stats\":{\"median\":1e-6}}]}";
const GOOGLE: &str = "{\"context\":{\"date\":\"2024-05-06T07:08:09+00:00\",\"host_name\":\"h\"},\
    \"benchmarks\":[{\"name\":\"x\",\"run_type\":\"iteration\",\"real_time\":1.5,\"cpu_time\":1,\
    \"time_unit\":\"us\"}]}";
const GO: &str = "pkg: a/b\nBenchmarkX-8 \t 1000 \t 1234.5 ns/op \t 56 B/op \t 1.5 MB/s\nPASS\n";
const JMH: &str = "[{\"benchmark\":\"org.X.a\",\"params\":{\"n\":\"1\"},\
    \"primaryMetric\":{\"score\":1.5,\"scoreUnit\":\"ops/s\"}}]";
const HISTORY: &str = "window.BENCHMARK_DATA = {\"entries\":{\"Rust\":[{\"commit\":{\"id\":\"45d7\",\
    \"timestamp\":\"2019-11-10T00:06:58+09:00\"},\"benches\":[{\"name\":\"a\",\"value\":254,\
    \"unit\":\"ns/iter\"}]}]}}";

fn unpacked(bytes: Vec<u8>) -> Vec<u8> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut out = flate2::write::GzDecoder::new(Vec::new());
    out.write_all(&bytes).and_then(|()| out.finish()).expect("gzip")
}

/// A change of a file: where, as a part of its length; the way; a number.
type Change = (u16, u8, u32);

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    const NUMBERS: [&[u8]; 8] = [
        b"-1",
        b"18446744073709551616",
        b"1e308",
        b"null",
        b"\0",
        b"\xff\xff\xff\xff\x0f",
        b"\n",
        b"[[",
    ];
    for (part, way, number) in changes {
        let at = usize::from(*part) * bytes.len() / (1 << 16);
        let some = (*number as usize % 64 + at).min(bytes.len());
        let other = NUMBERS[*number as usize % 8].iter().copied();
        match way % 7 {
            0 if at < bytes.len() => bytes[at] ^= 1 << (number % 8),
            1 if at < bytes.len() => bytes[at] = *number as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..some)),
            4 => {
                let again = bytes[at..some].to_vec();
                drop(bytes.splice(at..at, again));
            }
            5 => drop(bytes.splice(at..some, other)),
            _ => drop(bytes.splice(at..at, other)),
        }
    }
    bytes
}

/// Facts that were read keep to the limits, and their text says the same.
fn hold(facts: &Facts, limits: &Limits) -> Result<(), TestCaseError> {
    prop_assert!(facts.rows() <= limits.rows, "{} rows", facts.rows());
    prop_assert_eq!(facts.total.len(), facts.events.len());
    let again = Facts::read(facts.write().as_bytes(), &Limits::default());
    let again = again.map_err(|error| TestCaseError::fail(format!("its text: {error}")))?;
    prop_assert_eq!(again.id(), facts.id());
    prop_assert_eq!(again.content(), facts.content());
    prop_assert_eq!(&again, facts);
    Ok(())
}

/// MiB that were resident at most.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") / 1024
}

#[test]
fn no_file_of_any_format_makes_a_reader_panic_or_grow() {
    let files = std::env::var("LWP_FLEET_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let formats = Format::ALL.iter().map(|(format, _)| Some(*format)).chain([None]);
    for format in formats {
        let seeds = seeds(format);
        for seed in &seeds {
            let good = read(seed, format, &run(), &Limits::default());
            let good = good.unwrap_or_else(|error| panic!("a good file of {format:?}: {error}"));
            good.iter().for_each(|facts| hold(facts, &Limits::default()).expect("a good file"));
        }
        let config = Config { cases: files, failure_persistence: None, ..Config::default() };
        let change = (any::<u16>(), any::<u8>(), any::<u32>());
        let strategy = (any::<prop::sample::Index>(), prop::collection::vec(change, 1..8));
        let done = TestRunner::new(config).run(&strategy, |(seed, changes)| {
            let bytes = changed(seed.get(&seeds).clone(), &changes);
            // With its format named, and by what it looks like.
            for format in [format, None] {
                for facts in read(&bytes, format, &run(), &limits()).unwrap_or_default() {
                    hold(&facts, &limits())?;
                }
            }
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("{format:?}: {error}"));
    }
    assert!(peak() < 512, "{} MiB", peak());
}

#[test]
fn bombs_end_at_their_limits() {
    let packed = |bytes: &[u8], times: usize| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        (0..times).for_each(|_| out.write_all(bytes).expect("gzip"));
        out.finish().expect("gzip")
    };
    let limits = Limits { bytes: 8 << 20, ..Limits::default() };
    let zeros = packed(&vec![0; 1 << 20], 40);
    let stacks = packed(&"a;".repeat(1 << 19).into_bytes(), 40);
    for (name, bytes, format) in [
        ("zeros", &zeros, Some(Format::Pprof)),
        ("zeros", &zeros, Some(Format::Folded)),
        ("a stack of 21 million frames", &stacks, Some(Format::Folded)),
        ("the same by its looks", &stacks, None),
    ] {
        let refused = read(bytes, format, &run(), &limits).expect_err(name);
        assert!(matches!(refused, Error::Limit { .. } | Error::Unknown), "{name}: {refused:?}");
    }
    let deep = format!("{{\"facts\":1,\"x\":{}", "[".repeat(3 << 20));
    assert!(read(deep.as_bytes(), None, &run(), &limits).is_err());
    let deep = "{\"a\":".repeat(1 << 20);
    for format in [Format::Criterion, Format::Bencher, Format::Codspeed] {
        assert!(read(deep.as_bytes(), Some(format), &run(), &limits).is_err());
    }
    // Numbers that only claim: of a message's length, of a string's place.
    let claims = [0x0a, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00];
    for format in [Format::Pprof, Format::Otlp] {
        assert!(read(&claims, Some(format), &run(), &limits).is_err());
    }
    assert!(peak() < 512, "{} MiB", peak());
}
