//! Signals that were sent to lwp instead of the program that it runs.
//!
//! Supervisors, shells and users know lwp's process and send signals to it. lwp passes them on to
//! the program, which sees the true sender. Somebody who signals a whole process group, or every
//! process of a container, signals both but means one signal, so the program gets one.

use std::time::{Duration, Instant};

use lwp_process::Tid;
use lwp_process::maps::Status;
use lwp_process::sys::{self, Errno, SigInfo};

use super::{Handled, ignored_signals};
use crate::machine::{Machine, Mode};

/// Signals of one sender to both processes, within this time, are one.
const TOGETHER: Duration = Duration::from_millis(300);
/// The most that are remembered.
const MOST: usize = 64;
const SI_USER: i32 = 0;
const SI_QUEUE: i32 = -1;
const SI_KERNEL: i32 = 0x80;
const SIGHUP: i32 = 1;
/// SIGINT, SIGQUIT, SIGWINCH: a terminal sends them to a process group.
const OF_TERMINALS: [i32; 3] = [2, 3, 28];

/// A signal, its sender, and the time at which it came.
#[derive(Clone, Copy, Debug)]
struct Note {
    info: SigInfo,
    at: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The program has had it from its sender.
    Direct,
    /// It has been passed on, and is on its way.
    Passed,
    /// It has been passed on, and the program has it.
    Arrived,
    /// It has been passed on, and the program has had it from its sender before it arrived.
    Needless,
}

/// The signals of late.
#[derive(Debug, Default)]
pub struct Passing {
    /// The program's first process.
    pub first: i32,
    notes: Vec<Note>,
}

impl Passing {
    fn forget_old(&mut self, now: Instant) {
        self.notes.retain(|note| now - note.at < TOGETHER);
        if self.notes.len() >= MOST {
            self.notes.remove(0);
        }
    }

    fn find(&mut self, info: &SigInfo, stages: &[Stage]) -> Option<usize> {
        let same = |note: &Note| {
            note.info.signo() == info.signo()
                && note.info.sender() == info.sender()
                && stages.contains(&note.stage)
        };
        self.notes.iter().position(same)
    }

    fn note(&mut self, info: SigInfo, stage: Stage, at: Instant) {
        self.notes.push(Note { info, at, stage });
    }
}

/// Passes a signal on to the program's first process, unless that has it.
pub fn pass_on(machine: &mut Machine, first: i32, info: SigInfo) {
    let now = Instant::now();
    let signal = info.signo();
    let sent = matches!(info.code(), SI_USER | SI_QUEUE);
    let passing = &mut machine.errands.passing;
    passing.forget_old(now);
    if info.code() == SI_KERNEL {
        let (leads, together) = sys::stands_before(first);
        if OF_TERMINALS.contains(&signal) && together || signal == SIGHUP && !leads {
            return;
        }
    }
    if let Some(index) = passing.find(&info, &[Stage::Direct]).filter(|_| sent) {
        passing.notes.remove(index);
        return;
    }
    let pending = Status::read(first).signals("ShdPnd:").unwrap_or(0);
    if pending & ignored_signals::bit(signal as u32) == 0
        && sys::send_as(first, &info).is_ok()
        && sent
    {
        passing.note(info, Stage::Passed, now);
    }
}

/// A thread has stopped for a signal. One that was passed on gets what it said at first. Returns
/// whether the program has had it already: then the thread has gone on without.
pub fn arrived(machine: &mut Machine, tid: Tid) -> Result<bool, Errno> {
    let Some(thread) = machine.tasks.threads.get(&tid) else { return Ok(false) };
    let (pid, running) = (thread.pid, matches!(thread.mode, Mode::Running));
    if machine.errands.passing.first != pid {
        return Ok(false);
    }
    let info = machine.tracees.siginfo(tid)?;
    if !matches!(info.code(), SI_USER | SI_QUEUE) || info.sender() == pid {
        return Ok(false);
    }
    let now = Instant::now();
    let passing = &mut machine.errands.passing;
    passing.forget_old(now);
    let ours = info.sender() == std::process::id() as i32;
    let signal = |note: &Note| note.info.signo() == info.signo();
    if ours {
        let on_its_way = |note: &&mut Note| {
            signal(note) && matches!(note.stage, Stage::Passed | Stage::Needless)
        };
        let Some(note) = passing.notes.iter_mut().find(on_its_way) else { return Ok(false) };
        let (needless, original) = (note.stage == Stage::Needless && running, note.info);
        note.stage = Stage::Arrived;
        if needless {
            return drop_it(machine, tid);
        }
        return machine.tracees.set_siginfo(tid, &original).map(|()| false);
    }
    if let Some(index) = passing.find(&info, &[Stage::Arrived]).filter(|_| running) {
        passing.notes.remove(index);
        return drop_it(machine, tid);
    }
    match passing.find(&info, &[Stage::Passed]) {
        // Of a standard signal there is one, if that was not taken when ours was sent.
        Some(index) => passing.notes[index].stage = Stage::Needless,
        None => passing.note(info, Stage::Direct, now),
    }
    Ok(false)
}

fn drop_it(machine: &mut Machine, tid: Tid) -> Result<bool, Errno> {
    let gone_on: Handled = ignored_signals::looked_at(machine, tid);
    gone_on.map(|()| true)
}
