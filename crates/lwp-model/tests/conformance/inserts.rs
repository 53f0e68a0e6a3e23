//! LWPINS and LWPVAL.

use std::collections::BTreeSet;

use lwp_arch::cpuid::presets;
use lwp_arch::event::EventId;
use lwp_arch::filters::Filters;
use lwp_arch::insn::{CodeSize, Gpr, Segment, decode};
use lwp_arch::{AppPc, EventFlags, Fault, LinearAddr, PageFault};
use lwp_model::{Cpu, Data1, Policy, Processor, Registers};

use crate::machine::{BLOCK, Machine, Watched, insert, small_rings};

const NOWHERE: LinearAddr = LinearAddr(0xDEAD_0000);

fn absent(address: LinearAddr) -> Fault {
    Fault::Pf(PageFault { address, write: false, present: false })
}

/// Spec: LWP §5.5
#[test]
fn lwp_spec_5_5_lwpins_record_has_the_operands() {
    let mut machine = Machine::new();
    machine.block(EventFlags::empty(), 8).start();
    machine.lwpins(0x89AB_CDEF).unwrap();
    #[rustfmt::skip]
    let bytes = [
        255, // EventId
        0, // CoreId
        0x67, 0x45, // Flags
        0xEF, 0xCD, 0xAB, 0x89, // Data1
        0x00, 0x01, 0x40, 0, 0, 0, 0, 0, // InstructionAddress
        0x0D, 0xF0, 0xAD, 0x0B, 0xEF, 0xBE, 0xAD, 0xDE, // Data2
        0, 0, 0, 0, 0, 0, 0, 0, // no time stamp
    ];
    assert_eq!(machine.records()[0].to_bytes(), bytes);
}

/// Spec: LWP §5.5, §5.7
#[test]
fn lwp_spec_5_5_carry_says_that_the_ring_was_full() {
    let mut machine = Machine::new();
    machine.block(EventFlags::empty(), 3).start();
    let carries = [1, 2, 3, 4].map(|data1| machine.lwpins(data1).unwrap());
    assert_eq!(carries, [false, false, true, true]);
    assert_eq!(machine.missed(), 2);
    machine.drain();
    assert_eq!(machine.lwpins(5), Ok(false), "room again");
}

/// Spec: LWP §5.7. DEV-6
#[test]
fn lwp_spec_5_7_dev_6_carry_stays_clear_in_continuous_mode() {
    let mut machine = Machine::new();
    machine.block(EventFlags::CONT, 3).start();
    let carries = [1, 2, 3, 4].map(|data1| machine.lwpins(data1).unwrap());
    assert_eq!(carries, [false; 4]);
    assert_eq!(machine.missed(), 0);
}

/// Spec: LWP §5.5. DEV-21
#[test]
fn lwp_spec_5_5_dev_21_off_clears_carry_and_leaves_memory_alone() {
    let mut machine = Machine::new();
    let insert = insert(Data1::Memory(NOWHERE));
    let carry =
        machine.unit.lwpins(&machine.cpu, &insert, &mut machine.memory, &mut machine.signals);
    assert_eq!(carry, Ok(false));
}

/// Spec: LWP §5.5, §5.6. DEV-22
#[test]
fn lwp_spec_5_5_dev_22_outside_user_code_inserts_do_nothing() {
    for cpu in [Cpu::kernel_64(), Cpu { smm: true, ..Cpu::user_64() }] {
        let mut machine = Machine::new();
        machine.block(EventFlags::VAL, 8).start();
        machine.cpu = cpu;
        assert_eq!(machine.lwpins(1), Ok(false));
        assert_eq!(machine.lwpval(1), Ok(()));
        machine.cpu = Cpu::user_64();
        machine.slwpcb().unwrap();
        assert_eq!(machine.head(), 0);
    }
}

/// Spec: LWP §5.5
#[test]
fn lwp_spec_5_5_lwpins_reads_its_memory_operand_and_may_fault() {
    let mut machine = Machine::new();
    machine.block(EventFlags::empty(), 8).start();
    let bad = insert(Data1::Memory(NOWHERE));
    let fault = machine.unit.lwpins(&machine.cpu, &bad, &mut machine.memory, &mut machine.signals);
    assert_eq!(fault, Err(absent(NOWHERE)));
    assert_eq!(machine.head(), 0, "no record");
    machine.memory.map(LinearAddr(0x5000), 16);
    machine.memory.poke(LinearAddr(0x5002), &[4, 3, 2, 1]);
    let good = insert(Data1::Memory(LinearAddr(0x5002)));
    machine.unit.lwpins(&machine.cpu, &good, &mut machine.memory, &mut machine.signals).unwrap();
    assert_eq!(machine.records()[0].data1.get(), 0x0102_0304);
}

/// Spec: LWP §3.3, §5.5
#[test]
fn lwp_spec_5_5_lwpins_is_never_filtered() {
    let mut machine = Machine::new();
    machine.block(EventFlags::empty(), 8);
    machine.edit(|block| block.filters = Filters::IPF.bits().into()).start();
    machine.lwpins(1).unwrap();
    assert_eq!(machine.seen().len(), 1, "its address is outside 0..=0");
}

/// Spec: LWP §5.6
#[test]
fn lwp_spec_5_6_lwpval_records_every_kth_time() {
    let mut machine = Machine::new();
    machine.block(EventFlags::VAL, 16).slot(EventId::VALUE_SAMPLE, 2, 2).start();
    for data1 in 0..9 {
        machine.lwpval(data1).unwrap();
    }
    let data: Vec<u32> = machine.records().iter().map(|record| record.data1.get()).collect();
    assert_eq!(data, [2, 5, 8]);
    assert!(machine.records().iter().all(|record| record.event_id == 1));
}

/// Spec: LWP §5.6
#[test]
fn lwp_spec_5_6_lwpval_not_granted_does_nothing() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 8).slot(EventId::VALUE_SAMPLE, 0, 0).start();
    let bad = insert(Data1::Memory(NOWHERE));
    let done = machine.unit.lwpval(&machine.cpu, &bad, &mut machine.memory, &mut machine.signals);
    assert_eq!(done, Ok(()), "the operand is not read either");
    assert_eq!(machine.head(), 0);
}

/// Spec: LWP §5.6
#[test]
fn lwp_spec_5_6_lwpval_reads_memory_only_when_it_records() {
    let mut machine = Machine::new();
    machine.block(EventFlags::VAL, 8).slot(EventId::VALUE_SAMPLE, 1, 1).start();
    machine.memory.map(LinearAddr(0x5000), 4);
    let sample = insert(Data1::Memory(LinearAddr(0x5000)));
    let mut reads = Vec::new();
    for _ in 0..4 {
        let mut watched = Watched { memory: &mut machine.memory, read: BTreeSet::new() };
        machine.unit.lwpval(&machine.cpu, &sample, &mut watched, &mut machine.signals).unwrap();
        reads.push(watched.read.contains(&0x5000));
    }
    assert_eq!(reads, [false, true, false, true]);
}

/// Spec: LWP §5.6
#[test]
fn lwp_spec_5_6_lwpval_counter_is_reloaded_though_the_ring_is_full() {
    let mut machine = Machine::new();
    machine.block(EventFlags::VAL, 2).slot(EventId::VALUE_SAMPLE, 1, 0).start();
    for data1 in 0..6 {
        machine.lwpval(data1).unwrap();
    }
    // Records at 0, 2 and 4; the ring shows one, two were missed.
    assert_eq!((machine.records().len(), machine.missed()), (1, 2));
    machine.drain();
    for data1 in 6..8 {
        machine.lwpval(data1).unwrap();
    }
    let data: Vec<u32> = machine.records().iter().map(|record| record.data1.get()).collect();
    assert_eq!(data, [6], "the rhythm went on");
}

/// Spec: LWP §6.4
#[test]
fn lwp_spec_6_4_a_faulting_lwpval_counts_once() {
    let mut machine = Machine::new();
    machine.block(EventFlags::VAL, 8).slot(EventId::VALUE_SAMPLE, 3, 1).start();
    machine.lwpval(0).unwrap();
    let bad = insert(Data1::Memory(LinearAddr(0x5000)));
    for _ in 0..3 {
        let fault =
            machine.unit.lwpval(&machine.cpu, &bad, &mut machine.memory, &mut machine.signals);
        assert_eq!(fault, Err(absent(LinearAddr(0x5000))));
    }
    machine.memory.map(LinearAddr(0x5000), 4);
    machine.unit.lwpval(&machine.cpu, &bad, &mut machine.memory, &mut machine.signals).unwrap();
    assert_eq!(machine.seen().len(), 1);
    machine.slwpcb().unwrap();
    assert_eq!(machine.counter(EventId::VALUE_SAMPLE), 3, "reloaded once");
}

/// Spec: LWP §3.3. DEV-23
#[test]
fn lwp_spec_3_3_dev_23_value_samples_ignore_the_ip_filter() {
    let mut machine = Machine::new();
    machine.block(EventFlags::VAL, 8).slot(EventId::VALUE_SAMPLE, 0, 0);
    machine.edit(|block| block.filters = Filters::IPF.bits().into()).start();
    machine.lwpval(1).unwrap();
    assert_eq!(machine.seen().len(), 1);
}

/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_an_insert_retires_like_any_instruction() {
    let mut machine = Machine::new();
    machine.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 0, 0).start();
    machine.lwpins(1).unwrap();
    machine.run(0x40_0100, 1);
    assert_eq!(machine.seen(), [(255, 0x40_0100), (2, 0x40_0100)]);
}

/// General registers, the base of FS, and the carry flag if it was written.
#[derive(Default)]
pub struct Gprs {
    pub values: [u64; 16],
    pub fs: u64,
    pub carry: Option<bool>,
}

impl Registers for Gprs {
    fn gpr(&self, register: Gpr) -> u64 {
        self.values[usize::from(register.number())]
    }

    fn set_gpr(&mut self, register: Gpr, value: u64) {
        self.values[usize::from(register.number())] = value;
    }

    fn segment_base(&self, segment: Segment) -> u64 {
        if segment == Segment::Fs { self.fs } else { 0 }
    }

    fn set_carry(&mut self, carry: bool) {
        self.carry = Some(carry);
    }
}

/// Executes the instruction these bytes are.
pub fn execute(machine: &mut Machine, code: CodeSize, bytes: &[u8], gprs: &mut Gprs) {
    let instruction = decode(bytes, code).unwrap();
    let (memory, signals) = (&mut machine.memory, &mut machine.signals);
    let ip = AppPc(0x40_0000);
    machine.unit.execute(&machine.cpu, &instruction, ip, gprs, memory, signals).unwrap();
}

/// Spec: LWP §5.1, §5.3, §5.4, §5.5, §5.6
#[test]
fn lwp_spec_5_1_machine_code_in_64_bit_mode() {
    let mut machine = Machine::new();
    machine.block(EventFlags::VAL, 8).slot(EventId::VALUE_SAMPLE, 0, 0);
    let mut gprs = Gprs::default();
    gprs.values[15] = BLOCK.0;
    gprs.values[7] = u64::MAX;
    let code = CodeSize::Bits64;
    execute(&mut machine, code, &[0x8F, 0xC9, 0xF8, 0x12, 0xC7], &mut gprs); // llwpcb r15
    execute(&mut machine, code, &[0x8F, 0xE9, 0xF8, 0x12, 0xCF], &mut gprs); // slwpcb rdi
    assert_eq!(gprs.values[7], BLOCK.0);
    gprs.values[8] = u64::MAX;
    execute(&mut machine, code, &[0x8F, 0xC9, 0x78, 0x12, 0xC8], &mut gprs); // slwpcb r8d
    assert_eq!(gprs.values[8], BLOCK.0, "a 32-bit result clears the upper half");
    assert_eq!(gprs.carry, None, "no flag is touched");

    // lwpins r15, [rip+10h], 1: the operand lies 16 bytes after the instruction.
    machine.memory.map(LinearAddr(0x40_0000), 64);
    machine.memory.poke(LinearAddr(0x40_000D + 0x10), &[0x78, 0x56, 0x34, 0x12]);
    let lwpins = [0x8F, 0xEA, 0x80, 0x12, 0x05, 0x10, 0, 0, 0, 1, 0, 0, 0];
    execute(&mut machine, code, &lwpins, &mut gprs);
    assert_eq!(gprs.carry, Some(false));
    let record = machine.records()[0];
    assert_eq!((record.data1.get(), record.data2.get()), (0x1234_5678, BLOCK.0));
    assert_eq!((record.flags.get(), record.ip()), (1, AppPc(0x40_0000)));

    // lwpval eax, r9d, 4AD00CADh: the 64-bit register is cut to 32 bits.
    gprs.values[0] = 0xFFFF_FFFF_0000_0001;
    gprs.values[9] = 0xFFFF_FFFF_0000_0002;
    let lwpval = [0x8F, 0xCA, 0x78, 0x12, 0xC9, 0xAD, 0x0C, 0xD0, 0x4A];
    execute(&mut machine, code, &lwpval, &mut gprs);
    let record = machine.records()[1];
    assert_eq!((record.event_id, record.data1.get(), record.data2.get()), (1, 2, 1));
    assert_eq!(record.flags.get(), 0x0CAD);
}

/// Spec: LWP §5.1
#[test]
fn lwp_spec_5_1_machine_code_with_a_segment_override_in_32_bit_mode() {
    let mut machine = Machine::new();
    machine.cpu = Cpu::user_32();
    machine.block(EventFlags::empty(), 8);
    let mut gprs = Gprs { fs: 0x5000, ..Gprs::default() };
    gprs.values[0] = BLOCK.0;
    gprs.values[3] = 0xFFFF_F010;
    let code = CodeSize::Bits32;
    execute(&mut machine, code, &[0x8F, 0xE9, 0x78, 0x12, 0xC0], &mut gprs); // llwpcb eax
    // lwpins eax, fs:[ebx], 7: 5000h + FFFFF010h wraps to 4010h.
    machine.memory.map(LinearAddr(0x4000), 64);
    machine.memory.poke(LinearAddr(0x4010), &[9, 0, 0, 0]);
    let lwpins = [0x64, 0x8F, 0xEA, 0x78, 0x12, 0x03, 7, 0, 0, 0];
    execute(&mut machine, code, &lwpins, &mut gprs);
    assert_eq!(machine.records()[0].data1.get(), 9);
}

/// Spec: LWP §4.1
#[test]
fn lwp_spec_4_1_core_id_and_time_stamp_are_in_the_record() {
    let mut machine = Machine::new();
    machine.block(EventFlags::PTSC, 8).start();
    let cfg = lwp_arch::msr::LwpCfg::new(EventFlags::PTSC, 9, 0).bits();
    let kernel = Cpu::kernel_64();
    machine.unit.wrmsr(&kernel, lwp_arch::msr::LwpCfg::MSR, cfg).unwrap();
    machine.signals.timestamp = 0x1234_5678_9ABC;
    machine.lwpins(0).unwrap();
    let record = machine.records()[0];
    assert_eq!((record.core_id, record.timestamp.get()), (9, 0x1234_5678_9ABC));

    let mut plain = Machine::with(Processor::shipped(presets::BULLDOZER), Policy::default());
    plain.block(EventFlags::PTSC, 64).start();
    plain.signals.timestamp = 5;
    plain.lwpins(0).unwrap();
    assert_eq!(plain.records()[0].timestamp.get(), 0, "not granted, not stamped");
    assert_eq!(small_rings().revision(), plain.revision());
}
