//! Filters at work: what fails one is not counted.

use lwp_arch::cpuid::presets;
use lwp_arch::event::EventId;
use lwp_arch::filters::Filters;
use lwp_arch::record::DataSource;
use lwp_arch::retired::{Branch, BranchKind};
use lwp_arch::{AppPc, EventFlags, Retired};
use lwp_model::{Policy, Processor};
use proptest::prelude::*;

use crate::machine::{Machine, branch, loads, miss, plain, small_rings};

fn machine(flags: EventFlags, filters: Filters) -> Machine {
    on(small_rings(), flags, filters)
}

fn on(processor: Processor, flags: EventFlags, filters: Filters) -> Machine {
    let mut machine = Machine::with(processor, Policy::default());
    machine.block(flags, 128).edit(|block| {
        block.filters = filters.bits().into();
        block.base_ip = 0x1000.into();
        block.limit_ip = 0x1FFF.into();
    });
    machine.start();
    machine
}

/// Instruction addresses of the records.
fn ips(machine: &Machine) -> Vec<u64> {
    machine.seen().iter().map(|&(_, ip)| ip).collect()
}

/// Spec: LWP §3.3
#[test]
fn lwp_spec_3_3_each_branch_filter_drops_its_class() {
    for (filters, dropped) in [
        (Filters::NCB, &[BranchKind::Conditional][..]),
        (Filters::NRB, &[BranchKind::DirectJump, BranchKind::DirectCall]),
        (
            Filters::NAB,
            &[
                BranchKind::IndirectJump,
                BranchKind::IndirectCall,
                BranchKind::Return,
                BranchKind::FarTransfer,
            ],
        ),
    ] {
        let mut m = machine(EventFlags::BRE, filters);
        for (at, kind) in BranchKind::ALL.into_iter().enumerate() {
            m.retire(&branch(at as u64, 0x80, kind));
        }
        let left = BranchKind::ALL.iter().enumerate().filter(|(_, kind)| !dropped.contains(kind));
        assert_eq!(ips(&m), left.map(|(at, _)| at as u64).collect::<Vec<_>>(), "{filters:?}");
    }
}

/// Spec: LWP §3.3
#[test]
fn lwp_spec_3_3_prediction_filters_drop_their_half() {
    let outcomes = [Some(true), Some(false), None];
    for (filters, left) in [
        (Filters::NMB, vec![0, 2]),
        (Filters::NPB, vec![1, 2]),
        (Filters::NMB | Filters::NPB, vec![2]),
    ] {
        let mut m = machine(EventFlags::BRE, filters);
        for (at, predicted) in outcomes.into_iter().enumerate() {
            let branch = Some(Branch { kind: BranchKind::Conditional, taken: false, predicted });
            m.retire(&Retired { branch, ..plain(at as u64) });
        }
        assert_eq!(ips(&m), left, "{filters:?}");
    }
}

/// Spec: LWP §3.3
#[test]
fn lwp_spec_3_3_branch_filters_touch_branches_only() {
    let all = Filters::NMB | Filters::NPB | Filters::NAB | Filters::NCB | Filters::NRB;
    let mut m = machine(EventFlags::IRE | EventFlags::BRE, all);
    m.retire(&branch(0x10, 0x80, BranchKind::Return));
    assert_eq!(m.seen(), [(2, 0x10)]);
}

/// Spec: LWP §3.3
#[test]
fn lwp_spec_3_3_ip_range_applies_to_every_counted_event() {
    let flags = EventFlags::IRE | EventFlags::BRE | EventFlags::DME | EventFlags::CNH;
    let access = [miss(0, DataSource::Dram, 100)];
    for (filters, left) in
        [(Filters::IPF, vec![0x1000, 0x1FFF]), (Filters::IPF | Filters::IPI, vec![0xFFF, 0x2000])]
    {
        let mut m = machine(flags, filters);
        for ip in [0xFFF, 0x1000, 0x1FFF, 0x2000] {
            let jump = branch(ip, 0x80, BranchKind::Return);
            m.retire(&Retired { accesses: &access, core_cycles: 1, ..jump });
        }
        let mut seen = ips(&m);
        assert_eq!(seen.len(), 4 * left.len(), "four events each");
        seen.dedup();
        assert_eq!(seen, left);
    }
}

/// Spec: LWP §3.3
#[test]
fn lwp_spec_3_3_an_occurrence_that_fails_is_not_even_counted() {
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 64).slot(EventId::INSTRUCTIONS_RETIRED, 1, 1).edit(|block| {
        block.filters = Filters::IPF.bits().into();
        block.base_ip = 0x1000.into();
        block.limit_ip = 0x1FFF.into();
    });
    m.start();
    for ip in [0x1000, 0x5000, 0x5001, 0x5002, 0x1001] {
        m.run(ip, 1);
    }
    assert_eq!(ips(&m), [0x1001]);
}

/// Spec: LWP §3.3. DEV-18
#[test]
fn lwp_spec_3_3_dev_18_min_latency_means_at_least() {
    let mut m = machine(EventFlags::DME, Filters::empty().with_min_latency(4));
    for latency in [48, 63, 64, 65, 80] {
        m.retire(&loads(latency.into(), &[miss(0, DataSource::Dram, latency)]));
    }
    assert_eq!(ips(&m), [64, 65, 80]);
}

/// Spec: LWP §3.3
#[test]
fn lwp_spec_3_3_min_latency_above_the_counter_means_its_maximum() {
    let mut narrow = presets::FULL;
    let ten_bits = narrow.ecx.bits() & !0x00FF_001F | 10;
    narrow.ecx = lwp_arch::cpuid::fn8000_001c::Ecx::from_bits_retain(ten_bits);
    let filters = Filters::empty().with_min_latency(255);
    let mut m = on(Processor::shipped(narrow), EventFlags::DME, filters);
    for latency in [1007, 1008, 9000] {
        m.retire(&loads(latency.into(), &[miss(0, DataSource::Dram, latency)]));
    }
    assert_eq!(ips(&m), [1008, 9000], "4080 cycles become 1008");
    assert!(m.records().iter().all(|record| record.data1.get() == 1008));
}

/// Spec: LWP §3.3
#[test]
fn lwp_spec_3_3_cache_levels_select_by_source() {
    let sources = [
        (Filters::NBC, DataSource::LocalL3),
        (Filters::RDC, DataSource::Remote),
        (Filters::RAM, DataSource::Dram),
        (Filters::OTH, DataSource::Other),
    ];
    for (bit, wanted) in sources {
        let mut m = machine(EventFlags::DME, Filters::CLF | bit);
        for (_, source) in sources {
            m.retire(&loads(source as u64, &[miss(0, source, 100)]));
        }
        assert_eq!(ips(&m), [wanted as u64]);
    }
    let mut open = machine(EventFlags::DME, Filters::NBC);
    open.retire(&loads(1, &[miss(0, DataSource::Dram, 100)]));
    assert_eq!(ips(&open), [1], "without CLF the four bits are ignored");
}

/// Spec: LWP §3.3
#[test]
fn lwp_spec_3_3_filters_a_part_lacks_do_nothing() {
    let all = Filters::from_bits_retain(!0) - (Filters::NAB | Filters::NCB | Filters::NRB);
    let bulldozer = Processor::shipped(presets::BULLDOZER);
    let mut m = on(bulldozer, EventFlags::IRE | EventFlags::BRE, all);
    let branch = Some(Branch { kind: BranchKind::Conditional, taken: true, predicted: Some(true) });
    m.retire(&Retired { branch, ..plain(0x1800) });
    assert_eq!(m.seen(), [(2, 0x1800), (3, 0x1800)], "neither IPI nor NPB exists here");
}

proptest! {
    /// Filters are combined with *and*: what two let through together is what each lets through.
    ///
    /// Spec: LWP §3.3
    #[test]
    fn lwp_spec_3_3_filters_are_combined_with_and(
        one in prop::bits::u32::masked(0xFE00_0000), two in prop::bits::u32::masked(0x3E00_0000),
        stream in prop::collection::vec((0..7usize, any::<Option<bool>>(), 0xF00..0x2100u64), 1..60),
    ) {
        let run = |filters: u32| {
            let mut m = machine(EventFlags::BRE, Filters::from_bits_retain(filters));
            for (target, &(kind, predicted, ip)) in stream.iter().enumerate() {
                let branch = Some(Branch { kind: BranchKind::ALL[kind], taken: true, predicted });
                // The target tells equal branches of the stream apart.
                let next_ip = AppPc(target as u64);
                m.retire(&Retired { branch, next_ip, ..plain(ip) });
            }
            m.records()
        };
        // Bits 29:25 only ever take away, so the union of two sets keeps what both keep.
        let kept_by_two = run(two);
        let kept: Vec<_> = run(one).into_iter().filter(|r| kept_by_two.contains(r)).collect();
        prop_assert_eq!(run(one | two), kept);
    }
}
