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

/// Walks the chunks of a file whose header has been checked.
pub fn chunks(bytes: &[u8]) -> impl Iterator<Item = Step<'_>> {
    let mut at = HEADER_BYTES;
    let mut over = false;
    std::iter::from_fn(move || {
        if over || at >= bytes.len() {
            return None;
        }
        let step = chunk_at(bytes, at);
        match step {
            Step::Chunk { payload, .. } => at += CHUNK_BYTES + payload.len(),
            Step::Damage { .. } => over = true,
        }
        Some(step)
    })
}

fn chunk_at(bytes: &[u8], at: usize) -> Step<'_> {
    let word = |offset: usize| -> Option<[u8; 4]> {
        bytes.get(at + offset..at + offset + 4)?.try_into().ok()
    };
    let damage = |what| Step::Damage { at, what };
    let (Some(kind), Some(len), Some(sum)) = (word(0), word(4), word(8)) else {
        return damage("the file ends inside a chunk");
    };
    let start = at + CHUNK_BYTES;
    let Some(payload) = bytes.get(start..start.saturating_add(u32::from_le_bytes(len) as usize))
    else {
        return damage("the file ends inside a chunk");
    };
    if checksum(&bytes[at..at + 8], payload) != u32::from_le_bytes(sum) {
        return damage("a checksum is wrong");
    }
    Step::Chunk { at, kind: Kind(kind), payload }
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

    #[test]
    fn chunks_are_read_up_to_the_damage() {
        let mut bytes = file(&[b"one", b"two", b"three"]);
        assert_eq!(chunks(&bytes).count(), 3);
        let second = HEADER_BYTES + CHUNK_BYTES + 3;
        bytes[second + CHUNK_BYTES] ^= 1;
        let steps: Vec<_> = chunks(&bytes).collect();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[1], Step::Damage { at: second, what: "a checksum is wrong" });
        let cut = &bytes[..second + 5];
        let what = "the file ends inside a chunk";
        assert_eq!(chunks(cut).last(), Some(Step::Damage { at: second, what }));
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
