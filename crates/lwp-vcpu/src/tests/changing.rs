//! Code that may change: it is cut off where it has changed, and observed where it is executed
//! often.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::time::Duration;

use lwp_calls::syscalls::nr;
use lwp_code::family::UnitId;
use lwp_dbt::{AppPc, Checks, RequestKind};
use lwp_run::config::Plan;

use super::{Answer, Scene, branches, leaf, pc_of};
use crate::relayout;
use crate::server::syscall_done;
use crate::written_files::opened_for_writing;

/// A run whose code may change: its memory has been opened for writing. With the unit of `leaf`.
fn changing(improves: bool) -> (Scene, UnitId) {
    let mut scene =
        Scene::of(|config| config.trials.improve = improves.then_some(Duration::ZERO), Plan::Exact);
    let tid = scene.tid;
    let writes = OpenOptions::new().write(true).open("/proc/self/mem").expect("it is there");
    opened_for_writing(&mut scene.machine, tid, writes.as_raw_fd());
    if improves {
        let (_, family) = scene.machine.space_of(tid).expect("an address space");
        family.translator.learn();
    }
    have_arena(&mut scene);
    scene.head(pc_of(branches));
    scene.head(pc_of(leaf));
    let (space, family) = scene.machine.space_of(tid).expect("an address space");
    let (_, code) = space.code.at(pc_of(leaf)).expect("it is code");
    assert_eq!(family.modules[code.unit].unit.checks, Checks::SelfCheck);
    (scene, code.unit)
}

/// Adds an arena for the code that may change, where that of files does not reach all the code that
/// shares its unit: it depends on where the system has put this program.
fn have_arena(scene: &mut Scene) {
    let (space, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let (_, code) = space.code_at(family, scene.tid, pc_of(leaf)).expect("it is code");
    if family.arena_of(code.unit).is_some_and(|arena| space.arenas.has(arena)) {
        return;
    }
    let (start, _) = family.modules[code.unit].extent;
    // Behind the memory of the arenas that every family may have.
    let (bytes, offset) = (64 << 20, 3 << 30);
    family.add_arena(start - bytes, bytes, offset);
    space.note_arena(family.arenas.len() - 1, true);
}

/// Returns whether there is a translation of `leaf`.
fn is_there(scene: &mut Scene, unit: UnitId) -> bool {
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    family.modules[unit].unit.fragment_at(AppPc(pc_of(leaf))).is_some()
}

/// The thread makes a call, which the kernel does as it is told.
fn calls(scene: &mut Scene, number: u64, [a1, a2, a3]: [u64; 3]) {
    use lwp_dbt::Slot;
    scene.set(Slot::Rax, number).set(Slot::Rdi, a1).set(Slot::Rsi, a2).set(Slot::Rdx, a3);
    assert_eq!(scene.ask(RequestKind::Syscall, pc_of(branches)), Answer::Does);
    scene.set(Slot::Rax, 0);
    syscall_done(&mut scene.machine, scene.tid);
}

#[test]
fn code_that_has_not_changed_stays_and_code_that_is_gone_does_not() {
    let page = pc_of(leaf) & !4095;
    let (mut scene, unit) = changing(false);
    // Executable as before, and written to by nobody.
    calls(&mut scene, nr::MPROTECT, [page, 4096, 5]);
    assert!(is_there(&mut scene, unit));
    let before = scene.head(pc_of(leaf));
    // Not executable any more.
    calls(&mut scene, nr::MPROTECT, [page, 4096, 1]);
    assert!(!is_there(&mut scene, unit));
    assert_ne!(scene.head(pc_of(leaf)), before);
}

#[test]
fn a_fragment_that_finds_other_bytes_is_translated_anew_if_they_are_others() {
    let (mut scene, unit) = changing(false);
    // Somebody has written the same bytes.
    let pc = pc_of(leaf);
    assert_eq!(scene.ask(RequestKind::Stale, pc), Answer::Goes(pc));
    assert!(is_there(&mut scene, unit));
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    family.invalidate_page(unit, pc & !4095);
    assert!(!is_there(&mut scene, unit));
    assert_eq!(scene.ask(RequestKind::Dispatch, pc), Answer::Goes(pc));
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    family.invalidate_all(unit);
    assert!(!is_there(&mut scene, unit));
}

#[test]
fn generated_code_that_has_run_for_a_while_is_translated_anew_with_counters() {
    let (mut scene, unit) = changing(true);
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let before = family.code_cache.counters().len();
    // It is seen at the first look, and observed from the second on.
    relayout::improve(&mut scene.machine);
    assert!(is_there(&mut scene, unit));
    relayout::improve(&mut scene.machine);
    assert!(!is_there(&mut scene, unit));
    scene.head(pc_of(branches));
    scene.head(pc_of(leaf));
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let holding = family.code_cache.counters().targets_from(before);
    let all = family.code_cache.counters().len();
    assert!(all > before);
    for counter in (before..all).filter(|index| !holding.contains(index)) {
        scene.context().counters().set(counter as u32, 10_000_000);
    }
    // Later looks leave what is there.
    relayout::improve(&mut scene.machine);
    assert!(is_there(&mut scene, unit));
}

#[test]
fn a_look_at_generated_code_takes_what_has_been_executed_since_the_last_one() {
    let (mut scene, unit) = changing(true);
    relayout::improve(&mut scene.machine);
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let first = family.code_cache.counters().len();
    relayout::improve(&mut scene.machine);
    scene.head(pc_of(branches));
    scene.head(pc_of(leaf));
    let index = scene.machine.tasks.space_index(scene.tid).expect("an address space");
    let executed = |scene: &mut Scene, times: u64| {
        let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
        let counters = family.code_cache.counters();
        let holding = counters.targets_from(first);
        for counter in (first..counters.len()).filter(|index| !holding.contains(index)) {
            scene.context().counters().set(counter as u32, times);
        }
        // Where branches led is looked at, too.
        holding.iter().for_each(|it| scene.context().counters().set(*it as u32, pc_of(leaf)));
    };
    let fragments = |scene: &mut Scene| {
        scene.machine.space_of(scene.tid).expect("an address space").1.code_cache.fragment_count()
    };
    let (mut counts, before) = (Vec::new(), fragments(&mut scene));
    for times in [0, 3, 10_000_000] {
        executed(&mut scene, times);
        // Nothing tells of changes to this code: no superblock is laid over it.
        assert!(!relayout::look(&mut scene.machine, index, first, &mut counts));
        assert!(counts.iter().all(|count| *count == times || *count == 0), "{counts:?}");
        assert_eq!(counts.contains(&times), times > 0 || !counts.is_empty());
    }
    assert_eq!(fragments(&mut scene), before);
    assert!(is_there(&mut scene, unit));
    // An address space that is gone has executed nothing.
    assert!(!relayout::look(&mut scene.machine, usize::MAX, first, &mut counts));
}
