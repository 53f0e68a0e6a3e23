//! Counting by libcpc, under the control of libpctx.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitStatus;
use std::sync::Arc;

use cpc::{Buf, Cpc, Set, SwitchRequests};
use pctx::{End, Error, Flow, Handlers, LwpId, Pctx, Pid};
use rustix::time::{ClockId, clock_gettime};

use super::options::Options;
use crate::failure::Failure;
use crate::output::Output;
use crate::rows::{Columns, Note, TrackRow};
use crate::sets::{Template, templates, title_pics};
use crate::signals::Interrupted;

/// Counts what the options ask for.
pub fn track(options: &Options) -> Result<(), Failure> {
    let cpc = Cpc::open().map_err(Failure::new)?;
    let templates = templates(&cpc, &options.specs)?;
    for template in &templates {
        template.try_out(&cpc)?;
    }
    let mut output = Output::open(options.output.as_deref())?;
    let pctx = match options.pid {
        Some(pid) => Pctx::capture(pid)?,
        None => Pctx::create(&options.command[0], &options.command)?,
    };
    let interrupted = Interrupted::answer()?;
    let columns = options.columns();
    if !options.no_title {
        output.write(&columns.track_title(title_pics(&templates)));
    }
    let mut tracker = Tracker {
        options,
        columns,
        cpc: &cpc,
        templates: &templates,
        output,
        interrupted,
        requests: SwitchRequests::of_this_process().ok(),
        started_ns: now_ns(),
        lwps: BTreeMap::new(),
        totals: Vec::new(),
        failed: false,
    };
    tracker.run(&pctx)?;
    pctx.copies().wait();
    if tracker.failed { Err(Failure::Reported) } else { tracker.output.finish() }
}

/// The clock of libcpc's time stamps.
fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// One thread's counters.
struct Counted {
    /// One set a specification; one of them is bound.
    sets: Vec<Set>,
    current: usize,
    /// The counts of the bound set, when last looked at and before.
    now: Buf,
    before: Buf,
    spare: Buf,
    /// True if they are still being counted.
    live: bool,
}

/// State of one process that is tracked.
struct Tracker<'a> {
    options: &'a Options,
    columns: Columns,
    cpc: &'a Cpc,
    templates: &'a [Template],
    output: Output,
    interrupted: Interrupted,
    /// Requests of the program to switch its counters.
    requests: Option<Arc<SwitchRequests>>,
    started_ns: i64,
    lwps: BTreeMap<LwpId, Counted>,
    /// One a specification: the counts of all threads so far.
    totals: Vec<Buf>,
    failed: bool,
}

impl Tracker<'_> {
    /// Counts the process until something ends it, and prints what is not printed yet.
    fn run(&mut self, pctx: &Pctx) -> Result<(), Failure> {
        self.forget()?;
        let period = self.options.period();
        match pctx.run(period, self.options.samples, self)? {
            // Tracking ends here, the program goes on.
            End::Exec => self.print_totals(pctx, LwpId::FIRST, "exec"),
            End::Terminated => self.finish(pctx),
            End::Handler => self.failed = true,
            // It has ended, or this was the last tick.
            _ => {}
        }
        Ok(())
    }

    /// Starts with nothing counted: a new process or a new program.
    fn forget(&mut self) -> Result<(), Failure> {
        self.lwps.clear();
        self.totals.clear();
        for template in self.templates {
            self.totals.push(template.set(self.cpc)?.create_buf());
        }
        Ok(())
    }

    /// A signal ended the run: what was counted so far is the total.
    fn finish(&mut self, pctx: &Pctx) {
        for lwp in self.lwps.keys().copied().collect::<Vec<_>>() {
            self.look(pctx, lwp);
        }
        self.print_totals(pctx, LwpId::FIRST, "exit");
    }

    fn fail(&mut self, pctx: &Pctx, what: &str, reason: &str) {
        let place = if self.options.debug { format!("{what}: ") } else { String::new() };
        lwp_terminal::say!("cputrack: {place}process {}: {reason}", pctx.pid());
        self.failed = true;
    }

    /// Starts counting thread `lwp`.
    fn begin(&mut self, pctx: &Pctx, lwp: LwpId) -> Result<(), Failure> {
        let sets = self.templates.iter().map(|template| template.set(self.cpc));
        let sets: Vec<Set> = sets.collect::<Result<_, _>>()?;
        let buf = |_| sets[0].create_buf();
        let [now, before, spare] = [0; 3].map(buf);
        let mut counted = Counted { sets, current: 0, now, before, spare, live: false };
        counted.bind(pctx, lwp, 0)?;
        self.lwps.insert(lwp, counted);
        Ok(())
    }

    /// Takes a sample of `lwp`'s bound set and adds what is new to the total. False if it cannot be
    /// had, which is reported.
    fn look(&mut self, pctx: &Pctx, lwp: LwpId) -> bool {
        let Some(counted) = self.lwps.get_mut(&lwp).filter(|counted| counted.live) else {
            return false;
        };
        if let Err(error) = counted.sample_into(&self.totals[counted.current]) {
            counted.live = false;
            let reason = format!("lwp {}: {}", lwp.get(), error.reason());
            self.fail(pctx, "sample", &reason);
            return false;
        }
        true
    }

    /// A row with the counts of `lwp`'s bound set: since the start of its binding, or, with
    /// `fresh`, since the sample before.
    fn print(&mut self, pctx: &Pctx, lwp: LwpId, tag: &str, fresh: bool) {
        let Some(counted) = self.lwps.get(&lwp) else {
            return;
        };
        let buf = if fresh { &counted.spare } else { &counted.now };
        let row = self.row(pctx.pid(), lwp, tag, counted.current, buf, counted.now.time_ns());
        self.output.write(&row);
    }

    fn print_totals(&mut self, pctx: &Pctx, lwp: LwpId, tag: &str) {
        let now = now_ns();
        for index in 0..self.totals.len() {
            let row = self.row(pctx.pid(), lwp, tag, index, &self.totals[index], now);
            self.output.write(&row);
        }
    }

    fn row(&self, pid: Pid, lwp: LwpId, tag: &str, set: usize, buf: &Buf, at_ns: i64) -> String {
        let counts: Vec<u64> = (0..buf.len()).map(|index| buf.get(index).unwrap_or(0)).collect();
        let note = match self.templates {
            [_] => Note::None,
            several => Note::Text(several[set].text()),
        };
        let counts = Some((buf.cycles(), &*counts));
        self.columns.track(TrackRow { counts, note, ..self.event_row(pid, lwp, tag, at_ns) })
    }

    fn event_row<'b>(&self, pid: Pid, lwp: LwpId, tag: &'b str, at_ns: i64) -> TrackRow<'b> {
        let seconds = at_ns.saturating_sub(self.started_ns) as f64 / 1e9;
        TrackRow { seconds, pid, lwp: lwp.get(), tag, counts: None, note: Note::None }
    }

    /// Goes on to the next set, where there are several.
    fn rotate(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        let Some(counted) = self.lwps.get_mut(&lwp) else {
            return Flow::Continue;
        };
        let next = (counted.current + 1) % counted.sets.len();
        if next == counted.current {
            return Flow::Continue;
        }
        // The kernel has nothing to object to giving counters back.
        let _ = counted.sets[counted.current].unbind();
        counted.live = false;
        match counted.bind(pctx, lwp, next) {
            Ok(()) => Flow::Continue,
            // It may have ended since: then that is what is reported next.
            Err(_) if pctx.tid(lwp).is_none_or(|tid| !exists(pctx.pid(), tid)) => Flow::Continue,
            Err(error) => {
                self.fail(pctx, "bind", &reason_of(&error));
                Flow::Stop
            }
        }
    }
}

impl Counted {
    /// Samples the bound set, and adds what is new to `total`.
    fn sample_into(&self, total: &Buf) -> Result<(), cpc::Error> {
        self.before.copy_from(&self.now)?;
        self.sets[self.current].sample(&self.now)?;
        self.spare.set_difference(&self.now, &self.before)?;
        total.set_sum(total, &self.spare)
    }

    /// Binds set `index` to the thread and looks at it for the first time.
    fn bind(&mut self, pctx: &Pctx, lwp: LwpId, index: usize) -> Result<(), Failure> {
        let tid =
            pctx.tid(lwp).ok_or_else(|| Failure::new(format!("lwp {} is gone", lwp.get())))?;
        let set = &self.sets[index];
        let failure =
            |error: cpc::Error| Failure::new(format!("lwp {}: {}", lwp.get(), error.reason()));
        set.bind_tid(tid).map_err(failure)?;
        [self.now, self.before, self.spare] = [0; 3].map(|_| set.create_buf());
        set.sample(&self.now).map_err(failure)?;
        // What was counted before the first look is the thread's too.
        self.before.zero();
        self.now.zero();
        (self.current, self.live) = (index, true);
        Ok(())
    }
}

fn exists(pid: Pid, tid: Pid) -> bool {
    std::fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}

fn reason_of(failure: &Failure) -> String {
    match failure {
        Failure::Usage(reason) | Failure::Runtime(reason) => reason.clone(),
        Failure::Reported => String::new(),
    }
}

impl Handlers for Tracker<'_> {
    fn init_lwp(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        if let Err(error) = self.begin(pctx, lwp) {
            self.fail(pctx, "init_lwp", &reason_of(&error));
            return Flow::Stop;
        }
        if self.options.verbose && self.look(pctx, lwp) {
            self.print(pctx, lwp, "init_lwp", false);
        }
        Flow::Continue
    }

    fn fini_lwp(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        let seen = self.look(pctx, lwp);
        if let Some(counted) = self.lwps.get_mut(&lwp) {
            let _ = counted.sets[counted.current].unbind();
            counted.live = false;
        }
        if seen && self.options.verbose {
            self.print(pctx, lwp, "fini_lwp", false);
        }
        Flow::Continue
    }

    fn lwp_create(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        if self.look(pctx, lwp) {
            self.print(pctx, lwp, "lwp_create", false);
        }
        Flow::Continue
    }

    fn lwp_exit(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        self.print(pctx, lwp, "lwp_exit", false);
        self.lwps.remove(&lwp);
        Flow::Continue
    }

    fn follows_exec(&self) -> bool {
        self.options.follow_exec
    }

    fn exec(&mut self, pctx: &Pctx, lwp: LwpId, command: &str) -> Flow {
        self.print_totals(pctx, lwp, "exec");
        let note = format!("'{command}'");
        let row = self.event_row(pctx.pid(), lwp, "exec", now_ns());
        let row = self.columns.track(TrackRow { note: Note::Text(&note), ..row });
        self.output.write(&row);
        match self.forget() {
            Ok(()) => Flow::Continue,
            Err(error) => {
                self.fail(pctx, "exec", &reason_of(&error));
                Flow::Stop
            }
        }
    }

    fn follows_forks(&self) -> bool {
        self.options.follow_fork
    }

    fn fork(&mut self, child: Pctx, parent: Pid, lwp: LwpId) {
        let note = child.pid().to_string();
        let row = self.event_row(parent, lwp, "fork", now_ns());
        let row = self.columns.track(TrackRow { note: Note::Text(&note), ..row });
        self.output.write(&row);
        self.failed = false;
        self.requests = SwitchRequests::of_this_process().ok();
        if let Err(error) = self.run(&child) {
            self.fail(&child, "fork", &reason_of(&error));
        }
        drop(child);
    }

    fn not_followed(&mut self, pctx: &Pctx, child: Pid, error: &Error) {
        self.fail(pctx, "fork", &format!("child {child} is not followed: {error}"));
    }

    fn exit(&mut self, pctx: &Pctx, lwp: LwpId, _: ExitStatus) {
        self.print_totals(pctx, lwp, "exit");
    }

    fn is_over(&self) -> bool {
        self.interrupted.get() || self.output.is_broken()
    }

    fn attention(&self) -> Option<BorrowedFd<'_>> {
        self.requests.as_ref().map(|requests| requests.as_fd())
    }

    fn attend(&mut self) {
        if let Some(requests) = &self.requests {
            requests.answer();
        }
    }

    fn tick(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        if !self.look(pctx, lwp) {
            return Flow::Continue;
        }
        self.print(pctx, lwp, "tick", true);
        self.rotate(pctx, lwp)
    }
}
