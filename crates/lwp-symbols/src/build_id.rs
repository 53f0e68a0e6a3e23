//! Build ids: which build of a file this is.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ReadCache, ReadRef};

/// More than any table or note has that leads to a build id.
const LARGEST_PART: u64 = 16 << 20;

/// The GNU build id of the file at `path`, empty if it has none or cannot be read.
///
/// Not the whole file is read: a recorded program waits for this.
pub fn build_id_of(path: &Path) -> Vec<u8> {
    crate::files::open(path).map(|(file, _)| build_id_in(&file)).unwrap_or_default()
}

/// The GNU build id of an open file, empty if it has none or cannot be read.
pub fn build_id_in(file: &File) -> Vec<u8> {
    let cache = ReadCache::new(file);
    find(Bounded(&cache)).unwrap_or_default()
}

/// A file of which no large part is read: one that lies about itself may have any size.
#[derive(Clone, Copy)]
struct Bounded<'a, 'f>(&'a ReadCache<&'f File>);

impl<'a> ReadRef<'a> for Bounded<'a, '_> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > LARGEST_PART {
            return Err(());
        }
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
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
