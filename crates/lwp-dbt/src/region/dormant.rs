//! Disconnects fragments whose bytes may have changed, and connects them again if the bytes are the
//! same.
//!
//! Programs often write to a page with code without changing the code, because a JIT compiler keeps
//! data beside it. Before the write, the page's fragments become *dormant*. If their bytes turn out
//! to be the same, the host restores their heads, and all branches to them work again.

use super::overlay::close;
use super::{CodeSink, Destination, Translator, Work};
use crate::addr::{AppPc, CachePc};
use crate::block::CodeSource;
use crate::emit::{Emitter, Output, heads, stubs};
use crate::fragment::{Changeable, Fragment, FragmentId, MergedEdge};
use crate::overlays::PAGE;
use crate::plan::Checks;

impl Translator {
    /// Cuts a fragment of a unit whose bytes may change off from everything that leads to it.
    pub fn invalidate(&self, to: &mut Destination<'_>, id: FragmentId) {
        let Fragment { pc, head, .. } = to.cache.fragments.get(id);
        if to.unit.fragments.get(&pc) != Some(&id) {
            return;
        }
        close(to, pc);
        to.unit.fragments.remove(&pc);
        let stub = cut_off_stub(self, to, pc);
        if let Some(head) = head {
            to.sink.patch_head(head, stub);
            // A later translation of the pc takes the jump over.
            to.unit.exits.pending.entry(pc).or_default().push(head.offset(1));
        }
        let known = to.unit.changing.fragments.get(&id);
        let stays = known.is_some_and(|known| !known.compares);
        if let Some(edge) = known.and_then(|known| known.edge) {
            cut_edge(self, to, id, edge, stub);
        }
        let dropped = match stays {
            true => to.unit.changing.dormant.insert(pc, id).filter(|old| *old != id),
            false => Some(id),
        };
        if let Some(dropped) = dropped {
            to.unit.changing.fragments.remove(&dropped);
        }
    }
}

/// Leads a not-taken edge that charges a fragment to `exit`, by way of a stub that counts the
/// edge alone.
fn cut_edge(
    by: &Translator,
    to: &mut Destination<'_>,
    id: FragmentId,
    edge: MergedEdge,
    exit: CachePc,
) {
    let leads_on = lead_edge(by, to, id, edge, exit);
    let pc = to.cache.fragments.get(id).pc;
    to.unit.exits.pending.entry(pc).or_default().push(leads_on);
}

/// Does so, whatever `exit` is. Returns the place of the displacement that leads on.
pub(super) fn lead_edge(
    by: &Translator,
    to: &mut Destination<'_>,
    id: FragmentId,
    edge: MergedEdge,
    exit: CachePc,
) -> CachePc {
    let pc = to.cache.fragments.get(id).pc;
    let [stub, leads_on] = match edge.stub {
        Some([stub, leads_on]) => {
            to.sink.patch(leads_on, exit.0.wrapping_sub(leads_on.0 + 4) as i32);
            [stub, leads_on]
        }
        None => {
            let mut emitter = stub_emitter(by, to.sink);
            let stub = heads::edge_stub(&mut emitter, id, edge.counter, exit);
            to.cache.close_piece(&emitter, stub[0], pc, Some(id));
            append_stub(emitter, to.sink);
            stub
        }
    };
    to.sink.patch_head(edge.at, stub);
    if let Some(known) = to.unit.changing.fragments.get_mut(&id) {
        known.edge = Some(MergedEdge { stub: Some([stub, leads_on]), ..edge });
    }
    leads_on
}

/// The stub that takes the place of the code translated at `pc`.
fn cut_off_stub(by: &Translator, to: &mut Destination<'_>, pc: AppPc) -> CachePc {
    if let Some(&stub) = to.unit.exits.cut_off.get(&pc) {
        return stub;
    }
    let mut emitter = stub_emitter(by, to.sink);
    let stub = stubs::exit_stub(&mut emitter, pc);
    to.cache.close_piece(&emitter, stub, pc, None);
    append_stub(emitter, to.sink);
    to.unit.exits.cut_off.insert(pc, stub);
    stub
}

/// An emitter for one stub where `sink` stands.
fn stub_emitter<'t>(by: &'t Translator, sink: &dyn CodeSink) -> Emitter<'t> {
    let (base, routines_at) = (sink.position().0, sink.routines_at().0);
    Emitter::new(base, by.layout, &by.routines, routines_at, Output::default())
}

/// Leads to the dormant fragments of the page of `pc` again whose bytes are as they were.
pub(super) fn wake_page(work: &mut Work<'_>, pc: AppPc) {
    let page = AppPc(pc.0 & !(PAGE - 1));
    let range = page..page.offset(PAGE);
    let dormant: Vec<_> =
        work.unit.changing.dormant.range(range).map(|(&pc, &id)| (pc, id)).collect();
    if dormant.is_empty() {
        return;
    }
    let Some(mut now) = Page::read(work.unit.checks, work.source, page) else { return };
    let (same, changed): (Vec<_>, Vec<_>) = dormant.into_iter().partition(|(pc, id)| {
        work.unit.changing.fragments.get(id).is_some_and(|known| now.is_as_it_was(*pc, known))
    });
    for (pc, id) in same {
        if !work.unit.has_fragment(pc) {
            work.wake(pc, id);
        }
    }
    // What has changed once does not come back.
    for (pc, id) in changed {
        work.unit.changing.forget(pc, id);
    }
}

impl Work<'_> {
    /// Leads to a dormant fragment again from everything that led to it.
    fn wake(&mut self, pc: AppPc, id: FragmentId) {
        let Fragment { head, .. } = self.cache.fragments.get(id);
        let edge = self.unit.changing.fragments.get(&id).and_then(|known| known.edge);
        let own = [
            head.map(|head| head.offset(1)),
            edge.and_then(|edge| edge.stub).map(|[_, leads_on]| leads_on),
        ];
        if let Some(sites) = self.unit.exits.pending.get_mut(&pc) {
            sites.retain(|site| !own.contains(&Some(*site)));
        }
        for place in head.into_iter().chain(edge.map(|edge| edge.at)) {
            self.sink.restore_head(place);
        }
        self.unit.changing.dormant.remove(&pc);
        self.unit.fragments.insert(pc, id);
        self.woken.push(id);
    }
}

/// A page of code as it is now, and whether that changes only with notice.
struct Page<'a> {
    checks: Checks,
    source: &'a mut dyn CodeSource,
    start: AppPc,
    bytes: Vec<u8>,
}

impl<'a> Page<'a> {
    /// Reads the page at `start`; `None` if it may change without notice.
    fn read(checks: Checks, source: &'a mut dyn CodeSource, start: AppPc) -> Option<Self> {
        if !gives_notice(checks, source, start, PAGE as usize) {
            return None;
        }
        let mut bytes = vec![0; PAGE as usize];
        let read = source.read_code(start, &mut bytes);
        bytes.truncate(read);
        Some(Self { checks, source, start, bytes })
    }

    /// Returns whether the code that a fragment was made from is as it was.
    fn is_as_it_was(&mut self, pc: AppPc, known: &Changeable) -> bool {
        let trusted = known.trusted.as_ref();
        self.holds(pc, &known.bytes) && trusted.is_none_or(|it| self.holds(it.pc, &it.bytes))
    }

    /// Returns whether `bytes` are at `pc`, here or elsewhere, with notice before they change.
    fn holds(&mut self, pc: AppPc, bytes: &[u8]) -> bool {
        let from = pc.0.wrapping_sub(self.start.0) as usize;
        let within = from.checked_add(bytes.len()).and_then(|end| self.bytes.get(from..end));
        match within {
            Some(now) => now == bytes,
            None => holds(self.checks, self.source, pc, bytes),
        }
    }
}

/// Returns whether the code at `pc` changes only with notice from now on.
pub(super) fn gives_notice(
    checks: Checks,
    source: &mut dyn CodeSource,
    pc: AppPc,
    len: usize,
) -> bool {
    checks == Checks::Notified || source.gives_notice(pc, len)
}

/// Returns whether `bytes`, which may have been read before, are at `pc`, with notice before they
/// change.
pub(super) fn holds(checks: Checks, source: &mut dyn CodeSource, pc: AppPc, bytes: &[u8]) -> bool {
    let mut now = vec![0; bytes.len()];
    gives_notice(checks, source, pc, now.len())
        && source.read_code(pc, &mut now) == now.len()
        && now == bytes
}

/// Appends a stub, and what is missing to the next one's place.
fn append_stub(mut emitter: Emitter<'_>, sink: &mut dyn CodeSink) {
    while !emitter.here().0.is_multiple_of(16) {
        emitter.out.code.push(0xcc);
    }
    sink.append(&emitter.out.code);
}
