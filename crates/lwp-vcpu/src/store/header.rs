//! The statement of a file of the store about itself.

use twox_hash::XxHash3_128;

use crate::identity::Stamp;

/// Bytes of a file's header.
pub const HEADER_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"LWPUNIT\n";
/// Version of the header and of everything around the image.
const VERSION: u32 = 3;
/// The offset of the header's own hash.
const HASH_AT: usize = HEADER_BYTES - 16;
/// The offset of the path, which is for people to read.
const PATH_AT: usize = 160;

/// The hash of everything that a translation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u128);

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
}

impl Header {
    /// Returns whether what follows is no image but an execution profile: no code.
    pub fn is_profile(&self) -> bool {
        self.code_bytes == (0, 0)
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
        out.resize(PATH_AT, 0);
        out.extend(path);
        out.resize(HASH_AT, 0);
        out.extend(XxHash3_128::oneshot(&out).to_le_bytes());
        out
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
        })
    }
}
