//! A control block and its ring, in memory that a processor writes to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lwp_arch::lwpcb::{EventSlot, Lwpcb};
use lwp_arch::{Record, RingOffset};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Alignment of block and ring: a line of the cache.
const LINE: usize = 64;
const WORD: usize = 8;

/// A control block with its ring behind it. Every access is atomic, because the processor writes
/// too.
///
/// The memory starts as zeros that the system has not yet provided: a large ring costs what is used
/// of it.
#[derive(Debug)]
pub(crate) struct Memory {
    words: Box<[AtomicU64]>,
    /// Index of the first word of the block.
    block: usize,
    /// Index of the first word of the ring.
    ring: usize,
    ring_bytes: usize,
}

impl Memory {
    /// Zeros for a block and a ring of these sizes in bytes; `None` if there is no memory.
    pub(crate) fn new(block_bytes: usize, ring_bytes: usize) -> Option<Self> {
        let block_lines = block_bytes.div_ceil(LINE) * LINE;
        let bytes = LINE + block_lines + ring_bytes;
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(bytes.div_ceil(WORD)).ok()?;
        let misaligned = words.as_ptr().addr() % LINE;
        let block = (LINE - misaligned) % LINE / WORD;
        Some(Self { words, block, ring: block + block_lines / WORD, ring_bytes })
    }

    /// Address of the block.
    pub(crate) fn address(&self) -> u64 {
        self.words[self.block..].as_ptr().expose_provenance() as u64
    }

    /// Address of the ring.
    pub(crate) fn ring_address(&self) -> u64 {
        self.words[self.ring..].as_ptr().expose_provenance() as u64
    }

    /// Size of the ring in bytes.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Reads two dwords at `offset` in the block.
    fn pair(&self, offset: u64) -> [u32; 2] {
        let bytes = self.words[self.block + offset as usize / WORD].load(Relaxed).to_le_bytes();
        let [a, b, c, d, e, f, g, h] = bytes;
        [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
    }

    /// Writes the fixed part of the block.
    pub(crate) fn set_block(&self, image: &Lwpcb) {
        self.write(self.block, image.as_bytes());
    }

    /// Writes the event slot at `offset` in the block.
    pub(crate) fn set_slot(&self, offset: u64, slot: &EventSlot) {
        self.write(self.block + offset as usize / WORD, slot.as_bytes());
    }

    /// The event slot at `offset` in the block.
    pub(crate) fn slot(&self, offset: u64) -> EventSlot {
        let [interval, counter] = self.pair(offset);
        EventSlot { interval: interval.into(), counter: counter.into() }
    }

    /// BufferHeadOffset as last flushed.
    pub(crate) fn head(&self) -> RingOffset {
        RingOffset(self.pair(Lwpcb::BUFFER_HEAD_OFFSET)[0])
    }

    /// Sets BufferTailOffset: everything before it has been read.
    pub(crate) fn set_tail(&self, tail: RingOffset) {
        let index = self.block + Lwpcb::BUFFER_TAIL_OFFSET as usize / WORD;
        self.words[index].store(tail.0.into(), Relaxed);
    }

    /// MissedEvents.
    pub(crate) fn missed(&self) -> u64 {
        self.words[self.block + Lwpcb::MISSED_EVENTS as usize / WORD].load(Relaxed)
    }

    /// The record at `offset` in the ring.
    pub(crate) fn record(&self, offset: RingOffset) -> Record {
        let mut bytes = [0; Record::SIZE];
        let first = self.ring + offset.0 as usize / WORD;
        for (chunk, word) in bytes.chunks_exact_mut(WORD).zip(&self.words[first..]) {
            chunk.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        Record::read_from_bytes(&bytes).unwrap_or_else(|_| Record::new_zeroed())
    }

    fn write(&self, first: usize, bytes: &[u8]) {
        for (word, chunk) in self.words[first..].iter().zip(bytes.chunks_exact(WORD)) {
            let mut value = [0; WORD];
            value.copy_from_slice(chunk);
            word.store(u64::from_le_bytes(value), Relaxed);
        }
    }

    /// Index of the word at `address`, if it is in this memory. For a modelled processor.
    #[cfg(test)]
    pub(super) fn word_at(&self, address: u64) -> Option<&AtomicU64> {
        let offset = address.checked_sub(self.words.as_ptr().addr() as u64)?;
        self.words.get(offset as usize / WORD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_and_ring_are_aligned_and_do_not_overlap() {
        for block_bytes in [152, 176, 192] {
            let memory = Memory::new(block_bytes, 4096).unwrap();
            assert_eq!((memory.address() % 64, memory.ring_address() % 64), (0, 0));
            assert!(memory.ring_address() >= memory.address() + block_bytes as u64);
            let end = memory.words.as_ptr().addr() + memory.words.len() * WORD;
            assert!(memory.ring_address() as usize + memory.ring_bytes() <= end);
        }
    }

    #[test]
    fn fields_are_where_the_layout_says() {
        let memory = Memory::new(176, 4096).unwrap();
        let mut image = Lwpcb::new_zeroed();
        image.buffer_head_offset = 96.into();
        image.missed_events = 7.into();
        memory.set_block(&image);
        memory.set_slot(128, &EventSlot::new(9, -3));
        assert_eq!((memory.head(), memory.missed()), (RingOffset(96), 7));
        assert_eq!(memory.slot(128), EventSlot::new(9, -3));
        let tail = memory.block + 8;
        memory.set_tail(RingOffset(64));
        assert_eq!(memory.words[tail].load(Relaxed), 64);
    }
}
