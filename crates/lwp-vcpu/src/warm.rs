//! Translating ahead of time: all functions of the modules that a process has mapped when it ends.
//!
//! Functions are found by the table that unwinders search: see [`crate::elf`].

use lwp_dbt::{Ahead, AppPc, RegionLimits};
use lwp_ptrace::Tid;

use crate::elf::functions;
use crate::family::UnitId;
use crate::machine::Machine;
use crate::maps::{self, Mapping};

/// Fragments translated for one function, and for one module in all.
const FUNCTION: RegionLimits = RegionLimits::fragments(64);
const MOST: usize = 200_000;

impl Machine {
    /// Translates every function of the files that the process of `tid`, stopped at its end, has mapped.
    pub fn warm(&mut self, tid: Tid) {
        let mappings = maps::read(tid);
        for (index, mapping) in mappings.iter().enumerate() {
            if !mapping.execute || mapping.inode == 0 || crate::memory_map::is_ours(mapping) {
                continue;
            }
            let same =
                |other: &&Mapping| (other.inode, other.device) == (mapping.inode, mapping.device);
            let first = mappings[..index].iter().rev().take_while(same).last().unwrap_or(mapping);
            for pc in functions(tid, first.start) {
                if (mapping.start..mapping.end).contains(&pc) && !self.warm_function(tid, pc) {
                    break;
                }
            }
        }
    }

    /// Translates what can be reached directly from `pc`. False when the module has had its share.
    fn warm_function(&mut self, tid: Tid, pc: u64) -> bool {
        let mut queue = vec![Ahead::direct(AppPc(pc), 0)];
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
                let bounds = (start, range.end);
                let region = family.translate(range.unit, tid, bounds, pc, ahead.entry, FUNCTION);
                queue.extend(region.rest);
            }
        }
        true
    }
}
