//! Names of interpreted functions for perf, which looks for names in the files of modules.
//!
//! Functions of interpreted languages have addresses of their own, high above those of the program,
//! and no file. They get one: an ELF file without code, whose symbols are their names.

use std::collections::BTreeMap;

use lwp_profile::{RecordedModule, Recording};

use crate::one_line;

/// Bytes of addresses that a function has at most.
const ROOM: u64 = 1 << 20;
const EHDR_BYTES: u16 = 64;
const SHDR_BYTES: u16 = 64;
const SYM_BYTES: u64 = 24;
const SECTIONS: [&str; 5] = ["", ".text", ".symtab", ".strtab", ".shstrtab"];

/// The first address of all: no program's code is so high.
const START: u64 = 1 << 63;

/// The file, and the addresses that it is mapped at.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Number of addresses.
    pub length: u64,
    /// The content of the file.
    pub file: Vec<u8>,
    /// By module, its first address in the recording and here: modules have the same addresses
    /// there.
    moved: BTreeMap<u32, (u64, u64)>,
}

/// A function: its address, number of addresses and name.
type Symbol = (u64, u64, String);

impl Names {
    /// The names of a recording's interpreted functions; `None` where there are none.
    pub fn of(recording: &Recording) -> Option<Self> {
        let mut of_module: BTreeMap<u32, BTreeMap<u64, String>> = BTreeMap::new();
        for names in &recording.names {
            let module = recording.modules.get(&names.module);
            if module.and_then(RecordedModule::language).is_none() {
                continue;
            }
            let functions = of_module.entry(names.module).or_default();
            for code in &names.functions {
                let name = format!("{} {}", one_line(&code.name), one_line(&code.file));
                functions.insert(code.address, name);
            }
        }
        of_module.retain(|_, functions| !functions.is_empty());
        let (mut symbols, mut moved, mut base) = (Vec::new(), BTreeMap::new(), START);
        for (module, functions) in of_module {
            let first = *functions.keys().next()?;
            let last = *functions.keys().next_back()?;
            moved.insert(module, (first, base));
            let ends = functions.keys().skip(1).copied().chain([last.saturating_add(ROOM)]);
            for ((address, name), end) in functions.iter().zip(ends.collect::<Vec<u64>>()) {
                let size = (end - address).min(ROOM);
                symbols.push((base.checked_add(address - first)?, size, name.clone()));
            }
            base = base.checked_add(last - first)?.checked_add(ROOM)?;
        }
        let length = base - START;
        (!symbols.is_empty()).then(|| Self { length, file: file(START, length, &symbols), moved })
    }

    /// First address.
    pub fn start(&self) -> u64 {
        START
    }

    /// The address here of one in a module of the recording.
    pub fn address(&self, module: Option<u32>, address: u64) -> u64 {
        let moved = module.and_then(|module| self.moved.get(&module));
        moved.map_or(address, |(from, to)| address.wrapping_sub(*from).wrapping_add(*to))
    }
}

/// A string table, and the place of each string.
fn strings<'a>(all: impl Iterator<Item = &'a str>) -> (Vec<u8>, Vec<u32>) {
    let (mut table, mut places) = (vec![0], Vec::new());
    for text in all {
        places.push(if text.is_empty() { 0 } else { table.len() as u32 });
        if !text.is_empty() {
            table.extend(text.bytes());
            table.push(0);
        }
    }
    (table, places)
}

/// The ELF file: header, symbols, strings, names of sections, sections.
fn file(start: u64, length: u64, symbols: &[Symbol]) -> Vec<u8> {
    /// `STT_FUNC`, `STB_GLOBAL`.
    const FUNCTION: u8 = 0x12;
    let (strtab, names) = strings(symbols.iter().map(|(.., name)| name.as_str()));
    let (shstrtab, titles) = strings(SECTIONS.into_iter());
    let mut symtab = vec![0; SYM_BYTES as usize];
    for ((address, size, _), name) in symbols.iter().zip(names) {
        symtab.extend(name.to_le_bytes());
        symtab.extend([FUNCTION, 0, 1, 0]); // in section 1, .text
        symtab.extend((address - start).to_le_bytes());
        symtab.extend(size.to_le_bytes());
    }
    let symtab_at = u64::from(EHDR_BYTES);
    let strtab_at = symtab_at + symtab.len() as u64;
    let shstrtab_at = strtab_at + strtab.len() as u64;
    let headers_at = (shstrtab_at + shstrtab.len() as u64).next_multiple_of(8);
    let mut out = header(headers_at);
    out.extend(&symtab);
    out.extend(&strtab);
    out.extend(&shstrtab);
    out.resize(headers_at as usize, 0);
    let (strings, symbols) = (strtab.len() as u64, symtab.len() as u64);
    #[rustfmt::skip] // A table: kind, flags, address, offset, size, link, info, entry.
    let sections: [[u64; 8]; 5] = [
        [0, 0, 0, 0,           0,                     0, 0, 0],
        [8, 6, 0, 0,           length,                0, 0, 0], // no bits; allocated, executable
        [2, 0, 0, symtab_at,   symbols,               3, 1, SYM_BYTES],
        [3, 0, 0, strtab_at,   strings,               0, 0, 0],
        [3, 0, 0, shstrtab_at, shstrtab.len() as u64, 0, 0, 0],
    ];
    for (title, [kind, flags, address, offset, size, link, info, entry]) in
        titles.into_iter().zip(sections)
    {
        out.extend(title.to_le_bytes());
        out.extend((kind as u32).to_le_bytes());
        [flags, address, offset, size].iter().for_each(|word| out.extend(word.to_le_bytes()));
        [link, info].iter().for_each(|word| out.extend((*word as u32).to_le_bytes()));
        [8, entry].iter().for_each(|word| out.extend(word.to_le_bytes()));
    }
    out
}

/// The header of a shared object for x86-64, without segments.
fn header(sections_at: u64) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend([3, 0, 62, 0, 1, 0, 0, 0]); // shared object, x86-64, version
    out.extend([0; 16]); // entry, segments
    out.extend(sections_at.to_le_bytes());
    out.extend([0; 4]); // flags
    let count = SECTIONS.len() as u16;
    for half in [EHDR_BYTES, 0, 0, SHDR_BYTES, count, count - 1] {
        out.extend(half.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use lwp_profile::{NamedCode, RecordedNames};

    use super::*;

    #[test]
    fn functions_become_symbols() {
        let module = |id: u32, path: &str| {
            (id, RecordedModule { id, path: path.into(), ..RecordedModule::default() })
        };
        let code = |name: &str, address| NamedCode {
            name: name.into(),
            file: "/srv/app.py".into(),
            address,
            ..NamedCode::default()
        };
        let names = |module, functions| RecordedNames { module, functions, ..Default::default() };
        // Both modules have their functions at the same addresses.
        let recording = Recording {
            modules: [
                module(0, "/bin/python3"),
                module(4, "[python]/a.py"),
                module(7, "[python]/b"),
            ]
            .into(),
            names: vec![
                names(0, vec![code("main", 0x1000)]),
                names(7, vec![code("other", START)]),
                names(4, vec![code("<module>", START), code("leaf", START + 3 * ROOM)]),
            ],
            ..Recording::default()
        };
        let names = Names::of(&recording).expect("there are some");
        assert_eq!((names.start(), names.length), (START, 5 * ROOM));
        let text = String::from_utf8_lossy(&names.file);
        assert!(text.contains("\0<module> /srv/app.py\0leaf /srv/app.py\0other "), "{text}");
        assert!(names.file.starts_with(b"\x7fELF"));
        assert_eq!(names.address(Some(4), START + 3 * ROOM + 7), START + 3 * ROOM + 7);
        assert_eq!(names.address(Some(7), START + 7), START + 4 * ROOM + 7);
        assert_eq!([names.address(Some(0), 0x1007), names.address(None, 5)], [0x1007, 5]);
        let word = |at: usize| u64::from_le_bytes(names.file[at..at + 8].try_into().unwrap());
        // The third symbol's address and size: the first is empty.
        let leaf = 64 + 2 * SYM_BYTES as usize;
        assert_eq!([word(leaf + 8), word(leaf + 16)], [3 * ROOM, ROOM]);
        assert!(Names::of(&Recording::default()).is_none());
    }
}
