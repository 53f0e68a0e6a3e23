//! The data cache of a thread that counts its misses.
//!
//! Translated code compares the line of each access with the one used last in its set; where it is
//! another, it notes the access. The model goes through the notes when there is no room for more, or
//! when anything else wants the unit. Room is only made for as many notes as misses may pass before an
//! event expires: the access on which one might is then the only one under way.

use iced_x86::{Instruction, Register};
use lwp_arch::LinearAddr;
use lwp_arch::retired::{Access, AccessKind};
use lwp_dbt::context::{MOST_NOTES, MOST_SETS};
use lwp_dbt::operands::{self, MemoryOperand, Use};
use lwp_dbt::{AppPc, FragmentId, RequestKind, Slot, Weights};
use lwp_model::LwpUnit;
use lwp_ptrace::Tid;
use lwp_ptrace::regs::{Raw, general};
use lwp_uarch::presets::Preset;
use lwp_uarch::{CacheShape, Hierarchy};

use super::ThreadLwp;
use crate::contexts::Context;
use crate::machine::Machine;
use crate::server::Backlog;

/// What the table of most recent lines says of a set with none. No line has this number.
const NO_LINE: u64 = 1;

/// The caches of a thread.
#[derive(Clone, Debug)]
pub struct DataCache {
    caches: Hierarchy,
    /// The table in the context is not that of the caches.
    stale: bool,
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

/// Whether translated code can watch a data cache of this shape on this machine.
pub fn can_be_watched(shape: &CacheShape) -> bool {
    let fits = shape.is_regular() && shape.sets() <= u64::from(MOST_SETS) && shape.line_bytes >= 8;
    fits && lwp_dbt::context::has_bit_extract() && has_fs_base()
}

/// Whether programs may read the base of FS.
fn has_fs_base() -> bool {
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

/// The masks of the address bits that choose a set, and that name a line.
pub fn masks(shape: &CacheShape) -> [u64; 2] {
    let line = u64::from(shape.line_bytes);
    [(shape.sets() - 1) * line, !(line - 1)]
}

impl DataCache {
    /// Cold caches.
    pub fn new(preset: &Preset) -> Self {
        let caches = Hierarchy::new(&preset.levels, preset.memory);
        Self { caches, stale: true, begun: None }
    }

    /// Writes the most recent line of each set for translated code, where it does not have them.
    fn write_recent(&mut self, context: Context<'_>) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let Some(first) = self.caches.first() else { return };
        for set in 0..first.shape().sets() as usize {
            let line = first.most_recent(set).map_or(NO_LINE, u64::wrapping_neg);
            context.set_lwp_recent(set, line);
        }
    }

    fn access(&mut self, touched: Touched, out: &mut Vec<Access>) {
        let kinds: &[AccessKind] = match touched.how {
            Use::Load => &[AccessKind::Load],
            Use::Store => &[AccessKind::Store],
            Use::LoadStore => &[AccessKind::Load, AccessKind::Store],
            Use::Prefetch => &[AccessKind::Prefetch],
        };
        for &kind in kinds {
            let access = self.caches.access(kind, LinearAddr(touched.address), touched.bytes);
            if access.miss.is_some() {
                out.push(access);
            }
        }
    }
}

/// How many of `accesses` count as misses.
fn misses(unit: &LwpUnit, accesses: &[Access]) -> u64 {
    accesses.iter().filter(|access| unit.counts_miss(access)).count() as u64
}

impl ThreadLwp {
    /// Goes through the notes. Those of the instruction at `but` are left to be reported with it.
    pub(super) fn take_notes(&mut self, context: Context<'_>, but: Option<u64>) {
        let Some(cache) = &mut self.dcache else { return };
        let mut passed = Vec::new();
        for index in 0..context.get(Slot::LwpNotes).min(u64::from(MOST_NOTES)) {
            let [address, what] = context.lwp_note(index);
            let (ip, meta) = (what >> 16, what & 0xffff);
            let how = Use::from_raw(meta >> 12);
            let touched = Touched { how, address, bytes: (meta & 0xfff) as u32 };
            if but == Some(ip) {
                cache.access(touched, &mut self.waiting);
                continue;
            }
            passed.clear();
            cache.access(touched, &mut passed);
            if meta >> 14 & 1 != 0 {
                self.passed_misses += misses(&self.unit, &passed);
            }
        }
        context.set(Slot::LwpNotes, 0);
    }

    /// Publishes how many accesses may be noted, and the most recent lines.
    pub(super) fn write_cache(&mut self, context: Context<'_>) {
        let room = self.unit.headroom().dcache;
        if let Some(cache) = &mut self.dcache {
            cache.write_recent(context);
            context.set(Slot::LwpMostNotes, room.min(u64::from(MOST_NOTES)));
        }
    }

    /// A cut fragment of one instruction may note whatever it accesses.
    pub(super) fn allow_notes(&self, context: Context<'_>) {
        if self.dcache.is_some() {
            context.set(Slot::LwpMostNotes, u64::from(MOST_NOTES));
            context.set(Slot::LwpRepeats, 0);
        }
    }

    /// Takes back the notes of the instruction at `regs.rip`, which has not been executed.
    ///
    /// An earlier execution of the same instruction that noted the same address would be taken back too:
    /// it is noted again, with the same effect.
    pub(super) fn drop_notes(&mut self, tid: Tid, context: Context<'_>, regs: &Raw) {
        let Some(cache) = &mut self.dcache else { return };
        cache.stale = true;
        self.waiting.clear();
        let mut count = context.get(Slot::LwpNotes);
        let is_its = |note: [u64; 2]| note[1] >> 16 == regs.rip & (u64::MAX >> 16);
        if count == 0 || !is_its(context.lwp_note(count - 1)) {
            return;
        }
        let Some(instruction) = super::instruction::decode(tid, regs.rip) else { return };
        let addresses: Vec<u64> = operands::of(&instruction)
            .iter()
            .map(|operand| address(operand, regs, context))
            .collect();
        while count > 0 {
            let note = context.lwp_note(count - 1);
            if !is_its(note) || !addresses.contains(&note[0]) {
                break;
            }
            count -= 1;
        }
        context.set(Slot::LwpNotes, count);
    }

    /// Whether a repeated string instruction of a cut fragment has begun; what it has accessed until now is
    /// kept for when it retires. `now` are rcx, rsi and rdi.
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

    /// The accesses of an instruction that is about to be executed natively, of one iteration where it
    /// repeats.
    pub fn about_to_step(&mut self, tid: Tid, context: Context<'_>, regs: &Raw) {
        if self.dcache.is_none() {
            return;
        }
        let Some(instruction) = super::instruction::decode(tid, regs.rip) else { return };
        let none_left = operands::repeats(&instruction) && regs.rcx == 0;
        let operands = if none_left { Vec::new() } else { operands::of(&instruction) };
        let touched = operands.iter().map(|operand| Touched {
            how: operand.how,
            address: address(operand, regs, context),
            bytes: operand.bytes,
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
    pub(super) fn finish_accesses(&mut self, pc: u64) {
        let Some(cache) = &mut self.dcache else { return };
        let Some((ip, touched)) = cache.begun.take() else { return };
        if ip == pc {
            cache.stale = true;
            for touched in touched {
                cache.access(touched, &mut self.waiting);
            }
        }
    }
}

/// The accesses of a repeated string instruction that went from `before` to `now`: rcx, rsi and rdi.
fn iterations(instruction: &Instruction, before: [u64; 3], now: [u64; 3]) -> Vec<Touched> {
    let operands = operands::of(instruction);
    let narrow = operands.iter().any(|operand| operand.narrow);
    let mask = if narrow { u64::from(u32::MAX) } else { u64::MAX };
    let count = before[0].wrapping_sub(now[0]) & mask;
    let place = |registers: [u64; 3], operand: &MemoryOperand| {
        let source = operand.base.full_register() == Register::RSI;
        registers[if source { 1 } else { 2 }] & mask
    };
    let mut touched = Vec::new();
    for step in 0..count {
        for operand in &operands {
            let from = place(before, operand);
            let length = step.wrapping_mul(u64::from(operand.bytes));
            let forward = count.wrapping_mul(u64::from(operand.bytes));
            let up = from.wrapping_add(forward) & mask == place(now, operand);
            let address = if up { from.wrapping_add(length) } else { from.wrapping_sub(length) };
            touched.push(Touched {
                how: operand.how,
                address: address & mask,
                bytes: operand.bytes,
            });
        }
    }
    touched
}

/// The linear address of an operand.
fn address(operand: &MemoryOperand, regs: &Raw, context: Context<'_>) -> u64 {
    operand.address(|register| match register {
        Register::FS => regs.fs_base,
        Register::GS => context.get(Slot::AppGs),
        register => *general(&mut regs.clone(), register.number() as u8),
    })
}

impl Machine {
    /// There is no room among the notes for an access at `pc`, whose fragment has been charged for what
    /// follows too.
    pub fn lwp_notes_full(
        &mut self,
        tid: Tid,
        slot: usize,
        pc: AppPc,
        alone: bool,
    ) -> Option<Backlog> {
        let context = self.contexts.context(slot);
        let id = FragmentId(context.get(Slot::LwpFragment) as u32);
        let index = context.get(Slot::LwpIndex) as u32;
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
        if let Some((_, family)) = self.space_of(tid) {
            let weights = family.translator.fragment(id).weights.negated();
            let executed = Weights { instructions: index as i32, ..Weights::default() };
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.correction.add(weights, 1);
                thread.correction.add(executed, 1);
            }
            self.note_place(tid, |places| places.cut_short(id, index, true));
        }
        let (high, low) = self.lwp_rest(tid, id, index);
        self.lwp_give_back(tid, high, low);
        self.lwp_due(tid, slot, pc, alone)
    }
}
