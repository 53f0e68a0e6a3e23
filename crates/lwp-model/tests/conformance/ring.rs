//! Storing into the ring: full, continuous, threshold, publication.

use lwp_arch::event::EventId;
use lwp_arch::msr::LwpCfg;
use lwp_arch::{EventFlags, LinearAddr};
use lwp_model::{Cpu, HeadPublication, Policy};
use proptest::prelude::*;

use crate::machine::{BLOCK, Flaky, Machine, RING, insert, small_rings};

fn machine(flags: EventFlags, slots: u32, threshold: u32) -> Machine {
    let mut machine = Machine::new();
    machine.block(flags, slots).edit(|block| block.threshold = threshold.into()).start();
    machine
}

fn data1(machine: &Machine) -> Vec<u32> {
    machine.records().iter().map(|record| record.data1.get()).collect()
}

/// Spec: P07 §5.4; LWP §5.7
#[test]
fn lwp_spec_5_7_a_full_ring_overwrites_its_last_record() {
    let mut m = machine(EventFlags::empty(), 3, 999);
    for i in 1..=5 {
        m.lwpins(i).unwrap();
    }
    assert_eq!((data1(&m), m.missed(), m.head()), (vec![1, 2], 3, 64));
    let hidden = m.memory.peek(RING.plus(64 + 4), 4);
    assert_eq!(hidden, [5, 0, 0, 0], "the last slot holds the last record, out of sight");
    m.drain();
    m.lwpins(6).unwrap();
    assert_eq!(data1(&m), [6], "and is lost to the next one");
}

/// Spec: LWP §5.7. DEV-6
#[test]
fn lwp_spec_5_7_dev_6_continuous_mode_overwrites_the_oldest() {
    let mut m = machine(EventFlags::CONT, 3, 999);
    for i in 1..=7 {
        m.lwpins(i).unwrap();
    }
    assert_eq!((m.missed(), m.head()), (0, 32));
    let slots = [0, 32, 64].map(|at| m.memory.peek(RING.plus(at + 4), 1)[0]);
    assert_eq!(slots, [7, 5, 6]);
}

/// Spec: LWP §5.7. DEV-7
#[test]
fn lwp_spec_5_7_dev_7_interrupt_comes_with_each_record_at_or_above_the_threshold() {
    let mut m = machine(EventFlags::INT, 8, 64);
    let counts = [1, 2, 3, 4].map(|i| {
        m.lwpins(i).unwrap();
        m.signals.interrupts.len()
    });
    assert_eq!(counts, [0, 1, 2, 3]);
    m.drain();
    m.lwpins(5).unwrap();
    assert_eq!(m.signals.interrupts, [0xFF; 3], "drained, so quiet again");
}

/// Spec: LWP §5.7. DEV-7
#[test]
fn lwp_spec_5_7_dev_7_threshold_zero_interrupts_at_every_record() {
    let mut m = machine(EventFlags::INT, 8, 0);
    for i in 1..=3 {
        m.lwpins(i).unwrap();
        m.drain();
    }
    assert_eq!(m.signals.interrupts.len(), 3);
}

/// Spec: LWP §5.7
#[test]
fn lwp_spec_5_7_used_space_is_measured_across_the_wrap() {
    let mut m = Machine::new();
    m.block(EventFlags::INT, 4).edit(|block| {
        block.threshold = 64.into();
        block.buffer_head_offset = 96.into();
        block.buffer_tail_offset = 96.into();
    });
    m.start();
    m.lwpins(1).unwrap();
    assert_eq!((m.head(), m.signals.interrupts.len()), (0, 0));
    m.lwpins(2).unwrap();
    assert_eq!((m.head(), m.signals.interrupts.len()), (32, 1));
}

/// Spec: LWP §5.7. DEV-19
#[test]
fn lwp_spec_5_7_dev_19_a_missed_record_raises_nothing() {
    let mut m = machine(EventFlags::INT, 3, 0);
    for i in 1..=6 {
        m.lwpins(i).unwrap();
    }
    assert_eq!((m.missed(), m.signals.interrupts.len()), (4, 2));
}

/// Spec: LWP §2.1, §5.7. DEV-11
#[test]
fn lwp_spec_5_7_dev_11_no_interrupt_without_flag_or_vector() {
    let kernel = Cpu::kernel_64();
    let mut unasked = machine(EventFlags::empty(), 8, 0);
    unasked.lwpins(1).unwrap();
    assert!(unasked.signals.interrupts.is_empty(), "Flags.INT clear");

    let mut vectorless = machine(EventFlags::INT, 8, 0);
    let cfg = LwpCfg::new(EventFlags::INT, 0, 0).bits();
    vectorless.unit.wrmsr(&kernel, LwpCfg::MSR, cfg).unwrap();
    vectorless.lwpins(1).unwrap();
    assert!(vectorless.signals.interrupts.is_empty(), "vector 0");

    let cfg = LwpCfg::new(EventFlags::INT, 0, 0x41).bits();
    vectorless.unit.wrmsr(&kernel, LwpCfg::MSR, cfg).unwrap();
    vectorless.lwpins(2).unwrap();
    assert_eq!(vectorless.signals.interrupts, [0x41]);
}

/// Spec: LWP §2.1. DEV-28
#[test]
fn lwp_spec_2_1_dev_28_clearing_int_silences_a_running_profile() {
    let mut m = machine(EventFlags::INT | EventFlags::IRE, 8, 0);
    m.unit.wrmsr(&Cpu::kernel_64(), LwpCfg::MSR, 0).unwrap();
    m.run(0x100, 2);
    assert!(m.signals.interrupts.is_empty());
    assert_eq!(m.seen().len(), 2, "the granted event goes on until the next load");
}

/// Spec: LWP §3.2, §5.7. DEV-20
#[test]
fn lwp_spec_3_2_dev_20_a_wild_tail_is_reduced() {
    for (tail, missed) in [(33, 1), (63, 1), (64, 0), (128, 0), (u32::MAX, 0)] {
        let mut m = machine(EventFlags::empty(), 4, 999);
        m.set_tail(tail);
        m.lwpins(1).unwrap();
        assert_eq!(m.missed(), missed, "tail {tail}");
    }
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_record_reaches_memory_before_the_head() {
    let mut m = machine(EventFlags::empty(), 4, 999);
    let mut flaky = Flaky::new(&mut m.memory, None);
    let insert = insert(lwp_model::Data1::Register(1));
    m.unit.lwpins(&m.cpu, &insert, &mut flaky, &mut m.signals).unwrap();
    assert_eq!(flaky.writes, [(RING.0, 32), (BLOCK.0 + 0x10, 4)]);
}

/// Spec: P07 §5.5.3; LWP §7
#[test]
fn lwp_spec_7_a_late_head_appears_at_threshold_and_when_full() {
    let policy = Policy { head: HeadPublication::Late, ..Policy::default() };
    let mut m = Machine::with(small_rings(), policy);
    m.block(EventFlags::empty(), 5).edit(|block| block.threshold = 96.into()).start();
    let heads = [1, 2, 3, 4, 5].map(|i| {
        m.lwpins(i).unwrap();
        m.head()
    });
    assert_eq!(heads, [0, 0, 96, 128, 128]);
    m.edit(|block| block.threshold = 0x1000.into()).start();
    m.drain();
    for i in 6..=9 {
        m.lwpins(i).unwrap();
    }
    assert_eq!(m.head(), 128, "private below the threshold");
    m.lwpins(10).unwrap();
    assert_eq!((m.head(), m.missed()), (96, 2), "full");
}

/// Spec: LWP §3.1
#[test]
fn lwp_spec_3_1_missed_events_has_64_bits() {
    let mut m = machine(EventFlags::empty(), 1, 999);
    m.edit(|block| block.missed_events = 0xFFFF_FFFF.into());
    m.lwpins(1).unwrap();
    assert_eq!(m.missed(), 0x1_0000_0000);
    m.edit(|block| block.missed_events = u64::MAX.into());
    m.lwpins(1).unwrap();
    assert_eq!(m.missed(), 0);
}

/// Spec: P07 §3; LWP §5.7
#[test]
fn lwp_spec_5_7_counters_are_reloaded_though_the_ring_is_full() {
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 2).slot(EventId::INSTRUCTIONS_RETIRED, 2, 0).start();
    m.run(0x100, 10);
    assert_eq!((m.seen(), m.missed()), (vec![(2, 0x100)], 3));
}

proptest! {
    /// No record is ever written outside the ring, whatever tail software leaves behind.
    ///
    /// Spec: LWP §5.7
    #[test]
    fn lwp_spec_5_7_records_stay_inside_the_ring(
        slots in 1..9u32, tails in prop::collection::vec(any::<u32>(), 1..40), continuous: bool,
    ) {
        let flags = if continuous { EventFlags::CONT } else { EventFlags::empty() };
        let mut m = machine(flags, slots, 0);
        let beyond = LinearAddr(RING.0 + u64::from(slots) * 32);
        for tail in tails {
            m.set_tail(tail % 400);
            m.lwpins(0xFFFF_FFFF).unwrap();
            prop_assert!(m.head() < slots * 32 && m.head().is_multiple_of(32));
        }
        prop_assert_eq!(m.memory.peek(beyond, 64), vec![0; 64]);
    }
}
