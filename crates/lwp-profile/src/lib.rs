//! Recordings and profiles.
//!
//! A *recording* is bytes on disk: what a run of a program has executed, as it was learnt, in
//! chunks that are only ever appended ([`Writer`], [`Recording`]). A *profile* is the model in
//! memory ([`Profile`]): functions, lines, stacks and calls with counts per event, which can be
//! merged and compared. In between lies symbolization, which is another crate's task.
//!
//! The format of recordings is described in `docs/recording-format.md`.
#![forbid(unsafe_code)]

mod arrange;
mod builder;
pub mod chunk;
mod circles;
mod comparable;
mod contexts;
mod course;
mod dangling;
mod decode;
pub mod diff;
mod encode;
mod forest;
mod graph;
mod inclusive;
mod inlined;
mod join;
mod located;
mod measured;
mod merge;
pub mod model;
mod moved_lines;
mod names;
mod native;
mod paths;
mod processes;
mod profile;
mod recording;
mod run;
pub mod sampled;
mod shapes;
mod stacks;
mod tally;
mod tree;
mod wire;

pub use builder::{Builder, Renumbered, StackKey};
pub use chunk::{Kind, ReadError};
pub use comparable::Difference;
pub use contexts::{ContextEdge, ContextKind, RecordedContext, RecordedContexts};
pub use course::{Course, Lane, Part};
pub use encode::Writer;
pub use forest::{Bits, Forest, FrameSamples, Place};
pub use graph::{CallGraph, Callee, Caller, Edge};
pub use inclusive::Inclusive;
pub use located::{Located, LocatedStack};
pub use measured::{Measured, MeasuredCall, Neighbours, Unequal};
pub use merge::MergeError;
pub use model::Modelled;
pub use names::{NamedCode, NamedFrame, NamedRange, NamedSegment, RecordedNames};
pub use paths::{is_shared_library, path_of_bytes, path_text};
pub use profile::{
    Call, CallKind, Code, Context, Event, Frame, Function, FunctionId, Location, LocationId, Mode,
    Module, ModuleId, Origin, Profile, Sample, Stack, StackId, Thread, ThreadId, Values,
};
pub use recording::{
    Block, BlockCount, BlockEnd, Image, Mapping, RecordedFile, RecordedFrame, RecordedJump,
    RecordedMisses, RecordedModule, RecordedSample, RecordedSymbol, Recording, SampledEvent,
    ThreadExecutions,
};
pub use run::{Run, sort as sort_samples};
pub use sampled::{Sampled, Samples, Taken};
pub use shapes::{NOWHERE, Placed};
pub use stacks::{Inferred, InferredStack};
pub use tree::{Contexts, Growing, Node, Shape, Tree};
