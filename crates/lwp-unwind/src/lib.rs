//! Call stacks of another process, unwound from outside.
//!
//! A stack is walked with the unwind tables of the files that are mapped (`.eh_frame`,
//! `.debug_frame`), read by [`gimli`]. All sixteen general registers take part, because
//! hand-written code and functions that align their stack keep the frame's address in others than
//! rsp and rbp: the dynamic linker's resolver in rbx, the prologues of realigned functions in r10.
//! What an instruction's table row says is kept per file and address, so that a walk over known
//! code is a few memory look-ups a frame.
//!
//! Code that a compiler makes at run time has tables if the program writes them into a jitdump file
//! ([`Generated`]). Code without tables is walked by the frame pointer; stubs that return within a
//! few instructions are left as these say.
//!
//! The crate reads neither processes nor mappings: it is given both ([`Memory`], [`CodeRange`]).
#![forbid(unsafe_code)]

mod expression;
mod generated;
mod image;
mod leaving;
mod row;
mod walk;

pub use generated::{Generated, Source};
pub use image::Image;
pub use row::{RBP, RBX, RDX, RIP, RSP};
pub use walk::{CodeRange, Ending, Frame, Memory, Registers, Unwinder};
