//! Writes a big recording, to measure what reads it: a sampled one with so many different stacks,
//! an exact one of a program of 100,000 blocks that ran for hours, with a checkpoint every ten
//! seconds, or a sampled one over and over, each time called from elsewhere so that no stack is
//! there twice. `cargo run --release -p lwp-profile --example big_recording FILE
//! STACKS|exact|RECORDING MEGABYTES`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is short")]

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};

use lwp_profile::{
    Block, BlockCount, RecordedFrame, RecordedModule, RecordedSample, RecordedSymbol, Recording,
    SampledEvent, ThreadExecutions, Writer,
};

/// Functions of 256 bytes each.
const FUNCTIONS: u64 = 4096;
/// Blocks of an exact recording.
const BLOCKS: u32 = 100_000;
/// Frames from the outermost to where stacks part.
const DEEP: usize = 20;

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, stacks, megabytes] = &words[..] else {
        eprintln!("usage: big_recording FILE STACKS|exact|RECORDING MEGABYTES");
        std::process::exit(2);
    };
    let number = |word: &str| word.parse::<u32>().expect("a number");
    let bytes = u64::from(number(megabytes)) << 20;
    let mut writer = Writer::new(BufWriter::new(File::create(path)?))?;
    match stacks.as_str() {
        "exact" => exact(&mut writer, bytes)?,
        source if source.contains('.') => again(&mut writer, source, bytes)?,
        stacks => sampled(&mut writer, number(stacks), bytes)?,
    }
    writer.end()?;
    writer.into_inner().flush()
}

type Out = Writer<BufWriter<File>>;

/// A module of generated code with names.
fn code(writer: &mut Out) -> std::io::Result<()> {
    writer.module(&RecordedModule { pid: 1, ..RecordedModule::default() })?;
    let symbol = |n: u64| RecordedSymbol {
        pid: 1,
        address: n * 256,
        size: 256,
        name: format!("function_{n}"),
    };
    writer.symbols(&(0..FUNCTIONS).map(symbol).collect::<Vec<_>>())
}

/// Checkpoints of one thread, each with all its blocks.
fn exact(writer: &mut Out, bytes: u64) -> std::io::Result<()> {
    writer.info([("command", "big"), ("mode", "exact")])?;
    code(writer)?;
    let block = |id: u32| Block {
        id,
        address: u64::from(id) * 10,
        lengths: vec![2, 3, 3, 2],
        counted: 4,
        bytes: vec![0x90; 10],
        ..Block::default()
    };
    writer.blocks(&(0..BLOCKS).map(block).collect::<Vec<_>>())?;
    let mut round = 0;
    while writer.written() < bytes {
        round += 1;
        let count = |block: u32| BlockCount {
            block,
            runs: round * u64::from(block % 1000 + 1) * 1000,
            not_taken: 0,
        };
        let blocks = (0..BLOCKS).map(count).collect();
        writer.thread(&ThreadExecutions { pid: 1, tid: 1, blocks, ..Default::default() })?;
    }
    Ok(())
}

/// A sampled recording over and over, below another function each time.
fn again(writer: &mut Out, source: &str, bytes: u64) -> std::io::Result<()> {
    let read = Recording::read(BufReader::new(File::open(source)?));
    let recording = read.map_err(std::io::Error::other)?;
    writer.info(recording.info.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
    recording.modules.values().try_for_each(|module| writer.module(module))?;
    writer.symbols(&recording.symbols)?;
    recording.names.iter().try_for_each(|names| writer.names(names))?;
    writer.events(&recording.events)?;
    recording.threads.values().try_for_each(|thread| writer.thread(thread))?;
    let mut first = 0;
    while writer.written() < bytes {
        let calling = recording.frames[first as usize % recording.frames.len()];
        let outermost = RecordedFrame { caller: None, ..calling };
        let within = |frame: &RecordedFrame| RecordedFrame {
            caller: Some(frame.caller.map_or(first, |caller| caller + first + 1)),
            ..*frame
        };
        writer.frames(first, &[outermost])?;
        let frames: Vec<RecordedFrame> = recording.frames.iter().map(within).collect();
        let mut next = first + 1;
        for frames in frames.chunks(16384) {
            writer.frames(next, frames)?;
            next += frames.len() as u32;
        }
        let moved = |(sample, times): &(RecordedSample, u64)| {
            let frame = sample.frame + first + 1;
            std::iter::repeat_n(RecordedSample { frame, ..*sample }, *times as usize)
        };
        let samples: Vec<RecordedSample> = recording.samples.iter().flat_map(moved).collect();
        samples.chunks(16384).try_for_each(|samples| writer.samples(samples))?;
        first = next;
    }
    println!("{first} frames");
    Ok(())
}

/// Samples of stacks that branch off everywhere.
fn sampled(writer: &mut Out, stacks: u32, bytes: u64) -> std::io::Result<()> {
    writer.info([("command", "big"), ("mode", "sampled")])?;
    code(writer)?;
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
    Ok(())
}
