//! Counts: switched, kept and reported.

use lwp_run::config::{Config, Plan};

use super::{Scene, leaf, pc_of};

/// Has the first counter of a fragment count to `count`.
fn ran(scene: &Scene, counter: u32, count: u64) {
    scene.context().counters().set(counter, count);
}

/// The counter of the translation of `leaf`, and the instructions that one increment stands for.
fn counted(scene: &mut Scene) -> (u32, u64) {
    scene.head(pc_of(leaf));
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let counters = family.code_cache.counters().len() as u32;
    for counter in 0..counters {
        ran(scene, counter, 1);
        let one = scene.counts().instructions;
        ran(scene, counter, 0);
        if one > 0 {
            return (counter, one);
        }
    }
    panic!("{counters} counters count no instruction");
}

#[test]
fn counters_are_multiplied_with_what_they_stand_for() {
    let mut scene = Scene::exact();
    let (counter, one) = counted(&mut scene);
    ran(&scene, counter, 1000);
    assert_eq!(scene.counts().instructions, 1000 * one);
    assert_eq!(scene.machine.counting().so_far()[0].threads[0].counts.instructions, 1000 * one);
}

#[test]
fn nothing_counts_while_counting_is_off() {
    let mut scene = Scene::exact();
    let (counter, one) = counted(&mut scene);
    ran(&scene, counter, 5);
    scene.machine.counting().set_enabled(false);
    ran(&scene, counter, 50);
    scene.machine.counting().set_enabled(true);
    ran(&scene, counter, 57);
    assert_eq!(scene.machine.counting().so_far()[0].threads[0].counts.instructions, 12 * one);
    scene.machine.counting().remove_thread(scene.tid);
    let reports = scene.machine.counting().so_far();
    assert_eq!(reports[0].threads[0].counts.instructions, 12 * one);
    assert!(reports[0].threads[0].ended.is_some());
}

#[test]
fn counts_outlive_the_translations_that_made_them() {
    let mut scene = Scene::exact();
    let (counter, one) = counted(&mut scene);
    ran(&scene, counter, 9);
    scene.machine.counting().keep_counts(scene.tid, scene.slot);
    assert_eq!(scene.context().counters().get(counter), 0);
    assert_eq!(scene.counts().instructions, 9 * one);
}

#[test]
fn threads_that_are_not_asked_for_are_not_reported() {
    let only = |config: &mut Config| config.counted.only_thread = Some(1);
    let mut scene = Scene::of(only, Plan::Exact);
    assert_eq!(scene.machine.counting().so_far()[0].threads.len(), 0);
    scene.machine.counting().remove_thread(scene.tid);
    assert_eq!(scene.machine.counting().so_far()[0].threads.len(), 0);
}

#[test]
fn a_plain_run_counts_nothing() {
    let mut scene = Scene::of(|_| {}, Plan::Plain);
    scene.head(pc_of(leaf));
    assert_eq!(scene.counts().instructions, 0);
}
