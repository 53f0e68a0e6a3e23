//! Frames of interpreters that stacks go without.
//!
//! In the stacks of interpreted languages, the evaluator's frame is called by the functions that it
//! executes (see `docs/recording-format.md`). Whoever looks at the program and not at its
//! interpreter wants neither that nor the stub that CPython calls a function through so that perf
//! has a name for it: both stand for the function.

use std::collections::BTreeMap;

use lwp_profile::{Forest, Place, RecordedFrame, Recording};

use crate::generated::Generated;
use crate::language::Language;
use crate::resolve::Options;

/// The prefix of the stubs that CPython makes for perf.
const STUB: &str = "py::";

/// The frames that are left out, by index; of a recording without interpreted functions, none.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    left_out: Vec<bool>,
    /// The outermost frames of stacks may be left out too.
    outermost: bool,
}

/// What is asked of the code at a place.
#[derive(Clone, Copy, Debug)]
struct About {
    /// It is a stub that CPython makes.
    stub: bool,
    /// It is an interpreted function.
    interpreted: bool,
    /// It is in the language that alone is wanted.
    wanted: bool,
}

impl Folded {
    /// The frames that stacks of `recording` go without.
    pub fn new(recording: &Recording, generated: &Generated, options: &Options) -> Self {
        let wanted = options.only.or(options.without_callers_of);
        let about = |place| about(recording, generated, wanted, place);
        let frame = |index: usize| {
            let frame = &recording.frames[index];
            let caller = frame.caller.and_then(|caller| recording.frames.get(caller as usize));
            let caller = caller.map(|caller| about((caller.module, caller.address)));
            (about((frame.module, frame.address)), caller)
        };
        let mut folded = Self::of(recording, options, recording.frames.len(), frame);
        if options.only.is_none() && options.without_callers_of.is_some() {
            let callers = callers_of(recording, |index| frame(index).0.wanted);
            folded.left_out.resize(callers.len(), false);
            folded.left_out.iter_mut().zip(callers).for_each(|(out, caller)| *out |= caller);
            folded.outermost = true;
        }
        folded
    }

    /// The frames that stacks of `forest` go without; the recording has no stacks of its own.
    pub fn apart(
        recording: &Recording,
        forest: &Forest,
        generated: &Generated,
        options: &Options,
    ) -> Self {
        if !leaves_out(recording, options) {
            return Self::default();
        }
        let about = |place: &Place| about(recording, generated, options.only, *place);
        let about: Vec<About> = forest.places().iter().map(about).collect();
        let frame = |index: usize| {
            let (caller, place) = forest.frame(index as u32);
            (about[place], caller.map(|caller| about[forest.frame(caller).1]))
        };
        Self::of(recording, options, forest.len(), frame)
    }

    /// Asks each frame about itself and its caller.
    fn of(
        recording: &Recording,
        options: &Options,
        frames: usize,
        frame: impl Fn(usize) -> (About, Option<About>),
    ) -> Self {
        if !leaves_out(recording, options) {
            return Self::default();
        }
        let evaluates = |(about, caller): (About, Option<About>)| {
            caller.is_some_and(|by| about.stub || !about.interpreted && by.interpreted)
        };
        let outermost = options.only.is_some();
        // A stub stands for a function that is on the stack too, if functions are known.
        let known = has_interpreted(recording);
        let left_out = (0..frames).map(frame).map(|it| match outermost {
            true => !it.0.wanted || it.0.stub && known,
            false => evaluates(it),
        });
        Self { left_out: left_out.collect(), outermost }
    }

    /// Returns true if no frame is left out.
    pub fn is_empty(&self) -> bool {
        self.left_out.is_empty()
    }

    /// Returns true if the frame with this index is left out.
    pub fn contains(&self, index: u32) -> bool {
        self.left_out.get(index as usize).copied().unwrap_or(false)
    }

    /// Returns true if every frame is left out.
    pub fn is_whole(&self) -> bool {
        !self.left_out.is_empty() && self.left_out.iter().all(|left_out| *left_out)
    }

    /// The frame that stands for the one with this index: if none does, the outermost one.
    pub fn standing(&self, recording: &Recording, index: u32) -> u32 {
        let mut at = index;
        while self.contains(at) {
            // A caller has a smaller index.
            match recording.frames[at as usize].caller.filter(|caller| *caller < at) {
                Some(caller) => at = caller,
                None => break,
            }
        }
        at
    }

    /// The frame that the one with this index was called from.
    pub fn caller(&self, recording: &Recording, index: u32) -> Option<u32> {
        let caller = recording.frames.get(index as usize)?.caller?;
        let standing = self.standing(recording, caller);
        (!self.outermost || !self.contains(standing)).then_some(standing)
    }
}

/// The frames that are not wanted and call, directly or not, one that is.
fn callers_of(recording: &Recording, wanted: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut calls = vec![false; recording.frames.len()];
    let mut callers = calls.clone();
    for index in (0..calls.len()).rev() {
        let wanted = wanted(index);
        callers[index] = calls[index] && !wanted;
        // A caller has a smaller index.
        let caller = recording.frames[index].caller.map(|caller| caller as usize);
        if let Some(caller) = caller.filter(|caller| *caller < index) {
            calls[caller] |= wanted || calls[index];
        }
    }
    callers
}

/// The interpreted language whose picture would mostly show its interpreter: more than half of the
/// area belongs to functions of other languages that call its functions. `None` of exact counts.
pub fn mostly_interpreter(recording: &Recording) -> Option<Language> {
    let generated = Generated::new(&recording.symbols);
    let of = |frame: &RecordedFrame| runtime(recording, &generated, (frame.module, frame.address));
    let languages: Vec<Option<Language>> = recording.frames.iter().map(of).collect();
    let areas = areas(recording);
    let mut by_language: BTreeMap<Language, u128> = BTreeMap::new();
    for (language, area) in languages.iter().zip(&areas) {
        let sum = language.map(|language| by_language.entry(language).or_default());
        sum.into_iter().for_each(|sum| *sum += u128::from(*area));
    }
    let (language, _) = by_language.into_iter().max_by_key(|(_, area)| *area)?;
    let folded = Folded::new(recording, &generated, &Options::default());
    let callers = callers_of(recording, |index| languages[index] == Some(language));
    let (mut of_callers, mut of_all) = (0, 0);
    for (index, area) in areas.into_iter().enumerate() {
        let shown = if folded.contains(index as u32) { 0 } else { u128::from(area) };
        of_all += shown;
        of_callers += if callers[index] { shown } else { 0 };
    }
    (2 * of_callers > of_all).then_some(language)
}

/// The samples in each frame and below it.
fn areas(recording: &Recording) -> Vec<u64> {
    let frames = &recording.frames;
    let mut areas = vec![0_u64; frames.len()];
    for (sample, times) in &recording.samples {
        if let Some(area) = areas.get_mut(sample.frame as usize) {
            *area = area.saturating_add(*times);
        }
    }
    for index in (0..frames.len()).rev() {
        let caller = frames[index].caller.map(|caller| caller as usize);
        if let Some(caller) = caller.filter(|caller| *caller < index) {
            areas[caller] = areas[caller].saturating_add(areas[index]);
        }
    }
    areas
}

/// The language of the code at a place, if an interpreter or a virtual machine executes it.
fn runtime(recording: &Recording, generated: &Generated, place: Place) -> Option<Language> {
    let of_module = language(recording, place.0).and_then(Language::of_word);
    let language = of_module.or_else(|| {
        let name = generated_name(recording, generated, place)?;
        Some(Language::of_generated(name))
    });
    language.filter(|language| language.has_runtime())
}

/// The name of generated code at a place.
fn generated_name<'a>(
    recording: &Recording,
    generated: &'a Generated,
    (module, address): Place,
) -> Option<&'a str> {
    let module = recording.modules.get(&module?)?;
    Some(generated.at(address).filter(|_| module.path.is_empty())?.name)
}

fn language(recording: &Recording, module: Option<u32>) -> Option<&str> {
    recording.modules.get(&module?)?.language()
}

/// Returns true if `options` leave frames of `recording` out.
fn leaves_out(recording: &Recording, options: &Options) -> bool {
    options.only.is_some() || !options.no_fold && has_interpreted(recording)
}

fn has_interpreted(recording: &Recording) -> bool {
    recording.modules.values().any(|module| module.language().is_some())
}

fn about(
    recording: &Recording,
    generated: &Generated,
    only: Option<Language>,
    (module, address): Place,
) -> About {
    let name = generated_name(recording, generated, (module, address));
    let language = language(recording, module);
    let wanted = only.is_some_and(|only| {
        language == Some(only.word()) || name.map(Language::of_generated) == Some(only)
    });
    let stub = name.is_some_and(|name| name.starts_with(STUB));
    About { stub, interpreted: language.is_some(), wanted }
}

#[cfg(test)]
mod tests {
    use lwp_profile::{RecordedModule, RecordedSample, RecordedSymbol};

    use super::*;

    /// main, the evaluator, a stub, the evaluator again, sum: with f and g between them.
    fn recording() -> Recording {
        let module = |id, path: &str| {
            (id, RecordedModule { id, path: path.into(), ..RecordedModule::default() })
        };
        let modules = [module(0, "/bin/python3"), module(1, "[python]/a.py"), module(2, "")];
        let rows = [(0, 1), (1, 10), (0, 2), (2, 100), (1, 20), (1, 21), (0, 3), (0, 4)];
        let frame = |(at, (module, address)): (usize, &(u32, u64))| RecordedFrame {
            caller: (at as u32).checked_sub(1),
            module: Some(*module),
            address: *address,
        };
        let name = "py::f:/a.py".to_owned();
        Recording {
            modules: modules.into(),
            frames: rows.iter().enumerate().map(frame).collect(),
            symbols: vec![RecordedSymbol { pid: 1, address: 96, size: 16, name }],
            ..Recording::default()
        }
    }

    fn stack(recording: &Recording, leaf: u32) -> Vec<u32> {
        stack_of(None, recording, leaf)
    }

    fn stack_of(only: Option<Language>, recording: &Recording, leaf: u32) -> Vec<u32> {
        let (generated, options) =
            (Generated::new(&recording.symbols), Options { only, ..Options::default() });
        let folded = Folded::new(recording, &generated, &options);
        let apart = Folded::apart(recording, &Forest::of(recording), &generated, &options);
        assert!((0..8).all(|index| apart.contains(index) == folded.contains(index)));
        let first = folded.standing(recording, leaf);
        std::iter::successors(Some(first), |at| folded.caller(recording, *at)).collect()
    }

    #[test]
    fn evaluators_and_stubs_are_left_out() {
        let recording = recording();
        assert_eq!(stack(&recording, 7), [7, 5, 4, 1, 0]);
        // The evaluator itself is at work.
        assert_eq!(stack(&recording, 6), [5, 4, 1, 0]);
        assert_eq!(stack(&recording, 3), [1, 0]);
    }

    /// Promise: R152
    #[test]
    fn one_language_may_be_all_that_is_left() {
        let mut recording = recording();
        let only =
            |language, recording: &Recording, leaf| stack_of(Some(language), recording, leaf);
        assert_eq!(only(Language::Python, &recording, 7), [5, 4, 1]);
        assert_eq!(only(Language::Python, &recording, 2), [1]);
        // Where there is none, the outermost function stands for the stack.
        assert_eq!(only(Language::Python, &recording, 0), [0]);
        assert_eq!(only(Language::Ruby, &recording, 7), [0]);
        // Without Python's own frames, its stubs are its functions.
        recording.modules.remove(&1);
        assert_eq!(only(Language::Python, &recording, 7), [3]);
    }

    #[test]
    fn callers_of_a_language_may_be_left_out() {
        let mut recording = recording();
        let shown = |recording: &Recording, leaf| {
            let without_callers_of = Some(Language::Python);
            let options = Options { without_callers_of, ..Options::default() };
            let folded = Folded::new(recording, &Generated::new(&recording.symbols), &options);
            let first = folded.standing(recording, leaf);
            let callers = std::iter::successors(Some(first), |at| folded.caller(recording, *at));
            callers.collect::<Vec<u32>>()
        };
        // The function that Python calls stays.
        assert_eq!(shown(&recording, 7), [7, 5, 4, 1]);
        assert_eq!(shown(&recording, 6), [5, 4, 1]);
        assert_eq!(shown(&recording, 0), [0]);
        // Another function of main's, which calls nothing in Python.
        let frame = RecordedFrame { caller: Some(0), module: Some(0), address: 9 };
        recording.frames.push(frame);
        assert_eq!(shown(&recording, 8), [8]);
    }

    #[test]
    fn pictures_are_mostly_of_the_interpreter_if_its_area_is() {
        let mut recording = recording();
        let sample = |frame| (RecordedSample { frame, ..RecordedSample::default() }, 1);
        recording.samples = vec![sample(1)];
        // One native caller and one function.
        assert_eq!(mostly_interpreter(&recording), None);
        // main and three functions: evaluators and stubs are not shown.
        recording.samples = vec![sample(5)];
        assert_eq!(mostly_interpreter(&recording), None);
        let outer = |recording: &mut Recording, address| {
            recording.frames.iter_mut().for_each(|frame| {
                frame.caller = Some(frame.caller.map_or(0, |caller| caller + 1));
            });
            let frame = RecordedFrame { caller: None, module: Some(0), address };
            recording.frames.insert(0, frame);
        };
        (0..4).for_each(|address| outer(&mut recording, address));
        recording.samples = vec![sample(9)];
        assert_eq!(mostly_interpreter(&recording), Some(Language::Python));
        recording.samples.push(sample(u32::MAX));
        assert_eq!(mostly_interpreter(&recording), Some(Language::Python));
        recording.samples.clear();
        assert_eq!(mostly_interpreter(&recording), None);
    }

    #[test]
    fn stacks_without_interpreted_functions_stay_as_they_are() {
        let mut recording = recording();
        recording.modules.remove(&1);
        assert_eq!(stack(&recording, 7), [7, 6, 5, 4, 3, 2, 1, 0]);
    }
}
