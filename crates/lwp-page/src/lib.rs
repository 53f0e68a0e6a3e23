//! Recordings as pages in a browser.
//!
//! The server makes whole pages of HTML and SVG, which work without scripts; one script adds keys,
//! dragging and faster turning of pages. Nothing is loaded from elsewhere. A page shows a
//! [`Subject`], which is one recording or the sum of many, wherever they come from: views know
//! nothing of files. What is looked at, a thread or a span of time, is a [`Selection`]; what it
//! leaves, a [`Picked`], is made once and shared by all views.
#![forbid(unsafe_code)]

mod adding;
mod behind;
mod cells;
mod clock;
mod connections;
mod export;
mod forms;
mod key;
mod loaded;
#[cfg(test)]
mod parts;
mod picked;
mod picture;
mod request;
mod selection;
mod server;
mod shell;
mod subject;
mod views;

pub use behind::Behind;
pub use key::Key;
pub use loaded::{Maps, load};
pub use lwp_symbols::Language;
pub use picked::{By, Picked, Shape, Shaped};
pub use request::{Query, Request, Shelf, View};
pub use selection::{Selection, Who};
pub use server::{POLICY, Pages, Reply, Server, answer, fixed, protect, router, token};
pub use shell::Frame;
pub use subject::{Label, Lane, Material, Subject};
