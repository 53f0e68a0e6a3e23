//! Rings built byte by byte as the kernel documents them, and what is read from them.
//!
//! Promise: H3

use std::sync::Arc;

use linux_perf_event_reader::SampleRecord;
use linux_perf_event_reader::{Endianness, RawData, RecordType, SamplingPolicy};
use linux_perf_event_reader::{Mmap2FileId, Mmap2Record, PerfEventAttr, RecordParseInfo};
use lwp_arch::record::{BranchFlags, DataSource, Event as LwpEvent};
use lwp_arch::{AppPc, EventKind, LinearAddr, Revision, RingOffset};
use lwp_perf::decode::{MemoryAccess, ibs, lwp_record};
use lwp_perf::group::Target;
use lwp_perf::kernel::script::{Memory, Script};
use lwp_perf::page::field;
use lwp_perf::ring::{RawRecord, Ring, RingError};
use lwp_perf::sample::{USER_REGISTERS, time_of};
use lwp_perf::sampler::{Losses, SampleError};
use lwp_perf::{Cause, Errno, Event, Record, Sample, SampleFormat, Sampler, SamplerOptions};
use proptest::prelude::*;

const RING: usize = 4096;

/// A record: type, misc, size, body.
fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), body].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn ring(memory: &Memory) -> Ring {
    Ring::new(Box::new(memory.clone()))
}

#[test]
fn records_wrap_around_the_end() {
    let memory = Memory::new(RING);
    // Start so that headers and bodies meet the end of the ring at every multiple of eight.
    for start in (0..64).map(|step| RING as u64 - 256 + step * 8) {
        memory.set(field::DATA_HEAD, &start.to_le_bytes());
        memory.set(field::DATA_TAIL, &start.to_le_bytes());
        let mut ring = ring(&memory);
        for number in 0..20u64 {
            assert!(memory.write(&record(9, 2, &words(&[number, !number, start]))));
        }
        for number in 0..20u64 {
            let body = words(&[number, !number, start]);
            let expected = RawRecord { kind: 9, misc: 2, body: &body };
            assert_eq!(ring.next_record(), Ok(Some(expected)), "start {start}");
        }
        assert_eq!(ring.next_record(), Ok(None));
    }
}

#[test]
fn reading_makes_room() {
    let memory = Memory::new(RING);
    let mut ring = ring(&memory);
    let one = record(9, 0, &[0; 1016]);
    for _ in 0..4 {
        assert!(memory.write(&one));
    }
    assert!(!memory.write(&one), "full");
    assert!(ring.next_record().unwrap().is_some());
    assert!(memory.write(&one), "one record's room");
    let read = std::iter::from_fn(|| ring.next_record().unwrap().map(|_| ())).count();
    assert_eq!(read, 4);
}

#[test]
fn damage_is_reported_and_skipped() {
    let memory = Memory::new(RING);
    let mut ring = ring(&memory);
    let mut short = record(9, 0, &[0; 8]);
    short[6] = 4;
    memory.write(&short);
    assert_eq!(ring.next_record(), Err(RingError::Size { at: 0, size: 4, available: 16 }));
    let mut long = record(9, 0, &[0; 8]);
    long[7] = 2;
    memory.write(&long);
    assert_eq!(ring.next_record(), Err(RingError::Size { at: 16, size: 528, available: 16 }));
    memory.write(&record(9, 0, &words(&[1])));
    assert!(ring.next_record().unwrap().is_some(), "reading goes on behind the damage");
    memory.set(field::DATA_HEAD, &0u64.to_le_bytes());
    assert!(matches!(ring.next_record(), Err(RingError::Ends { head: 0, tail: 48, .. })));
}

proptest! {
    /// Any sequence of records, written and read in any rhythm, comes out as it went in, and the
    /// reader never sees more than was written.
    #[test]
    fn any_rhythm_of_writing_and_reading(
        steps in proptest::collection::vec((0usize..300, 0usize..6), 1..200),
        start in any::<u64>(),
    ) {
        let memory = Memory::new(RING);
        let start = start & !7;
        memory.set(field::DATA_HEAD, &start.to_le_bytes());
        memory.set(field::DATA_TAIL, &start.to_le_bytes());
        let mut ring = ring(&memory);
        let mut waiting = std::collections::VecDeque::new();
        for (number, (length, reads)) in steps.into_iter().enumerate() {
            let body = vec![number as u8; length.next_multiple_of(8)];
            if memory.write(&record(9, number as u16, &body)) {
                waiting.push_back((number as u16, body));
            }
            for _ in 0..reads {
                let read = ring.next_record().unwrap();
                let expected = waiting.pop_front();
                prop_assert_eq!(
                    read.map(|read| (read.misc, read.body.to_vec())),
                    expected
                );
            }
        }
    }

    /// No bytes make the reader panic or hang.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 8..2048), format in any::<u64>()) {
        let memory = Memory::new(RING);
        memory.write(&bytes);
        let mut ring = ring(&memory);
        let format = SampleFormat::from_bits_truncate(format);
        for _ in 0..1000 {
            match ring.next_record() {
                Ok(None) => return Ok(()),
                Ok(Some(raw)) => drop(Record::parse(raw, format)),
                Err(_) => {}
            }
        }
        prop_assert!(false, "a ring of {} bytes has no thousand records", bytes.len());
    }
}

/// Values of the user registers.
const REGISTERS: [u64; 17] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];

/// A sample with every field that is understood, in the kernel's order.
fn full_sample() -> (SampleFormat, Vec<u8>) {
    #[rustfmt::skip] // One field per line.
    let body = [
        words(&[77]),                                  // IDENTIFIER
        words(&[0x40_1234]),                           // IP
        [100u32.to_le_bytes(), 101u32.to_le_bytes()].concat(), // TID
        words(&[123_456_789]),                         // TIME
        words(&[0x7fff_0000_1000]),                    // ADDR
        words(&[77]),                                  // ID
        words(&[78]),                                  // STREAM_ID
        [3u32.to_le_bytes(), [0; 4]].concat(),         // CPU
        words(&[10_007]),                              // PERIOD
        words(&[2, 0x40_1234, 0x40_2000]),             // CALLCHAIN
        [&12u32.to_le_bytes()[..], &[0xab; 12]].concat(), // RAW, whose size makes up for its own field
        words(&[2]), words(&REGISTERS),                // REGS_USER of a 64-bit program
        words(&[24, 11, 12, 13, 16]),                  // STACK_USER, of which two words are there
        words(&[0xffff_0000_0000_0130]),               // WEIGHT
        words(&[0x6_8000_0002]),                       // DATA_SRC
        words(&[5]),                                   // TRANSACTION
        words(&[0x1234_5000]),                         // PHYS_ADDR
    ].concat();
    (SampleFormat::all() - SampleFormat::WEIGHT_STRUCT, body)
}

#[test]
fn samples_have_the_kernel_s_order() {
    let (format, body) = full_sample();
    let raw = RawRecord { kind: 9, misc: 2 | 1 << 14, body: &body };
    let Ok(Record::Sample(sample)) = Record::parse(raw, format) else {
        panic!("a sample");
    };
    let expected = Sample {
        id: Some(77),
        ip: Some(0x40_1234),
        exact_ip: true,
        user_mode: true,
        pid_tid: Some((100, 101)),
        time_ns: Some(123_456_789),
        address: Some(0x7fff_0000_1000),
        cpu: Some(3),
        period: Some(10_007),
        callchain: vec![0x40_1234, 0x40_2000],
        raw: vec![0xab; 12],
        user_registers: Some(REGISTERS),
        user_stack: words(&[11, 12]),
        weight: Some(0xffff_0000_0000_0130),
        data_source: Some(0x6_8000_0002),
        transaction: Some(5),
        physical_address: Some(0x1234_5000),
    };
    assert_eq!(*sample, expected);
    let error = Record::parse(RawRecord { body: &body[..body.len() - 1], ..raw }, format);
    assert!(error.is_err(), "one byte short");
}

/// A foreign reader, written for perf.data files, must read the same from the same bytes. It does
/// not know weights, data sources and transactions; `samples_have_the_kernel_s_order` alone holds
/// those.
#[test]
fn a_foreign_reader_agrees() {
    use SampleFormat as F;
    let common = F::IDENTIFIER | F::IP | F::TID | F::TIME | F::ADDR | F::CPU | F::PERIOD;
    let format = common | F::CALLCHAIN | F::RAW | F::REGS_USER | F::STACK_USER;
    let (_, full) = full_sample();
    // Cut out ID and STREAM_ID, and everything behind STACK_USER.
    let body = [&full[..40], &full[56..112 + 8 * (1 + REGISTERS.len()) + 40]].concat();
    let attr = foreign_attr(format);
    let info = RecordParseInfo::new(&attr, Endianness::LittleEndian);
    let theirs =
        SampleRecord::parse::<byteorder::LittleEndian>(RawData::from(&body[..]), 2, &info).unwrap();
    let raw = RawRecord { kind: RecordType::SAMPLE.0, misc: 2, body: &body };
    let Ok(Record::Sample(ours)) = Record::parse(raw, format) else {
        panic!("a sample");
    };
    assert_eq!((ours.id, ours.ip), (theirs.id, theirs.ip));
    assert_eq!((ours.time_ns, ours.address), (theirs.timestamp, theirs.addr));
    assert_eq!((ours.cpu, ours.period), (theirs.cpu, theirs.period));
    let (pid, tid) = ours.pid_tid.unwrap();
    assert_eq!((Some(pid as i32), Some(tid as i32)), (theirs.pid, theirs.tid));
    assert_eq!(ours.raw, theirs.raw.unwrap().as_slice().into_owned());
    let chain = theirs.callchain.unwrap();
    let chain: Vec<u64> = (0..chain.len()).map(|index| chain.get(index).unwrap()).collect();
    assert_eq!(ours.callchain, chain);
    let registers = theirs.user_regs.unwrap();
    let numbers = (0..64).filter(|number| USER_REGISTERS >> number & 1 != 0);
    let registers: Vec<u64> = numbers.map(|number| registers.get(number).unwrap()).collect();
    assert_eq!(ours.user_registers.unwrap().to_vec(), registers);
    let (stack, valid) = theirs.user_stack.unwrap();
    assert_eq!(ours.user_stack, stack.as_slice()[..valid as usize]);
}

/// The attribute that a perf.data file would hold.
fn foreign_attr(format: SampleFormat) -> PerfEventAttr {
    let mut attr = lwp_perf::Attr::new(1, 0);
    attr.sample_type = format.bits();
    attr.sample_period = 10_007;
    attr.sample_regs_user = USER_REGISTERS;
    let bytes = zerocopy::IntoBytes::as_bytes(&attr);
    let (attr, size) = PerfEventAttr::parse::<_, byteorder::LittleEndian>(bytes).unwrap();
    assert_eq!(size, 136);
    assert!(matches!(attr.sampling_policy, SamplingPolicy::Period(_)));
    attr
}

#[test]
fn other_records_are_told_apart() {
    let parse = |kind, body: &[u64]| {
        let body = words(body);
        Record::parse(RawRecord { kind, misc: 0, body: &body }, SampleFormat::IP)
    };
    assert_eq!(parse(2, &[7, 12]), Ok(Record::Lost { id: 7, records: 12 }));
    assert_eq!(parse(13, &[5]), Ok(Record::LostSamples { samples: 5 }));
    assert_eq!(parse(5, &[99, 1, 1]), Ok(Record::Throttled { time_ns: 99 }));
    assert_eq!(parse(6, &[101, 1, 1]), Ok(Record::Unthrottled { time_ns: 101 }));
    // pid, ppid, tid, ptid.
    let pairs = [2 << 32 | 3, 4 << 32 | 5, 1234];
    assert_eq!(parse(7, &pairs), Ok(Record::Fork { pid_tid: (3, 5), parent: (2, 4) }));
    assert_eq!(parse(4, &pairs), Ok(Record::Exit { pid_tid: (3, 5) }));
    assert_eq!(parse(17, &[]), Ok(Record::Other { kind: 17 }));
    assert!(parse(2, &[7]).is_err() && parse(10, &[7]).is_err() && parse(3, &[]).is_err());
}

/// The bytes of a text that ends with a zero, padded to whole words.
fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((text.len() + 8) & !7, 0);
    bytes
}

/// What they say is checked against a foreign reader.
#[test]
fn names_and_mappings_are_read_with_their_time() {
    let format = SampleFormat::TID | SampleFormat::TIME | SampleFormat::CPU;
    let end = words(&[5 << 32 | 4, 99, 0]);
    let head = words(&[5 << 32 | 4, 0x40_0000, 0x2000, 0x1000, 7 << 32 | 8, 77, 3, 2 << 32 | 5]);
    let body = [&head[..], &padded("/lib/a b.so"), &end].concat();
    let raw = RawRecord { kind: 10, misc: 2, body: &body };
    assert_eq!(time_of(raw, format), Some(99));
    let Ok(Record::Mmap(ours)) = Record::parse(raw, format) else { panic!("a mapping") };
    let theirs =
        Mmap2Record::parse::<byteorder::LittleEndian>(RawData::from(&body[..]), 2).unwrap();
    assert_eq!((ours.address, ours.length), (theirs.address, theirs.length));
    assert_eq!((ours.offset, ours.protection), (theirs.page_offset, theirs.protection));
    assert_eq!(ours.pid_tid, (theirs.pid as u32, theirs.tid as u32));
    assert_eq!(ours.path.as_encoded_bytes(), theirs.path.as_slice().as_ref());
    let Mmap2FileId::InodeAndVersion(file) = theirs.file_id else { panic!("an inode") };
    assert_eq!((ours.device, ours.inode), ((file.major, file.minor), file.inode));

    let body = [&words(&[5 << 32 | 4])[..], &padded("name"), &end].concat();
    let raw = RawRecord { kind: 3, misc: 1 << 13, body: &body };
    let name = "name".into();
    assert_eq!(Record::parse(raw, format), Ok(Record::Comm { pid_tid: (4, 5), name, exec: true }));
    assert_eq!(time_of(raw, format), Some(99));
    assert_eq!(time_of(raw, SampleFormat::TID), None);
    assert_eq!(time_of(RawRecord { body: &[], ..raw }, format), None);
}

fn sampler(memory: &Memory, format: SampleFormat) -> Sampler {
    let script = Script::new();
    script.set_pages(0, Ok(memory.clone()));
    let event = Event::new("cycles", 0, 0);
    let mut options = SamplerOptions::new(event, 1000, Target::CurrentThread);
    (options.format, options.ring_pages) = (format, 1);
    Sampler::open(Arc::new(script), &options).unwrap()
}

#[test]
fn losses_add_up() {
    let memory = Memory::new(RING);
    let mut sampler = sampler(&memory, SampleFormat::IP);
    memory.write(&record(9, 2, &words(&[1, 0x1000])));
    memory.write(&record(2, 0, &words(&[1, 30, 1])));
    memory.write(&record(5, 0, &words(&[50, 1, 1])));
    memory.write(&record(9, 2, &words(&[1])));
    memory.write(&record(13, 0, &words(&[4, 1])));
    memory.write(&record(9, 2, &words(&[1, 0x2000])));
    let (mut samples, mut errors) = (0, 0);
    loop {
        match sampler.next_record() {
            Ok(None) => break,
            Ok(Some(record)) => samples += u32::from(matches!(record, Record::Sample(_))),
            Err(SampleError::Record(_)) => errors += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((samples, errors), (2, 1));
    assert_eq!(sampler.losses(), Losses { lost: 34, throttled: 1, damaged: 1 });
}

#[test]
fn a_ring_that_may_not_be_locked_says_so() {
    let script = Script::new();
    script.set_pages(0, Err(Errno::PERM));
    let options = SamplerOptions::new(Event::new("cycles", 0, 0), 1, Target::CurrentThread);
    let error = Sampler::open(Arc::new(script), &options).unwrap_err();
    assert_eq!(error.cause, Cause::Locked);
    assert!(error.help().contains("perf_event_mlock_kb"));
}

/// `union perf_mem_data_src` from its parts.
fn source(operation: u64, level: u64, number: u64, remote: u64) -> MemoryAccess {
    MemoryAccess(operation | level << 5 | number << 33 | remote << 37)
}

#[test]
fn perf_event_h_data_sources() {
    const LOAD: u64 = 2;
    #[rustfmt::skip] // One source a line: level, number, remote, what it is.
    let table = [
        (0x0a, 0x0, 0, DataSource::NoStatus), // L1 hit
        (0x22, 0x0, 0, DataSource::NoStatus), // L2 hit
        (0x42, 0x0, 0, DataSource::LocalL3),
        (0x82, 0x0, 0, DataSource::Dram),
        (0x102, 0x0, 0, DataSource::Dram),    // remote memory is memory
        (0x402, 0x0, 0, DataSource::Remote),
        (0x1002, 0x0, 0, DataSource::Other),
        (0, 0x2, 0, DataSource::NoStatus),
        (0, 0x3, 0, DataSource::LocalL3),
        (0, 0x3, 1, DataSource::Remote),
        (0, 0xb, 1, DataSource::Remote),
        (0, 0xd, 1, DataSource::Dram),
        (0, 0xa, 0, DataSource::Other),
        (0, 0xc, 0, DataSource::NoStatus),    // fill buffer
        (0, 0xf, 0, DataSource::NoStatus),    // not available
    ];
    for (level, number, remote, expected) in table {
        let access = source(LOAD, level, number, remote);
        assert_eq!(access.source(), expected, "{level:#x} {number:#x} {remote}");
    }
    assert!(source(LOAD, 0x0a, 0, 0).is_l1_hit() && source(LOAD, 0, 1, 0).is_l1_hit());
    assert!(!source(LOAD, 0x42, 0, 0).is_l1_hit());
}

const AT: RingOffset = RingOffset(0);

/// Promise: H5
#[test]
fn pebs_loads_become_cache_misses() {
    let sample = Sample {
        ip: Some(0x40_1000),
        cpu: Some(2),
        time_ns: Some(9),
        address: Some(0x7000),
        weight: Some(300),
        data_source: Some(source(2, 0, 0xd, 0).0),
        ..Sample::default()
    };
    let record = lwp_record(&sample, EventKind::DcacheMisses).unwrap();
    let expected = LwpEvent::DcacheMisses {
        source: DataSource::Dram,
        latency_cycles: 300,
        data_address: Some(LinearAddr(0x7000)),
    };
    assert_eq!(record.decode(Revision::Shipped, AT), Ok(expected));
    assert_eq!((record.ip(), record.core_id, record.timestamp.get()), (AppPc(0x40_1000), 2, 9));
    let hit = Sample { data_source: Some(source(2, 0, 1, 0).0), ..sample.clone() };
    assert_eq!(lwp_record(&hit, EventKind::DcacheMisses), None, "an L1 hit is no miss");
    let store = Sample { data_source: Some(source(4, 0, 0xd, 0).0), ..sample.clone() };
    assert_eq!(lwp_record(&store, EventKind::DcacheMisses), None, "nor is a store a load");
    let plain = lwp_record(&sample, EventKind::InstructionsRetired).unwrap();
    assert_eq!(plain.decode(Revision::Shipped, AT), Ok(LwpEvent::InstructionsRetired));
    let nowhere = Sample { ip: None, ..sample };
    assert_eq!(lwp_record(&nowhere, EventKind::InstructionsRetired), None);
}

/// Raw data of `ibs_op`: capabilities, then CTL, RIP, DATA, DATA2, DATA3, LINADDR, PHYSADDR,
/// target.
fn ibs(capabilities: u32, registers: &[u64]) -> Sample {
    let raw = [&capabilities.to_le_bytes()[..], &words(registers)].concat();
    Sample { cpu: Some(1), time_ns: Some(8), raw, ip: Some(1), ..Sample::default() }
}

fn ibs_event(registers: &[u64], capabilities: u32) -> Option<LwpEvent> {
    let record = ibs::lwp_record(&ibs(capabilities, registers))?;
    assert_eq!(record.ip(), AppPc(registers[1]), "the op's address, not the interrupt's");
    Some(record.decode(Revision::Shipped, AT).unwrap())
}

/// Promise: H5
#[test]
fn ppr_ibs_ops_become_records() {
    const CNT_CTL: u64 = 1 << 19;
    const BRANCH: u64 = 1 << 37;
    const TAKEN: u64 = 1 << 35;
    const MISPREDICTED: u64 = 1 << 36;
    // A taken branch, predicted wrongly; capability bit 5 is the branch target.
    let branch = [CNT_CTL, 0x40_1000, BRANCH | TAKEN | MISPREDICTED, 0, 0, 0, 0, 0x40_2000];
    let flags = BranchFlags::new(true, Some(false));
    let expected = LwpEvent::BranchesRetired { flags, target: AppPc(0x40_2000) };
    assert_eq!(ibs_event(&branch, 1 << 5), Some(expected));
    // Without the target register no branch record can be made; it still is a retired op.
    assert_eq!(ibs_event(&branch[..7], 0), Some(LwpEvent::InstructionsRetired));
    // A load that missed everything: DRAM, 0x123 cycles, address valid.
    let data3 = 1 | 1 << 7 | 1 << 17 | 1 << 20 | 0x123 << 32;
    let load = [CNT_CTL, 0x40_3000, 0, 3, data3, 0x7000, 0x8000];
    let expected = LwpEvent::DcacheMisses {
        source: DataSource::Dram,
        latency_cycles: 0x123,
        data_address: Some(LinearAddr(0x7000)),
    };
    assert_eq!(ibs_event(&load, 0), Some(expected));
    // A load that hit, with cycles counted: a clock.
    assert_eq!(ibs_event(&[0, 0x40_4000, 0, 0, 1, 0, 0], 0), Some(LwpEvent::CoreClocks));
    // IbsRipInvalid.
    assert_eq!(ibs_event(&[CNT_CTL, 0x40_5000, 1 << 38, 0, 0, 0, 0], 0), None);
    assert_eq!(ibs::Op::parse(&[0; 40]), None, "too short");
}

/// Promise: H5
#[test]
fn ppr_ibs_data_sources() {
    let op = |data2, missed: bool| {
        let data3 = 1 | 1 << 7 | u64::from(missed) << 20;
        let sample = ibs(0, &[0, 0, 0, data2, data3, 0, 0]);
        ibs::Op::parse(&sample.raw).unwrap().data_source()
    };
    assert_eq!(op(1, true), DataSource::LocalL3);
    assert_eq!(op(1 | 1 << 4, true), DataSource::Remote);
    assert_eq!(op(2, true), DataSource::Remote);
    assert_eq!(op(3, true), DataSource::Dram);
    assert_eq!(op(7, true), DataSource::Other);
    assert_eq!(op(1 << 6, true), DataSource::Dram, "8: the high bits are 7:6");
    assert_eq!(op(3, false), DataSource::NoStatus, "an L2 hit has no source");
}
