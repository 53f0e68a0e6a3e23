//! Frames of interpreters that stacks go without.
//!
//! In the stacks of interpreted languages, the evaluator's frame is called by the functions that it
//! executes (see `docs/recording-format.md`). Whoever looks at the program and not at its
//! interpreter wants neither that nor the stub that CPython calls a function through so that perf
//! has a name for it: both stand for the function.

use lwp_profile::{Forest, Place, Recording};

use crate::generated::Generated;

/// The prefix of the stubs that CPython makes for perf.
const STUB: &str = "py::";

/// The frames that are left out, by index; of a recording without interpreted functions, none.
#[derive(Clone, Debug, Default)]
pub struct Folded(Vec<bool>);

impl Folded {
    /// The frames that stacks of `recording` go without.
    pub fn new(recording: &Recording, generated: &Generated) -> Self {
        if !recording.modules.values().any(|module| module.language().is_some()) {
            return Self::default();
        }
        let frames = &recording.frames;
        let folded = frames.iter().map(|frame| {
            let Some(caller) = frame.caller.and_then(|index| frames.get(index as usize)) else {
                return false;
            };
            let (stub, interpreted) = about(recording, generated, (frame.module, frame.address));
            stub || !interpreted && language(recording, caller.module).is_some()
        });
        Self(folded.collect())
    }

    /// The frames that stacks of `forest` go without; the recording has no stacks of its own.
    pub fn apart(recording: &Recording, forest: &Forest, generated: &Generated) -> Self {
        if !recording.modules.values().any(|module| module.language().is_some()) {
            return Self::default();
        }
        // The two questions that are asked of a frame, by its place.
        let about: Vec<(bool, bool)> =
            forest.places().iter().map(|place| about(recording, generated, *place)).collect();
        let folded = (0..forest.len() as u32).map(|index| {
            let (caller, place) = forest.frame(index);
            let Some(caller) = caller else { return false };
            let (stub, interpreted) = about[place];
            stub || !interpreted && about[forest.frame(caller).1].1
        });
        Self(folded.collect())
    }

    /// Returns true if no frame is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the frame with this index is left out.
    pub fn contains(&self, index: u32) -> bool {
        self.0.get(index as usize).copied().unwrap_or(false)
    }

    /// The frame that stands for the one with this index.
    pub fn standing(&self, recording: &Recording, index: u32) -> u32 {
        let mut at = index;
        while self.0.get(at as usize).copied().unwrap_or(false) {
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
        Some(self.standing(recording, caller))
    }
}

fn language(recording: &Recording, module: Option<u32>) -> Option<&str> {
    recording.modules.get(&module?)?.language()
}

/// Returns true if a stub of CPython's is at this place, and if an interpreted function is.
fn about(recording: &Recording, generated: &Generated, (module, address): Place) -> (bool, bool) {
    let of_file = module.and_then(|module| recording.modules.get(&module));
    let stub = of_file.is_some_and(|module| module.path.is_empty())
        && generated.at(address).is_some_and(|it| it.name.starts_with(STUB));
    (stub, language(recording, module).is_some())
}

#[cfg(test)]
mod tests {
    use lwp_profile::{RecordedFrame, RecordedModule, RecordedSymbol};

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
        let folded = Folded::new(recording, &Generated::new(&recording.symbols));
        let apart =
            Folded::apart(recording, &Forest::of(recording), &Generated::new(&recording.symbols));
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

    #[test]
    fn stacks_without_interpreted_functions_stay_as_they_are() {
        let mut recording = recording();
        recording.modules.remove(&1);
        assert_eq!(stack(&recording, 7), [7, 6, 5, 4, 3, 2, 1, 0]);
    }
}
