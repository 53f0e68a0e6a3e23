//! The chain of frames of a thread.

use crate::Memory;
use crate::merge::Activation;
use crate::python::layout::{Chain, Layout, SHIM};

/// Most frames of a thread; those further out are left out.
const DEEPEST: usize = 1024;

/// `PyThreadState` of 3.10 has fewer bytes, and no stack is so near to it.
pub const STATE_BYTES: u64 = 512;

/// Places in `_PyCFrame` of 3.11: the innermost frame, and the one before.
pub const OF_CFRAME: [u64; 2] = [8, 16];

/// A frame as it stands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw {
    /// The code object.
    pub code: u64,
    /// The instruction: an index to 3.10, an address from 3.11 on.
    pub instruction: u64,
}

/// Reads the frames of a thread whose `states` these are, one for each interpreter: all frames,
/// innermost first, and what each activation of the evaluator executes.
pub fn read(
    layout: &Layout,
    states: &[u64],
    memory: &mut dyn Memory,
) -> (Vec<Raw>, Vec<Activation>) {
    let mut parts: Vec<_> = states
        .iter()
        .map(|&state| {
            let mut reader = Reader::new(layout, memory);
            reader.read(state);
            reader.finish()
        })
        .filter(|(frames, _)| !frames.is_empty())
        .collect();
    // The stack grows downwards. Where nothing lies on it, a newer interpreter, which stands before
    // older ones, is executed by those.
    let place = |activations: &[Activation]| activations.iter().find_map(|it| it.anchor);
    if parts.iter().all(|(_, activations)| place(activations).is_some()) {
        parts.sort_by_key(|(_, activations)| place(activations));
    }
    let (mut all, mut activations) = (Vec::new(), Vec::new());
    for (frames, of_part) in parts {
        let begin = all.len();
        all.extend(frames.into_iter().take(DEEPEST - begin));
        let moved = |end: usize| all.len().min(begin + end);
        let of_part = of_part.into_iter().map(|Activation { anchor, frames }| Activation {
            anchor,
            frames: moved(frames.start)..moved(frames.end),
        });
        activations.extend(of_part.filter(|it| !it.frames.is_empty()));
    }
    (all, activations)
}

/// Reads frames.
struct Reader<'m> {
    layout: &'m Layout,
    memory: &'m mut dyn Memory,
    frames: Vec<Raw>,
    activations: Vec<Activation>,
}

impl<'m> Reader<'m> {
    /// A reader that has read nothing.
    fn new(layout: &'m Layout, memory: &'m mut dyn Memory) -> Self {
        Self { layout, memory, frames: Vec::new(), activations: Vec::new() }
    }

    /// Reads the frames of the thread whose state is at `state`.
    fn read(&mut self, state: u64) {
        // `None` is the chain's end, or something that cannot be read.
        let _ = match self.layout.chain {
            Chain::Objects | Chain::ObjectsOnStack => self.objects(state),
            Chain::Marked => self.marked(state),
            Chain::ShimsByStack | Chain::Shims => self.shims(state),
        };
    }

    /// Frames innermost first, and what each activation of the evaluator executes.
    fn finish(self) -> (Vec<Raw>, Vec<Activation>) {
        (self.frames, self.activations)
    }

    fn pointer(&mut self, base: u64, offset: u64) -> Option<u64> {
        self.memory.pointer(base.checked_add(offset)?)
    }

    fn push(&mut self, frame: u64) -> Option<()> {
        let at = self.layout.frame;
        let mut code = self.pointer(frame, at.code)?;
        let instruction = match self.layout.chain {
            // An index of 32 bits, -1 before the first instruction.
            Chain::Objects | Chain::ObjectsOnStack => {
                u64::from(self.memory.half(frame.checked_add(at.instruction)?)?)
            }
            _ => self.memory.word(frame.checked_add(at.instruction)?)?,
        };
        if self.layout.chain == Chain::Shims {
            // From 3.14 on, the lowest bits say how the reference is counted.
            code &= !7;
        }
        self.frames.push(Raw { code, instruction });
        Some(())
    }

    /// Ends an activation that began with the frame of this index.
    fn end(&mut self, first: usize, anchor: Option<u64>) {
        let frames = first..self.frames.len();
        if !frames.is_empty() {
            self.activations.push(Activation { anchor, frames });
        }
    }

    fn objects(&mut self, state: u64) -> Option<()> {
        let mut frame = self.pointer(state, self.layout.thread.frame);
        while let Some(at) = frame.filter(|_| self.frames.len() < DEEPEST) {
            let first = self.frames.len();
            if self.push(at).is_none() {
                break;
            }
            self.end(first, None);
            frame = self.pointer(at, self.layout.frame.previous);
        }
        // Each `CFrame` has the one before behind a word. The outermost, which is no activation's,
        // is a part of the thread's state, and what it has there may be anything.
        let own = state..state.saturating_add(STATE_BYTES);
        let mut next = self.pointer(state, self.layout.thread.stack?);
        let mut anchors = Vec::new();
        while let Some(at) = next.filter(|at| anchors.len() <= DEEPEST && !own.contains(at)) {
            anchors.push(at);
            next = self.pointer(at, 8);
        }
        if self.frames.len() < DEEPEST {
            // The innermost activation may not have its frame yet.
            let places = self.activations.iter_mut().rev().zip(anchors.into_iter().rev());
            places.for_each(|(activation, anchor)| activation.anchor = Some(anchor));
        }
        Some(())
    }

    fn marked(&mut self, state: u64) -> Option<()> {
        let [current, before] = OF_CFRAME;
        let mut anchor = self.pointer(state, self.layout.thread.frame)?;
        let mut first = 0;
        let mut frame = self.pointer(anchor, current)?;
        while self.frames.len() < DEEPEST {
            self.push(frame)?;
            let entry = self.memory.byte(frame.checked_add(self.layout.frame.owner)?)?;
            if entry != 0 {
                self.end(first, Some(anchor));
                first = self.frames.len();
                anchor = self.pointer(anchor, before)?;
            }
            frame = self.pointer(frame, self.layout.frame.previous)?;
        }
        self.end(first, Some(anchor));
        Some(())
    }

    fn shims(&mut self, state: u64) -> Option<()> {
        let mut at = self.pointer(state, self.layout.thread.frame)?;
        if self.layout.chain == Chain::ShimsByStack {
            // `_PyCFrame` of 3.12 begins with the innermost frame.
            at = self.pointer(at, 0)?;
        }
        let mut first = 0;
        // Between two frames there may be a shim.
        for _ in 0..2 * DEEPEST {
            let owner = self.memory.byte(at.checked_add(self.layout.frame.owner)?)?;
            if owner >= SHIM {
                self.end(first, Some(at));
                first = self.frames.len();
            } else if self.frames.len() == DEEPEST || self.push(at).is_none() {
                break;
            }
            match self.pointer(at, self.layout.frame.previous) {
                Some(previous) => at = previous,
                None => break,
            }
        }
        self.end(first, None);
        Some(())
    }
}
