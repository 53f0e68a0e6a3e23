//! Samples are added up once, part by part, and a selection adds up parts.
//!
//! Own and inclusive counts of disjoint samples add up to those of all: so every event of a thread
//! is summed up while a recording is loaded, language by language, and long spans of its time too.
//! The contexts of a part are a [`Run`], which a tree shares.

use std::ops::Range;
use std::sync::Arc;

use lwp_profile::{FunctionId, LocationId, Profile, Run, Samples, StackId, Taken, ThreadId};

use crate::selection::{Selection, Who};
use crate::subject::{Label, Lane, Subject};
use lwp_symbols::Language;

/// Samples of some stacks.
pub type Stacks = [(StackId, u32)];

/// Counts of some samples of one event.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Own counts of locations.
    pub leaves: Vec<(LocationId, u64)>,
    /// Inclusive counts of functions.
    pub inclusive: Vec<(FunctionId, u64)>,
}

/// The samples of one event in one thread whose innermost functions are in one language.
#[derive(Debug, Default)]
pub struct Portion {
    /// The thread.
    pub thread: ThreadId,
    /// Index of the event.
    pub event: usize,
    /// The language.
    pub language: Language,
    /// The number of samples.
    pub samples: u64,
    /// Their counts.
    pub sums: Sums,
    /// Their contexts.
    pub run: Arc<Run>,
}

/// Counts of parts of a lane that follow each other.
#[derive(Debug)]
pub struct Block {
    parts: Range<usize>,
    sums: Sums,
}

/// Lanes with more different stacks in their parts have blocks.
pub const LONG: usize = 1 << 20;
/// Blocks of a lane.
const BLOCKS: usize = 32;

/// Adds samples up by location.
#[derive(Debug)]
pub struct Adder<'a> {
    profile: &'a Profile,
    samples: &'a Samples,
    /// By location, as far as it is in `seen`.
    sums: Vec<u64>,
    seen: Vec<LocationId>,
}

impl<'a> Adder<'a> {
    /// Nothing yet.
    fn new(profile: &'a Profile, samples: &'a Samples) -> Self {
        Self { profile, samples, sums: vec![0; profile.locations.len()], seen: Vec::new() }
    }

    /// Own counts of the locations in `stacks`, whose samples stand for `unit` events each.
    fn leaves<'s>(
        &mut self,
        stacks: impl Iterator<Item = &'s (StackId, u32)>,
        unit: u64,
    ) -> Vec<(LocationId, u64)> {
        for (stack, times) in stacks {
            let leaf = self.samples.stacks[stack.index()].leaf;
            let sum = &mut self.sums[leaf.index()];
            if *sum == 0 {
                self.seen.push(leaf);
            }
            *sum = sum.saturating_add(u64::from(*times).saturating_mul(unit));
        }
        let sum = |leaf: LocationId| (leaf, std::mem::take(&mut self.sums[leaf.index()]));
        self.seen.drain(..).map(sum).collect()
    }

    /// Fills a portion with the samples of its stacks.
    fn portion(&mut self, of: Portion, stacks: Vec<(StackId, u32)>, unit: u64) -> Portion {
        let times = stacks.iter().map(|(_, times)| u64::from(*times));
        let all = times.fold(0, u64::saturating_add);
        let leaves = self.leaves(stacks.iter(), unit);
        let context =
            |(stack, times): (StackId, u32)| (self.samples.stacks[stack.index()].context, times);
        // In the same memory: there may be tens of millions.
        let mut contexts: Vec<(u32, u32)> = stacks.into_iter().map(context).collect();
        lwp_profile::sort_samples(&mut contexts);
        let run = Run::new(&contexts, unit);
        let inclusive = run.inclusive(&self.samples.shape, self.profile.functions.len());
        Portion { samples: all, sums: Sums { leaves, inclusive }, run: Arc::new(run), ..of }
    }

    /// All counts of some samples.
    fn sums(&mut self, parts: &[&Stacks], unit: u64) -> Sums {
        let leaves = self.leaves(parts.iter().copied().flatten(), unit);
        let run = run(self.samples, parts, unit);
        let inclusive = run.inclusive(&self.samples.shape, self.profile.functions.len());
        Sums { leaves, inclusive }
    }
}

/// The contexts of some samples.
fn run(samples: &Samples, parts: &[&Stacks], unit: u64) -> Run {
    let context = |stack: StackId| samples.stacks[stack.index()].context;
    let entries: usize = parts.iter().map(|part| part.len()).sum();
    if entries > samples.stacks.len() / 8
        && let Some(run) = dense_run(samples, parts, unit)
    {
        return run;
    }
    let mut all: Vec<(u32, u32)> = Vec::with_capacity(entries);
    all.extend(parts.iter().copied().flatten().map(|(stack, times)| (context(*stack), *times)));
    lwp_profile::sort_samples(&mut all);
    Run::new(&all, unit)
}

/// The contexts of some samples if many stacks have samples: these are usually in the order of
/// their contexts, so that nothing needs to be compared. `None` if they are not, or if there are
/// too many samples.
fn dense_run(samples: &Samples, parts: &[&Stacks], unit: u64) -> Option<Run> {
    let mut sums = vec![0u32; samples.stacks.len()];
    let (mut all, mut entries) = (0u64, 0);
    for (stack, times) in parts.iter().copied().flatten() {
        let sum = &mut sums[stack.index()];
        // All of them are looked at in the end.
        *sum = sum.wrapping_add(*times);
        all += u64::from(*times);
        entries += 1;
    }
    u32::try_from(all).ok()?;
    let counted = samples.stacks.iter().zip(&sums).filter(|(_, times)| **times > 0);
    let counted = counted.map(|(stack, times)| (stack.context, *times));
    Run::taken(counted, entries.min(sums.len()), unit)
}

/// Adds up every event of every thread, by language, and drops the samples themselves.
pub fn portions(profile: &Profile, labels: &[Label], samples: &mut Samples) -> Vec<Portion> {
    let spoken =
        |location: &lwp_profile::Location| labels[location.frames[0].function.index()].language;
    let by_leaf: Vec<Language> = profile.locations.iter().map(spoken).collect();
    let taken = std::mem::take(&mut samples.taken);
    let samples = &*samples;
    let language = |stack: StackId| by_leaf[samples.stacks[stack.index()].leaf.index()];
    let mut adder = Adder::new(profile, samples);
    let mut out = Vec::new();
    for Taken { thread, event, mut stacks } in taken {
        let mut languages: Vec<Language> = Vec::new();
        for (stack, _) in &stacks {
            if !languages.contains(&language(*stack)) {
                languages.push(language(*stack));
            }
        }
        while let Some(language_of_it) = languages.pop() {
            let of_it = match languages.is_empty() {
                true => std::mem::take(&mut stacks),
                false => stacks.extract_if(.., |it| language(it.0) == language_of_it).collect(),
            };
            let (language, unit) = (language_of_it, samples.units[event]);
            out.push(adder.portion(
                Portion { thread, event, language, ..Portion::default() },
                of_it,
                unit,
            ));
        }
    }
    out
}

/// Adds up parts of a lane together, if it has more than `long` different stacks in them.
pub fn blocks(
    profile: &Profile,
    samples: Option<&Samples>,
    lane: &Lane,
    long: usize,
) -> Vec<Block> {
    let Some(samples) = samples else { return Vec::new() };
    if lane.parts.iter().map(Vec::len).sum::<usize>() <= long {
        return Vec::new();
    }
    let mut adder = Adder::new(profile, samples);
    let together = lane.parts.len().div_ceil(BLOCKS);
    let starts = (0..lane.parts.len()).step_by(together);
    let block = |start: usize| {
        let parts = start..(start + together).min(lane.parts.len());
        let stacks: Vec<&Stacks> = lane.parts[parts.clone()].iter().map(Vec::as_slice).collect();
        Block { parts, sums: adder.sums(&stacks, unit(profile, lane.event)) }
    };
    starts.map(block).collect()
}

/// The number of events that a sample in a lane stands for.
pub fn unit(profile: &Profile, event: usize) -> u64 {
    let interval = profile.events.get(event).and_then(|event| event.interval);
    interval.unwrap_or(1).max(1)
}

/// Returns true if a thread meets all conditions of a selection on threads.
pub fn meets(subject: &Subject, selection: &Selection, thread: ThreadId) -> bool {
    let number = thread.index();
    let Some(thread) = subject.profile().threads.get(number) else { return false };
    selection.who.iter().all(|who| match who {
        Who::Language(_) => true,
        who => who.meets(number, thread, Language::Unknown),
    })
}

/// The portions that are selected, of every event; spans of time are not looked at.
pub fn chosen<'a>(
    subject: &'a Subject,
    selection: &Selection,
) -> impl Iterator<Item = &'a Portion> {
    let spoken = |language: Language| selection.languages().all(|wanted| wanted == language);
    let portions = subject.portions.iter();
    portions.filter(move |it| spoken(it.language) && meets(subject, selection, it.thread))
}

/// Parts of a lane that are in a span.
#[derive(Debug)]
struct Within<'a> {
    lane: &'a Lane,
    blocks: &'a [Block],
    parts: Range<usize>,
}

impl<'a> Within<'a> {
    /// The stacks of all parts in the span, and of those outside it.
    fn stacks(&self) -> [Vec<&'a Stacks>; 2] {
        let (before, behind) = (..self.parts.start, self.parts.end..);
        let parts = &self.lane.parts;
        let stacks = |parts: &'a [Vec<(StackId, u32)>]| parts.iter().map(Vec::as_slice);
        let outside = stacks(&parts[before]).chain(stacks(&parts[behind])).collect();
        [stacks(&parts[self.parts.clone()]).collect(), outside]
    }
}

/// The parts of lanes that lie in a range of the event's counts, whole ones.
fn within<'a>(
    subject: &'a Subject,
    selection: &Selection,
    (from, to): (u64, u64),
) -> Vec<Within<'a>> {
    let lanes = subject.of.lanes.iter().zip(&subject.blocks);
    let chosen = lanes.filter(|(lane, _)| {
        lane.event == selection.event && meets(subject, selection, lane.thread)
    });
    let part = |(lane, blocks): (&'a Lane, &'a Vec<Block>)| {
        let width = lane.width.max(1);
        let all = lane.parts.len();
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(all);
        let start = place(from / width);
        Within { lane, blocks, parts: start..place(to.div_ceil(width)).max(start) }
    };
    chosen.map(part).collect()
}

/// Returns true for each location whose innermost function is in the language that is selected;
/// `None` if any language will do.
fn spoken(subject: &Subject, selection: &Selection) -> Option<Vec<bool>> {
    if selection.wants_any_language() {
        return None;
    }
    let meets = |location: &lwp_profile::Location| {
        let language = subject.labels[location.frames[0].function.index()].language;
        selection.languages().all(|wanted| wanted == language)
    };
    let locations = &subject.profile().locations;
    Some(locations.iter().map(meets).collect())
}

/// The samples of a span, part by part: copies where only one language is selected.
#[derive(Debug)]
pub struct Span<'a> {
    whole: Vec<&'a Stacks>,
    copies: Vec<Vec<(StackId, u32)>>,
}

impl<'a> Span<'a> {
    /// Some parts of lanes.
    fn new(subject: &Subject, selection: &Selection, parts: Vec<&'a Stacks>) -> Self {
        let samples = subject.samples.as_ref();
        let Some((spoken, samples)) = spoken(subject, selection).zip(samples) else {
            return Self { whole: parts, copies: Vec::new() };
        };
        let meets = |it: &&(StackId, u32)| spoken[samples.stacks[it.0.index()].leaf.index()];
        let copy = |part: &Stacks| part.iter().filter(meets).copied().collect();
        Self { whole: Vec::new(), copies: parts.into_iter().map(copy).collect() }
    }

    /// The samples of each part.
    pub fn parts(&self) -> Vec<&Stacks> {
        self.whole.iter().copied().chain(self.copies.iter().map(Vec::as_slice)).collect()
    }
}

/// Adds up a span: from blocks as far as they lie in it.
pub fn sums_within(
    subject: &Subject,
    samples: &Samples,
    selection: &Selection,
    range: (u64, u64),
) -> Vec<Sums> {
    let unit = unit(subject.profile(), selection.event);
    let any = selection.wants_any_language();
    let mut single: Vec<&Stacks> = Vec::new();
    let mut sums = Vec::new();
    for Within { lane, blocks, parts } in within(subject, selection, range) {
        let whole = |block: &&Block| {
            any && parts.start <= block.parts.start && block.parts.end <= parts.end
        };
        let inside: Vec<&Block> = blocks.iter().filter(whole).collect();
        sums.extend(inside.iter().map(|block| block.sums.clone()));
        let covered = |at: &usize| inside.iter().any(|block| block.parts.contains(at));
        let left = parts.filter(|at| !covered(at));
        single.extend(left.map(|at| lane.parts[at].as_slice()));
    }
    let span = Span::new(subject, selection, single);
    let mut adder = Adder::new(subject.profile(), samples);
    sums.push(adder.sums(&span.parts(), unit));
    sums
}

/// Runs of a tree: those that it adds up, and those that it takes away from them.
pub type Runs = (Vec<Arc<Run>>, Vec<Arc<Run>>);

/// The contexts of a selection, of its event.
pub fn runs(subject: &Subject, samples: &Samples, selection: &Selection) -> Runs {
    let of_event = chosen(subject, selection).filter(|it| it.event == selection.event);
    let all: Vec<Arc<Run>> = of_event.map(|portion| Arc::clone(&portion.run)).collect();
    let Some(range) = selection.range else { return (few(all), Vec::new()) };
    let unit = unit(subject.profile(), selection.event);
    let sides = sides(subject, samples, selection, range);
    if selection.wants_any_language() && sides.complete && sides.entries(1) < sides.entries(0) {
        return (few(all), vec![Arc::new(run(samples, &sides.outside, unit))]);
    }
    let span = sides.inside(subject, selection);
    (vec![Arc::new(run(samples, &span.parts(), unit))], Vec::new())
}

/// The samples of selected lanes in a span and outside it, in every language.
#[derive(Debug)]
pub struct Sides<'a> {
    inside: Vec<&'a Stacks>,
    /// Those outside it.
    pub outside: Vec<&'a Stacks>,
    /// Lanes have every sample of their threads. Those of a forged recording may not.
    pub complete: bool,
}

/// The two sides of a span.
pub fn sides<'a>(
    subject: &'a Subject,
    samples: &Samples,
    selection: &Selection,
    range: (u64, u64),
) -> Sides<'a> {
    let lanes = within(subject, selection, range);
    let [inside, outside] = [0, 1].map(|side| -> Vec<&Stacks> {
        lanes.iter().flat_map(|lane| lane.stacks()[side].clone()).collect()
    });
    let of_threads = Selection { range: None, ..selection.clone() };
    let counted = chosen(subject, &of_threads)
        .filter(|it| it.event == selection.event)
        .fold(0u64, |sum, it| sum.saturating_add(it.run.between(0, samples.shape.len())));
    let in_lanes = lanes.iter().fold(0u64, |sum, it| sum.saturating_add(it.lane.total));
    Sides { inside, outside, complete: counted == in_lanes }
}

impl<'a> Sides<'a> {
    /// Returns the number of stacks in all parts of the span, or outside it.
    pub fn entries(&self, side: usize) -> usize {
        [&self.inside, &self.outside][side].iter().map(|part| part.len()).sum()
    }

    /// The samples in the span that are selected.
    pub fn inside(self, subject: &Subject, selection: &Selection) -> Span<'a> {
        Span::new(subject, selection, self.inside)
    }
}

/// Runs that a tree adds up: more are joined.
const RUNS: usize = 6;

/// Joins the smaller ones of `runs` if there are many.
fn few(mut runs: Vec<Arc<Run>>) -> Vec<Arc<Run>> {
    if runs.len() > RUNS {
        runs.sort_by_key(|run| std::cmp::Reverse(run.len()));
        let joined = Run::joined(&runs.split_off(RUNS - 1));
        runs.push(Arc::new(joined));
    }
    runs
}

#[cfg(test)]
mod tests {
    use lwp_profile::{
        Builder, Event, Frame, Function, Location, Mode, Module, Thread, Tree, Values,
    };

    use super::*;
    use crate::picked::Picked;
    use crate::subject::Material;

    /// Two threads that call two functions in turn, each more often from part to part.
    fn subject() -> Subject {
        let event = Event { name: "e".into(), interval: Some(10), modelled: false };
        let mut builder = Builder::new("c", Mode::Sampled, vec![event]);
        let module = builder.module(Module::default());
        let mut location = |name: &str, address| {
            let of = Function { module, name: name.into(), address, ..Function::default() };
            let frame = Frame { function: builder.function(of), ..Frame::default() };
            builder.location(Location {
                module,
                address,
                frames: [frame].into(),
                ..Location::default()
            })
        };
        let [main, c, rust] =
            [location("main", 0), location("c", 16), location("_RNvCs1_1a1b", 32)];
        let threads = [1, 2].map(|tid| builder.thread(Thread { comm: "t".into(), pid: 1, tid }));
        let stacks = [vec![main], vec![c, main], vec![rust, main], vec![c, rust, main], vec![c, c]];
        let stacks = stacks.map(|stack| builder.stack(stack));
        // Fifteen samples in each part.
        let times = |part: u32, step: u32, number: u32| 1 + (part + number * step) % 5;
        for (step, thread) in (1..).zip(threads) {
            for (number, stack) in (0..).zip(stacks) {
                let all: u32 = (0..100).map(|part| times(part, step, number)).sum();
                builder.sample(thread, stack, &Values(vec![u64::from(all) * 10]));
            }
        }
        let (profile, now) = builder.finish_renumbered();
        let lane = |(step, thread): (u32, ThreadId)| {
            let part = |part: u32| {
                let stack = |(number, stack): (u32, StackId)| {
                    (now.stacks[stack.index()], times(part, step, number))
                };
                let mut part: Vec<_> = (0..).zip(stacks).map(stack).collect();
                part.sort_unstable();
                part
            };
            Lane {
                thread: now.threads[thread.index()],
                event: 0,
                width: 150,
                total: 15_000,
                parts: (0..100).map(part).collect(),
            }
        };
        let lanes = (1..).zip(threads).map(lane).collect();
        Subject::new(Material { profile, lanes, ..Material::default() })
    }

    /// Inclusive counts of functions, added up context by context.
    fn inclusive(tree: &Tree, functions: usize) -> Vec<f64> {
        let mut sums = vec![0.0; functions];
        for node in 1..tree.len() {
            let around = std::iter::successors(Some(node), |at| Some(tree.caller(*at)));
            let around = around.take_while(|at| *at > 0).map(|at| tree.node(at).function);
            let mut around: Vec<FunctionId> = around.collect();
            around.sort_unstable();
            around.dedup();
            around.iter().for_each(|it| sums[it.index()] += tree.own(node) as f64);
        }
        sums
    }

    /// Promise: R115
    #[test]
    fn spans_are_added_up_with_blocks_as_without() {
        let (plain, mut blocked) = (subject(), subject());
        let of_lane = |lane| blocks(&blocked.of.profile, blocked.samples.as_ref(), lane, 0);
        blocked.blocks = blocked.of.lanes.iter().map(of_lane).collect();
        assert!(plain.blocks[0].is_empty() && blocked.blocks[0].len() == 25);
        let ranges = [(0, 1), (0, 15_000), (150, 160), (599, 6_001), (600, 6_000), (100, u64::MAX)];
        for range in ranges {
            let threads = [vec![], vec![Who::Thread(1)], vec![Who::Language(Language::C)]];
            for who in threads {
                let selection = Selection { event: 0, who, range: Some(range) };
                let [one, other] =
                    [&plain, &blocked].map(|subject| Picked::new(subject, &selection));
                assert_eq!(one.own, other.own, "{selection:?}");
                assert_eq!(one.inclusive, other.inclusive, "{selection:?}");
                let tree = &one.tree(&plain).tree;
                assert_eq!(tree.root().total, one.total());
                assert_eq!(inclusive(tree, one.own.len()), one.inclusive, "{selection:?}");
            }
        }
    }
}
