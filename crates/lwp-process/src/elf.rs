//! What a mapped ELF file says of itself, read from the process that maps it: where its functions
//! start, and how many libraries it needs.
//!
//! Nothing here is believed further than that something may be worth translating.

use crate::{Tid, memory};

/// Most functions of one file.
const MOST_FUNCTIONS: usize = 1 << 20;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;

/// A mapped file's program headers, as far as they are of use; addresses are the process's.
#[derive(Debug, Default)]
struct Layout {
    /// The number that is added to the addresses in the file.
    bias: u64,
    dynamic: Option<(u64, u64)>,
    unwind: Option<u64>,
}

/// The starts of the functions of the ELF file mapped from `base`, by the table that unwinders
/// search: stripped files have it too.
pub fn functions(tid: Tid, base: u64) -> Vec<u64> {
    layout(tid, base).and_then(|layout| starts(tid, &layout)).unwrap_or_default()
}

/// The number of libraries that the ELF file mapped from `base` names as needed, if it is linked
/// dynamically.
pub fn libraries(tid: Tid, base: u64) -> usize {
    const DT_NEEDED: u64 = 1;
    let dynamic = || {
        let layout = layout(tid, base)?;
        let (at, bytes) = layout.dynamic?;
        read(tid, layout.bias.wrapping_add(at), bytes.min(4096))
    };
    let needed = |entry: &&[u8]| word(entry, 0) == DT_NEEDED;
    dynamic().map_or(0, |dynamic| dynamic.chunks_exact(16).filter(needed).count())
}

fn layout(tid: Tid, base: u64) -> Option<Layout> {
    let head: [u8; 64] = memory::read_array(tid, base).ok()?;
    if !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let at = base.checked_add(word(&head, 32))?;
    let count = u16::from_le_bytes([head[56], head[57]]);
    let mut lowest = u64::MAX;
    let mut out = Layout::default();
    let mut unwind = None;
    for index in 0..u64::from(count) {
        let header: [u8; 56] = memory::read_array(tid, at.checked_add(index * 56)?).ok()?;
        let (address, bytes) = (word(&header, 16), word(&header, 32));
        match word(&header, 0) as u32 {
            PT_LOAD => lowest = lowest.min(address & !4095),
            PT_DYNAMIC => out.dynamic = Some((address, bytes)),
            PT_GNU_EH_FRAME => unwind = Some(address),
            _ => {}
        }
    }
    out.bias = base.wrapping_sub(lowest);
    out.unwind = unwind.map(|at| out.bias.wrapping_add(at));
    Some(out)
}

fn starts(tid: Tid, layout: &Layout) -> Option<Vec<u64>> {
    const COUNT_UDATA4: u8 = 0x03;
    const TABLE_DATAREL_SDATA4: u8 = 0x3b;
    let start = layout.unwind?;
    let head: [u8; 12] = memory::read_array(tid, start).ok()?;
    if head[0] != 1 || head[2] != COUNT_UDATA4 || head[3] != TABLE_DATAREL_SDATA4 {
        return None;
    }
    let count = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    let mut rows = vec![0; count.min(MOST_FUNCTIONS) * 8];
    memory::read_exact(tid, start.checked_add(12)?, &mut rows).ok()?;
    let address = |row: &[u8]| {
        let distance = i32::from_le_bytes([row[0], row[1], row[2], row[3]]);
        start.wrapping_add(i64::from(distance) as u64)
    };
    Some(rows.chunks_exact(8).map(address).collect())
}

fn read(tid: Tid, address: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut out = vec![0; usize::try_from(bytes).ok()?];
    memory::read_exact(tid, address, &mut out).ok()?;
    Some(out)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut out = [0; 8];
    let part = bytes.get(at..).unwrap_or_default();
    let len = part.len().min(8);
    out[..len].copy_from_slice(&part[..len]);
    u64::from_le_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;

    /// Something that only a word in the data leads to.
    static POINTER: fn(Tid, u64) -> Vec<u64> = functions;

    #[test]
    fn own_functions_are_found() {
        let pid = std::process::id() as i32;
        let maps = maps::read(pid);
        let own = std::hint::black_box(POINTER) as usize as u64;
        let mapping = maps.iter().find(|m| (m.start..m.end).contains(&own)).unwrap();
        let first = maps.iter().find(|m| m.inode == mapping.inode && m.inode != 0).unwrap();
        let found = functions(pid, first.start);
        assert!(found.len() > 100, "{}", found.len());
        assert!(found.binary_search(&own).is_ok(), "{own:#x} is not among them");
        assert_eq!(functions(pid, 0x10), [] as [u64; 0]);
        assert!((1..10).contains(&libraries(pid, first.start)));
        assert_eq!(libraries(pid, 0x10), 0);
    }
}
