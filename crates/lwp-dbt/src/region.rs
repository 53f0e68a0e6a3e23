//! Translates a region: the requested block, the blocks that it falls through to, and those that it
//! branches to directly.
//!
//! The host answers one request with many blocks, because a request costs more than a translation.
//! It lays out blocks in *traces*: each is followed by the block that it falls through to, so that
//! straight control flow is straight code.

use std::sync::Arc;

use crate::addr::{AppPc, CachePc};
use crate::block::{Block, CodeSource, Decoding, Emulated, Terminator};
use crate::code_cache::CodeCache;
use crate::context::{Layout, SyscallClass};
use crate::emit::{Emitter, TOUCH_BYTES, WatchedShape};

use crate::fragment::{EntryId, Fragment, FragmentId, Unit};
use crate::plan::{Checks, EventDeltas, Lwp, Plan, Selection};
use crate::prepared;
use crate::routines::Routines;

mod candidates;
mod counts;
mod cut;
mod dormant;
mod finish;
mod known;
mod lay;
mod liveness;
mod overlay;
mod predict;
mod states;
mod steps;
mod superblock;

pub use candidates::{Candidate, Queue};
use counts::deltas;
pub use counts::{countdown_of, deltas_of};
pub(crate) use known::{Group, Known};
use lay::Next;
pub use overlay::{close_overlays, overlay_path, reopen_overlays};

const SYS_RT_SIGRETURN: u32 = 15;

/// The destination of translated code.
pub trait CodeSink {
    /// Returns the address of the next byte.
    fn position(&self) -> CachePc;
    /// Returns the number of bytes that there is room for.
    fn room(&self) -> usize;
    /// Returns the address of this arena's copy of the routines.
    fn routines_at(&self) -> CachePc;
    /// Appends code at [`Self::position`].
    fn append(&mut self, code: &[u8]);
    /// Overwrites a 4-byte displacement, which does not cross a cache line, in one store.
    fn patch(&mut self, at: CachePc, displacement: i32);
    /// Overwrites the 8 aligned bytes that hold a patchable head with a jump to `target`.
    fn patch_head(&mut self, head: CachePc, target: CachePc);
    /// Makes a patched head lead into its fragment again.
    fn restore_head(&mut self, head: CachePc);
}

/// The amount that is translated for one request.
#[derive(Clone, Copy, Debug)]
pub struct RegionLimits {
    /// Fragments in all.
    pub fragments: usize,
    /// The doubt about the wanted pc itself, where nobody waits for it.
    pub doubt: u8,
    /// The limit of doubt, beyond which places are left out: see [`Candidate::doubt`].
    pub most_doubt: u8,
}

impl RegionLimits {
    /// So many fragments, however doubtful, for a pc that is certain.
    pub const fn fragments(fragments: usize) -> Self {
        Self { fragments, doubt: 0, most_doubt: Candidate::MOST_DOUBT }
    }
}

/// The result of a request.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// The address at which the wanted pc continues: its entry or its head.
    pub head: Option<CachePc>,
    /// Entries created, to be inserted into indirect tables.
    pub entries: Vec<EntryId>,
    /// The number of fragments translated.
    pub fragments: usize,
    /// The places that control may come to next and that were not translated any more, the
    /// likeliest first; those outside the unit too, behind those inside.
    pub rest: Vec<Candidate>,
}

/// A translator for address spaces of one layout: a function of application code, a plan, the
/// processor's features and addresses, with nothing that changes. The code that it makes goes to a
/// [`Destination`].
#[derive(Clone, Debug)]
pub struct Translator {
    pub(crate) plan: Plan,
    lwp: Lwp,
    pub(crate) layout: Layout,
    routines: Arc<Routines>,
    emulated: Emulated,
    /// True if executions are counted in any case, for an execution profile.
    learns: bool,
    /// True if executions of code that may change are counted in any case, for an execution
    /// profile.
    learns_changing: bool,
    /// The data cache, where one is watched.
    shape: WatchedShape,
    classes: Box<[SyscallClass; 512]>,
}

/// The places where translated code goes.
pub struct Destination<'a> {
    /// The tables of all translated code.
    pub cache: &'a mut CodeCache,
    /// The unit that the code belongs to.
    pub unit: &'a mut Unit,
    /// The memory that the code is written to.
    pub sink: &'a mut dyn CodeSink,
}

impl std::fmt::Debug for Destination<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination").finish_non_exhaustive()
    }
}

/// One region being translated.
struct Work<'a> {
    cache: &'a mut CodeCache,
    unit: &'a mut Unit,
    sink: &'a mut dyn CodeSink,
    source: &'a mut dyn CodeSource,
    emitter: Emitter<'a>,
    queue: Queue,
    /// Places that are not the unit's.
    foreign: Vec<Candidate>,
    /// The doubt about the code being laid out.
    doubt: u8,
    created: Vec<FragmentId>,
    /// Those that were dormant, and to which something may lead now.
    woken: Vec<FragmentId>,
    entries: Vec<EntryId>,
    room: usize,
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

/// The way control arrives at a block being laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// Only by a jump to it.
    Jump,
    /// From the block before, which is complete and counted.
    Fall,
    /// From the conditional branch before, whose not-taken edge is not counted yet.
    NotTaken,
    /// From the conditional branch before, with its not-taken edge uncounted, but mostly from
    /// elsewhere.
    NotTakenSeldom,
}

/// The counts of a not-taken edge: its branch, which was charged as taken, was not.
const NOT_TAKEN: EventDeltas = EventDeltas {
    instructions: 0,
    branches: 0,
    conditional: 0,
    conditional_taken: -1,
    calls: 0,
    returns: 0,
    indirect: 0,
};

/// Returns whether there is no code of the unit at `pc`.
fn is_foreign(work: &mut Work<'_>, pc: AppPc) -> bool {
    work.source.read_code(pc, &mut [0]) == 0
}

/// The amount by which the code that a trace falls into may become more doubtful: straight code is
/// worth more than its likelihood.
const TRACE_DOUBT: u8 = 8;

/// Bytes that one fragment with its stubs can take at most, generously.
const FRAGMENT_ROOM: usize = 6144;
/// Bytes that one fragment can take at most if data cache accesses are watched: most instructions
/// make at most one.
const WATCHED_ROOM: usize = FRAGMENT_ROOM + 80 * TOUCH_BYTES;

impl Translator {
    /// A translator with nothing translated.
    pub fn new(
        plan: Plan,
        lwp: Lwp,
        layout: Layout,
        emulated: Emulated,
        classes: Box<[SyscallClass; 512]>,
    ) -> Self {
        let routines = Arc::new(prepared::routines(layout));
        let shape = WatchedShape::default();
        Self {
            plan,
            lwp,
            layout,
            routines,
            emulated,
            learns: false,
            learns_changing: false,
            shape,
            classes,
        }
    }

    /// Says how the data cache that is watched is divided: the length of a line, the bits of an
    /// address that choose a set, and those of a set's place. Must be said before anything is
    /// translated.
    pub fn watch_cache(&mut self, line_bytes: u32, set_mask: u32, places: u32) {
        self.shape = WatchedShape { line_bytes, set_mask, places };
    }

    /// Returns everything that has been said of the data cache that is watched, in that order.
    pub fn watched_words(&self) -> [u32; 3] {
        [self.shape.line_bytes, self.shape.set_mask, self.shape.places]
    }

    /// The routines that every arena and low window carries.
    pub fn routines(&self) -> &Routines {
        &self.routines
    }

    /// The address space layout that code is emitted for.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The plan that fragments carry.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Returns the code's knowledge of Lightweight Profiling.
    pub fn lwp(&self) -> Lwp {
        self.lwp
    }

    /// Returns the knowledge of Lightweight Profiling that `unit`'s code has; its filter takes
    /// precedence over that of the selection. Must not change once anything of the unit has been
    /// translated.
    pub fn lwp_of(&self, unit: &Unit) -> Lwp {
        match self.lwp {
            Lwp::On(selection) => {
                Lwp::On(Selection { ip: unit.filter.or(selection.ip), ..selection })
            }
            other => other,
        }
    }

    /// Counts executions also where the plan does not, and notes where indirect branches lead, in
    /// fragments that are not part of superblocks and whose code cannot change. Must be said before
    /// anything is translated. Nothing comes of it where profiling is on: a first run would pay
    /// half as much again.
    pub fn learn(&mut self) {
        self.learns = !self.profiles();
    }

    /// Does so in code that may change too, in what is translated from now on.
    pub fn learn_changing(&mut self) {
        self.learns_changing = self.learns;
    }

    /// Returns whether an execution profile makes the code better.
    pub fn uses_profiles(&self) -> bool {
        self.counts_down_at_once(self.lwp)
    }

    /// Returns this translator, which counts for an execution profile if `learns`.
    pub(crate) fn learning(&self, learns: bool) -> Self {
        Self { learns, ..self.clone() }
    }

    /// Returns whether it counts for an execution profile.
    pub fn learns(&self) -> bool {
        self.learns
    }

    /// Returns whether fragments of `unit` count for an execution profile.
    fn learns_of(&self, unit: &Unit) -> bool {
        if unit.checks == Checks::None { self.learns } else { self.learns_changing }
    }

    /// Returns whether profiling is on in the threads that run this code.
    fn profiles(&self) -> bool {
        matches!(self.lwp, Lwp::On(_))
    }

    /// Returns the instructions that are answered instead of executed.
    pub fn emulated(&self) -> Emulated {
        self.emulated
    }

    /// Returns the tables for code of this translator, with nothing in them.
    pub fn code_cache(&self) -> CodeCache {
        CodeCache::new(self.profiles(), self.plan)
    }

    /// Finds the place in translated code where execution of `pc` continues, translating it if need
    /// be.
    ///
    /// `entry` asks for an indirect entry of `pc` too, which is then among the region's entries
    /// when it is new. Returns a region without head where no code can be read at `pc`, or where
    /// the arena has no room.
    pub fn translate(
        &self,
        to: &mut Destination<'_>,
        source: &mut dyn CodeSource,
        pc: AppPc,
        entry: bool,
        limits: RegionLimits,
    ) -> Region {
        let mut work = begin(self, to, source);
        work.doubt = limits.doubt;
        work.emitter.watch.shape = self.shape;
        let before = work.cache.fragments.len();
        if work.unit.checks != Checks::None {
            dormant::wake_page(&mut work, pc);
        }
        trace(self, &mut work, Candidate { pc, entry, doubt: limits.doubt }, limits);
        if !work.unit.has_fragment(pc) {
            if !work.woken.is_empty() {
                finish::complete(&mut work);
            }
            work.end();
            return Region::default();
        }
        while work.created.len() < limits.fragments
            && fits_another(self, &work)
            && let Some(next) = work.queue.pop(limits.most_doubt)
        {
            trace(self, &mut work, next, limits);
        }
        if entry {
            finish::entry_on_demand(self, &mut work, pc);
        }
        let region = publish(work, pc, before);
        if to.unit.checks != Checks::None {
            reopen_overlays(self, to, source, pc);
        }
        region
    }

    /// Returns the settings for decoding blocks of `unit`, of at most `most` instructions.
    fn decoding(&self, unit: &Unit, pc: AppPc, most: usize) -> Decoding {
        let ip = match self.lwp_of(unit) {
            Lwp::On(selection) if selection.filters() => selection.ip,
            _ => None,
        };
        let changing = unit.checks == Checks::SelfCheck;
        let dcache = matches!(self.lwp, Lwp::On(selection) if selection.dcache);
        let walks = dcache && self.shape.is_direct();
        let (marked, until) = (unit.marks.alone.contains(&pc), unit.marks.behind(pc));
        let most = if unit.marks.values.contains_key(&pc) { 1 } else { most };
        Decoding { emulated: self.emulated, changing, ip, dcache, walks, marked, until, most }
    }
}

/// Returns whether events may be noted, to be recorded when the next block begins.
fn notes(by: &Translator, unit: &Unit) -> bool {
    match by.lwp_of(unit) {
        Lwp::On(selection) => selection.instructions && selection.ip.is_none() && !selection.dcache,
        Lwp::Off | Lwp::Absent => false,
    }
}

/// Publishes a region, in which `pc` was wanted and before which there were `before` fragments.
fn publish(mut work: Work<'_>, pc: AppPc, before: usize) -> Region {
    let head = work.unit.fragment_at(pc).map(|id| finish::head(&mut work, id));
    finish::complete(&mut work);
    let fragments = work.cache.fragments.len() - before;
    let (entries, rest) = work.end();
    Region { head, entries, fragments, rest }
}

/// Begins a region.
fn begin<'a>(
    by: &'a Translator,
    to: &'a mut Destination<'_>,
    source: &'a mut dyn CodeSource,
) -> Work<'a> {
    let (base, routines_at) = (to.sink.position().0, to.sink.routines_at().0);
    let used = std::mem::take(&mut to.cache.scratch.used);
    Work {
        room: to.sink.room(),
        cache: &mut *to.cache,
        unit: &mut *to.unit,
        sink: &mut *to.sink,
        source,
        emitter: Emitter::new(base, by.layout, &by.routines, routines_at, used),
        queue: Queue::default(),
        foreign: Vec::new(),
        doubt: 0,
        created: Vec::new(),
        woken: Vec::new(),
        entries: Vec::new(),
    }
}

/// Lays out the block at `from` and what it falls into.
fn trace(by: &Translator, work: &mut Work<'_>, from: Candidate, limits: RegionLimits) {
    let Candidate { mut pc, mut entry, doubt } = from;
    work.doubt = doubt;
    let mut arrival = Arrival::Jump;
    let mut length = 0;
    let mut before: Option<Arc<Block>> = None;
    loop {
        if work.unit.has_fragment(pc) {
            lay::fall_off(by, work, pc, arrival);
            if length == 0 && entry {
                finish::entry_on_demand(by, work, pc);
            }
            return;
        }
        let fits = fits_another(by, work);
        let stop = work.created.len() >= limits.fragments.max(1) + 16
            || !fits
            || work.doubt > limits.most_doubt.saturating_add(TRACE_DOUBT);
        let block = if stop && length > 0 { None } else { decode(by, work, pc) };
        let Some(block) = block else {
            if fits || length > 0 {
                lay::fall_off(by, work, pc, arrival);
            }
            match (length, entry) {
                (0, true) if is_foreign(work, pc) => {
                    work.foreign.push(Candidate { pc, entry, doubt })
                }
                (1.., true) => work.queue.push(Candidate::indirect(pc, work.doubt)),
                _ => {}
            }
            return;
        };
        let next = lay::lay(by, work, &block, arrival, entry);
        if matches!(block.terminator, Terminator::IndirectJump | Terminator::IndirectCall) {
            let falls_in = before.as_deref().filter(|_| arrival != Arrival::Jump);
            predict::predict(work, &block, falls_in);
        }
        before = Some(block);
        length += 1;
        let Some(next) = next else { return };
        entry = matches!(next, Next::Return(_));
        (pc, arrival) = next.by_itself();
    }
}

fn decode(by: &Translator, work: &mut Work<'_>, pc: AppPc) -> Option<Arc<Block>> {
    let mut how = by.decoding(work.unit, pc, 0);
    if by.plan.traces()
        && let Some(function) = work.source.function(pc)
    {
        // A block lies in one function.
        how.until = Some(how.until.map_or(AppPc(function.end), |it| AppPc(it.0.min(function.end))));
    }
    work.cache.scratch.decode(work.source, pc, how)
}

/// Returns whether there is room for another fragment, with what the region's stubs are going
/// to take.
fn fits_another(by: &Translator, work: &Work<'_>) -> bool {
    let needed = work.emitter.out.code.len()
        + work.emitter.out.touches.len() * TOUCH_BYTES
        + (work.created.len() + 2) * FRAGMENT_ROOM / 8
        + fragment_room(by);
    needed <= work.room
}

/// Bytes that one fragment with its stubs can take at most.
fn fragment_room(by: &Translator) -> usize {
    match by.lwp {
        Lwp::On(selection) if selection.dcache => WATCHED_ROOM,
        _ => FRAGMENT_ROOM,
    }
}

/// Returns whether misses of the block at `pc` count, where data cache accesses are watched.
fn watches(by: &Translator, unit: &Unit, pc: AppPc) -> Option<bool> {
    match by.lwp_of(unit) {
        Lwp::On(selection) if selection.dcache => Some(selection.admits(pc.0)),
        _ => None,
    }
}

impl Work<'_> {
    /// Ends the piece of the fragment emitted last, if it is still open.
    fn close_fragment(&mut self) {
        let Some(&id) = self.created.last() else { return };
        let Fragment { pc, start, len, .. } = self.cache.fragments.get(id);
        if len != 0 {
            return;
        }
        self.cache.fragments.set_len(id, (self.emitter.here().0 - start.0) as u32);
        self.cache.close_piece(&self.emitter, start, pc, Some(id));
    }

    /// Ends the region: returns its entries and the places that were not translated any more, and
    /// gives memory back to be used again.
    fn end(mut self) -> (Vec<EntryId>, Vec<Candidate>) {
        let unit = self.unit;
        let rest = self.queue.drain().filter(|it| !unit.has(*it)).chain(self.foreign).collect();
        self.cache.scratch.forget_decoded();
        self.cache.scratch.used = self.emitter.out;
        (self.entries, rest)
    }
}

fn set_displacement(emitter: &mut Emitter<'_>, at: usize, target: CachePc) {
    let next = emitter.base + at as u64 + 4;
    let displacement = target.0.wrapping_sub(next) as u32;
    emitter.out.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
}

fn direct_target(terminator: &Terminator) -> AppPc {
    match *terminator {
        Terminator::Jump { target }
        | Terminator::Conditional { target, .. }
        | Terminator::CountedLoop { target }
        | Terminator::Call { target }
        | Terminator::TransactionAbort { target } => target,
        _ => AppPc(0),
    }
}
