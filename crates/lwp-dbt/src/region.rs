//! Translating a region: the wanted block, what it falls into, and what it branches to directly.
//!
//! One request to the host is answered with many blocks, because a request costs more than a
//! translation. Blocks are laid out in *traces*: each is followed by the block it falls into, so
//! that straight control flow is straight code.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::addr::{AppPc, CachePc};
use crate::block::{Block, CodeSource, Decoding, Emulated, Terminator};
use crate::context::{Layout, RequestKind, SyscallClass};
use crate::counters::Counters;
use crate::emit::{Buffers, Charge, Countdown, Emitter};
use crate::flags::ARITHMETIC;
use crate::fragment::{Entry, EntryId, Fragment, FragmentId, Unit};
use crate::image::Placed;
use crate::pieces::{Piece, Pieces};
use crate::plan::{Checks, Lwp, Plan, Role, Selection, Weights};
use crate::recipe::{self, AppState, Commit, PcSource, Spills, bits};
use crate::routines::Routines;

const SYS_RT_SIGRETURN: u32 = 15;

/// Where translated code goes.
pub trait CodeSink {
    /// Where the next byte will lie.
    fn position(&self) -> CachePc;
    /// How many bytes there is room for.
    fn room(&self) -> usize;
    /// Where this arena's copy of the routines lies.
    fn routines_at(&self) -> CachePc;
    /// Appends code at [`Self::position`].
    fn append(&mut self, code: &[u8]);
    /// Overwrites a 4-byte displacement, which does not cross a cache line, in one store.
    fn patch(&mut self, at: CachePc, displacement: i32);
    /// Overwrites the 8 aligned bytes that hold a patchable head with a jump to `target`.
    fn patch_head(&mut self, head: CachePc, target: CachePc);
}

/// How much is translated for one request.
#[derive(Clone, Copy, Debug)]
pub struct RegionLimits {
    /// Fragments in all.
    pub fragments: usize,
}

/// What a request produced.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Where the wanted pc continues: its entry or its head.
    pub head: Option<CachePc>,
    /// Entries created, to be inserted into indirect tables.
    pub entries: Vec<EntryId>,
    /// How many fragments were translated.
    pub fragments: usize,
    /// Direct successors that were not translated any more.
    pub rest: Vec<AppPc>,
}

/// Everything that has been translated for a family of address spaces of one layout.
#[derive(Debug)]
pub struct Translator {
    pub(crate) plan: Plan,
    lwp: Lwp,
    pub(crate) layout: Layout,
    /// Shared, so that a translation can hold them while the translator changes.
    routines: Arc<Routines>,
    emulated: Emulated,
    classes: Box<[SyscallClass; 512]>,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) counters: Counters,
    /// What each counter counts.
    pub(crate) roles: Vec<Role>,
    pub(crate) points: Vec<u8>,
    /// Every piece of code by its start address.
    pub(crate) pieces: Pieces,
    /// Images in place, ascending by their first fragment.
    pub(crate) placed: Vec<Arc<Placed>>,
    /// Heads made for fragments of images.
    pub(crate) late_heads: FxHashMap<FragmentId, CachePc>,
    /// Blocks decoded for this region: also looked at for the liveness of flags.
    decoded: FxHashMap<AppPc, Option<Arc<Block>>>,
    /// Blocks whose memory can be used again.
    spare: Vec<Arc<Block>>,
    /// The emitter's, likewise.
    buffers: Buffers,
}

/// One region being translated.
struct Work<'a> {
    unit: &'a mut Unit,
    source: &'a mut dyn CodeSource,
    emitter: Emitter<'a>,
    queue: VecDeque<AppPc>,
    created: Vec<FragmentId>,
    entries: Vec<EntryId>,
    room: usize,
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

/// How control arrives at a block being laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// Only by a jump to it.
    Jump,
    /// From the block before, which is complete and counted.
    Fall,
    /// From the conditional branch before, whose not-taken edge is not counted yet.
    NotTaken,
}

/// What a not-taken edge counts: its branch, which was charged as taken, was not.
const NOT_TAKEN: Weights = Weights {
    instructions: 0,
    branches: 0,
    conditional: 0,
    conditional_taken: -1,
    calls: 0,
    returns: 0,
    indirect: 0,
};

/// Bytes that one fragment with its stubs can take at most, generously.
const FRAGMENT_ROOM: usize = 6144;

impl Translator {
    /// A translator with nothing translated.
    pub fn new(
        plan: Plan,
        lwp: Lwp,
        layout: Layout,
        emulated: Emulated,
        classes: Box<[SyscallClass; 512]>,
    ) -> Self {
        let routines =
            Arc::new(Routines::assemble(layout).expect("the routines are constant and assemble"));
        Self {
            plan,
            lwp,
            layout,
            routines,
            emulated,
            classes,
            fragments: Vec::new(),
            entries: Vec::new(),
            counters: Counters::default(),
            roles: Vec::new(),
            points: Vec::new(),
            pieces: Pieces::default(),
            placed: Vec::new(),
            late_heads: FxHashMap::default(),
            spare: Vec::new(),
            buffers: Buffers::default(),
            decoded: FxHashMap::default(),
        }
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

    /// What the code knows of Lightweight Profiling.
    pub fn lwp(&self) -> Lwp {
        self.lwp
    }

    /// Whether profiling is on in the threads that run this code.
    fn profiles(&self) -> bool {
        matches!(self.lwp, Lwp::On(_))
    }

    /// What is answered instead of executed.
    pub fn emulated(&self) -> Emulated {
        self.emulated
    }

    /// The fragment with this number.
    pub fn fragment(&self, id: FragmentId) -> Fragment {
        match self.placed_of(id) {
            Some(placed) => placed.fragment(id, self.late_heads.get(&id).copied()),
            None => self.fragments[id.0 as usize],
        }
    }

    /// Where a direct branch enters a fragment, if it has such a place.
    pub fn head_of(&self, id: FragmentId) -> Option<CachePc> {
        match self.placed_of(id) {
            Some(placed) => self.late_heads.get(&id).copied().or_else(|| placed.head(id)),
            None => self.fragments[id.0 as usize].head,
        }
    }

    /// The entry with this number.
    pub fn entry(&self, id: EntryId) -> &Entry {
        &self.entries[id.0 as usize]
    }

    /// How many entries there are; chain slots in use.
    pub fn entry_count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// How many fragments there are.
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    /// What one increment of each counter stands for, by counter.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What each counter counts, by counter; only where nothing was restored, because images keep no
    /// roles.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Where execution of `pc` continues in translated code, translating it if need be.
    ///
    /// `entry` asks for an indirect entry of `pc` too, which is then among the region's entries when
    /// it is new. Returns a region without head where no code can be read at `pc`, or where the arena
    /// has no room.
    pub fn translate(
        &mut self,
        unit: &mut Unit,
        source: &mut dyn CodeSource,
        sink: &mut dyn CodeSink,
        pc: AppPc,
        entry: bool,
        limits: RegionLimits,
    ) -> Region {
        let routines = Arc::clone(&self.routines);
        let mut work = Work {
            unit,
            source,
            emitter: Emitter::new(sink.position().0, self.layout, &routines, sink.routines_at().0),
            queue: VecDeque::from([pc]),
            created: Vec::new(),
            entries: Vec::new(),
            room: sink.room(),
        };
        work.emitter.reuse(std::mem::take(&mut self.buffers));
        let before = self.fragments.len();
        while let Some(next) = work.queue.pop_front() {
            if work.created.len() >= limits.fragments {
                work.queue.push_front(next);
                break;
            }
            let wanted_entry = entry && next == pc;
            self.trace(&mut work, next, wanted_entry, limits);
            if next == pc && !work.unit.has_fragment(pc) {
                self.forget_decoded();
                return Region::default();
            }
        }
        self.forget_decoded();
        if entry {
            self.entry_on_demand(&mut work, pc);
        }
        let Some(id) = work.unit.fragment_at(pc) else { return Region::default() };
        let head = self.head(&mut work, id);
        self.finish(&mut work, sink);
        self.buffers = work.emitter.buffers();
        Region {
            head: Some(head),
            entries: work.entries,
            fragments: self.fragments.len() - before,
            rest: work.queue.into_iter().filter(|pc| !work.unit.has_fragment(*pc)).collect(),
        }
    }

    /// Lays out the block at `pc` and what it falls into.
    fn trace(&mut self, work: &mut Work<'_>, pc: AppPc, entry: bool, limits: RegionLimits) {
        let mut pc = pc;
        let mut arrival = Arrival::Jump;
        let mut entry = entry;
        let mut length = 0;
        loop {
            if work.unit.has_fragment(pc) {
                self.fall_off(work, pc, arrival);
                return;
            }
            let room = work.emitter.code.len()
                + (work.created.len() + 2) * FRAGMENT_ROOM / 8
                + FRAGMENT_ROOM;
            let stop = work.created.len() >= limits.fragments.max(1) + 16 || room > work.room;
            let block = if stop && length > 0 { None } else { self.decode(work, pc) };
            let Some(block) = block else {
                if room <= work.room || length > 0 {
                    self.fall_off(work, pc, arrival);
                }
                return;
            };
            let next = self.lay(work, &block, arrival, entry);
            length += 1;
            let Some(next) = next else { return };
            (pc, arrival, entry) = match next {
                Next::Fall(pc) => (pc, Arrival::Fall, false),
                Next::NotTaken(pc) => (pc, Arrival::NotTaken, false),
                Next::Return(pc) => (pc, Arrival::Jump, true),
            };
        }
    }

    fn decode(&mut self, work: &mut Work<'_>, pc: AppPc) -> Option<Arc<Block>> {
        if let Some(known) = self.decoded.get(&pc) {
            return known.clone();
        }
        let how = self.decoding(work.unit, 0);
        let mut block = self.spare.pop().unwrap_or_default();
        let fresh = Arc::make_mut(&mut block);
        let found = fresh.read(work.source, pc, how).then_some(block);
        self.decoded.insert(pc, found.clone());
        found
    }

    /// Forgets the blocks decoded for a region, but keeps their memory.
    fn forget_decoded(&mut self) {
        for (_, block) in self.decoded.drain() {
            if let Some(mut block) = block
                && Arc::get_mut(&mut block).is_some()
            {
                self.spare.push(block);
            }
        }
    }

    /// Where data cache accesses are watched, whether misses of the block at `pc` count.
    fn watches(&self, pc: AppPc) -> Option<bool> {
        match self.lwp {
            Lwp::On(selection) if selection.dcache => Some(selection.admits(pc.0)),
            _ => None,
        }
    }

    /// How blocks of `unit` are decoded, of at most `most` instructions.
    fn decoding(&self, unit: &Unit, most: usize) -> Decoding {
        let ip = match self.lwp {
            Lwp::On(selection) if selection.filters() => selection.ip,
            _ => None,
        };
        let changing = unit.checks == Checks::SelfCheck;
        let dcache = matches!(self.lwp, Lwp::On(selection) if selection.dcache);
        Decoding { emulated: self.emulated, changing, ip, dcache, most }
    }

    /// The block at `pc` as it is translated, of at most `most` instructions where that is not 0.
    pub fn block(
        &self,
        unit: &Unit,
        source: &mut dyn CodeSource,
        pc: AppPc,
        most: usize,
    ) -> Option<Block> {
        Block::decode(source, pc, self.decoding(unit, most))
    }

    /// A fragment of the first `most` instructions at `pc`, for one execution in which an LWP event is
    /// due: it counts nothing, and tells the host when its last instruction has retired.
    ///
    /// `None` where there is no code, no room, or an instruction that cannot be executed so.
    pub fn cut(
        &mut self,
        unit: &mut Unit,
        source: &mut dyn CodeSource,
        sink: &mut dyn CodeSink,
        pc: AppPc,
        most: usize,
    ) -> Option<(CachePc, FragmentId)> {
        let block = Block::decode(source, pc, self.decoding(unit, most))?;
        if let Some((id, bytes)) = unit.cuts.get(&(pc, most as u8))
            && **bytes == *block.bytes
        {
            return Some((self.fragment(*id).start, *id));
        }
        let routines = Arc::clone(&self.routines);
        let at = (sink.position().0, sink.routines_at().0);
        let mut work = Work {
            unit,
            source,
            emitter: Emitter::new(at.0, self.layout, &routines, at.1),
            queue: VecDeque::new(),
            created: Vec::new(),
            entries: Vec::new(),
            room: sink.room(),
        };
        if work.room < FRAGMENT_ROOM {
            return None;
        }
        let id = FragmentId(self.fragments.len() as u32);
        let start = work.emitter.here();
        work.emitter.start_piece();
        work.emitter.fragment = Some(id);
        work.emitter.uncharged = true;
        work.emitter.dcache = self.watches(pc);
        if !work.emitter.body(&block, None) {
            return None;
        }
        work.emitter.cut_terminator(&block, self.lwp).ok()?;
        let len = (work.emitter.here().0 - start.0) as u32;
        self.fragments.push(Fragment {
            pc,
            app_len: block.bytes.len() as u16,
            instructions: block.instructions() as u16,
            start,
            len,
            head: Some(start),
            join: start,
            charged_first: false,
            target: direct_target(&block.terminator),
            weights: Weights::default(),
            countdown: (0, 0),
            flags_dead: false,
        });
        self.close_piece(&work.emitter, start, pc, Some(id));
        work.unit.cuts.insert((pc, most as u8), (id, block.bytes.into_boxed_slice()));
        self.finish(&mut work, sink);
        Some((start, id))
    }

    /// The block before falls to `pc`, which is not laid behind it.
    fn fall_off(&mut self, work: &mut Work<'_>, pc: AppPc, arrival: Arrival) {
        match arrival {
            Arrival::Jump => return,
            Arrival::Fall => {}
            Arrival::NotTaken => {
                if self.plan == Plan::Exact {
                    // The flags at the edge are those at the target.
                    let fixed = work.unit.checks == Checks::None;
                    let dead = fixed && self.flags_dead(work, pc, 2);
                    let counter = self.edge_counter(work);
                    work.emitter.count(counter, dead, bits::EDGE);
                }
            }
        }
        work.emitter.jump_link(pc);
        if !work.unit.has_fragment(pc) {
            work.queue.push_back(pc);
        }
        self.close_fragment(work);
    }

    /// A counter for the not-taken edge of the block laid last: it takes back the taken branch.
    fn edge_counter(&mut self, work: &Work<'_>) -> u32 {
        let last = *work.created.last().expect("an edge starts at a fragment");
        self.new_counter(NOT_TAKEN, Role::NotTaken(last))
    }

    fn new_counter(&mut self, weights: Weights, role: Role) -> u32 {
        self.roles.push(role);
        self.counters.push(weights)
    }

    /// Emits one block. Returns what follows it, if control can fall out of it.
    fn lay(
        &mut self,
        work: &mut Work<'_>,
        block: &Block,
        arrival: Arrival,
        entry: bool,
    ) -> Option<Next> {
        let id = FragmentId(self.fragments.len() as u32);
        let flags_dead = self.flags_dead(work, block.pc, 2);
        let mut weights = weights(block);
        let private = work.unit.checks != Checks::None;
        let exact = self.plan == Plan::Exact;
        let profiles = self.profiles();

        // The edge from the block before may charge this block too, unless this block must always be
        // entered by its head; then the edge belongs to the block before.
        let not_taken = matches!(arrival, Arrival::NotTaken) && exact;
        let merged = not_taken && !private && !profiles;
        if not_taken && !merged {
            // The block behind the edge may change before it is entered: its flags are live.
            let counter = self.edge_counter(work);
            work.emitter.count(counter, false, bits::EDGE);
        }
        let behind = work.created.last().copied().filter(|_| merged);
        self.close_fragment(work);

        work.emitter.start_piece();
        let start = work.emitter.here();
        if entry && arrival == Arrival::Jump {
            let entry = self.new_entry(work, block.pc);
            let chain = self.layout.chain_slot(entry.0);
            let stub = work.emitter.entry_stub(block.pc, chain);
            self.entries[entry.0 as usize].stub = stub;
        }
        let head = (!merged).then(|| open_head(work));
        let join = work.emitter.here();
        let checked = work.unit.checks == Checks::SelfCheck;
        let reached = !checked || work.emitter.self_check(block.pc, &block.bytes);
        work.emitter.fragment = Some(id);
        work.emitter.dcache = self.watches(block.pc);
        let countdown = match self.lwp {
            Lwp::On(selection) => Countdown::of(block, &selection),
            Lwp::Off | Lwp::Absent => Countdown::default(),
        };
        // The countdown is charged before the first instruction, and the counter right behind it.
        let mut before = if merged { bits::EDGE | bits::UNCOUNTED } else { bits::UNCOUNTED };
        if !countdown.is_zero() && reached {
            before = if exact { bits::EDGE | bits::UNCOUNTED } else { 0 };
            work.emitter.countdown(block.pc, id, countdown, flags_dead, before);
        }
        let mut countdown = (countdown.high, countdown.low);
        let charge = exact.then(|| {
            let counter = match behind {
                Some(from) => {
                    self.new_counter(weights.plus(NOT_TAKEN), Role::RunsBehind { into: id, from })
                }
                None => self.new_counter(weights, Role::Runs(id)),
            };
            // A charge in the middle of a block is undone by instructions executed so far; that of a
            // head which checks its bytes or may be cut off stands at the start.
            let first = flags_dead || private || profiles;
            let at = if first { None } else { block.first_dead_point(0) };
            let borrows = matches!(
                block.terminator,
                Terminator::Return { .. } | Terminator::IndirectJump | Terminator::IndirectCall
            );
            Charge {
                counter,
                at: at.unwrap_or(0),
                flags_dead: flags_dead || at.is_some(),
                before,
                in_terminator: borrows && !first && at.is_none(),
            }
        });
        let laid = match reached && work.emitter.body(block, charge) {
            true => self.terminate(work, block),
            false => Err(()),
        };
        let mut instructions = block.instructions();
        let next = laid.unwrap_or_else(|()| {
            // An operand out of reach: the block is executed natively, one instruction at a time,
            // and the host counts.
            work.emitter.rewind(join);
            if let Some(charge) = charge {
                let left = match merged {
                    true => NOT_TAKEN,
                    false => Weights::default(),
                };
                self.counters.set(charge.counter, left);
                work.emitter.count(charge.counter, false, charge.before);
            }
            work.emitter.ask(RequestKind::Step, block.pc);
            weights = Weights::default();
            countdown = (0, 0);
            instructions = 1;
            None
        });
        self.fragments.push(Fragment {
            pc: block.pc,
            app_len: block.bytes.len() as u16,
            instructions: instructions as u16,
            start,
            len: 0,
            head,
            join,
            charged_first: merged && work.emitter.charged_first,
            target: direct_target(&block.terminator),
            weights,
            countdown,
            flags_dead,
        });
        work.unit.fragments.insert(block.pc, id);
        if private {
            work.unit.bytes.insert(id, block.bytes.clone().into_boxed_slice());
        }
        work.created.push(id);
        if next.is_none() || matches!(next, Some(Next::Return(_))) {
            self.close_fragment(work);
        }
        next
    }

    /// Ends the piece of the fragment emitted last, if it is still open.
    fn close_fragment(&mut self, work: &mut Work<'_>) {
        let Some(&id) = work.created.last() else { return };
        let fragment = &mut self.fragments[id.0 as usize];
        if fragment.len != 0 {
            return;
        }
        let (pc, start) = (fragment.pc, fragment.start);
        fragment.len = (work.emitter.here().0 - start.0) as u32;
        self.close_piece(&work.emitter, start, pc, Some(id));
    }

    /// Ends the piece that started at `start`.
    fn close_piece(
        &mut self,
        emitter: &Emitter<'_>,
        start: CachePc,
        pc: AppPc,
        fragment: Option<FragmentId>,
    ) {
        let len = (emitter.here().0 - start.0) as u32;
        let offset = self.points.len();
        recipe::encode(&emitter.points, &mut self.points);
        let points = (offset as u32, (self.points.len() - offset) as u16);
        self.pieces.insert(start, Piece { len, pc, fragment, points });
    }

    /// Emits the terminator. `Err` where an operand is out of reach.
    fn terminate(&mut self, work: &mut Work<'_>, block: &Block) -> Result<Option<Next>, ()> {
        let next = block.next();
        let emitter = &mut work.emitter;
        let reached = |ok: bool| if ok { Ok(None) } else { Err(()) };
        if block.touches_before_its_end() && !emitter.touch_terminator(block) {
            return Err(());
        }
        match block.terminator {
            Terminator::Repeat => {
                emitter.ask(RequestKind::LwpDue, block.terminator_pc());
                Ok(None)
            }
            Terminator::Fall => {
                emitter.fell_off(block);
                Ok(Some(Next::Fall(next)))
            }
            Terminator::Jump { target } => {
                emitter.point(0);
                if work.unit.has_fragment(target)
                    || target == block.pc
                    || work.unit.checks != Checks::None
                {
                    emitter.jump_link(target);
                    if !work.unit.has_fragment(target) {
                        work.queue.push_back(target);
                    }
                    return Ok(None);
                }
                Ok(Some(Next::Fall(target)))
            }
            Terminator::Conditional { target, condition } => {
                emitter.conditional(condition, target);
                emitter.fell_through(block);
                emitter.point(bits::EDGE);
                work.queue.push_back(target);
                Ok(Some(Next::NotTaken(next)))
            }
            Terminator::CountedLoop { target } => {
                emitter.counted_loop(block, target);
                emitter.point(bits::EDGE);
                work.queue.push_back(target);
                Ok(Some(Next::NotTaken(next)))
            }
            Terminator::Call { target } => {
                emitter.call(target, next);
                work.queue.push_back(target);
                Ok(Some(Next::Return(next)))
            }
            Terminator::IndirectJump => reached(emitter.indirect(block, None)),
            Terminator::IndirectCall => {
                if emitter.indirect(block, Some(next)) {
                    Ok(Some(Next::Return(next)))
                } else {
                    Err(())
                }
            }
            Terminator::Return { release } => {
                emitter.ret(release);
                Ok(None)
            }
            Terminator::Syscall { number: Some(SYS_RT_SIGRETURN) } => {
                emitter.sigreturn();
                Ok(None)
            }
            Terminator::Syscall { number } => {
                let class = number.map(|number| {
                    self.classes.get(number as usize).copied().unwrap_or(SyscallClass::Native)
                });
                emitter.syscall(block, class);
                Ok(match class {
                    Some(SyscallClass::Host) => None,
                    _ => Some(Next::Fall(next)),
                })
            }
            Terminator::TransactionAbort { target } => {
                emitter.transaction_abort(target);
                work.queue.push_back(target);
                Ok(None)
            }
            Terminator::Lwp { kind } => {
                if !emitter.lwp_instruction(block, kind, self.lwp) {
                    return Err(());
                }
                let falls = kind != RequestKind::Llwpcb;
                Ok(falls.then_some(Next::Fall(next)))
            }
            Terminator::Emulate { kind } => {
                emitter.ask(kind, block.terminator_pc());
                Ok(None)
            }
            Terminator::PopFlags => {
                emitter.pop_flags(block);
                Ok(Some(Next::Fall(next)))
            }
            Terminator::Step => {
                emitter.ask(RequestKind::Step, block.terminator_pc());
                Ok(None)
            }
        }
    }

    fn new_entry(&mut self, work: &mut Work<'_>, pc: AppPc) -> EntryId {
        let id = EntryId(self.entries.len() as u32);
        self.entries.push(Entry { pc, stub: CachePc(0) });
        work.unit.entries.insert(pc, id);
        work.entries.push(id);
        id
    }

    /// Whether the arithmetic flags at `pc` are overwritten before they are read, looking a few
    /// blocks ahead.
    fn flags_dead(&mut self, work: &mut Work<'_>, pc: AppPc, depth: u32) -> bool {
        self.dead(work, pc, ARITHMETIC, depth)
    }

    /// Whether the flags in `mask` are dead at `pc`.
    fn dead(&mut self, work: &mut Work<'_>, pc: AppPc, mask: u8, depth: u32) -> bool {
        let Some(block) = self.decode(work, pc) else { return false };
        if block.flags.read & mask != 0 {
            return false;
        }
        let left = mask & !block.flags.written;
        if left == 0 {
            return true;
        }
        // Where code may change, a neighbour's bytes say nothing.
        if depth == 0 || work.unit.checks != Checks::None {
            return false;
        }
        match block.terminator {
            Terminator::Fall => self.dead(work, block.next(), left, depth - 1),
            Terminator::Jump { target } | Terminator::Call { target } => {
                self.dead(work, target, left, depth - 1)
            }
            Terminator::Conditional { target, .. } => {
                self.dead(work, block.next(), left, depth - 1)
                    && self.dead(work, target, left, depth - 1)
            }
            _ => false,
        }
    }

    /// The head of a fragment, made now if it has none.
    fn head(&mut self, work: &mut Work<'_>, id: FragmentId) -> CachePc {
        if let Some(head) = self.head_of(id) {
            return head;
        }
        // Only a fragment behind a not-taken edge has no head, and it charges itself as entered by
        // that edge. The head goes behind that charge if it can; if not, it gives back the branch that
        // was then not "not taken".
        let Fragment { pc, join, charged_first, weights, flags_dead, .. } = self.fragment(id);
        let head = work.emitter.here();
        work.emitter.start_piece();
        match charged_first {
            true => {
                let charged = join.offset(Emitter::count_bytes(flags_dead));
                let counter = self.new_counter(weights, Role::Runs(id));
                work.emitter.count_between(counter, flags_dead, bits::UNCOUNTED, 0);
                work.emitter.jump_to(charged);
            }
            false => {
                let counter = self.new_counter(NOT_TAKEN.negated(), Role::Head(id));
                // The fragment's own charge is still to come.
                let after = bits::UNCOUNTED | bits::EDGE;
                work.emitter.count_between(counter, flags_dead, bits::UNCOUNTED, after);
                work.emitter.jump_to(join);
            }
        }
        self.close_piece(&work.emitter, head, pc, Some(id));
        match self.placed_of(id) {
            Some(_) => drop(self.late_heads.insert(id, head)),
            None => self.fragments[id.0 as usize].head = Some(head),
        }
        head
    }

    /// An entry for a fragment that was laid out without one.
    fn entry_on_demand(&mut self, work: &mut Work<'_>, pc: AppPc) {
        if work.unit.entry_at(pc).is_some() {
            return;
        }
        let Some(id) = work.unit.fragment_at(pc) else { return };
        let head = self.head(work, id);
        let entry = self.new_entry(work, pc);
        let chain = self.layout.chain_slot(entry.0);
        let start = work.emitter.here();
        work.emitter.start_piece();
        let stub = work.emitter.entry_stub(pc, chain);
        work.emitter.jump_to(head);
        self.close_piece(&work.emitter, start, pc, Some(id));
        self.entries[entry.0 as usize].stub = stub;
    }

    /// Resolves links, emits stubs and constants, and publishes the region.
    fn finish(&mut self, work: &mut Work<'_>, sink: &mut dyn CodeSink) {
        for index in 0..work.emitter.links.len() {
            let link = work.emitter.links[index];
            let known = work.unit.fragment_at(link.target);
            let target = match known {
                Some(id) => self.head(work, id),
                None => self.pending_stub(work, link),
            };
            set_displacement(&mut work.emitter, link.at, target);
        }
        for index in 0..work.emitter.asks.len() {
            let ask = work.emitter.asks[index];
            let stub = work.emitter.ask_stub(&ask);
            let pc = AppPc(ask.pc.0 - u64::from(ask.app));
            self.close_piece(&work.emitter, stub, pc, ask.fragment);
            set_displacement(&mut work.emitter, ask.at, stub);
        }
        for touch in std::mem::take(&mut work.emitter.touches) {
            let stub = work.emitter.touch_stub(&touch);
            self.close_piece(&work.emitter, stub, touch.block, Some(touch.fragment));
            set_displacement(&mut work.emitter, touch.at, stub);
        }
        for trip in std::mem::take(&mut work.emitter.trips) {
            let stub = work.emitter.trip_stub(&trip);
            self.close_piece(&work.emitter, stub, trip.pc, Some(trip.fragment));
            set_displacement(&mut work.emitter, trip.at, stub);
        }
        // Older exits that wanted one of the new fragments.
        let mut patches = Vec::new();
        for index in 0..work.created.len() {
            let id = work.created[index];
            let pc = self.fragments[id.0 as usize].pc;
            let sites = work.unit.take_pending(pc);
            if !sites.is_empty() {
                let head = self.head(work, id);
                patches.extend(sites.into_iter().map(|site| (site, head)));
            }
        }
        self.constants(work);
        let base = work.emitter.base;
        work.unit.relocated(base, &work.emitter.relocations);
        sink.append(&work.emitter.code);
        // Publish last: only now may other threads be led here.
        for (site, head) in patches {
            sink.patch(site, head.0.wrapping_sub(site.0 + 4) as i32);
        }
    }

    /// Registers an exit that cannot be linked yet; it goes to its target's stub.
    fn pending_stub(&mut self, work: &mut Work<'_>, link: crate::emit::Link) -> CachePc {
        let site = CachePc(work.emitter.base + link.at as u64);
        work.unit.pending.entry(link.target).or_default().push(site);
        if let Some(stub) = work.unit.stub_of(link.target) {
            return stub;
        }
        let inside = work.source.read_code(link.target, &mut [0]) != 0;
        let stub = match inside {
            true => work.emitter.exit_stub(link.target),
            false => work.emitter.far_stub(link.target),
        };
        self.close_piece(&work.emitter, stub, link.target, None);
        work.unit.stubs.insert(link.target, stub);
        stub
    }

    /// Return addresses that are pushed from memory, after all code of the region.
    fn constants(&mut self, work: &mut Work<'_>) {
        while !(work.emitter.base as usize + work.emitter.code.len()).is_multiple_of(8) {
            work.emitter.code.push(0xcc);
        }
        for index in 0..work.emitter.constants.len() {
            let (at, value) = work.emitter.constants[index];
            let here = work.emitter.here();
            work.emitter.code.extend_from_slice(&value.to_le_bytes());
            set_displacement(&mut work.emitter, at, here);
        }
        while !(work.emitter.base as usize + work.emitter.code.len()).is_multiple_of(16) {
            work.emitter.code.push(0xcc);
        }
    }

    /// Cuts a fragment of a unit whose bytes may change off from everything that leads to it.
    pub fn invalidate(&mut self, unit: &mut Unit, sink: &mut dyn CodeSink, id: FragmentId) {
        let fragment = &self.fragments[id.0 as usize];
        let (pc, head) = (fragment.pc, fragment.head);
        if unit.fragments.get(&pc) == Some(&id) {
            unit.fragments.remove(&pc);
        }
        unit.bytes.remove(&id);
        let Some(head) = head else { return };
        let stub = match unit.stubs.get(&pc) {
            Some(&stub) => stub,
            None => {
                let routines = Arc::clone(&self.routines);
                let mut emitter =
                    Emitter::new(sink.position().0, self.layout, &routines, sink.routines_at().0);
                let stub = emitter.exit_stub(pc);
                self.close_piece(&emitter, stub, pc, None);
                while !emitter.here().0.is_multiple_of(16) {
                    emitter.code.push(0xcc);
                }
                sink.append(&emitter.code);
                unit.stubs.insert(pc, stub);
                stub
            }
        };
        sink.patch_head(head, stub);
        // A later translation of the pc takes the jump over.
        unit.pending.entry(pc).or_default().push(head.offset(1));
    }

    /// The application's state at `pc` in an arena, and the fragment it belongs to.
    pub fn state_at(&self, pc: CachePc) -> Option<(AppState, Option<FragmentId>)> {
        if let Some(placed) = self.placed.iter().find(|placed| placed.contains(pc)) {
            let (base, point, id) = placed.point_at(pc)?;
            let fragment = id.map(|id| self.fragment(id));
            return Some((app_state(base, fragment.as_ref(), point, self.profiles()), id));
        }
        let (start, piece) = self.pieces.at_or_before(pc)?;
        let offset = (pc.0 - start.0) as u32;
        if offset >= piece.len {
            return None;
        }
        let (at, len) = piece.points;
        let encoded = &self.points[at as usize..at as usize + usize::from(len)];
        let point = recipe::lookup(encoded, offset)?;
        let fragment = piece.fragment.map(|id| self.fragment(id));
        Some((app_state(piece.pc, fragment.as_ref(), point, self.profiles()), piece.fragment))
    }
}

/// Starts the part of a fragment that direct branches enter.
fn open_head(work: &mut Work<'_>) -> CachePc {
    match work.unit.checks {
        Checks::None => work.emitter.here(),
        Checks::Notified | Checks::SelfCheck => work.emitter.patchable_head(),
    }
}

/// What follows a block that was laid out.
enum Next {
    /// Control falls to this pc.
    Fall(AppPc),
    /// A conditional branch falls through to this pc.
    NotTaken(AppPc),
    /// A call returns to this pc.
    Return(AppPc),
}

fn set_displacement(emitter: &mut Emitter<'_>, at: usize, target: CachePc) {
    let next = emitter.base + at as u64 + 4;
    let displacement = target.0.wrapping_sub(next) as u32;
    emitter.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
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

/// What `block` takes from the high and the low part of the LWP countdown.
pub fn countdown_of(block: &Block, selection: &Selection) -> (u8, u8) {
    let countdown = Countdown::of(block, selection);
    (countdown.high, countdown.low)
}

/// What one execution of `block` counts, a conditional branch at its end as taken.
pub fn weights_of(block: &Block) -> Weights {
    weights(block)
}

/// What one execution of a block counts. Instructions that the host carries out are counted by it.
fn weights(block: &Block) -> Weights {
    let mut weights = Weights { instructions: block.instructions() as i32, ..Weights::default() };
    match block.terminator {
        Terminator::Jump { .. } => weights.branches = 1,
        Terminator::Conditional { .. } | Terminator::CountedLoop { .. } => {
            weights.branches = 1;
            weights.conditional = 1;
            weights.conditional_taken = 1;
        }
        Terminator::Call { .. } => {
            weights.branches = 1;
            weights.calls = 1;
        }
        Terminator::IndirectJump => {
            weights.branches = 1;
            weights.indirect = 1;
        }
        Terminator::IndirectCall => {
            weights.branches = 1;
            weights.calls = 1;
            weights.indirect = 1;
        }
        Terminator::Return { .. } => {
            weights.branches = 1;
            weights.returns = 1;
        }
        Terminator::Step | Terminator::Repeat => weights.instructions -= 1,
        _ => {}
    }
    weights
}

fn app_state(
    pc: AppPc,
    fragment: Option<&Fragment>,
    point: recipe::Point,
    profiles: bool,
) -> AppState {
    let has = |bit: u8| point.state & bit != 0;
    let spills = Spills {
        rcx: has(bits::SPILL_RCX),
        r11: has(bits::SPILL_R11),
        rax: has(bits::SPILL_RAX),
        mailbox: false,
        flags: false,
    };
    let here = PcSource::Known(pc.offset(u64::from(point.app)));
    let armed = has(bits::SYSCALL) && point.state & bits::PC_MASK == bits::PC_RCX;
    let source = match point.state & bits::PC_MASK {
        _ if armed => here,
        bits::PC_RCX => PcSource::Rcx,
        bits::PC_RCX_PLUS => PcSource::RcxPlus(pc),
        bits::PC_TARGET => fragment.map_or(here, |fragment| PcSource::Known(fragment.target)),
        _ => here,
    };
    let commit = match (has(bits::SYSCALL), armed) {
        (true, true) => Commit::SigreturnArmed,
        (true, false) if has(bits::EDGE) => Commit::LwpResult,
        (true, false) => Commit::AfterSyscall,
        _ => Commit::None,
    };
    let index = u32::from(point.index);
    let charged = !has(bits::UNCOUNTED);
    let partial = fragment
        .filter(
            |fragment| if charged { index < u32::from(fragment.instructions) } else { index > 0 },
        )
        .map(|_| (index, charged));
    // Where profiling is on, EDGE beside UNCOUNTED says that only the countdown has been charged.
    let counted_down = charged || profiles && has(bits::EDGE);
    let counts_down = fragment.is_some_and(|fragment| fragment.countdown != (0, 0));
    let edge = has(bits::EDGE) && !has(bits::SYSCALL) && (charged || !profiles);
    AppState {
        pc: source,
        spills,
        commit,
        partial,
        edge_pending: edge,
        countdown: (profiles && counted_down && counts_down).then_some(index),
    }
}
