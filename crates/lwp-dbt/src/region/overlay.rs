//! Superblocks of code that may change, in addition to the fragments of their blocks.
//!
//! While a superblock is *open*, the head of its first block's fragment jumps to it. After each
//! block that writes to memory, the superblock has a patchable place. Before one of its pages is
//! written to, the host *closes* the superblock: the head leads into the fragment again, and each
//! patchable place jumps to a stub that corrects the counts and continues in fragments. So a thread
//! inside the superblock sees its own write at its next branch, as it does in fragments. If all
//! code turns out to be the same, the host opens the superblock again; if not, it makes a new one.

use super::dormant::{gives_notice, holds};
use super::{
    Destination, Translator, Work, begin, dormant, finish, set_displacement, steps, superblock,
};
use crate::addr::{AppPc, CachePc};
use crate::block::CodeSource;
use crate::fragment::{FragmentId, Neighbour, Unit};
use crate::overlays::{Overlay, PAGE};
use crate::plan::Checks;

/// A superblock is laid anew so often where its code changes. A generational collector moves an
/// object about as often before it leaves it where it is.
const MOST_AGAIN: u32 = 16;

/// The state of a superblock's code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    /// As it was, and it changes only with notice.
    Same,
    /// It may change at any moment.
    Unguarded,
    /// Other code.
    Changed,
}

/// Lays the blocks along `path`, of a unit whose code may change, as one superblock over their
/// fragments, as far as they follow one another and change only with notice. Returns the number of
/// its blocks; 0 where nothing is laid.
pub fn overlay_path(
    by: &Translator,
    to: &mut Destination<'_>,
    source: &mut dyn CodeSource,
    path: &[AppPc],
) -> usize {
    let Some(&pc) = path.first().filter(|pc| may_begin(by, to.unit, **pc)) else { return 0 };
    let Some(base) = to.unit.fragment_at(pc) else { return 0 };
    let first = FragmentId(to.cache.fragments.len() as u32);
    let mut work = begin(by, to, source);
    let steps = steps::follow(by, &mut work, path);
    // One block alone saves its counter, where that counts for nothing else.
    let least = if by.plan.counts() { 2 } else { 1 };
    if steps.len() < least || !superblock::lay_superblock(by, &mut work, &steps, false) {
        work.end();
        return 0;
    }
    let blocks = work.cache.fragments.len() - first.0 as usize;
    let code = steps.iter().take(blocks).map(|step| step.code()).collect();
    let base = (base, finish::head(&mut work, base));
    let head = work.cache.fragments.get(first).join;
    let places = superblock::side_exits(&mut work);
    lead_back(&mut work, pc, head);
    finish::complete(&mut work);
    work.end();
    let overlay = Overlay { base, head, places, code, open: false, again: 0 };
    to.unit.changing.overlays.insert(pc, overlay);
    lead_to(by, to, pc);
    blocks
}

/// Returns whether a superblock may be laid over the fragment at `pc`.
fn may_begin(by: &Translator, unit: &Unit, pc: AppPc) -> bool {
    let changes = unit.checks != Checks::None && unit.marks.has_none_at(pc);
    changes && !by.profiles() && !unit.changing.overlays.has(pc)
}

/// Leads the branches of a superblock to its own beginning, `pc`, straight to its head.
fn lead_back(work: &mut Work<'_>, pc: AppPc, head: CachePc) {
    let links = std::mem::take(&mut work.emitter.out.links);
    let (back, links): (Vec<_>, Vec<_>) = links.into_iter().partition(|link| link.target == pc);
    work.emitter.out.links = links;
    for link in back {
        set_displacement(&mut work.emitter, link.at, head);
    }
}

/// Leads to a closed superblock again, and through it.
fn reopen(by: &Translator, to: &mut Destination<'_>, pc: AppPc) {
    let Some(overlay) = to.unit.changing.overlays.get(pc) else { return };
    for [place, _] in &overlay.places {
        to.sink.restore_head(*place);
    }
    to.sink.restore_head(overlay.head);
    lead_to(by, to, pc);
}

/// Leads to a superblock from its first block's fragment.
fn lead_to(by: &Translator, to: &mut Destination<'_>, pc: AppPc) {
    let Some(overlay) = to.unit.changing.overlays.get_mut(pc) else { return };
    overlay.open = true;
    let ((base, base_head), head) = (overlay.base, overlay.head);
    to.sink.patch_head(base_head, head);
    if let Some(edge) = to.unit.changing.fragments.get(&base).and_then(|known| known.edge) {
        dormant::lead_edge(by, to, base, edge, head);
    }
}

/// Leads around the superblock that begins at `pc`, and out of it.
pub(super) fn close(to: &mut Destination<'_>, pc: AppPc) {
    let overlay = to.unit.changing.overlays.get_mut(pc);
    let Some(overlay) = overlay.filter(|overlay| overlay.open) else { return };
    overlay.open = false;
    let (base, base_head) = overlay.base;
    if to.unit.fragments.get(&pc) == Some(&base) {
        to.sink.restore_head(base_head);
        if let Some(edge) = to.unit.changing.fragments.get(&base).and_then(|known| known.edge) {
            to.sink.restore_head(edge.at);
        }
    }
    to.sink.patch_head(overlay.head, base_head);
    for [place, stub] in &overlay.places {
        to.sink.patch_head(*place, *stub);
    }
}

/// Leads around all superblocks of a unit that have code in `page`, which may change, and out of
/// them.
pub fn close_overlays(to: &mut Destination<'_>, page: u64) {
    for pc in to.unit.changing.overlays.in_page(page).to_vec() {
        close(to, pc);
    }
}

/// Leads to those superblocks with code in the page of `pc` again whose code is as it was. Those
/// whose code has changed are laid anew along the same paths: collectors of garbage change
/// addresses in code, and hardly ever branches.
pub fn reopen_overlays(
    by: &Translator,
    to: &mut Destination<'_>,
    source: &mut dyn CodeSource,
    pc: AppPc,
) {
    for pc in to.unit.changing.overlays.in_page(pc.0 & !(PAGE - 1)).to_vec() {
        let overlay = to.unit.changing.overlays.get(pc);
        let Some(overlay) = overlay.filter(|overlay| !overlay.open) else { continue };
        let Some(&base) = to.unit.fragments.get(&pc) else { continue };
        let state = match base == overlay.base.0 {
            true => state_of(to.unit.checks, source, &overlay.code),
            false => Code::Changed,
        };
        match state {
            Code::Same => reopen(by, to, pc),
            Code::Unguarded => {}
            Code::Changed => lay_again(by, to, source, pc),
        }
    }
}

/// Lays a superblock whose code has changed anew, unless that has been done too often.
fn lay_again(by: &Translator, to: &mut Destination<'_>, source: &mut dyn CodeSource, pc: AppPc) {
    let Some(overlay) = to.unit.changing.overlays.remove(pc) else { return };
    let again = overlay.again + 1;
    if again > MOST_AGAIN {
        return;
    }
    let path: Vec<AppPc> = overlay.code.iter().map(|block| block.pc).collect();
    overlay_path(by, to, source, &path);
    if let Some(new) = to.unit.changing.overlays.get_mut(pc) {
        new.again = again;
    }
}

/// Returns the state of `code`.
fn state_of(checks: Checks, source: &mut dyn CodeSource, code: &[Neighbour]) -> Code {
    for Neighbour { pc, bytes } in code {
        if !gives_notice(checks, source, *pc, bytes.len()) {
            return Code::Unguarded;
        }
        if !holds(checks, source, *pc, bytes) {
            return Code::Changed;
        }
    }
    Code::Same
}
