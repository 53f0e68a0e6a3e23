//! Guards pages by removing write permission, if the kernel doesn't allow userfaultfd(2): under a
//! container's filter, and on kernels before 5.11.
//!
//! The first write to a guarded page faults, which stops the thread. The host disconnects the
//! page's fragments, makes the thread restore the page's protection, and lets it repeat the write.
//! Only the program's own threads can change its protection, so the host also has to stop a thread
//! to guard a page.
//!
//! The program must not notice any of this:
//!
//! | it would see | so |
//! | --- | --- |
//! | a fault that doesn't happen natively | the host doesn't deliver it |
//! | the action for SIGSEGV reset, if the signal was blocked or ignored | the host restores it |
//! | EFAULT of system calls | see [`super::kernel_writes`] |
//! | several mappings in place of one | the host first releases pages, at mremap(2) and the like |
//! | the protection in `/proc/PID/maps` | the host's version shows what the program has set |
//! | all this in the child of a fork | the child's pages are guarded from the beginning |
//!
//! When the host reads mappings for its own use, it also replaces the protection by the program's:
//! [`lwp_code::guards::as_set`].

use lwp_arch::insn;
use lwp_calls::syscalls::{self, Pending};
use lwp_code::guards::{Means, Notices, Protection, Source, State};
use lwp_process::inject::{Call, Injector};
use lwp_process::maps::PAGE;
use lwp_process::maps::{self, Status};
use lwp_process::sys::{Errno, SigInfo};
use lwp_process::{Tid, memory};

use super::{Guarding, about_to_be_written};
use crate::machine::{Machine, Mode, Tasks};
use crate::setup::find_syscall;

const EIO: i32 = 5;
const SYS_MPROTECT: u64 = 10;
const SYS_RT_SIGACTION: u64 = 13;
const READ_EXECUTE: u64 = 5;
const READ_WRITE_EXECUTE: u64 = 7;
const SIGSEGV: u64 = 11;
const SIGSEGV_BIT: u64 = 1 << (SIGSEGV - 1);
/// The `si_code` of a fault at a page that is there and protected.
const SEGV_ACCERR: i32 = 2;

/// The calls that guard pages and release others.
#[derive(Debug, Default)]
struct Changes {
    guarded: Vec<u64>,
    released: Vec<u64>,
}

impl Changes {
    fn calls(&self) -> Vec<Call> {
        let protect = |page: &u64, prot| [SYS_MPROTECT, *page, PAGE, prot, 0, 0, 0];
        let guarded = self.guarded.iter().map(|page| protect(page, READ_EXECUTE));
        guarded.chain(self.released.iter().map(|page| protect(page, READ_WRITE_EXECUTE))).collect()
    }
}

impl Tasks {
    /// Returns whether a thread beside `tid` is making a call that changes the mapping of a page.
    fn is_being_changed(&self, tid: Tid, page: u64) -> bool {
        let base = self.base_space(tid);
        let touches = |call: &Pending| {
            // The fifth argument is not kept: a mapping may be moved anywhere.
            let moves = call.number == syscalls::nr::MREMAP;
            let [from, _] = syscalls::touches(call, 0);
            moves || from.0 < page + PAGE && page < from.1
        };
        self.threads.iter().any(|(other, thread)| {
            thread.pending.as_ref().is_some_and(touches) && self.base_space(*other) == base
        })
    }

    /// Notes the action for SIGSEGV that a thread has set.
    pub fn note_fault_action(&mut self, tid: Tid, at: u64) {
        let Some(thread) = self.threads.get(&tid) else { return };
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.fault_action = FaultAction::read(tid, at);
        }
    }
}

impl Guarding<'_> {
    /// Guards the pages of the code at `pc`, and gives others their own protection back. The thread
    /// stands still.
    pub fn guard_code(&mut self, tid: Tid, pc: u64) -> Result<(), Errno> {
        let Some(notices) = self.caches.of(self.tasks).protecting(tid) else { return Ok(()) };
        let code = self.caches.space_of(self.tasks, tid).and_then(|(space, _)| space.code.at(pc));
        let mut guarded = code.map_or_else(Vec::new, |(_, code)| notices.to_guard(pc, code.end));
        // The thread asks again.
        guarded.retain(|page| !self.tasks.is_being_changed(tid, *page));
        self.change_protection(tid, &notices, guarded, &Status::read(tid))?;
        Ok(())
    }

    /// A call is about to change mappings in `ranges`: it is to find, and to leave, the program's
    /// own protection there.
    pub(super) fn release_touched(&mut self, notices: &Notices, ranges: [(u64, u64); 2]) {
        if notices.protection().is_none() {
            return;
        }
        for page in ranges.into_iter().flat_map(|range| notices.leave_guarded(range)) {
            self.cut_off_page(notices.key, page);
            notices.unprotect(page);
        }
    }

    /// Gives released pages their own protection back. The thread stands still. Returns whether
    /// it has made calls for that.
    pub fn unprotect_now(&mut self, tid: Tid) -> Result<bool, Errno> {
        match self.caches.of(self.tasks).protecting(tid) {
            Some(notices) if notices.has_released() => {
                self.change_protection(tid, &notices, Vec::new(), &Status::read(tid))
            }
            _ => Ok(false),
        }
    }

    fn change_protection(
        &mut self,
        tid: Tid,
        notices: &Notices,
        guarded: Vec<u64>,
        status: &Status,
    ) -> Result<bool, Errno> {
        let Some(protection) = notices.protection() else { return Ok(false) };
        if guarded.is_empty() && !notices.has_released() {
            return Ok(false);
        }
        // Pages are taken off the list by a thread that is there to see to them.
        let stack = self.tracees.regs(tid)?.0.rsp;
        let site = protection.site(tid).ok_or(Errno::ESRCH)?;
        let released = protection.take_released();
        let changes = Changes { guarded, released };
        let mut injector = Injector::new(self.tracees, tid, site, status);
        let calls = changes.calls();
        if let Some((_, family)) = self.caches.space_of(self.tasks, tid)
            && calls.len() > 1
        {
            injector.use_batch(family.routine(family.translator.routines().batch), stack);
        }
        let made = injector.calls(&calls);
        let Ok(results) = made else {
            // Another thread will see to it, unless this one is there and cannot.
            protection.keep_released(changes.released);
            return Err(self.tracees.regs(tid).map_or_else(|error| error, |_| Errno(EIO)));
        };
        notices.note_guarded(&changes.guarded, &results);
        Ok(true)
    }

    /// Puts back the action for SIGSEGV, and that it was blocked, where the kernel has reset both
    /// for a fault of ours.
    pub fn restore_action(&mut self, tid: Tid, status: &Status) -> Result<(), Errno> {
        let thread = self.tasks.threads.get(&tid).ok_or(Errno::ESRCH)?;
        let process = self.tasks.processes.get(&thread.pid).ok_or(Errno::ESRCH)?;
        let Some(action) = process.fault_action else { return Ok(()) };
        let has = |name| status.signals(name).is_some_and(|set| set & SIGSEGV_BIT != 0);
        let (reset, blocked) = match action.handler() {
            FaultAction::DEFAULT => (false, false),
            FaultAction::IGNORE => (!has("SigIgn:"), false),
            _ => (!action.is_once() && !has("SigCgt:"), true),
        };
        if !reset {
            return Ok(());
        }
        let at = self.contexts.context(thread.slot).write_scratch(&action.0);
        let notices = self.caches.of(self.tasks).protecting(tid);
        let site = notices
            .and_then(|notices| notices.protection()?.site(tid))
            .or_else(|| find_syscall(tid, &maps::read(tid)).ok());
        let mut injector = Injector::new(self.tracees, tid, site.ok_or(Errno::ESRCH)?, status);
        let _ = injector.call([SYS_RT_SIGACTION, SIGSEGV, at, 0, 8, 0, 0]);
        drop(injector);
        if blocked {
            self.tracees.set_sigmask(tid, self.tracees.sigmask(tid)? | SIGSEGV_BIT)?;
        }
        Ok(())
    }

    /// A copy of an address space has been made by fork for `child`: its pages are guarded as those
    /// of the original, whose notices `source` has.
    pub fn inherit_guards(&mut self, child: Tid, source: &Source) {
        let Source::Given(original) = source else { return };
        let Some(_) = original.protection() else { return };
        let known = original.known_pages();
        if known.is_empty() {
            return;
        }
        let unasked = self.caches.of(self.tasks).unasked_of(child);
        let means = Means::Protection(Protection::default());
        let Some(notices) = self.caches.notices.add(means, unasked) else { return };
        let mappings = maps::read(child);
        let protected = |page: &u64| {
            let at = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(page));
            at.is_some_and(|mapping| mapping.execute && !mapping.write)
        };
        notices.inherit(original, known.into_iter().filter(protected));
        self.give_notices(child, Source::Given(notices));
    }
}

/// The action that a program has set for SIGSEGV, as rt_sigaction(2) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAction([u8; 32]);

impl FaultAction {
    const DEFAULT: u64 = 0;
    const IGNORE: u64 = 1;

    /// The one at `address`.
    pub fn read(tid: Tid, address: u64) -> Option<Self> {
        memory::read_array(tid, address).ok().map(Self)
    }

    /// That of a program which was started with SIGSEGV ignored; none of another.
    pub fn inherited(status: &Status) -> Option<Self> {
        let mut action = [0; 32];
        action[0] = Self::IGNORE as u8;
        status.signals("SigIgn:").filter(|set| set & SIGSEGV_BIT != 0).map(|_| Self(action))
    }

    fn word(&self, index: usize) -> u64 {
        u64::from_le_bytes(self.0[index * 8..][..8].try_into().expect("eight bytes"))
    }

    fn handler(&self) -> u64 {
        self.word(0)
    }

    /// Returns whether the kernel resets it when the signal is delivered.
    fn is_once(&self) -> bool {
        const SA_RESETHAND: u64 = 0x8000_0000;
        self.word(1) & SA_RESETHAND != 0
    }
}

/// Lets a write to a guarded page happen that has stopped a thread by SIGSEGV. False where the
/// fault is the program's own.
pub fn write_fault(machine: &mut Machine, tid: Tid) -> Result<bool, Errno> {
    let Some(notices) = machine.caches.of(&machine.tasks).protecting(tid) else { return Ok(false) };
    let fault = &machine.tracees.siginfo(tid)?;
    if fault.code() != SEGV_ACCERR {
        return Ok(false);
    }
    let page = fault.address() & !(PAGE - 1);
    let Some(state) = notices.state_of(page) else { return Ok(false) };
    let status = Status::read(tid);
    if state == State::Guarded {
        about_to_be_written(machine, &notices, page);
        if notices.pauses() {
            machine.caches.notices.note_pause();
        }
    } else if !notices.is_released(page) && !can_be_written_now(machine, tid, fault)? {
        return Ok(false);
    }
    machine.guarding().change_protection(tid, &notices, Vec::new(), &status)?;
    machine.guarding().restore_action(tid, &status)?;
    Ok(true)
}

/// Returns whether the write that `fault` is of succeeds by now: another thread has seen to that.
/// An instruction that is fetched where nothing can be executed raises the same fault.
fn can_be_written_now(machine: &Machine, tid: Tid, fault: &SigInfo) -> Result<bool, Errno> {
    let mappings = maps::read(tid);
    let at = mappings.iter().find(|it| (it.start..it.end).contains(&fault.address()));
    let fetched =
        fault.address().wrapping_sub(machine.tracees.regs(tid)?.0.rip) < insn::LONGEST as u64;
    Ok(at.is_some_and(|it| it.write && (it.execute || !fetched)))
}

/// Has a thread whose write has been let happen go on, in its `mode`.
pub fn write_again(machine: &Machine, tid: Tid, mode: Mode) -> Result<(), Errno> {
    match mode {
        Mode::Stepping { .. } => machine.tracees.single_step(tid),
        Mode::Calling { .. } => machine.tracees.cont_syscall(tid),
        _ => machine.tracees.cont(tid, 0),
    }
}

/// Gives pages their protection back at the stop before a signal is delivered, which stays the one
/// that `info` describes.
pub fn unprotect_for_signal(machine: &mut Machine, tid: Tid, info: &SigInfo) -> Result<(), Errno> {
    match machine.guarding().unprotect_now(tid)? {
        true => machine.tracees.set_siginfo(tid, info),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read() {
        let mut bytes = [0; 32];
        bytes[0] = 1;
        bytes[11] = 0x80;
        let action = FaultAction(bytes);
        assert_eq!((action.handler(), action.is_once()), (FaultAction::IGNORE, true));
        let ignored = Status::of("SigIgn:\t0000000000000400\n");
        assert_eq!(FaultAction::inherited(&ignored).map(|it| it.handler()), Some(1));
        assert_eq!(FaultAction::inherited(&Status::of("SigIgn:\t0000000000000001\n")), None);
    }
}
