//! SLWPCB: the answer and the flush.

use lwp_arch::event::EventId;
use lwp_arch::insn::Width;
use lwp_arch::{EventFlags, LinearAddr};
use lwp_model::{Cpu, DataSegment, HeadPublication, Policy};

use crate::machine::{BLOCK, Machine, small_rings};

/// Spec: LWP §5.4
#[test]
fn lwp_spec_5_4_off_answers_zero() {
    let mut machine = Machine::new();
    assert_eq!(machine.slwpcb(), Ok(0));
}

/// Spec: LWP §5.4
#[test]
fn lwp_spec_5_4_answer_is_relative_to_ds_and_cut_to_the_operand() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 4);
    let high = LinearAddr(0x1_2345_6000);
    let bytes = machine.memory.peek(BLOCK, 176);
    machine.memory.poke(high, &bytes);
    machine.llwpcb(high.0).unwrap();
    let narrow =
        machine.unit.slwpcb(&machine.cpu, Width::W32, &mut machine.memory, &mut machine.signals);
    assert_eq!(narrow, Ok(0x2345_6000));
    assert_eq!(machine.slwpcb(), Ok(high.0));

    machine.start();
    machine.cpu = Cpu { ds: DataSegment { base: 0x1800, limit: 0 }, ..Cpu::user_32() };
    assert_eq!(machine.slwpcb(), Ok(0xFFFF_F800), "BLOCK − base, in 32 bits");
}

/// Spec: LWP §5.4
#[test]
fn lwp_spec_5_4_flush_writes_counters_of_active_events_only() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 8);
    machine.slot(EventId::INSTRUCTIONS_RETIRED, 99, 50);
    machine.slot(EventId::BRANCHES_RETIRED, 99, 77).start();
    machine.run(0x100, 8);
    assert_eq!(machine.counter(EventId::INSTRUCTIONS_RETIRED), 50, "not before the flush");
    machine.memory.poke(BLOCK.plus(128 + 2 * 8 + 4), &[1, 2, 3, 4]);
    machine.slwpcb().unwrap();
    assert_eq!(machine.counter(EventId::INSTRUCTIONS_RETIRED), 42);
    assert_eq!(machine.counter(EventId::BRANCHES_RETIRED), 0x0403_0201, "not ours to write");
}

/// Spec: LWP §5.4
#[test]
fn lwp_spec_5_4_lwp_stays_on_and_counts_on() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 2, 2).start();
    for ip in 0..6 {
        machine.run(ip, 1);
        assert_eq!(machine.slwpcb(), Ok(BLOCK.0));
    }
    assert_eq!(machine.seen(), [(2, 2), (2, 5)], "flushing changes no count");
}

/// Spec: P07 §5.5.3; LWP §5.4, §7
#[test]
fn lwp_spec_5_4_flush_publishes_a_late_head() {
    let policy = Policy { head: HeadPublication::Late, ..Policy::default() };
    let mut machine = Machine::with(small_rings(), policy);
    machine.block(EventFlags::empty(), 8).start();
    machine.lwpins(1).unwrap();
    machine.lwpins(2).unwrap();
    assert_eq!(machine.head(), 0, "the head is private");
    machine.slwpcb().unwrap();
    assert_eq!(machine.head(), 64);
}
