//! Threads whose misses of a modelled data cache are counted and sampled.

use std::sync::atomic::{AtomicU64, Ordering};

use lwp_dbt::context::{META_REPEATS, NOTE_GOES_ON, NOTES_AT};
use lwp_dbt::{FragmentId, RequestKind, Slot};
use lwp_process::regs::Regs;
use lwp_run::config::{Config, LwpConfig, Plan, Sampled, Sampling, can_watch_caches};

use super::profiles::{address, cut, instruction, sampled};
use super::{Answer, Scene, leaf, pc_of};
use crate::machine::Machine;
use crate::profile::Misses;

/// In [`Slot::LwpMeta`] and notes: a load, or a store, of eight bytes that counts.
const LOAD: u64 = 1 << 14 | 8;
const STORE: u64 = 1 << 14 | 1 << 12 | 8;

/// A run that samples each miss of this number; none where translated code cannot watch caches.
fn sampling(interval: u64) -> Option<Scene> {
    let event = Sampling { what: Sampled::DcacheMisses, interval };
    watching(|config| config.sampling.events = vec![event], Plan::Plain)
}

/// A run that counts misses by instruction.
fn modelling() -> Option<Scene> {
    watching(|config| config.model = Some(LwpConfig::default().caches), Plan::Exact)
}

fn watching(set_up: impl FnOnce(&mut Config), plan: Plan) -> Option<Scene> {
    if !can_watch_caches() {
        eprintln!("skipped: this processor cannot watch caches");
        return None;
    }
    Some(Scene::of(set_up, plan))
}

/// The thread has no room for a note of an access by the first instruction of `leaf`.
fn full(scene: &mut Scene, what: u64, accessed: u64) -> (Answer, u64) {
    let head = scene.head(pc_of(leaf));
    let (FragmentId(fragment), _) = scene.fragment(head);
    scene.set(Slot::LwpFragment, u64::from(fragment)).set(Slot::LwpIndex, 0);
    scene.set(Slot::LwpMeta, what).set(Slot::LwpAddress, accessed);
    let pc = pc_of(leaf);
    (scene.ask(RequestKind::LwpNotes, pc), pc)
}

/// The tracer is about to have an instruction executed.
fn about_to_step(scene: &mut Scene, regs: &Regs) {
    let Machine { tasks, contexts, tracees, .. } = &mut scene.machine;
    let mut profiled = tasks.profiled(contexts, scene.tid).expect("it samples");
    profiled.about_to_step(&**tracees, scene.tid, &regs.0);
}

fn misses(scene: &Scene) -> Vec<(u64, Misses)> {
    let thread = scene.machine.tasks.threads.get(&scene.tid).expect("it lives");
    thread.misses().into_iter().map(|(_, ip, misses)| (ip, misses)).collect()
}

#[test]
fn misses_whose_number_alone_matters_are_not_kept() {
    let Some(mut scene) = sampling(100) else { return };
    assert_eq!(
        (scene.context().get(Slot::LwpKeeps), scene.context().get(Slot::LwpMostNotes)),
        (0, 99)
    );
    scene.set(Slot::LwpNotes, 3 << 32);
    assert_eq!(scene.ask(RequestKind::LwpDue, pc_of(leaf)), Answer::Goes(pc_of(leaf)));
    assert_eq!(sampled(&scene), [3]);
    assert_eq!(
        (scene.context().get(Slot::LwpNotes), scene.context().get(Slot::LwpMostNotes)),
        (0, 96)
    );
}

#[test]
fn the_miss_for_which_there_is_no_room_is_the_sample() {
    let Some(mut scene) = sampling(3) else { return };
    scene.set(Slot::LwpNotes, 2 << 32);
    let (answer, pc) = full(&mut scene, LOAD, 1 << 20);
    assert_eq!((answer, cut(&scene)), (Answer::Goes(pc), None));
    // The sample is still to pass, and three behind it.
    assert_eq!(sampled(&scene), [2]);
    assert_eq!(scene.context().get(Slot::LwpMostNotes), 3);
}

#[test]
fn a_store_that_may_be_the_sample_is_made_alone() {
    let Some(mut scene) = sampling(1) else { return };
    let (answer, pc) = full(&mut scene, STORE, 1 << 20);
    assert_eq!((answer, cut(&scene)), (Answer::Goes(pc), Some((1, false))));
    assert_eq!(sampled(&scene), [0]);
}

#[test]
fn accesses_that_no_code_makes_are_forged() {
    let Some(mut scene) = sampling(1) else { return };
    assert_eq!(full(&mut scene, LOAD, 1 << 20).0, Answer::Goes(pc_of(leaf)));
    scene.set(Slot::LwpIndex, 1 << 20);
    assert_eq!(scene.ask(RequestKind::LwpNotes, pc_of(leaf)), Answer::Forged);
    scene.set(Slot::LwpFragment, u64::from(u32::MAX)).set(Slot::LwpIndex, 0);
    assert_eq!(scene.ask(RequestKind::LwpNotes, pc_of(leaf)), Answer::Forged);
    // Where nothing watches caches, nothing is noted.
    assert_eq!(full(&mut Scene::exact(), LOAD, 1 << 20).0, Answer::Forged);
}

#[test]
fn a_repeated_access_is_left_to_the_countdown() {
    let Some(mut scene) = sampling(3) else { return };
    let (answer, pc) = full(&mut scene, LOAD | u64::from(META_REPEATS), 1 << 20);
    assert_eq!((answer, cut(&scene)), (Answer::Goes(pc), None));
}

#[test]
fn misses_are_counted_by_instruction_and_kind() {
    let Some(mut scene) = modelling() else { return };
    assert_eq!(scene.context().get(Slot::LwpKeeps), 1);
    let pc = pc_of(leaf);
    let note = |what: u64, pc: u64| pc << 16 | what & !0xfff;
    let notes = [
        [1 << 20, note(LOAD, pc)],
        // The second line of the same access.
        [(1 << 20) + 64, note(LOAD, pc) | NOTE_GOES_ON],
        [1 << 21, note(STORE, pc)],
        // The outer levels have it by now.
        [1 << 20, note(LOAD, pc + 1)],
    ];
    for (at, word) in (u64::from(NOTES_AT)..).step_by(8).zip(notes.concat()) {
        scene.context().forge(at, word);
    }
    scene.set(Slot::LwpNotes, notes.len() as u64);
    scene.machine.tasks.lwp_collect(&scene.machine.contexts, scene.tid);
    let [first, second] = misses(&scene).try_into().expect("two instructions");
    let expected = Misses { loads: 1, stores: 1, memory_loads: 1, memory_stores: 1 };
    assert_eq!(first, (pc, expected));
    assert_eq!(second, (pc + 1, Misses { loads: 1, ..Misses::default() }));
}

#[test]
fn an_instruction_of_the_tracers_misses_as_any_other() {
    let Some(mut scene) = sampling(100) else { return };
    // mov rax, [rdi]
    let code = instruction(&[0x48, 0x8b, 0x07]);
    let data = AtomicU64::new(7);
    let tid = scene.tid;
    let mut regs = Regs::default();
    (regs.0.rip, regs.0.rdi) = (address(&code), data.as_ptr() as u64);
    for executed in 1..=2 {
        about_to_step(&mut scene, &regs);
        scene.machine.profiling().lwp_executed(tid, regs.0.rip, regs.0.rip + 3);
        assert_eq!((executed, sampled(&scene)), (executed, vec![1]));
    }
    assert_eq!(data.load(Ordering::SeqCst), 7);
}

#[test]
fn a_repeated_instruction_of_the_tracers_misses_once_a_line() {
    let Some(mut scene) = sampling(100) else { return };
    // rep movsb, of which all but the last are one instruction that has not retired.
    let code = instruction(&[0xf3, 0xa4]);
    let data: Box<[AtomicU64; 64]> = Box::new([const { AtomicU64::new(0) }; 64]);
    let (from, to) = (data[0].as_ptr() as u64, data[32].as_ptr() as u64);
    let tid = scene.tid;
    let mut regs = Regs::default();
    (regs.0.rip, regs.0.rcx, regs.0.rsi, regs.0.rdi) = (address(&code), 128, from, to);
    while regs.0.rcx > 0 {
        about_to_step(&mut scene, &regs);
        regs.0.rcx -= 1;
        regs.0.rsi += 1;
        regs.0.rdi += 1;
    }
    scene.machine.profiling().lwp_executed(tid, regs.0.rip, regs.0.rip + 2);
    let lines = (from + 127) / 64 - from / 64 + 1;
    assert_eq!(sampled(&scene), [lines]);
}
