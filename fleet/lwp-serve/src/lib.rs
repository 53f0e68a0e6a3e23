//! A server for a store of recordings: it takes facts in, answers questions, and shows pages.
//!
//! A recording is answered with 201 when it is on the disk and in the log, not before. Whoever asks
//! shows a token, which the store knows by its hash alone. What one request may take, and all of
//! them together, is limited: who comes when everything is taken is told to come again.
#![forbid(unsafe_code)]

mod access;
mod api;
mod asking;
mod ingest;
mod keyring;
mod metrics;
mod pages;
mod places;
mod refusal;
mod routes;
mod server;
mod site;
mod spool;
mod subjects;
mod tokens;
pub mod worker;
mod workers;
mod writer;

pub use keyring::{Keyring, Silent};
pub use server::{Error as ServerError, Limits, Server, Settings};
pub use tokens::{Scope, Token, Tokens, day_after, secret};
pub use workers::Program;
