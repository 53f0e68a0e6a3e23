//! Threads that leave translated code, at any place in it.

use lwp_dbt::{Commit, PcSource, RequestKind, Slot};
use lwp_process::regs::Regs;

use super::{Scene, branches, leaf, pc_of};

/// Registers of a thread that stands at a place in translated code.
fn at(place: u64) -> Regs {
    let mut regs = Regs::default();
    regs.0.rip = place;
    regs
}

#[test]
fn a_thread_outside_of_translated_code_has_no_other_state() {
    let mut scene = Scene::exact();
    assert!(scene.machine.view(scene.tid, &at(pc_of(leaf))).is_none());
    assert!(scene.machine.view(scene.tid + 1, &at(0)).is_none());
}

#[test]
fn every_instruction_of_a_fragment_shows_the_program_s_pc_and_counts_what_precedes_it() {
    let mut scene = Scene::exact();
    for function in [leaf, branches] {
        let pc = pc_of(function);
        let head = scene.head(pc);
        let (id, fragment) = scene.fragment(head);
        let mut seen = 0;
        let mut last = pc;
        for place in head.. {
            let Some(view) = scene.machine.view(scene.tid, &at(place)) else { break };
            if view.fragment != Some(id) {
                break;
            }
            let Some((index, charged)) = view.state.partial else { continue };
            assert!(view.app.0.rip >= last, "{:#x} after {last:#x}", view.app.0.rip);
            last = view.app.0.rip;
            seen += 1;
            let mut sum =
                scene.machine.counting().unfinished(scene.tid, &view.state, view.fragment);
            if charged {
                sum.add(fragment.deltas, 1);
            }
            let executed = sum.counts().instructions;
            assert_eq!(executed, u64::from(index), "of {}", fragment.instructions);
        }
        assert!(seen > 0);
    }
}

#[test]
fn a_thread_that_asks_stands_at_what_it_asks_about() {
    let mut scene = Scene::exact();
    let pc = pc_of(leaf);
    scene.head(pc);
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let routines = family.translator.routines();
    let places: Vec<u64> = (0..4096).map(|offset| family.routine(offset)).collect();
    assert!(places.contains(&family.routine(routines.go)));
    let mut mailbox = 0;
    for place in places {
        scene.set(Slot::Pc, pc).set(Slot::Kind, RequestKind::Dispatch as u64);
        let Some(mut view) = scene.machine.view(scene.tid, &at(place)) else { continue };
        if view.state.commit != Commit::Mailbox || view.state.pc != PcSource::ContextPc {
            continue;
        }
        mailbox += 1;
        assert_eq!(view.app.0.rip, pc);
        scene.thread().errand.need = Some(crate::machine::Need::Step);
        scene.machine.leave(scene.tid, &at(place), &mut view);
        assert_eq!(scene.thread().errand.need, None, "the request is void");
    }
    assert!(mailbox > 0);
}

#[test]
fn a_thread_is_settled_once() {
    let mut scene = Scene::exact();
    let head = scene.head(pc_of(branches));
    let before = scene.counts();
    scene.machine.settle(scene.tid, &at(head));
    assert!(scene.thread().account.settled);
    let settled = scene.counts();
    scene.machine.settle(scene.tid, &at(head));
    assert_eq!(scene.counts(), settled);
    // Nothing has been executed.
    assert_eq!(settled.instructions, before.instructions);
}
