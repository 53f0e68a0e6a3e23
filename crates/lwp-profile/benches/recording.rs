//! The time that a recording takes to read: an exact one of many blocks, and a sampled one of many
//! stacks. `cargo bench -p lwp-profile`.
#![allow(missing_docs, reason = "criterion's macros make functions without any")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lwp_profile::{
    Block, BlockCount, RecordedFrame, RecordedModule, RecordedSample, Recording, SampledEvent,
    ThreadExecutions, Writer,
};

/// Blocks, and samples.
const MANY: u32 = 50_000;
/// Frames of a stack.
const DEEP: u32 = 20;

fn begin(mode: &str) -> Writer<Vec<u8>> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer.info([("command", "bench"), ("mode", mode)]).expect("memory");
    writer.module(&RecordedModule { pid: 1, ..RecordedModule::default() }).expect("memory");
    writer
}

fn end(mut writer: Writer<Vec<u8>>) -> Vec<u8> {
    writer.end().expect("memory");
    writer.into_inner()
}

fn exact() -> Vec<u8> {
    let mut writer = begin("exact");
    let block = |id: u32| Block {
        id,
        address: u64::from(id) * 10,
        lengths: vec![2, 3, 3, 2],
        counted: 4,
        bytes: vec![0x90; 10],
        ..Block::default()
    };
    writer.blocks(&(0..MANY).map(block).collect::<Vec<_>>()).expect("memory");
    let count =
        |block: u32| BlockCount { block, runs: u64::from(block % 1000 + 1) * 1000, not_taken: 0 };
    let blocks = (0..MANY).map(count).collect();
    writer
        .thread(&ThreadExecutions { pid: 1, tid: 1, blocks, ..Default::default() })
        .expect("memory");
    end(writer)
}

fn sampled() -> Vec<u8> {
    let mut writer = begin("sampled");
    let event = SampledEvent { name: "instructions".into(), interval: 1000, modelled: false };
    writer.events(&[event]).expect("memory");
    let thread = ThreadExecutions { pid: 1, tid: 1, ..ThreadExecutions::default() };
    writer.thread(&thread).expect("memory");
    // A path down, from which stacks branch off everywhere.
    let frame = |n: u32| {
        let caller = n.checked_sub(1).map(|before| if n < DEEP { before } else { n * 7 / 11 });
        RecordedFrame { caller, module: Some(0), address: u64::from(n) * 16 }
    };
    writer.frames(0, &(0..MANY).map(frame).collect::<Vec<_>>()).expect("memory");
    let sample = |n: u32| RecordedSample { frame: n * 31 % MANY, ..RecordedSample::default() };
    writer.samples(&(0..MANY).map(sample).collect::<Vec<_>>()).expect("memory");
    end(writer)
}

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    for (name, recording) in [("exact", exact()), ("sampled", sampled())] {
        assert!(Recording::read(&recording[..]).is_ok(), "{name}");
        group.throughput(Throughput::Bytes(recording.len() as u64));
        group.bench_function(name, |bench| {
            bench.iter(|| Recording::read(black_box(&recording[..])));
        });
    }
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
