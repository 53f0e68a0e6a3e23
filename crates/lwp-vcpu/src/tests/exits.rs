//! Every exit, and its answer.

use lwp_calls::syscalls::nr;
use lwp_dbt::{RequestKind, Slot};
use lwp_process::regs::Regs;
use lwp_run::config::{CpuModel, Markers, Plan};

use super::{Answer, Scene, branches, leaf, pc_of};
use crate::machine::{Mode, Need};
use crate::server::syscall_done;

#[test]
fn a_thread_goes_on_in_the_one_translation_of_its_pc() {
    let mut scene = Scene::exact();
    let first = scene.head(pc_of(leaf));
    assert_ne!(scene.head(pc_of(branches)), first);
    assert_eq!(scene.head(pc_of(leaf)), first);
    // A direct branch needs no entry in the indirect table.
    assert_eq!(scene.context().get(Slot::ApplyCount), 0);
}

#[test]
fn an_indirect_branch_gets_an_entry_in_the_table() {
    let mut scene = Scene::exact();
    let pc = pc_of(leaf);
    assert_eq!(scene.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
    let context = scene.context();
    let count = context.get(Slot::ApplyCount) as usize;
    let places: Vec<u64> = (0..count).map(|index| context.apply_triple(index)[0]).collect();
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    assert!(places.contains(&family.layout().table_slot(pc)), "{places:x?}");
}

#[test]
fn code_that_is_not_there_is_left_to_the_processor() {
    let mut scene = Scene::exact();
    for pc in [0, 1 << 20, u64::MAX, lwp_code::space::VSYSCALL] {
        assert_eq!(scene.ask(RequestKind::Dispatch, pc), Answer::Needs(Need::Step), "{pc:#x}");
    }
}

#[test]
fn a_thread_that_waits_for_the_tracer_is_not_answered() {
    let mut scene = Scene::exact();
    scene.thread().errand.need = Some(Need::Step);
    assert_eq!(scene.ask(RequestKind::Dispatch, pc_of(leaf)), Answer::Nothing);
}

#[test]
fn a_thread_that_takes_a_signal_is_answered_if_nothing_came_of_it() {
    let mut scene = Scene::exact();
    let app = Regs::default();
    scene.thread().mode = Mode::Delivering { cache: None, app };
    assert_eq!(scene.ask(RequestKind::Dispatch, pc_of(leaf)), Answer::Nothing);
    assert!(scene.thread().signals.put_off);
    scene.thread().mode = Mode::Running;
    scene.machine.ask_again(scene.tid);
    assert!(!scene.thread().signals.put_off);
    scene.machine.answer(scene.slot, false);
    assert_eq!(scene.answered(), Answer::Goes(pc_of(leaf)));
}

#[test]
fn requests_that_translated_code_cannot_make_are_forged() {
    let mut scene = Scene::exact();
    let pc = pc_of(leaf);
    for kind in [0xff, 1 << 32, u64::MAX] {
        assert_eq!(scene.ask_raw(kind, pc), Answer::Forged, "{kind:#x}");
    }
    // There is no marker, and no profile.
    assert_eq!(scene.ask(RequestKind::Marker, pc), Answer::Forged);
    assert_eq!(scene.ask(RequestKind::LwpNotes, pc), Answer::Forged);
    // No call is counted there.
    assert_eq!(scene.set(Slot::CallAfter, 7).ask(RequestKind::Calls, pc), Answer::Nothing);
}

#[test]
fn instructions_that_the_host_answers_have_the_virtual_processor_s_results() {
    let mut scene = Scene::of(|config| config.cpu = CpuModel::V3, Plan::Exact);
    let pc = pc_of(leaf);
    scene.set(Slot::Rax, 1).set(Slot::Rcx, 0);
    let answer = scene.ask(RequestKind::Cpuid, pc);
    assert_eq!(answer, Answer::Goes(pc + 2));
    let expected = scene.machine.processor.cpu.cpuid(1, 0).map(u64::from);
    let registers = [Slot::Rax, Slot::Rbx, Slot::Rcx, Slot::Rdx];
    assert_eq!(registers.map(|register| scene.context().get(register)), expected);
    scene.set(Slot::Rcx, 0);
    assert_eq!(scene.ask(RequestKind::Xgetbv, pc), Answer::Goes(pc + 3));
    let value = scene.context().get(Slot::Rdx) << 32 | scene.context().get(Slot::Rax);
    assert_eq!(value, scene.machine.processor.cpu.xcr0());
}

#[test]
fn instructions_that_only_the_processor_executes_need_the_tracer() {
    let mut scene = Scene::exact();
    let pc = pc_of(leaf);
    for kind in [
        RequestKind::Step,
        RequestKind::TrapFlag,
        RequestKind::StateSave,
        RequestKind::Tsc,
        RequestKind::Random,
        RequestKind::HostSyscallDone,
    ] {
        assert_eq!(scene.ask(kind, pc), Answer::Needs(Need::Step), "{kind:?}");
    }
    assert_eq!(scene.set(Slot::Rcx, 5).ask(RequestKind::Xgetbv, pc), Answer::Needs(Need::Step));
}

#[test]
fn markers_are_executed_where_they_stand_and_forged_elsewhere() {
    let mut scene =
        Scene::of(|config| config.counted.markers = Some(Markers::Between), Plan::Exact);
    assert!(!scene.thread().account.counting, "it counts between two markers alone");
    assert_eq!(scene.ask(RequestKind::Marker, pc_of(branches)), Answer::Forged);
}

#[test]
fn stored_pointers_that_are_none_of_ours_stay() {
    let mut scene = Scene::exact();
    let pc = pc_of(leaf);
    let stored = Box::new(std::sync::atomic::AtomicU64::new(0x1234_5678));
    let at = stored.as_ptr() as u64;
    assert_eq!(scene.set(Slot::Stored, at).ask(RequestKind::Pointer64, pc), Answer::Goes(pc));
    assert_eq!(stored.load(std::sync::atomic::Ordering::SeqCst), 0x1234_5678);
    // The translation of an instruction that is none of the unit's.
    let head = scene.head(pc);
    stored.store(head, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(scene.ask(RequestKind::Pointer32, pc), Answer::Goes(pc));
    assert_eq!(scene.set(Slot::Stored, 8).ask(RequestKind::Pointer64, pc), Answer::Goes(pc));
}

const MAP_FIXED: u64 = 0x10;

/// Asks about a call, whose instruction is taken to be at the beginning of a function.
fn call(scene: &mut Scene, number: u64, [a1, a2, a3]: [u64; 3]) -> Answer {
    scene.set(Slot::Rax, number).set(Slot::Rdi, a1).set(Slot::Rsi, a2).set(Slot::Rdx, a3);
    scene.ask(RequestKind::Syscall, pc_of(leaf))
}

#[test]
fn calls_that_concern_nobody_are_made_and_not_reported() {
    let mut scene = Scene::exact();
    // Memory where nothing is.
    assert_eq!(call(&mut scene, nr::MUNMAP, [1 << 30, 4096, 0]), Answer::Does);
    assert_eq!(scene.context().get(Slot::Next), pc_of(leaf) + 2);
    assert_eq!(scene.context().get(Slot::Rdi), 1 << 30);
    assert!(scene.thread().pending.is_none());
}

#[test]
fn calls_with_an_effect_are_reported_and_settled() {
    let mut scene = Scene::exact();
    let leaf_page = pc_of(leaf) & !4095;
    let first = scene.head(pc_of(leaf));
    assert_eq!(call(&mut scene, nr::MPROTECT, [leaf_page, 4096, 7]), Answer::Does);
    assert!(scene.thread().pending.is_some());
    // Refused: nothing has changed.
    scene.set(Slot::Rax, -13i64 as u64);
    let next = pc_of(leaf) + 2;
    assert_eq!(scene.ask(RequestKind::SyscallDone, next), Answer::Goes(next));
    assert!(scene.thread().pending.is_none());
    assert_eq!(scene.head(pc_of(leaf)), first);
}

#[test]
fn a_program_does_not_see_what_is_ours() {
    let mut scene = Scene::exact();
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let (low, arena) = (family.layout().low, family.arenas[0].address);
    // Nothing of the program's is in the low window: nothing is unmapped there.
    assert_eq!(call(&mut scene, nr::MUNMAP, [low, 4096, 0]), Answer::Does);
    let pending = scene.thread().pending.expect("it is reported");
    assert_eq!((pending.result, scene.context().get(Slot::Rax)), (Some(0), nr::GETPID));
    // mincore(2) of memory that is not mapped fails with ENOMEM.
    assert_eq!(call(&mut scene, nr::MINCORE, [low, 4096, 0]), Answer::Does);
    let pending = scene.thread().pending.expect("it is reported");
    assert_eq!(pending.shortened, Some((0, -12)));
    // A range that begins before an arena is the tracer's work: it has to go around.
    let before = call(&mut scene, nr::MUNMAP, [arena - 4096, 8192, 0]);
    assert_eq!(before, Answer::Needs(Need::Around));
    assert_eq!(scene.thread().touched[0], (arena - 4096, arena + 4096));
}

#[test]
fn arenas_give_way_and_the_low_window_does_not() {
    let mut scene = Scene::exact();
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let (low, arena) = (family.layout().low, family.arenas[0].address);
    scene.set(Slot::R10, MAP_FIXED);
    assert_eq!(call(&mut scene, nr::MMAP, [arena, 4096, 0]), Answer::Needs(Need::Flush));
    let (space, _) = scene.machine.space_of(scene.tid).expect("an address space");
    assert!(space.moves);
    assert_eq!(call(&mut scene, nr::MMAP, [low, 4096, 0]), Answer::Does);
    assert_eq!(scene.thread().pending.expect("it is reported").result, Some(-12));
    // Another process has the address space too, and would have to stand still.
    let (space, _) = scene.machine.space_of(scene.tid).expect("an address space");
    space.users = 2;
    assert_eq!(call(&mut scene, nr::MMAP, [arena, 4096, 0]), Answer::Does);
    assert_eq!(scene.thread().pending.expect("it is reported").result, Some(-12));
}

#[test]
fn every_call_is_answered_and_one_that_fails_changes_no_code() {
    const NUMBERS: u64 = 512;
    const ENOSYS: u64 = -38i64 as u64;
    let mut scene = Scene::exact();
    let first = scene.head(pc_of(leaf));
    let next = pc_of(leaf) + 2;
    for number in 0..NUMBERS {
        let answer = call(&mut scene, number, [0; 3]);
        assert!(matches!(answer, Answer::Does | Answer::Needs(_)), "{number}: {answer:?}");
        if answer != Answer::Does || scene.thread().pending.is_none() {
            continue;
        }
        scene.set(Slot::Rax, ENOSYS);
        let after = scene.ask(RequestKind::SyscallDone, next);
        assert!(matches!(after, Answer::Goes(_) | Answer::Needs(_)), "{number}: {after:?}");
        assert!(scene.thread().pending.is_none(), "{number}");
    }
    assert_eq!(scene.head(pc_of(leaf)), first);
}

/// Has the thread make a call at `pc` that returns `result`, and settles that. Returns whether code
/// is still known there.
fn known_after(number: u64, args: [u64; 3], result: u64) -> bool {
    let mut scene = Scene::exact();
    let (tid, pc) = (scene.tid, pc_of(leaf));
    scene.head(pc);
    scene.set(Slot::R10, MAP_FIXED);
    call(&mut scene, number, args);
    scene.set(Slot::Rax, result);
    syscall_done(&mut scene.machine, tid);
    assert!(scene.thread().pending.is_none());
    let (space, _) = scene.machine.space_of(tid).expect("an address space");
    space.code.at(pc).is_some()
}

#[test]
fn calls_that_take_code_away_have_it_looked_for_again() {
    const PROT_READ: u64 = 1;
    const EINVAL: u64 = -22i64 as u64;
    let page = pc_of(leaf) & !4095;
    for (number, args, result) in [
        (nr::MUNMAP, [page, 4096, 0], 0),
        (nr::MPROTECT, [page, 4096, PROT_READ], 0),
        (nr::PKEY_MPROTECT, [page, 4096, PROT_READ], 0),
        (nr::MREMAP, [page, 4096, 4096], 1 << 40),
        (nr::MMAP, [page, 4096, PROT_READ], page),
    ] {
        assert!(!known_after(number, args, result), "{number}");
        assert!(known_after(number, args, EINVAL), "{number} has failed");
        let elsewhere = [1 << 30, args[1], args[2]];
        let there = if number == nr::MMAP { 1 << 30 } else { result };
        assert!(known_after(number, elsewhere, there), "{number} is about something else");
    }
}

#[test]
fn a_heap_grows_without_the_host_and_shrinks_with_it() {
    const HEAP: u64 = 1 << 45;
    let mut scene = Scene::exact();
    let ends = |scene: &mut Scene| {
        let (space, _) = scene.machine.space_of(scene.tid).expect("an address space");
        space.heap_end
    };
    // Nothing is known of it yet: the call is reported.
    assert_eq!(call(&mut scene, nr::BRK, [0; 3]), Answer::Does);
    assert!(scene.thread().pending.is_some());
    scene.set(Slot::Rax, HEAP);
    syscall_done(&mut scene.machine, scene.tid);
    assert_eq!(ends(&mut scene), HEAP);
    for wanted in [0, HEAP + 4096, HEAP] {
        assert_eq!(call(&mut scene, nr::BRK, [wanted, 0, 0]), Answer::Does, "{wanted:#x}");
        assert!(scene.thread().pending.is_none(), "{wanted:#x}");
    }
    assert_eq!(ends(&mut scene), HEAP + 4096, "what it may have reached");
    // So much that it may be refused is reported.
    call(&mut scene, nr::BRK, [HEAP << 1, 0, 0]);
    assert!(scene.thread().pending.is_some());
}
