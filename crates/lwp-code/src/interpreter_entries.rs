//! Where interpreters enter the evaluation of a function and where functions' code objects end, in
//! the code of a family.

use lwp_dbt::{AppPc, CodeCache, FragmentId, Role, Unit, Value, ValueBase};
use lwp_languages::counting::{Base, Counted};
use lwp_languages::functions::Language;
use lwp_mailbox::memory_map::is_ours;
use lwp_process::Tid;
use lwp_process::maps::{self, Mapping};
use lwp_process::tracee_files::path_of;
use lwp_run::Config;
use rustc_hash::FxHashMap;

use crate::family::Family;
use crate::space::Space;

/// The evaluators of a family whose calls are counted.
#[derive(Debug, Default)]
pub struct Evaluators {
    /// Languages whose calls are counted.
    wanted: Vec<Language>,
    /// An evaluator may be set.
    may_set: bool,
    /// Files that have been looked at, by device and inode.
    files: FxHashMap<((u32, u32), u64), Option<Counted>>,
    known: Vec<Evaluator>,
    /// The fragments at entries, and the first of the counters of each.
    sites: Vec<(FragmentId, u32)>,
    /// The fragments at which code objects end, and the counter of each.
    ends: Vec<(FragmentId, u32)>,
    /// The number of counters among which they have been looked for.
    seen: usize,
    /// State of an address space, and whether a compiler makes code of functions in it.
    compiles: Option<(u64, bool)>,
}

/// An evaluator that is mapped.
#[derive(Clone, Debug)]
pub struct Evaluator {
    counted: Counted,
    /// The distance of its addresses from those of the file.
    bias: u64,
    /// The instructions that are executed once a call.
    entries: Vec<AppPc>,
    /// The instructions with which one code object ends, and all of them.
    end: AppPc,
    end_of_all: Option<AppPc>,
    /// The name of its file.
    file: String,
}

impl Evaluator {
    /// What is counted of it, by its file.
    pub fn counted(&self) -> &Counted {
        &self.counted
    }

    /// The distance of its addresses from those of the file.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// The instructions that are executed once a call.
    pub fn entries(&self) -> &[AppPc] {
        &self.entries
    }

    /// The instruction with which all code objects end, if there is one.
    pub fn end_of_all(&self) -> Option<AppPc> {
        self.end_of_all
    }

    /// The file in which an evaluator is set that was not, if one is.
    pub fn set_in(&self) -> Option<&str> {
        self.counted.evaluator_at().map(|_| &*self.file)
    }
}

impl Evaluators {
    /// Those of a family whose code counts calls of `wanted` languages. `may_set`: where calls only
    /// enter an evaluator that has been set, it is.
    pub fn new(wanted: Vec<Language>, may_set: bool) -> Self {
        Self { wanted, may_set, ..Self::default() }
    }

    /// The evaluator in `mapping`, one of thread `tid`'s, if it has one.
    pub fn in_mapping(&mut self, tid: Tid, mapping: &Mapping) -> Option<Evaluator> {
        if self.wanted.is_empty() || mapping.inode == 0 || !mapping.name.starts_with('/') {
            return None;
        }
        let key = (mapping.device, mapping.inode);
        let open = || Counted::open(&path_of(&mapping.open(tid)?), &self.wanted);
        let counted = self.files.entry(key).or_insert_with(open);
        let may = |it: &Counted| self.may_set || it.evaluator_at().is_none();
        let counted = counted.clone().filter(may)?;
        let offsets = mapping.offset..mapping.offset + (mapping.end - mapping.start);
        let at = |offset: u64| {
            let within = offsets.contains(&offset);
            within.then(|| AppPc(mapping.start + (offset - mapping.offset)))
        };
        let (offset, address) = counted.place();
        let bias = at(offset)?.0.wrapping_sub(address);
        let entries = counted.entries();
        let entries = entries.iter().map(|entry| at(entry.at)).collect::<Option<Vec<_>>>()?;
        let end_of_all = counted.end_of_all().map(|it| at(it).ok_or(())).transpose().ok()?;
        let file = mapping.name.rsplit('/').next().unwrap_or_default().to_owned();
        let end = at(counted.end())?;
        let evaluator = Evaluator { counted, bias, entries, end, end_of_all, file };
        if !self.known.iter().any(|it| (&it.entries, it.end) == (&evaluator.entries, end)) {
            self.known.push(evaluator.clone());
        }
        Some(evaluator)
    }

    /// The evaluator whose code objects end at `pc`.
    pub fn ending_at(&self, pc: u64) -> Option<&Evaluator> {
        let pc = AppPc(pc);
        self.known.iter().find(|it| it.end == pc || it.end_of_all == Some(pc))
    }

    /// The evaluator that is entered at `pc`.
    pub fn entered_at(&self, pc: u64) -> Option<&Evaluator> {
        self.known.iter().find(|it| it.entries.contains(&AppPc(pc)))
    }

    /// Has the calls of an evaluator counted, if `mapping`, of which a unit holds code, has one.
    pub fn count(&mut self, unit: &mut Unit, tid: Tid, mapping: &Mapping) {
        let Some(evaluator) = self.in_mapping(tid, mapping) else { return };
        let sets = evaluator.counted.evaluator_at();
        for (pc, entry) in evaluator.entries.iter().zip(evaluator.counted.entries()) {
            let base = match entry.base {
                Base::First => ValueBase::Rdi,
                Base::Second => ValueBase::Rsi,
                Base::R14 => ValueBase::R14,
            };
            let value = Value { base, through: entry.through, offset: entry.value, sets };
            unit.marks.values.insert(*pc, value);
        }
        unit.marks.ends.insert(evaluator.end);
        unit.marks.ends.extend(evaluator.end_of_all);
    }

    /// The fragments at entries of evaluators, and the first of the counters of each.
    pub fn sites(&mut self, code_cache: &CodeCache) -> &[(FragmentId, u32)] {
        self.find_sites(code_cache);
        &self.sites
    }

    /// The counters of the fragments at `pc`, with which code objects end, that say of which one
    /// the host has been told.
    pub fn ending_sites(&mut self, code_cache: &CodeCache, pc: u64) -> Vec<u32> {
        self.find_sites(code_cache);
        let at = |(id, _): &&(FragmentId, u32)| code_cache.fragment(*id).pc.0 == pc;
        self.ends.iter().filter(at).map(|(_, counter)| *counter).collect()
    }

    /// Looks among new counters for those of evaluators.
    fn find_sites(&mut self, code_cache: &CodeCache) {
        let counters = code_cache.counters();
        let (known, all) = (self.seen, counters.len());
        if !self.known.is_empty() {
            for index in known..all {
                let Some(Role::CallTarget(id)) = counters.role(index) else { continue };
                let pc = code_cache.fragment(id).pc.0;
                if self.entered_at(pc).is_some() {
                    self.sites.push((id, index as u32));
                } else if self.ending_at(pc).is_some() {
                    self.ends.push((id, index as u32));
                }
            }
        }
        self.seen = all;
    }
}

impl Evaluators {
    /// The evaluators of the languages of a run in which functions' calls are counted, if `counts`.
    pub fn of(config: &Config, counts: bool) -> Self {
        let wanted = |it: &&Language| counts && config.sampling.languages.contains(it);
        let wanted = [Language::Python, Language::Php].iter().filter(wanted).copied().collect();
        Self::new(wanted, config.program.sets_evaluators)
    }
}

/// Returns whether a compiler makes code of a process's functions, whose calls pass no place where
/// they are counted: it shares the code with other processes of the same program.
pub fn compiles((space, family): (&Space, &mut Family), tid: Tid) -> bool {
    let known =
        family.modules.evaluators.compiles.filter(|(state, _)| *state == space.code.changes);
    let look = || {
        let mappings = maps::read(tid);
        let shares = |it: &&Mapping| it.execute && it.shared && it.inode != 0;
        let mut code = mappings.iter().filter(shares);
        (space.code.changes, code.any(|it| !is_ours(it)))
    };
    family.modules.evaluators.compiles.insert(known.unwrap_or_else(look)).1
}
