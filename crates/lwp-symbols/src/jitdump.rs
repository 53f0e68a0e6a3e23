//! Jitdump files (version 1): names and lines of generated code with the time at which they hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use lwp_profile::{NamedFrame, NamedRange, RecordedSymbol};

const MAGIC: u32 = 0x4a69_5444;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_DEBUG_INFO: u32 = 2;

/// Bytes of the ELF header that `perf inject` puts before a function's code. Some writers add it to
/// the addresses of lines, V8 among them.
const ELF_HEADER: u64 = 0x40;

/// The content of a jitdump file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitDump {
    /// Functions, in the order in which they were loaded.
    pub symbols: Vec<RecordedSymbol>,
    /// Lines by address; where functions overlap, those of the last one.
    pub lines: Vec<NamedRange>,
}

/// Addresses with their file and line, in order.
type Lines = Vec<(u64, Arc<str>, u32)>;

/// Reads the functions that a jitdump file names, and their lines. Of several loaded at one address
/// the last one counts. A damaged file is read up to the damage.
pub fn parse(bytes: &[u8]) -> JitDump {
    let mut dump = JitDump::default();
    let Some((header_bytes, pid)) = header(bytes) else { return dump };
    let mut functions: BTreeMap<u64, (u64, Lines)> = BTreeMap::new();
    // Lines come before their function.
    let mut waiting: Option<(u64, Lines)> = None;
    let mut shift = u64::MAX;
    let mut at = header_bytes;
    while let (Some(id), Some(len)) = (word(bytes, at), word(bytes, at + 4)) {
        let len = len as usize;
        let Some(record) = bytes.get(at..at.saturating_add(len)).filter(|_| len >= 16) else {
            break;
        };
        match id {
            CODE_LOAD => {
                if let Some(symbol) = load(record, pid) {
                    let lines = waiting.take().filter(|(address, _)| *address == symbol.address);
                    let lines = lines.map(|(_, lines)| lines).unwrap_or_default();
                    put(&mut functions, symbol.address, symbol.size, lines);
                    dump.symbols.push(symbol);
                }
            }
            CODE_MOVE => {
                if let (Some(from), Some(to)) = (long(record, 32), long(record, 40)) {
                    let moved = dump.symbols.iter().rev().find(|symbol| symbol.address == from);
                    let moved = moved.map(|it| RecordedSymbol { address: to, ..it.clone() });
                    dump.symbols.extend(moved);
                    if let Some((size, mut lines)) = functions.remove(&from) {
                        let place = |at: &mut u64| *at = at.wrapping_sub(from).wrapping_add(to);
                        lines.iter_mut().for_each(|(at, ..)| place(at));
                        put(&mut functions, to, size, lines);
                    }
                }
            }
            CODE_DEBUG_INFO => {
                waiting = lines(record);
                if let Some((address, Some((first, ..)))) =
                    waiting.as_ref().map(|(address, lines)| (address, lines.first()))
                {
                    shift = shift.min(first.saturating_sub(*address));
                }
            }
            _ => {}
        }
        at += len;
    }
    // A function's first line is mostly at its start: in none of them means that all are moved.
    let shift = if shift != u64::MAX && shift >= ELF_HEADER { ELF_HEADER } else { 0 };
    dump.lines = ranges(functions, shift);
    dump
}

/// Enters a function in place of all that it overlaps.
fn put(functions: &mut BTreeMap<u64, (u64, Lines)>, address: u64, size: u64, lines: Lines) {
    let end = address.saturating_add(size);
    let before = functions.range(..address).next_back();
    let over = before.filter(|(start, (size, _))| start.saturating_add(*size) > address);
    let mut gone: Vec<u64> = over.map(|(start, _)| *start).into_iter().collect();
    gone.extend(functions.range(address..end.max(address)).map(|(start, _)| *start));
    gone.iter().for_each(|start| drop(functions.remove(start)));
    functions.insert(address, (size, lines));
}

/// Lines as ranges, up to the next one or the end of the function.
fn ranges(functions: BTreeMap<u64, (u64, Lines)>, shift: u64) -> Vec<NamedRange> {
    let mut out = Vec::new();
    for (address, (size, lines)) in functions {
        let end = address.saturating_add(size);
        if lines.iter().any(|(at, ..)| !(address..=end.saturating_add(shift)).contains(at)) {
            continue;
        }
        let starts = lines.iter().map(|(at, ..)| at.saturating_sub(shift).clamp(address, end));
        let starts: Vec<u64> = starts.collect();
        for (index, (_, file, line)) in lines.iter().enumerate() {
            let (start, stop) = (starts[index], starts.get(index + 1).copied().unwrap_or(end));
            if start < stop {
                let frame =
                    NamedFrame { name: Arc::default(), file: Arc::clone(file), line: *line };
                out.push(NamedRange { start, end: stop, frames: [frame].into() });
            }
        }
    }
    out
}

/// Code address; entries: address, line, column, file, which is that of the entry before where it
/// is 0xff.
fn lines(record: &[u8]) -> Option<(u64, Lines)> {
    let (address, count) = (long(record, 16)?, long(record, 24)?);
    let mut lines = Lines::new();
    let mut file: Arc<str> = Arc::default();
    let mut at = 32;
    for _ in 0..count {
        let (Some(place), Some(line)) = (long(record, at), word(record, at + 8)) else { break };
        let Some(name) =
            record.get(at + 16..).and_then(|rest| rest.split(|byte| *byte == 0).next())
        else {
            break;
        };
        if name != [0xff] {
            // Node 20 writes names that it has freed before: nothing behind them can be read.
            let text = str::from_utf8(name).ok().filter(|text| !text.contains(char::is_control))?;
            file = text.into();
        }
        lines.push((place, Arc::clone(&file), line));
        at += 16 + name.len() + 1;
    }
    lines.sort_by_key(|(at, ..)| *at);
    Some((address, lines))
}

/// Bytes of the header, and the process id.
fn header(bytes: &[u8]) -> Option<(usize, i32)> {
    (word(bytes, 0)? == MAGIC && word(bytes, 4)? == 1).then_some(())?;
    Some((word(bytes, 8)? as usize, word(bytes, 20)? as i32))
}

/// pid, tid, vma, code address, code size, code index, name.
fn load(record: &[u8], pid: i32) -> Option<RecordedSymbol> {
    let address = long(record, 32)?;
    let size = long(record, 40)?;
    let name = record.get(56..)?.split(|byte| *byte == 0).next()?;
    let name = String::from_utf8_lossy(name).into_owned();
    Some(RecordedSymbol { pid, address, size, name })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut file = Vec::new();
        for value in [MAGIC, 1, 40, 62, 0, 4242] {
            file.extend(u32::to_le_bytes(value));
        }
        file.extend([0; 16]); // timestamp, flags
        let name = b"hot loop\0";
        let code = [0x90, 0xc3];
        file.extend(CODE_LOAD.to_le_bytes());
        file.extend((56 + name.len() as u32 + code.len() as u32).to_le_bytes());
        file.extend(5u64.to_le_bytes()); // timestamp
        file.extend(4242u32.to_le_bytes()); // pid
        file.extend(4243u32.to_le_bytes()); // tid
        file.extend(0x1000u64.to_le_bytes()); // vma
        file.extend(0x2000u64.to_le_bytes()); // code address
        file.extend(2u64.to_le_bytes()); // code size
        file.extend(1u64.to_le_bytes()); // code index
        file.extend(name);
        file.extend(code);
        file
    }

    #[test]
    fn functions_are_named() {
        let symbols = parse(&file()).symbols;
        let expected =
            RecordedSymbol { pid: 4242, address: 0x2000, size: 2, name: "hot loop".into() };
        assert_eq!(symbols, [expected]);
    }

    #[test]
    fn damage_ends_the_reading() {
        let whole = file();
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).symbols.is_empty());
        }
    }

    /// A file with lines at these addresses for functions of 16 bytes at these addresses.
    fn with_lines(functions: &[(u64, &[(u64, u32)])]) -> Vec<u8> {
        let mut file = file()[..40].to_vec();
        for (address, lines) in functions {
            let mut body: Vec<u8> = [*address, lines.len() as u64].map(u64::to_le_bytes).concat();
            for (index, (at, line)) in lines.iter().enumerate() {
                body.extend(at.to_le_bytes());
                body.extend(line.to_le_bytes());
                body.extend(7u32.to_le_bytes());
                body.extend(if index == 0 { &b"/a.js\0"[..] } else { &b"\xff\0"[..] });
            }
            file.extend(CODE_DEBUG_INFO.to_le_bytes());
            file.extend((16 + body.len() as u32).to_le_bytes());
            file.extend(5u64.to_le_bytes());
            file.extend(body);
            let mut load = self::file()[40..].to_vec();
            load[32..40].copy_from_slice(&address.to_le_bytes());
            load[40..48].copy_from_slice(&16u64.to_le_bytes());
            file.extend(load);
        }
        file
    }

    fn found(file: &[u8]) -> Vec<(u64, u64, u32)> {
        let lines = parse(file).lines.into_iter();
        lines.map(|it| (it.start, it.end, it.frames[0].line)).collect()
    }

    #[test]
    fn lines_reach_to_the_next_or_to_the_end() {
        let lines = [(0x1000, 3), (0x1004, 5)];
        let file = with_lines(&[(0x1000, &lines)]);
        assert_eq!(found(&file), [(0x1000, 0x1004, 3), (0x1004, 0x1010, 5)]);
        assert!(parse(&file).lines.iter().all(|range| &*range.frames[0].file == "/a.js"));
        // As V8 writes them, behind the header of a file that perf would make.
        let file = with_lines(&[(0x1000, &[(0x1040, 3), (0x1044, 5)])]);
        assert_eq!(found(&file), [(0x1000, 0x1004, 3), (0x1004, 0x1010, 5)]);
    }

    #[test]
    fn names_that_are_no_text_take_their_lines_along() {
        let mut file = with_lines(&[(0x1000, &[(0x1000, 3)])]);
        let at = file.windows(5).position(|bytes| bytes == b"/a.js").unwrap();
        file[at] = 0xdf;
        assert_eq!(found(&file), []);
        assert_eq!(parse(&file).symbols.len(), 1);
    }

    #[test]
    fn the_last_function_at_a_place_has_its_lines() {
        let file = with_lines(&[(0x1000, &[(0x1000, 3)]), (0x1008, &[(0x1008, 9)])]);
        assert_eq!(found(&file), [(0x1008, 0x1018, 9)]);
        for len in 0..file.len() {
            parse(&file[..len]);
        }
        // A place outside the function is a mistake, and so is the rest of its lines.
        assert_eq!(found(&with_lines(&[(0x1000, &[(0x1000, 3), (0x9000, 4)])])), []);
        let endless = with_lines(&[(u64::MAX - 4, &[(u64::MAX - 4, 3), (0, 4)])]);
        assert!(found(&endless).len() <= 2);
    }
}
