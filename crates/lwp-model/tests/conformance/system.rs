//! CPUID, MSRs, XCR0.

use lwp_arch::cpuid::presets;
use lwp_arch::event::EventId;
use lwp_arch::msr::{LwpCbaddr, LwpCfg, LwpMsr0};
use lwp_arch::{EventFlags, Fault};
use lwp_model::{Cpu, LwpUnit, Policy, Processor};

use crate::machine::{BLOCK, Machine};

/// The order in which a system enables LWP, as one did on silicon: XSETBV, then WRMSR of all of
/// EDX.
///
/// Spec: LWP §1.2, §1.4, §2.1
#[test]
fn lwp_spec_1_2_enabling_in_order() {
    let kernel = Cpu::kernel_64();
    let mut unit = LwpUnit::new(Processor::shipped(presets::BULLDOZER));
    let edx = unit.cpuid().edx;
    unit.wrmsr(&kernel, LwpCfg::MSR, edx.into()).unwrap();
    assert_eq!(unit.cpuid().eax, 0, "XCR0[62] still clear");
    unit.set_xcr0(true);
    assert_eq!(unit.cpuid().eax, edx);
    assert_eq!(unit.rdmsr(&kernel, LwpCfg::MSR), Ok((edx & !1).into()), "bit 0 is ignored");
}

/// Spec: LWP §2.1
#[test]
fn lwp_spec_2_1_features_the_part_lacks_fault() {
    let kernel = Cpu::kernel_64();
    let mut unit = LwpUnit::new(Processor::shipped(presets::BULLDOZER));
    assert_eq!(unit.wrmsr(&kernel, LwpCfg::MSR, 1 << 4), Err(Fault::Gp0));
    assert_eq!(unit.lwp_cfg(), LwpCfg::default(), "unchanged");
}

/// Spec: LWP §2.2
#[test]
fn lwp_spec_2_2_cbaddr_is_linear_read_without_flush_and_written_with_zero_only() {
    let kernel = Cpu::kernel_64();
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 9, 9).start().run(0x10, 3);
    assert_eq!(m.unit.rdmsr(&kernel, LwpCbaddr::MSR), Ok(BLOCK.0));
    assert_eq!(m.counter(EventId::INSTRUCTIONS_RETIRED), 9, "no flush");
    assert_eq!(m.unit.wrmsr(&kernel, LwpCbaddr::MSR, BLOCK.0), Err(Fault::Gp0));
    assert!(m.unit.is_on());
    assert_eq!(m.unit.wrmsr(&kernel, LwpCbaddr::MSR, 0), Ok(()));
    assert_eq!(m.unit.rdmsr(&kernel, LwpCbaddr::MSR), Ok(0));
    assert_eq!(m.counter(EventId::INSTRUCTIONS_RETIRED), 9, "thrown away, not flushed");
}

/// Spec: LWP §2.1, §2.2
#[test]
fn lwp_spec_2_registers_are_privileged() {
    for cpl in 1..=3 {
        let cpu = Cpu { cpl, ..Cpu::kernel_64() };
        let mut unit = LwpUnit::new(Processor::full());
        for msr in [LwpCfg::MSR, LwpCbaddr::MSR] {
            assert_eq!(unit.rdmsr(&cpu, msr), Err(Fault::Gp0));
            assert_eq!(unit.wrmsr(&cpu, msr, 0), Err(Fault::Gp0));
        }
    }
    let unit = LwpUnit::new(Processor::full());
    assert_eq!(unit.rdmsr(&Cpu::kernel_64(), 0xC000_0107), Err(Fault::Gp0), "not ours");
}

/// Spec: LWP §2.1. DEV-28
#[test]
fn lwp_spec_2_1_dev_28_allowed_events_apply_from_the_next_load() {
    let kernel = Cpu::kernel_64();
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 32).start();
    m.unit.wrmsr(&kernel, LwpCfg::MSR, 0).unwrap();
    m.run(0x10, 2);
    assert_eq!(m.seen().len(), 2, "the running profile keeps what it was granted");
    m.start();
    m.run(0x20, 2);
    assert_eq!(m.seen().len(), 2, "the new one is granted nothing");
}

/// Spec: LWP §4.1, §6.2
#[test]
fn lwp_spec_4_1_core_id_follows_the_core() {
    let kernel = Cpu::kernel_64();
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 32).start();
    for core in [3, 200] {
        let cfg = LwpCfg::new(EventFlags::IRE, core, 0).bits();
        m.unit.wrmsr(&kernel, LwpCfg::MSR, cfg).unwrap();
        m.run(0x10, 1);
    }
    let cores: Vec<u8> = m.records().iter().map(|record| record.core_id).collect();
    assert_eq!(cores, [3, 200]);
}

/// Spec: LWP §1.4. DEV-27
#[test]
fn lwp_spec_1_4_dev_27_clearing_xcr0_ends_the_profile() {
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 32).start();
    m.unit.set_xcr0(false);
    m.run(0x10, 5);
    assert_eq!(m.seen(), []);
    m.unit.set_xcr0(true);
    assert_eq!(m.slwpcb(), Ok(0));
}

/// Spec: LWP §2.1, §8
#[test]
fn lwp_spec_8_registers_of_one_revision_do_not_exist_in_the_other() {
    let kernel = Cpu::kernel_64();
    let mut shipped = LwpUnit::new(Processor::full());
    assert_eq!(shipped.write_lwpmsr0(&kernel, LwpMsr0::ENABLED), Err(Fault::Gp0));
    let mut proposal = LwpUnit::with_policy(Processor::proposal(), Policy::default());
    assert_eq!(proposal.rdmsr(&kernel, LwpCfg::MSR), Err(Fault::Gp0));
    assert_eq!(proposal.wrmsr(&kernel, LwpCbaddr::MSR, 0), Err(Fault::Gp0));
}

/// What a system keeps to itself is not granted; modes, programmed events and events without a name
/// stay.
///
/// Spec: LWP §2.1, §1.2; P07 §5.2.1
#[test]
fn lwp_spec_2_1_a_system_may_grant_some_events() {
    let part = presets::AMD_4700S;
    let mut unit = LwpUnit::new(Processor::shipped(part));
    unit.enable_everything();
    let everything = unit.cpuid();
    unit.enable_events(EventFlags::all());
    assert_eq!(unit.cpuid(), everything, "the two events that are not documented included");
    unit.enable_events(EventFlags::BRE);
    let some = unit.cpuid();
    assert_eq!((some.edx, some.eax), (everything.edx, everything.eax & !0b1110110));
    let mut unit = LwpUnit::new(Processor::proposal());
    unit.enable_events(EventFlags::IRE | EventFlags::CNH);
    let Processor::Proposal(proposal) = *unit.processor() else { panic!("it is the proposal") };
    let all = proposal.capabilities.settable();
    assert_eq!(unit.lwpmsr0(), all.difference(LwpMsr0::BRE | LwpMsr0::DME));
}
