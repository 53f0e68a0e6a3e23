//! The line to a run in progress: several threads ask, one virtual CPU answers in order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use lwp_vcpu::config::{Control, Request};
use lwp_vcpu::{ProcessReport, SigInfo};

/// Requests to whichever run is in progress.
///
/// With `-r` one run follows another; requests between two runs are dropped, save that a stop is
/// remembered, also by [`crate::signals::Interrupted`].
#[derive(Debug, Default)]
pub struct Requests {
    sender: Mutex<Option<Sender<Request>>>,
    done: Mutex<Option<Receiver<Request>>>,
    /// The end has been asked for.
    stopped: AtomicBool,
    /// Signals for the next run.
    signals: Mutex<Vec<SigInfo>>,
}

impl Requests {
    /// Connects to a new run, whose end of the line is returned.
    pub fn connect(&self) -> Control {
        let (sender, requests) = mpsc::channel();
        let (done, acknowledgements) = mpsc::channel();
        let mut current = lock(&self.sender);
        if self.stopped.load(Ordering::Relaxed) {
            let _ = sender.send(Request::Stop);
        }
        for info in lock(&self.signals).drain(..) {
            let _ = sender.send(Request::Signal(info));
        }
        *current = Some(sender);
        drop(current);
        *lock(&self.done) = Some(acknowledgements);
        Control { requests, done, reports: None }
    }

    /// Connects to a new run that reports its counts while it runs; the receiver gets the reports.
    pub fn connect_reporting(&self) -> (Control, Receiver<Vec<ProcessReport>>) {
        let (reports, received) = mpsc::channel();
        (Control { reports: Some(reports), ..self.connect() }, received)
    }

    /// Ends the connection.
    pub fn disconnect(&self) {
        *lock(&self.sender) = None;
    }

    /// The sending end for the current run only: what is sent through it after that run's end is
    /// lost, and cannot reach the next one.
    pub fn current(&self) -> Option<Sender<Request>> {
        lock(&self.sender).clone()
    }

    /// Asks for `request` and waits until it has taken effect. False if the run is over.
    pub fn ask(&self, request: Request) -> bool {
        let done = lock(&self.done);
        let sent = self.current().is_some_and(|sender| sender.send(request).is_ok());
        let Some(done) = done.as_ref().filter(|_| sent) else {
            return false;
        };
        // Requests that nobody waited for are acknowledged before ours.
        done.iter().any(|acknowledged| acknowledged == request)
    }

    /// Asks for the end of the run, or of the next one if there is none yet, and waits for nothing.
    pub fn stop(&self) {
        let current = lock(&self.sender);
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(sender) = &*current {
            let _ = sender.send(Request::Stop);
        }
    }

    /// Has the run pass a signal on to its program. False if there is none: the next one does then.
    pub fn pass_on(&self, info: SigInfo) -> bool {
        let current = lock(&self.sender);
        let passed = current.as_ref().is_some_and(|it| it.send(Request::Signal(info)).is_ok());
        if !passed {
            lock(&self.signals).push(info);
        }
        passed
    }

    /// Asks for `request` and waits for nothing.
    pub fn send(&self, request: Request) {
        if let Some(sender) = self.current() {
            let _ = sender.send(request);
        }
    }
}

/// Locks `mutex`; no holder of these locks leaves its value half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ask_waits_for_its_own_acknowledgement() {
        let requests = Requests::default();
        let control = requests.connect();
        requests.stop();
        let machine = crate::threads::start("machine", move || {
            let seen: Vec<Request> = control.requests.iter().take(2).collect();
            for request in &seen {
                control.done.send(*request).unwrap();
            }
            seen
        })
        .unwrap();
        assert!(requests.ask(Request::Enable));
        assert_eq!(machine.join().unwrap(), [Request::Stop, Request::Enable]);
    }

    #[test]
    fn nothing_waits_for_a_run_that_is_over() {
        let requests = Requests::default();
        assert!(!requests.ask(Request::Enable));
        drop(requests.connect());
        assert!(!requests.ask(Request::Enable));
        let stale = requests.current().unwrap();
        let next = requests.connect();
        assert!(stale.send(Request::Stop).is_err());
        assert!(next.requests.try_recv().is_err());
        requests.disconnect();
        requests.send(Request::Disable);
        assert!(requests.connect().requests.try_recv().is_err());
    }

    #[test]
    fn an_end_that_was_asked_for_early_ends_the_run_that_begins() {
        let requests = Requests::default();
        requests.stop();
        let control = requests.connect();
        assert_eq!(control.requests.try_recv(), Ok(Request::Stop));
    }
}
