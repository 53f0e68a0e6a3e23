//! Lays out all known code of a unit in large regions: exits to code of the same region need no
//! stubs, and side exits come behind the whole region.

use rustc_hash::FxHashSet;

use super::lay::Next;
use super::{
    Arrival, Candidate, Destination, Translator, Work, begin, decode, finish, fits_another, lay,
    steps, superblock,
};
use crate::addr::AppPc;
use crate::block::{Block, CodeSource};
use crate::execution_profile::ExecutionProfile;

/// Fragments of a region, about.
const REGION: usize = 8192;

/// Code to be laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known<'a> {
    /// A path, as one superblock.
    Path(&'a [AppPc]),
    /// A place, and the places of its group that it falls into.
    Place(AppPc),
}

impl Known<'_> {
    fn pc(self) -> Option<AppPc> {
        match self {
            Self::Path(path) => path.first().copied(),
            Self::Place(pc) => Some(pc),
        }
    }
}

/// Places that may be laid one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    /// The places.
    pub places: &'a FxHashSet<AppPc>,
    /// Those that have indirect entries.
    pub entries: &'a FxHashSet<AppPc>,
    /// The knowledge of how often they are executed.
    pub profile: &'a ExecutionProfile,
}

impl Group<'_> {
    fn has_entry(self, pc: AppPc) -> bool {
        self.entries.contains(&pc)
    }

    /// Lays out `known`, which begins at `at`.
    fn lay(self, by: &Translator, work: &mut Work<'_>, known: Known<'_>, at: Candidate) {
        match known {
            Known::Path(path) if superblock::makes_superblocks(by, work.unit, at.pc) => {
                let steps = steps::follow(by, work, path);
                if !steps.is_empty() {
                    superblock::lay_superblock(by, work, &steps, at.entry);
                }
            }
            Known::Path(_) => {}
            Known::Place(_) if !work.unit.has_fragment(at.pc) => self.lay_places(by, work, at),
            Known::Place(pc) if at.entry => finish::entry_on_demand(by, work, pc),
            Known::Place(_) => {}
        }
    }

    /// Lays out the block at `from` and the places that it falls into.
    fn lay_places(self, by: &Translator, work: &mut Work<'_>, from: Candidate) {
        let Candidate { mut pc, mut entry, .. } = from;
        let mut arrival = Arrival::Jump;
        loop {
            let Some(block) = decode(by, work, pc) else {
                return lay::fall_off(by, work, pc, arrival);
            };
            let Some(next) = lay::lay(by, work, &block, arrival, entry) else { return };
            match self.behind(work, &block, &next).filter(|_| fits_another(by, work)) {
                Some((behind, how)) => (pc, entry, arrival) = (behind.pc, behind.entry, how),
                None => {
                    let (pc, arrival) = next.by_itself();
                    return lay::fall_off(by, work, pc, arrival);
                }
            }
        }
    }

    /// Returns how control arrives at the place that is laid behind `block`, and whether that has
    /// an indirect entry; `None` if another place is to be laid there.
    fn behind(self, work: &Work<'_>, block: &Block, next: &Next) -> Option<(Candidate, Arrival)> {
        let (pc, _) = next.by_itself();
        if !self.places.contains(&pc) || work.unit.has_fragment(pc) {
            return None;
        }
        let entry = self.has_entry(pc);
        let arrival = match next {
            Next::Return(_) => Arrival::Jump,
            // An entry leads straight into what is laid behind it.
            _ if entry => return None,
            Next::Fall(_) => Arrival::Fall,
            Next::NotTaken(_) if self.mostly_falls(block, pc) => Arrival::NotTaken,
            Next::NotTaken(_) => Arrival::NotTakenSeldom,
        };
        Some((Candidate { pc, entry, doubt: 0 }, arrival))
    }

    /// Returns whether most executions of the block at `pc` come from the not-taken edge of
    /// `block`.
    fn mostly_falls(self, block: &Block, pc: AppPc) -> bool {
        let from = self.profile.block(block.pc).map_or(0, |block| block.not_taken);
        let all = self.profile.block(pc).map_or(0, |block| block.runs);
        from >= all / 2
    }
}

impl Translator {
    /// Lays out `known` in its order, as far as it is not there yet, with the indirect entries of
    /// `group`.
    pub(crate) fn translate_known<'k>(
        &self,
        to: &mut Destination<'_>,
        source: &mut dyn CodeSource,
        known: impl Iterator<Item = Known<'k>>,
        group: Group<'_>,
    ) {
        let mut known = known.filter_map(|it| Some((it, it.pc()?))).peekable();
        while known.peek().is_some() {
            let mut work = begin(self, to, source);
            for (it, pc) in known.by_ref() {
                let at = Candidate { pc, entry: group.has_entry(pc), doubt: 0 };
                group.lay(self, &mut work, it, at);
                if work.created.len() >= REGION || !fits_another(self, &work) {
                    break;
                }
            }
            finish::complete(&mut work);
            work.end();
        }
    }
}
