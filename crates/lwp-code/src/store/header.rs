//! The statement of a file of the store about itself.

use lwp_dbt::context::TargetFeatures;
use twox_hash::XxHash3_128;

use crate::file_identity::{Segment, Stamp};

/// Bytes of a file's header.
pub const HEADER_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"LWPUNIT\n";
/// Version of the header and of everything around the image.
const VERSION: u32 = 4;
/// The offset of the header's own hash.
const HASH_AT: usize = HEADER_BYTES - 16;
/// The offset of the origin.
const ORIGIN_AT: usize = 152;
/// Most executable segments that a header names.
const MOST_SEGMENTS: usize = 16;
/// Words of the origin: four, two hashes, and three for each segment.
const ORIGIN_WORDS: usize = 8 + 3 * MOST_SEGMENTS;
/// The offset of the path, which is for people to read.
const PATH_AT: usize = ORIGIN_AT + 8 * ORIGIN_WORDS;

/// The hash of everything that a translation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u128);

impl Key {
    /// The key of a module, by its name's hash, and of the hash of everything else.
    pub fn of(module: u128, rest: u128) -> Self {
        let words = [module, rest].map(u128::to_le_bytes);
        Self(XxHash3_128::oneshot(words.as_flattened()))
    }
}

/// The facts by which another machine can tell whether a translation is of use there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The version of the translator.
    pub translator: u64,
    /// The features of the processor that translated code depends on.
    pub processor: u64,
    /// True if `module` is the same on every machine.
    pub travels: bool,
    /// Hash of the module's build id and size, of the vdso's bytes, or else of a file's place.
    pub module: u128,
    /// Hash of everything else that the key depends on.
    pub rest: u128,
    /// The executable segments, relative to the module's first address.
    pub segments: Vec<Segment>,
}

impl Origin {
    /// The origin of what this translator makes, on this processor, of the module with that name.
    pub fn here((module, travels): (u128, bool), rest: u128, segments: Vec<Segment>) -> Self {
        // Nobody else can tell such a module: it has no code that a header could name.
        let segments = if segments.len() <= MOST_SEGMENTS { segments } else { Vec::new() };
        let (translator, processor) = (lwp_dbt::VERSION, this_processor());
        Self { translator, processor, travels, module, rest, segments }
    }

    /// The origin of the execution profile of the same module: that of any translation of it.
    pub fn of_profile(&self) -> Self {
        let mut bytes = b"execution profile".to_vec();
        bytes.extend(lwp_dbt::VERSION.to_le_bytes());
        for segment in &self.segments {
            let places = [segment.start, segment.end, segment.offset];
            bytes.extend(places.into_iter().flat_map(u64::to_le_bytes));
        }
        Self { rest: XxHash3_128::oneshot(&bytes), ..self.clone() }
    }

    /// The key of what has this origin.
    pub fn key(&self) -> Key {
        Key::of(self.module, self.rest)
    }

    fn to_words(&self) -> [u64; ORIGIN_WORDS] {
        let mut words = [0; ORIGIN_WORDS];
        let (flag, count) = (u64::from(self.travels), self.segments.len() as u64);
        words[..4].copy_from_slice(&[self.translator, self.processor, flag, count]);
        for (at, hash) in [(4, self.module), (6, self.rest)] {
            words[at..at + 2].copy_from_slice(&[hash as u64, (hash >> 64) as u64]);
        }
        for (to, it) in words[8..].chunks_exact_mut(3).zip(&self.segments) {
            to.copy_from_slice(&[it.start, it.end, it.offset]);
        }
        words
    }

    fn from_words(words: &[u64; ORIGIN_WORDS]) -> Option<Self> {
        let count = usize::try_from(words[3]).ok().filter(|count| *count <= MOST_SEGMENTS)?;
        let segment = |it: &[u64]| {
            let (start, end, offset) = (it[0], it[1], it[2]);
            let whole = start < end && offset.checked_add(end - start).is_some();
            whole.then_some(Segment { start, end, offset })
        };
        let hash = |at: usize| u128::from(words[at]) | u128::from(words[at + 1]) << 64;
        Some(Self {
            translator: words[0],
            processor: words[1],
            travels: words[2] == 1,
            module: hash(4),
            rest: hash(6),
            segments: words[8..].chunks_exact(3).take(count).map(segment).collect::<Option<_>>()?,
        })
    }
}

/// The features of this processor that translated code depends on, as a word.
pub fn this_processor() -> u64 {
    let TargetFeatures { wide_index, bit_extract } = TargetFeatures::of_this_processor();
    u64::from(wide_index) | u64::from(bit_extract) << 1
}

/// A file's statement about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The things that its translation depends on.
    pub key: Key,
    /// The module's file when the translation was made.
    pub stamp: Stamp,
    /// Hash of the module's code.
    pub content: u128,
    /// The address at which the module is loaded.
    pub address: u64,
    /// The number of fragments that were translated.
    pub fragments: u64,
    /// The module's path at the time.
    pub path: String,
    /// The number of bytes of the module's code that were translated, and of the resulting bytes.
    pub code_bytes: (u64, u64),
    /// The facts that say where else it is of use.
    pub origin: Origin,
    /// Size and hash of the image.
    pub(super) image: (u64, u128),
}

/// The facts to be kept of a unit besides its image.
#[derive(Clone, Debug)]
pub struct Description {
    /// See [`Header`].
    pub stamp: Stamp,
    /// See [`Header`].
    pub content: u128,
    /// See [`Header`].
    pub address: u64,
    /// See [`Header`].
    pub fragments: u64,
    /// See [`Header`].
    pub path: String,
    /// See [`Header`].
    pub code_bytes: (u64, u64),
    /// See [`Header`].
    pub origin: Origin,
}

impl Header {
    /// Returns whether what follows is no image but an execution profile: no code.
    pub fn is_profile(&self) -> bool {
        self.code_bytes == (0, 0)
    }

    /// Returns whether `other` is about the same image, byte for byte.
    pub fn has_image_of(&self, other: &Self) -> bool {
        self.image == other.image
    }

    /// Size of the image in bytes.
    pub fn image_bytes(&self) -> u64 {
        self.image.0
    }

    /// As it stands at the head of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend(MAGIC);
        out.extend(u64::from(VERSION).to_le_bytes());
        out.extend(self.key.0.to_le_bytes());
        out.extend(self.image.0.to_le_bytes());
        out.extend(self.image.1.to_le_bytes());
        out.extend(self.content.to_le_bytes());
        let Stamp { device, inode, size, modified, changed } = self.stamp;
        let numbers = [device, inode, size, modified, changed, self.address, self.fragments];
        let numbers = numbers.into_iter().chain([self.code_bytes.0, self.code_bytes.1]);
        out.extend(numbers.flat_map(u64::to_le_bytes));
        let path = self.path.as_bytes();
        let path = &path[..path.len().min(HASH_AT - PATH_AT)];
        out.extend((path.len() as u64).to_le_bytes());
        out.extend(self.origin.to_words().into_iter().flat_map(u64::to_le_bytes));
        debug_assert_eq!(out.len(), PATH_AT);
        out.extend(path);
        out.resize(HASH_AT, 0);
        out.extend(XxHash3_128::oneshot(&out).to_le_bytes());
        out
    }

    /// The header's bytes without the zeros that follow the path.
    pub(super) fn to_short_bytes(&self) -> Vec<u8> {
        let bytes = self.to_bytes();
        let path = &bytes[PATH_AT..HASH_AT];
        let used = path.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        [&bytes[..PATH_AT + used], &bytes[HASH_AT..]].concat()
    }

    /// Reads what [`Self::to_short_bytes`] has written.
    pub(super) fn parse_short(short: &[u8]) -> Option<Self> {
        let (front, hash) = short.split_last_chunk::<{ HEADER_BYTES - HASH_AT }>()?;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..HASH_AT].get_mut(..front.len())?.copy_from_slice(front);
        bytes[HASH_AT..].copy_from_slice(hash);
        Self::parse(&bytes)
    }

    /// Reads it; `None` where it is damaged or of another version.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let u128_at = |at: usize| u128::from(u64_at(at)) | u128::from(u64_at(at + 8)) << 64;
        if bytes[..8] != MAGIC
            || u64_at(8) != u64::from(VERSION)
            || u128_at(HASH_AT) != XxHash3_128::oneshot(&bytes[..HASH_AT])
        {
            return None;
        }
        let number = |index: usize| u64_at(72 + index * 8);
        let path_len = usize::try_from(number(9)).ok()?;
        let path = bytes[PATH_AT..HASH_AT].get(..path_len)?;
        let mut origin = [0; ORIGIN_WORDS];
        for (index, word) in origin.iter_mut().enumerate() {
            *word = u64_at(ORIGIN_AT + 8 * index);
        }
        Some(Self {
            key: Key(u128_at(16)),
            image: (u64_at(32), u128_at(40)),
            content: u128_at(56),
            stamp: Stamp {
                device: number(0),
                inode: number(1),
                size: number(2),
                modified: number(3),
                changed: number(4),
            },
            address: number(5),
            fragments: number(6),
            path: String::from_utf8_lossy(path).into_owned(),
            code_bytes: (number(7), number(8)),
            origin: Origin::from_words(&origin)?,
        })
    }
}
