//! The data cache of a thread, with the misses that its unit or its sampler has not seen yet.
//!
//! Translated code logs misses and the moves of lines that they caused. If the host executes an
//! instruction, or a repeated instruction is in a cut fragment, this module holds its accesses
//! until it retires.

use iced_x86::{Instruction, Register};
use lwp_arch::LinearAddr;
use lwp_arch::retired::Access;
use lwp_code::family::Family;
use lwp_dbt::context::{META_REPEATS, MOST_NOTES, NOTE_GOES_ON, UNDOS};
use lwp_dbt::operands::{self, MemoryOperand, Spread, Use};
use lwp_dbt::{AppPc, AppState, CachePc, FragmentId, PcSource, RequestKind, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::regs::{Raw, general_value};
use lwp_process::{Tid, Vectors};
use lwp_uarch::Caches;

use super::dcache::{DataCache, Touched, kind};
use super::instruction::decode;
use super::leave::{give_back, rest_of};
use crate::server::{Answer, Backlog};
use crate::state::known_pc;

/// The data cache of a thread, if its misses are counted, and misses on their way to what counts
/// them.
#[derive(Clone, Debug)]
pub(super) struct ThreadCache {
    cache: Option<Box<DataCache>>,
    /// Misses that have passed since the countdown was published.
    passed: u64,
    /// The number of lines that the next access touches, where it is known to miss: if fewer misses
    /// may pass, it is made alone.
    lines: u64,
    /// Misses of the instruction that retires next.
    waiting: Vec<Access>,
}

/// Most misses that are counted before the host looks.
const MOST_COUNTED: u64 = 1 << 30;

impl ThreadCache {
    /// Cold caches; none where no misses are counted.
    pub(super) fn new(caches: Option<&Caches>) -> Self {
        let mut empty = Self { cache: None, passed: 0, lines: 1, waiting: Vec::new() };
        empty.start(caches);
        empty
    }

    /// Makes the caches cold ones for another profile, or none.
    pub(super) fn start(&mut self, caches: Option<&Caches>) {
        self.cache = caches.map(|caches| Box::new(DataCache::new(caches)));
    }

    /// Returns whether misses are counted.
    pub(super) fn is_kept(&self) -> bool {
        self.cache.is_some()
    }

    /// Goes through the notes, in all levels if `outer`. Those of the instruction at `but` are left
    /// to be reported with it. Returns the other misses that count, by the addresses of their
    /// instructions.
    pub(super) fn take_notes(
        &mut self,
        context: Context<'_>,
        outer: bool,
        but: Option<u64>,
    ) -> Vec<(u64, Access)> {
        let mut misses = Vec::new();
        if context.get(Slot::LwpKeeps) == 0 {
            self.passed += context.get(Slot::LwpNotes) >> 32;
            context.set(Slot::LwpNotes, 0);
            context.set(Slot::LwpUndos, 0);
            return misses;
        }
        let Some(cache) = &mut self.cache else { return misses };
        for [address, what] in context.lwp().notes() {
            let miss = outer.then(|| cache.fetch(LinearAddr(address)));
            if what & NOTE_GOES_ON != 0 {
                continue;
            }
            let (ip, counts) = (what >> 16, what >> 14 & 1 != 0);
            let kind = kind(Use::from_raw(what >> 12));
            let access = Access { kind, address: LinearAddr(address), miss };
            if but == Some(ip) {
                self.waiting.push(access);
            } else if counts {
                misses.push((ip, access));
            }
        }
        context.set(Slot::LwpNotes, 0);
        context.set(Slot::LwpUndos, 0);
        misses
    }

    /// So many misses have passed that count for the event.
    pub(super) fn pass(&mut self, misses: u64) {
        self.passed += misses;
    }

    /// Returns the misses that have passed since the countdown was published, for the last time.
    pub(super) fn take_passed(&mut self) -> u64 {
        std::mem::take(&mut self.passed)
    }

    /// The misses of the instruction that retires next.
    pub(super) fn waiting(&self) -> &[Access] {
        &self.waiting
    }

    /// Returns the misses of the instruction that retires now.
    pub(super) fn take_waiting(&mut self) -> Vec<Access> {
        std::mem::take(&mut self.waiting)
    }

    /// The number of lines that the next access touches as far as it is known to miss, or 1.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// The next access, from `first` to `last`, is known to miss.
    fn expect_miss(&mut self, first: u64, last: u64) {
        if let Some(cache) = &self.cache {
            let lines = cache.line_of(last).wrapping_sub(cache.line_of(first)).wrapping_add(1);
            self.lines = lines.min(u64::from(MOST_NOTES));
        }
    }

    /// Nothing is known of the next access any more.
    pub(super) fn expect_nothing(&mut self) {
        self.lines = 1;
    }

    /// Publishes that `room` misses may be noted. `keeps`: more than their number matters.
    pub(super) fn write(&mut self, context: Context<'_>, room: u64, keeps: bool) {
        if let Some(cache) = &mut self.cache {
            cache.write_cold(context);
            let begun = cache.begun.as_ref().is_some_and(|(_, touched)| !touched.is_empty());
            context.set(Slot::LwpRepeatBegun, u64::from(begun));
            let most = if keeps { u64::from(MOST_NOTES) } else { MOST_COUNTED };
            context.set(Slot::LwpKeeps, u64::from(keeps));
            context.set(Slot::LwpMostNotes, room.min(most));
        }
    }

    /// Takes back what translated code has begun and not finished: moving a line to the front of
    /// its set. A miss of a line that `moved` there has been noted.
    pub(super) fn take_move_back(&self, context: Context<'_>, moved: bool) {
        let Some(cache) = &self.cache else { return };
        let change = context.lwp().undo(context.get(Slot::LwpUndos));
        cache.take_back(context, change);
        if moved {
            let notes = context.get(Slot::LwpNotes).wrapping_sub(cache.noted(change[2]));
            context.set(Slot::LwpNotes, notes);
        }
    }

    /// Takes back what the instruction at `regs.rip`, which has not been executed, has changed in
    /// the first level, and its notes. It made the latest `its` changes.
    ///
    /// An earlier execution of the same instruction that touched the same line, and nothing since,
    /// would be taken back too: executed again, it has the same effect.
    pub(super) fn drop_notes(&mut self, tid: Tid, context: Context<'_>, regs: &Raw, its: u64) {
        let Some(cache) = &mut self.cache else { return };
        self.waiting.clear();
        let mut undos = context.get(Slot::LwpUndos);
        // What has been gone through is not taken back.
        if its == 0 || its > undos {
            return;
        }
        let oldest = undos - its;
        let Some(instruction) = decode(tid, regs.rip) else { return };
        let operands = operands::of(&instruction);
        let lines: Vec<(u64, u64)> = operands
            .iter()
            .map(|operand| {
                let first = address(operand, regs, context);
                let last = first.wrapping_add(u64::from(operand.bytes) - 1);
                (cache.line_of(first), cache.line_of(last))
            })
            .collect();
        let mut notes = context.get(Slot::LwpNotes);
        while undos > oldest {
            let undo = context.lwp().undo(undos - 1);
            let number = cache.line(undo[1]);
            if !lines.iter().any(|(first, last)| (*first..=*last).contains(&number)) {
                break;
            }
            cache.take_back(context, undo);
            notes = notes.wrapping_sub(cache.noted(undo[2]));
            undos -= 1;
        }
        context.set(Slot::LwpUndos, undos);
        context.set(Slot::LwpNotes, notes);
    }

    /// A repeated string instruction of a cut fragment may have begun: what it has accessed until
    /// now is kept for when it retires. `now` are rcx, rsi and rdi.
    pub(super) fn repeated(&mut self, tid: Tid, context: Context<'_>, pc: u64, now: [u64; 3]) {
        if self.cache.is_none() || context.get(Slot::LwpRepeats) == 0 {
            return;
        }
        context.set(Slot::LwpRepeats, 0);
        let Some(instruction) = decode(tid, pc) else { return };
        let before = [Slot::LwpRepeatCount, Slot::LwpRepeatFrom, Slot::LwpRepeatTo]
            .map(|slot| context.get(slot));
        let touched = iterations(&instruction, before, now);
        self.begin_accesses(pc, touched);
    }

    /// The thread leaves translated code, perhaps at a repeated string instruction that has begun,
    /// or behind it while what it has accessed is being worked out. Returns the address of that
    /// instruction: when all notes have been gone through, its accesses come next.
    pub(super) fn leave_repeat(
        &mut self,
        tid: Tid,
        context: Context<'_>,
        regs: &Raw,
    ) -> Option<u64> {
        const IN_CUT: u64 = 1;
        let pc = context.get(Slot::LwpRepeats);
        if pc <= IN_CUT || self.cache.is_none() {
            return None;
        }
        if regs.rip == pc {
            self.repeated(tid, context, pc, [regs.rcx, regs.rsi, regs.rdi]);
            return None;
        }
        context.set(Slot::LwpRepeats, 0);
        Some(pc)
    }

    /// Makes the accesses of the repeated string instruction at `pc` that translated code has not
    /// worked out. Returns its misses.
    pub(super) fn finish_repeat(
        &mut self,
        tid: Tid,
        context: Context<'_>,
        pc: u64,
        regs: &Raw,
    ) -> Vec<Access> {
        let mut misses = Vec::new();
        let Some(instruction) = decode(tid, pc) else { return misses };
        let now = [regs.rcx, regs.rsi, regs.rdi];
        let done = context.get(Slot::LwpRepeatDone);
        let at = |slot: Slot| context.get(slot).wrapping_add(done);
        let (from, to) = (at(Slot::LwpRepeatFrom), at(Slot::LwpRepeatTo));
        let bytes = (context.get(Slot::LwpMeta) & 0xfff).max(1);
        let before = [now[0].wrapping_add(to.abs_diff(now[2]) / bytes), from, to];
        let touched = iterations(&instruction, before, now);
        if let Some(cache) = &mut self.cache {
            touched.into_iter().for_each(|touched| cache.access(context, touched, &mut misses));
        }
        misses
    }

    /// The accesses of an instruction that is about to be executed natively, of one iteration where
    /// it repeats.
    pub(super) fn about_to_step(
        &mut self,
        vectors: impl Fn() -> Option<Vectors>,
        tid: Tid,
        context: Context<'_>,
        regs: &Raw,
    ) {
        if self.cache.is_none() {
            return;
        }
        let Some(instruction) = decode(tid, regs.rip) else { return };
        let none_left = operands::repeats(&instruction) && regs.rcx == 0;
        let operands = if none_left { Vec::new() } else { operands::of(&instruction) };
        let spread = |operand: &MemoryOperand| matches!(operand.spread, Spread::Elements(_));
        let vectors = operands.iter().any(spread).then(&vectors).flatten();
        let lane = |register: Register, offset: usize, bytes: usize| match &vectors {
            Some(vectors) if register.is_k() => vectors.mask(register.number()),
            Some(vectors) => vectors.lane(register.number(), offset, bytes),
            None => 0,
        };
        let touched = operands.iter().flat_map(|operand| {
            let addresses = operand.addresses(|register| value(register, regs, context), lane);
            addresses.into_iter().map(|address| Touched {
                how: operand.how,
                address,
                bytes: operand.bytes,
            })
        });
        self.begin_accesses(regs.rip, touched.collect());
    }

    fn begin_accesses(&mut self, pc: u64, touched: Vec<Touched>) {
        let Some(cache) = &mut self.cache else { return };
        match &mut cache.begun {
            Some((ip, before)) if *ip == pc => before.extend(touched),
            _ => cache.begun = Some((pc, touched)),
        }
    }

    /// The instruction at `pc` has retired: what it began has been accessed.
    pub(super) fn finish_accesses(&mut self, context: Context<'_>, pc: u64) {
        let Some(cache) = &mut self.cache else { return };
        let Some((ip, touched)) = cache.begun.take() else { return };
        if ip == pc {
            for touched in touched {
                cache.access(context, touched, &mut self.waiting);
            }
        }
    }
}

/// A cut fragment of one instruction may note whatever it accesses: all notes have been gone
/// through.
pub(super) fn allow_notes(context: Context<'_>) {
    context.set(Slot::LwpKeeps, 1);
    context.set(Slot::LwpMostNotes, u64::from(MOST_NOTES));
    context.set(Slot::LwpRepeats, 0);
}

/// A repeated string instruction that claims to have gone further has not been executed.
const MOST_ITERATIONS: u64 = 1 << 27;

/// The accesses of a repeated string instruction that went from `before` to `now`: rcx, rsi and
/// rdi.
fn iterations(instruction: &Instruction, before: [u64; 3], now: [u64; 3]) -> Vec<Touched> {
    let operands = operands::of(instruction);
    let narrow = operands.iter().any(|operand| operand.narrow);
    let mask = if narrow { u64::from(u32::MAX) } else { u64::MAX };
    let count = before[0].wrapping_sub(now[0]) & mask;
    // No more than can be: registers and slots are the program's to write.
    let count = if count > MOST_ITERATIONS { 0 } else { count };
    // Where each operand starts, and how far it is to the next one.
    let walks: Vec<(u64, u64, &MemoryOperand)> = operands
        .iter()
        .map(|operand| {
            let source = operand.base.full_register() == Register::RSI;
            let register = if source { 1 } else { 2 };
            let (from, to) = (before[register] & mask, now[register] & mask);
            let stride = u64::from(operand.bytes);
            let up = from.wrapping_add(count.wrapping_mul(stride)) & mask == to;
            (from, if up { stride } else { stride.wrapping_neg() }, operand)
        })
        .collect();
    let at = |step: u64, (from, stride, operand): &(u64, u64, &MemoryOperand)| Touched {
        how: operand.how,
        address: from.wrapping_add(step.wrapping_mul(*stride)) & mask,
        bytes: operand.bytes,
    };
    (0..count).flat_map(|step| walks.iter().map(move |walk| at(step, walk))).collect()
}

/// The linear address of an operand.
fn address(operand: &MemoryOperand, regs: &Raw, context: Context<'_>) -> u64 {
    operand.address(|register| value(register, regs, context))
}

/// A register in an address.
fn value(register: Register, regs: &Raw, context: Context<'_>) -> u64 {
    match register {
        Register::FS => regs.fs_base,
        Register::GS => context.get(Slot::AppGs),
        register => general_value(regs, register.number() as u8),
    }
}

/// The number of the latest changes in a thread's data cache by the instruction at `pc`.
pub(super) fn changes_of(context: Context<'_>, family: &Family, pc: u64) -> u64 {
    let undos = context.get(Slot::LwpUndos);
    let sites =
        (0..undos.min(u64::from(UNDOS))).map(|back| context.lwp().undo(undos - 1 - back)[0]);
    let its = |site: &u64| known_pc(family, CachePc(*site)) == Some(pc);
    sites.take_while(its).count() as u64
}

impl Answer<'_> {
    /// There is no room among the notes for an access at `pc`, whose fragment has been charged for
    /// what follows too.
    pub fn lwp_notes_full(&mut self, pc: AppPc) -> Option<Backlog> {
        let tid = self.cx.tid;
        let context = self.context();
        let id = FragmentId(context.get(Slot::LwpFragment) as u32);
        let index = context.get(Slot::LwpIndex) as u32;
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
        let is_known = |family: &Family| {
            family.code_cache.has_fragment(id)
                && index <= u32::from(family.code_cache.fragment(id).instructions)
        };
        let selection = self.machine.tasks.lwp(tid).map(|lwp| lwp.selection());
        let asked = selection.is_some_and(|selection| selection.dcache);
        if !asked || !self.machine.space_of(tid).is_some_and(|(_, family)| is_known(family)) {
            self.machine.forged(tid, "an access that no translated code makes");
            return None;
        }
        let state = AppState { partial: Some((index, true)), ..AppState::at(PcSource::ContextPc) };
        let correction = self.machine.counting().unfinished(tid, &state, Some(id));
        if let Some(thread) = self.machine.tasks.threads.get_mut(&tid) {
            thread.account.correction.add_sum(correction);
        }
        let context = self.machine.contexts.context(self.cx.slot);
        let meta = context.get(Slot::LwpMeta);
        let bytes = meta & 0xfff;
        let last = context.get(Slot::LwpAddress).wrapping_add(bytes.wrapping_sub(1));
        let first = context.get(Slot::LwpAddress);
        if let Some(lwp) = self.machine.tasks.lwp_mut(tid) {
            lwp.cache.expect_miss(first, last);
        }
        let by_instruction = selection.is_some_and(|selection| selection.instructions);
        if let Some((_, family)) = self.machine.space_of(tid) {
            let rest = rest_of(&family.code_cache, id, index, by_instruction);
            give_back(self.context(), rest);
        }
        if meta & u64::from(META_REPEATS) != 0 {
            return self.lwp_due(pc);
        }
        match self.machine.config.watches() {
            true => self.sample_miss(pc),
            false => self.lwp_due(pc),
        }
    }
}
