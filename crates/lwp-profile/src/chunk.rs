//! The container: a file header, then chunks with a checksum each.
//!
//! ```text
//! header   89 4c 57 50 0d 0a 1a 0a   magic: "\x89LWP", and what text conversions destroy
//!          u16 major, u16 minor, u32 zero
//! chunk    4 letters kind, u32 payload bytes, u32 CRC-32C of kind, length and payload; payload
//! ```
//!
//! All numbers are little-endian. A kind whose first letter is lower case may be skipped by a
//! reader that does not know it.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

/// First bytes of every recording.
pub const MAGIC: [u8; 8] = *b"\x89LWP\r\n\x1a\n";
/// Readers of another major version cannot read the file.
pub const MAJOR: u16 = 1;
/// A newer minor version adds kinds and fields at the end of records.
pub const MINOR: u16 = 6;
/// Bytes of the file header.
pub const HEADER_BYTES: usize = 16;
/// Bytes before a chunk's payload.
pub const CHUNK_BYTES: usize = 12;

/// A chunk's kind: four letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub [u8; 4]);

impl Kind {
    /// Facts about the run, as keys and values.
    pub const INFO: Self = Self(*b"INFO");
    /// A module: a file or anonymous code.
    pub const MODULE: Self = Self(*b"MODL");
    /// Blocks that were executed.
    pub const BLOCKS: Self = Self(*b"BLKS");
    /// Executions of a thread.
    pub const THREAD: Self = Self(*b"THRD");
    /// A process image.
    pub const IMAGE: Self = Self(*b"PROC");
    /// Names of generated code.
    pub const SYMBOLS: Self = Self(*b"symb");
    /// Names of what was executed in a module.
    pub const NAMES: Self = Self(*b"name");
    /// Events that were sampled.
    pub const EVENTS: Self = Self(*b"EVNT");
    /// Frames of sampled stacks.
    pub const FRAMES: Self = Self(*b"FRAM");
    /// Number of occurrences of each sampled event in a thread.
    pub const SAMPLED: Self = Self(*b"sums");
    /// Samples of a thread.
    pub const SAMPLES: Self = Self(*b"SMPL");
    /// Samples that are taken many times at once: of time off the processor.
    pub const SPANS: Self = Self(*b"SPAN");
    /// A file that the profile needs, kept with it.
    pub const FILE: Self = Self(*b"file");
    /// A piece of another recording: the program's native run, in which its time was sampled.
    pub const NATIVE: Self = Self(*b"natv");
    /// The run has ended and everything that was counted is written.
    pub const END: Self = Self(*b"DONE");

    /// Returns whether a reader that does not know the kind may skip it.
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

/// The reason why a file is not a recording that can be read.
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
///
/// # Errors
///
/// The bytes are no recording, or one of a later major version.
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

/// Names the format that the file seems to have instead.
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

/// A chunk of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of its start in the file, in bytes.
    pub at: u64,
    /// The kind of records that it holds.
    pub kind: Kind,
    /// Range of its payload in the batch's bytes.
    pub payload: Range<usize>,
}

/// Whole chunks that follow each other, checksums verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The piece of the file.
    pub bytes: Vec<u8>,
    /// Places of the whole chunks in `bytes`, in the order of the file.
    pub chunks: Vec<Chunk>,
    /// Offset of a damaged chunk in the file, and the damage: nothing behind it can be trusted.
    pub damage: Option<(u64, &'static str)>,
    /// True if the file has ended, or the damage has ended the reading.
    pub last: bool,
}

impl Batch {
    /// A chunk's payload.
    pub fn payload(&self, chunk: &Chunk) -> &[u8] {
        self.bytes.get(chunk.payload.clone()).unwrap_or(&[])
    }
}

/// Bytes read at a time of a file.
const BATCH_BYTES: usize = 4 << 20;

/// Walks the chunks of a file, a batch of them in memory at a time.
#[derive(Debug)]
pub struct Batches<R> {
    file: R,
    /// Offset of `rest` in the file, in bytes.
    at: u64,
    /// The beginning of a chunk that the last batch had no whole of.
    rest: Vec<u8>,
    /// Bytes read at a time.
    most: usize,
    over: bool,
}

impl<R: Read> Batches<R> {
    /// Starts behind the header, which has been read.
    pub fn new(file: R) -> Self {
        Self::reading(file, BATCH_BYTES)
    }

    /// Starts behind the header, which has been read, and reads `most` bytes at a time.
    fn reading(file: R, most: usize) -> Self {
        Self { file, at: HEADER_BYTES as u64, rest: Vec::new(), most, over: false }
    }

    /// The next batch; an empty one behind the last.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn next_batch(&mut self) -> io::Result<Batch> {
        let mut batch = Batch { bytes: std::mem::take(&mut self.rest), ..Batch::default() };
        // What a length says is not reserved: it may be wrong. A chunk may need several rounds.
        while !self.over && batch.chunks.is_empty() && batch.damage.is_none() {
            let before = batch.bytes.len();
            batch.bytes.reserve(self.most);
            self.file.by_ref().take(self.most as u64).read_to_end(&mut batch.bytes)?;
            self.over = batch.bytes.len() - before < self.most;
            self.split(&mut batch);
        }
        self.over |= batch.damage.is_some();
        batch.last = self.over;
        Ok(batch)
    }

    /// Finds the whole chunks; what is behind them is kept for the next batch.
    fn split(&mut self, batch: &mut Batch) {
        let mut start = 0;
        while let Some(whole) = whole_chunk(&batch.bytes[start..]) {
            let at = self.at;
            let payload = start + CHUNK_BYTES..start + whole.length;
            if !whole.intact {
                batch.damage = Some((at, "a checksum is wrong"));
                return;
            }
            batch.chunks.push(Chunk { at, kind: whole.kind, payload });
            start += whole.length;
            self.at += whole.length as u64;
        }
        if start == batch.bytes.len() {
            return;
        }
        if self.over {
            batch.damage = Some((self.at, "the file ends inside a chunk"));
        } else if start > 0 {
            self.rest = batch.bytes[start..].to_vec();
        }
    }

    /// Reads to the end of the file; how many bytes there were behind what the batches have.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn skip_rest(&mut self) -> io::Result<u64> {
        io::copy(&mut self.file, &mut io::sink())
    }
}

/// What a file holds of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything: the recorder came to its end, and nothing is damaged.
    Whole,
    /// Counts or samples, but not all.
    Part,
    /// Neither counts nor samples.
    Nothing,
    /// No recording, or one of another version.
    Foreign,
}

/// Finds out what a file holds, without decoding it.
///
/// # Errors
///
/// Those of the file.
pub fn extent(mut file: impl Read) -> io::Result<Extent> {
    let mut head = [0; HEADER_BYTES];
    let got = fill(&mut file, &mut head)?;
    match read_header(&head[..got]) {
        Ok(_) => {}
        Err(ReadError::Empty) => return Ok(Extent::Nothing),
        Err(_) => return Ok(Extent::Foreign),
    }
    let mut batches = Batches::new(file);
    let (mut ended, mut counted) = (false, false);
    loop {
        let batch = batches.next_batch()?;
        for chunk in &batch.chunks {
            ended |= chunk.kind == Kind::END;
            counted |= matches!(chunk.kind, Kind::THREAD | Kind::SAMPLES | Kind::SAMPLED);
        }
        if !batch.last {
            continue;
        }
        return Ok(match (ended && batch.damage.is_none(), counted) {
            (true, _) => Extent::Whole,
            (false, true) => Extent::Part,
            (false, false) => Extent::Nothing,
        });
    }
}

/// A chunk that is there to its end.
struct Whole {
    kind: Kind,
    /// Bytes, head included.
    length: usize,
    intact: bool,
}

/// The chunk at the start of `bytes`, if all of it is there.
fn whole_chunk(bytes: &[u8]) -> Option<Whole> {
    let head: &[u8; CHUNK_BYTES] = bytes.first_chunk()?;
    let word = |offset: usize| [0, 1, 2, 3].map(|byte| head[offset + byte]);
    let length = CHUNK_BYTES + u32::from_le_bytes(word(4)) as usize;
    let payload = bytes.get(CHUNK_BYTES..length)?;
    let intact = checksum(&head[..8], payload) == u32::from_le_bytes(word(8));
    Some(Whole { kind: Kind(word(0)), length, intact })
}

/// Reads until `bytes` is full or the file ends; how many there were.
///
/// # Errors
///
/// Those of the file.
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

    /// Promise: R123
    #[test]
    fn whole_recordings_are_told_from_parts() {
        let with = |kinds: &[Kind]| {
            let mut file = header().to_vec();
            kinds.iter().for_each(|kind| file.extend(frame(*kind, b"x")));
            file
        };
        let whole = with(&[Kind::INFO, Kind::THREAD, Kind::END, Kind::NAMES]);
        let of = |bytes: &[u8]| extent(bytes).expect("memory can be read");
        assert_eq!(of(&whole), Extent::Whole);
        assert_eq!(of(&whole[..whole.len() - 1]), Extent::Part);
        assert_eq!(of(&with(&[Kind::INFO, Kind::SAMPLES])), Extent::Part);
        assert_eq!(of(&with(&[Kind::INFO])), Extent::Nothing);
        assert_eq!(of(&with(&[Kind::END])), Extent::Whole);
        assert_eq!([of(b""), of(b"other")], [Extent::Nothing, Extent::Foreign]);
    }

    /// How many chunks a file has, and its damage.
    /// Bytes of a batch: few, because an interpreter takes its time for each.
    const MOST: usize = 4096;

    fn read(bytes: impl Read) -> (usize, Option<(u64, &'static str)>) {
        let mut batches = Batches::reading(bytes, MOST);
        let mut chunks = 0;
        loop {
            let batch = batches.next_batch().unwrap();
            chunks += batch.chunks.len();
            if batch.last {
                return (chunks, batch.damage);
            }
        }
    }

    #[test]
    fn chunks_are_read_up_to_the_damage() {
        let mut bytes = file(&[b"one", b"two", b"three"]);
        assert_eq!(read(&bytes[HEADER_BYTES..]), (3, None));
        let second = HEADER_BYTES + CHUNK_BYTES + 3;
        let place = second as u64;
        bytes[second + CHUNK_BYTES] ^= 1;
        assert_eq!(read(&bytes[HEADER_BYTES..]), (1, Some((place, "a checksum is wrong"))));
        let cut = &bytes[HEADER_BYTES..second + 5];
        assert_eq!(read(cut), (1, Some((place, "the file ends inside a chunk"))));
        // A length that nothing stands behind.
        let at = second + 4;
        bytes[at..at + 4].copy_from_slice(&[0xff; 4]);
        let huge = (1, Some((place, "the file ends inside a chunk")));
        assert_eq!(read(&bytes[HEADER_BYTES..]), huge);
    }

    #[test]
    fn chunks_may_be_larger_than_a_batch_and_straddle_two() {
        let large = vec![7; MOST * 2 + 5];
        let half = vec![9; MOST / 2 + 1];
        let bytes = file(&[&half, &half, &half, &large, b"small", &half]);
        assert_eq!(read(&bytes[HEADER_BYTES..]), (6, None));
        // However the bytes arrive.
        let (front, back) = bytes[HEADER_BYTES..].split_at(MOST + 17);
        assert_eq!(read(front.chain(back)), (6, None));
        let cut = &bytes[HEADER_BYTES..bytes.len() - 1];
        assert_eq!(read(cut).0, 5);
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
        assert!(text(&newer).contains(&format!("format 9.{MINOR} is newer")));
    }
}
