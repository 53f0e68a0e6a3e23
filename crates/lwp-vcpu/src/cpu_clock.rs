//! CPU times of a process that lwp has attached to.
//!
//! The kernel reports the times of children that have ended. A process that somebody else started
//! isn't lwp's child, and may continue afterwards. So lwp reads the clocks of its threads when it
//! takes them over, and again when it releases them or they end; threads and processes that are
//! created in between begin at zero.
//!
//! Promise: R52

use std::collections::HashMap;
use std::time::Duration;

use lwp_process::Tid;
use lwp_process::kernel_files;

/// User and system time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In the program.
    pub user: Duration,
    /// In the kernel, for the program.
    pub system: Duration,
}

/// The clocks of all threads.
#[derive(Debug, Default)]
pub struct CpuClocks {
    /// The readings of the threads' clocks when the threads were taken over.
    began: HashMap<Tid, CpuTimes>,
    /// The time used up by threads that have ended or were let go.
    total: CpuTimes,
}

impl CpuClocks {
    /// Notes what the clocks of these threads show.
    pub fn of_running(tids: impl Iterator<Item = Tid>) -> Self {
        let began = tids.filter_map(|tid| Some((tid, read(tid)?))).collect();
        Self { began, total: CpuTimes::default() }
    }

    /// Adds what a thread has used up, which still exists and does not run.
    pub fn ended(&mut self, tid: Tid) {
        let before = self.began.remove(&tid).unwrap_or_default();
        let Some(after) = read(tid) else { return };
        self.total.user += after.user.saturating_sub(before.user);
        self.total.system += after.system.saturating_sub(before.system);
    }

    /// The time used up.
    pub fn total(&self) -> CpuTimes {
        self.total
    }
}

/// Reads the clocks of a thread.
fn read(tid: Tid) -> Option<CpuTimes> {
    // By way of its own folder: /proc/TID speaks of the whole process.
    let file = |name: &str| kernel_files::text(tid, &format!("task/{tid}/{name}"));
    Some(times(&file("stat").ok()?, &file("schedstat").unwrap_or_default()))
}

/// The processor time of a thread so far, in whatever program.
pub fn of_thread(tid: Tid) -> Option<Duration> {
    read(tid).map(|times| times.user + times.system)
}

/// The processor time that a thread's `schedstat` tells, if the kernel has any: up to the last time
/// that the thread stopped running.
pub fn exact(schedstat: &str) -> Option<Duration> {
    let nanoseconds = schedstat.split_whitespace().next()?.parse().ok()?;
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

/// The times that proc(5)'s `stat` and `schedstat` tell: the one in hundredths of a second, user
/// and system time apart, the other in nanoseconds, together.
fn times(stat: &str, schedstat: &str) -> CpuTimes {
    // Fields 14 and 15; the name, field 2, may have anything in it but ends with the last
    // parenthesis.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    let (user, system) = (next(), next());
    let ticks = |ticks: u64| Duration::from_millis(ticks.saturating_mul(10));
    match exact(schedstat).map(|time| time.as_nanos() as u64) {
        None => CpuTimes { user: ticks(user), system: ticks(system) },
        Some(all) => {
            let share =
                |part: u64| u128::from(all) * u128::from(part) / u128::from((user + system).max(1));
            let system = u64::try_from(share(system)).unwrap_or(0);
            let [user, system] = [all - system.min(all), system].map(Duration::from_nanos);
            CpuTimes { user, system }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "12 (a) b) R 1 1 1 0 -1 4194560 1 0 0 0 30 10 0 0 20 0 1 0 5 6 7";

    #[test]
    fn clocks_are_read_as_finely_as_the_kernel_tells_them() {
        let ms = Duration::from_millis;
        assert_eq!(times(STAT, ""), CpuTimes { user: ms(300), system: ms(100) });
        let exact = CpuTimes { user: ms(303), system: ms(101) };
        assert_eq!(times(STAT, "404000000 17 3\n"), exact);
        let young = STAT.replace(" 30 10 ", " 0 0 ");
        assert_eq!(times(&young, "1500 0 1\n").user, Duration::from_nanos(1500));
        assert_eq!(times("", "x"), CpuTimes::default());
    }

    #[test]
    fn what_was_used_before_is_not_counted() {
        let own = own_tid();
        let burn = || (0..20_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b));
        burn();
        let mut clocks = CpuClocks::of_running([own].into_iter());
        let before = read(own).map(|it| it.user + it.system).unwrap_or_default();
        burn();
        clocks.ended(own);
        let after = read(own).map(|it| it.user + it.system).unwrap_or_default();
        let total = clocks.total().user + clocks.total().system;
        assert!(
            total <= after - before + Duration::from_millis(20),
            "{total:?} {before:?} {after:?}"
        );
    }

    /// The calling thread's number.
    fn own_tid() -> Tid {
        let link = std::fs::read_link("/proc/thread-self").expect("proc");
        link.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number")
    }
}
