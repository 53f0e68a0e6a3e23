//! The integration tests of this package, in one program: they are linked once.

mod machine;
mod rings;
mod scripted;
