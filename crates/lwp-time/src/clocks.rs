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

use crate::now_ns;

/// The accounts of some processes, and of the children that they have waited for, since sampling
/// began.
#[derive(Debug)]
pub(crate) struct Clocks {
    children: bool,
    processes: Vec<i32>,
    /// By process, those that they made and nobody has waited for: when they started.
    made: BTreeMap<i32, u64>,
    began: Reading,
    /// When all of the processes were last there.
    looked: Reading,
    /// That of this process's children when sampling began.
    waited_for: u64,
}

/// Accounts at one moment.
struct Accounts {
    /// By process, those that were made and nobody has waited for: when they started.
    made: BTreeMap<i32, u64>,
    /// The sum of all, in ns, if it is known.
    sum: Option<u64>,
}

/// What the clocks said at one moment, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// The sum of the accounts.
    accounts: u64,
    /// What perf's clock had counted.
    counted: u64,
    /// Time that was taken from the processors.
    taken_away: u64,
    /// CLOCK_MONOTONIC.
    at: u64,
}

/// The time between two looks at the accounts of a process and its children, of which there may be
/// thousands: perf's clock continues them until its end.
const PACE_NS: u64 = 100_000_000;

impl Reading {
    fn of(accounts: u64, counted: u64) -> Self {
        Self { accounts, counted, taken_away: taken_away(), at: now_ns() }
    }

    /// What the accounts would be now, had perf's clock alone gone on.
    fn continued(&self, counted: u64) -> u64 {
        self.accounts.saturating_add(self.counted_since(counted))
    }

    /// What perf's clock has counted since, without the time that was taken from the processors.
    fn counted_since(&self, counted: u64) -> u64 {
        let taken_away = taken_away().saturating_sub(self.taken_away);
        counted.saturating_sub(self.counted).saturating_sub(taken_away)
    }
}

impl Clocks {
    /// Begins with these processes; with those that they make if `children`.
    pub fn begin(processes: &[i32], children: bool) -> Self {
        let accounts = processes.iter().filter_map(|pid| Account::of(*pid, children));
        let sum = accounts.map(|account| account.used).fold(0, u64::saturating_add);
        let began = Reading::of(sum, 0);
        Self {
            children,
            processes: processes.to_vec(),
            made: BTreeMap::new(),
            began,
            looked: began,
            waited_for: waited_for(),
        }
    }

    /// Looks at the accounts of processes that may end, which can't be read afterwards. The
    /// arguments are those of [`since`](Self::since).
    pub fn look(&mut self, live: &[i32], counted: u64) {
        let accounts = self.accounts(live);
        self.made = accounts.made;
        if let Some(sum) = accounts.sum {
            self.looked = Reading::of(sum, counted);
        }
    }

    /// Returns whether it is time for another look.
    pub fn is_due(&self) -> bool {
        now_ns().saturating_sub(self.looked.at) >= PACE_NS
    }

    /// Returns whether the wait for a child tells all of its time, so that nobody needs to look.
    pub fn come_with_wait(&self) -> bool {
        self.children
    }

    /// CPU time since the beginning, in ns, if `live` are the processes that go on.
    ///
    /// `counted` is what perf's clock has counted. It continues the accounts of processes that have
    /// ended since they were looked at. It also knows of processes that nobody has waited for,
    /// which no account has: it is taken, without the time that was taken from the processors
    /// meanwhile, if it is longer than the accounts by more than [`LONGER`].
    pub fn since(&self, live: &[i32], counted: u64) -> u64 {
        let accounts = self.accounts(live).sum;
        let accounts = accounts.unwrap_or_else(|| self.looked.continued(counted));
        self.sum(accounts.saturating_sub(self.began.accounts), counted)
    }

    /// CPU time since the beginning of a child that this process has waited for.
    pub fn since_of_child(&self, live: &[i32], counted: u64) -> u64 {
        if !self.children {
            return self.since(live, counted);
        }
        let ended = || Some(waited_for().saturating_sub(self.waited_for));
        self.sum(self.with_made(live, ended).sum.unwrap_or(0), counted)
    }

    /// As [`with_made`](Self::with_made), with the sum of the first ones' accounts: `None` once one
    /// of them has ended.
    fn accounts(&self, live: &[i32]) -> Accounts {
        self.with_made(live, || {
            let account = |pid: &i32| Account::of(*pid, self.children).map(|account| account.used);
            let first: Option<Vec<u64>> = self.processes.iter().map(account).collect();
            first.map(|first| first.into_iter().fold(0, u64::saturating_add))
        })
    }

    /// The processes that were made and nobody has waited for yet, with when they started; and the
    /// sum of their accounts and of what `first` returns.
    fn with_made(&self, live: &[i32], first: impl Fn() -> Option<u64>) -> Accounts {
        let mut made = self.made(live);
        loop {
            let account = |(pid, started): &(i32, Option<u64>)| {
                let account = Account::of(*pid, true)?;
                // Another process may have its number.
                (started.unwrap_or(account.started) == account.started).then_some((*pid, account))
            };
            let found: Vec<(i32, Account)> = made.iter().filter_map(account).collect();
            let first = first();
            let still = |(pid, account): &(i32, Account)| account.is_still(*pid);
            // The account of one that is gone may have moved to the one that waited for it, before
            // or after that was looked at.
            if first.is_none() || found.len() == made.len() && found.iter().all(still) {
                let used = found.iter().map(|(_, account)| account.used);
                let sum = first.map(|first| used.fold(first, u64::saturating_add));
                let started = found.iter().map(|(pid, account)| (*pid, account.started));
                return Accounts { made: started.collect(), sum };
            }
            made = found.iter().map(|(pid, account)| (*pid, Some(account.started))).collect();
        }
    }

    /// The processes that the first ones made, as far as they go on or may have ended without being
    /// waited for; with when they started, if that is known.
    fn made(&self, live: &[i32]) -> Vec<(i32, Option<u64>)> {
        if !self.children {
            return Vec::new();
        }
        let ended = self.made.iter().filter(|(pid, _)| !live.contains(pid));
        let ended = ended.map(|(pid, started)| (*pid, Some(*started)));
        let live = live.iter().filter(|pid| !self.processes.contains(pid)).map(|pid| (*pid, None));
        live.chain(ended).collect()
    }

    fn sum(&self, accounts: u64, counted: u64) -> u64 {
        let counted = self.began.counted_since(counted);
        if counted > accounts.saturating_add(accounts / LONGER) { counted } else { accounts }
    }
}

/// CPU time of one thread.
#[derive(Debug)]
pub(crate) struct ThreadClock {
    pid: i32,
    tid: i32,
    before: u64,
    looked: Reading,
}

impl ThreadClock {
    /// Begins; `None` if there is no such thread.
    pub fn begin(pid: i32, tid: i32) -> Option<Self> {
        let before = used_by_thread(pid, tid)?;
        Some(Self { pid, tid, before, looked: Reading::of(before, 0) })
    }

    /// Looks at the thread's account when perf's clock has `counted` so much; returns whether there
    /// still is one.
    pub fn look(&mut self, counted: u64) -> bool {
        let now = used_by_thread(self.pid, self.tid);
        if let Some(account) = now {
            self.looked = Reading::of(account, counted);
        }
        now.is_some()
    }

    /// CPU time since the beginning, in ns, if perf's clock has `counted` so much. It continues the
    /// account of a thread that has ended.
    pub fn since(&self, counted: u64) -> u64 {
        let account = used_by_thread(self.pid, self.tid);
        account.unwrap_or_else(|| self.looked.continued(counted)).saturating_sub(self.before)
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

/// The account of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    /// CPU time in ns.
    used: u64,
    /// When it started, in ticks; 0 if that was not asked for.
    started: u64,
}

impl Account {
    /// The account now; with `children`, with those of the children that it has waited for.
    fn of(pid: i32, children: bool) -> Option<Self> {
        let own = sys::cpu_time_of(pid).ok()?;
        if !children {
            return Some(Self { used: own, started: 0 });
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let [of_children, started] = children_and_start(&stat)?;
        Some(Self { used: own.saturating_add(of_children), started })
    }

    /// Returns whether the process still has its account.
    fn is_still(&self, pid: i32) -> bool {
        Self::of(pid, true).is_some_and(|now| now.started == self.started)
    }
}

/// Nanoseconds of a tick, in which files of `/proc` have times.
const TICK_NS: u64 = 10_000_000;

/// User and system time of the children that a process has waited for, in ns, and when it started,
/// in ticks.
///
/// Spec: proc_pid_stat(5), `cutime`, `cstime` and `starttime`: fields 16, 17 and 22, the second of
/// which is the name in brackets.
fn children_and_start(stat: &str) -> Option<[u64; 2]> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(16 - 3);
    let mut ticks = |skipped| fields.nth(skipped)?.parse::<u64>().ok();
    let used = ticks(0)?.saturating_add(ticks(0)?).saturating_mul(TICK_NS);
    Some([used, ticks(22 - 17 - 1)?])
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
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 5 6 7 8 11 12 13 14 20 0 1 0 99 4096";
        assert_eq!(children_and_start(stat), Some([27 * TICK_NS, 99]));
        assert_eq!(children_and_start("7 (a) S 1"), None);
        let stat = "cpu  2646879 1338710 845002 245368 3991 1 20 300 4 5\ncpu0 1";
        assert_eq!(machine_time_in(stat, 5, 3), Some(321 * TICK_NS));
        assert_eq!(machine_time_in(stat, 3, 2), Some(249_359 * TICK_NS));
        assert_eq!(machine_time_in("intr 5", 5, 3), None);
    }

    #[test]
    fn a_process_that_goes_on_has_an_account() {
        let own = std::process::id().cast_signed();
        let clocks = Clocks::begin(&[own], false);
        let used = || Account::of(own, false).expect("an account").used;
        let start = used();
        while used() < start + 5_000_000 {}
        assert!(clocks.since(&[own], 0) >= 5_000_000);
    }

    #[test]
    fn a_thread_has_an_account_of_its_own() {
        let pid = std::process::id().cast_signed();
        let link = std::fs::read_link("/proc/thread-self").expect("a link");
        let tid = link.file_name().and_then(|tid| tid.to_str()?.parse().ok()).expect("a number");
        let mut clock = ThreadClock::begin(pid, tid).expect("an account");
        while clock.since(0) < 5_000_000 {
            assert!(clock.look(0));
        }
        assert!(clock.look(0));
        assert!(ThreadClock::begin(pid, NOBODY).is_none());
        let mut gone = ThreadClock { tid: NOBODY, ..clock };
        let before = gone.since(0);
        assert!(before >= 5_000_000 && !gone.look(70) && gone.since(0) == before);
        let gone = ThreadClock { looked: Reading { taken_away: u64::MAX, ..gone.looked }, ..gone };
        assert_eq!(gone.since(70), before + 70, "perf's clock continues");
    }

    /// No process has a number above 2²².
    const NOBODY: i32 = (1 << 22) + 1;

    #[test]
    fn perf_s_clock_continues_the_accounts_of_processes_that_have_ended() {
        // The last look was at 1,000 of perf's clock.
        let taken_away = u64::MAX;
        let clocks = Clocks {
            children: true,
            processes: vec![NOBODY],
            made: BTreeMap::new(),
            began: reading(10, 0, taken_away),
            looked: reading(1_005, 1_000, taken_away),
            waited_for: 0,
        };
        assert_eq!(clocks.since(&[], 1_000), 995);
        assert_eq!(clocks.since(&[NOBODY], 1_060), 1_055);
        let mut later = clocks;
        later.look(&[], 1_060);
        assert_eq!(later.looked.counted, 1_000, "there was nothing to look at");
    }

    fn reading(accounts: u64, counted: u64, taken_away: u64) -> Reading {
        Reading { accounts, counted, taken_away, at: 0 }
    }

    #[test]
    fn accounts_that_are_missing_are_perf_s() {
        let taken_away = u64::MAX;
        let clocks = Clocks {
            children: false,
            processes: vec![NOBODY],
            made: BTreeMap::new(),
            began: reading(10, 0, taken_away),
            looked: reading(30, 20, taken_away),
            waited_for: 0,
        };
        assert_eq!(clocks.since(&[], 0), 20);
        assert_eq!(clocks.since(&[], 21), 21);
        let of_one_not_waited_for = Reading { counted: 900, ..clocks.looked };
        let clocks = Clocks { looked: of_one_not_waited_for, ..clocks };
        assert_eq!(clocks.since(&[], 900), 900);
        let stolen = reading(10, 0, 0);
        let clocks = Clocks { began: stolen, ..clocks };
        assert_eq!(clocks.since(&[], 900.min(super::taken_away())), 20);
    }

    #[test]
    fn a_child_counts_whether_it_goes_on_has_ended_or_was_waited_for() {
        let own = std::process::id().cast_signed();
        let mut clocks = Clocks::begin(&[own], true);
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; read line";
        let mut command = std::process::Command::new("sh");
        let command = command.args(["-c", script]).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let pid = child.id().cast_signed();
        let within_a_minute = |is: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !is() {
                assert!(start.elapsed().as_secs() < 60, "the shell is not that far");
            }
        };
        let used = || Account::of(pid, true).expect("an account").used;
        within_a_minute(&|| used() >= 40_000_000 && state(pid) == 'S');
        clocks.look(&[own, pid], 0);
        let live = clocks.since(&[own, pid], 0);
        assert!(live >= 40_000_000);
        drop(child.stdin.take());
        within_a_minute(&|| state(pid) == 'Z');
        // It is among those that go on no more.
        assert!(clocks.since(&[own], 0) >= live);
        clocks.look(&[own], 0);
        assert!(clocks.made.contains_key(&pid));
        assert!(child.wait().is_ok());
        // Waited for, its time is in ticks.
        let after = clocks.since(&[own], 0);
        assert!(after + 2 * TICK_NS >= live, "{live} {after}");
        clocks.look(&[own], 0);
        assert!(clocks.made.is_empty());
        // Another process has its number.
        clocks.made.insert(std::os::unix::process::parent_id().cast_signed(), 1);
        assert!(clocks.with_made(&[own], || Some(0)).made.is_empty());
    }

    fn state(pid: i32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).expect("a state")
    }
}
