//! Calling contexts of a thread, from the transfers between its functions.
//!
//! A [`Tree`] takes one [`Transfer`] after the other. It keeps the frames that have not returned, by
//! where their return addresses lie, and adds the instructions between two transfers to the context
//! of the innermost frame.
//!
//! ```text
//! transfers           frames                     contexts
//! call main -> f      main, f                    main ── f ── h
//! call f -> h         main, f, h                   └──── g
//! return              main, f
//! longjmp             main           frames whose return address lies below the
//! call main -> g      main, g        stack pointer are gone
//! ```
//!
//! A program decides what its stack pointer is, so nothing here relies on it: an odd one leads to
//! odd contexts, and to nothing else.

#![forbid(unsafe_code)]

mod frames;
mod node;
mod tree;

pub use tree::{Context, Kind, Tree};

/// How control leaves a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// By a call.
    Call,
    /// By a return.
    Return,
    /// By a jump that may lead to another function.
    Jump,
}

/// A call, a return, or a jump that may lead to another function.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// How control leaves.
    pub leave: Leave,
    /// The stack pointer before.
    pub stack: u64,
    /// The number of instructions that the thread has executed with it, modulo 2^64.
    pub instructions: u64,
    /// The last byte of the instruction.
    pub site: u64,
    /// Where it leads.
    pub target: u64,
    /// A number for site and target, if they always go together, and nobody else has it; below
    /// 2^31.
    pub edge: Option<u32>,
}

/// A function, as far as contexts go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its first address.
    pub start: u64,
    /// True if it is none of the program's own doing: a stub of a linkage table or the dynamic
    /// linker's resolver. What it jumps to was called by its caller.
    pub transparent: bool,
    /// True if it leads to the dynamic linker's resolver, whatever that is called.
    pub binds: bool,
}

/// Finds functions.
pub trait Functions {
    /// The function at `address`.
    fn at(&mut self, address: u64) -> Function;
}
