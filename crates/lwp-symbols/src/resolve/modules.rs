//! The names of a recording's modules, several of which are looked for at a time.

use std::collections::BTreeMap;

use lwp_profile::{RecordedModule, RecordedNames, Recording};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Detail, Options};
use crate::files::Files;
use crate::module::ModuleNames;
use crate::parallel;

/// The names of each file, by the number that stands for it. `same`: that number, by module.
pub(super) fn names(
    recording: &Recording,
    options: &Options,
    files: &Files<'_>,
    same: &FxHashMap<u32, u32>,
) -> BTreeMap<u32, ModuleNames> {
    let stacks = recording.frames.iter().filter_map(|frame| frame.module);
    let blocks = recording.blocks.values().map(|block| block.module);
    let executed: FxHashSet<u32> =
        stacks.chain(blocks).filter_map(|module| same.get(&module).copied()).collect();
    let code = !recording.events.is_empty();
    let find = |id: u32, module: &RecordedModule| {
        let of_it = |names: &&RecordedNames| same.get(&names.module) == Some(&id);
        let kept: Vec<&RecordedNames> = recording.names.iter().filter(of_it).collect();
        if !kept.is_empty() && !options.from_files {
            let names = ModuleNames::kept(module, &kept);
            let more = (!names.has_debug() && id == module.id)
                .then(|| ModuleNames::with_debug(module, files, code));
            return more.flatten().unwrap_or(names);
        }
        let names = ModuleNames::find(module, files, code);
        match kept.is_empty() || names.elf().is_some() {
            true => names,
            false => ModuleNames::kept(module, &kept),
        }
    };
    let firsts = recording.modules.iter().filter(|(id, _)| same.get(id) == Some(id)).collect();
    let found = parallel::map(firsts, |(&id, module)| {
        let names = find(id, module);
        if options.detail == Detail::Lines && executed.contains(&id) {
            names.read_debug(files);
        }
        (id, names)
    });
    found.into_iter().collect()
}
