//! Jitdump files (version 1): names of generated code with the time at which they hold.

use lwp_profile::RecordedSymbol;

const MAGIC: u32 = 0x4a69_5444;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;

/// Reads the functions that a jitdump file names. Of several loaded at one address the last one
/// counts. A damaged file is read up to the damage.
pub fn parse(bytes: &[u8]) -> Vec<RecordedSymbol> {
    let mut symbols: Vec<RecordedSymbol> = Vec::new();
    let Some((header_bytes, pid)) = header(bytes) else { return symbols };
    let mut at = header_bytes;
    while let (Some(id), Some(len)) = (word(bytes, at), word(bytes, at + 4)) {
        let len = len as usize;
        let Some(record) = bytes.get(at..at.saturating_add(len)).filter(|_| len >= 16) else {
            break;
        };
        match id {
            CODE_LOAD => symbols.extend(load(record, pid)),
            CODE_MOVE => {
                if let (Some(from), Some(to)) = (long(record, 32), long(record, 40)) {
                    let moved = symbols.iter().rev().find(|symbol| symbol.address == from).cloned();
                    symbols.extend(moved.map(|symbol| RecordedSymbol { address: to, ..symbol }));
                }
            }
            _ => {}
        }
        at += len;
    }
    symbols
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
        let symbols = parse(&file());
        let expected =
            RecordedSymbol { pid: 4242, address: 0x2000, size: 2, name: "hot loop".into() };
        assert_eq!(symbols, [expected]);
    }

    #[test]
    fn damage_ends_the_reading() {
        let whole = file();
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_empty());
        }
    }
}
