//! Translates ahead of time, when a process ends, code of the modules that it has mapped: the code
//! that execution profiles or a recording list as executed, or all functions.
//!
//! It finds functions in the table that unwinders search: see [`lwp_process::elf`].

use std::path::{Path, PathBuf};

use lwp_code::family::{Family, UnitId};
use lwp_code::space::Space;
use lwp_dbt::{AppPc, Candidate, ExecutionProfile, RegionLimits};
use lwp_process::Tid;
use lwp_process::elf::functions;
use lwp_process::maps::{self, Mapping};
use lwp_run::config::Warm;
use rustc_hash::FxHashSet;

/// Fragments translated for one function, and for one module in all.
const FUNCTION: RegionLimits = RegionLimits::fragments(64);
const MOST: usize = 200_000;
/// Fragments translated for a block that has been executed: the block, and what it falls into.
const EXECUTED: RegionLimits = RegionLimits::fragments(1);

/// The code that is translated behind a block.
type Follows<'a> = &'a dyn Fn(&Candidate) -> bool;

/// An address space whose code is translated ahead, and a thread that stands still in it.
#[derive(Debug)]
pub struct Warming<'a> {
    /// Its code.
    pub space: &'a mut Space,
    /// Its translations.
    pub family: &'a mut Family,
    /// The thread.
    pub tid: Tid,
}

impl Warming<'_> {
    /// Translates code of the files that the process, stopped at its end, has mapped.
    pub fn warm(&mut self, what: &Warm) {
        let tid = self.tid;
        let mappings = maps::read(tid);
        let by_profile = match what {
            Warm::Known(program) => self.knows(program, &mappings),
            _ => false,
        };
        for (index, mapping) in mappings.iter().enumerate() {
            if !mapping.execute || mapping.inode == 0 || lwp_mailbox::memory_map::is_ours(mapping) {
                continue;
            }
            let same =
                |other: &&Mapping| (other.inode, other.device) == (mapping.inode, mapping.device);
            let first = mappings[..index].iter().rev().take_while(same).last().unwrap_or(mapping);
            match what {
                Warm::Executed(files) => {
                    let pcs = executed(files, mapping);
                    self.warm_all(mapping, pcs.into_iter(), EXECUTED, &|_| false);
                }
                _ if by_profile => self.warm_known(mapping, first.start),
                _ => {
                    let pcs = functions(tid, first.start).into_iter();
                    let pcs = pcs.map(|pc| Candidate::direct(AppPc(pc), 0));
                    self.warm_all(mapping, pcs, FUNCTION, &|_| true);
                }
            }
        }
    }

    /// Returns whether there is an execution profile of `program`, which is mapped.
    fn knows(&mut self, program: &Path, mappings: &[Mapping]) -> bool {
        let of_program = |mapping: &&Mapping| Path::new(&mapping.name) == program;
        let code = mappings.iter().filter(of_program).find(|mapping| mapping.execute);
        code.is_some_and(|mapping| self.executions_of(mapping).is_some())
    }

    /// The execution profile of the module that `mapping` belongs to.
    fn executions_of(&mut self, mapping: &Mapping) -> Option<ExecutionProfile> {
        let (_, range) = self.space.code_at(self.family, self.tid, mapping.start)?;
        self.family.keeping()?.known_executions(&self.family.modules[range.unit])
    }

    /// Translates the blocks of a module that were executed in earlier runs, those first that were
    /// executed most; with entries for those that indirect branches may lead to.
    fn warm_known(&mut self, mapping: &Mapping, base: u64) {
        let Some(profile) = self.executions_of(mapping) else { return };
        let mut entered: FxHashSet<u64> = functions(self.tid, base).into_iter().collect();
        let mut blocks: Vec<_> = profile.iter().filter(|(_, block)| block.runs > 0).collect();
        blocks.sort_unstable_by_key(|(pc, block)| (std::cmp::Reverse(block.runs), *pc));
        for (_, block) in &blocks {
            entered.extend(block.targets.iter().map(|target| target.0));
        }
        let candidate = |(pc, _): &(AppPc, _)| match entered.contains(&pc.0) {
            true => Candidate::indirect(*pc, 0),
            false => Candidate::direct(*pc, 0),
        };
        let was_executed = |pc: AppPc| profile.block(pc).is_some_and(|block| block.runs > 0);
        let follows = |ahead: &Candidate| ahead.entry && was_executed(ahead.pc);
        self.warm_all(mapping, blocks.iter().map(candidate), EXECUTED, &follows);
    }

    fn warm_all(
        &mut self,
        mapping: &Mapping,
        places: impl Iterator<Item = Candidate>,
        limits: RegionLimits,
        follows: Follows<'_>,
    ) {
        for ahead in places {
            let inside = (mapping.start..mapping.end).contains(&ahead.pc.0);
            if inside && !self.warm_code(ahead, limits, follows) {
                break;
            }
        }
    }

    /// Translates the code at `first`, and all that `follows` of what may be executed behind it.
    /// False when the module has had its share.
    fn warm_code(&mut self, first: Candidate, limits: RegionLimits, follows: Follows<'_>) -> bool {
        let (space, family, tid) = (&mut *self.space, &mut *self.family, self.tid);
        let mut queue = vec![first];
        while let Some(ahead) = queue.pop() {
            let pc = ahead.pc;
            let Some((start, range)) = space.code_at(family, tid, pc.0) else { continue };
            let unit = |family: &mut Family, id: UnitId| {
                let unit = &family.modules[id].unit;
                (unit.has(ahead), unit.new_fragments() + unit.restored_fragments())
            };
            let (known, fragments) = unit(family, range.unit);
            if fragments > MOST || family.modules[range.unit].kept.is_none() {
                return false;
            }
            if !known {
                let code = space.code_to_translate(start, range);
                let region = family.translate(&code, tid, pc, ahead.entry, limits);
                queue.extend(region.rest.into_iter().filter(follows));
            }
        }
        true
    }
}

/// The places in `mapping` that have been executed of its file.
fn executed(files: &[(PathBuf, Vec<u64>)], mapping: &Mapping) -> Vec<Candidate> {
    let offsets = files.iter().filter(|(path, _)| path.to_str() == Some(&mapping.name));
    let place = |offset: &u64| {
        let address = mapping.start + offset.checked_sub(mapping.offset)?;
        Some(Candidate::direct(AppPc(address), 0))
    };
    offsets.flat_map(|(_, offsets)| offsets.iter().filter_map(place)).collect()
}
