//! The address spaces of a run, their translations, and the store in which these outlive the run.

use std::collections::HashMap;
use std::sync::Arc;

use lwp_code::family::{Family, Kind};
use lwp_code::space::Space;
use lwp_code::store::Store;
use lwp_dbt::Selection;
use lwp_process::Tid;
use lwp_run::config::Config;
use rustc_hash::FxHashMap;

use super::Tasks;
use crate::background_save::Saving;
use crate::guarding::{Board, Way};
use crate::relayout::Generated;

/// The address spaces in which threads and processes are.
#[derive(Clone, Copy, Debug)]
pub struct Where<'a> {
    /// The processes and threads.
    pub tasks: &'a Tasks,
    /// The address spaces.
    pub caches: &'a CodeCaches,
}

impl Where<'_> {
    /// Returns the state that the code of a thread's address space is in
    /// ([`CodeMap::changes`](lwp_code::space::CodeMap::changes)), or 0 if it has none.
    pub fn changes(&self, tid: Tid) -> u64 {
        let index = self.tasks.space_index(tid);
        let space = index.and_then(|index| self.caches.spaces.get(index)?.as_ref());
        space.map_or(0, |space| space.code.changes)
    }

    /// Returns every side of the address space that a thread runs in.
    pub fn all_sides(&self, tid: Tid) -> Vec<usize> {
        self.tasks.base_space(tid).map_or_else(Vec::new, |base| self.caches.sides(base).collect())
    }
}

/// All address spaces and translations.
#[derive(Debug, Default)]
pub struct CodeCaches {
    /// The first family, made while the program is being started.
    pub prepared: Option<Family>,
    /// Families; empty places are free.
    pub families: Vec<Option<Family>>,
    /// The number of the family of each kind.
    pub layouts: HashMap<Kind, usize>,
    /// Address spaces; empty places are free.
    pub spaces: Vec<Option<Space>>,
    /// Address spaces whose translations are being flushed.
    pub flushes: Vec<usize>,
    /// The store in which translations outlive the run.
    pub store: Option<Arc<Store>>,
    /// Progress of writing them there.
    pub saving: Saving,
    /// The knowledge of generated code, by address space.
    pub generated: FxHashMap<usize, Generated>,
    /// Notices of writes to code.
    pub notices: Board,
}

impl CodeCaches {
    /// None yet, in a run with these settings, in which notice of such writes can be had.
    pub fn new(config: &Config, way: Option<Way>) -> Self {
        let saving = Saving::of(config);
        Self { notices: Board::reaching(way), saving, ..Self::default() }
    }

    /// Returns the address space and family of a thread.
    pub fn space_of(&mut self, tasks: &Tasks, tid: Tid) -> Option<(&mut Space, &mut Family)> {
        self.side(tasks.space_index(tid)?)
    }

    /// Returns these, as the threads of a run are in them.
    pub fn of<'a>(&'a self, tasks: &'a Tasks) -> Where<'a> {
        Where { tasks, caches: self }
    }

    /// Returns a side of an address space, with its family.
    pub fn side(&mut self, index: usize) -> Option<(&mut Space, &mut Family)> {
        let space = self.spaces.get_mut(index)?.as_mut()?;
        let family = self.families.get_mut(space.family)?.as_mut()?;
        Some((space, family))
    }

    /// Returns the side of an address space on which `selection` is counted down.
    pub fn side_for(&self, base: usize, selection: Selection) -> Option<usize> {
        let sides = &self.spaces.get(base)?.as_ref()?.sides;
        sides.iter().find(|(one, _)| *one == selection).map(|(_, side)| *side)
    }

    /// Returns the family of a side of an address space.
    pub fn family_of(&self, index: usize) -> Option<&Family> {
        self.families.get(self.spaces.get(index)?.as_ref()?.family)?.as_ref()
    }

    /// The indices of an address space and of its other sides.
    pub fn sides(&self, base: usize) -> impl Iterator<Item = usize> {
        let space = self.spaces.get(base).and_then(Option::as_ref);
        let others = space.into_iter().flat_map(|space| space.sides.iter().map(|(_, side)| *side));
        space.map(|_| base).into_iter().chain(others)
    }

    /// Returns the family in whose translated code or routines `pc` lies, on any side of an address
    /// space.
    pub fn family_at(&self, base: usize, pc: u64) -> Option<&Family> {
        self.sides(base).filter_map(|side| self.family_of(side)).find(|family| family.owns(pc))
    }

    /// Returns the other side of an address space in whose translated code or routines `pc` lies.
    pub fn side_at(&self, base: usize, pc: u64) -> Option<usize> {
        let mut others = self.sides(base).skip(1);
        others.find(|side| self.family_of(*side).is_some_and(|family| family.owns(pc)))
    }

    /// Notes that the only process of an address space is about to leave it.
    pub fn ended(&mut self, index: usize) {
        if let Some((space, family)) = self.side(index)
            && space.users == 1
        {
            space.ended(family);
        }
    }

    /// Notes that a process has left an address space. The last one frees it.
    pub fn leave(&mut self, index: usize) {
        let Some(place) = self.spaces.get_mut(index) else { return };
        let Some(space) = place else { return };
        space.users -= 1;
        if space.users > 0 {
            return;
        }
        let sides: Vec<usize> = space.sides.iter().map(|(_, side)| *side).collect();
        *place = None;
        self.generated.remove(&index);
        for side in sides {
            self.spaces[side] = None;
            self.generated.remove(&side);
        }
    }

    /// Adds an address space and returns its index.
    pub fn add(&mut self, space: Space) -> usize {
        match self.spaces.iter().position(Option::is_none) {
            Some(index) => {
                self.spaces[index] = Some(space);
                index
            }
            None => {
                self.spaces.push(Some(space));
                self.spaces.len() - 1
            }
        }
    }
}
