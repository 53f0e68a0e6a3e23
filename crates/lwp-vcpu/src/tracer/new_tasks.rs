//! New threads and processes.

use std::fs;

use lwp_calls::syscalls::{Held, Pending, nr};
use lwp_dbt::{Layout, Slot};
use lwp_mailbox::contexts::FileId;
use lwp_mailbox::memory_map::{CONTEXTS_AT, CONTEXTS_BYTES, NAME_TAG_AT, slot_at, slot_offset};
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Status};
use lwp_process::regs::{Raw, Regs};
use lwp_process::sys::{Common, Errno};
use lwp_process::{Stop, Tid, view};

use super::context_handover::{Flags, contexts_for, has_in_common};
use super::thread_exit::release;
use super::{Handled, SIGKILL, controlled_processes, retranslate, sigaction_order, trap_flag};
use crate::dumpable;
use crate::machine::{Machine, Mode, Moving, Process};
use crate::resource_limits::within_limit;
use crate::server::{put_back_held, remove_entries};
use crate::setup;
use crate::setup::{find_syscall, path_of};

const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;
const EXIT: u64 = 60;

/// The thread that has made another.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    pub tid: Tid,
    /// Its context slot, while it lives.
    pub slot: Option<usize>,
    pub pid: i32,
}

/// A tracee that we have not been told of stands still: a new one, whose maker's event comes later
/// or, if the maker has been killed, never.
pub fn newcomer(machine: &mut Machine, tid: Tid, stop: Stop) -> Handled {
    if stop != Stop::Interrupted {
        return machine.tracees.cont(tid, 0);
    }
    if let Some(place) = machine.tasks.unwanted.iter().position(|unwanted| *unwanted == tid) {
        machine.tasks.unwanted.swap_remove(place);
        return end_unseen(machine, tid);
    }
    machine.tasks.newborn.push(tid);
    if maker_is_alive(machine, tid) { Ok(()) } else { orphaned(machine, tid) }
}

/// A thread has reported that it has made `child`. False where a process can have no more threads:
/// `child` ends before it executes anything, and its maker is to be told so.
pub fn reported(machine: &mut Machine, maker: Maker, child: Tid, regs: &Regs) -> bool {
    let waits = machine.tasks.newborn.iter().position(|newborn| *newborn == child);
    if let Some(waits) = waits {
        machine.tasks.newborn.swap_remove(waits);
    }
    if adopt(machine, maker, child, regs) {
        // As a rule it asks for something soon, and finds the server awake.
        machine.contexts.doors.wake();
        if waits.is_some()
            && let Err(error) = begin(machine, child)
            && error != Errno::ESRCH
        {
            kill_without_contexts(machine, child, &error.to_string());
        }
        return true;
    }
    if !is_thread_of(maker.pid, child) {
        kill_without_contexts(machine, child, "there are too many processes");
        return true;
    }
    if waits.is_none() {
        machine.tasks.unwanted.push(child);
    } else if let Err(error) = end_unseen(machine, child) {
        kill_without_contexts(machine, child, &error.to_string());
    }
    false
}

fn is_thread_of(pid: i32, tid: Tid) -> bool {
    fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}

/// Ends a new thread, which stands still and has executed nothing yet.
fn end_unseen(machine: &Machine, tid: Tid) -> Handled {
    let site = find_syscall(tid, &maps::read(tid)).map_err(|_| Errno::ESRCH)?;
    // It is not to write to its maker's memory when it ends.
    let forget = Injector::new(&machine.tracees, tid, site, &Status::read(tid)).call([
        nr::SET_TID_ADDRESS,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    forget.map_err(|_| Errno::ESRCH)?;
    let mut regs = machine.tracees.regs(tid)?;
    (regs.0.rip, regs.0.rax, regs.0.rdi) = (site, EXIT, 0);
    regs.forget_syscall();
    machine.tracees.set_regs(tid, &regs)?;
    machine.tracees.cont(tid, 0)
}

/// Returns whether the process that has made `tid` is one of those that may still report it.
fn maker_is_alive(machine: &Machine, tid: Tid) -> bool {
    let status = Status::read(tid);
    let of = |field: &str| status.number(field).and_then(|pid| i32::try_from(pid).ok());
    [of("Tgid:"), of("PPid:")]
        .into_iter()
        .flatten()
        .any(|pid| pid != tid && machine.tasks.processes.contains_key(&pid))
}

/// Takes in the new tracees whose makers are gone: nobody will report them.
pub fn orphans(machine: &mut Machine) {
    for tid in machine.tasks.newborn.clone() {
        if let Err(error) = orphaned(machine, tid)
            && error != Errno::ESRCH
        {
            lwp_terminal::say!("lwp: process {tid}, whose maker is gone: {error}");
        }
    }
}

/// Takes in `tid` if its maker is gone. Its name tag still is its maker's, its gs base too, and its
/// registers are those of the call that made it.
fn orphaned(machine: &mut Machine, tid: Tid) -> Handled {
    let regs = machine.tracees.regs(tid)?;
    let gs = regs.0.gs_base;
    let mappings = maps::read(tid);
    let name_tag = mappings.iter().find(|mapping| mapping.start == NAME_TAG_AT);
    let local = slot_at(gs);
    let contexts = name_tag
        .filter(|_| local.is_some())
        .and_then(|mapping| machine.contexts.files.of_inode((mapping.device, mapping.inode)));
    let owner = contexts
        .zip(local)
        .and_then(|(file, local)| machine.contexts.slot_of(file, local))
        .and_then(|slot| machine.tasks.slots.get(slot).copied());
    if owner.is_some_and(|owner| machine.tasks.threads.contains_key(&owner)) {
        // It lives, and will report what it has made.
        return Ok(());
    }
    machine.tasks.newborn.retain(|other| *other != tid);
    let known = machine.tasks.processes.iter().chain(&machine.tasks.limbo);
    let mut makers = known.filter(|(_, process)| Some(process.contexts) == contexts);
    let adopted = match makers.next().map(|(pid, _)| *pid) {
        Some(pid) => adopt(machine, Maker { tid, slot: None, pid }, tid, &regs),
        None => false,
    };
    if adopted {
        return begin(machine, tid);
    }
    lwp_terminal::say!("lwp: process {tid} has no known maker and is killed");
    machine.tracees.kill(tid, SIGKILL)
}

/// Takes a new thread or process in. False where that is impossible.
pub fn adopt(machine: &mut Machine, maker: Maker, child: Tid, regs: &Regs) -> bool {
    let Maker { tid: maker, slot: from, pid } = maker;
    let regs = &as_of_64_bits(machine, maker, regs);
    let flags = match regs.0.orig_rax {
        nr::CLONE => Some(regs.0.rdi),
        nr::VFORK => Some(CLONE_VM),
        nr::FORK => Some(0),
        _ => None,
    };
    let is_thread = match flags {
        Some(flags) => flags & CLONE_THREAD != 0,
        // What it was told in memory may be something else by now.
        None => is_thread_of(pid, child),
    };
    let known = flags.map_or_else(
        || Flags::Told(lwp_process::memory::read_u64(maker, regs.0.rdi).ok()),
        Flags::Known,
    );
    let shares_memory = has_in_common(pid, child, known, Common::Memory);
    let child_pid = if is_thread { pid } else { child };
    let Some(process) = machine.tasks.processes.get(&pid).or(machine.tasks.limbo.get(&pid)) else {
        return false;
    };
    let process = *process;
    let makers = process.contexts;
    let shares_descriptors = !is_thread && has_in_common(pid, child, known, Common::Descriptors);
    let (contexts, moving) = match is_thread || shares_memory {
        true => (makers, Moving::Done),
        false => contexts_for(machine, child, makers, shares_descriptors),
    };
    let Some(slot) = machine.add_thread(child, child_pid, contexts) else { return false };
    if let Some(from) = from {
        machine.contexts.context(slot).inherit(machine.contexts.context(from));
    }
    if is_thread {
        sigaction_order::note_beside(machine, child);
    }
    // A call that the host has arranged leaves the child its maker's arguments, too.
    let mut arranged = machine.tasks.threads.get(&maker).and_then(|thread| thread.pending);
    if let Some(Pending { held: held @ Some(Held::Flags(..)), .. }) = &mut arranged
        && (is_thread || shares_memory)
    {
        // Their maker puts them back.
        *held = None;
    }
    if !is_thread {
        if contexts == makers {
            machine.contexts.files.enter(makers);
        }
        let made = Made { maker, pid, process, shares_memory };
        add_process(machine, child, made, contexts);
        machine.counting().inherit_contexts(maker, child);
    }
    machine.tasks.inherit_clock(maker, child);
    if let Some(index) = machine.tasks.space_index(child)
        && let Some(Some(space)) = machine.caches.spaces.get_mut(index)
    {
        space.code.tell_again();
    }
    machine.guarding().tell_guards_to(child);
    machine.guarding().made_by(maker, child, regs);
    // It starts in the code that its maker was in, which may be on another side by now; see
    // `begin`.
    let base = machine.tasks.base_space(child);
    let side = base.and_then(|base| machine.caches.side_at(base, regs.0.rip));
    let trapped = machine.tasks.threads.get(&maker).is_some_and(trap_flag::is_calling);
    if let Some(thread) = machine.tasks.threads.get_mut(&child) {
        thread.side = side;
        thread.pending = arranged;
        thread.signals.trapped = trapped;
        thread.moving = moving;
    }
    true
}

/// The registers of a call by which a thread has been made, as those of SYSCALL, where it is one of
/// INT 0x80.
fn as_of_64_bits(machine: &Machine, maker: Tid, regs: &Regs) -> Regs {
    let thread = machine.tasks.threads.get(&maker);
    match thread.map(|thread| (thread.mode, thread.pending)) {
        Some((Mode::Stepping { .. }, Some(call))) => {
            let ([rdi, rsi, rdx, _], r10) = (call.args, regs.0.rdi & 0xffff_ffff);
            Regs(Raw { orig_rax: call.number, rdi, rsi, rdx, r10, ..regs.0 })
        }
        _ => *regs,
    }
}

/// A process that has just been made.
struct Made {
    maker: Tid,
    /// The maker's process, and its id.
    process: Process,
    pid: i32,
    shares_memory: bool,
}

/// Adds a new process, whose first thread has been added.
fn add_process(machine: &mut Machine, child: Tid, made: Made, contexts: FileId) {
    let Process { space, report, .. } = made.process;
    let original = machine.caches.spaces.get(space).and_then(Option::as_ref);
    let notices = original.filter(|_| !made.shares_memory).map(|space| space.notices.clone());
    let space = match made.shares_memory {
        true => share(machine, space),
        false => copy(machine, child, space),
    };
    let (comm, command) = (
        machine.observers.reports[report].comm.clone(),
        machine.observers.reports[report].command.clone(),
    );
    let report = machine.observers.add_report(child, made.pid, comm, command);
    machine.observers.reports[report].maker = made.maker;
    let process = Process { space, report, contexts, has_room: false, ..made.process };
    machine.tasks.processes.insert(child, process);
    if let Some(raised) = machine.tasks.raised.0.get(&made.pid).copied() {
        machine.tasks.raised.0.insert(child, raised);
    }
    machine.guarding().inherit_guards(child, &notices.unwrap_or_default());
    machine.counting().inherit_bounds(child, child, made.maker);
}

fn share(machine: &mut Machine, space: usize) -> usize {
    if let Some(Some(shared)) = machine.caches.spaces.get_mut(space) {
        shared.users += 1;
    }
    space
}

fn copy(machine: &mut Machine, child: Tid, space: usize) -> usize {
    let Some(Some(original)) = machine.caches.spaces.get(space) else { return space };
    let Some(Some(family)) = machine.caches.families.get_mut(original.family) else { return space };
    let sides = original.sides.clone();
    let (mut forked, gone) = original.fork(family);
    if !gone.is_empty() {
        remove_entries(child, family, &gone);
    }
    for (selection, side) in sides {
        forked.sides.push((selection, copy(machine, child, side)));
    }
    machine.caches.add(forked)
}

/// A new tracee's first stop: gives it its own context.
pub fn begin(machine: &mut Machine, tid: Tid) -> Handled {
    if controlled_processes::holds_new(machine, tid) { Ok(()) } else { begin_now(machine, tid) }
}

/// A new tracee's first stop, even if somebody would like to have it held.
pub fn begin_now(machine: &mut Machine, tid: Tid) -> Handled {
    start(machine, tid)?;
    // Those that were there when a flush began have been stopped for it.
    if retranslate::concerns(machine, tid) {
        let _ = machine.tracees.interrupt(tid);
    }
    Ok(())
}

fn start(machine: &mut Machine, tid: Tid) -> Handled {
    let thread = machine.tasks.threads.get_mut(&tid).ok_or(Errno::ESRCH)?;
    thread.mode = Mode::Running;
    let trapped = std::mem::take(&mut thread.signals.trapped);
    let (pid, moving, side) = (thread.pid, thread.moving, thread.side);
    if pid == tid && !machine.config.program.follow_children {
        return let_go(machine, tid, "child processes are not followed");
    }
    if let Moving::Never(reason) = moving {
        return let_go(machine, tid, reason);
    }
    let mut regs = machine.tracees.regs(tid)?;
    // One that is not there was made by an instruction that its maker executed natively.
    let translated = machine.family_at(tid, regs.0.rip).is_some();
    if !translated {
        put_back_held(machine, tid, &mut regs);
        if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
            thread.pending = None;
        }
    }
    if moving == Moving::Itself
        && translated
        && side.is_none()
        && !trapped
        && view::is_shared_by(tid)
        && let Some(path) = short_path(machine, tid)
    {
        lead_in(machine, tid, &regs, path)?;
        return machine.tracees.cont(tid, 0);
    }
    if !settle_in(machine, tid, &regs)? {
        return Ok(());
    }
    machine.guarding().unprotect_now(tid)?;
    if trapped && translated {
        return trap_flag::begin(machine, tid, &regs);
    }
    if side.is_some() {
        return begin_unprofiled(machine, tid);
    }
    if !translated {
        setup::enter(machine, tid, &regs)?;
        return machine.tracees.cont(tid, 0);
    }
    let address = machine.context(tid).map_or(0, |context| context.address());
    machine.tracees.set_gs_base(tid, address)?;
    machine.tracees.cont(tid, 0)
}

/// The path by which `tid` opens its contexts, if it is one that [`lwp_dbt::routines::MoveIn`]
/// takes.
fn short_path(machine: &Machine, tid: Tid) -> Option<[u64; 3]> {
    let file = machine.contexts.files.get(machine.tasks.contexts_of(tid)?)?;
    let path = path_of(file.fd());
    let mut words = [0; 3];
    if path.len() > Layout::PATH_BYTES {
        return None;
    }
    for (word, bytes) in words.iter_mut().zip(path.as_bytes().chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    Some(words)
}

/// Leads a copy that fork has made to the routine that maps its contexts, and then to where it
/// stands.
fn lead_in(machine: &mut Machine, tid: Tid, regs: &Regs, path: [u64; 3]) -> Handled {
    let app = machine.view(tid, regs).ok_or(Errno::ESRCH)?.app;
    let (_, family) = machine.space_of(tid).ok_or(Errno::ESRCH)?;
    let start = family.routine(family.translator.routines().move_in.start);
    let contexts = machine.tasks.contexts_of(tid).ok_or(Errno::ESRCH)?;
    let file = machine.contexts.files.get(contexts).ok_or(Errno::ESRCH)?;
    let secret = file.secret();
    let mapped = machine.mapper().slots_for(tid);
    machine.caches.note_contexts(&machine.tasks, tid, mapped);
    let bytes = slot_offset(mapped);
    let context = machine.context(tid).ok_or(Errno::ESRCH)?;
    let app = &app.0;
    for (field, value) in [
        (Slot::Rax, app.rax),
        (Slot::Rcx, app.rcx),
        (Slot::Rdx, app.rdx),
        (Slot::Rbx, app.rbx),
        (Slot::Rsi, app.rsi),
        (Slot::Rdi, app.rdi),
        (Slot::R8, app.r8),
        (Slot::R9, app.r9),
        (Slot::R10, app.r10),
        (Slot::R11, app.r11),
        // Where it stands if it is stopped on the way.
        (Slot::Pc, app.rip),
        (Slot::ApplyCount, 0),
        (Slot::Go, regs.0.rip),
    ] {
        context.set(field, value);
    }
    let mut led = *regs;
    led.0.rip = start;
    led.0.gs_base = context.address();
    [led.0.r8, led.0.r9, led.0.r10] = path;
    (led.0.rdx, led.0.rbx) = (CONTEXTS_AT, bytes);
    (led.0.rdi, led.0.rsi) = (secret, CONTEXTS_BYTES);
    led.forget_syscall();
    machine.tracees.set_regs(tid, &led)
}

/// Has the contexts of a new tracee mapped while it stands still. False where that cannot be: the
/// tracee runs natively, or has been killed.
fn settle_in(machine: &mut Machine, tid: Tid, regs: &Regs) -> Result<bool, Errno> {
    let thread = machine.tasks.threads.get(&tid).ok_or(Errno::ESRCH)?;
    if thread.moving == Moving::Done {
        let mapped = within_limit(machine, tid, |machine| setup::grow_contexts(machine, tid));
        let Err(reason) = mapped else { return Ok(true) };
        kill_without_contexts(machine, tid, &reason);
        return Ok(false);
    }
    let mapped = setup::move_in(machine, tid, regs, None);
    has_moved(machine, tid);
    let Err(reason) = mapped else { return Ok(true) };
    let_go(machine, tid, &reason)?;
    Ok(false)
}

/// Returns whether a thread that has stopped, and goes on, may be in the routine which maps its
/// contexts.
pub fn is_moving(machine: &Machine, tid: Tid, stop: Stop) -> bool {
    let ends = matches!(stop, Stop::Exited(_) | Stop::Killed { .. } | Stop::Exiting);
    let thread = machine.tasks.threads.get(&tid);
    !ends
        && thread.is_some_and(|thread| {
            thread.moving != Moving::Done && !matches!(thread.mode, Mode::New)
        })
}

/// Has such a thread finish that first. False where there is nothing else to its stop.
pub fn finish_moving(machine: &mut Machine, tid: Tid) -> bool {
    let finished = moved(machine, tid).unwrap_or_else(|error| {
        if error != Errno::ESRCH {
            kill_without_contexts(machine, tid, &error.to_string());
        }
        false
    });
    has_moved(machine, tid);
    finished
}

/// A new process has its contexts.
fn has_moved(machine: &mut Machine, tid: Tid) {
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.moving = Moving::Done;
    }
}

fn moved(machine: &mut Machine, tid: Tid) -> Result<bool, Errno> {
    let mut regs = machine.tracees.regs(tid)?;
    let (_, family) = machine.space_of(tid).ok_or(Errno::ESRCH)?;
    let routines = family.translator.routines();
    let (move_in, go) = (routines.move_in, family.routine(routines.go));
    let at = family.routine_offset(regs.0.rip).unwrap_or(0);
    if !(move_in.start..=move_in.end).contains(&at) {
        return Ok(true);
    }
    let left_open = match at {
        at if at == move_in.opened => Some(regs.0.rax),
        at if at > move_in.opened && at < move_in.made => Some(regs.0.r8),
        _ => None,
    };
    regs.forget_syscall();
    machine.tracees.set_regs(tid, &regs)?;
    if let Err(reason) = setup::move_in(machine, tid, &regs, left_open) {
        has_moved(machine, tid);
        let_go(machine, tid, &reason)?;
        return Ok(false);
    }
    // All that it was made with is in its context.
    regs.0.rip = go;
    regs.0.gs_base = machine.context(tid).ok_or(Errno::ESRCH)?.address();
    machine.tracees.set_regs(tid, &regs)?;
    if at == move_in.end {
        machine.tracees.cont(tid, 0)?;
        return Ok(false);
    }
    Ok(true)
}

fn kill_without_contexts(machine: &Machine, tid: Tid, reason: &str) {
    // One that ends with its process reports that by itself.
    if machine.tracees.regs(tid).is_err() || reason.ends_with(&Errno::ESRCH.to_string()) {
        return;
    }
    lwp_terminal::say!(
        "lwp: process {tid} cannot have contexts of its own and is killed: {reason}"
    );
    let _ = machine.tracees.kill(tid, SIGKILL);
}

/// Profiling is off in a new thread or process, whose maker's is on: it leaves the maker's side.
fn begin_unprofiled(machine: &mut Machine, tid: Tid) -> Handled {
    let regs = machine.tracees.regs(tid)?;
    let Some(mut view) = machine.view(tid, &regs) else { return Err(Errno::ESRCH) };
    machine.leave(tid, &regs, &mut view);
    machine.change_side(tid, None);
    setup::enter(machine, tid, &view.app)?;
    machine.tracees.cont(tid, 0)
}

/// Lets a new child process run natively. It has nothing of ours that anybody else uses: contexts
/// are not copied by fork.
fn let_go(machine: &mut Machine, tid: Tid, reason: &str) -> Handled {
    let regs = machine.tracees.regs(tid)?;
    if let Some(view) = machine.view(tid, &regs) {
        let mut app = view.app;
        app.0.gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
        machine.tracees.set_regs(tid, &app)?;
    }
    if let Some(process) = machine.tasks.processes.get(&tid) {
        let report = process.report;
        machine.observers.reports[report].uncounted = Some(reason.into());
    }
    dumpable::tell_kernel(machine, tid);
    release(machine, tid)
}
