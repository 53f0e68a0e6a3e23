//! The container: a file header, then chunks with a checksum each.
//!
//! ```text
//! header   89 4c 57 50 0d 0a 1a 0a   magic: "\x89LWP", and what text conversions destroy
//!          u16 major, u16 minor, u32 zero
//! chunk    4 letters kind, u32 payload bytes, u32 CRC-32C of kind, length and payload; payload
//! ```
//!
//! All numbers are little-endian. A kind whose first letter is lower case may be skipped by a reader
//! that does not know it.

use std::fmt;
use std::io::{self, Read};

/// First bytes of every recording.
pub const MAGIC: [u8; 8] = *b"\x89LWP\r\n\x1a\n";
/// Readers of another major version cannot read the file.
pub const MAJOR: u16 = 1;
/// A newer minor version adds kinds and fields at the end of records.
pub const MINOR: u16 = 0;
/// Bytes of the file header.
pub const HEADER_BYTES: usize = 16;
/// Bytes before a chunk's payload.
pub const CHUNK_BYTES: usize = 12;

/// A chunk's kind: four letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub [u8; 4]);

impl Kind {
    /// What ran, as keys and values.
    pub const INFO: Self = Self(*b"INFO");
    /// A module: a file or anonymous code.
    pub const MODULE: Self = Self(*b"MODL");
    /// Blocks that were executed.
    pub const BLOCKS: Self = Self(*b"BLKS");
    /// What a thread has executed.
    pub const THREAD: Self = Self(*b"THRD");
    /// A process image.
    pub const IMAGE: Self = Self(*b"PROC");
    /// Names of generated code.
    pub const SYMBOLS: Self = Self(*b"symb");
    /// Events that were sampled.
    pub const EVENTS: Self = Self(*b"EVNT");
    /// Frames of sampled stacks.
    pub const FRAMES: Self = Self(*b"FRAM");
    /// How many there were of each sampled event in a thread.
    pub const SAMPLED: Self = Self(*b"sums");
    /// Samples of a thread.
    pub const SAMPLES: Self = Self(*b"SMPL");
    /// A file that the profile needs, kept with it.
    pub const FILE: Self = Self(*b"file");
    /// The run has ended and everything is written.
    pub const END: Self = Self(*b"DONE");

    /// Whether a reader that does not know the kind may skip it.
    pub fn is_optional(self) -> bool {
        self.0[0].is_ascii_lowercase()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a file is not a recording that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing was ever written.
    #[error("the file is empty")]
    Empty,
    /// The first bytes are another format's.
    #[error("not a recording of lwp: {0}")]
    Foreign(String),
    /// A version that this reader does not know.
    #[error("format {major}.{minor} is newer than this lwp, which reads {MAJOR}.x")]
    Newer {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// The file header.
pub fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&MAJOR.to_le_bytes());
    header[10..12].copy_from_slice(&MINOR.to_le_bytes());
    header
}

/// A chunk as it stands in the file.
pub fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES + payload.len());
    chunk.extend_from_slice(&kind.0);
    chunk.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let sum = checksum(&chunk[..8], payload);
    chunk.extend_from_slice(&sum.to_le_bytes());
    chunk.extend_from_slice(payload);
    chunk
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), payload)
}

/// Checks the file header and returns the minor version.
pub fn read_header(bytes: &[u8]) -> Result<u16, ReadError> {
    if bytes.is_empty() {
        return Err(ReadError::Empty);
    }
    if !bytes.starts_with(&MAGIC) {
        return Err(ReadError::Foreign(foreign(bytes)));
    }
    let Some(rest) = bytes.get(8..HEADER_BYTES) else {
        return Err(ReadError::Foreign("it ends inside its header".into()));
    };
    let (major, minor) =
        (u16::from_le_bytes([rest[0], rest[1]]), u16::from_le_bytes([rest[2], rest[3]]));
    if major != MAJOR {
        return Err(ReadError::Newer { major, minor });
    }
    Ok(minor)
}

/// What the file seems to be instead.
fn foreign(bytes: &[u8]) -> String {
    const KNOWN: [(&[u8], &str); 7] = [
        (b"PERFILE2", "it is perf's; `perf report -i` reads it"),
        (b"\x7fELF", "it is a program"),
        (b"\x1f\x8b", "it is compressed with gzip, perhaps a pprof profile"),
        (b"# callgrind format", "it is callgrind's; `callgrind_annotate` reads it"),
        (b"version:", "it seems to be callgrind's"),
        (b"{", "it is JSON"),
        (b"\x89LWP", "its line ends have been converted, as a transfer in text mode does"),
    ];
    let known = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic));
    known.map_or_else(
        || format!("it starts with \"{}\"", bytes[..bytes.len().min(8)].escape_ascii()),
        |(_, what)| (*what).to_owned(),
    )
}

/// One step through a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A whole chunk.
    Chunk {
        /// Where it starts in the file.
        at: usize,
        /// Its kind.
        kind: Kind,
        /// Its payload.
        payload: &'a [u8],
    },
    /// Nothing after this place can be trusted.
    Damage {
        /// Where the damaged chunk starts in the file.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Walks the chunks of a file, one in memory at a time.
#[derive(Debug)]
pub struct Chunks<R> {
    file: R,
    at: usize,
    /// Bytes taken from the file, the header included.
    taken: u64,
    over: bool,
    payload: Vec<u8>,
}

impl<R: Read> Chunks<R> {
    /// Starts behind the header, which has been read.
    pub fn new(file: R) -> Self {
        Self {
            file,
            at: HEADER_BYTES,
            taken: HEADER_BYTES as u64,
            over: false,
            payload: Vec::new(),
        }
    }

    /// The next step; nothing behind damage.
    pub fn step(&mut self) -> io::Result<Option<Step<'_>>> {
        if self.over {
            return Ok(None);
        }
        let at = self.at;
        let mut head = [0; CHUNK_BYTES];
        let got = fill(&mut self.file, &mut head)?;
        self.taken += got as u64;
        if got == 0 {
            self.over = true;
            return Ok(None);
        }
        let word = |offset: usize| [0, 1, 2, 3].map(|byte| head[offset + byte]);
        let len = u32::from_le_bytes(word(4));
        self.payload.clear();
        if got == CHUNK_BYTES {
            // What the length says is not reserved: it may be wrong.
            self.file.by_ref().take(len.into()).read_to_end(&mut self.payload)?;
            self.taken += self.payload.len() as u64;
        }
        let whole = got == CHUNK_BYTES && self.payload.len() == len as usize;
        if !whole {
            self.over = true;
            return Ok(Some(Step::Damage { at, what: "the file ends inside a chunk" }));
        }
        if checksum(&head[..8], &self.payload) != u32::from_le_bytes(word(8)) {
            self.over = true;
            return Ok(Some(Step::Damage { at, what: "a checksum is wrong" }));
        }
        self.at += CHUNK_BYTES + self.payload.len();
        Ok(Some(Step::Chunk { at, kind: Kind(word(0)), payload: &self.payload }))
    }
}

impl<R: Read> Chunks<R> {
    /// Reads to the end of the file; its bytes.
    pub fn length(mut self) -> io::Result<u64> {
        Ok(self.taken + io::copy(&mut self.file, &mut io::sink())?)
    }
}

/// Reads until `bytes` is full or the file ends; how many there were.
pub fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut file = header().to_vec();
        for payload in payloads {
            file.extend(frame(Kind::INFO, payload));
        }
        file
    }

    /// The damage, if any, of every step.
    fn steps(bytes: &[u8]) -> Vec<Option<(usize, &'static str)>> {
        let mut chunks = Chunks::new(&bytes[HEADER_BYTES..]);
        let mut out = Vec::new();
        while let Some(step) = chunks.step().unwrap() {
            out.push(match step {
                Step::Chunk { .. } => None,
                Step::Damage { at, what } => Some((at, what)),
            });
        }
        out
    }

    #[test]
    fn chunks_are_read_up_to_the_damage() {
        let mut bytes = file(&[b"one", b"two", b"three"]);
        assert_eq!(steps(&bytes), [None, None, None]);
        let second = HEADER_BYTES + CHUNK_BYTES + 3;
        bytes[second + CHUNK_BYTES] ^= 1;
        assert_eq!(steps(&bytes), [None, Some((second, "a checksum is wrong"))]);
        let cut = &bytes[..second + 5];
        assert_eq!(steps(cut), [None, Some((second, "the file ends inside a chunk"))]);
    }

    #[test]
    fn other_files_are_named() {
        let text = |bytes: &[u8]| read_header(bytes).unwrap_err().to_string();
        assert_eq!(text(b""), "the file is empty");
        assert!(text(b"PERFILE2....").contains("perf report -i"));
        assert!(text(b"\x89LWP\n\x1a\n").contains("text mode"));
        assert!(text(b"hello world").contains("\"hello wo\""));
        let mut newer = header();
        newer[8] = 9;
        assert!(text(&newer).contains("format 9.0 is newer"));
    }
}
