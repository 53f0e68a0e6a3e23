//! Arenas and sides of an address space, and memory that is opened for writing.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

use lwp_calls::syscalls::nr;
use lwp_dbt::{Checks, RequestKind, Selection, Slot};
use lwp_mailbox::memory_map::LOW_WINDOWS;
use lwp_process::limits;

use super::needs::needs;
use super::profiles::{Words, load, profiling};
use super::script::Done::{self, Called};
use super::stage::Stage;
use super::{Answer, Scene, leaf, pc_of};
use crate::lwp;
use crate::machine::Need;
use crate::setup;
use crate::written_files::opened_for_writing;

const EPERM: u64 = -1i64 as u64;
const ENOMEM: i64 = -12;

/// Has the address space of a scene no arena mapped; the address of its first.
fn without_arenas(scene: &mut Scene) -> u64 {
    let (space, family) = scene.machine.space_of(scene.tid).expect("an address space");
    space.flush(family.index, 0);
    family.arenas[0].address
}

#[test]
fn an_arena_is_mapped_when_a_thread_comes_to_code_near_it() {
    let mut scene = Scene::exact();
    without_arenas(&mut scene);
    let pc = pc_of(leaf);
    assert_eq!(scene.ask(RequestKind::Dispatch, pc), Answer::Needs(Need::Arena));
    let stage = Stage::of(scene);
    let done = needs(&stage, Need::Arena, pc, |_| ());
    stage.expect_entered(stage.tid, pc, &done);
    let mut machine = stage.machine();
    let tid = stage.tid;
    let (space, family) = machine.space_of(tid).expect("an address space");
    let (_, code) = space.code_at(family, tid, pc).expect("it is code");
    let arena = family.arena_of(code.unit).expect("it has an arena");
    assert!(space.arenas.has(arena));
    let mapped =
        |it: &Done| matches!(it, Called(nr::MMAP, [at, ..]) if *at == family.arenas[arena].address);
    assert!(done.iter().any(mapped), "{done:?}");
}

#[test]
fn code_near_which_no_arena_can_be_mapped_starts_over_elsewhere() {
    let mut scene = Scene::exact();
    without_arenas(&mut scene);
    let pc = pc_of(leaf);
    assert_eq!(scene.ask(RequestKind::Dispatch, pc), Answer::Needs(Need::Arena));
    let stage = Stage::of(scene);
    // Something of the program's is there by now, but not where the next family's are.
    let mut refused = 1;
    stage.script.answer(move |number, args| match number {
        nr::MMAP if refused > 0 => {
            refused -= 1;
            ENOMEM
        }
        nr::MMAP => args[0].cast_signed(),
        nr::OPEN => 77,
        _ => 0,
    });
    let before = stage.machine().space_of(stage.tid).expect("an address space").1.index;
    let done = needs(&stage, Need::Arena, pc, |_| ());
    stage.expect_entered(stage.tid, pc, &done);
    let mut machine = stage.machine();
    let (_, family) = machine.space_of(stage.tid).expect("an address space");
    assert_ne!(family.index, before);
}

#[test]
fn a_thread_with_a_profile_runs_on_a_side_of_its_own() {
    let mut scene = profiling();
    let block = Words::profiling(5000);
    assert_eq!(load(&mut scene, block.address()), Answer::Needs(Need::Side));
    let (tid, pc) = (scene.tid, pc_of(leaf));
    let stage = Stage::of(scene);
    let done = needs(&stage, Need::Side, pc, |_| ());
    let mapped = done.iter().filter(|it| matches!(it, Called(nr::MMAP, _))).count();
    assert!(mapped > 1, "{done:?}");
    let machine = stage.machine();
    let side = machine.tasks.threads[&tid].side.expect("it is on another side");
    let base = machine.tasks.base_space(tid).expect("an address space");
    assert_ne!(side, base);
    assert!(!lwp::is_elsewhere(&machine.tasks, &machine.caches, tid));
    let family = machine.caches.family_of(side).expect("it has translations");
    assert!(matches!(family.translator.lwp(), lwp_dbt::Lwp::On(_)));
    drop(machine);
    stage.expect_entered(tid, pc, &done);
    // A second one with the same profile needs nothing to be mapped.
    let other = stage.another();
    let profile = stage.machine().tasks.threads.get_mut(&tid).expect("it lives").lwp.take();
    stage.machine().tasks.threads.get_mut(&other.tid).expect("it lives").lwp = profile;
    let waits = stage.asking(other.tid, RequestKind::Step, pc);
    stage.stands(other.tid, &waits);
    stage.machine().ask_tracer(other.tid, Need::Side);
    let done = stage.stop(other.tid, lwp_process::Stop::Interrupted);
    assert!(!done.iter().any(|it| matches!(it, Called(..))), "{done:?}");
    assert_eq!(stage.machine().tasks.threads[&other.tid].side, Some(side));
}

#[test]
fn a_side_that_cannot_be_mapped_ends_the_profile() {
    let mut scene = profiling();
    let block = Words::profiling(5000);
    assert_eq!(load(&mut scene, block.address()), Answer::Needs(Need::Side));
    let (tid, pc) = (scene.tid, pc_of(leaf));
    let stage = Stage::of(scene);
    stage.script.answer(|number, _| if number == nr::MMAP { ENOMEM } else { 77 });
    let done = needs(&stage, Need::Side, pc, |_| ());
    stage.expect_entered(tid, pc, &done);
    let machine = stage.machine();
    assert!(machine.tasks.lwp(tid).is_none());
    assert_eq!(machine.tasks.threads[&tid].side, None);
}

#[test]
fn code_compares_itself_once_its_memory_can_be_written_by_a_descriptor() {
    let mut scene = Scene::exact();
    let (tid, pc) = (scene.tid, pc_of(leaf));
    let checks = |scene: &mut Scene| {
        let (space, family) = scene.machine.space_of(tid).expect("an address space");
        let (_, code) = space.code_at(family, tid, pc).expect("it is code");
        family.modules[code.unit].unit.checks
    };
    scene.head(pc);
    let reads = OpenOptions::new().read(true).open("/proc/self/mem").expect("it is there");
    opened_for_writing(&mut scene.machine, tid, reads.as_raw_fd());
    assert_eq!(checks(&mut scene), Checks::None);
    let writes = OpenOptions::new().write(true).open("/proc/self/mem").expect("it is there");
    opened_for_writing(&mut scene.machine, tid, writes.as_raw_fd());
    assert_eq!(checks(&mut scene), Checks::SelfCheck);
}

#[test]
fn all_memory_that_is_locked_is_the_program_s() {
    const MCL_FUTURE: u64 = 2;
    let (stage, _) = Stage::at(pc_of(leaf));
    let pc = b"\x0f\x05\x90".as_ptr() as u64;
    let done = needs(&stage, Need::Lock, pc, |regs| {
        (regs.0.rax, regs.0.rdi) = (nr::MLOCKALL, MCL_FUTURE);
    });
    stage.expect_entered(stage.tid, pc + 2, &done);
    let calls: Vec<&Done> = done.iter().filter(|it| matches!(it, Called(..))).collect();
    match stage.regs(stage.tid).0.rax {
        0 => assert_eq!(calls, [&Called(nr::MLOCKALL, [MCL_FUTURE, 0, 0, 0, 0, 0])]),
        // Without a limit of its own it may lock nothing.
        error => {
            assert_eq!((error, limits::locked_memory(stage.tid)), (EPERM, Some(0)));
            assert!(calls.is_empty());
        }
    }
    assert_eq!(stage.slot(stage.tid, Slot::Pc), pc + 2);
}

/// A way of profiling, one of many.
fn selection(number: u8) -> Selection {
    Selection { instructions: true, branches: number, ..Selection::default() }
}

#[test]
fn an_address_space_has_so_many_sides_and_then_takes_those_that_nobody_runs_on() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    let most = LOW_WINDOWS as u8 - 1;
    let base = stage.machine().tasks.base_space(tid).expect("an address space");
    let sides = || stage.machine().caches.sides(base).count() - 1;
    let side_for = |number| stage.machine().caches.side_for(base, selection(number));
    let add = |number| setup::add_side(&mut stage.machine(), tid, selection(number));
    for number in 0..most + 3 {
        assert_eq!(add(number), Ok(()));
        assert_eq!(sides(), usize::from(most.min(number + 1)));
        assert!(side_for(number).is_some());
    }
    // The oldest have been given up.
    assert_eq!((side_for(0), side_for(1), side_for(2)), (None, None, None));
    // None can be where there is a thread on each.
    let threads: Vec<_> = (3..most + 3).map(|number| (number, stage.another())).collect();
    for (number, thread) in &threads {
        let side = side_for(*number);
        stage.machine().change_side(thread.tid, side);
    }
    let refused = add(most + 3).expect_err("all are in use");
    assert!(refused.contains("too many different ways"), "{refused}");
    assert_eq!(sides(), usize::from(most));
    // One of them ends its profile.
    let (number, thread) = &threads[4];
    stage.machine().change_side(thread.tid, None);
    assert_eq!(add(most + 3), Ok(()));
    assert_eq!((side_for(*number), sides()), (None, usize::from(most)));
}
