//! Images: the translations of one unit, as bytes that outlive the run.
//!
//! Lookups read an image directly: its tables are sorted by their keys, so loading an image costs
//! its relocations, and nothing for each fragment. Addresses are relative to the module or to the
//! unit's code; counters and entries are numbered from zero. [`crate::freeze`] writes images,
//! [`CodeCache::restore`](crate::CodeCache::restore) puts one in place.
//!
//! ```text
//! header      HEADER_WORDS words of 8 bytes, see `Header`
//! frags       pc, join (bit 31: flags dead on entry, bit 30:
//!             begins with its charge, bit 29: is its head)        by pc           8 bytes each
//! entries     pc, stub                                            by number       8
//! by pc       number of an entry                                  by its pc       4
//! pending     target, place of a displacement                     by target       8
//! stubs       target, stub                                        by target       8
//! sites       relocations                                         by place        4, in blocks
//! deltas     instructions (2 bytes), six more (1 byte each)      by counter      8, in blocks
//! roles       what a counter counts, if that is kept: see `role`  by counter      8, in blocks
//! details     of a fragment, see `detail`                         as frags       32, in blocks
//! pieces      see `piece`                                         by start       24, in blocks
//! within      of fragments in superblocks, see `within`           by fragment    28, in blocks
//! points      point tables                                                           in blocks
//! code                                                                               in blocks
//! ```
//!
//! Everything in blocks is compressed, and unpacked when it is first read (`blocks.rs`): the code
//! and its relocations when the image is put in place, the rest hardly ever.
//!
//! The caller must have checked the bytes for damage. Lookups are careful all the same: no content
//! makes one panic, or return an address outside of the unit's code.

pub(crate) mod blocks;
mod placed;
mod relocate;

use blocks::{Blocks, Shape};
pub(crate) use placed::Placed;
pub use placed::Placement;
pub use relocate::CodeTarget;

use crate::context::{CONTEXT_BYTES, Layout};
use crate::packed::PackedDeltas;
use crate::plan::EventDeltas;
use crate::relocation::{Relocation, SITE_LIMIT, Site};

/// The reason why bytes are not an image, or cannot be put where they are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The tables do not fill the bytes.
    #[error("{found} bytes instead of {expected}")]
    Size {
        /// The number of bytes that the header says.
        expected: u64,
        /// The number of bytes that there are.
        found: u64,
    },
    /// A table holds something that lies outside the code.
    #[error("an address outside the code in table {table}")]
    Outside {
        /// The table's number.
        table: usize,
    },
    /// A displacement does not reach from the new place.
    #[error("a displacement at {at:#x} does not reach")]
    Reach {
        /// Its offset in the code.
        at: usize,
    },
    /// A table could not be unpacked.
    #[error("table {table} is damaged")]
    Damaged {
        /// The table's number.
        table: usize,
    },
    /// The code could not be written to its place.
    #[error("the code could not be written")]
    NotWritten,
    /// The unit has been translated already.
    #[error("the unit is not empty")]
    NotEmpty,
}

/// Words of the header.
pub(crate) const HEADER_WORDS: usize = 32;
/// Fragments of images are numbered from here.
pub(crate) const FIRST_ID: u32 = 1 << 31;
/// In a table: none.
pub(crate) const NONE: u32 = u32::MAX;
/// In a `join`: the flags are dead on entry.
pub(crate) const FLAGS_DEAD: u32 = 1 << 31;
/// In a `join`: the fragment begins with its charge.
pub(crate) const CHARGED_FIRST: u32 = 1 << 30;

/// The rest of it: a place in the code.
const JOIN: u32 = (1 << 28) - 1;
const _: () = assert!(SITE_LIMIT <= 1 << 28);
/// In a `join`: direct branches enter there too.
pub(crate) const HEAD_IS_JOIN: u32 = 1 << 29;

/// The tables, in order; the number of each is its place in the header's counts.
pub(crate) mod table {
    pub const FRAGS: usize = 0;
    pub const ENTRIES: usize = 1;
    pub const BY_PC: usize = 2;
    pub const PENDING: usize = 3;
    pub const STUBS: usize = 4;
    pub const SITES: usize = 5;
    pub const WEIGHTS: usize = 6;
    pub const ROLES: usize = 7;
    pub const DETAILS: usize = 8;
    pub const PIECES: usize = 9;
    pub const POINTS: usize = 10;
    pub const WITHIN: usize = 11;
    pub const CODE: usize = 12;
    /// Bytes of a record of each table.
    pub const BYTES: [usize; 13] = [8, 8, 4, 8, 8, 4, 8, 8, 32, 24, 1, 28, 1];
    /// Most bytes that the points of one piece may take.
    pub const MOST_POINTS: usize = 16 << 10;

    /// The records in a block of a table that is kept in blocks, and how they are arranged there.
    ///
    /// Blocks of code are relocated one at a time, and small enough to stay in the processor's
    /// cache.
    pub fn blocks(table: usize) -> Option<(usize, super::Shape)> {
        use super::Shape::{Columns, Plain, Rising};
        match table {
            SITES | PIECES | WITHIN => Some((1024, Rising)),
            WEIGHTS | ROLES => Some((4096, Plain)),
            DETAILS => Some((1024, Columns)),
            POINTS => Some((MOST_POINTS, Plain)),
            CODE => Some((64 << 10, Plain)),
            _ => None,
        }
    }
}

/// The fixed part of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// Lowest address of the module, as the code says it; application pcs are relative to it.
    pub module: u64,
    /// The address at which the code lay.
    pub code: u64,
    /// The address at which its arena's routines lay.
    pub routines: u64,
    /// The fragments that have a pc of their own; behind them are those that are only parts of
    /// superblocks.
    pub reachable: u64,
    /// A number of [`Knowledge`](crate::Knowledge).
    pub knowledge: u64,
    /// Records of each table.
    pub counts: [u64; table::BYTES.len()],
    /// Bytes that it takes.
    pub stored: [u64; table::BYTES.len()],
}

impl Header {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut words = vec![self.module, self.code, self.routines, self.reachable, self.knowledge];
        words.extend(self.counts);
        words.extend(self.stored);
        words.resize(HEADER_WORDS, 0);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.get(..HEADER_WORDS * 8)?.chunks_exact(8).map(|word| u64_at(word, 0));
        let [module, code, routines] = [words.next()?, words.next()?, words.next()?];
        let [reachable, knowledge] = [words.next()?, words.next()?];
        let (mut counts, mut stored) = ([0; table::BYTES.len()], [0; table::BYTES.len()]);
        for number in counts.iter_mut().chain(&mut stored) {
            *number = words.next()?;
        }
        Some(Self { module, code, routines, reachable, knowledge, counts, stored })
    }
}

/// Bytes in memory of any kind.
pub type Bytes = Box<dyn AsRef<[u8]> + Send + Sync>;

/// One frozen unit.
pub struct Image {
    bytes: Bytes,
    header: Header,
    /// First byte of each table.
    starts: [usize; table::BYTES.len()],
    /// The tables that are kept in blocks.
    blocks: [Option<Blocks>; table::BYTES.len()],
}

/// More records than this are damage: it keeps what is reserved for them in bounds.
const MOST_RECORDS: u64 = SITE_LIMIT as u64;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("header", &self.header).finish_non_exhaustive()
    }
}

impl Image {
    /// Takes `bytes` as an image.
    pub fn parse(bytes: Bytes) -> Result<Self, ImageError> {
        let all = (*bytes).as_ref();
        let found = all.len() as u64;
        let too_short = ImageError::Size { expected: HEADER_WORDS as u64 * 8, found };
        let header = Header::parse(all).ok_or(too_short)?;
        let mut starts = [0; table::BYTES.len()];
        let mut blocks = [const { None }; table::BYTES.len()];
        let mut end = HEADER_WORDS as u64 * 8;
        for table in 0..table::BYTES.len() {
            let (count, width) = (header.counts[table], table::BYTES[table]);
            if count >= MOST_RECORDS {
                return Err(ImageError::Outside { table });
            }
            let len = count as usize * width;
            starts[table] = end as usize;
            blocks[table] = table::blocks(table)
                .map(|(records, shape)| Blocks::new(len, width, records * width, shape));
            if blocks[table].is_none() && header.stored[table] != len as u64 {
                return Err(ImageError::Outside { table });
            }
            end = end.saturating_add(header.stored[table]);
        }
        if end != found {
            return Err(ImageError::Size { expected: end, found });
        }
        let image = Self { bytes, header, starts, blocks };
        if image.count(table::FRAGS) != image.count(table::DETAILS)
            || image.count(table::ENTRIES) != image.count(table::BY_PC)
            || ![0, image.counters()].contains(&image.count(table::ROLES))
            || image.header.reachable > image.header.counts[table::FRAGS]
        {
            return Err(ImageError::Outside { table: table::DETAILS });
        }
        if image.code_len() >= SITE_LIMIT {
            return Err(ImageError::Outside { table: table::CODE });
        }
        Ok(image)
    }

    /// Bytes of its code.
    pub fn code_len(&self) -> usize {
        self.count(table::CODE)
    }

    /// Returns the number of fragments it holds.
    pub fn fragments(&self) -> usize {
        self.count(table::FRAGS)
    }

    /// Returns the number of entries, and chain slots, it needs.
    pub fn entries(&self) -> usize {
        self.count(table::ENTRIES)
    }

    /// Returns the number of counters it needs.
    pub fn counters(&self) -> usize {
        self.count(table::WEIGHTS)
    }

    pub(crate) fn count(&self, table: usize) -> usize {
        self.header.counts[table] as usize
    }

    /// A record of a table.
    pub(crate) fn record(&self, table: usize, index: usize) -> Option<&[u8]> {
        if index >= self.count(table) {
            return None;
        }
        let width = table::BYTES[table];
        self.bytes_at(table, index * width, width)
    }

    /// Bytes of a table, which are all in one block where it is in blocks.
    fn bytes_at(&self, table: usize, at: usize, len: usize) -> Option<&[u8]> {
        if len == 0 {
            return Some(&[]);
        }
        let Some(blocks) = &self.blocks[table] else {
            return self.stored(table).get(at..at.checked_add(len)?);
        };
        let (block, within) = (at / blocks.block_bytes(), at % blocks.block_bytes());
        blocks.get(self.stored(table), block)?.get(within..within.checked_add(len)?)
    }

    /// A table as it stands.
    fn stored(&self, table: usize) -> &[u8] {
        let start = self.starts[table];
        &(*self.bytes).as_ref()[start..start + self.header.stored[table] as usize]
    }

    /// All records of a table. In a damaged one there may be fewer.
    pub(crate) fn records(&self, table: usize) -> impl Iterator<Item = &[u8]> {
        (0..self.count(table)).filter_map(move |index| self.record(table, index))
    }

    /// All relocations; none of this stays in memory.
    pub(crate) fn sites(&self) -> Option<Vec<Site>> {
        let mut raw = Vec::new();
        let blocks = self.blocks[table::SITES].as_ref()?;
        for index in 0..blocks.count() {
            blocks.unpack(self.stored(table::SITES), index, &mut raw)?;
        }
        Some(raw.chunks_exact(4).map(|word| Site(u32_at(word, 0))).collect())
    }

    /// The first record of a sorted table whose key is not below `key`.
    fn search(&self, table: usize, key: u32, key_of: impl Fn(&[u8]) -> u32) -> usize {
        self.search_in((0, self.count(table)), table, key, key_of)
    }

    fn search_in(
        &self,
        (mut low, mut high): (usize, usize),
        table: usize,
        key: u32,
        key_of: impl Fn(&[u8]) -> u32,
    ) -> usize {
        while low < high {
            let middle = low.midpoint(high);
            match self.record(table, middle) {
                Some(record) if key_of(record) < key => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// The first record of a table sorted by its first field whose field is not below `key`.
    fn first(&self, table: usize, key: u32) -> usize {
        let first_word = |record: &[u8]| u32_at(record, 0);
        let Some(blocks) = &self.blocks[table] else { return self.search(table, key, first_word) };
        // Only the block that holds it is unpacked.
        let (mut low, mut high) = (0, blocks.count());
        while low < high {
            let middle = low.midpoint(high);
            match blocks.first_word(self.stored(table), middle) {
                Some(first) if first < key => low = middle + 1,
                _ => high = middle,
            }
        }
        let records = blocks.block_bytes() / table::BYTES[table];
        let range = (low.saturating_sub(1) * records, (low * records).min(self.count(table)));
        self.search_in(range, table, key, first_word)
    }

    /// The deltas of counter `index` and of those that follow in the same block.
    pub(crate) fn deltas_from(&self, index: usize) -> Option<&[[u8; 8]]> {
        let blocks = self.blocks[table::WEIGHTS].as_ref()?;
        let width = table::BYTES[table::WEIGHTS];
        let per_block = blocks.block_bytes() / width;
        let block = blocks.get(self.stored(table::WEIGHTS), index / per_block)?;
        block.as_chunks().0.get(index % per_block..)
    }

    pub(crate) fn deltas(&self, index: usize) -> EventDeltas {
        self.record(table::WEIGHTS, index).map(unpack_deltas).unwrap_or_default()
    }
}

/// EventDeltas as tables hold them.
fn unpack_deltas(bytes: &[u8]) -> EventDeltas {
    bytes.first_chunk().map(|raw| PackedDeltas(*raw).unpack()).unwrap_or_default()
}

/// The contents of the rarely needed record of a fragment.
pub(crate) mod detail {
    /// Distance of the start before the join.
    pub const START: usize = 0;
    pub const LEN: usize = 4;
    /// Signed distance of the target from the fragment's pc; `NO_TARGET` where there is none.
    pub const TARGET: usize = 8;
    pub const WEIGHTS: usize = 12;
    pub const APP_LEN: usize = 20;
    pub const INSTRUCTIONS: usize = 22;
    /// The place at which direct branches enter, if they do and that is not the join.
    pub const HEAD: usize = 24;
    pub const COUNTDOWN: usize = 28;
    pub const NO_TARGET: i32 = i32::MIN;
}

/// The record of a fragment in a superblock, behind the fragment's place in the tables.
pub(crate) mod within {
    pub const BEHIND: usize = 4;
    /// Signed distance of the instruction that writes the flags from the fragment's pc;
    /// [`super::detail::NO_TARGET`] where there is none.
    pub const WRITER: usize = 12;
    pub const STACK: usize = 16;
    /// The fragment behind it, or [`super::NONE`].
    pub const NEXT: usize = 20;
    pub const COUNTDOWN: usize = 24;
}

/// The contents of the record of a role: the kind and, below it, the fragment that is counted; then
/// the fragment before the edge, or `NONE`. Both are places in the tables.
pub(crate) mod role {
    use super::NONE;
    use crate::fragment::FragmentId;
    use crate::plan::Role;

    const KIND_SHIFT: u32 = 28;
    const INDEX: u32 = (1 << KIND_SHIFT) - 1;

    /// As two words; `index_of` says where in the tables a fragment is.
    pub fn words(role: Role, index_of: impl Fn(FragmentId) -> Option<u32>) -> Option<[u32; 2]> {
        let (kind, fragment, from) = match role {
            Role::Runs(id) => (0, id, None),
            Role::RunsBehind { into, from } => (1, into, Some(from)),
            Role::NotTaken(id) => (2, id, None),
            Role::Head(id) => (3, id, None),
            Role::CallTarget(id) => (4, id, None),
            Role::Called(id) => (5, id, None),
            Role::Superblock(id) => (6, id, None),
            Role::SideExit(id) => (7, id, None),
            Role::Target(id) => (8, id, None),
            Role::CutOff(id) => (9, id, None),
            Role::CutOffBranch(id) => (10, id, None),
            Role::Transfer(id) => (11, id, None),
        };
        let from = from.map_or(Some(NONE), &index_of)?;
        let index = index_of(fragment).filter(|index| *index <= INDEX)?;
        Some([kind << KIND_SHIFT | index, from])
    }

    /// From two words; `id_of` says which fragment is at a place in the tables.
    pub fn from_words(
        [word, from]: [u32; 2],
        id_of: impl Fn(u32) -> Option<FragmentId>,
    ) -> Option<Role> {
        let id = id_of(word & INDEX)?;
        Some(match word >> KIND_SHIFT {
            0 => Role::Runs(id),
            1 => Role::RunsBehind { into: id, from: id_of(from)? },
            2 => Role::NotTaken(id),
            3 => Role::Head(id),
            4 => Role::CallTarget(id),
            5 => Role::Called(id),
            6 => Role::Superblock(id),
            7 => Role::SideExit(id),
            8 => Role::Target(id),
            9 => Role::CutOff(id),
            10 => Role::CutOffBranch(id),
            11 => Role::Transfer(id),
            _ => return None,
        })
    }
}

/// The contents of the record of a piece. A piece ends where the next one begins, but for a gap.
pub(crate) mod piece {
    pub const START: usize = 0;
    pub const GAP: usize = 4;
    /// Distance of its pc from the fragment's, or from the module where it has no fragment.
    pub const PC: usize = 8;
    pub const FRAGMENT: usize = 12;
    pub const POINTS: usize = 16;
    pub const POINTS_LEN: usize = 20;
}

/// gs-relative displacement of counter 0, and address of chain slot 0: what the numbers in an image
/// count from.
pub(crate) fn origin(kind: Relocation, layout: Layout) -> u64 {
    match kind {
        Relocation::Counter => CONTEXT_BYTES,
        _ => layout.chain_slot(0),
    }
}
