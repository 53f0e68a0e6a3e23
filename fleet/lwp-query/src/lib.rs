//! Questions to a store of recordings.
//!
//! A [`Session`] sees one version of a store from beginning to end. It has a table for each kind of
//! row and views on them; SQL asks them ([`Session::ask`]), and so do the canned questions:
//! [`report`], [`history`], [`compare`], [`steps`], [`flame`].
#![forbid(unsafe_code)]

pub mod chance;
mod changes;
pub mod check;
pub mod comment;
pub mod compact;
pub mod compare;
mod conditions;
mod error;
pub mod events;
pub mod expire;
mod filter;
pub mod flame;
pub mod history;
pub mod json;
mod measure;
pub mod number;
mod order;
mod output;
mod place;
mod remote;
mod renames;
pub mod report;
mod rollup;
mod session;
mod step;
pub mod steps;
mod table;
mod texts;
mod threads;
mod totals;
pub mod views;

pub use conditions::with_shared_conditions;
pub use error::{Error, Result, is_disk_full};
pub use filter::{Filter, matches, moment};
pub use measure::Measure;
pub use output::{Format, render};
pub use place::Place;
pub use remote::Remote;
pub use session::{Budget, Rows, Session};
pub use step::{Step, Value, steps_in};
pub use table::{KindTable, schema_of};
