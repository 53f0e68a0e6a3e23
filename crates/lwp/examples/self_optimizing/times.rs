//! How long the versions take, and what it costs to profile them.

use lwp::Error;
use rustix::time::{ClockId, clock_gettime};

use crate::memory::Code;
use crate::{ITEMS, PIECE, Sampling, Version};

/// Nanoseconds per item, round by round.
#[derive(Default)]
pub struct Times {
    first: Vec<f64>,
    /// The first version while LWP records its branches, with an empty ring after each piece.
    branches: Vec<f64>,
    /// Its variant with LWPVAL, while LWP is off.
    idle: Vec<f64>,
    /// That variant while LWP records branches and methods.
    profiled: Vec<f64>,
    second: Vec<f64>,
}

impl Times {
    /// Measures the first version, its variant that samples values, and the second version.
    pub fn measure(
        sampling: &Sampling,
        [first, sampled, second]: [&Version; 3],
        items: &[u64],
        rounds: u32,
    ) -> Result<Self, Error> {
        let mut times = Self::default();
        for _ in 0..rounds {
            times.first.push(work(&first.code, items, || ()));
            times.branches.push(profiled(sampling, first, items)?);
            times.idle.push(work(&sampled.code, items, || ()));
            times.profiled.push(profiled(sampling, sampled, items)?);
            times.second.push(work(&second.code, items, || ()));
        }
        Ok(times)
    }

    /// Prints each kind's time as a multiple of the first version's: the median of the rounds.
    pub fn print(&self) {
        if self.first.is_empty() {
            return;
        }
        println!("first version: {:.2} ns per item", median(self.first.clone()));
        for (name, times) in [
            ("first version, branches recorded", &self.branches),
            ("first version with LWPVAL, LWP off", &self.idle),
            ("first version with LWPVAL, branches and methods recorded", &self.profiled),
            ("second version", &self.second),
        ] {
            let ratios = times.iter().zip(&self.first).map(|(time, first)| time / first);
            println!("{name}: {:.2} times that", median(ratios.collect()));
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// All the work while LWP is on, as the runtime does it while it learns.
fn profiled(sampling: &Sampling, version: &Version, items: &[u64]) -> Result<f64, Error> {
    let (mut profile, mut reader) = sampling.profile()?;
    let mut knowledge = version.knowledge();
    let running = profile.start()?;
    let time = work(&version.code, items, || {
        running.flush();
        reader.drain().for_each(|record| knowledge.add(&record));
    });
    running.stop();
    Ok(time)
}

/// All the work twice, with `between` after each piece. The second time is measured, with warm
/// caches.
fn work(code: &Code, items: &[u64], mut between: impl FnMut()) -> f64 {
    let mut pass = || {
        let mut sum = 1;
        for piece in items.chunks(PIECE) {
            sum = code.run(piece, sum);
            between();
        }
        std::hint::black_box(sum);
    };
    pass();
    let started = processor_time();
    pass();
    (processor_time() - started) * 1e9 / ITEMS as f64
}

/// Seconds for which this thread has had a processor.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
