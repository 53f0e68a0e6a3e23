//! Sets up an address space: after exec, and when lwp attaches to a process.

use lwp_code::arena_placement::plan_arenas;
use lwp_code::family::{Family, Kind};
use lwp_code::space::Space;
use lwp_dbt::Slot;
use lwp_mailbox::contexts::ContextFile;
use lwp_mailbox::huge_table;
use lwp_process::auxiliary::Auxiliary;
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Mapping, Status};
use lwp_process::owner::Owner;
use lwp_process::regs::{CS_64, Regs};
use lwp_process::{Tid, sys};
use lwp_run::config::Target;

use crate::guarding::FaultAction;
use crate::machine::{Machine, Mode};
pub use arenas::{add_arena, settle_far};
pub use contexts::{grow_contexts, grow_contexts_to, move_in};
use families::family_for;
pub use families::flush;
pub use lwp_code::arena_placement::{Anchors, Reach};
pub use lwp_code::syscall_sites::{find_syscall, find_syscall_of_program};
pub use lwp_sides::add_side;
pub use mapping::path_of;
pub use start_values::settled_stack;

mod arenas;
mod contexts;
mod families;
mod lwp_sides;
mod mapping;
mod start_values;

const GIB: u64 = 1 << 30;
const SYS_CLOSE: u64 = 3;
const SYS_MUNMAP: u64 = 11;
const SYS_MADVISE: u64 = 28;
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MADV_DONTFORK: u64 = 10;
const MADV_DONTDUMP: u64 = 16;

/// The origin of an indirect table.
#[derive(Clone, Copy, Debug)]
pub enum Table {
    /// From a prepared one: its offset in the family's memory, and the bytes of its chain slots.
    Prepared((u64, u64)),
    /// From nowhere: it is an empty one in a huge page, and made by other calls than mappings.
    Huge,
    /// From the template: an empty one.
    Empty,
}

/// Sets up the address space of `tid`, which has just become a new program and is stopped at
/// its first instruction, and leads it into translated code.
pub fn set_up(machine: &mut Machine, tid: Tid, regs: &Regs) -> Result<(), String> {
    if regs.0.cs != CS_64 {
        return Err("32-bit program: only x86-64 programs can be translated".into());
    }
    let mappings = maps::read(tid);
    let launched = match machine.config.target {
        Target::Launch { .. } => Auxiliary::at_start(tid, regs.0.rsp),
        _ => None,
    };
    let anchors = launched.as_ref().map_or_else(|| Anchors::of(tid), Anchors::among);
    let site = find_syscall(tid, &mappings)?;
    let status = Status::read(tid);
    let owner = Owner::of(tid, &status);
    let (mut space, family, table) = new_space(machine, tid, owner, &mappings, anchors)?;
    if let Some(auxiliary) = &launched {
        machine.processor.adjust_auxv(&machine.config, tid, auxiliary);
    }
    let filtered = status.is_filtered();
    let table = match table {
        // A filter may kill for calls that it does not expect.
        Table::Empty if !filtered && huge_table::is_wanted(tid, &mappings) => Table::Huge,
        table => table,
    };
    let mut injector = Injector::new(&machine.tracees, tid, site, &status);
    let contexts = machine.tasks.contexts_of(tid).ok_or("no such process")?;
    machine.mapper().map_into(&mut injector, family, table, contexts, regs)?;
    drop(injector);
    space.contexts = machine.contexts.files.get(contexts).map_or(0, ContextFile::wanted);
    if filtered && let Some(context) = machine.context(tid) {
        context.set(Slot::NoSyscalls, 1);
        machine.tasks.filtered = true;
    }
    let index = machine.caches.add(space);
    let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
    if let Some(process) = machine.tasks.processes.get_mut(&pid) {
        process.space = index;
        process.fault_action = FaultAction::inherited(&status);
    }
    Ok(())
}

/// Makes the address space of a program of `owner` that has just begun, without mapping
/// anything. Returns it with the number of its family and its first table.
pub fn new_space(
    machine: &mut Machine,
    tid: Tid,
    owner: Owner,
    mappings: &[Mapping],
    anchors: Anchors,
) -> Result<(Space, usize, Table), String> {
    let mut arenas = plan_arenas(mappings, anchors);
    if let Some(most) = machine.config.trials.arena_bytes {
        const LEAST: u64 = 1 << 20;
        let most = most.min(GIB).next_multiple_of(LEAST).max(LEAST);
        arenas.iter_mut().for_each(|(_, bytes, _)| *bytes = most.min(*bytes));
    }
    let kind = Kind { basis: machine.observers.first_basis(&machine.config), owner, arenas };
    let family = family_for(machine, kind)?;
    machine.tasks.forget_cuts(&machine.contexts);
    let mut space = Space::new(family, machine.caches.usual_arenas(family));
    let table = match machine.caches.families.get_mut(family) {
        Some(Some(family)) => space.begin(family, tid, mappings),
        _ => None,
    };
    let table = table.map(|it| Table::Prepared((it.offset, it.chain_bytes)));
    Ok((space, family, table.unwrap_or(Table::Empty)))
}

/// Makes ready what a first program needs and what does not depend on it.
///
/// # Errors
///
/// Those of making its memory.
pub fn prepare(machine: &Machine) -> sys::Result<Family> {
    let family = Family::new(
        0,
        &machine.observers.first_basis(&machine.config),
        machine.processor.emulated,
    )?;
    for known in machine.processor.cpu.asked_at_start() {
        family.low_window.remember_cpuid(known);
    }
    Ok(family)
}

/// Leads a stopped thread with the application registers `regs` into translated code.
pub fn enter(machine: &mut Machine, tid: Tid, regs: &Regs) -> lwp_process::sys::Result<()> {
    let Some((_, family)) = machine.space_of(tid) else { return Err(sys::Errno::ESRCH) };
    let enter = family.routine(family.translator.routines().enter);
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Err(sys::Errno::ESRCH) };
    thread.mode = Mode::Running;
    let slot = thread.slot;
    let context = machine.contexts.context(slot);
    context.set(Slot::Pc, regs.0.rip);
    let mut cache = *regs;
    cache.0.rip = enter;
    cache.0.gs_base = context.address();
    keep_base(&mut cache);
    cache.forget_syscall();
    machine.tracees.set_regs(tid, &cache)
}

/// Leaves the program's gs selector as it is where the kernel keeps a segment's base apart from its
/// selector; clears it elsewhere, where a selector would bring a base of its own.
pub fn keep_base(cache: &mut Regs) {
    if !sys::bases_are_apart() {
        cache.0.gs = 0;
    }
}
