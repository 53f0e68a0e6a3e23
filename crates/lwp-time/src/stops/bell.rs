//! News of tracees, with a limit on the time that is waited for them.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use lwp_process::sys::{self, ChildDisposition, Errno};

/// Rings whenever a tracee has stopped or ended.
#[derive(Debug)]
pub(crate) struct Bell {
    event: OwnedFd,
    before: ChildDisposition,
}

impl Bell {
    /// Listens from now on. There may be one at a time in a process.
    pub fn new() -> Result<Self, Errno> {
        let before = ChildDisposition::now();
        let event = sys::event_fd()?;
        sys::signal_child_events(&event)?;
        Ok(Self { event, before })
    }

    /// Sleeps until there may be news, or the time is up.
    pub fn wait(&self, timeout: Duration) {
        sys::wait_readable(&self.event, Some(timeout));
        sys::event_clear(&self.event);
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        sys::forget_child_events();
        self.before.restore();
    }
}

/// The time for which a stop that was asked for is waited for without sleeping.
const BRIEF: Duration = Duration::from_micros(60);

/// Asks for news again and again for a short time: a thread that runs stops within microseconds,
/// and is not to stand longer than that.
pub(crate) fn soon<T>(mut news: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let found = news();
        if found.is_some() || start.elapsed() >= BRIEF {
            return found;
        }
        std::thread::yield_now();
    }
}
