//! Requests to a program that is being stepped, and the time that it has.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lwp_ptrace::sys;
use lwp_vcpu::{Control, Request};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// The interval between checks whether the program has ended.
const TICK: Duration = Duration::from_millis(20);
/// From SIGTERM to SIGKILL, as on the virtual CPU.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the tracer and the thread that attends to requests share.
#[derive(Debug)]
pub struct Shared {
    /// What retires is counted.
    counting: AtomicBool,
    over: AtomicBool,
    first: Mutex<Option<i32>>,
    processes: Mutex<BTreeSet<i32>>,
}

impl Shared {
    /// Nothing has been started.
    pub fn new(counting: bool) -> Self {
        Self {
            counting: AtomicBool::new(counting),
            over: AtomicBool::new(false),
            first: Mutex::default(),
            processes: Mutex::default(),
        }
    }

    /// Returns whether what retires is counted.
    pub fn counts(&self) -> bool {
        self.counting.load(Ordering::Relaxed)
    }

    /// A process has begun. Returns whether it is the program.
    pub fn begin(&self, pid: i32) -> bool {
        let is_first = *lock(&self.first).get_or_insert(pid) == pid;
        lock(&self.processes).insert(pid) && is_first
    }

    /// A process has ended: its number may be another's.
    pub fn end(&self, pid: i32) {
        lock(&self.processes).remove(&pid);
    }

    /// Answers requests and minds the time until the run is over.
    pub fn attend(&self, control: Option<Control>, timeout: Option<Duration>) {
        let mut end = timeout.map(|timeout| (Instant::now() + timeout, SIGTERM));
        while !self.over.load(Ordering::Relaxed) {
            match control.as_ref().map(|control| control.requests.recv_timeout(TICK)) {
                Some(Ok(request)) => {
                    self.answer(request);
                    if let Some(control) = &control {
                        let _ = control.done.send(request);
                    }
                }
                Some(Err(RecvTimeoutError::Timeout)) => {}
                Some(Err(RecvTimeoutError::Disconnected)) | None => std::thread::sleep(TICK),
            }
            if let Some((time, signal)) = end
                && Instant::now() >= time
            {
                self.to_all(signal);
                end = (signal == SIGTERM).then_some((time + PATIENCE, SIGKILL));
            }
        }
    }

    fn answer(&self, request: Request) {
        match request {
            Request::Enable => self.counting.store(true, Ordering::Relaxed),
            Request::Disable => self.counting.store(false, Ordering::Relaxed),
            Request::Stop => self.to_first(|pid| {
                let _ = sys::kill(pid, SIGTERM);
            }),
            Request::Signal(info) => self.to_first(|pid| {
                let _ = sys::send_as(pid, &info);
            }),
            // Neither is asked for: `unsupported` says so before.
            Request::Heard | Request::Report => {}
        }
    }

    /// Sends to the program, if it has begun and not ended.
    fn to_first(&self, send: impl FnOnce(i32)) {
        let first = *lock(&self.first);
        let processes = lock(&self.processes);
        if let Some(pid) = first.filter(|pid| processes.contains(pid)) {
            send(pid);
        }
    }

    fn to_all(&self, signal: i32) {
        for pid in &*lock(&self.processes) {
            let _ = sys::kill(*pid, signal);
        }
    }
}

/// Ends the work of [`Shared::attend`] when it is dropped, by a panic too.
#[derive(Debug)]
pub struct Finish<'a>(pub &'a Shared);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
