//! Images that have been put in place.

use super::{
    CHARGED_FIRST, CodeTarget, FIRST_ID, FLAGS_DEAD, HEAD_IS_JOIN, Header, Image, ImageError, JOIN,
    detail, piece, role, table, u16_at, u32_at, unpack_deltas, within,
};
use crate::addr::{AppPc, CachePc};
use crate::code_cache::CodeCache;
use crate::context::Layout;
use crate::context::calls::call_site;
use crate::fragment::{Entry, EntryId, Fragment, FragmentId, Unit, Within};
use crate::plan::Role;
use crate::rebuild::Knowledge;
use crate::relocation::Relocation;
use crate::state_map::{self, FlagWriter, Found};

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
    pub fn point_at(&self, pc: CachePc) -> Option<(AppPc, Found, Option<FragmentId>)> {
        let offset = (pc.0 - self.code) as u32;
        let after = self.image.first(table::PIECES, offset + 1);
        let piece = self.piece(after.checked_sub(1)?)?;
        let within = offset.checked_sub(piece.start)?;
        if within >= piece.len {
            return None;
        }
        let found = state_map::lookup(piece.points, within)?;
        Some((self.pc(piece.pc), found, piece.fragment))
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
