//! Guards of pages with code, by their protection.

use lwp_calls::syscalls::nr;
use lwp_dbt::{RequestKind, Slot};
use lwp_process::tracees::Until;
use lwp_run::config::{Guards, Plan};

use super::script::Done::{self, Called, Goes, Interrupted};
use super::stage::{Idle, Stage};
use super::{Scene, leaf, pc_of};
use crate::guarding;
use crate::machine::Need;

const SIGUSR1: i32 = 10;
const SIGSEGV: i32 = 11;
const SEGV_ACCERR: i32 = 2;
const READ: u64 = 0;
const PAGE: u64 = 4096;
/// The protection of a page that the program may write to, and that of a guarded one.
const ALL: u64 = 7;
const GUARDED: u64 = 5;

/// A thread in code whose pages are guarded; with those.
fn guarded() -> (Stage, Vec<u64>) {
    let mut scene = Scene::of(|config| config.trials.guards = Guards::Protection, Plan::Exact);
    let head = scene.head(pc_of(leaf));
    let stage = Stage::of(scene);
    let regs = stage.regs_at(head);
    stage.stands(stage.tid, &regs);
    stage.machine().guarding().find_notices(stage.tid);
    let page = pc_of(leaf) & !(PAGE - 1);
    let mut machine = stage.machine();
    let notices = machine.caches.of(&machine.tasks).notices_of(stage.tid).expect("they can be had");
    // Threads know first.
    machine.guarding().tell_guards(stage.tid, &notices, (page, page + 2 * PAGE));
    drop(machine);
    let done = stage.machine().guarding().guard_code(stage.tid, pc_of(leaf));
    done.expect("the thread stands still");
    let pages = protected(&stage, stage.tid);
    assert!(pages.contains(&page), "{pages:x?}");
    let calls: Vec<Done> = pages.iter().map(|page| protects(*page, GUARDED)).collect();
    assert_eq!(stage.script.done(), calls);
    (stage, pages)
}

fn protected(stage: &Stage, tid: i32) -> Vec<u64> {
    let machine = stage.machine();
    machine.caches.of(&machine.tasks).protected_pages(tid)
}

/// An address in a page that is far from the code in it: a fault at the thread's own instruction
/// would be one of fetching it.
fn written_in(page: u64) -> u64 {
    page + (pc_of(leaf) + PAGE / 2) % PAGE
}

fn protects(page: u64, how: u64) -> Done {
    Called(nr::MPROTECT, [page, PAGE, how, 0, 0, 0])
}

#[test]
fn a_write_to_a_guarded_page_happens_and_the_program_sees_no_signal() {
    let (stage, pages) = guarded();
    let tid = stage.tid;
    let before = stage.regs(tid);
    let done = stage.signal(tid, SIGSEGV, SEGV_ACCERR, written_in(pages[0]));
    assert_eq!(done, [protects(pages[0], ALL), Goes(tid, Until::Event, 0)]);
    assert_eq!(stage.regs(tid), before);
    assert!(!protected(&stage, tid).contains(&pages[0]));
    // Another thread has met the same guard, and the page may be written by now: it is not, here.
    let done = stage.signal(tid, SIGSEGV, SEGV_ACCERR, written_in(pages[0]));
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGSEGV)]);
}

#[test]
fn a_fault_of_the_program_s_own_is_its_own() {
    let (stage, pages) = guarded();
    let tid = stage.tid;
    let elsewhere = pages[0] - (64 << 20);
    let done = stage.signal(tid, SIGSEGV, SEGV_ACCERR, elsewhere);
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGSEGV)]);
    assert_eq!(protected(&stage, tid), pages);
}

#[test]
fn a_call_that_fills_a_guarded_page_waits_until_it_can() {
    let (stage, pages) = guarded();
    let tid = stage.tid;
    let waits = stage.asking(tid, RequestKind::Syscall, pc_of(leaf));
    let mut machine = stage.machine();
    let slot = machine.tasks.threads[&tid].slot;
    let context = machine.contexts.context(slot);
    for (field, value) in
        [(Slot::Rax, READ), (Slot::Rdi, 0), (Slot::Rsi, pages[0]), (Slot::Rdx, 64)]
    {
        context.set(field, value);
    }
    machine.answer(slot, false);
    assert_eq!(machine.tasks.threads[&tid].errand.need, Some(Need::Guard));
    drop(machine);
    stage.stands(tid, &waits);
    let done = stage.stop(tid, lwp_process::Stop::Interrupted);
    assert!(done.contains(&protects(pages[0], ALL)), "{done:?}");
    assert_eq!(done.last(), Some(&Goes(tid, Until::Event, 0)));
    assert!(!protected(&stage, tid).contains(&pages[0]));
}

#[test]
fn a_page_behind_memory_that_is_protected_stays_guarded() {
    let (stage, pages) = guarded();
    let tid = stage.tid;
    stage.asking(tid, RequestKind::Syscall, pc_of(leaf));
    let mut machine = stage.machine();
    let slot = machine.tasks.threads[&tid].slot;
    let before = pages[0] - 4 * PAGE;
    for (field, value) in
        [(Slot::Rax, nr::MPROTECT), (Slot::Rdi, before), (Slot::Rsi, PAGE), (Slot::Rdx, 1)]
    {
        machine.contexts.context(slot).set(field, value);
    }
    machine.guarding().about_to_fill(tid, slot, true);
    assert!(!machine.caches.of(&machine.tasks).has_released(tid));
    drop(machine);
    assert_eq!(protected(&stage, tid), pages);
}

#[test]
fn a_page_in_which_a_signal_s_frame_comes_to_lie_is_released_before() {
    let (stage, pages) = guarded();
    let tid = stage.tid;
    let mut regs = stage.regs(tid);
    regs.0.rsp = pages[0] + PAGE;
    stage.stands(tid, &regs);
    let done = stage.signal(tid, SIGUSR1, 0, 0);
    assert!(done.contains(&protects(pages[0], ALL)), "{done:?}");
    assert_eq!(done.last(), Some(&Goes(tid, Until::Event, SIGUSR1)));
}

#[test]
fn a_copy_that_fork_makes_is_guarded_as_the_original() {
    let (stage, pages) = guarded();
    let child = Idle::new();
    let mut forking = stage.regs(stage.tid);
    forking.0.orig_rax = nr::FORK;
    stage.stands(stage.tid, &forking);
    stage.script.thread(stage.tid, |thread| thread.message = child.tid as u64);
    stage.stop(stage.tid, lwp_process::Stop::Child);
    assert_eq!(protected(&stage, child.tid), pages);
    // Each has its own from then on.
    stage.machine().guarding().do_without_notices(child.tid);
    assert_eq!(protected(&stage, stage.tid), pages);
}

#[test]
fn a_call_of_another_form_ends_all_guards() {
    let (stage, pages) = guarded();
    stage.machine().guarding().about_to_call_natively(stage.tid);
    let made = stage.machine().guarding().unprotect_now(stage.tid);
    assert_eq!(made, Ok(true));
    assert_eq!(stage.script.done()[0], protects(pages[0], ALL));
    assert!(protected(&stage, stage.tid).is_empty());
}

#[test]
fn only_mappings_among_guarded_pages_end_what_threads_know_of_them() {
    let (stage, pages) = guarded();
    let machine = stage.machine();
    let known = machine.caches.of(&machine.tasks).notices_of(stage.tid).expect("they are there");
    drop(machine);
    let guards = || known.guard((pages[0], written_in(pages[0])), (pages[0], pages[0] + PAGE));
    assert!(guards());
    let elsewhere = pages[0] - (64 << 20);
    known.forget((elsewhere, elsewhere + PAGE));
    assert!(guards());
    // A call that has begun before may fill the memory that is among them from now on.
    known.forget((pages[0] + PAGE, pages[0] + 2 * PAGE));
    assert!(!guards());
    guarding::tell_again(&mut stage.machine(), stage.tid);
    assert!(guards());
}

#[test]
fn pages_get_their_protection_back_when_nobody_can_wait_for_writes() {
    let (stage, pages) = guarded();
    stage.machine().caches.withdraw_notices();
    let machine = stage.machine();
    let places = machine.caches.of(&machine.tasks);
    assert!(places.has_released(stage.tid));
    let notices = places.notices_of(stage.tid).expect("the pages are still protected");
    drop(machine);
    assert!(!notices.lacks_guard(pages[0], pages[0] + PAGE));
    assert_eq!(stage.machine().guarding().unprotect_now(stage.tid), Ok(true));
    let done = stage.script.done();
    assert!(pages.iter().all(|page| done.contains(&protects(*page, ALL))), "{done:?}");
    assert!(protected(&stage, stage.tid).is_empty());
    assert_eq!(stage.machine().guarding().unprotect_now(stage.tid), Ok(false));
}

#[test]
fn the_action_for_a_fault_that_the_kernel_has_reset_is_put_back() {
    const SIG_IGN: u64 = 1;
    let (stage, pages) = guarded();
    let tid = stage.tid;
    let action = Box::new([SIG_IGN, 0, 0, 0]);
    stage.machine().tasks.note_fault_action(tid, action.as_ptr() as u64);
    let done = stage.signal(tid, SIGSEGV, SEGV_ACCERR, written_in(pages[0]));
    // This process does not ignore the signal, as after a fault of ours.
    let [unprotects, Called(nr::RT_SIGACTION, [number, at, old, size, ..]), goes] = done[..] else {
        panic!("{done:?}");
    };
    assert_eq!(unprotects, protects(pages[0], ALL));
    assert_eq!((number, old, size), (SIGSEGV as u64, 0, 8));
    assert_ne!(at, 0);
    assert_eq!(goes, Goes(tid, Until::Event, 0));
    // An action that cannot be read is none.
    stage.machine().tasks.note_fault_action(tid, 8);
    let done = stage.signal(tid, SIGSEGV, SEGV_ACCERR, written_in(pages[0]));
    assert!(!done.iter().any(|it| matches!(it, Called(nr::RT_SIGACTION, _))), "{done:?}");
}

#[test]
fn a_thread_that_cannot_change_protection_leaves_that_to_another() {
    const EIO: i32 = 5;
    let (stage, pages) = guarded();
    stage.machine().guarding().do_without_notices(stage.tid);
    // It is gone.
    stage.script.thread(stage.tid, |thread| thread.stopped = false);
    let gone = stage.machine().guarding().unprotect_now(stage.tid);
    assert!(gone.is_err_and(|error| error.0 != EIO));
    assert_eq!(protected(&stage, stage.tid), pages);
    stage.script.thread(stage.tid, |thread| thread.stopped = true);
    assert_eq!(stage.machine().guarding().unprotect_now(stage.tid), Ok(true));
    assert!(protected(&stage, stage.tid).is_empty());
}
