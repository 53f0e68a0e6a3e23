//! Indirect calls by where they led, and other executions by place.

use std::collections::BTreeSet;
use std::hint::black_box;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use lwp_dbt::context::TargetFeatures;
use lwp_dbt::context::calls::{CALL_BYTES, CALL_OFTEN, CALLS_AT, call_site, call_slot};
use lwp_dbt::{Commit, EventDeltas, FragmentId, RequestKind, Role, Slot};
use lwp_process::regs::Regs;
use lwp_run::config::Plan;

use super::recording::{Notes, recorded, recorded_with_calls};
use super::{Answer, Scene, branches, leaf, pc_of};
use crate::profile::{Block, BlockEnd, Jump, Place};

/// A function that calls another by its address.
#[inline(never)]
extern "C" fn calls(number: u64) -> u64 {
    let function: extern "C" fn(u64) -> u64 = black_box(leaf);
    function(number).wrapping_add(black_box(1))
}

/// A function with branches of all kinds.
#[inline(never)]
extern "C" fn much(number: u64) -> u64 {
    let mut numbers: Vec<u64> = (0..number).map(|it| calls(it)).collect();
    numbers.sort_unstable();
    black_box(format!("{numbers:?}")).len() as u64
}

/// A place at which calls are counted.
#[derive(Clone, Copy, Debug)]
struct Site {
    fragment: FragmentId,
    /// The counter that holds where the call led first.
    counter: u32,
    /// The address at which translated code goes on behind the counting, and the call itself.
    after: u64,
    pc: u64,
}

/// The site of the call in `calls`.
fn site(scene: &mut Scene) -> Site {
    let head = scene.head(pc_of(calls));
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let counters = family.code_cache.counters();
    let holds = |(at, role): (usize, Option<Role>)| match role {
        Some(Role::CallTarget(fragment)) => Some((fragment, at as u32)),
        _ => None,
    };
    let (fragment, counter) = counters.roles().enumerate().find_map(holds).expect("a call");
    let counted = |place: &u64| {
        let known = family.state_at(*place);
        known.is_some_and(|(state, id)| state.called && id == Some(fragment))
    };
    let after = (head..head + (1 << 14)).find(counted).expect("it is counted somewhere");
    let pc = crate::state::known_pc(family, lwp_dbt::CachePc(after)).expect("a call");
    Site { fragment, counter, after, pc }
}

/// The thread has called so: it led to `first`, so often.
fn called(scene: &Scene, site: Site, first: u64, times: u64) {
    scene.context().counters().set(site.counter, !first);
    scene.context().counters().set(site.counter + 1, times);
}

/// It led to another place too: what is written to its slot.
fn called_elsewhere(scene: &Scene, site: Site, target: u64, times: u64) {
    let name = call_site(site.counter);
    let slot = call_slot(TargetFeatures::of_this_processor(), name, target);
    let at = u64::from(CALLS_AT) + u64::from(slot * CALL_BYTES);
    for (word, value) in [!target, u64::from(!name), times].into_iter().enumerate() {
        scene.context().forge(at + 8 * word as u64, value);
    }
}

/// The thread calls `target` from the site, and finds no room to count that.
fn calls_without_room(scene: &mut Scene, site: Site, target: u64) -> Answer {
    scene.set(Slot::CallAfter, site.after).set(Slot::CallTarget, target);
    scene.set(Slot::CallSite, call_site(site.counter).into());
    scene.ask(RequestKind::Calls, pc_of(leaf))
}

/// The targets of indirect calls from a place, as they are reported, and how often each was called.
fn led(scene: &mut Scene, notes: &Notes, from: u64) -> BTreeSet<(u64, u64)> {
    scene.machine.counting().report_thread(scene.tid);
    notes.with(|told| {
        let thread = told.threads.last().expect("a thread");
        let jumps = thread.jumps.iter().filter(|jump| jump.from.address == from);
        let one = |jump: &Jump| {
            assert_eq!((jump.end, jump.alone), (BlockEnd::IndirectCall, false));
            assert!(jump.taken && jump.from.module.is_some() && jump.to.module.is_some());
            (jump.to.address, jump.times)
        };
        jumps.filter(|jump| jump.times > 0).map(one).collect()
    })
}

#[test]
fn calls_are_told_by_where_they_led() {
    let (mut scene, notes) = recorded_with_calls();
    let site = site(&mut scene);
    let [first, second] = [leaf, branches].map(pc_of);
    called(&scene, site, first, 5);
    called_elsewhere(&scene, site, second, 3);
    assert_eq!(led(&mut scene, &notes, site.pc), [(first, 5), (second, 3)].into());
}

#[test]
fn a_call_for_which_there_is_no_room_is_made_anew_and_none_is_lost() {
    let (mut scene, notes) = recorded_with_calls();
    let site = site(&mut scene);
    let [first, second, third] = [leaf, branches, much].map(pc_of);
    called(&scene, site, first, 5);
    called_elsewhere(&scene, site, second, 3);
    let before = scene.counts();
    assert_eq!(calls_without_room(&mut scene, site, third), Answer::Goes(site.pc));
    assert_eq!(scene.context().counters().calls_to(call_site(site.counter), second), 0);
    assert_eq!(led(&mut scene, &notes, site.pc), [(first, 5), (second, 3)].into());
    assert!(scene.counts().calls <= before.calls, "it has not been made yet");
}

#[test]
fn a_call_that_led_elsewhere_most_often_gets_that_as_its_first_target() {
    let (mut scene, notes) = recorded_with_calls();
    let site = site(&mut scene);
    let [first, second] = [leaf, branches].map(pc_of);
    called(&scene, site, first, 5);
    called_elsewhere(&scene, site, second, CALL_OFTEN.into());
    assert_eq!(calls_without_room(&mut scene, site, second), Answer::Goes(site.pc));
    let counters = scene.context().counters();
    assert_eq!([site.counter, site.counter + 1].map(|at| counters.get(at)), [!second, 0]);
    let expected = [(first, 5), (second, CALL_OFTEN.into())].into();
    assert_eq!(led(&mut scene, &notes, site.pc), expected);
}

#[test]
fn a_call_that_has_been_counted_and_not_made_is_taken_back() {
    let (mut scene, notes) = recorded_with_calls();
    let site = site(&mut scene);
    let target = pc_of(leaf);
    called(&scene, site, target, 5);
    scene.set(Slot::CallAfter, site.after).set(Slot::CallTarget, target);
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let has_called = |place: &u64| {
        let known = family.state_at(*place);
        known.is_some_and(|(state, _)| state.commit == Commit::Called)
    };
    let places =
        (0..family.translator.routines().code.len() as u32).map(|offset| family.routine(offset));
    let place = { places }.find(has_called).expect("a routine counts");
    let mut regs = Regs::default();
    regs.0.rip = place;
    let mut view = scene.machine.view(scene.tid, &regs).expect("translated code");
    assert_eq!((view.called, view.app.0.rip), (Some(target), site.pc));
    assert_eq!(view.fragment, Some(site.fragment));
    scene.machine.leave(scene.tid, &regs, &mut view);
    assert_eq!(led(&mut scene, &notes, site.pc), [(target, 4)].into());
    // A place that is no call's is nobody's.
    scene.set(Slot::CallAfter, 1 << 20);
    assert!(scene.machine.view(scene.tid, &regs).is_none());
}

#[test]
fn branches_that_are_executed_alone_are_told_with_their_kind() {
    let (mut scene, notes) = recorded(|_| {}, Plan::Exact);
    let [from, to] = [leaf, branches].map(pc_of);
    scene.head(from);
    let deltas = |branch: EventDeltas| EventDeltas { instructions: 1, branches: 1, ..branch };
    let none = EventDeltas::default();
    let kinds = [
        (EventDeltas { conditional: 1, ..none }, BlockEnd::Conditional, false),
        (EventDeltas { conditional: 1, conditional_taken: 1, ..none }, BlockEnd::Conditional, true),
        (EventDeltas { calls: 1, ..none }, BlockEnd::Call, true),
        (EventDeltas { calls: 1, indirect: 1, ..none }, BlockEnd::IndirectCall, true),
        (EventDeltas { returns: 1, ..none }, BlockEnd::Return, true),
        (EventDeltas { indirect: 1, ..none }, BlockEnd::IndirectJump, true),
        (none, BlockEnd::Jump, true),
    ];
    let tid = scene.tid;
    scene.machine.observers.note_place(&mut scene.machine.tasks, tid, |places| {
        kinds.iter().for_each(|(branch, ..)| places.jumped(from, to, deltas(*branch)));
        places.jumped(from, to, EventDeltas { instructions: 1, ..none });
    });
    scene.machine.counting().report_thread(tid);
    notes.with(|told| {
        let jumps = &told.threads.last().expect("a thread").jumps;
        let module = jumps[0].from.module;
        assert!(module.is_some());
        let place = |address| Place { module, address };
        let (from, to) = (place(from), place(to));
        let mut expected: Vec<Jump> = kinds
            .iter()
            .map(|&(_, end, taken)| Jump { from, to, end, alone: true, taken, times: 1 })
            .collect();
        expected.sort_unstable();
        assert_eq!(*jumps, expected);
    });
}

#[test]
fn what_is_executed_while_nobody_counts_is_not_told() {
    let (mut scene, notes) = recorded_with_calls();
    let site = site(&mut scene);
    let (tid, target) = (scene.tid, pc_of(leaf));
    // What the thread executes, in all, up to each time when counting is switched.
    let executed = |scene: &mut Scene, times: u64| {
        called(scene, site, target, times);
        scene.machine.observers.note_place(&mut scene.machine.tasks, tid, |places| {
            places.cut_short(site.fragment, 1, false);
            places.stepped(target, 10);
            places.jumped(target, site.pc, EventDeltas { branches: 1, ..Default::default() });
        });
    };
    executed(&mut scene, 5);
    scene.machine.counting().set_enabled(false);
    executed(&mut scene, 9);
    scene.machine.counting().set_enabled(true);
    executed(&mut scene, 11);
    assert_eq!(led(&mut scene, &notes, site.pc), [(target, 5 + 2)].into());
    notes.with(|told| {
        let thread = told.threads.last().expect("a thread");
        assert_eq!(thread.partial.iter().map(|it| (it.1, it.2)).collect::<Vec<_>>(), [(1, 2)]);
        assert_eq!(thread.steps.iter().map(|it| it.2).collect::<Vec<_>>(), [20]);
        let alone = thread.jumps.iter().find(|jump| jump.alone).expect("a jump");
        assert_eq!((alone.times, alone.end), (2, BlockEnd::Jump));
    });
}

/// The way in which the last instruction of a block ends it, as a decoder has it.
fn decoded(block: &Block) -> Option<BlockEnd> {
    let decoder = Decoder::with_ip(64, &block.bytes, block.pc, DecoderOptions::NONE);
    Some(match decoder.into_iter().last()?.flow_control() {
        FlowControl::ConditionalBranch => BlockEnd::Conditional,
        FlowControl::UnconditionalBranch => BlockEnd::Jump,
        FlowControl::Call => BlockEnd::Call,
        FlowControl::IndirectCall => BlockEnd::IndirectCall,
        FlowControl::IndirectBranch => BlockEnd::IndirectJump,
        FlowControl::Return => BlockEnd::Return,
        FlowControl::Next => BlockEnd::Other,
        _ => return None,
    })
}

#[test]
fn blocks_end_as_their_last_instructions_do() {
    let (mut scene, notes) = recorded_with_calls();
    for function in [much, calls, branches, leaf] {
        scene.head(pc_of(function));
    }
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let counters = family.code_cache.counters();
    let holding = counters.targets_from(0);
    let counting: Vec<usize> =
        (0..counters.len()).filter(|index| !holding.contains(index)).collect();
    counting.iter().for_each(|index| scene.context().counters().set(*index as u32, 3));
    scene.machine.counting().report_thread(scene.tid);
    notes.with(|told| {
        let mut seen = BTreeSet::new();
        for block in &told.blocks {
            let Some(end) = decoded(block) else { continue };
            assert_eq!(block.end, end, "{block:?}");
            seen.insert(end);
        }
        for end in [BlockEnd::Conditional, BlockEnd::Call, BlockEnd::Return] {
            assert!(seen.contains(&end), "{seen:?} in {} blocks", told.blocks.len());
        }
        assert!(seen.contains(&BlockEnd::IndirectCall), "{seen:?}");
    });
}
