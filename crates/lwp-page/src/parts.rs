//! Comparisons of what pages count in parts of a recording with its samples, one by one.

use std::collections::{BTreeMap, BTreeSet};

use lwp_profile::{
    Builder, Event, Frame, Function, FunctionId, Location, LocationId, Mode, Module, Origin,
    StackId, Thread, ThreadId, Tree, Values,
};
use proptest::prelude::*;

use crate::adding::blocks;
use crate::picked::{By, Picked, Shape, groups};
use crate::selection::{Selection, Who};
use crate::subject::{Lane, Material, Subject};
use lwp_symbols::Language;

/// Samples of a thread and an event, in order: numbers of stacks.
type Course = Vec<usize>;

/// A recording that is made up.
#[derive(Clone, Debug)]
struct MadeUp {
    /// Places of code, innermost first.
    stacks: Vec<Vec<usize>>,
    /// By thread, those of the first event and of the second.
    courses: Vec<[Course; 2]>,
    /// Samples in a part of a lane.
    width: usize,
}

/// Events that a sample of each event stands for.
const INTERVALS: [u64; 2] = [10, 7];
/// Functions: C, Rust, C++, Rust.
const NAMES: [&str; 4] = ["main", "_RNvCs1_1a1b", "_Z1fv", "_RNvCs1_1a1c"];
/// The functions of places, innermost first: some have others inlined.
const PLACES: [&[usize]; 6] = [&[0], &[1], &[2], &[3], &[2, 0], &[3, 1, 2]];

/// The recording as pages have it, and what is there under final numbers.
struct Known {
    subject: Subject,
    /// By stack of the recording.
    stacks: Vec<(StackId, LocationId, Vec<FunctionId>)>,
    threads: Vec<ThreadId>,
}

impl MadeUp {
    fn known(&self) -> Known {
        let event = |(name, interval): (&str, u64)| Event {
            name: name.into(),
            interval: Some(interval),
            modelled: false,
        };
        let events = ["one", "two"].into_iter().zip(INTERVALS).map(event).collect();
        let mut builder = Builder::new("made up", Mode::Sampled, events);
        let module = builder.module(Module::default());
        let function = |(at, name): (usize, &&str)| Function {
            module,
            name: (*name).into(),
            address: at as u64 * 16,
            origin: Origin::Symbol,
            ..Function::default()
        };
        let functions: Vec<FunctionId> =
            NAMES.iter().enumerate().map(function).map(|it| builder.function(it)).collect();
        let mut locations = Vec::new();
        for (address, inside) in (0u64..).zip(PLACES) {
            let frame = |at: &usize| Frame { function: functions[*at], ..Frame::default() };
            let frames = inside.iter().map(frame).collect();
            let of = Location { module, address, frames, ..Location::default() };
            locations.push(builder.location(of));
        }
        let of_stack = |stack: &Vec<usize>| stack.iter().map(|place| locations[*place]).collect();
        let stacks: Vec<StackId> =
            self.stacks.iter().map(of_stack).map(|stack| builder.stack(stack)).collect();
        // Two threads in each process.
        let thread = |tid: i32| Thread { comm: "t".into(), pid: tid / 2, tid };
        let threads: Vec<ThreadId> =
            (0..self.courses.len() as i32).map(|tid| builder.thread(thread(tid))).collect();
        for (thread, courses) in threads.iter().zip(&self.courses) {
            for (event, course) in courses.iter().enumerate() {
                let mut values = Values::zero(2);
                values.0[event] = INTERVALS[event];
                course.iter().for_each(|at| builder.sample(*thread, stacks[*at], &values));
            }
        }
        let (profile, now) = builder.finish_renumbered();
        let stack = |(old, places): (&StackId, &Vec<usize>)| {
            let of_place = |place: &usize| PLACES[*place].iter();
            let frames = places.iter().flat_map(of_place);
            let functions = frames.map(|at| now.functions[functions[*at].index()]).rev().collect();
            (now.stacks[old.index()], now.locations[locations[places[0]].index()], functions)
        };
        let stacks: Vec<_> = stacks.iter().zip(&self.stacks).map(stack).collect();
        let threads: Vec<ThreadId> = threads.iter().map(|old| now.threads[old.index()]).collect();
        let lanes = self.lanes(&stacks.iter().map(|it| it.0).collect::<Vec<_>>(), &threads);
        let subject = Subject::new(Material { profile, lanes, ..Material::default() });
        Known { subject, stacks, threads }
    }

    /// Lanes of all threads; some parts have a stack twice.
    fn lanes(&self, stacks: &[StackId], threads: &[ThreadId]) -> Vec<Lane> {
        let mut lanes = Vec::new();
        for (thread, courses) in threads.iter().zip(&self.courses) {
            for (event, course) in courses.iter().enumerate().filter(|it| !it.1.is_empty()) {
                let part = |part: &[usize]| {
                    let mut part: Vec<_> = part.iter().map(|at| (stacks[*at], 1)).collect();
                    part.sort_unstable();
                    part
                };
                lanes.push(Lane {
                    thread: *thread,
                    event,
                    width: self.width as u64 * INTERVALS[event],
                    total: course.len() as u64 * INTERVALS[event],
                    parts: course.chunks(self.width).map(part).collect(),
                });
            }
        }
        lanes
    }

    /// The samples that are selected: numbers of stacks.
    fn selected(&self, known: &Known, selection: &Selection) -> Vec<usize> {
        let mut out = Vec::new();
        let profile = known.subject.profile();
        for (thread, courses) in known.threads.iter().zip(&self.courses) {
            let course = &courses[selection.event];
            // Parts are selected whole.
            let width = self.width as u64 * INTERVALS[selection.event];
            let (from, to) = selection.range.unwrap_or((0, u64::MAX));
            let (first, last) = (from / width, to.div_ceil(width));
            for (part, samples) in (0u64..).zip(course.chunks(self.width)) {
                let met = |stack: &&usize| {
                    let leaf = profile.location(known.stacks[**stack].1).frames[0].function;
                    let language = known.subject.labels[leaf.index()].language;
                    let of = &profile.threads[thread.index()];
                    selection.who.iter().all(|who| who.meets(thread.index(), of, language))
                };
                if (first..last).contains(&part) {
                    out.extend(samples.iter().filter(met));
                }
            }
        }
        out
    }
}

/// A path of functions with its count.
type Paths = BTreeMap<Vec<FunctionId>, u64>;

/// A stack in a form.
fn path(stack: &[FunctionId], shape: Shape) -> Vec<FunctionId> {
    let mut path = Vec::new();
    let mut running: BTreeMap<FunctionId, Vec<FunctionId>> = BTreeMap::new();
    for function in stack {
        path.push(*function);
        if shape.folded {
            path = running.entry(*function).or_insert(path).clone();
        }
    }
    if shape.inverted {
        path.reverse();
    }
    path
}

/// The paths of a tree that something was counted in.
fn paths(tree: &Tree) -> Paths {
    let mut paths = Paths::new();
    for node in (0..tree.len()).filter(|node| tree.own(*node) > 0) {
        let outwards = std::iter::successors(Some(node), |at| Some(tree.caller(*at)));
        let functions = outwards.take_while(|at| *at > 0).map(|at| tree.node(at).function);
        let mut path: Vec<FunctionId> = functions.collect();
        path.reverse();
        *paths.entry(path).or_default() += tree.own(node);
    }
    paths
}

/// Compares all that is picked with the samples one by one.
fn check(made_up: &MadeUp, known: &Known, picked: &Picked) {
    let (selection, profile) = (&picked.selection, known.subject.profile());
    let (event, samples) = (selection.event, made_up.selected(known, selection));
    let interval = INTERVALS[event];
    let mut own = vec![0; profile.functions.len()];
    let mut inclusive = vec![0; profile.functions.len()];
    for at in &samples {
        let (_, leaf, functions) = &known.stacks[*at];
        own[profile.location(*leaf).function().index()] += interval;
        let around: BTreeSet<&FunctionId> = functions.iter().collect();
        around.into_iter().for_each(|id| inclusive[id.index()] += interval);
    }
    assert_eq!(picked.total(), samples.len() as u64 * interval, "{selection:?}");
    let counted: Vec<u64> = picked.own.iter().map(|values| values.get(event)).collect();
    assert_eq!(counted, own, "own, {selection:?}");
    let counted: Vec<u64> = picked.inclusive.iter().map(|sum| *sum as u64).collect();
    assert_eq!(counted, inclusive, "inclusive, {selection:?}");
    let in_form = |samples: &[usize], shape: Shape| {
        let mut paths = Paths::new();
        for at in samples {
            *paths.entry(path(&known.stacks[*at].2, shape)).or_default() += interval;
        }
        paths
    };
    for (inverted, folded) in [(false, false), (true, false), (false, true), (true, true)] {
        let shape = Shape { inverted, folded, by: By::Function };
        let shaped = picked.shaped(&known.subject, shape);
        assert_eq!(paths(&shaped.tree), in_form(&samples, shape), "{shape:?}, {selection:?}");
        for by in [By::Process, By::Thread, By::Language] {
            let mut expected = BTreeMap::new();
            for (name, who) in groups(&known.subject, by) {
                let mut of_group = selection.clone();
                of_group.who.push(who);
                let paths = in_form(&made_up.selected(known, &of_group), shape);
                if !paths.is_empty() {
                    expected.insert(name, paths);
                }
            }
            let shaped = picked.shaped(&known.subject, Shape { by, ..shape });
            let found = shaped.groups.iter().map(|group| (group.name.clone(), paths(&group.tree)));
            assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "{shape:?}, {by:?}");
        }
    }
}

fn made_up() -> impl Strategy<Value = MadeUp> {
    let stacks = prop::collection::vec(prop::collection::vec(0..PLACES.len(), 1..6), 1..12);
    stacks.prop_flat_map(|mut stacks| {
        stacks.sort_unstable();
        stacks.dedup();
        let course = || prop::collection::vec(0..stacks.len(), 0..60);
        let courses = prop::collection::vec([course(), course()], 1..4);
        (Just(stacks.clone()), courses, 1usize..9).prop_map(|(stacks, courses, width)| MadeUp {
            stacks,
            courses,
            width,
        })
    })
}

fn selection() -> impl Strategy<Value = Selection> {
    let who = prop_oneof![
        (0u32..4).prop_map(Who::Thread),
        (0i32..2).prop_map(Who::Process),
        prop::sample::select(vec![Language::Rust, Language::C, Language::Cpp])
            .prop_map(Who::Language),
    ];
    let range = prop::option::of((0u64..600, 1u64..600));
    (0usize..2, prop::collection::vec(who, 0..3), range).prop_map(|(event, who, range)| Selection {
        event,
        who,
        range: range.map(|(from, length)| (from, from + length)),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Promise: R115
    #[test]
    fn every_part_has_its_samples(
        made_up in made_up(),
        selections in prop::collection::vec(selection(), 1..4),
        large in any::<bool>(),
        in_blocks in any::<bool>(),
    ) {
        let mut known = made_up.known();
        known.subject.large = large;
        if in_blocks {
            let Subject { of, samples, .. } = &known.subject;
            let of_lane = |lane| blocks(&of.profile, samples.as_ref(), lane, 0);
            known.subject.blocks = of.lanes.iter().map(of_lane).collect();
        }
        let everything = [0, 1].map(|event| Selection { event, ..Selection::default() });
        for selection in everything.iter().chain(&selections) {
            check(&made_up, &known, &known.subject.pick(selection));
        }
    }

    /// Promise: R115
    #[test]
    fn parts_are_the_same_while_trees_are_made(
        made_up in made_up(),
        selections in prop::collection::vec(selection(), 1..4),
    ) {
        let mut known = made_up.known();
        known.subject.large = true;
        std::thread::scope(|scope| {
            let thread = || std::thread::Builder::new();
            let prepare = || known.subject.prepare();
            thread().spawn_scoped(scope, prepare).expect("a thread");
            for selection in &selections {
                let check = || check(&made_up, &known, &known.subject.pick(selection));
                thread().spawn_scoped(scope, check).expect("a thread");
            }
        });
    }
}
