//! Lines and inlined functions from DWARF.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{LookupContinuation, LookupResult};
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Object, ObjectSection};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::compressed;
use crate::debug_file;
use crate::files::{Bytes, Files};
use crate::origins::Checksums;
use crate::parallel;
use crate::split::Split;

/// Sections that tell nothing about lines and functions, and that may be large and compressed.
pub const NEEDLESS: [SectionId; 5] = [
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugNames,
];

/// Sections that are large where there are any, the largest first.
const LARGE: [SectionId; 7] = [
    SectionId::DebugInfo,
    SectionId::DebugStr,
    SectionId::DebugLine,
    SectionId::DebugAbbrev,
    SectionId::DebugRngLists,
    SectionId::DebugRanges,
    SectionId::DebugLineStr,
];

/// Bytes of debug information.
pub type Reader = EndianArcSlice<LittleEndian>;

type Elf64<'data> = ElfFile64<'data, object::LittleEndian>;

/// A function at a place in its source, as the debug information has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// The linker's name of the function, or its plain one; empty where it has none.
    pub name: String,
    /// Source file.
    pub file: Arc<str>,
    /// Line, 0 where it is not known.
    pub line: u32,
}

/// A file with debug information.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Bytes,
    /// The program or library that it tells about.
    pub program: PathBuf,
}

/// The debug information of one file.
pub struct Dwarf {
    context: addr2line::Context<Reader>,
    split: Split,
    /// A file that entries are shared in, and that is missing.
    unshared: Option<PathBuf>,
    /// Names of source files, each once.
    files: RefCell<FxHashSet<Arc<str>>>,
}

impl std::fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dwarf").finish_non_exhaustive()
    }
}

impl Dwarf {
    /// Returns whether `bytes` have debug information.
    pub fn is_in(bytes: &[u8]) -> bool {
        let Ok(file) = Elf64::parse(bytes) else { return false };
        file.section_by_name(".debug_info").is_some_and(|section| section.size() > 0)
    }

    /// Reads what `source` has; `None` where that is nothing.
    pub fn parse(source: &Source, files: &Files<'_>) -> Option<Self> {
        let sections = Sections::of(&source.bytes)?;
        let unpacked = sections.unpacked();
        let load = |id: SectionId| match unpacked.get(id.name()) {
            Some(section) => Ok(section.clone()),
            None => {
                sections.section(Some(id).filter(|id| !NEEDLESS.contains(id)).map(|id| id.name()))
            }
        };
        let mut dwarf = gimli::Dwarf::load(load).ok()?;
        let mut unshared = None;
        if let Some((name, id)) = sections.shared() {
            let shared = debug_file::find_shared(&name, id, &source.path, files);
            match shared.as_ref().and_then(Sections::of) {
                Some(shared) => dwarf.load_sup(|id| shared.section(Some(id.name()))).ok()?,
                None => unshared = Some(name),
            }
        }
        let context = addr2line::Context::from_dwarf(dwarf).ok()?;
        let split = Split::of(&source.path, &source.program);
        Some(Self { context, split, unshared, files: RefCell::default() })
    }

    /// The checksums of the source files that `source` tells about, by their names as
    /// [`Self::frames_at`] has them. Only line tables of DWARF 5 can have any.
    pub fn checksums(source: &Source) -> Checksums {
        let mut out = Checksums::default();
        let Some(sections) = Sections::of(&source.bytes) else { return out };
        let load = |id: SectionId| {
            sections.section(Some(id).filter(|id| !NEEDLESS.contains(id)).map(|id| id.name()))
        };
        let Ok(dwarf) = gimli::Dwarf::load(load) else { return out };
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let Ok(unit) = dwarf.unit(header) else { continue };
            let unit = unit.unit_ref(&dwarf);
            let Some(program) = &unit.line_program else { continue };
            let lines = program.header();
            for file in lines.file_names().iter().filter(|_| lines.file_has_md5()) {
                if let Some(name) = file_name(unit, file, lines) {
                    out.insert(name, *file.md5());
                }
            }
        }
        out
    }

    /// Returns the missing parts, in words.
    pub fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(name) = &self.unshared {
            let name = name.display();
            out.push(format!("{name}, which has a part of the debug information, was not found"));
        }
        let missing = self.split.missing();
        if let Some(first) = missing.first() {
            let others = match missing.len() {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            out.push(format!(
                "debug information in {}{others} was not found: inlined functions are missing; \
                 make a package of them beside the program (dwp), or keep them where they were",
                first.display()
            ));
        }
        out
    }

    fn shared(&self, file: &str) -> Arc<str> {
        let mut files = self.files.borrow_mut();
        if let Some(known) = files.get(file) {
            return Arc::clone(known);
        }
        let file: Arc<str> = file.into();
        files.insert(Arc::clone(&file));
        file
    }

    /// The frames at `address`, innermost first; empty where nothing is known.
    pub fn frames_at(&self, address: u64, files: &Files<'_>) -> Vec<SourceFrame> {
        let mut out = Vec::new();
        // The library looks for what ends behind it.
        if address == u64::MAX {
            return out;
        }
        let mut lookup = self.context.find_frames(address);
        let found = loop {
            match lookup {
                LookupResult::Output(found) => break found,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.split.load(load, files));
                }
            }
        };
        let Ok(mut frames) = found else { return out };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            let (file, line) = match &frame.location {
                Some(location) => {
                    (self.shared(location.file.unwrap_or("")), location.line.unwrap_or(0))
                }
                None => (Arc::default(), 0),
            };
            out.push(SourceFrame { name: name.unwrap_or_default().into_owned(), file, line });
        }
        out
    }
}

/// The name of a source file of a line table, made as the library makes it.
fn file_name(
    unit: gimli::UnitRef<'_, Reader>,
    file: &gimli::FileEntry<Reader>,
    lines: &gimli::LineProgramHeader<Reader>,
) -> Option<String> {
    use gimli::Reader as _;
    let text = |value| Some(unit.attr_string(value).ok()?.to_string_lossy().ok()?.into_owned());
    let mut name = match &unit.comp_dir {
        Some(dir) => dir.to_string_lossy().ok()?.into_owned(),
        None => String::new(),
    };
    // Directory 0 is the unit's own.
    let directory = file.directory(lines).filter(|_| file.directory_index() != 0);
    let parts = [directory.map(text), Some(text(file.path_name()))];
    for part in parts.into_iter().flatten() {
        let part = part?;
        if part.starts_with('/') {
            name.clear();
        } else if !name.is_empty() && !name.ends_with('/') {
            name.push('/');
        }
        name.push_str(&part);
    }
    Some(name)
}

/// The sections of one file, found by name.
pub struct Sections<'data> {
    file: Elf64<'data>,
    whole: Reader,
}

impl<'data> Sections<'data> {
    /// Those of `bytes`; `None` where they are no ELF file.
    pub fn of(bytes: &'data Bytes) -> Option<Self> {
        let file = Elf64::parse(&**bytes).ok()?;
        Some(Self { file, whole: Reader::new(Arc::clone(bytes), LittleEndian) })
    }

    /// The section called `name`, empty where it is missing or damaged. Its bytes are the file's
    /// own, unless it is compressed.
    pub fn section(&self, name: Option<&str>) -> Result<Reader, gimli::Error> {
        let section = name.and_then(|name| self.file.section_by_name(name));
        Ok(section.and_then(|section| self.bytes(&section)).unwrap_or_else(Self::empty))
    }

    /// Those of the large sections that are compressed, several of which are unpacked at a time.
    fn unpacked(&self) -> FxHashMap<&'static str, Reader> {
        let is_compressed = |name: &&str| {
            let range = self.file.section_by_name(name).map(|it| it.compressed_file_range());
            matches!(range, Some(Ok(range)) if range.format != CompressionFormat::None)
        };
        let names = LARGE.iter().map(|id| id.name()).filter(is_compressed).collect();
        let unpacked = parallel::map(names, |name| Some((name, self.section(Some(name)).ok()?)));
        unpacked.into_iter().flatten().collect()
    }

    fn bytes(&self, section: &impl ObjectSection<'data>) -> Option<Reader> {
        let range = section.compressed_file_range().ok()?;
        let packed = range.format != CompressionFormat::None;
        let start = usize::try_from(range.offset).ok()?;
        let len = if packed { range.compressed_size } else { range.uncompressed_size };
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        if packed {
            let bytes = self.whole.bytes().get(start..end)?;
            let bytes = compressed::unpack(range.format, bytes, range.uncompressed_size)?;
            return Some(Reader::new(Arc::from(bytes), LittleEndian));
        }
        (end <= self.whole.bytes().len()).then(|| self.whole.range(start..end))
    }

    /// No bytes.
    pub fn empty() -> Reader {
        Reader::new(Arc::from([]), LittleEndian)
    }

    /// The file that several debug files share entries in, as `dwz` makes it: its name and build
    /// id.
    fn shared(&self) -> Option<(PathBuf, &'data [u8])> {
        use std::os::unix::ffi::OsStrExt;
        let (name, id) = self.file.gnu_debugaltlink().ok()??;
        Some((Path::new(std::ffi::OsStr::from_bytes(name)).to_owned(), id))
    }
}
