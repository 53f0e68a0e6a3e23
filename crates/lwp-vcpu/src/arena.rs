//! Arenas: regions of the machine's memory that translated code is appended to.

use lwp_dbt::{CachePc, CodeSink};
use lwp_ptrace::SharedMemory;

use crate::memory_map::REACH;

/// One arena: the same bytes at one file offset and, in every tracee of its family, one address.
#[derive(Clone, Debug)]
pub struct Arena {
    /// Address in the tracees.
    pub address: u64,
    /// Offset in the machine's memory.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    used: u64,
}

impl Arena {
    /// An arena that starts with a copy of the routines.
    pub fn new(
        memory: &SharedMemory,
        address: u64,
        offset: u64,
        bytes: u64,
        routines: &[u8],
    ) -> Self {
        memory.write(offset, routines);
        let used = (routines.len() as u64).next_multiple_of(64);
        Self { address, offset, bytes, used }
    }

    /// Whether code here reaches everything between `low` and `high`, and that reaches it.
    pub fn reaches(&self, low: u64, high: u64) -> bool {
        let (start, end) = (self.address, self.address + self.bytes);
        high.saturating_sub(start) < REACH && end.saturating_sub(low) < REACH
    }

    /// Whether `address` lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.address..self.address + self.bytes).contains(&address)
    }

    /// As a sink for the translator.
    pub fn sink<'a>(&'a mut self, memory: &'a SharedMemory) -> ArenaSink<'a> {
        ArenaSink { arena: self, memory }
    }
}

/// An arena and the memory it lies in.
#[derive(Debug)]
pub struct ArenaSink<'a> {
    arena: &'a mut Arena,
    memory: &'a SharedMemory,
}

impl ArenaSink<'_> {
    fn offset_of(&self, pc: CachePc) -> u64 {
        pc.0 - self.arena.address + self.arena.offset
    }
}

impl CodeSink for ArenaSink<'_> {
    fn position(&self) -> CachePc {
        CachePc(self.arena.address + self.arena.used)
    }

    fn room(&self) -> usize {
        (self.arena.bytes - self.arena.used) as usize
    }

    fn routines_at(&self) -> CachePc {
        CachePc(self.arena.address)
    }

    fn append(&mut self, code: &[u8]) {
        self.memory.write(self.arena.offset + self.arena.used, code);
        self.arena.used += code.len() as u64;
    }

    fn patch(&mut self, at: CachePc, displacement: i32) {
        self.memory.store_code_u32(self.offset_of(at), displacement as u32);
    }

    fn patch_head(&mut self, head: CachePc, target: CachePc) {
        let offset = self.offset_of(head);
        let word = offset & !7;
        let mut bytes = self.memory.load(word).to_le_bytes();
        let at = (offset - word) as usize;
        let displacement = target.0.wrapping_sub(head.0 + 5) as u32;
        bytes[at] = 0xe9;
        bytes[at + 1..at + 5].copy_from_slice(&displacement.to_le_bytes());
        self.memory.store(word, u64::from_le_bytes(bytes));
    }
}
