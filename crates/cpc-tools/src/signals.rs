//! Signals that end the run: its totals are printed first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::failure::Failure;

/// The signals that end a run, unless this process was started with them ignored.
pub const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// A flag that is true once a signal has requested the end.
#[derive(Clone, Debug, Default)]
pub struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// Answers signals from here on.
    ///
    /// # Errors
    ///
    /// A handler cannot be installed.
    pub fn answer() -> Result<Self, Failure> {
        let interrupted = Self::default();
        for signal in answered() {
            signal_hook::flag::register(signal, Arc::clone(&interrupted.0))
                .map_err(|error| Failure::new(format!("signal handlers: {error}")))?;
        }
        Ok(interrupted)
    }

    /// Returns whether one came.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Those of [`ENDING`] that are not ignored.
pub fn answered() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ENDING.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}
