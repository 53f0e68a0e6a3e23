//! The reports to a recorder, and markers.

use std::sync::{Arc, Mutex, PoisonError};

use lwp_dbt::{RequestKind, Role, Slot};
use lwp_run::config::{Config, Markers, Plan, Sampled, Sampling};

use super::profiles::{address, instruction};
use super::{Answer, Scene, leaf, pc_of};
use crate::machine::Need;
use crate::profile::{Block, BlockCount, Module, Place, Sample, Sink, ThreadExecutions};

/// Everything that a sink has been told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub modules: Vec<Module>,
    pub blocks: Vec<Block>,
    pub threads: Vec<ThreadExecutions>,
    pub samples: Vec<(u32, Vec<Place>)>,
    pub parts: Vec<(i32, Vec<u32>, String)>,
    /// It wants to know where indirect calls led.
    pub wants_calls: bool,
}

/// A sink that remembers.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Told>>);

impl Notes {
    pub fn with<R>(&self, look: impl FnOnce(&mut Told) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Notes {
    fn module(&mut self, module: &Module) {
        self.with(|told| told.modules.push(module.clone()));
    }

    fn blocks(&mut self, blocks: &[Block]) {
        self.with(|told| told.blocks.extend_from_slice(blocks));
    }

    fn thread(&mut self, thread: &ThreadExecutions) {
        self.with(|told| told.threads.push(thread.clone()));
    }

    fn part(&mut self, pid: i32, serials: &[u32], label: &str) {
        self.with(|told| told.parts.push((pid, serials.to_vec(), label.to_owned())));
    }

    fn wants_calls(&self) -> bool {
        self.with(|told| told.wants_calls)
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        self.with(|told| told.samples.push((sample.event, sample.stack.to_vec())));
    }
}

pub(super) fn recorded(set_up: impl FnOnce(&mut Config), plan: Plan) -> (Scene, Notes) {
    let notes = Notes::default();
    (Scene::told(set_up, plan, Some(Box::new(notes.clone()))), notes)
}

/// An exact run that also tells where indirect calls led.
pub(super) fn recorded_with_calls() -> (Scene, Notes) {
    let notes = Notes::default();
    notes.with(|told| told.wants_calls = true);
    (Scene::told(|_| {}, Plan::Exact, Some(Box::new(notes.clone()))), notes)
}

#[test]
fn executions_are_told_by_block_with_its_module_and_bytes() {
    let (mut scene, notes) = recorded(|_| {}, Plan::Exact);
    let pc = pc_of(leaf);
    let head = scene.head(pc);
    let (id, _) = scene.fragment(head);
    let (_, family) = scene.machine.space_of(scene.tid).expect("an address space");
    let counters = family.code_cache.counters();
    let mut counters = (0..counters.len()).map(|index| (index as u32, counters.role(index)));
    let executions = |role| matches!(role, Some(Role::Runs(of) | Role::Superblock(of)) if of == id);
    let counter = counters.find(|(_, role)| executions(*role));
    let (counter, _) = counter.expect("it is counted");
    scene.context().counters().set(counter, 5);
    scene.machine.observers.note_place(&mut scene.machine.tasks, scene.tid, |places| {
        places.stepped(pc, 2);
    });
    scene.machine.counting().report_thread(scene.tid);
    notes.with(|told| {
        let block = told.blocks.iter().find(|block| block.pc == pc).expect("a block");
        let lengths = block.lengths.iter().map(|length| usize::from(*length));
        assert_eq!(lengths.sum::<usize>(), block.bytes.len());
        let module = told.modules.iter().rfind(|it| it.id == block.module).expect("a module");
        assert_eq!(module.path, std::env::current_exe().expect("a path"));
        assert!(module.mappings.iter().any(|it| (it.start..it.end).contains(&pc)));
        let thread = told.threads.last().expect("a thread");
        let count = BlockCount { block: block.id, runs: 5, not_taken: 0 };
        assert!(thread.blocks.contains(&count), "{:?}", thread.blocks);
        assert_eq!(thread.steps, [(Some(module.id), pc, 2)]);
    });
}

#[test]
fn a_thread_whose_translations_are_left_begins_another_report() {
    let (mut scene, notes) = recorded(|_| {}, Plan::Exact);
    scene.head(pc_of(leaf));
    scene.machine.counting().keep_counts(scene.tid, scene.slot);
    scene.machine.counting().remove_thread(scene.tid);
    let serials = notes.with(|told| told.threads.iter().map(|it| it.serial).collect::<Vec<_>>());
    assert_eq!(serials, [0, 1]);
}

#[test]
fn a_sample_is_told_with_the_place_of_the_instruction() {
    let event = Sampling { what: Sampled::Instructions, interval: 100 };
    for stacks in [false, true] {
        let set_up = |config: &mut Config| {
            (config.sampling.events, config.sampling.stacks) = (vec![event], stacks)
        };
        let (mut scene, notes) = recorded(set_up, Plan::Plain);
        let pc = pc_of(leaf);
        scene.set(Slot::LwpHigh, 0);
        assert_eq!(scene.ask(RequestKind::LwpDue, pc), Answer::Goes(pc));
        notes.with(|told| {
            let (event, stack) = &told.samples[0];
            assert_eq!((*event, stack[0].address), (0, pc));
            let module = told.modules.iter().find(|it| Some(it.id) == stack[0].module);
            let path = module.map(|module| module.path.clone());
            assert_eq!(path, std::env::current_exe().ok());
            assert_eq!(told.samples.len(), 1);
        });
    }
}

/// Has the thread execute one of our markers.
pub(super) fn mark(scene: &mut Scene, code: u8) {
    let marker = instruction(&[0x0f, 0x1f, 0x80, b'L', b'W', b'P', code]);
    // What follows lies in memory that cannot be executed.
    assert_eq!(scene.ask(RequestKind::Marker, address(&marker)), Answer::Needs(Need::Step));
}

#[test]
fn markers_start_and_stop_counting() {
    const START: u8 = 1;
    const STOP: u8 = 2;
    let between = |config: &mut Config| config.counted.markers = Some(Markers::Between);
    let mut scene = Scene::of(between, Plan::Exact);
    for _ in 0..2 {
        assert!(!scene.thread().account.counting);
        mark(&mut scene, START);
        assert!(scene.thread().account.counting);
        mark(&mut scene, STOP);
    }
    // Without bounds they change nothing.
    let mut scene = Scene::exact();
    mark(&mut scene, STOP);
    assert!(scene.thread().account.counting);
}

#[test]
fn a_marker_reads_what_has_been_counted_before_it() {
    const READ: u8 = 3;
    const BEGIN: u8 = 4;
    const SINCE: u8 = 5;
    const INSTRUCTIONS: u64 = 0;
    let mut scene = Scene::exact();
    let counted = |scene: &mut Scene, instructions: i32| {
        let deltas = lwp_dbt::EventDeltas { instructions, ..lwp_dbt::EventDeltas::default() };
        scene.thread().account.correction.add(deltas, 1);
    };
    counted(&mut scene, 101);
    scene.set(Slot::Rdi, INSTRUCTIONS);
    mark(&mut scene, READ);
    let answer = |scene: &Scene| [Slot::Rax, Slot::Rdx].map(|slot| scene.context().get(slot));
    assert_eq!(answer(&scene), [100, 1]);
    mark(&mut scene, BEGIN);
    counted(&mut scene, 31);
    mark(&mut scene, SINCE);
    assert_eq!(answer(&scene), [30, 1]);
    // There is no such event.
    scene.set(Slot::Rdi, 99).set(Slot::Rax, 7);
    mark(&mut scene, READ);
    assert_eq!(scene.context().get(Slot::Rax), 7);
}
