//! Translations that are kept from run to run, and what is learned of their executions.

use std::path::PathBuf;
use std::time::Duration;

use lwp_dbt::{AppPc, Knowledge, RequestKind};

use super::{Answer, Scene, branches, leaf, pc_of};
use crate::config::{Cache, Config, Plan, Warm};
use crate::family::Module;
use crate::maps;
use crate::warm::Warming;

/// A directory for a store, gone with its value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("lwp-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        Self(place)
    }

    /// A run that keeps its translations there, and writes them itself.
    fn run(&self, set_up: impl FnOnce(&mut Config)) -> Scene {
        let cache = Cache { place: self.0.clone(), limit: 1 << 30 };
        let set_up = |config: &mut Config| {
            (config.kept.cache, config.kept.warm) = (Some(cache), Some(Warm::Functions));
            set_up(config);
        };
        Scene::of(set_up, Plan::Exact)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Asks about the module that `leaf` lies in.
fn module<R>(scene: &mut Scene, ask: impl FnOnce(&Module) -> R) -> R {
    let tid = scene.tid;
    let (space, family) = scene.machine.space_of(tid).expect("an address space");
    let (_, code) = space.code_at(family, tid, pc_of(leaf)).expect("it is code");
    ask(&family.modules[code.unit])
}

/// Has everything that has been translated run so often.
fn all_ran(scene: &mut Scene, times: u64) {
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let counters = family.code_cache.counters();
    let holding = counters.targets_from(0);
    let counting = (0..counters.len()).filter(|index| !holding.contains(index));
    let counting: Vec<usize> = counting.collect();
    for counter in counting {
        scene.context().counters().set(counter as u32, times);
    }
}

/// A thread ends, and with it the run.
fn end(mut scene: Scene) {
    scene.machine.counting().remove_thread(scene.tid);
    scene.machine.keeper().keep();
}

#[test]
fn what_one_run_has_translated_the_next_one_finds() {
    let place = Place::new("found");
    let mut first = place.run(|_| ());
    for pc in [pc_of(leaf), pc_of(branches)] {
        assert_eq!(first.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
    }
    let made = module(&mut first, |module| module.unit.new_fragments());
    assert!(made > 1);
    end(first);
    let mut next = place.run(|_| ());
    assert_eq!(module(&mut next, |module| module.unit.restored_fragments()), made);
    for pc in [pc_of(leaf), pc_of(branches)] {
        assert_eq!(next.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
    }
    assert_eq!(module(&mut next, |module| module.unit.new_fragments()), 0);
    // Nothing is written that is there already.
    let written = || std::fs::read_dir(&place.0).expect("it is there").count();
    let before = written();
    end(next);
    assert_eq!(written(), before);
}

#[test]
fn what_ran_often_is_laid_out_anew_for_the_next_run() {
    let place = Place::new("well");
    let mut first = place.run(|_| ());
    assert_eq!(first.ask(RequestKind::Indirect, pc_of(branches)), Answer::Goes(pc_of(branches)));
    all_ran(&mut first, lwp_dbt::WELL);
    first.machine.keeper().look_at_targets();
    assert!(first.machine.keeper().learned(0).expect("it learns").executions() >= lwp_dbt::WELL);
    end(first);
    let mut next = place.run(|_| ());
    assert_eq!(module(&mut next, |module| module.unit.knowledge()), Knowledge::Well);
    assert_eq!(next.ask(RequestKind::Indirect, pc_of(branches)), Answer::Goes(pc_of(branches)));
    // Its profile says which blocks a program that is warmed has executed.
    let program = std::env::current_exe().expect("a path");
    let tid = next.tid;
    let (space, family) = next.machine.space_of(tid).expect("an address space");
    Warming { space, family, tid }.warm(&Warm::Known(program));
    let has = |pc: u64| move |module: &Module| module.unit.fragment_at(AppPc(pc)).is_some();
    assert!(module(&mut next, has(pc_of(branches))));
}

#[test]
fn what_has_run_for_long_is_watched_from_the_next_run_on() {
    let place = Place::new("watched");
    let long = |config: &mut Config| config.trials.improve = Some(Duration::ZERO);
    for (run, knows) in
        [Knowledge::Little, Knowledge::Little, Knowledge::Watched].iter().enumerate()
    {
        let mut scene = place.run(long);
        if run > 0 {
            assert_eq!(module(&mut scene, |module| module.unit.knowledge()), *knows, "{run}");
        }
        assert_eq!(scene.ask(RequestKind::Indirect, pc_of(leaf)), Answer::Goes(pc_of(leaf)));
        end(scene);
    }
}

#[test]
fn what_a_recording_says_is_translated_ahead() {
    let place = Place::new("executed");
    let mut scene = place.run(|_| ());
    let (tid, pc) = (scene.tid, pc_of(leaf));
    let mappings = maps::read(tid);
    let mapping = mappings.iter().find(|it| (it.start..it.end).contains(&pc)).expect("its file");
    let file = PathBuf::from(&mapping.name);
    let known = |module: &Module| module.unit.fragment_at(AppPc(pc)).is_some();
    assert!(!module(&mut scene, known));
    let (space, family) = scene.machine.space_of(tid).expect("an address space");
    let offsets = vec![pc - mapping.start + mapping.offset, 1 << 60];
    Warming { space, family, tid }.warm(&Warm::Executed(vec![(file, offsets)]));
    assert!(module(&mut scene, known));
}
