//! The translator: application code in, instrumented fragments out.
//!
//! The translator knows nothing of processes. It reads application bytes through [`CodeSource`],
//! writes translated bytes through [`CodeSink`], and keeps what it has translated of one module in
//! a [`Unit`]. The same bytes, plan and addresses always give the same output.
//!
//! Reading order: [`context`] (what emitted code may touch), [`block`] (finding a basic block),
//! [`emit`] (the rules), [`region`] (which blocks are translated together), [`state_map`] (what the
//! application's registers are at any translated instruction), [`routines`] (the mailbox),
//! [`image`] (a unit as bytes, for another run).
#![forbid(unsafe_code)]

pub mod addr;
// Of the build script; tests compare with what it has made.
#[cfg(test)]
mod assembly;
pub mod block;
pub mod code_cache;
pub mod context;
pub mod counters;
pub mod emit;
pub mod execution_profile;
pub mod executions;
pub mod flags;
pub mod fragment;
pub mod freeze;
pub mod image;
pub mod marker;
mod marks;
pub mod operands;
mod overlays;
mod packed;
mod paths;
mod pieces;
pub mod plan;
mod points;
mod prepared;
mod rebuild;
mod recovery;
pub mod region;
pub mod relocation;
pub mod routines;
pub mod state_map;

pub use addr::{AppPc, CachePc};
pub use block::CodeSource;
pub use code_cache::CodeCache;
pub use context::{
    Layout, NO_PROCESSOR, PROCESSOR_SEGMENT, RequestKind, Slot, counter_index, trace,
};
pub use counters::Counters;
pub use emit::HEAD;
pub use emit::transfer_stores;
pub use execution_profile::{BlockProfile, ExecutionProfile, Targets};
pub use executions::Execution;
pub use fragment::{Changing, Entry, EntryId, Fragment, FragmentId, Neighbour, Unit, Within};
pub use image::{CodeTarget, Image, ImageError, Placement};
pub use marks::{Marks, Value, ValueBase};
pub use plan::{Checks, EventDeltas, IpFilter, Lwp, Plan, Role, Selection};
pub use rebuild::{Knowledge, Rebuilt, WELL, hot_paths, rebuild};
pub use recovery::{FLAGS, flags_again};
pub use region::{
    Candidate, CodeSink, Destination, Queue, Region, RegionLimits, Translator, close_overlays,
    countdown_of, deltas_of, overlay_path, reopen_overlays,
};
pub use state_map::{AppState, Commit, FlagWriter, PcSource, Remainder, Spills};

/// A hash of this crate's source and of the version of the decoder it uses: images are only as good
/// as the translator that made them.
pub const VERSION: u64 = source_hash();

/// The number that the build script has left, in decimal.
const fn source_hash() -> u64 {
    let digits = env!("LWP_DBT_SOURCE_HASH").as_bytes();
    let mut value = 0u64;
    let mut at = 0;
    while at < digits.len() {
        value = value.wrapping_mul(10).wrapping_add((digits[at] - b'0') as u64);
        at += 1;
    }
    value
}
