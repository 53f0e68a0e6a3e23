//! Models and unit together, against arithmetic written down a second time: random steps go through
//! `lwp_uarch::Model` into `LwpUnit`, and the records must be those that a list-of-lines cache and
//! sums of fractions predict.

use std::collections::VecDeque;

use lwp_arch::lwpcb::{EventSlot, Lwpcb};
use lwp_arch::record::{Event, reported_latency};
use lwp_arch::retired::{AccessKind, BranchKind};
use lwp_arch::ring::records;
use lwp_arch::{AppPc, EventFlags, LinearAddr, Record, Revision, RingOffset};
use lwp_model::{Cpu, LwpUnit, PagedMemory, Processor, Quiet, Xorshift32};
use lwp_uarch::{Model, Operand, Preset, Step, presets};

const BLOCK: LinearAddr = LinearAddr(0x1000);
const RING: LinearAddr = LinearAddr(0x10_0000);
const RING_BYTES: u32 = 1 << 20;
const LINE: u64 = 64;

/// A cache level as a list of line numbers, the most recent at the end.
struct Level {
    sets: Vec<VecDeque<u64>>,
    ways: usize,
    latency: u32,
}

impl Level {
    fn access(&mut self, line: u64) -> bool {
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(line % count) as usize];
        let found = set.iter().position(|held| *held == line);
        if let Some(at) = found {
            set.remove(at);
        } else if set.len() == self.ways {
            set.pop_front();
        }
        set.push_back(line);
        found.is_some()
    }
}

/// The machine of a preset, once more.
struct Machine {
    levels: Vec<Level>,
    memory: u32,
    hidden: u32,
    /// Cycles so far, in units of 1 / (256 · width).
    time: u128,
    width: u128,
    exposed: u128,
}

impl Machine {
    fn new(preset: &Preset) -> Self {
        let level = |level: &lwp_uarch::Level| {
            let ways = u64::from(level.shape.ways);
            let sets = level.shape.bytes / LINE / ways;
            let sets = (0..sets).map(|_| VecDeque::new()).collect();
            Level { sets, ways: ways as usize, latency: level.latency_cycles }
        };
        Self {
            levels: preset.levels.iter().map(level).collect(),
            memory: preset.memory.latency_cycles,
            hidden: preset.clock.hidden_cycles,
            time: 0,
            width: u128::from(preset.clock.instructions_per_cycle_256 / 256),
            exposed: u128::from(preset.clock.exposed_256),
        }
    }

    /// Latency of a line, and whether the first level had it.
    fn line(&mut self, line: u64) -> (u32, bool) {
        for (index, level) in self.levels.iter_mut().enumerate() {
            if level.access(line) {
                return (level.latency, index == 0);
            }
        }
        (self.memory, false)
    }

    /// The first load of the instruction that missed (address, latency), and the whole cycles that
    /// passed since the instruction before.
    fn retire(&mut self, operands: &[Operand]) -> (Option<(u64, u32)>, u64) {
        let before = self.time / (256 * self.width);
        let mut first = None;
        self.time += 256;
        for operand in operands {
            let (start, end) =
                (operand.address.0, operand.address.0 + u64::from(operand.bytes) - 1);
            let mut missed = None;
            for line in start / LINE..=end / LINE {
                let (latency, hit) = self.line(line);
                if !hit && missed.is_none() {
                    missed = Some((start.max(line * LINE), latency));
                }
            }
            if operand.kind != AccessKind::Load {
                continue;
            }
            if let Some((_, latency)) = missed {
                let beyond = u128::from(latency.saturating_sub(self.hidden));
                self.time += beyond * self.exposed * self.width;
                first = first.or(missed);
            }
        }
        (first, (self.time / (256 * self.width) - before) as u64)
    }
}

/// A counter by the rule of the shipped form: expires below zero, drops what is beyond, is
/// reloaded.
struct Counter {
    left: i64,
    interval: i64,
}

impl Counter {
    fn count(&mut self, occurrences: u64) -> bool {
        self.left -= occurrences as i64;
        let expired = self.left < 0;
        if expired {
            self.left = self.interval;
        }
        expired
    }
}

fn unit(memory: &mut PagedMemory, intervals: [i32; 3]) -> LwpUnit {
    let mut block = Lwpcb::default();
    block.flags = (EventFlags::IRE | EventFlags::DME | EventFlags::CNH).bits().into();
    block.set_buffer_size_random(RING_BYTES, 0);
    block.buffer_base = RING.0.into();
    memory.map(BLOCK, 4096);
    memory.map(RING, u64::from(RING_BYTES));
    memory.poke(BLOCK, &block.to_bytes());
    for (slot, interval) in [1u64, 3, 4].into_iter().zip(intervals) {
        memory.poke(BLOCK.plus(128 + 8 * slot), &EventSlot::new(interval, interval).to_bytes());
    }
    let mut unit = LwpUnit::new(Processor::full());
    unit.enable_everything();
    unit.llwpcb(&Cpu::user_64(), BLOCK.0, memory, &mut Quiet).unwrap();
    unit
}

/// Operands of a random instruction, within `span` bytes.
fn operands(random: &mut Xorshift32, span: u32) -> Vec<Operand> {
    let count = match random.next_u32() % 8 {
        0..=3 => 0,
        4..=6 => 1,
        _ => 3,
    };
    let operand = |random: &mut Xorshift32| Operand {
        kind: match random.next_u32() % 5 {
            0 => AccessKind::Store,
            1 => AccessKind::Prefetch,
            _ => AccessKind::Load,
        },
        address: LinearAddr(0x7000_0000 + u64::from(random.next_u32() % span)),
        bytes: [1, 4, 8, 32, 64][random.next_u32() as usize % 5],
    };
    (0..count).map(|_| operand(random)).collect()
}

fn check(preset: &Preset, seed: u32, span: u32, intervals: [i32; 3]) {
    let mut memory = PagedMemory::new();
    let mut unit = unit(&mut memory, intervals);
    let (mut model, mut machine) = (Model::new(preset), Machine::new(preset));
    let mut counters = intervals.map(i64::from).map(|i| Counter { left: i, interval: i });
    let mut random = Xorshift32::new(seed);
    let mut wanted = Vec::new();
    for ip in 1..4000u64 {
        let operands = operands(&mut random, span);
        let step = Step {
            branch: (ip % 7 == 0).then_some((BranchKind::Conditional, ip % 2 == 0)),
            operands: &operands,
            ..Step::plain(AppPc(ip), AppPc(ip + 1))
        };
        let retired = model.retire(&step);
        unit.retire(&Cpu::user_64(), &retired, &mut memory, &mut Quiet).unwrap();

        let loads = retired.accesses.iter().filter(|access| access.kind == AccessKind::Load);
        let missing = loads.filter(|access| access.miss.is_some()).count() as u64;
        let (first, cycles) = machine.retire(&operands);
        assert_eq!(missing > 0, first.is_some(), "instruction {ip}");
        if counters[0].count(1) {
            wanted.push((ip, 2, None));
        }
        // Only counters of interval 0 are asked for the address: the first occurrence expires.
        if counters[1].count(missing) {
            wanted.push((ip, 4, first.filter(|_| intervals[1] == 0)));
        }
        if counters[2].count(cycles) {
            wanted.push((ip, 5, None));
        }
    }
    let head = memory.peek_u32(BLOCK.plus(16));
    let ring = memory.peek(RING, RING_BYTES as usize);
    let found: Vec<(RingOffset, Record)> =
        records(&ring, RingOffset(0), RingOffset(head)).collect();
    assert_eq!(found.len(), wanted.len());
    assert!(wanted.len() > 300, "{} records are no test", wanted.len());
    for ((at, record), (ip, id, miss)) in found.iter().zip(wanted) {
        assert_eq!((record.ip().0, record.event_id), (ip, id));
        if let Some((address, latency)) = miss {
            let Ok(Event::DcacheMisses { latency_cycles, data_address, .. }) =
                record.decode(Revision::Shipped, *at)
            else {
                panic!("{record:?}")
            };
            assert_eq!(data_address, Some(LinearAddr(address)), "instruction {ip}");
            assert_eq!(latency_cycles, reported_latency(latency, 16, 4), "instruction {ip}");
        }
    }
}

/// Spec: LWP §4.2, §11, §3.1. DEV-34, DEV-36
#[test]
fn lwp_spec_4_2_dev_34_models_and_unit_agree_with_a_second_reckoning() {
    for preset in presets::ALL {
        for (seed, span) in [(1, 4 << 10), (2, 100 << 10), (3, 8 << 20), (4, 1 << 30)] {
            check(preset, seed, span, [3, 0, 20]);
            check(preset, seed + 10, span, [0, 2, 0]);
        }
    }
}
