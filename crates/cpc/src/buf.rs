//! Buffers: snapshots of a set's counters and records, and their arithmetic.
//!
//! Promise: C9: properties

use std::cell::Cell;

use crate::error::{Error, Result};
use crate::records::Records;

/// Buffers do not fit each other.
const OTHER_SHAPE: Error = Error::invalid("the buffers have different requests");

/// The values that a request of a set leaves in a buffer.
#[derive(Debug)]
enum Slot {
    /// The last value of a counter.
    Count(Cell<u64>),
    /// Collected records.
    Records(Records),
}

/// One sample of a set: the value of each counter, the records of each request that collects
/// them, and the time of the sample.
///
/// No operation allocates or needs `&mut`, so signal handlers may calculate with buffers, and a
/// destination may also be an operand. Only one thread can use a buffer at a time.
///
/// Operations on several buffers need buffers of the same shape, that is, with the same number and
/// kinds of requests; see [`Buf::fits`].
#[derive(Debug)]
#[must_use]
pub struct Buf {
    slots: Box<[Slot]>,
    time_ns: Cell<i64>,
    cycles: Cell<u64>,
}

impl Buf {
    /// A buffer of zeros: for each request `None` for a counter or what [`Records::new`] takes.
    /// `None` if there is no memory.
    pub(crate) fn new(shape: impl Iterator<Item = Option<(usize, usize, u32)>>) -> Option<Self> {
        let slot = |shape| {
            Some(match shape {
                None => Slot::Count(Cell::new(0)),
                Some((records, items, asked)) => {
                    Slot::Records(Records::new(records, items, asked)?)
                }
            })
        };
        let slots = shape.map(slot).collect::<Option<_>>()?;
        Some(Self { slots, time_ns: Cell::new(0), cycles: Cell::new(0) })
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the set had no request when the buffer was made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns whether `other` has the same shape: the same number and kinds of requests.
    #[must_use]
    pub fn fits(&self, other: &Self) -> bool {
        let same = |(a, b): (&Slot, &Slot)| {
            matches!(
                (a, b),
                (Slot::Count(_), Slot::Count(_)) | (Slot::Records(_), Slot::Records(_))
            )
        };
        self.len() == other.len() && self.slots.iter().zip(&other.slots).all(same)
    }

    /// The time of the sample, in nanoseconds of CLOCK_MONOTONIC; 0 before the first sample.
    #[must_use]
    pub fn time_ns(&self) -> i64 {
        self.time_ns.get()
    }

    /// The number of clock cycles, of the time-stamp counter, for which the set has been counting.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.cycles.get()
    }

    fn counter(&self, index: usize) -> Result<&Cell<u64>> {
        match self.slots.get(index) {
            Some(Slot::Count(value)) => Ok(value),
            Some(Slot::Records(_)) => Err(Error::invalid("the request is for SMPL, not for CPC")),
            None => Err(Error::invalid("the buffer has no such request")),
        }
    }

    /// The records of request `index`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such request, or
    /// it is a counter.
    pub fn records(&self, index: usize) -> Result<&Records> {
        match self.slots.get(index) {
            Some(Slot::Records(records)) => Ok(records),
            Some(Slot::Count(_)) => Err(Error::invalid("the request is for CPC, not for SMPL")),
            None => Err(Error::invalid("the buffer has no such request")),
        }
    }

    /// The value of counter `index`, as last sampled or calculated.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such request, or
    /// it collects records.
    pub fn get(&self, index: usize) -> Result<u64> {
        self.counter(index).map(Cell::get)
    }

    /// The values of all requests, in the order of their indices; `None` for one that collects
    /// records.
    pub fn counts(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.slots.iter().map(|slot| match slot {
            Slot::Count(value) => Some(value.get()),
            Slot::Records(_) => None,
        })
    }

    /// The number of events of counter `index` since the sample `earlier`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if either buffer has no such
    /// request, or it collects records.
    pub fn get_since(&self, earlier: &Self, index: usize) -> Result<u64> {
        Ok(self.get(index)?.wrapping_sub(earlier.get(index)?))
    }

    /// Replaces the value of counter `index` in the buffer. This doesn't affect the counter itself.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such request, or
    /// it collects records.
    pub fn set(&self, index: usize, value: u64) -> Result<()> {
        self.counter(index).map(|counter| counter.set(value))
    }

    /// `self[n] = a[n] op b[n]` for counters and cycles; the later time of the two.
    fn combine(&self, a: &Self, b: &Self, op: impl Fn(u64, u64) -> u64) -> Result<()> {
        if !self.fits(a) || !self.fits(b) {
            return Err(OTHER_SHAPE);
        }
        for ((slot, a), b) in self.slots.iter().zip(&a.slots).zip(&b.slots) {
            if let (Slot::Count(slot), Slot::Count(a), Slot::Count(b)) = (slot, a, b) {
                slot.set(op(a.get(), b.get()));
            }
        }
        self.cycles.set(op(a.cycles(), b.cycles()));
        self.time_ns.set(a.time_ns().max(b.time_ns()));
        Ok(())
    }

    /// Sets every counter and the cycles to those of `a` minus those of `b`, modulo 2^64, and the
    /// time to the later one. Leaves records alone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the shapes differ, in which
    /// case nothing changes.
    pub fn set_difference(&self, a: &Self, b: &Self) -> Result<()> {
        self.combine(a, b, u64::wrapping_sub)
    }

    /// Sets every counter and the cycles to those of `a` plus those of `b`, modulo 2^64, and the
    /// time to the later one. Leaves records alone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the shapes differ, in which
    /// case nothing changes.
    pub fn set_sum(&self, a: &Self, b: &Self) -> Result<()> {
        self.combine(a, b, u64::wrapping_add)
    }

    /// Copies values, records, time and cycles of `source`. Leaves out records that do not fit, the
    /// newest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the shapes differ, in which
    /// case nothing changes.
    pub fn copy_from(&self, source: &Self) -> Result<()> {
        if !self.fits(source) {
            return Err(OTHER_SHAPE);
        }
        for (slot, source) in self.slots.iter().zip(&source.slots) {
            match (slot, source) {
                (Slot::Count(slot), Slot::Count(source)) => slot.set(source.get()),
                (Slot::Records(slot), Slot::Records(source)) => slot.copy(source),
                _ => {}
            }
        }
        self.stamp(source.time_ns(), source.cycles());
        Ok(())
    }

    /// Zeroes values, time and cycles, and forgets the records.
    pub fn zero(&self) {
        for slot in &self.slots {
            match slot {
                Slot::Count(value) => value.set(0),
                Slot::Records(records) => records.clear(),
            }
        }
        self.stamp(0, 0);
    }

    /// Sets time and cycles.
    pub(crate) fn stamp(&self, hrtime_ns: i64, tick: u64) {
        self.time_ns.set(hrtime_ns);
        self.cycles.set(tick);
    }

    /// Stores a sampled value, unless the request is for SMPL.
    pub(crate) fn store(&self, index: usize, value: u64) {
        if let Some(Slot::Count(slot)) = self.slots.get(index) {
            slot.set(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A buffer of counters with these values.
    fn buf(values: &[u64], hrtime_ns: i64, tick: u64) -> Buf {
        let buf = Buf::new(values.iter().map(|_| None)).unwrap();
        for (index, value) in values.iter().enumerate() {
            buf.set(index, *value).unwrap();
        }
        buf.stamp(hrtime_ns, tick);
        buf
    }

    fn content(buf: &Buf) -> (Vec<u64>, i64, u64) {
        let values = (0..buf.len()).map(|index| buf.get(index).unwrap()).collect();
        (values, buf.time_ns(), buf.cycles())
    }

    fn any_buf(len: usize) -> impl Strategy<Value = Buf> {
        (prop::collection::vec(any::<u64>(), len), any::<i64>(), any::<u64>())
            .prop_map(|(values, hrtime, tick)| buf(&values, hrtime, tick))
    }

    fn three() -> impl Strategy<Value = (Buf, Buf, Buf)> {
        (0usize..20).prop_flat_map(|len| (any_buf(len), any_buf(len), any_buf(len)))
    }

    #[test]
    fn a_new_buffer_is_zero() {
        let buf = Buf::new([None, Some((4, 2, !0)), None].into_iter()).unwrap();
        assert_eq!((buf.len(), buf.time_ns(), buf.cycles()), (3, 0, 0));
        assert_eq!((buf.get(0), buf.get(2)), (Ok(0), Ok(0)));
        assert_eq!(buf.records(1).unwrap().len(), 0);
    }

    #[test]
    fn counters_and_records_are_not_mixed_up() {
        let buf = Buf::new([None, Some((4, 2, !0))].into_iter()).unwrap();
        for error in [buf.get(1).unwrap_err(), buf.set(1, 5).unwrap_err(), buf.get(2).unwrap_err()]
        {
            assert_eq!((error.errno(), error.subcode()), (libc::EINVAL, None));
        }
        assert_eq!(buf.records(0).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(buf.records(2).unwrap_err().errno(), libc::EINVAL);
    }

    #[test]
    fn other_shapes_are_left_alone() {
        let (three, two) = (buf(&[1, 2, 3], 5, 6), buf(&[7, 8], 9, 10));
        assert_eq!(three.set_sum(&three, &two), Err(OTHER_SHAPE));
        assert_eq!(three.set_difference(&two, &two), Err(OTHER_SHAPE));
        assert_eq!(three.copy_from(&two), Err(OTHER_SHAPE));
        assert_eq!(content(&three), (vec![1, 2, 3], 5, 6));
        let mixed = Buf::new([None, None, Some((1, 1, !0))].into_iter()).unwrap();
        assert_eq!(three.copy_from(&mixed), Err(OTHER_SHAPE));
        assert_eq!(content(&three), (vec![1, 2, 3], 5, 6));
    }

    proptest! {
        #[test]
        fn adding_undoes_subtracting((a, b, d) in three()) {
            d.set_difference(&a, &b).unwrap();
            d.set_sum(&d, &b).unwrap();
            let (values, hrtime, tick) = content(&d);
            prop_assert_eq!((values, tick), (content(&a).0, a.cycles()));
            prop_assert_eq!(hrtime, a.time_ns().max(b.time_ns()));
        }

        #[test]
        fn operations_are_element_by_element((a, b, d) in three()) {
            d.set_difference(&a, &b).unwrap();
            for index in 0..a.len() {
                let expected = a.get(index).unwrap().wrapping_sub(b.get(index).unwrap());
                prop_assert_eq!(d.get(index).unwrap(), expected);
            }
            prop_assert_eq!(d.cycles(), a.cycles().wrapping_sub(b.cycles()));
        }

        #[test]
        fn addition_commutes_and_associates((a, b, c) in three()) {
            let (x, y) = (buf(&vec![0; a.len()], 0, 0), buf(&vec![0; a.len()], 0, 0));
            x.set_sum(&a, &b).unwrap();
            y.set_sum(&b, &a).unwrap();
            prop_assert_eq!(content(&x), content(&y));
            x.set_sum(&x, &c).unwrap();
            y.set_sum(&b, &c).unwrap();
            y.set_sum(&a, &y).unwrap();
            prop_assert_eq!(content(&x), content(&y));
        }

        #[test]
        fn the_destination_may_be_an_operand((a, b, fresh) in three()) {
            let (before_a, before_b) = (content(&a), content(&b));
            fresh.set_difference(&a, &b).unwrap();
            a.set_difference(&a, &b).unwrap();
            prop_assert_eq!(content(&a), content(&fresh));
            let again = buf(&before_a.0, before_a.1, before_a.2);
            b.set_difference(&again, &b).unwrap();
            prop_assert_eq!(content(&b), content(&fresh));
            b.set_sum(&b, &b).unwrap();
            let doubled: Vec<u64> = content(&fresh).0.iter().map(|v| v.wrapping_mul(2)).collect();
            prop_assert_eq!(content(&b).0, doubled);
            prop_assert_eq!(before_b.0.len(), b.len());
        }

        #[test]
        fn zero_is_neutral_and_copies_are_equal((a, z, d) in three()) {
            z.zero();
            prop_assert_eq!(content(&z), (vec![0; z.len()], 0, 0));
            d.copy_from(&a).unwrap();
            prop_assert_eq!(content(&d), content(&a));
            d.set_sum(&a, &z).unwrap();
            prop_assert_eq!(content(&d).0, content(&a).0);
            prop_assert_eq!(d.time_ns(), a.time_ns().max(0));
            d.set_difference(&a, &a).unwrap();
            prop_assert_eq!((content(&d).0, d.cycles()), (vec![0; a.len()], 0));
        }
    }
}
