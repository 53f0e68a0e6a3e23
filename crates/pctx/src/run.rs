//! Letting the process run and telling what happens to it.

use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use lwp_process::nested_ptrace::{self, Event};
use lwp_process::{Errno, Stop, Tracee, spawn, sys};

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

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The process has ended.
    Exited(ExitStatus),
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
    /// not followed ([`Error::Threads`]) unless [`Copies::allow_with_threads`] allows it.
    ///
    /// [`Copies::allow_with_threads`]: crate::Copies::allow_with_threads
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
    fn exit(&mut self, pctx: &Pctx, lwp: LwpId, status: ExitStatus) {}

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

/// A run: the process, and whoever hears of its events.
pub(crate) struct Run<'a> {
    pctx: &'a Pctx,
    handlers: &'a mut dyn Handlers,
}

impl<'a> Run<'a> {
    pub(crate) fn new(pctx: &'a Pctx, handlers: &'a mut dyn Handlers) -> Self {
        Self { pctx, handlers }
    }

    /// Runs the process with ticks, if there is a period; see [`Pctx::run`].
    pub(crate) fn execute(&mut self, period: Option<Duration>, ticks: Option<u32>) -> End {
        let now = Instant::now();
        let ticks = period.filter(|period| !period.is_zero()).map(|period| Ticks {
            period,
            next: now + period,
            left: ticks.filter(|ticks| *ticks != 0),
        });
        let end = self.supervise(ticks);
        if end == End::Handler {
            // Its wish is the last that is heard.
            let _ = Run::new(self.pctx, &mut Ignore).stop_all(LONGEST_WAIT);
        }
        end
    }

    fn supervise(&mut self, mut ticks: Option<Ticks>) -> End {
        for lwp in self.pctx.lwps() {
            if self.handlers.init_lwp(self.pctx, lwp) == Flow::Stop {
                return End::Handler;
            }
        }
        loop {
            self.resume();
            sys::event_clear(&self.pctx.wake.fd);
            if let Some(end) = self.dispatch() {
                return end;
            }
            self.handlers.attend();
            if self.pctx.wake.terminate.swap(false, Ordering::Relaxed) || self.handlers.is_over() {
                return self.stop_all(LONGEST_WAIT).unwrap_or(End::Terminated);
            }
            let now = Instant::now();
            let mut wait = LONGEST_WAIT;
            if let Some(ticks) = &mut ticks {
                if now >= ticks.next {
                    for lwp in self.pctx.lwps() {
                        if self.handlers.tick(self.pctx, lwp) == Flow::Stop {
                            return End::Handler;
                        }
                    }
                    if !ticks.advance(Instant::now()) {
                        return self.stop_all(LONGEST_WAIT).unwrap_or(End::Ticks);
                    }
                }
                wait = wait.min(ticks.next.saturating_duration_since(Instant::now()));
            }
            if !self.any_stopped() {
                sys::wait_either_readable(
                    &self.pctx.wake.fd,
                    self.handlers.attention(),
                    Some(wait),
                );
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
                let _ = self.pctx.means.go(lwp.tid, signal);
                self.pctx.lwps.borrow_mut().set(lwp.tid, State::Running);
            }
        }
    }

    /// Every thread ptrace knows, as it is now.
    fn threads(&self) -> Vec<Lwp> {
        self.pctx.lwps.borrow().all()
    }

    /// Takes every status there is.
    fn dispatch(&mut self) -> Option<End> {
        match self.pctx.means {
            Means::Ptrace => self.dispatch_stops(),
            Means::Host => self.dispatch_events(),
        }
    }

    /// Takes every event there is.
    fn dispatch_events(&mut self) -> Option<End> {
        loop {
            match nested_ptrace::next(self.pctx.pid) {
                Ok(Some(event)) => {
                    if let Some(end) = self.host_event(event) {
                        return Some(end);
                    }
                }
                Ok(None) => return None,
                // The run is over for it.
                Err(_) => return self.ended(self.pctx.pid, ExitStatus::default()),
            }
        }
    }

    fn host_event(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Thread(tid) => {
                let lwp = self.pctx.lwps.borrow_mut().add(tid, State::Stopped(0));
                let started = self.handlers.init_lwp(self.pctx, lwp) == Flow::Stop
                    || self.handlers.lwp_create(self.pctx, lwp) == Flow::Stop;
                started.then_some(End::Handler)
            }
            Event::Process { child, maker } => {
                let maker = self.pctx.lwps.borrow().get(maker).map_or(LwpId::FIRST, |lwp| lwp.id);
                self.made(child, maker);
                None
            }
            Event::Exec => self.executed(),
            Event::Exiting { tid, status, alone } => self.leaving(tid, status, alone),
            Event::Gone { tid, status } => {
                if tid == self.pctx.pid {
                    // A child of this process is waited for, as a tracer would have.
                    let _ = sys::poll_one(tid);
                }
                self.ended(tid, ExitStatus::from_raw(status))
            }
            Event::Stopped(tid) => {
                self.pctx.lwps.borrow_mut().set(tid, State::Stopped(0));
                None
            }
            Event::Standing => None,
            Event::Left => self.ended(self.pctx.pid, ExitStatus::default()),
        }
    }

    fn dispatch_stops(&mut self) -> Option<End> {
        loop {
            let mut progress = false;
            for lwp in self.threads() {
                match sys::poll_one(lwp.tid) {
                    Ok(None) => {}
                    Ok(Some(status)) => {
                        progress = true;
                        if let Some(end) = self.event(lwp.tid, status) {
                            return Some(end);
                        }
                    }
                    // It executed another program and is the leader now, whose exec event is next.
                    Err(_) if lwp.tid != self.pctx.pid => {}
                    Err(_) => self.pctx.lwps.borrow_mut().remove(lwp.tid),
                }
            }
            if self.pctx.lwps.borrow().get(self.pctx.pid).is_none() {
                // Somebody else has waited for it.
                self.pctx.gone.set(true);
                return Some(End::Exited(ExitStatus::default()));
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
        for tid in spawn::threads_of(self.pctx.pid).unwrap_or_default() {
            if self.pctx.lwps.borrow().get(tid).is_none() && spawn::is_taken(tid) {
                self.pctx.lwps.borrow_mut().add(tid, State::New);
                found = true;
            }
        }
        found
    }

    fn event(&mut self, tid: Pid, status: i32) -> Option<End> {
        let lwp = self.pctx.lwps.borrow().get(tid)?;
        let stop = Stop::from_status(status);
        if let Stop::Signal(_) | Stop::Interrupted | Stop::Group(_) = stop {
            Tracee(tid).leave_call_to_kernel(stop);
        }
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                return self.ended(tid, ExitStatus::from_raw(status));
            }
            Stop::Exiting => return self.exiting(tid),
            Stop::Exec => return self.executed(),
            Stop::Child => {
                self.pctx.lwps.borrow_mut().set(tid, State::Stopped(0));
                if let Ok(new) = sys::event_message(tid) {
                    self.born(new as Pid, lwp.id);
                }
            }
            // It stays stopped where nobody controls it.
            Stop::Group(_) if self.pctx.leaving.get() => {
                self.pctx.lwps.borrow_mut().set(tid, State::Stopped(0));
            }
            Stop::Group(_) => {
                let _ = sys::listen(tid);
                self.pctx.lwps.borrow_mut().set(tid, State::Listening);
            }
            Stop::Signal(signal) => self.pctx.lwps.borrow_mut().set(tid, State::Stopped(signal)),
            Stop::Interrupted | Stop::Syscall | Stop::Other(_) => {
                self.pctx.lwps.borrow_mut().set(tid, State::Stopped(0));
                if lwp.state == State::New {
                    let started = self.handlers.init_lwp(self.pctx, lwp.id) == Flow::Stop
                        || self.handlers.lwp_create(self.pctx, lwp.id) == Flow::Stop;
                    return started.then_some(End::Handler);
                }
            }
        }
        None
    }

    /// A thread or a process was made by `maker`.
    fn born(&mut self, new: Pid, maker: LwpId) {
        if child::is_thread(self.pctx.pid, new) {
            let mut lwps = self.pctx.lwps.borrow_mut();
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
        self.made(new, maker);
    }

    /// Process `new`, which `maker` has made, stands still for the first time.
    fn made(&mut self, new: Pid, maker: LwpId) {
        if !self.handlers.follows_forks() {
            self.pctx.means.let_new_go(new);
            return;
        }
        let followed = self
            .pctx
            .copies
            .may_be_made()
            .and_then(|()| child::follow(self.pctx.means, new, self.pctx.created.get()));
        match followed {
            Ok(Followed::Original(copy)) => self.pctx.copies.add(copy),
            Ok(Followed::Copy(child)) => {
                // The parent is the original's to control. Nothing here may touch it again.
                self.pctx.gone.set(true);
                self.pctx.copies.forget();
                child.copies.inherit(&self.pctx.copies);
                self.handlers.fork(*child, self.pctx.pid, maker);
                sys::exit_controller(0);
            }
            Err(error) => {
                self.pctx.means.let_new_go(new);
                self.handlers.not_followed(self.pctx, new, &error);
            }
        }
    }

    /// Another program was loaded, and the thread that asked for it is the only one left.
    fn executed(&mut self) -> Option<End> {
        for lwp in self.pctx.lwps() {
            if self.handlers.fini_lwp(self.pctx, lwp) == Flow::Stop {
                return Some(End::Handler);
            }
        }
        *self.pctx.lwps.borrow_mut() = Lwps::stopped(&[self.pctx.pid]);
        if !self.handlers.follows_exec() {
            return Some(End::Exec);
        }
        let (first, command) = (LwpId::FIRST, child::command_line(self.pctx.pid));
        let stop = self.handlers.exec(self.pctx, first, &command) == Flow::Stop
            || self.handlers.init_lwp(self.pctx, first) == Flow::Stop;
        stop.then_some(End::Handler)
    }

    /// A thread is about to end; what it counted can still be read.
    fn exiting(&mut self, tid: Pid) -> Option<End> {
        let status = sys::event_message(tid).unwrap_or(0) as i32;
        // exit(2) ends a thread; exit_group(2), a signal or another thread's exec end them all.
        let alone = Tracee(tid).regs().is_ok_and(|regs| regs.0.orig_rax == libc::SYS_exit as u64);
        self.leaving(tid, status, alone)
    }

    /// Thread `tid` is about to end with `status`, alone or with all others.
    fn leaving(&mut self, tid: Pid, status: i32, alone: bool) -> Option<End> {
        if alone && tid == self.pctx.pid {
            self.pctx.leader_status.set(Some(status));
        }
        let status = if alone { self.pctx.leader_status.get().unwrap_or(status) } else { status };
        let stop = self.last_words(tid, alone, ExitStatus::from_raw(status));
        let _ = self.pctx.means.go(tid, 0);
        stop
    }

    /// Calls what is to be called when thread `tid` ends; afterwards it is [`State::Exiting`].
    fn last_words(&mut self, tid: Pid, alone: bool, status: ExitStatus) -> Option<End> {
        let lwp = self.pctx.lwps.borrow().get(tid)?;
        let started = lwp.state != State::New;
        let mut flow = Flow::Continue;
        if started {
            flow = self.handlers.fini_lwp(self.pctx, lwp.id);
        }
        self.pctx.lwps.borrow_mut().set(tid, State::Exiting);
        if !self.pctx.lwps.borrow().any_alive() {
            self.handlers.exit(self.pctx, lwp.id, status);
        } else if alone && started && flow == Flow::Continue {
            flow = self.handlers.lwp_exit(self.pctx, lwp.id);
        }
        (flow == Flow::Stop).then_some(End::Handler)
    }

    /// A thread is gone.
    fn ended(&mut self, tid: Pid, status: ExitStatus) -> Option<End> {
        let mut end = None;
        if tid == self.pctx.pid {
            // The leader's status comes last: threads that are still listed vanished unseen.
            let others = self.threads().into_iter();
            for lwp in others.filter(|lwp| lwp.tid != tid && lwp.state != State::Exiting) {
                end = end.or(self.last_words(lwp.tid, false, status));
            }
        }
        let silent =
            self.pctx.lwps.borrow().get(tid).is_some_and(|lwp| lwp.state != State::Exiting);
        if silent {
            // SIGKILL need not pass the exit event.
            end = self.last_words(tid, false, status);
        }
        self.pctx.lwps.borrow_mut().remove(tid);
        if tid == self.pctx.pid {
            self.pctx.gone.set(true);
            return Some(End::Exited(status));
        }
        end
    }

    /// Stops every thread. One that sleeps beyond reach, as in vfork, is left to stop later.
    fn stop_all(&mut self, patience: Duration) -> Option<End> {
        let deadline = Instant::now() + patience;
        for lwp in self.threads() {
            if matches!(lwp.state, State::Running | State::Listening) {
                let _ = self.pctx.means.stop(lwp.tid);
            }
        }
        loop {
            sys::event_clear(&self.pctx.wake.fd);
            if let Some(end) = self.dispatch() {
                return Some(end);
            }
            let all = self.threads();
            let moving = all.iter().any(|lwp| match lwp.state {
                State::Running => !is_unreachable(self.pctx.pid, lwp.tid),
                State::New => true,
                State::Listening => self.pctx.leaving.get(),
                _ => false,
            });
            if !moving || Instant::now() >= deadline {
                return None;
            }
            sys::wait_readable(&self.pctx.wake.fd, Some(Duration::from_millis(10)));
        }
    }

    fn any_running(&self) -> bool {
        let all = self.threads();
        all.iter().any(|lwp| matches!(lwp.state, State::Running | State::New))
    }
}

/// Detaches from every thread.
pub(crate) fn let_go(pctx: &Pctx) {
    if pctx.means == Means::Host {
        let _ = nested_ptrace::release(pctx.pid);
        return;
    }
    pctx.leaving.set(true);
    let mut ignore = Ignore;
    let mut run = Run::new(pctx, &mut ignore);
    let _ = run.stop_all(PATIENCE);
    // A thread in vfork stops once its child is on its way; detaching takes a stop.
    let deadline = Instant::now() + PATIENCE;
    while !pctx.is_gone() && run.any_running() && Instant::now() < deadline {
        sys::wait_readable(&pctx.wake.fd, Some(Duration::from_millis(10)));
        if run.dispatch().is_some() {
            break;
        }
    }
    for lwp in run.threads() {
        let signal = match lwp.state {
            State::Stopped(signal) => signal,
            _ => 0,
        };
        // Where it is gone there is nothing to let go.
        let _: Result<(), Errno> = sys::detach(lwp.tid, signal);
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
}
