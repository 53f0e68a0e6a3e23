//! Translations that are kept from run to run, and what is learned of their executions.

use std::path::PathBuf;
use std::time::Duration;

use lwp_code::family::Module;
use lwp_dbt::{AppPc, Knowledge, RequestKind};
use lwp_process::elf;
use lwp_process::maps;
use lwp_run::config::{Cache, Config, Plan, Warm};

use super::recording::Notes;
use super::{Answer, Scene, branches, leaf, pc_of};
use crate::ahead_of_time::Warming;
use crate::profile::Sink;

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
        self.run_of(set_up, Plan::Exact, None)
    }

    /// A run by this plan that keeps its translations there, with a sink for its profile.
    fn run_of(
        &self,
        set_up: impl FnOnce(&mut Config),
        plan: Plan,
        sink: Option<Box<dyn Sink>>,
    ) -> Scene {
        let cache = Cache { place: self.0.clone(), limit: 1 << 30 };
        let set_up = |config: &mut Config| {
            (config.kept.cache, config.kept.warm) = (Some(cache), Some(Warm::Functions));
            set_up(config);
        };
        Scene::told(set_up, plan, sink)
    }

    /// The files in the store.
    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.join("units")).into_iter().flatten();
        entries.map(|entry| entry.expect("it is there").path()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Asks about the module that `leaf` lies in.
fn module<R>(scene: &mut Scene, ask: impl FnOnce(&Module) -> R) -> R {
    module_at(scene, pc_of(leaf), ask)
}

/// Asks about the module at `pc`.
fn module_at<R>(scene: &mut Scene, pc: u64, ask: impl FnOnce(&Module) -> R) -> R {
    let tid = scene.tid;
    let (space, family) = scene.machine.space_of(tid).expect("an address space");
    let (_, code) = space.code_at(family, tid, pc).expect("it is code");
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

#[test]
fn code_that_is_of_no_file_is_kept_by_its_bytes() {
    let place = Place::new("bytes");
    let mut first = place.run(|_| ());
    let vdso = maps::read(first.tid).into_iter().find(|mapping| mapping.name == "[vdso]");
    let Some(vdso) = vdso else { return println!("skipped: this kernel gives no code") };
    let functions = elf::functions(first.tid, vdso.start);
    let inside = |pc: &u64| (vdso.start..vdso.end).contains(pc);
    let Some(pc) = functions.into_iter().find(inside) else {
        return println!("skipped: it has no functions");
    };
    assert_eq!(first.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
    let made = module_at(&mut first, pc, |module| module.unit.new_fragments());
    assert!(made > 0);
    end(first);
    let mut next = place.run(|_| ());
    assert_eq!(next.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
    let has = |module: &Module| (module.unit.restored_fragments(), module.unit.new_fragments());
    assert_eq!(module_at(&mut next, pc, has), (made, 0));
}

#[test]
fn translations_of_different_kinds_are_kept_apart() {
    let place = Place::new("kinds");
    let run = |kind: usize| match kind {
        0 => place.run(|_| ()),
        1 => place.run_of(|_| (), Plan::Plain, None),
        2 => place.run_of(|_| (), Plan::Exact, Some(Box::new(Notes::default()))),
        _ => {
            let notes = Notes::default();
            notes.with(|told| told.wants_calls = true);
            place.run_of(|_| (), Plan::Exact, Some(Box::new(notes)))
        }
    };
    let pc = pc_of(branches);
    for again in [false, true] {
        for kind in 0..4 {
            let mut scene = run(kind);
            assert_eq!(scene.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
            let kept = module(&mut scene, |module| module.unit.restored_fragments());
            let made = module(&mut scene, |module| module.unit.new_fragments());
            assert_eq!((kept > 0, made > 0), (again, !again), "{kind}");
            end(scene);
        }
    }
}

/// A change of a file's bytes.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn a_damaged_store_costs_time_and_nothing_else() {
    let place = Place::new("damaged");
    let pc = pc_of(branches);
    let translated = |set_up: &dyn Fn(&mut Config)| {
        let mut scene = place.run(set_up);
        assert_eq!(scene.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
        let kept = module(&mut scene, |module| module.unit.restored_fragments());
        all_ran(&mut scene, lwp_dbt::WELL);
        end(scene);
        kept
    };
    let usual = |_: &mut Config| ();
    translated(&usual);
    let whole = translated(&usual);
    assert!(whole > 0 && !place.files().is_empty());
    let damages: [Damage<'_>; 4] = [
        &|bytes| bytes.truncate(bytes.len() / 2),
        &|bytes| bytes.clear(),
        &|bytes| bytes.iter_mut().skip(5000).for_each(|byte| *byte ^= 0x55),
        &|bytes| bytes.extend([0; 4096]),
    ];
    for (number, damage) in damages.iter().enumerate() {
        for file in place.files() {
            let mut bytes = std::fs::read(&file).expect("it is there");
            damage(&mut bytes);
            std::fs::write(&file, bytes).expect("there is room");
        }
        assert_eq!(translated(&usual), 0, "{number}");
        assert!(translated(&usual) > 0, "{number}: it has been written anew");
    }
    // Where there is no room nothing is kept.
    let before = place.files().len();
    for file in place.files() {
        std::fs::remove_file(file).expect("it is there");
    }
    let small = |config: &mut Config| {
        config.kept.cache.as_mut().expect("a place").limit = 1;
    };
    assert_eq!((translated(&small), place.files().len()), (0, 0), "of {before}");
    // A file is no place for a store.
    let file = place.0.join("file");
    std::fs::write(&file, "nothing").expect("there is room");
    let elsewhere = |config: &mut Config| {
        config.kept.cache.as_mut().expect("a place").place = file.join("store");
    };
    assert_eq!(translated(&elsewhere), 0);
}
