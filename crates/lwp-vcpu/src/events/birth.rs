//! New threads and processes.

use std::fs;

use lwp_dbt::Slot;
use lwp_ptrace::regs::Regs;
use lwp_ptrace::sys::{self, Errno};
use lwp_ptrace::{Stop, Tid, Tracee};

use super::departure::release;
use super::{Handled, SIGKILL};
use crate::machine::{Machine, Mode, Process, Thread};
use crate::maps::Status;
use crate::memory_map::{CONTEXTS_AT, CONTEXTS_BYTES, SLOT_BYTES, slot_address};
use crate::server::remove_entries;
use crate::syscalls::nr;

const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;

/// The thread that has made another.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    pub tid: Tid,
    pub slot: usize,
    pub pid: i32,
}

/// A tracee that we have not been told of stands still: a new one, whose maker's event comes later or,
/// if the maker has been killed, never. Its gs base still is its maker's, and its registers still
/// are those of the call that made it.
pub fn newcomer(machine: &mut Machine, tid: Tid, stop: Stop) -> Handled {
    if stop != Stop::Interrupted {
        return Tracee(tid).cont(0);
    }
    let regs = Tracee(tid).regs()?;
    let slot = match regs.0.gs_base.checked_sub(CONTEXTS_AT) {
        Some(offset) if offset < CONTEXTS_BYTES => (offset / SLOT_BYTES) as usize,
        _ => stepping_maker(machine, tid),
    };
    let owner = machine.slots.get(slot).copied().unwrap_or(0);
    let pid = match machine.threads.get(&owner) {
        Some(thread) => thread.pid,
        None => machine.slot_owner.get(&slot).copied().unwrap_or(0),
    };
    if adopt(machine, Maker { tid, slot, pid }, tid, &regs) {
        return begin(machine, tid);
    }
    eprintln!("lwp: process {tid} has no known maker and is killed");
    sys::kill(tid, SIGKILL)
}

/// The slot of the thread that has made `tid` by an instruction which was executed natively; 0 where there
/// is none.
fn stepping_maker(machine: &Machine, tid: Tid) -> usize {
    let status = Status::read(tid);
    let of = |field: &str| status.number(field).and_then(|pid| i32::try_from(pid).ok());
    let makers = [of("Tgid:"), of("PPid:")];
    let stepping = |thread: &&Thread| {
        matches!(thread.mode, Mode::Stepping { .. }) && makers.contains(&Some(thread.pid))
    };
    machine.threads.values().find(stepping).map_or(0, |thread| thread.slot)
}

/// Takes a new thread or process in. False where that is impossible.
pub fn adopt(machine: &mut Machine, maker: Maker, child: Tid, regs: &Regs) -> bool {
    let Maker { tid: maker, slot: from, pid } = maker;
    let flags = match regs.0.orig_rax {
        nr::CLONE => Some(regs.0.rdi),
        nr::VFORK => Some(CLONE_VM),
        nr::FORK => Some(0),
        _ => None,
    };
    let is_thread = match flags {
        Some(flags) => flags & CLONE_THREAD != 0,
        // What it was told in memory may be something else by now.
        None => fs::exists(format!("/proc/{pid}/task/{child}")).unwrap_or(false),
    };
    let shares_memory = match regs.0.orig_rax {
        nr::CLONE3 => lwp_ptrace::memory::read_u64(maker, regs.0.rdi).unwrap_or(0) & CLONE_VM != 0,
        _ => flags.is_some_and(|flags| flags & CLONE_VM != 0),
    };
    let child_pid = if is_thread { pid } else { child };
    let Some(slot) = machine.add_thread(child, child_pid) else { return false };
    machine.contexts.context(slot).inherit(machine.contexts.context(from));
    if !is_thread {
        let Some(process) = machine.processes.get(&pid).or(machine.limbo.get(&pid)) else {
            return false;
        };
        let (space, report) = (process.space, process.report);
        let space = if shares_memory { share(machine, space) } else { copy(machine, child, space) };
        let (comm, command) =
            (machine.reports[report].comm.clone(), machine.reports[report].command.clone());
        let report = machine.add_report(child, pid, comm, command);
        machine.reports[report].maker = maker;
        machine.processes.insert(child, Process { space, report });
    }
    if let Some(index) = machine.space_index(child)
        && let Some(Some(space)) = machine.spaces.get_mut(index)
    {
        space.tell_again();
    }
    // It starts in the code that its maker was in, which may be on another side by now; see `begin`.
    let side = machine.side_at(child, regs.0.rip);
    if let Some(thread) = machine.threads.get_mut(&child) {
        thread.side = side;
    }
    true
}

fn share(machine: &mut Machine, space: usize) -> usize {
    if let Some(Some(shared)) = machine.spaces.get_mut(space) {
        shared.users += 1;
    }
    space
}

fn copy(machine: &mut Machine, child: Tid, space: usize) -> usize {
    let Some(Some(original)) = machine.spaces.get(space) else { return space };
    let Some(Some(family)) = machine.families.get_mut(original.family) else { return space };
    let sides = original.sides.clone();
    let (mut forked, gone) = original.fork(family);
    if !gone.is_empty() {
        remove_entries(child, family, &gone);
    }
    for (selection, side) in sides {
        forked.sides.push((selection, copy(machine, child, side)));
    }
    machine.add_space(forked)
}

/// A new tracee's first stop: gives it its own context.
pub fn begin(machine: &mut Machine, tid: Tid) -> Handled {
    let Some(thread) = machine.threads.get_mut(&tid) else { return Err(Errno::ESRCH) };
    thread.mode = Mode::Running;
    let (slot, pid) = (thread.slot, thread.pid);
    if pid == tid && !machine.config.follow_children {
        return let_go(machine, tid);
    }
    if machine.threads.get(&tid).is_some_and(|thread| thread.side.is_some()) {
        return begin_unprofiled(machine, tid);
    }
    let regs = Tracee(tid).regs()?;
    if machine.family_at(tid, regs.0.rip).is_none() {
        // Made by an instruction that its maker executed natively.
        machine.enter(tid, &regs)?;
        return Tracee(tid).cont(0);
    }
    Tracee(tid).set_gs_base(slot_address(slot))?;
    machine.contexts.map_kept(tid, slot);
    Tracee(tid).cont(0)
}

/// Profiling is off in a new thread or process, whose maker's is on: it leaves the maker's side.
fn begin_unprofiled(machine: &mut Machine, tid: Tid) -> Handled {
    let regs = Tracee(tid).regs()?;
    let Some(mut view) = machine.view(tid, &regs) else { return Err(Errno::ESRCH) };
    machine.leave(tid, &regs, &mut view);
    machine.change_side(tid, None);
    machine.enter(tid, &view.app)?;
    Tracee(tid).cont(0)
}

/// Lets a new child process run natively: not followed.
fn let_go(machine: &mut Machine, tid: Tid) -> Handled {
    let regs = Tracee(tid).regs()?;
    if let Some(view) = machine.view(tid, &regs) {
        let mut app = view.app;
        app.0.gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
        Tracee(tid).set_regs(&app)?;
    }
    if let Some(process) = machine.processes.get(&tid) {
        let report = process.report;
        machine.reports[report].uncounted = Some("child processes are not followed".into());
    }
    release(machine, tid)
}
