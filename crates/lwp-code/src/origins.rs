//! The origins of a family's fragments: their bytes, and where the code of each unit comes from.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lwp_dbt::{EventDeltas, FragmentId};
use lwp_process::maps::Mapping;
use lwp_process::{Tid, program_files};
use lwp_run::sink::{BlockEnd, ModuleMapping};
use rustc_hash::FxHashMap;

use crate::family::UnitId;
use crate::words::Words;

/// A family's knowledge of its fragments beyond their translation.
#[derive(Debug, Default)]
pub struct Origins {
    /// Unit and bytes of each fragment.
    fragments: Vec<(UnitId, Box<[u8]>)>,
    /// Path and mappings of each unit, by its number.
    units: FxHashMap<UnitId, UnitOrigin>,
    /// Numbers of the blocks that have been reported, by fragment.
    reported: FxHashMap<FragmentId, u32>,
    /// The places that stubs of linkage tables lead to.
    pub(crate) words: Words,
}

/// Where a unit's code comes from.
#[derive(Debug, Default)]
pub struct UnitOrigin {
    /// The path of its file.
    pub path: PathBuf,
    /// Its mappings.
    pub mappings: Vec<ModuleMapping>,
    /// Its file.
    pub file: Option<Arc<File>>,
    /// Its number, and how many of its mappings were reported.
    pub reported: Option<(u32, usize)>,
}

impl Origins {
    /// The number under which the block of a fragment has been reported.
    pub fn reported(&self, fragment: FragmentId) -> Option<u32> {
        self.reported.get(&fragment).copied()
    }

    /// The block of a fragment has been reported under this number.
    pub fn note_reported(&mut self, fragment: FragmentId, number: u32) {
        self.reported.insert(fragment, number);
    }

    /// What is known of a unit.
    pub fn unit(&mut self, unit: UnitId) -> &mut UnitOrigin {
        self.units.entry(unit).or_default()
    }

    /// The unit that has `pc` mapped.
    pub fn unit_at(&self, pc: u64) -> Option<UnitId> {
        let has = |origin: &UnitOrigin| {
            origin.mappings.iter().any(|mapping| (mapping.start..mapping.end).contains(&pc))
        };
        self.units.iter().filter(|(_, origin)| has(origin)).map(|(unit, _)| *unit).min()
    }

    /// The words that stubs of linkage tables jump through.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// Returns whether `unit` is of a file, or was generated, and has not been reported.
    pub fn has_news(&self, unit: UnitId) -> bool {
        let named = |path: &Path| path.is_absolute() || path.as_os_str().is_empty();
        let origin = self.units.get(&unit);
        origin.is_some_and(|origin| origin.reported.is_none() && named(&origin.path))
    }

    /// Notes that code of `unit` is mapped as `mapping` in the address space of `tid`.
    pub fn mapped(&mut self, unit: UnitId, tid: Tid, mapping: &Mapping) {
        let origin = self.units.entry(unit).or_default();
        if origin.file.is_none() {
            origin.file = program_files::hold(tid, mapping);
        }
        if origin.path.as_os_str().is_empty() {
            origin.path = PathBuf::from(mapping.path());
        }
        let piece =
            ModuleMapping { start: mapping.start, end: mapping.end, offset: mapping.offset };
        if !origin.mappings.contains(&piece) {
            origin.mappings.push(piece);
        }
    }

    /// The number of fragments that are known.
    pub fn fragments(&self) -> usize {
        self.fragments.len()
    }

    /// Unit and bytes of a fragment that was translated in this run.
    pub fn translated(&self, id: FragmentId) -> Option<(UnitId, &[u8])> {
        self.fragments.get(id.0 as usize).map(|(unit, bytes)| (*unit, &**bytes))
    }

    /// Takes in the next fragment.
    pub fn push(&mut self, unit: UnitId, bytes: &[u8]) {
        self.fragments.push((unit, bytes.into()));
    }
}

/// The kind of a block's end, by what it counts.
pub fn block_end(deltas: EventDeltas) -> BlockEnd {
    match deltas {
        EventDeltas { conditional: 1, .. } => BlockEnd::Conditional,
        EventDeltas { calls: 1, indirect: 1, .. } => BlockEnd::IndirectCall,
        EventDeltas { calls: 1, .. } => BlockEnd::Call,
        EventDeltas { returns: 1, .. } => BlockEnd::Return,
        EventDeltas { indirect: 1, .. } => BlockEnd::IndirectJump,
        EventDeltas { branches: 1, .. } => BlockEnd::Jump,
        _ => BlockEnd::Other,
    }
}
