//! The integration tests of this package, in one program: they are linked once.

mod calls;
mod common;
mod differential;
mod golden;
mod image;
mod structure;
