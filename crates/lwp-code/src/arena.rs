//! Arenas: regions of a family's memory that translated code is appended to.
//!
//! Every unit has its own part of an arena, a *chunk*, so that its code can be kept and put
//! elsewhere as one piece. Code that may change must be cut off at any moment, however full the
//! arena is: for every fragment of it there is room set aside for the stub that then takes its
//! place.

use lwp_dbt::{CachePc, CodeSink, HEAD};
use lwp_mailbox::memory_map::REACH;
use lwp_process::SharedMemory;

const PAGE: u64 = 4096;
/// The room that a fragment needs if it is cut off: its exit's stub, which is at most 9 bytes to
/// save a register, 10 to load another and 5 to jump, rounded up to 16; and that of a not-taken
/// edge, 40 bytes to count it and at most 8 to jump, likewise.
pub const STUB_BYTES: u64 = 32 + 48;
/// Room for stubs is taken so much at a time.
const STUBS_CHUNK: u64 = 64 << 10;

/// One arena: the same bytes at one file offset and, in every tracee of its family, one address.
#[derive(Clone, Debug)]
pub struct Arena {
    /// Address in the tracees.
    pub address: u64,
    /// Offset in its family's memory.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Bytes of it that have been given away.
    used: u64,
    /// Bytes of the rest that are set aside for stubs.
    reserved: u64,
}

/// A part of an arena that belongs to one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Address in the tracees; a multiple of the page size.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Bytes of code in it.
    pub used: u64,
}

impl Chunk {
    /// Bytes that are free.
    pub fn room(&self) -> u64 {
        self.bytes - self.used
    }
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
        memory.write_new(offset, routines);
        let used = (routines.len() as u64).next_multiple_of(PAGE);
        Self { address, offset, bytes, used, reserved: 0 }
    }

    /// One that is to be made.
    pub fn planned(address: u64, offset: u64, bytes: u64) -> Self {
        Self { address, offset, bytes, used: 0, reserved: 0 }
    }

    /// Returns whether code here reaches everything between `low` and `high`, and that reaches it.
    pub fn reaches(&self, low: u64, high: u64) -> bool {
        let (start, end) = (self.address, self.address + self.bytes);
        high.saturating_sub(start) < REACH && end.saturating_sub(low) < REACH
    }

    /// Returns whether `address` lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.address..self.address + self.bytes).contains(&address)
    }

    /// Bytes that have neither been given away nor set aside.
    pub fn left(&self) -> u64 {
        (self.bytes - self.used).saturating_sub(self.reserved)
    }

    /// Sets room aside for the stubs of new fragments; there must be as much left.
    pub fn reserve_stubs(&mut self, fragments: usize) {
        self.reserved += fragments as u64 * STUB_BYTES;
    }

    /// A chunk for stubs, from what has been set aside for them.
    pub fn stubs_chunk(&mut self) -> Option<Chunk> {
        let bytes = STUBS_CHUNK.min((self.bytes - self.used) / PAGE * PAGE);
        if bytes == 0 {
            return None;
        }
        let chunk = Chunk { address: self.address + self.used, bytes, used: 0 };
        self.used += bytes;
        self.reserved = self.reserved.saturating_sub(bytes);
        Some(chunk)
    }

    /// Gives away a chunk of `bytes`, or of half of what is left, if that is less, but of at least
    /// `least`.
    pub fn chunk(&mut self, bytes: u64, least: u64) -> Option<Chunk> {
        let left = self.left();
        let bytes = bytes.min((left / 2).max(least)).next_multiple_of(PAGE);
        if bytes > left {
            return None;
        }
        let chunk = Chunk { address: self.address + self.used, bytes, used: 0 };
        self.used += bytes;
        Some(chunk)
    }

    /// Takes back the chunk given away last.
    pub fn give_back(&mut self, chunk: Chunk) {
        if chunk.address + chunk.bytes == self.address + self.used {
            self.used -= chunk.bytes;
        }
    }

    /// The offset of `pc` in the family's memory.
    pub fn offset_of(&self, pc: CachePc) -> u64 {
        pc.0 - self.address + self.offset
    }

    /// A chunk as a sink for the translator.
    pub fn sink<'a>(&'a self, chunk: &'a mut Chunk, memory: &'a SharedMemory) -> ArenaSink<'a> {
        ArenaSink { arena: self, chunk, memory }
    }
}

/// A chunk and the memory it lies in.
#[derive(Debug)]
pub struct ArenaSink<'a> {
    arena: &'a Arena,
    chunk: &'a mut Chunk,
    memory: &'a SharedMemory,
}

impl CodeSink for ArenaSink<'_> {
    fn position(&self) -> CachePc {
        CachePc(self.chunk.address + self.chunk.used)
    }

    fn room(&self) -> usize {
        self.chunk.room() as usize
    }

    fn routines_at(&self) -> CachePc {
        CachePc(self.arena.address)
    }

    fn append(&mut self, code: &[u8]) {
        // Behind it lies other code.
        assert!(code.len() as u64 <= self.chunk.room(), "a chunk of translated code is too small");
        self.memory.write(self.arena.offset_of(self.position()), code);
        self.chunk.used += code.len() as u64;
    }

    fn patch(&mut self, at: CachePc, displacement: i32) {
        self.memory.store_code_u32(self.arena.offset_of(at), displacement as u32);
    }

    fn patch_head(&mut self, head: CachePc, target: CachePc) {
        let [a, b, c, d] = (target.0.wrapping_sub(head.0 + 5) as u32).to_le_bytes();
        self.write_head(head, [0xe9, a, b, c, d]);
    }

    fn restore_head(&mut self, head: CachePc) {
        self.write_head(head, HEAD);
    }
}

impl ArenaSink<'_> {
    /// Writes a head, which lies within eight aligned bytes, in one store.
    fn write_head(&self, head: CachePc, new: [u8; 5]) {
        let offset = self.arena.offset_of(head);
        let word = offset & !7;
        let mut bytes = self.memory.load(word).to_le_bytes();
        let at = (offset - word) as usize;
        bytes[at..at + 5].copy_from_slice(&new);
        self.memory.store(word, u64::from_le_bytes(bytes));
    }
}
