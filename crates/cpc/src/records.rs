//! Records in a buffer: what SMPL requests collect.

use std::cell::Cell;

use zerocopy::FromZeros;

use crate::error::{Error, Result};

/// An item of records that keeps its meaning whatever collects them;
/// [`Cpc::special_item`](crate::Cpc::special_item) finds its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
// The numbers of the C interface: negative, so that none is an item's index.
pub enum SpecialItem {
    /// The address of the instruction: item `pc`.
    InstructionAddress = -1,
    /// The linear address of the data: item `dlina`.
    DataAddress = -2,
    /// The latency in clock cycles: item `lat`.
    Latency = -3,
    /// Where the data came from: item `dsrc`.
    DataSource = -4,
}

impl SpecialItem {
    /// The special item with this number in the C interface.
    pub(crate) const fn from_number(number: i32) -> Option<Self> {
        match number {
            -1 => Some(Self::InstructionAddress),
            -2 => Some(Self::DataAddress),
            -3 => Some(Self::Latency),
            -4 => Some(Self::DataSource),
            _ => None,
        }
    }

    /// The item's name in [`Cpc::record_items`](crate::Cpc::record_items).
    #[must_use]
    pub const fn item(self) -> &'static str {
        match self {
            Self::InstructionAddress => "pc",
            Self::DataAddress => "dlina",
            Self::Latency => "lat",
            Self::DataSource => "dsrc",
        }
    }
}

/// A record in a buffer: a 64-bit number for each of the items in [`crate::Cpc::record_items`].
#[derive(Clone, Copy, Debug)]
pub struct Record<'buf>(&'buf [Cell<u64>]);

impl Record<'_> {
    /// The item with this index; 0 if the record's event lacks it, and `None` if no record has such
    /// an item.
    #[must_use]
    pub fn item(&self, index: usize) -> Option<u64> {
        self.0.get(index).map(Cell::get)
    }

    /// All items, in the order of their indices.
    #[must_use]
    pub fn items(&self) -> impl ExactSizeIterator<Item = u64> {
        self.0.iter().map(Cell::get)
    }
}

/// The records in a buffer that a request has collected, oldest first. Reading doesn't remove
/// records.
#[derive(Debug)]
pub struct Records {
    words: Box<[Cell<u64>]>,
    items: usize,
    /// The items that mean something for the request: bit *n* is item *n*.
    asked: u32,
    len: Cell<usize>,
    lost: Cell<u64>,
}

impl Records {
    /// Room for `capacity` records of `items` items each, of which those of `asked` mean something;
    /// `None` if there is no memory. What is not used costs none.
    pub(crate) fn new(capacity: usize, items: usize, asked: u32) -> Option<Self> {
        let words = <[Cell<u64>]>::new_box_zeroed_with_elems(capacity.checked_mul(items)?).ok()?;
        Some(Self { words, items, asked, len: Cell::new(0), lost: Cell::new(0) })
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of items of each record.
    pub fn items(&self) -> usize {
        self.items
    }

    /// The number of intervals since the previous sample that left no record here, because there
    /// was no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// The records, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        (0..self.len()).map(|index| Record(&self.words[index * self.items..][..self.items]))
    }

    /// Record `index`, if there is one; 0 is the oldest.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        self.words(index).map(Record)
    }

    /// The items of record `index` where they are stored.
    pub(crate) fn words(&self, index: usize) -> Option<&[Cell<u64>]> {
        (index < self.len()).then(|| &self.words[index * self.items..][..self.items])
    }

    /// Item `item` of record `index`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such record or
    /// item, or the request's records don't have the item.
    pub fn item(&self, index: usize, item: usize) -> Result<u64> {
        let record = self.get(index).ok_or(Error::invalid("the buffer has no such record"))?;
        let value = record.item(item);
        let value = value.ok_or(Error::invalid("a record has no such item"))?;
        if self.asked >> item & 1 == 0 {
            return Err(Error::invalid("records of the request do not have the item"));
        }
        Ok(value)
    }

    /// Forgets all records.
    pub(crate) fn clear(&self) {
        self.len.set(0);
        self.lost.set(0);
    }

    /// Appends a record; items it lacks are 0. Returns whether there was room for it.
    pub(crate) fn push(&self, record: &[u64]) -> bool {
        if self.items == 0 || (self.len() + 1) * self.items > self.words.len() {
            return false;
        }
        let place = &self.words[self.len() * self.items..][..self.items];
        for (index, word) in place.iter().enumerate() {
            word.set(record.get(index).copied().unwrap_or(0));
        }
        self.len.set(self.len() + 1);
        true
    }

    /// Notes how many records were lost before this sample.
    pub(crate) fn set_lost(&self, lost: u64) {
        self.lost.set(lost);
    }

    /// Becomes equal to `source`, as far as there is room.
    pub(crate) fn copy(&self, source: &Self) {
        if std::ptr::eq(self, source) || self.items != source.items {
            return;
        }
        let len = source.len().min(self.words.len().checked_div(self.items).unwrap_or(0));
        for (to, from) in self.words.iter().zip(&source.words[..len * source.items]) {
            to.set(from.get());
        }
        self.len.set(len);
        self.lost.set(source.lost() + (source.len() - len) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Records {
        let records = Records::new(2, 3, !0).unwrap();
        assert!(records.push(&[1, 2, 3]));
        assert!(records.push(&[4, 5]));
        records
    }

    #[test]
    fn records_are_read_without_being_consumed() {
        let records = two();
        for _ in 0..2 {
            assert_eq!(
                (records.item(0, 2), records.item(1, 1), records.item(1, 2)),
                (Ok(3), Ok(5), Ok(0))
            );
        }
        assert!(!records.push(&[7]));
        assert_eq!(records.len(), 2);
        let firsts: Vec<u64> = records.iter().map(|record| record.item(0).unwrap()).collect();
        assert_eq!(firsts, [1, 4]);
    }

    #[test]
    fn wrong_indices_are_errors() {
        let records = two();
        assert_eq!(records.item(2, 0).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(records.item(0, 3).unwrap_err().errno(), libc::EINVAL);
        records.clear();
        assert!(records.get(0).is_none());
    }

    #[test]
    fn items_that_mean_nothing_for_the_request_are_errors() {
        let records = Records::new(1, 3, 0b101).unwrap();
        assert!(records.push(&[1, 2, 3]));
        assert_eq!((records.item(0, 0), records.item(0, 2)), (Ok(1), Ok(3)));
        assert_eq!(records.item(0, 1).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(
            records.get(0).unwrap().item(1),
            Some(2),
            "the record as a whole has a place for it"
        );
    }

    #[test]
    fn copies_say_what_did_not_fit() {
        let (small, large) = (Records::new(1, 3, !0).unwrap(), Records::new(5, 3, !0).unwrap());
        small.copy(&two());
        large.copy(&two());
        assert_eq!((small.len(), small.lost(), small.item(0, 0)), (1, 1, Ok(1)));
        assert_eq!((large.len(), large.lost(), large.item(1, 1)), (2, 0, Ok(5)));
        let alone = two();
        alone.copy(&alone);
        assert_eq!(alone.len(), 2);
    }

    #[test]
    fn a_request_without_room_takes_nothing() {
        let none = Records::new(0, 3, !0).unwrap();
        assert!(!none.push(&[1]));
        assert!(!Records::new(4, 0, !0).unwrap().push(&[]));
    }

    #[test]
    fn special_items_have_no_index_of_an_item() {
        for number in -4..=-1 {
            assert_eq!(SpecialItem::from_number(number).map(|item| item as i32), Some(number));
        }
        assert_eq!(SpecialItem::from_number(0), None);
        assert_eq!(SpecialItem::from_number(-5), None);
    }
}
