//! Threads of a script: what the engine does to them is noted, and the test says what the kernel
//! would answer.
//!
//! A thread stands still or runs, as it does for the kernel: whoever asks a running one for its
//! registers, or lets it go on once more, gets `ESRCH`. Its memory is that of the test's process.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lwp_dbt::routines::BATCH_WORDS;
use lwp_process::mapped::Expected;
use lwp_process::memory::{read_u64, write_u64};
use lwp_process::shm::Inode;
use lwp_process::sys::{Errno, Result, SigInfo, UserDispatchRequest};
use lwp_process::tracees::{Call, Tracees, Until};
use lwp_process::{Regs, Stop, Tid};

/// Something that the engine has done to a thread, besides looking at it and setting its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It goes on, with this signal.
    Goes(Tid, Until, i32),
    /// It is to stop.
    Interrupted(Tid),
    /// It stays in the stop of its group.
    Listens(Tid),
    /// Nobody controls it any more.
    Detached(Tid),
    /// A signal was sent to a process.
    Killed(i32, i32),
    /// A signal was sent to a thread.
    Sent(Tid, i32),
    /// It has made a system call.
    Called(u64, [u64; 6]),
}

/// The kernel's side of a thread.
#[derive(Debug, Default)]
pub struct Scripted {
    pub regs: Regs,
    /// The signal that it has stopped for: number, code and address.
    pub info: Option<(i32, i32, u64)>,
    pub mask: u64,
    /// The address of its area of restartable sequences.
    pub rseq: Option<u64>,
    pub message: u64,
    /// Its floating-point and vector state, if it has any.
    pub extended: Vec<u8>,
    /// The stops that are waited for.
    pub stops: VecDeque<Stop>,
    /// It stands still.
    pub stopped: bool,
}

/// The result of a system call with this number and these arguments.
type Answer = Box<dyn FnMut(u64, [u64; 6]) -> i64 + Send>;

#[derive(Default)]
struct State {
    threads: HashMap<Tid, Scripted>,
    done: Vec<Done>,
    answer: Option<Answer>,
}

/// See the module.
#[derive(Default)]
pub struct Script(Mutex<State>);

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what a thread is like; one that is not known is made, and stands still.
    pub fn thread<R>(&self, tid: Tid, look: impl FnOnce(&mut Scripted) -> R) -> R {
        let new = || Scripted { stopped: true, ..Scripted::default() };
        look(self.state().threads.entry(tid).or_insert_with(new))
    }

    /// Returns whether a thread stands still.
    pub fn stands(&self, tid: Tid) -> bool {
        self.state().threads.get(&tid).is_some_and(|thread| thread.stopped)
    }

    /// Answers the system calls that are made in threads in another way than success.
    pub fn answer(&self, answer: impl FnMut(u64, [u64; 6]) -> i64 + Send + 'static) {
        self.state().answer = Some(Box::new(answer));
    }

    /// Everything that has been done since this was last asked.
    pub fn done(&self) -> Vec<Done> {
        std::mem::take(&mut self.state().done)
    }

    fn note(&self, done: Done) {
        self.state().done.push(done);
    }

    /// Looks at a thread that stands still.
    fn stopped<R>(&self, tid: Tid, look: impl FnOnce(&mut Scripted) -> R) -> Result<R> {
        let mut state = self.state();
        let thread = state.threads.get_mut(&tid).filter(|thread| thread.stopped);
        thread.map(look).ok_or(Errno::ESRCH)
    }

    /// Makes a system call: a mapping comes to lie where it is wanted, files are opened, and all
    /// else is done, unless the test says otherwise.
    fn made(&self, number: u64, args: [u64; 6]) -> i64 {
        const SYS_OPEN: u64 = 2;
        const SYS_MMAP: u64 = 9;
        const OPENED: i64 = 77;
        let mut state = self.state();
        state.done.push(Done::Called(number, args));
        match (&mut state.answer, number) {
            (Some(answer), _) => answer(number, args),
            (None, SYS_OPEN) => OPENED,
            (None, SYS_MMAP) => args[0].cast_signed(),
            (None, _) => 0,
        }
    }
}

impl Tracees for Script {
    fn regs(&self, tid: Tid) -> Result<Regs> {
        self.stopped(tid, |thread| thread.regs)
    }

    fn set_regs(&self, tid: Tid, regs: &Regs) -> Result<()> {
        self.stopped(tid, |thread| thread.regs = *regs)
    }

    fn set_gs_base(&self, tid: Tid, base: u64) -> Result<()> {
        self.stopped(tid, |thread| thread.regs.0.gs_base = base)
    }

    fn extended_state(&self, tid: Tid) -> Result<Vec<u8>> {
        self.stopped(tid, |thread| thread.extended.clone())
    }

    fn set_extended_state(&self, tid: Tid, image: &[u8]) -> Result<()> {
        self.stopped(tid, |thread| image.clone_into(&mut thread.extended))
    }

    fn resume(&self, tid: Tid, until: Until, signal: i32) -> Result<()> {
        self.stopped(tid, |thread| thread.stopped = false)?;
        self.note(Done::Goes(tid, until, signal));
        Ok(())
    }

    fn interrupt(&self, tid: Tid) -> Result<()> {
        self.note(Done::Interrupted(tid));
        Ok(())
    }

    fn listen(&self, tid: Tid) -> Result<()> {
        self.stopped(tid, |thread| thread.stopped = false)?;
        self.note(Done::Listens(tid));
        Ok(())
    }

    fn detach(&self, tid: Tid) -> Result<()> {
        self.stopped(tid, |thread| thread.stopped = false)?;
        self.note(Done::Detached(tid));
        Ok(())
    }

    fn wait(&self, tid: Tid) -> Result<Stop> {
        let mut state = self.state();
        let thread = state.threads.get_mut(&tid).filter(|thread| !thread.stopped);
        let thread = thread.ok_or(Errno::ESRCH)?;
        let stop = thread.stops.pop_front().ok_or(Errno::ESRCH)?;
        thread.stopped = !matches!(stop, Stop::Exited(_) | Stop::Killed { .. });
        Ok(stop)
    }

    fn event_message(&self, tid: Tid) -> Result<u64> {
        self.stopped(tid, |thread| thread.message)
    }

    fn siginfo(&self, tid: Tid) -> Result<SigInfo> {
        let info = self.stopped(tid, |thread| thread.info)?.ok_or(Errno(EINVAL))?;
        Ok(SigInfo::fault(info.0, info.1, info.2))
    }

    fn set_siginfo(&self, tid: Tid, info: &SigInfo) -> Result<()> {
        self.stopped(tid, |thread| thread.info = Some((info.signo(), info.code(), info.address())))
    }

    fn sigmask(&self, tid: Tid) -> Result<u64> {
        self.stopped(tid, |thread| thread.mask)
    }

    fn set_sigmask(&self, tid: Tid, mask: u64) -> Result<()> {
        self.stopped(tid, |thread| thread.mask = mask)
    }

    fn rseq_area(&self, tid: Tid) -> Result<Option<u64>> {
        self.stopped(tid, |thread| thread.rseq)
    }

    fn loosen(&self, tid: Tid) -> Result<()> {
        self.stopped(tid, |_| ())
    }

    fn suspend_filter(&self, tid: Tid, _: bool) -> Result<()> {
        self.stopped(tid, |_| ())
    }

    fn set_user_dispatch(&self, tid: Tid, _: UserDispatchRequest) -> Result<()> {
        self.stopped(tid, |_| ())
    }

    fn kill(&self, pid: i32, signal: i32) -> Result<()> {
        self.note(Done::Killed(pid, signal));
        Ok(())
    }

    fn send(&self, _: i32, tid: Tid, signal: i32) -> Result<()> {
        self.note(Done::Sent(tid, signal));
        Ok(())
    }

    fn call(&self, tid: Tid, call: Call, _: &mut Vec<Stop>) -> Result<i64> {
        self.stopped(tid, |_| ())?;
        Ok(self.made(call.number, call.args))
    }

    /// What was to be mapped is.
    fn has_mapped(&self, _: Tid, _: Inode, _: &[Expected]) -> bool {
        true
    }

    /// Works off a list of system calls, as the routine that is run this way does.
    fn run(&self, tid: Tid, _: u64, list: u64, _: &mut Vec<Stop>) -> Result<()> {
        self.stopped(tid, |_| ())?;
        for at in (list..).step_by(BATCH_WORDS * 8) {
            let mut words = [0; BATCH_WORDS];
            for (word, place) in words.iter_mut().zip((at..).step_by(8)) {
                *word = read_u64(tid, place)?;
            }
            let [number, args @ ..] = words;
            if number == 0 {
                break;
            }
            write_u64(tid, at, self.made(number, args).cast_unsigned())?;
        }
        Ok(())
    }
}

const EINVAL: i32 = 22;
