//! Processor time and memory of this process and of others, as the kernel tells them.

use std::fs;
use std::time::Instant;

/// Clock ticks a second: what `/proc` counts in on every Linux that people run.
const TICKS: f64 = 100.0;

/// Seconds of processor time that a process has taken, and its children that have ended.
pub struct Seconds {
    pub own: f64,
    pub of_children: f64,
}

/// The processor time of a process so far; `self` is this one.
pub fn processor(pid: &str) -> Seconds {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("/proc");
    // The name of the program may have anything but a closing parenthesis behind its own.
    let rest = text.rsplit_once(") ").expect("a name").1;
    let field = |n: usize| rest.split(' ').nth(n - 3).and_then(|text| text.parse::<f64>().ok());
    let sum = |a, b| (field(a).expect("ticks") + field(b).expect("ticks")) / TICKS;
    Seconds { own: sum(14, 15), of_children: sum(16, 17) }
}

/// Forgets how much memory was resident at most.
pub fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// MiB that were resident at most since then.
pub fn peak() -> f64 {
    let text = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok());
    kib.expect("a number") / 1024.0
}

/// The time and the memory that something took.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub cpu_seconds: f64,
    /// Other work on the machine makes it longer.
    pub wall_seconds: f64,
    pub peak_mib: f64,
}

impl Taken {
    /// The cost of each, if there were `many`.
    pub fn each(self, many: f64) -> Self {
        let (cpu_seconds, wall_seconds) = (self.cpu_seconds / many, self.wall_seconds / many);
        Self { cpu_seconds, wall_seconds, ..self }
    }
}

/// A clock that counts what somebody takes from now on.
pub struct Clock {
    since: Instant,
    before: f64,
}

impl Clock {
    /// Starts one, where so many seconds of processor time have been taken before.
    pub fn new(before: f64) -> Self {
        Self { since: Instant::now(), before }
    }

    /// Seconds of processor time taken since, as there are so many now; and those on the wall.
    pub fn taken(&self, now: f64, peak_mib: f64) -> Taken {
        let wall_seconds = self.since.elapsed().as_secs_f64();
        Taken { cpu_seconds: now - self.before, wall_seconds, peak_mib }
    }
}

/// Measures something that is done once.
pub async fn once<T>(work: impl Future<Output = T>) -> (T, Taken) {
    forget_peak();
    let clock = Clock::new(processor("self").own);
    let done = work.await;
    (done, clock.taken(processor("self").own, peak()))
}

/// Measures something that is done again and again until the kernel's clock is fine enough for it:
/// the mean of at least half a second.
pub async fn repeated<F: Future<Output = ()>>(mut work: impl FnMut() -> F) -> Taken {
    forget_peak();
    let clock = Clock::new(processor("self").own);
    let mut times = 0;
    loop {
        work().await;
        times += 1;
        let taken = clock.taken(processor("self").own, peak());
        if taken.cpu_seconds > 0.5 || times >= 200 {
            return taken.each(f64::from(times));
        }
    }
}
