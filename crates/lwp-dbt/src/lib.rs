//! The translator: application code in, instrumented fragments out.
//!
//! It knows no process. It reads application bytes through [`CodeSource`], writes translated bytes
//! through [`CodeSink`], and keeps what it has translated of one module in a [`Unit`]. The same bytes,
//! plan and addresses always give the same output.
//!
//! Reading order: [`context`] (what emitted code may touch), [`block`] (finding a basic block),
//! [`emit`] (the rules), [`region`] (which blocks are translated together), [`recipe`] (what the
//! application's registers are at any translated instruction), [`routines`] (the mailbox).
#![forbid(unsafe_code)]

pub mod addr;
pub mod block;
pub mod context;
pub mod emit;
pub mod flags;
pub mod fragment;
mod pieces;
pub mod plan;
pub mod recipe;
pub mod region;
pub mod routines;

pub use addr::{AppPc, CachePc};
pub use block::CodeSource;
pub use context::{Layout, RequestKind, Slot};
pub use fragment::{Entry, EntryId, Fragment, FragmentId, Unit};
pub use plan::{Checks, Plan, Role, Weights};
pub use recipe::{AppState, Commit, PcSource, Spills};
pub use region::{CodeSink, Region, RegionLimits, Translator};
