//! The name that a file goes by wherever it lies: its SONAME, and whether it is a program.

use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, read::elf::ElfFile};

/// A file's own idea of what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name that programs link it by, empty where it has none.
    pub soname: String,
    /// True if it is a program and no library.
    pub program: bool,
    /// True if its symbols are Go's, or of another language that has dots in names.
    pub go: bool,
}

impl Identity {
    /// The identity of the ELF file in `bytes`; that of a nameless library where they are none.
    pub fn of(bytes: &[u8]) -> Self {
        ElfFile64::<LittleEndian>::parse(bytes).map(|file| read(&file)).unwrap_or_default()
    }
}

fn read(file: &ElfFile<'_, elf::FileHeader64<LittleEndian>>) -> Identity {
    let (header, data) = (file.elf_header(), file.data());
    let segments = header.program_headers(LittleEndian, data).unwrap_or_default();
    let dynamic = segments.iter().find_map(|it| it.dynamic(LittleEndian, data).ok().flatten());
    let value = |tag| {
        let entry = dynamic?.iter().find(|entry| entry.tag(LittleEndian) == tag)?;
        Some(entry.val(LittleEndian))
    };
    let name = value(elf::DT_SONAME).zip(value(elf::DT_STRTAB)).and_then(|(name, table)| {
        let address = table.checked_add(name)?;
        let rest = segments.iter().find_map(|segment| {
            let bytes = segment.data(LittleEndian, data).ok()?;
            let loaded = segment.p_type(LittleEndian) == elf::PT_LOAD;
            let at = address.checked_sub(segment.p_vaddr(LittleEndian)).filter(|_| loaded)?;
            bytes.get(usize::try_from(at).ok()?..)
        })?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    });
    let soname = name.unwrap_or_default();
    let kind = header.e_type(LittleEndian);
    let marked = value(elf::DT_FLAGS_1).is_some_and(|flags| flags & elf::DF_1_PIE.0 != 0);
    // Linkers before 2.26 mark no programs; the C library has an interpreter too, and a name.
    let interpreted = segments.iter().any(|it| it.p_type(LittleEndian) == elf::PT_INTERP);
    let program = kind == elf::ET_EXEC || marked || interpreted && soname.is_empty();
    let sections = [".go.buildinfo", ".note.go.buildid", ".gopclntab", ".data.rel.ro.gopclntab"];
    let go = sections.iter().any(|name| file.section_by_name(name).is_some());
    Identity { soname, program, go }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_libraries_are_told_apart() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(Identity::of(&own), Identity { program: true, ..Identity::default() });
        let vdso = crate::vdso_bytes().unwrap();
        let expected = Identity { soname: "linux-vdso.so.1".into(), ..Identity::default() };
        assert_eq!(Identity::of(&vdso), expected);
        for length in 0..own.len().min(4096) {
            let _ = Identity::of(&own[..length]);
        }
        assert_eq!(Identity::of(b"#!/bin/sh"), Identity::default());
    }
}
