//! Translates a unit again: frequently executed code as superblocks along its usual paths, and the
//! rest behind them.

use rustc_hash::FxHashSet;

use crate::addr::{AppPc, CachePc};
use crate::block::CodeSource;
use crate::code_cache::CodeCache;
use crate::execution_profile::ExecutionProfile;
use crate::fragment::Unit;
use crate::image::Placement;
use crate::paths::Paths;
use crate::plan::Checks;
use crate::region::{CodeSink, Destination, Group, Known, Translator};
use crate::relocation::SITE_LIMIT;

/// Executions of blocks from which on a module is known well: some 50 ms of one processor.
pub const WELL: u64 = 20_000_000;

/// The knowledge of a unit's executions, by which it is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knowledge {
    /// Little: as it was translated, and only what the plan counts is counted. Programs that end
    /// soon want nothing else.
    #[default]
    Little = 0,
    /// Little, but it is worth to know more: as it was translated, and everything is counted.
    Watched = 1,
    /// Enough: superblocks along the paths that it takes, and the rest behind them.
    Well = 2,
}

impl Knowledge {
    pub(crate) fn of(number: u64) -> Self {
        match number {
            1 => Self::Watched,
            2 => Self::Well,
            _ => Self::Little,
        }
    }

    /// Returns the knowledge that `profile` is; `wanted` says that more is worth having.
    pub fn from_profile(profile: &ExecutionProfile, wanted: bool) -> Self {
        match profile.executions() >= WELL {
            true => Self::Well,
            false if wanted => Self::Watched,
            false => Self::Little,
        }
    }
}

/// A unit that has been laid out anew, with tables of its own.
#[derive(Debug)]
pub struct Rebuilt {
    /// Its tables.
    pub cache: CodeCache,
    /// The unit.
    pub unit: Unit,
    /// Its code.
    pub code: Vec<u8>,
}

/// Code that grows in a vector, as if it lay at an address.
struct Growing {
    at: Placement,
    code: Vec<u8>,
}

impl CodeSink for Growing {
    fn position(&self) -> CachePc {
        self.at.code.offset(self.code.len() as u64)
    }

    fn room(&self) -> usize {
        SITE_LIMIT.saturating_sub(self.code.len() + 1)
    }

    fn routines_at(&self) -> CachePc {
        self.at.routines
    }

    fn append(&mut self, code: &[u8]) {
        self.code.extend_from_slice(code);
    }

    fn patch(&mut self, at: CachePc, displacement: i32) {
        let offset = at.0.wrapping_sub(self.at.code.0) as usize;
        if let Some(word) = self.code.get_mut(offset..).and_then(|rest| rest.get_mut(..4)) {
            word.copy_from_slice(&displacement.to_le_bytes());
        }
    }

    fn patch_head(&mut self, _: CachePc, _: CachePc) {
        unreachable!("code that cannot change has no patchable heads")
    }

    fn restore_head(&mut self, _: CachePc) {
        unreachable!("code that cannot change has no patchable heads")
    }
}

/// The paths along which superblocks are worth laying through code of `unit`, by what is known of
/// it, the hottest first.
pub fn hot_paths(
    translator: &Translator,
    unit: &Unit,
    source: &mut dyn CodeSource,
    profile: &ExecutionProfile,
) -> Vec<Vec<AppPc>> {
    let mut decode = |pc: AppPc| translator.block(unit, source, pc, 0);
    Paths::form(profile, &mut decode).into_iter().map(|path| path.pcs).collect()
}

/// Lays out everything that has been translated of `unit` anew, by what is known of it, as if at
/// `at`, which is where its code lies now. `None` where that cannot be done.
pub fn rebuild(
    translator: &Translator,
    (cache, unit): (&CodeCache, &Unit),
    profile: &ExecutionProfile,
    source: &mut dyn CodeSource,
    (at, knowledge): (Placement, Knowledge),
) -> Option<Rebuilt> {
    if unit.checks != Checks::None {
        return None;
    }
    let mut decode = |pc: AppPc| translator.block(unit, source, pc, 0);
    let paths = match knowledge {
        Knowledge::Well => Paths::form(profile, &mut decode),
        Knowledge::Little | Knowledge::Watched => Vec::new(),
    };
    let (fragments, entries) = unit.known(cache);
    let translator = &translator.learning(knowledge == Knowledge::Watched);
    let mut new = Unit::new(Checks::None);
    new.filter = unit.filter;
    new.marks.clone_from(&unit.marks);
    let mut tables = translator.code_cache();
    if cache.counters().has_roles() {
        tables.keep_roles();
    }
    let mut code = Growing { at, code: Vec::new() };
    let mut to = Destination { cache: &mut tables, unit: &mut new, sink: &mut code };
    // What is only reached within superblocks needs nothing of its own …
    let inner: FxHashSet<AppPc> = paths.iter().flat_map(|path| &path.pcs[1..]).copied().collect();
    let (executed, others): (Vec<AppPc>, Vec<AppPc>) = fragments
        .into_iter()
        .filter(|pc| entries.contains(pc) || !inner.contains(pc))
        .partition(|pc| profile.block(*pc).is_some_and(|it| it.runs > 0));
    let paths = paths.iter().map(|path| Known::Path(&path.pcs)).collect();
    for (paths, places) in [(paths, executed), (Vec::new(), others)] {
        let together = places.iter().copied().collect();
        let group = Group { places: &together, entries: &entries, profile };
        let known = paths.into_iter().chain(places.into_iter().map(Known::Place));
        translator.translate_known(&mut to, source, known, group);
    }
    // … save where a branch leads out of one and into another.
    loop {
        let mut waiting: Vec<AppPc> =
            to.unit.exits.pending.keys().copied().filter(|pc| inner.contains(pc)).collect();
        waiting.sort_unstable();
        let together = waiting.iter().copied().collect();
        let before = to.unit.fragments.len();
        let known = waiting.into_iter().map(Known::Place);
        let group = Group { places: &together, entries: &FxHashSet::default(), profile };
        translator.translate_known(&mut to, source, known, group);
        if to.unit.fragments.len() == before {
            break;
        }
    }
    Some(Rebuilt { cache: tables, unit: new, code: code.code })
}
