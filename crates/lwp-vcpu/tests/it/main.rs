//! Whole programs, run by the library.

mod contexts;
