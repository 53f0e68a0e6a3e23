//! Freezing: writes a unit, as far as it has been translated, as an image.

use rustc_hash::FxHashMap;

use crate::addr::{AppPc, CachePc};
use crate::code_cache::CodeCache;
use crate::context::Layout;
use crate::context::calls::{call_site, call_site_counter};
use crate::fragment::{EntryId, Fragment, FragmentId, Unit, Within};
use crate::image::{
    self, CHARGED_FIRST, FLAGS_DEAD, HEAD_IS_JOIN, Header, NONE, Placement, blocks, detail, table,
};
use crate::packed::PackedDeltas;
use crate::rebuild::Knowledge;

use crate::relocation::{Relocation, SITE_LIMIT, Site};

/// A unit to be frozen.
#[derive(Clone, Debug)]
pub struct Freeze<'a> {
    /// The translated unit.
    pub unit: &'a Unit,
    /// The place of its code, and of its module.
    pub at: Placement,
    /// All of its code, from there.
    pub code: Vec<u8>,
    /// The knowledge of its executions.
    pub knowledge: Knowledge,
}

/// An image, in parts that follow each other: large, and not worth copying together.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// Its bytes.
    pub parts: Vec<Vec<u8>>,
    /// The number of bytes of the application's code that it translates, and of its own code.
    pub code_bytes: (u64, u64),
}

impl Frozen {
    /// All of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts.concat()
    }
}

/// The tables of an image in the making.
struct Tables<'a> {
    cache: &'a CodeCache,
    layout: Layout,
    input: Freeze<'a>,
    /// By the order of their pcs; those behind `reachable` in the order in which they were made.
    fragments: Vec<(u32, FragmentId)>,
    /// The number of those that have a pc of their own.
    reachable: usize,
    /// Their places there.
    order: FxHashMap<FragmentId, u32>,
    code: Vec<u8>,
    tables: [Vec<u8>; table::BYTES.len()],
    /// Bytes of the application's code.
    covered: u64,
}

impl CodeCache {
    /// Writes a unit as an image. `None` where it holds something that an image cannot express: a
    /// part of its code elsewhere, or addresses too far apart.
    pub fn freeze(&self, layout: Layout, mut input: Freeze<'_>) -> Option<Frozen> {
        if input.code.len() >= SITE_LIMIT || !input.at.code.0.is_multiple_of(64) {
            return None;
        }
        let code = std::mem::take(&mut input.code);
        let mut out = Tables {
            cache: self,
            layout,
            input,
            fragments: Vec::new(),
            reachable: 0,
            order: FxHashMap::default(),
            code,
            tables: std::array::from_fn(|_| Vec::new()),
            covered: 0,
        };
        out.fragments()?;
        out.entries_and_sites()?;
        out.exits()?;
        out.pieces()?;
        Some(out.finish())
    }
}

impl Tables<'_> {
    fn put(&mut self, table: usize, words: &[u32]) {
        for word in words {
            self.tables[table].extend_from_slice(&word.to_le_bytes());
        }
    }

    /// An address in the code, relative to its start.
    fn offset(&self, pc: CachePc) -> Option<u32> {
        let offset = pc.0.checked_sub(self.input.at.code.0)?;
        (offset < self.code.len() as u64).then_some(offset as u32)
    }

    /// An application pc, relative to the module.
    fn distance(&self, pc: AppPc) -> Option<u32> {
        let distance = pc.0.wrapping_sub(self.input.at.module.0) as i64;
        i32::try_from(distance).ok().map(i32::cast_unsigned)
    }

    fn fragments(&mut self) -> Option<()> {
        let unit = self.input.unit;
        let mut all = Vec::with_capacity(unit.restored_fragments() + unit.fragments.len());
        let mut inner = Vec::new();
        if let Some(placed) = &unit.placed {
            for (index, record) in placed.image().records(table::FRAGS).enumerate() {
                let word = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
                let list = if index < placed.reachable() { &mut all } else { &mut inner };
                list.push((word, placed.id(index as u32)));
            }
        }
        for (&pc, &id) in &unit.fragments {
            all.push((self.distance(pc)?, id));
        }
        all.sort_unstable_by_key(|(pc, _)| *pc);
        self.reachable = all.len();
        for &id in &unit.inner {
            inner.push((self.distance(self.cache.fragment(id).pc)?, id));
        }
        all.append(&mut inner);
        for &(pc, id) in &all {
            let fragment = self.cache.fragment(id);
            self.fragment(pc, &fragment)?;
        }
        self.order.reserve(all.len());
        self.order.extend(all.iter().enumerate().map(|(at, (_, id))| (*id, at as u32)));
        self.fragments = all;
        self.within()
    }

    /// Writes the records of the fragments in superblocks.
    fn within(&mut self) -> Option<()> {
        let none = detail::NO_TARGET.cast_unsigned();
        for at in 0..self.fragments.len() {
            let (pc, id) = self.fragments[at];
            let Some(within) = self.cache.within(id) else { continue };
            let Within { behind, countdown, flags, next } = within;
            self.put(table::WITHIN, &[at as u32]);
            self.tables[table::WITHIN].extend_from_slice(&PackedDeltas::new(behind)?.0);
            let (writer, stack) = match flags {
                Some(flags) => {
                    let distance = self.distance(flags.pc)?.wrapping_sub(pc);
                    (Some(distance).filter(|it| *it != none)?, flags.stack)
                }
                None => (none, 0),
            };
            let next = next.map_or(Some(NONE), |next| self.order.get(&next).copied())?;
            let countdown = u32::from_le_bytes([countdown.0, countdown.1, 0, 0]);
            self.put(table::WITHIN, &[writer, stack.cast_unsigned(), next, countdown]);
        }
        Some(())
    }

    fn fragment(&mut self, pc: u32, fragment: &Fragment) -> Option<()> {
        self.covered += u64::from(fragment.app_len);
        let join = self.offset(fragment.join)?;
        let head = match fragment.head {
            Some(head) => self.offset(head)?,
            None => NONE,
        };
        let dead = if fragment.flags_dead { FLAGS_DEAD } else { 0 };
        let first = if fragment.charged_first { CHARGED_FIRST } else { 0 };
        let (is_join, head) = if head == join { (HEAD_IS_JOIN, 0) } else { (0, head) };
        self.put(table::FRAGS, &[pc, join | dead | first | is_join]);
        let none = detail::NO_TARGET.cast_unsigned();
        let target = match fragment.target {
            AppPc(0) => none,
            target => Some(self.distance(target)?.wrapping_sub(pc)).filter(|it| *it != none)?,
        };
        let before_join = join.wrapping_sub(self.offset(fragment.start)?);
        self.put(table::DETAILS, &[before_join, fragment.len, target]);
        let details = &mut self.tables[table::DETAILS];
        details.extend_from_slice(&PackedDeltas::new(fragment.deltas)?.0);
        details.extend_from_slice(&fragment.app_len.to_le_bytes());
        details.extend_from_slice(&fragment.instructions.to_le_bytes());
        details.extend(head.to_le_bytes());
        details.extend([fragment.countdown.0, fragment.countdown.1, 0, 0]);
        Some(())
    }

    /// Numbers entries, counters and fragments anew, from zero, and writes the new numbers into the
    /// code.
    fn entries_and_sites(&mut self) -> Option<()> {
        let entries = self.entries()?;
        let sites = self.sites()?;
        let counters = self.counters(&sites)?;
        let layout = self.layout;
        for site in sites {
            self.put(table::SITES, &[site.0]);
            let old = self.word(site)?;
            let numbered = |kind| image::origin(kind, layout) as u32;
            let number_of = |kind| Some(old.checked_sub(numbered(kind))? / 8);
            let kind = site.kind()?;
            let new = match kind {
                Relocation::Counter => numbered(kind) + counters.get(&number_of(kind)?)? * 8,
                Relocation::Chain => numbered(kind) + entries.get(&EntryId(number_of(kind)?))? * 8,
                Relocation::CallSite => call_site(*counters.get(&call_site_counter(old))?),
                Relocation::Fragment => *self.order.get(&FragmentId(old))?,
                Relocation::Application
                | Relocation::Routines
                | Relocation::Address
                | Relocation::Negated
                | Relocation::Low
                | Relocation::Halves
                | Relocation::Rotated
                | Relocation::RotatedBack => continue,
            };
            let at = site.at();
            self.code[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        Some(())
    }

    /// The word at a relocation.
    fn word(&self, site: Site) -> Option<u32> {
        let at = site.at();
        self.code.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// New numbers of the counters, in the order in which the code mentions them first: those of a
    /// call's site stay neighbours. Writes what they stand for.
    fn counters(&mut self, sites: &[Site]) -> Option<FxHashMap<u32, u32>> {
        let cache = self.cache;
        // Nobody asks in a unit that is not watched.
        let watched = self.input.knowledge == Knowledge::Watched;
        let roles = watched || cache.counters().has_roles();
        let origin = image::origin(Relocation::Counter, self.layout) as u32;
        let mut counters: FxHashMap<u32, u32> = FxHashMap::default();
        for site in sites {
            if site.kind()? != Relocation::Counter {
                continue;
            }
            let old = self.word(*site)?.checked_sub(origin)? / 8;
            let next = counters.len() as u32;
            if *counters.entry(old).or_insert(next) != next {
                continue;
            }
            let known = cache.counters();
            let deltas = known.deltas(old as usize);
            self.tables[table::WEIGHTS].extend_from_slice(&PackedDeltas::new(deltas)?.0);
            if roles {
                let index_of = |id| self.order.get(&id).copied();
                let words = image::role::words(known.role(old as usize)?, index_of)?;
                self.put(table::ROLES, &words);
            }
        }
        Some(counters)
    }

    /// All relocations, by place.
    fn sites(&self) -> Option<Vec<Site>> {
        let unit = self.input.unit;
        let mut sites = Vec::new();
        if let Some(placed) = &unit.placed {
            sites = placed.image().sites()?;
        }
        for (at, kind) in unit.relocations.all()? {
            sites.push(Site::new(self.offset(at)? as usize, kind)?);
        }
        sites.sort_unstable_by_key(|site| site.at());
        Some(sites)
    }

    /// Entries in the order they were made; returns their new numbers.
    fn entries(&mut self) -> Option<FxHashMap<EntryId, u32>> {
        let unit = self.input.unit;
        let mut ids: Vec<EntryId> = unit.entries.values().copied().collect();
        if let Some(placed) = &unit.placed {
            let first = placed.first_entry();
            ids.extend((0..placed.image().entries() as u32).map(|index| EntryId(first + index)));
        }
        ids.sort_unstable();
        let mut by_pc = Vec::with_capacity(ids.len());
        for (number, &id) in ids.iter().enumerate() {
            let entry = *self.cache.entry(id);
            let pc = self.distance(entry.pc)?;
            let stub = self.offset(entry.stub)?;
            self.put(table::ENTRIES, &[pc, stub]);
            by_pc.push((pc, number as u32));
        }
        by_pc.sort_unstable();
        for (_, number) in by_pc {
            self.put(table::BY_PC, &[number]);
        }
        Some(ids.into_iter().enumerate().map(|(number, id)| (id, number as u32)).collect())
    }

    /// Exits that are not linked yet, and the stubs they lead to.
    fn exits(&mut self) -> Option<()> {
        let unit = self.input.unit;
        let mut pending = Vec::new();
        let mut stubs = Vec::new();
        if let Some(placed) = &unit.placed {
            for (target, site) in placed.pairs(table::PENDING) {
                // What has been translated since is linked.
                if !unit.fragments.contains_key(&target) {
                    pending.push((self.distance(target)?, self.offset(site)?));
                }
            }
            for (target, stub) in placed.pairs(table::STUBS) {
                stubs.push((self.distance(target)?, self.offset(stub)?));
            }
        }
        for (&target, sites) in &unit.exits.pending {
            for &site in sites {
                pending.push((self.distance(target)?, self.offset(site)?));
            }
        }
        for (&target, &stub) in &unit.exits.stubs {
            stubs.push((self.distance(target)?, self.offset(stub)?));
        }
        for (number, mut pairs) in [(table::PENDING, pending), (table::STUBS, stubs)] {
            pairs.sort_unstable();
            for (key, value) in pairs {
                self.put(number, &[key, value]);
            }
        }
        Some(())
    }

    /// Pieces of code and their points.
    fn pieces(&mut self) -> Option<()> {
        let mut pieces = Vec::new();
        let old_end = match &self.input.unit.placed {
            Some(placed) => {
                for piece in placed.pieces() {
                    let fragment = piece.fragment.map(|id| self.order[&id]);
                    pieces.push(([piece.start, piece.len, piece.pc], fragment, piece.points));
                }
                placed.code_start().offset(placed.image().code_len() as u64)
            }
            None => self.input.at.code,
        };
        let end = self.input.at.code.offset(self.code.len() as u64);
        let cache = self.cache;
        for (start, piece) in cache.pieces.range(old_end.0..end.0) {
            let words = [self.offset(CachePc(start))?, piece.len, self.distance(piece.pc)?];
            let fragment = match piece.fragment {
                Some(id) => Some(*self.order.get(&id)?),
                None => None,
            };
            pieces.push((words, fragment, cache.points.get(piece.points)));
        }
        let mut known: FxHashMap<&[u8], u32> = FxHashMap::default();
        for (at, &([start, len, pc], fragment, points)) in pieces.iter().enumerate() {
            let next = pieces.get(at + 1).map_or(self.code.len() as u32, |([next, ..], ..)| *next);
            let gap = next.checked_sub(start)?.checked_sub(len)?;
            let origin = fragment.map_or(0, |index| self.fragments[index as usize].0);
            let at = match known.get(points) {
                Some(&at) => at,
                None => *known.entry(points).or_insert(add_points(&mut self.tables, points)?),
            };
            self.put(table::PIECES, &[start, gap, pc.wrapping_sub(origin)]);
            self.put(table::PIECES, &[fragment.unwrap_or(NONE), at, points.len() as u32]);
        }
        Some(())
    }

    fn finish(mut self) -> Frozen {
        self.tables[table::CODE] = std::mem::take(&mut self.code);
        let mut header = Header {
            module: self.input.at.module.0,
            code: self.input.at.code.0,
            routines: self.input.at.routines.0,
            reachable: self.reachable as u64,
            knowledge: self.input.knowledge as u64,
            ..Header::default()
        };
        let code_bytes = (self.covered, self.tables[table::CODE].len() as u64);
        let mut parts = vec![Vec::new()];
        for (number, raw) in self.tables.into_iter().enumerate() {
            let width = table::BYTES[number];
            header.counts[number] = (raw.len() / width) as u64;
            let stored = match table::blocks(number) {
                Some((records, shape)) => blocks::pack(&raw, width, records * width, shape),
                None => raw,
            };
            header.stored[number] = stored.len() as u64;
            parts.push(stored);
        }
        parts[0] = header.to_bytes();
        Frozen { parts, code_bytes }
    }
}

/// Adds the points of a piece, all to one block.
fn add_points(tables: &mut [Vec<u8>], points: &[u8]) -> Option<u32> {
    let table = &mut tables[table::POINTS];
    let left = table::MOST_POINTS - table.len() % table::MOST_POINTS;
    if points.len() > table::MOST_POINTS {
        return None;
    }
    if points.len() > left {
        table.resize(table.len() + left, 0);
    }
    let at = table.len() as u32;
    table.extend_from_slice(points);
    Some(at)
}
