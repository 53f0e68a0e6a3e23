//! Small state machines, explored to the end.

use lwp_arch::event::EventId;
use lwp_arch::{EventFlags, Fault};
use lwp_model::{Cpu, OnFault, Policy};

use crate::machine::{BLOCK, Flaky, Machine, RING, plain, small_rings};

/// Calls `visit` with every sequence over `alphabet` of exactly `length` letters.
fn sequences<T: Copy>(alphabet: &[T], length: usize, visit: &mut impl FnMut(&[T])) {
    let mut digits = vec![0; length];
    loop {
        let sequence: Vec<T> = digits.iter().map(|&digit: &usize| alphabet[digit]).collect();
        visit(&sequence);
        // Counts up in base `alphabet.len()`; the carry out of the last digit ends it.
        let Some(place) = digits.iter().position(|&digit| digit + 1 < alphabet.len()) else {
            return;
        };
        digits[place] += 1;
        digits[..place].fill(0);
    }
}

#[derive(Clone, Copy, Debug)]
enum RingStep {
    Store,
    ConsumeOne,
    ConsumeAll,
}

/// The ring as its user imagines it: a queue of bounded length.
struct Queue {
    capacity: usize,
    visible: Vec<u32>,
    missed: u64,
}

impl Queue {
    /// Stores and says whether it was full.
    fn store(&mut self, value: u32) -> bool {
        let full = self.visible.len() == self.capacity;
        if full {
            self.missed += 1;
        } else {
            self.visible.push(value);
        }
        full
    }

    fn consume(&mut self, count: usize) {
        self.visible.drain(..count.min(self.visible.len()));
    }
}

/// Every sequence of eight stores and reads, on every ring of one to four slots, from every place,
/// behaves as a bounded queue does.
///
/// Spec: P07 §5.4; LWP §5.7, §7
#[test]
fn lwp_spec_5_7_the_ring_is_a_bounded_queue() {
    use RingStep::*;
    for slots in 1..=4u32 {
        for start in 0..slots {
            let mut fresh = Machine::new();
            fresh.block(EventFlags::empty(), slots).edit(|block| {
                block.buffer_head_offset = (start * 32).into();
                block.buffer_tail_offset = (start * 32).into();
            });
            fresh.start();
            sequences(&[Store, ConsumeOne, ConsumeAll], 8, &mut |steps| {
                let mut m = fresh.clone();
                let capacity = slots as usize - 1;
                let mut queue = Queue { capacity, visible: Vec::new(), missed: 0 };
                for (value, step) in (1..).zip(steps) {
                    match step {
                        Store => assert_eq!(m.lwpins(value), Ok(queue.store(value))),
                        ConsumeOne => {
                            if !m.records().is_empty() {
                                let tail = m.read_block().buffer_tail_offset.get() + 32;
                                m.set_tail(tail % (slots * 32));
                            }
                            queue.consume(1);
                        }
                        ConsumeAll => {
                            m.drain();
                            queue.consume(usize::MAX);
                        }
                    }
                    let visible: Vec<u32> = m.records().iter().map(|r| r.data1.get()).collect();
                    assert_eq!(visible, queue.visible, "{slots} slots from {start}: {steps:?}");
                    assert_eq!(m.missed(), queue.missed, "{slots} slots from {start}: {steps:?}");
                }
            });
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum CountStep {
    /// An instruction retires.
    Retire,
    /// An instruction retires after its first attempt met a page fault.
    RetireAfterFault,
    Flush,
    /// LLWPCB 0, foreign instructions, LLWPCB again.
    Pause,
    /// XSAVE, LWP off, XRSTOR.
    Switch,
    /// LLWPCB of the block that is active already.
    Reload,
}

/// Whatever happens between instructions, the same instructions record as if nothing had.
///
/// Spec: LWP §5.3, §5.4, §6.1, §6.4
#[test]
fn lwp_spec_5_4_nothing_between_instructions_changes_what_records() {
    use CountStep::*;
    let alphabet = [Retire, RetireAfterFault, Flush, Pause, Switch, Reload];
    for (interval, counter) in [(0, 0), (1, 0), (1, 1), (2, 1)] {
        let mut fresh = Machine::new();
        fresh.block(EventFlags::IRE, 16).slot(EventId::INSTRUCTIONS_RETIRED, interval, counter);
        fresh.start();
        sequences(&alphabet, 6, &mut |steps| {
            let mut m = fresh.clone();
            let mut retired = 0;
            for step in steps {
                match step {
                    Retire => {
                        m.retire(&plain(retired));
                        retired += 1;
                    }
                    RetireAfterFault => {
                        fault_first(&mut m, retired);
                        m.retire(&plain(retired));
                        retired += 1;
                    }
                    Flush => assert_eq!(m.slwpcb(), Ok(BLOCK.0)),
                    Pause => {
                        m.llwpcb(0).unwrap();
                        m.run(0xF000, 2);
                        m.start();
                    }
                    Switch => {
                        let image = m.unit.xsave();
                        m.unit.xrstor(&Cpu::kernel_64(), None).unwrap();
                        m.unit.xrstor(&Cpu::kernel_64(), image.as_ref()).unwrap();
                    }
                    Reload => drop(m.start()),
                }
            }
            let period = u64::from(interval as u32) + 1;
            let due =
                |ip: &u64| *ip >= counter as u64 && (*ip - counter as u64).is_multiple_of(period);
            let expected: Vec<(u8, u64)> = (0..retired).filter(due).map(|ip| (2, ip)).collect();
            assert_eq!(m.seen(), expected, "interval {interval}, counter {counter}: {steps:?}");
        });
    }
}

/// Lets the instruction fault at its first access to memory, if it has one.
fn fault_first(m: &mut Machine, ip: u64) {
    let mut trial = m.clone();
    let mut flaky = Flaky::new(&mut trial.memory, Some(0));
    let outcome = m.unit.retire(&m.cpu, &plain(ip), &mut flaky, &mut m.signals);
    match outcome {
        Err(Fault::Pf(_)) => {}
        // It touched no memory and has retired now; take it back.
        Ok(_) => m.unit = trial.unit,
        Err(other) => panic!("{other:?}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SaveStep {
    Retire,
    Unmap,
    Map,
    Flush,
}

/// Under the saving policy every record lands, once and in order, whatever pages come and go.
///
/// Spec: P07 §5.5.6; LWP §6.4
#[test]
fn lwp_spec_6_4_saved_records_land_once_and_in_order() {
    use SaveStep::*;
    let policy = Policy { on_fault: OnFault::Save, ..Policy::default() };
    let mut fresh = Machine::with(small_rings(), policy);
    fresh.block(EventFlags::IRE, 16).start();
    sequences(&[Retire, Unmap, Map, Flush], 7, &mut |steps| {
        let mut m = fresh.clone();
        let (mut ip, mut mapped) = (0, true);
        // What must be in the ring: an instruction records if nothing waits when it retires.
        let (mut landed, mut waiting) = (Vec::new(), None);
        for step in steps {
            match step {
                Retire => {
                    let trap = m.retire(&plain(ip)).trap;
                    assert_eq!(trap.is_some(), !mapped, "{steps:?}");
                    if mapped {
                        landed.extend(waiting.take());
                        landed.push(ip);
                    } else {
                        waiting = waiting.or(Some(ip));
                    }
                    ip += 1;
                }
                Unmap if mapped => {
                    // Protection, not removal: the records in it are still to be looked at.
                    m.memory.protect(RING, 4096);
                    mapped = false;
                }
                Map => {
                    m.memory.map(RING, 4096);
                    mapped = true;
                }
                Flush => {
                    let flushed = m.slwpcb();
                    if mapped || waiting.is_none() {
                        assert_eq!(flushed, Ok(BLOCK.0), "{steps:?}");
                        landed.extend(waiting.take());
                    } else {
                        assert!(flushed.is_err(), "{steps:?}");
                    }
                }
                Unmap => {}
            }
            let seen: Vec<u64> = m.seen().iter().map(|&(_, ip)| ip).collect();
            assert_eq!(seen, landed, "{steps:?}");
        }
    });
}
