//! The ring protocol: by hand, and under every interleaving that loom finds.
//!
//! Promise: W6: (loom)

use loom::sync::atomic::AtomicU32;

use super::*;
use crate::detect::tests::part;
use lwp_arch::cpuid::presets;

/// A block and a ring of two or more slots in loom's memory. Of a record only the first and the
/// last word are kept apart; the rest would only make the search longer.
struct Modelled {
    head: AtomicU32,
    tail: AtomicU32,
    missed: AtomicU32,
    /// First and last word of each slot.
    slots: Vec<[AtomicU32; 2]>,
}

const RECORD: u32 = Record::SIZE as u32;
const RING_WORD: usize = 64;

impl Modelled {
    fn new(slots: usize) -> Self {
        let word = || AtomicU32::new(0);
        let slots = (0..slots).map(|_| [word(), word()]).collect();
        Self { head: word(), tail: word(), missed: word(), slots }
    }

    fn geometry(&self) -> Geometry {
        let size = self.slots.len() as u32 * RECORD;
        Geometry::at(Ring::new(size, RECORD).unwrap(), RING_WORD)
    }
}

/// The processor's side. It owns head and MissedEvents and never reads them back: loom overlooks
/// interleavings of a thread that loads a variable before it stores to it.
struct Unit {
    words: loom::sync::Arc<Modelled>,
    head: RingOffset,
    missed: u32,
}

impl Unit {
    /// One record: its words, then the head, or MissedEvents if the ring is full.
    fn deliver(&mut self, number: u32) -> bool {
        let words = &*self.words;
        let slot = &words.slots[(self.head.0 / RECORD) as usize];
        slot[0].store(number, Ordering::Relaxed);
        slot[1].store(number, Ordering::Relaxed);
        let next = words.geometry().ring.next(self.head);
        if next.0 == words.tail.load(Ordering::Acquire) {
            self.missed += 1;
            words.missed.store(self.missed, Ordering::Release);
            return false;
        }
        self.head = next;
        words.head.store(next.0, Ordering::Release);
        true
    }
}

impl Words for Modelled {
    fn load(&self, index: usize, order: Ordering) -> u32 {
        match index {
            HEAD => self.head.load(order),
            TAIL => self.tail.load(order),
            MISSED => self.missed.load(order),
            _ if index < RING_WORD => 0,
            _ => {
                let (slot, word) = ((index - RING_WORD) / 8, (index - RING_WORD) % 8);
                match word {
                    0 => self.slots[slot][0].load(order),
                    7 => self.slots[slot][1].load(order),
                    _ => 0,
                }
            }
        }
    }

    fn store(&self, index: usize, value: u32, order: Ordering) {
        assert_eq!(index, TAIL, "a reader writes the tail and nothing else");
        self.tail.store(value, order);
    }
}

/// Drains from `at` on what is there; every record must be whole. Returns the new tail.
fn drain(words: &Modelled, mut at: RingOffset, seen: &mut Vec<u32>) -> RingOffset {
    let geometry = words.geometry();
    let head = geometry.head(words);
    while at != head {
        let bytes = geometry.record(words, at).to_bytes();
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(number(0), number(28), "a torn record");
        seen.push(number(0));
        at = geometry.release(words, at);
    }
    at
}

/// A processor delivers `records` into a ring of `slots` while a thread drains `times`. Nothing is
/// torn, nothing is read twice, the order is kept, and what was not read was counted as missed.
/// Returns in how many orders the two could run.
fn check_interleavings(slots: usize, records: u32, times: usize) -> u32 {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counter = std::sync::Arc::clone(&runs);
    loom::model(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        let words = loom::sync::Arc::new(Modelled::new(slots));
        let mut unit = Unit { words: words.clone(), head: RingOffset(0), missed: 0 };
        let unit = loom::thread::spawn(move || {
            (1..=records).filter(|&number| unit.deliver(number)).collect::<Vec<_>>()
        });
        let mut seen = Vec::new();
        let mut tail = RingOffset(0);
        for _ in 0..times {
            tail = drain(&words, tail, &mut seen);
        }
        let stored = unit.join().unwrap();
        drain(&words, tail, &mut seen);
        assert_eq!(seen, stored);
        assert_eq!(words.geometry().missed(&*words), u64::from(records) - seen.len() as u64);
    });
    runs.load(Ordering::Relaxed)
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_no_interleaving_tears_or_loses_a_record() {
    for (slots, records, times) in [(2, 3, 2), (3, 4, 1), (4, 3, 2)] {
        let runs = check_interleavings(slots, records, times);
        assert!(runs > 10, "{runs} interleavings are no search");
    }
}

/// The processor's side by hand on real memory, starting in the last slot so that the ring wraps.
///
/// Spec: LWP §7
#[test]
fn lwp_spec_7_records_come_oldest_first_across_the_wrap() {
    let (profile, _) = part(presets::FULL).profile().ring_records(31).build().unwrap();
    let region = profile.region();
    region.store(TAIL, 31 * RECORD, Ordering::Relaxed);
    let geometry = Geometry::new(RECORD, region.ring_bytes());
    let mut reader = Reader::new(Arc::clone(region), geometry);
    assert_eq!(reader.capacity(), 31);
    for (slot, id) in [(31, 255), (0, 2), (1, 3)] {
        region.store(RING_AT / 4 + slot * 8, id, Ordering::Relaxed);
        region.store(RING_AT / 4 + slot * 8 + 7, id << 8, Ordering::Relaxed);
    }
    region.store(HEAD, 2 * RECORD, Ordering::Release);
    let mut drain = reader.drain();
    assert_eq!(drain.len(), 3);
    assert_eq!(drain.next().map(|record| record.event_id), Some(255));
    assert_eq!(region.load(TAIL, Ordering::Relaxed), 0, "what was not asked for stays");
    assert_eq!(reader.drain().map(|record| record.event_id).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(reader.drain().next(), None);
    region.store(MISSED + 1, 1, Ordering::Relaxed);
    assert_eq!(reader.missed(), 1 << 32);
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_another_mapping_of_the_file_reads_the_same_ring() {
    let (profile, reader, file) = part(presets::FULL).profile().build_shared().unwrap();
    drop(reader);
    let mut other = Reader::attach(&file).unwrap();
    let region = profile.region();
    region.store(RING_AT / 4, 255, Ordering::Relaxed);
    region.store(HEAD, RECORD, Ordering::Release);
    assert_eq!(other.drain().map(|record| record.event_id).collect::<Vec<_>>(), [255]);
    assert_eq!(region.load(TAIL, Ordering::Relaxed), RECORD);
}

/// Spec: LWP §7
#[test]
fn lwp_spec_7_a_wild_head_leads_nowhere() {
    let (profile, mut reader) = part(presets::FULL).profile().build().unwrap();
    profile.region().store(HEAD, u32::MAX, Ordering::Relaxed);
    assert_eq!(reader.drain().count(), 0);
    profile.region().store(HEAD, 2 * RECORD + 5, Ordering::Relaxed);
    assert_eq!(reader.drain().count(), 2);
}

#[test]
fn files_that_hold_no_profile_are_refused() {
    let (_, file) = Region::shared(4096).unwrap();
    assert_eq!(Reader::attach(&file).unwrap_err(), Error::NotAProfile);
}
