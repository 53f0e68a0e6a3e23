//! What counts as an occurrence of each event, and what its record says.

use lwp_arch::event::EventId;
use lwp_arch::filters::Filters;
use lwp_arch::record::{DataSource, Event};
use lwp_arch::retired::{Access, AccessKind, Branch, BranchKind};
use lwp_arch::{AppPc, EventFlags, LinearAddr, Retired, Revision, RingOffset};
use lwp_model::{Cpu, DataSegment, Policy, Simultaneous};
use proptest::prelude::*;

use crate::machine::{BLOCK, Machine, RING, branch, loads, miss, plain, small_rings};

fn machine(flags: EventFlags, id: EventId, interval: i32, counter: i32) -> Machine {
    let mut machine = Machine::new();
    machine.block(flags, 64).slot(id, interval, counter).start();
    machine
}

fn decoded(machine: &Machine) -> Vec<Event> {
    let records = machine.records();
    records.iter().map(|r| r.decode(Revision::Shipped, RingOffset(0)).unwrap()).collect()
}

/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_instructions_record_every_interval_plus_first() {
    let mut m = machine(EventFlags::IRE, EventId::INSTRUCTIONS_RETIRED, 2, 0);
    m.run(0x100, 8);
    assert_eq!(m.seen(), [(2, 0x100), (2, 0x103), (2, 0x106)]);
    let record = m.records()[0];
    assert_eq!((record.flags.get(), record.data1.get(), record.data2.get()), (0, 0, 0));
}

/// The unit is told linear addresses and adds no segment base to them, whatever DS is.
///
/// Spec: P07 §4; LWP §4.1. DEV-38
#[test]
fn lwp_spec_4_1_dev_38_the_record_has_the_linear_address() {
    let mut m = Machine::new();
    m.cpu = Cpu { ds: DataSegment { base: 0x200, limit: u32::MAX }, ..Cpu::user_32() };
    m.block(EventFlags::BRE, 8).edit(|block| {
        block.buffer_base = (RING.0 - 0x200).into();
        block.filters = Filters::IPF.bits().into();
        block.base_ip = 0x8000_0000.into();
        block.limit_ip = 0x8000_0000.into();
    });
    m.llwpcb(BLOCK.0 - 0x200).unwrap();
    m.retire(&branch(0x8000_0000, 0x8000_0040, BranchKind::Return));
    let record = m.records()[0];
    assert_eq!((record.ip().0, record.data2.get()), (0x8000_0000, 0x8000_0040));
}

/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_branches_count_taken_or_not() {
    let mut m = machine(EventFlags::BRE, EventId::BRANCHES_RETIRED, 0, 0);
    m.retire(&plain(0x10));
    m.retire(&Retired::branch(AppPc(0x11), AppPc(0x13), BranchKind::Conditional, false));
    m.retire(&Retired::branch(AppPc(0x13), AppPc(0x90), BranchKind::Conditional, true));
    for (at, kind) in BranchKind::ALL.into_iter().enumerate() {
        m.retire(&branch(0x20 + at as u64, 0x80, kind));
    }
    assert_eq!(m.seen().len(), 2 + BranchKind::ALL.len());
    let records = m.records();
    assert_eq!(records[0].flags.get(), 0, "not taken, not predicted");
    assert_eq!(records[0].data2.get(), 0x13, "the fall-through address");
    assert_eq!(records[1].flags.get(), 0x8000, "TKN");
    assert_eq!(records[1].data2.get(), 0x90, "the target");
}

/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_prediction_shows_when_there_was_one() {
    let mut m = machine(EventFlags::BRE, EventId::BRANCHES_RETIRED, 0, 0);
    for predicted in [None, Some(true), Some(false)] {
        let branch = Some(Branch { kind: BranchKind::Return, taken: true, predicted });
        m.retire(&Retired { branch, ..plain(0x10) });
    }
    let flags: Vec<u16> = m.records().iter().map(|record| record.flags.get()).collect();
    assert_eq!(flags, [0x8000, 0xE000, 0xA000]);
}

/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_only_demand_loads_that_miss_count() {
    let mut m = machine(EventFlags::DME, EventId::DCACHE_MISSES, 0, 0);
    let missed = miss(0x8000, DataSource::Dram, 200);
    let hit = Access { miss: None, ..missed };
    for kind in [AccessKind::Store, AccessKind::Prefetch] {
        m.retire(&loads(0x10, &[Access { kind, ..missed }]));
    }
    m.retire(&loads(0x11, &[hit]));
    assert_eq!(m.seen(), []);
    m.retire(&loads(0x12, &[hit, missed]));
    assert_eq!(m.seen(), [(4, 0x12)]);
    let event = Event::DcacheMisses {
        source: DataSource::Dram,
        latency_cycles: 192,
        data_address: Some(LinearAddr(0x8000)),
    };
    assert_eq!(decoded(&m), [event], "latency rounded to 16 cycles");
}

/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_each_load_of_an_instruction_counts_and_the_expiring_one_reports() {
    let mut m = machine(EventFlags::DME, EventId::DCACHE_MISSES, 3, 1);
    let accesses = [0x1000, 0x2000, 0x3000].map(|at| miss(at, DataSource::LocalL3, 64));
    m.retire(&loads(0x10, &accesses));
    assert_eq!(m.records()[0].data2.get(), 0x2000, "the second of three took the counter below 0");
}

/// An access that misses in two lines is one access with one miss at the lower address.
///
/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_a_misaligned_load_counts_once() {
    let mut m = machine(EventFlags::DME, EventId::DCACHE_MISSES, 1, 1);
    let split = miss(0x203C, DataSource::Dram, 100);
    m.retire(&loads(0x10, &[split]));
    assert_eq!(m.seen(), [], "one occurrence, not two");
    m.retire(&loads(0x11, &[split]));
    assert_eq!(m.records()[0].data2.get(), 0x203C);
}

/// Spec: LWP §4.2. DEV-31
#[test]
fn lwp_spec_4_2_dev_31_clocks_count_cycles_and_report_the_retiring_instruction() {
    for (flag, id) in
        [(EventFlags::CNH, EventId::CORE_CLOCKS), (EventFlags::RNH, EventId::REFERENCE_CLOCKS)]
    {
        let mut m = machine(flag, id, 99, 99);
        for at in 0..10 {
            m.retire(&Retired { core_cycles: 30, reference_cycles: 30, ..plain(0x10 + at) });
        }
        // 120 cycles after four instructions; the 20 beyond the hundredth are not carried over.
        assert_eq!(m.seen(), [(id.0, 0x13), (id.0, 0x17)]);
        let record = m.records()[0];
        assert_eq!((record.flags.get(), record.data1.get(), record.data2.get()), (0, 0, 0));
    }
}

/// Spec: LWP §4.2. DEV-17
#[test]
fn lwp_spec_4_2_dev_17_occurrences_beyond_the_expiring_one_are_dropped() {
    let mut m = machine(EventFlags::CNH, EventId::CORE_CLOCKS, 9, 9);
    m.retire(&Retired { core_cycles: 35, ..plain(0x10) });
    assert_eq!(m.seen().len(), 1, "one record for an instruction");
    m.slwpcb().unwrap();
    assert_eq!(m.counter(EventId::CORE_CLOCKS), 9, "a full interval again");
}

/// Spec: LWP §4.2, §6.2, §6.3
#[test]
fn lwp_spec_6_2_only_user_code_outside_smm_counts() {
    let mut m = machine(EventFlags::IRE, EventId::INSTRUCTIONS_RETIRED, 0, 0);
    for cpl in 0..3 {
        m.cpu.cpl = cpl;
        m.run(0x10, 3);
    }
    m.cpu = Cpu { smm: true, ..Cpu::user_64() };
    m.run(0x10, 3);
    m.cpu = Cpu::user_64();
    m.run(0x20, 1);
    assert_eq!(m.seen(), [(2, 0x20)]);
}

/// Spec: LWP §4.2. DEV-32
#[test]
fn lwp_spec_4_2_dev_32_instructions_that_change_privilege_do_not_count() {
    let mut m = machine(
        EventFlags::IRE | EventFlags::BRE | EventFlags::CNH,
        EventId::INSTRUCTIONS_RETIRED,
        0,
        0,
    );
    let syscall = Retired {
        crosses_privilege: true,
        core_cycles: 9,
        ..branch(1, 2, BranchKind::FarTransfer)
    };
    m.retire(&syscall);
    assert_eq!(m.seen(), []);
}

/// An indirect jump through memory is an instruction, a branch and a miss at once.
///
/// Spec: LWP §4.3. DEV-33
#[test]
fn lwp_spec_4_3_dev_33_all_events_of_an_instruction_record_in_ascending_order() {
    let flags = EventFlags::IRE | EventFlags::BRE | EventFlags::DME;
    let mut m = machine(flags, EventId::INSTRUCTIONS_RETIRED, 0, 0);
    let access = [miss(0x9000, DataSource::Remote, 80)];
    let jump = Retired { accesses: &access, ..branch(0x10, 0x700, BranchKind::IndirectJump) };
    assert_eq!(m.retire(&jump).records, 3);
    assert_eq!(m.seen(), [(2, 0x10), (3, 0x10), (4, 0x10)]);
}

/// Spec: P07 §5.5.1; LWP §4.3
#[test]
fn lwp_spec_4_3_a_basic_unit_stores_one_and_the_rest_wait_for_their_next_occurrence() {
    let policy = Policy { simultaneous: Simultaneous::StoreOne, ..Policy::default() };
    let mut m = Machine::with(small_rings(), policy);
    m.block(EventFlags::IRE | EventFlags::BRE, 64);
    m.slot(EventId::INSTRUCTIONS_RETIRED, 9, 0).slot(EventId::BRANCHES_RETIRED, 9, 0).start();
    assert_eq!(m.retire(&branch(0x10, 0x20, BranchKind::DirectJump)).records, 1);
    m.retire(&plain(0x20));
    assert_eq!(m.seen(), [(2, 0x10)], "the branch event waits for a branch");
    m.retire(&branch(0x21, 0x30, BranchKind::DirectJump));
    assert_eq!(m.seen(), [(2, 0x10), (3, 0x21)]);
}

/// Spec: LWP §3.1
#[test]
fn lwp_spec_3_1_random_bits_apply_to_reloads_and_not_to_the_initial_counter() {
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 64).slot(EventId::INSTRUCTIONS_RETIRED, 0x40, 3);
    m.edit(|block| block.set_buffer_size_random(64 * 32, 4)).start();
    m.run(0x100, 4);
    assert_eq!(m.seen(), [(2, 0x103)], "the counter in memory is taken as it is");
    m.slwpcb().unwrap();
    // The first number of the generator for seed 1 is 00042021h.
    assert_eq!(m.counter(EventId::INSTRUCTIONS_RETIRED), 0x41);
}

/// A fuzzer used interval 0 with 6 random bits: a record every 1 to 64 branches.
///
/// Spec: LWP §3.1
#[test]
fn lwp_spec_3_1_random_spreads_records() {
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 2048).slot(EventId::INSTRUCTIONS_RETIRED, 0, 0);
    m.edit(|block| block.set_buffer_size_random(2048 * 32, 6)).start();
    m.run(0, 20_000);
    let at: Vec<u64> = m.seen().iter().map(|&(_, ip)| ip).collect();
    let gaps: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (1..=64).contains(gap)));
    assert!(gaps.contains(&1) && gaps.contains(&64), "the whole range is used");
    let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
    assert!((28.0..37.0).contains(&mean), "mean gap {mean}");
}

proptest! {
    /// The number of records is a matter of arithmetic, whatever interval and counter are.
    ///
    /// Spec: LWP §3.1
    #[test]
    fn lwp_spec_3_1_records_are_as_many_as_arithmetic_says(
        interval in 0..50i32, counter in 0..50i32, instructions in 0..400u64,
    ) {
        let mut m = Machine::new();
        m.block(EventFlags::IRE, 512).slot(EventId::INSTRUCTIONS_RETIRED, interval, counter).start();
        m.run(0, instructions);
        let first = counter as u64 + 1;
        let expected = if instructions < first {
            0
        } else {
            1 + (instructions - first) / (interval as u64 + 1)
        };
        prop_assert_eq!(m.records().len() as u64, expected);
        m.slwpcb().unwrap();
        let since = instructions - if expected == 0 { 0 } else {
            first + (expected - 1) * (interval as u64 + 1)
        };
        let start = if expected == 0 { counter } else { interval } as u64;
        prop_assert_eq!(u64::from(m.counter(EventId::INSTRUCTIONS_RETIRED)), start - since);
    }

    /// Events do not disturb each other: with room in the ring, each records as if it were alone.
    ///
    /// Spec: LWP §4.3. DEV-33
    #[test]
    fn lwp_spec_4_3_dev_33_events_are_independent(
        stream in prop::collection::vec((any::<bool>(), any::<bool>(), 0..5u32), 1..120),
        intervals in prop::array::uniform4(0..6i32),
    ) {
        let all = [
            (EventFlags::IRE, EventId::INSTRUCTIONS_RETIRED),
            (EventFlags::BRE, EventId::BRANCHES_RETIRED),
            (EventFlags::DME, EventId::DCACHE_MISSES),
            (EventFlags::CNH, EventId::CORE_CLOCKS),
        ];
        let access = [miss(0x9000, DataSource::Dram, 80)];
        let run = |flags: EventFlags| {
            let mut m = Machine::new();
            m.block(flags, 1024);
            for ((_, id), interval) in all.iter().zip(intervals) {
                m.slot(*id, interval, interval);
            }
            m.start();
            for (ip, &(jumps, misses, core_cycles)) in stream.iter().enumerate() {
                let ip = ip as u64;
                let base = if jumps { branch(ip, 7, BranchKind::DirectCall) } else { plain(ip) };
                let accesses: &[Access] = if misses { &access } else { &[] };
                m.retire(&Retired { accesses, core_cycles, ..base });
            }
            m.seen()
        };
        let mut alone: Vec<(u8, u64)> = all.iter().flat_map(|&(flag, _)| run(flag)).collect();
        alone.sort_by_key(|&(id, ip)| (ip, id));
        prop_assert_eq!(run(EventFlags::IRE | EventFlags::BRE | EventFlags::DME | EventFlags::CNH), alone);
    }
}
