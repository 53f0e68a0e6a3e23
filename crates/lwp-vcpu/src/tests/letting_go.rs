//! Processes that are let go as a whole.

use lwp_calls::syscalls::nr;
use lwp_dbt::{RequestKind, Slot};
use lwp_process::regs::Regs;
use lwp_process::tracees::Until;
use lwp_process::{Stop, Tid};

use super::script::Done::{Detached, Goes, Interrupted};
use super::stage::{Idle, Stage};
use super::{leaf, pc_of};
use crate::machine::Mode;
use crate::tracer::Tracer;

const SIGSTOP: i32 = 19;
/// A process that there is not.
const CHILD: Tid = i32::MAX - 7;

/// A process of two threads, which is to be let go.
fn asked() -> (Stage, Idle, Regs) {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let other = stage.another();
    (stage, other, cache)
}

/// Everything is asked to stop.
fn detaching(stage: &Stage) -> Tracer<'_> {
    let mut tracer = stage.tracer();
    tracer.detach_all();
    stage.script.done();
    tracer
}

/// A thread stops for this while everything is let go.
fn stops(stage: &Stage, tracer: &mut Tracer<'_>, tid: Tid, stop: Stop) -> Vec<super::script::Done> {
    let gone = matches!(stop, Stop::Exited(_) | Stop::Killed { .. });
    stage.script.thread(tid, |thread| thread.stopped = !gone);
    tracer.stopped(tid, stop);
    stage.script.done()
}

#[test]
fn threads_wait_for_each_other_and_leave_together() {
    let (stage, other, _) = asked();
    let mut tracer = detaching(&stage);
    assert_eq!(stops(&stage, &mut tracer, stage.tid, Stop::Interrupted), []);
    assert!(matches!(stage.mode(stage.tid), Mode::Parked { group: false, .. }));
    let done = stops(&stage, &mut tracer, other.tid, Stop::Interrupted);
    for tid in [stage.tid, other.tid] {
        assert!(done.contains(&Detached(tid)), "{done:?}");
        assert_eq!(stage.regs(tid).0.rip, pc_of(leaf));
    }
    assert!(stage.machine().tasks.threads.is_empty());
    assert!(stage.machine().tasks.processes.is_empty());
}

#[test]
fn a_thread_that_ends_instead_is_not_waited_for() {
    let (stage, other, _) = asked();
    let mut tracer = detaching(&stage);
    assert_eq!(stops(&stage, &mut tracer, stage.tid, Stop::Interrupted), []);
    let done = stops(&stage, &mut tracer, other.tid, Stop::Exited(0));
    assert_eq!(done.last(), Some(&Detached(stage.tid)));
    assert!(stage.machine().tasks.processes.is_empty());
}

#[test]
fn a_call_that_has_been_interrupted_is_made_again_natively() {
    const EINTR: u64 = -4i64 as u64;
    const EPOLL_WAIT: u64 = 232;
    let (stage, mut regs, site) = Stage::in_call(EPOLL_WAIT, EINTR);
    // It waits for as long as it takes.
    regs.0.r10 = u64::from(u32::MAX);
    stage.stands(stage.tid, &regs);
    let mut tracer = detaching(&stage);
    let done = stops(&stage, &mut tracer, stage.tid, Stop::Interrupted);
    assert_eq!(done.last(), Some(&Detached(stage.tid)));
    assert_eq!((stage.regs(stage.tid).0.rip, stage.regs(stage.tid).0.rax), (site, EPOLL_WAIT));
    // Job control ends it natively, too.
    let (stage, _, site) = Stage::in_call(EPOLL_WAIT, EINTR);
    let mut tracer = detaching(&stage);
    let done = stops(&stage, &mut tracer, stage.tid, Stop::Group(SIGSTOP));
    assert_eq!(done.last(), Some(&Detached(stage.tid)));
    assert_eq!((stage.regs(stage.tid).0.rip, stage.regs(stage.tid).0.rax), (site + 2, EINTR));
}

#[test]
fn the_kernel_decides_what_becomes_of_a_call_that_is_interrupted_for_this() {
    const EINTR: u64 = -4i64 as u64;
    const ERESTARTNOHAND: u64 = -514i64 as u64;
    const EPOLL_WAIT: u64 = 232;
    for result in [EINTR, ERESTARTNOHAND] {
        let (stage, mut regs, site) = Stage::in_call(EPOLL_WAIT, result);
        regs.0.r10 = u64::from(u32::MAX);
        let other = stage.another();
        stage.stands(stage.tid, &regs);
        let mut tracer = detaching(&stage);
        stops(&stage, &mut tracer, stage.tid, Stop::Interrupted);
        // The other one is outside of calls, and does the work.
        let asks = stage.asking(other.tid, RequestKind::Dispatch, pc_of(leaf));
        stage.stands(other.tid, &asks);
        stops(&stage, &mut tracer, other.tid, Stop::Interrupted);
        let regs = stage.regs(stage.tid).0;
        assert_eq!((regs.rip, regs.rax), (site + 2, ERESTARTNOHAND));
        assert_eq!(regs.orig_rax, EPOLL_WAIT);
    }
}

#[test]
fn a_descriptor_is_not_closed_twice() {
    const CLOSE: u64 = 3;
    const EINTR: u64 = -4i64 as u64;
    let (stage, _, site) = Stage::in_call(CLOSE, EINTR);
    let mut tracer = detaching(&stage);
    stops(&stage, &mut tracer, stage.tid, Stop::Interrupted);
    assert_eq!((stage.regs(stage.tid).0.rip, stage.regs(stage.tid).0.rax), (site + 2, EINTR));
}

#[test]
fn a_thread_that_takes_the_signal_that_stops_its_group_leaves_stopped() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    let mut tracer = detaching(&stage);
    stage.script.thread(tid, |thread| thread.info = Some((SIGSTOP, 0, 0)));
    let done = stops(&stage, &mut tracer, tid, Stop::Signal(SIGSTOP));
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGSTOP)]);
    assert!(matches!(stage.mode(tid), Mode::Delivering { .. }));
    // Nothing has come of it but the stop.
    let done = stops(&stage, &mut tracer, tid, Stop::Group(SIGSTOP));
    assert_eq!(done.first(), Some(&Interrupted(tid)), "it stops again before it executes anything");
    assert_eq!(stage.regs(tid).0.rip, cache.0.rip);
    let done = stops(&stage, &mut tracer, tid, Stop::Group(SIGSTOP));
    assert_eq!(done.last(), Some(&Detached(tid)));
    assert_eq!(stage.regs(tid).0.rip, pc_of(leaf));
}

#[test]
fn a_process_whose_memory_another_uses_goes_on() {
    let (stage, other, cache) = asked();
    let mut tracer = detaching(&stage);
    assert_eq!(stops(&stage, &mut tracer, stage.tid, Stop::Interrupted), []);
    // Its other thread has made a process that shares its memory.
    let mut regs = cache;
    regs.0.orig_rax = nr::VFORK;
    stage.stands(other.tid, &regs);
    stage.stands(CHILD, &regs);
    stage.script.thread(other.tid, |thread| thread.message = CHILD as u64);
    let done = stops(&stage, &mut tracer, other.tid, Stop::Child);
    assert!(done.contains(&Goes(stage.tid, Until::Event, 0)), "{done:?}");
    assert!(matches!(stage.mode(stage.tid), Mode::Running));
    assert_eq!(stage.slot(stage.tid, Slot::Pc), pc_of(leaf));
}
