//! The data cache of a thread that counts its misses.
//!
//! The first level is in the thread's context, and translated code keeps it: it compares the line
//! of each access with the one used last in its set, and looks through the set where it is another.
//! Misses are noted. What lies behind the first level goes through the notes when there is no room
//! for more, or when anything else wants the unit. Room is only made for as many notes as misses
//! may pass before an event expires: the access on which one might is then the only one under way.

use std::sync::OnceLock;

use iced_x86::{Instruction, Register};
use lwp_arch::LinearAddr;
use lwp_arch::retired::{Access, AccessKind};
use lwp_dbt::context::{
    META_REPEATS, MOST_NOTES, MOST_SETS, MOST_WAYS, NO_LINE, NOTE_GOES_ON, TargetFeatures, UNDOS,
    set_bytes,
};
use lwp_dbt::operands::{self, MemoryOperand, Spread, Use};
use lwp_dbt::{AppPc, AppState, CachePc, FragmentId, PcSource, RequestKind, Slot};
use lwp_ptrace::regs::{Raw, general_value};
use lwp_ptrace::{Tid, Vectors};
use lwp_uarch::{CacheShape, Caches, Hierarchy};

use super::ThreadLwp;
use super::leave::{give_back, rest_of};
use crate::contexts::Context;
use crate::family::Family;
use crate::server::{Answer, Backlog};
use crate::state::known_pc;

/// The caches of a thread.
#[derive(Clone, Debug)]
pub struct DataCache {
    /// The hierarchy behind the first level.
    outer: Hierarchy,
    /// The first level's, which is in the context.
    shape: CacheShape,
    /// The latency of what is behind all levels.
    slowest_cycles: u32,
    /// The context still holds what it held before.
    cold: bool,
    /// Accesses of an instruction that has not retired yet: iterations of a repeated one.
    begun: Option<(u64, Vec<Touched>)>,
}

/// An access as it is made, before the caches have seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touched {
    how: Use,
    address: u64,
    bytes: u32,
}

/// Most misses that are counted before the host looks.
const MOST_COUNTED: u64 = 1 << 30;

/// Least bytes in a way of a cache. An access that begins in a set must not end in the same set
/// with another line: only one of the two would be looked at.
pub const LEAST_WAY_BYTES: u64 = 1024;

/// Returns whether translated code can keep a first level of this shape.
pub fn can_be_kept(shape: &CacheShape) -> bool {
    let (sets, line) = (shape.sets(), u64::from(shape.line_bytes));
    let few = sets <= u64::from(MOST_SETS) && shape.ways <= MOST_WAYS;
    shape.is_regular() && few && sets > 1 && sets * line >= LEAST_WAY_BYTES
}

/// Returns whether translated code can watch a data cache on this machine.
pub fn can_be_watched() -> bool {
    TargetFeatures::of_this_processor().bit_extract && has_fs_base()
}

/// Returns whether programs may read the base of FS. Every run wants to know, some more than once.
fn has_fs_base() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(find_fs_base)
}

fn find_fs_base() -> bool {
    const AT_HWCAP2: u64 = 26;
    const FSGSBASE: u64 = 2;
    let auxv = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let words: Vec<u64> = auxv
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok())
        .map(u64::from_le_bytes)
        .collect();
    words.chunks_exact(2).any(|entry| entry[0] == AT_HWCAP2 && entry[1] & FSGSBASE != 0)
}

/// The masks of the address bits that choose a set, and that name a line; the bytes that the lines
/// of a set take; and the mask of the bits of a set's place.
pub fn masks(shape: &CacheShape) -> [u64; 4] {
    let (line, last) = (u64::from(shape.line_bytes), shape.sets() - 1);
    let places = last * u64::from(set_bytes(shape.ways));
    [last * line, !(line - 1), u64::from(shape.ways) * 8, places]
}

impl DataCache {
    /// Cold caches.
    pub fn new(caches: &Caches) -> Self {
        let outer = Hierarchy::new(&caches.levels, caches.memory);
        let slowest_cycles = caches.memory.latency_cycles;
        Self { outer, shape: caches.levels[0].shape, slowest_cycles, cold: true, begun: None }
    }

    /// The longest latency of a miss.
    pub fn slowest_cycles(&self) -> u32 {
        self.slowest_cycles
    }

    /// Empties the first level, once.
    fn write_cold(&mut self, context: Context<'_>) {
        if !std::mem::take(&mut self.cold) {
            return;
        }
        // Places that these sets do not use are looked at too.
        let bytes = self.shape.sets() * u64::from(set_bytes(self.shape.ways));
        (0..bytes).step_by(8).for_each(|place| context.lwp().set_line(place, NO_LINE));
        context.set(Slot::LwpNotes, 0);
        context.set(Slot::LwpUndos, 0);
    }

    /// Makes an access that translated code could not make. A miss goes to `out`.
    fn access(&mut self, context: Context<'_>, touched: Touched, out: &mut Vec<Access>) {
        let last = touched.address.wrapping_add(u64::from(touched.bytes.max(1)) - 1);
        let (mut line, last) = (self.shape.line_of(touched.address), self.shape.line_of(last));
        let mut miss = None;
        let mut address = touched.address;
        loop {
            if !self.put_first(context, line) {
                let fetched = self.outer.fetch(LinearAddr(address));
                miss = miss.or(Some(fetched));
            }
            if line >= last {
                break;
            }
            line += 1;
            address = line * u64::from(self.shape.line_bytes);
        }
        if miss.is_some() {
            out.push(Access {
                kind: kind(touched.how),
                address: LinearAddr(touched.address),
                miss,
            });
        }
    }

    /// Makes a line the most recent of its set; whether it was there.
    fn put_first(&self, context: Context<'_>, line: u64) -> bool {
        let (set, wanted) = (self.set_at(line), self.entry(line));
        let mut moved = wanted;
        for way in 0..u64::from(self.shape.ways) {
            let held = context.lwp().line(set + way * 8);
            context.lwp().set_line(set + way * 8, moved);
            if held == wanted {
                return true;
            }
            moved = held;
        }
        false
    }

    /// The beginning of a line's set in the context.
    fn set_at(&self, line: u64) -> u64 {
        self.shape.set_of(line) as u64 * u64::from(set_bytes(self.shape.ways))
    }

    /// The entry that stands for a line in the context.
    fn entry(&self, line: u64) -> u64 {
        (line * u64::from(self.shape.line_bytes)).wrapping_neg()
    }

    /// The line that an entry stands for.
    fn line(&self, entry: u64) -> u64 {
        self.shape.line_of(entry.wrapping_neg())
    }

    /// Takes a change back, as far as translated code has come with it.
    fn take_back(&self, context: Context<'_>, change: [u64; 4]) {
        let set = self.set_at(self.line(change[1]));
        let places = || (0..u64::from(self.shape.ways)).map(|way| set + way * 8);
        let mut lines: Vec<u64> = places().map(|place| context.lwp().line(place)).collect();
        restore(&mut lines, change);
        places().zip(lines).for_each(|(place, line)| context.lwp().set_line(place, line));
    }

    /// The value that a change added to the notes: 0 unless it made room for a line that was
    /// nowhere.
    fn noted(&self, place: u64) -> u64 {
        let missed = place as u32 / 8 >= self.shape.ways;
        if missed { (place >> 32 << 32) + 1 } else { 0 }
    }
}

/// Puts a set back as it was before its line of `entry` was moved to the front: from `place`, or
/// else `gone` had to go for it. The lines before have moved on by one, the last first, as far as
/// translated code has come.
fn restore(lines: &mut [u64], [_, entry, place, gone]: [u64; 4]) {
    let found = place as u32 as usize / 8;
    let last = found.min(lines.len() - 1);
    let from = match lines[0] == entry {
        true => Some(0),
        // What is moving on stands in two places.
        false => lines[..=last].windows(2).position(|pair| pair[0] == pair[1]).map(|way| way + 1),
    };
    let Some(from) = from else { return };
    lines[from..=last].rotate_left(1);
    lines[last] = if found < lines.len() { entry } else { gone };
}

/// The kind of an access that misses: the store that follows a load finds its line.
fn kind(how: Use) -> AccessKind {
    match how {
        Use::Load | Use::LoadStore => AccessKind::Load,
        Use::Store => AccessKind::Store,
        Use::Prefetch => AccessKind::Prefetch,
    }
}

impl ThreadLwp {
    /// Goes through the notes. Those of the instruction at `but` are left to be reported with it.
    pub(super) fn take_notes(&mut self, context: Context<'_>, but: Option<u64>) {
        if context.get(Slot::LwpKeeps) == 0 {
            self.misses.passed += context.get(Slot::LwpNotes) >> 32;
            context.set(Slot::LwpNotes, 0);
            context.set(Slot::LwpUndos, 0);
            return;
        }
        let Some(mut cache) = self.dcache.take() else { return };
        // Samples do not say where the line came from.
        let outer = self.sampling.sampler.is_none() || self.sampling.tally.is_some();
        for [address, what] in context.lwp().notes() {
            let miss = outer.then(|| cache.outer.fetch(LinearAddr(address)));
            if what & NOTE_GOES_ON != 0 {
                continue;
            }
            let (ip, counts) = (what >> 16, what >> 14 & 1 != 0);
            let counts = counts && self.judge.as_ref().is_none_or(|judge| judge.admits(ip));
            let kind = kind(Use::from_raw(what >> 12));
            let access = Access { kind, address: LinearAddr(address), miss };
            if but == Some(ip) {
                self.misses.waiting.push(access);
            } else if counts {
                self.miss_passes(ip, &access);
            }
        }
        self.dcache = Some(cache);
        context.set(Slot::LwpNotes, 0);
        context.set(Slot::LwpUndos, 0);
    }

    /// Returns whether a miss counts for the event that is counted.
    fn counts_miss(&self, access: &Access) -> bool {
        match self.sampling.sampler {
            Some(_) => access.kind == AccessKind::Load,
            None => self.unit.counts_miss(access),
        }
    }

    /// Publishes how many misses may be noted.
    pub(super) fn write_cache(&mut self, context: Context<'_>) {
        let outer_matters = self.sampling.sampler.is_none() || self.sampling.tally.is_some();
        let room = match &self.sampling.sampler {
            Some(sampler) => sampler.room_for_misses(),
            None => self.misses_within(&self.unit.headroom()),
        };
        if let Some(cache) = &mut self.dcache {
            cache.write_cold(context);
            let begun = cache.begun.as_ref().is_some_and(|(_, touched)| !touched.is_empty());
            context.set(Slot::LwpRepeatBegun, u64::from(begun));
            // A sample needs no more than their number, unless not all count.
            let keeps = outer_matters || self.selection.ip.is_some();
            let most = if keeps { u64::from(MOST_NOTES) } else { MOST_COUNTED };
            context.set(Slot::LwpKeeps, u64::from(keeps));
            context.set(Slot::LwpMostNotes, room.min(most));
        }
    }

    /// A cut fragment of one instruction may note whatever it accesses.
    pub(super) fn allow_notes(&mut self, context: Context<'_>) {
        if self.dcache.is_some() {
            self.take_notes(context, None);
            context.set(Slot::LwpKeeps, 1);
            context.set(Slot::LwpMostNotes, u64::from(MOST_NOTES));
            context.set(Slot::LwpRepeats, 0);
        }
    }

    /// Takes back what translated code has begun and not finished: moving a line to the front of
    /// its set. A miss of a line that `moved` there has been noted.
    pub(super) fn take_move_back(&self, context: Context<'_>, moved: bool) {
        let Some(cache) = &self.dcache else { return };
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
        let Some(cache) = &mut self.dcache else { return };
        self.misses.waiting.clear();
        let mut undos = context.get(Slot::LwpUndos);
        // What has been gone through is not taken back.
        if its == 0 || its > undos {
            return;
        }
        let oldest = undos - its;
        let Some(instruction) = super::instruction::decode(tid, regs.rip) else { return };
        let operands = operands::of(&instruction);
        let lines: Vec<(u64, u64)> = operands
            .iter()
            .map(|operand| {
                let first = address(operand, regs, context);
                let last = first.wrapping_add(u64::from(operand.bytes) - 1);
                (cache.shape.line_of(first), cache.shape.line_of(last))
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

    /// Returns whether a repeated string instruction of a cut fragment has begun; what it has
    /// accessed until now is kept for when it retires. `now` are rcx, rsi and rdi.
    pub(super) fn repeated(&mut self, tid: Tid, context: Context<'_>, pc: u64, now: [u64; 3]) {
        if self.dcache.is_none() || context.get(Slot::LwpRepeats) == 0 {
            return;
        }
        context.set(Slot::LwpRepeats, 0);
        let Some(instruction) = super::instruction::decode(tid, pc) else { return };
        let before = [Slot::LwpRepeatCount, Slot::LwpRepeatFrom, Slot::LwpRepeatTo]
            .map(|slot| context.get(slot));
        let touched = iterations(&instruction, before, now);
        self.begin_accesses(pc, touched);
    }

    /// The thread leaves translated code, perhaps at a repeated string instruction that has begun,
    /// or behind it while what it has accessed is being worked out.
    pub(super) fn leave_repeat(&mut self, tid: Tid, context: Context<'_>, regs: &Raw) {
        const IN_CUT: u64 = 1;
        let pc = context.get(Slot::LwpRepeats);
        if pc <= IN_CUT || self.dcache.is_none() {
            return;
        }
        let now = [regs.rcx, regs.rsi, regs.rdi];
        if regs.rip == pc {
            return self.repeated(tid, context, pc, now);
        }
        context.set(Slot::LwpRepeats, 0);
        self.take_notes(context, None);
        let Some(instruction) = super::instruction::decode(tid, pc) else { return };
        let done = context.get(Slot::LwpRepeatDone);
        let at = |slot: Slot| context.get(slot).wrapping_add(done);
        let (from, to) = (at(Slot::LwpRepeatFrom), at(Slot::LwpRepeatTo));
        let bytes = (context.get(Slot::LwpMeta) & 0xfff).max(1);
        let before = [now[0].wrapping_add(to.abs_diff(now[2]) / bytes), from, to];
        let touched = iterations(&instruction, before, now);
        let Some(mut cache) = self.dcache.take() else { return };
        let mut misses = Vec::new();
        touched.into_iter().for_each(|touched| cache.access(context, touched, &mut misses));
        self.dcache = Some(cache);
        // There was room for all of them, so no event expires on one.
        let counts = self.admits(pc);
        misses.iter().filter(|_| counts).for_each(|access| self.miss_passes(pc, access));
    }

    /// A miss of an instruction that passes the IP filter has passed.
    fn miss_passes(&mut self, ip: u64, access: &Access) {
        if let Some(tally) = &mut self.sampling.tally {
            return tally.add(ip, access);
        }
        self.misses.passed += u64::from(self.counts_miss(access));
        self.clocks.waits_256 += self.clocks.core.stall_256(access);
    }

    /// The accesses of an instruction that is about to be executed natively, of one iteration where
    /// it repeats.
    pub fn about_to_step(
        &mut self,
        vectors: impl Fn() -> Option<Vectors>,
        tid: Tid,
        context: Context<'_>,
        regs: &Raw,
    ) {
        if self.dcache.is_none() {
            return;
        }
        let Some(instruction) = super::instruction::decode(tid, regs.rip) else { return };
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
        let Some(cache) = &mut self.dcache else { return };
        match &mut cache.begun {
            Some((ip, before)) if *ip == pc => before.extend(touched),
            _ => cache.begun = Some((pc, touched)),
        }
    }

    /// The instruction at `pc` has retired: what it began has been accessed.
    pub(super) fn finish_accesses(&mut self, context: Context<'_>, pc: u64) {
        let Some(cache) = &mut self.dcache else { return };
        let Some((ip, touched)) = cache.begun.take() else { return };
        if ip == pc {
            for touched in touched {
                cache.access(context, touched, &mut self.misses.waiting);
            }
        }
    }
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
        let selection = self.machine.tasks.lwp(tid).map(|lwp| lwp.selection);
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
        if let Some(lwp) = self.machine.tasks.lwp_mut(tid)
            && let Some(cache) = &lwp.dcache
        {
            let first = cache.shape.line_of(context.get(Slot::LwpAddress));
            let lines = cache.shape.line_of(last).wrapping_sub(first).wrapping_add(1);
            lwp.misses.lines = lines.min(u64::from(MOST_NOTES));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The states of a set of `ways` lines, of which `held` are lines, while translated code moves
    /// the one at `place` to the front, or a new one where that is none of them; and the change
    /// that it writes down.
    fn moves(ways: usize, held: usize, place: usize) -> (Vec<Vec<u64>>, [u64; 4]) {
        let line = |number: usize| (number as u64 * 64).wrapping_neg();
        let mut lines: Vec<u64> = (1..=ways).map(line).collect();
        lines[held..].fill(NO_LINE);
        let missed = place >= held;
        let entry = if missed { line(99) } else { lines[place] };
        let last = if missed { ways - 1 } else { place };
        let written = if missed { ways as u64 * 8 } else { place as u64 * 8 };
        let change = [0x1234, entry, written, lines[last]];
        let mut states = vec![lines.clone()];
        for way in (1..=last).rev() {
            lines[way] = lines[way - 1];
            states.push(lines.clone());
        }
        lines[0] = entry;
        states.push(lines);
        (states, change)
    }

    #[test]
    fn a_change_is_taken_back_however_far_it_has_come() {
        for ways in 1..=16 {
            for held in 0..=ways {
                for place in (1..held).chain([16]) {
                    let (states, change) = moves(ways, held, place);
                    for state in &states {
                        let mut lines = state.clone();
                        restore(&mut lines, change);
                        assert_eq!(
                            lines, states[0],
                            "{ways} ways, {held} held, {place}: {state:?}"
                        );
                    }
                }
            }
        }
    }
}
