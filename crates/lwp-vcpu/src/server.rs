//! The server: the host thread that answers the mailboxes.
//!
//! Translated code that needs something rings its door flag and waits; the server looks through the
//! flags, and when none is set spins for a while and then sleeps on a futex that the next ring wakes.
//! Both sides adapt ([`Pace`]): where the thread has asked on the server's own processor, or threads that have
//! spun are found asleep, the two sides do not have a processor each, spinning takes time from the other side, and
//! a hand-off is expensive. Then nobody spins and more is translated at a time.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Scope;
use std::time::{Duration, Instant};

use lwp_dbt::{
    Ahead, AppPc, CachePc, EntryId, Lwp, Queue, Region, RegionLimits, RequestKind, Slot,
};
use lwp_ptrace::{Tid, sys};

use crate::AbortOnPanic;
use crate::elf;
use crate::events::wards;
use crate::family::{Family, UnitId};
use crate::machine::{Machine, Mode, Need};
use crate::notices::{self, Waiting};
use crate::space::{Space, VSYSCALL};
use crate::syscalls::{self, Before, Effect, Pending};

mod bells;
mod pace;
mod rhythm;

use bells::Bells;
pub use pace::Pace;
use rhythm::{Rhythm, Wait};

/// Fragments translated before an answer, and for one request in all where there is no other processor.
const FIRST: usize = 8;
const REGION: usize = 48;
/// Fragments translated for one request where hand-offs are expensive.
const CROWDED_REGION: usize = 96;
/// What is more doubtful than this is not worth translating while a thread waits, nor while none does.
const MOST_DOUBT: u8 = 8;
const SPARE_DOUBT: u8 = 12;
/// Fragments translated after an answer, while nobody asks for anything.
const SPARE: usize = 120;
/// Places kept that could be translated then.
const MOST_SPARE: usize = 1 << 14;
/// How doubtful it is that a function is called because something points to it.
const FORESEEN: u8 = 11;
/// How long the server spins after its last request.
const SPIN: Duration = Duration::from_micros(50);
/// Sleeps are bounded: what has been translated is written every now and then.
const NAP: Duration = Duration::from_millis(20);
/// The same while there are threads that may not make the system call that wakes us.
const FILTERED_NAP: Duration = Duration::from_micros(50);

/// What answering a thread has found that it may come to next.
#[derive(Debug)]
pub struct Backlog {
    tid: Tid,
    found: Vec<Ahead>,
}

/// Translation that can wait until nobody asks for anything.
#[derive(Debug, Default)]
struct Spare {
    tid: Tid,
    queue: Queue,
    left: usize,
}

impl Spare {
    /// Adds what has been found; what an earlier thread has left is forgotten.
    fn add(&mut self, backlog: &Backlog) {
        if self.tid != backlog.tid {
            self.queue = Queue::default();
            self.tid = backlog.tid;
        }
        self.queue.renew(&backlog.found);
        self.queue.shorten(MOST_SPARE);
        self.left = SPARE;
    }
}

/// Runs until the machine is finished. Threads of the host that it needs besides are made in `scope`.
pub fn serve<'scope>(machine: &'scope Mutex<Machine>, scope: &'scope Scope<'scope, '_>) {
    let alone = sys::allowed_cpus() <= 1;
    let mut bells = Bells::new(&lock(machine).contexts.doors);
    let mut last = Instant::now();
    let mut sleeps = false;
    let mut spare = Spare::default();
    let mut guard = lock(machine);
    guard.pace.begin();
    let mut rhythm = guard.samples().then(|| Rhythm::new(last));
    drop(guard);
    loop {
        let mut served = false;
        let found = rhythm.as_ref().map(|_| Instant::now());
        for group in bells.ringing() {
            let mut guard = lock(machine);
            group.take_rings(|file, local| {
                // Nothing but the flag says that there is such a thread.
                if let Some(slot) = guard.contexts.slot_of(file, local)
                    && let Some(rest) = guard.answer(slot, alone)
                {
                    spare.add(&rest);
                }
            });
            sleeps = guard.pace.sleeps();
            if let Some(waiting) = guard.caches.notices.new_waiting()
                && !watch_writes(machine, scope, waiting)
            {
                guard.withdraw_notices();
            }
            served = true;
        }
        if served {
            last = Instant::now();
            if let (Some(rhythm), Some(found)) = (&mut rhythm, found) {
                rhythm.note(found, last);
            }
            continue;
        }
        if spare.left > 0 {
            lock(machine).work_off(&mut spare);
            last = Instant::now();
            continue;
        }
        let expected = rhythm.as_ref().map_or(Wait::Unknown, |rhythm| rhythm.wait(Instant::now()));
        if !alone && !sleeps && (last.elapsed() < SPIN || expected == Wait::Spin) {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            continue;
        }
        if sleep(machine, &mut bells, expected).is_none() {
            return;
        }
    }
}

/// Starts the thread that waits for writes to guarded pages. False where there can be no more threads.
fn watch_writes<'scope>(
    machine: &'scope Mutex<Machine>,
    scope: &'scope Scope<'scope, '_>,
    waiting: Arc<Waiting>,
) -> bool {
    let watch = move || {
        let _abort = AbortOnPanic;
        let _held = sys::hold_child_events();
        notices::watch(machine, &waiting);
    };
    let thread = std::thread::Builder::new().name("lwp-writes".into());
    thread.spawn_scoped(scope, watch).is_ok()
}

/// Sleeps until a thread rings, or for a while. `None` when all is over.
fn sleep(machine: &Mutex<Machine>, bells: &mut Bells, expected: Wait) -> Option<()> {
    bells.about_to_sleep();
    // Who gets a door after this, or sets `finished`, finds that we are about to sleep.
    let mut guard = lock(machine);
    if guard.finished {
        return None;
    }
    guard.keep_meanwhile();
    let nap = match expected {
        _ if guard.tasks.filtered => FILTERED_NAP,
        Wait::Sleep(nap) => nap,
        Wait::Spin | Wait::Unknown => NAP,
    };
    drop(guard);
    bells.sleep(nap);
    Some(())
}

/// Everything is over: ends the server, also where it sleeps.
pub fn finish(machine: &Mutex<Machine>) {
    let mut guard = lock(machine);
    guard.finished = true;
    guard.contexts.doors.wake();
    guard.caches.notices.end();
}

/// The machine, also after a panic elsewhere: the run is over then, but its reports are not.
pub fn lock(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Machine {
    /// Answers the request in `slot`.
    pub fn answer(&mut self, slot: usize, alone: bool) -> Option<Backlog> {
        let tid = *self.tasks.slots.get(slot)?;
        let thread = self.tasks.threads.get_mut(&tid)?;
        if thread.need.is_some() {
            return None;
        }
        if matches!(thread.mode, Mode::Delivering { .. }) {
            // Its state has been handed to the kernel: a handler's return would ask for this again.
            thread.signals.put_off = true;
            return None;
        }
        self.lwp_take_over(tid);
        let pc = AppPc(self.contexts.context(slot).get(Slot::Pc));
        self.lwp_settle_note(tid, None, pc.0);
        let context = self.contexts.context(slot);
        let Some(kind) = context.asked() else {
            self.forged(tid, "a request of no kind");
            return None;
        };
        match kind {
            RequestKind::Dispatch => self.dispatch(tid, slot, pc, false, alone),
            RequestKind::Indirect => {
                let entry = self.returned(tid, pc.0, context.get(Slot::Rsp));
                self.dispatch(tid, slot, pc, entry, alone)
            }
            RequestKind::Marker => self.marker(tid, slot, pc, alone),
            RequestKind::Stale => {
                self.stale(tid, pc);
                self.dispatch(tid, slot, pc, false, alone)
            }
            RequestKind::Syscall => {
                self.syscall(tid, slot);
                None
            }
            RequestKind::SyscallDone => {
                match self.syscall_done(tid) {
                    Effect::Opened(fd) => {
                        self.opened_for_writing(tid, fd);
                        if self.shows_us(tid, fd) {
                            self.ask_tracer(tid, Need::Hide(fd));
                            return None;
                        }
                    }
                    Effect::Written(call, bytes) if self.awaits_effect(tid, &call, bytes) => {
                        return None;
                    }
                    _ => {}
                }
                self.dispatch(tid, slot, pc, false, alone)
            }
            RequestKind::Xgetbv if context.get(Slot::Rcx) as u32 != 0 => {
                self.ask_tracer(tid, Need::Step);
                None
            }
            kind @ (RequestKind::Cpuid | RequestKind::Xgetbv) => {
                let asked = [Slot::Rax, Slot::Rcx].map(|field| context.get(field) as u32);
                let len = self.answer_for_processor(slot, kind);
                if kind == RequestKind::Cpuid {
                    self.remember_cpuid(tid, slot, asked);
                }
                self.after_instruction(tid, slot, pc, len, alone)
            }
            kind @ (RequestKind::Llwpcb
            | RequestKind::Slwpcb
            | RequestKind::Lwpins
            | RequestKind::Lwpval) => self.lwp_instruction(tid, slot, kind, alone),
            RequestKind::LwpDue => self.lwp_due(tid, slot, pc, alone),
            RequestKind::Calls => {
                let pc = AppPc(self.calls_full(tid, slot)?);
                let context = self.contexts.context(slot);
                context.set(Slot::Pc, pc.0);
                context.set(Slot::Kind, RequestKind::Dispatch as u64);
                self.dispatch(tid, slot, pc, false, alone)
            }
            RequestKind::LwpNotes => self.lwp_notes_full(tid, slot, pc, alone),
            kind @ (RequestKind::LwpStepped | RequestKind::LwpTaken) => {
                context.set(Slot::Kind, RequestKind::Dispatch as u64);
                self.lwp_stepped(tid, pc.0, kind == RequestKind::LwpTaken);
                match self.samples() || self.lwp_reports_each_branch(tid) {
                    // What the cut fragment has led to may be taken at once.
                    true => self.lwp_due(tid, slot, pc, alone),
                    false => self.dispatch(tid, slot, pc, false, alone),
                }
            }
            RequestKind::Step
            | RequestKind::TrapFlag
            | RequestKind::StateSave
            | RequestKind::Tsc
            | RequestKind::Random
            | RequestKind::HostSyscallDone => {
                self.ask_tracer(tid, Need::Step);
                None
            }
        }
    }

    /// Carries out CPUID or XGETBV on the registers in the context; returns the instruction's length.
    pub fn answer_for_processor(&self, slot: usize, kind: RequestKind) -> u64 {
        let context = self.contexts.context(slot);
        if kind == RequestKind::Xgetbv {
            let value = self.processor.cpu.xcr0();
            context.set(Slot::Rax, value & 0xffff_ffff);
            context.set(Slot::Rdx, value >> 32);
            return 3;
        }
        let leaf = context.get(Slot::Rax) as u32;
        let out = self.processor.cpu.cpuid(leaf, context.get(Slot::Rcx) as u32);
        for (field, value) in [Slot::Rax, Slot::Rbx, Slot::Rcx, Slot::Rdx].iter().zip(out) {
            context.set(*field, u64::from(value));
        }
        2
    }

    /// Puts the answer to CPUID that is in the context where translated code finds it the next time.
    fn remember_cpuid(&mut self, tid: Tid, slot: usize, [leaf, subleaf]: [u32; 2]) {
        let context = self.contexts.context(slot);
        let answer = [Slot::Rax, Slot::Rbx, Slot::Rcx, Slot::Rdx].map(|at| context.get(at) as u32);
        let Some(known) = self.processor.cpu.known(leaf, subleaf, answer) else { return };
        if let Some((_, family)) = self.space_of(tid) {
            family.remember_cpuid(known);
        }
    }

    /// Goes on after an instruction of `len` bytes that has been carried out.
    pub fn after_instruction(
        &mut self,
        tid: Tid,
        slot: usize,
        pc: AppPc,
        len: u64,
        alone: bool,
    ) -> Option<Backlog> {
        let next = pc.offset(len);
        let context = self.contexts.context(slot);
        context.set(Slot::Pc, next.0);
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
        self.dispatch(tid, slot, next, false, alone)
    }

    /// Finds or makes the translation of `pc` and lets the thread go there.
    pub fn dispatch(
        &mut self,
        tid: Tid,
        slot: usize,
        pc: AppPc,
        indirect: bool,
        alone: bool,
    ) -> Option<Backlog> {
        // A thread that spins is answered as soon as it can be, also where most do not: or else no
        // probe would ever find that spinning pays again.
        let spins = self.contexts.context(slot).get(Slot::Spin) != 0;
        let limits = RegionLimits {
            fragments: match (alone, spins) {
                (true, _) => REGION,
                (false, true) => FIRST,
                (false, false) => CROWDED_REGION,
            },
            doubt: 0,
            most_doubt: MOST_DOUBT,
        };
        let alone = alone || !spins;
        let Some((head, mut rest)) = self.translation(tid, pc, indirect, limits) else {
            let need = self.why_not(tid, pc);
            self.ask_tracer(tid, need);
            return None;
        };
        self.go(tid, slot, pc, head);
        if self.caches.foresees && !alone {
            self.foresee(tid, pc, &mut rest);
        }
        (!rest.is_empty() && !alone).then_some(Backlog { tid, found: rest })
    }

    fn why_not(&mut self, tid: Tid, pc: AppPc) -> Need {
        if let Some((space, family)) = self.space_of(tid)
            && let Some((_, range)) = space.code_at(family, tid, pc.0)
        {
            match family.arena_of(range.unit) {
                Some(arena) if space.has_arena(arena) && space.lacks_notices(range) => {
                    return Need::Notices;
                }
                Some(arena) if space.has_arena(arena) => {}
                Some(arena) if space.refuses_arena(arena) => return Need::Renewal,
                _ => return Need::Arena,
            }
        }
        match self.space_of(tid) {
            Some((_, family)) if family.is_full() => Need::Renewal,
            _ => Need::Step,
        }
    }

    /// The translation of `pc` in the thread's address space, and what else could be translated.
    fn translation(
        &mut self,
        tid: Tid,
        pc: AppPc,
        indirect: bool,
        limits: RegionLimits,
    ) -> Option<(CachePc, Vec<Ahead>)> {
        let (space, family) = self.space_of(tid)?;
        if pc.0 >= VSYSCALL {
            return None;
        }
        // Looking for it may have brought other code to light too.
        let found = space.code_at(family, tid, pc.0);
        self.tell_code(self.space_index(tid)?);
        let (start, range) = found?;
        let (space, family) = self.space_of(tid)?;
        if !space.has_arena(family.arena_of(range.unit)?) {
            return None;
        }
        let unit = &family.modules[range.unit.0 as usize].unit;
        if let Some(id) = unit.fragment_at(pc)
            && let Some(head) = family.translator.cache().head_of(id)
        {
            match unit.entry_at(pc) {
                Some(entry) if indirect => {
                    space.add_fresh(range.unit, &[entry]);
                    return Some((head, Vec::new()));
                }
                _ if !indirect => return Some((head, Vec::new())),
                _ => {}
            }
        }
        if space.lacks_notices(range) {
            return None;
        }
        let code = space.code_to_translate(start, range);
        let region = family.translate(&code, tid, pc, indirect, limits);
        space.add_fresh(range.unit, &region.entries);
        if limits.fragments > FIRST {
            self.translate_elsewhere(tid, range.unit, &region.rest, limits);
        }
        Some((region.head?, region.rest))
    }

    /// Translates what the code of `unit` is going to reach in other units, where nobody does so in his spare time.
    fn translate_elsewhere(
        &mut self,
        tid: Tid,
        unit: UnitId,
        rest: &[Ahead],
        limits: RegionLimits,
    ) {
        let sure = |ahead: &&Ahead| ahead.entry && ahead.doubt <= limits.most_doubt;
        let Some((space, family)) = self.space_of(tid) else { return };
        for ahead in rest.iter().filter(sure) {
            if let Some((_, range)) = space.known_code(ahead.pc.0)
                && range.unit != unit
            {
                translate_ahead(tid, space, family, *ahead, limits);
            }
        }
    }

    /// Lets indirect branches of the thread's address space find the translation of `pc`, from the next
    /// answer on.
    pub fn make_entry(&mut self, tid: Tid, pc: AppPc) {
        self.translation(tid, pc, true, RegionLimits::fragments(FIRST));
    }

    /// Lets the thread go on at `head`, taking new entries along; what it is about to execute there is
    /// the application's `pc`.
    pub fn go(&mut self, tid: Tid, slot: usize, pc: AppPc, head: CachePc) {
        if self.lwp_take_interrupted(tid) {
            self.ask_tracer(tid, Need::Side);
            return;
        }
        let Some((space, family)) = self.space_of(tid) else { return };
        let unit = space.code_at(family, tid, pc.0).map(|(_, range)| range.unit);
        let entries = match unit {
            Some(unit) => space.entries_to_insert(family, unit),
            None => Vec::new(),
        };
        let list: Vec<[u64; 3]> =
            entries.iter().map(|&entry| triple(&family.translator, entry)).collect();
        let tail = family.routine(family.translator.routines().go);
        let context = self.contexts.context(slot);
        context.set_apply_list(&list);
        context.set(Slot::Go, head.0);
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
        let spun = context.get(Slot::Spin) != 0;
        self.pace.note_processor(context.get(Slot::Processor));
        context.set(Slot::Spin, self.pace.spin());
        let asleep = context.answer(tail);
        self.pace.note(spun, asleep);
    }

    /// Adds what the data of the module at `pc` point to, once.
    fn foresee(&mut self, tid: Tid, pc: AppPc, rest: &mut Vec<Ahead>) {
        let Some((space, family)) = self.space_of(tid) else { return };
        let Some((_, range)) = space.known_code(pc.0) else { return };
        let module = family.module(range.unit);
        if std::mem::take(&mut module.unforeseen) {
            let found = elf::pointed_to(tid, module.extent.0).into_iter();
            rest.extend(found.map(|pc| Ahead::indirect(AppPc(pc), FORESEEN)));
        }
    }

    /// Translates some of what may be executed soon.
    fn work_off(&mut self, spare: &mut Spare) {
        let next = spare.queue.pop(SPARE_DOUBT);
        let (Some(next), Some((space, family))) = (next, self.space_of(spare.tid)) else {
            spare.left = 0;
            return;
        };
        // What is only foreseen gets its first blocks translated.
        let doubt = if next.doubt < FORESEEN { next.doubt } else { SPARE_DOUBT + 8 };
        let limits = RegionLimits { fragments: 1, doubt, most_doubt: SPARE_DOUBT };
        if let Some(region) = translate_ahead(spare.tid, space, family, next, limits) {
            spare.left = spare.left.saturating_sub(region.fragments.max(1));
            spare.queue.renew(&region.rest);
        }
    }

    /// Arranges the system call that the thread is about to make.
    fn syscall(&mut self, tid: Tid, slot: usize) {
        if syscalls::locks_all(self.contexts.context(slot)) {
            self.ask_tracer(tid, Need::Lock);
            return;
        }
        let Some(pending) = self.look_at_call(tid, slot) else {
            self.ask_tracer(tid, Need::Step);
            return;
        };
        self.about_to_read(tid, &pending);
        let mut pending = pending;
        if self.stands_in_the_way(tid, slot, &mut pending) {
            self.ask_tracer(tid, Need::Renewal);
            return;
        }
        let alone = pending.result.is_none() && !self.writes_commands(tid, &pending);
        if alone && self.run_and_go(tid, slot, &pending) {
            return;
        }
        if let Some(tail) = self.reported_call(tid, slot, pending) {
            self.contexts.context(slot).answer(tail);
        }
    }

    /// Arranges the system call in the context; returns the routine that makes it and reports it. `None`
    /// where it must be stepped over.
    pub fn arrange_call(&mut self, tid: Tid, slot: usize) -> Option<u64> {
        let mut pending = self.look_at_call(tid, slot)?;
        if self.stands_in_the_way(tid, slot, &mut pending) {
            let context = self.contexts.context(slot);
            syscalls::answer_instead(context, &mut pending, crate::ways::REFUSED);
        }
        self.reported_call(tid, slot, pending)
    }

    /// Looks at a system call before it is made. `None` where it must be stepped over.
    fn look_at_call(&mut self, tid: Tid, slot: usize) -> Option<Pending> {
        let mut random = self.processor.random;
        let mut stream = || {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            random ^ (random >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        };
        let context = self.contexts.context(slot);
        let file = self.processor.random_file.as_ref().map(|(_, path)| path.as_str());
        let (action, mut pending) = syscalls::before(context, tid, &mut stream, file);
        self.processor.random = random;
        if let Some(result) = wards::asked(self, tid, &pending) {
            pending.result = Some(result);
        }
        (action != Before::Step).then_some(pending)
    }

    /// The routine that makes a call which has been looked at, and reports it.
    fn reported_call(&mut self, tid: Tid, slot: usize, pending: Pending) -> Option<u64> {
        let (_, family) = self.space_of(tid)?;
        let tail = family.routine(family.translator.routines().run);
        if syscalls::installs_filter(&pending) {
            self.note_filter(tid, syscalls::filters_all_threads(&pending));
        }
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.pending = Some(pending);
        }
        let context = self.contexts.context(slot);
        context.set(Slot::Next, context.get(Slot::Pc).wrapping_add(2));
        Some(tail)
    }

    /// Lets the thread make a call and go on behind it, where nothing need be settled. False where
    /// something must be.
    fn run_and_go(&mut self, tid: Tid, slot: usize, pending: &Pending) -> bool {
        if !syscalls::concerns_nobody(pending, |range| self.has_code(tid, range)) {
            return false;
        }
        let Some((_, family)) = self.space_of(tid) else { return false };
        if matches!(family.translator.lwp(), Lwp::On(_)) {
            return false;
        }
        let tail = family.routine(family.translator.routines().run_and_go);
        let next = AppPc(self.contexts.context(slot).get(Slot::Pc).wrapping_add(2));
        let limits = RegionLimits::fragments(FIRST);
        let Some((head, _)) = self.translation(tid, next, false, limits) else { return false };
        let context = self.contexts.context(slot);
        context.set(Slot::Next, next.0);
        context.set(Slot::Go, head.0);
        context.answer(tail);
        true
    }

    /// A system call filter is about to be in force in this thread, or in all of its process. A
    /// filter that is then refused leaves the threads to their spinning, which is only slower.
    fn note_filter(&mut self, tid: Tid, all: bool) {
        self.tasks.filtered = true;
        let Some(pid) = self.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
        for thread in self.tasks.threads.values().filter(|thread| all && thread.pid == pid) {
            self.contexts.context(thread.slot).set(Slot::NoSyscalls, 1);
        }
    }

    /// Settles what a system call has done, and says what. The result that the program sees is in its context.
    pub fn syscall_done(&mut self, tid: Tid) -> Effect {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return Effect::None };
        let Some(pending) = thread.pending.take() else { return Effect::None };
        let slot = thread.slot;
        let context = self.contexts.context(slot);
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
        let (result, effect) = syscalls::after(context, tid, &pending, context.get(Slot::Rax));
        context.set(Slot::Rax, result);
        match effect {
            Effect::None | Effect::Opened(_) | Effect::Written(..) => {}
            Effect::Listed(fd, at, bytes) => {
                let left = self.without_ours(tid, fd, at, bytes);
                self.contexts.context(slot).set(Slot::Rax, left);
            }
            Effect::Mapped(range) => self.code_changed(tid, range, true),
            Effect::Protected(range) => self.code_changed(tid, range, false),
            Effect::Unexecutable(range) => self.code_gone(tid, range),
            Effect::Moved(from, to) => {
                // Mostly it is data that grows.
                if self.has_code(tid, from) || self.has_code(tid, to) {
                    self.code_gone(tid, from);
                    self.code_changed(tid, to, true);
                }
            }
        }
        effect
    }

    /// Executable memory in `range` has been mapped anew, or made executable after it may have been
    /// written to.
    fn code_changed(&mut self, tid: Tid, range: (u64, u64), mapped: bool) {
        self.lwp_forget_cuts();
        for side in self.all_sides(tid) {
            let Some((space, family)) = self.caches.side(side) else { continue };
            let units = space.forget(range);
            if mapped {
                space.note_mapped(range);
            } else {
                space.note_written(range);
            }
            for unit in units {
                drop_code(tid, space, family, unit, range, false);
            }
            // Anonymous code may have been translated before it was known by this range.
            for unit in space.private_units() {
                family.invalidate(unit, tid, range, false);
            }
        }
    }

    /// Whether there is code in `range`, as far as is known.
    fn has_code(&self, tid: Tid, range: (u64, u64)) -> bool {
        let spaces = self.all_sides(tid);
        spaces
            .iter()
            .any(|side| self.caches.spaces[*side].as_ref().is_some_and(|it| it.has_code(range)))
    }

    /// `range` can no longer be executed: what was translated of it is cut off, so that going there
    /// faults as it should.
    fn code_gone(&mut self, tid: Tid, range: (u64, u64)) {
        self.lwp_forget_cuts();
        for side in self.all_sides(tid) {
            let Some((space, family)) = self.caches.side(side) else { continue };
            for unit in space.forget(range) {
                drop_code(tid, space, family, unit, range, true);
            }
        }
    }

    /// A fragment found its own bytes changed.
    fn stale(&mut self, tid: Tid, pc: AppPc) {
        let Some((space, family)) = self.space_of(tid) else { return };
        let Some((_, range)) = space.code_at(family, tid, pc.0) else { return };
        if family.module(range.unit).unit.checks == lwp_dbt::Checks::SelfCheck {
            return family.invalidate_at(range.unit, tid, pc);
        }
        self.forged(tid, "changed code where none compares itself");
    }
}

/// Translates what nobody has asked for yet, where its code and an arena for it are mapped.
fn translate_ahead(
    tid: Tid,
    space: &mut Space,
    family: &mut Family,
    ahead: Ahead,
    limits: RegionLimits,
) -> Option<Region> {
    let (start, range) = space.known_code(ahead.pc.0)?;
    let arena = family.arena_of(range.unit)?;
    let known = family.module(range.unit).unit.has(ahead);
    if known || !space.has_arena(arena) || space.lacks_notices(range) {
        return None;
    }
    let Ahead { pc, entry, .. } = ahead;
    let code = space.code_to_translate(start, range);
    let region = family.translate(&code, tid, pc, entry, limits);
    space.add_fresh(range.unit, &region.entries);
    Some(region)
}

/// What was translated of `range` is no longer valid, or not where its bytes differ.
pub fn drop_code(
    tid: Tid,
    space: &mut Space,
    family: &mut Family,
    unit: UnitId,
    range: (u64, u64),
    all: bool,
) {
    if family.module(unit).unit.checks == lwp_dbt::Checks::None {
        // A file's own translation is not at fault; this address space leaves it.
        let gone = space.leave_unit(family, unit, range);
        remove_entries(tid, family, &gone);
    } else {
        family.invalidate(unit, tid, range, all);
    }
}

/// More entries than share a slot of the indirect table, some of them by chance.
const MOST_LINKS: usize = 1 << 12;

fn triple(translator: &lwp_dbt::Translator, entry: EntryId) -> [u64; 3] {
    let data = translator.cache().entry(entry);
    let low = translator.layout();
    [low.table_slot(data.pc.0), low.chain_slot(entry.0), data.stub.0]
}

/// Takes entries out of an address space's indirect table, through the memory of `tid`.
pub fn remove_entries(tid: Tid, family: &Family, gone: &[EntryId]) {
    use lwp_ptrace::memory::{read_u64, write_u64};
    let miss = family.routine(family.translator.routines().ask_rcx);
    for &entry in gone {
        let [mut place, chain, stub] = triple(&family.translator, entry);
        // Walk the chain to the place that leads to this entry. The program can write there: no chain has more links.
        for _ in 0..MOST_LINKS {
            let Ok(at) = read_u64(tid, place) else { break };
            if at == stub {
                let next = read_u64(tid, chain).unwrap_or(miss);
                let _ = write_u64(tid, place, next);
                let _ = write_u64(tid, chain, miss);
                break;
            }
            match family.entry_of_stub(at) {
                Some(other) => place = family.layout().chain_slot(other.0),
                None => break,
            }
        }
    }
}
