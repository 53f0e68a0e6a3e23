//! XSAVE, restore, and the unit's state as data.

use lwp_arch::event::EventId;
use lwp_arch::lwpcb::pack_26;
use lwp_arch::msr::{LwpCbaddr, LwpCfg};
use lwp_arch::xsave::LwpXsave;
use lwp_arch::{EventFlags, Fault, PageFault};
use lwp_model::{Cpu, DataSegment, LwpUnit, OnFault, Policy, StateError};
use proptest::prelude::*;

use crate::machine::{BLOCK, Machine, RING, plain, small_rings};

fn counting() -> Machine {
    let mut m = Machine::new();
    m.block(EventFlags::IRE | EventFlags::VAL, 8).slot(EventId::INSTRUCTIONS_RETIRED, 9, 4);
    m.edit(|block| {
        block.set_buffer_size_random(8 * 32, 3);
        block.filters = 0x8000_0000.into();
        block.limit_ip = 0xFFFF.into();
    });
    m.start();
    m
}

/// Spec: LWP §6.1
#[test]
fn lwp_spec_6_1_dev_12_xsave_image_fields() {
    let mut m = counting();
    m.run(0x100, 6);
    let image = m.unit.xsave().unwrap();
    assert_eq!(image.lwpcb_address.get(), BLOCK.0);
    assert_eq!(image.flags.get(), 0b110);
    assert_eq!(image.buffer_head_offset.get(), 32);
    assert_eq!(image.buffer_base.get(), RING.0);
    assert_eq!(image.buffer_size_random.get(), 0x3000_0100, "Random in bits 31:28");
    assert_eq!(image.filters.get(), 0x8000_0000);
    assert_eq!(image.saved_event_record.event_id, 0, "nothing waits");
    assert_eq!(image.event_counters.len(), 16);
    assert!(image.event_counters[1].get() < 16);
    assert_eq!(m.counter(EventId::INSTRUCTIONS_RETIRED), 4, "memory is not touched");
}

/// Spec: LWP §6.1
#[test]
fn lwp_spec_6_1_off_is_a_clear_bit_in_xstate_bv() {
    let mut m = counting();
    m.llwpcb(0).unwrap();
    assert_eq!(m.unit.xsave(), None);
    m.start();
    m.unit.xrstor(&Cpu::kernel_64(), None).unwrap();
    assert_eq!(m.slwpcb(), Ok(0), "restoring a clear bit turns LWP off");
}

/// The way a hypervisor switches: XSAVE, MSRs to 0, another thread, `LWP_CFG`, XRSTOR.
///
/// Spec: LWP §6.2, §6.3
#[test]
fn lwp_spec_6_2_a_switch_of_context_loses_no_count() {
    let kernel = Cpu::kernel_64();
    let mut alone = counting();
    alone.run(0x100, 40);

    let mut m = counting();
    m.run(0x100, 17);
    let (image, cfg) = (m.unit.xsave().unwrap(), m.unit.lwp_cfg().bits());
    m.unit.wrmsr(&kernel, LwpCfg::MSR, 0).unwrap();
    m.unit.wrmsr(&kernel, LwpCbaddr::MSR, 0).unwrap();
    assert_eq!(m.unit.cpuid().eax, 1);
    m.run(0x9000, 1000);
    m.unit.wrmsr(&kernel, LwpCfg::MSR, cfg).unwrap();
    m.unit.xrstor(&kernel, Some(&image)).unwrap();
    m.run(0x111, 23);
    assert_eq!(m.records(), alone.records());
    m.slwpcb().unwrap();
    alone.slwpcb().unwrap();
    assert_eq!(m.memory, alone.memory);
}

/// Spec: LWP §6.1
#[test]
fn lwp_spec_6_1_after_a_restore_constants_come_from_the_block() {
    let mut m = counting();
    let image = m.unit.xsave().unwrap();
    m.memory.unmap(BLOCK, 4096);
    let kernel = Cpu::kernel_64();
    assert_eq!(m.unit.xrstor(&kernel, Some(&image)), Ok(()), "XRSTOR touches no memory");
    let absent = PageFault { address: BLOCK, write: false, present: false };
    assert_eq!(m.unit.settle(&mut m.memory), Err(Fault::Pf(absent)));
    assert_eq!(m.try_retire(&plain(1)), Err(Fault::Pf(absent)));
    assert_eq!(m.slwpcb(), Err(Fault::Pf(absent)), "a flush reads them first");
    m.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 77, 0);
    m.unit.settle(&mut m.memory).unwrap();
    let profile = m.unit.state().profile.unwrap();
    assert_eq!(profile.slots[1].interval, Some(77), "what lies there now");
    assert_eq!(profile.slots[1].counter, 4, "the counter is the saved one");
}

/// Spec: LWP §6.1
#[test]
fn lwp_spec_6_1_a_waiting_record_travels_in_the_image() {
    let policy = Policy { on_fault: OnFault::Save, ..Policy::default() };
    let mut m = Machine::with(small_rings(), policy);
    m.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 5, 0).start();
    m.memory.unmap(RING, 4096);
    m.retire(&plain(0x10));
    let image = m.unit.xsave().unwrap();
    assert_eq!((image.saved_event_record.event_id, image.saved_event_record.ip().0), (2, 0x10));
    assert_eq!(image.event_counters[1].get(), pack_26(-1), "the event is expired");

    let mut other = Machine::with(small_rings(), policy);
    other.memory = m.memory.clone();
    other.memory.map(RING, 4096);
    other.unit.xrstor(&Cpu::kernel_64(), Some(&image)).unwrap();
    other.retire(&plain(0x11));
    assert_eq!(other.seen(), [(2, 0x10)]);
}

/// Spec: LWP §6.1, §6.2. DEV-28
#[test]
fn lwp_spec_6_1_dev_28_flags_are_cut_to_what_is_allowed_at_the_restore() {
    let mut m = counting();
    let image = m.unit.xsave().unwrap();
    let kernel = Cpu::kernel_64();
    m.unit.wrmsr(&kernel, LwpCfg::MSR, LwpCfg::new(EventFlags::VAL, 0, 0).bits()).unwrap();
    m.unit.xrstor(&kernel, Some(&image)).unwrap();
    assert_eq!(m.unit.xsave().unwrap().flags.get(), EventFlags::VAL.bits());
    m.run(0x100, 50);
    assert_eq!(m.seen(), []);
}

/// Spec: LWP §6.1. DEV-29
#[test]
fn lwp_spec_6_1_dev_29_images_that_name_nothing_turn_lwp_off() {
    let image = counting().unit.xsave().unwrap();
    let kernel = Cpu::kernel_64();
    for broken in [
        LwpXsave { lwpcb_address: 0.into(), ..image },
        LwpXsave { buffer_size_random: 31.into(), ..image },
    ] {
        let mut m = counting();
        assert_eq!(m.unit.xrstor(&kernel, Some(&broken)), Ok(()));
        assert!(!m.unit.is_on());
    }
    let mut wild = counting();
    let head = LwpXsave { buffer_head_offset: 0x1234_5678.into(), ..image };
    wild.unit.xrstor(&kernel, Some(&head)).unwrap();
    assert_eq!(wild.unit.xsave().unwrap().buffer_head_offset.get(), 0, "reduced as at LLWPCB");
}

/// Spec: LWP §6.1. DEV-29
#[test]
fn lwp_spec_6_1_dev_29_limits_are_checked_again_but_not_at_cpl_0() {
    let image = counting().unit.xsave().unwrap();
    let ds = DataSegment { base: 0, limit: 0xFFF };
    let mut m = counting();
    let before = m.unit.state();
    let user = Cpu { ds, ..Cpu::user_32() };
    assert_eq!(m.unit.xrstor(&user, Some(&image)), Err(Fault::Gp0));
    assert_eq!(m.unit.state(), before);
    // The block fits, the ring of 256 bytes by a byte not.
    let end = RING.0 as u32 + 255;
    let up_to = |limit| Cpu { ds: DataSegment { base: 0, limit }, ..user };
    assert_eq!(m.unit.xrstor(&up_to(end - 1), Some(&image)), Err(Fault::Gp0));
    assert_eq!(m.unit.xrstor(&up_to(end), Some(&image)), Ok(()));
    let kernel = Cpu { cpl: 0, ..user };
    assert_eq!(m.unit.xrstor(&kernel, Some(&image)), Ok(()));
    m.unit.set_xcr0(false);
    assert_eq!(m.unit.xrstor(&kernel, Some(&image)), Err(Fault::Gp0), "component not enabled");
    assert_eq!(m.unit.xrstor(&kernel, None), Ok(()));
}

/// Spec: LWP §6.2
#[test]
fn lwp_spec_6_2_state_survives_the_round_trip_through_data() {
    let mut m = counting();
    m.run(0x100, 13);
    let state = m.unit.state();
    let mut twin = m.clone();
    twin.unit = LwpUnit::from_state(small_rings(), Policy::default(), &state).unwrap();
    assert_eq!(twin.unit.state(), state);
    m.run(0x200, 50);
    twin.run(0x200, 50);
    assert_eq!((m.memory, m.unit.state()), (twin.memory, twin.unit.state()));
}

/// Spec: LWP §6.2
#[test]
fn lwp_spec_6_2_states_of_another_processor_are_refused() {
    let state = counting().unit.state();
    let refuse = |change: &dyn Fn(&mut lwp_model::UnitStateV1)| {
        let mut state = state.clone();
        change(&mut state);
        LwpUnit::from_state(small_rings(), Policy::default(), &state).map(|_| ()).unwrap_err()
    };
    let profile = |state: &mut lwp_model::UnitStateV1| state.profile.clone().unwrap();
    let set = |edit: fn(&mut lwp_model::ProfileStateV1)| {
        refuse(&|state| {
            let mut changed = profile(state);
            edit(&mut changed);
            state.profile = Some(changed);
        })
    };
    assert_eq!(set(|p| p.buffer_size = 33), StateError::Ring);
    assert_eq!(set(|p| p.head = 16), StateError::Ring);
    assert_eq!(set(|p| p.slots.truncate(5)), StateError::Slots);
    assert_eq!(set(|p| p.slots[0].event_id = 255), StateError::Event(255));
    assert_eq!(set(|p| p.slots[0].event_id = 9), StateError::Event(9));
    let both = refuse(&|state| {
        let mut proposal = crate::proposal::machine();
        proposal.cpu = Cpu::kernel_64();
        proposal.llwpcb(BLOCK.0).unwrap();
        state.deferred = proposal.unit.state().deferred;
    });
    assert_eq!(both, StateError::Both);
}

proptest! {
    /// Saving and restoring at any point, as often as one likes, changes nothing that software
    /// sees.
    ///
    /// Spec: LWP §6.1
    #[test]
    fn lwp_spec_6_1_xsave_and_xrstor_are_invisible(
        interval in 0..7i32, counter in 0..7i32, switches in prop::collection::vec(0..9u64, 0..12),
    ) {
        let start = || {
            let mut m = Machine::new();
            m.block(EventFlags::IRE, 256).slot(EventId::INSTRUCTIONS_RETIRED, interval, counter);
            m.start();
            m
        };
        let (mut plainly, mut switched) = (start(), start());
        let mut ip = 0;
        for run in switches {
            plainly.run(ip, run);
            switched.run(ip, run);
            ip += run;
            let image = switched.unit.xsave();
            switched.unit.xrstor(&Cpu::kernel_64(), None).unwrap();
            switched.unit.xrstor(&Cpu::kernel_64(), image.as_ref()).unwrap();
        }
        plainly.slwpcb().unwrap();
        switched.slwpcb().unwrap();
        prop_assert_eq!(plainly.memory, switched.memory);
        prop_assert_eq!(plainly.unit.state(), switched.unit.state());
    }
}
