//! MiniDebugInfo: the symbol table of a stripped program, compressed in its section
//! `.gnu_debugdata`.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};

use crate::compressed;

/// More than any symbol table has. What is larger is not unpacked.
const LARGEST_BYTES: u64 = 256 << 20;

/// The ELF file within `bytes` that has the symbols of functions which the program itself has lost;
/// `None` where there is none or it is damaged.
pub fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let file = ElfFile64::<LittleEndian>::parse(bytes).ok()?;
    let packed = file.section_by_name(".gnu_debugdata")?.data().ok()?;
    unpacked(packed)
}

fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    compressed::unpack_xz(packed, LARGEST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "lightweight profiling", as xz packs it.
    #[rustfmt::skip] // Parts of the format, one a line.
    const PACKED: [u8; 80] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0, 0, 4, 0xe6, 0xd6, 0xb4, 0x46, // header: CRC64
        2, 0, 0x21, 1, 0x1c, 0, 0, 0, 0x10, 0xcf, 0x58, 0xcc, // block: LZMA2, 64 MiB
        1, 0, 0x14, 0x6c, 0x69, 0x67, 0x68, 0x74, 0x77, 0x65, 0x69, 0x67, 0x68, 0x74, 0x20,
        0x70, 0x72, 0x6f, 0x66, 0x69, 0x6c, 0x69, 0x6e, 0x67, 0, 0, 0, 0, // data, padding
        0x27, 0x16, 0xf6, 0x23, 0xff, 0x23, 0x8b, 0xd3, // its CRC64
        0, 1, 0x2d, 0x15, 0x2f, 0x0b, 0x71, 0x6d, // index
        0x1f, 0xb6, 0xf3, 0x7d, 1, 0, 0, 0, 0, 4, 0x59, 0x5a, // footer
    ];

    #[test]
    fn what_xz_packs_is_unpacked() {
        assert_eq!(unpacked(&PACKED).as_deref(), Some(b"lightweight profiling".as_slice()));
        assert_eq!(unpack(&PACKED), None, "not in a program");
    }

    #[test]
    fn damage_is_no_symbol_table_and_no_crash() {
        for len in 0..PACKED.len() {
            assert_eq!(unpacked(&PACKED[..len]), None, "{len} bytes");
        }
        for bit in 0..8 * PACKED.len() {
            let mut bytes = PACKED;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let whole = unpacked(&bytes).is_none_or(|it| it == b"lightweight profiling");
            assert!(whole, "bit {bit}");
        }
    }
}
