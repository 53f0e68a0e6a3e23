//! CPU time by the scheduler's own accounts.
//!
//! perf's clocks run while a thread has a processor: also while a hypervisor or an interrupt has
//! taken that processor away, and not while the kernel makes, replaces or ends the thread. What
//! rusage and `top` show are the scheduler's accounts, so recordings have those.
//!
//! Promise: R130

use std::collections::BTreeMap;
use std::time::Instant;

use lwp_process::sys;

/// The accounts of some processes, and of the children that they have waited for, since sampling
/// began.
#[derive(Debug)]
pub(crate) struct Clocks {
    children: bool,
    /// By process: its account when sampling began, and when it was last looked at.
    processes: BTreeMap<i32, (u64, u64)>,
    /// That of this process's children when sampling began.
    waited_for: u64,
    /// Time that was taken from the processors, when sampling began.
    taken_away: u64,
}

impl Clocks {
    /// Begins with these processes; with those that they make if `children`.
    pub fn begin(processes: &[i32], children: bool) -> Self {
        let account = |pid: &i32| {
            let used = used(*pid, children).unwrap_or(0);
            (*pid, (used, used))
        };
        Self {
            children,
            processes: processes.iter().map(account).collect(),
            waited_for: waited_for(),
            taken_away: taken_away(),
        }
    }

    /// Looks at the accounts of processes that may end, which can't be read afterwards.
    pub fn look(&mut self) {
        for (pid, (_, last)) in &mut self.processes {
            *last = used(*pid, self.children).unwrap_or(*last);
        }
    }

    /// CPU time since the beginning, in ns, if `live` are the processes that go on.
    ///
    /// `counted` is what perf's clock has counted. It knows of processes that nobody has waited
    /// for, which no account has. It is taken, without the time that was taken from the processors
    /// meanwhile, if it is longer than the accounts by more than [`LONGER`].
    pub fn since(&self, live: &[i32], counted: u64) -> u64 {
        let used_by = |pid: &i32| used(*pid, self.children);
        let known = self.processes.iter();
        let known = known.map(|(pid, (_, last))| used_by(pid).unwrap_or(*last).max(*last));
        let others = live.iter().filter(|pid| !self.processes.contains_key(pid));
        let sum = known.chain(others.filter_map(used_by)).fold(0, u64::saturating_add);
        self.sum(sum, counted)
    }

    /// CPU time since the beginning of a child that this process has waited for.
    pub fn since_of_child(&self, live: &[i32], counted: u64) -> u64 {
        if !self.children {
            return self.since(live, counted);
        }
        let going_on = live.iter().filter_map(|pid| used(*pid, true));
        let ended = waited_for().saturating_sub(self.waited_for);
        self.sum(going_on.fold(ended, u64::saturating_add), counted)
    }

    fn sum(&self, accounts: u64, counted: u64) -> u64 {
        let before: u64 = self.processes.values().map(|(before, _)| before).sum();
        let taken_away = taken_away().saturating_sub(self.taken_away);
        let accounts = accounts.saturating_sub(before);
        let counted = counted.saturating_sub(taken_away);
        if counted > accounts.saturating_add(accounts / LONGER) { counted } else { accounts }
    }
}

/// CPU time of one thread.
#[derive(Debug)]
pub(crate) struct ThreadClock {
    pid: i32,
    tid: i32,
    before: u64,
    last: Option<u64>,
}

impl ThreadClock {
    /// Begins; `None` if there is no such thread.
    pub fn begin(pid: i32, tid: i32) -> Option<Self> {
        let before = used_by_thread(pid, tid)?;
        Some(Self { pid, tid, before, last: Some(before) })
    }

    /// Looks at the thread's account; returns whether there still is one.
    pub fn look(&mut self) -> bool {
        let now = used_by_thread(self.pid, self.tid);
        self.last = now.or(self.last);
        now.is_some()
    }

    /// CPU time since the beginning, in ns, as far as it was looked at.
    pub fn since(&self) -> u64 {
        self.last.unwrap_or(0).saturating_sub(self.before)
    }
}

/// The account of a thread, in ns.
///
/// Spec: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat": the first number.
fn used_by_thread(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// perf's clock is longer than the accounts by up to this part of them, since not every hypervisor
/// says how much time it takes: 4 % were seen.
const LONGER: u64 = 10;

/// The time in which the processors were not idle.
#[derive(Debug)]
pub(crate) struct MachineClock {
    started: Instant,
    idle: u64,
}

impl MachineClock {
    pub fn begin() -> Self {
        Self { started: Instant::now(), idle: idle() }
    }

    /// CPU time of `processors` since the beginning, in ns.
    pub fn since(&self, processors: usize) -> u64 {
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let all = elapsed.saturating_mul(processors as u64);
        all.saturating_sub(idle().saturating_sub(self.idle))
    }
}

/// Time in which the processors were idle, in ns.
fn idle() -> u64 {
    machine_time(3, 2)
}

/// The account of a process; with `children`, with those of the children that it has waited for.
fn used(pid: i32, children: bool) -> Option<u64> {
    let own = sys::cpu_time_of(pid).ok()?;
    let stat = children.then(|| std::fs::read_to_string(format!("/proc/{pid}/stat")));
    let waited_for = stat.and_then(Result::ok).and_then(|stat| of_children(&stat));
    Some(own.saturating_add(waited_for.unwrap_or(0)))
}

/// Nanoseconds of a tick, in which files of `/proc` have times.
const TICK_NS: u64 = 10_000_000;

/// User and system time of the children that a process has waited for.
///
/// Spec: proc_pid_stat(5), `cutime` and `cstime`: fields 16 and 17, the second of which is the name
/// in brackets.
fn of_children(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(16 - 3);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()?.saturating_add(ticks()?).saturating_mul(TICK_NS))
}

/// User and system time of the children that this process has waited for, in ns.
fn waited_for() -> u64 {
    let [(user, system), _] = sys::cpu_times();
    u64::try_from((user + system).as_nanos()).unwrap_or(u64::MAX)
}

/// User time of the children that this process has waited for.
pub fn user_time_of_children() -> std::time::Duration {
    let [(user, _), _] = sys::cpu_times();
    user
}

/// Time that interrupts and hypervisors have taken from all processors, in ns.
fn taken_away() -> u64 {
    machine_time(5, 3)
}

/// The sum of `count` times of all processors from number `first` on, in ns.
fn machine_time(first: usize, count: usize) -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").ok();
    stat.and_then(|stat| machine_time_in(&stat, first, count)).unwrap_or(0)
}

/// Spec: proc_stat(5): user, nice, system, idle, iowait, irq, softirq and steal.
fn machine_time_in(stat: &str, first: usize, count: usize) -> Option<u64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks = all.split_ascii_whitespace().skip(first).take(count);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(ticks.saturating_mul(TICK_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_children_stand_behind_the_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 5 6 7 8 11 12 13 14 20 0 1 0 99";
        assert_eq!(of_children(stat), Some(27 * TICK_NS));
        assert_eq!(of_children("7 (a) S 1"), None);
        let stat = "cpu  2646879 1338710 845002 245368 3991 1 20 300 4 5\ncpu0 1";
        assert_eq!(machine_time_in(stat, 5, 3), Some(321 * TICK_NS));
        assert_eq!(machine_time_in(stat, 3, 2), Some(249_359 * TICK_NS));
        assert_eq!(machine_time_in("intr 5", 5, 3), None);
    }

    #[test]
    fn a_process_that_goes_on_has_an_account() {
        let own = std::process::id().cast_signed();
        let clocks = Clocks::begin(&[own], false);
        let start = used(own, false).expect("an account");
        while used(own, false).expect("an account") < start + 5_000_000 {}
        assert!(clocks.since(&[own], 0) >= 5_000_000);
    }

    #[test]
    fn a_thread_has_an_account_of_its_own() {
        let pid = std::process::id().cast_signed();
        let link = std::fs::read_link("/proc/thread-self").expect("a link");
        let tid = link.file_name().and_then(|tid| tid.to_str()?.parse().ok()).expect("a number");
        let mut clock = ThreadClock::begin(pid, tid).expect("an account");
        while clock.since() < 5_000_000 {
            assert!(clock.look());
        }
        assert!(ThreadClock::begin(pid, (1 << 22) + 1).is_none());
        let mut gone = ThreadClock { tid: (1 << 22) + 1, ..clock };
        let before = gone.since();
        assert!(!gone.look() && gone.since() == before);
    }

    #[test]
    fn accounts_that_are_missing_are_perf_s() {
        // No process has a number above 2²².
        let clocks = Clocks {
            children: false,
            processes: [((1 << 22) + 1, (10, 30))].into(),
            waited_for: 0,
            taken_away: taken_away(),
        };
        assert_eq!(clocks.since(&[], 0), 20);
        assert_eq!(clocks.since(&[], 21), 20);
        assert!(clocks.since(&[], 1 << 60) > 1 << 59);
        let stolen = Clocks { taken_away: 0, ..clocks };
        assert_eq!(stolen.since(&[], 25.min(taken_away())), 20);
    }
}
