//! The time that names take: reading this benchmark's own file, finding the function of an address,
//! and demangling. `cargo bench -p lwp-symbols`.
#![allow(missing_docs, reason = "criterion's macros make functions without any")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lwp_symbols::{Elf, demangle};

/// Addresses and names of a round.
const NAMES: usize = 1000;

fn file() -> Vec<u8> {
    std::fs::read("/proc/self/exe").expect("our own file")
}

fn parse(criterion: &mut Criterion) {
    let file = file();
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Bytes(file.len() as u64));
    group.bench_function("symbols", |bench| bench.iter(|| Elf::parse(black_box(&file))));
    group.finish();
}

fn resolve(criterion: &mut Criterion) {
    let elf = Elf::parse(&file()).expect("an ELF file");
    let functions: Vec<_> = elf.symbols().filter(|symbol| symbol.size > 0).collect();
    let step = (functions.len() / NAMES).max(1);
    let some: Vec<_> = functions.iter().step_by(step).take(NAMES).collect();
    let mut group = criterion.benchmark_group("resolve");
    group.throughput(Throughput::Elements(some.len() as u64));
    group.bench_function("addresses", |bench| {
        bench.iter(|| {
            for symbol in &some {
                let inside = symbol.address + symbol.size / 2;
                black_box(elf.function_at(inside));
            }
        });
    });
    group.bench_function("demangle", |bench| {
        bench.iter(|| {
            for symbol in &some {
                black_box(demangle(symbol.name));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, parse, resolve);
criterion_main!(benches);
