//! Threads that sample, and threads that profile themselves.
//!
//! Promise: R12

use std::sync::atomic::{AtomicU64, Ordering};

use lwp_arch::lwpcb::{EventSlot, Lwpcb};
use lwp_arch::{EventFlags, Record};
use lwp_dbt::context::kept::{COUNT_SHIFT, NO_STACK};
use lwp_dbt::{RequestKind, Slot};
use lwp_run::config::{Config, Plan, Sampled, Sampling};

use super::{Answer, Scene, leaf, pc_of};
use crate::lwp;
use crate::machine::Need;

/// A run that samples each 100th instruction.
fn sampling() -> Scene {
    let event = Sampling { what: Sampled::Instructions, interval: 100 };
    Scene::of(|config: &mut Config| config.sampling.events = vec![event], Plan::Plain)
}

pub(super) fn sampled(scene: &Scene) -> Vec<u64> {
    let thread = scene.machine.tasks.threads.get(&scene.tid).expect("it lives");
    thread.sampled_totals(&scene.machine.contexts)
}

/// The instructions of the thread's cut fragment, and whether it stands there.
pub(super) fn cut(scene: &Scene) -> Option<(u32, bool)> {
    scene.machine.tasks.lwp(scene.tid).and_then(|lwp| lwp.cut_of(None))
}

#[test]
fn a_sample_in_a_block_is_taken_at_its_beginning() {
    let mut scene = sampling();
    let pc = pc_of(leaf);
    assert_eq!(scene.context().get(Slot::LwpHigh), 99);
    // All but one have passed: the sample is the second instruction from here.
    scene.set(Slot::LwpHigh, 1);
    assert_eq!(scene.ask(RequestKind::LwpDue, pc), Answer::Goes(pc));
    assert_eq!(cut(&scene), None);
    // The first instruction, the sample, and 99 others are still to pass.
    assert_eq!(scene.context().get(Slot::LwpHigh), 101);
    assert_eq!(sampled(&scene), [98]);
}

#[test]
fn the_first_of_several_samples_in_a_block_is_the_last_of_a_fragment() {
    let event = Sampling { what: Sampled::Instructions, interval: 2 };
    let mut scene =
        Scene::of(|config: &mut Config| config.sampling.events = vec![event], Plan::Plain);
    let pc = pc_of(leaf);
    assert_eq!(scene.ask(RequestKind::LwpDue, pc), Answer::Goes(pc));
    let cut = cut(&scene);
    assert_eq!(cut, Some((1, false)));
}

#[test]
fn a_sample_that_is_due_is_taken_and_the_next_one_counted_down() {
    let mut scene = sampling();
    let pc = pc_of(leaf);
    scene.set(Slot::LwpHigh, 0);
    assert_eq!(scene.ask(RequestKind::LwpDue, pc), Answer::Goes(pc));
    // The sample itself is still to pass.
    assert_eq!(scene.context().get(Slot::LwpHigh), 100);
    assert_eq!(sampled(&scene), [99]);
}

#[test]
fn samples_stop_with_counting() {
    let mut scene = sampling();
    scene.set(Slot::LwpHigh, 50);
    scene.machine.counting().set_enabled(false);
    scene.set(Slot::LwpHigh, 30);
    assert_eq!(sampled(&scene), [49]);
    scene.machine.counting().set_enabled(true);
    scene.set(Slot::LwpHigh, 10);
    assert_eq!(sampled(&scene), [69]);
}

#[test]
fn code_that_changes_is_led_to_by_nobody() {
    let mut scene = sampling();
    scene.machine.tasks.forget_cuts(&scene.machine.contexts);
    scene.set(Slot::LwpCut, scene.context().address());
    assert_eq!(scene.ask(RequestKind::LwpStepped, pc_of(leaf)), Answer::Goes(pc_of(leaf)));
    assert_eq!(scene.context().get(Slot::LwpCut), 0);
}

/// A run in which threads may profile themselves.
pub(super) fn profiling() -> Scene {
    Scene::of(|_| {}, Plan::Plain)
}

#[test]
fn a_profile_that_cannot_be_read_faults_where_the_program_would() {
    let mut scene = profiling();
    // LLWPCB rax.
    let code = instruction(&[0x8f, 0xe9, 0xf8, 0x12, 0xc0]);
    scene.set(Slot::LwpOperand, 1 << 20);
    assert_eq!(scene.ask(RequestKind::Llwpcb, address(&code)), Answer::Does);
    assert_eq!(scene.context().get(Slot::LwpTouch) & !0xfff, 1 << 20);
    assert!(scene.machine.tasks.lwp(scene.tid).is_none(), "nothing is profiled");
}

#[test]
fn a_thread_without_a_profile_has_no_control_block() {
    let mut scene = profiling();
    // SLWPCB rax. The thread goes on behind its translation.
    let code = instruction(&[0x8f, 0xe9, 0xf8, 0x12, 0xc8]);
    let behind = scene.head(pc_of(leaf));
    scene.set(Slot::LwpAfter, behind);
    assert_eq!(scene.ask(RequestKind::Slwpcb, address(&code)), Answer::Goes(pc_of(leaf)));
    assert_eq!((scene.context().get(Slot::LwpPending), scene.context().get(Slot::LwpData)), (2, 0));
}

#[test]
fn what_is_no_instruction_is_left_to_the_processor() {
    let mut scene = profiling();
    let answer = scene.ask(RequestKind::Lwpins, 1 << 20);
    assert_eq!(answer, Answer::Needs(Need::Step));
}

/// Words of the program's, and its ring.
#[repr(align(64))]
pub(super) struct Words([AtomicU64; WORDS]);

const WORDS: usize = 4096;
/// Bytes of the ring, which begins behind the control block's page.
const RING: u32 = 16 << 10;
const RING_AT: u64 = 4096;
/// The place of the slot of instructions retired: the second behind 128 bytes.
const SLOT_AT: usize = 128 + 8;

impl Words {
    /// A control block that profiles each `interval` and first instruction.
    pub(super) fn profiling(interval: i32) -> Box<Self> {
        let words = Box::new(Self([const { AtomicU64::new(0) }; WORDS]));
        words.put_block(RING, words.address() + RING_AT);
        words.put(SLOT_AT, &EventSlot::new(interval, interval).to_bytes());
        words
    }

    pub(super) fn address(&self) -> u64 {
        self.0[0].as_ptr() as u64
    }

    /// Has the control block say that its ring is elsewhere.
    pub(super) fn move_ring(&self, base: u64) {
        self.put_block(RING, base);
    }

    /// Writes a control block for instructions retired, with a ring of so many bytes.
    fn put_block(&self, ring: u32, base: u64) {
        let mut block = Lwpcb::default();
        block.flags = EventFlags::IRE.bits().into();
        block.set_buffer_size_random(ring, 0);
        block.buffer_base = base.into();
        self.put(0, &block.to_bytes());
    }

    /// The record at `at` bytes from the ring's beginning.
    pub(super) fn record(&self, at: u64) -> Record {
        let first = ((RING_AT + at) / 8) as usize;
        let words = self.0[first..first + Record::SIZE / 8].iter();
        let bytes: Vec<u8> = words.flat_map(|it| it.load(Ordering::SeqCst).to_le_bytes()).collect();
        Record::from_prefix(&bytes).expect("as many bytes")
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        for (word, bytes) in self.0[at / 8..].iter().zip(bytes.chunks(8)) {
            let bytes: [u8; 8] = bytes.try_into().expect("whole words");
            word.store(u64::from_le_bytes(bytes), Ordering::SeqCst);
        }
    }

    pub(super) fn counter(&self) -> u64 {
        self.0[SLOT_AT / 8].load(Ordering::SeqCst) >> 32
    }
}

/// Has the thread load a control block, `LLWPCB rax`; 0 ends its profile.
pub(super) fn load(scene: &mut Scene, block: u64) -> Answer {
    let code = instruction(&[0x8f, 0xe9, 0xf8, 0x12, 0xc0]);
    scene.set(Slot::LwpOperand, block);
    scene.ask(RequestKind::Llwpcb, address(&code))
}

#[test]
fn a_profile_begins_counts_down_and_ends() {
    const INTERVAL: i32 = 5000;
    let mut scene = profiling();
    let block = Words::profiling(INTERVAL);
    // The tracer has to make the translations that count down.
    assert_eq!(load(&mut scene, block.address()), Answer::Needs(Need::Side));
    let (tid, pc) = (scene.tid, pc_of(leaf));
    assert!(lwp::is_elsewhere(&scene.machine.tasks, &scene.machine.caches, tid));
    assert!(scene.machine.tasks.lwp(tid).is_some_and(|lwp| lwp.selection().instructions));
    // LLWPCB itself has retired.
    assert_eq!(scene.context().get(Slot::LwpHigh), 4999);
    scene.set(Slot::LwpHigh, 4000);
    // The host executes an instruction.
    scene.machine.profiling().lwp_executed(tid, pc, pc + 1);
    assert_eq!(scene.context().get(Slot::LwpHigh), 3999);
    // SLWPCB writes the counters to the block.
    let code = instruction(&[0x8f, 0xe9, 0xf8, 0x12, 0xc8]);
    let behind = scene.head(pc);
    scene.set(Slot::LwpAfter, behind);
    assert_eq!(scene.ask(RequestKind::Slwpcb, address(&code)), Answer::Goes(pc));
    assert_eq!(scene.context().get(Slot::LwpData), block.address());
    assert_eq!(block.counter(), 3999);
    // Without a profile the thread goes on where it always has, here where no code is.
    assert_eq!(load(&mut scene, 0), Answer::Needs(Need::Step));
    assert!(scene.machine.tasks.lwp(tid).is_none());
    assert!(!lwp::is_elsewhere(&scene.machine.tasks, &scene.machine.caches, tid));
}

#[test]
fn a_profile_is_void_where_its_ring_is_too_small() {
    let mut scene = profiling();
    let block = Words::profiling(100);
    block.put_block(32, 0);
    // #GP(0): the thread touches an address that cannot be.
    assert_eq!(load(&mut scene, block.address()), Answer::Does);
    assert_eq!(scene.context().get(Slot::LwpTouch), 1 << 63);
    assert!(scene.machine.tasks.lwp(scene.tid).is_none());
}

/// Bytes of an instruction in the test's memory.
pub(super) fn instruction(bytes: &[u8]) -> Box<[AtomicU64; 2]> {
    let mut padded = [0; 16];
    padded[..bytes.len()].copy_from_slice(bytes);
    let [low, high] = [0, 8].map(|at| {
        let half: [u8; 8] = padded[at..at + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(half)
    });
    Box::new([AtomicU64::new(low), AtomicU64::new(high)])
}

pub(super) fn address(code: &[AtomicU64; 2]) -> u64 {
    let _ = code[0].load(Ordering::SeqCst);
    code[0].as_ptr() as u64
}

#[test]
fn samples_that_the_thread_has_kept_start_intervals_too() {
    let mut scene = sampling();
    let pc = pc_of(leaf);
    scene.set(Slot::LwpHigh, 1);
    assert_eq!(scene.ask(RequestKind::LwpDue, pc), Answer::Goes(pc));
    assert_eq!((scene.context().get(Slot::LwpHigh), sampled(&scene)[0]), (101, 98));
    // Two more intervals and 30 instructions have gone by.
    scene.set(Slot::Kept, 2 << COUNT_SHIFT).set(Slot::LwpHigh, 101 - 30);
    assert_eq!(sampled(&scene), [98 + 200 + 30]);
    assert_eq!(scene.ask(RequestKind::LwpDue, pc), Answer::Goes(pc));
    assert_eq!(sampled(&scene), [98 + 200 + 30]);
    assert_eq!(scene.context().get(Slot::LwpHigh), 101 - 30);
    // The program has written there itself.
    scene.set(Slot::Kept, 1_000_000 << COUNT_SHIFT | 0xffff_ffff);
    assert_eq!(sampled(&scene), [98 + 200 + 30]);
    assert_eq!(scene.ask(RequestKind::LwpDue, pc), Answer::Goes(pc));
    assert_eq!(sampled(&scene), [98 + 200 + 30]);
}

#[test]
fn a_thread_keeps_samples_until_code_changes() {
    let event = Sampling { what: Sampled::Instructions, interval: 100 };
    let set_up = |config: &mut Config| {
        config.sampling.events = vec![event];
        config.sampling.stacks = false;
    };
    let mut scene = Scene::of(set_up, Plan::Plain);
    let pc = pc_of(leaf);
    assert_eq!(scene.context().get(Slot::StackEnd), 0);
    scene.set(Slot::LwpHigh, 1);
    assert_eq!(scene.ask(RequestKind::LwpDue, pc), Answer::Goes(pc));
    assert_eq!(scene.context().get(Slot::StackEnd), NO_STACK);
    scene.machine.tasks.forget_cuts(&scene.machine.contexts);
    assert_eq!(scene.context().get(Slot::StackEnd), 0);
}
