//! The tasks that the server gives to the tracer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use lwp_process::{Tid, sys};

use crate::tracer::passed_signals::Passing;

/// Threads and processes that the tracer has to look after.
#[derive(Debug)]
pub struct Errands {
    /// Threads that need the tracer.
    pub needy: Vec<Tid>,
    /// Processes that have written words which translated code cannot have written, with a
    /// description.
    pub forgeries: Vec<(i32, &'static str)>,
    /// Families whose modules have been laid out anew.
    pub improved: Vec<usize>,
    /// Signals that are passed on to the program.
    pub passing: Passing,
    /// An eventfd that wakes the tracer.
    pub wake_tracer: Arc<OwnedFd>,
}

impl Errands {
    /// Makes an empty list for the tracer that `wake_tracer` wakes.
    pub fn new(wake_tracer: Arc<OwnedFd>) -> Self {
        Self {
            needy: Vec::new(),
            forgeries: Vec::new(),
            improved: Vec::new(),
            passing: Passing::default(),
            wake_tracer,
        }
    }

    /// Wakes the tracer.
    pub fn wake(&self) {
        sys::event_signal(&self.wake_tracer);
    }
}
