//! Lines and inlined functions from DWARF.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use gimli::{EndianArcSlice, LittleEndian};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

type Reader = EndianArcSlice<LittleEndian>;

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

/// The debug information of one file.
pub struct Dwarf {
    context: addr2line::Context<Reader>,
    /// Names of source files, each once.
    files: RefCell<HashSet<Arc<str>>>,
}

impl std::fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dwarf").finish_non_exhaustive()
    }
}

impl Dwarf {
    /// Reads what `bytes` has; `None` where that is nothing. `path` is where a supplementary file is
    /// named relative to.
    pub fn parse(bytes: &[u8], path: &Path) -> Option<Self> {
        let file = ElfFile64::<object::LittleEndian>::parse(bytes).ok()?;
        file.section_by_name(".debug_info").or(file.section_by_name(".zdebug_info"))?;
        let mut dwarf = gimli::Dwarf::load(|id| section(&file, id)).ok()?;
        if let Some(supplement) = supplement(&file, path) {
            let sup = ElfFile64::<object::LittleEndian>::parse(&*supplement).ok()?;
            dwarf.load_sup(|id| section(&sup, id)).ok()?;
        }
        let context = addr2line::Context::from_dwarf(dwarf).ok()?;
        Some(Self { context, files: RefCell::default() })
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
    pub fn frames_at(&self, address: u64) -> Vec<SourceFrame> {
        let mut out = Vec::new();
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else {
            return out;
        };
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

fn section(
    file: &ElfFile64<'_, object::LittleEndian>,
    id: gimli::SectionId,
) -> Result<Reader, gimli::Error> {
    let data = file
        .section_by_name(id.name())
        .and_then(|section| section.uncompressed_data().ok())
        .unwrap_or_default();
    Ok(EndianArcSlice::new(Arc::from(&*data), LittleEndian))
}

/// The file that several debug files share entries in, as `dwz` makes it.
fn supplement(file: &ElfFile64<'_, object::LittleEndian>, path: &Path) -> Option<Vec<u8>> {
    let (name, id) = file.gnu_debugaltlink().ok()??;
    let name = Path::new(std::str::from_utf8(name).ok()?);
    let bytes = std::fs::read(path.parent()?.join(name)).ok()?;
    (crate::build_id::of_bytes(&bytes) == id).then_some(bytes)
}
