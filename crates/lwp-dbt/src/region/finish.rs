//! Links a region, makes the stubs for its exits, and publishes it.

use super::lay::open_head;
use super::{NOT_TAKEN, Translator, Work, set_displacement, superblock};
use crate::addr::{AppPc, CachePc};
use crate::emit::{calls, countdown, dcache, heads, stubs, trace};
use crate::fragment::{Entry, EntryId, Fragment, FragmentId};
use crate::plan::Role;
use crate::state_map::bits;

/// Emits a new entry of `pc`, which leads to what is emitted behind it.
pub(super) fn lay_entry(by: &Translator, work: &mut Work<'_>, pc: AppPc) {
    let id = EntryId(work.cache.entries.len() as u32);
    let stub = heads::entry_stub(&mut work.emitter, pc, by.layout.chain_slot(id.0));
    work.cache.entries.push(Entry { pc, stub });
    work.unit.entries.insert(pc, id);
    work.entries.push(id);
}

/// The head of a fragment, made now if it has none.
pub(super) fn head(work: &mut Work<'_>, id: FragmentId) -> CachePc {
    if let Some(head) = work.cache.head_of(id) {
        return head;
    }
    // Only a fragment behind a not-taken edge has no head, and it charges itself as entered by
    // that edge. The head goes behind that charge if it can; if not, it gives back the branch
    // that was then not "not taken".
    let Fragment { pc, join, charged_first, deltas, flags_dead, .. } = work.cache.fragment(id);
    work.emitter.start_piece();
    let start = work.emitter.here();
    let head = open_head(work, bits::UNCOUNTED);
    match charged_first {
        true => {
            let charged = join.offset(heads::count_bytes(flags_dead));
            let counter = work.cache.counters.push(deltas, Role::Runs(id));
            let after = if work.cache.sums { bits::UNSUMMED } else { 0 };
            heads::count_between(&mut work.emitter, counter, flags_dead, bits::UNCOUNTED, after);
            work.emitter.jump_to(charged);
        }
        false => {
            let counter = work.cache.counters.push(NOT_TAKEN.negated(), Role::Head(id));
            // The fragment's own charge is still to come.
            let after = bits::UNCOUNTED | bits::EDGE;
            heads::count_between(&mut work.emitter, counter, flags_dead, bits::UNCOUNTED, after);
            work.emitter.jump_to(join);
        }
    }
    work.cache.close_piece(&work.emitter, start, pc, Some(id));
    match work.cache.placed_of(id) {
        Some(_) => drop(work.cache.late_heads.insert(id, head)),
        None => work.cache.fragments.set_head(id, head),
    }
    head
}

/// An entry for a fragment that was laid out without one.
pub(super) fn entry_on_demand(by: &Translator, work: &mut Work<'_>, pc: AppPc) {
    if work.unit.entry_at(pc).is_some() {
        return;
    }
    let Some(id) = work.unit.fragment_at(pc) else { return };
    let head = head(work, id);
    let start = work.emitter.here();
    work.emitter.start_piece();
    lay_entry(by, work, pc);
    work.emitter.jump_to(head);
    work.cache.close_piece(&work.emitter, start, pc, Some(id));
}

/// Resolves links, emits stubs and constants, and publishes the region.
pub(super) fn complete(work: &mut Work<'_>) {
    superblock::side_exits(work);
    for index in 0..work.emitter.out.links.len() {
        let link = work.emitter.out.links[index];
        let known = work.unit.fragment_at(link.target);
        let target = match known {
            Some(id) => head(work, id),
            None => pending_stub(work, link),
        };
        set_displacement(&mut work.emitter, link.at, target);
    }
    for index in 0..work.emitter.out.asks.len() {
        let ask = work.emitter.out.asks[index];
        let stub = stubs::ask_stub(&mut work.emitter, &ask);
        let pc = AppPc(ask.pc.0 - u64::from(ask.app));
        work.cache.close_piece(&work.emitter, stub, pc, ask.fragment);
        set_displacement(&mut work.emitter, ask.at, stub);
    }
    for touch in std::mem::take(&mut work.emitter.out.touches) {
        let stub = dcache::touch_stub(&mut work.emitter, &touch);
        work.cache.close_piece(&work.emitter, stub, touch.block, Some(touch.fragment));
        set_displacement(&mut work.emitter, touch.at, stub);
    }
    for call in std::mem::take(&mut work.emitter.out.calls) {
        let stub = calls::call_stub(&mut work.emitter, &call);
        work.cache.close_piece(&work.emitter, stub, call.block, Some(call.fragment));
        set_displacement(&mut work.emitter, call.at, stub);
    }
    for transfer in std::mem::take(&mut work.emitter.out.transfers) {
        let stub = trace::transfer_stub(&mut work.emitter, &transfer);
        work.cache.close_piece(&work.emitter, stub, transfer.block, Some(transfer.fragment));
        set_displacement(&mut work.emitter, transfer.at, stub);
    }
    for trip in std::mem::take(&mut work.emitter.out.trips) {
        let stub = countdown::trip_stub(&mut work.emitter, &trip);
        work.cache.close_piece(&work.emitter, stub, trip.pc, Some(trip.fragment));
        set_displacement(&mut work.emitter, trip.at, stub);
    }
    // Older exits that wanted one of the new fragments, or of those that are good again.
    let mut patches = Vec::new();
    for index in 0..work.created.len() + work.woken.len() {
        let late = index.checked_sub(work.created.len());
        let id = late.map_or_else(|| work.created[index], |index| work.woken[index]);
        let pc = work.cache.fragments.get(id).pc;
        if work.unit.fragments.get(&pc) != Some(&id) {
            continue;
        }
        let sites = work.unit.take_pending(pc);
        if !sites.is_empty() {
            let head = head(work, id);
            patches.extend(sites.into_iter().map(|site| (site, head)));
        }
    }
    constants(work);
    let base = work.emitter.base;
    work.unit.relocated(base, &work.emitter.out.relocations);
    work.sink.append(&work.emitter.out.code);
    // Publish last: only now may other threads be led here.
    for (site, head) in patches {
        work.sink.patch(site, head.0.wrapping_sub(site.0 + 4) as i32);
    }
}

/// Registers an exit that cannot be linked yet; it goes to its target's stub.
pub(super) fn pending_stub(work: &mut Work<'_>, link: crate::emit::Link) -> CachePc {
    let site = CachePc(work.emitter.base + link.at as u64);
    work.unit.exits.pending.entry(link.target).or_default().push(site);
    if let Some(stub) = work.unit.stub_of(link.target) {
        return stub;
    }
    let inside = work.source.read_code(link.target, &mut [0]) != 0;
    let stub = match inside {
        true => stubs::exit_stub(&mut work.emitter, link.target),
        false => stubs::far_stub(&mut work.emitter, link.target),
    };
    work.cache.close_piece(&work.emitter, stub, link.target, None);
    work.unit.exits.stubs.insert(link.target, stub);
    stub
}

/// Return addresses that are pushed from memory, after all code of the region.
pub(super) fn constants(work: &mut Work<'_>) {
    while !(work.emitter.base as usize + work.emitter.out.code.len()).is_multiple_of(8) {
        work.emitter.out.code.push(0xcc);
    }
    for index in 0..work.emitter.out.constants.len() {
        let (at, value) = work.emitter.out.constants[index];
        let here = work.emitter.here();
        work.emitter.out.constant(value);
        set_displacement(&mut work.emitter, at, here);
    }
    while !(work.emitter.base as usize + work.emitter.out.code.len()).is_multiple_of(16) {
        work.emitter.out.code.push(0xcc);
    }
}
