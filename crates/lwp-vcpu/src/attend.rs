//! Runs a program that isn't on the virtual CPU: passes requests on, and enforces the time limit.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use lwp_run::config::{Control, Request};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// The interval between checks whether the program has ended.
const TICK: Duration = Duration::from_millis(20);
/// From SIGTERM to SIGKILL, as on the virtual CPU.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program that runs elsewhere.
pub trait Attended {
    /// Returns whether it has ended.
    fn is_over(&self) -> bool;

    /// Does what is requested.
    fn answer(&self, request: Request);

    /// Its time is over: sends it this signal.
    fn send(&self, signal: i32);
}

/// Answers requests, and ends the program when its time is over, until it has ended.
pub fn attend(to: &dyn Attended, control: Option<Control>, timeout: Option<Duration>) {
    let mut end = timeout.map(|timeout| (Instant::now() + timeout, SIGTERM));
    while !to.is_over() {
        match control.as_ref().map(|control| control.requests.recv_timeout(TICK)) {
            Some(Ok(request)) => {
                to.answer(request);
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
            to.send(signal);
            end = (signal == SIGTERM).then(|| (time + PATIENCE, SIGKILL));
        }
    }
}
