//! Jump tables: where a switch statement's jump can lead, as the file has it.
//!
//! Compilers write two kinds: addresses of eight bytes, which the jump or a load before it indexes,
//! and distances of four bytes from the table to the code, which is what position-independent code
//! has. A table has no length: it ends where an entry leads out of the function or the next table
//! begins.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{FlowControl, Instruction, OpKind, Register};

use super::Binary;

/// The most entries that are read of a table.
const LARGEST: usize = 1 << 16;

/// Instructions between the load of an entry and the jump, at most.
const NEAR: usize = 12;

/// The entries of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Address,
    Distance,
}

/// A table and how its entries are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Table {
    address: u64,
    entry: Entry,
}

/// The table that the indirect jump at `code[at]` goes through.
pub(super) fn table_of(code: &[Instruction], at: usize) -> Option<Table> {
    let jump = &code[at];
    if jump.flow_control() != FlowControl::IndirectBranch {
        return None;
    }
    if jump.op0_kind() == OpKind::Memory {
        return table_at(code, at, jump);
    }
    // The entry was loaded into the register, perhaps through others.
    let before = code[..at].iter().enumerate().rev().take(NEAR);
    let mut loads = before.filter(|(_, it)| {
        it.memory_index() != Register::None && matches!(it.memory_index_scale(), 4 | 8)
    });
    let (index, load) = loads.next()?;
    table_at(code, index, load)
}

/// The table that the instruction at `code[at]` reads an entry of.
fn table_at(code: &[Instruction], at: usize, load: &Instruction) -> Option<Table> {
    let entry = match load.memory_index_scale() {
        8 => Entry::Address,
        4 => Entry::Distance,
        _ => return None,
    };
    if load.memory_base() == Register::None {
        return Some(Table { address: load.memory_displacement64(), entry });
    }
    if load.memory_displacement64() != 0 {
        return None;
    }
    let base = load.memory_base();
    let loads_base = |it: &&Instruction| {
        it.op_count() > 0
            && it.op0_kind() == OpKind::Register
            && it.op0_register().full_register() == base
            && it.is_ip_rel_memory_operand()
            && it.mnemonic() == iced_x86::Mnemonic::Lea
    };
    // It may stand far before, outside of a loop.
    let lea = code[..at].iter().rev().find(loads_base);
    let lea = lea.or_else(|| code[at..].iter().find(loads_base))?;
    Some(Table { address: lea.ip_rel_memory_address(), entry })
}

impl Table {
    /// The addresses in the table that are those of instructions, up to the next table.
    pub(super) fn targets(
        self,
        binary: &Binary,
        next: Option<Table>,
        is_target: impl Fn(u64) -> bool,
    ) -> BTreeSet<u64> {
        let bytes = binary.data_from(self.address);
        let room = next.map_or(usize::MAX, |next| (next.address - self.address) as usize);
        let bytes = &bytes[..bytes.len().min(room)];
        let entries: Vec<u64> = match self.entry {
            Entry::Address => {
                let entry = |it: &[u8; 8]| u64::from_le_bytes(*it);
                bytes.as_chunks().0.iter().take(LARGEST).map(entry).collect()
            }
            Entry::Distance => {
                let entry = |it: &[u8; 4]| {
                    self.address.wrapping_add(i64::from(i32::from_le_bytes(*it)).cast_unsigned())
                };
                bytes.as_chunks().0.iter().take(LARGEST).map(entry).collect()
            }
        };
        entries.into_iter().take_while(|to| is_target(*to)).collect()
    }
}

/// The tables of a function's indirect jumps, by the jumps' addresses, each with its targets.
pub(super) fn of(
    code: &[Instruction],
    binary: &Binary,
    is_target: impl Fn(u64) -> bool,
) -> Vec<(u64, BTreeSet<u64>)> {
    let jumps = (0..code.len()).filter_map(|at| Some((code[at].ip(), table_of(code, at)?)));
    let jumps: Vec<(u64, Table)> = jumps.collect();
    let tables: BTreeSet<Table> = jumps.iter().map(|(_, table)| *table).collect();
    let behind = |table: Table| -> Range<Table> {
        let last = Table { address: u64::MAX, entry: Entry::Distance };
        Table { address: table.address.saturating_add(1), entry: Entry::Address }..last
    };
    let targets = |(jump, table): &(u64, Table)| {
        let next = tables.range(behind(*table)).next().copied();
        (*jump, table.targets(binary, next, &is_target))
    };
    jumps.iter().map(targets).collect()
}
