//! Delivers the threshold interrupt to the program.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use lwp_process::{Tid, Tracees, kernel_files};
use lwp_run::config::{Interrupt, LwpConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::machine::Tasks;

impl Tasks {
    /// Delivers the threshold interrupts that have been raised for a thread, as `config` says.
    pub(super) fn lwp_interrupt(
        &mut self,
        tracees: &dyn Tracees,
        tid: Tid,
        config: Option<&LwpConfig>,
    ) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let pid = thread.pid;
        let Some(lwp) = &mut thread.lwp else { return };
        if std::mem::take(&mut lwp.unit.surroundings.interrupts) == 0 {
            return;
        }
        match config.map(|config| config.interrupt) {
            Some(Interrupt::Thread(signal)) if handles(tid, signal) => {
                lwp.interrupted = tracees.send(pid, tid, signal).is_ok();
            }
            Some(Interrupt::Process(signal)) if handles(tid, signal) => {
                let _ = tracees.kill(pid, signal);
            }
            Some(Interrupt::EventFd(number)) => {
                if let Err(reason) = add_one(pid, number) {
                    say_once(pid, number, &reason);
                }
            }
            _ => {}
        }
    }
}

/// Returns whether the program has a handler for `signal`. The default action of most would end it.
fn handles(tid: Tid, signal: i32) -> bool {
    let caught = lwp_process::maps::Status::read(tid).signals("SigCgt:").unwrap_or(0);
    (1..=64).contains(&signal) && caught >> (signal - 1) & 1 != 0
}

/// Adds one to the eventfd that a process has as descriptor `number`. It is looked up each time:
/// programs close descriptors and put others in their place.
pub fn add_one(pid: i32, number: i32) -> Result<(), String> {
    let theirs = descriptor_of(pid, number).map_err(|error| error.to_string())?;
    // Eight bytes written to anything else would be damage.
    let link = format!("fd/{}", theirs.as_raw_fd());
    let what = kernel_files::link(kernel_files::Own, &link).unwrap_or_default();
    if what.as_os_str() != "anon_inode:[eventfd]" {
        return Err(format!("it is {}", what.display()));
    }
    // One that stands at its maximum has woken whoever waits. Its program may have made it block.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let writable = poll(&mut [PollFd::new(&theirs, PollFlags::OUT)], Some(&now));
    if writable == Ok(0) {
        return Ok(());
    }
    File::from(theirs).write_all(&1u64.to_ne_bytes()).map_err(|error| error.to_string())
}

fn descriptor_of(pid: i32, number: i32) -> rustix::io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    pidfd_getfd(&process, number, PidfdGetfdFlags::empty())
}

fn say_once(pid: i32, number: i32, reason: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        lwp_terminal::say!(
            "lwp: descriptor {number} of process {pid} is no eventfd ({reason}): threshold interrupts \
             are not delivered to it; make one with eventfd(2) and dup2(2) before profiling begins"
        );
    }
}
