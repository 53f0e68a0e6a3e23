//! Prepared indirect tables: what programs that begin with the same modules have inserted before.
//!
//! An entry that a thread inserts by itself costs a page of the table, mostly, which is copied on
//! the first write. Scripts start the same programs over and over. From the second time on, a
//! program begins with a table that holds the entries which the one before had when it ended, of
//! the modules that the kernel has mapped for it: pages of the machine's memory that it only reads,
//! sixteen at a fault.
//!
//! A table never changes once it has been made: address spaces have copies of their own of the
//! pages that they have written to, and see the rest as it is. Modules that are mapped later are
//! none of its business, and what it holds of others is taken out of an address space where they
//! are unmapped, like everything else.

use lwp_dbt::context::TABLE_SLOTS;
use lwp_dbt::{CodeCache, EntryId, Layout};
use rustc_hash::FxHashMap;

use super::UnitId;
use super::low_window::LowWindow;

/// The offset of the first one in a family's memory, and the distance between two: each is laid out
/// as the low window.
const FIRST: u64 = 64 << 20;
const STEP: u64 = 32 << 20;
const _: () = assert!(Layout::BYTES <= STEP);
/// Most of them; two megabytes each.
const MOST: usize = 16;
/// Most chain slots that one brings along.
const MOST_CHAINS: u32 = 1 << 17;
/// One is made when so many programs that began alike have ended, and again if there is more by
/// then.
const MADE_AFTER: u32 = 2;
const MADE_AGAIN_AFTER: u32 = 10;
const PAGE: u64 = 4096;

/// A prepared table.
#[derive(Debug)]
pub struct Table {
    units: Vec<UnitId>,
    /// The entries that it holds.
    pub entries: Vec<EntryId>,
    /// Offset in the family's memory.
    pub offset: u64,
    /// Bytes of the chain slots that it brings along.
    pub chain_bytes: u64,
}

/// The prepared tables of a family.
#[derive(Debug, Default)]
pub struct Tables {
    made: Vec<Table>,
    /// The number of programs that began with these modules and have ended.
    ended: FxHashMap<Vec<UnitId>, u32>,
}

impl Tables {
    /// The table for a program that begins with `units`, if there is one.
    pub fn of(&self, units: &[UnitId]) -> Option<&Table> {
        self.made.iter().rev().find(|table| table.units == units)
    }

    /// Notes that a program which began with `units` has ended. Returns whether a table is to be
    /// made of the entries that it has inserted.
    pub fn note_end(&mut self, units: &[UnitId]) -> bool {
        if self.made.len() >= MOST {
            return false;
        }
        let count = match self.ended.get_mut(units) {
            Some(count) => count,
            None => self.ended.entry(units.to_vec()).or_default(),
        };
        *count = count.saturating_add(1);
        matches!(*count, MADE_AFTER | MADE_AGAIN_AFTER)
    }
}

impl LowWindow {
    /// Makes a table for `units` that holds `entries`, unless the one that there is has about as
    /// many.
    pub fn make_table(
        &mut self,
        code_cache: &CodeCache,
        units: Vec<UnitId>,
        entries: Vec<EntryId>,
    ) {
        let known = self.tables.of(&units).map_or(0, |table| table.entries.len());
        let chains = code_cache.entry_count();
        if entries.len() <= known + known / 8 || chains > MOST_CHAINS {
            return;
        }
        let (low, miss) = (self.layout, self.miss);
        let offset = FIRST + self.tables.made.len() as u64 * STEP;
        let chain_bytes = (u64::from(chains) * 8).next_multiple_of(PAGE);
        let mut heads = vec![miss; TABLE_SLOTS as usize];
        let mut next = vec![miss; chain_bytes as usize / 8];
        for &entry in &entries {
            let data = code_cache.entry(entry);
            let slot = (low.table_slot(data.pc.0) - low.table()) as usize / 8;
            next[entry.0 as usize] = std::mem::replace(&mut heads[slot], data.stub.0);
        }
        self.memory.write_new(offset, &bytes_of(&heads));
        self.memory.write_new(offset + self.offset_of(low.chain_slot(0)), &bytes_of(&next));
        self.tables.made.push(Table { units, entries, offset, chain_bytes });
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; words.len() * 8];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
