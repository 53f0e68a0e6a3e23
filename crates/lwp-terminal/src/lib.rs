//! Text for terminals: without control characters, written without panics.
//!
//! Names of programs, threads, files, functions and events come from programs and recordings, and
//! can be anything. Whoever puts one into a line passes it through [`escape::printable`], or
//! through the function for the format that is written. [`Plain`] and [`say!`] stand behind that as
//! the last door: a control character that got so far is replaced there, line ends and tabs left
//! alone.
//!
//! `print!` and its relatives panic where the other end is closed or full. Nothing here does.
#![forbid(unsafe_code)]

pub mod escape;
mod plain;
mod stderr;

pub use plain::Plain;
pub use stderr::{say_line, say_text};

/// Says a line on standard error, as `eprintln!` does, but without control characters and without a
/// panic.
///
/// The line is written at once, so that lines of several threads do not mix. A line that cannot be
/// written is lost: there is nowhere to say so.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::say_line(::core::format_args!($($argument)*)) };
}
