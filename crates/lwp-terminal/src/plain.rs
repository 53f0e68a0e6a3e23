//! The writer behind which no control character is left.

use std::io::{self, Write};

use crate::escape::lines;

/// A writer of text that replaces control characters, line ends and tabs left alone.
///
/// Each call of `write` must be given whole characters, as `write!` and `write_all` of a string do.
/// Bytes that are no UTF-8 are replaced too.
#[derive(Debug)]
pub struct Plain<W: Write>(W);

impl<W: Write> Plain<W> {
    /// Text that goes to `inner`.
    pub fn new(inner: W) -> Self {
        Self(inner)
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_get_through() {
        let mut out = Plain::new(Vec::new());
        writeln!(out, "a\tb").unwrap();
        write!(out, "\u{1b}[2J\u{9b}\u{202e}é").unwrap();
        out.write_all(b"\x9b1m\xff").unwrap();
        let text = String::from_utf8(out.0).unwrap();
        assert_eq!(text, "a\tb\n\u{fffd}[2J\u{fffd}\u{fffd}é\u{fffd}1m\u{fffd}");
    }
}
