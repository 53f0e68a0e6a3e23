//! LLWPCB: validation, normalisation, and what a fault leaves behind.

use lwp_arch::cpuid::presets;
use lwp_arch::event::EventId;
use lwp_arch::filters::Filters;
use lwp_arch::lwpcb::COUNTER_MAX;
use lwp_arch::msr::LwpCfg;
use lwp_arch::{EventFlags, Fault, LinearAddr, PageFault};
use lwp_model::{Cpu, DataSegment, LwpUnit, Mode, Policy, Processor};
use proptest::prelude::*;

use crate::machine::{BLOCK, Machine, RING, plain, small_rings, with_minimum};

fn read_fault(address: u64) -> Fault {
    Fault::Pf(PageFault { address: LinearAddr(address), write: false, present: false })
}

/// Spec: LWP §5.2
#[test]
fn lwp_spec_5_2_undefined_without_xcr0_or_lwp_or_protected_mode() {
    let mut off = Machine::new();
    off.block(EventFlags::IRE, 4);
    off.unit.set_xcr0(false);
    assert_eq!(off.llwpcb(BLOCK.0), Err(Fault::Ud), "XCR0[62] clear");
    assert_eq!(off.slwpcb(), Err(Fault::Ud));
    assert_eq!(off.lwpins(0), Err(Fault::Ud));
    assert_eq!(off.lwpval(0), Err(Fault::Ud));

    for mode in [Mode::Real, Mode::Virtual8086] {
        let mut machine = Machine::new();
        machine.cpu.mode = mode;
        assert_eq!(machine.llwpcb(0), Err(Fault::Ud), "{mode:?}");
        assert_eq!(machine.slwpcb(), Err(Fault::Ud), "{mode:?}");
        assert_eq!(machine.lwpins(0), Err(Fault::Ud), "{mode:?}");
    }

    let mut absent = presets::FULL;
    absent.features = lwp_arch::cpuid::fn8000_001c::Features::empty();
    let mut none = Machine::with(Processor::shipped(absent), Policy::default());
    assert_eq!(none.slwpcb(), Err(Fault::Ud), "a processor without LWP");
}

/// Spec: LWP §5.2
#[test]
fn lwp_spec_5_2_valid_in_every_protected_mode_and_at_every_privilege_level() {
    for mode in [Mode::Protected, Mode::Compatibility, Mode::Long] {
        for cpl in 0..=3 {
            let mut machine = Machine::new();
            machine.cpu = Cpu { mode, cpl, ..Cpu::user_64() };
            machine.block(EventFlags::IRE, 4);
            assert_eq!(machine.llwpcb(BLOCK.0), Ok(None), "{mode:?} {cpl}");
            assert_eq!(machine.slwpcb(), Ok(BLOCK.0), "{mode:?} {cpl}");
        }
    }
}

/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_address_zero_flushes_and_stops() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 4).slot(EventId::INSTRUCTIONS_RETIRED, 9, 5).start();
    machine.run(0x100, 2);
    machine.llwpcb(0).unwrap();
    assert!(!machine.unit.is_on());
    assert_eq!(machine.counter(EventId::INSTRUCTIONS_RETIRED), 3);
    machine.run(0x100, 50);
    assert_eq!(machine.head(), 0, "nothing is counted any more");
    assert_eq!(machine.slwpcb(), Ok(0));
}

/// Spec: LWP §3.2
#[test]
fn lwp_spec_3_2_flags_become_what_was_granted() {
    let mut machine = Machine::with(Processor::shipped(presets::BULLDOZER), Policy::default());
    machine.block(EventFlags::all(), 64).start();
    let granted = EventFlags::VAL | EventFlags::IRE | EventFlags::BRE | EventFlags::INT;
    assert_eq!(machine.read_block().flags.get(), granted.bits());

    let kernel = Cpu::kernel_64();
    let cfg = LwpCfg::new(EventFlags::BRE, 0, 0).bits();
    machine.unit.wrmsr(&kernel, LwpCfg::MSR, cfg).unwrap();
    machine.block(EventFlags::all(), 64).start();
    assert_eq!(machine.read_block().flags.get(), EventFlags::BRE.bits());
}

/// Spec: LWP §3.2. DEV-26
#[test]
fn lwp_spec_3_2_dev_26_undocumented_events_are_never_granted() {
    let mut machine = Machine::with(Processor::shipped(presets::AMD_4700S), Policy::default());
    machine.block(EventFlags::from_bits_retain(0x19E), 64).start();
    assert_eq!(machine.read_block().flags.get(), 0x1E);
}

/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_without_any_event_lwp_is_still_on() {
    let mut machine = Machine::new();
    machine.block(EventFlags::empty(), 4).start();
    assert_eq!(machine.slwpcb(), Ok(BLOCK.0));
    assert_eq!(machine.lwpins(7), Ok(false));
    assert_eq!(machine.seen(), [(255, 0x40_0100)]);
}

/// Spec: LWP §3.2. DEV-24
#[test]
fn lwp_spec_3_2_dev_24_a_ring_below_the_minimum_is_refused() {
    let mut machine = Machine::with(Processor::full(), Policy::default());
    machine.block(EventFlags::IRE, 32).edit(|block| block.set_buffer_size_random(1023, 0));
    assert_eq!(machine.llwpcb(BLOCK.0), Err(Fault::Gp0), "992 bytes after rounding");
    assert_eq!(machine.read_block().flags.get(), EventFlags::IRE.bits(), "Flags not written");
    machine.edit(|block| block.set_buffer_size_random(1055, 0));
    assert_eq!(machine.llwpcb(BLOCK.0), Ok(None), "1024 bytes after rounding");

    let mut none = Machine::new();
    none.block(EventFlags::IRE, 0).edit(|block| block.set_buffer_size_random(31, 0));
    assert_eq!(none.llwpcb(BLOCK.0), Err(Fault::Gp0), "not one record, whatever the minimum");
}

/// Spec: LWP §3.2
#[test]
fn lwp_spec_3_2_head_outside_or_misaligned_is_reduced() {
    for (given, used) in [(0, 0), (31, 0), (33, 32), (127, 96), (128, 0), (u32::MAX, 0)] {
        let mut machine = Machine::new();
        machine.block(EventFlags::empty(), 4);
        machine.edit(|block| block.buffer_head_offset = given.into()).start();
        machine.slwpcb().unwrap();
        assert_eq!(machine.head(), used, "given {given}");
    }
}

/// The sample program asks for twice the size of the ring.
///
/// Spec: LWP §3.2
#[test]
fn lwp_spec_3_2_a_threshold_above_the_size_is_accepted_and_never_reached() {
    let mut machine = Machine::new();
    machine.block(EventFlags::INT, 4);
    machine.edit(|block| block.threshold = 256.into()).start();
    for _ in 0..9 {
        machine.lwpins(0).unwrap();
    }
    assert!(machine.signals.interrupts.is_empty());
}

/// Spec: LWP §3.2
#[test]
fn lwp_spec_3_2_threshold_is_rounded_down_to_a_record() {
    let mut machine = Machine::new();
    machine.block(EventFlags::INT, 8);
    machine.edit(|block| block.threshold = 95.into()).start();
    machine.lwpins(0).unwrap();
    assert!(machine.signals.interrupts.is_empty());
    machine.lwpins(0).unwrap();
    assert_eq!(machine.signals.interrupts.len(), 1, "64 bytes are enough");
}

/// Spec: LWP §3.2
#[test]
fn lwp_spec_3_2_negative_intervals_and_counters_become_zero() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 16).slot(EventId::INSTRUCTIONS_RETIRED, -1, -5).start();
    machine.run(0x100, 3);
    assert_eq!(machine.seen(), [(2, 0x100), (2, 0x101), (2, 0x102)]);
}

/// Spec: LWP §3.2
#[test]
fn lwp_spec_3_2_reserved_bits_of_a_slot_are_ignored() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 16);
    let at = BLOCK.plus(128 + 8);
    machine.memory.poke(at, &[1, 0, 0, 0xFC, 0, 0, 0, 0xFC]);
    machine.start().run(0x100, 3);
    assert_eq!(machine.seen(), [(2, 0x100), (2, 0x102)], "interval 1, counter 0");
}

/// Spec: LWP §3.2. DEV-16
#[test]
fn lwp_spec_3_2_dev_16_small_intervals_are_raised_to_the_minimum() {
    let id = EventId::INSTRUCTIONS_RETIRED;
    let mut machine = Machine::with(with_minimum(id, 4), Policy::default());
    machine.block(EventFlags::IRE, 16).slot(id, 1, 0).start();
    machine.run(0x100, 11);
    assert_eq!(machine.seen(), [(2, 0x100), (2, 0x105), (2, 0x10A)]);
    let at = BLOCK.plus(128 + 8);
    assert_eq!(machine.memory.peek_u32(at), 1, "memory keeps what software wrote");

    let mut free = Machine::new();
    free.block(EventFlags::IRE, 16).slot(id, 0, 0).start().run(0x100, 3);
    assert_eq!(free.seen().len(), 3, "no minimum by default");
}

/// Spec: LWP §3.1, §3.2. DEV-30
#[test]
fn lwp_spec_3_1_dev_30_reserved_fields_and_the_software_area_are_ignored() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 16);
    machine.memory.poke(BLOCK.plus(0x14), &[0xFF; 4]);
    machine.memory.poke(BLOCK.plus(0x38), &[0xFF; 8]);
    machine.memory.poke(BLOCK.plus(0x44), &[0xFF; 0x80 - 0x44]);
    machine.edit(|block| block.filters = Filters::from_bits_retain(0x01FF_E000).bits().into());
    machine.start().run(0x100, 1);
    assert_eq!(machine.seen(), [(2, 0x100)]);
    assert_eq!(machine.memory.peek(BLOCK.plus(0x48), 16), [0xFF; 16], "left as software wrote it");
}

/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_no_alignment_is_asked_for() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 4);
    let odd = LinearAddr(0x1801);
    let bytes = machine.memory.peek(BLOCK, 176);
    machine.memory.poke(odd, &bytes);
    machine.memory.poke(odd.plus(8), &(RING.0 + 3).to_le_bytes());
    assert_eq!(machine.llwpcb(odd.0), Ok(None));
    machine.run(0x100, 1);
    assert_eq!(machine.memory.peek(RING.plus(3), 1), [2]);
}

/// Spec: LWP §5.3. DEV-15
#[test]
fn lwp_spec_5_3_dev_15_block_and_ring_must_lie_in_the_data_segment() {
    let limit = |limit| {
        let mut machine = Machine::new();
        machine.cpu = Cpu { ds: DataSegment { base: 0, limit }, ..Cpu::user_32() };
        machine.block(EventFlags::IRE, 4);
        machine.llwpcb(BLOCK.0)
    };
    assert_eq!(limit(0x1000 + 175), Err(Fault::Gp0), "the ring lies outside");
    assert_eq!(limit(0x1000 + 174), Err(Fault::Gp0), "so does the end of the block");
    assert_eq!(limit(0x1_0000 + 127), Ok(None));
    assert_eq!(limit(0x1_0000 + 126), Err(Fault::Gp0));

    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 4);
    assert_eq!(machine.llwpcb(0x0000_8000_0000_0000), Err(Fault::Gp0), "not canonical");
    machine.edit(|block| block.buffer_base = 0x0000_7FFF_FFFF_FFC0.into());
    assert_eq!(machine.llwpcb(BLOCK.0), Err(Fault::Gp0), "the ring's end is not canonical");
}

/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_addresses_are_converted_once() {
    let mut machine = Machine::new();
    let ds = DataSegment { base: 0x800, limit: 0xFFFF_FFFF };
    machine.cpu = Cpu { ds, ..Cpu::user_32() };
    machine.block(EventFlags::IRE, 4).edit(|block| block.buffer_base = (RING.0 - 0x800).into());
    machine.llwpcb(BLOCK.0 - 0x800).unwrap();
    machine.cpu.ds.base = 0;
    machine.run(0x100, 1);
    assert_eq!(machine.seen(), [(2, 0x100)], "a later change of DS does not move the ring");
    assert_eq!(machine.slwpcb(), Ok(BLOCK.0), "but SLWPCB answers relative to the DS of now");
}

/// Spec: LWP §5.3. DEV-24
#[test]
fn lwp_spec_5_3_dev_24_a_fault_in_the_new_block_leaves_lwp_off() {
    for bad in [0x8000_u64, 0x1001 + 0x0FFF - 100] {
        let mut machine = Machine::new();
        machine.block(EventFlags::IRE, 4).start();
        let absent = if bad == 0x8000 { 0x8000 } else { 0x2000 };
        assert_eq!(machine.llwpcb(bad), Err(read_fault(absent)));
        assert!(!machine.unit.is_on());
    }
}

/// Spec: LWP §5.3. DEV-24
#[test]
fn lwp_spec_5_3_dev_24_a_fault_in_the_flush_leaves_the_old_profile_on() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 4).slot(EventId::INSTRUCTIONS_RETIRED, 9, 9).start();
    machine.run(0x100, 3);
    machine.memory.protect(BLOCK, 4096);
    let at = BLOCK.plus(128 + 8 + 4);
    let denied = PageFault { address: at, write: true, present: true };
    assert_eq!(machine.llwpcb(0), Err(Fault::Pf(denied)));
    assert!(machine.unit.is_on());
    machine.memory.map(BLOCK, 4096);
    assert_eq!(machine.llwpcb(0), Ok(None), "and the restart succeeds");
    assert_eq!(machine.counter(EventId::INSTRUCTIONS_RETIRED), 6);
}

/// Spec: LWP §5.3, §6.4
#[test]
fn lwp_spec_5_3_a_read_only_block_faults_at_flags() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 4);
    machine.memory.protect(BLOCK, 4096);
    let denied = PageFault { address: BLOCK, write: true, present: true };
    assert_eq!(machine.llwpcb(BLOCK.0), Err(Fault::Pf(denied)));
    assert!(!machine.unit.is_on());
}

/// Several things are wrong at once; the one found first in the order of the steps is reported.
///
/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_checks_come_in_order() {
    let mut machine = Machine::new();
    machine.cpu = Cpu { ds: DataSegment { base: 0, limit: 0x10FF }, ..Cpu::user_32() };
    machine.memory.unmap(BLOCK, 4096);
    assert_eq!(machine.llwpcb(0x1080), Err(Fault::Gp0), "1: the segment, before the page");
    assert_eq!(machine.llwpcb(BLOCK.0), Err(read_fault(BLOCK.0)), "2: the page of the block");
    machine.memory.map(BLOCK, 4096);
    machine.block(EventFlags::IRE, 0);
    machine.memory.protect(BLOCK, 4096);
    assert_eq!(machine.llwpcb(BLOCK.0), Err(Fault::Gp0), "3: the size of the ring");
    machine.block(EventFlags::IRE, 4);
    machine.memory.protect(BLOCK, 4096);
    assert_eq!(machine.llwpcb(BLOCK.0), Err(Fault::Gp0), "4: the segment of the ring");
    machine.cpu.ds.limit = u32::MAX;
    assert!(matches!(machine.llwpcb(BLOCK.0), Err(Fault::Pf(_))), "5: the write of Flags");
}

/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_loading_the_active_block_again_flushes_it_first() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 9, 1).start();
    machine.run(0x100, 3);
    // Software edits what the unit owns; the flush overwrites the edit.
    machine.edit(|block| block.buffer_head_offset = 96.into());
    machine.slot(EventId::INSTRUCTIONS_RETIRED, 9, 0);
    machine.start();
    assert_eq!(machine.head(), 32);
    machine.run(0x200, 8);
    assert_eq!(machine.seen(), [(2, 0x101)], "one before the reload and eight after it");
    machine.run(0x300, 1);
    assert_eq!(machine.seen(), [(2, 0x101), (2, 0x300)]);
}

/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_pause_and_resume_keep_the_counts() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 4, 4).start();
    machine.run(0x100, 3);
    let saved = machine.slwpcb().unwrap();
    machine.llwpcb(0).unwrap();
    machine.run(0x200, 100);
    machine.llwpcb(saved).unwrap();
    machine.run(0x300, 2);
    assert_eq!(machine.seen(), [(2, 0x301)]);
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_missed_events_survive_a_new_load() {
    let mut machine = Machine::new();
    machine.block(EventFlags::empty(), 2).start();
    for _ in 0..5 {
        machine.lwpins(0).unwrap();
    }
    assert_eq!(machine.missed(), 4);
    machine.llwpcb(0).unwrap();
    machine.start();
    assert_eq!(machine.missed(), 4);
}

/// Spec: LWP §5.3
#[test]
fn lwp_spec_5_3_privileged_load_takes_effect_at_once() {
    let mut machine = Machine::new();
    machine.cpu = Cpu::kernel_64();
    machine.block(EventFlags::IRE, 8);
    machine.memory.unmap(BLOCK, 4096);
    assert_eq!(machine.llwpcb(BLOCK.0), Err(read_fault(BLOCK.0)), "nothing is put off");
}

proptest! {
    /// Loading a block never panics, and whatever is granted is within what was asked and enabled.
    ///
    /// Spec: LWP §3.2, §5.3
    #[test]
    fn lwp_spec_5_3_any_block_loads_or_faults(bytes: [[u8; 16]; 11], cfg: u32) {
        let mut machine = Machine::new();
        let enabled = EventFlags::from_bits_truncate(cfg);
        let kernel = Cpu::kernel_64();
        machine.unit.wrmsr(&kernel, LwpCfg::MSR, enabled.bits().into()).unwrap();
        machine.memory.map(RING, 0x2_0000);
        let mut bytes = bytes.concat();
        // A ring of some size at a reachable place, so that a good part of the blocks loads.
        bytes[6] &= 1;
        bytes[7] &= 0xF0;
        bytes[8..16].copy_from_slice(&RING.0.to_le_bytes());
        machine.memory.poke(BLOCK, &bytes);
        let asked = machine.read_block().flags.get();
        match machine.llwpcb(BLOCK.0) {
            Ok(None) => {
                let granted = machine.read_block().flags.get();
                prop_assert_eq!(granted, asked & enabled.bits());
                let profile = machine.unit.state().profile.unwrap();
                prop_assert!(profile.head < profile.buffer_size);
                prop_assert_eq!(profile.head % 32, 0);
                prop_assert_eq!(profile.buffer_size % 32, 0);
                for slot in profile.slots {
                    prop_assert!((0..=COUNTER_MAX).contains(&slot.counter));
                    prop_assert!((0..=COUNTER_MAX).contains(&slot.interval.unwrap()));
                }
                machine.retire(&plain(1));
            }
            Ok(Some(_)) => prop_assert!(false, "the shipped form returns nothing"),
            Err(fault) => {
                prop_assert!(machine.read_block().buffer_size() < 32, "{fault:?}");
                prop_assert!(!machine.unit.is_on());
            }
        }
    }

    /// Normalising is idempotent: a block that was loaded and flushed loads to the same state
    /// again.
    ///
    /// Spec: LWP §3.2
    #[test]
    fn lwp_spec_3_2_a_flushed_block_loads_to_the_same_state(
        head: u32, threshold: u32, slots in prop::collection::vec(any::<(i32, i32)>(), 6),
    ) {
        let mut machine = Machine::new();
        machine.block(EventFlags::all(), 7).edit(|block| {
            block.buffer_head_offset = head.into();
            block.threshold = threshold.into();
        });
        for (index, (interval, counter)) in slots.into_iter().enumerate() {
            machine.slot(EventId(index as u8 + 1), interval, counter);
        }
        machine.start();
        let first = machine.unit.state();
        machine.llwpcb(0).unwrap();
        machine.start();
        prop_assert_eq!(machine.unit.state(), first);
    }
}

/// Spec: LWP §2.1
#[test]
fn lwp_spec_2_1_after_reset_nothing_is_available() {
    let unit = LwpUnit::new(small_rings());
    assert_eq!(unit.cpuid().eax, 0);
    assert_eq!(unit.lwp_cfg().bits(), 0);
    assert!(!unit.is_on());
}
