//! Samples where the kernel refuses to take them: lwp traces the program, and stops a thread for a
//! moment when it has taken enough CPU time.
//!
//! lwp looks at the scheduler's accounts of all threads every now and then, at random. A thread
//! that runs is stopped by `PTRACE_INTERRUPT`; its registers and the top of its stack are read, and
//! it goes on. Threads that sleep are left alone, because the stop would interrupt their system
//! call.
//!
//! A stop shows no function of the kernel, but whether the thread came out of a system call: then
//! the kernel had its time.

mod attach;
mod bell;
mod pace;
mod priority;
mod release;
mod rest;
mod seat;
mod status;
mod thread;
mod trap;
mod trial;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lwp_perf::{Modes, Record, Rings, Trap};
use lwp_process::sys;
use lwp_process::{Stop, Tracee};
use rustc_hash::FxHashMap;

use crate::samples::{Samples, Stopped};
use crate::{Error, now_ns};
use bell::{Bell, soon};
use pace::{Pace, Progress};
use priority::Raised;
use rest::Rest;
use seat::Seat;
use status::{Status, comm};
use thread::{Accounts, Look, Met, Stood, Thread, is_ignored};

pub(crate) use attach::{attach, start, threads};
pub(crate) use trial::{Trial, measure};

/// Events at which tracees stop. A tracee survives its tracer.
const EVENTS: i32 = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACESYSGOOD;

/// The part of the time that lwp looks at accounts for at most, one in so many.
const ONE_IN: u32 = 8;

/// lwp is woken in time if it runs so soon after.
const PROMPT: Duration = Duration::from_micros(150);

/// What stops have cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopSums {
    /// Stops for samples.
    pub samples: u64,
    /// Of these, stops where the thread had lost its processor before.
    pub waiting: u64,
    /// Stops because a thread began or ended, made another one, or executed a program, for signals,
    /// and those that came too late for a sample.
    pub events: u64,
    /// Threads whose event the kernel has refused: they have no samples.
    pub refused: u64,
    /// Nanoseconds of CPU time that lwp took while threads stood at their events.
    pub stood_ns: u64,
}

/// A process under control.
#[derive(Debug, Default)]
struct Process {
    threads: BTreeMap<i32, Thread>,
    /// Its mappings, as they were read last, and when.
    maps: Vec<u8>,
    read_ns: u64,
}

/// The way in which stops are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// CPU time between two samples of a thread, in ns.
    pub period_ns: u64,
    /// Bytes of a stack that are read at first; 0 if stacks are left out.
    pub stack_bytes: usize,
    /// Processes that the program makes are sampled too.
    pub children: bool,
    /// Threads are stopped by events of the kernel's clock in these modes, and not by lwp.
    pub traps: Option<Modes>,
    /// Threads stand still until their samples are taken in.
    pub still: bool,
}

/// A program that is sampled by stops. The thread that made this traces it.
#[derive(Debug)]
pub(crate) struct Stops {
    plan: Plan,
    bell: Bell,
    pace: Pace,
    next_look: Instant,
    on: bool,
    seat: Seat,
    first: i32,
    /// The first process's wait status, once it has ended.
    status: Option<i32>,
    processes: BTreeMap<i32, Process>,
    /// The process of each thread.
    pids: FxHashMap<i32, i32>,
    /// Events that stop threads.
    traps: FxHashMap<i32, Trap>,
    /// Records of switches, if there are any.
    rings: Option<Rings>,
    /// Signals that threads block which are let go of, if a signal of lwp's has to come first.
    masks: FxHashMap<i32, u64>,
    /// CPU time of threads that have ended, in ns.
    spent: u64,
    /// CPU time that threads had used before they were sampled, in ns.
    before: u64,
    sums: StopSums,
    /// The program began before, and does not inherit it.
    _priority: Raised,
}

impl Stops {
    /// Controls a program that stands at the end of its exec, traced by the calling thread, until
    /// it is let [`go`](Self::go).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn begin(pid: i32, plan: Plan, samples: &mut Samples<'_>) -> Result<Self, Error> {
        let mut stops = Self::of(pid, plan)?;
        let traced = sys::set_options(pid, EVENTS);
        traced.map_err(|errno| Error::call("tracing the program", errno))?;
        stops.add(pid, pid);
        stops.executed(pid, samples);
        Ok(stops)
    }

    /// No thread of `pid` yet.
    fn of(pid: i32, plan: Plan) -> Result<Self, Error> {
        let listens = |errno| Error::call("listening for stops", errno);
        Ok(Self {
            plan,
            bell: Bell::new().map_err(listens)?,
            pace: Pace::new(plan.period_ns, now_ns()),
            next_look: Instant::now(),
            on: true,
            seat: Seat::new(),
            first: pid,
            status: None,
            processes: BTreeMap::new(),
            pids: FxHashMap::default(),
            traps: FxHashMap::default(),
            rings: None,
            masks: FxHashMap::default(),
            spent: 0,
            before: 0,
            sums: StopSums::default(),
            _priority: Raised::begin(),
        })
    }

    /// Has switches of the program's threads recorded, which has not begun yet.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn record_switches(&mut self, mut rings: Rings) -> Result<(), Error> {
        rings.add_thread(self.first)?;
        self.rings = Some(rings);
        Ok(())
    }

    /// Takes in the switches before `until`, if they are recorded.
    pub fn read_switches(&mut self, samples: &mut Samples<'_>, until: u64) {
        if let Some(rings) = &mut self.rings {
            samples.read_switches(rings, until);
        }
    }

    /// Lets the program begin.
    pub fn go(&self) {
        let _ = Tracee(self.first).cont(0);
    }

    /// The stops so far.
    pub fn sums(&self) -> StopSums {
        self.sums
    }

    /// CPU time of all threads by their own accounts, in ns.
    pub fn count(&self) -> u64 {
        let live = self.processes.values().flat_map(|process| process.threads.values());
        let all = live.map(|thread| thread.used).fold(self.spent, u64::saturating_add);
        all.saturating_sub(self.before)
    }

    /// Takes no more samples. The program stays traced.
    pub fn disable(&mut self) {
        self.on = false;
        if let Some(rings) = &self.rings {
            // Whatever was recorded can still be read.
            let _ = rings.disable();
        }
        self.traps.clear();
        self.look_at_clocks();
    }

    /// Waits for stops until it is time to look again, attends to them, and has threads stop that
    /// are due.
    ///
    /// # Errors
    ///
    /// Nothing is left to wait for, and the program's end was not seen.
    pub fn turn(&mut self, samples: &mut Samples<'_>) -> Result<(), Error> {
        let left = self.next_look.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            self.bell.wait(left);
        }
        self.attend(samples)?;
        let looks = self.on && self.plan.traps.is_none();
        if looks && self.status.is_none() && Instant::now() >= self.next_look {
            let start = Instant::now();
            let late = start.saturating_duration_since(self.next_look);
            let look = Look {
                period_ns: self.plan.period_ns,
                alone: self.seat.is_only_one(),
                prompt: late < PROMPT,
            };
            let asked = self.look(look);
            let now = Progress { samples: self.sums.samples, used_ns: self.count() };
            self.next_look = start + self.pace.pause(now).max(start.elapsed() * ONE_IN);
            if asked {
                soon(|| self.attend(samples).map_or_else(|e| Some(Err(e)), |()| self.answered()))
                    .unwrap_or(Ok(()))?;
            }
        } else if !looks {
            let switches = self.rings.is_some() && self.on;
            let pause = if switches { samples.patience() } else { Duration::from_millis(20) };
            self.next_look = Instant::now() + pause;
        }
        Ok(())
    }

    /// The first process's wait status, if it has ended.
    pub fn status(&self) -> Option<i32> {
        self.status
    }

    /// `Some` once no thread is asked to stop any more.
    fn answered(&self) -> Option<Result<(), Error>> {
        let mut threads = self.processes.values().flat_map(|process| process.threads.values());
        (!threads.any(|thread| thread.asked)).then_some(Ok(()))
    }

    /// Attends to all stops that there are.
    fn attend(&mut self, samples: &mut Samples<'_>) -> Result<(), Error> {
        while self.status.is_none() {
            match sys::wait_any_of_thread() {
                Ok(Some((tid, status))) => self.stopped(tid, status, samples),
                Ok(None) => break,
                Err(errno) => return Err(Error::call("waiting for the program", errno)),
            }
        }
        Ok(())
    }

    /// Has threads stop that are due. Returns whether there are any.
    fn look(&mut self, look: Look) -> bool {
        let mut any = false;
        let mut missed = false;
        for (pid, process) in &mut self.processes {
            for (tid, thread) in &mut process.threads {
                let Some(met) = thread.look((*pid, *tid), look) else {
                    missed |= thread.was_missed(look.period_ns);
                    continue;
                };
                thread.asked = sys::interrupt(*tid).is_ok();
                any |= thread.asked;
                self.sums.waiting += u64::from(thread.asked && met == Met::Waiting);
            }
        }
        if missed {
            self.seat.change(self.pace.random());
        }
        any
    }

    /// A thread has stopped or ended.
    fn stopped(&mut self, tid: i32, status: i32, samples: &mut Samples<'_>) {
        let stop = Stop::from_status(status);
        // Whatever stops a thread takes the place of a stop that was asked for.
        let asked = self.answer(tid);
        self.sums.events += 1;
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.sums.events -= 1;
                self.remove(tid);
                if tid == self.first {
                    self.status = Some(status);
                }
            }
            Stop::Interrupted => self.interrupted(tid, asked, samples),
            Stop::Group(_) => {
                self.cancel_rest(tid);
                Tracee(tid).leave_call_to_kernel(stop);
                let _ = sys::listen(tid);
            }
            Stop::Signal(signal) => match trap::by_event(tid, signal) {
                Some(by_event) => self.trapped(tid, by_event, samples),
                None => {
                    Tracee(tid).leave_call_to_kernel(stop);
                    self.signalled(tid, signal);
                }
            },
            Stop::Child => {
                let new = sys::event_message(tid).ok().and_then(|new| i32::try_from(new).ok());
                if let Some(new) = new {
                    self.appeared(new, tid, samples);
                }
                let _ = sys::cont(tid, 0);
            }
            Stop::Exec => {
                self.executed(tid, samples);
                let _ = sys::cont(tid, 0);
            }
            Stop::Exiting => {
                self.exiting(tid, samples);
                let _ = sys::cont(tid, 0);
            }
            Stop::Syscall => self.in_call(tid, asked),
            Stop::Other(_) => self.go_on(tid),
        }
    }

    /// A thread gets a signal. If it does nothing with it, natively it would not even know.
    fn signalled(&mut self, tid: i32, signal: i32) {
        let pid = self.pids.get(&tid).copied().unwrap_or(tid);
        let rest = Tracee(tid).regs().ok().and_then(|regs| Rest::of(pid, &regs));
        let waits = self.thread(tid).is_some_and(|thread| thread.rest.is_some());
        if (waits || rest.is_some()) && !is_ignored(pid, signal) {
            self.cancel_rest(tid);
        } else if let (Some(rest), Some(thread)) = (rest, self.thread(tid)) {
            thread.rest = rest.begin(tid);
        }
        match self.thread(tid) {
            Some(thread) => thread.go_on(tid, signal),
            None => drop(sys::cont(tid, signal)),
        }
    }

    /// A thread stands at the beginning or the end of a call that writes the rest. If it was asked
    /// to stop meanwhile, that call was cut short too.
    fn in_call(&mut self, tid: i32, asked: bool) {
        let pid = self.pids.get(&tid).copied().unwrap_or(tid);
        if let Some(thread) = self.thread(tid)
            && let Some(rest) = &mut thread.rest
            && !rest.stands(tid)
        {
            let regs = Tracee(tid).regs().ok().filter(|_| asked);
            thread.rest = regs.and_then(|regs| Rest::of(pid, &regs)?.begin(tid));
        }
        self.go_on(tid);
    }

    /// A thread has begun; or it has stopped for a sample; or its group goes on.
    fn interrupted(&mut self, tid: i32, asked: bool, samples: &mut Samples<'_>) {
        if !self.pids.contains_key(&tid) && !self.appeared(tid, 0, samples) {
            let _ = sys::detach(tid, 0);
            return;
        }
        let pid = self.pids.get(&tid).copied().unwrap_or(tid);
        match self.thread(tid).map(|thread| thread.stack_bytes).filter(|_| asked && self.on) {
            Some(stack_bytes) => {
                let met = self.thread(tid).is_some_and(|thread| thread.was_met(pid, tid));
                if met {
                    self.sums.events -= 1;
                    self.sums.samples += 1;
                }
                if self.rings.is_some() {
                    samples.off.threads.stands(tid, now_ns());
                }
                let stood = Stood::look(tid, Stop::Interrupted, stack_bytes);
                if let (Some(stood), Some(thread)) = (&stood, self.thread(tid))
                    && thread.rest.is_none()
                {
                    thread.rest = stood.rest(pid, tid);
                }
                if !self.plan.still {
                    self.go_on(tid);
                }
                if let Some(stood) = stood.filter(|_| met) {
                    self.sample((pid, tid), &stood, samples);
                }
                if self.plan.still {
                    self.go_on(tid);
                }
            }
            None => {
                Tracee(tid).leave_call_to_kernel(Stop::Interrupted);
                self.go_on(tid);
            }
        }
    }

    fn thread(&mut self, tid: i32) -> Option<&mut Thread> {
        let pid = self.pids.get(&tid)?;
        self.processes.get_mut(pid)?.threads.get_mut(&tid)
    }

    /// Lets a thread go on.
    fn go_on(&mut self, tid: i32) {
        match self.thread(tid) {
            Some(thread) => thread.go_on(tid, 0),
            None => drop(sys::cont(tid, 0)),
        }
    }

    /// A thread stops for something else before it writes the rest of what it was to write.
    fn cancel_rest(&mut self, tid: i32) {
        if let Some(rest) = self.thread(tid).and_then(|thread| thread.rest.take()) {
            rest.cancel(tid);
        }
    }

    /// A thread stands still. Returns whether it was asked to.
    fn answer(&mut self, tid: i32) -> bool {
        self.thread(tid).is_some_and(|thread| std::mem::take(&mut thread.asked))
    }

    fn sample(&mut self, (pid, tid): (i32, i32), stood: &Stood, samples: &mut Samples<'_>) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let now = now_ns();
            if process.is_stale(now, Some(samples.knows(pid, stood.ip()))) {
                process.read_maps(pid, now, samples);
            }
        }
        if let Ok(name) = comm(pid, tid) {
            samples.threads.named(pid, tid, name.to_string_lossy().into_owned());
        }
        let registers = stood.registers().filter(|_| self.plan.stack_bytes > 0);
        let ended = samples.stopped(Stopped {
            pid,
            tid,
            ip: stood.ip(),
            in_call: stood.is_in_call(),
            registers,
            stack: &stood.stack,
            still: self.plan.still,
        });
        let period_ns = self.plan.period_ns;
        if let Some(thread) = self.thread(tid) {
            thread.sampled = thread.sampled.saturating_add(period_ns);
            thread.was_cut(ended.cut);
        }
        if ended.lost
            && let Some(process) = self.processes.get_mut(&pid)
            && process.is_stale(now_ns(), None)
        {
            process.read_maps(pid, now_ns(), samples);
        }
    }

    fn add(&mut self, pid: i32, tid: i32) {
        let used = used(pid, tid).unwrap_or(0);
        let stack_bytes = self.plan.stack_bytes;
        let thread = Thread::new(used, stack_bytes);
        self.processes.entry(pid).or_default().threads.insert(tid, thread);
        self.pids.insert(tid, pid);
        self.set_trap(tid);
    }

    fn remove(&mut self, tid: i32) {
        self.traps.remove(&tid);
        let Some(pid) = self.pids.remove(&tid) else { return };
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let used = process.threads.remove(&tid).map_or(0, |thread| thread.used);
        self.spent = self.spent.saturating_add(used);
        if process.threads.is_empty() {
            self.processes.remove(&pid);
        }
    }

    /// A thread is new, made by `maker`, or by one that is not known yet. Returns whether it is
    /// sampled.
    fn appeared(&mut self, tid: i32, maker: i32, samples: &mut Samples<'_>) -> bool {
        if self.pids.contains_key(&tid) {
            return true;
        }
        let Some(status) = Status::of(tid) else { return false };
        let pid = status.process;
        let is_thread = self.processes.contains_key(&pid);
        if !is_thread && !self.plan.children {
            return false;
        }
        let maker = match (is_thread, self.pids.get(&maker)) {
            (true, _) => (pid, if maker > 0 { maker } else { pid }),
            (false, Some(process)) => (*process, maker),
            (false, None) => (status.parent, status.parent),
        };
        self.add(pid, tid);
        let record = Record::Fork { pid_tid: ids((pid, tid)), parent: ids(maker) };
        samples.take_in(now_ns(), record);
        true
    }

    /// A process executes another program. Of its threads one is left, which has the first one's
    /// number now.
    fn executed(&mut self, pid: i32, samples: &mut Samples<'_>) {
        let caller = sys::event_message(pid).ok().and_then(|tid| i32::try_from(tid).ok());
        // What it has used so far goes with it.
        let left = caller.and_then(|tid| Some(self.thread(tid)?.executed()));
        let process = self.processes.entry(pid).or_default();
        let all: Vec<i32> = process.threads.keys().copied().collect();
        all.into_iter().for_each(|tid| self.remove(tid));
        match left {
            Some(thread) => {
                // A new entry, without the old mappings.
                let process = Process { threads: [(pid, thread)].into(), ..Process::default() };
                self.processes.insert(pid, process);
                self.pids.insert(pid, pid);
                self.set_trap(pid);
            }
            None => self.add(pid, pid),
        }
        let name = comm(pid, pid).unwrap_or_default();
        samples.take_in(now_ns(), Record::Comm { pid_tid: ids((pid, pid)), name, exec: true });
    }

    /// A thread is about to end: its accounts can be read for the last time.
    fn exiting(&mut self, tid: i32, samples: &mut Samples<'_>) {
        self.traps.remove(&tid);
        let Some(pid) = self.pids.get(&tid).copied() else { return };
        if let (Some(used), Some(thread)) = (used(pid, tid), self.thread(tid)) {
            thread.used = used;
            thread.asked = true;
        }
        if let Ok(name) = comm(pid, tid) {
            samples.threads.named(pid, tid, name.to_string_lossy().into_owned());
        }
        samples.take_in(now_ns(), Record::Exit { pid_tid: ids((pid, tid)) });
    }
}

/// Mappings are read again after this time, if a stack could not be walked.
const STALE_NS: u64 = 50_000_000;
/// Mappings are read again after this time in any case.
const OLD_NS: u64 = 1_000_000_000;

impl Process {
    /// Returns whether mappings must be read again: they were never read, are old, or don't have
    /// the code that a thread is in; without that, whether they are not the newest.
    fn is_stale(&self, now: u64, known: Option<bool>) -> bool {
        let age = now.saturating_sub(self.read_ns);
        match known {
            Some(known) => self.maps.is_empty() || !known || age >= OLD_NS,
            None => age >= STALE_NS,
        }
    }

    fn read_maps(&mut self, pid: i32, now: u64, samples: &mut Samples<'_>) {
        self.read_ns = now;
        let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        if maps != self.maps && !maps.is_empty() {
            samples.threads.space(pid).replace(&maps);
            self.maps = maps;
        }
    }
}

/// CPU time of a thread in ns.
fn used(pid: i32, tid: i32) -> Option<u64> {
    Accounts::of(pid, tid).map(|accounts| accounts.used)
}

/// Process and thread, as records have them.
fn ids((pid, tid): (i32, i32)) -> (u32, u32) {
    (pid.cast_unsigned(), tid.cast_unsigned())
}

/// Returns whether this kernel has the accounts of threads that samples are paced by.
pub(crate) fn has_accounts() -> bool {
    let pid = std::process::id().cast_signed();
    used(pid, pid).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_again_when_they_may_have_changed() {
        let fresh = Process { maps: vec![1], read_ns: 10, ..Process::default() };
        assert!(!fresh.is_stale(20, Some(true)) && fresh.is_stale(20, Some(false)));
        assert!(fresh.is_stale(10 + OLD_NS, Some(true)));
        assert!(!fresh.is_stale(20, None) && fresh.is_stale(10 + STALE_NS, None));
        assert!(Process::default().is_stale(20, Some(true)));
    }
}
