//! The recording behind a subject, for what pages do not keep of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lwp_profile::{Profile, ReadError, Recording};
use lwp_symbols::Options;

/// A recording that can be had again.
#[derive(Clone, Debug)]
pub enum Behind {
    /// It is in memory.
    Memory(Arc<Recording>, Options),
    /// It is read again: the stacks of a large one need much more memory than pages do.
    File(Arc<File>, Options),
}

impl Behind {
    /// The recording.
    ///
    /// # Errors
    ///
    /// If the file cannot be read any more.
    pub fn recording(&self) -> Result<Arc<Recording>, ReadError> {
        match self {
            Self::Memory(recording, _) => Ok(Arc::clone(recording)),
            Self::File(file, _) => {
                let reader = io::BufReader::with_capacity(1 << 20, From::start(file));
                Recording::read(reader).map(Arc::new)
            }
        }
    }

    /// The profile of `recording`, which is this one, with every stack.
    pub fn profile(&self, recording: &Recording) -> Profile {
        let (Self::Memory(_, options) | Self::File(_, options)) = self;
        lwp_symbols::profile(recording, options).profile
    }
}

/// A file from its start, whoever else reads it.
#[derive(Debug)]
pub struct From {
    file: Arc<File>,
    at: u64,
}

impl From {
    /// All of `file`.
    pub fn start(file: &Arc<File>) -> Self {
        Self { file: Arc::clone(file), at: 0 }
    }
}

impl Read for From {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
