//! The store: translated units on disk, one file each, so that the next run need not translate them.
//!
//! A file is a header of one page and an image ([`lwp_dbt::Image`]). Its name is the hash of everything
//! that the translation depends on; the header says which file it was made from and carries hashes of
//! itself and of the image. Nothing is used before it has been checked: a file that is damaged, of
//! another user, writable by others, or made by another version of the translator is taken out and
//! replaced.
//!
//! Files are written under another name and renamed, so a reader sees all of a file or nothing; they
//! are never changed afterwards. Any number of runs may share a store.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lwp_ptrace::FileMap;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps};
use twox_hash::XxHash3_128;

use crate::identity::Stamp;

/// Bytes of a file's header.
const HEADER_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"LWPUNIT\n";
/// Version of the header and of everything around the image.
const VERSION: u32 = 1;
/// Where the header's own hash stands.
const HASH_AT: usize = HEADER_BYTES - 16;
/// Where the path stands, which is for people to read.
const PATH_AT: usize = 160;
/// Largest file that is read or written.
const LARGEST: u64 = 1 << 30;
/// Unless the user says otherwise, the files together are kept below this.
pub const DEFAULT_LIMIT: u64 = 2 << 30;
/// Older unfinished files were left behind by a crash.
const UNFINISHED_AGE: Duration = Duration::from_secs(600);
/// How exact the time of last use is.
const USE_AGE: Duration = Duration::from_secs(600);

/// The hash of everything that a translation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u128);

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What its translation depends on.
    pub key: Key,
    /// The module's file when the translation was made.
    pub stamp: Stamp,
    /// Hash of the module's code.
    pub content: u128,
    /// Where the module is loaded.
    pub address: u64,
    /// How many fragments were translated.
    pub fragments: u64,
    /// The module's path at the time.
    pub path: String,
    /// Size and hash of the image.
    image: (u64, u128),
}

/// What is to be kept of a unit besides its image.
#[derive(Clone, Debug)]
pub struct Description {
    /// See [`Header`].
    pub stamp: Stamp,
    /// See [`Header`].
    pub content: u128,
    /// See [`Header`].
    pub address: u64,
    /// See [`Header`].
    pub fragments: u64,
    /// See [`Header`].
    pub path: String,
}

/// Why a file of the store is not used.
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

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A directory could not be made or opened.
    #[error("{path}: {error}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A directory belongs to another user, or others may write to it.
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
    /// When it was used last, within ten minutes.
    pub used: SystemTime,
    /// What it says about itself, or what is wrong with it.
    pub header: Result<Header, Fault>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Store {
    dir: OwnedFd,
    limit: u64,
}

/// The store's default place: `$XDG_CACHE_HOME/lwp`, or `~/.cache/lwp`. `None` where there is no home,
/// or where this process has more rights than whoever set its environment.
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
    /// Opens the store in `place`, made if it is missing, with files of at most `limit` bytes together.
    pub fn open(place: &Path, limit: u64) -> Result<Self, StoreError> {
        let failed = |path: &Path, error: io::Error| StoreError::Io { path: path.into(), error };
        if let Some(parent) = place.parent() {
            make_parent(parent).map_err(|error| failed(parent, error))?;
        }
        let mut dir: Option<OwnedFd> = None;
        for (name, path) in [(place, place.to_owned()), (Path::new("units"), place.join("units"))] {
            let at = dir.as_ref().map_or(fs::CWD, |dir| dir.as_fd());
            let opened = make_and_open(at, name)
                .and_then(|dir| Ok((fs::fstat(&dir)?, dir)))
                .map_err(|error| failed(&path, error.into()));
            let (stat, opened) = opened?;
            if !is_ours(&stat) {
                return Err(StoreError::Foreign { path });
            }
            dir = Some(opened);
        }
        let dir = dir.expect("two directories were opened");
        Ok(Self { dir, limit })
    }

    /// Reads the image of `key`, if there is one that `fits`. One that is damaged, or does not fit any
    /// more, is removed.
    pub fn load(&self, key: Key, fits: impl FnOnce(&Header) -> bool) -> Option<(Header, FileMap)> {
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

    /// What the store says about `key` at the moment.
    pub fn header(&self, key: Key) -> Option<Header> {
        read_header(&mut self.open_file(&name_of(key)).ok()?).ok()
    }

    /// Writes the image of `key`, in place of an older one.
    pub fn save(&self, key: Key, about: &Description, image: &[u8]) -> io::Result<()> {
        let header = Header {
            key,
            stamp: about.stamp,
            content: about.content,
            address: about.address,
            fragments: about.fragments,
            path: about.path.clone(),
            image: (image.len() as u64, XxHash3_128::oneshot(image)),
        };
        let bytes = (HEADER_BYTES + image.len()) as u64;
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
        let written = file.write_all(&header.to_bytes()).and_then(|()| file.write_all(image));
        let renamed = written
            .and_then(|()| Ok(fs::renameat(&self.dir, &unfinished, &self.dir, name_of(key))?));
        if renamed.is_err() {
            self.remove(&unfinished);
        }
        renamed
    }

    /// Removes files that have not been used for longest until the rest is below the limit, and what
    /// crashes have left behind. Returns how many files and bytes were removed.
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

    /// Reads a kept unit in full and checks it; a faulty one is removed.
    pub fn verify(&self, item: &Item) -> Result<(), Fault> {
        let checked = self.open_file(&item.name).and_then(|mut file| {
            let header = read_header(&mut file)?;
            if name_of(header.key) != item.name {
                return Err(Fault::Header);
            }
            let image = read_image(&file, &header)?;
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

/// Makes a missing directory that the store is to lie in, if it is this user's to make.
fn make_parent(parent: &Path) -> io::Result<()> {
    if parent.is_dir() {
        return Ok(());
    }
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .recursive(true)
        .create(parent)
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

/// Whether a file is this user's and nobody else may write it.
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

fn read_image(file: &File, header: &Header) -> Result<FileMap, Fault> {
    let (len, hash) = header.image;
    let size = file.metadata().map_err(|_| Fault::Unreadable)?.len();
    if size != HEADER_BYTES as u64 + len || size > LARGEST {
        return Err(Fault::Damaged);
    }
    // The file is this user's, and the store writes to none that has a name.
    let image =
        FileMap::new(file, HEADER_BYTES as u64, len as usize).map_err(|_| Fault::Unreadable)?;
    if XxHash3_128::oneshot(image.as_ref()) != hash {
        return Err(Fault::Damaged);
    }
    Ok(image)
}

impl Header {
    /// Size of the image in bytes.
    pub fn image_bytes(&self) -> u64 {
        self.image.0
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend(MAGIC);
        out.extend(u64::from(VERSION).to_le_bytes());
        out.extend(self.key.0.to_le_bytes());
        out.extend(self.image.0.to_le_bytes());
        out.extend(self.image.1.to_le_bytes());
        out.extend(self.content.to_le_bytes());
        let Stamp { device, inode, size, modified, changed } = self.stamp;
        let numbers = [device, inode, size, modified, changed, self.address, self.fragments];
        out.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        let path = self.path.as_bytes();
        let path = &path[..path.len().min(HASH_AT - PATH_AT)];
        out.extend((path.len() as u64).to_le_bytes());
        out.resize(PATH_AT, 0);
        out.extend(path);
        out.resize(HASH_AT, 0);
        out.extend(XxHash3_128::oneshot(&out).to_le_bytes());
        out
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let u128_at = |at: usize| u128::from(u64_at(at)) | u128::from(u64_at(at + 8)) << 64;
        if bytes[..8] != MAGIC
            || u64_at(8) != u64::from(VERSION)
            || u128_at(HASH_AT) != XxHash3_128::oneshot(&bytes[..HASH_AT])
        {
            return None;
        }
        let number = |index: usize| u64_at(72 + index * 8);
        let path_len = usize::try_from(number(7)).ok()?;
        let path = bytes[PATH_AT..HASH_AT].get(..path_len)?;
        Some(Self {
            key: Key(u128_at(16)),
            image: (u64_at(32), u128_at(40)),
            content: u128_at(56),
            stamp: Stamp {
                device: number(0),
                inode: number(1),
                size: number(2),
                modified: number(3),
                changed: number(4),
            },
            address: number(5),
            fragments: number(6),
            path: String::from_utf8_lossy(path).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("lwp-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        place
    }

    fn about(path: &str) -> Description {
        let stamp = Stamp { device: 1, inode: 2, size: 3, modified: 4, changed: 5 };
        Description { stamp, content: 6, address: 7, fragments: 8, path: path.into() }
    }

    /// Bytes that differ from each other.
    fn image(len: usize, seed: u32) -> Vec<u8> {
        (0..len as u32)
            .map(|at| (at.wrapping_mul(0x9e37_79b1).wrapping_add(seed) >> 24) as u8)
            .collect()
    }

    fn path_of(place: &Path, key: Key) -> PathBuf {
        place.join("units").join(name_of(key).to_str().unwrap())
    }

    fn age(path: &Path, seconds: u64) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let place = place("round");
        let store = Store::open(&place, 1 << 20).unwrap();
        let key = Key(0xabc);
        assert!(store.load(key, |_| true).is_none());
        store.save(key, &about("/bin/true"), &image(10_000, 1)).unwrap();
        let (header, loaded) = store.load(key, |header| header.stamp.inode == 2).unwrap();
        assert_eq!(loaded.as_ref(), image(10_000, 1));
        assert_eq!((header.key, header.content, header.address), (key, 6, 7));
        assert_eq!((header.fragments, &*header.path), (8, "/bin/true"));
        // A newer one replaces it; one that does not fit any more is removed.
        store.save(key, &about("/bin/true"), &image(20_000, 2)).unwrap();
        assert_eq!(store.load(key, |_| true).unwrap().1.as_ref(), image(20_000, 2));
        assert!(store.load(key, |_| false).is_none());
        assert!(store.load(key, |_| true).is_none());
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn no_damage_goes_unnoticed() {
        let place = place("damage");
        let store = Store::open(&place, 1 << 20).unwrap();
        let key = Key(5);
        store.save(key, &about("/bin/true"), &image(3000, 3)).unwrap();
        let path = path_of(&place, key);
        let good = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8], what: &str| {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(store.load(key, |_| true).is_none(), "{what}");
            assert!(!path.exists(), "{what}: not removed");
        };
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            refused(&bad, &format!("a bit changed in byte {at}"));
        }
        for len in (0..good.len()).step_by(61) {
            refused(&good[..len], &format!("cut off at {len}"));
        }
        refused(&[&good[..], &[0]].concat(), "a byte longer");
        // Under another key's name it is not that key's.
        let other = Key(6);
        std::fs::write(path_of(&place, other), &good).unwrap();
        assert!(store.load(other, |_| true).is_none());
        std::fs::write(&path, &good).unwrap();
        assert!(store.load(key, |_| true).is_some());
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn files_of_others_are_not_used() {
        let place = place("others");
        let store = Store::open(&place, 1 << 20).unwrap();
        let key = Key(9);
        let path = path_of(&place, key);
        for mode in [0o620, 0o602, 0o666] {
            store.save(key, &about("/bin/true"), &image(100, 1)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(store.load(key, |_| true).is_none(), "mode {mode:o}");
            assert!(!path.exists());
        }
        store.save(key, &about("/bin/true"), &image(100, 1)).unwrap();
        let elsewhere = place.join("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(store.load(key, |_| true).is_none(), "a symbolic link");
        std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(&elsewhere, &path).unwrap();
        assert!(store.load(key, |_| true).is_some(), "readable by others");
        rustix::fs::mknodat(
            fs::CWD,
            path_of(&place, Key(10)),
            fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(store.load(Key(10), |_| true).is_none(), "a pipe, which nobody writes to");
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_no_store() {
        for outer in [true, false] {
            let place = place(if outer { "outer" } else { "inner" });
            drop(Store::open(&place, 1 << 20).unwrap());
            let open = if outer { place.clone() } else { place.join("units") };
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
            assert!(matches!(Store::open(&place, 1 << 20), Err(StoreError::Foreign { .. })));
            std::fs::remove_dir_all(&place).unwrap();
        }
        let place = place("link");
        let target = std::env::temp_dir();
        symlink(&target, &place).unwrap();
        assert!(matches!(Store::open(&place, 1 << 20), Err(StoreError::Io { .. })));
        std::fs::remove_file(&place).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let place = place("prune");
        let store = Store::open(&place, 100 << 10).unwrap();
        for number in 0..10u32 {
            let key = Key(u128::from(number));
            store.save(key, &about("/bin/true"), &image(10 << 10, number)).unwrap();
            age(&path_of(&place, key), 100_000 - 1000 * u64::from(number));
        }
        // Use makes the oldest the youngest.
        assert!(store.load(Key(0), |_| true).is_some());
        std::fs::write(place.join("units/.new-1-1"), "left behind").unwrap();
        std::fs::write(place.join("units/.new-1-2"), "in the making").unwrap();
        age(&place.join("units/.new-1-1"), 3600);
        // 14 KiB each, 140 KiB together: six are 84 KiB.
        let (files, bytes) = store.prune().unwrap();
        assert_eq!((files, bytes), (5, 4 * (14 << 10) + 11));
        let left: Vec<u128> = (0..10).filter(|key| store.header(Key(*key)).is_some()).collect();
        assert_eq!(left, [0, 5, 6, 7, 8, 9]);
        assert!(place.join("units/.new-1-2").exists());
        assert_eq!(store.prune().unwrap(), (0, 0));
        assert_eq!(store.items().unwrap().len(), 6);
        assert_eq!(store.clear().unwrap().0, 7);
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let place = place("large");
        let store = Store::open(&place, 16 << 10).unwrap();
        assert!(store.save(Key(1), &about("/bin/true"), &image(8 << 10, 1)).is_err());
        assert_eq!(store.files().unwrap().len(), 0);
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn many_may_write_the_same_unit() {
        let place = place("race");
        std::thread::scope(|scope| {
            for number in 0..8u32 {
                let place = &place;
                scope.spawn(move || {
                    let store = Store::open(place, 64 << 20).unwrap();
                    for round in 0..50 {
                        let len = 1000 + 100 * number as usize + round;
                        store.save(Key(1), &about("/bin/true"), &image(len, number)).unwrap();
                        let (_, loaded) = store.load(Key(1), |_| true).expect("whole at any time");
                        assert!(loaded.as_ref().len() >= 1000);
                    }
                });
            }
        });
        std::fs::remove_dir_all(&place).unwrap();
    }
}
