//! Processes of the program that control others: libpctx on the virtual CPU.
//!
//! The host traces both, so it reports the events of the controlled process (the *ward*) to the
//! controlling one (its *guardian*), and keeps a thread in its ptrace stop until the guardian
//! releases it. A guardian uses ptrace(2) requests that no kernel has ([`lwp_process::wards`]). The
//! server answers them, and leaves work that needs ptrace to the tracer. Guardians can't see
//! registers or memory: they can do no more than the kernel lets them.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;

use lwp_calls::syscalls::Pending;
use lwp_process::kernel_files::{self, Own};
use lwp_process::maps::Status;
use lwp_process::nested_ptrace::{self as door, kind};
use lwp_process::sys::Errno;
use lwp_process::{Tid, memory};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Handled, SIGKILL, ignored_signals, new_tasks};
use crate::dumpable;
use crate::lwp::interrupt::add_one;
use crate::machine::{Machine, Mode, Tasks};

/// Capability to trace what is not one's own, of capabilities(7).
const SYS_EXIT: u64 = 60;
const EPERM: Errno = Errno(1);
const EFAULT: Errno = Errno(14);
const EBUSY: Errno = Errno(16);
/// Events that are kept for a guardian that does not ask for them. Most belong to held threads.
const MOST_EVENTS: usize = 1 << 16;

/// The way in which a held thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// It has not begun yet.
    New,
    /// In translated code, perhaps in a call.
    Continue,
    /// In a stop of job control.
    Group,
}

/// A process under control.
#[derive(Debug)]
struct Ward {
    guardian: i32,
    /// The guardian's eventfd.
    bell: Option<i32>,
    /// The guardian has taken it, as opposed to having been given it.
    taken: bool,
    /// It dies with its guardian.
    created: bool,
    /// It has ended: what there is to tell is still kept.
    over: bool,
    /// All threads are to stand still, and have not been said to.
    settling: bool,
    events: VecDeque<[u64; 4]>,
}

/// A request that only the tracer can meet.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Go(Tid),
    Stop(Tid),
}

/// Every ward and every thread that is held.
#[derive(Debug, Default)]
pub struct Wards {
    all: FxHashMap<i32, Ward>,
    held: FxHashMap<Tid, Hold>,
    /// New processes that are held until a guardian lets them go, and those guardians.
    offered: FxHashMap<i32, i32>,
    /// Threads that are to stand still.
    wanted: FxHashSet<Tid>,
    wishes: Vec<Wish>,
}

impl Wards {
    /// Returns whether a thread is held.
    pub fn holds(&self, tid: Tid) -> bool {
        self.held.contains_key(&tid)
    }

    /// Has a thread held once it stands still.
    pub fn stop(&mut self, tid: Tid) {
        self.wishes.push(Wish::Stop(tid));
    }

    /// Has a thread go on, or not be held.
    pub fn go(&mut self, tid: Tid) {
        self.wanted.remove(&tid);
        self.wishes.push(Wish::Go(tid));
    }

    /// Returns whether a process has a guardian, or somebody who may become one.
    pub fn controls(&self, pid: i32) -> bool {
        self.all.get(&pid).is_some_and(|ward| !ward.over) || self.offered.contains_key(&pid)
    }

    fn tell(&mut self, pid: i32, event: [u64; 4]) {
        let Some(ward) = self.all.get_mut(&pid) else { return };
        if ward.events.len() < MOST_EVENTS {
            ward.events.push_back(event);
        }
        if let Some(bell) = ward.bell {
            // One that has closed it is woken by nobody, and asks every now and then.
            let _ = add_one(ward.guardian, bell);
        }
    }
}

/// Answers a request of `tid`, if the call is one: `None` for any other.
pub fn asked(machine: &mut Machine, tid: Tid, call: &Pending) -> Option<i64> {
    if call.number != lwp_calls::syscalls::nr::PTRACE
        || !(door::PROBE..=door::GUARDIAN).contains(&call.args[0])
    {
        return None;
    }
    let answered = answer(machine, tid, call.args);
    Some(answered.unwrap_or_else(|error| -i64::from(error.0)))
}

fn answer(
    machine: &mut Machine,
    tid: Tid,
    [request, pid, address, data]: [u64; 4],
) -> Result<i64, Errno> {
    let pid = pid as i32;
    let me = machine.tasks.threads.get(&tid).map(|thread| thread.pid).ok_or(Errno::ESRCH)?;
    let mine = |machine: &Machine, pid| match machine.tasks.wards.all.get(&pid) {
        Some(ward) if ward.guardian == me => Ok(()),
        _ if machine.tasks.wards.offered.get(&pid) == Some(&me) => Ok(()),
        _ => Err(Errno::ESRCH),
    };
    let process_of = |machine: &Machine, tid| {
        machine.tasks.threads.get(&tid).map(|thread| thread.pid).ok_or(Errno::ESRCH)
    };
    match request {
        door::PROBE if sees_other_numbers(tid) => return Err(EPERM),
        door::PROBE => {}
        door::TAKE => take(machine, me, pid, address as i32, data)?,
        door::GO | door::STOP => {
            mine(machine, process_of(machine, pid)?)?;
            let wish = if request == door::GO { Wish::Go(pid) } else { Wish::Stop(pid) };
            machine.tasks.wards.wishes.push(wish);
            machine.errands.wake();
        }
        door::NEXT => {
            mine(machine, pid)?;
            let event =
                machine.tasks.wards.all.get_mut(&pid).and_then(|ward| ward.events.pop_front());
            let Some(words) = event else { return Ok(0) };
            if words[..2] == [kind::GONE, pid as u64] {
                machine.tasks.wards.all.remove(&pid);
            }
            let mut bytes = [0; 32];
            for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            memory::write_exact(tid, address, &bytes).map_err(|_| EFAULT)?;
            return Ok(1);
        }
        door::GIVE => {
            mine(machine, pid)?;
            give(machine, pid, address as i32)?;
        }
        door::DROP => {
            mine(machine, pid)?;
            let_go(machine, pid);
            machine.errands.wake();
        }
        _ => {
            let ward = if pid == 0 { me } else { pid };
            return Ok(machine.tasks.wards.all.get(&ward).map_or(0, |ward| ward.guardian.into()));
        }
    }
    Ok(0)
}

/// Returns whether the numbers of processes that a thread knows are not ours.
fn sees_other_numbers(tid: Tid) -> bool {
    Status::read(tid).list("NSpid:").len() != 1
}

fn take(machine: &mut Machine, me: i32, pid: i32, bell: i32, flags: u64) -> Result<(), Errno> {
    if !machine.tasks.processes.contains_key(&pid) || pid == me {
        return Err(Errno::ESRCH);
    }
    let busy = |ward: &Ward| !ward.over && (ward.taken || ward.guardian != me);
    if machine.tasks.wards.all.get(&pid).is_some_and(busy) {
        return Err(EBUSY);
    }
    if !machine.tasks.tracing.spares(&machine.tasks.tids_of(pid)) {
        return Err(EBUSY);
    }
    if !may_control(me, pid, dumpable::is_hidden(&machine.tasks, pid)) {
        return Err(EPERM);
    }
    machine.tasks.wards.offered.remove(&pid);
    let settling = flags & door::STAND != 0;
    let ward = Ward {
        guardian: me,
        bell: Some(bell),
        taken: true,
        created: flags & door::CREATED != 0,
        over: false,
        settling,
        events: VecDeque::new(),
    };
    machine.tasks.wards.all.insert(pid, ward);
    if settling {
        for tid in machine.tasks.tids_of(pid) {
            machine.tasks.wards.wishes.push(Wish::Stop(tid));
        }
        machine.errands.wake();
    }
    Ok(())
}

/// Returns whether the kernel would let `me` trace `pid`, as far as can be seen from outside: both
/// are one user's and dumpable, or `me` may trace anything. `hidden`: the kernel does not know that
/// `pid` is not dumpable.
pub(super) fn may_control(me: i32, pid: i32, hidden: bool) -> bool {
    let (mine, theirs) = (Status::read(me), Status::read(pid));
    let [own, other] = [me, pid].map(|pid| kernel_files::link(pid, "ns/user").ok());
    // Every process of the run lives in the host's user namespace or in one below it. A capability
    // counts in the namespace that it was given in, and below.
    let above = own.is_some() && own == kernel_files::link(Own, "ns/user").ok();
    if own.is_none() || own != other && !above {
        return false;
    }
    if mine.has_ptrace_capability() && above {
        return true;
    }
    let ids = |pid: i32, field: &str| -> Option<[u32; 4]> {
        let text = kernel_files::text(pid, "status").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        let ids: Vec<u32> = line.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        ids.try_into().ok()
    };
    let same = |field| match (ids(me, field), ids(pid, field)) {
        (Some([_, _, _, own]), Some([real, effective, saved, _])) => {
            [real, effective, saved].iter().all(|id| *id == own)
        }
        _ => false,
    };
    let held = |status: &Status| status.signals("CapPrm:").unwrap_or(u64::MAX);
    // The files of one that may not be looked into are root's.
    let owner = kernel_files::metadata(pid, "").map(|it| it.uid()).ok();
    let effective = ids(pid, "Uid:").map(|[_, effective, ..]| effective);
    let dumpable = !hidden && owner.is_some() && owner == effective;
    let like = same("Uid:") && same("Gid:") && held(&theirs) & !held(&mine) == 0;
    own == other && dumpable && (like || mine.has_ptrace_capability())
}

fn give(machine: &mut Machine, pid: i32, guardian: i32) -> Result<(), Errno> {
    if !machine.tasks.processes.contains_key(&guardian) {
        return Err(Errno::ESRCH);
    }
    machine.tasks.wards.offered.remove(&pid);
    let ward = Ward {
        guardian,
        bell: None,
        taken: false,
        created: false,
        over: false,
        settling: false,
        events: VecDeque::new(),
    };
    machine.tasks.wards.all.insert(pid, ward);
    Ok(())
}

/// Lets a ward, and all of its threads, go.
fn let_go(machine: &mut Machine, pid: i32) {
    machine.tasks.wards.all.remove(&pid);
    machine.tasks.wards.offered.remove(&pid);
    for tid in machine.tasks.tids_of(pid) {
        machine.tasks.wards.wanted.remove(&tid);
        machine.tasks.wards.wishes.push(Wish::Go(tid));
    }
    // Nor does anybody else decide on what it has made.
    let made = |(child, maker): (&i32, &i32)| (*maker == pid).then_some(*child);
    let orphans: Vec<i32> = machine.tasks.wards.offered.iter().filter_map(made).collect();
    orphans.into_iter().for_each(|child| let_go(machine, child));
}

/// Does what guardians have asked for.
pub fn attend(machine: &mut Machine) -> Vec<(Tid, Errno)> {
    let mut failed = Vec::new();
    for wish in std::mem::take(&mut machine.tasks.wards.wishes) {
        let (tid, done) = match wish {
            Wish::Go(tid) => (tid, go(machine, tid)),
            Wish::Stop(tid) if machine.tasks.wards.held.contains_key(&tid) => {
                let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
                machine.tasks.wards.tell(pid, [kind::STOPPED, tid as u64, 0, 0]);
                settle(machine, pid);
                (tid, Ok(()))
            }
            Wish::Stop(tid) => {
                machine.tasks.wards.wanted.insert(tid);
                (tid, machine.tracees.interrupt(tid))
            }
        };
        if let Err(error) = done {
            failed.push((tid, error));
        }
    }
    failed
}

fn go(machine: &mut Machine, tid: Tid) -> Handled {
    machine.tasks.wards.offered.remove(&tid);
    match machine.tasks.wards.held.remove(&tid) {
        None => Ok(()),
        Some(Hold::New) => new_tasks::begin_now(machine, tid),
        Some(Hold::Continue) => ignored_signals::looked_at(machine, tid),
        Some(Hold::Group) => machine.tracees.listen(tid),
    }
}

/// A new thread stands still for the first time. Whether it is held.
pub fn holds_new(machine: &mut Machine, tid: Tid) -> bool {
    if machine.tasks.wards.all.is_empty() {
        return false;
    }
    let Some(pid) = machine.tasks.threads.get(&tid).map(|thread| thread.pid) else { return false };
    let thread = |what, a| [what, tid as u64, a, 0];
    let (ward, event) = if tid == pid {
        let Some(process) = machine.tasks.processes.get(&pid) else { return false };
        let report = &machine.observers.reports[process.report];
        (report.parent, thread(kind::PROCESS, report.maker as u64))
    } else {
        (pid, thread(kind::THREAD, 0))
    };
    let Some(guardian) = machine.tasks.wards.all.get(&ward).map(|ward| ward.guardian) else {
        return false;
    };
    if tid == pid {
        machine.tasks.wards.offered.insert(pid, guardian);
    }
    hold(machine, (ward, tid), Hold::New, event);
    true
}

/// A process stands before the first instruction of its program. Whether it is held.
pub fn holds_image(machine: &mut Machine, pid: i32) -> bool {
    let Tasks { wards, threads, .. } = &mut machine.tasks;
    wards.held.retain(|tid, _| threads.contains_key(tid));
    wards.wanted.retain(|tid| threads.contains_key(tid));
    // The program that was a guardian is not there any more.
    ended(machine, pid, false);
    // A set-user-ID program, or one that nobody may read, is out of its guardian's power.
    let guardian = machine.tasks.wards.all.get(&pid).map(|ward| ward.guardian);
    let hidden = dumpable::is_hidden(&machine.tasks, pid);
    if guardian.is_some_and(|guardian| !may_control(guardian, pid, hidden)) {
        machine.tasks.wards.tell(pid, [kind::LEFT, pid as u64, 0, 0]);
        let_go(machine, pid);
    }
    holds(machine, pid, pid, [kind::EXEC, pid as u64, 0, 0])
}

/// A thread is about to end. Whether it is held.
pub fn holds_exiting(machine: &mut Machine, tid: Tid) -> bool {
    if machine.tasks.wards.all.is_empty() {
        return false;
    }
    let Some(pid) = machine.tasks.threads.get(&tid).map(|thread| thread.pid) else { return false };
    let status = machine.tracees.event_message(tid).unwrap_or(0);
    // exit(2) ends a thread; exit_group(2), a signal or another thread's exec end them all.
    let alone = machine.tracees.regs(tid).is_ok_and(|regs| regs.0.orig_rax == SYS_EXIT);
    holds(machine, pid, tid, [kind::EXITING, tid as u64, status, alone.into()])
}

fn holds(machine: &mut Machine, pid: i32, tid: Tid, event: [u64; 4]) -> bool {
    if !machine.tasks.wards.all.contains_key(&pid) {
        return false;
    }
    hold(machine, (pid, tid), Hold::Continue, event);
    true
}

/// Holds a thread and tells the guardian of a ward why, and when all that is to stand still does.
fn hold(machine: &mut Machine, (ward, tid): (i32, Tid), hold: Hold, event: [u64; 4]) {
    machine.tasks.wards.wanted.remove(&tid);
    machine.tasks.wards.held.insert(tid, hold);
    machine.tasks.wards.tell(ward, event);
    settle(machine, ward);
}

/// Returns whether a thread is to stand still where it is.
pub fn wants(machine: &Machine, tid: Tid) -> bool {
    machine.tasks.wards.wanted.contains(&tid)
}

/// Keeps a thread that has been interrupted.
pub fn keep(machine: &mut Machine, tid: Tid, group: bool) {
    let how = if group { Hold::Group } else { Hold::Continue };
    let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
    hold(machine, (pid, tid), how, [kind::STOPPED, tid as u64, 0, 0]);
}

/// Tells the guardian of a process that all of its threads stand still, once they do.
fn settle(machine: &mut Machine, pid: i32) {
    // Of a process with thousands of threads, each tells that it is gone.
    if !machine.tasks.wards.all.get(&pid).is_some_and(|ward| ward.settling) {
        return;
    }
    let stands = |tid: Tid| machine.tasks.wards.held.contains_key(&tid);
    if machine.tasks.threads_of(pid).all(|(tid, _)| stands(tid))
        && let Some(ward) = machine.tasks.wards.all.get_mut(&pid)
    {
        ward.settling = false;
        machine.tasks.wards.tell(pid, [kind::STANDING, pid as u64, 0, 0]);
    }
}

/// A thread has stopped, so it is held no more.
pub fn stopped(machine: &mut Machine, tid: Tid) {
    machine.tasks.wards.held.remove(&tid);
}

/// After every stop: what is to stand still and goes on is stopped again.
pub fn press(machine: &mut Machine, tid: Tid) {
    if !machine.tasks.wards.wanted.contains(&tid) {
        return;
    }
    match machine.tasks.threads.get(&tid).map(|thread| thread.mode) {
        Some(Mode::New) => {}
        Some(_) => {
            let _ = machine.tracees.interrupt(tid);
        }
        None => {
            machine.tasks.wards.wanted.remove(&tid);
        }
    }
}

/// A thread has ended, with this wait status; `last` says whether its process has.
pub fn gone(machine: &mut Machine, pid: i32, tid: Tid, status: i32, last: bool) {
    machine.tasks.wards.wanted.remove(&tid);
    machine.tasks.wards.held.remove(&tid);
    machine.tasks.wards.offered.remove(&tid);
    machine.tasks.wards.tell(pid, [kind::GONE, tid as u64, status as u32 as u64, 0]);
    settle(machine, pid);
    if last {
        if let Some(ward) = machine.tasks.wards.all.get_mut(&pid) {
            ward.over = true;
        }
        ended(machine, pid, true);
    }
}

/// A process has ended: nobody controls what it controlled.
fn ended(machine: &mut Machine, pid: i32, kills: bool) {
    let wards = machine.tasks.wards.all.iter().filter(|(_, ward)| ward.guardian == pid);
    let wards: Vec<(i32, bool)> = wards.map(|(ward, it)| (*ward, it.created)).collect();
    for (ward, created) in wards {
        if kills && created && machine.tasks.processes.contains_key(&ward) {
            let _ = machine.tracees.kill(ward, SIGKILL);
        }
        let_go(machine, ward);
    }
    let offered = machine.tasks.wards.offered.iter().filter(|(_, guardian)| **guardian == pid);
    let offered: Vec<i32> = offered.map(|(child, _)| *child).collect();
    offered.into_iter().for_each(|child| let_go(machine, child));
}

/// A process goes on natively.
pub fn left(machine: &mut Machine, pid: i32) {
    machine.tasks.wards.tell(pid, [kind::LEFT, pid as u64, 0, 0]);
    ended(machine, pid, false);
}

/// The run lets everything go: nobody is held for anybody.
pub fn let_all_go(machine: &mut Machine) {
    let wards: Vec<i32> = machine.tasks.wards.all.keys().copied().collect();
    for ward in wards {
        let_go(machine, ward);
    }
}
