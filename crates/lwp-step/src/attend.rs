//! Requests to a program that is being stepped, and the time that it has.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lwp_process::sys;
use lwp_vcpu::{Attended, Request};

const SIGTERM: i32 = 15;

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

    /// Sends to the program, if it has begun and not ended.
    fn to_first(&self, send: impl FnOnce(i32)) {
        let first = *lock(&self.first);
        let processes = lock(&self.processes);
        if let Some(pid) = first.filter(|pid| processes.contains(pid)) {
            send(pid);
        }
    }
}

impl Attended for Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
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

    fn send(&self, signal: i32) {
        for pid in &*lock(&self.processes) {
            let _ = sys::kill(*pid, signal);
        }
    }
}

/// Ends the work of [`lwp_vcpu::attend`] when it is dropped, by a panic too.
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
