//! Build ids: which build of a file this is.

use std::path::Path;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object};

/// The GNU build id of the file at `path`, empty if it has none or cannot be read.
pub fn build_id_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).map(|bytes| of_bytes(&bytes)).unwrap_or_default()
}

/// The GNU build id of a file's bytes, empty if it has none.
pub fn of_bytes(bytes: &[u8]) -> Vec<u8> {
    let Ok(file) = ElfFile64::<LittleEndian>::parse(bytes) else { return Vec::new() };
    file.build_id().ok().flatten().map(<[u8]>::to_vec).unwrap_or_default()
}
