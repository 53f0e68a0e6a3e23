//! Takes records out of a ring while the processor writes to it.
//!
//! The processor owns the head, the reader owns the tail. The processor writes a record and then
//! the head; the reader reads the head, then records, then moves the tail past what it has copied.
//! So a record between tail and head is complete, and the processor doesn't overwrite it before the
//! tail has passed it. (The processor's stores become visible in order; the reader's acquire and
//! release pair with them.)

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lwp_arch::lwpcb::Lwpcb;
use lwp_arch::ring::Ring;
use lwp_arch::{Record, RingOffset};

use crate::error::Error;
use crate::ring::{RING_AT, Region, Words};

const HEAD: usize = Lwpcb::BUFFER_HEAD_OFFSET as usize / 4;
const MISSED: usize = Lwpcb::MISSED_EVENTS as usize / 4;
const TAIL: usize = Lwpcb::BUFFER_TAIL_OFFSET as usize / 4;
/// The two quadwords of software, in words.
const SOFTWARE: usize = 0x48 / 4;
/// Marks a block that this library made; the next word holds the length of a record.
const MARK: [u8; 8] = *b"lwp-ring";

/// The places of things in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    ring: Ring,
    /// Word number of the ring's first word.
    ring_at: usize,
}

impl Geometry {
    /// A ring of `ring_bytes` at its place in a region. A region has room for one record at least.
    pub fn new(record_bytes: u32, ring_bytes: usize) -> Self {
        let bytes = u32::try_from(ring_bytes).unwrap_or(u32::MAX);
        let smallest = Ring::new(Record::SIZE as u32, Record::SIZE as u32);
        let ring = Ring::new(bytes, record_bytes).or(smallest);
        // Both are rings unless a record has no length, which CPUID was checked for.
        let ring = ring.unwrap_or_else(|| unreachable!("a record of {record_bytes} bytes"));
        Self { ring, ring_at: RING_AT / 4 }
    }

    #[cfg(test)]
    pub(crate) const fn at(ring: Ring, ring_at: usize) -> Self {
        Self { ring, ring_at }
    }

    /// Leaves in software's part of a block what a reader in another process must know.
    pub fn sign(block: &mut Lwpcb, record_bytes: u32) {
        block.software[..8].copy_from_slice(&MARK);
        block.software[8..12].copy_from_slice(&record_bytes.to_le_bytes());
    }

    /// Reads what [`Self::sign`] left.
    fn read(region: &Region) -> Option<Self> {
        let word = |at: usize| region.load(SOFTWARE + at, Ordering::Acquire).to_le_bytes();
        let marked = word(0) == MARK[..4] && word(1) == MARK[4..];
        let record = u32::from_le_bytes(word(2));
        let whole = record >= Record::SIZE as u32 && record as usize <= region.ring_bytes();
        (marked && whole && record.is_multiple_of(4))
            .then(|| Self::new(record, region.ring_bytes()))
    }

    /// The tail that the last reader left. A reader asks once: afterwards the tail is its own.
    ///
    /// A value that points nowhere is reduced as the processor reduces it.
    pub fn tail(&self, words: &impl Words) -> RingOffset {
        self.ring.reduce(words.load(TAIL, Ordering::Acquire))
    }

    /// The head as it is now. The records below it are complete.
    pub fn head(&self, words: &impl Words) -> RingOffset {
        // Acquire: the records below the head were written before it.
        self.ring.reduce(words.load(HEAD, Ordering::Acquire))
    }

    /// Copies the record at `at`.
    pub fn record(&self, words: &impl Words, at: RingOffset) -> Record {
        let first = self.ring_at + at.0 as usize / 4;
        let mut bytes = [0; Record::SIZE];
        for (index, word) in bytes.chunks_exact_mut(4).enumerate() {
            let value = words.load(first + index, Ordering::Relaxed);
            word.copy_from_slice(&value.to_le_bytes());
        }
        Record::from_bytes(&bytes)
    }

    /// Gives the slot at `at` back to the processor. Returns the next one.
    pub fn release(&self, words: &impl Words, at: RingOffset) -> RingOffset {
        let next = self.ring.next(at);
        // Release: the record was copied before.
        words.store(TAIL, next.0, Ordering::Release);
        next
    }

    /// Records lost because the ring was full, since the block was made.
    pub fn missed(&self, words: &impl Words) -> u64 {
        // The halves are read apart; the upper one tells whether the lower wrapped meanwhile.
        loop {
            let high = words.load(MISSED + 1, Ordering::Acquire);
            let low = words.load(MISSED, Ordering::Acquire);
            if words.load(MISSED + 1, Ordering::Acquire) == high {
                return u64::from(high) << 32 | u64::from(low);
            }
        }
    }
}

/// Takes records out of a profile's ring, on any thread, while the profile runs or afterwards.
#[derive(Debug)]
pub struct Reader {
    region: Arc<Region>,
    geometry: Geometry,
    /// The oldest unread record.
    tail: RingOffset,
}

impl Reader {
    pub(crate) fn new(region: Arc<Region>, geometry: Geometry) -> Self {
        let tail = geometry.tail(&*region);
        Self { region, geometry, tail }
    }

    /// Opens the ring of another process's profile, or of this one's, through the descriptor that
    /// [`ProfileBuilder::build_shared`](crate::ProfileBuilder::build_shared) returned. This process
    /// needs no LWP. A ring can have only one reader at a time: with two, each would get some of
    /// the records.
    ///
    /// # Errors
    ///
    /// [`Error::NotAProfile`] if the file holds no profile, [`Error::Memory`] if it can't be
    /// mapped.
    pub fn attach(file: impl AsFd) -> Result<Self, Error> {
        let region = Region::of_file(file).map_err(|error| match error {
            rustix::io::Errno::INVAL => Error::NotAProfile,
            error => Error::Memory(error),
        })?;
        let geometry = Geometry::read(&region).ok_or(Error::NotAProfile)?;
        Ok(Self::new(Arc::new(region), geometry))
    }

    /// Takes out the records that are there now, oldest first. A record leaves the ring when the
    /// iterator returns it. Records that arrive meanwhile stay for the next call.
    ///
    /// Spec: LWP §7.
    pub fn drain(&mut self) -> Drain<'_> {
        let head = self.geometry.head(&*self.region);
        Drain { reader: self, head }
    }

    /// The number of records lost because the ring was full, since the profile was made.
    ///
    /// Spec: LWP §3.1.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.geometry.missed(&*self.region)
    }

    /// The number of records that can be unread at the same time.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.geometry.ring.capacity()
    }
}

/// Iterator over the records that were in a ring when it was made. [`Reader::drain`] makes one.
#[derive(Debug)]
#[must_use = "records stay in the ring until the iterator returns them"]
pub struct Drain<'reader> {
    reader: &'reader mut Reader,
    head: RingOffset,
}

impl Iterator for Drain<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let Reader { region, geometry, tail } = &mut *self.reader;
        if *tail == self.head {
            return None;
        }
        let record = geometry.record(&**region, *tail);
        *tail = geometry.release(&**region, *tail);
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let ring = self.reader.geometry.ring;
        let left = ring.used(self.head, self.reader.tail) / (ring.size() / ring.slots());
        (left as usize, Some(left as usize))
    }
}

impl ExactSizeIterator for Drain<'_> {}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
