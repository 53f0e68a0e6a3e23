//! The origins of the counts: executions of every block, by thread.
//!
//! A counter of translated code belongs to a fragment (see [`lwp_dbt::Role`]). If a fragment is
//! interrupted, the host notes the address as a *place*. Together, they show exactly how often each
//! instruction was executed and how often each conditional branch was not taken. A [`Sink`]
//! receives this when a thread ends, and at checkpoints.

use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions};
use lwp_code::family::{Family, RestoredCode, UnitId};
use lwp_code::origins::block_end;
use lwp_contexts::Tree;
use lwp_dbt::{Execution, Fragment, FragmentId, Role};
use lwp_mailbox::contexts::Contexts;
use lwp_process::Tid;
use lwp_run::addition::Addition;
use rustc_hash::FxHashMap;

use crate::call_stack::languages::Declarations;
use crate::lwp::report_kept;
use crate::machine::{CodeCaches, Counting, Observers, Tasks};
use crate::measured_contexts::Calling;

mod interpreted;
mod jumps;

use interpreted::{Interpreted, Target};
pub use lwp_code::words::look_at_words;
pub use lwp_run::sink::{
    Block, BlockCount, BlockEnd, Context, ContextKind, Jump, LanguageFunction, Misses, Module,
    ModuleMapping, Place, Sample, Sink, ThreadExecutions,
};

/// Executions by fragment, signed so that they can be corrected and subtracted.
#[derive(Clone, Debug, Default)]
pub struct Executions {
    /// Complete runs, and branches not taken.
    runs: FxHashMap<FragmentId, [i64; 2]>,
    /// Runs cut short after so many instructions.
    partial: FxHashMap<(FragmentId, u16), i64>,
    /// Instructions executed alone.
    steps: FxHashMap<u64, i64>,
    /// Indirect calls, by the fragment that they end and where they led.
    calls: FxHashMap<(FragmentId, u64), i64>,
    /// Branches executed alone: where they stand and where they led, kind, whether taken.
    jumps: FxHashMap<(u64, u64, BlockEnd, bool), i64>,
    /// Calls of interpreted functions, by the evaluator's entry.
    interpreted: FxHashMap<Interpreted, i64>,
}

impl Executions {
    /// Fragments that ran to their ends: how often, and how often their branches were not taken.
    fn ended(&self) -> impl Iterator<Item = (&FragmentId, [u64; 2])> {
        let runs = self.runs.iter().map(|(id, counts)| (id, counts.map(positive)));
        runs.filter(|(_, counts)| *counts != [0; 2])
    }

    /// Fragments that were cut short, after how many instructions, and how often.
    fn cut(&self) -> impl Iterator<Item = (&(FragmentId, u16), u64)> {
        let partial = self.partial.iter().map(|(place, count)| (place, positive(*count)));
        partial.filter(|((_, instructions), times)| *times > 0 && *instructions > 0)
    }

    /// A charged (or uncharged) run of `fragment` ended after `instructions`.
    pub fn cut_short(&mut self, fragment: FragmentId, instructions: u32, charged: bool) {
        if charged {
            self.runs.entry(fragment).or_default()[0] -= 1;
        }
        let instructions = u16::try_from(instructions).unwrap_or(u16::MAX);
        *self.partial.entry((fragment, instructions)).or_default() += 1;
    }

    /// The branch at the end of `fragment` fell through, and its counter has not been reached.
    pub fn fell_through(&mut self, fragment: FragmentId) {
        self.runs.entry(fragment).or_default()[1] += 1;
    }

    /// The instruction at `pc` was executed `times` more than the counters say.
    pub fn stepped(&mut self, pc: u64, times: i64) {
        *self.steps.entry(pc).or_default() += times;
    }

    /// Adds `other` times `factor`.
    pub fn add(&mut self, other: &Self, factor: i64) {
        for (fragment, [runs, not_taken]) in &other.runs {
            let sum = self.runs.entry(*fragment).or_default();
            sum[0] = sum[0].wrapping_add(runs.wrapping_mul(factor));
            sum[1] = sum[1].wrapping_add(not_taken.wrapping_mul(factor));
        }
        for (key, count) in &other.partial {
            add(self.partial.entry(*key).or_default(), count.wrapping_mul(factor));
        }
        for (pc, count) in &other.steps {
            add(self.steps.entry(*pc).or_default(), count.wrapping_mul(factor));
        }
        for (call, count) in &other.calls {
            add(self.calls.entry(*call).or_default(), count.wrapping_mul(factor));
        }
        for (jump, count) in &other.jumps {
            add(self.jumps.entry(*jump).or_default(), count.wrapping_mul(factor));
        }
        for (call, count) in &other.interpreted {
            add(self.interpreted.entry(*call).or_default(), count.wrapping_mul(factor));
        }
    }

    /// Something happened so much more often.
    pub fn happened(&mut self, what: Execution, times: i64) {
        let sum = match what {
            Execution::Whole(id) => &mut self.runs.entry(id).or_default()[0],
            Execution::NotTaken(id) => &mut self.runs.entry(id).or_default()[1],
            Execution::Cut(id, instructions) => self.partial.entry((id, instructions)).or_default(),
            Execution::Called(id, target) => self.calls.entry((id, target.0)).or_default(),
        };
        add(sum, times);
    }
}

/// Adds modulo 2^64: a program can write to its counters.
fn add(sum: &mut i64, count: i64) {
    *sum = sum.wrapping_add(count);
}

/// The data that a thread carries along for the profile.
#[derive(Clone, Debug, Default)]
pub struct ThreadProfile {
    /// The thread's number.
    pub serial: u32,
    /// True if the sink knows the thread.
    pub announced: bool,
    /// Corrections of its counters, by place.
    pub places: Executions,
    /// State when counting was last switched on or off.
    mark: Executions,
    /// Gathered while counting was on, up to `mark`.
    kept: Executions,
    /// True once counting has been switched, or started over. The contexts go on counting, so
    /// they no longer agree with the counts.
    marked: bool,
    /// The interpreted functions that values at the entries of evaluators are.
    pub named: FxHashMap<Target, Interpreted>,
    /// The calling contexts, if they are measured and the thread has called anything.
    pub contexts: Option<Box<Calling>>,
}

impl ThreadProfile {
    /// The instruction at `pc` is not counted, though it was before counting was switched off.
    pub fn leave_out(&mut self, pc: u64) {
        self.kept.stepped(pc, -1);
    }

    /// The instruction at `pc`, which is yet to be counted, came before counting was switched on.
    pub fn pass_over(&mut self, pc: u64) {
        self.mark.stepped(pc, 1);
    }

    /// Forgets the executions gathered before the last mark, which are no longer wanted.
    pub fn forget_kept(&mut self) {
        self.kept = Executions::default();
    }
}

/// The profile's side of a machine.
#[derive(Debug)]
pub struct Profiler {
    sink: Box<dyn Sink>,
    threads: u32,
    modules: u32,
    blocks: u32,
}

impl Declarations for Profiler {
    fn add_module(&mut self, module: Module) -> u32 {
        self.number_module(module, None)
    }

    fn add_function(&mut self, function: &LanguageFunction) {
        self.sink.function(function);
    }
}

impl Profiler {
    /// Reports to `sink`.
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Self { sink, threads: 0, modules: 0, blocks: 0 }
    }

    /// The profile of a new thread.
    pub fn new_thread(&mut self) -> ThreadProfile {
        self.threads += 1;
        ThreadProfile { serial: self.threads - 1, ..ThreadProfile::default() }
    }

    /// Reports a module, by a new number if it has none.
    pub fn number_module(&mut self, module: Module, number: Option<u32>) -> u32 {
        let id = number.unwrap_or(self.modules);
        self.modules = self.modules.max(id + 1);
        self.sink.module(&Module { id, ..module });
        id
    }

    /// Returns whether calling contexts shall be measured.
    pub fn wants_contexts(&self) -> bool {
        self.sink.wants_contexts()
    }

    /// The calling contexts of a thread, as they are reported.
    fn contexts(&mut self, family: &mut Family, pid: i32, tree: Option<&Tree>) -> Vec<Context> {
        let mut places: FxHashMap<u64, Place> = FxHashMap::default();
        let mut place = |address: u64| {
            *places.entry(address).or_insert_with(|| {
                let unit = family.origins.as_ref().and_then(|origins| origins.unit_at(address));
                let module = unit.map(|unit| self.module(family, pid, unit));
                Place { module, address }
            })
        };
        let describe = |it: lwp_contexts::Context| {
            let kind = kind_of(it.kind);
            let has_caller = !matches!(kind, ContextKind::Root);
            Context {
                caller: has_caller.then_some(it.caller),
                kind,
                site: (has_caller && kind != ContextKind::Merged).then(|| place(it.site)),
                entry: place(it.entry),
                calls: it.calls,
                instructions: it.instructions,
            }
        };
        tree.map_or_else(Vec::new, |tree| tree.contexts().map(describe).collect())
    }

    /// Reports what a process has begun its program with.
    pub fn add_addition(&mut self, pid: i32, addition: &Addition) {
        self.sink.added(pid, addition);
    }

    /// Reports that what threads of `pid` have executed under these serials is a part of its own.
    pub fn end_part(&mut self, pid: i32, serials: &[u32], label: &str) {
        self.sink.part(pid, serials, label);
    }

    /// Reports a sample.
    pub fn add_sample(&mut self, sample: &Sample<'_>) {
        self.sink.sample(sample);
    }

    /// Reports what a thread of `family` has executed.
    fn report(&mut self, family: &mut Family, who: ThreadExecutions, executions: &Executions) {
        let mut thread = who;
        let fresh = self.fresh_blocks(family, thread.pid, executions);
        let origins = family.origins.as_ref();
        let number =
            |id: &FragmentId| origins.and_then(|origins| origins.reported(*id)).unwrap_or(u32::MAX);
        for (id, [runs, not_taken]) in executions.ended() {
            thread.blocks.push(BlockCount { block: number(id), runs, not_taken });
        }
        for ((id, instructions), times) in executions.cut() {
            thread.partial.push((number(id), *instructions, times));
        }
        for (&pc, &count) in &executions.steps {
            if count != 0 {
                let unit = family.origins.as_ref().and_then(|origins| origins.unit_at(pc));
                let module = unit.map(|unit| self.module(family, thread.pid, unit));
                thread.steps.push((module, pc, count));
            }
        }
        for (module, pc, _) in &mut thread.misses {
            let unit = family.origins.as_ref().and_then(|origins| origins.unit_at(*pc));
            *module = unit.map(|unit| self.module(family, thread.pid, unit));
        }
        thread.jumps.extend(self.jumps(family, thread.pid, executions));
        thread.jumps.sort_unstable();
        thread.blocks.sort_unstable_by_key(|count| count.block);
        thread.partial.sort_unstable();
        thread.steps.sort_unstable();
        if !fresh.is_empty() {
            self.sink.blocks(&fresh);
        }
        self.sink.thread(&thread);
    }

    /// Numbers and describes what was executed and has not been reported, in the order of addresses,
    /// in which its code is read.
    fn fresh_blocks(
        &mut self,
        family: &mut Family,
        pid: i32,
        executions: &Executions,
    ) -> Vec<Block> {
        let Some(origins) = &family.origins else { return Vec::new() };
        let executed = executions.ended().map(|(id, _)| *id);
        let executed = executed.chain(executions.cut().map(|((id, _), _)| *id));
        let executed = executed.filter(|id| origins.reported(*id).is_none());
        let mut fresh: Vec<(Fragment, FragmentId)> =
            executed.map(|id| (family.code_cache.fragment(id), id)).collect();
        fresh.sort_unstable_by_key(|(fragment, id)| (fragment.pc.0, id.0));
        fresh.dedup_by_key(|(_, id)| *id);
        let mut code = RestoredCode::default();
        let mut blocks = Vec::with_capacity(fresh.len());
        for (fragment, id) in fresh {
            let (unit, bytes) = match code.origin_of(family, id) {
                Some((unit, bytes)) => (unit, bytes.into_owned()),
                None => (UnitId(u32::MAX), Vec::new()),
            };
            let module = self.module(family, pid, unit);
            blocks.push(describe(&fragment, self.blocks, module, bytes));
            if let Some(origins) = &mut family.origins {
                origins.note_reported(id, self.blocks);
            }
            self.blocks += 1;
        }
        blocks
    }

    /// The number of a unit's module, reported if it is new or has grown.
    fn module(&mut self, family: &mut Family, pid: i32, unit: UnitId) -> u32 {
        let changing = family.modules.get(unit).is_none_or(lwp_code::family::Module::changes);
        let Some(origins) = &mut family.origins else { return u32::MAX };
        let origin = origins.unit(unit);
        let mappings = origin.mappings.len();
        match origin.reported {
            Some((number, known)) if known == mappings => number,
            known => {
                let id = known.map_or(self.modules, |(number, _)| number);
                self.modules = self.modules.max(id + 1);
                origin.reported = Some((id, mappings));
                let path = origin.path.clone();
                let (mappings, file) = (origin.mappings.clone(), origin.file.clone());
                self.sink.module(&Module { id, pid, path, changing, mappings, file });
                id
            }
        }
    }
}

fn describe(fragment: &Fragment, id: u32, module: u32, bytes: Vec<u8>) -> Block {
    let mut lengths = Vec::with_capacity(usize::from(fragment.instructions));
    let mut decoder = Decoder::with_ip(64, &bytes, fragment.pc.0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let len = if instruction.is_invalid() { 1 } else { instruction.len() };
        lengths.push(len as u8);
        if instruction.is_invalid() {
            break;
        }
    }
    let target = (fragment.target.0 != 0).then_some(fragment.target.0);
    Block {
        id,
        module,
        pc: fragment.pc.0,
        bytes,
        lengths,
        counted: u16::try_from(fragment.deltas.instructions).unwrap_or(0),
        end: block_end(fragment.deltas),
        target,
    }
}

fn kind_of(kind: lwp_contexts::Kind) -> ContextKind {
    match kind {
        lwp_contexts::Kind::Root => ContextKind::Root,
        lwp_contexts::Kind::Call => ContextKind::Call,
        lwp_contexts::Kind::Jump => ContextKind::Jump,
        lwp_contexts::Kind::Signal => ContextKind::Signal,
        lwp_contexts::Kind::Merged => ContextKind::Merged,
    }
}

fn positive(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

impl Tasks {
    /// Everything that a thread has executed, by its counters and corrections.
    pub fn executions(
        &self,
        contexts: &Contexts,
        caches: &CodeCaches,
        tid: Tid,
    ) -> Option<Executions> {
        let family = caches.family_of(self.space_index(tid)?)?;
        let thread = self.threads.get(&tid)?;
        let context = contexts.context(thread.slot);
        let mut sum = thread.account.profile.places.clone();
        let counters = family.code_cache.counters();
        let mut heads: FxHashMap<FragmentId, i64> = FxHashMap::default();
        let mut behind: Vec<(FragmentId, FragmentId)> = Vec::new();
        // Where the indirect call led first whose counter is the next one.
        let mut first = (0, u64::MAX);
        context.counters().for_each(counters.len(), |index, count| {
            let count = count as i64;
            let Some(role) = counters.role(index) else { return };
            match role {
                Role::Head(fragment) => add(heads.entry(fragment).or_default(), count),
                Role::RunsBehind { into, from } => behind.push((into, from)),
                Role::CallTarget(_) => first = (index, !count.cast_unsigned()),
                Role::Called(fragment) => {
                    // 0 in the counter before, which is then passed over, stands for the last
                    // address.
                    let target = if first.0 + 1 == index { first.1 } else { u64::MAX };
                    sum.called(fragment, target, count);
                }
                _ => {}
            }
            family.code_cache.executions(role, &mut |what, times| {
                sum.happened(what, count.wrapping_mul(times));
            });
        });
        jumps::add_calls(context, counters, &mut sum);
        for (into, from) in behind {
            if let Some(by_head) = heads.get(&into) {
                sum.runs.entry(from).or_default()[1] -= by_head;
            }
        }
        Some(sum)
    }
}

impl Tasks {
    /// The identity of a thread, and the events that it has sampled.
    fn identity_of(
        &self,
        contexts: &Contexts,
        observers: &Observers,
        tid: Tid,
    ) -> Option<ThreadExecutions> {
        let thread = self.threads.get(&tid)?;
        let image = self.processes.get(&thread.pid)?.report;
        Some(ThreadExecutions {
            serial: thread.account.profile.serial,
            image: u32::try_from(image).unwrap_or(u32::MAX),
            pid: thread.pid,
            tid,
            comm: thread.account.name_in(&observers.reports[image]),
            sampled: thread.sampled_totals(contexts),
            misses: thread.misses(),
            ..ThreadExecutions::default()
        })
    }
}

impl Counting<'_> {
    /// Notes what a thread has executed when counting is switched.
    pub fn mark_executions(&mut self, tid: Tid, off: bool) {
        if !self.observers.counts_places() {
            return;
        }
        let Some(total) = self.tasks.executions(self.contexts, self.caches, tid) else { return };
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let profile = &mut thread.account.profile;
        if off {
            profile.kept.add(&total, 1);
            profile.kept.add(&profile.mark, -1);
        }
        profile.mark = total;
        profile.marked = true;
    }

    /// The contexts of a thread, if they have counted what the thread has.
    fn contexts_of_counts(&mut self, tid: Tid) -> Option<Tree> {
        let account = &self.tasks.threads.get(&tid)?.account;
        let agree = account.counting && !account.profile.marked;
        agree.then(|| self.counted_contexts(tid)).flatten()
    }

    /// Reports what a thread has executed so far to the sink.
    pub fn report_thread(&mut self, tid: Tid) {
        if self.config.samples() {
            report_kept(self, tid);
        }
        if self.observers.profiler.is_none() || !self.config.reports(tid) {
            return;
        }
        let Some(mut who) = self.tasks.identity_of(self.contexts, self.observers, tid) else {
            return;
        };
        if self.config.samples() {
            if let Some(profiler) = &mut self.observers.profiler {
                profiler.sink.thread(&who);
            }
            return;
        }
        self.name_calls(tid);
        let contexts = self.contexts_of_counts(tid);
        let Some(total) = self.tasks.executions(self.contexts, self.caches, tid) else { return };
        let Some(thread) = self.tasks.threads.get(&tid) else { return };
        let profile = &thread.account.profile;
        let mut counted = profile.kept.clone();
        if thread.account.counting {
            counted.add(&total, 1);
            counted.add(&profile.mark, -1);
        }
        counted.name_targets(&profile.named);
        let Some(space) = self.tasks.space_index(tid) else { return };
        let Some(Some(space)) = self.caches.spaces.get(space) else { return };
        let Some(Some(family)) = self.caches.families.get_mut(space.family) else { return };
        let languages = &mut self.observers.call_stacks.languages;
        if let Some(profiler) = &mut self.observers.profiler {
            who.jumps = profiler.interpreted(family, (who.pid, languages), &counted);
            who.contexts = profiler.contexts(family, who.pid, contexts.as_ref());
            profiler.report(family, who, &counted);
        }
    }

    /// A thread leaves its translations for others, and its counters start over: what they say is
    /// reported, and what follows is another report's.
    pub fn close_report(&mut self, tid: Tid) {
        self.report_thread(tid);
        let fresh = self.observers.profiler.as_mut().map(Profiler::new_thread);
        if let (Some(thread), Some(mut fresh)) = (self.tasks.threads.get_mut(&tid), fresh) {
            fresh.contexts = thread.account.profile.contexts.take();
            fresh.marked = thread.account.profile.marked;
            thread.account.profile = fresh;
        }
        // Without a sink nothing was reported: the thread's own report has all of it in the end.
        if self.observers.profiler.is_some() {
            if let Some(mut profiled) = self.tasks.profiled(self.contexts, tid) {
                profiled.restart_sampling();
            }
            self.tasks.forget_misses(tid);
        }
    }

    /// Reports all live threads.
    pub fn checkpoint(&mut self) {
        let mut tids: Vec<Tid> = self.tasks.threads.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            self.tasks.note_name(tid);
            self.report_thread(tid);
        }
    }
}

/// The path by which the host finds `path` of process `pid`: in its own root directory.
pub fn path_in_process(pid: i32, path: &Path) -> PathBuf {
    let inside = path.strip_prefix("/").unwrap_or(path);
    Path::new("/proc").join(pid.to_string()).join("root").join(inside)
}
