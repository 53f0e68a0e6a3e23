//! Compressed sections. The sizes that they name are claims of their file: what is unpacked is
//! bounded by what it is unpacked from, while it is read.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use lzma_rust2::XzReader;
use object::CompressionFormat;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// A section of up to this size may be compressed as well as can be.
const SMALL: u64 = 16 << 20;

/// Larger ones that unpack to more than so many times their size are not unpacked. Debug
/// information comes to 3 to 20 times.
const MOST_UNPACKED: u64 = 100;

/// The largest section that is unpacked.
const LARGEST_UNPACKED: u64 = 4 << 30;

/// How much is unpacked between two looks at the bounds.
const STEP: u64 = 1 << 20;

/// Memory for the dictionary of xz: `xz -9` asks for 64 MiB.
const DICTIONARY_KIB: u32 = 80 << 10;

/// Returns whether `packed` bytes may come to `unpacked`.
fn is_plausible(packed: u64, unpacked: u64) -> bool {
    unpacked <= packed.saturating_mul(MOST_UNPACKED).clamp(SMALL, LARGEST_UNPACKED)
}

/// What a section of `format` holds. `None` where it is damaged, is not as long as it says, or
/// would be far larger than sections are.
pub fn unpack(format: CompressionFormat, packed: &[u8], size: u64) -> Option<Vec<u8>> {
    if !is_plausible(packed.len() as u64, size) {
        return None;
    }
    let mut out = Unpacked::with_most(size);
    out.bytes.try_reserve_exact(usize::try_from(size).ok()?).ok()?;
    match format {
        CompressionFormat::Zlib => out.append(&mut ZlibDecoder::new(out.source(packed)))?,
        CompressionFormat::Zstandard => out.append_frames(packed)?,
        _ => return None,
    }
    (out.bytes.len() as u64 == size).then_some(out.bytes)
}

/// What xz has packed, if that is not more than `most` bytes.
pub fn unpack_xz(packed: &[u8], most: u64) -> Option<Vec<u8>> {
    let mut out = Unpacked::with_most(most);
    let source = out.source(packed);
    out.append(&mut XzReader::new_mem_limit(source, true, DICTIONARY_KIB))?;
    Some(out.bytes)
}

/// Bytes that are being unpacked.
struct Unpacked {
    bytes: Vec<u8>,
    most: u64,
    /// How many packed bytes have been read.
    taken: Rc<Cell<u64>>,
}

impl Unpacked {
    fn with_most(most: u64) -> Self {
        Self { bytes: Vec::new(), most, taken: Rc::default() }
    }

    fn source<'data>(&self, packed: &'data [u8]) -> Source<'data> {
        Source { rest: packed, taken: Rc::clone(&self.taken) }
    }

    /// Adds what `from` unpacks.
    fn append(&mut self, from: &mut impl Read) -> Option<()> {
        loop {
            let read = from.take(STEP).read_to_end(&mut self.bytes).ok()?;
            let len = self.bytes.len() as u64;
            if len > self.most || !is_plausible(self.taken.get(), len) {
                return None;
            }
            if (read as u64) < STEP {
                return Some(());
            }
        }
    }

    /// Adds the frames of Zstandard, and passes over those that hold nothing.
    fn append_frames(&mut self, packed: &[u8]) -> Option<()> {
        let mut source = self.source(packed);
        while !source.rest.is_empty() {
            use FrameDecoderError::ReadFrameHeaderError as Header;
            match StreamingDecoder::new(&mut source) {
                Ok(mut decoder) => self.append(&mut decoder)?,
                Err(Header(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    source.rest = source.rest.get(length as usize..)?;
                }
                Err(_) => return None,
            }
        }
        Some(())
    }
}

/// Packed bytes, counted as they are read.
struct Source<'data> {
    rest: &'data [u8],
    taken: Rc<Cell<u64>>,
}

impl Read for Source<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(into)?;
        self.taken.set(self.taken.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const FORMATS: [CompressionFormat; 2] = [CompressionFormat::Zlib, CompressionFormat::Zstandard];

    fn packed(format: CompressionFormat, bytes: &[u8]) -> Vec<u8> {
        if format == CompressionFormat::Zstandard {
            return compress_to_vec(bytes, CompressionLevel::Fastest);
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    /// Bytes that compress to about a fifth.
    fn text(len: usize) -> Vec<u8> {
        (0_u64..)
            .flat_map(|at| format!("{:x} ", at.wrapping_mul(at)).into_bytes())
            .take(len)
            .collect()
    }

    #[test]
    fn sections_are_unpacked() {
        for format in FORMATS {
            for len in [0, 1, 5000, 3 << 20] {
                let bytes = text(len);
                let out = unpack(format, &packed(format, &bytes), len as u64);
                assert!(out == Some(bytes), "{format:?}, {len} bytes");
            }
        }
    }

    #[test]
    fn sections_of_several_frames_are_unpacked() {
        let frame = |bytes: &[u8]| packed(CompressionFormat::Zstandard, bytes);
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 7, 7, 7];
        let all = [&frame(b"light")[..], &skipped, &frame(b"weight")].concat();
        let out = unpack(CompressionFormat::Zstandard, &all, 11);
        assert_eq!(out.as_deref(), Some(&b"lightweight"[..]));
    }

    #[test]
    fn sizes_are_what_was_said() {
        for format in FORMATS {
            let whole = packed(format, &text(5000));
            assert_eq!(unpack(format, &whole, 4999), None);
            assert_eq!(unpack(format, &whole, 5001), None);
            for len in 0..whole.len() {
                assert_eq!(unpack(format, &whole[..len], 5000), None, "{len} bytes");
            }
        }
    }

    /// What follows the packed bytes proves nothing, and neither does the size that is claimed.
    ///
    /// Promise: R120
    #[test]
    fn traps_end_before_they_take_memory() {
        for format in FORMATS {
            let mut trap = packed(format, &vec![0; 64 << 20]);
            assert!(trap.len() < 1 << 20, "{}", trap.len());
            assert_eq!(unpack(format, &trap, 1 << 20), None);
            if format == CompressionFormat::Zlib {
                trap.resize(4 << 20, 7);
                assert_eq!(unpack(format, &trap, 64 << 20), None);
            }
            let mut out = Unpacked::with_most(64 << 20);
            let end = match format {
                CompressionFormat::Zlib => {
                    let source = out.source(&trap);
                    out.append(&mut ZlibDecoder::new(source))
                }
                _ => out.append_frames(&trap),
            };
            assert_eq!(end, None);
            assert!((out.bytes.len() as u64) < 2 * SMALL, "{}", out.bytes.len());
        }
    }
}
