//! The items of every SMPL record, in the order of their indices.

use lwp_arch::record::{BranchFlags, Event};
use lwp_arch::{EventId, Record, Revision, RingOffset};

use crate::records::SpecialItem;

/// Number of items of a record.
pub const COUNT: usize = NAMES.len();

/// The items. A record has all of them; those that its event lacks are 0.
///
/// Records of every back end are event records of LWP, so their items are the same everywhere.
#[rustfmt::skip] // One item a line.
pub const NAMES: [&str; 15] = [
    "pc",            //  0  address of the instruction
    "dlina",         //  1  linear address of the datum that was not in the cache
    "lat",           //  2  cycles until it came
    "dsrc",          //  3  where it came from: 0 unknown, 1 local L3, 2 remote, 3 DRAM, 7 other
    "event_id",      //  4  EventId
    "core_id",       //  5  CoreId
    "flags",         //  6  Flags, 16 bits
    "data1",         //  7  Data1
    "data2",         //  8  Data2
    "timestamp",     //  9  time-stamp counter, if it was asked for
    "br_taken",      // 10  1 for a branch that was taken
    "br_pred",       // 11  1 for a branch that was predicted correctly
    "br_pred_valid", // 12  1 if br_pred means something
    "br_target",     // 13  the instruction executed after a branch
    "dlina_valid",   // 14  1 if dlina means something
];

/// Index of `pc`, which every record has.
pub const PC: usize = 0;
/// Index of `timestamp`.
pub const TIMESTAMP: usize = 9;
/// Indices of `dlina` and `dlina_valid`.
pub const DATA_ADDRESS: [usize; 2] = [1, 14];

/// Index of the item `name`.
pub fn index_of(name: &str) -> Option<usize> {
    NAMES.iter().position(|item| *item == name)
}

/// Index of the item that `special` stands for.
pub fn index_of_special(special: SpecialItem) -> usize {
    match special {
        SpecialItem::InstructionAddress => 0,
        SpecialItem::DataAddress => 1,
        SpecialItem::Latency => 2,
        SpecialItem::DataSource => 3,
    }
}

/// Returns the items that mean something for an event; the others are 0 in its records.
pub fn of_event(id: EventId) -> &'static [usize] {
    match id {
        EventId::BRANCHES_RETIRED => &[0, 4, 5, 6, 8, 9, 10, 11, 12, 13],
        EventId::DCACHE_MISSES => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14],
        EventId::VALUE_SAMPLE | EventId::PROGRAMMED => &[0, 4, 5, 6, 7, 8, 9],
        _ => &[0, 4, 5, 9],
    }
}

/// The items of `record`.
pub fn of_record(record: &Record) -> [u64; COUNT] {
    let mut items = [0; COUNT];
    items[0] = record.instruction_address.get();
    items[4] = record.event_id.into();
    items[5] = record.core_id.into();
    items[6] = record.flags.get().into();
    items[7] = record.data1.get().into();
    items[8] = record.data2.get();
    items[9] = record.timestamp.get();
    match record.decode(Revision::Shipped, RingOffset(0)) {
        Ok(Event::DcacheMisses { source, latency_cycles, data_address }) => {
            items[1] = data_address.map_or(0, |address| address.0);
            items[2] = latency_cycles.into();
            items[3] = source as u64;
            items[14] = data_address.is_some().into();
        }
        Ok(Event::BranchesRetired { flags, target }) => {
            items[10] = flags.contains(BranchFlags::TKN).into();
            items[11] = flags.contains(BranchFlags::PRD).into();
            items[12] = flags.contains(BranchFlags::PRV).into();
            items[13] = target.0;
        }
        _ => {}
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use lwp_arch::record::DataSource;
    use lwp_arch::{AppPc, LinearAddr};

    fn item(record: &Record, name: &str) -> u64 {
        of_record(record)[index_of(name).unwrap()]
    }

    #[test]
    fn a_cache_miss_has_address_latency_and_source() {
        let event = Event::DcacheMisses {
            source: DataSource::Dram,
            latency_cycles: 208,
            data_address: Some(LinearAddr(0x7f00)),
        };
        let record = Record::new(Revision::Shipped, event, AppPc(0x40), 3, 99).unwrap();
        let read =
            ["pc", "dlina", "lat", "dsrc", "event_id", "core_id", "timestamp", "dlina_valid"];
        assert_eq!(read.map(|name| item(&record, name)), [0x40, 0x7f00, 208, 3, 4, 3, 99, 1]);
        assert_eq!(item(&record, "br_taken"), 0);
    }

    #[test]
    fn a_branch_has_direction_and_target() {
        let flags = BranchFlags::new(true, Some(false));
        let event = Event::BranchesRetired { flags, target: AppPc(0x80) };
        let record = Record::new(Revision::Shipped, event, AppPc(0x40), 0, 0).unwrap();
        let read = ["br_taken", "br_pred", "br_pred_valid", "br_target", "dlina", "lat", "dsrc"];
        assert_eq!(read.map(|name| item(&record, name)), [1, 0, 1, 0x80, 0, 0, 0]);
    }

    #[test]
    fn special_items_are_found_by_their_names() {
        for number in -4..=-1 {
            let special = SpecialItem::from_number(number).unwrap();
            assert_eq!(index_of(special.item()), Some(index_of_special(special)));
        }
    }
}
