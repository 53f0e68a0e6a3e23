//! Archives: images and execution profiles of a store in one file, for other machines.
//!
//! ```text
//! file     "LWPCACHE", version (4 bytes), entries, 0 (4 bytes), the number of entries (4 bytes)
//! entry    length of the head (4 bytes), length of the packed image (8 bytes), head, packed image
//! head     a header of the store, without the zeros behind its path, and with an empty stamp
//! ```
//!
//! All numbers are little-endian. A packed image is a stream of DEFLATE; its own length and hash
//! stand in the head, which has a hash of its own. The same entries make the same bytes: they stand
//! in the order of their keys, and nothing says when or from which inode they were made.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use twox_hash::XxHash3_128;

use super::LARGEST;
use super::header::{HEADER_BYTES, Header};

const MAGIC: [u8; 8] = *b"LWPCACHE";
const VERSION: u32 = 1;

/// The reason why an archive cannot be read any further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It does not begin as an archive does.
    #[error("not an archive of `lwp cache export`")]
    Foreign,
    /// Another version of its format.
    #[error("an archive of version {found}; this lwp reads version {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It ends early, or an entry's head is damaged, so that the next cannot be found.
    #[error("damaged, or cut off, at byte {at}")]
    Damaged {
        /// The offset.
        at: u64,
    },
    /// It could not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// An archive in the making.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    entries: u32,
}

impl<W: Write> Writer<W> {
    /// Begins an archive.
    pub fn new(mut to: W) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        Ok(Self { to, entries: 0 })
    }

    /// Adds an image, or an execution profile, with its header.
    pub fn add(&mut self, header: &Header, image: &[u8]) -> io::Result<()> {
        let head = header.to_short_bytes();
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        packed.write_all(image)?;
        let packed = packed.finish()?;
        self.to.write_all(&(head.len() as u32).to_le_bytes())?;
        self.to.write_all(&(packed.len() as u64).to_le_bytes())?;
        self.to.write_all(&head)?;
        self.to.write_all(&packed)?;
        self.entries += 1;
        Ok(())
    }

    /// Ends the archive.
    pub fn end(mut self) -> io::Result<W> {
        self.to.write_all(&0u32.to_le_bytes())?;
        self.to.write_all(&self.entries.to_le_bytes())?;
        self.to.flush()?;
        Ok(self.to)
    }
}

/// An archive that is read from its beginning to its end.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    at: u64,
    entries: u32,
    /// Bytes of the packed image that comes next.
    packed: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of an archive.
    pub fn new(from: R) -> Result<Self, ArchiveError> {
        let mut reader = Self { from, at: 0, entries: 0, packed: 0 };
        match reader.bytes::<8>() {
            Ok(MAGIC) => {}
            Ok(_) | Err(ArchiveError::Damaged { .. }) => return Err(ArchiveError::Foreign),
            Err(error) => return Err(error),
        }
        match u32::from_le_bytes(reader.bytes()?) {
            VERSION => Ok(reader),
            found => Err(ArchiveError::Version { found }),
        }
    }

    /// The header of the next entry; `None` behind the last. Skips the image before it if nobody
    /// has taken that.
    pub fn next_header(&mut self) -> Result<Option<Header>, ArchiveError> {
        self.skip()?;
        let at = self.at;
        let damaged = || ArchiveError::Damaged { at };
        let length = u32::from_le_bytes(self.bytes()?) as usize;
        if length == 0 {
            let entries = u32::from_le_bytes(self.bytes()?);
            return if entries == self.entries { Ok(None) } else { Err(damaged()) };
        }
        let packed = u64::from_le_bytes(self.bytes()?);
        if length > HEADER_BYTES || packed > LARGEST {
            return Err(damaged());
        }
        let mut head = [0; HEADER_BYTES];
        self.fill(&mut head[..length])?;
        let header = Header::parse_short(&head[..length]).ok_or_else(damaged)?;
        if header.image.0 > LARGEST {
            return Err(damaged());
        }
        self.entries += 1;
        self.packed = packed;
        Ok(Some(header))
    }

    /// The image of the entry whose `header` came last; `None` where it is damaged.
    pub fn image(&mut self, header: &Header) -> Option<Vec<u8>> {
        let mut packed = (&mut self.from).take(self.packed);
        let image = unpack(&mut packed, header.image.0);
        let left = packed.limit();
        self.at += self.packed - left;
        self.packed = left;
        image.filter(|image| XxHash3_128::oneshot(image) == header.image.1)
    }

    fn skip(&mut self) -> Result<(), ArchiveError> {
        let skipped = io::copy(&mut (&mut self.from).take(self.packed), &mut io::sink())?;
        self.at += skipped;
        if skipped < self.packed {
            return Err(ArchiveError::Damaged { at: self.at });
        }
        self.packed = 0;
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ArchiveError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ArchiveError> {
        match self.from.read_exact(buffer) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(ArchiveError::Damaged { at: self.at });
            }
            Err(error) => return Err(error.into()),
        }
        self.at += buffer.len() as u64;
        Ok(())
    }
}

/// Unpacks `len` bytes. No memory is taken for bytes that have not come yet.
fn unpack(packed: impl Read, len: u64) -> Option<Vec<u8>> {
    let mut image = Vec::new();
    DeflateDecoder::new(packed).take(len + 1).read_to_end(&mut image).ok()?;
    (image.len() as u64 == len).then_some(image)
}
