//! An attack on the mailbox: the host handles requests and states of a thread that forges its
//! context.
//!
//! The thread belongs to a process that waits and isn't traced. The host can read its memory; every
//! ptrace call fails, as for a thread that has been killed. The attacker's bytes choose words of
//! the context, values for them, and the next action of the host.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use lwp_dbt::Slot;
use lwp_process::maps;
use lwp_process::owner::Owner;
use lwp_process::{Ptrace, Regs, sys};
use lwp_run::config::{Config, Markers, Plan};

use crate::machine::{Machine, Mode, Process};
use crate::setup;
use crate::setup::Anchors;

/// A process that waits for input. Its input ends with this process, and so does it.
static VICTIM: Mutex<Option<Child>> = Mutex::new(None);

/// Most steps of one attack.
const MOST_STEPS: usize = 256;

fn victim() -> io::Result<i32> {
    let mut victim = VICTIM.lock().unwrap_or_else(PoisonError::into_inner);
    let child = match victim.take() {
        Some(child) => child,
        None => Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?,
    };
    Ok(victim.insert(child).id() as i32)
}

/// Carries out the attack that `bytes` describe.
///
/// # Errors
///
/// Errors of starting the process and of making the machine's memory.
pub fn attack(bytes: &[u8]) -> io::Result<()> {
    let pid = victim()?;
    let mut words = Words(bytes);
    let mut attack = Attack::new(pid, words.byte())?;
    for _ in 0..MOST_STEPS {
        if words.0.is_empty() {
            break;
        }
        attack.step(&mut words);
    }
    attack.machine.counting().remove_thread(pid);
    Ok(())
}

/// The rest of the bytes. Behind their end are zeros.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let (now, later) = self.0.split_at(N.min(self.0.len()));
        out[..now.len()].copy_from_slice(now);
        self.0 = later;
        out
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn short(&mut self) -> u64 {
        u16::from_le_bytes(self.take()).into()
    }
}

/// A machine of one thread.
struct Attack {
    machine: Machine,
    tid: i32,
    slot: usize,
    /// Addresses of the program's code, the context, the tables and the arenas.
    places: Vec<u64>,
}

impl Attack {
    fn new(tid: i32, kind: u8) -> io::Result<Self> {
        let errno = |error: sys::Errno| io::Error::from_raw_os_error(error.0);
        let bell = Arc::new(sys::event_fd().map_err(errno)?);
        let mut machine = Machine::new(config(kind), bell, Arc::new(Ptrace));
        let report = machine.observers.add_report(tid, 0, String::new(), String::new());
        let contexts = machine.contexts.files.add().map_err(errno)?;
        machine.tasks.processes.insert(tid, Process::new(report, contexts));
        let slot = machine.add_thread(tid, tid, contexts).ok_or(io::ErrorKind::OutOfMemory)?;
        let mappings = maps::read(tid);
        let made =
            setup::new_space(&mut machine, tid, Owner::default(), &mappings, Anchors::of(tid));
        let (space, family, _) = made.map_err(io::Error::other)?;
        let space = machine.caches.add(space);
        machine.tasks.processes.entry(tid).and_modify(|process| process.space = space);
        let code = mappings.iter().filter(|mapping| mapping.execute).map(|mapping| mapping.start);
        let mut places: Vec<u64> = code.collect();
        places.extend(machine.context(tid).map(|context| context.address()));
        let family = machine.caches.families.get(family).and_then(Option::as_ref);
        if let Some(family) = family {
            places.push(family.layout().low);
            places.extend(family.kind.arenas.iter().map(|(address, ..)| *address));
        }
        Ok(Self { machine, tid, slot, places })
    }

    /// Carries out one action of the program or the host.
    fn step(&mut self, words: &mut Words<'_>) {
        match words.byte() % 8 {
            0..4 => {
                let (at, value) = (words.short(), self.value(words));
                self.machine.contexts.context(self.slot).forge(at * 8, value);
            }
            4 => {
                let kind = u64::from(words.byte());
                self.machine.contexts.context(self.slot).set(Slot::Kind, kind);
                self.answer();
            }
            5 => self.answer(),
            6 => self.look(words),
            _ => {
                self.machine.tasks.note_cpu_time(&self.machine.config, self.tid);
                self.machine.counting().keep_counts(self.tid, self.slot);
            }
        }
    }

    /// Takes a number, or an address near one of the places.
    fn value(&self, words: &mut Words<'_>) -> u64 {
        match words.byte() {
            0 => u64::from_le_bytes(words.take()),
            1 => u64::MAX - words.short(),
            2..64 => words.short(),
            choice => {
                let place = self.places[usize::from(choice) % self.places.len()];
                place.wrapping_add(words.short())
            }
        }
    }

    /// Has the server answer, and forgets its errands for the tracer.
    fn answer(&mut self) {
        self.machine.answer(self.slot, true);
        self.machine.errands.needy.clear();
        self.machine.errands.forgeries.clear();
        if let Some(thread) = self.machine.tasks.threads.get_mut(&self.tid) {
            (thread.errand.need, thread.mode) = (None, Mode::Running);
        }
    }

    /// Has the tracer find the thread stopped anywhere, and take it out of translated code.
    fn look(&mut self, words: &mut Words<'_>) {
        let mut regs = Regs::default();
        regs.0.rip = self.value(words);
        regs.0.rcx = self.value(words);
        regs.0.r11 = self.value(words);
        if let Some(mut view) = self.machine.view(self.tid, &regs) {
            self.machine.leave(self.tid, &regs, &mut view);
        }
    }
}

/// One of several ways to run a program.
fn config(kind: u8) -> Config {
    let plan = if kind & 1 == 0 { Plan::Plain } else { Plan::Exact };
    let mut config = Config::launch("victim".into(), Vec::new(), plan);
    config.counted.markers = (kind & 2 != 0).then_some(Markers::Between);
    config.program.deterministic = kind & 4 != 0;
    config
}
