//! Tests of the engine's decisions that need no other process.
//!
//! The program's threads are those of the test's own process: their code and memory are there to be
//! read and written, their contexts are in the test's hands, and a [`Script`] takes what ptrace
//! would do to them. A test says what translated code asks ([`Scene`]) or for what a thread stops
//! ([`stage::Stage`]), and looks at what the host does.

mod beginnings;
mod births;
mod calls;
mod changing;
mod commands;
mod countdown;
mod counting;
mod emulating;
mod exits;
mod guards;
mod keeping;
mod leaving;
mod letting_go;
mod limits;
mod misses;
mod natively;
mod needs;
mod parts;
mod places;
mod profiles;
mod recording;
mod script;
mod sequences;
mod serving;
mod showing;
mod signals;
mod stage;
mod states;
mod transfers;
mod wards;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lwp_code::module_images;
use lwp_dbt::{CachePc, Fragment, FragmentId, RequestKind, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::maps;
use lwp_process::owner::Owner;
use lwp_process::{Tracees, sys};
use lwp_run::config::{Config, Plan};
use lwp_run::outcome::Counts;

use crate::machine::{Machine, Mode, Need, Process, Thread};
use crate::profile::{Profiler, Sink};
use crate::setup;
use crate::setup::Anchors;
use crate::state::known_pc;
use script::Script;

/// A machine of one thread, which asks.
struct Scene {
    machine: Machine,
    script: Arc<Script>,
    tid: i32,
    slot: usize,
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The thread goes on in the translation of this application pc.
    Goes(u64),
    /// It carries out something else first.
    Does,
    /// The tracer has to help.
    Needs(Need),
    /// Translated code cannot have written that.
    Forged,
    /// None.
    Nothing,
}

impl Scene {
    /// A run that counts exactly.
    fn exact() -> Self {
        Self::of(|_| {}, Plan::Exact)
    }

    /// A run that is set up so.
    fn of(set_up: impl FnOnce(&mut Config), plan: Plan) -> Self {
        Self::told(set_up, plan, None)
    }

    /// A run that is set up so, with a sink for its profile.
    fn told(set_up: impl FnOnce(&mut Config), plan: Plan, sink: Option<Box<dyn Sink>>) -> Self {
        let mut config = Config::launch("test".into(), Vec::new(), plan);
        set_up(&mut config);
        let tid = std::process::id() as i32;
        wait_until_signals_arrive(tid);
        let bell = Arc::new(sys::event_fd().expect("an eventfd"));
        let script = Arc::new(Script::default());
        let mut machine = Machine::new(config, bell, Arc::clone(&script) as Arc<dyn Tracees>);
        machine.observers.profiler = sink.map(Profiler::new);
        machine.caches.store = module_images::store_for(&machine.config);
        let report = machine.observers.add_report(tid, 0, String::new(), String::new());
        let contexts = machine.contexts.files.add().expect("memory for contexts");
        let process = Process::new(report, contexts);
        machine.tasks.processes.insert(tid, process);
        let slot = machine.add_thread(tid, tid, contexts).expect("a context");
        let mappings = maps::read(tid);
        let made =
            setup::new_space(&mut machine, tid, Owner::default(), &mappings, Anchors::of(tid));
        let (space, ..) = made.expect("an address space");
        let space = machine.caches.add(space);
        machine.tasks.processes.entry(tid).and_modify(|process| process.space = space);
        let mut scene = Self { machine, script, tid, slot };
        scene.thread().mode = Mode::Running;
        scene
    }

    fn context(&self) -> Context<'_> {
        self.machine.contexts.context(self.slot)
    }

    fn thread(&mut self) -> &mut Thread {
        self.machine.tasks.threads.get_mut(&self.tid).expect("it lives")
    }

    /// Fills in a field of the context.
    fn set(&mut self, field: Slot, value: u64) -> &mut Self {
        self.context().set(field, value);
        self
    }

    /// The thread asks, as translated code does.
    fn ask(&mut self, kind: RequestKind, pc: u64) -> Answer {
        self.ask_raw(kind as u64, pc)
    }

    fn ask_raw(&mut self, kind: u64, pc: u64) -> Answer {
        let context = self.context();
        context.set(Slot::Kind, kind);
        context.set(Slot::Pc, pc);
        context.set(Slot::Resp, 0);
        self.machine.answer(self.slot, false);
        self.answered()
    }

    fn answered(&mut self) -> Answer {
        if !std::mem::take(&mut self.machine.errands.forgeries).is_empty() {
            return Answer::Forged;
        }
        if std::mem::take(&mut self.machine.errands.needy).contains(&self.tid) {
            let need = self.thread().errand.need.take();
            return Answer::Needs(need.expect("something is needed"));
        }
        let context = self.context();
        let (resp, go) = (context.get(Slot::Resp), context.get(Slot::Go));
        let (_, family) = self.machine.space_of(self.tid).expect("an address space");
        match resp {
            0 => Answer::Nothing,
            _ if resp != family.routine(family.translator.routines().go) => Answer::Does,
            _ => Answer::Goes(known_pc(family, CachePc(go)).expect("translated code")),
        }
    }

    /// The place in translated code at which the thread goes on at `pc`.
    fn head(&mut self, pc: u64) -> u64 {
        assert_eq!(self.ask(RequestKind::Dispatch, pc), Answer::Goes(pc));
        self.context().get(Slot::Go)
    }

    /// The fragment at a place in translated code.
    fn fragment(&mut self, place: u64) -> (FragmentId, Fragment) {
        let (_, family) = self.machine.space_of(self.tid).expect("an address space");
        let (_, id) = family.state_at(place).expect("translated code");
        let id = id.expect("a fragment");
        (id, family.code_cache.fragment(id))
    }

    /// Everything that has been counted.
    fn counts(&mut self) -> Counts {
        self.machine.counting().thread_sum(self.tid).counts()
    }
}

/// The C library blocks all signals of a thread while it creates another one: those of the main
/// thread, which stands for the program's, until it has created the test's own.
fn wait_until_signals_arrive(tid: i32) {
    const SIGSEGV: u64 = 1 << 10;
    let deadline = Instant::now() + Duration::from_secs(60);
    while maps::Status::read(tid).signals("SigBlk:").is_some_and(|set| set & SIGSEGV != 0) {
        assert!(Instant::now() < deadline, "signals of the main thread are blocked");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A function of the program.
#[inline(never)]
extern "C" fn leaf(number: u64) -> u64 {
    black_box(number).wrapping_mul(3)
}

/// Another one, with branches.
#[inline(never)]
extern "C" fn branches(number: u64) -> u64 {
    if black_box(number).is_multiple_of(2) { leaf(number) } else { number }
}

fn pc_of(function: extern "C" fn(u64) -> u64) -> u64 {
    black_box(function) as usize as u64
}
