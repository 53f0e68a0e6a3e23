//! Laying out everything that is known of a unit, many places to a region: exits to code of the
//! same region need no stubs, and side exits lie behind all of it.

use super::{Candidate, Destination, RegionLimits, Translator, Work};
use crate::addr::AppPc;
use crate::block::CodeSource;

/// Fragments of a region, about.
const REGION: usize = 8192;

/// Code to be laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known<'a> {
    /// A path, as one superblock.
    Path(&'a [AppPc]),
    /// A place, and what it falls into.
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

impl Translator {
    /// Lays out `known` in its order, as far as it is not there yet; with an indirect entry where
    /// `entry` says so.
    pub(crate) fn translate_known<'k>(
        &self,
        to: &mut Destination<'_>,
        source: &mut dyn CodeSource,
        known: impl Iterator<Item = Known<'k>>,
        entry: impl Fn(AppPc) -> bool,
    ) {
        let mut known = known.filter_map(|it| Some((it, it.pc()?))).peekable();
        while known.peek().is_some() {
            let mut work = self.begin(to, source);
            while let Some((it, pc)) = known.next() {
                self.lay_known(&mut work, it, Candidate { pc, entry: entry(pc), doubt: 0 });
                if work.created.len() >= REGION || !self.fits_another(&work) {
                    break;
                }
            }
            self.finish(&mut work);
            work.end();
        }
    }

    fn lay_known(&self, work: &mut Work<'_>, known: Known<'_>, at: Candidate) {
        match known {
            Known::Path(path) if self.makes_superblocks(work.unit, at.pc) => {
                let steps = self.steps(work, path);
                if !steps.is_empty() {
                    self.lay_superblock(work, &steps, at.entry);
                }
            }
            Known::Path(_) => {}
            Known::Place(_) if work.unit.has(at) => {}
            Known::Place(_) => self.trace(work, at, RegionLimits::fragments(1)),
        }
    }
}
