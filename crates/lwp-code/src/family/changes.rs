//! Fragments whose code has changed: cutting them off.

use lwp_dbt::{AppPc, Destination, Fragment, FragmentId};
use lwp_process::memory;

use super::{Family, Module, UnitId, overlays, range_of};
use crate::guards::pages_of;

impl Family {
    /// Cuts off the fragment at `pc` if its bytes differ from what thread `tid` has there now.
    pub fn invalidate_at(&mut self, id: UnitId, tid: i32, pc: AppPc) {
        let Some(arena) = self.arena_of(id) else { return };
        let module = &self.modules[id];
        let Some(fragment) = module.unit.fragment_at(pc) else { return };
        overlays::close(self, (id, arena), (pc.0, pc.0 + 1));
        let module = &self.modules[id];
        if differs(tid, pc, module.unit.bytes_of(fragment)) {
            self.cut_off(id, arena, fragment);
        }
    }

    /// Cuts a fragment off from everything that leads to it.
    fn cut_off(&mut self, id: UnitId, arena: usize, fragment: FragmentId) {
        let Some(mut sink) = self.arenas.for_stubs(arena) else { return };
        let mut to = Destination {
            cache: &mut self.code_cache,
            unit: &mut self.modules[id].unit,
            sink: &mut sink,
        };
        self.translator.invalidate(&mut to, fragment);
    }

    /// Cuts off every fragment of a unit.
    pub fn invalidate_all(&mut self, id: UnitId) {
        let Some(arena) = self.arena_of(id) else { return };
        overlays::close(self, (id, arena), (0, u64::MAX));
        let fragments = &self.modules[id].unit.fragments;
        for fragment in fragments.values().copied().collect::<Vec<_>>() {
            self.cut_off(id, arena, fragment);
        }
    }

    /// Cuts off every fragment of a unit that was made of `page`.
    pub fn invalidate_page(&mut self, id: UnitId, page: u64) {
        let Some(arena) = self.arena_of(id) else { return };
        overlays::close(self, (id, arena), (page, page + super::PAGE as u64));
        let module = &mut self.modules[id];
        let mut made = module.made_of.remove(&page).unwrap_or_default();
        for &fragment in &made {
            self.cut_off(id, arena, fragment);
        }
        let module = &mut self.modules[id];
        made.retain(|&id| module.unit.keeps(self.code_cache.fragment(id).pc, id));
        if !made.is_empty() {
            module.made_of.insert(page, made);
        }
    }

    /// Cuts off every fragment of a unit that overlaps `range` and whose bytes differ from what
    /// thread `tid` has there now; `all` cuts them off whatever they are.
    pub fn invalidate(&mut self, id: UnitId, tid: i32, range: (u64, u64), all: bool) -> usize {
        let Some(arena) = self.arena_of(id) else { return 0 };
        overlays::close(self, (id, arena), range);
        let module = &self.modules[id];
        let overlaps = |(low, high): (u64, u64)| low < range.1 && range.0 < high;
        let stale: Vec<FragmentId> = made_of(module, range)
            .into_iter()
            .filter(|&id| {
                let Fragment { pc, app_len, .. } = self.code_cache.fragment(id);
                let bytes = || module.unit.bytes_of(id);
                let changed = overlaps((pc.0, pc.0 + u64::from(app_len)))
                    && (all || differs(tid, pc, bytes()));
                let trusted = module.unit.trusted_by(id).filter(|it| overlaps(range_of(it)));
                module.unit.fragments.get(&pc) == Some(&id)
                    && (changed
                        || trusted.is_some_and(|it| all || differs(tid, it.pc, Some(&it.bytes))))
            })
            .collect();
        for &fragment in &stale {
            self.cut_off(id, arena, fragment);
        }
        stale.len()
    }
}

/// The fragments made of the pages of `range`, each once.
fn made_of(module: &Module, range: (u64, u64)) -> Vec<FragmentId> {
    let pages = (range.1 - range.0) / super::PAGE as u64;
    let mut made: Vec<FragmentId> = if pages < module.made_of.len() as u64 {
        pages_of(range).filter_map(|page| module.made_of.get(&page)).flatten().copied().collect()
    } else {
        module.unit.fragments.values().copied().collect()
    };
    made.sort_unstable();
    made.dedup();
    made
}

/// Returns whether the bytes at `pc` are not those that a fragment was made from.
fn differs(tid: i32, pc: AppPc, bytes: Option<&[u8]>) -> bool {
    let Some(bytes) = bytes else { return true };
    let mut now = vec![0; bytes.len()];
    memory::read_exact(tid, pc.0, &mut now).is_err() || now != bytes
}
