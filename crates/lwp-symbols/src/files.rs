//! The files that names are read from: kept with the recording, or this machine's.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lwp_profile::{RecordedFile, path_of_bytes};
use rustix::fs::OFlags;

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
    /// Files that are open since they were executed, by the paths that they had.
    pub held: &'a [(String, Arc<File>)],
    used: Mutex<BTreeSet<PathBuf>>,
}

impl<'a> Files<'a> {
    /// Those in `kept` come before the ones of the same name on this machine.
    pub fn new(kept: &'a [RecordedFile], debug_roots: &'a [PathBuf]) -> Self {
        Self { kept, debug_roots, builds: None, held: &[], used: Mutex::default() }
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

    /// The bytes of the files that had this path when they were executed.
    pub fn held(&self, path: &str) -> impl Iterator<Item = Bytes> {
        let held = self.held.iter().filter(move |(known, _)| known == path);
        held.filter_map(|(_, file)| read_whole(file, &file.metadata().ok()?).ok())
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

/// The largest file that is read.
pub const LARGEST: u64 = 8 << 30;

/// The largest source file that is read.
pub const LARGEST_SOURCE: u64 = 64 << 20;

/// Files from this size on are looked at before memory is asked for.
const LARGE: u64 = 64 << 20;

/// A large file of which less than this part is on the disk is a hole and no ELF file. File systems
/// that compress come to a tenth, rarely less.
const SPARSE_PART: u64 = 64;

/// Opens a file that a program, or its debug information, has named. That may be anything: a pipe
/// that would keep the reader waiting, a device that never ends.
///
/// # Errors
///
/// Those of the file; it is refused if it is no regular one.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Reads a file in one piece, without a copy. One that would never end, or that takes more memory
/// than there is, is refused. A path that is no text may be in the form that recordings have.
///
/// # Errors
///
/// Those of the file; it is refused if it is no regular one, larger than [`LARGEST`] or than half
/// of the memory that is free, or hardly anything of it is on the disk.
pub fn read(path: &Path) -> io::Result<Bytes> {
    let bytes = path.to_str().and_then(path_of_bytes).filter(|_| !path.exists());
    let (file, metadata) = open(bytes.as_deref().unwrap_or(path))?;
    read_whole(&file, &metadata)
}

/// Reads an open file from its beginning, with the limits of [`read`].
///
/// # Errors
///
/// As those of [`read`].
pub fn read_whole(file: &File, metadata: &Metadata) -> io::Result<Bytes> {
    let size = fitting(metadata)?;
    let mut bytes: Bytes = std::iter::repeat_n(0, size).collect();
    if let Some(bytes) = Arc::get_mut(&mut bytes) {
        file.read_exact_at(bytes, 0)?;
    }
    Ok(bytes)
}

/// Reads a source file.
///
/// # Errors
///
/// Those of the file; it is refused if it is no regular one, or larger than [`LARGEST_SOURCE`].
pub fn read_source(path: &Path) -> io::Result<Vec<u8>> {
    let (file, metadata) = open(path)?;
    if metadata.len() > LARGEST_SOURCE {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_SOURCE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The size of a file, if there is memory for it.
fn fitting(metadata: &Metadata) -> io::Result<usize> {
    let size = metadata.len();
    let too_large = |why: String| Err(io::Error::new(ErrorKind::FileTooLarge, why));
    if size > LARGEST {
        return too_large(format!("larger than {} GiB", LARGEST >> 30));
    }
    if size > LARGE && metadata.blocks().saturating_mul(512) < size / SPARSE_PART {
        return too_large("hardly anything of it is on the disk".to_owned());
    }
    if size > LARGE && free_memory().is_some_and(|free| size > free / 2) {
        return too_large("larger than half of the free memory".to_owned());
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    // Whoever asks for memory that a limit refuses is told so; to get it anyway would end us.
    Vec::<u8>::new().try_reserve_exact(size).map_err(|_| ErrorKind::OutOfMemory)?;
    Ok(size)
}

/// Bytes of memory that the kernel can give to programs without swapping.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
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
        assert!(read_source(Path::new("/dev/zero")).is_err());
    }

    /// Promise: R120
    #[test]
    fn holes_and_pipes_are_refused() {
        let dir = std::env::temp_dir().join(format!("lwp-holes-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let hole = dir.join("hole");
        let file = File::create(&hole).unwrap();
        for size in [8 << 40, LARGEST, LARGE + 1] {
            // Not every file system has files of 8 TiB.
            if file.set_len(size).is_ok() {
                assert_eq!(read(&hole).unwrap_err().kind(), ErrorKind::FileTooLarge, "{size}");
                assert!(crate::build_id_of(&hole).is_empty());
            }
        }
        assert_eq!(read_source(&hole).unwrap_err().kind(), ErrorKind::FileTooLarge);
        file.set_len(100).unwrap();
        assert_eq!((read(&hole).unwrap().len(), read_source(&hole).unwrap().len()), (100, 100));
        let pipe = dir.join("pipe");
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
        // None of these waits for a writer.
        assert!(read(&pipe).is_err() && read_source(&pipe).is_err());
        assert!(crate::build_id_of(&pipe).is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
