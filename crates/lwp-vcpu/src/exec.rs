//! Setting an address space up: after exec, and when a live process is taken over.

use lwp_dbt::{Lwp, Slot};
use lwp_ptrace::regs::{CS_64, Regs};
use lwp_ptrace::{Tid, memory, sys};

use crate::auxiliary::Auxiliary;
use crate::config::{Config, Plan, Target};
use crate::contexts::ContextFile;
use crate::family::{Basis, Family, Kind};
use crate::huge_table;
use crate::inject::Injector;
use crate::lwp::sampled_selection;
use crate::machine::{Machine, Mode, Observers};
use crate::maps::{self, Mapping, Status};
use crate::memory_map::{LOW, is_ours, low_window};
use crate::notices::FaultAction;
use crate::owner::Owner;
use crate::profile::Profiler;
use crate::space::Space;
pub use arenas::{add_arena, settle_far};
pub use contexts::{grow_contexts, grow_contexts_to, move_in};
use families::family_for;
pub use families::flush;
pub use mapping::path_of;
use places::plan_arenas;
pub use places::{Anchors, Reach};
pub use sides::add_side;

mod arenas;
mod beginning;
mod contexts;
mod families;
mod mapping;
mod places;
mod sides;

const GIB: u64 = 1 << 30;
/// Bytes at the beginning of an arena, among which are system calls of the routines.
const ROUTINES: u64 = 16 << 10;
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
    let kind = Kind { basis: machine.config.first_basis(&machine.observers), owner, arenas };
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
        &machine.config.first_basis(&machine.observers),
        machine.processor.emulated,
    )?;
    for known in machine.processor.cpu.asked_at_start() {
        family.low_window.remember_cpuid(known);
    }
    Ok(family)
}

/// Leads a stopped thread with the application registers `regs` into translated code.
pub fn enter(machine: &mut Machine, tid: Tid, regs: &Regs) -> lwp_ptrace::sys::Result<()> {
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

impl Config {
    /// The plan of translated code.
    pub fn plan_of_code(&self, observers: &Observers) -> lwp_dbt::Plan {
        match self.plan {
            Plan::Plain => lwp_dbt::Plan::Plain,
            Plan::Exact if self.measures_contexts(observers) => lwp_dbt::Plan::Contexts,
            Plan::Exact if observers.profiler.as_ref().is_some_and(Profiler::wants_calls) => {
                lwp_dbt::Plan::Calls
            }
            Plan::Exact => lwp_dbt::Plan::Exact,
        }
    }

    /// Returns whether calling contexts are measured: where everything is counted, and nothing else
    /// uses the words in which instructions are added up.
    fn measures_contexts(&self, observers: &Observers) -> bool {
        let wanted = observers.profiler.as_ref().is_some_and(Profiler::wants_contexts);
        let counted = &self.counted;
        let always = counted.start_enabled
            && counted.markers.is_none()
            && counted.control_line.is_none()
            && counted.within.is_empty();
        wanted && always && !self.watches()
    }

    /// The things that the code of a new program's family depends on.
    pub fn first_basis(&self, observers: &Observers) -> Basis {
        let lwp = match self.lwp {
            _ if self.watches() => Lwp::On(sampled_selection(self)),
            Some(_) => Lwp::Off,
            None => Lwp::Absent,
        };
        Basis { plan: self.plan_of_code(observers), lwp, layout: low_window(LOW) }
    }
}

/// Leaves the program's gs selector as it is where the kernel keeps a segment's base apart from its
/// selector; clears it elsewhere, where a selector would bring a base of its own.
pub fn keep_base(cache: &mut Regs) {
    if !sys::bases_are_apart() {
        cache.0.gs = 0;
    }
}

/// The address of a `syscall` instruction in the tracee: in an arena, which nobody but the host can
/// write to, and else in what the program has.
///
/// # Errors
///
/// The reason for which none is found: as a rule, the kernel hides the process's memory.
pub fn find_syscall(tid: Tid, mappings: &[Mapping]) -> Result<u64, String> {
    let arenas = mappings.iter().filter(|m| m.shared && m.execute && !m.write && is_ours(m));
    // Each begins with the routines.
    let ours =
        arenas.filter_map(|arena| syscall_in(tid, arena.start, arena.start + ROUTINES)).next();
    ours.map_or_else(|| find_syscall_of_program(tid, mappings), Ok)
}

/// The same, in what the program has. It may exchange the instruction at any time: the call fails
/// then.
///
/// # Errors
///
/// Those of [`find_syscall`].
pub fn find_syscall_of_program(tid: Tid, mappings: &[Mapping]) -> Result<u64, String> {
    const MOST: u64 = 4 << 20;
    let vdso_first = mappings
        .iter()
        .filter(|m| m.name == "[vdso]")
        .chain(mappings.iter().filter(|m| m.execute && m.name != "[vdso]"))
        .filter(|m| m.start < crate::space::VSYSCALL && !is_ours(m));
    let found =
        vdso_first.filter_map(|m| syscall_in(tid, m.start, m.end.min(m.start + MOST))).next();
    found.ok_or_else(|| match mappings.is_empty() {
        true => {
            "lwp cannot look into its memory, as where its program may be executed but not read \
                 (make it readable or run lwp as root), or no /proc is mounted"
                .into()
        }
        false => "no system call instruction found in the program's memory".into(),
    })
}

/// The first `syscall` instruction between two addresses, read page by page.
fn syscall_in(tid: Tid, start: u64, end: u64) -> Option<u64> {
    let mut page = [0u8; 4096];
    for at in (start..end).step_by(page.len()) {
        memory::read_exact(tid, at, &mut page).ok()?;
        if let Some(index) = page.windows(2).position(|pair| pair == [0x0f, 0x05]) {
            return Some(at + index as u64);
        }
    }
    None
}
