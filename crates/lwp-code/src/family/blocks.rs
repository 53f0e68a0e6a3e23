//! Blocks in which events were due, and what was cut from them.
//!
//! An event of a hot block is due in it again and again. Of code that cannot change, what has been
//! decoded and translated for it is kept: asking again reads nothing of the program's memory.

use std::sync::Arc;

use lwp_dbt::block::Block;
use lwp_dbt::{AppPc, CachePc, Checks, Destination, FragmentId};
use rustc_hash::FxHashMap;

use super::{Family, ModuleCode, UnitId, note_origins};

/// Blocks kept; one is some hundred bytes.
const KEPT: usize = 1 << 14;

/// Unit, end of the mapping, first instruction, and how many instructions at most.
type Key = (UnitId, u64, AppPc, usize);

/// Knowledge of blocks of code that cannot change.
#[derive(Debug, Default)]
pub struct Blocks {
    known: FxHashMap<Key, Known>,
}

/// A block, and the cut fragment that was made of it.
#[derive(Debug)]
struct Known {
    block: Arc<Block>,
    cut: Option<(CachePc, FragmentId)>,
}

impl Family {
    /// The block at `pc` of unit `id` as it is translated, of at most `most` instructions where
    /// that is not 0.
    pub fn block(
        &mut self,
        id: UnitId,
        tid: i32,
        range: (u64, u64),
        pc: AppPc,
        most: usize,
    ) -> Option<Arc<Block>> {
        let key = (id, range.1, pc, most);
        if let Some(known) = self.blocks.known.get(&key) {
            return Some(Arc::clone(&known.block));
        }
        let module = &self.modules[id];
        let code = module.code.as_ref();
        let mut source =
            ModuleCode { tid, range, source: code, pages: None, notices: None, functions: None };
        let unit = &module.unit;
        let block = Arc::new(self.translator.block(unit, &mut source, pc, most)?);
        if unit.checks == Checks::None {
            if self.blocks.known.len() >= KEPT {
                self.blocks.known.clear();
            }
            self.blocks.known.insert(key, Known { block: Arc::clone(&block), cut: None });
        }
        Some(block)
    }

    /// A fragment of the first `most` instructions at `pc`, which tells the host when they are
    /// done.
    pub fn cut(
        &mut self,
        id: UnitId,
        tid: i32,
        range: (u64, u64),
        pc: AppPc,
        most: usize,
    ) -> Option<(CachePc, FragmentId)> {
        let key = (id, range.1, pc, most);
        if let Some(cut) = self.blocks.known.get(&key).and_then(|known| known.cut) {
            return Some(cut);
        }
        let arena = self.arena_of(id)?;
        let module = &mut self.modules[id];
        let code = module.code.as_ref();
        let mut source =
            ModuleCode { tid, range, source: code, pages: None, notices: None, functions: None };
        let mut to = Destination {
            cache: &mut self.code_cache,
            unit: &mut module.cuts,
            sink: &mut self.arenas.for_cut(arena)?,
        };
        let cut = self.translator.cut(&mut to, &mut source, pc, most);
        note_origins(&mut self.origins, &self.code_cache, id, &mut source);
        if let Some(known) = self.blocks.known.get_mut(&key) {
            known.cut = cut;
        }
        cut
    }
}
