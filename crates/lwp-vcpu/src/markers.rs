//! Markers: the program, or the user who runs it, decides which part is counted.
//!
//! The program executes [`Marker`]s, at which it asks the host. The user names functions
//! ([`crate::CountedConfig::within`]): the host executes their first instructions, and keeps their
//! return addresses out of the indirect table as long as a thread has yet to return there, so that
//! the thread asks the host. In either case, the host reads the counters while the thread stands
//! still and they are exact.

use lwp_code::family::Family;
use lwp_code::space::Space;
use lwp_dbt::marker::Marker;
use lwp_dbt::{AppPc, EventDeltas, Slot};
use lwp_mailbox::contexts::Sum;
use lwp_process::regs::Regs;
use lwp_process::{Tid, memory};
use lwp_run::config::{Markers, Plan};

use crate::machine::{Account, Counting, Machine, Thread};
use crate::profile::Profiler;
use crate::server::Answer;
use crate::server::{Backlog, remove_entries};

/// Codes of our own markers.
mod own {
    pub const START: u8 = 1;
    pub const STOP: u8 = 2;
    pub const READ: u8 = 3;
    pub const BEGIN: u8 = 4;
    pub const SINCE: u8 = 5;
}

/// Valgrind's requests, by the numbers in its headers that programs include.
mod request {
    pub const RUNNING_ON_VALGRIND: u64 = 0x1001;
    const CALLGRIND: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
    pub const DUMP_STATS: u64 = CALLGRIND;
    pub const ZERO_STATS: u64 = CALLGRIND + 1;
    pub const TOGGLE_COLLECT: u64 = CALLGRIND + 2;
    pub const DUMP_STATS_AT: u64 = CALLGRIND + 3;
    pub const START_INSTRUMENTATION: u64 = CALLGRIND + 4;
    pub const STOP_INSTRUMENTATION: u64 = CALLGRIND + 5;
    const CACHEGRIND: u64 = (b'C' as u64) << 24 | (b'G' as u64) << 16;
    pub const CACHEGRIND_START: u64 = CACHEGRIND;
    pub const CACHEGRIND_STOP: u64 = CACHEGRIND + 1;
}

/// The longest name of a part.
const LABEL_BYTES: usize = 4096;

/// A function that a thread has been counted in and will leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    /// The place of the return address.
    stack: u64,
    /// The return address.
    to: u64,
}

/// A thread's own part in whether it counts.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Counting is switched on for it.
    pub collects: bool,
    /// The sum of its executions at the last marker from which it reads its counts.
    read_from: Sum,
    /// Functions of [`crate::CountedConfig::within`] that it is in.
    frames: Vec<Frame>,
}

/// The answer to a marker: rax and rdx.
type Told = [u64; 2];

impl Bounds {
    /// The bounds that a new thread begins with.
    pub fn first(markers: Option<Markers>) -> Self {
        let collects = match markers {
            None => true,
            Some(Markers::Between) => false,
            Some(Markers::Callgrind { collect, .. }) => collect,
        };
        Self { collects, ..Self::default() }
    }

    /// Returns whether a thread with these bounds counts while counting is on, where its process
    /// has `started` or stopped counting by a marker.
    fn count(&self, markers: Option<Markers>, started: Option<bool>) -> bool {
        match markers {
            None => true,
            Some(Markers::Between) => self.collects || started == Some(true),
            Some(Markers::Callgrind { instrument, .. }) => {
                self.collects && started.unwrap_or(instrument)
            }
        }
    }

    /// A thread has entered a function, or has come back to its beginning. Returns whether it has
    /// entered.
    fn enter(&mut self, frame: Frame) -> bool {
        // Else it is a loop that begins with the function.
        let enters = self.frames.last() != Some(&frame);
        if enters {
            self.frames.push(frame);
        }
        enters
    }

    /// Takes out the innermost function that is done where the stack ends at `stack`.
    fn leave(&mut self, stack: u64) -> bool {
        let done = self.frames.last().is_some_and(|frame| frame.stack < stack);
        done && self.frames.pop().is_some()
    }

    /// A function has been entered or left.
    fn toggle(&mut self, markers: Option<Markers>) {
        let callgrind = matches!(markers, Some(Markers::Callgrind { .. }));
        self.collects = if callgrind { !self.collects } else { !self.frames.is_empty() };
    }
}

impl Account {
    /// The thread, which stands at a marker, has been brought to the state that is wanted; it
    /// counted `before`, or not. The marker itself is not counted.
    fn leave_marker_out(&mut self, here: &Here, before: bool) {
        match (before, self.counting) {
            (true, false) => {
                let skip = usize::from(!here.counted);
                let own = here.marker.instructions().iter().rev().skip(skip);
                for &back in own {
                    self.kept.add(instructions(-1), 1);
                    self.profile.leave_out(here.pc - back);
                }
            }
            (false, true) if !here.counted => {
                self.mark.add(instructions(1), 1);
                self.profile.pass_over(here.pc);
            }
            _ => {}
        }
    }
}

/// The changes that markers and functions of a program make to its counts.
#[derive(Debug)]
pub struct Marking<'a>(Counting<'a>);

impl Machine {
    /// Returns the counts, for markers and functions to change.
    pub fn marking(&mut self) -> Marking<'_> {
        Marking(self.counting())
    }
}

impl Answer<'_> {
    /// The instruction at `pc` is the last one of a marker, and has been counted.
    pub fn marker(&mut self, pc: AppPc) -> Option<Backlog> {
        let tid = self.cx.tid;
        let Some(marker) = marker_at(tid, pc.0) else {
            // Somebody has changed the code meanwhile.
            self.machine.forged(tid, "a marker where none is");
            return None;
        };
        let context = self.context();
        let asked = [Slot::Rax, Slot::Rdi].map(|field| context.get(field));
        if let Some([rax, rdx]) = self.machine.marking().obey(tid, marker, pc.0, asked, true) {
            let context = self.context();
            context.set(Slot::Rax, rax);
            context.set(Slot::Rdx, rdx);
        }
        self.after_instruction(pc, marker.last_bytes())
    }
}

/// Handles a marker that the host executes at the application's pc, and that has not been counted.
/// `None` if it is no marker's.
pub fn marker_alone(machine: &mut Machine, tid: Tid, app: &Regs) -> Option<Regs> {
    if !machine.processor.emulated.markers {
        return None;
    }
    let marker = marker_at(tid, app.0.rip)?;
    let mut next = *app;
    if let Some([rax, rdx]) =
        machine.marking().obey(tid, marker, app.0.rip, [app.0.rax, app.0.rdi], false)
    {
        (next.0.rax, next.0.rdx) = (rax, rdx);
    }
    next.0.rip += marker.last_bytes();
    Some(next)
}

impl Counting<'_> {
    /// Returns whether a thread of `pid` with these bounds counts.
    pub fn wants_counts(&self, pid: i32, bounds: &Bounds) -> bool {
        let started = self.tasks.started_counting.get(&pid).copied();
        self.observers.enabled && bounds.count(self.config.counted.markers, started)
    }

    /// A child of fork goes on as its maker does.
    pub fn inherit_bounds(&mut self, child: Tid, child_pid: i32, maker: Tid) {
        let Some(thread) = self.tasks.threads.get(&maker) else { return };
        let (pid, bounds) = (thread.pid, thread.account.bounds.clone());
        match self.tasks.started_counting.get(&pid).copied() {
            Some(started) => self.tasks.started_counting.insert(child_pid, started),
            None => self.tasks.started_counting.remove(&child_pid),
        };
        let on = self.wants_counts(child_pid, &bounds);
        if let Some(thread) = self.tasks.threads.get_mut(&child) {
            thread.account.bounds = Bounds { read_from: Sum::default(), ..bounds };
            thread.account.counting = on;
        }
    }
}

impl Marking<'_> {
    /// Does what a marker says, given rax and rdi. `counted`: the counters have its last
    /// instruction.
    fn obey(
        &mut self,
        tid: Tid,
        marker: Marker,
        pc: u64,
        [rax, rdi]: [u64; 2],
        counted: bool,
    ) -> Option<Told> {
        let here = Here { marker, pc, counted };
        let request = match marker {
            Marker::Own(own::START) => request::START_INSTRUMENTATION,
            Marker::Own(own::STOP) => request::STOP_INSTRUMENTATION,
            Marker::Own(own::READ) => return self.read_count(tid, rdi, counted, false),
            Marker::Own(own::SINCE) => return self.read_count(tid, rdi, counted, true),
            Marker::Own(own::BEGIN) => {
                self.begin_reading(tid, counted);
                return None;
            }
            Marker::Own(_) => return None,
            Marker::Valgrind => memory::read_u64(tid, rax).ok()?,
        };
        self.0.config.counted.markers?;
        self.0.tasks.collect_misses(self.0.contexts, tid);
        match request {
            request::START_INSTRUMENTATION | request::CACHEGRIND_START => {
                self.start_counting(tid, &here, true);
            }
            request::STOP_INSTRUMENTATION | request::CACHEGRIND_STOP => {
                self.start_counting(tid, &here, false);
            }
            request::TOGGLE_COLLECT => {
                if let Some(thread) = self.0.tasks.threads.get_mut(&tid) {
                    thread.account.bounds.collects ^= true;
                }
                self.switch_at(tid, &here);
            }
            request::ZERO_STATS => self.start_over(tid),
            request::DUMP_STATS => self.end_part(tid, String::new()),
            request::DUMP_STATS_AT => {
                let label = memory::read_u64(tid, rax + 8).map(|at| text_at(tid, at));
                self.end_part(tid, label.unwrap_or_default());
            }
            request::RUNNING_ON_VALGRIND
                if matches!(self.0.config.counted.markers, Some(Markers::Callgrind { .. })) =>
            {
                return Some([rax, 1]);
            }
            _ => return None,
        }
        // What a request that answers nothing leaves in rdx.
        (marker == Marker::Valgrind).then_some([rax, 0])
    }

    /// Remembers what a thread has executed up to a marker and with it.
    fn begin_reading(&mut self, tid: Tid, counted: bool) {
        let mut sum = self.0.thread_sum(tid);
        if !counted {
            sum.add(instructions(1), 1);
        }
        if let Some(thread) = self.0.tasks.threads.get_mut(&tid) {
            thread.account.bounds.read_from = sum;
        }
    }

    /// The number of events `event` that a thread has executed before a marker, in all or since the
    /// last one that says so; and that they are counted.
    fn read_count(&mut self, tid: Tid, event: u64, counted: bool, since: bool) -> Option<Told> {
        if self.0.config.plan != Plan::Exact {
            return None;
        }
        let mut sum = self.0.thread_sum(tid);
        if since {
            sum = sum.minus(self.0.tasks.threads.get(&tid)?.account.bounds.read_from);
        }
        if counted {
            sum.add(instructions(-1), 1);
        }
        let counts = sum.counts();
        let value = match event {
            0 => counts.instructions,
            1 => counts.branches,
            2 => counts.taken(),
            3 => counts.conditional,
            4 => counts.conditional_taken,
            5 => counts.calls,
            6 => counts.returns,
            7 => counts.indirect,
            _ => return None,
        };
        Some([value, 1])
    }

    /// Starts or stops counting in the whole process of a thread.
    fn start_counting(&mut self, tid: Tid, here: &Here, on: bool) {
        let Some(pid) = self.0.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
        self.0.tasks.started_counting.insert(pid, on);
        self.switch_at(tid, here);
        let others: Vec<Tid> = self.0.tasks.tids_of(pid);
        for tid in others {
            self.0.switch_counting(tid);
        }
    }

    /// Brings a thread that stands at a marker to the state that is wanted. The marker itself is
    /// not counted.
    fn switch_at(&mut self, tid: Tid, here: &Here) {
        let before = self.0.tasks.threads.get(&tid).map(|thread| thread.account.counting);
        self.0.switch_counting(tid);
        if let (Some(before), Some(thread)) = (before, self.0.tasks.threads.get_mut(&tid)) {
            thread.account.leave_marker_out(here, before);
        }
    }

    /// Forgets what the process of a thread has counted.
    fn start_over(&mut self, tid: Tid) {
        let Some(pid) = self.0.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
        for tid in self.0.tasks.tids_of(pid) {
            self.0.mark_executions(tid, false);
            let total = self.0.thread_sum(tid);
            let Some(thread) = self.0.tasks.threads.get_mut(&tid) else { continue };
            (thread.account.kept, thread.account.mark) = (Sum::default(), total);
            thread.account.profile.forget_kept();
            self.0.tasks.forget_misses(tid);
        }
    }

    /// Makes the counts of a thread's process so far a part of their own, called `label`.
    fn end_part(&mut self, tid: Tid, label: String) {
        let Some(pid) = self.0.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
        if !self.0.observers.counts_places() {
            return;
        }
        let threads = self.0.tasks.tids_of(pid);
        for &tid in &threads {
            self.0.report_thread(tid);
        }
        let serial =
            |tid| self.0.tasks.threads.get(tid).map(|thread| thread.account.profile.serial);
        let serials: Vec<u32> = threads.iter().filter_map(serial).collect();
        if let Some(profiler) = &mut self.0.observers.profiler {
            profiler.end_part(pid, &serials, &label);
        }
        for tid in threads {
            self.0.mark_executions(tid, false);
            self.0.tasks.forget_misses(tid);
            let fresh = self.0.observers.profiler.as_mut().map(Profiler::new_thread);
            if let (Some(thread), Some(fresh)) = (self.0.tasks.threads.get_mut(&tid), fresh) {
                thread.account.profile.forget_kept();
                (thread.account.profile.serial, thread.account.profile.announced) =
                    (fresh.serial, false);
            }
        }
    }
}

/// The place where a marker was met.
struct Here {
    marker: Marker,
    /// Its last instruction.
    pc: u64,
    /// That has been counted.
    counted: bool,
}

fn instructions(count: i32) -> EventDeltas {
    EventDeltas { instructions: count, ..EventDeltas::default() }
}

/// The marker whose last instruction is at `pc`.
fn marker_at(tid: Tid, pc: u64) -> Option<Marker> {
    let bytes = crate::emulate::read_code(tid, pc);
    let before = || memory::read_array::<16>(tid, pc.wrapping_sub(16)).ok();
    let of = |len: usize| Marker::of(&bytes[..len], before);
    of(7).or_else(|| of(3))
}

/// The text at `address`.
fn text_at(tid: Tid, address: u64) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < LABEL_BYTES {
        let Ok([byte]) = memory::read_array::<1>(tid, address + bytes.len() as u64) else { break };
        if byte == 0 {
            break;
        }
        bytes.push(byte);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns whether a function of [`crate::CountedConfig::within`] begins at `pc` of an address
/// space.
fn begins_function((space, family): (&mut Space, &mut Family), pc: u64) -> bool {
    let Some((_, range)) = space.code.at(pc) else { return false };
    family.modules[range.unit].unit.marks.alone.contains(&AppPc(pc))
}

/// Has whoever returns to `pc` of an address space, in which `tid` is, ask.
fn withhold((space, family): (&mut Space, &mut Family), tid: Tid, pc: u64) {
    if !space.inserted.withheld.insert(pc) {
        return;
    }
    let Some((_, range)) = space.code_at(family, tid, pc) else { return };
    if let Some(entry) = family.modules[range.unit].unit.entry_at(AppPc(pc))
        && space.inserted.take(entry)
    {
        remove_entries(tid, family, &[entry]);
    }
}

impl Marking<'_> {
    /// The host is about to execute the instruction at the application's pc, which may be a
    /// function's first.
    pub fn enter_function(&mut self, tid: Tid, app: &Regs) {
        if self.0.config.counted.within.is_empty()
            || !self
                .0
                .caches
                .space_of(self.0.tasks, tid)
                .is_some_and(|side| begins_function(side, app.0.rip))
        {
            return;
        }
        let Ok(to) = memory::read_u64(tid, app.0.rsp) else { return };
        let frame = Frame { stack: app.0.rsp, to };
        self.leave_functions(tid, frame.stack);
        let Some(thread) = self.0.tasks.threads.get_mut(&tid) else { return };
        if thread.account.bounds.enter(frame) {
            self.toggle(tid);
            if let Some(side) = self.0.caches.space_of(self.0.tasks, tid) {
                withhold(side, tid, to);
            }
        }
    }

    /// A thread has got to `pc` with its stack at `stack`, by an indirect branch that did not find
    /// it. Returns whether others like it may find it.
    pub fn returned(&mut self, tid: Tid, pc: u64, stack: u64) -> bool {
        if self.0.config.counted.within.is_empty() {
            return true;
        }
        self.leave_functions(tid, stack);
        let Some(pid) = self.0.tasks.threads.get(&tid).map(|thread| thread.pid) else {
            return true;
        };
        let waited =
            |thread: &Thread| thread.account.bounds.frames.iter().any(|frame| frame.to == pc);
        let free = !self.0.tasks.threads_of(pid).any(|(_, thread)| waited(thread));
        if free && let Some((space, _)) = self.0.caches.space_of(self.0.tasks, tid) {
            space.inserted.withheld.remove(&pc);
        }
        free
    }

    /// A thread's stack ends at `stack`: the functions below are done.
    fn leave_functions(&mut self, tid: Tid, stack: u64) {
        while let Some(thread) = self.0.tasks.threads.get_mut(&tid)
            && thread.account.bounds.leave(stack)
        {
            self.toggle(tid);
        }
    }

    /// A thread has entered or left a function.
    fn toggle(&mut self, tid: Tid) {
        if let Some(thread) = self.0.tasks.threads.get_mut(&tid) {
            thread.account.bounds.toggle(self.0.config.counted.markers);
        }
        self.0.tasks.collect_misses(self.0.contexts, tid);
        self.0.switch_counting(tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_between_markers_and_in_a_process_that_has_started() {
        let bounds = |markers, toggled| {
            let mut bounds = Bounds::first(markers);
            bounds.collects ^= toggled;
            bounds
        };
        for (markers, toggled, started, counts) in [
            (None, false, None, true),
            (Some(Markers::Between), false, None, false),
            (Some(Markers::Between), true, None, true),
            (Some(Markers::Between), false, Some(true), true),
            (Some(Markers::Between), true, Some(false), true),
            (callgrind(true, true), false, None, true),
            (callgrind(true, true), true, None, false),
            (callgrind(true, false), false, None, false),
            (callgrind(true, false), false, Some(true), true),
            (callgrind(false, true), false, Some(true), false),
        ] {
            let found = bounds(markers, toggled).count(markers, started);
            assert_eq!(found, counts, "{markers:?} {toggled} {started:?}");
        }
    }

    fn callgrind(collect: bool, instrument: bool) -> Option<Markers> {
        Some(Markers::Callgrind { collect, instrument })
    }

    #[test]
    fn functions_are_left_when_the_stack_is_above_them() {
        let mut bounds = Bounds::first(Some(Markers::Between));
        let frame = |stack| Frame { stack, to: 0x40_0000 };
        assert!(bounds.enter(frame(0x8000)));
        assert!(!bounds.enter(frame(0x8000)), "a loop that begins with the function");
        assert!(bounds.enter(frame(0x7000)), "a recursive call");
        bounds.toggle(Some(Markers::Between));
        assert!(bounds.collects);
        assert!(!bounds.leave(0x7000));
        // A jump past both.
        assert!(bounds.leave(0x9000) && bounds.leave(0x9000) && !bounds.leave(0x9000));
        bounds.toggle(Some(Markers::Between));
        assert!(!bounds.collects);
    }

    #[test]
    fn callgrind_s_functions_toggle_what_is_collected() {
        let markers = callgrind(false, true);
        let mut bounds = Bounds::first(markers);
        bounds.toggle(markers);
        assert!(bounds.collects);
        bounds.toggle(markers);
        assert!(!bounds.collects);
    }
}
