//! Images: what has been translated of one unit, as bytes that outlive the run.
//!
//! An image is looked up where it lies: tables are sorted by what is searched for, so that putting
//! one in place costs its relocations and nothing for each fragment. Addresses are relative, to the
//! module or to the unit's code; counters and entries are numbered from zero. [`crate::freeze`]
//! writes images, [`CodeCache::restore`] puts one in place.
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
//! Everything in blocks is compressed, and unpacked when it is first looked at (`blocks.rs`): the
//! code and its relocations when the image is put in place, the rest hardly ever.
//!
//! The bytes must have been checked for damage before. Images are still read with care: no content
//! makes a lookup panic or leads outside the unit's code.

pub(crate) mod blocks;
mod relocate;

use blocks::{Blocks, Shape};
pub use relocate::CodeTarget;

use crate::addr::{AppPc, CachePc};
use crate::code_cache::CodeCache;
use crate::context::calls::call_site;
use crate::context::{CONTEXT_BYTES, Layout};
use crate::fragment::{Entry, EntryId, Fragment, FragmentId, Unit, Within};
use crate::packed::PackedDeltas;
use crate::plan::{EventDeltas, Role};
use crate::rebuild::Knowledge;
use crate::relocation::{Relocation, SITE_LIMIT, Site};
use crate::state_map::{self, FlagWriter, StateEntry};

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
    /// A number of [`Knowledge`].
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

/// The addresses at which an image is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Address of its code; a multiple of 64.
    pub code: CachePc,
    /// The address of that arena's copy of the routines.
    pub routines: CachePc,
    /// Lowest address of the module.
    pub module: AppPc,
}

/// A piece as it stands in the table: offsets, and a pc relative to the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceRecord<'a> {
    pub start: u32,
    pub len: u32,
    pub pc: u32,
    pub fragment: Option<FragmentId>,
    pub points: &'a [u8],
}

/// An image in place.
#[derive(Debug)]
pub(crate) struct Placed {
    image: Image,
    code: u64,
    module: u64,
    first_fragment: u32,
    first_entry: u32,
}

impl Placed {
    pub fn image(&self) -> &Image {
        &self.image
    }

    pub fn code_start(&self) -> CachePc {
        CachePc(self.code)
    }

    pub fn first_entry(&self) -> u32 {
        self.first_entry
    }

    pub fn fragments(&self) -> usize {
        self.image.fragments()
    }

    /// Returns the number of those that have a pc of their own.
    pub fn reachable(&self) -> usize {
        self.image.header.reachable as usize
    }

    /// Returns the knowledge of the unit when the image was made.
    pub fn knowledge(&self) -> Knowledge {
        Knowledge::of(self.image.header.knowledge)
    }

    pub fn contains(&self, pc: CachePc) -> bool {
        pc.0.wrapping_sub(self.code) < self.image.code_len() as u64
    }

    /// A fragment's place in the tables.
    pub fn index(&self, id: FragmentId) -> usize {
        id.0.wrapping_sub(self.first_fragment) as usize
    }

    /// The number of the fragment at `index` in the tables.
    pub fn id(&self, index: u32) -> FragmentId {
        FragmentId(self.first_fragment + index)
    }

    /// Returns the role of a counter, if that has been kept.
    pub fn role(&self, number: usize) -> Option<Role> {
        let record = self.image.record(table::ROLES, number)?;
        let there = |index: &u32| (*index as usize) < self.fragments();
        role::from_words([u32_at(record, 0), u32_at(record, 4)], |index| {
            Some(index).filter(there).map(|index| self.id(index))
        })
    }

    /// The application pcs and places of a table of pairs.
    pub fn pairs(&self, table: usize) -> impl Iterator<Item = (AppPc, CachePc)> + '_ {
        let records = self.image.records(table);
        records
            .filter_map(|record| Some((self.pc(u32_at(record, 0)), self.place(u32_at(record, 4))?)))
    }

    /// All pieces.
    pub fn pieces(&self) -> impl Iterator<Item = PieceRecord<'_>> {
        (0..self.image.count(table::PIECES)).filter_map(|index| self.piece(index))
    }

    fn piece(&self, index: usize) -> Option<PieceRecord<'_>> {
        let record = self.image.record(table::PIECES, index)?;
        let start = u32_at(record, piece::START);
        let end = match self.image.record(table::PIECES, index + 1) {
            Some(next) => u32_at(next, piece::START),
            None => self.image.code_len() as u32,
        };
        let fragment = u32_at(record, piece::FRAGMENT) as usize;
        let hot = self.image.record(table::FRAGS, fragment);
        let origin = hot.map_or(0, |hot| u32_at(hot, 0));
        let (at, len) = (u32_at(record, piece::POINTS), u32_at(record, piece::POINTS_LEN));
        Some(PieceRecord {
            start,
            len: end.wrapping_sub(start).wrapping_sub(u32_at(record, piece::GAP)),
            pc: u32_at(record, piece::PC).wrapping_add(origin),
            fragment: hot.map(|_| self.id(fragment as u32)),
            points: self.image.bytes_at(table::POINTS, at as usize, len as usize)?,
        })
    }

    fn pc(&self, offset: u32) -> AppPc {
        AppPc(self.module.wrapping_add(i64::from(offset.cast_signed()) as u64))
    }

    fn key(&self, pc: AppPc) -> Option<u32> {
        let distance = pc.0.wrapping_sub(self.module) as i64;
        i32::try_from(distance).ok().map(i32::cast_unsigned)
    }

    /// A place in the code; `None` where the table holds none.
    fn place(&self, offset: u32) -> Option<CachePc> {
        let inside = (offset as usize) < self.image.code_len();
        inside.then(|| CachePc(self.code + u64::from(offset)))
    }

    pub fn fragment_at(&self, pc: AppPc) -> Option<FragmentId> {
        let key = self.key(pc)?;
        let reachable = self.image.header.reachable as usize;
        let first_word = |record: &[u8]| u32_at(record, 0);
        let index = self.image.search_in((0, reachable), table::FRAGS, key, first_word);
        let record = self.image.record(table::FRAGS, index).filter(|_| index < reachable)?;
        (u32_at(record, 0) == key).then_some(FragmentId(self.first_fragment + index as u32))
    }

    pub fn head(&self, id: FragmentId) -> Option<CachePc> {
        let index = self.index(id);
        let join = u32_at(self.image.record(table::FRAGS, index)?, 4);
        if join & HEAD_IS_JOIN != 0 {
            return self.place(join & JOIN);
        }
        self.place(u32_at(self.image.record(table::DETAILS, index)?, detail::HEAD))
    }

    /// The fragment with this number; `late` is a head made for it since.
    pub fn fragment(&self, id: FragmentId, late: Option<CachePc>) -> Fragment {
        let index = self.index(id);
        let hot = self.image.record(table::FRAGS, index).unwrap_or(&[0; 8]);
        let cold = self.image.record(table::DETAILS, index).unwrap_or(&[0; 32]);
        let target = u32_at(cold, detail::TARGET);
        let place = |offset| self.place(offset).unwrap_or(CachePc(self.code));
        let join = u32_at(hot, 4) & JOIN;
        Fragment {
            pc: self.pc(u32_at(hot, 0)),
            app_len: u16_at(cold, detail::APP_LEN),
            instructions: u16_at(cold, detail::INSTRUCTIONS),
            start: place(join.wrapping_sub(u32_at(cold, detail::START))),
            len: u32_at(cold, detail::LEN),
            head: late.or_else(|| self.head(id)),
            join: place(join),
            charged_first: u32_at(hot, 4) & CHARGED_FIRST != 0,
            target: match target.cast_signed() {
                detail::NO_TARGET => AppPc(0),
                _ => self.pc(target.wrapping_add(u32_at(hot, 0))),
            },
            deltas: unpack_deltas(&cold[detail::WEIGHTS..]),
            countdown: (cold[detail::COUNTDOWN], cold[detail::COUNTDOWN + 1]),
            flags_dead: u32_at(hot, 4) & FLAGS_DEAD != 0,
        }
    }

    /// Returns the record of a fragment within a superblock.
    pub fn within(&self, id: FragmentId) -> Option<Within> {
        let place = self.index(id) as u32;
        let record = self.image.record(table::WITHIN, self.image.first(table::WITHIN, place))?;
        if u32_at(record, 0) != place {
            return None;
        }
        let flags = match u32_at(record, within::WRITER).cast_signed() {
            detail::NO_TARGET => None,
            distance => {
                let pc = self.image.record(table::FRAGS, place as usize)?;
                let pc = self.pc(u32_at(pc, 0).wrapping_add(distance.cast_unsigned()));
                Some(FlagWriter { pc, stack: u32_at(record, within::STACK).cast_signed() })
            }
        };
        let next = u32_at(record, within::NEXT);
        let next = ((next as usize) < self.fragments()).then(|| self.id(next));
        let behind = unpack_deltas(&record[within::BEHIND..]);
        let countdown = (record[within::COUNTDOWN], record[within::COUNTDOWN + 1]);
        Some(Within { behind, countdown, flags, next })
    }

    pub fn entry_at(&self, pc: AppPc) -> Option<EntryId> {
        let key = self.key(pc)?;
        let pc_of = |record: &[u8]| {
            let number = u32_at(record, 0) as usize;
            self.image.record(table::ENTRIES, number).map_or(0, |entry| u32_at(entry, 0))
        };
        let index = self.image.search(table::BY_PC, key, pc_of);
        let record = self.image.record(table::BY_PC, index)?;
        (pc_of(record) == key).then(|| EntryId(self.first_entry + u32_at(record, 0)))
    }

    pub fn stub_of(&self, target: AppPc) -> Option<CachePc> {
        let key = self.key(target)?;
        let record = self.image.record(table::STUBS, self.image.first(table::STUBS, key))?;
        if u32_at(record, 0) == key { self.place(u32_at(record, 4)) } else { None }
    }

    /// The displacements of exits that waited for `target` when the image was made.
    pub fn pending(&self, target: AppPc) -> Vec<CachePc> {
        let Some(key) = self.key(target) else { return Vec::new() };
        (self.image.first(table::PENDING, key)..self.image.count(table::PENDING))
            .map_while(|index| self.image.record(table::PENDING, index))
            .take_while(|record| u32_at(record, 0) == key)
            .filter_map(|record| self.place(u32_at(record, 4)))
            .filter(|site| (site.0 - self.code) as usize + 4 <= self.image.code_len())
            .collect()
    }

    /// The point that holds at `pc`, the pc that it counts from, and the fragment.
    pub fn point_at(&self, pc: CachePc) -> Option<(AppPc, StateEntry, Option<FragmentId>)> {
        let offset = (pc.0 - self.code) as u32;
        let after = self.image.first(table::PIECES, offset + 1);
        let piece = self.piece(after.checked_sub(1)?)?;
        let within = offset.checked_sub(piece.start)?;
        if within >= piece.len {
            return None;
        }
        let point = state_map::lookup(piece.points, within)?;
        Some((self.pc(piece.pc), point, piece.fragment))
    }
}

impl CodeCache {
    pub(crate) fn placed_of(&self, id: FragmentId) -> Option<&Placed> {
        if id.0 < FIRST_ID {
            return None;
        }
        let after = self.placed.partition_point(|placed| placed.first_fragment <= id.0);
        self.placed[..after].last().map(|placed| &**placed)
    }

    /// Puts `image` in place as the content of `unit`, which is empty, and hands its code to `to`.
    /// Its entries and counters get the next numbers.
    ///
    /// On an error nothing has changed here, but some of the code may have been written.
    pub fn restore(
        &mut self,
        unit: &mut Unit,
        image: Image,
        at: Placement,
        to: &CodeTarget<'_>,
    ) -> Result<(), ImageError> {
        if !unit.fragments.is_empty() || unit.placed.is_some() {
            return Err(ImageError::NotEmpty);
        }
        image.relocate(&self.deltas(&image.header, at), to)?;
        let (first_entry, first_fragment) = (self.entry_count(), self.next_restored());
        let placed =
            Placed { image, code: at.code.0, module: at.module.0, first_fragment, first_entry };
        self.entries.reserve(placed.image.entries());
        self.entries.extend(placed.image.records(table::ENTRIES).map(|record| Entry {
            pc: placed.pc(u32_at(record, 0)),
            stub: placed.place(u32_at(record, 4)).unwrap_or(at.code),
        }));
        let placed = std::sync::Arc::new(placed);
        self.counters.restore(&placed);
        unit.placed = Some(placed.clone());
        self.placed.push(placed);
        Ok(())
    }

    /// The number of the first fragment of the next image.
    fn next_restored(&self) -> u32 {
        let last = self.placed.last();
        last.map_or(FIRST_ID, |last| last.first_fragment + last.fragments() as u32)
    }

    /// The restored entry with its stub at `stub`.
    pub fn restored_entry(&self, stub: CachePc) -> Option<EntryId> {
        let placed = self.placed.iter().find(|placed| placed.contains(stub))?;
        let first = placed.first_entry as usize;
        // Entries are numbered in the order in which their stubs were appended.
        let entries = &self.entries[first..first + placed.image.entries()];
        let index = entries.binary_search_by_key(&stub.0, |entry| entry.stub.0).ok()?;
        Some(EntryId((first + index) as u32))
    }

    /// Returns the amounts that are added to the words of each kind.
    fn deltas(&self, header: &Header, at: Placement) -> [i64; Relocation::KINDS] {
        let moved = at.code.0.wrapping_sub(header.code) as i64;
        let module = at.module.0.wrapping_sub(header.module) as i64;
        let mut deltas = [0i64; Relocation::KINDS];
        deltas[Relocation::Counter as usize] = self.counters.len() as i64 * 8;
        deltas[Relocation::Chain as usize] =
            i64::from(self.entry_count()) * Layout::CHAIN_BYTES as i64;
        deltas[Relocation::Application as usize] = module.wrapping_sub(moved);
        deltas[Relocation::Routines as usize] =
            (at.routines.0.wrapping_sub(header.routines) as i64).wrapping_sub(moved);
        // As call sites are named: see `call_site`.
        deltas[Relocation::CallSite as usize] = i64::from(call_site(self.counters.len() as u32));
        deltas[Relocation::Fragment as usize] = i64::from(self.next_restored());
        deltas[Relocation::Address as usize] = module;
        deltas[Relocation::Negated as usize] = module.wrapping_neg();
        deltas[Relocation::Low as usize] = module;
        deltas[Relocation::Halves as usize] = module;
        deltas[Relocation::Rotated as usize] = module;
        deltas[Relocation::RotatedBack as usize] = module;
        deltas
    }
}

/// gs-relative displacement of counter 0, and address of chain slot 0: what the numbers in an image
/// count from.
pub(crate) fn origin(kind: Relocation, layout: Layout) -> u64 {
    match kind {
        Relocation::Counter => CONTEXT_BYTES,
        _ => layout.chain_slot(0),
    }
}
