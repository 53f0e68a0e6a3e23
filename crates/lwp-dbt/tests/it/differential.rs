//! Translated code must do what the original does: both run natively, from the same state, and all
//! registers and memory are compared.

use crate::common;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use common::{ALL_PLANS, Bench, CACHE, LOW};
use iced_x86::Register;
use lwp_dbt::block::Terminator;
use lwp_dbt::context::calls::{CALLS_AT, CALLS_BYTES};
use lwp_dbt::context::{
    CONTEXT_BYTES, LWP_DEALT_AT, LWP_LOW_MAX, LWP_SHIFT, LWP_SLOTS, Slot, lwp_parts,
    lwp_slot_displacement,
};
use lwp_dbt::{
    AppPc, BlockProfile, CachePc, Checks, EntryId, EventDeltas, Execution, ExecutionProfile, FLAGS,
    FlagWriter, FragmentId, Knowledge, Placement, Plan, Region, Role, Selection, close_overlays,
    flags_again, overlay_path, rebuild,
};
use lwp_testkit::Rng;
use lwp_testkit::generate::{Data, Generator};
use lwp_testkit::native::{Machine, Outcome, Run, State};

/// The places of a program's code and data.
#[derive(Clone, Copy)]
struct Program {
    code: [u64; 2],
    data: Data,
}

/// Return addresses are pushed in two ways: from below and from above 2 GiB.
const NEAR: Program =
    Program { code: [0x5000_0000, 0x1_0000_0000], data: Data { start: 0xc000_0000 } };
/// Translations of this one cannot reach its operands.
const FAR: Program =
    Program { code: [0x40_5000_0000, 0x41_0000_0000], data: Data { start: 0x40_c000_0000 } };
const CONTEXT: u64 = 0xd000_0000;
const CODE_BYTES: usize = 0x1000;

/// A piece of application code, its start first.
struct Snippet {
    start: u64,
    bytes: Vec<u8>,
    /// The addresses that indirect branches lead to.
    entries: Vec<u64>,
    /// The number of instructions that are executed, if that is known.
    executed: Option<u64>,
}

/// A way of translating a snippet.
#[derive(Clone, Copy, Debug)]
struct Way {
    checks: Checks,
    /// True where notice is given of changes in code that may change at any time.
    notice: bool,
    /// True where the role of each counter is kept.
    roles: bool,
    /// The number of times that some of it is cut off and led to again before it runs.
    cuts: u32,
    /// True where it is laid out in superblocks, along paths that may be wrong.
    paths: bool,
    /// True where superblocks are laid over its fragments, along such paths, and some are closed
    /// before it runs, or while it does.
    overlays: bool,
    /// True where everything is laid out anew by an execution profile, which may be wrong.
    rebuilt: bool,
    /// True where Lightweight Profiling counts down its instructions and branches, and nothing else
    /// is counted.
    counts_down: bool,
    /// True where its branches come due much sooner than its instructions.
    scarce_branches: bool,
}

impl Way {
    fn all() -> impl Iterator<Item = Self> {
        let usual = [
            (Checks::None, false, true, 0, false),
            (Checks::Notified, false, true, 1, false),
            (Checks::SelfCheck, false, true, 1, false),
            (Checks::SelfCheck, true, false, 0, false),
            (Checks::SelfCheck, true, false, 2, false),
            (Checks::Notified, false, true, 0, true),
            (Checks::SelfCheck, true, false, 1, true),
        ];
        let usual = usual.into_iter().map(|(checks, notice, roles, cuts, overlays)| Self {
            checks,
            notice,
            roles,
            cuts,
            paths: false,
            overlays,
            rebuilt: false,
            counts_down: false,
            scarce_branches: false,
        });
        let of_files = |(paths, rebuilt, counts_down, scarce_branches)| Self {
            checks: Checks::None,
            notice: false,
            roles: true,
            cuts: 0,
            overlays: false,
            paths,
            rebuilt,
            counts_down,
            scarce_branches,
        };
        let of_files = [
            (true, false, false, false),
            (false, false, true, false),
            (true, false, true, false),
            (true, false, true, true),
            (false, true, false, false),
            (false, true, true, false),
            (false, true, true, true),
        ]
        .map(of_files);
        usual.chain(of_files)
    }

    /// Returns whether code of this plan is translated in this way.
    fn suits(self, plan: Plan) -> bool {
        plan == Plan::Plain || !self.counts_down
    }

    /// Instructions and branches.
    fn selection(self) -> Selection {
        Selection {
            instructions: true,
            branches: 0x7f,
            scarce_branches: self.scarce_branches,
            ..Selection::default()
        }
    }

    fn bench(self, plan: Plan, snippet: &Snippet) -> Bench {
        let mut bench = match self.counts_down {
            true => {
                let selection = self.selection();
                Bench::counting_down(selection, self.checks, snippet.start, &snippet.bytes)
            }
            false => Bench::new(plan, self.checks, snippet.start, &snippet.bytes),
        };
        if !self.roles {
            bench.forget_roles();
        }
        bench.app.gives_notice = self.notice;
        bench
    }
}

/// The counts of one execution of a snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    /// Those of all events, or of instructions and branches alone.
    events: Vec<i64>,
    places: Option<Places>,
}

/// The LWP countdown as it was before a snippet.
struct Countdown {
    high: u64,
    low: u64,
    /// The share of the high part that each of the low part takes besides.
    share: u64,
    words: [u64; LWP_SLOTS as usize],
}

impl Countdown {
    /// One that lasts for `expected` instructions and branches, but hardly for more, or for many.
    fn random(rng: &mut Rng, expected: [u64; 2], share: u64) -> Self {
        let more = rng.pick(&[0, 3, 40, 200, 1 << 20]);
        let [high, low] = expected.map(|count| count + rng.below(more + 1));
        let mut words = [LWP_LOW_MAX; LWP_SLOTS as usize];
        let mut left = if share > 0 { high.min(low * share) } else { high };
        for word in &mut words {
            let share = rng.below(left.min(64) + 1);
            left -= share;
            *word += share << LWP_SHIFT;
        }
        // Nothing has been dealt out, or so much that it need not be dealt again soon.
        if rng.one_in(3) {
            words = [LWP_LOW_MAX; LWP_SLOTS as usize];
        }
        Self { high, low, share, words }
    }

    fn given(&self) -> u64 {
        self.words.iter().sum()
    }

    /// The words of a context that holds it.
    fn memory(&self) -> Vec<(u64, Vec<u8>)> {
        let word = |at: u64, value: u64| (CONTEXT + at, value.to_le_bytes().to_vec());
        let mut memory = vec![
            word(Slot::LwpHigh as u64, self.high),
            word(Slot::LwpLow as u64, self.low),
            word(Slot::LwpGiven as u64, self.given()),
            word(Slot::LwpShare as u64, self.share),
            word(Slot::LwpLast as u64, 128),
        ];
        for (index, value) in (0..).zip(self.words) {
            memory.push(word(u64::from(lwp_slot_displacement(index)), value));
            memory.push(word(u64::from(LWP_DEALT_AT + index * 8), value));
        }
        memory
    }

    /// The amounts that have been taken from both parts, by the words that were behind a run:
    /// the high and the low part, the amount given, and the words.
    fn taken(&self, behind: &[u64]) -> Vec<i64> {
        let [high, low, given, words @ ..] = behind else { panic!("{behind:?}") };
        let nothing = *given == u64::from(LWP_SLOTS).wrapping_neg();
        let sum = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word));
        let counted = if nothing { 0 } else { given.wrapping_sub(sum) };
        let taken = |before: u64, now: &u64, counted: u64| {
            before.wrapping_sub(*now).wrapping_add(counted).cast_signed()
        };
        let [by_high, by_low] = lwp_parts(counted, self.share);
        vec![taken(self.high, high, by_high), taken(self.low, low, by_low)]
    }
}

/// By the address of each instruction: how often it was executed, and how often it was a conditional
/// branch that was not taken.
type Places = BTreeMap<u64, [i64; 2]>;

/// Returns what the counters, of which `count` gives the values, say of each instruction.
fn places(bench: &Bench, count: impl Fn(usize) -> i64) -> Places {
    let mut places = Places::new();
    let mut add = |what: Execution, times: i64| {
        let (id, most) = match what {
            Execution::Whole(id) | Execution::NotTaken(id) => (id, usize::MAX),
            Execution::Cut(id, instructions) => (id, usize::from(instructions)),
            Execution::Called(..) => return,
        };
        let fragment = bench.tables.fragment(id);
        let bytes = &bench.app.at(fragment.pc)[..usize::from(fragment.app_len)];
        let decoder = iced_x86::Decoder::with_ip(64, bytes, fragment.pc.0, 0);
        let all: Vec<u64> = decoder.into_iter().map(|it| it.ip()).collect();
        if let Execution::NotTaken(_) = what {
            places.entry(all[all.len() - 1]).or_default()[1] += times;
            return;
        }
        for ip in all.into_iter().take(most) {
            places.entry(ip).or_default()[0] += times;
        }
    };
    let roles: Vec<Role> = bench.tables.counters().roles().map(Option::unwrap).collect();
    for (index, role) in roles.iter().enumerate() {
        bench.tables.executions(*role, &mut |what, times| add(what, times * count(index)));
        // Whoever comes to the head does not come over the edge.
        let Role::Head(head) = role else { continue };
        for other in &roles {
            if let Role::RunsBehind { into, from } = other
                && into == head
            {
                add(Execution::NotTaken(*from), -count(index));
            }
        }
    }
    places.retain(|_, counts| *counts != [0; 2]);
    places
}

struct Lab {
    machine: Machine,
    program: Program,
    rng: Rng,
    /// Cases that ended natively by a signal: their operands do not go together.
    skipped: u32,
    compared: u32,
    /// Translations that ask the host to execute an instruction in place: there is no host here.
    hosted: u32,
    /// Superblocks of more than one block, and the guards in them that overwrite the flags.
    superblocks: u32,
    guards: u32,
    /// Superblocks of more than one block over fragments.
    overlays: u32,
    /// The instructions and branches of the case at hand, as soon as they have been counted.
    expected: Option<[u64; 2]>,
    /// There can be only one machine at a time.
    _alone: MutexGuard<'static, ()>,
}

static MACHINE: Mutex<()> = Mutex::new(());

fn cases() -> u32 {
    std::env::var("LWP_DBT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

impl Lab {
    fn new(program: Program) -> Self {
        let alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let machine = Machine::new(&[
            (LOW, lwp_dbt::Layout::BYTES as usize),
            (CACHE, 1 << 20),
            (program.data.start, Data::BYTES as usize),
            (CONTEXT, CONTEXT_BYTES as usize + 0x2_0000),
            (CONTEXT + u64::from(CALLS_AT), CALLS_BYTES as usize),
            (program.code[0], CODE_BYTES),
            (program.code[1], CODE_BYTES),
        ]);
        Self {
            machine,
            program,
            rng: Rng::new(0x1357),
            skipped: 0,
            compared: 0,
            hosted: 0,
            superblocks: 0,
            guards: 0,
            overlays: 0,
            expected: None,
            _alone: alone,
        }
    }

    fn state(&mut self) -> State {
        let general = self.program.data.registers(&mut self.rng);
        let flags = 0x202 | self.rng.draw() & 0x8d5;
        let floats = self.rng.one_in(2);
        let rng = &mut self.rng;
        let mut at = 0;
        Machine::state(general, flags, || {
            at += 1;
            let byte = rng.draw() as u8;
            match (floats, at % 4) {
                (true, 0) => 0x3f + (byte & 1),
                (true, 1 | 2) => 0,
                _ => byte,
            }
        })
    }

    /// Runs a snippet natively and translated in every way. Returns what differs.
    fn compare(&mut self, snippet: &Snippet) -> Result<(), String> {
        self.compare_two(snippet, snippet)
    }

    /// Runs one snippet natively and another one translated.
    fn compare_two(&mut self, snippet: &Snippet, translated: &Snippet) -> Result<(), String> {
        let state = self.state();
        let data: Vec<u8> = (0..Data::BYTES).map(|_| self.rng.draw() as u8).collect();
        let observed = [(self.program.data.start, Data::BYTES as usize)];
        let memory =
            [(self.program.data.start, data.clone()), (snippet.start, snippet.bytes.clone())];
        let run = Run {
            entry: snippet.start,
            state: &state,
            gs: self.program.data.gs(),
            memory: &memory,
            observed: &observed,
        };
        let native = match self.machine.run(&run) {
            Outcome::Landed(state, data) => (state, data),
            Outcome::Missed(_) => return Err("native code cannot miss".into()),
            Outcome::Signal(_) => {
                self.skipped += 1;
                return Ok(());
            }
        };
        self.compared += 1;
        let mut counted = None;
        self.expected = None;
        for plan in ALL_PLANS.into_iter().rev() {
            for way in Way::all().filter(|way| way.suits(plan)) {
                let sums = self
                    .translated(translated, plan, way, &state, &data, &native)
                    .map_err(|fault| format!("{plan:?} {way:?}: {fault}"))?;
                let Some(sums) = sums else { continue };
                let expected = counted.get_or_insert_with(|| sums.clone());
                self.expected = Some([expected.events[0] as u64, expected.events[1] as u64]);
                let differs = sums.places.is_some() && sums.places != expected.places;
                if sums.events != expected.events[..sums.events.len()] || differs {
                    return Err(format!("{plan:?} {way:?}: counted {sums:?}, not {expected:?}"));
                }
            }
        }
        Ok(())
    }

    /// Compares one translation; returns what it has counted, if it counts.
    fn translated(
        &mut self,
        snippet: &Snippet,
        plan: Plan,
        way: Way,
        state: &State,
        data: &[u8],
        native: &(Box<State>, Vec<u8>),
    ) -> Result<Option<Counted>, String> {
        let mut bench = way.bench(plan, snippet);
        let limit = self.rng.pick(&[1, 4, 64]);
        let mut regions = Vec::new();
        if way.overlays && self.rng.one_in(2) {
            bench.translator.learn();
            bench.translator.learn_changing();
        }
        if way.paths {
            self.lay_paths(&mut bench, snippet, &mut regions);
        }
        let rest: Vec<u64> =
            regions.iter().flat_map(|region| &region.rest).map(|it| it.pc.0).collect();
        for pc in [snippet.start].into_iter().chain(rest) {
            regions.extend(bench.translate_all(pc, false, limit));
        }
        let head = bench.head(snippet.start).ok_or("not translated")?;
        let mut head = head;
        for &entry in &snippet.entries {
            regions.extend(bench.translate_all(entry, true, limit));
        }
        for _ in 0..way.cuts {
            let cut = self.cut_some(&mut bench);
            bench.app.gives_notice = way.notice && self.rng.one_in(2);
            let again = bench.translate_all(snippet.start, false, limit);
            for &entry in &snippet.entries {
                regions.extend(bench.translate_all(entry, true, limit));
            }
            if self.rng.one_in(2) {
                head = again[0].head.ok_or("not translated again")?;
            }
            regions.extend(again);
            // What was not cut off leads to the rest without a question.
            regions.extend(cut.into_iter().flat_map(|pc| bench.translate_all(pc, false, limit)));
        }
        if way.overlays {
            bench.app.gives_notice = way.notice;
            let inside = self.lay_over(&mut bench, snippet, &mut regions);
            head = bench.head(snippet.start).ok_or("lost when laid over")?;
            head = inside.unwrap_or(head);
        }
        if way.rebuilt {
            self.rebuild(&mut bench, snippet, &mut regions).ok_or("not laid out anew")?;
            head = bench.head(snippet.start).ok_or("lost when laid out anew")?;
        }
        let mut fragments = (0..bench.tables.fragment_count() as u32).map(FragmentId);
        if fragments.any(|id| bench.tables.fragment(id).deltas == EventDeltas::default()) {
            self.hosted += 1;
            return Ok(None);
        }
        let countdown = self.expected.filter(|_| way.counts_down);
        let countdown = countdown.map(|expected| {
            let share = u64::from(way.selection().branch_share());
            Countdown::random(&mut self.rng, expected, share)
        });
        if way.counts_down && countdown.is_none() {
            return Ok(None);
        }
        let mut memory = vec![
            (self.program.data.start, data.to_vec()),
            (snippet.start, snippet.bytes.clone()),
            (CACHE, bench.cache.bytes.clone()),
            (CONTEXT + Slot::AppGs as u64, self.program.data.gs().to_le_bytes().to_vec()),
            (CONTEXT + Slot::This as u64, CONTEXT.to_le_bytes().to_vec()),
        ];
        memory.extend(bench.low_window(&regions));
        memory.extend(countdown.iter().flat_map(Countdown::memory));
        let counters = bench.tables.counters();
        let mut observed = vec![
            (self.program.data.start, Data::BYTES as usize),
            (CONTEXT + Slot::AppGs as u64, 8),
            (CONTEXT + CONTEXT_BYTES, counters.len() * 8),
        ];
        if countdown.is_some() {
            let words = (0..LWP_SLOTS).map(|index| u64::from(lwp_slot_displacement(index)));
            let slots = [Slot::LwpHigh, Slot::LwpLow, Slot::LwpGiven].map(|slot| slot as u64);
            observed.extend(slots.into_iter().chain(words).map(|at| (CONTEXT + at, 8)));
        }
        let run = Run { entry: head.0, state, gs: CONTEXT, memory: &memory, observed: &observed };
        let (mut state, seen) = match self.machine.run(&run) {
            Outcome::Landed(state, seen) => (state, seen),
            other => return Err(format!("natively it landed, translated: {other:x?}")),
        };
        let word = |at: usize| u64::from_le_bytes(seen[at..at + 8].try_into().unwrap());
        if state.gs != CONTEXT {
            return Err("the context's gs base is lost".into());
        }
        state.gs = word(Data::BYTES as usize);
        if state != native.0 {
            return Err(format!(
                "registers\n native {}\n  here  {}",
                text(&native.0),
                text(&state)
            ));
        }
        let differs = (0..Data::BYTES as usize).find(|at| seen[*at] != native.1[*at]);
        if let Some(at) = differs {
            return Err(format!("memory at {at:#x}: {:#x}, not {:#x}", seen[at], native.1[at]));
        }
        if let Some(countdown) = countdown {
            let first = Data::BYTES as usize + 8 + counters.len() * 8;
            let behind: Vec<u64> = (first..seen.len()).step_by(8).map(word).collect();
            return Ok(Some(Counted { events: countdown.taken(&behind), places: None }));
        }
        if plan == Plan::Plain {
            return Ok(None);
        }
        let mut sums = vec![0; 7];
        for (index, deltas) in counters.iter().enumerate() {
            let count = word(Data::BYTES as usize + 8 + index * 8) as i64;
            for (sum, delta) in sums.iter_mut().zip(deltas.by_event()) {
                *sum += count * i64::from(delta);
            }
        }
        let count = |index: usize| word(Data::BYTES as usize + 8 + index * 8).cast_signed();
        let places = way.roles.then(|| places(&bench, count));
        match snippet.executed {
            Some(executed) if sums[0] != executed as i64 => {
                Err(format!("counted {} instructions, executed {executed}", sums[0]))
            }
            _ => Ok(Some(Counted { events: sums, places })),
        }
    }

    /// Lays out superblocks along random paths.
    fn lay_paths(&mut self, bench: &mut Bench, snippet: &Snippet, regions: &mut Vec<Region>) {
        let mut heads = vec![snippet.start];
        heads.extend(snippet.entries.iter().filter(|_| self.rng.one_in(2)));
        while let Some(head) = heads.pop() {
            let path = self.path(bench, snippet, head);
            let entry = snippet.entries.contains(&head);
            let (translator, mut to, app) = bench.parts();
            let region = translator.translate_path(&mut to, app, &path, entry);
            self.superblocks += u32::from(region.fragments > 1);
            // One leads into another, at any place.
            let rest = region.rest.iter().map(|it| it.pc.0);
            heads.extend(rest.filter(|pc| *pc >= snippet.start && self.rng.one_in(3)));
            regions.push(region);
        }
        let ids = (0..bench.tables.fragment_count() as u32).map(FragmentId);
        let overwritten = ids.filter_map(|id| bench.tables.within(id)?.flags);
        self.guards += overwritten.count() as u32;
    }

    /// Lays superblocks over fragments along random paths, and closes some. Returns a place within
    /// one that begins where the snippet does, as if a thread had just come there.
    fn lay_over(
        &mut self,
        bench: &mut Bench,
        snippet: &Snippet,
        regions: &mut Vec<Region>,
    ) -> Option<CachePc> {
        let mut heads: Vec<u64> = bench.unit.fragments.keys().map(|pc| pc.0).collect();
        heads.sort_unstable();
        heads.retain(|pc| *pc == snippet.start || self.rng.one_in(2));
        let mut inside = None;
        for head in heads {
            let path = self.path(bench, snippet, head);
            let first = FragmentId(bench.tables.fragment_count() as u32);
            let (translator, mut to, app) = bench.parts();
            let blocks = overlay_path(translator, &mut to, app, &path);
            self.overlays += u32::from(blocks > 1);
            if blocks > 0 && head == snippet.start {
                inside = bench.tables.head_of(first);
            }
            for pc in path.into_iter().take(blocks) {
                let (translator, to, app) = bench.parts();
                let block = translator.block(to.unit, app, pc, 0).expect("it has been laid");
                for pc in [pc, block.terminator_pc()] {
                    regions.extend(bench.translate_all(pc.0, false, 1));
                }
            }
        }
        let inside = inside.filter(|_| self.rng.one_in(2));
        // Behind the patchable head.
        let inside = inside.map(|head| head.offset(lwp_dbt::HEAD.len() as u64));
        if self.rng.one_in(3) {
            let (_, mut to, _) = bench.parts();
            for page in to.unit.changing.overlays.pages_in((0, u64::MAX)) {
                close_overlays(&mut to, page);
            }
        } else if self.rng.one_in(2) {
            let cut = self.cut_some(bench);
            let again = cut.into_iter().filter(|_| self.rng.one_in(2)).collect::<Vec<_>>();
            regions.extend(again.into_iter().flat_map(|pc| bench.translate_all(pc, false, 1)));
            let kept: Vec<u64> =
                [snippet.start].into_iter().chain(snippet.entries.clone()).collect();
            regions.extend(kept.into_iter().flat_map(|pc| bench.translate_all(pc, false, 64)));
        }
        inside
    }

    /// Lays out everything anew, by a profile that is right or wrong.
    fn rebuild(
        &mut self,
        bench: &mut Bench,
        snippet: &Snippet,
        regions: &mut Vec<Region>,
    ) -> Option<()> {
        let mut profile = ExecutionProfile::default();
        for id in (0..bench.tables.fragment_count() as u32).map(FragmentId) {
            let runs = self.rng.pick(&[0, 1, 1_000, 100_000]);
            let mut block = BlockProfile { runs, ..BlockProfile::default() };
            block.not_taken = self.rng.below(runs + 1);
            if !snippet.entries.is_empty() && self.rng.one_in(2) {
                block.targets.note(AppPc(self.rng.pick(&snippet.entries)), 9);
            }
            profile.set(bench.tables.fragment(id).pc, block);
        }
        let knowledge = self.rng.pick(&[Knowledge::Little, Knowledge::Well]);
        let routines = bench.translator.routines().code.len().next_multiple_of(64);
        let code = CachePc(CACHE + routines as u64);
        let at =
            Placement { code, routines: CachePc(CACHE), module: AppPc(snippet.start & !0xfff) };
        let old = (&bench.tables, &bench.unit);
        let new = rebuild(&bench.translator, old, &profile, &mut bench.app, (at, knowledge))?;
        bench.cache.bytes.truncate(routines);
        bench.cache.bytes.extend_from_slice(&new.code);
        (bench.tables, bench.unit) = (new.cache, new.unit);
        let entries = (0..bench.tables.entry_count()).map(EntryId).collect();
        *regions = vec![Region { entries, ..Region::default() }];
        // Calls by themselves, which side exits lead to, are translated when one is taken.
        for id in (0..bench.tables.fragment_count() as u32).map(FragmentId) {
            let pc = bench.tables.fragment(id).pc;
            let (translator, to, app) = bench.parts();
            let block = translator.block(to.unit, app, pc, 0)?;
            if let Terminator::IndirectCall = block.terminator {
                regions.extend(bench.translate_all(block.terminator_pc().0, false, 1));
            }
        }
        Some(())
    }

    /// A path from `head` on, right or wrong.
    fn path(&mut self, bench: &mut Bench, snippet: &Snippet, head: u64) -> Vec<AppPc> {
        let mut path = vec![AppPc(head)];
        let mut calls = Vec::new();
        let somewhere = |rng: &mut Rng| match snippet.entries.is_empty() {
            true => AppPc(snippet.start),
            false => AppPc(rng.pick(&snippet.entries)),
        };
        for _ in 0..self.rng.below(16) {
            let (translator, to, app) = bench.parts();
            let last = *path.last().expect("it begins somewhere");
            let Some(block) = translator.block(to.unit, app, last, 0) else { break };
            let next = match block.terminator {
                Terminator::Jump { target } => target,
                Terminator::Call { target } => {
                    calls.push(block.next());
                    target
                }
                Terminator::Conditional { target, .. } if self.rng.one_in(2) => target,
                Terminator::Return { .. } if !self.rng.one_in(4) => {
                    calls.pop().unwrap_or_else(|| somewhere(&mut self.rng))
                }
                Terminator::IndirectCall => {
                    calls.push(block.next());
                    somewhere(&mut self.rng)
                }
                Terminator::Return { .. } | Terminator::IndirectJump => somewhere(&mut self.rng),
                _ => block.next(),
            };
            path.push(next);
        }
        path
    }

    /// Cuts some fragments off, most of them or a few; returns where they begin.
    fn cut_some(&mut self, bench: &mut Bench) -> Vec<u64> {
        let mut fragments: Vec<_> =
            bench.unit.fragments.iter().map(|(pc, id)| (pc.0, *id)).collect();
        fragments.sort_unstable();
        let one_in = self.rng.pick(&[1, 2, 4]);
        fragments.retain(|_| self.rng.one_in(one_in));
        for &(_, id) in &fragments {
            let (translator, mut to, _) = bench.parts();
            translator.invalidate(&mut to, id);
        }
        fragments.into_iter().map(|(pc, _)| pc).collect()
    }

    fn check(&mut self, snippet: &Snippet) {
        if let Err(fault) = self.compare(snippet) {
            panic!("{:#x}: {:02x?}\n{fault}", snippet.start, snippet.bytes);
        }
    }

    /// Most cases must be comparable, or the test tests nothing.
    fn done(&self) {
        let (compared, skipped) = (self.compared, self.skipped);
        assert!(compared > skipped, "{compared} compared, {skipped} skipped");
        // Each comparison is of many translations.
        let ways = (ALL_PLANS.len() * Way::all().count()) as u32;
        assert!(self.hosted < compared * ways / 9, "{} of {compared} need a host", self.hosted);
    }
}

fn text(state: &State) -> String {
    let vectors = state.vectors.chunks(16).map(|chunk| format!("{:02x}", Hex(chunk)));
    let lines: Vec<String> =
        vectors.enumerate().map(|(at, v)| format!("{:x}:{v}", at * 16)).collect();
    format!("{:x?} flags {:x} gs {:x} {}", state.general, state.flags, state.gs, lines.join(" "))
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::LowerHex for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Ends a snippet, which `executed` instructions lead through.
fn finish(start: u64, mut bytes: Vec<u8>, entries: Vec<u64>, executed: Option<u64>) -> Snippet {
    bytes.extend(Machine::jump_to_landing());
    Snippet { start, bytes, entries, executed: executed.map(|executed| executed + 1) }
}

fn instructions(bytes: &[u8], ip: u64) -> u64 {
    iced_x86::Decoder::with_ip(64, bytes, ip, iced_x86::DecoderOptions::NONE).iter().count() as u64
}

/// A few random instructions that leave the stack pointer alone.
fn run_of(generator: &mut Generator, ip: u64, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..generator.rng.below(most) + 1 {
        bytes.extend(generator.quiet(ip + bytes.len() as u64));
    }
    bytes
}

/// Straight runs joined by branches of every kind.
fn branching(generator: &mut Generator, start: u64) -> Snippet {
    let mut code = Vec::new();
    let mut entries = Vec::new();
    for _ in 0..generator.rng.below(5) + 2 {
        let kind = generator.rng.below(8);
        // The branch itself has a fixed length, so that the run behind it can be encoded first.
        let here = start + code.len() as u64;
        let (length, most) = match kind {
            0..=2 => (6, 4),
            3 => (2, 2),
            4 => (5 + 5, 3),
            5 => (5 + 7 + 2 + 5, 3),
            6 => (7 + 2, 3),
            _ => (5, 3),
        };
        let run = run_of(generator, here + length, most);
        let len = run.len() as u32;
        match kind {
            0..=2 => {
                code.extend([0x0f, 0x80 | generator.rng.below(16) as u8]);
                code.extend(len.to_le_bytes());
                code.extend(run);
            }
            3 if len < 128 => {
                code.extend([0xe3, len as u8]);
                code.extend(run);
            }
            // call over the function that is called: call f; jmp end; f: ...; ret; end:
            4 => {
                code.extend([0xe8, 5, 0, 0, 0, 0xe9]);
                code.extend((len + 1).to_le_bytes());
                code.extend(run);
                code.push(0xc3);
                entries.push(here + 5);
            }
            // push filler; lea rax, f; call rax; jmp end; f: ...; ret 8; end:
            5 => {
                code.extend([0x68, 1, 2, 3, 4, 0x48, 0x8d, 0x05, 7, 0, 0, 0, 0xff, 0xd0, 0xe9]);
                code.extend((len + 3).to_le_bytes());
                code.extend(run);
                code.extend([0xc2, 8, 0]);
                entries.extend([here + 14, here + 19]);
            }
            // lea r11, over; jmp r11 without its REX goes through rbx, so rdx: lea rdx; jmp rdx
            6 => {
                code.extend([0x48, 0x8d, 0x15]);
                code.extend((len + 2).to_le_bytes());
                code.extend([0xff, 0xe2]);
                code.extend(run);
                entries.push(here + 9 + u64::from(len));
            }
            // mov ecx, 3; l: lea edx, [rdx+rcx]; adc r9d, edx; loop l
            _ => code.extend([0xb9, 3, 0, 0, 0, 0x8d, 0x14, 0x0a, 0x41, 0x11, 0xd1, 0xe2, 0xf8]),
        }
    }
    finish(start, code, entries, None)
}

/// Promise: O10: along right and wrong paths
/// Promise: O11: with open superblocks, closed ones, and ones closed while a thread is inside
#[test]
fn translated_code_does_the_same() {
    compare_random_code(NEAR);
}

#[test]
fn code_that_its_translation_cannot_reach_does_the_same() {
    compare_random_code(FAR);
}

fn compare_random_code(program: Program) {
    let mut lab = Lab::new(program);
    let mut generator = Generator::new(0x2468, program.data);
    assert!(generator.codes().len() > 500, "{} forms", generator.codes().len());

    // Single instructions.
    for case in 0..cases() / 2 {
        let start = program.code[case as usize % 2];
        let bytes = generator.any(start);
        let executed = instructions(&bytes, start);
        lab.check(&finish(start, bytes, Vec::new(), Some(executed)));
    }
    lab.done();

    // Straight runs.
    for case in 0..cases() / 4 {
        let start = program.code[case as usize % 2];
        let bytes = run_of(&mut generator, start, 30);
        let executed = instructions(&bytes, start);
        lab.check(&finish(start, bytes, Vec::new(), Some(executed)));
    }

    // Branches.
    for case in 0..cases() / 4 {
        let snippet = branching(&mut generator, program.code[case as usize % 2]);
        lab.check(&snippet);
    }
    lab.done();
    assert!(lab.superblocks > lab.compared / 4, "{} superblocks", lab.superblocks);
    assert!(lab.guards > lab.superblocks / 20, "{} guards", lab.guards);
    assert!(lab.overlays > lab.compared / 4, "{} over fragments", lab.overlays);
}

/// Promise: O10
#[test]
fn flags_that_a_guard_has_overwritten_are_had_again() {
    let mut lab = Lab::new(NEAR);
    let Program { code: [start, _], data: place } = NEAR;
    let mut generator = Generator::new(0x8642, place);
    let mut found = 0;
    for _ in 0..cases() {
        let bytes = generator.quiet(start);
        let snippet = finish(start, bytes.clone(), Vec::new(), None);
        let before = lab.state();
        let data = vec![0; Data::BYTES as usize];
        let memory = [(place.start, data), (start, snippet.bytes.clone())];
        let observed = [(place.start, 1)];
        let run = Run {
            entry: start,
            state: &before,
            gs: place.gs(),
            memory: &memory,
            observed: &observed,
        };
        let Outcome::Landed(after, _) = lab.machine.run(&run) else { continue };
        let writer = FlagWriter { pc: AppPc(start), stack: 0 };
        let value = |register: Register| after.general[register.number()];
        if let Some(flags) = flags_again(writer, &bytes, value) {
            found += 1;
            assert_eq!(flags, after.flags & FLAGS, "{bytes:02x?} {:x?}", after.general);
        }
    }
    assert!(found > cases() / 50, "{found} instructions");
}

#[test]
fn a_difference_is_found() {
    let mut lab = Lab::new(NEAR);
    let snippet =
        |bytes: &[u8], executed| finish(NEAR.code[0], bytes.to_vec(), Vec::new(), executed);
    let original = snippet(&[0x48, 0x83, 0xc0, 0x01], Some(1));
    lab.compare(&original).unwrap();
    for (other, fault) in [
        // add rax, 2; lea rax, [rax+1]: another register, other flags
        (snippet(&[0x48, 0x83, 0xc0, 0x02], Some(1)), "registers"),
        (snippet(&[0x48, 0x8d, 0x40, 0x01], Some(1)), "registers"),
        // vpxor ymm7, ymm7, ymm7 and fldz beside it
        (snippet(&[0xc5, 0xc5, 0xef, 0xff, 0x48, 0x83, 0xc0, 0x01], None), "registers"),
        (snippet(&[0xd9, 0xee, 0x48, 0x83, 0xc0, 0x01], None), "registers"),
        // not byte [rbx] before it
        (snippet(&[0xf6, 0x13, 0x48, 0x83, 0xc0, 0x01], None), "memory"),
        // the same, counted wrongly
        (snippet(&[0x48, 0x83, 0xc0, 0x01], Some(2)), "counted"),
        // ud2
        (snippet(&[0x90, 0x0f, 0x0b], None), "natively it landed"),
    ] {
        let found = lab.compare_two(&original, &other).unwrap_err();
        assert!(found.contains(fault), "{found}");
    }
}
