//! The thread that counts one processor.

use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use cpc::{Buf, Cpc, Set};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use super::options::Options;
use crate::failure::Failure;
use crate::sets::Template;

/// A message from a worker.
#[derive(Debug)]
pub enum Message {
    /// The first set is bound.
    Ready,
    /// A sample.
    Sampled(Sampled),
    /// It cannot go on, and why.
    Failed(u32, String),
}

/// One sample of one processor.
#[derive(Debug)]
pub struct Sampled {
    /// The sample's number, from 0.
    pub slot: u64,
    /// The processor.
    pub cpu: u32,
    /// The index of the specification.
    pub set: usize,
    /// Seconds since the start.
    pub seconds: f64,
    /// Clock cycles while counting.
    pub tsc: u64,
    /// Counts since the sample before.
    pub counts: Vec<u64>,
    /// It was cut short by the end of the command.
    pub partial: bool,
}

/// The schedule that all workers follow.
#[derive(Debug)]
pub struct Plan<'a> {
    templates: &'a [Template],
    interval: Duration,
    /// From one round of all sets to the next.
    round: Duration,
    samples: Option<u64>,
    soak: bool,
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not all sets are bound.
    Binding,
    /// Counting since then.
    Counting(Instant),
    /// The command ends.
    Over,
}

impl<'a> Plan<'a> {
    /// The plan of a command line.
    pub fn new(options: &Options, templates: &'a [Template]) -> Self {
        let sets = u32::try_from(templates.len()).unwrap_or(u32::MAX);
        let interval = options.interval();
        let least = interval.saturating_mul(sets);
        let round = options.round.map_or(least, |round| Duration::from_secs_f64(round).max(least));
        let samples = match options.round {
            // Rounds are counted then.
            Some(_) => options.count.map(|count| count.saturating_mul(u64::from(sets))),
            None => options.count,
        };
        let (phase, changed) = (Mutex::new(Phase::Binding), Condvar::new());
        Self { templates, interval, round, samples, soak: options.soak, phase, changed }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All sets are bound: counting starts now.
    pub fn begin(&self) {
        let mut phase = self.phase();
        if *phase == Phase::Binding {
            *phase = Phase::Counting(Instant::now());
            self.changed.notify_all();
        }
    }

    /// The command ends.
    pub fn end(&self) {
        *self.phase() = Phase::Over;
        self.changed.notify_all();
    }

    fn is_over(&self) -> bool {
        *self.phase() == Phase::Over
    }

    /// Waits for the start. `None`: the command ends before.
    fn start(&self) -> Option<Instant> {
        let mut phase = self.phase();
        loop {
            match *phase {
                Phase::Binding => {}
                Phase::Counting(start) => return Some(start),
                Phase::Over => return None,
            }
            phase = self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for `deadline`. False: the command ends before.
    fn sleep_until(&self, deadline: Instant) -> bool {
        let mut phase = self.phase();
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            if *phase == Phase::Over {
                return false;
            }
            if wait.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(phase, wait);
            phase = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the start and end of sample `slot`, both after the start, and the index of its set.
    fn slot(&self, slot: u64) -> (Duration, Duration, usize) {
        let sets = self.templates.len() as u64;
        let (round, set) = (slot / sets, slot % sets);
        let times = |duration: Duration, factor: u64| {
            duration.saturating_mul(u32::try_from(factor).unwrap_or(u32::MAX))
        };
        let begin = times(self.round, round) + times(self.interval, set);
        (begin, begin + self.interval, set as usize)
    }
}

/// Counts processor `cpu` until the plan is done.
pub fn count(cpc: &Cpc, plan: &Plan<'_>, cpu: u32, sender: &Sender<Message>) {
    let soaked = plan.soak && plan.templates.iter().any(Template::is_system_only);
    let done = Mutex::new(false);
    std::thread::scope(|scope| {
        if soaked {
            let started = Builder::new().name("soak".into());
            if let Err(error) = started.spawn_scoped(scope, || soak(cpu, &done)) {
                let reason = format!("no thread to keep it busy: {error}");
                let _ = sender.send(Message::Failed(cpu, reason));
                return;
            }
        }
        if let Err(failure) = count_all(cpc, plan, cpu, sender) {
            let reason = match failure {
                Failure::Usage(reason) | Failure::Runtime(reason) => reason,
                Failure::Reported => String::new(),
            };
            // Nobody listens any more if the command ends.
            let _ = sender.send(Message::Failed(cpu, reason));
        }
        *done.lock().unwrap_or_else(PoisonError::into_inner) = true;
    });
}

fn count_all(
    cpc: &Cpc,
    plan: &Plan<'_>,
    cpu: u32,
    sender: &Sender<Message>,
) -> Result<(), Failure> {
    let sets = plan.templates.iter().map(|template| template.set(cpc));
    let sets: Vec<Set> = sets.collect::<Result<_, _>>()?;
    let failure = |error: cpc::Error| Failure::new(error.reason());
    let bind = |set: &Set| set.bind_cpu(cpu).map_err(failure);
    bind(&sets[0])?;
    let _ = sender.send(Message::Ready);
    let Some(start) = plan.start() else {
        return Ok(());
    };
    let start_ns = monotonic_ns() - i64::try_from(start.elapsed().as_nanos()).unwrap_or(0);
    let mut bound = Some(0);
    for slot in 0..plan.samples.unwrap_or(u64::MAX) {
        let (begin, end, index) = plan.slot(slot);
        let set = &sets[index];
        if !plan.sleep_until(start + begin) {
            return Ok(());
        }
        if bound != Some(index) {
            bind(set)?;
        }
        let (before, now) = (set.create_buf(), set.create_buf());
        set.sample(&before).map_err(failure)?;
        let partial = !plan.sleep_until(start + end);
        set.sample(&now).map_err(failure)?;
        let seconds = (now.time_ns() - start_ns) as f64 / 1e9;
        now.set_difference(&now, &before).map_err(failure)?;
        let (tsc, counts) = (now.cycles(), values(&now));
        let sampled = Sampled { slot, cpu, set: index, seconds, tsc, counts, partial };
        let _ = sender.send(Message::Sampled(sampled));
        if partial || plan.is_over() {
            return Ok(());
        }
        bound = Some(index);
        if sets.len() > 1 {
            set.unbind().map_err(failure)?;
            bound = None;
        }
    }
    Ok(())
}

fn values(buf: &Buf) -> Vec<u64> {
    (0..buf.len()).map(|index| buf.get(index).unwrap_or(0)).collect()
}

fn monotonic_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Keeps processor `cpu` from idling, in user mode and at the lowest priority.
fn soak(cpu: u32, done: &Mutex<bool>) {
    let tid = gettid();
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    // Where it may not run there it must not run at all.
    if sched_setaffinity(Some(tid), &set).is_err() {
        return;
    }
    let _ = setpriority_process(Some(tid), 19);
    while !*done.lock().unwrap_or_else(PoisonError::into_inner) {
        for _ in 0..1_000_000 {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn options(words: &[&str]) -> Options {
        let words = ["cpustat", "-c", "x"].iter().chain(words);
        Options::parse(words.map(OsString::from)).unwrap()
    }

    #[test]
    fn samples_follow_each_other_or_rest_after_a_round() {
        let secs = Duration::from_secs;
        let template = |text: &str| Template::empty(text);
        let two = [template("a"), template("b")];
        let plan = Plan::new(&options(&["2", "5"]), &two);
        assert_eq!(plan.slot(0), (secs(0), secs(2), 0));
        assert_eq!(plan.slot(1), (secs(2), secs(4), 1));
        assert_eq!(plan.slot(2), (secs(4), secs(6), 0));
        assert_eq!(plan.samples, Some(5));
        let plan = Plan::new(&options(&["-p", "10", "2", "5"]), &two);
        assert_eq!(plan.slot(3), (secs(12), secs(14), 1));
        assert_eq!(plan.samples, Some(10), "rounds are counted");
        // A round cannot be shorter than its samples.
        let plan = Plan::new(&options(&["-p", "1", "2"]), &two);
        assert_eq!(plan.slot(2).0, secs(4));
    }
}
