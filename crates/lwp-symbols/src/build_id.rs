//! Build ids: which build of a file this is.

use std::fs::File;
use std::path::Path;

use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::{LittleEndian, ReadCache, ReadRef};

type Header = FileHeader64<LittleEndian>;

/// The GNU build id of the file at `path`, empty if it has none or cannot be read.
///
/// Of the file only its headers and notes are read: a recorded program waits for this.
pub fn build_id_of(path: &Path) -> Vec<u8> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let cache = ReadCache::new(file);
    find(&cache).unwrap_or_default()
}

/// The GNU build id of a file's bytes, empty if it has none.
pub fn of_bytes(bytes: &[u8]) -> Vec<u8> {
    find(bytes).unwrap_or_default()
}

/// The build id among the notes of sections, or of segments where there are no sections.
fn find<'data>(data: impl ReadRef<'data>) -> Option<Vec<u8>> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.section_headers(endian, data).unwrap_or_default();
    let in_sections =
        sections.iter().filter_map(|it| id_in(endian, it.notes(endian, data).ok()??)).next();
    let segments = header.program_headers(endian, data).unwrap_or_default();
    let mut in_segments =
        segments.iter().filter_map(|it| id_in(endian, it.notes(endian, data).ok()??));
    in_sections.or_else(|| in_segments.next())
}

fn id_in(endian: LittleEndian, mut notes: NoteIterator<'_, Header>) -> Option<Vec<u8>> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
            return Some(note.desc().to_vec());
        }
    }
    None
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
