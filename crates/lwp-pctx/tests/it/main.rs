//! The integration tests of this package, in one program: they are linked once.

mod interface;
mod virtual_cpu;
