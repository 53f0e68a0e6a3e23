//! A process that runs already, traced from now on by the calling thread.
//!
//! Tracing stops no thread by itself. If this process ends, in whatever way, the kernel lets go of
//! all threads, and those that stand for a sample go on.

use lwp_perf::Rings;
use lwp_process::{spawn::threads_of, sys};

use super::{EVENTS, Plan, Stops};
use crate::Error;

impl Stops {
    /// Traces all threads of a process that runs. `rings` are records of their switches, if there
    /// are any.
    ///
    /// # Errors
    ///
    /// There is no such process, or it may not be traced, or somebody else traces it.
    pub fn attach(pid: i32, plan: Plan, rings: Option<Rings>) -> Result<Self, Error> {
        let mut stops = Self { rings, ..Self::of(pid, plan)? };
        // A thread that is made meanwhile is traced by its maker's option, or found by another look.
        loop {
            let known = stops.pids.len();
            for tid in threads_of(pid).map_err(|_| Error::NoProcess(pid))? {
                stops.seize(pid, tid)?;
            }
            if stops.pids.len() == known {
                break;
            }
        }
        match stops.pids.is_empty() {
            true => Err(Error::NoProcess(pid)),
            false => Ok(stops),
        }
    }

    /// Traces a thread, if it is not traced yet and has not ended.
    fn seize(&mut self, pid: i32, tid: i32) -> Result<(), Error> {
        if self.pids.contains_key(&tid) {
            return Ok(());
        }
        match sys::seize(tid, EVENTS) {
            Ok(()) => {
                self.add(pid, tid);
                self.before += self.thread(tid).map_or(0, |thread| thread.used);
                Ok(())
            }
            // It will stop and be met; a first thread that is traced is somebody else's.
            Err(sys::Errno(libc::EPERM)) if !self.pids.is_empty() => Ok(()),
            Err(sys::Errno(libc::ESRCH)) => Ok(()),
            Err(errno) => Err(Error::NoStops(errno)),
        }
    }

    /// The threads that are traced.
    pub fn threads(&self) -> Vec<i32> {
        self.pids.keys().copied().collect()
    }
}
