//! From a gathered record to the ring: store, ring full, threshold.

use lwp_arch::ring::{Stored, threshold_reached};
use lwp_arch::{EventFlags, EventKind, LinearAddr, PageFault, Record, Revision, RingOffset};

use crate::policy::HeadPublication;
use crate::processor::Processor;
use crate::staged::Staged;
use crate::unit::Profile;
use crate::{LinearMemory, Signals};

/// The effects of one store, to be told to the surroundings when the operation is certain to
/// complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    record: Record,
    at: RingOffset,
    /// The place of the next record.
    pub(crate) head: RingOffset,
    /// The ring was full.
    pub(crate) missed: bool,
    /// The ring is filled to the threshold.
    reached: bool,
}

impl Delivery {
    /// The event of the record stored.
    pub(crate) fn kind(&self, revision: Revision) -> Option<EventKind> {
        self.record.kind(revision)
    }

    /// Tells the surroundings. `vector` is the interrupt to raise, if interrupts are on.
    pub(crate) fn announce<S: Signals>(&self, vector: Option<u8>, signals: &mut S) {
        signals.stored(&self.record, self.at, self.missed);
        if let (true, Some(vector)) = (self.reached, vector) {
            signals.threshold_interrupt(vector);
        }
    }
}

impl Profile {
    /// Stores `record` in the ring. The caller moves the head once the store is certain.
    ///
    /// In order: the record is written at the head; the tail is read; the head moves on, or, if it
    /// would meet the tail, MissedEvents grows and the head stays, so that the next record
    /// overwrites this one. In continuous mode the head always moves. The threshold is looked at
    /// only when the head moved: DEV-19.
    ///
    /// A tail that software left misaligned or outside the ring is reduced like a head: DEV-20.
    ///
    /// # Errors
    ///
    /// A page fault at ring or block.
    ///
    /// Spec: P07 §3, §5.4; LWP §5.7.
    pub(crate) fn deliver<M: LinearMemory>(
        &self,
        processor: &Processor,
        threshold: u32,
        publication: HeadPublication,
        record: &Record,
        memory: &mut Staged<'_, M>,
    ) -> Result<Delivery, PageFault> {
        let fields = processor.fields(self.lwpcb);
        let at = self.head;
        self.write_record(processor, record, memory)?;
        let tail = self.ring.reduce(memory.read_u32(fields.tail)?);
        let continuous = self.flags.contains(EventFlags::CONT);
        let (head, missed, reached) = match self.ring.store(at, tail, continuous) {
            Stored::Missed => {
                add_missed(fields.missed, memory)?;
                (at, true, false)
            }
            Stored::Advanced(next) => {
                let used = self.ring.used(next, tail);
                (next, false, threshold_reached(processor.revision(), used, threshold))
            }
        };
        if missed || reached || publication == HeadPublication::EachRecord {
            memory.write_u32(fields.head, head.0)?;
        }
        Ok(Delivery { record: *record, at, head, missed, reached })
    }

    /// Writes the record at the head, and zeros up to the length records have on this processor.
    fn write_record<M: LinearMemory>(
        &self,
        processor: &Processor,
        record: &Record,
        memory: &mut Staged<'_, M>,
    ) -> Result<(), PageFault> {
        let mut bytes = record.to_bytes().to_vec();
        bytes.resize(processor.record_bytes() as usize, 0);
        memory.write(self.ring.slot_address(self.buffer_base, self.head), &bytes)
    }
}

/// MissedEvents goes up by one and wraps at 64 bits.
///
/// Spec: P07 §5.4; LWP §5.7.
pub(crate) fn add_missed<M: LinearMemory>(
    address: LinearAddr,
    memory: &mut Staged<'_, M>,
) -> Result<(), PageFault> {
    let missed = memory.read_u64(address)?;
    memory.write_u64(address, missed.wrapping_add(1))
}
