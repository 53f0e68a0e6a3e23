//! Calling contexts as a recording keeps them.
//!
//! A program has far fewer places that call a function than contexts in which they do so: these
//! *edges* are kept once, and a context is its caller, an edge and two counts.

use rustc_hash::FxHashMap;

use crate::forest::Place;
use crate::wire::{Input, Output, WireError};

/// How control came into a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ContextKind {
    /// The thread began there, or the program did.
    #[default]
    Root = 0,
    /// By a call.
    Call = 1,
    /// By a jump from another function: a tail call.
    Jump = 2,
    /// By a signal that interrupted the caller.
    Signal = 3,
    /// It stands for contexts that there was no room for.
    Merged = 4,
}

impl ContextKind {
    /// The kind with this number; unknown ones read as [`Self::Call`].
    pub fn from_raw(raw: u64) -> Self {
        match raw {
            0 => Self::Root,
            2 => Self::Jump,
            3 => Self::Signal,
            4 => Self::Merged,
            _ => Self::Call,
        }
    }
}

/// A way into a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContextEdge {
    /// How control came there.
    pub kind: ContextKind,
    /// The last byte of the call or jump, or the instruction that a signal interrupted.
    pub site: Option<Place>,
    /// The first instruction of what was called.
    pub entry: Place,
}

/// A function as it was called along one path of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedContext {
    caller: u32,
    edge: u32,
    calls: u64,
    instructions: u64,
}

/// A caller that no context has.
const NONE: u32 = u32::MAX;

impl RecordedContext {
    /// The index of the context that it was called from: always a smaller one.
    pub fn caller(&self) -> Option<u32> {
        (self.caller != NONE).then_some(self.caller)
    }

    /// The index of its edge.
    pub fn edge(&self) -> usize {
        self.edge as usize
    }

    /// How often it was entered.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The instructions that were executed in it, without what it called.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }
}

/// The calling contexts of a thread, callers before what they call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedContexts {
    edges: Vec<ContextEdge>,
    contexts: Vec<RecordedContext>,
}

impl RecordedContexts {
    /// Contexts by caller, edge, number of calls and instructions. One whose caller does not come
    /// before it has none.
    pub fn gather(
        contexts: impl IntoIterator<Item = (Option<u32>, ContextEdge, u64, u64)>,
    ) -> Self {
        let mut numbers: FxHashMap<ContextEdge, u32> = FxHashMap::default();
        let mut gathered = Self::default();
        for (caller, edge, calls, instructions) in contexts {
            let next = gathered.edges.len() as u32;
            let number = *numbers.entry(edge).or_insert(next);
            if number == next {
                gathered.edges.push(edge);
            }
            let before = |caller: &u32| (*caller as usize) < gathered.contexts.len();
            let caller = caller.filter(before).unwrap_or(NONE);
            gathered.contexts.push(RecordedContext { caller, edge: number, calls, instructions });
        }
        gathered
    }

    /// Returns true if none were measured.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// The contexts.
    pub fn contexts(&self) -> &[RecordedContext] {
        &self.contexts
    }

    /// The ways into functions, by number.
    pub fn edges(&self) -> &[ContextEdge] {
        &self.edges
    }

    /// All instructions that were executed in them.
    pub fn instructions(&self) -> u64 {
        self.contexts.iter().fold(0, |sum, one| sum.saturating_add(one.instructions))
    }

    /// Gives modules other numbers.
    pub(crate) fn renumber(&mut self, moved: impl Fn(Option<u32>) -> Option<u32>) {
        for edge in &mut self.edges {
            edge.entry.0 = moved(edge.entry.0);
            if let Some(site) = &mut edge.site {
                site.0 = moved(site.0);
            }
        }
    }

    pub(crate) fn write(&self, output: &mut Output) {
        output.number(self.edges.len() as u64);
        let mut last = [0u64; 2];
        for edge in &self.edges {
            output.number(edge.kind as u8 | u8::from(edge.site.is_some()) << 3);
            let places = edge.site.iter().zip([1]).chain([(&edge.entry, 0)]);
            for (&(module, address), which) in places {
                output.number(module.map_or(0, |module| u64::from(module) + 1));
                output.signed(address.wrapping_sub(last[which]) as i64);
                last[which] = address;
            }
        }
        output.number(self.contexts.len() as u64);
        for (index, context) in (0u32..).zip(&self.contexts) {
            // Callers come just before as a rule; 0 stands for none.
            output.number(context.caller().map_or(0, |caller| index - caller));
            output.number(context.edge);
            output.number(context.calls);
            output.number(context.instructions);
        }
    }

    pub(crate) fn read(input: &mut Input<'_>) -> Result<Self, WireError> {
        let mut read = Self::default();
        let mut last = [0u64; 2];
        for _ in 0..input.number()? {
            let head = input.number()?;
            let mut place = |which: usize| -> Result<Place, WireError> {
                let module: u64 = input.number()?;
                let module = module.checked_sub(1).and_then(|module| u32::try_from(module).ok());
                last[which] = last[which].wrapping_add(input.signed()? as u64);
                Ok((module, last[which]))
            };
            let site = if head & 8 == 0 { None } else { Some(place(1)?) };
            let (kind, entry) = (ContextKind::from_raw(head & 7), place(0)?);
            read.edges.push(ContextEdge { kind, site, entry });
        }
        for index in 0..input.number()? {
            let at = input.position();
            let (back, edge): (u64, u32) = (input.number()?, input.narrow()?);
            let (calls, instructions) = (input.number()?, input.number()?);
            // Who called comes before, and was entered by an edge that is there.
            let caller = match back {
                0 => NONE,
                _ => index.checked_sub(back).ok_or(WireError::Range { at })? as u32,
            };
            if edge as usize >= read.edges.len() {
                return Err(WireError::Range { at });
            }
            read.contexts.push(RecordedContext { caller, edge, calls, instructions });
        }
        Ok(read)
    }
}
