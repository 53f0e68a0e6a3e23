//! One module's names, from wherever they are to be had.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use lwp_profile::{RecordedModule, RecordedNames};

use crate::build_id;
use crate::builds;
use crate::debug_file;
use crate::dwarf::{Dwarf, Source, SourceFrame};
use crate::elf::{Elf, Symbol};
use crate::files::{Bytes, Files, read};
use crate::kept::KeptLines;
use crate::mini_debug;
use crate::vdso;

/// The names of one module.
#[derive(Debug, Default)]
pub struct ModuleNames {
    elf: Option<Elf>,
    /// The source of debug information.
    debug: Option<Source>,
    /// The parsed debug information, once somebody has asked for it.
    dwarf: OnceCell<Option<Dwarf>>,
    /// Lines that a recording kept instead.
    kept: Option<KeptLines>,
    /// The module's path, and the reasons why names are missing, if they are.
    path: String,
    warnings: Vec<String>,
}

impl ModuleNames {
    /// Looks for the names of `module` in `files`. With `code`, its bytes too.
    pub fn find(module: &RecordedModule, files: &Files<'_>, code: bool) -> Self {
        if module.path == "[vdso]" {
            return match vdso::vdso_bytes() {
                Some(bytes) if same_build(module, &bytes) => {
                    Self { elf: Elf::parse(&bytes).ok(), ..Self::default() }
                }
                _ => Self::default(),
            };
        }
        let path = Path::new(&module.path);
        // What a process maps only so that it is found has no names of its own, and changes while
        // it is written.
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let jitdump = name.starts_with("jit-") && name.ends_with(".dump");
        if module.is_anonymous() || jitdump {
            return Self::default();
        }
        let kept = files.kept(path).find(|bytes| same_size_or_build(module, bytes));
        let bytes = match kept {
            Some(bytes) => bytes,
            None => match read(path) {
                Ok(bytes) if unchanged(module, path, &bytes) => bytes,
                read => {
                    let held = files.held(&module.path).find(|it| same_size_or_build(module, it));
                    match held.or_else(|| from_builds(module, path, files)) {
                        Some(bytes) => bytes,
                        None => return Self::without(module, &why_not(read.err())),
                    }
                }
            },
        };
        let mut elf = match Elf::parse(&bytes) {
            Ok(elf) => elf,
            // Assemblies of .NET are in files of Windows' form; the runtime names their code.
            Err(_) if bytes.starts_with(b"MZ") => {
                return Self { path: module.path.clone(), ..Self::default() };
            }
            Err(error) => return Self::without(module, &error.to_string()),
        };
        if code {
            elf.keep_code(&bytes);
        }
        let own = Dwarf::is_in(&bytes);
        let stripped = Elf::is_stripped(&bytes);
        let source = |file: &Path, bytes| {
            let (path, program) = (file.to_owned(), path.to_owned());
            Some(Source { path, bytes, program })
        };
        let separate = match own && !stripped {
            true => None,
            false => debug_file::find(&elf, path, files),
        };
        match &separate {
            Some((_, bytes)) => elf.add_symbols(bytes),
            None if stripped => {
                if let Some(symbols) = mini_debug::unpack(&bytes) {
                    elf.add_symbols(&symbols);
                }
            }
            None => {}
        }
        let debug = match separate {
            _ if own => source(path, bytes),
            Some((path, bytes)) if Dwarf::is_in(&bytes) => source(&path, bytes),
            _ => None,
        };
        Self { elf: Some(elf), debug, path: module.path.clone(), ..Self::default() }
    }

    /// The names of `module` with debug information that was not there when the recording kept its
    /// names, and is to be had elsewhere.
    pub fn with_debug(module: &RecordedModule, files: &Files<'_>, code: bool) -> Option<Self> {
        let path = Path::new(&module.path);
        let missing = !module.is_anonymous() && !module.build_id.is_empty();
        files.builds.filter(|_| missing)?.debug_information(&module.build_id, path)?;
        Some(Self::find(module, files, code))
            .filter(|names| names.elf.is_some() && names.has_debug())
    }

    /// The names of `module` that recordings have kept.
    pub fn kept(module: &RecordedModule, names: &[&RecordedNames]) -> Self {
        let mut warnings: Vec<String> =
            names.iter().flat_map(|names| names.warnings.clone()).collect();
        warnings.sort_unstable();
        warnings.dedup();
        Self {
            elf: Some(Elf::kept(names)),
            kept: Some(KeptLines::new(names)),
            path: module.path.clone(),
            warnings,
            ..Self::default()
        }
    }

    fn without(module: &RecordedModule, why: &str) -> Self {
        Self { path: module.path.clone(), warnings: vec![why.to_owned()], ..Self::default() }
    }

    /// The file that has the debug information.
    pub fn debug_source(&self) -> Option<&Source> {
        self.debug.as_ref()
    }

    /// Returns remarks on names that are missing so far.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.missing().into_iter();
        all.map(|warning| format!("{}: {warning}", self.path)).collect()
    }

    /// Returns remarks on names that are missing so far, without the module's path.
    pub fn missing(&self) -> Vec<String> {
        let read = self.dwarf.get().and_then(Option::as_ref);
        let missing = read.map(Dwarf::warnings).unwrap_or_default();
        self.warnings.iter().cloned().chain(missing).collect()
    }

    /// The address that the file itself has for what lies at `offset`.
    pub fn address_of(&self, offset: u64) -> u64 {
        self.elf.as_ref().and_then(|elf| elf.address_of(offset)).unwrap_or(offset)
    }

    /// The function at `address`.
    pub fn function_at(&self, address: u64) -> Option<Symbol<'_>> {
        self.elf.as_ref()?.function_at(address)
    }

    /// Frames at `address` from debug information, which is read when the first are asked for.
    pub fn frames_at(&self, address: u64, files: &Files<'_>) -> Vec<SourceFrame> {
        if let Some(kept) = &self.kept {
            return kept.frames_at(address);
        }
        let dwarf = self.read_debug(files);
        dwarf.map(|dwarf| dwarf.frames_at(address, files)).unwrap_or_default()
    }

    /// Reads the debug information, if there is some and it has not been read.
    pub fn read_debug(&self, files: &Files<'_>) -> Option<&Dwarf> {
        let source = self.debug.as_ref()?;
        self.dwarf.get_or_init(|| Dwarf::parse(source, files)).as_ref()
    }

    /// Source file and line of the function that starts at `address`, as far as they are known.
    pub fn declared_at(&self, address: u64, files: &Files<'_>) -> (Arc<str>, u32) {
        match &self.kept {
            Some(kept) => kept.declared_at(address),
            None => {
                let last = self.frames_at(address, files).pop();
                last.map(|frame| (frame.file, frame.line)).unwrap_or_default()
            }
        }
    }

    /// Returns whether there is debug information.
    pub fn has_debug(&self) -> bool {
        self.debug.is_some() || self.kept.as_ref().is_some_and(KeptLines::has_debug)
    }

    /// Returns whether [`Self::frames_at`] can say anything.
    pub fn may_have_lines(&self) -> bool {
        self.debug.is_some() || self.kept.is_some()
    }

    /// The tables.
    pub fn elf(&self) -> Option<&Elf> {
        self.elf.as_ref()
    }
}

/// Returns the file of the recorded build that a store of builds holds.
fn from_builds(module: &RecordedModule, path: &Path, files: &Files<'_>) -> Option<Bytes> {
    let found = files.builds?.executable(&module.build_id, path);
    builds::checked(found, &module.build_id).map(|(_, bytes)| bytes)
}

/// The reason why there are no names of a module that was read, or could not be.
fn why_not(error: Option<std::io::Error>) -> String {
    match error {
        Some(error) => format!("cannot be read: {error}"),
        None => "has changed since the recording; its names are not used".to_owned(),
    }
}

/// Returns whether the bytes are of the build that was recorded, as far as that can be told.
fn same_build(module: &RecordedModule, bytes: &[u8]) -> bool {
    module.build_id.is_empty() || build_id::of_bytes(bytes) == module.build_id
}

/// Returns whether a kept file is of the build that was recorded: without a build id, by its size.
fn same_size_or_build(module: &RecordedModule, bytes: &[u8]) -> bool {
    match module.version {
        Some((size, _)) if module.build_id.is_empty() => size == bytes.len() as u64,
        _ => same_build(module, bytes),
    }
}

fn unchanged(module: &RecordedModule, path: &Path, bytes: &[u8]) -> bool {
    if !same_size_or_build(module, bytes) {
        return false;
    }
    let Some((_, mtime)) = module.version.filter(|_| module.build_id.is_empty()) else {
        return true;
    };
    // Without a build id, a file of the same size is the same unless it was written since.
    std::fs::metadata(path).map_or(true, |now| {
        use std::os::unix::fs::MetadataExt;
        now.mtime().wrapping_mul(1_000_000_000).wrapping_add(now.mtime_nsec()) == mtime
    })
}
