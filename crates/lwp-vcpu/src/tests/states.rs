//! Threads that leave translated code in the middle of something that they do for the host.

use std::sync::atomic::{AtomicU64, Ordering};

use lwp_calls::syscalls::nr;
use lwp_dbt::routines::SIGFRAME_RIP;
use lwp_dbt::{Commit, RequestKind, Slot};
use lwp_process::regs::{Regs, restart};

use super::{Answer, Scene, leaf, pc_of};
use crate::state::{View, disarm};

/// Registers of a thread at the first place in a routine with this state.
fn at(scene: &mut Scene, commit: Commit) -> Regs {
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let is = |place: &u64| family.state_at(*place).is_some_and(|(state, _)| state.commit == commit);
    let places =
        (0..family.translator.routines().code.len() as u32).map(|offset| family.routine(offset));
    let mut regs = Regs::default();
    regs.0.rip = { places }.find(is).expect("there is such a place");
    regs
}

fn leaves(scene: &mut Scene, regs: &Regs) -> View {
    let mut view = scene.machine.view(scene.tid, regs).expect("translated code");
    scene.machine.leave(scene.tid, regs, &mut view);
    view
}

/// Words of an indirect table: heads, and links of chains.
type Table = Box<[AtomicU64; 4]>;

fn values(table: &Table) -> [u64; 4] {
    std::array::from_fn(|index| table[index].load(Ordering::SeqCst))
}

#[test]
fn new_entries_are_in_the_table_once_wherever_their_thread_leaves() {
    const OLD: [u64; 2] = [0x111, 0x222];
    const NEW: [u64; 2] = [0x333, 0x444];
    // How far a thread has come with the second entry, which it begins with.
    for progress in 0..3 {
        let mut scene = Scene::exact();
        scene.head(pc_of(leaf));
        let regs = at(&mut scene, Commit::Applying(progress));
        let table: Table = Box::new([OLD[0], OLD[1], 0, 0].map(AtomicU64::new));
        let place = |index: usize| table[index].as_ptr() as u64;
        scene
            .context()
            .set_apply_list(&[[place(0), place(2), NEW[0]], [place(1), place(3), NEW[1]]]);
        let mut regs = regs;
        if progress > 0 {
            // The head has been exchanged.
            regs.0.rax = table[1].swap(NEW[1], Ordering::SeqCst);
        }
        if progress > 1 {
            table[3].store(OLD[1], Ordering::SeqCst);
            regs.0.rax = 0;
        }
        scene.set(Slot::Pc, pc_of(leaf)).set(Slot::Kind, RequestKind::Dispatch as u64);
        leaves(&mut scene, &regs);
        assert_eq!(values(&table), [NEW[0], NEW[1], OLD[0], OLD[1]], "{progress}");
        assert_eq!(scene.context().get(Slot::ApplyCount), 0);
    }
}

#[test]
fn a_list_that_no_host_has_written_is_not_applied() {
    for count in [0, 1 << 20, u64::MAX] {
        let mut scene = Scene::exact();
        scene.head(pc_of(leaf));
        let regs = at(&mut scene, Commit::Applying(0));
        let table: Table = Box::new([1, 2, 3, 4].map(AtomicU64::new));
        let place = |index: usize| table[index].as_ptr() as u64;
        scene.context().set_apply_list(&[[place(0), place(1), 7]]);
        scene.set(Slot::ApplyCount, count).set(Slot::Resp, 1);
        leaves(&mut scene, &regs);
        assert_eq!(values(&table), [1, 2, 3, 4], "{count}");
    }
}

/// A thread has asked to have the low window unmapped, and makes another call in the place of that.
fn in_its_call() -> (Scene, [u64; 3]) {
    let mut scene = Scene::exact();
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let args = [family.layout().low, 4096, 5];
    scene.set(Slot::Rax, nr::MUNMAP).set(Slot::Rdi, args[0]);
    scene.set(Slot::Rsi, args[1]).set(Slot::Rdx, args[2]);
    assert_eq!(scene.ask(RequestKind::Syscall, pc_of(leaf)), Answer::Does);
    assert_eq!(scene.context().get(Slot::Rax), nr::GETPID);
    (scene, args)
}

fn arguments(regs: &Regs) -> [u64; 3] {
    [regs.0.rdi, regs.0.rsi, regs.0.rdx]
}

#[test]
fn a_call_that_has_returned_is_settled_before_its_thread_leaves() {
    for (commit, reported) in [(Commit::RunSyscallDone, false), (Commit::Mailbox, true)] {
        let (mut scene, args) = in_its_call();
        let mut regs = at(&mut scene, commit);
        regs.0.rax = 1234;
        if reported {
            scene.set(Slot::Kind, RequestKind::SyscallDone as u64).set(Slot::Rax, 1234);
            scene.set(Slot::Pc, pc_of(leaf) + 2);
        }
        let view = leaves(&mut scene, &regs);
        assert_eq!((view.app.0.rax, arguments(&view.app)), (0, args), "{commit:?}");
        assert_eq!(view.app.0.rip, pc_of(leaf) + 2);
        assert!(scene.thread().pending.is_none());
    }
}

#[test]
fn a_call_that_a_signal_has_interrupted_is_the_program_s_to_make_again() {
    let (mut scene, args) = in_its_call();
    let mut regs = at(&mut scene, Commit::RunSyscallDone);
    let interrupted =
        (1..4096_i64).map(i64::wrapping_neg).map(|it| it as u64).find(|it| restart::is(*it));
    regs.0.rax = interrupted.expect("there are such results");
    let view = leaves(&mut scene, &regs);
    assert_eq!((view.app.0.rax, arguments(&view.app)), (regs.0.rax, args));
    assert!(scene.thread().pending.is_none());
}

#[test]
fn a_call_that_has_not_been_made_is_as_the_program_has_it_and_not_counted() {
    let (mut scene, args) = in_its_call();
    let regs = at(&mut scene, Commit::Mailbox);
    let counted = lwp_dbt::EventDeltas { instructions: 100, ..Default::default() };
    scene.thread().account.correction.add(counted, 1);
    let before = scene.counts().instructions;
    let view = leaves(&mut scene, &regs);
    assert_eq!((view.app.0.rax, arguments(&view.app)), (nr::MUNMAP, args));
    assert_eq!(view.app.0.rip, pc_of(leaf));
    assert_eq!(scene.counts().instructions, before - 1);
}

#[test]
fn a_signal_frame_that_stands_redirected_is_put_back() {
    let scene = Scene::exact();
    let frame = Box::new([const { AtomicU64::new(0) }; 64]);
    let at = SIGFRAME_RIP / 8;
    frame[at as usize].store(0x5555, Ordering::SeqCst);
    scene.context().set(Slot::SigFrame, frame.as_ptr() as u64);
    scene.context().set(Slot::SigPc, 0x7777);
    disarm(scene.context(), scene.tid);
    assert_eq!(frame[at as usize].load(Ordering::SeqCst), 0x7777);
    // A frame that the program has unmapped meanwhile is nobody's.
    scene.context().set(Slot::SigFrame, u64::MAX - 8);
    disarm(scene.context(), scene.tid);
}
