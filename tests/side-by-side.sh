#!/bin/sh
# Three published crates, measured four ways: criterion's times, criterion counting instructions on lwp, gungraun on
# callgrind, and gungraun on lwp in callgrind's place. Prints the table of docs/benchmarks.md.
#
#     tests/side-by-side.sh [DIR]
#
# DIR (default: target/side-by-side) takes the package and what is built of it. lwp, cargo-lwp, valgrind and
# gungraun-runner 0.20.0 are taken from the path; LWP_DIR=DIR and GUNGRAUN_RUNNER=FILE name others.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-$here/target/side-by-side}
path=${LWP_DIR:+$LWP_DIR:}$PATH
mkdir -p "$dir/src" "$dir/benches"
cd "$dir"

cat > Cargo.toml <<EOF
[package]
name = "side-by-side"
version = "0.1.0"
edition = "2024"
[dependencies]
hex = "=0.4.3"
itoa = "=1.0.15"
smallvec = "=1.15.1"
[dev-dependencies]
criterion = { version = "0.8", default-features = false, features = ["cargo_bench_support"] }
gungraun = "=0.20.0"
lwp-bench = { path = "$here/crates/lwp-bench", features = ["criterion"] }
[[bench]]
name = "timed"
harness = false
[[bench]]
name = "counted"
harness = false
[[bench]]
name = "callgrind"
harness = false
[profile.bench]
debug = "line-tables-only"
[workspace]
EOF
cat > src/lib.rs <<'EOF'
use std::hint::black_box;

pub fn bytes() -> Vec<u8> {
    (0..1000u32).map(|n| (n * 7919 >> 3) as u8).collect()
}

#[inline(never)]
pub fn hex(bytes: &[u8]) -> String {
    hex::encode(black_box(bytes))
}

#[inline(never)]
pub fn itoa(most: u64) -> usize {
    let mut buffer = itoa::Buffer::new();
    (0..most).map(|n| buffer.format(black_box(n * n * 7919)).len()).sum()
}

#[inline(never)]
pub fn smallvec(most: u64) -> u64 {
    let mut all = smallvec::SmallVec::<[u64; 16]>::new();
    (0..most).for_each(|n| all.push(black_box(n)));
    all.iter().sum()
}
EOF
criterion() {
    cat <<EOF
use criterion::{Criterion, criterion_group, criterion_main};
use side_by_side::{bytes, hex, itoa, smallvec};
use std::hint::black_box;
fn all(criterion: &mut Criterion$1) {
    let bytes = bytes();
    criterion.bench_function("hex", |b| b.iter(|| hex(black_box(&bytes))));
    criterion.bench_function("itoa", |b| b.iter(|| itoa(black_box(1000))));
    criterion.bench_function("smallvec", |b| b.iter(|| smallvec(black_box(1000))));
}
criterion_group!(name = benches; config = $2; targets = all);
criterion_main!(benches);
EOF
}
criterion "" "Criterion::default().without_plots()" > benches/timed.rs
criterion "<lwp_bench::Instructions>" "lwp_bench::criterion()" > benches/counted.rs
cat > benches/callgrind.rs <<'EOF'
use gungraun::{library_benchmark, library_benchmark_group, main};
use side_by_side::bytes;
use std::hint::black_box;
#[library_benchmark]
#[bench::it(setup = bytes)]
fn hex(bytes: Vec<u8>) -> (String, Vec<u8>) { (side_by_side::hex(black_box(&bytes)), bytes) }
#[library_benchmark]
fn itoa() -> usize { side_by_side::itoa(black_box(1000)) }
#[library_benchmark]
fn smallvec() -> u64 { side_by_side::smallvec(black_box(1000)) }
library_benchmark_group!(name = all; benchmarks = hex, itoa, smallvec);
main!(library_benchmark_groups = all);
EOF

lwp=$(PATH=$path command -v lwp)
ln -sf "$lwp" valgrind
export CARGO_TARGET_DIR="$dir/target"
: "${GUNGRAUN_RUNNER:=$(command -v gungraun-runner)}"
export GUNGRAUN_RUNNER
unset CARGO_BUILD_TARGET

PATH=$path cargo lwp bench --bench counted > counted.1
PATH=$path cargo lwp bench --bench counted > counted.2
PATH=$path cargo lwp bench --bench counted > counted.3
GUNGRAUN_VALGRIND_BIN=valgrind cargo bench --bench callgrind > callgrind.1
GUNGRAUN_VALGRIND_BIN=$dir/valgrind cargo bench --bench callgrind > callgrind.2
GUNGRAUN_VALGRIND_BIN=$dir/valgrind cargo bench --bench callgrind > callgrind.3
cargo bench --bench timed -- --quick > timed.1
cargo bench --bench timed -- --quick > timed.2

# What criterion says of a benchmark: the middle of the three values in brackets.
middle() { awk -v name="$2" '$1 == name && /time:/ { gsub(/[][]/, ""); print $5, $6 }' "$1"; }
# What gungraun says of the n-th benchmark.
instructions() { grep 'Instructions:' "$1" | sed -n "$2p" | sed 's/.*Instructions: *\([0-9]*\).*/\1/'; }

echo '| crate | criterion, times of two runs | criterion on lwp, twice | gungraun on callgrind | gungraun on lwp, twice |'
echo '|---|---|---|---|---|'
number=0
for crate in hex itoa smallvec; do
    number=$((number + 1))
    echo "| $crate | $(middle timed.1 $crate), $(middle timed.2 $crate)" \
        "| $(middle counted.2 $crate), $(middle counted.3 $crate)" \
        "| $(instructions callgrind.1 $number)" \
        "| $(instructions callgrind.2 $number), $(instructions callgrind.3 $number) |"
done
