//! The line table of a unit, with discriminators.

use crate::dwarf::Reader;

/// A line from an address to that of the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    address: u64,
    /// 0 behind the end of a sequence, and for code that is of no line.
    line: u64,
    discriminator: u64,
}

/// Rows in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    rows: Vec<Row>,
}

impl Lines {
    /// Those that a table's program makes.
    pub fn of(program: gimli::IncompleteLineProgram<Reader>) -> Result<Self, gimli::Error> {
        let mut rows = Vec::new();
        let mut table = program.rows();
        while let Some((_, row)) = table.next_row()? {
            let line = row.line().filter(|_| !row.end_sequence());
            let line = line.map_or(0, std::num::NonZeroU64::get);
            rows.push((
                row.end_sequence(),
                Row { address: row.address(), line, discriminator: row.discriminator() },
            ));
        }
        // Where one sequence ends, another may begin; of several rows the last one holds.
        rows.sort_by_key(|(end, row)| (row.address, !end));
        Ok(Self { rows: rows.into_iter().map(|(_, row)| row).collect() })
    }

    /// Line and discriminator of an instruction.
    pub fn at(&self, address: u64) -> (u64, u64) {
        let after = self.rows.partition_point(|row| row.address <= address);
        let row = self.rows[..after].last();
        row.map_or((0, 0), |row| (row.line, row.discriminator))
    }
}
