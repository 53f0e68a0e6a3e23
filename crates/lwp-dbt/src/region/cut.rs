//! Cut fragments: a block up to the instruction on which an LWP event is due.

use super::{Destination, Translator, begin, direct_target, finish, fragment_room, watches};
use crate::addr::{AppPc, CachePc};
use crate::block::{Block, CodeSource};
use crate::emit::{bodies, cut};
use crate::fragment::{Fragment, FragmentId, Unit};
use crate::plan::EventDeltas;

impl Translator {
    /// The block at `pc` as it is translated, of at most `most` instructions where that is not 0.
    pub fn block(
        &self,
        unit: &Unit,
        source: &mut dyn CodeSource,
        pc: AppPc,
        most: usize,
    ) -> Option<Block> {
        Block::decode(source, pc, self.decoding(unit, pc, most))
    }

    /// A fragment of the first `most` instructions at `pc`, for one execution in which an LWP event
    /// is due: it counts nothing, and tells the host when its last instruction has retired.
    ///
    /// `None` where there is no code, no room, or an instruction that cannot be executed so.
    pub fn cut(
        &self,
        to: &mut Destination<'_>,
        source: &mut dyn CodeSource,
        pc: AppPc,
        most: usize,
    ) -> Option<(CachePc, FragmentId)> {
        let block = Block::decode(source, pc, self.decoding(to.unit, pc, most))?;
        if let Some((id, bytes)) = to.unit.cuts.get(&(pc, most as u8))
            && **bytes == *block.bytes
        {
            return Some((to.cache.fragment(*id).start, *id));
        }
        let mut work = begin(self, to, source);
        if work.room < fragment_room(self) {
            return None;
        }
        let id = FragmentId(work.cache.fragments.len() as u32);
        let start = work.emitter.here();
        work.emitter.start_piece();
        work.emitter.fragment = Some(id);
        work.emitter.charging.by_host = true;
        work.emitter.dcache = watches(self, work.unit, pc);
        work.emitter.watch.shape = self.shape;
        if !bodies::body(&mut work.emitter, &block, None) {
            return None;
        }
        cut::terminator(&mut work.emitter, &block, self.lwp_of(work.unit)).ok()?;
        let len = (work.emitter.here().0 - start.0) as u32;
        work.cache.fragments.push(Fragment {
            pc,
            app_len: block.bytes.len() as u16,
            instructions: block.instructions() as u16,
            start,
            len,
            head: Some(start),
            join: start,
            charged_first: false,
            target: direct_target(&block.terminator),
            deltas: EventDeltas::default(),
            countdown: (0, 0),
            flags_dead: false,
        });
        work.cache.close_piece(&work.emitter, start, pc, Some(id));
        work.unit.cuts.insert((pc, most as u8), (id, block.bytes.into_boxed_slice()));
        finish::complete(&mut work);
        work.end();
        Some((start, id))
    }
}
