//! The integration tests of this package, in one program: they are linked once.

mod compaction;
mod damage;
mod joins;
mod rows;
mod texts;
mod trimmed;

/// What several of them use.
#[path = "../../../lwp-fleet/tests/it/shared"]
mod shared {
    #[allow(dead_code, reason = "other packages use the rest")]
    pub mod facts;
}
