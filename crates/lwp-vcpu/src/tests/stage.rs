//! A machine whose threads stop for what a test says.

use std::fs;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use lwp_dbt::routines::Routines;
use lwp_dbt::{CachePc, Commit, PcSource, RequestKind, Slot};
use lwp_process::maps;
use lwp_process::regs::{CS_64, Regs};
use lwp_process::tracees::Until;
use lwp_process::{Stop, Tid, Tracees, sys};
use lwp_run::config::{Config, Control, Plan, Target};

use super::Scene;
use super::script::{Done, Script};
use crate::machine::{Machine, Mode};
use crate::server::lock;
use crate::setup::find_syscall;
use crate::tracer::Tracer;

/// Words of a stack.
const STACK: usize = 4096;

/// A machine, its threads' script, and its tracer's work.
pub struct Stage {
    machine: Mutex<Machine>,
    pub script: Arc<Script>,
    /// The first thread.
    pub tid: Tid,
    stack: Box<[u64; STACK]>,
}

/// A thread of the test's process that does nothing.
pub struct Idle {
    pub tid: Tid,
    _until_dropped: Sender<()>,
}

impl Idle {
    pub fn new() -> Self {
        let (sender, receiver) = channel::<()>();
        let (tell, told) = channel();
        let idle = move || {
            let path = fs::read_link("/proc/thread-self").expect("a thread has a directory");
            let name = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            let _ = tell.send(name.expect("its name is a number"));
            // The other end says nothing, and is gone at last.
            let _ = receiver.recv();
        };
        std::thread::Builder::new().spawn(idle).expect("a thread");
        Self { tid: told.recv().expect("the thread tells its number"), _until_dropped: sender }
    }
}

impl Stage {
    pub fn of(scene: Scene) -> Self {
        let Scene { machine, script, tid, .. } = scene;
        Self { machine: Mutex::new(machine), script, tid, stack: Box::new([0; STACK]) }
    }

    /// A run that has taken nothing in yet.
    pub fn before(target: Target) -> Self {
        let config = Config { target, ..Config::launch("test".into(), Vec::new(), Plan::Exact) };
        let bell = Arc::new(sys::event_fd().expect("an eventfd"));
        let script = Arc::new(Script::default());
        let tracees = Arc::clone(&script) as Arc<dyn Tracees>;
        let machine = Mutex::new(Machine::new(config, bell, tracees));
        Self { machine, script, tid: std::process::id() as Tid, stack: Box::new([0; STACK]) }
    }

    /// A thread that stands at the beginning of the translation of a function; with its registers.
    pub fn at(pc: u64) -> (Self, Regs) {
        let mut scene = Scene::exact();
        let head = scene.head(pc);
        let stage = Self::of(scene);
        let regs = stage.regs_at(head);
        stage.stands(stage.tid, &regs);
        (stage, regs)
    }

    /// A thread that stands behind a system call in translated code, which is number `call` and has
    /// been interrupted; with its registers, and the call's place in the program.
    pub fn in_call(call: u64, result: u64) -> (Self, Regs, u64) {
        let mut scene = Scene::exact();
        let tid = scene.tid;
        let site = find_syscall(tid, &maps::read(tid)).expect("code has a system call");
        let head = scene.head(site);
        let (_, family) = scene.machine.space_of(tid).expect("an address space");
        let behind = |place: &u64| {
            let state = family.state_at(*place).map(|(state, _)| state);
            state.is_some_and(|state| state.commit == Commit::AfterSyscall)
        };
        let place = (head..head + 4096).find(behind).expect("the call is translated");
        let stage = Self::of(scene);
        let mut regs = stage.regs_at(place);
        (regs.0.orig_rax, regs.0.rax) = (call, result);
        stage.stands(tid, &regs);
        (stage, regs, site)
    }

    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    /// A tracer that lives for as long as a test wants.
    pub fn tracer(&self) -> Tracer<'_> {
        Tracer::new(&self.machine, self.tid, None)
    }

    /// A tracer that takes requests, and lives for as long as a test wants.
    pub fn tracer_with(&self, control: Control) -> Tracer<'_> {
        Tracer::new(&self.machine, self.tid, Some(control))
    }

    /// The stack pointer: there is room on both sides of it.
    pub fn rsp(&self) -> u64 {
        &raw const self.stack[STACK / 2] as u64
    }

    /// The word of the stack at `offset` from its pointer.
    pub fn word(&self, offset: u64) -> u64 {
        lwp_process::memory::read_u64(self.tid, self.rsp() + offset).expect("it is there")
    }

    /// Registers of a thread outside of system calls.
    pub fn regs_at(&self, rip: u64) -> Regs {
        let mut regs = Regs::default();
        (regs.0.rip, regs.0.rsp, regs.0.cs) = (rip, self.rsp(), CS_64);
        regs.forget_syscall();
        regs
    }

    /// A thread stands still with these registers.
    pub fn stands(&self, tid: Tid, regs: &Regs) {
        self.script.thread(tid, |thread| (thread.regs, thread.stopped) = (*regs, true));
    }

    /// The registers of a thread.
    pub fn regs(&self, tid: Tid) -> Regs {
        self.script.thread(tid, |thread| thread.regs)
    }

    /// A thread stops; what is done then.
    pub fn stop(&self, tid: Tid, stop: Stop) -> Vec<Done> {
        self.script.thread(tid, |thread| {
            thread.stopped = !matches!(stop, Stop::Exited(_) | Stop::Killed { .. });
        });
        self.tracer().stopped(tid, stop);
        self.script.done()
    }

    /// A thread stops for a signal.
    pub fn signal(&self, tid: Tid, signal: i32, code: i32, address: u64) -> Vec<Done> {
        self.script.thread(tid, |thread| thread.info = Some((signal, code, address)));
        self.stop(tid, Stop::Signal(signal))
    }

    pub fn mode(&self, tid: Tid) -> Mode {
        self.machine().tasks.threads[&tid].mode
    }

    /// The field of a thread's context.
    pub fn slot(&self, tid: Tid, slot: Slot) -> u64 {
        self.machine().context(tid).expect("it lives").get(slot)
    }

    /// A routine's address in the address space of the first thread.
    pub fn routine(&self, offset: impl Fn(&Routines) -> u32) -> u64 {
        let mut machine = self.machine();
        let (_, family) = machine.space_of(self.tid).expect("an address space");
        family.routine(offset(family.translator.routines()))
    }

    /// Says that a thread has been led into translated code at `pc`, and goes on.
    #[track_caller]
    pub fn expect_entered(&self, tid: Tid, pc: u64, done: &[Done]) {
        assert_eq!(done.last(), Some(&Done::Goes(tid, Until::Event, 0)), "{done:?}");
        assert_eq!(self.regs(tid).0.rip, self.routine(|routines| routines.enter));
        assert_eq!(self.slot(tid, Slot::Pc), pc);
        assert!(matches!(self.mode(tid), Mode::Running));
    }

    /// The registers of a thread that waits for the answer to a request.
    pub fn asking(&self, tid: Tid, kind: RequestKind, pc: u64) -> Regs {
        let mut machine = self.machine();
        let context = machine.context(tid).expect("it lives");
        context.set(Slot::Kind, kind as u64);
        context.set(Slot::Pc, pc);
        let (_, family) = machine.space_of(tid).expect("an address space");
        let waits = |place: &u64| {
            let state = family.state_at(*place).map(|(state, _)| state);
            state.is_some_and(|state| {
                state.commit == Commit::Mailbox && state.pc == PcSource::ContextPc
            })
        };
        let place = (0..1 << 14).map(|offset| family.routine(offset)).find(waits);
        self.regs_at(CachePc(place.expect("a thread waits somewhere")).0)
    }

    /// Adds a thread to the process of the first, which stands still in the same place.
    pub fn another(&self) -> Idle {
        let idle = Idle::new();
        let mut machine = self.machine();
        let contexts = machine.tasks.processes[&self.tid].contexts;
        machine.add_thread(idle.tid, self.tid, contexts).expect("a context");
        machine.tasks.threads.get_mut(&idle.tid).expect("it lives").mode = Mode::Running;
        drop(machine);
        let regs = self.regs(self.tid);
        self.stands(idle.tid, &regs);
        idle
    }
}
