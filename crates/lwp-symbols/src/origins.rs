//! The builds that source files are of: whether a file still is the one that a program was made
//! from.
//!
//! A line table of DWARF 5 may have a checksum of each source file, which tells for certain. Where
//! there is none, a file that is more recent than the program is doubted, as debuggers do.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lwp_profile::{Profile, Recording};
use rustc_hash::FxHashMap;

use crate::dwarf::Dwarf;
use crate::files::Files;
use crate::module::ModuleNames;

/// Checksums of source files by their names.
pub type Checksums = FxHashMap<String, [u8; 16]>;

/// The programs and libraries of a recording, and the source files that each was made from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// By path.
    builds: FxHashMap<String, Build>,
    /// Paths of the programs and libraries that have code of a source file.
    files: FxHashMap<Arc<str>, BTreeSet<Arc<str>>>,
    debug_roots: Vec<PathBuf>,
}

/// A program, a library, or a file that an interpreter has executed.
#[derive(Clone, Debug)]
struct Build {
    module: lwp_profile::RecordedModule,
    /// Time from which a source file is too recent, in nanoseconds since 1970.
    made: i64,
    /// Checksums, once somebody has asked for them.
    checksums: Option<Checksums>,
}

impl Origins {
    /// The programs and libraries of `recording`. Debug files are also looked for in `debug_roots`.
    pub fn new(recording: &Recording, debug_roots: &[PathBuf]) -> Self {
        let started: i64 = recording.info("started").parse().unwrap_or(i64::MAX);
        // Within the second of the start it is not known which was first.
        let started = started.saturating_add(1).saturating_mul(1_000_000_000);
        let modules = recording.modules.values();
        let build = |module: &lwp_profile::RecordedModule| {
            let made = module.version.map_or(started, |(_, time)| time.saturating_add(1));
            let build = Build { module: module.clone(), made, checksums: None };
            (module.path.clone(), build)
        };
        Self {
            builds: modules.map(build).collect(),
            debug_roots: debug_roots.to_vec(),
            ..Self::default()
        }
    }

    /// Notes which source files the code of `profile` is from.
    pub fn learn(&mut self, profile: &Profile) {
        let paths: Vec<Arc<str>> =
            profile.modules.iter().map(|module| module.path.as_str().into()).collect();
        let mut last = None;
        for location in &profile.locations {
            let Some(path) = paths.get(location.module.index()) else { continue };
            for frame in location.frames.iter().filter(|frame| !frame.file.is_empty()) {
                let this = (Arc::as_ptr(&frame.file), location.module);
                if last.replace(this) != Some(this) {
                    let of_file = self.files.entry(Arc::clone(&frame.file)).or_default();
                    of_file.insert(Arc::clone(path));
                }
            }
        }
    }

    /// Returns a remark on the source file called `file` if it is not the one that the recorded
    /// code was made from. It was found at `place`, and has these bytes.
    pub fn doubt(&mut self, file: &str, place: &Path, bytes: &[u8]) -> Option<String> {
        let Self { builds, files, debug_roots } = self;
        let (mut doubted, mut newest) = (None, None::<(i64, &str)>);
        for path in files.get(file)? {
            let Some(build) = builds.get_mut(&**path) else { continue };
            let made = build.made;
            match build.checksums(debug_roots).get(file) {
                Some(sum) if is_sum(*sum, bytes) => return None,
                Some(_) => doubted = Some(&**path),
                None if newest.is_none_or(|(before, _)| before < made) => {
                    newest = Some((made, path));
                }
                None => {}
            }
        }
        if let Some(path) = doubted {
            let whole = "its lines may not fit the code";
            return Some(format!("source file {file} has changed since {path} was built: {whole}"));
        }
        let (made, path) = newest?;
        let recent = std::fs::metadata(place).ok().map(|it| modified(&it))? >= made;
        let than = match path.starts_with('[') {
            true => "the recording",
            false => path,
        };
        recent.then(|| {
            format!("source file {file} is more recent than {than}: its lines may not fit the code")
        })
    }
}

/// Returns whether `sum` is the checksum of `bytes`. LLVM writes it in the order of MD5; the GNU
/// assembler (2.44) writes it as a number, the lowest byte first.
fn is_sum(mut sum: [u8; 16], bytes: &[u8]) -> bool {
    let expected = md5::compute(bytes).0;
    let same = sum == expected;
    sum.reverse();
    same || sum == expected
}

/// The time of a file's last change, in nanoseconds since 1970.
fn modified(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

impl Build {
    /// The checksums of its source files; none where they are not to be had.
    fn checksums(&mut self, debug_roots: &[PathBuf]) -> &Checksums {
        let module = &self.module;
        self.checksums.get_or_insert_with(|| {
            let names = ModuleNames::find(module, &Files::new(&[], debug_roots), false);
            names.debug_source().map(Dwarf::checksums).unwrap_or_default()
        })
    }
}
