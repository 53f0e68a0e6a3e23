//! Cut fragments: a block up to the instruction on which an LWP event is due.

use super::{CodeSink, Queue, Translator, Work, direct_target};
use crate::addr::{AppPc, CachePc};
use crate::block::{Block, CodeSource};
use crate::emit::{Emitter, Output};
use crate::fragment::{Fragment, FragmentId, Unit};
use crate::plan::Weights;
use std::sync::Arc;

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
        &mut self,
        unit: &mut Unit,
        source: &mut dyn CodeSource,
        sink: &mut dyn CodeSink,
        pc: AppPc,
        most: usize,
    ) -> Option<(CachePc, FragmentId)> {
        let block = Block::decode(source, pc, self.decoding(unit, pc, most))?;
        if let Some((id, bytes)) = unit.cuts.get(&(pc, most as u8))
            && **bytes == *block.bytes
        {
            return Some((self.cache.fragment(*id).start, *id));
        }
        let routines = Arc::clone(&self.routines);
        let at = (sink.position().0, sink.routines_at().0);
        let mut work = Work {
            unit,
            source,
            emitter: Emitter::new(at.0, self.layout, &routines, at.1, Output::default()),
            queue: Queue::default(),
            foreign: Vec::new(),
            doubt: 0,
            created: Vec::new(),
            woken: Vec::new(),
            entries: Vec::new(),
            room: sink.room(),
        };
        if work.room < self.fragment_room() {
            return None;
        }
        let id = FragmentId(self.cache.fragments.len() as u32);
        let start = work.emitter.here();
        work.emitter.start_piece();
        work.emitter.fragment = Some(id);
        work.emitter.uncharged = true;
        work.emitter.dcache = self.watches(work.unit, pc);
        work.emitter.watch.shape = self.shape;
        if !work.emitter.body(&block, None) {
            return None;
        }
        work.emitter.cut_terminator(&block, self.lwp_of(work.unit)).ok()?;
        let len = (work.emitter.here().0 - start.0) as u32;
        self.cache.fragments.push(Fragment {
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
}
