//! The integration tests of this package, in one program: they are linked once.

mod browser;
mod http;

/// What several of them use.
mod shared {
    pub mod driver;
    pub mod subjects;
}
