//! Substitutes for files in `/proc`: see [`lwp_calls::proc_files`].

use std::os::fd::AsRawFd;

use lwp_calls::limits::Raised;
use lwp_calls::proc_files::{ProcFiles, Processes};
use lwp_dbt::{PcSource, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::Tid;
use lwp_process::descriptors::flags_of;
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Status};

use crate::machine::{Machine, Need};
use crate::setup::{find_syscall, path_of};

const SYS_CLOSE: u64 = 3;
const SYS_DUP3: u64 = 292;
const O_CLOEXEC: u64 = 0o2_000_000;

impl Machine {
    /// Returns the files of `/proc`.
    pub fn proc_files(&self) -> ProcFiles<'_> {
        ProcFiles::new(self, &self.seen)
    }
}

impl Processes for Machine {
    fn context(&self, tid: Tid) -> Option<Context<'_>> {
        self.tasks.context(&self.contexts, tid)
    }

    fn siblings(&self, tid: Tid) -> Vec<Context<'_>> {
        let threads = &self.tasks.threads;
        let Some(pid) = self.process_of(tid) else { return Vec::new() };
        let siblings = threads.values().filter(|thread| thread.pid == pid);
        siblings.map(|thread| self.contexts.context(thread.slot)).collect()
    }

    fn process_of(&self, tid: Tid) -> Option<i32> {
        self.tasks.threads.get(&tid).map(|thread| thread.pid)
    }

    fn has(&self, tid: Tid) -> bool {
        self.tasks.threads.contains_key(&tid) || self.tasks.processes.contains_key(&tid)
    }

    fn threads(&self) -> Vec<Tid> {
        self.tasks.threads.keys().copied().collect()
    }

    fn processes(&self) -> Vec<i32> {
        self.tasks.processes.keys().copied().collect()
    }

    fn is_stopped(&self, tid: Tid) -> bool {
        self.tasks.threads.get(&tid).is_some_and(|thread| thread.signals.stopped)
    }

    fn raised(&self, pid: i32) -> Raised {
        self.tasks.raised.of(pid)
    }

    fn protected_pages(&self, tid: Tid) -> Vec<u64> {
        self.caches.of(&self.tasks).protected_pages(tid)
    }

    fn pc_behind_call(&self, tid: Tid, pc: u64) -> Option<u64> {
        let base = self.tasks.base_space(tid)?;
        let (state, _) = self.caches.family_at(base, pc)?.state_at(pc)?;
        match state.pc {
            PcSource::Known(pc) => Some(pc.0),
            PcSource::ContextNext => Some(self.context(tid)?.get(Slot::Next)),
            _ => None,
        }
    }

    fn shows_tracer(&self) -> bool {
        self.config.program.shows_tracer
    }
}

/// Puts the text that a stopped thread would read natively in the place of the file that it has
/// open at `fd`. It executes nothing meanwhile that a signal could interrupt.
pub fn hide_us(machine: &mut Machine, tid: Tid, fd: i32) -> Result<(), String> {
    let Some(stand) = machine.proc_files().stand_for(tid, fd)? else { return Ok(()) };
    let memory = stand.descriptor().as_raw_fd();
    let cloexec = flags_of(tid, fd).unwrap_or(0) & O_CLOEXEC;
    let context = machine.context(tid).ok_or("no such thread")?;
    let scratch = context.write_scratch(path_of(memory).as_bytes());
    let mappings = maps::read(tid);
    let site = find_syscall(tid, &mappings)?;
    let mut injector = Injector::new(&machine.tracees, tid, site, &Status::read(tid));
    let opened = injector.open(scratch, O_CLOEXEC);
    let new = opened.or_else(|_| injector.receive(memory, scratch))?;
    injector.call([SYS_DUP3, new, fd as u64, cloexec, 0, 0, 0])?;
    injector.call([SYS_CLOSE, new, 0, 0, 0, 0, 0])?;
    drop(injector);
    machine.seen.add(stand);
    machine.proc_files().watch(tid, fd, true);
    Ok(())
}

/// Has the text read that a thread is to find at `fd`, a file that shows us, and the tracer put it
/// there. Where that takes the kernel long, nobody else waits for it.
pub fn prepare_text(machine: &mut Machine, tid: Tid, fd: i32) {
    let wake = machine.errands.wake_tracer.clone();
    if !machine.proc_files().fetch(tid, fd, wake) {
        machine.ask_tracer(tid, Need::Hide(fd));
    }
}
