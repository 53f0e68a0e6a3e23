//! Build ids: which build of a file this is.

use std::fs::File;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ReadCache, ReadRef};

/// The GNU build id of the file at `path`, empty if it has none or cannot be read.
///
/// Not the whole file is read: a recorded program waits for this.
pub fn build_id_of(path: &Path) -> Vec<u8> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let cache = ReadCache::new(file);
    find(&cache).unwrap_or_default()
}

/// The GNU build id of a file's bytes, empty if it has none.
pub fn of_bytes(bytes: &[u8]) -> Vec<u8> {
    find(bytes).unwrap_or_default()
}

fn find<'data>(data: impl ReadRef<'data>) -> Option<Vec<u8>> {
    let file = ElfFile64::<LittleEndian, _>::parse(data).ok()?;
    file.build_id().ok()?.map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_bytes_have_the_same_id() {
        let path = std::env::current_exe().expect("this program");
        let bytes = std::fs::read(&path).expect("it can be read");
        let id = of_bytes(&bytes);
        assert_eq!(id.len(), 20);
        assert_eq!(build_id_of(&path), id);
        let without_sections = {
            let mut bytes = bytes;
            // e_shoff, e_shnum and e_shstrndx.
            bytes[0x28..0x30].fill(0);
            bytes[0x3c..0x40].fill(0);
            bytes
        };
        assert_eq!(of_bytes(&without_sections), id);
    }

    #[test]
    fn what_is_no_elf_file_has_none() {
        let dir = std::env::temp_dir();
        for path in [dir.as_path(), &dir.join("no-such-file-of-lwp"), Path::new("/dev/null")] {
            assert_eq!(build_id_of(path), Vec::<u8>::new(), "{}", path.display());
        }
        assert_eq!(of_bytes(b"\x7fELF\x02\x01"), Vec::<u8>::new());
    }
}
