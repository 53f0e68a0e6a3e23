//! The time that the translator takes for real code: that of this benchmark's own file.
//! `cargo bench -p lwp-dbt`.
#![allow(missing_docs, reason = "criterion's macros make functions without any")]

#[path = "../tests/it/common.rs"]
mod common;

use std::hint::black_box;

use common::{App, Bench};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lwp_dbt::block::{Block, Decoding, Emulated};
use lwp_dbt::{AppPc, Checks, Plan};

/// Blocks of a round.
const BLOCKS: usize = 1000;

/// The first executable segment of this file: its address and bytes.
fn own_code() -> (u64, Vec<u8>) {
    const PT_LOAD: u64 = 1;
    const PF_X: u64 = 1;
    let file = std::fs::read("/proc/self/exe").expect("our own file");
    let number = |at: usize, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&file[at..at + bytes]);
        u64::from_le_bytes(word)
    };
    let (table, count) = (number(32, 8) as usize, number(56, 2) as usize);
    let rows = (0..count).map(|row| table + row * 56);
    let code = rows.filter(|&at| number(at, 4) == PT_LOAD && number(at + 4, 4) & PF_X != 0);
    let at = code.min().expect("a segment with code");
    let (offset, size) = (number(at + 8, 8) as usize, number(at + 32, 8) as usize);
    // Far from the routines, as programs are.
    (0x40_0000 + number(at + 16, 8), file[offset..offset + size].to_vec())
}

fn decoding() -> Decoding {
    Decoding { emulated: Emulated::default(), ..Decoding::default() }
}

/// The addresses of so many blocks, one behind the other, from the middle of the code on.
fn blocks(start: u64, code: &[u8]) -> Vec<AppPc> {
    let mut app = App::new(start, code.to_vec());
    let mut pc = AppPc(start + code.len() as u64 / 2);
    let mut found = Vec::with_capacity(BLOCKS);
    while found.len() < BLOCKS {
        let block = Block::decode(&mut app, pc, decoding()).expect("code");
        found.push(pc);
        pc = block.next();
    }
    found
}

fn decode(criterion: &mut Criterion) {
    let (start, code) = own_code();
    let places = blocks(start, &code);
    let mut app = App::new(start, code);
    let mut block = Block::default();
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(BLOCKS as u64));
    group.bench_function("blocks", |bench| {
        bench.iter(|| {
            for pc in &places {
                black_box(block.read(&mut app, *pc, decoding()));
            }
        });
    });
    group.finish();
}

fn translate(criterion: &mut Criterion) {
    let (start, code) = own_code();
    let places = blocks(start, &code);
    let mut group = criterion.benchmark_group("translate");
    group.throughput(Throughput::Elements(BLOCKS as u64));
    for (name, plan) in [("plain", Plan::Plain), ("exact", Plan::Exact)] {
        group.bench_function(name, |bench| {
            bench.iter_batched_ref(
                || Bench::new(plan, Checks::None, start, &code),
                |bench| {
                    for pc in &places {
                        black_box(bench.translate(pc.0, false, 1));
                    }
                },
                criterion::BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, decode, translate);
criterion_main!(benches);
