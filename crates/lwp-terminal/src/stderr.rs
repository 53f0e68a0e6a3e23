//! Standard error, for what nobody reads by program.

use std::fmt::Arguments;
use std::io::{self, Write};

use crate::escape::lines;

/// Writes one line to standard error; see [`crate::say!`].
pub fn say_line(line: Arguments<'_>) {
    let mut text = line.to_string();
    text.push('\n');
    // Nobody is left to be told.
    let _ = say_text(&text);
}

/// Writes text of several lines to standard error, without control characters. A reader that has
/// gone is no error.
///
/// # Errors
///
/// Standard error cannot be written.
pub fn say_text(text: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    match stderr.write_all(lines(text).as_bytes()).and_then(|()| stderr.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
