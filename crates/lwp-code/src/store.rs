//! The store: translated units on disk, one file each, so that the next run need not translate
//! them.
//!
//! A file is a header of one page and an image ([`lwp_dbt::Image`]). Its name is the hash of
//! everything that the translation depends on; the header says which file it was made from and
//! carries hashes of itself and of the image. Nothing is used before it has been checked: a file
//! that is damaged, of another user, writable by others, or made by another version of the
//! translator is taken out and replaced.
//!
//! Files are written under another name and renamed, so a reader sees all of a file or nothing. The
//! store never changes one afterwards, but other programs may: copies of a cache are written over
//! it, and disks fail. So an image is read into memory before it is checked, and used from there.
//! Any number of runs may share a store. Those who replace a file look at the old one first, one at
//! a time, so that nothing that another process has written meanwhile is lost.
#![expect(clippy::disallowed_methods, reason = "files of the cache, below its own directory")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps};
use twox_hash::XxHash3_128;

mod archive;
mod header;
mod place;
mod replacing;
mod travel;

pub use archive::{ArchiveError, Reader, Writer};
use header::HEADER_BYTES;
pub use header::{Description, Header, Key, Origin};
pub use replacing::Unplaced;
pub use travel::{Exported, Fate, Reason};

/// Largest file that is read or written.
const LARGEST: u64 = 1 << 30;
/// Unless the user says otherwise, the files together are kept below this.
pub const DEFAULT_LIMIT: u64 = 2 << 30;
/// Older unfinished files were left behind by a crash.
const UNFINISHED_AGE: Duration = Duration::from_secs(600);
/// Resolution of the time of last use.
const USE_AGE: Duration = Duration::from_secs(600);

/// The reason why a file of the store is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Not a regular file of this user that nobody else may write.
    #[error("another user owns it or may write it")]
    Foreign,
    /// The header is damaged or is of another version.
    #[error("damaged header, or written by another version")]
    Header,
    /// The image is damaged.
    #[error("damaged content")]
    Damaged,
    /// It could not be read.
    #[error("cannot be read")]
    Unreadable,
}

/// The reason why there is no store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A directory could not be made or opened.
    #[error("{path}: {error}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A directory or link on the way belongs to another user, or others may write to it.
    #[error("{path}: belongs to another user, or others may write to it")]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
}

/// One file of the store, as far as it can be told without reading its image.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name in the store.
    pub name: CString,
    /// Its size in bytes.
    pub bytes: u64,
    /// The time of its last use, within ten minutes.
    pub used: SystemTime,
    /// Its statement about itself, or its fault.
    pub header: Result<Header, Fault>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Store {
    dir: OwnedFd,
    limit: u64,
    /// True once a process has kept the lock of those who replace files for too long.
    is_stuck: AtomicBool,
}

/// Files that those hold locked who are left behind to write, beside the directory of units: more
/// of them at a time would take a machine's memory and write the same.
const WRITERS: [&CStr; 2] = [c"../writer-0", c"../writer-1"];

/// The number of looks of [`Store::settle`], and the pause between them.
const SETTLE_TRIES: u32 = 3000;
const SETTLE_PAUSE: Duration = Duration::from_millis(10);

/// The store's default place: `$XDG_CACHE_HOME/lwp`, or `~/.cache/lwp`. `None` where there is no
/// home, or where this process has more rights than whoever set its environment.
pub fn default_place() -> Option<PathBuf> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    if getuid() != geteuid() || getgid() != getegid() {
        return None;
    }
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("lwp"))
}

impl Store {
    /// Opens the store in `place`, made if it is missing, with files of at most `limit` bytes
    /// together.
    pub fn open(place: &Path, limit: u64) -> Result<Self, StoreError> {
        let failed = |path: &Path, error: io::Error| StoreError::Io { path: path.into(), error };
        let check = |dir: &OwnedFd, path: &Path| match is_ours(
            &fs::fstat(dir).map_err(|error| failed(path, error.into()))?,
        ) {
            true => Ok(()),
            false => Err(StoreError::Foreign { path: path.into() }),
        };
        let outer = place::open(place)?;
        // First, because nothing is to be made in a directory that is not ours.
        check(&outer, place)?;
        let units = place.join("units");
        let dir = make_and_open(outer.as_fd(), Path::new("units"))
            .map_err(|error| failed(&units, error.into()))?;
        check(&dir, &units)?;
        Ok(Self { dir, limit, is_stuck: AtomicBool::new(false) })
    }

    /// Its directory's descriptor.
    pub fn fd(&self) -> RawFd {
        self.dir.as_raw_fd()
    }

    /// A descriptor that holds a lock as one of those who are writing.
    pub fn lock_shared(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(&self.dir, c".", flags, Mode::empty())?;
        fs::flock(&fd, fs::FlockOperation::NonBlockingLockShared)?;
        Ok(fd)
    }

    /// A descriptor that holds one of the places of processes that are left behind to write, or
    /// `None` while all of them are taken. Whoever holds it may end in any way.
    pub fn writer_place(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        WRITERS.iter().find_map(|name| {
            let fd = fs::openat(&self.dir, *name, flags, Mode::RUSR | Mode::WUSR).ok()?;
            fs::flock(&fd, fs::FlockOperation::NonBlockingLockExclusive).ok()?;
            Some(fd)
        })
    }

    /// Waits until nobody is writing any more, but not for ever.
    pub fn settle(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(fd) = fs::openat(&self.dir, c".", flags, Mode::empty()) else { return };
        for _ in 0..SETTLE_TRIES {
            match fs::flock(&fd, fs::FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(SETTLE_PAUSE),
                _ => return,
            }
        }
    }

    /// Reads the image of `key`, if there is one that `fits`. One that is damaged, or does not fit
    /// any more, is removed.
    pub fn load(&self, key: Key, fits: impl FnOnce(&Header) -> bool) -> Option<(Header, Vec<u8>)> {
        let name = name_of(key);
        let mut file = match self.open_file(&name) {
            Ok(file) => file,
            Err(Fault::Unreadable) => return None,
            Err(_) => {
                self.remove(&name);
                return None;
            }
        };
        let loaded = match read_header(&mut file) {
            Ok(header) if header.key == key && fits(&header) => {
                read_image(&file, &header).map(|image| (header, image))
            }
            Ok(_) => Err(Fault::Header),
            Err(fault) => Err(fault),
        };
        match loaded {
            Ok(loaded) => {
                self.note_use(&file);
                Some(loaded)
            }
            Err(_) => {
                self.remove(&name);
                None
            }
        }
    }

    /// The header that the store has for `key` at the moment.
    pub fn header(&self, key: Key) -> Option<Header> {
        read_header(&mut self.open_file(&name_of(key)).ok()?).ok()
    }

    /// Writes the image of `key`, whose bytes are those of `parts`, in place of an older one.
    pub fn save(
        &self,
        key: Key,
        about: &Description,
        parts: &[impl AsRef<[u8]>],
    ) -> io::Result<()> {
        self.write(key, about, parts)?.replace(|_| false).map(drop)
    }

    /// Writes the image of `key`, whose bytes are those of `parts`, to a file without a place.
    pub fn write(
        &self,
        key: Key,
        about: &Description,
        parts: &[impl AsRef<[u8]>],
    ) -> io::Result<Unplaced<'_>> {
        let mut hasher = XxHash3_128::new();
        let mut len = 0;
        for part in parts {
            hasher.write(part.as_ref());
            len += part.as_ref().len();
        }
        let header = Header {
            key,
            stamp: about.stamp,
            content: about.content,
            address: about.address,
            fragments: about.fragments,
            path: about.path.clone(),
            code_bytes: about.code_bytes,
            origin: about.origin.clone(),
            image: (len as u64, hasher.finish_128()),
        };
        let bytes = (HEADER_BYTES + len) as u64;
        if bytes > LARGEST.min(self.limit / 2) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unfinished = CString::new(format!(".new-{}-{number}", std::process::id()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let open = || {
            fs::openat(&self.dir, &unfinished, flags | OFlags::NOFOLLOW, Mode::RWXU & !Mode::XUSR)
        };
        let fd = match open() {
            // Left behind by an earlier process of the same number.
            Err(rustix::io::Errno::EXIST) => {
                self.remove(&unfinished);
                open()?
            }
            other => other?,
        };
        let mut file = File::from(fd);
        let new = Unplaced::new(self, unfinished, key);
        file.write_all(&header.to_bytes())?;
        parts.iter().try_for_each(|part| file.write_all(part.as_ref()))?;
        Ok(new)
    }

    /// Removes files that have not been used for longest until the rest is below the limit, and
    /// what crashes have left behind. Returns how many files and bytes were removed.
    pub fn prune(&self) -> io::Result<(usize, u64)> {
        let mut files = Vec::new();
        let mut removed = (0, 0);
        for (name, stat) in self.files()? {
            let (bytes, used) = (stat.st_size.cast_unsigned(), modified(&stat));
            let age = SystemTime::now().duration_since(used).unwrap_or_default();
            if is_unit(&name) {
                files.push((used, bytes, name));
            } else if age > UNFINISHED_AGE {
                self.remove(&name);
                removed = (removed.0 + 1, removed.1 + bytes);
            }
        }
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= self.limit {
            return Ok(removed);
        }
        files.sort_unstable();
        for (_, bytes, name) in files {
            // A tenth below the limit, so that not every run has to do this.
            if total <= self.limit - self.limit / 10 {
                break;
            }
            self.remove(&name);
            total -= bytes;
            removed = (removed.0 + 1, removed.1 + bytes);
        }
        Ok(removed)
    }

    /// Removes every file. Returns how many there were, and their bytes.
    pub fn clear(&self) -> io::Result<(usize, u64)> {
        let mut removed = (0, 0);
        for (name, stat) in self.files()? {
            self.remove(&name);
            removed = (removed.0 + 1, removed.1 + stat.st_size.cast_unsigned());
        }
        Ok(removed)
    }

    /// Every kept unit, last used first.
    pub fn items(&self) -> io::Result<Vec<Item>> {
        let mut items: Vec<Item> = self
            .files()?
            .into_iter()
            .filter(|(name, _)| is_unit(name))
            .map(|(name, stat)| {
                let header = self.open_file(&name).and_then(|mut file| {
                    let header = read_header(&mut file)?;
                    if name_of(header.key) == name { Ok(header) } else { Err(Fault::Header) }
                });
                let (bytes, used) = (stat.st_size.cast_unsigned(), modified(&stat));
                Item { name, bytes, used, header }
            })
            .collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.used));
        Ok(items)
    }

    /// Reads a kept unit in full and checks it.
    pub fn read(&self, item: &Item) -> Result<(Header, Vec<u8>), Fault> {
        let mut file = self.open_file(&item.name)?;
        let header = read_header(&mut file)?;
        if name_of(header.key) != item.name {
            return Err(Fault::Header);
        }
        let image = read_image(&file, &header)?;
        Ok((header, image))
    }

    /// Reads a kept unit in full and checks it; a faulty one is removed.
    pub fn verify(&self, item: &Item) -> Result<(), Fault> {
        let checked = self.read(item).and_then(|(header, image)| {
            // Nothing in a profile can do harm.
            if header.is_profile() {
                return Ok(());
            }
            lwp_dbt::Image::parse(Box::new(image)).map(drop).map_err(|_| Fault::Damaged)
        });
        if checked.is_err() {
            self.remove(&item.name);
        }
        checked
    }

    /// Names and states of all files.
    fn files(&self) -> io::Result<Vec<(CString, fs::Stat)>> {
        let mut out = Vec::new();
        for entry in fs::Dir::read_from(&self.dir)? {
            let name = entry?.file_name().to_owned();
            if let Ok(stat) = fs::statat(&self.dir, &name, AtFlags::SYMLINK_NOFOLLOW)
                && fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::Directory
            {
                out.push((name, stat));
            }
        }
        Ok(out)
    }

    /// Opens a file of the store if it can be trusted.
    fn open_file(&self, name: &CStr) -> Result<File, Fault> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::LOOP) => return Err(Fault::Foreign),
            Err(_) => return Err(Fault::Unreadable),
        };
        let stat = fs::fstat(&fd).map_err(|_| Fault::Unreadable)?;
        let regular = fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile;
        if !regular || !is_ours(&stat) {
            return Err(Fault::Foreign);
        }
        Ok(File::from(fd))
    }

    fn note_use(&self, file: &File) {
        let Ok(stat) = fs::fstat(file) else { return };
        let age = SystemTime::now().duration_since(modified(&stat)).unwrap_or_default();
        if age > USE_AGE {
            let now = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
            let times = Timestamps { last_access: now, last_modification: now };
            let _ = fs::futimens(file, &times);
        }
    }

    fn remove(&self, name: &CStr) {
        let _ = fs::unlinkat(&self.dir, name, AtFlags::empty());
    }
}

fn make_and_open(at: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(at, path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => {
            // Another run may make it at the same time.
            match fs::mkdirat(at, path, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            fs::openat(at, path, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Returns whether a file is this user's and nobody else may write it.
fn is_ours(stat: &fs::Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0
}

fn modified(stat: &fs::Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    UNIX_EPOCH + Duration::new(seconds, u32::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

fn name_of(key: Key) -> CString {
    CString::new(format!("{:032x}", key.0)).expect("digits contain no NUL")
}

fn is_unit(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    bytes.len() == 32 && bytes.iter().all(u8::is_ascii_hexdigit)
}

fn read_header(file: &mut File) -> Result<Header, Fault> {
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact(&mut bytes).map_err(|_| Fault::Header)?;
    Header::parse(&bytes).ok_or(Fault::Header)
}

/// Reads an image into memory of our own and checks it there. Mapped, it would change, or end, with
/// a file that somebody copies over.
fn read_image(file: &File, header: &Header) -> Result<Vec<u8>, Fault> {
    let (len, hash) = header.image;
    let size = file.metadata().map_err(|_| Fault::Unreadable)?.len();
    if size != HEADER_BYTES as u64 + len || size > LARGEST {
        return Err(Fault::Damaged);
    }
    let mut image = Vec::new();
    image.try_reserve_exact(len as usize).map_err(|_| Fault::Unreadable)?;
    let mut from = file;
    from.seek(SeekFrom::Start(HEADER_BYTES as u64)).map_err(|_| Fault::Unreadable)?;
    from.take(len).read_to_end(&mut image).map_err(|_| Fault::Unreadable)?;
    if image.len() as u64 != len || XxHash3_128::oneshot(&image) != hash {
        return Err(Fault::Damaged);
    }
    Ok(image)
}

#[cfg(test)]
mod tests;
