//! Output of rows: one write(2) a row, so that rows of several processes do not mix.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lwp_terminal::escape::lines;

use crate::failure::Failure;

/// O_APPEND, which the standard library does not take together with O_TRUNC.
const APPEND: i32 = rustix::fs::OFlags::APPEND.bits().cast_signed();

/// The place of the rows. Copies of the process write to the same place.
#[derive(Debug)]
pub struct Output {
    file: File,
    broken: Option<io::Error>,
}

impl Output {
    /// Standard output, or the file `path`, emptied.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let file = match path {
            None => {
                let stdout: OwnedFd = io::stdout()
                    .as_fd()
                    .try_clone_to_owned()
                    .map_err(|error| Failure::new(format!("standard output: {error}")))?;
                File::from(stdout)
            }
            Some(path) => {
                // Rows of followed children are appended by other processes. A pipe is opened once:
                // its reader may be gone the next time.
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).custom_flags(APPEND);
                let failure = |error| Failure::new(format!("{}: {error}", path.display()));
                options.open(path).map_err(failure)?
            }
        };
        Ok(Self { file, broken: None })
    }

    /// Writes one row or several lines that belong together.
    pub fn write(&mut self, text: &str) {
        if self.broken.is_none() {
            self.broken = self.file.write_all(lines(text).as_bytes()).err();
        }
    }

    /// Returns whether a row could not be written: nobody reads any more, or the disk is full.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Returns whether every row was written, as far as somebody wanted to read it.
    ///
    /// # Errors
    ///
    /// A row could not be written.
    pub fn finish(&self) -> Result<(), Failure> {
        match &self.broken {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("rows cannot be written: {error}")))
            }
            _ => Ok(()),
        }
    }
}
