//! Calls of interpreted functions, counted exactly.
//!
//! The function is a value in memory, its code object, wherever an evaluator is entered once a
//! call, or executes an operation of its own for it. Translated code counts such values as it
//! counts the targets of indirect calls ([`lwp_dbt::Value`]), and names are read from the
//! interpreter's memory: when a code object ends, which the host waits for, and when the thread
//! ends. So an address that has another code object later is another function's.

use lwp_dbt::context::calls::call_site;
use lwp_dbt::{AppPc, CodeCache, FragmentId, Role, Unit, Value, ValueBase};
use lwp_languages::counting::{Base, Counted};
use lwp_languages::functions::Language;
use lwp_process::Tid;
use lwp_process::tracee_files::path_of;
use rustc_hash::FxHashMap;

use crate::config::Config;
use crate::contexts::Context;
use crate::family::Family;
use crate::machine::Counting;
use crate::maps::Mapping;
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

/// A place at which calls are counted: its fragment, the first of the fragment's counters, and its
/// first instruction.
#[derive(Clone, Copy, Debug)]
struct Site {
    id: FragmentId,
    first: u32,
    pc: AppPc,
}

impl Evaluator {
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

    fn ending_at(&self, pc: u64) -> Option<&Evaluator> {
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
    fn sites(&mut self, code_cache: &CodeCache) -> &[(FragmentId, u32)] {
        self.find_sites(code_cache);
        &self.sites
    }

    /// The counters of the fragments at `pc`, with which code objects end, that say of which one
    /// the host has been told.
    fn ending_sites(&mut self, code_cache: &CodeCache, pc: u64) -> Vec<u32> {
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

/// The number of times that the counters of a thread have for `value`, where the first of them is
/// `first`.
fn counted_for(context: Context<'_>, first: u32, value: u64) -> i64 {
    let mut count = context.counters().calls_to(call_site(first), value);
    if context.counters().get(first) == !value {
        count = count.wrapping_add(context.counters().get(first + 1));
    }
    count.cast_signed()
}

/// Returns whether a compiler makes code of a process's functions, whose calls pass no place where
/// they are counted: it shares the code with other processes of the same program.
fn compiles((space, family): (&Space, &mut Family), tid: Tid) -> bool {
    let known =
        family.modules.evaluators.compiles.filter(|(state, _)| *state == space.code.changes);
    let look = || {
        let mappings = crate::maps::read(tid);
        let shares = |it: &&Mapping| it.execute && it.shared && it.inode != 0;
        let mut code = mappings.iter().filter(shares);
        (space.code.changes, code.any(|it| !crate::memory_map::is_ours(it)))
    };
    family.modules.evaluators.compiles.insert(known.unwrap_or_else(look)).1
}

impl Counting<'_> {
    /// The instruction at `pc` is about to be executed, with which a code object may end, or all of
    /// them: whatever has been counted for it is a function's that has no other chance to be named.
    pub fn end_code(&mut self, tid: Tid, pc: u64, code: u64) {
        let Some((_, family)) = self.caches.space_of(self.tasks, tid) else { return };
        let Some(evaluator) = family.modules.evaluators.ending_at(pc).cloned() else { return };
        let told = family.modules.evaluators.ending_sites(&family.code_cache, pc);
        let all = family.modules.evaluators.sites(&family.code_cache).to_vec();
        let sites = all.into_iter().map(|(id, first)| {
            let pc = family.code_cache.fragment(id).pc;
            Site { id, first, pc }
        });
        let sites: Vec<Site> = sites.filter(|it| evaluator.entries.contains(&it.pc)).collect();
        let space = self.tasks.space_index(tid);
        if let Some(context) = self.tasks.context(self.contexts, tid) {
            told.iter().for_each(|counter| context.counters().set(*counter, !code));
        }
        let threads = self.tasks.threads.keys().copied();
        let tids: Vec<Tid> = threads.filter(|it| self.tasks.space_index(*it) == space).collect();
        let codes = match evaluator.end_of_all == Some(AppPc(pc)) {
            true => self.called_at(&sites, &tids),
            false => vec![code],
        };
        for code in codes {
            self.end_one(tid, &evaluator, code, (&sites, &tids));
        }
    }

    /// The code objects that threads have called at these places.
    fn called_at(&self, sites: &[Site], tids: &[Tid]) -> Vec<u64> {
        let mut codes = Vec::new();
        for tid in tids {
            let Some(executions) = self.tasks.executions(self.contexts, self.caches, *tid) else {
                continue;
            };
            let kept = self.tasks.threads.get(tid).map(|it| it.account.profile.kept_calls());
            let its = executions.calls().chain(kept.into_iter().flatten());
            let its = its.map(|(target, _)| target);
            codes.extend(its.filter(|it| sites.iter().any(|site| site.id == it.0)).map(|it| it.1));
        }
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// A code object ends, which threads have called at these places.
    fn end_one(
        &mut self,
        tid: Tid,
        evaluator: &Evaluator,
        code: u64,
        (sites, tids): (&[Site], &[Tid]),
    ) {
        let mut function = None;
        for &other in tids {
            for site in sites {
                let Some(thread) = self.tasks.threads.get(&other) else { continue };
                let counted = counted_for(self.contexts.context(thread.slot), site.first, code);
                if !thread.account.profile.has_called(site.id, code, counted) {
                    continue;
                }
                let read = || self.function_of(tid, evaluator, code);
                let call = function.get_or_insert_with(read).map(|it| (site.pc.0, it));
                if let Some(thread) = self.tasks.threads.get_mut(&other) {
                    thread.account.profile.end_target((site.id, code), counted, call);
                }
            }
        }
    }

    /// The number of the function that a code object is of.
    fn function_of(&mut self, tid: Tid, evaluator: &Evaluator, code: u64) -> Option<u32> {
        if matches!(evaluator.counted, Counted::Php(_)) {
            let (space, family) = self.caches.space_of(self.tasks, tid)?;
            if compiles((space, family), tid) {
                return None;
            }
        }
        let languages = &mut self.observers.call_stacks.languages;
        languages.number(tid, |memory| evaluator.counted.function(evaluator.bias, code, memory))
    }

    /// Reads the names of the functions that a thread has called, as long as its process is there.
    pub fn name_calls(&mut self, tid: Tid) {
        if !self.observers.counts_places() {
            return;
        }
        let Some((_, family)) = self.caches.space_of(self.tasks, tid) else { return };
        if family.modules.evaluators.sites(&family.code_cache).is_empty() {
            return;
        }
        let Some(executions) = self.tasks.executions(self.contexts, self.caches, tid) else {
            return;
        };
        for ((id, code), _) in executions.calls() {
            let Some((_, family)) = self.caches.space_of(self.tasks, tid) else { return };
            let pc = family.code_cache.fragment(id).pc.0;
            let Some(evaluator) = family.modules.evaluators.entered_at(pc).cloned() else {
                continue;
            };
            let function = self.function_of(tid, &evaluator, code);
            if let (Some(function), Some(thread)) = (function, self.tasks.threads.get_mut(&tid)) {
                thread.account.profile.named.insert((id, code), (pc, function));
            }
        }
    }
}
