//! The unit by the rules of the 2007 proposal, where they differ.

use lwp_arch::cpuid::{Capabilities2007, Edx2007};
use lwp_arch::filters::Filters2007;
use lwp_arch::insn::CodeSize;
use lwp_arch::lwpcb::{EventSlot2007, Lwpcb2007, pack_buffer_size_random};
use lwp_arch::msr::LwpMsr0;
use lwp_arch::record::DataSource;
use lwp_arch::retired::BranchKind;
use lwp_arch::{EventId, Fault, LinearAddr, PageFault, Retired, Revision};
use lwp_model::{Cpu, OnFault, Policy, Processor, Proposal, Simultaneous};

use crate::inserts::{Gprs, execute};
use crate::machine::{BLOCK, Machine, RING, branch, loads, miss, plain};

pub const INSTRUCTIONS: EventId = EventId(1);
pub const BRANCHES: EventId = EventId(2);
const MISSES: EventId = EventId(3);

/// A machine of the proposal with everything enabled and an empty ring of eight records.
pub fn machine() -> Machine {
    with(Processor::proposal(), Policy::default())
}

pub fn with(processor: Processor, policy: Policy) -> Machine {
    let mut m = Machine::with(processor, policy);
    block(&mut m, 8, &[(INSTRUCTIONS, 1, 1)]);
    m
}

/// Writes a control block: ring of `slots` records, events with interval and counter.
pub fn block(m: &mut Machine, slots: u32, events: &[(EventId, u32, u32)]) {
    let block = Lwpcb2007 {
        buffer_size_random: pack_buffer_size_random(slots * 32, 0).into(),
        buffer_base: RING.0.into(),
        ..Lwpcb2007::default()
    };
    m.memory.poke(BLOCK, &block.to_bytes());
    for index in 0..3 {
        let (id, interval, counter) = events.get(index).copied().unwrap_or((EventId(0), 0, 0));
        let slot = EventSlot2007::new(id, interval, counter);
        m.memory.poke(BLOCK.plus(Lwpcb2007::slot_offset(index as u8)), &slot.to_bytes());
    }
}

fn edit(m: &mut Machine, edit: impl FnOnce(&mut Lwpcb2007)) {
    let mut block = read(m);
    edit(&mut block);
    m.memory.poke(BLOCK, &block.to_bytes());
}

fn read(m: &Machine) -> Lwpcb2007 {
    Lwpcb2007::from_prefix(&m.memory.peek(BLOCK, Lwpcb2007::SIZE)).unwrap()
}

/// `(EventId, instruction address)` of the records from the start of the ring to the head.
pub fn seen(m: &Machine) -> Vec<(u8, u64)> {
    let head = read(m).buffer_head_offset.get() as usize;
    let ring = m.memory.peek(RING, head);
    let records = ring.chunks(32).map(|bytes| {
        let record = lwp_arch::Record::from_prefix(bytes).unwrap();
        (record.event_id, record.ip().0)
    });
    records.collect()
}

fn counter(m: &Machine, index: u8) -> u32 {
    m.memory.peek_u32(BLOCK.plus(Lwpcb2007::slot_offset(index) + 4))
}

/// Spec: P07 §3, §5.4
#[test]
fn p07_5_4_interval_n_records_every_nth_event() {
    let mut m = machine();
    block(&mut m, 8, &[(INSTRUCTIONS, 3, 3)]);
    m.start().run(1, 10);
    assert_eq!(seen(&m), [(1, 3), (1, 6), (1, 9)]);
}

/// Spec: P07 §5.3
#[test]
fn p07_5_3_llwpcb_returns_the_old_address_and_enables_by_event_ids() {
    let mut m = machine();
    assert_eq!(m.llwpcb(BLOCK.0), Ok(Some(0)));
    assert_eq!(read(&m).flags.get(), 0x8000_0003, "INT, IRE, EN");
    assert_eq!(m.llwpcb(0), Ok(Some(BLOCK.0)));
    assert_eq!(m.llwpcb(0), Ok(Some(0)));
}

/// Spec: P07 §5.3
#[test]
fn p07_5_3_the_returned_address_resumes_a_paused_profile() {
    let mut m = machine();
    block(&mut m, 8, &[(INSTRUCTIONS, 5, 5)]);
    m.start().run(1, 3);
    let old = m.llwpcb(0).unwrap().unwrap();
    m.run(100, 50);
    m.llwpcb(old).unwrap();
    m.run(200, 2);
    assert_eq!(seen(&m), [(1, 201)]);
}

/// Spec: P07 §5.3
#[test]
fn p07_5_3_without_any_event_lwp_goes_off() {
    let mut m = machine();
    block(&mut m, 8, &[(EventId(7), 1, 1)]);
    edit(&mut m, |block| block.flags = u32::MAX.into());
    assert_eq!(m.llwpcb(BLOCK.0), Ok(Some(0)));
    assert_eq!(read(&m).flags.get(), 0);
    assert_eq!(m.slwpcb(), Ok(0));
}

/// Spec: P07 §5.3
#[test]
fn p07_5_3_of_duplicate_events_the_first_counts() {
    let mut m = machine();
    block(&mut m, 8, &[(INSTRUCTIONS, 4, 4), (INSTRUCTIONS, 1, 1), (BRANCHES, 1, 1)]);
    m.start().run(1, 8);
    assert_eq!(seen(&m), [(1, 4), (1, 8)]);
    m.slwpcb().unwrap();
    assert_eq!(counter(&m, 1), 1, "the duplicate's counter is left alone");
    let slot = m.memory.peek_u32(BLOCK.plus(Lwpcb2007::slot_offset(1)));
    assert_eq!(slot >> 26, 1, "and so is its EventId");
}

/// Spec: P07 §3
#[test]
fn p07_3_an_expired_counter_stays_at_zero_until_it_records() {
    let policy = Policy { simultaneous: Simultaneous::StoreOne, ..Policy::default() };
    let mut m = with(Processor::proposal(), policy);
    block(&mut m, 8, &[(INSTRUCTIONS, 1, 1), (BRANCHES, 9, 1)]);
    m.start();
    m.retire(&branch(1, 2, BranchKind::Return));
    m.slwpcb().unwrap();
    assert_eq!((seen(&m), counter(&m, 1)), (vec![(1, 1)], 0));
    m.retire(&plain(2));
    m.slwpcb().unwrap();
    assert_eq!(counter(&m, 1), 0, "it waits for a branch");
    m.retire(&branch(3, 4, BranchKind::Return));
    m.slwpcb().unwrap();
    assert_eq!((seen(&m), counter(&m, 1)), (vec![(1, 1), (1, 2), (2, 3)], 9));
}

/// Events that always expire together are recorded in turn, whatever their slots.
///
/// Spec: P07 §5.5.1
/// Promise: W27
#[test]
fn p07_5_5_1_dev_33_expired_events_take_turns() {
    let orders = [[INSTRUCTIONS, BRANCHES, MISSES], [MISSES, BRANCHES, INSTRUCTIONS]];
    for order in orders {
        let mut m = with(Processor::proposal(), Policy::of(Revision::Proposal2007));
        block(&mut m, 64, &order.map(|event| (event, 1, 1)));
        m.start();
        let misses = [miss(0x1000, DataSource::Dram, 200)];
        for ip in 0..30 {
            m.retire(&Retired { accesses: &misses, ..branch(ip, ip + 1, BranchKind::Return) });
        }
        let ids = [INSTRUCTIONS, BRANCHES, MISSES].map(|event| event.0);
        let times = ids.map(|id| seen(&m).iter().filter(|(seen, _)| *seen == id).count());
        assert_eq!(times, [10, 10, 10], "{order:?}");
    }
}

/// Spec: P07 §5.4
#[test]
fn p07_5_4_interrupt_at_equality_only() {
    let mut m = machine();
    edit(&mut m, |block| block.threshold = 64.into());
    m.start();
    let counts = [1, 2, 3, 4].map(|ip| {
        m.run(ip, 1);
        m.signals.interrupts.len()
    });
    assert_eq!(counts, [0, 1, 1, 1]);
    assert_eq!(m.signals.interrupts, [0xFF]);
}

/// Spec: P07 §5.4
#[test]
fn p07_5_4_threshold_zero_never_interrupts() {
    let mut m = machine();
    m.start().run(1, 20);
    assert!(m.signals.interrupts.is_empty());
}

/// Spec: P07 §5.2.1, §5.4
#[test]
fn p07_5_2_1_interrupts_need_the_register() {
    let mut m = machine();
    edit(&mut m, |block| block.threshold = 32.into());
    let without = m.unit.lwpmsr0() - LwpMsr0::INTERRUPT;
    m.unit.write_lwpmsr0(&Cpu::kernel_64(), without).unwrap();
    m.start().run(1, 2);
    assert!(m.signals.interrupts.is_empty());
    assert_eq!(read(&m).flags.get(), 0b11);
}

/// Spec: P07 §5.4
#[test]
fn p07_5_4_a_full_ring_overwrites_and_counts() {
    let mut m = machine();
    block(&mut m, 3, &[(INSTRUCTIONS, 1, 1)]);
    m.start().run(1, 6);
    let block = read(&m);
    assert_eq!((block.buffer_head_offset.get(), block.missed_events.get()), (64, 4));
    assert_eq!(m.memory.peek(RING.plus(64 + 8), 1), [6], "the last slot holds the latest");
}

/// Spec: P07 §5.3
#[test]
fn p07_5_3_outside_ring_3_only_the_pointer_is_loaded() {
    let mut m = machine();
    m.memory.unmap(BLOCK, 4096);
    m.cpu = Cpu::kernel_64();
    assert_eq!(m.llwpcb(BLOCK.0), Ok(Some(0)), "the block need not be there");
    assert_eq!(m.slwpcb(), Ok(BLOCK.0), "the pointer can be read back");
    m.run(1, 5);
    m.cpu = Cpu::user_64();
    let absent = PageFault { address: BLOCK, write: false, present: false };
    assert_eq!(m.unit.settle(&mut m.memory), Err(Fault::Pf(absent)), "ring 3 takes the fault");
    block(&mut m, 8, &[(INSTRUCTIONS, 2, 2)]);
    m.run(10, 4);
    assert_eq!(seen(&m), [(1, 11), (1, 13)]);
    assert_eq!(read(&m).flags.get(), 0x8000_0003);
}

/// Spec: P07 §5.3
#[test]
fn p07_5_3_faults() {
    let mut m = machine();
    let off = LwpMsr0::empty();
    m.unit.write_lwpmsr0(&Cpu::kernel_64(), off).unwrap();
    assert_eq!(m.llwpcb(BLOCK.0), Err(Fault::Ud), "not enabled in LWPMSR0");
    m.unit.enable_everything();
    m.memory.protect(BLOCK, 4096);
    let denied = PageFault { address: BLOCK, write: true, present: true };
    assert_eq!(m.llwpcb(BLOCK.0), Err(Fault::Pf(denied)), "not writable");
    assert!(!m.unit.is_on());
}

/// Spec: P07 §5.3. DEV-25
#[test]
fn p07_5_3_dev_25_misaligned_blocks_and_empty_rings() {
    let mut m = machine();
    assert_eq!(m.llwpcb(BLOCK.0 + 8), Err(Fault::Gp0), "16-byte alignment");
    block(&mut m, 0, &[(INSTRUCTIONS, 1, 1)]);
    assert_eq!(m.llwpcb(BLOCK.0), Ok(Some(0)));
    assert_eq!((read(&m).flags.get(), m.slwpcb()), (0, Ok(0)), "off, as with no event");
}

/// Spec: P07 §5.3. DEV-25
#[test]
fn p07_5_3_dev_25_machine_code_returns_the_old_address_in_rax() {
    let mut m = machine();
    let mut gprs = Gprs::default();
    gprs.values[3] = BLOCK.0;
    let llwpcb_rbx = [0x8F, 0xE9, 0xF8, 0x12, 0xC3];
    for old in [0, BLOCK.0] {
        gprs.values[0] = u64::MAX;
        execute(&mut m, CodeSize::Bits64, &llwpcb_rbx, &mut gprs);
        assert_eq!(gprs.values[0], old);
    }
    assert_eq!(gprs.carry, None);
}

/// Spec: P07 §5.2.1. DEV-27
#[test]
fn p07_5_2_1_dev_27_clearing_the_enable_bit_ends_the_profile() {
    let mut m = machine();
    let (kernel, all) = (Cpu::kernel_64(), m.unit.lwpmsr0());
    m.start();
    m.unit.write_lwpmsr0(&kernel, all - LwpMsr0::IRE).unwrap();
    assert!(m.unit.is_on());
    m.unit.write_lwpmsr0(&kernel, all - LwpMsr0::ENABLED).unwrap();
    m.unit.write_lwpmsr0(&kernel, all).unwrap();
    assert_eq!(m.slwpcb(), Ok(0));
}

/// Spec: P07 §5.4
#[test]
fn p07_5_4_low_bits_of_buffer_base_are_ignored() {
    let mut m = machine();
    edit(&mut m, |block| block.buffer_base = (RING.0 + 31).into());
    m.start().run(1, 1);
    assert_eq!(m.memory.peek(RING, 1), [1]);
}

/// Spec: P07 §5.4
#[test]
fn p07_5_4_ndb_drops_direct_jumps_and_keeps_calls() {
    let mut m = machine();
    block(&mut m, 16, &[(BRANCHES, 1, 1)]);
    edit(&mut m, |block| block.filters = Filters2007::NDB.bits().into());
    m.start();
    for (at, kind) in BranchKind::ALL.into_iter().enumerate() {
        m.retire(&branch(at as u64, 0x80, kind));
    }
    let left: Vec<u64> = seen(&m).iter().map(|&(_, ip)| ip).collect();
    assert_eq!(left, [0, 2, 3, 4, 5, 6], "1 is the direct jump");
}

/// Spec: P07 §4.3.1, §5.4
#[test]
fn p07_4_3_1_cache_filters_and_rounding() {
    let mut m = machine();
    block(&mut m, 16, &[(MISSES, 1, 1)]);
    let filters = (Filters2007::CLF | Filters2007::RAM).with_min_latency(4);
    edit(&mut m, |block| block.filters = filters.bits().into());
    m.start();
    m.retire(&loads(1, &[miss(0x99, DataSource::Dram, 63)]));
    m.retire(&loads(2, &[miss(0x99, DataSource::LocalL3, 100)]));
    m.retire(&loads(3, &[miss(0x99, DataSource::Dram, 127)]));
    assert_eq!(seen(&m), [(3, 3)]);
    assert_eq!(m.memory.peek_u32(RING.plus(4)), 112, "a multiple of 16");
    assert_eq!(m.memory.peek_u64(RING.plus(16)), 0x99);
}

/// Spec: P07 §4.3.2, §5.1
#[test]
fn p07_5_1_a_part_without_data_addresses_reports_none() {
    let capabilities = Capabilities2007 { data_address: false, ..Capabilities2007::FULL };
    let processor = Processor::Proposal(Proposal { capabilities, core_id: 4, vector: 1 });
    let mut m = with(processor, Policy::default());
    block(&mut m, 16, &[(MISSES, 1, 1)]);
    m.start();
    m.retire(&loads(1, &[miss(0x99, DataSource::Dram, 64)]));
    assert_eq!(m.memory.peek(RING, 4), [3, 4, 0, 0x60], "CoreId 4, source 3, DAV clear");
    assert_eq!(m.memory.peek_u64(RING.plus(16)), 0);
}

/// Spec: P07 §5.5.1
#[test]
fn p07_5_5_1_dev_33_one_record_per_instruction() {
    let mut m = with(Processor::proposal(), Policy::of(Revision::Proposal2007));
    block(&mut m, 16, &[(INSTRUCTIONS, 2, 1), (BRANCHES, 1, 1)]);
    m.start();
    for ip in 1..=4 {
        m.retire(&branch(ip, ip + 1, BranchKind::Return));
    }
    assert_eq!(seen(&m), [(1, 1), (2, 2), (1, 3), (2, 4)]);
}

/// Spec: P07 §5.5.2
#[test]
fn p07_5_5_2_volatile_state_carries_a_profile_across_a_switch() {
    let mut alone = machine();
    block(&mut alone, 16, &[(INSTRUCTIONS, 4, 3), (BRANCHES, 2, 2)]);
    let mut m = alone.clone();
    let jump = |ip| branch(ip, ip + 1, BranchKind::Return);
    for machine in [&mut alone, &mut m] {
        machine.start();
        for ip in 1..=6 {
            machine.retire(&jump(ip));
        }
    }
    let saved = m.unit.save_volatile();
    assert_eq!(saved.as_ref().unwrap().progress.as_ref().unwrap().counters.len(), 3);
    m.unit.restore_volatile(None);
    assert_eq!(m.slwpcb(), Ok(0), "another thread, LWP off");
    m.memory.unmap(LinearAddr(0), 1);
    m.unit.restore_volatile(saved);
    for machine in [&mut alone, &mut m] {
        for ip in 7..=20 {
            machine.retire(&jump(ip));
        }
        machine.slwpcb().unwrap();
    }
    assert_eq!(m.memory, alone.memory);
}

/// Spec: P07 §5.5.2, §5.5.2.4
#[test]
fn p07_5_5_2_4_a_restore_waits_for_ring_3() {
    let mut m = machine();
    m.start().run(1, 2);
    let saved = m.unit.save_volatile();
    m.unit.restore_volatile(saved);
    m.memory.protect(BLOCK, 4096);
    m.cpu = Cpu::kernel_64();
    m.run(1, 10);
    assert!(matches!(m.slwpcb(), Err(Fault::Pf(_))), "a flush in the kernel needs the block");
    m.memory.map(BLOCK, 4096);
    assert_eq!(m.slwpcb(), Ok(BLOCK.0));
    m.cpu = Cpu::user_64();
    m.run(3, 1);
    assert_eq!(seen(&m), [(1, 1), (1, 2), (1, 3)]);
}

/// A block across two pages, of which only the one with the counters is missing.
///
/// Spec: P07 §5.5.2.4
#[test]
fn p07_5_5_2_4_a_flush_in_the_kernel_needs_every_page_of_the_block() {
    let mut m = machine();
    let block = LinearAddr(0x5000 - Lwpcb2007::SIZE as u64 - 8);
    let image = m.memory.peek(BLOCK, 64);
    m.memory.poke(block, &image);
    m.llwpcb(block.0).unwrap();
    m.run(1, 2);
    let saved = m.unit.save_volatile();
    m.unit.restore_volatile(saved);
    m.memory.protect(LinearAddr(0x5000), 1);
    m.cpu = Cpu::kernel_64();
    let counter = LinearAddr(0x5004);
    let denied = PageFault { address: counter, write: true, present: true };
    assert_eq!(m.slwpcb(), Err(Fault::Pf(denied)));
    m.memory.map(LinearAddr(0x5000), 1);
    assert_eq!(m.slwpcb(), Ok(block.0));
}

/// Spec: P07 §5.5.2
#[test]
fn p07_5_5_2_a_record_lost_in_a_switch_is_counted_as_missed() {
    let policy = Policy { on_fault: OnFault::Save, ..Policy::default() };
    let mut m = with(Processor::proposal(), policy);
    m.start();
    m.memory.unmap(RING, 4096);
    assert!(m.retire(&plain(1)).trap.is_some());
    let saved = m.unit.save_volatile().unwrap();
    assert!(saved.progress.as_ref().unwrap().missed);
    m.unit.restore_volatile(Some(saved));
    m.memory.map(RING, 4096);
    m.run(2, 1);
    assert_eq!((seen(&m), read(&m).missed_events.get()), (vec![(1, 2)], 1));
}

/// Spec: P07 §5.5.2.3
#[test]
fn p07_5_5_2_3_nothing_counts_in_smm() {
    let mut m = machine();
    m.start();
    m.cpu.smm = true;
    m.run(1, 5);
    m.cpu.smm = false;
    m.run(9, 1);
    assert_eq!(seen(&m), [(1, 9)]);
}

/// Spec: P07 §5.2.2
#[test]
fn p07_5_2_2_the_pointer_register_acts_as_the_instructions_do() {
    let mut m = machine();
    let kernel = Cpu::kernel_64();
    m.unit.write_lwpmsr1(&kernel, BLOCK.0, &mut m.memory, &mut m.signals).unwrap();
    m.run(1, 2);
    let read = m.unit.read_lwpmsr1(&kernel, &mut m.memory, &mut m.signals);
    assert_eq!(read, Ok(BLOCK.0));
    assert_eq!(seen(&m).len(), 2, "it flushed and stayed on");
    let user = Cpu::user_64();
    let denied = m.unit.read_lwpmsr1(&user, &mut m.memory, &mut m.signals);
    assert_eq!(denied, Err(Fault::Gp0));
}

/// Spec: P07 §5.2.1
#[test]
fn p07_5_2_1_bits_the_part_lacks_fault() {
    let features = Edx2007::ENABLED | Edx2007::BRE;
    let capabilities = Capabilities2007 { features, ..Capabilities2007::FULL };
    let processor = Processor::Proposal(Proposal { capabilities, core_id: 0, vector: 1 });
    let mut m = with(processor, Policy::default());
    let kernel = Cpu::kernel_64();
    assert_eq!(m.unit.write_lwpmsr0(&kernel, LwpMsr0::IRE), Err(Fault::Gp0));
    assert_eq!(m.unit.write_lwpmsr0(&kernel, LwpMsr0::ENABLED | LwpMsr0::BRE), Ok(()));
    assert_eq!(m.unit.cpuid().eax, 0b101);
    block(&mut m, 8, &[(INSTRUCTIONS, 1, 1), (BRANCHES, 1, 1)]);
    m.start();
    m.retire(&branch(1, 2, BranchKind::Return));
    assert_eq!(seen(&m), [(2, 1)], "instructions are not enabled");
}

/// Spec: P07 §4.1, §4.2
#[test]
fn p07_4_2_lwpins_and_lwpval_do_not_exist() {
    let mut m = machine();
    m.start();
    assert_eq!(m.lwpins(1), Err(Fault::Ud));
    assert_eq!(m.lwpval(1), Err(Fault::Ud));
    assert_eq!(m.unit.xsave(), None, "nor does the XSAVE component");
}

/// Spec: P07 §5.4
#[test]
fn p07_5_4_random_bits_apply_to_reloads() {
    let mut m = machine();
    block(&mut m, 8, &[(INSTRUCTIONS, 0x100, 2)]);
    edit(&mut m, |block| block.buffer_size_random = pack_buffer_size_random(8 * 32, 4).into());
    m.start().run(1, 2);
    m.slwpcb().unwrap();
    assert_eq!((seen(&m), counter(&m, 0)), (vec![(1, 2)], 0x101));
}

/// Spec: P07 §5.4
#[test]
fn p07_5_4_branch_records_carry_target_and_outcome() {
    let mut m = machine();
    block(&mut m, 8, &[(BRANCHES, 1, 1)]);
    m.start();
    let taken =
        Retired::branch(lwp_arch::AppPc(1), lwp_arch::AppPc(0x77), BranchKind::Conditional, true);
    m.retire(&taken);
    assert_eq!(m.memory.peek(RING, 4), [2, 0, 0, 0x80]);
    assert_eq!(m.memory.peek_u64(RING.plus(16)), 0x77);
}
