//! The integration tests of this package, in one program: they are linked once.

mod answers;
mod bucket;
mod lost;
mod walk;

/// What several of them use.
mod shared {
    #[path = "../../../../lwp-fleet/tests/it/shared/bucket.rs"]
    #[allow(dead_code, reason = "other packages use the rest")]
    pub mod bucket;
    pub mod cluster;
}
