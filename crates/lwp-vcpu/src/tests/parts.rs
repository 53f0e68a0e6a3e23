//! Counts of a program's parts: those that it ends by requests, and those of named functions.

use std::os::unix::fs::MetadataExt;

use lwp_dbt::{RequestKind, Slot};
use lwp_process::maps;
use lwp_process::regs::Regs;
use lwp_run::config::{Markers, Plan};
use lwp_run::sampled_code::CodePlace;

use super::limits::{CALLGRIND, request_about};
use super::recording::{mark, recorded};
use super::{Answer, Scene, branches, leaf, pc_of};

const DUMP_STATS: u64 = CALLGRIND;
const DUMP_STATS_AT: u64 = CALLGRIND + 3;

#[test]
fn a_program_ends_parts_of_its_counts_and_calls_them_as_it_likes() {
    let markers = Markers::Callgrind { instrument: true, collect: true };
    let (mut scene, notes) = recorded(|config| config.counted.markers = Some(markers), Plan::Exact);
    scene.head(pc_of(leaf));
    let tid = scene.tid;
    let step = |scene: &mut Scene| {
        scene.machine.observers.note_place(&mut scene.machine.tasks, tid, |places| {
            places.stepped(pc_of(leaf), 3);
        });
    };
    step(&mut scene);
    let label = b"warm \xff up\0and more";
    assert_eq!(request_about(&mut scene, DUMP_STATS_AT, label.as_ptr() as u64), 0);
    step(&mut scene);
    // A name that cannot be read is none.
    request_about(&mut scene, DUMP_STATS_AT, 8);
    request_about(&mut scene, DUMP_STATS, 0);
    scene.machine.counting().remove_thread(tid);
    notes.with(|told| {
        let parts: Vec<_> =
            told.parts.iter().map(|(_, serials, name)| (&**serials, &**name)).collect();
        let expected: [(&[u32], &str); 3] = [(&[0], "warm \u{fffd} up"), (&[1], ""), (&[2], "")];
        assert_eq!(parts, expected);
        assert!(told.parts.iter().all(|(pid, ..)| *pid == tid));
        // Each part has what was executed in it.
        let steps = |serial: u32| -> i64 {
            let its = told.threads.iter().rfind(|thread| thread.serial == serial);
            its.expect("it is told").steps.iter().map(|(.., times)| times).sum()
        };
        assert_eq!([0, 1, 2, 3].map(steps), [3, 3, 0, 0]);
    });
}

#[test]
fn requests_about_parts_do_nothing_where_nobody_records() {
    let markers = Markers::Callgrind { instrument: true, collect: true };
    let mut scene = Scene::of(|config| config.counted.markers = Some(markers), Plan::Exact);
    scene.head(pc_of(leaf));
    assert_eq!(request_about(&mut scene, DUMP_STATS, 0), 0);
    assert!(scene.thread().account.counting);
}

#[test]
fn a_marker_reads_the_count_of_every_event() {
    const READ: u8 = 3;
    let mut scene = Scene::exact();
    let deltas = lwp_dbt::EventDeltas {
        instructions: 1000,
        branches: 80,
        conditional: 50,
        conditional_taken: 20,
        calls: 7,
        returns: 6,
        indirect: 5,
    };
    scene.thread().account.correction.add(deltas, 1);
    // The marker's own instruction is not among them.
    for (event, count) in [999, 80, 80 - 50 + 20, 50, 20, 7, 6, 5].into_iter().enumerate() {
        scene.set(Slot::Rdi, event as u64).set(Slot::Rdx, 0);
        mark(&mut scene, READ);
        let told = [Slot::Rax, Slot::Rdx].map(|slot| scene.context().get(slot));
        assert_eq!(told, [count, 1], "event {event}");
    }
    // Where nothing is counted exactly, nothing is told.
    let mut scene = Scene::of(|_| {}, Plan::Plain);
    scene.set(Slot::Rdi, 0).set(Slot::Rdx, 0);
    mark(&mut scene, READ);
    assert_eq!(scene.context().get(Slot::Rdx), 0);
}

/// A run that counts in `branches` and in what it calls.
fn within() -> Scene {
    let tid = std::process::id() as i32;
    let pc = pc_of(branches);
    let mapping = maps::read(tid).into_iter().find(|it| (it.start..it.end).contains(&pc));
    let mapping = mapping.expect("its file");
    let file = std::fs::metadata(&mapping.name).expect("it is there");
    let first = pc - mapping.start + mapping.offset;
    let place = CodePlace::File { device: file.dev(), inode: file.ino(), first, last: first };
    let set_up = |config: &mut lwp_run::config::Config| {
        config.counted.within = vec![place];
        config.counted.markers = Some(Markers::Between);
    };
    Scene::of(set_up, Plan::Exact)
}

/// The thread is about to execute an instruction alone.
fn executes(scene: &mut Scene, pc: u64, stack: u64) {
    let mut regs = Regs::default();
    (regs.0.rip, regs.0.rsp) = (pc, stack);
    let tid = scene.tid;
    scene.machine.marking().enter_function(tid, &regs);
}

#[test]
fn a_thread_counts_in_named_functions_until_it_has_returned_from_the_outermost() {
    let mut scene = within();
    let [to, pc] = [leaf, branches].map(pc_of);
    assert_eq!(scene.ask(RequestKind::Indirect, to), Answer::Goes(to));
    scene.head(pc);
    // Two frames of a stack, both of which return to `leaf`.
    let stack = Box::new([to, 0, to, 0].map(std::sync::atomic::AtomicU64::new));
    let [inner, outer] = [0, 2].map(|at: usize| stack[at].as_ptr() as u64);
    let counts = |scene: &mut Scene| scene.thread().account.counting;
    executes(&mut scene, to, outer);
    assert!(!counts(&mut scene), "no such function begins there");
    for frame in [outer, outer, inner] {
        executes(&mut scene, pc, frame);
        assert!(counts(&mut scene));
    }
    // Whoever returns there asks.
    let returns = |scene: &mut Scene, stack: u64| {
        let tid = scene.tid;
        scene.machine.marking().returned(tid, to, stack)
    };
    assert!(!returns(&mut scene, inner + 8), "the outer one is still to return there");
    assert!(counts(&mut scene));
    assert!(returns(&mut scene, outer + 8));
    assert!(!counts(&mut scene));
    // A jump over both frames ends both.
    executes(&mut scene, pc, outer);
    executes(&mut scene, pc, inner);
    assert!(returns(&mut scene, outer + 64));
    assert!(!counts(&mut scene));
    // A stack that cannot be read is none that one returns from.
    executes(&mut scene, pc, 8);
    assert!(!counts(&mut scene));
}
