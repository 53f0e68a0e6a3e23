//! Events of threads that profile themselves: the countdown ends, and a record is made.

use lwp_arch::EventKind;
use lwp_dbt::{AppPc, CachePc, RequestKind, Slot};

use super::needs::needs;
use super::profiles::{Words, address, instruction, load, profiling};
use super::stage::Stage;
use super::{Answer, leaf, pc_of};
use crate::machine::Need;
use crate::state::known_pc;

/// A thread with a profile of each `interval` and first instruction, in translations that count
/// down; 100 instructions are left.
fn counting_down(interval: i32) -> (Stage, Box<Words>) {
    let mut scene = profiling();
    let block = Words::profiling(interval);
    assert_eq!(load(&mut scene, block.address()), Answer::Needs(Need::Side));
    let stage = Stage::of(scene);
    let done = needs(&stage, Need::Side, pc_of(leaf), |_| ());
    stage.expect_entered(stage.tid, pc_of(leaf), &done);
    set(&stage, Slot::LwpHigh, 100);
    (stage, block)
}

fn set(stage: &Stage, slot: Slot, value: u64) {
    stage.machine().context(stage.tid).expect("it lives").set(slot, value);
}

/// The thread asks; the application's pc that it goes on at, or else its need.
fn ask(stage: &Stage, kind: RequestKind, pc: u64) -> Result<u64, Option<Need>> {
    set(stage, Slot::Kind, kind as u64);
    set(stage, Slot::Pc, pc);
    set(stage, Slot::Resp, 0);
    let mut machine = stage.machine();
    let slot = machine.tasks.threads[&stage.tid].slot;
    machine.answer(slot, false);
    let thread = machine.tasks.threads.get_mut(&stage.tid).expect("it lives");
    if let Some(need) = thread.errand.need.take() {
        machine.errands.needy.clear();
        return Err(Some(need));
    }
    let go = machine.context(stage.tid).expect("it lives").get(Slot::Go);
    let (_, family) = machine.space_of(stage.tid).expect("an address space");
    known_pc(family, CachePc(go)).ok_or(None)
}

/// The instructions of the thread's cut fragment.
fn cut(stage: &Stage) -> Option<u32> {
    stage.machine().tasks.lwp(stage.tid).and_then(|lwp| lwp.cut_of(None)).map(|(most, _)| most)
}

#[test]
fn an_event_within_a_block_is_recorded_when_its_instruction_has_retired() {
    const INTERVAL: i32 = 5000;
    let (stage, block) = counting_down(INTERVAL);
    let pc = pc_of(leaf);
    set(&stage, Slot::LwpHigh, 0);
    // It learns the way to a fragment that ends there.
    assert_eq!(ask(&stage, RequestKind::LwpDue, pc), Ok(pc));
    assert_eq!(cut(&stage), None);
    // The host leads it there if it did not take it.
    assert_eq!(ask(&stage, RequestKind::LwpDue, pc), Ok(pc));
    assert_eq!(cut(&stage), Some(1));
    let next = block_of(&stage, pc, 1);
    assert_eq!(ask(&stage, RequestKind::LwpStepped, next), Ok(next));
    assert_eq!(cut(&stage), None);
    let record = block.record(0);
    assert_eq!(record.instruction_address.get(), pc);
    assert_eq!(record.kind(lwp_arch::Revision::default()), Some(EventKind::InstructionsRetired));
    // The next interval has begun.
    assert_eq!(stage.slot(stage.tid, Slot::LwpHigh), INTERVAL as u64);
}

/// The address behind the first `count` instructions of the block at `pc`.
fn block_of(stage: &Stage, pc: u64, count: usize) -> u64 {
    let mut machine = stage.machine();
    let (space, family) = machine.space_of(stage.tid).expect("an address space");
    let (start, range) = space.code_at(family, stage.tid, pc).expect("it is code");
    let block = family.block(range.unit, stage.tid, (start, range.end), AppPc(pc), count);
    block.expect("a block").next().0
}

#[test]
fn a_countdown_that_ends_in_another_block_goes_on() {
    let (stage, block) = counting_down(5000);
    assert_eq!(ask(&stage, RequestKind::LwpDue, pc_of(leaf)), Ok(pc_of(leaf)));
    assert_eq!((cut(&stage), stage.slot(stage.tid, Slot::LwpHigh)), (None, 100));
    assert_eq!(block.record(0).event_id, 0, "nothing is recorded");
}

#[test]
fn an_event_on_an_instruction_of_the_hosts_is_recorded_by_the_host() {
    let (stage, block) = counting_down(5000);
    // CPUID.
    let code = instruction(&[0x0f, 0xa2, 0xc3]);
    let pc = address(&code);
    set(&stage, Slot::LwpHigh, 0);
    set(&stage, Slot::Rax, 0);
    // What lies among data is stepped over by the tracer.
    assert_eq!(ask(&stage, RequestKind::LwpDue, pc), Err(Some(Need::Step)));
    stage.machine().profiling().lwp_executed(stage.tid, pc, pc + 2);
    assert_eq!(block.record(0).instruction_address.get(), pc);
}

#[test]
fn a_cut_fragment_that_is_left_counts_as_far_as_it_was_executed() {
    let (stage, block) = counting_down(5000);
    let pc = pc_of(leaf);
    set(&stage, Slot::LwpHigh, 1);
    for _ in 0..2 {
        assert_eq!(ask(&stage, RequestKind::LwpDue, pc), Ok(pc));
    }
    assert_eq!(cut(&stage), Some(2));
    // A signal finds it before the first instruction of the fragment.
    let go = stage.slot(stage.tid, Slot::Go);
    let regs = stage.regs_at(go);
    let mut machine = stage.machine();
    let mut view = machine.view(stage.tid, &regs).expect("it is in translated code");
    machine.leave(stage.tid, &regs, &mut view);
    drop(machine);
    assert_eq!((view.app.0.rip, cut(&stage)), (pc, None));
    assert_eq!(stage.slot(stage.tid, Slot::LwpHigh), 1);
    assert_eq!(block.record(0).event_id, 0);
}

#[test]
fn a_ring_that_cannot_be_written_faults_before_the_instruction() {
    let (stage, block) = counting_down(5000);
    let pc = pc_of(leaf);
    // The program has moved the ring to where nothing is, and loads its control block anew.
    let missing = 1 << 20;
    block.move_ring(missing);
    let code = instruction(&[0x8f, 0xe9, 0xf8, 0x12, 0xc0]);
    set(&stage, Slot::LwpOperand, block.address());
    let _ = ask(&stage, RequestKind::Llwpcb, address(&code));
    assert_eq!(stage.slot(stage.tid, Slot::LwpTouch), 0, "nothing has been touched");
    set(&stage, Slot::LwpHigh, 0);
    let _ = ask(&stage, RequestKind::LwpDue, pc);
    assert_eq!(stage.slot(stage.tid, Slot::LwpTouch) & !0xfff, missing);
}
