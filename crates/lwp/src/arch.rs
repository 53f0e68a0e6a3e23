//! LWP as the processor has it: detection, control block, ring, instructions.
//!
//! [`Lwp::detect`] asks the processor; everything else starts from what it returns. A [`Profile`]
//! owns a control block and its ring; [`Profile::start`] makes it the one of the calling thread. A
//! [`Reader`] takes the records out, on any thread, while the profile runs or after. Threads do not
//! share profiles: a profile runs on the thread that started it, a thread runs one profile at a
//! time.
//!
//! [`Active`] is below that: a control block of the caller's own making.
//!
//! Records and events are those of [`lwp_arch`].

pub use lwp_arch::cpuid::Capabilities;
pub use lwp_arch::filters::Filters;
pub use lwp_arch::record::Event;
pub use lwp_arch::{AppPc, EventFlags, EventId, EventKind, Record, Revision, RingOffset};

pub use crate::block::ProfileBuilder;
pub use crate::detect::Lwp;
pub use crate::drain::{Drain, Reader};
pub use crate::error::Error;
pub use crate::insn::{Active, Shared};
pub use crate::profile::{Profile, Running};
