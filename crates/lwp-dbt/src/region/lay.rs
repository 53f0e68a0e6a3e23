//! Emits a block's fragment, and the translation of its last instruction.

use super::dormant::holds;
use super::{
    Arrival, Candidate, NOT_TAKEN, SYS_RT_SIGRETURN, Translator, Work, deltas, direct_target,
    finish, liveness, notes, watches,
};
use crate::addr::{AppPc, CachePc};
use crate::block::{Block, Carry, Insn, Terminator};
use crate::context::trace::spread;
use crate::context::{RequestKind, SyscallClass};
use crate::emit::trace::{Site, Within};
use crate::emit::{
    Charge, Countdown, Trip, bodies, calls, countdown, dcache, heads, lwp, terminators,
};
use crate::fragment::{Changeable, Fragment, FragmentId, MergedEdge, Neighbour, Unit};
use crate::marks::Value;
use crate::plan::{Checks, EventDeltas, Lwp, Role};
use crate::state_map::bits;

/// The block before falls to `pc`, which is not laid behind it.
pub(super) fn fall_off(by: &Translator, work: &mut Work<'_>, pc: AppPc, arrival: Arrival) {
    match arrival {
        Arrival::Jump => return,
        Arrival::Fall => {}
        Arrival::NotTaken | Arrival::NotTakenSeldom => {
            if counts(by, work.unit) {
                if let Some(at) = merged_edge(by, work, pc) {
                    work.emitter.jump_to(at);
                    return work.close_fragment();
                }
                // The flags at the edge are those at the target.
                let dead = match work.unit.checks {
                    Checks::None => liveness::flags_dead(by, work, pc, 2),
                    _ => liveness::trusts_edge(by, work, pc),
                };
                let counter = edge_counter(work);
                heads::count(&mut work.emitter, counter, dead, bits::EDGE);
            }
        }
    }
    work.emitter.jump_link(pc);
    if !work.unit.has_fragment(pc) {
        work.queue.push(Candidate::direct(pc, work.doubt));
    }
    work.close_fragment();
}

/// Returns the place where a not-taken edge enters the fragment at `pc`, which charges another
/// one and may be cut off: one edge counts as much as another, as long as nobody wants to know
/// which it was.
fn merged_edge(by: &Translator, work: &Work<'_>, pc: AppPc) -> Option<CachePc> {
    let tells = work.cache.counters.has_roles() || by.learns_of(work.unit);
    let id = work.unit.fragments.get(&pc).filter(|_| !tells)?;
    Some(work.unit.changing.fragments.get(id)?.edge?.at)
}

/// A counter for the not-taken edge of the block laid last: it takes back the taken branch.
pub(super) fn edge_counter(work: &mut Work<'_>) -> u32 {
    let last = *work.created.last().expect("an edge starts at a fragment");
    work.cache.counters.push(NOT_TAKEN, Role::NotTaken(last))
}

/// The way a block is laid out.
struct Form {
    id: FragmentId,
    /// True if the flags it is entered with are overwritten before they are read.
    flags_dead: bool,
    /// True if its bytes may change.
    private: bool,
    /// True if it compares its bytes before it runs.
    compares: bool,
    /// True if its executions are counted.
    counted: bool,
    /// The value that is counted where it begins.
    value: Option<Value>,
    /// True if something ends with its first instruction that is counted.
    ends: bool,
    /// The fragment whose not-taken edge it charges together with itself.
    behind: Option<FragmentId>,
}

impl Form {
    /// Decides how `block` is laid out where control arrives as `arrival` says.
    fn of(by: &Translator, work: &mut Work<'_>, block: &Block, arrival: Arrival) -> Self {
        let checks = work.unit.checks;
        let compares =
            checks == Checks::SelfCheck && !holds(checks, work.source, block.pc, &block.bytes);
        let mut form = Self {
            id: FragmentId(work.cache.fragments.len() as u32),
            flags_dead: liveness::flags_dead(by, work, block.pc, 2),
            private: checks != Checks::None,
            compares,
            counted: counts(by, work.unit),
            value: value(by, work.unit, block),
            ends: by.plan.counts_calls() && work.unit.marks.ends.contains(&block.pc),
            behind: None,
        };
        // The edge from the block before may charge this block too, unless this block must always
        // be entered by its head; then the edge belongs to the block before.
        let by_head = compares || by.profiles() || form.value.is_some() || form.ends;
        let merges = form.counted && arrival == Arrival::NotTaken && !by_head;
        form.behind = work.created.last().copied().filter(|_| merges);
        form
    }

    /// Returns whether the block charges the edge that leads to it.
    fn merged(&self) -> bool {
        self.behind.is_some()
    }
}

/// The beginning of a fragment.
struct Begun {
    start: CachePc,
    head: Option<CachePc>,
    edge: Option<MergedEdge>,
    join: CachePc,
}

/// Emits one block. Returns what follows it, if control can fall out of it.
pub(super) fn lay(
    by: &Translator,
    work: &mut Work<'_>,
    block: &Block,
    arrival: Arrival,
    entry: bool,
) -> Option<Next> {
    let form = Form::of(by, work, block, arrival);
    let not_taken = matches!(arrival, Arrival::NotTaken | Arrival::NotTakenSeldom);
    if not_taken && form.counted && !form.merged() {
        // The block behind the edge may change before it is entered: its flags are live.
        let counter = edge_counter(work);
        heads::count(&mut work.emitter, counter, false, bits::EDGE);
    }
    work.close_fragment();
    let begun = begin_fragment(by, work, block, &form, entry && arrival == Arrival::Jump);
    let (countdown, before) = count_down(by, work, block, &form);
    let (charge, trusted) = charge(by, work, block, &form, before);
    let value = form.value.map(|value| (value, target_counters(work, form.id)));
    work.emitter.value = value;
    work.emitter.transfer = transfer(by, work, block, form.id);
    let laid = match bodies::body(&mut work.emitter, block, charge) {
        true => terminate(by, work, block),
        false => Err(()),
    };
    let trusts = trusted.is_some() && block.insns.is_empty();
    let mut fragment = Fragment {
        pc: block.pc,
        app_len: block.bytes.len() as u16,
        instructions: block.instructions() as u16,
        start: begun.start,
        len: 0,
        head: begun.head,
        join: begun.join,
        charged_first: form.merged() && work.emitter.charging.first,
        target: direct_target(&block.terminator),
        deltas: deltas(block),
        countdown: countdown.parts(),
        flags_dead: form.flags_dead || trusts,
    };
    let next = laid.unwrap_or_else(|()| {
        step_instead(work, &mut fragment, charge, form.merged());
        None
    });
    work.cache.fragments.push(fragment);
    work.unit.fragments.insert(block.pc, form.id);
    if form.private {
        let (bytes, compares) = (block.bytes.clone().into_boxed_slice(), form.compares);
        let known = Changeable { bytes, compares, edge: begun.edge, trusted };
        work.unit.changing.fragments.insert(form.id, known);
    }
    work.created.push(form.id);
    if next.is_none() || matches!(next, Some(Next::Return(_))) {
        work.close_fragment();
    }
    next
}

/// Emits the places at which a fragment is entered, and what comes before its counts.
fn begin_fragment(
    by: &Translator,
    work: &mut Work<'_>,
    block: &Block,
    form: &Form,
    entry: bool,
) -> Begun {
    work.emitter.start_piece();
    let start = work.emitter.here();
    if entry {
        finish::lay_entry(by, work, block.pc);
    }
    let head = (!form.merged()).then(|| open_head(work, bits::UNCOUNTED));
    let edge = form.behind.filter(|_| form.private).map(|from| open_edge(work, from));
    let join = work.emitter.here();
    if form.compares {
        heads::self_check(&mut work.emitter, block.pc, &block.bytes);
    }
    if form.ends {
        let counter = work.cache.counters.push(EventDeltas::default(), Role::CallTarget(form.id));
        calls::ask_once(&mut work.emitter, block.pc, counter);
    }
    work.emitter.fragment = Some(form.id);
    work.emitter.dcache = watches(by, work.unit, block.pc);
    if work.emitter.dcache.is_some() {
        work.emitter.watch.dead_after = liveness::dead_behind(by, work, block);
    }
    Begun { start, head, edge, join }
}

/// Takes what a block counts from the LWP countdown, before its first instruction and right before
/// its charge. Returns it, and the state bits until the charge.
fn count_down(by: &Translator, work: &mut Work<'_>, block: &Block, form: &Form) -> (Countdown, u8) {
    let countdown = countdown_of(by, work.unit, block);
    let mut before = if form.merged() { bits::EDGE | bits::UNCOUNTED } else { bits::UNCOUNTED };
    // A block that counts nothing still lets a noted event be recorded before it begins.
    let notes = notes(by, work.unit);
    if !countdown.is_zero() || notes {
        if !form.counted {
            before = 0;
        } else if !countdown.is_zero() {
            before = bits::EDGE | bits::UNCOUNTED;
        }
        let mut trip = Trip::new(block.pc, form.id, countdown, form.flags_dead, before);
        trip.table =
            notes.then(|| countdown::instruction_table(&mut work.emitter, block)).flatten();
        countdown::take(&mut work.emitter, trip);
    }
    (countdown, before)
}

/// Returns the charge of a block whose executions are counted, and the code behind it that the
/// charge takes for given, where that may change.
fn charge(
    by: &Translator,
    work: &mut Work<'_>,
    block: &Block,
    form: &Form,
    before: u8,
) -> (Option<Charge>, Option<Neighbour>) {
    if !form.counted {
        return (None, None);
    }
    // A charge in the middle of a block is undone by instructions executed so far.
    let first = form.flags_dead || by.profiles();
    let early = first || form.value.is_some();
    let dead_at = if early { None } else { block.first_dead_point(0) };
    let wants_trust = form.private && !form.compares && !early && dead_at.is_none();
    let trusted = if wants_trust { liveness::trusted_behind(by, work, block) } else { None };
    let (id, counts) = (form.id, deltas(block));
    let counter = match form.behind {
        Some(from) => {
            let role = Role::RunsBehind { into: id, from };
            work.cache.counters.push(counts.plus(NOT_TAKEN), role)
        }
        None => work.cache.counters.push(counts, Role::Runs(id)),
    };
    let charge = match dead_at.or(trusted.as_ref().map(|_| block.insns.len())) {
        Some(at) => Charge::at(counter, at, before),
        None => {
            let in_terminator = !first && borrows(&block.terminator);
            Charge { counter, at: 0, flags_dead: form.flags_dead, before, in_terminator, run: None }
        }
    };
    let run = by.plan.traces().then_some(counts.instructions as u8);
    let charge = Charge { run, ..charge };
    (Some(charge), trusted)
}

/// An operand is out of reach: the block is executed natively, one instruction at a time, and the
/// host counts.
fn step_instead(
    work: &mut Work<'_>,
    fragment: &mut Fragment,
    charge: Option<Charge>,
    merged: bool,
) {
    work.emitter.rewind(fragment.join);
    if let Some(charge) = charge {
        let left = if merged { NOT_TAKEN } else { EventDeltas::default() };
        work.cache.counters.set(charge.counter, left);
        heads::count(&mut work.emitter, charge.counter, false, charge.before);
    }
    terminators::ask(&mut work.emitter, RequestKind::Step, fragment.pc);
    fragment.deltas = EventDeltas::default();
    fragment.countdown = (0, 0);
    fragment.instructions = 1;
    fragment.charged_first = merged && work.emitter.charging.first;
}

/// Returns the amount that `block` of `unit` takes from the LWP countdown.
pub(super) fn countdown_of(by: &Translator, unit: &Unit, block: &Block) -> Countdown {
    match by.lwp_of(unit) {
        Lwp::On(selection) => Countdown::of(block, &selection),
        Lwp::Off | Lwp::Absent => Countdown::default(),
    }
}

/// The transfer to another function that the end of a block is, or may be.
fn transfer(by: &Translator, work: &mut Work<'_>, block: &Block, id: FragmentId) -> Option<Site> {
    if !by.plan.traces() {
        return None;
    }
    let leads = match block.terminator {
        Terminator::Call { .. }
        | Terminator::IndirectCall
        | Terminator::IndirectJump
        | Terminator::Return { .. }
        | Terminator::Syscall { number: Some(SYS_RT_SIGRETURN) } => true,
        Terminator::Jump { target } | Terminator::Conditional { target, .. } => {
            leaves_function(work, block.pc, target)
        }
        Terminator::Fall => leaves_function(work, block.pc, block.next()),
        _ => false,
    };
    let counter =
        leads.then(|| work.cache.counters.push(EventDeltas::default(), Role::Transfer(id)))?;
    let jumps = matches!(block.terminator, Terminator::IndirectJump);
    let function = if jumps { work.source.function(block.pc) } else { None };
    let within = function.as_ref().and_then(Within::of);
    let spread = spread(block.next().0.wrapping_sub(1));
    Some(Site { counter, fragment: id, block: block.pc, spread, within })
}

/// Returns whether `target` is not in the function of `pc`.
fn leaves_function(work: &mut Work<'_>, pc: AppPc, target: AppPc) -> bool {
    let function = work.source.function(pc);
    function.is_some_and(|function| !function.contains(&target.0))
}

/// Starts a fragment that may be cut off behind the not-taken edge of `from`, which it charges
/// together with itself.
fn open_edge(work: &mut Work<'_>, from: FragmentId) -> MergedEdge {
    let counter = work.cache.counters.push(NOT_TAKEN, Role::NotTaken(from));
    let at = open_head(work, bits::EDGE | bits::UNCOUNTED);
    MergedEdge { at, counter, stub: None }
}

/// The counter that takes where the indirect branch of the fragment at hand leads, where that
/// is to be learned.
fn target_counter(by: &Translator, work: &mut Work<'_>) -> Option<u32> {
    let id = work.emitter.fragment.filter(|_| by.learns_of(work.unit))?;
    Some(work.cache.counters.push(EventDeltas::default(), Role::Target(id)))
}

/// The first of the two counters of where a fragment leads, or of a value.
fn target_counters(work: &mut Work<'_>, id: FragmentId) -> u32 {
    let first = work.cache.counters.push(EventDeltas::default(), Role::CallTarget(id));
    work.cache.counters.push(EventDeltas::default(), Role::Called(id));
    first
}

/// The value that is counted where a block begins, if there is one and its only instruction
/// leaves the registers alone that this takes.
fn value(by: &Translator, unit: &Unit, block: &Block) -> Option<Value> {
    let value = unit.marks.values.get(&block.pc)?;
    let copied = matches!(block.insns[..], [Insn { carry: Carry::Copy, .. }]);
    let alone = copied && matches!(block.terminator, Terminator::Fall);
    let counted = by.plan.counts_calls() && watches(by, unit, block.pc).is_none();
    (alone && counted && calls::leaves_borrowed(block)).then_some(*value)
}

/// Emits the terminator. `Err` where an operand is out of reach.
pub(super) fn terminate(
    by: &Translator,
    work: &mut Work<'_>,
    block: &Block,
) -> Result<Option<Next>, ()> {
    let next = block.next();
    let profiles = by.profiles();
    let emitter = &mut work.emitter;
    let reached = |ok: bool| if ok { Ok(None) } else { Err(()) };
    let borrows = borrows(&block.terminator);
    if block.touches_before_its_end() && !dcache::touch_terminator(emitter, block, borrows) {
        return Err(());
    }
    match block.terminator {
        Terminator::Repeat { walked: false } => {
            terminators::ask(emitter, RequestKind::LwpDue, block.terminator_pc());
            Ok(None)
        }
        Terminator::Repeat { walked: true } => {
            dcache::walked_repeat(emitter, block)?;
            Ok(Some(Next::Fall(next)))
        }
        Terminator::Fall => {
            emitter.fell_off(block);
            terminators::fall_transfer(emitter);
            Ok(Some(Next::Fall(next)))
        }
        Terminator::Jump { target } => {
            emitter.point(0);
            terminators::jump_transfer(emitter);
            if work.unit.has_fragment(target) || target == block.pc {
                emitter.jump_link(target);
                if !work.unit.has_fragment(target) {
                    work.queue.push(Candidate::direct(target, work.doubt));
                }
                return Ok(None);
            }
            Ok(Some(Next::Fall(target)))
        }
        Terminator::Conditional { target, condition } => {
            match emitter.transfer {
                Some(_) => terminators::conditional_transfer(emitter, block, condition, target),
                None => terminators::conditional(emitter, condition, target),
            }
            emitter.fell_through(block);
            emitter.point(bits::EDGE);
            work.branch(target);
            Ok(Some(Next::NotTaken(next)))
        }
        Terminator::CountedLoop { target } => {
            terminators::counted_loop(emitter, block, target);
            emitter.point(bits::EDGE);
            work.branch(target);
            Ok(Some(Next::NotTaken(next)))
        }
        Terminator::Call { target } => {
            terminators::call(emitter, target, next);
            work.queue.push(Candidate::direct(target, work.doubt));
            Ok(Some(Next::Return(next)))
        }
        Terminator::IndirectJump => {
            let noted = target_counter(by, work);
            reached(terminators::indirect(&mut work.emitter, block, None, noted))
        }
        Terminator::IndirectCall => {
            let reached = match emitter.fragment.filter(|_| by.plan.counts_calls()) {
                Some(id) => {
                    let first = target_counters(work, id);
                    calls::counted_call(&mut work.emitter, block, id, first)
                }
                None => {
                    let noted = target_counter(by, work);
                    terminators::indirect(&mut work.emitter, block, Some(next), noted)
                }
            };
            if reached { Ok(Some(Next::Return(next))) } else { Err(()) }
        }
        Terminator::Return { release } => {
            terminators::ret(emitter, release);
            Ok(None)
        }
        Terminator::Syscall { .. } if by.emulated.dispatches => {
            terminators::syscall(emitter, block, Some(SyscallClass::Host), false);
            Ok(None)
        }
        Terminator::Syscall { number: Some(SYS_RT_SIGRETURN) } => {
            terminators::sigreturn(emitter, block.terminator_pc());
            Ok(None)
        }
        Terminator::Syscall { number } => {
            let class = number.map(|number| {
                by.classes.get(number as usize).copied().unwrap_or(SyscallClass::Native)
            });
            // Where events are counted down, the host looks at what comes next.
            let class = class.map(|class| match class {
                SyscallClass::Map
                | SyscallClass::Unmap
                | SyscallClass::Protect
                | SyscallClass::Clone
                | SyscallClass::Open
                | SyscallClass::Fills
                | SyscallClass::FillsFar
                    if profiles =>
                {
                    SyscallClass::Host
                }
                class => class,
            });
            terminators::syscall(emitter, block, class, !profiles);
            Ok(match class {
                Some(SyscallClass::Host) => None,
                _ => Some(Next::Fall(next)),
            })
        }
        Terminator::TransactionAbort { target } => {
            terminators::transaction_abort(emitter, target);
            work.queue.push(Candidate::direct(target, work.doubt));
            Ok(None)
        }
        Terminator::Lwp { kind } => {
            let lwp = by.lwp_of(work.unit);
            if !lwp::lwp_instruction(emitter, block, kind, lwp) {
                return Err(());
            }
            Ok(lwp::goes_on_behind(emitter, block, kind, lwp).then_some(Next::Fall(next)))
        }
        Terminator::Emulate { kind } => {
            terminators::ask(emitter, kind, block.terminator_pc());
            Ok(None)
        }
        Terminator::PopFlags => {
            terminators::pop_flags(emitter, block);
            Ok(Some(Next::Fall(next)))
        }
        Terminator::StorePointer => match terminators::store_pointer(emitter, block) {
            true => Ok(Some(Next::Fall(next))),
            false => Err(()),
        },
        Terminator::StateSave => match terminators::state_filter(emitter, block) {
            true => Ok(Some(Next::Fall(next))),
            false => Err(()),
        },
        Terminator::Step => {
            terminators::ask(emitter, RequestKind::Step, block.terminator_pc());
            Ok(None)
        }
    }
}

impl Work<'_> {
    /// A conditional branch leads to `target`, or falls through.
    fn branch(&mut self, target: AppPc) {
        self.queue.push(Candidate::direct(target, self.doubt.saturating_add(2)));
        self.doubt = self.doubt.saturating_add(1).min(Candidate::MOST_DOUBT);
    }
}

/// Returns whether a terminator borrows a register for its target.
fn borrows(terminator: &Terminator) -> bool {
    matches!(
        terminator,
        Terminator::Return { .. } | Terminator::IndirectJump | Terminator::IndirectCall
    )
}

/// Starts the part of a fragment that branches enter; `state` holds until it has been charged.
pub(super) fn open_head(work: &mut Work<'_>, state: u8) -> CachePc {
    match work.unit.checks {
        Checks::None => work.emitter.here(),
        Checks::Notified | Checks::SelfCheck => heads::patchable_head(&mut work.emitter, state),
    }
}

/// The continuation behind a block that was laid out.
pub(super) enum Next {
    /// Control falls to this pc.
    Fall(AppPc),
    /// A conditional branch falls through to this pc.
    NotTaken(AppPc),
    /// A call returns to this pc.
    Return(AppPc),
}

impl Next {
    /// Returns the pc, and how control arrives there.
    pub(super) fn by_itself(&self) -> (AppPc, Arrival) {
        match *self {
            Self::Fall(pc) => (pc, Arrival::Fall),
            Self::NotTaken(pc) => (pc, Arrival::NotTaken),
            Self::Return(pc) => (pc, Arrival::Jump),
        }
    }
}

/// Returns whether executions of fragments of `unit` are counted.
fn counts(by: &Translator, unit: &Unit) -> bool {
    by.plan.counts() || by.learns_of(unit)
}
