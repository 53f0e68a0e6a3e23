//! The files that names are read from: kept with the recording, or this machine's.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lwp_profile::{RecordedFile, path_of_bytes};

use crate::builds::Builds;

/// A file's bytes. Whoever needs a part of them shares them.
pub type Bytes = Arc<[u8]>;

/// Sources of files, and the files of these that were of use.
#[derive(Debug)]
pub struct Files<'a> {
    kept: &'a [RecordedFile],
    /// Directories laid out like `/usr/lib/debug`, searched before it.
    pub debug_roots: &'a [PathBuf],
    /// A store of files that are not at their old places.
    pub builds: Option<&'a dyn Builds>,
    used: Mutex<BTreeSet<PathBuf>>,
}

impl<'a> Files<'a> {
    /// Those in `kept` come before the ones of the same name on this machine.
    pub fn new(kept: &'a [RecordedFile], debug_roots: &'a [PathBuf]) -> Self {
        Self { kept, debug_roots, builds: None, used: Mutex::default() }
    }

    /// The bytes of the file at `path`.
    pub fn read(&self, path: &Path) -> io::Result<Bytes> {
        match self.kept.iter().find(|file| Path::new(&file.path) == path) {
            Some(file) => Ok(file.bytes.as_slice().into()),
            None => read(path),
        }
    }

    /// The bytes of the files that are kept under this path; they may be of different root
    /// directories.
    pub fn kept(&self, path: &Path) -> impl Iterator<Item = Bytes> {
        let kept = self.kept.iter().filter(move |file| Path::new(&file.path) == path);
        kept.map(|file| file.bytes.as_slice().into())
    }

    /// Returns the result of `usable` for the first of `candidates` that it accepts. Then files
    /// that are kept under one of their names elsewhere are tried: links lead to other places on
    /// other machines.
    pub fn first<T>(
        &self,
        candidates: &[PathBuf],
        mut usable: impl FnMut(&Path, &Bytes) -> Option<T>,
    ) -> Option<T> {
        let mut attempt = |path: &Path, bytes: Bytes| {
            let found = usable(path, &bytes)?;
            self.use_file(path);
            Some(found)
        };
        let named = candidates.iter().find_map(|path| attempt(path, self.read(path).ok()?));
        named.or_else(|| {
            let names: BTreeSet<&OsStr> = candidates.iter().filter_map(|c| c.file_name()).collect();
            let kept = self.kept.iter().map(|file| (Path::new(&file.path), file));
            let mut alike =
                kept.filter(|(path, _)| path.file_name().is_some_and(|name| names.contains(name)));
            alike.find_map(|(path, file)| attempt(path, file.bytes.as_slice().into()))
        })
    }

    /// A file has been of use.
    pub fn use_file(&self, path: &Path) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
    }

    /// Files with debug information that were of use so far.
    pub fn used(&self) -> Vec<PathBuf> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Reads a file in one piece, without a copy. A program may name any file as its debug information:
/// one that would keep the reader waiting, or never end, is refused. A path that is no text may be
/// in the form that recordings have.
///
/// # Errors
///
/// Those of the file; it is refused if it is no regular one.
pub fn read(path: &Path) -> io::Result<Bytes> {
    let bytes = path.to_str().and_then(path_of_bytes).filter(|_| !path.exists());
    let path = bytes.as_deref().unwrap_or(path);
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut file = File::open(path)?;
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    let mut bytes: Bytes = std::iter::repeat_n(0, size).collect();
    if let Some(bytes) = Arc::get_mut(&mut bytes) {
        file.read_exact(bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(path: &str) -> RecordedFile {
        RecordedFile { path: path.into(), bytes: path.as_bytes().to_vec() }
    }

    #[test]
    fn what_is_kept_comes_first_and_by_its_name_last() {
        let own = std::env::current_exe().unwrap();
        let kept = [kept(own.to_str().unwrap()), kept("/elsewhere/a.dwo")];
        let files = Files::new(&kept, &[]);
        assert_eq!(&*files.read(&own).unwrap(), own.to_str().unwrap().as_bytes());
        let candidates = ["/nowhere/a.dwo", "/nowhere/b.dwo"].map(PathBuf::from);
        let path = files.first(&candidates, |path, _| Some(path.to_owned()));
        assert_eq!(path, Some(PathBuf::from("/elsewhere/a.dwo")));
        assert_eq!(files.first(&candidates, |_, _| None::<()>), None);
        assert_eq!(files.used(), [PathBuf::from("/elsewhere/a.dwo")]);
    }

    #[test]
    fn files_without_an_end_are_refused() {
        assert!(read(Path::new("/dev/zero")).is_err());
        assert!(read(Path::new("/")).is_err());
    }
}
