//! The integration tests of this package, in one program: they are linked once.

mod cpustat;
mod cputrack;
mod virtual_cpu;
