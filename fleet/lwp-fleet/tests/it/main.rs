//! The integration tests of this package, in one program: they are linked once.

mod action;
mod bucket;
mod duckdb;
mod faults;
mod foreign;
mod killed;
mod log;
mod pages;
mod push;
mod questions;
mod raw;
mod retention;
mod serve;
mod sums;
mod views;
mod walk;

/// What several of them use.
mod shared {
    #[path = "../../../../../crates/lwp-page/tests/it/shared/driver.rs"]
    pub mod driver;
    pub mod bucket;
    pub mod facts;
    pub mod http;
    pub mod recorder;
    pub mod store;
}
