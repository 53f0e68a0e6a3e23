//! Processes that others control: what a guardian is told of its ward, and what it can have done.

use lwp_calls::syscalls::{Pending, nr};
use lwp_process::nested_ptrace::{self as door, kind};
use lwp_process::regs::Regs;
use lwp_process::tracees::Until;
use lwp_process::{Stop, Tid};

use super::script::Done::{self, Detached, Goes, Interrupted, Killed};
use super::stage::{Idle, Stage};
use super::{leaf, pc_of};
use crate::machine::Moving;
use crate::tracer::controlled_processes::asked;

const ESRCH: i64 = -3;
const EBUSY: i64 = -16;
const SIGKILL: i32 = 9;
/// No descriptor: the guardian asks every now and then.
const NO_BELL: u64 = u32::MAX as u64;

/// A process of the program and another that it has made, which runs.
struct Pair {
    stage: Stage,
    ward: Idle,
    cache: Regs,
    /// The place that a guardian has told of for events.
    event: Box<[u64; 4]>,
}

impl Pair {
    fn new() -> Self {
        let (stage, cache) = Stage::at(pc_of(leaf));
        let ward = Idle::new();
        let mut forking = cache;
        forking.0.orig_rax = nr::FORK;
        stage.stands(stage.tid, &forking);
        stage.stands(ward.tid, &forking);
        stage.script.thread(stage.tid, |thread| thread.message = ward.tid as u64);
        stage.stop(stage.tid, Stop::Child);
        stage.stop(ward.tid, Stop::Interrupted);
        Self { stage, ward, cache, event: Box::new([0; 4]) }
    }

    fn ask(&self, request: u64, pid: Tid, address: u64, data: u64) -> i64 {
        let call = Pending::new(nr::PTRACE, [request, pid as u64, address, data]);
        let mut machine = self.stage.machine();
        asked(&mut machine, self.stage.tid, &call).expect("it is a request")
    }

    /// The next event of the ward: kind and thread.
    fn next(&self) -> Option<[u64; 2]> {
        let at = self.event.as_ptr() as u64;
        let read = |offset| lwp_process::memory::read_u64(self.stage.tid, at + offset);
        match self.ask(door::NEXT, self.ward.tid, at, 0) {
            1 => Some([0, 8].map(|offset| read(offset).expect("it is there"))),
            none => {
                assert_eq!(none, 0);
                None
            }
        }
    }

    /// Does what has been asked for.
    fn attend(&self) -> Vec<Done> {
        self.stage.tracer().needs();
        self.stage.script.done()
    }

    /// The ward stops where it is, in its own translated code.
    fn stops(&self, stop: Stop) -> Vec<Done> {
        self.stage.stands(self.ward.tid, &self.cache);
        self.stage.stop(self.ward.tid, stop)
    }
}

#[test]
fn other_calls_are_no_requests() {
    let pair = Pair::new();
    let mut machine = pair.stage.machine();
    for call in
        [Pending::new(nr::PTRACE, [16, 1, 0, 0]), Pending::new(nr::GETPID, [door::PROBE, 0, 0, 0])]
    {
        assert_eq!(asked(&mut machine, pair.stage.tid, &call), None);
    }
}

#[test]
fn a_ward_has_one_guardian_and_is_known_by_it_alone() {
    let pair = Pair::new();
    let ward = pair.ward.tid;
    assert_eq!(pair.ask(door::GO, ward, 0, 0), ESRCH);
    assert_eq!(pair.ask(door::TAKE, pair.stage.tid, NO_BELL, 0), ESRCH, "nobody is its own ward");
    assert_eq!(pair.ask(door::GUARDIAN, ward, 0, 0), 0);
    assert_eq!(pair.ask(door::TAKE, ward, NO_BELL, 0), 0);
    assert_eq!(pair.ask(door::TAKE, ward, NO_BELL, 0), EBUSY);
    assert_eq!(pair.ask(door::GUARDIAN, ward, 0, 0), i64::from(pair.stage.tid));
    assert_eq!(pair.next(), None);
}

#[test]
fn a_thread_stands_still_when_it_is_asked_to_and_goes_on_when_it_is_let() {
    let pair = Pair::new();
    let ward = pair.ward.tid;
    assert_eq!(pair.ask(door::TAKE, ward, NO_BELL, door::STAND), 0);
    assert_eq!(pair.attend(), [Interrupted(ward)]);
    assert_eq!(pair.stops(Stop::Interrupted), [], "it is held");
    assert_eq!(pair.next(), Some([kind::STOPPED, ward as u64]));
    assert_eq!(pair.next(), Some([kind::STANDING, ward as u64]));
    assert_eq!(pair.ask(door::GO, ward, 0, 0), 0);
    assert_eq!(pair.attend(), [Goes(ward, Until::Event, 0)]);
    // Once more, while it stands still in a stop of its group.
    assert_eq!(pair.ask(door::STOP, ward, 0, 0), 0);
    assert_eq!(pair.attend(), [Interrupted(ward)]);
    assert_eq!(pair.stops(Stop::Group(19)), []);
    assert_eq!(pair.ask(door::GO, ward, 0, 0), 0);
    assert_eq!(pair.attend(), [Done::Listens(ward)]);
}

#[test]
fn a_guardian_is_told_of_threads_ends_and_departures() {
    let pair = Pair::new();
    let ward = pair.ward.tid;
    assert_eq!(pair.ask(door::TAKE, ward, NO_BELL, 0), 0);
    // A new thread of the ward.
    let thread = Idle::new();
    let mut cloning = pair.cache;
    (cloning.0.orig_rax, cloning.0.rdi) = (nr::CLONE, 0x1_0100);
    pair.stage.stands(ward, &cloning);
    pair.stage.stands(thread.tid, &cloning);
    pair.stage.script.thread(ward, |it| it.message = thread.tid as u64);
    // It has come to its maker's contexts meanwhile.
    pair.stage.machine().tasks.threads.get_mut(&ward).expect("it lives").moving = Moving::Done;
    pair.stage.stop(ward, Stop::Child);
    assert_eq!(pair.stage.stop(thread.tid, Stop::Interrupted), []);
    assert_eq!(pair.next(), Some([kind::THREAD, thread.tid as u64]));
    assert_eq!(pair.ask(door::GO, thread.tid, 0, 0), 0);
    assert_eq!(pair.attend().last(), Some(&Goes(thread.tid, Until::Event, 0)));
    // Its end, before and after.
    assert_eq!(pair.stage.stop(thread.tid, Stop::Exiting), []);
    assert_eq!(pair.next(), Some([kind::EXITING, thread.tid as u64]));
    assert_eq!(pair.ask(door::GO, thread.tid, 0, 0), 0);
    pair.attend();
    pair.stage.stop(thread.tid, Stop::Exited(0));
    assert_eq!(pair.next(), Some([kind::GONE, thread.tid as u64]));
    // That of the process is told of after it is gone, once.
    pair.stage.stop(ward, Stop::Exited(0));
    assert_eq!(pair.next(), Some([kind::GONE, ward as u64]));
    assert_eq!(pair.ask(door::NEXT, ward, 0, 0), ESRCH);
}

#[test]
fn a_ward_that_was_made_for_its_guardian_dies_with_it() {
    let pair = Pair::new();
    let ward = pair.ward.tid;
    assert_eq!(pair.ask(door::TAKE, ward, NO_BELL, door::CREATED), 0);
    let done = pair.stage.stop(pair.stage.tid, Stop::Exited(0));
    assert!(done.contains(&Killed(ward, SIGKILL)), "{done:?}");
}

#[test]
fn a_ward_that_is_let_go_goes_on() {
    let pair = Pair::new();
    let ward = pair.ward.tid;
    assert_eq!(pair.ask(door::TAKE, ward, NO_BELL, door::STAND), 0);
    pair.attend();
    pair.stops(Stop::Interrupted);
    assert_eq!(pair.ask(door::DROP, ward, 0, 0), 0);
    assert_eq!(pair.attend(), [Goes(ward, Until::Event, 0)]);
    assert_eq!(pair.ask(door::GUARDIAN, ward, 0, 0), 0);
}

#[test]
fn wards_go_on_when_the_run_lets_everything_go() {
    let pair = Pair::new();
    let ward = pair.ward.tid;
    assert_eq!(pair.ask(door::TAKE, ward, NO_BELL, door::STAND), 0);
    pair.attend();
    pair.stops(Stop::Interrupted);
    let mut tracer = pair.stage.tracer();
    tracer.detach_all();
    tracer.needs();
    let done = pair.stage.script.done();
    assert!(done.contains(&Goes(ward, Until::Event, 0)), "{done:?}");
    pair.stage.stands(ward, &pair.cache);
    tracer.stopped(ward, Stop::Interrupted);
    assert_eq!(pair.stage.script.done().last(), Some(&Detached(ward)));
}
