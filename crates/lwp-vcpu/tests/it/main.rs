//! Whole programs, run by the library.
#![allow(clippy::disallowed_methods, reason = "tests open what they have made")]

mod contexts;
