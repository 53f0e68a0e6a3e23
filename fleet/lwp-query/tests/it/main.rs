//! The integration tests of this package, in one program: they are linked once.

mod compaction;
mod damage;
mod rows;
mod trimmed;

/// What several of them use.
#[path = "../../../lwp-fleet/tests/it/shared"]
mod shared {
    pub mod facts;
}
