//! Writes a big sampled recording, to measure what reads it:
//! `cargo run --release -p lwp-profile --example big_recording FILE STACKS MEGABYTES`.

use std::fs::File;
use std::io::{BufWriter, Write};

use lwp_profile::{
    RecordedFrame, RecordedModule, RecordedSample, RecordedSymbol, SampledEvent, ThreadExecutions,
    Writer,
};

/// Functions of 256 bytes each.
const FUNCTIONS: u64 = 4096;
/// Frames from the outermost to where stacks part.
const DEEP: usize = 20;

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, stacks, megabytes] = &words[..] else {
        eprintln!("usage: big_recording FILE STACKS MEGABYTES");
        std::process::exit(2);
    };
    let number = |word: &str| word.parse::<u32>().expect("a number");
    let (stacks, bytes) = (number(stacks), u64::from(number(megabytes)) << 20);
    let mut writer = Writer::new(BufWriter::new(File::create(path)?))?;
    writer.info([("command", "big"), ("mode", "sampled")])?;
    writer.module(&RecordedModule { pid: 1, ..RecordedModule::default() })?;
    let symbol = |n: u64| RecordedSymbol {
        pid: 1,
        address: n * 256,
        size: 256,
        name: format!("function_{n}"),
    };
    writer.symbols(&(0..FUNCTIONS).map(symbol).collect::<Vec<_>>())?;
    let interval = 1000;
    writer.events(&[SampledEvent { name: "instructions".into(), interval, modelled: false }])?;
    writer.thread(&ThreadExecutions { pid: 1, tid: 1, ..ThreadExecutions::default() })?;
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    // A path down, from which stacks branch off everywhere.
    let mut frames: Vec<RecordedFrame> = Vec::new();
    for n in 0..stacks as usize + DEEP {
        let caller = match n {
            0 => None,
            n if n < DEEP => Some(n as u32 - 1),
            n => Some((DEEP as u64 - 1 + random() % (n - DEEP + 1) as u64) as u32),
        };
        let address = random() % (FUNCTIONS * 256);
        frames.push(RecordedFrame { caller, module: Some(0), address });
    }
    writer.frames(0, &frames)?;
    // Two bytes and one to four of the frame's number for each sample.
    let mut left = bytes / 5;
    while left > 0 {
        let some = left.min(16384);
        let sample = |_| RecordedSample {
            frame: DEEP as u32 + (random() % u64::from(stacks.max(1))) as u32,
            ..RecordedSample::default()
        };
        writer.samples(&(0..some).map(sample).collect::<Vec<_>>())?;
        left -= some;
    }
    writer.end()?;
    writer.into_inner().flush()
}
