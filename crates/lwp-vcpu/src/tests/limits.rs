//! Limits on address spaces, and the requests of markers.

use std::sync::atomic::{AtomicU64, Ordering};

use lwp_calls::syscalls::nr;
use lwp_dbt::{RequestKind, Slot};
use lwp_run::config::{Markers, Plan};

use super::{Answer, Scene, leaf, pc_of};

const RLIMIT_AS: u64 = 9;

/// Words of the program's.
fn words<const N: usize>(values: [u64; N]) -> Box<[AtomicU64; N]> {
    Box::new(values.map(AtomicU64::new))
}

fn values<const N: usize>(words: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|index| words[index].load(Ordering::SeqCst))
}

/// The thread makes a call, which returns 0.
fn made(scene: &mut Scene, number: u64, args: [u64; 4]) {
    let slots = [Slot::Rdi, Slot::Rsi, Slot::Rdx, Slot::R10];
    for (slot, value) in slots.into_iter().zip(args) {
        scene.set(slot, value);
    }
    let pc = pc_of(leaf);
    assert_eq!(scene.set(Slot::Rax, number).ask(RequestKind::Syscall, pc), Answer::Does);
    scene.set(Slot::Rax, 0);
    assert_eq!(scene.ask(RequestKind::SyscallDone, pc + 2), Answer::Goes(pc + 2));
}

#[test]
fn a_limit_of_the_program_s_is_higher_by_what_is_ours_and_looks_like_its_own() {
    const OWN: [u64; 2] = [1 << 40, 1 << 41];
    let mut scene = Scene::exact();
    let limit = words(OWN);
    made(&mut scene, nr::SETRLIMIT, [RLIMIT_AS, limit.as_ptr() as u64, 0, 0]);
    assert_eq!(values(&limit), OWN, "the program's memory stays as it is");
    let raised = scene.machine.tasks.raised.0[&scene.tid];
    assert!(raised[0] > 0 && raised[1] >= raised[0], "{raised:?}");
    // The kernel tells of its own.
    let told = words([OWN[0] + raised[0], OWN[1] + raised[1]]);
    made(&mut scene, nr::GETRLIMIT, [RLIMIT_AS, told.as_ptr() as u64, 0, 0]);
    assert_eq!(values(&told), OWN);
    let endless = words([OWN[0] + raised[0], u64::MAX]);
    made(&mut scene, nr::PRLIMIT64, [0, RLIMIT_AS, 0, endless.as_ptr() as u64]);
    assert_eq!(values(&endless), [OWN[0], u64::MAX]);
    // Limits of other things are the kernel's.
    let other = words([5, 6]);
    made(&mut scene, nr::GETRLIMIT, [RLIMIT_AS + 1, other.as_ptr() as u64, 0, 0]);
    assert_eq!(values(&other), [5, 6]);
}

/// The instructions by which programs ask valgrind, and the length up to the last.
const ASKS: [u8; 19] = [
    0x48, 0xc1, 0xc7, 0x03, 0x48, 0xc1, 0xc7, 0x0d, 0x48, 0xc1, 0xc7, 0x3d, 0x48, 0xc1, 0xc7, 0x33,
    0x48, 0x87, 0xdb,
];
const LAST: u64 = 16;
const RUNNING_ON_VALGRIND: u64 = 0x1001;
pub(super) const CALLGRIND: u64 = 0x4354_0000;
const ZERO_STATS: u64 = CALLGRIND + 1;
const TOGGLE_COLLECT: u64 = CALLGRIND + 2;
const START_INSTRUMENTATION: u64 = CALLGRIND + 4;
const STOP_INSTRUMENTATION: u64 = CALLGRIND + 5;

/// A run that obeys a program's requests to callgrind.
fn obedient(collect: bool) -> Scene {
    let markers = Markers::Callgrind { instrument: true, collect };
    let mut scene = Scene::of(|config| config.counted.markers = Some(markers), Plan::Exact);
    scene.head(pc_of(leaf));
    scene
}

/// The thread makes a request; what it finds in rdx.
fn request(scene: &mut Scene, number: u64) -> u64 {
    request_about(scene, number, 0)
}

/// The thread makes a request with a first argument; what it finds in rdx.
pub(super) fn request_about(scene: &mut Scene, number: u64, what: u64) -> u64 {
    let asked = words([number, what, 0, 0, 0, 0]);
    let code = Box::new(ASKS);
    let at = code.as_ptr() as u64;
    scene.set(Slot::Rax, asked.as_ptr() as u64).set(Slot::Rdx, 77);
    scene.ask(RequestKind::Marker, at + LAST);
    scene.context().get(Slot::Rdx)
}

fn counts(scene: &mut Scene) -> bool {
    scene.thread().account.counting
}

#[test]
fn a_program_learns_that_its_requests_are_obeyed() {
    assert_eq!(request(&mut obedient(true), RUNNING_ON_VALGRIND), 1);
    // Where nobody obeys them nothing answers.
    let mut scene =
        Scene::of(|config| config.counted.markers = Some(Markers::Between), Plan::Exact);
    assert_eq!(request(&mut scene, RUNNING_ON_VALGRIND), 77);
    assert_eq!(request(&mut obedient(true), CALLGRIND + 99), 77);
}

#[test]
fn requests_switch_the_counting_of_a_thread_and_of_its_process() {
    let mut scene = obedient(true);
    assert!(counts(&mut scene));
    assert_eq!(request(&mut scene, TOGGLE_COLLECT), 0);
    assert!(!counts(&mut scene));
    request(&mut scene, TOGGLE_COLLECT);
    assert!(counts(&mut scene));
    request(&mut scene, STOP_INSTRUMENTATION);
    assert!(!counts(&mut scene));
    request(&mut scene, TOGGLE_COLLECT);
    request(&mut scene, TOGGLE_COLLECT);
    assert!(!counts(&mut scene), "the process is not counted");
    request(&mut scene, START_INSTRUMENTATION);
    assert!(counts(&mut scene));
    assert!(!counts(&mut obedient(false)));
}

#[test]
fn counts_start_over_on_request() {
    let mut scene = obedient(true);
    let tid = scene.tid;
    let correction = lwp_dbt::EventDeltas { instructions: 100, ..Default::default() };
    scene.thread().account.correction.add(correction, 1);
    let so_far =
        |scene: &mut Scene| scene.machine.counting().so_far()[0].threads[0].counts.instructions;
    assert_eq!(so_far(&mut scene), 100);
    request(&mut scene, ZERO_STATS);
    assert_eq!(so_far(&mut scene), 0);
    scene.thread().account.correction.add(correction, 1);
    assert_eq!(so_far(&mut scene), 100);
    assert!(scene.machine.tasks.threads.contains_key(&tid));
}
