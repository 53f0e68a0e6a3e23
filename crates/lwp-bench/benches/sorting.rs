//! An example of benchmarks that are measured in instructions: `cargo lwp bench -p lwp-bench`.

use lwp_bench::Bench;

fn sums(bench: &mut Bench) {
    bench.run("sum", || (0..1000u64).map(std::hint::black_box).sum::<u64>());
}

fn sorts(bench: &mut Bench) {
    let reversed = |n: u64| (0..n).rev().collect::<Vec<u64>>();
    bench.run_for_inputs("sort", [10, 1000], reversed, |mut numbers| {
        numbers.sort();
        numbers
    });
}

lwp_bench::main!(sums, sorts);
