//! Superblocks over the fragments of code that may change.

use lwp_dbt::{AppPc, CodeSource, Destination, ExecutionProfile};

use super::module_code::ModuleCode;
use super::{Code, Family, UnitId, note_origins};

/// Lays superblocks along the paths that `profile` suggests through `code` of one unit that may
/// change, the hottest first, until `enough` says so; those that have been closed are opened.
/// `tid` is a thread that has that code. Returns whether there were any.
pub fn lay(
    family: &mut Family,
    (code, tid): (&[Code], i32),
    profile: &ExecutionProfile,
    enough: impl Fn() -> bool,
) -> bool {
    let mut found = false;
    for path in hot_paths(family, code, tid, profile) {
        if enough() {
            break;
        }
        found |= lay_one(family, code, tid, &path) > 0;
    }
    found
}

/// Lays the blocks along `path` as one superblock over their fragments, or opens the one that is
/// there. Returns the number of blocks laid.
fn lay_one(family: &mut Family, code: &[Code], tid: i32, path: &[AppPc]) -> usize {
    let Some((id, &first)) = code.first().map(|code| code.unit).zip(path.first()) else {
        return 0;
    };
    let Some(arena) = family.arena_of(id) else { return 0 };
    if family.out_of_numbers()
        || family.waste.is_too_much()
        || !family.arenas.find_chunk(arena, &mut family.modules[id])
    {
        return 0;
    }
    let module = &mut family.modules[id];
    let mut source = UnitCode { tid, code };
    let Some((chunk, _)) = &mut module.chunk else { return 0 };
    let mut to = Destination {
        cache: &mut family.code_cache,
        unit: &mut module.unit,
        sink: &mut family.arenas.sink(arena, chunk),
    };
    let before = to.cache.fragment_count();
    lwp_dbt::reopen_overlays(&family.translator, &mut to, &mut source, first);
    lwp_dbt::overlay_path(&family.translator, &mut to, &mut source, path);
    let blocks = family.code_cache.fragment_count() - before;
    family.waste.note(blocks);
    note_origins(&mut family.origins, &family.code_cache, id, &mut source);
    blocks
}

/// The paths that `profile` suggests: those that no open superblock follows yet.
fn hot_paths(
    family: &Family,
    code: &[Code],
    tid: i32,
    profile: &ExecutionProfile,
) -> Vec<Vec<AppPc>> {
    let Some(id) = code.first().map(|code| code.unit) else { return Vec::new() };
    let unit = &family.modules[id].unit;
    let mut source = UnitCode { tid, code };
    let mut paths = lwp_dbt::hot_paths(&family.translator, unit, &mut source, profile);
    let known = &unit.changing.overlays;
    paths.retain(|path| path.first().is_some_and(|pc| !known.is_open(*pc)));
    paths
}

/// Leads around the superblocks of a unit that have code in the pages of `range`, and out of them.
pub(super) fn close(family: &mut Family, (id, arena): (UnitId, usize), range: (u64, u64)) {
    let module = &mut family.modules[id];
    let Some((chunk, _)) = module.chunk else { return };
    let pages = module.unit.changing.overlays.pages_in(range);
    if pages.is_empty() {
        return;
    }
    // Everything that they lead to is there: nothing is appended.
    let mut chunk = chunk;
    let mut to = Destination {
        cache: &mut family.code_cache,
        unit: &mut module.unit,
        sink: &mut family.arenas.sink(arena, &mut chunk),
    };
    for page in pages {
        lwp_dbt::close_overlays(&mut to, page);
    }
}

/// Has all code of a unit that may change translated anew.
pub fn translate_anew(family: &mut Family, id: UnitId) {
    family.invalidate_all(id);
    family.modules[id].unit.changing.forget_dormant();
}

/// Reads code of any of the executable mappings of one unit.
struct UnitCode<'a> {
    tid: i32,
    code: &'a [Code],
}

impl UnitCode<'_> {
    /// The code of the mapping at `pc`.
    fn at(&self, pc: AppPc) -> Option<ModuleCode<'_>> {
        let holds = |code: &&Code| (code.range.0..code.range.1).contains(&pc.0);
        let code = self.code.iter().find(holds)?;
        let notices = code.notices.as_deref();
        Some(ModuleCode {
            tid: self.tid,
            range: code.range,
            source: None,
            pages: None,
            notices,
            functions: None,
        })
    }
}

impl CodeSource for UnitCode<'_> {
    fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize {
        self.at(pc).map_or(0, |mut code| code.read_code(pc, buffer))
    }

    fn read_data(&mut self, address: u64, buffer: &mut [u8]) -> usize {
        lwp_process::sys::read_memory(self.tid, address, buffer).unwrap_or(0)
    }

    fn gives_notice(&mut self, pc: AppPc, len: usize) -> bool {
        self.at(pc).is_some_and(|mut code| code.gives_notice(pc, len))
    }
}
