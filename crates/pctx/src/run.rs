//! Letting the process run and telling what happens to it.

use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use lwp_process::{Errno, Stop, Tracee, nested_ptrace, spawn, sys};

use crate::child::{self, Followed};
use crate::host::Means;
use crate::lwps::{Lwp, Lwps, State};
use crate::{Error, LwpId, Pctx, Pid};
use std::sync::atomic::Ordering;

/// A handler's decision whether the run continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// End the run: [`End::Handler`].
    Stop,
}

/// A wait status, as of wait(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

impl Status {
    /// The exit code, if the process exited.
    #[must_use]
    pub fn code(self) -> Option<i32> {
        libc::WIFEXITED(self.0).then(|| libc::WEXITSTATUS(self.0))
    }

    /// The signal, if one killed the process.
    #[must_use]
    pub fn signal(self) -> Option<i32> {
        libc::WIFSIGNALED(self.0).then(|| libc::WTERMSIG(self.0))
    }
}

impl From<Status> for ExitStatus {
    fn from(status: Status) -> Self {
        Self::from_raw(status.0)
    }
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process has ended.
    Exited(Status),
    /// The requested number of ticks has passed; the process is stopped.
    Ticks,
    /// [`crate::Terminator::terminate`] was called; the process is stopped.
    Terminated,
    /// The process executed another program, and [`Handlers::follows_exec`] returned false; the
    /// process is stopped before the program's first instruction.
    Exec,
    /// A handler returned [`Flow::Stop`]; the process is stopped.
    Handler,
}

/// Handlers of events. Every method has a default that does nothing and lets the run continue.
#[allow(unused_variables, reason = "the defaults ignore what happened")]
pub trait Handlers {
    /// LWP `lwp` exists: it is before its first instruction, or the run begins.
    fn init_lwp(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        Flow::Continue
    }

    /// LWP `lwp` will execute nothing more of this program.
    fn fini_lwp(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        Flow::Continue
    }

    /// LWP `lwp` was created by another thread.
    fn lwp_create(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        Flow::Continue
    }

    /// LWP `lwp` ends, and other threads continue.
    fn lwp_exit(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        Flow::Continue
    }

    /// Returns whether the run continues when the process executes another program.
    fn follows_exec(&self) -> bool {
        false
    }

    /// The process executed another program; `command` is its command line. Its only thread is LWP
    /// 1.
    fn exec(&mut self, pctx: &Pctx, lwp: LwpId, command: &str) -> Flow {
        Flow::Continue
    }

    /// Returns whether to follow child processes. Children that are not followed run untraced.
    ///
    /// Following a child copies this process. While this process has other threads, children are
    /// not followed ([`Error::Threads`]) unless [`Pctx::follow_forks_from_threads`] allows it.
    fn follows_forks(&self) -> bool {
        false
    }

    /// LWP `lwp` of process `parent` created the process that `child` controls.
    ///
    /// This is called in a *copy* of this process that exists only to control the child, so it may
    /// run `child` to its end. When it returns, the copy exits, and the child continues untraced.
    /// The copy exits without running destructors or functions registered with atexit(3).
    fn fork(&mut self, child: Pctx, parent: Pid, lwp: LwpId) {}

    /// Process `child` could not be followed, and runs untraced.
    fn not_followed(&mut self, pctx: &Pctx, child: Pid, error: &Error) {}

    /// The process ends; LWP `lwp` is its last thread.
    fn exit(&mut self, pctx: &Pctx, lwp: LwpId, status: Status) {}

    /// Returns whether the run should end, as with [`crate::Terminator`]. This is called after
    /// every event, including signals to this process, and at least once a second.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns a descriptor that the run waits for in addition to its own events. When it is
    /// readable, the run calls [`Handlers::attend`].
    fn attention(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called when the descriptor of [`Handlers::attention`] may be readable.
    fn attend(&mut self) {}

    /// Another period has passed. The process keeps running during the call.
    fn tick(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        Flow::Continue
    }
}

/// Handlers that do nothing.
struct Ignore;

impl Handlers for Ignore {}

/// The time that a thread that is being let go may take to stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// A wait is never longer, whatever became of its wake-up.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The ticks of a run.
struct Ticks {
    period: Duration,
    next: Instant,
    left: Option<u32>,
}

impl Ticks {
    /// Sets the next deadline behind `now`. Deadlines that were missed use up ticks, save the last.
    /// False if that was the last.
    fn advance(&mut self, now: Instant) -> bool {
        let late = now.saturating_duration_since(self.next).as_nanos();
        let missed = u32::try_from(late / self.period.as_nanos().max(1)).unwrap_or(u32::MAX);
        self.next += self.period.saturating_mul(missed.saturating_add(1));
        let Some(left) = &mut self.left else {
            return true;
        };
        *left -= 1;
        *left -= missed.min(left.saturating_sub(1));
        *left != 0
    }
}

impl Pctx {
    /// Lets the process run until something ends the run; see [`End`]. If there is a `period`, it
    /// calls [`Handlers::tick`] for every thread once per period, and the run ends after `ticks`
    /// periods if that is given.
    ///
    /// The run changes SIGCHLD's disposition, and restores it at its end.
    ///
    /// # Errors
    ///
    /// [`Error::NoProcess`] if the process has ended, and [`Error::System`] if the system refuses
    /// to report its events.
    pub fn run(
        &self,
        period: Option<Duration>,
        ticks: Option<u32>,
        handlers: &mut dyn Handlers,
    ) -> Result<End, Error> {
        if self.is_gone() {
            return Err(Error::NoProcess(self.pid));
        }
        let before = sys::ChildDisposition::now();
        sys::signal_child_events(&self.wake.fd).map_err(Error::System)?;
        let now = Instant::now();
        let ticks = period.filter(|period| !period.is_zero()).map(|period| Ticks {
            period,
            next: now + period,
            left: ticks.filter(|ticks| *ticks != 0),
        });
        let end = self.supervise(ticks, handlers);
        if end == End::Handler {
            // Its wish is the last that is heard.
            let _ = self.stop_all(&mut Ignore, LONGEST_WAIT);
        }
        sys::forget_child_events();
        before.restore();
        Ok(end)
    }

    fn supervise(&self, mut ticks: Option<Ticks>, handlers: &mut dyn Handlers) -> End {
        for lwp in self.lwps() {
            if handlers.init_lwp(self, lwp) == Flow::Stop {
                return End::Handler;
            }
        }
        loop {
            self.resume();
            sys::event_clear(&self.wake.fd);
            if let Some(end) = self.dispatch(handlers) {
                return end;
            }
            handlers.attend();
            if self.wake.terminate.swap(false, Ordering::Relaxed) || handlers.is_over() {
                return self.stop_all(handlers, LONGEST_WAIT).unwrap_or(End::Terminated);
            }
            let now = Instant::now();
            let mut wait = LONGEST_WAIT;
            if let Some(ticks) = &mut ticks {
                if now >= ticks.next {
                    for lwp in self.lwps() {
                        if handlers.tick(self, lwp) == Flow::Stop {
                            return End::Handler;
                        }
                    }
                    if !ticks.advance(Instant::now()) {
                        return self.stop_all(handlers, LONGEST_WAIT).unwrap_or(End::Ticks);
                    }
                }
                wait = wait.min(ticks.next.saturating_duration_since(Instant::now()));
            }
            if !self.any_stopped() {
                sys::wait_either_readable(&self.wake.fd, handlers.attention(), Some(wait));
            }
        }
    }

    fn any_stopped(&self) -> bool {
        self.threads().iter().any(|lwp| matches!(lwp.state, State::Stopped(_)))
    }

    /// Continues every thread that is stopped.
    fn resume(&self) {
        for lwp in self.threads() {
            if let State::Stopped(signal) = lwp.state {
                // Where that fails it was killed meanwhile, and its status comes by itself.
                let _ = self.means.go(lwp.tid, signal);
                self.lwps.borrow_mut().set(lwp.tid, State::Running);
            }
        }
    }

    /// Every thread ptrace knows, as it is now.
    fn threads(&self) -> Vec<Lwp> {
        self.lwps.borrow().all()
    }

    /// Takes every status there is.
    fn dispatch(&self, handlers: &mut dyn Handlers) -> Option<End> {
        match self.means {
            Means::Ptrace => self.dispatch_stops(handlers),
            Means::Host => self.dispatch_events(handlers),
        }
    }

    fn dispatch_stops(&self, handlers: &mut dyn Handlers) -> Option<End> {
        loop {
            let mut progress = false;
            for lwp in self.threads() {
                match sys::poll_one(lwp.tid) {
                    Ok(None) => {}
                    Ok(Some(status)) => {
                        progress = true;
                        if let Some(end) = self.event(lwp.tid, status, handlers) {
                            return Some(end);
                        }
                    }
                    // It executed another program and is the leader now, whose exec event is next.
                    Err(_) if lwp.tid != self.pid => {}
                    Err(_) => self.lwps.borrow_mut().remove(lwp.tid),
                }
            }
            if self.lwps.borrow().get(self.pid).is_none() {
                // Somebody else has waited for it.
                self.gone.set(true);
                return Some(End::Exited(Status(0)));
            }
            if !progress && !self.find_unreported() {
                return None;
            }
        }
    }

    /// Adds threads that their makers have not reported: one that is killed meanwhile never does,
    /// and the new one would stand still for ever. Returns whether there are any.
    fn find_unreported(&self) -> bool {
        let mut found = false;
        for tid in spawn::threads_of(self.pid).unwrap_or_default() {
            if self.lwps.borrow().get(tid).is_none() && spawn::is_taken(tid) {
                self.lwps.borrow_mut().add(tid, State::New);
                found = true;
            }
        }
        found
    }

    fn event(&self, tid: Pid, status: i32, handlers: &mut dyn Handlers) -> Option<End> {
        let lwp = self.lwps.borrow().get(tid)?;
        let stop = Stop::from_status(status);
        if let Stop::Signal(_) | Stop::Interrupted | Stop::Group(_) = stop {
            Tracee(tid).leave_call_to_kernel(stop);
        }
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                return self.ended(tid, Status(status), handlers);
            }
            Stop::Exiting => return self.exiting(tid, handlers),
            Stop::Exec => return self.executed(handlers),
            Stop::Child => {
                self.lwps.borrow_mut().set(tid, State::Stopped(0));
                if let Ok(new) = sys::event_message(tid) {
                    self.born(new as Pid, lwp.id, handlers);
                }
            }
            // It stays stopped where nobody controls it.
            Stop::Group(_) if self.leaving.get() => {
                self.lwps.borrow_mut().set(tid, State::Stopped(0));
            }
            Stop::Group(_) => {
                let _ = sys::listen(tid);
                self.lwps.borrow_mut().set(tid, State::Listening);
            }
            Stop::Signal(signal) => self.lwps.borrow_mut().set(tid, State::Stopped(signal)),
            Stop::Interrupted | Stop::Syscall | Stop::Other(_) => {
                self.lwps.borrow_mut().set(tid, State::Stopped(0));
                if lwp.state == State::New {
                    let started = handlers.init_lwp(self, lwp.id) == Flow::Stop
                        || handlers.lwp_create(self, lwp.id) == Flow::Stop;
                    return started.then_some(End::Handler);
                }
            }
        }
        None
    }

    /// A thread or a process was made by `maker`.
    fn born(&self, new: Pid, maker: LwpId, handlers: &mut dyn Handlers) {
        if child::is_thread(self.pid, new) {
            let mut lwps = self.lwps.borrow_mut();
            if lwps.get(new).is_none() {
                lwps.add(new, State::New);
            }
            return;
        }
        let tracee = Tracee(new);
        loop {
            match tracee.wait() {
                Ok(Stop::Interrupted) => break,
                Ok(Stop::Exited(_) | Stop::Killed { .. }) | Err(_) => return,
                Ok(_) => {
                    let _ = tracee.cont(0);
                }
            }
        }
        self.made(new, maker, handlers);
    }

    /// Process `new`, which `maker` has made, stands still for the first time.
    pub(crate) fn made(&self, new: Pid, maker: LwpId, handlers: &mut dyn Handlers) {
        if !handlers.follows_forks() {
            self.means.let_new_go(new);
            return;
        }
        let followed = self
            .may_copy_itself()
            .and_then(|()| child::follow(self.means, new, self.created.get()));
        match followed {
            Ok(Followed::Original(copy)) => self.copies.borrow_mut().push(copy),
            Ok(Followed::Copy(child)) => {
                // The parent is the original's to control. Nothing here may touch it again.
                self.gone.set(true);
                self.copies.borrow_mut().clear();
                child.follows_from_threads.set(self.follows_from_threads.get());
                handlers.fork(*child, self.pid, maker);
                sys::exit_controller(0);
            }
            Err(error) => {
                self.means.let_new_go(new);
                handlers.not_followed(self, new, &error);
            }
        }
    }

    /// Another program was loaded, and the thread that asked for it is the only one left.
    pub(crate) fn executed(&self, handlers: &mut dyn Handlers) -> Option<End> {
        for lwp in self.lwps() {
            if handlers.fini_lwp(self, lwp) == Flow::Stop {
                return Some(End::Handler);
            }
        }
        *self.lwps.borrow_mut() = Lwps::stopped(&[self.pid]);
        if !handlers.follows_exec() {
            return Some(End::Exec);
        }
        let (first, command) = (LwpId(1), child::command_line(self.pid));
        let stop = handlers.exec(self, first, &command) == Flow::Stop
            || handlers.init_lwp(self, first) == Flow::Stop;
        stop.then_some(End::Handler)
    }

    /// A thread is about to end; what it counted can still be read.
    fn exiting(&self, tid: Pid, handlers: &mut dyn Handlers) -> Option<End> {
        let status = sys::event_message(tid).unwrap_or(0) as i32;
        // exit(2) ends a thread; exit_group(2), a signal or another thread's exec end them all.
        let alone = Tracee(tid).regs().is_ok_and(|regs| regs.0.orig_rax == libc::SYS_exit as u64);
        self.leaving(tid, status, alone, handlers)
    }

    /// Thread `tid` is about to end with `status`, alone or with all others.
    pub(crate) fn leaving(
        &self,
        tid: Pid,
        status: i32,
        alone: bool,
        handlers: &mut dyn Handlers,
    ) -> Option<End> {
        if alone && tid == self.pid {
            self.leader_status.set(Some(status));
        }
        let status = if alone { self.leader_status.get().unwrap_or(status) } else { status };
        let stop = self.last_words(tid, alone, Status(status), handlers);
        let _ = self.means.go(tid, 0);
        stop
    }

    /// Calls what is to be called when thread `tid` ends; afterwards it is [`State::Exiting`].
    fn last_words(
        &self,
        tid: Pid,
        alone: bool,
        status: Status,
        handlers: &mut dyn Handlers,
    ) -> Option<End> {
        let lwp = self.lwps.borrow().get(tid)?;
        let started = lwp.state != State::New;
        let mut flow = Flow::Continue;
        if started {
            flow = handlers.fini_lwp(self, lwp.id);
        }
        self.lwps.borrow_mut().set(tid, State::Exiting);
        if !self.lwps.borrow().any_alive() {
            handlers.exit(self, lwp.id, status);
        } else if alone && started && flow == Flow::Continue {
            flow = handlers.lwp_exit(self, lwp.id);
        }
        (flow == Flow::Stop).then_some(End::Handler)
    }

    /// A thread is gone.
    pub(crate) fn ended(
        &self,
        tid: Pid,
        status: Status,
        handlers: &mut dyn Handlers,
    ) -> Option<End> {
        let mut end = None;
        if tid == self.pid {
            // The leader's status comes last: threads that are still listed vanished unseen.
            let others = self.threads().into_iter();
            for lwp in others.filter(|lwp| lwp.tid != tid && lwp.state != State::Exiting) {
                end = end.or(self.last_words(lwp.tid, false, status, handlers));
            }
        }
        let silent = self.lwps.borrow().get(tid).is_some_and(|lwp| lwp.state != State::Exiting);
        if silent {
            // SIGKILL need not pass the exit event.
            end = self.last_words(tid, false, status, handlers);
        }
        self.lwps.borrow_mut().remove(tid);
        if tid == self.pid {
            self.gone.set(true);
            return Some(End::Exited(status));
        }
        end
    }

    /// Stops every thread. One that sleeps beyond reach, as in vfork, is left to stop later.
    fn stop_all(&self, handlers: &mut dyn Handlers, patience: Duration) -> Option<End> {
        let deadline = Instant::now() + patience;
        for lwp in self.threads() {
            if matches!(lwp.state, State::Running | State::Listening) {
                let _ = self.means.stop(lwp.tid);
            }
        }
        loop {
            sys::event_clear(&self.wake.fd);
            if let Some(end) = self.dispatch(handlers) {
                return Some(end);
            }
            let all = self.threads();
            let moving = all.iter().any(|lwp| match lwp.state {
                State::Running => !is_unreachable(self.pid, lwp.tid),
                State::New => true,
                State::Listening => self.leaving.get(),
                _ => false,
            });
            if !moving || Instant::now() >= deadline {
                return None;
            }
            sys::wait_readable(&self.wake.fd, Some(Duration::from_millis(10)));
        }
    }

    /// Detaches from every thread.
    pub(crate) fn let_go(&self) {
        if self.means == Means::Host {
            let _ = nested_ptrace::release(self.pid);
            return;
        }
        self.leaving.set(true);
        let _ = self.stop_all(&mut Ignore, PATIENCE);
        // A thread in vfork stops once its child is on its way; detaching takes a stop.
        let deadline = Instant::now() + PATIENCE;
        while !self.is_gone() && self.any_running() && Instant::now() < deadline {
            sys::wait_readable(&self.wake.fd, Some(Duration::from_millis(10)));
            if self.dispatch(&mut Ignore).is_some() {
                break;
            }
        }
        for lwp in self.threads() {
            let signal = match lwp.state {
                State::Stopped(signal) => signal,
                _ => 0,
            };
            // Where it is gone there is nothing to let go.
            let _: Result<(), Errno> = sys::detach(lwp.tid, signal);
        }
    }

    fn any_running(&self) -> bool {
        let all = self.threads();
        all.iter().any(|lwp| matches!(lwp.state, State::Running | State::New))
    }
}

/// Returns whether thread `tid` sleeps where no interruption reaches it.
///
/// Spec: proc_pid_stat(5), field 3, which follows the name in parentheses.
fn is_unreachable(pid: Pid, tid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_deadlines_are_skipped_and_use_up_ticks() {
        let start = Instant::now();
        let period = Duration::from_millis(10);
        let mut ticks = Ticks { period, next: start + period, left: Some(5) };
        assert!(ticks.advance(start + Duration::from_millis(10)));
        assert_eq!((ticks.next, ticks.left), (start + period * 2, Some(4)));
        // 20 and 30 have passed: the second is skipped.
        assert!(ticks.advance(start + Duration::from_millis(35)));
        assert_eq!((ticks.next, ticks.left), (start + period * 4, Some(2)));
        // Ever so late: the last tick is still made.
        assert!(ticks.advance(start + Duration::from_secs(1)));
        assert_eq!(ticks.left, Some(1));
        assert!(!ticks.advance(start + Duration::from_secs(2)));
    }

    #[test]
    fn statuses_are_read() {
        assert_eq!((Status(7 << 8).code(), Status(7 << 8).signal()), (Some(7), None));
        assert_eq!((Status(9).code(), Status(9).signal()), (None, Some(9)));
    }
}
