//! Native frames and those of a language in one stack.
//!
//! Every activation of the evaluator stands for the language's functions that it executes: they
//! take the place right outside its native frame, which they are executed by. So a stack reads,
//! innermost first: the native function that the evaluator called, the evaluator, the functions
//! that it was executing, the native function that called the evaluator.

use std::ops::Range;

/// A native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native {
    /// The address of its instruction.
    pub place: u64,
    /// The instruction is in no file.
    pub generated: bool,
    /// Its memory begins here, and ends where that of the next frame begins.
    pub sp: u64,
    /// It is the evaluator's, as far as that is known.
    pub evaluator: bool,
    /// Registers that calls preserve, as far as they are known: rbx, rbp, and r12 to r15.
    pub preserved: [Option<u64>; 6],
    /// The register rdx, which is known in the innermost frame only.
    pub rdx: Option<u64>,
}

/// The index of rbp among a frame's preserved registers.
pub const RBP: usize = 1;
/// The index of r13 among them.
pub const R13: usize = 3;
/// The index of r15 among them.
pub const R15: usize = 5;

/// Frames that one activation of the evaluator executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// An address in the activation's native frame, where the interpreter keeps one.
    pub anchor: Option<u64>,
    /// The language's frames, as a range of a list that has them innermost first.
    pub frames: Range<usize>,
}

/// A frame of the merged stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The native frame with this index.
    Native(usize),
    /// The language's frame with this index.
    Language(usize),
}

/// Merges `native` frames and `activations`, both innermost first.
///
/// An activation belongs to the native frame that its anchor lies in. Those without one belong to
/// the evaluator's frames, counted from the outermost where the walk came to it: an evaluator that
/// has only just been called has nothing to show yet. Where the walk was not `complete`, they are
/// counted from the innermost, and the activations of native frames that were not found come last.
pub fn merge(native: &[Native], complete: bool, activations: &[Activation], out: &mut Vec<Merged>) {
    out.clear();
    let places = places(native, complete, activations);
    let mut waiting = activations.iter().zip(&places).peekable();
    for index in 0..native.len() {
        out.push(Merged::Native(index));
        while let Some((activation, _)) = waiting.next_if(|(_, place)| **place == Some(index)) {
            out.extend(activation.frames.clone().map(Merged::Language));
        }
    }
    // Whatever has no place of its own lies further out than all that have.
    let rest = waiting.filter(|(_, place)| place.is_none());
    out.extend(rest.flat_map(|(activation, _)| activation.frames.clone()).map(Merged::Language));
}

/// The index of the native frame of each activation, never decreasing.
fn places(native: &[Native], complete: bool, activations: &[Activation]) -> Vec<Option<usize>> {
    let evaluators: Vec<usize> = (0..native.len()).filter(|at| native[*at].evaluator).collect();
    let mut least = 0;
    let mut places = Vec::with_capacity(activations.len());
    for (at, activation) in activations.iter().enumerate() {
        let place = match activation.anchor {
            // The last frame's memory is endless: what lies in it cannot be told.
            Some(anchor) => native
                .windows(2)
                .position(|pair| (pair[0].sp..pair[1].sp).contains(&anchor))
                .or_else(|| native.last().filter(|it| it.evaluator).map(|_| native.len() - 1)),
            None if complete => {
                let from_outermost = activations.len() - 1 - at;
                let known = evaluators.len().checked_sub(1 + from_outermost);
                // An activation that is prepared has no evaluator yet.
                let prepared = (!evaluators.is_empty()).then_some(0);
                known.map(|at| evaluators[at]).or(prepared)
            }
            None => evaluators.get(at).copied(),
        };
        let place = place.filter(|place| *place >= least);
        least = place.unwrap_or(least);
        places.push(place);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(frames: &[(u64, bool)]) -> Vec<Native> {
        frames
            .iter()
            .map(|&(sp, evaluator)| {
                let preserved = [None; 6];
                Native { place: 0, generated: false, sp, evaluator, preserved, rdx: None }
            })
            .collect()
    }

    fn activation(anchor: Option<u64>, frames: Range<usize>) -> Activation {
        Activation { anchor, frames }
    }

    /// The merged stack as text: n1 for native frames, p1 for the language's.
    fn merged(native: &[Native], activations: &[Activation]) -> String {
        let mut out = Vec::new();
        merge(native, true, activations, &mut out);
        let word = |frame: &Merged| match frame {
            Merged::Native(index) => format!("n{index}"),
            Merged::Language(index) => format!("p{index}"),
        };
        out.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn anchors_say_which_native_frame_executes() {
        let stack = native(&[(10, false), (20, false), (30, false), (40, false), (50, false)]);
        let both = [activation(Some(25), 0..2), activation(Some(44), 2..3)];
        assert_eq!(merged(&stack, &both), "n0 n1 p0 p1 n2 n3 p2 n4");
        // The innermost evaluator has not begun, or ends.
        assert_eq!(merged(&stack, &both[1..]), "n0 n1 n2 n3 p2 n4");
        assert_eq!(merged(&stack, &[]), "n0 n1 n2 n3 n4");
    }

    #[test]
    fn without_anchors_frames_are_counted_from_the_outermost() {
        let stack = native(&[(1, true), (2, false), (3, true), (4, true), (5, false)]);
        let each = |n: usize| -> Vec<Activation> {
            (0..n).map(|at| activation(None, at..at + 1)).collect()
        };
        assert_eq!(merged(&stack, &each(3)), "n0 p0 n1 n2 p1 n3 p2 n4");
        assert_eq!(merged(&stack, &each(2)), "n0 n1 n2 p0 n3 p1 n4");
    }

    #[test]
    fn a_walk_that_ended_early_keeps_the_language_s_frames() {
        let stack = native(&[(10, false), (20, false), (30, false)]);
        let all = [activation(Some(15), 0..1), activation(Some(500), 1..3)];
        assert_eq!(merged(&stack, &all), "n0 p0 n1 n2 p1 p2");
        let (stack, mut out) = (native(&[(1, true), (2, false), (3, true)]), Vec::new());
        let each: Vec<Activation> = (0..3).map(|at| activation(None, at..at + 1)).collect();
        merge(&stack, false, &each, &mut out);
        let expected = [
            Merged::Native(0),
            Merged::Language(0),
            Merged::Native(1),
            Merged::Native(2),
            Merged::Language(1),
            Merged::Language(2),
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn contradictions_end_nowhere() {
        let stack = native(&[(10, true), (20, false), (5, true)]);
        let all = [activation(Some(22), 0..1), activation(Some(12), 1..2), activation(None, 2..3)];
        let mut out = Vec::new();
        merge(&stack, true, &all, &mut out);
        let natives = out.iter().filter(|frame| matches!(frame, Merged::Native(_))).count();
        assert_eq!(natives, 3);
        merge(&[], true, &all, &mut out);
        assert_eq!(out.len(), 3);
    }
}
