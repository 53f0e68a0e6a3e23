//! Reading the kernel's ring of records.
//!
//! The kernel is the only writer and moves `data_head`; the reader is the only one and moves
//! `data_tail`. Both count bytes for ever; the place in the ring is the count modulo its size. A
//! record may wrap around the end.

use crate::page::{Pages, field};

/// Size of a record's header.
const HEADER_BYTES: usize = 8;

/// A record as it lies in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// Mode of the processor and flags.
    pub misc: u16,
    /// The bytes behind the header.
    pub body: &'a [u8],
}

/// The faults of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// A header with a size that cannot be. Everything up to the head was skipped.
    #[error("a record of {size} bytes at ring position {at:#x}, of {available} available")]
    Size {
        /// The place, in bytes since the start.
        at: u64,
        /// The size it gives.
        size: u16,
        /// The number of bytes that there are.
        available: u64,
    },
    /// The distance of head and tail is not possible.
    #[error("ring head {head:#x} and tail {tail:#x} in a ring of {bytes} bytes")]
    Ends {
        /// Written so far.
        head: u64,
        /// Read so far.
        tail: u64,
        /// Size of the ring.
        bytes: usize,
    },
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Ring {
    pages: Box<dyn Pages>,
    tail: u64,
    record: Vec<u8>,
}

impl Ring {
    /// The ring of `pages`, read from where its last reader stopped.
    pub fn new(pages: Box<dyn Pages>) -> Self {
        let tail = pages.load64(field::DATA_TAIL);
        Self { pages, tail, record: Vec::new() }
    }

    /// The memory, metadata page included.
    pub fn pages(&self) -> &dyn Pages {
        &*self.pages
    }

    /// Takes the oldest record out of the ring. `None`: it is empty.
    ///
    /// The record is copied, and its place given back to the kernel, before this returns.
    ///
    /// # Errors
    ///
    /// The ring's head or a record's size is none that the kernel writes.
    pub fn next_record(&mut self) -> Result<Option<RawRecord<'_>>, RingError> {
        let bytes = self.pages.data_bytes();
        let head = self.pages.load64(field::DATA_HEAD);
        let available = head.wrapping_sub(self.tail);
        if available == 0 {
            return Ok(None);
        }
        if available > bytes as u64 || available < HEADER_BYTES as u64 {
            let error = RingError::Ends { head, tail: self.tail, bytes };
            self.advance(head);
            return Err(error);
        }
        let mut header = [0; HEADER_BYTES];
        self.copy(self.tail, &mut header);
        let [k0, k1, k2, k3, m0, m1, s0, s1] = header;
        let size = u16::from_le_bytes([s0, s1]);
        if usize::from(size) < HEADER_BYTES || u64::from(size) > available {
            let error = RingError::Size { at: self.tail, size, available };
            self.advance(head);
            return Err(error);
        }
        let mut record = std::mem::take(&mut self.record);
        record.resize(usize::from(size) - HEADER_BYTES, 0);
        self.copy(self.tail.wrapping_add(HEADER_BYTES as u64), &mut record);
        self.record = record;
        self.advance(self.tail.wrapping_add(u64::from(size)));
        Ok(Some(RawRecord {
            kind: u32::from_le_bytes([k0, k1, k2, k3]),
            misc: u16::from_le_bytes([m0, m1]),
            body: &self.record,
        }))
    }

    /// Gives the place of every record up to the head back to the kernel.
    pub fn skip(&mut self) {
        self.advance(self.pages.load64(field::DATA_HEAD));
    }

    /// Copies from position `at` on, around the end if need be.
    fn copy(&self, at: u64, bytes: &mut [u8]) {
        let size = self.pages.data_bytes();
        let start = (at % size as u64) as usize;
        let first = bytes.len().min(size - start);
        let (before, behind) = bytes.split_at_mut(first);
        self.pages.copy(start, before);
        if !behind.is_empty() {
            self.pages.copy(0, behind);
        }
    }

    fn advance(&mut self, tail: u64) {
        self.tail = tail;
        self.pages.set_tail(tail);
    }
}
