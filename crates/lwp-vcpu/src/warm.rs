//! Translating ahead of time: all functions of the modules that a process has mapped when it ends.
//!
//! Functions are found by the table that unwinders search, `.eh_frame_hdr`: stripped files have it too.

use lwp_dbt::{Ahead, AppPc, RegionLimits};
use lwp_ptrace::{Tid, memory};

use crate::family::UnitId;
use crate::machine::Machine;
use crate::maps::{self, Mapping};

/// Fragments translated for one function, and for one module in all.
const FUNCTION: RegionLimits = RegionLimits::fragments(64);
const MOST: usize = 200_000;
/// Most functions of one module.
const MOST_FUNCTIONS: usize = 1 << 20;

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

/// Where the functions of the ELF file mapped from `base` start, by its unwind table.
fn functions(tid: Tid, base: u64) -> Vec<u64> {
    table(tid, base).unwrap_or_default()
}

fn table(tid: Tid, base: u64) -> Option<Vec<u64>> {
    const PT_LOAD: u32 = 1;
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    const COUNT_UDATA4: u8 = 0x03;
    const TABLE_DATAREL_SDATA4: u8 = 0x3b;
    let head: [u8; 64] = memory::read_array(tid, base).ok()?;
    if !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let at = base.checked_add(u64::from_le_bytes(head[32..40].try_into().ok()?))?;
    let count = u16::from_le_bytes([head[56], head[57]]);
    let mut lowest = u64::MAX;
    let mut unwind = None;
    for index in 0..u64::from(count) {
        let header: [u8; 56] = memory::read_array(tid, at.checked_add(index * 56)?).ok()?;
        let address = u64::from_le_bytes(header[16..24].try_into().ok()?);
        match u32::from_le_bytes(header[..4].try_into().ok()?) {
            PT_LOAD => lowest = lowest.min(address & !4095),
            PT_GNU_EH_FRAME => unwind = Some(address),
            _ => {}
        }
    }
    let start = base.wrapping_sub(lowest).wrapping_add(unwind?);
    let head: [u8; 12] = memory::read_array(tid, start).ok()?;
    if head[0] != 1 || head[2] != COUNT_UDATA4 || head[3] != TABLE_DATAREL_SDATA4 {
        return None;
    }
    let count = u32::from_le_bytes(head[8..12].try_into().ok()?) as usize;
    let mut rows = vec![0; count.min(MOST_FUNCTIONS) * 8];
    memory::read_exact(tid, start.checked_add(12)?, &mut rows).ok()?;
    let address = |row: &[u8]| {
        let distance = i32::from_le_bytes([row[0], row[1], row[2], row[3]]);
        start.wrapping_add(i64::from(distance) as u64)
    };
    Some(rows.chunks_exact(8).map(address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_functions_are_found() {
        let pid = std::process::id() as i32;
        let maps = maps::read(pid);
        let own = functions as fn(Tid, u64) -> Vec<u64> as usize as u64;
        let mapping = maps.iter().find(|m| (m.start..m.end).contains(&own)).unwrap();
        let first = maps.iter().find(|m| m.inode == mapping.inode && m.inode != 0).unwrap();
        let found = functions(pid, first.start);
        assert!(found.len() > 100, "{}", found.len());
        assert!(found.binary_search(&own).is_ok(), "{own:#x} is not among them");
        assert_eq!(functions(pid, 0x10), [] as [u64; 0]);
    }
}
