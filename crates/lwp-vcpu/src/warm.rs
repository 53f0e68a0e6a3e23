//! Translating ahead of time: all functions of the modules that a process has mapped when it ends,
//! or what was executed of them when a recording was made.
//!
//! Functions are found by the table that unwinders search: see [`crate::elf`].

use std::path::PathBuf;

use lwp_dbt::{AppPc, Candidate, RegionLimits};
use lwp_ptrace::Tid;

use crate::config::Warm;
use crate::elf::functions;
use crate::family::UnitId;
use crate::machine::Machine;
use crate::maps::{self, Mapping};

/// Fragments translated for one function, and for one module in all.
const FUNCTION: RegionLimits = RegionLimits::fragments(64);
const MOST: usize = 200_000;
/// The same for a block that has been executed: it, and what it falls into.
const EXECUTED: RegionLimits = RegionLimits::fragments(1);

impl Machine {
    /// Translates code of the files that the process of `tid`, stopped at its end, has mapped.
    pub fn warm(&mut self, tid: Tid) {
        let mappings = maps::read(tid);
        for (index, mapping) in mappings.iter().enumerate() {
            if !mapping.execute || mapping.inode == 0 || crate::memory_map::is_ours(mapping) {
                continue;
            }
            let same =
                |other: &&Mapping| (other.inode, other.device) == (mapping.inode, mapping.device);
            let first = mappings[..index].iter().rev().take_while(same).last().unwrap_or(mapping);
            let (pcs, onwards) = match &self.config.warm {
                Some(Warm::Executed(files)) => (executed(files, mapping), false),
                _ => (functions(tid, first.start), true),
            };
            for pc in pcs {
                let inside = (mapping.start..mapping.end).contains(&pc);
                if inside && !self.warm_code(tid, pc, onwards) {
                    break;
                }
            }
        }
    }

    /// Translates the code at `pc`, and `onwards` what can be reached directly from there. False
    /// when the module has had its share.
    fn warm_code(&mut self, tid: Tid, pc: u64, onwards: bool) -> bool {
        let limits = if onwards { FUNCTION } else { EXECUTED };
        let mut queue = vec![Candidate::direct(AppPc(pc), 0)];
        while let Some(ahead) = queue.pop() {
            let pc = ahead.pc;
            let Some((space, family)) = self.space_of(tid) else { return false };
            let Some((start, range)) = space.code_at(family, tid, pc.0) else { continue };
            let unit = |family: &mut crate::family::Family, id: UnitId| {
                let unit = &family.module(id).unit;
                (unit.has(ahead), unit.new_fragments() + unit.restored_fragments())
            };
            let (known, fragments) = unit(family, range.unit);
            if fragments > MOST || family.module(range.unit).kept.is_none() {
                return false;
            }
            if !known {
                let code = space.code_to_translate(start, range);
                let region = family.translate(&code, tid, pc, ahead.entry, limits);
                if onwards {
                    queue.extend(region.rest);
                }
            }
        }
        true
    }
}

/// Addresses in `mapping` of what has been executed of its file.
fn executed(files: &[(PathBuf, Vec<u64>)], mapping: &Mapping) -> Vec<u64> {
    let offsets = files.iter().filter(|(path, _)| path.to_str() == Some(&mapping.name));
    let address = |offset: &u64| Some(mapping.start + offset.checked_sub(mapping.offset)?);
    offsets.flat_map(|(_, offsets)| offsets.iter().filter_map(address)).collect()
}
