//! The integration tests of this package, in one program: they are linked once.

mod action;
mod bucket;
mod compare;
mod duckdb;
mod faults;
mod foreign;
mod history;
mod killed;
mod log;
mod pages;
mod push;
mod questions;
mod raw;
mod retention;
mod serve;
mod stalled;
mod sums;
mod views;
mod walk;

/// What several of them use.
mod shared {
    pub mod bucket;
    #[path = "../../../../../crates/lwp-page/tests/it/shared/driver.rs"]
    #[allow(dead_code, reason = "other packages use the rest")]
    pub mod driver;
    pub mod facts;
    pub mod hostile;
    pub mod http;
    pub mod recorder;
    pub mod store;
}
