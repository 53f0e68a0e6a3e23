//! The published sample program for the LWP intrinsics, as a test of the model.

use lwp_arch::cpuid::presets;
use lwp_arch::event::EventId;
use lwp_arch::{AppPc, EventFlags, Record, RingOffset, ring};
use lwp_model::{Cpu, Data1, Insert, Policy, Processor};

use crate::machine::{BLOCK, Machine, RING};

const RECORDS: u32 = 4096;
const LOOPS: u32 = 31;

/// One pass of the program's loop: LWPINS every seventh time round, LWPVAL every time.
fn run_loop(machine: &mut Machine, inserted: u64, sampled: u64) {
    for i in 0..LOOPS {
        if i % 7 == 0 {
            // The immediate is 01234567h.
            let insert = Insert {
                ip: AppPc(0x40_1000),
                flags: 0x4567,
                data1: Data1::Register(i),
                data2: inserted,
            };
            let full = machine.unit.lwpins(
                &machine.cpu,
                &insert,
                &mut machine.memory,
                &mut machine.signals,
            );
            assert_eq!(full, Ok(false));
        }
        // The immediate is CAD00CADh.
        let insert = Insert {
            ip: AppPc(0x40_1010),
            flags: 0x0CAD,
            data1: Data1::Register(i),
            data2: sampled,
        };
        let done =
            machine.unit.lwpval(&machine.cpu, &insert, &mut machine.memory, &mut machine.signals);
        assert_eq!(done, Ok(()));
    }
}

/// The program on a processor of this kind: the machine afterwards, and the ring's records.
fn run(processor: Processor, long: bool, flags: EventFlags) -> (Machine, Vec<Record>) {
    let mut machine = Machine::with(processor, Policy::default());
    machine.cpu = if long { Cpu::user_64() } else { Cpu::user_32() };
    machine.block(flags, RECORDS);
    machine.edit(|block| {
        let size = block.buffer_size();
        block.buffer_head_offset = (size - 3 * 32).into();
        block.buffer_tail_offset = (size - 3 * 32).into();
        block.threshold = (2 * size).into();
    });
    let interval = if flags.contains(EventFlags::VAL) { 9 } else { 0 };
    machine.slot(EventId::VALUE_SAMPLE, interval, 0);

    assert_eq!(machine.llwpcb(BLOCK.0), Ok(None));
    assert_eq!(machine.slwpcb(), Ok(BLOCK.0));
    run_loop(&mut machine, 0xDEAD_BEEF, 0x0BAD_F00D);
    if long {
        run_loop(&mut machine, 0xDEAD_BEEF_DEAD_BEEF, 0x0BAD_F00D_0BAD_F00D);
    }
    assert_eq!(machine.slwpcb(), Ok(BLOCK.0));

    let bytes = machine.memory.peek(RING, (RECORDS * 32) as usize);
    let block = machine.read_block();
    let (tail, head) = (block.buffer_tail_offset.get(), block.buffer_head_offset.get());
    let records = ring::records(&bytes, RingOffset(tail), RingOffset(head)).map(|r| r.1).collect();
    (machine, records)
}

/// "V30" for a value sample with Data1 30, "I7" for a programmed event with Data1 7.
fn order(records: &[Record]) -> String {
    let names = records.iter().map(|record| {
        let letter = if record.event_id == 255 { 'I' } else { 'V' };
        format!("{letter}{}", record.data1.get())
    });
    names.collect::<Vec<_>>().join(" ")
}

/// Spec: LWP §10
#[test]
fn lwp_spec_10_sample_program_in_64_bit_mode() {
    for processor in [Processor::full(), Processor::shipped(presets::BULLDOZER)] {
        let (machine, records) = run(processor, true, EventFlags::VAL);
        assert_eq!(records.len(), 17, "17 entries in ring buffer");
        let samples = records.iter().filter(|record| record.event_id == 1).count();
        assert_eq!((samples, records.len() - samples), (7, 10));
        assert_eq!(
            order(&records),
            "I0 V0 I7 V10 I14 V20 I21 I28 V30 I0 I7 V9 I14 V19 I21 I28 V29"
        );
        for (at, record) in records.iter().enumerate() {
            let (flags, low, all) = match record.event_id {
                255 => (0x4567, 0xDEAD_BEEF, 0xDEAD_BEEF_DEAD_BEEF),
                _ => (0x0CAD, 0x0BAD_F00D, 0x0BAD_F00D_0BAD_F00D),
            };
            assert_eq!(record.flags.get(), flags);
            assert_eq!(record.data2.get(), if at < 9 { low } else { all });
            assert_eq!(record.timestamp.get(), 0);
        }
        let block = machine.read_block();
        assert_eq!(block.buffer_head_offset.get(), 448);
        assert_eq!(block.buffer_tail_offset.get(), 130_976);
        assert_eq!(block.missed_events.get(), 0);
        assert_eq!(block.flags.get(), 2);
        assert_eq!(machine.counter(EventId::VALUE_SAMPLE), 8);
    }
}

/// Spec: LWP §10
#[test]
fn lwp_spec_10_sample_program_in_32_bit_mode() {
    for processor in [Processor::full(), Processor::shipped(presets::BULLDOZER)] {
        let (machine, records) = run(processor, false, EventFlags::VAL);
        assert_eq!(order(&records), "I0 V0 I7 V10 I14 V20 I21 I28 V30");
        let samples = records.iter().filter(|record| record.event_id == 1).count();
        assert_eq!((records.len(), samples, records.len() - samples), (9, 4, 5));
        let block = machine.read_block();
        assert_eq!((block.buffer_head_offset.get(), block.missed_events.get()), (192, 0));
        assert_eq!(machine.counter(EventId::VALUE_SAMPLE), 9);
    }
}

/// Without value samples the program falls back to LWPINS alone, with no event selected at all.
///
/// Spec: LWP §5.3, §10
#[test]
fn lwp_spec_10_sample_program_without_value_samples() {
    let (machine, records) = run(Processor::full(), true, EventFlags::empty());
    // LWPVAL has no effect; only the ten LWPINS show.
    assert_eq!(order(&records), "I0 I7 I14 I21 I28 I0 I7 I14 I21 I28");
    assert_eq!(machine.read_block().flags.get(), 0);
}
