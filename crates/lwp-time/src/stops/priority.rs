//! The priority of the thread that stops others.
//!
//! A stopped thread stands until lwp gets a processor, and a thread that runs is met only while lwp
//! has one too. On a busy machine lwp goes first, if it may: CAP_SYS_NICE allows it.
//!
//! Promise: R149

use rustix::process::{getpriority_process, setpriority_process};

/// The highest priority of those that share processors by turns.
///
/// Spec: setpriority(2).
const HIGHEST: i32 = -20;

/// The calling thread's priority is raised until this is dropped.
#[derive(Debug)]
pub(crate) struct Raised {
    before: i32,
}

impl Raised {
    /// Raises it, where that is allowed. Whoever the thread makes has that priority too.
    pub fn begin() -> Self {
        let before = getpriority_process(None).unwrap_or(0);
        // Without permission it stays as it is.
        let _ = setpriority_process(None, HIGHEST);
        Self { before }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let _ = setpriority_process(None, self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_is_raised_for_a_time() {
        let now = || getpriority_process(None).expect("a priority");
        let before = now();
        let raised = Raised::begin();
        assert!([before, HIGHEST].contains(&now()));
        drop(raised);
        assert_eq!(now(), before);
    }
}
