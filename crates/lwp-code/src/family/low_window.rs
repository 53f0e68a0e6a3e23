//! The low window of a family's address spaces: the template that each of them begins with, and the
//! chain slots of entries.

use std::sync::Arc;

use lwp_calls::syscalls;
use lwp_dbt::block::Emulated;
use lwp_dbt::context::KnownCpuid;
use lwp_dbt::{Layout, Translator};
use lwp_mailbox::memory_map::EMPTY_TABLE;
use lwp_process::SharedMemory;

use super::tables::Tables;

const PAGE: u32 = 4096;

/// The low window as the host writes it.
#[derive(Debug)]
pub struct LowWindow {
    /// The memory that the template lies in, at offset 0.
    pub(super) memory: Arc<SharedMemory>,
    /// Its place in an address space.
    pub(super) layout: Layout,
    /// Address of the routine that empty slots lead to.
    pub(super) miss: u64,
    /// Chain slots whose template page has been filled.
    chain_filled: u32,
    /// Prepared indirect tables.
    pub tables: Tables,
}

impl LowWindow {
    /// The state of a low window in a new address space, written to `memory`.
    pub(super) fn new(
        memory: Arc<SharedMemory>,
        translator: &Translator,
        emulated: &Emulated,
    ) -> Self {
        let (layout, routines) = (translator.layout(), translator.routines());
        let miss = layout.routines() + u64::from(routines.ask.rcx);
        let mut low = Self { memory, layout, miss, chain_filled: 0, tables: Tables::default() };
        low.memory.fill_new(0, EMPTY_TABLE, miss);
        let mask = lwp_dbt::context::INDEX_MASK.to_le_bytes();
        low.memory.write(low.offset_of(layout.index_mask()), &mask);
        let classes = syscalls::classes_for_table(emulated);
        low.memory.write_new(low.offset_of(layout.syscall_classes()), &classes);
        low.memory.write_new(low.offset_of(layout.routines()), &routines.code);
        low.fill_chains(1);
        low
    }

    /// The offset in the memory of an address in the window.
    pub(super) fn offset_of(&self, address: u64) -> u64 {
        address - self.layout.low
    }

    /// Says how an address is divided for a data cache that is watched.
    pub fn watch_cache(&self, [sets, lines, length, places]: [u64; 4]) {
        let low = &self.layout;
        self.memory.store(self.offset_of(low.set_mask()), sets);
        self.memory.store(self.offset_of(low.line_mask()), lines);
        self.memory.store(self.offset_of(low.set_length()), length);
        self.memory.store(self.offset_of(low.set_places()), places);
    }

    /// Lets translated code know an answer to CPUID. No address space has a copy of its own of the
    /// page that holds them.
    pub fn remember_cpuid(&self, known: KnownCpuid) {
        let at = self.offset_of(self.layout.known_cpuids());
        let count = self.memory.load(at);
        if count < KnownCpuid::MOST {
            let place = at + KnownCpuid::FIRST + count * KnownCpuid::BYTES;
            self.memory.write(place, &known.to_bytes());
            self.memory.store(at, count + 1);
        }
    }

    /// Makes sure that the chain slots below `entries` lead to the mailbox, a page at a time,
    /// before any address space can have touched the page.
    pub fn fill_chains(&mut self, entries: u32) {
        let first = self.chain_filled;
        self.chain_filled = entries.next_multiple_of(PAGE / 8).max(first);
        let at = self.offset_of(self.layout.chain_slot(first));
        self.memory.fill_new(at, u64::from(self.chain_filled - first) * 8, self.miss);
    }
}
