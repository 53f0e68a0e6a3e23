//! One module's names, from wherever they are to be had.

use std::path::{Path, PathBuf};

use lwp_profile::{RecordedFile, RecordedModule};

use crate::build_id;
use crate::debug_file;
use crate::dwarf::{Dwarf, SourceFrame};
use crate::elf::{Elf, Symbol};
use crate::vdso;

/// The names of one module.
#[derive(Debug, Default)]
pub struct ModuleNames {
    elf: Option<Elf>,
    dwarf: Option<Dwarf>,
    /// Why names are missing, if they are.
    pub warning: Option<String>,
}

impl ModuleNames {
    /// Looks for the names of `module`, first among the files kept with the recording.
    /// With `code`, its bytes too.
    pub fn find(
        module: &RecordedModule,
        kept: &[RecordedFile],
        debug_roots: &[PathBuf],
        code: bool,
    ) -> Self {
        if module.path == "[vdso]" {
            return match vdso::vdso_bytes() {
                Some(bytes) if same_build(module, &bytes) => {
                    Self { elf: Elf::parse(&bytes).ok(), ..Self::default() }
                }
                _ => Self::default(),
            };
        }
        if module.is_anonymous() {
            return Self::default();
        }
        let path = Path::new(&module.path);
        let found = kept
            .iter()
            .find(|file| file.path == module.path)
            .map(|file| Ok(file.bytes.clone()))
            .unwrap_or_else(|| std::fs::read(path));
        let bytes = match found {
            Ok(bytes) => bytes,
            Err(error) => return Self::without(module, &format!("cannot be read: {error}")),
        };
        if !unchanged(module, path, &bytes) {
            return Self::without(
                module,
                "has changed since the recording; its names are not used",
            );
        }
        let mut elf = match Elf::parse(&bytes) {
            Ok(elf) => elf,
            Err(error) => return Self::without(module, &error.to_string()),
        };
        if code {
            elf.keep_code(&bytes);
        }
        let own = Dwarf::parse(&bytes, path);
        if own.is_some() && !Elf::is_stripped(&bytes) {
            return Self { elf: Some(elf), dwarf: own, warning: None };
        }
        let separate = debug_file::find(&elf, path, debug_roots);
        let dwarf = separate.as_deref().and_then(|bytes| {
            elf.add_symbols(bytes);
            Dwarf::parse(bytes, path)
        });
        Self { elf: Some(elf), dwarf: own.or(dwarf), warning: None }
    }

    fn without(module: &RecordedModule, why: &str) -> Self {
        Self { warning: Some(format!("{}: {why}", module.path)), ..Self::default() }
    }

    /// The address that the file itself has for what lies at `offset`.
    pub fn address_of(&self, offset: u64) -> u64 {
        self.elf.as_ref().and_then(|elf| elf.address_of(offset)).unwrap_or(offset)
    }

    /// The function at `address`.
    pub fn function_at(&self, address: u64) -> Option<&Symbol> {
        self.elf.as_ref()?.function_at(address)
    }

    /// Frames at `address` from debug information.
    pub fn frames_at(&self, address: u64) -> Vec<SourceFrame> {
        self.dwarf.as_ref().map(|dwarf| dwarf.frames_at(address)).unwrap_or_default()
    }

    /// The tables.
    pub fn elf(&self) -> Option<&Elf> {
        self.elf.as_ref()
    }
}

/// Whether the bytes are of the build that was recorded, as far as that can be told.
fn same_build(module: &RecordedModule, bytes: &[u8]) -> bool {
    module.build_id.is_empty() || build_id::of_bytes(bytes) == module.build_id
}

fn unchanged(module: &RecordedModule, path: &Path, bytes: &[u8]) -> bool {
    if !module.build_id.is_empty() {
        return same_build(module, bytes);
    }
    let Some((size, mtime)) = module.version else { return true };
    if size != bytes.len() as u64 {
        return false;
    }
    // Without a build id, a file of the same size is the same unless it was written since.
    std::fs::metadata(path).map_or(true, |now| {
        use std::os::unix::fs::MetadataExt;
        now.mtime().wrapping_mul(1_000_000_000).wrapping_add(now.mtime_nsec()) == mtime
    })
}
