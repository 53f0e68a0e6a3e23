//! Restartable sequences of processes that lwp attaches to.

use lwp_calls::syscalls::nr;
use lwp_dbt::{RequestKind, Slot};
use lwp_process::{Stop, Tid, Tracee};
use lwp_run::config::{Plan, Target};

use super::script::Done::Goes;
use super::stage::{Idle, Stage};
use super::{Scene, leaf, pc_of};
use crate::server::syscall_done;

const EINVAL: i64 = -22;
const ENOSYS: i64 = -38;
/// A process that there is not.
const CHILD: Tid = i32::MAX - 7;

/// Attaches to a process whose second thread has registered an area with these words.
fn attached(words: Option<&[u64; 4]>) -> (Stage, Result<(), String>) {
    let stage = Stage::before(Target::Attach { pid: std::process::id() as i32 });
    let other = Idle::new();
    for tid in [stage.tid, other.tid] {
        stage.stands(tid, &stage.regs_at(pc_of(leaf)));
    }
    let area = words.map(|words| words.as_ptr() as u64);
    stage.script.thread(other.tid, |thread| thread.rseq = area);
    let threads = [stage.tid, other.tid].map(Tracee);
    let result = stage.tracer().attach(stage.tid, &threads);
    (stage, result)
}

fn has_rseq(stage: &Stage, tid: Tid) -> bool {
    crate::tracer::rseq::has_rseq(&stage.machine().tasks, tid)
}

#[test]
fn a_process_with_areas_keeps_them_as_do_its_copies() {
    let (stage, attach) = attached(Some(&[0; 4]));
    assert_eq!(attach, Ok(()));
    assert!(has_rseq(&stage, stage.tid));
    let mut regs = stage.regs(stage.tid);
    regs.0.orig_rax = nr::FORK;
    stage.stands(stage.tid, &regs);
    stage.stands(CHILD, &regs);
    stage.script.thread(stage.tid, |thread| thread.message = CHILD as u64);
    stage.stop(stage.tid, Stop::Child);
    assert!(has_rseq(&stage, CHILD));
}

#[test]
fn a_process_without_areas_gets_none() {
    let (stage, attach) = attached(None);
    assert_eq!(attach, Ok(()));
    assert!(!has_rseq(&stage, stage.tid));
}

#[test]
fn a_process_that_uses_sequences_is_left_alone() {
    let (stage, attach) = attached(Some(&[0, 0x5000, 0, 0]));
    let reason = attach.expect_err("it cannot be translated");
    assert!(reason.contains("uses restartable sequences"), "{reason}");
    let done = stage.script.done();
    assert!(!done.iter().any(|it| matches!(it, Goes(..))), "{done:?}");
}

/// The flags with which rseq(2) is made, and its result, if the kernel returns `result`.
fn called(has_rseq: bool, area: u64, result: i64) -> (u64, i64) {
    let mut scene = Scene::of(|_| {}, Plan::Exact);
    let tid = scene.tid;
    scene.machine.tasks.processes.entry(tid).and_modify(|process| process.rseq = has_rseq);
    let code = b"\x0f\x05\xc3";
    scene.set(Slot::Rax, nr::RSEQ).set(Slot::Rdi, area).set(Slot::Rsi, 32).set(Slot::Rdx, 0);
    scene.ask(RequestKind::Syscall, code.as_ptr() as u64);
    let flags = scene.context().get(Slot::Rdx);
    scene.set(Slot::Rax, result as u64);
    syscall_done(&mut scene.machine, tid);
    (flags, scene.context().get(Slot::Rax) as i64)
}

#[test]
fn the_kernel_registers_an_area_only_if_the_process_had_some() {
    let (flags, result) = called(true, 4096, 0);
    assert_eq!((flags, result), (0, 0));
    assert_eq!(called(true, 4096, EINVAL).1, EINVAL, "another one is registered");
    let (flags, result) = called(false, 4096, EINVAL);
    assert_ne!(flags, 0);
    assert_eq!(result, ENOSYS);
    assert_eq!(called(false, 1, EINVAL).1, EINVAL, "no kernel accepts the address");
}
