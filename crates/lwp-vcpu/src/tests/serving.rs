//! The host thread that answers whoever rings.

use std::hint::black_box;
use std::sync::Mutex;
use std::thread::{Builder, yield_now};
use std::time::{Duration, Instant};

use lwp_dbt::{CachePc, RequestKind, Slot};
use lwp_process::sys;
use lwp_run::config::{Guards, Plan};

use super::stage::Idle;
use super::{Scene, branches, leaf, pc_of};
use crate::machine::{Machine, Mode, Process};
use crate::server::{finish, lock, serve};
use crate::state::known_pc;

/// A function that leads to much other code.
#[inline(never)]
extern "C" fn much(number: u64) -> u64 {
    let mut numbers: Vec<u64> = (0..number).map(|it| leaf(it)).collect();
    numbers.sort_unstable();
    black_box(format!("{numbers:?}")).len() as u64
}

/// Waits until something holds, which another thread sees to.
fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        yield_now();
    }
}

/// The thread in a context rings and waits, as translated code does; where it goes on.
fn rings(machine: &Mutex<Machine>, (tid, slot): (i32, usize), pc: u64) -> Option<u64> {
    let guard = lock(machine);
    let context = guard.contexts.context(slot);
    context.set(Slot::Kind, RequestKind::Dispatch as u64);
    context.set(Slot::Pc, pc);
    context.set(Slot::Resp, 0);
    // It spins, and what it may come to next is left for when nobody asks.
    context.set(Slot::Spin, 1000);
    context.ring();
    drop(guard);
    until("it is answered", || lock(machine).contexts.context(slot).get(Slot::Resp) != 0);
    let mut guard = lock(machine);
    let go = guard.contexts.context(slot).get(Slot::Go);
    known_pc(guard.space_of(tid)?.1, CachePc(go))
}

fn translated(machine: &Mutex<Machine>, tid: i32) -> usize {
    let mut guard = lock(machine);
    let (_, family) = guard.space_of(tid).expect("an address space");
    family.modules.iter().map(|(_, module)| module.unit.new_fragments()).sum()
}

/// The number of fragments that one answer translates of `much`, and of the code that it leads to.
fn by_one_answer() -> usize {
    let mut scene = Scene::exact();
    scene.set(Slot::Spin, 1000).head(pc_of(much));
    let (machine, tid) = (Mutex::new(scene.machine), scene.tid);
    translated(&machine, tid)
}

#[test]
fn threads_that_ring_are_answered_and_more_is_translated_while_nobody_does() {
    let mut scene = Scene::of(|config| config.trials.guards = Guards::Protection, Plan::Exact);
    let (tid, slot) = (scene.tid, scene.slot);
    // Somebody has to wait for writes to guarded pages, too.
    scene.machine.guarding().find_notices(tid);
    let machine = Mutex::new(scene.machine);
    std::thread::scope(|scope| {
        let served = Builder::new().spawn_scoped(scope, || serve(&machine, scope));
        for pc in [leaf, much, branches, much].map(pc_of) {
            assert_eq!(rings(&machine, (tid, slot), pc), Some(pc));
        }
        finish(&machine);
        served.expect("a thread").join().expect("it ends");
    });
    if sys::allowed_cpus() > 1 {
        let (all, answered) = (translated(&machine, tid), by_one_answer());
        assert!(all > answered, "{all} and {answered}");
    }
}

#[test]
fn a_host_that_sleeps_is_woken_by_threads_of_any_address_space() {
    let scene = Scene::exact();
    let (tid, slot) = (scene.tid, scene.slot);
    let machine = Mutex::new(scene.machine);
    let doors = lock(&machine).contexts.doors.clone();
    let sleeps = || doors.sleep_word().load(std::sync::atomic::Ordering::SeqCst) != 0;
    std::thread::scope(|scope| {
        let served = Builder::new().spawn_scoped(scope, || serve(&machine, scope));
        until("it sleeps", sleeps);
        assert_eq!(rings(&machine, (tid, slot), pc_of(leaf)), Some(pc_of(leaf)));
        until("it sleeps again", sleeps);
        // Another process comes, with contexts that the host has not slept on.
        let idle = Idle::new();
        let mut guard = lock(&machine);
        let contexts = guard.contexts.files.add().expect("memory for contexts");
        let space = guard.tasks.processes[&tid].space;
        let report = guard.observers.add_report(idle.tid, tid, String::new(), String::new());
        let process = Process { space, ..Process::new(report, contexts) };
        guard.tasks.processes.insert(idle.tid, process);
        let other = guard.add_thread(idle.tid, idle.tid, contexts).expect("a context");
        guard.tasks.threads.get_mut(&idle.tid).expect("it lives").mode = Mode::Running;
        drop(guard);
        assert_eq!(rings(&machine, (idle.tid, other), pc_of(branches)), Some(pc_of(branches)));
        until("it sleeps once more", sleeps);
        finish(&machine);
        served.expect("a thread").join().expect("it ends");
    });
}
