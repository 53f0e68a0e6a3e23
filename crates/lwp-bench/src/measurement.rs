//! Instructions as criterion's measurement.

use std::path::PathBuf;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{Criterion, Throughput};

use crate::bench::complain;
use crate::counter::{NOT_COUNTED, so_far};

/// Criterion's measurement of the instructions that a benchmark's thread executes.
///
/// This also counts criterion's loop around a benchmark, which is the same few instructions for
/// each iteration.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Instructions;

/// Makes a criterion that measures instructions. After one iteration to warm up, every sample has
/// one iteration, however long it takes: counts need no more, because they are the same in every
/// run.
///
/// ```no_run
/// # use criterion::{criterion_group, criterion_main, Criterion};
/// fn sums(criterion: &mut Criterion<lwp_bench::Instructions>) {
///     criterion.bench_function("sum", |b| b.iter(|| (0..1000u64).sum::<u64>()));
/// }
///
/// criterion_group!(name = benches; config = lwp_bench::criterion(); targets = sums);
/// criterion_main!(benches);
/// ```
///
/// Outside `lwp`, the benchmarks run too, and their results state that nothing was counted.
#[must_use]
pub fn criterion() -> Criterion<Instructions> {
    // One iteration takes longer than this.
    let least = Duration::from_nanos(1);
    let counts = so_far().is_some();
    if !counts {
        complain(NOT_COUNTED);
    }
    let mut criterion = Criterion::default();
    // Neither times nor what was not counted is anything to compare instructions with.
    if let Some(place) =
        place(if counts { "criterion-instructions" } else { "criterion-uncounted" })
    {
        criterion = criterion.output_directory(&place);
    }
    criterion
        .with_measurement(Instructions)
        .sample_size(10)
        .warm_up_time(least)
        .measurement_time(least)
        .without_plots()
}

/// The place of results: `name` in cargo's target directory, which the program lies in, as
/// `PROFILE/deps/PROGRAM`.
fn place(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.ancestors().nth(3)?.join(name))
}

impl Measurement for Instructions {
    type Intermediate = Option<u64>;
    type Value = u64;

    fn start(&self) -> Self::Intermediate {
        so_far()
    }

    fn end(&self, start: Self::Intermediate) -> Self::Value {
        match (start, so_far()) {
            (Some(start), Some(end)) => end.saturating_sub(start),
            // Criterion divides by it.
            _ => 1,
        }
    }

    fn add(&self, one: &Self::Value, other: &Self::Value) -> Self::Value {
        one + other
    }

    fn zero(&self) -> Self::Value {
        0
    }

    fn to_f64(&self, value: &Self::Value) -> f64 {
        *value as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        if so_far().is_some() { &Counted } else { &Uncounted }
    }
}

struct Counted;

impl ValueFormatter for Counted {
    fn format_value(&self, value: f64) -> String {
        format!("{value:.0} instructions")
    }

    fn scale_values(&self, _typical: f64, _values: &mut [f64]) -> &'static str {
        "instructions"
    }

    fn scale_throughputs(
        &self,
        _typical: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        let (units, name) = match *throughput {
            Throughput::Elements(elements) => (elements, "instructions/element"),
            Throughput::Bits(bits) => (bits, "instructions/bit"),
            Throughput::Bytes(bytes) | Throughput::BytesDecimal(bytes) => {
                (bytes, "instructions/byte")
            }
            Throughput::ElementsAndBytes { elements, .. } => (elements, "instructions/element"),
        };
        for value in values {
            *value /= units.max(1) as f64;
        }
        name
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "instructions"
    }
}

/// Results that say so where nothing is counted.
struct Uncounted;

impl ValueFormatter for Uncounted {
    fn format_value(&self, _value: f64) -> String {
        "not counted".to_owned()
    }

    fn format_throughput(&self, _throughput: &Throughput, _value: f64) -> String {
        "not counted".to_owned()
    }

    fn scale_values(&self, _typical: f64, _values: &mut [f64]) -> &'static str {
        "not counted"
    }

    fn scale_throughputs(&self, _: f64, _: &Throughput, _: &mut [f64]) -> &'static str {
        "not counted"
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "not counted"
    }
}
