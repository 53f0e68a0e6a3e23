//! The examples that play an operating system and a hypervisor: their assertions hold.
//!
//! Promise: W20

#[path = "../examples/hypervisor.rs"]
mod hypervisor;
#[path = "../examples/operating_system.rs"]
mod operating_system;

use lwp_arch::cpuid::fn8000_001c::Features;
use lwp_arch::cpuid::presets::{AMD_4700S, BULLDOZER, FULL};
use lwp_model::{Cpu, LwpUnit, Processor, ThreadState, common};

/// Spec: P07 §5.5.2.1, §5.5.4; LWP §6.2
#[test]
fn lwp_spec_6_2_an_operating_system_switches_threads() {
    operating_system::main();
}

/// Spec: P07 §5.5.2.2; LWP §6.3
#[test]
fn lwp_spec_6_3_a_hypervisor_switches_and_migrates_guests() {
    hypervisor::main();
}

/// Spec: LWP §1.2, §6.3
#[test]
fn lwp_spec_6_3_a_pool_shows_what_all_machines_have() {
    let shown = common(&BULLDOZER, &FULL).unwrap();
    assert_eq!(shown.ebx.max_events(), 3);
    assert_eq!(shown.ebx.lwpcb_bytes(), FULL.ebx.lwpcb_bytes(), "room for what any machine reads");
    assert_eq!(shown.features, BULLDOZER.features);
    assert!(!shown.features.contains(Features::LWP_DME));
    assert_eq!(common(&FULL, &FULL), Some(FULL));
    assert_eq!(common(&BULLDOZER, &AMD_4700S), None, "their XSAVE images differ");
}

/// Spec: P07 §5.5.4; LWP §6.2
#[test]
fn lwp_spec_6_2_the_state_of_another_form_leaves_lwp_off() {
    let mut proposal = LwpUnit::new(Processor::proposal());
    proposal.enable_everything();
    assert_eq!(proposal.take_thread(), ThreadState::Off);
    let foreign = ThreadState::Shipped(lwp_arch::xsave::LwpXsave::default());
    assert_eq!(proposal.give_thread(&Cpu::kernel_64(), &foreign), Ok(()));
    assert!(!proposal.is_on());
}
