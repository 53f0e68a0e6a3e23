//! Finds or makes the translation with which a thread continues.

use lwp_code::family::{Code, Family, UnitId};
use lwp_code::space::{Space, VSYSCALL};
use lwp_dbt::{AppPc, CachePc, Candidate, EntryId, Region, RegionLimits, RequestKind, Slot};
use lwp_mailbox::exit::ThreadCx;
use lwp_process::Tid;

use super::Answer;
use super::{Backlog, Spare};
use crate::lwp::ThreadLwp;
use crate::machine::{Machine, Need};
use crate::unfilled_code;

/// Fragments translated before an answer, and for one request in all where there is no other
/// processor.
pub(super) const FIRST: usize = 8;
const REGION: usize = 48;
/// Fragments translated for one request where hand-offs are expensive.
const CROWDED_REGION: usize = 96;
/// Most doubt with which translating pays while a thread waits, and while none does.
const MOST_DOUBT: u8 = 8;
const SPARE_DOUBT: u8 = 12;

/// More entries than share a slot of the indirect table, some of them by chance.
const MOST_LINKS: usize = 1 << 12;

impl Answer<'_> {
    /// Finds or makes the translation of `pc` and lets the thread go there.
    pub fn dispatch(&mut self, pc: AppPc, indirect: bool) -> Option<Backlog> {
        let ThreadCx { tid, alone, .. } = self.cx;
        // A thread that spins is answered as soon as it can be, also where most do not: or else no
        // probe would ever find that spinning pays again.
        let spins = self.context().get(Slot::Spin) != 0;
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
        let Some((head, rest)) = self.translation(pc, indirect, limits) else {
            if unfilled_code::lead_to_absent(self.machine, self.cx, pc) {
                return None;
            }
            let need = why_not(self.machine, tid, pc);
            self.machine.ask_tracer(tid, need);
            return None;
        };
        self.go(pc, head);
        (!rest.is_empty() && !alone).then_some(Backlog { tid, found: rest })
    }

    /// The translation of `pc` in the thread's address space, and what else could be translated.
    pub fn translation(
        &mut self,
        pc: AppPc,
        indirect: bool,
        limits: RegionLimits,
    ) -> Option<(CachePc, Vec<Candidate>)> {
        let tid = self.cx.tid;
        let (space, family) = self.machine.space_of(tid)?;
        if pc.0 >= VSYSCALL {
            return None;
        }
        // Looking for it may have brought other code to light too.
        let found = space.code_at(family, tid, pc.0);
        let index = self.machine.tasks.space_index(tid)?;
        self.machine.lists().tell_code(index);
        let (start, range) = found?;
        let (space, family) = self.machine.space_of(tid)?;
        if !space.arenas.has(family.arena_of(range.unit)?) {
            return None;
        }
        let unit = &family.modules[range.unit].unit;
        if let Some(id) = unit.fragment_at(pc)
            && let Some(head) = family.code_cache.head_of(id)
        {
            match unit.entry_at(pc) {
                Some(entry) if indirect => {
                    space.inserted.add_fresh(range.unit, &[entry]);
                    return Some((head, Vec::new()));
                }
                _ if !indirect => return Some((head, Vec::new())),
                _ => {}
            }
        }
        if space.lacks_notices(range) {
            return None;
        }
        let mut code = space.code_to_translate(start, range);
        prepare_guards(self.machine, tid, &mut code);
        if code.lacks_guard(pc.0) {
            return None;
        }
        let (space, family) = self.machine.space_of(tid)?;
        let region = family.translate(&code, tid, pc, indirect, limits);
        space.inserted.add_fresh(range.unit, &region.entries);
        if limits.fragments > FIRST {
            translate_elsewhere(self.machine, tid, range.unit, &region.rest, limits);
        }
        if let Some(head) = region.head {
            return Some((head, region.rest));
        }
        let (space, family) = self.machine.space_of(tid)?;
        match space.join_next(family, tid, pc.0) {
            true => self.translation(pc, indirect, limits),
            false => None,
        }
    }

    /// Lets indirect branches of the thread's address space find the translation of `pc`, from the
    /// next answer on.
    pub fn make_entry(&mut self, pc: AppPc) {
        self.translation(pc, true, RegionLimits::fragments(FIRST));
    }

    /// Lets the thread go on at `head`, taking new entries along; what it is about to execute there
    /// is the application's `pc`.
    pub fn go(&mut self, pc: AppPc, head: CachePc) {
        self.go_from(RequestKind::Dispatch, pc, head);
    }

    /// Lets the thread go on at `head`. Until it does, this kind of request says where it stands.
    pub fn go_from(&mut self, kind: RequestKind, pc: AppPc, head: CachePc) {
        let tid = self.cx.tid;
        if self.machine.tasks.lwp_mut(tid).is_some_and(ThreadLwp::take_interrupted) {
            self.machine.ask_tracer(tid, Need::Side);
            return;
        }
        let Some((space, family)) = self.machine.space_of(tid) else { return };
        let unit = space.code_at(family, tid, pc.0).map(|(_, range)| range.unit);
        let entries = match unit {
            Some(unit) => space.entries_to_insert(family, unit),
            None => Vec::new(),
        };
        let list: Vec<[u64; 3]> = entries.iter().map(|&entry| triple(family, entry)).collect();
        let tail = family.routine(family.translator.routines().go);
        let context = self.machine.contexts.context(self.cx.slot);
        context.set_apply_list(&list);
        context.set(Slot::Go, head.0);
        context.set(Slot::Kind, kind as u64);
        let spun = context.get(Slot::Spin) != 0;
        self.machine.spin_policy.note_processor(context.get(Slot::Processor));
        context.set(Slot::Spin, self.machine.spin_policy.spin());
        let asleep = context.answer(tail);
        self.machine.spin_policy.note(spun, asleep);
    }
}

fn why_not(machine: &mut Machine, tid: Tid, pc: AppPc) -> Need {
    if let Some((space, family)) = machine.space_of(tid)
        && let Some((_, range)) = space.code_at(family, tid, pc.0)
    {
        match family.arena_of(range.unit) {
            Some(arena) if space.arenas.has(arena) && space.lacks_notices(range) => {
                return Need::Notices;
            }
            Some(arena) if space.arenas.has(arena) && space.lacks_guard(range, pc.0) => {
                return Need::Guard;
            }
            Some(arena) if space.arenas.has(arena) => {}
            Some(arena) if space.arenas.refuses(arena) => return Need::Flush,
            _ => return Need::Arena,
        }
    }
    match machine.space_of(tid) {
        Some((_, family)) if family.is_full() => Need::Flush,
        _ => Need::Step,
    }
}

/// Lets threads know that pages of `code` may be guarded, if the kernel cannot write to such
/// pages. Where the thread's stack lies among them, they are not: the kernel writes there too.
fn prepare_guards(machine: &mut Machine, tid: Tid, code: &mut Code) {
    let Some(notices) = code.notices.clone() else { return };
    if notices.may_guard(code.range) {
        return;
    }
    let stack = machine.context(tid).map_or(0, |context| context.get(Slot::Rsp));
    if (code.range.0..code.range.1).contains(&stack) {
        code.notices = None;
        return;
    }
    machine.guarding().tell_guards(tid, &notices, code.range);
}

/// Translates what the code of `unit` is going to reach in other units, where nobody does so in
/// his spare time.
fn translate_elsewhere(
    machine: &mut Machine,
    tid: Tid,
    unit: UnitId,
    rest: &[Candidate],
    limits: RegionLimits,
) {
    let sure = |ahead: &&Candidate| ahead.entry && ahead.doubt <= limits.most_doubt;
    let Some((space, family)) = machine.space_of(tid) else { return };
    for ahead in rest.iter().filter(sure) {
        if let Some((_, range)) = space.code.at(ahead.pc.0)
            && range.unit != unit
        {
            translate_ahead(tid, space, family, *ahead, limits);
        }
    }
}

/// Translates some of what may be executed soon.
pub(super) fn work_off(machine: &mut Machine, spare: &mut Spare) {
    let next = spare.queue.pop(SPARE_DOUBT);
    let (Some(next), Some((space, family))) = (next, machine.space_of(spare.tid)) else {
        spare.left = 0;
        return;
    };
    let limits = RegionLimits { fragments: 1, doubt: next.doubt, most_doubt: SPARE_DOUBT };
    if let Some(region) = translate_ahead(spare.tid, space, family, next, limits) {
        spare.left = spare.left.saturating_sub(region.fragments.max(1));
        spare.queue.requeue(&region.rest);
    }
}

/// Translates what nobody has asked for yet, where its code and an arena for it are mapped.
fn translate_ahead(
    tid: Tid,
    space: &mut Space,
    family: &mut Family,
    ahead: Candidate,
    limits: RegionLimits,
) -> Option<Region> {
    let (start, range) = space.code.at(ahead.pc.0)?;
    let arena = family.arena_of(range.unit)?;
    let known = family.modules[range.unit].unit.has(ahead);
    if known || !space.arenas.has(arena) || space.lacks_notices(range) {
        return None;
    }
    let Candidate { pc, entry, .. } = ahead;
    let code = space.code_to_translate(start, range);
    if code.notices.as_ref().is_some_and(|notices| !notices.may_guard(code.range))
        || code.lacks_guard(pc.0)
    {
        return None;
    }
    let region = family.translate(&code, tid, pc, entry, limits);
    space.inserted.add_fresh(range.unit, &region.entries);
    Some(region)
}

fn triple(family: &Family, entry: EntryId) -> [u64; 3] {
    let data = family.code_cache.entry(entry);
    let low = family.layout();
    [low.table_slot(data.pc.0), low.chain_slot(entry.0), data.stub.0]
}

/// Takes entries out of an address space's indirect table, through the memory of `tid`.
pub fn remove_entries(tid: Tid, family: &Family, gone: &[EntryId]) {
    use lwp_process::memory::{read_u64, write_u64};
    let miss = family.routine(family.translator.routines().ask.rcx);
    for &entry in gone {
        let [mut place, chain, stub] = triple(family, entry);
        // Walk the chain to the place that leads to this entry. The program can write there: no
        // chain has more links.
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
