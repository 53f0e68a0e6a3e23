//! Strings and bytes of the interpreter.

use crate::Memory;
use crate::python::layout::Layout;

/// Reads the string at `address`, if it has at most `most` characters.
pub fn text(layout: &Layout, address: u64, most: u64, memory: &mut dyn Memory) -> Option<String> {
    let length = memory.word(address.checked_add(layout.head)?)?;
    let state = memory.half(address.checked_add(layout.head + 16)?)?;
    if length > most {
        return None;
    }
    let (kind, ascii) = kind(state)?;
    let skipped = layout.text[0] + if ascii { 0 } else { layout.text[1] };
    let mut bytes = vec![0; usize::try_from(length * kind).ok()?];
    if !memory.read(address.checked_add(skipped)?, &mut bytes) {
        return None;
    }
    let chars = bytes.chunks_exact(kind as usize).map(|bytes| {
        let code = bytes.iter().rev().fold(0, |code, byte| code << 8 | u32::from(*byte));
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    });
    Some(chars.collect())
}

/// Bytes of a character, and whether all are ASCII.
///
/// What says whether the string is interned comes first: two bits, or a byte, or two bytes,
/// depending on the release. Three bits of the kind follow, then one that says that the characters
/// follow the head, which those of names always do, and that of ASCII.
fn kind(state: u32) -> Option<(u64, bool)> {
    [2, 8, 16].into_iter().find_map(|shift| {
        let (kind, compact, ascii) =
            (state >> shift & 7, state >> shift >> 3 & 1, state >> shift >> 4 & 1);
        (matches!(kind, 1 | 2 | 4) && compact == 1).then_some((u64::from(kind), ascii == 1))
    })
}

/// Reads the bytes of the object at `address`, if there are at most `most`.
pub fn bytes(layout: &Layout, address: u64, most: u64, memory: &mut dyn Memory) -> Option<Vec<u8>> {
    let length = memory.word(address.checked_add(layout.head)?)?;
    if length > most {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    memory.read(address.checked_add(layout.head + 16)?, &mut bytes).then_some(bytes)
}
