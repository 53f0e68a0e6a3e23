//! Calling contexts of a thread: the rules by which transfers between functions lead from one to
//! another.
//!
//! A [`Tree`] has the contexts, and [`Stacks`] the frames that have not returned, by where their
//! return addresses lie. A thread makes most transfers itself; what it does not know is asked here.
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

mod stacks;
mod tree;

pub use stacks::{Frame, Place, REACH, Stack, Stacks};
pub use tree::{Context, Kind, Led, Tree};

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
