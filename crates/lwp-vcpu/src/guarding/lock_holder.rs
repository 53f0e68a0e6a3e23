//! Finds out whether the holder of the machine's lock itself waits for a write to a guarded page.
//!
//! Usually the holder continues, and the write waits until the lock is free, which may take long on
//! a busy machine. But the holder may be waiting for a thread to stop that can't stop before the
//! write is done: the writer itself, if the kernel writes for it, or a thread that needs a kernel
//! lock that the writer has. Waiting time alone doesn't distinguish the two cases.

use std::time::{Duration, Instant};

use lwp_process::Tid;
use lwp_process::kernel_files::{self, Own, Who};
use lwp_process::tracee::awaited;

/// A thread that is not the writer is out of reach after it has been so for this long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for the holder, whatever it does.
const LONGEST: Duration = Duration::from_secs(20);
/// A thread that is to stop and has run for so many hundredths of a second since is in the kernel,
/// which tries the write again and again.
const RUN: u64 = 2;

/// The holder of the lock, as the writer sees it.
#[derive(Debug)]
pub struct Holder {
    writer: Tid,
    began: Instant,
    /// The wait that the holder is in: its number, since when its thread has not been on its way,
    /// and the processor time that this one had then.
    wait: Option<(u64, Instant, u64)>,
}

impl Holder {
    pub fn new(writer: Tid) -> Self {
        Self { writer, began: Instant::now(), wait: None }
    }

    /// Returns whether the holder may wait for the write.
    pub fn waits(&mut self) -> bool {
        if self.began.elapsed() > LONGEST {
            return true;
        }
        // A write of the host's own: nothing else has one of its threads sleep so.
        if doing(Own, &format!("task/{}/stat", self.writer)).is_some_and(|it| it.0 == 'D') {
            return true;
        }
        let Some((tid, number)) = awaited() else { return false };
        let Some((state, ran)) = doing(tid, "stat") else { return false };
        let known = self.wait.filter(|wait| wait.0 == number);
        let (_, since, before) = *self.wait.insert(known.unwrap_or((number, Instant::now(), ran)));
        if !matches!(state, 'S' | 'D') && ran < before + RUN {
            // It stops as soon as it has a processor.
            self.wait = Some((number, Instant::now(), before));
            return false;
        }
        tid == self.writer || since.elapsed() > PATIENCE
    }
}

/// The state of a thread, and the processor time that it has had, in hundredths of a second.
fn doing(who: impl Who, stat: &str) -> Option<(char, u64)> {
    let text = kernel_files::text(who, stat).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    let mut times = fields.skip(10).map_while(|field| field.parse::<u64>().ok());
    Some((state, times.next()? + times.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_waits_for_nobody_is_waited_for() {
        let mut holder = Holder::new(1);
        assert!(!holder.waits());
        holder.began = Instant::now().checked_sub(LONGEST + PATIENCE).expect("a time");
        assert!(holder.waits(), "but not for ever");
    }

    #[test]
    fn states_and_times_are_read() {
        let link = std::fs::read_link("/proc/thread-self").expect("proc");
        let own = format!("task/{}/stat", link.file_name().expect("a number").display());
        let (state, before) = doing(Own, &own).expect("proc");
        assert_eq!(state, 'R');
        let ran = || doing(Own, &own).expect("proc").1;
        while ran() < before + RUN {}
        assert_eq!(doing(0, "stat"), None);
    }
}
