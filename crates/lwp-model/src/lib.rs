//! The Lightweight Profiling unit of a processor, as a model: plain, slow and obvious.
//!
//! Faster implementations (code emitted by a translator, say) are right when they leave the same
//! bytes in memory and the same state behind as this one. The model does no I/O, knows no time,
//! starts no thread and contains no unsafe code, needs an allocator and no operating system;
//! memory, interrupts, random bits and time stamps come in through the traits [`LinearMemory`] and
//! [`Signals`], faults go out as values.
//!
//! ```
//! use lwp_arch::lwpcb::{EventSlot, Lwpcb};
//! use lwp_arch::retired::Retired;
//! use lwp_arch::{AppPc, EventFlags, LinearAddr};
//! use lwp_model::{Cpu, LwpUnit, PagedMemory, Processor, Quiet};
//!
//! // A control block at 1000h: every second instruction, ring of 1024 bytes at 2000h.
//! let mut block = Lwpcb::default();
//! block.flags = EventFlags::IRE.bits().into();
//! block.set_buffer_size_random(1024, 0);
//! block.buffer_base = 0x2000.into();
//! let mut memory = PagedMemory::new();
//! memory.map(LinearAddr(0x1000), 0x2000);
//! memory.poke(LinearAddr(0x1000), &block.to_bytes());
//! memory.poke(LinearAddr(0x1000 + 128 + 8), &EventSlot::new(1, 1).to_bytes());
//!
//! let mut unit = LwpUnit::new(Processor::full());
//! unit.enable_everything();
//! let (cpu, mut signals) = (Cpu::user_64(), Quiet);
//! unit.llwpcb(&cpu, 0x1000, &mut memory, &mut signals)?;
//! for ip in [0x40_0000, 0x40_0001, 0x40_0002, 0x40_0003] {
//!     unit.retire(&cpu, &Retired::plain(AppPc(ip), AppPc(ip + 1)), &mut memory, &mut signals)?;
//! }
//! assert_eq!(memory.peek_u32(LinearAddr(0x1010)), 64, "two records of 32 bytes");
//! assert_eq!(memory.peek(LinearAddr(0x2000), 1), [2], "EventId of the first");
//! # Ok::<(), lwp_arch::Fault>(())
//! ```
//!
//! # Reading order
//!
//! [`LwpUnit::retire`] is the centre: count, gather, store, reset. `count` has the counters,
//! `eligible` the filters, `deliver` the ring. [`LwpUnit::llwpcb`] starts a profile,
//! [`LwpUnit::slwpcb`] flushes it, [`LwpUnit::lwpins`] and [`LwpUnit::lwpval`] insert records,
//! [`LwpUnit::execute`] runs any of the four from a decoded instruction. `bulk` lets many
//! instructions pass at once, `direct` lets records be stored elsewhere. `system` has CPUID, MSRs,
//! XSAVE and what surrounds a context switch. On it stand [`LwpUnit::take_thread`] and
//! [`LwpUnit::give_thread`], for an operating system, and [`Guest`], for a hypervisor; `examples/`
//! plays both.
//!
//! If the documents leave something open, the model takes one way and says so, with the number of
//! the choice in `docs/deviations.md`. If they allow several, [`Policy`] selects.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bulk;
mod count;
mod cpu;
mod deliver;
mod direct;
mod eligible;
mod execute;
mod guest;
mod insert;
mod llwpcb;
mod memory;
mod policy;
mod processor;
mod random;
mod signals;
mod slwpcb;
mod staged;
mod state;
mod switch;
mod system;
mod unit;

pub use bulk::{IpRange, Occurrences, Watched};
pub use cpu::{Cpu, DataSegment, Mode};
pub use direct::{Direct, Loaded};
pub use execute::Registers;
pub use guest::{Guest, common};
pub use insert::{Data1, Insert};
pub use memory::{LinearMemory, PagedMemory};
pub use policy::{HeadPublication, OnFault, Policy, Simultaneous};
pub use processor::{Processor, Proposal, Shipped};
pub use random::Xorshift32;
pub use signals::{Quiet, Seeded, Signals};
pub use state::{ProfileStateV1, Progress2007, SlotStateV1, StateError, UnitStateV1, Volatile2007};
pub use switch::ThreadState;
pub use unit::{LwpUnit, Retirement};
